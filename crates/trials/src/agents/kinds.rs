//! The agents: how each is started without anybody at a terminal, how its model is pointed at ours, and what its tools
//! are called.

use super::{Integration, trial_home::TrialHome};
use crate::Result;
use serde_json::{Value, json};
use std::{fs, process::Command};

/// What `csn install` calls our server in their configuration.
const SERVER: &str = "csn";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentKind {
    ClaudeCode,
    Codex,
    Opencode,
}

impl AgentKind {
    /// As `csn install` and `csn hook` know it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Opencode => "opencode",
        }
    }

    /// A call of the agent's own shell.
    pub(super) fn shell(self, command: &str) -> Value {
        match self {
            Self::ClaudeCode => json!({"tool": "Bash", "input": {"command": command, "description": "A step"}}),
            // After so long it would answer that the command still runs.
            Self::Codex => json!({"tool": "exec_command", "input": {"cmd": command, "yield_time_ms": 60_000}}),
            Self::Opencode => json!({"tool": "bash", "input": {"command": command, "description": "A step"}}),
        }
    }

    /// A call of one of our tools, as the agent offers it to its model. Claude Code holds them back until its model has
    /// searched for them, but takes a call of one that it has not shown.
    pub(super) fn mcp(self, tool: &str, input: Value) -> Value {
        match self {
            Self::ClaudeCode => json!({"tool": format!("mcp__{SERVER}__{tool}"), "input": input}),
            Self::Codex => json!({"tool": tool, "namespace": format!("mcp__{SERVER}"), "input": input}),
            Self::Opencode => json!({"tool": format!("{SERVER}_{tool}"), "input": input}),
        }
    }

    /// Writes where the model is into the agent's own configuration, beside what is there already: `csn install` comes
    /// before the model, and a second session has another port.
    pub(super) fn point(self, daemon: &TrialHome, port: u16) -> Result<()> {
        match self {
            // By its environment.
            Self::ClaudeCode => Ok(()),
            // By arguments: they win over what config.toml says.
            Self::Codex => Ok(()),
            Self::Opencode => {
                let path = daemon.user(".config/opencode/opencode.json");
                let there = fs::read_to_string(&path).unwrap_or_else(|_| "{}".to_owned());
                let mut config: Value = serde_json::from_str(&there).map_err(|e| format!("opencode.json: {e}"))?;
                config["model"] = "anthropic/claude-sonnet-4-5".into();
                config["small_model"] = "anthropic/claude-sonnet-4-5".into();
                config["autoupdate"] = false.into();
                config["share"] = "disabled".into();
                let options = json!({"baseURL": format!("http://127.0.0.1:{port}/v1"), "apiKey": "none"});
                config["provider"] = json!({"anthropic": {"options": options}});
                daemon.write(".config/opencode/opencode.json", &config.to_string())
            }
        }
    }

    /// The agent with a prompt, for one turn, in the project.
    pub(super) fn command(self, daemon: &TrialHome, port: u16, more: &[&str]) -> Command {
        const PROMPT: &str = "Do what you think is right.";
        match self {
            Self::ClaudeCode => {
                let mut claude = daemon.command("claude");
                claude.env("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}")).env("ANTHROPIC_API_KEY", "none");
                claude.env("DISABLE_AUTOUPDATER", "1").env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
                // In place of the person who would say yes to the agent itself. Not with the hook: its `allow` is
                // enough, and without it nothing may run. (`--dangerously-skip-permissions` refuses root.)
                match daemon.way {
                    Integration::Plain => _ = claude.args(["--allowedTools", "Bash"]),
                    Integration::Mcp => _ = claude.args(["--allowedTools", &format!("mcp__{SERVER}__*")]),
                    Integration::Hook => {}
                }
                // `--allowedTools` takes all that follow it, so the prompt comes by its own flag.
                claude.args(["--output-format", "json"]).args(more).args(["-p", PROMPT]);
                claude
            }
            Self::Codex => {
                let mut codex = daemon.command("codex");
                codex.args(["exec", "--skip-git-repo-check", "--json", "-c", "model=\"scripted\""]);
                codex.args(["-c", "model_provider=\"scripted\"", "-c", "model_providers.scripted.name=\"scripted\""]);
                codex.args(["-c", &format!("model_providers.scripted.base_url=\"http://127.0.0.1:{port}/v1\"")]);
                codex.args(["-c", "model_providers.scripted.wire_api=\"responses\""]).args(more).arg(PROMPT);
                codex
            }
            Self::Opencode => {
                let mut opencode = daemon.command("opencode");
                // With a plugin it wants a package of its own beside it, and does without when it cannot get it; with
                // npm's usual patience that takes it more than a minute.
                opencode.env("npm_config_registry", "http://127.0.0.1:9/").env("npm_config_fetch_retries", "0");
                opencode.arg("run").args(more).arg(PROMPT);
                opencode
            }
        }
    }

    /// What lets the hook take part at all. In Codex a hook that nobody has trusted in its terminal is skipped, and its
    /// sandbox forbids sockets to the command that the hook puts in place.
    pub(super) fn usual(self, way: Integration) -> &'static [&'static str] {
        match (self, way) {
            (Self::Codex, Integration::Hook) => &["--dangerously-bypass-hook-trust", "--sandbox", "danger-full-access"],
            (Self::Codex, Integration::Plain) => &["--sandbox", "workspace-write"],
            _ => &[],
        }
    }

    /// The same, and the agent itself would run everything: whatever does not run was stopped by us.
    pub(super) fn willing(self, way: Integration) -> &'static [&'static str] {
        match self {
            Self::ClaudeCode => &["--allowedTools", "Bash"],
            Self::Codex | Self::Opencode => self.usual(way),
        }
    }
}
