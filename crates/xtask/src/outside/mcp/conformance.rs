//! The official conformance suite, in both sets of requirements, against the fixture server of a development build. It
//! has the tools that the scenarios call, on the transport that `/mcp` has, and asks for no token: the suite has none.

use super::{free, theirs};
use crate::{
    Result, cargo,
    outside::{Stage, tmux::text_of},
    root, run,
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

const REVISIONS: &[&str] = &["2025-11-25", "2026-07-28"];
/// What may fail, with reasons.
const EXPECTED: &str = include_str!("expected.yml");

pub(in super::super) fn conformance(stage: &Stage) -> Result<()> {
    let csn = fixture()?;
    let address = free()?;
    let mut up = stage.command(&csn.display().to_string(), ".");
    let started = up.args(["up", "--detach", "--tcp", &address]).output().map_err(|e| format!("csn up: {e}"))?;
    text_of("csn up", &started)?;
    let mut failed = Vec::new();
    let baseline = stage.dir.join("expected.yml");
    fs::write(&baseline, EXPECTED).map_err(|e| format!("{}: {e}", baseline.display()))?;
    for revision in REVISIONS {
        let results = stage.dir.join(revision);
        let mut suite = theirs(stage, "conformance", "900")?;
        suite.args(["server", "--url", &format!("http://{address}/mcp/fixture"), "--requirements", revision]);
        suite.arg("--expected-failures").arg(&baseline).arg("-o").arg(&results);
        let output = suite.output().map_err(|e| format!("conformance: {e}"))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        // One line for each scenario, of those that count and of those that are only reported.
        let summary = said.split("=== SUMMARY ===").nth(1).unwrap_or(&said).trim();
        let total = summary.lines().find(|line| line.starts_with("Total:")).unwrap_or("no total");
        println!("   {revision}: {total}");
        if !output.status.success() {
            let last = summary.lines().last().unwrap_or_default();
            failed.push(format!("{revision}: {last}\n{}", complaints(&results)?.join("\n")));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// What failed, check by check, with what the suite has to say of it: its own report names scenarios alone.
fn complaints(results: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(results).map_err(|e| format!("{}: {e}", results.display()))?.flatten() {
        let path = entry.path().join("checks.json");
        // A scenario that broke off has none; the summary counts it.
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

/// `csn` with the fixture in it, which no release has; `CSN_FIXTURE_BIN=DIR` takes it from there.
fn fixture() -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("CSN_FIXTURE_BIN") {
        return fs::canonicalize(&dir).map(|dir| dir.join("csn")).map_err(|e| format!("CSN_FIXTURE_BIN: {e}"));
    }
    run(cargo().args(["build", "--quiet", "--package", "countersign-bin", "--bins", "--features", "fixture"]))?;
    Ok(root().join("target/debug/csn"))
}
