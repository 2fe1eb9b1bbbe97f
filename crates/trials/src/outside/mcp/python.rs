//! Runs the client of the Python SDK: both transports, both protocol versions, and three kinds of users: one who
//! approves, one who declines, and none. This process answers as the user at another terminal.

use super::ServedHome;
use crate::{
    Result,
    outside::CheckStage,
    packages::{self, PinnedPackages},
};
use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::Stdio,
};

const PACKAGES: PinnedPackages = &[("mcp", "2.3.0")];
const CLIENT: &str = include_str!("client.py");

pub(in super::super) fn python(stage: &CheckStage) -> Result<()> {
    let served = ServedHome::start(stage)?;
    let token = served.create_token(stage, "python")?;
    let python = packages::install_python("mcp-python", PACKAGES)?.display().to_string();
    let script = stage.dir.join("client.py");
    fs::write(&script, CLIENT).map_err(|e| format!("{}: {e}", script.display()))?;
    for (way, era) in [("stdio", "legacy"), ("stdio", "auto"), ("http", "legacy"), ("http", "auto")] {
        for answers in ["approve", "decline", "none"] {
            // Each run starts with nothing pushed.
            let _ = fs::remove_file(stage.dir.join("project/remote.git/refs/heads/main"));
            let mut client = stage.command(&python, "project");
            client.arg(&script).args([way, era, answers, &stage.csn, &served.address, &token]).arg(&served.project);
            run_client(stage, client).map_err(|why| format!("{way}, {era}, {answers}: {why}"))?;
        }
    }
    Ok(())
}

/// Runs the client, and answers the approvals that it names.
fn run_client(stage: &CheckStage, mut client: std::process::Command) -> Result<()> {
    let log = stage.dir.join("client.log");
    let errors = fs::File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
    let started = client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).spawn();
    let mut child = started.map_err(|e| format!("python: {e}"))?;
    let (Some(mut to_client), Some(from_client)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("the client has no pipes".into());
    };
    let mut passed = false;
    // The client ends on its own: it has a time limit.
    for line in BufReader::new(from_client).lines().map_while(std::result::Result::ok) {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["ANSWER", approval, choice] => {
                let done = stage.csn(&["approvals", "answer", approval, choice]);
                let word = if done.is_ok() { "done" } else { "failed" };
                writeln!(to_client, "{word}").map_err(|e| format!("the client: {e}"))?;
            }
            ["ok"] => passed = true,
            _ => println!("   {line}"),
        }
    }
    let status = child.wait().map_err(|e| format!("python: {e}"))?;
    if passed && status.success() {
        Ok(())
    } else {
        Err(fs::read_to_string(&log).unwrap_or_default().lines().rev().take(12).collect::<Vec<_>>().join(" | "))
    }
}
