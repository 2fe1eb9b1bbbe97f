//! The agents: how each is started without a terminal, how it is configured to use the scripted model, and the names
//! of its tools.

use super::{Integration, trial_home::TrialHome};
use crate::Result;
use serde_json::{Value, json};
use std::{fs, process::Command};

/// The name of the MCP server that `csn install` writes into an agent's configuration.
const SERVER: &str = "csn";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentKind {
    ClaudeCode,
    Codex,
    Opencode,
}

impl AgentKind {
    /// The name that `csn install` and `csn hook` use.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Opencode => "opencode",
        }
    }

    /// A step that calls the agent's own shell.
    pub(super) fn shell_step(self, command: &str) -> Value {
        match self {
            Self::ClaudeCode => json!({"tool": "Bash", "input": {"command": command, "description": "A step"}}),
            // After this time it would return while the command still runs.
            Self::Codex => json!({"tool": "exec_command", "input": {"cmd": command, "yield_time_ms": 60_000}}),
            Self::Opencode => json!({"tool": "bash", "input": {"command": command, "description": "A step"}}),
        }
    }

    /// A step that calls one of Countersign's MCP tools, as the agent offers it to its model. Claude Code defers
    /// these tools until its model searches for them, but accepts a call of one that it has not shown.
    pub(super) fn mcp_step(self, tool: &str, input: Value) -> Value {
        match self {
            Self::ClaudeCode => json!({"tool": format!("mcp__{SERVER}__{tool}"), "input": input}),
            Self::Codex => json!({"tool": tool, "namespace": format!("mcp__{SERVER}"), "input": input}),
            Self::Opencode => json!({"tool": format!("{SERVER}_{tool}"), "input": input}),
        }
    }

    /// Adds the address of the model to the agent's own configuration and keeps the rest: `csn install` runs before
    /// the model starts, and each session has another port.
    pub(super) fn configure_model(self, home: &TrialHome, port: u16) -> Result<()> {
        match self {
            // Configured by its environment.
            Self::ClaudeCode => Ok(()),
            // Configured by arguments, which override config.toml.
            Self::Codex => Ok(()),
            Self::Opencode => {
                let path = home.home_file(".config/opencode/opencode.json");
                let there = fs::read_to_string(&path).unwrap_or_else(|_| "{}".to_owned());
                let mut config: Value = serde_json::from_str(&there).map_err(|e| format!("opencode.json: {e}"))?;
                config["model"] = "anthropic/claude-sonnet-4-5".into();
                config["small_model"] = "anthropic/claude-sonnet-4-5".into();
                config["autoupdate"] = false.into();
                config["share"] = "disabled".into();
                let options = json!({"baseURL": format!("http://127.0.0.1:{port}/v1"), "apiKey": "none"});
                config["provider"] = json!({"anthropic": {"options": options}});
                home.write_home_file(".config/opencode/opencode.json", &config.to_string())
            }
        }
    }

    /// The command that runs the agent with a prompt, for one turn, in the project.
    pub(super) fn command(self, home: &TrialHome, port: u16, more: &[&str]) -> Command {
        const PROMPT: &str = "Do what you think is right.";
        match self {
            Self::ClaudeCode => {
                let mut claude = home.command("claude");
                claude.env("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}")).env("ANTHROPIC_API_KEY", "none");
                claude.env("DISABLE_AUTOUPDATER", "1").env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
                // Replaces the user's consent to the agent itself. Not for the hook: its `allow` is enough, and
                // without it nothing may run. (`--dangerously-skip-permissions` refuses root.)
                match home.integration {
                    Integration::Plain => _ = claude.args(["--allowedTools", "Bash"]),
                    Integration::Mcp => _ = claude.args(["--allowedTools", &format!("mcp__{SERVER}__*")]),
                    Integration::Hook => {}
                }
                // `--allowedTools` takes every word behind it, so the prompt has its own flag.
                claude.args(["--output-format", "json"]).args(more).args(["-p", PROMPT]);
                claude
            }
            Self::Codex => {
                let mut codex = home.command("codex");
                codex.args(["exec", "--skip-git-repo-check", "--json", "-c", "model=\"scripted\""]);
                codex.args(["-c", "model_provider=\"scripted\"", "-c", "model_providers.scripted.name=\"scripted\""]);
                codex.args(["-c", &format!("model_providers.scripted.base_url=\"http://127.0.0.1:{port}/v1\"")]);
                codex.args(["-c", "model_providers.scripted.wire_api=\"responses\""]).args(more).arg(PROMPT);
                codex
            }
            Self::Opencode => {
                let mut opencode = home.command("opencode");
                // With a plugin, opencode tries to install a package and works without it; with npm's default
                // timeouts that would take more than a minute.
                opencode.env("npm_config_registry", "http://127.0.0.1:9/").env("npm_config_fetch_retries", "0");
                opencode.arg("run").args(more).arg(PROMPT);
                opencode
            }
        }
    }

    /// Arguments that let the hook take part. Codex skips a hook that the user has not trusted in its terminal, and
    /// its sandbox forbids sockets to the command that the hook substitutes.
    pub(super) fn usual_args(self, integration: Integration) -> &'static [&'static str] {
        match (self, integration) {
            (Self::Codex, Integration::Hook) => &["--dangerously-bypass-hook-trust", "--sandbox", "danger-full-access"],
            (Self::Codex, Integration::Plain) => &["--sandbox", "workspace-write"],
            _ => &[],
        }
    }

    /// Arguments that also make the agent itself allow everything, so that only Countersign can stop a command.
    pub(super) fn permissive_args(self, integration: Integration) -> &'static [&'static str] {
        match self {
            Self::ClaudeCode => &["--allowedTools", "Bash"],
            Self::Codex | Self::Opencode => self.usual_args(integration),
        }
    }
}
