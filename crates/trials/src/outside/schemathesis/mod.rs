//! Tests the API with schemathesis: requests generated from `/openapi.json`, valid and invalid, alone and in chains,
//! over loopback with a token. No answer may be a server error, have a status or a body that the document does not
//! describe, refuse what the document allows or accept what it forbids. `schemathesis.toml` lists what is left out,
//! and why.
//!
//! No generated command runs. A task of the owner holds the only slot of the home, and the generated requests come
//! from another principal, who cannot see that task: whatever is permitted waits in the queue. Operations for the
//! owner alone, none of which runs anything, are tested separately with the owner's token.

use super::{CheckStage, mcp::free_address};
use crate::{
    Result,
    packages::{self, PinnedPackages},
};
use std::{fs, path::PathBuf, process::Command};

const PACKAGES: PinnedPackages = &[("schemathesis", "4.32.5")];
const FILES: &[(&str, &str)] = &[
    ("driver.py", include_str!("driver.py")),
    ("hooks.py", include_str!("hooks.py")),
    ("schemathesis.toml", include_str!("schemathesis.toml")),
];
/// One task runs at a time.
const ONE_SLOT_CONFIG: &str = "[limits]\nrunning = 1\n";
const SCOPES: &[&str] = &["--scope", "observe", "--scope", "run", "--scope", "approve", "--scope", "admin"];
/// The paths that only the owner may use.
const OWNER_PATHS: &str = "^/(gc|keys|ledger|listen|tokens|receipts/head)";
/// Longer than any run takes; a run that hangs is a failure.
const MAX_RUN_SECONDS: &str = "600";

pub(super) fn schemathesis(stage: &CheckStage) -> Result<()> {
    let api = Api::start(stage)?;
    let person = api.create_token("made-up", &["--principal", "fuzzer"])?;
    let owner = api.create_token("owner", &[])?;
    let seeded = api.run_driver("seed", &person, &[])?;
    let holder = stage.csn(&["run", "--quiet", "--background", "--stdin", "--profile", "full_auto", "cat"])?;
    api.restart_with_one_slot()?;
    api.test_operations(
        "operations of a user",
        &person,
        &seeded,
        &["--max-examples", "60", "--exclude-path-regex", OWNER_PATHS],
    )?;
    // Also fails if the token was revoked during the run and everything was refused.
    println!("   {}", api.run_driver("check", &person, &[&seeded])?);
    api.test_operations(
        "operations of the owner",
        &owner,
        "{}",
        &["--max-examples", "60", "--include-path-regex", OWNER_PATHS],
    )?;
    let own = serde_json::json!({"/tasks/": [holder.trim()]}).to_string();
    api.run_driver("check", &owner, &[&own]).map(drop)
}

/// A home that listens on loopback, and the Python that has schemathesis.
struct Api<'s> {
    stage: &'s CheckStage,
    address: String,
    project: PathBuf,
    python: PathBuf,
}

impl<'s> Api<'s> {
    fn start(stage: &'s CheckStage) -> Result<Self> {
        let python = packages::install_python("schemathesis", PACKAGES)?;
        let project = stage.directory("project", &[("greeting", "hello\n")])?;
        stage.directory("schemathesis", FILES)?;
        let address = free_address()?;
        stage.csn(&["up", "--detach", "--tcp", &address])?;
        Ok(Self { stage, address, project, python })
    }

    fn create_token(&self, name: &str, more: &[&str]) -> Result<String> {
        let create = ["token", "create", "--json", "--person", "--name", name];
        let created = self.stage.csn(&[&create, SCOPES, more].concat())?;
        let value: serde_json::Value = serde_json::from_str(&created).map_err(|e| format!("csn token create: {e}"))?;
        value["token"].as_str().map(str::to_owned).ok_or(format!("no token in {created}"))
    }

    /// Running tasks keep running, and keep their slots.
    fn restart_with_one_slot(&self) -> Result<()> {
        self.stage.csn(&["down"])?;
        self.stage.directory("config/countersign", &[("config.toml", ONE_SLOT_CONFIG)])?;
        self.stage.csn(&["up", "--detach", "--tcp", &self.address]).map(drop)
    }

    fn python(&self) -> Command {
        let mut command = self.stage.command("timeout", "schemathesis");
        command.args(["--kill-after=5", MAX_RUN_SECONDS]).arg(&self.python).env("PYTHONPATH", ".");
        command
    }

    fn run_driver(&self, word: &str, token: &str, more: &[&str]) -> Result<String> {
        let mut python = self.python();
        python.args(["driver.py", word, &format!("http://{}", self.address), token]).arg(&self.project).args(more);
        let output = python.output().map_err(|e| format!("python: {e}"))?;
        super::stdout_text(&format!("driver.py {word}"), &output).map(|text| text.trim().to_owned())
    }

    /// Tests the operations that `more` selects. Prints the number of requests; the error contains the report.
    fn test_operations(&self, what: &str, token: &str, existing: &str, more: &[&str]) -> Result<()> {
        let address = format!("http://{}", self.address);
        let mut python = self.python();
        python.args(["-m", "schemathesis.cli", "--config-file", "schemathesis.toml", "run"]);
        python.args([&format!("{address}/openapi.json"), "--url", &address, "--no-color"]);
        python.args(["--header", &format!("Authorization: Bearer {token}")]).args(more);
        python.env("COUNTERSIGN_EXISTING", existing).env("COUNTERSIGN_PROJECT", &self.project);
        let output = python.output().map_err(|e| format!("schemathesis: {e}"))?;
        let report = String::from_utf8_lossy(&output.stdout);
        let counted = report.lines().skip_while(|line| *line != "Test cases:").nth(1).unwrap_or_default();
        println!("   {what}:{}", counted.trim_end());
        let answers = self.stage.dir.join("schemathesis/answers.txt");
        let answers = fs::read_to_string(&answers).map_err(|e| format!("{}: {e}", answers.display()))?;
        answers.lines().for_each(|line| println!("     {line}"));
        if output.status.success() {
            return Ok(());
        }
        let report_file = std::env::temp_dir().join("csn-schemathesis.txt");
        fs::write(&report_file, report.as_bytes()).map_err(|e| format!("{}: {e}", report_file.display()))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(format!("{what}: {}; the report is in {}\n{}", output.status, report_file.display(), errors.trim()))
    }
}
