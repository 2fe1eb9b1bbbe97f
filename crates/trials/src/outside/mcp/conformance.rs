//! Runs the official conformance suite, with both sets of requirements, against two servers. The fixture has the
//! tools that the scenarios call, on the transport of `/mcp`, and must pass everything that is required. The daemon's
//! own `/mcp` has other tools, and must pass what does not need those of the suite.

use super::{ServedHome, free_address, npm_program, token_proxy};
use crate::{Result, cargo, command, outside::CheckStage, root, run};
use serde_json::Value;
use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::{Child, Stdio},
};

const REVISIONS: &[&str] = &["2025-11-25", "2026-07-28"];
/// The failures that are expected, with reasons.
const EXPECTED_OF_FIXTURE: &str = include_str!("expected.yml");
const EXPECTED_OF_DAEMON: &str = include_str!("expected-daemon.yml");

pub(in super::super) fn conformance(stage: &CheckStage) -> Result<()> {
    let fixture = Fixture::start()?;
    let served = ServedHome::start(stage)?;
    let token = served.create_token(stage, "conformance")?;
    let daemon = token_proxy::start(served.address.trim_start_matches("http://"), &token)?;
    let mut failed = run_suite(stage, "fixture", &fixture.address, EXPECTED_OF_FIXTURE)?;
    failed.extend(run_suite(stage, "daemon", &daemon, EXPECTED_OF_DAEMON)?);
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// Runs the suite against a server; returns its complaints.
fn run_suite(stage: &CheckStage, name: &str, address: &str, expected: &str) -> Result<Vec<String>> {
    let mut failed = Vec::new();
    let baseline = stage.dir.join(format!("{name}.yml"));
    fs::write(&baseline, expected).map_err(|e| format!("{}: {e}", baseline.display()))?;
    for revision in REVISIONS {
        let results = stage.dir.join(format!("{name}-{revision}"));
        let mut suite = npm_program(stage, "conformance", "900")?;
        suite.args(["server", "--url", &format!("http://{address}/mcp"), "--requirements", revision]);
        suite.arg("--expected-failures").arg(&baseline).arg("-o").arg(&results);
        let output = suite.output().map_err(|e| format!("conformance: {e}"))?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        // The summary has one line for each scenario, scored or only reported.
        let summary = printed.split("=== SUMMARY ===").nth(1).unwrap_or(&printed).trim();
        let total = summary.lines().find(|line| line.starts_with("Total:")).unwrap_or("no total");
        println!("   {name}, {revision}: {total}");
        if !output.status.success() {
            let last = summary.lines().last().unwrap_or_default();
            let unexpected = summary.lines().filter(|line| line.starts_with("  ✗")).collect::<Vec<_>>().join("\n");
            failed.push(format!("{name}, {revision}: {last}\n{unexpected}\n{}", failed_checks(&results)?.join("\n")));
        }
    }
    Ok(failed)
}

/// The failed checks with their messages, since the suite's own report names only scenarios.
fn failed_checks(results: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(results).map_err(|e| format!("{}: {e}", results.display()))?.flatten() {
        let path = entry.path().join("checks.json");
        // A scenario that was aborted has no file; the summary counts it.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let checks: Vec<Value> = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        for check in checks.iter().filter(|check| check["status"] == "FAILURE") {
            let scenario = entry.file_name().to_string_lossy().into_owned();
            found.push(format!("   {scenario}: {}: {}", check["id"], check["errorMessage"]));
        }
    }
    found.sort();
    Ok(found)
}

/// The fixture as a child process, killed on drop.
struct Fixture {
    address: String,
    process: Child,
}

impl Fixture {
    fn start() -> Result<Self> {
        let address = free_address()?;
        let mut fixture = command(&fixture_program()?.display().to_string());
        let mut process =
            fixture.arg(&address).stdout(Stdio::piped()).spawn().map_err(|e| format!("the fixture: {e}"))?;
        let mut ready = [0; 5];
        let printed = process.stdout.as_mut().map_or(Ok(()), |out| out.read_exact(&mut ready));
        let started = Self { address, process };
        printed.map_err(|e| format!("the fixture: {e}"))?;
        Ok(started)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `CSN_FIXTURE_BIN=DIR` uses the fixture in DIR instead of building it.
fn fixture_program() -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("CSN_FIXTURE_BIN") {
        let dir = fs::canonicalize(&dir).map_err(|e| format!("CSN_FIXTURE_BIN: {e}"))?;
        return Ok(dir.join("csn-mcp-fixture"));
    }
    run(cargo().args(["build", "--quiet", "--package", "countersign-mcp-fixture"]))?;
    Ok(root().join("target/debug/csn-mcp-fixture"))
}
