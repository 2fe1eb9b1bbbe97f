//! The API in the hands of schemathesis: requests made from `/openapi.json`, valid and invalid, alone and in chains,
//! over loopback with a token. No answer may be an error of the server, have a status or a body that the document does
//! not describe, refuse what it allows or accept what it forbids. `schemathesis.toml` says what is left out, and why.
//!
//! Nothing that is made up runs. The one slot of the home is held by a task of the owner, and the made-up requests
//! come from another principal, who cannot see that task: whatever is permitted waits in line. Operations that are for
//! the owner alone, none of which runs anything, are tested apart, with a token of the owner.

use super::{CheckStage, mcp::free};
use crate::{
    Result,
    packages::{self, Pinned},
};
use std::{fs, path::PathBuf, process::Command};

const PACKAGES: Pinned = &[("schemathesis", "4.32.5")];
const FILES: &[(&str, &str)] = &[
    ("driver.py", include_str!("driver.py")),
    ("hooks.py", include_str!("hooks.py")),
    ("schemathesis.toml", include_str!("schemathesis.toml")),
];
/// One task runs at a time.
const ONE_SLOT: &str = "[limits]\nrunning = 1\n";
const SCOPES: &[&str] = &["--scope", "observe", "--scope", "run", "--scope", "approve", "--scope", "admin"];
/// What only the owner may do.
const OWNERS: &str = "^/(gc|keys|ledger|listen|tokens|receipts/head)";
/// Longer than any run takes; a run that hangs is a failure.
const SECONDS: &str = "600";

pub(super) fn schemathesis(stage: &CheckStage) -> Result<()> {
    let api = Api::start(stage)?;
    let person = api.token("made-up", &["--principal", "fuzzer"])?;
    let owner = api.token("owner", &[])?;
    let seeded = api.drive("seed", &person, &[])?;
    let holder = stage.csn(&["run", "--quiet", "--background", "--stdin", "--profile", "full_auto", "cat"])?;
    api.restart_with_one_slot()?;
    api.run("what a person may do", &person, &seeded, &["--max-examples", "60", "--exclude-path-regex", OWNERS])?;
    // Fails, too, if the token was revoked on the way and everything was refused.
    println!("   {}", api.drive("check", &person, &[&seeded])?);
    api.run("what the owner may do", &owner, "{}", &["--max-examples", "60", "--include-path-regex", OWNERS])?;
    let own = serde_json::json!({"/tasks/": [holder.trim()]}).to_string();
    api.drive("check", &owner, &[&own]).map(drop)
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
        let python = packages::python("schemathesis", PACKAGES)?;
        let project = stage.directory("project", &[("greeting", "hello\n")])?;
        stage.directory("schemathesis", FILES)?;
        let address = free()?;
        stage.csn(&["up", "--detach", "--tcp", &address])?;
        Ok(Self { stage, address, project, python })
    }

    fn token(&self, name: &str, more: &[&str]) -> Result<String> {
        let create = ["token", "create", "--json", "--person", "--name", name];
        let made = self.stage.csn(&[&create, SCOPES, more].concat())?;
        let value: serde_json::Value = serde_json::from_str(&made).map_err(|e| format!("csn token create: {e}"))?;
        value["token"].as_str().map(str::to_owned).ok_or(format!("no token in {made}"))
    }

    /// Tasks that run go on, and hold their slots.
    fn restart_with_one_slot(&self) -> Result<()> {
        self.stage.csn(&["down"])?;
        self.stage.directory("config/countersign", &[("config.toml", ONE_SLOT)])?;
        self.stage.csn(&["up", "--detach", "--tcp", &self.address]).map(drop)
    }

    fn python(&self) -> Command {
        let mut command = self.stage.command("timeout", "schemathesis");
        command.args(["--kill-after=5", SECONDS]).arg(&self.python).env("PYTHONPATH", ".");
        command
    }

    fn drive(&self, word: &str, token: &str, more: &[&str]) -> Result<String> {
        let mut python = self.python();
        python.args(["driver.py", word, &format!("http://{}", self.address), token]).arg(&self.project).args(more);
        let output = python.output().map_err(|e| format!("python: {e}"))?;
        super::text_of(&format!("driver.py {word}"), &output).map(|text| text.trim().to_owned())
    }

    /// Tests the operations that `more` chooses. Prints how many requests that took; the error is the whole report.
    fn run(&self, what: &str, token: &str, existing: &str, more: &[&str]) -> Result<()> {
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
        let kept = std::env::temp_dir().join("csn-schemathesis.txt");
        fs::write(&kept, report.as_bytes()).map_err(|e| format!("{}: {e}", kept.display()))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(format!("{what}: {}; the report is in {}\n{}", output.status, kept.display(), errors.trim()))
    }
}
