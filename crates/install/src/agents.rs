//! The agents that are known: where each keeps its configuration, what we write there, and what there is to do afterwards.

use super::{
    entry::{CLOSED, CLOSED_ALOUD, Entry, Hook, IN_TIME, Mine, Node},
    plugin,
    prove::{HookAnswer, Proof},
};
use crate::{
    AgentProgram, InstallMode, InstallScope,
    error::{EnvironmentError, Unsupported},
};
use countersign_model::quoted;
use std::path::{Path, PathBuf};

/// How long an agent lets one of its calls take: a person may have to be asked.
const SECONDS: u64 = 3600;
const HOOK_SECONDS: u64 = 600;

pub(super) fn name(agent: AgentProgram) -> &'static str {
    match agent {
        AgentProgram::ClaudeCode => "claude-code",
        AgentProgram::Codex => "codex",
        AgentProgram::Opencode => "opencode",
        AgentProgram::Gemini => "gemini",
        AgentProgram::Goose => "goose",
        AgentProgram::Cursor => "cursor",
    }
}

/// The program that tells its version.
pub(super) fn program(agent: AgentProgram) -> &'static str {
    match agent {
        AgentProgram::ClaudeCode => "claude",
        AgentProgram::Cursor => "cursor-agent",
        other => name(other),
    }
}

pub(super) fn usual_mode(agent: AgentProgram) -> InstallMode {
    match agent {
        AgentProgram::ClaudeCode | AgentProgram::Opencode => InstallMode::Hook,
        // Its sandbox does not reach our socket, and it skips hooks that nobody has trusted.
        AgentProgram::Codex => InstallMode::Mcp,
        AgentProgram::Gemini | AgentProgram::Goose | AgentProgram::Cursor => InstallMode::Mcp,
    }
}

/// Where agents look, in this environment.
#[derive(Debug, Clone)]
pub(super) struct Places {
    pub(super) home: PathBuf,
    /// `XDG_CONFIG_HOME`, or what stands for it.
    pub(super) config: PathBuf,
    pub(super) claude: Option<PathBuf>,
    pub(super) codex: Option<PathBuf>,
    /// Variables by which the house is found: some agents give their servers hardly any.
    pub(super) house: Vec<(&'static str, String)>,
    /// The directory of the project, where one is meant.
    pub(super) project: Option<PathBuf>,
}

impl Places {
    pub(super) fn here(scope: InstallScope) -> Result<Self, EnvironmentError> {
        let var = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let cwd = || std::env::current_dir().map_err(EnvironmentError::Unknown);
        let home = var("HOME").ok_or(EnvironmentError::NoHome)?;
        let project = match scope {
            InstallScope::User => None,
            InstallScope::Project => Some(project(&cwd()?, &home)),
        };
        let told = |name: &'static str| Some((name, var(name)?.into_os_string().into_string().ok()?));
        Ok(Self {
            house: ["COUNTERSIGN_HOME", "XDG_STATE_HOME"].into_iter().filter_map(told).collect(),
            config: var("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")),
            claude: var("CLAUDE_CONFIG_DIR"),
            codex: var("CODEX_HOME"),
            home,
            project,
        })
    }
}

/// The repository around a directory, or the directory. A home that is a repository is not everybody's project.
fn project(cwd: &Path, home: &Path) -> PathBuf {
    let around = cwd.ancestors().take_while(|dir| *dir != home).find(|dir| dir.join(".git").exists());
    around.unwrap_or(cwd).to_owned()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Hook,
    Mcp,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Hook => "hook",
            Self::Mcp => "mcp",
        }
    }
}

/// One file, what it shall hold, and how that is proved.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) kind: Kind,
    pub(super) path: PathBuf,
    pub(super) entry: Entry,
    pub(super) proof: Proof,
}

pub(super) struct Wanted<'a> {
    pub(super) agent: AgentProgram,
    pub(super) mode: InstallMode,
    pub(super) witness: bool,
    /// The program, as it is written into files.
    pub(super) csn: &'a str,
    pub(super) places: &'a Places,
}

impl Wanted<'_> {
    pub(super) fn mine(&self, also: Option<&str>) -> Mine {
        let known = [self.csn].into_iter().chain(also).map(str::to_owned).collect();
        Mine { agent: name(self.agent), known }
    }

    /// The files of this installation; why not, where an agent has no such thing.
    pub(super) fn parts(&self) -> Result<Vec<Part>, Unsupported> {
        let hooks = matches!(self.agent, AgentProgram::ClaudeCode | AgentProgram::Codex | AgentProgram::Opencode);
        if !hooks && self.mode != InstallMode::Mcp {
            return Err(Unsupported::Hook(name(self.agent)));
        }
        if self.witness && self.mode == InstallMode::Mcp {
            return Err(Unsupported::Witness);
        }
        if self.agent == AgentProgram::Goose && self.places.project.is_some() {
            return Err(Unsupported::Project);
        }
        let mut parts = Vec::new();
        if self.mode != InstallMode::Mcp {
            parts.push(self.hook());
        }
        if self.mode != InstallMode::Hook {
            parts.push(self.mcp());
        }
        Ok(parts)
    }

    fn below(&self, user: PathBuf, project: &str) -> PathBuf {
        self.places.project.as_ref().map_or(user, |dir| dir.join(project))
    }

    fn hook(&self) -> Part {
        let places = self.places;
        let codex = places.codex.clone().unwrap_or_else(|| places.home.join(".codex"));
        let claude = places.claude.clone().unwrap_or_else(|| places.home.join(".claude"));
        let path = match self.agent {
            AgentProgram::ClaudeCode => self.below(claude.join("settings.json"), ".claude/settings.json"),
            AgentProgram::Codex => self.below(codex.join("hooks.json"), ".codex/hooks.json"),
            _ => self.below(places.config.join("opencode/plugins/countersign.js"), ".opencode/plugins/countersign.js"),
        };
        if self.agent == AgentProgram::Opencode {
            let entry = Entry::Whole(plugin::source(self.csn, self.witness));
            let argv = [self.csn, "hook", "opencode"].into_iter().chain(self.witness.then_some("--witness"));
            let argv = argv.map(str::to_owned).collect();
            return Part { kind: Kind::Hook, path, entry, proof: Proof::Hook { argv, answer: HookAnswer::Decision } };
        }
        let ask = match self.agent {
            AgentProgram::Codex => format!("{IN_TIME}{}{CLOSED_ALOUD}", self.command()),
            _ => self.command() + CLOSED,
        };
        let argv = ["/bin/sh", "-c", ask.as_str()].map(str::to_owned).to_vec();
        let entry = Entry::Hooks(self.hooks(&ask));
        Part { kind: Kind::Hook, path, entry, proof: Proof::Hook { argv, answer: HookAnswer::Permission } }
    }

    fn command(&self) -> String {
        let witness = if self.witness { " --witness" } else { "" };
        format!("{} hook {}{witness}", quoted(self.csn), name(self.agent))
    }

    fn hooks(&self, ask: &str) -> Vec<Hook> {
        let claude = self.agent == AgentProgram::ClaudeCode;
        let matcher = if claude { "Bash" } else { "^Bash$" };
        let mut handler = vec![
            ("type", Node::text("command")),
            ("command", Node::text(ask)),
            ("timeout", Node::Number(HOOK_SECONDS)),
        ];
        if claude {
            handler.push(("onFailure", Node::text("block")));
        }
        let mut hooks = vec![Hook { event: "PreToolUse", matcher, handler }];
        if self.witness {
            let after: &[&'static str] = if claude { &["PostToolUse", "PostToolUseFailure"] } else { &["PostToolUse"] };
            hooks.extend(after.iter().map(|event| {
                let handler = vec![("type", Node::text("command")), ("command", Node::text(self.command()))];
                Hook { event, matcher, handler }
            }));
        }
        hooks
    }

    fn mcp(&self) -> Part {
        let places = self.places;
        let home = |file: &str| places.home.join(file);
        let opencode = self.below(places.config.join("opencode"), "");
        let path = match self.agent {
            AgentProgram::ClaudeCode => self
                .below(places.claude.clone().unwrap_or_else(|| places.home.clone()).join(".claude.json"), ".mcp.json"),
            AgentProgram::Codex => self.below(
                places.codex.clone().unwrap_or_else(|| home(".codex")).join("config.toml"),
                ".codex/config.toml",
            ),
            AgentProgram::Opencode => {
                let commented = opencode.join("opencode.jsonc");
                if commented.exists() { commented } else { opencode.join("opencode.json") }
            }
            AgentProgram::Gemini => self.below(home(".gemini/settings.json"), ".gemini/settings.json"),
            AgentProgram::Goose => places.config.join("goose/config.yaml"),
            AgentProgram::Cursor => self.below(home(".cursor/mcp.json"), ".cursor/mcp.json"),
        };
        let proof = Proof::Mcp { csn: self.csn.to_owned() };
        Part { kind: Kind::Mcp, path, entry: self.server(), proof }
    }

    fn server(&self) -> Entry {
        let program = ("command", Node::text(self.csn));
        let args = ("args", Node::texts(&["mcp"]));
        let stdio = ("type", Node::text("stdio"));
        let env = || Node::Map(self.places.house.iter().map(|(name, value)| (*name, Node::text(value))).collect());
        let named = |name: &'static str| (!self.places.house.is_empty()).then(|| (name, env()));
        let (table, mut value, fixed): (_, _, &'static [&'static str]) = match self.agent {
            AgentProgram::ClaudeCode | AgentProgram::Cursor => {
                ("mcpServers", vec![stdio, program, args, ("env", env())], &["type", "command", "args"])
            }
            AgentProgram::Codex => (
                "mcp_servers",
                vec![
                    program,
                    args,
                    ("tool_timeout_sec", Node::Number(SECONDS)),
                    ("default_tools_approval_mode", Node::text("approve")),
                ],
                &["command", "args"],
            ),
            AgentProgram::Opencode => (
                "mcp",
                vec![
                    ("type", Node::text("local")),
                    ("command", Node::texts(&[self.csn, "mcp"])),
                    ("enabled", Node::Flag(true)),
                    ("timeout", Node::Number(SECONDS * 1000)),
                ],
                &["type", "command", "enabled"],
            ),
            AgentProgram::Gemini => (
                "mcpServers",
                vec![program, args, ("timeout", Node::Number(SECONDS * 1000)), ("trust", Node::Flag(true))],
                &["command", "args"],
            ),
            AgentProgram::Goose => (
                "extensions",
                vec![
                    ("enabled", Node::Flag(true)),
                    ("name", Node::text("csn")),
                    stdio,
                    ("cmd", Node::text(self.csn)),
                    args,
                    ("envs", env()),
                    ("timeout", Node::Number(SECONDS)),
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

    /// What a person should do now, or know.
    pub(super) fn next(&self) -> Vec<String> {
        let mut next = Vec::new();
        let hook = self.mode != InstallMode::Mcp;
        let mcp = self.mode != InstallMode::Hook;
        match self.agent {
            AgentProgram::Codex if hook => next.push(
                "Codex skips this hook silently until you trust it: run /hooks in codex, then `csn doctor`".to_owned(),
            ),
            AgentProgram::Codex => next.push(
                "MCP, since Codex's sandbox cannot reach the house; its own shell stays as Codex sandboxes it"
                    .to_owned(),
            ),
            AgentProgram::Gemini => {
                next.push("Gemini leaves servers out in folders that you have not trusted".to_owned())
            }
            AgentProgram::Goose => {
                next.push("to have no other shell, disable goose's `developer` extension (goose configure)".to_owned());
            }
            _ => {}
        }
        if self.places.project.is_some() && mcp && self.agent == AgentProgram::ClaudeCode {
            next.push("Claude Code asks once whether to use the servers of this project's .mcp.json".to_owned());
        }
        if self.places.project.is_some() {
            next.push("the file names this machine's csn: think before you commit it".to_owned());
        }
        next.push(format!("start {} anew: what runs has read its configuration already", program(self.agent)));
        next
    }
}
