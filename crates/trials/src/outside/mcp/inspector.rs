//! Runs the MCP inspector at the command line: it lists and calls the tools over stdio and HTTP, and distinguishes a
//! tool error (exit code 5) from a server that does not answer.

use super::{ServedHome, npm_program};
use crate::{Result, outside::CheckStage};
use serde_json::Value;

const TOOLS: &[&str] = &[
    "run",
    "task_list",
    "task_status",
    "task_wait",
    "task_output",
    "task_search",
    "task_input",
    "task_resize",
    "task_signal",
    "task_cancel",
    "set_working_directory",
    "receipt_get",
];

pub(in super::super) fn inspector(stage: &CheckStage) -> Result<()> {
    let served = ServedHome::start(stage)?;
    let token = served.create_token(stage, "inspector")?;
    let home = format!("COUNTERSIGN_HOME={}", stage.dir.join("home").display());
    let config = format!("XDG_CONFIG_HOME={}", stage.dir.join("config").display());
    // The inspector passes little more than HOME and PATH to a server that it starts.
    let stdio = [stage.csn.as_str(), "mcp", "-e", &home, "-e", &config];
    let (url, header) = (format!("{}/mcp", served.address), format!("Authorization: Bearer {token}"));
    let http = [url.as_str(), "--transport", "http", "--header", &header];
    let cwd = format!("cwd={}", served.project.display());
    for way in [&stdio[..], &http[..]] {
        let (code, list) = run_inspector(stage, way, &["--method", "tools/list", "--strict"])?;
        let names: Vec<_> =
            list["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str()).collect();
        if code != 0 || names != TOOLS {
            return Err(format!("tools/list: {code}: {names:?}"));
        }
        let call = |command: &str| {
            let command = format!("command={command}");
            run_inspector(stage, way, &["--method", "tools/call", "--tool-name", "run", "--tool-arg", &command, &cwd])
        };
        let (code, printed) = call("cat greeting")?;
        let result = &printed["structuredContent"];
        let output = result["output"]["stdout"]["text"].as_str().unwrap_or_default();
        if code != 0 || result["exit_code"] != 0 || !output.contains("hello from the project") {
            return Err(format!("cat greeting: {code}: {printed}"));
        }
        let (code, printed) = call("mkdir made")?;
        let denied = printed["isError"] == true && printed["content"].to_string().contains("made by people");
        if code != 5 || !denied || served.project.join("made").exists() {
            return Err(format!("mkdir made: {code}: {printed}"));
        }
    }
    let (code, printed) = run_inspector(stage, &[&url, "--transport", "http"], &["--method", "tools/list"])?;
    match code {
        0 => Err(format!("the server answered without a token: {printed}")),
        _ => Ok(()),
    }
}

/// Runs the inspector; returns its exit code and its output.
fn run_inspector(stage: &CheckStage, way: &[&str], asked: &[&str]) -> Result<(i32, Value)> {
    let mut inspector = npm_program(stage, "mcp-inspector", "60")?;
    // A stdio server works in the directory it is started in.
    inspector.current_dir(stage.dir.join("project"));
    let output = inspector.arg("--cli").args(way).args(asked).output().map_err(|e| format!("mcp-inspector: {e}"))?;
    let printed = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        Value::from(format!("{out}{err}"))
    });
    Ok((output.status.code().unwrap_or(-1), printed))
}
