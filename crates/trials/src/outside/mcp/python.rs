//! The client of the Python SDK: both transports, both eras, and three kinds of people at it: one who approves, one who
//! declines, and none at all. Whoever answers at another terminal is here.

use super::ServedHome;
use crate::{
    Result,
    outside::CheckStage,
    packages::{self, Pinned},
};
use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::Stdio,
};

const PACKAGES: Pinned = &[("mcp", "2.3.0")];
const CLIENT: &str = include_str!("client.py");

pub(in super::super) fn python(stage: &CheckStage) -> Result<()> {
    let served = ServedHome::start(stage)?;
    let token = served.token(stage, "python")?;
    let python = packages::python("mcp-python", PACKAGES)?.display().to_string();
    let script = stage.dir.join("client.py");
    fs::write(&script, CLIENT).map_err(|e| format!("{}: {e}", script.display()))?;
    for (way, era) in [("stdio", "legacy"), ("stdio", "auto"), ("http", "legacy"), ("http", "auto")] {
        for answers in ["approve", "decline", "none"] {
            // Each begins with nothing pushed.
            let _ = fs::remove_file(stage.dir.join("project/remote.git/refs/heads/main"));
            let mut client = stage.command(&python, "project");
            client.arg(&script).args([way, era, answers, &stage.csn, &served.address, &token]).arg(&served.project);
            converse(stage, client).map_err(|why| format!("{way}, {era}, {answers}: {why}"))?;
        }
    }
    Ok(())
}

/// Runs the client, and answers what it has to have answered.
fn converse(stage: &CheckStage, mut client: std::process::Command) -> Result<()> {
    let log = stage.dir.join("client.log");
    let errors = fs::File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
    let started = client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).spawn();
    let mut child = started.map_err(|e| format!("python: {e}"))?;
    let (Some(mut told), Some(says)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("the client has no pipes".into());
    };
    let mut fine = false;
    // It ends by itself: it has a deadline of its own.
    for line in BufReader::new(says).lines().map_while(std::result::Result::ok) {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["ANSWER", approval, choice] => {
                let done = stage.csn(&["approvals", "answer", approval, choice]);
                let word = if done.is_ok() { "done" } else { "failed" };
                writeln!(told, "{word}").map_err(|e| format!("the client: {e}"))?;
            }
            ["ok"] => fine = true,
            _ => println!("   {line}"),
        }
    }
    let status = child.wait().map_err(|e| format!("python: {e}"))?;
    match fine && status.success() {
        true => Ok(()),
        false => {
            Err(fs::read_to_string(&log).unwrap_or_default().lines().rev().take(12).collect::<Vec<_>>().join(" | "))
        }
    }
}
