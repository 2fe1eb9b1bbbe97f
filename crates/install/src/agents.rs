//! The supported agents: where each keeps its configuration, which entries are written there, and what the user has to
//! do afterwards.

use super::{
    entry::{
        ConfigValue, DENY_ON_FAILURE, DENY_ON_FAILURE_WITH_MESSAGE, Entry, EntryOwner, HookHandler, TIMEOUT_PREFIX,
    },
    plugin,
    prove::{HookReplyFormat, Proof},
};
use crate::{
    AgentProgram, InstallMode, InstallScope,
    error::{EnvironmentError, UnsupportedError},
};
use countersign_model::quoted;
use std::path::{Path, PathBuf};

/// How long an agent waits for a tool call: a user may have to answer an approval first.
const TOOL_TIMEOUT_SECONDS: u64 = 3600;
const HOOK_TIMEOUT_SECONDS: u64 = 600;

pub(super) fn agent_name(agent: AgentProgram) -> &'static str {
    match agent {
        AgentProgram::ClaudeCode => "claude-code",
        AgentProgram::Codex => "codex",
        AgentProgram::Opencode => "opencode",
        AgentProgram::Gemini => "gemini",
        AgentProgram::Goose => "goose",
        AgentProgram::Cursor => "cursor",
    }
}

/// The agent's program, which reports its version.
pub(super) fn program_name(agent: AgentProgram) -> &'static str {
    match agent {
        AgentProgram::ClaudeCode => "claude",
        AgentProgram::Cursor => "cursor-agent",
        other => agent_name(other),
    }
}

pub(super) fn default_mode(agent: AgentProgram) -> InstallMode {
    match agent {
        AgentProgram::ClaudeCode | AgentProgram::Opencode => InstallMode::Hook,
        // Its sandbox cannot reach the daemon's socket, and it skips hooks that the user has not trusted.
        AgentProgram::Codex => InstallMode::Mcp,
        AgentProgram::Gemini | AgentProgram::Goose | AgentProgram::Cursor => InstallMode::Mcp,
    }
}

/// Where the agents' configurations are, in this environment.
#[derive(Debug, Clone)]
pub(super) struct AgentPaths {
    pub(super) home: PathBuf,
    /// `XDG_CONFIG_HOME`, or its default.
    pub(super) config: PathBuf,
    pub(super) claude: Option<PathBuf>,
    pub(super) codex: Option<PathBuf>,
    /// Variables that locate the home: some agents pass hardly any variables to their servers.
    pub(super) home_variables: Vec<(&'static str, String)>,
    /// The project's directory, with scope `project`.
    pub(super) project: Option<PathBuf>,
}

impl AgentPaths {
    pub(super) fn from_environment(scope: InstallScope) -> Result<Self, EnvironmentError> {
        let var = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let cwd = || std::env::current_dir().map_err(EnvironmentError::Unknown);
        let home = var("HOME").ok_or(EnvironmentError::NoHome)?;
        let project = match scope {
            InstallScope::User => None,
            InstallScope::Project => Some(find_project(&cwd()?, &home)),
        };
        let variable = |name: &'static str| Some((name, var(name)?.into_os_string().into_string().ok()?));
        Ok(Self {
            home_variables: ["COUNTERSIGN_HOME", "XDG_STATE_HOME"].into_iter().filter_map(variable).collect(),
            config: var("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")),
            claude: var("CLAUDE_CONFIG_DIR"),
            codex: var("CODEX_HOME"),
            home,
            project,
        })
    }
}

/// The repository around a directory, or the directory itself. A home directory that is a repository does not count.
fn find_project(cwd: &Path, home: &Path) -> PathBuf {
    let around = cwd.ancestors().take_while(|dir| *dir != home).find(|dir| dir.join(".git").exists());
    around.unwrap_or(cwd).to_owned()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartKind {
    Hook,
    Mcp,
}

impl PartKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Hook => "hook",
            Self::Mcp => "mcp",
        }
    }
}

/// One file, the entry that belongs into it, and how the entry is proved.
#[derive(Debug, Clone)]
pub(super) struct InstallPart {
    pub(super) kind: PartKind,
    pub(super) path: PathBuf,
    pub(super) entry: Entry,
    pub(super) proof: Proof,
}

pub(super) struct InstallRequest<'a> {
    pub(super) agent: AgentProgram,
    pub(super) mode: InstallMode,
    pub(super) witness: bool,
    /// The path of csn, as it is written into files.
    pub(super) csn: &'a str,
    pub(super) places: &'a AgentPaths,
}

impl InstallRequest<'_> {
    /// The owner of this installation's entries; `old_csn` is the path of an earlier one.
    pub(super) fn owner(&self, old_csn: Option<&str>) -> EntryOwner {
        let known = [self.csn].into_iter().chain(old_csn).map(str::to_owned).collect();
        EntryOwner { agent: agent_name(self.agent), csn_paths: known }
    }

    /// The parts of this installation, or why the agent does not support it.
    pub(super) fn parts(&self) -> Result<Vec<InstallPart>, UnsupportedError> {
        let hooks = matches!(self.agent, AgentProgram::ClaudeCode | AgentProgram::Codex | AgentProgram::Opencode);
        if !hooks && self.mode != InstallMode::Mcp {
            return Err(UnsupportedError::Hook(agent_name(self.agent)));
        }
        if self.witness && self.mode == InstallMode::Mcp {
            return Err(UnsupportedError::Witness);
        }
        if self.agent == AgentProgram::Goose && self.places.project.is_some() {
            return Err(UnsupportedError::Project);
        }
        let mut parts = Vec::new();
        if self.mode != InstallMode::Mcp {
            parts.push(self.hook_part());
        }
        if self.mode != InstallMode::Hook {
            parts.push(self.mcp_part());
        }
        Ok(parts)
    }

    fn scoped_path(&self, user: PathBuf, project: &str) -> PathBuf {
        self.places.project.as_ref().map_or(user, |dir| dir.join(project))
    }

    fn hook_part(&self) -> InstallPart {
        let places = self.places;
        let codex = places.codex.clone().unwrap_or_else(|| places.home.join(".codex"));
        let claude = places.claude.clone().unwrap_or_else(|| places.home.join(".claude"));
        let path = match self.agent {
            AgentProgram::ClaudeCode => self.scoped_path(claude.join("settings.json"), ".claude/settings.json"),
            AgentProgram::Codex => self.scoped_path(codex.join("hooks.json"), ".codex/hooks.json"),
            _ => self
                .scoped_path(places.config.join("opencode/plugins/countersign.js"), ".opencode/plugins/countersign.js"),
        };
        if self.agent == AgentProgram::Opencode {
            let entry = Entry::Whole(plugin::plugin_source(self.csn, self.witness));
            let argv = [self.csn, "hook", "opencode"].into_iter().chain(self.witness.then_some("--witness"));
            let argv = argv.map(str::to_owned).collect();
            return InstallPart {
                kind: PartKind::Hook,
                path,
                entry,
                proof: Proof::Hook { argv, format: HookReplyFormat::Decision },
            };
        }
        let ask = match self.agent {
            AgentProgram::Codex => format!("{TIMEOUT_PREFIX}{}{DENY_ON_FAILURE_WITH_MESSAGE}", self.hook_command()),
            _ => self.hook_command() + DENY_ON_FAILURE,
        };
        let argv = ["/bin/sh", "-c", ask.as_str()].map(str::to_owned).to_vec();
        let entry = Entry::Hooks(self.hook_handlers(&ask));
        InstallPart {
            kind: PartKind::Hook,
            path,
            entry,
            proof: Proof::Hook { argv, format: HookReplyFormat::Permission },
        }
    }

    fn hook_command(&self) -> String {
        let witness = if self.witness { " --witness" } else { "" };
        format!("{} hook {}{witness}", quoted(self.csn), agent_name(self.agent))
    }

    fn hook_handlers(&self, ask: &str) -> Vec<HookHandler> {
        let claude = self.agent == AgentProgram::ClaudeCode;
        let matcher = if claude { "Bash" } else { "^Bash$" };
        let mut handler = vec![
            ("type", ConfigValue::text("command")),
            ("command", ConfigValue::text(ask)),
            ("timeout", ConfigValue::Number(HOOK_TIMEOUT_SECONDS)),
        ];
        if claude {
            handler.push(("onFailure", ConfigValue::text("block")));
        }
        let mut hooks = vec![HookHandler { event: "PreToolUse", matcher, handler }];
        if self.witness {
            let after: &[&'static str] = if claude { &["PostToolUse", "PostToolUseFailure"] } else { &["PostToolUse"] };
            hooks.extend(after.iter().map(|event| {
                let handler =
                    vec![("type", ConfigValue::text("command")), ("command", ConfigValue::text(self.hook_command()))];
                HookHandler { event, matcher, handler }
            }));
        }
        hooks
    }

    fn mcp_part(&self) -> InstallPart {
        let places = self.places;
        let home = |file: &str| places.home.join(file);
        let opencode = self.scoped_path(places.config.join("opencode"), "");
        let path = match self.agent {
            AgentProgram::ClaudeCode => self.scoped_path(
                places.claude.clone().unwrap_or_else(|| places.home.clone()).join(".claude.json"),
                ".mcp.json",
            ),
            AgentProgram::Codex => self.scoped_path(
                places.codex.clone().unwrap_or_else(|| home(".codex")).join("config.toml"),
                ".codex/config.toml",
            ),
            AgentProgram::Opencode => {
                let commented = opencode.join("opencode.jsonc");
                if commented.exists() { commented } else { opencode.join("opencode.json") }
            }
            AgentProgram::Gemini => self.scoped_path(home(".gemini/settings.json"), ".gemini/settings.json"),
            AgentProgram::Goose => places.config.join("goose/config.yaml"),
            AgentProgram::Cursor => self.scoped_path(home(".cursor/mcp.json"), ".cursor/mcp.json"),
        };
        let proof = Proof::Mcp { csn: self.csn.to_owned() };
        InstallPart { kind: PartKind::Mcp, path, entry: self.server_entry(), proof }
    }

    fn server_entry(&self) -> Entry {
        let program = ("command", ConfigValue::text(self.csn));
        let args = ("args", ConfigValue::texts(&["mcp"]));
        let stdio = ("type", ConfigValue::text("stdio"));
        let env = || {
            ConfigValue::Map(
                self.places.home_variables.iter().map(|(name, value)| (*name, ConfigValue::text(value))).collect(),
            )
        };
        let named = |name: &'static str| (!self.places.home_variables.is_empty()).then(|| (name, env()));
        let (table, mut value, fixed): (_, _, &'static [&'static str]) = match self.agent {
            AgentProgram::ClaudeCode | AgentProgram::Cursor => {
                ("mcpServers", vec![stdio, program, args, ("env", env())], &["type", "command", "args"])
            }
            AgentProgram::Codex => (
                "mcp_servers",
                vec![
                    program,
                    args,
                    ("tool_timeout_sec", ConfigValue::Number(TOOL_TIMEOUT_SECONDS)),
                    ("default_tools_approval_mode", ConfigValue::text("approve")),
                ],
                &["command", "args"],
            ),
            AgentProgram::Opencode => (
                "mcp",
                vec![
                    ("type", ConfigValue::text("local")),
                    ("command", ConfigValue::texts(&[self.csn, "mcp"])),
                    ("enabled", ConfigValue::Flag(true)),
                    ("timeout", ConfigValue::Number(TOOL_TIMEOUT_SECONDS * 1000)),
                ],
                &["type", "command", "enabled"],
            ),
            AgentProgram::Gemini => (
                "mcpServers",
                vec![
                    program,
                    args,
                    ("timeout", ConfigValue::Number(TOOL_TIMEOUT_SECONDS * 1000)),
                    ("trust", ConfigValue::Flag(true)),
                ],
                &["command", "args"],
            ),
            AgentProgram::Goose => (
                "extensions",
                vec![
                    ("enabled", ConfigValue::Flag(true)),
                    ("name", ConfigValue::text("csn")),
                    stdio,
                    ("cmd", ConfigValue::text(self.csn)),
                    args,
                    ("envs", env()),
                    ("timeout", ConfigValue::Number(TOOL_TIMEOUT_SECONDS)),
                ],
                &["enabled", "type", "cmd", "args"],
            ),
        };
        value.extend(match self.agent {
            AgentProgram::Codex | AgentProgram::Gemini => named("env"),
            AgentProgram::Opencode => named("environment"),
            AgentProgram::ClaudeCode | AgentProgram::Cursor | AgentProgram::Goose => None,
        });
        Entry::Server { table, value, fixed }
    }

    /// What the user should do now, or know.
    pub(super) fn next_steps(&self) -> Vec<String> {
        let mut next = Vec::new();
        let hook = self.mode != InstallMode::Mcp;
        let mcp = self.mode != InstallMode::Hook;
        match self.agent {
            AgentProgram::Codex if hook => next.push(
                "Codex skips this hook silently until you trust it: run /hooks in codex, then `csn doctor`".to_owned(),
            ),
            AgentProgram::Codex => next.push(
                "Codex gets Countersign's tools through MCP, because its sandbox cannot reach the daemon; Codex keeps its own \
                 shell, in its own sandbox"
                    .to_owned(),
            ),
            AgentProgram::Gemini => {
                next.push("Gemini ignores MCP servers in folders that you have not trusted: trust the folder in gemini".to_owned())
            }
            AgentProgram::Goose => {
                next.push("goose still has its own shell: to remove it, disable the `developer` extension with `goose configure`".to_owned());
            }
            _ => {}
        }
        if self.places.project.is_some() && mcp && self.agent == AgentProgram::ClaudeCode {
            next.push(
                "Claude Code asks once whether to use the servers in this project's .mcp.json: accept it".to_owned(),
            );
        }
        if self.places.project.is_some() {
            next.push("the file contains the path of csn on this machine: check that before you commit it".to_owned());
        }
        next.push(format!("restart {}: a running agent keeps its old configuration", program_name(self.agent)));
        next
    }
}
