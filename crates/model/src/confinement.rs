//! Confinement: what the kernel enforces on a task, what this kernel can enforce, and the input of the sandbox.

use crate::Text;
use serde::{Deserialize, Serialize};

/// What the kernel enforces on a task. Ordered: each level restricts a task more than the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Confinement {
    #[default]
    None,
    /// The task cannot signal, trace or read the memory of other processes, and cannot gain privileges.
    Shield,
    /// In addition, it writes only the workspace roots, its TMPDIR and caches, and cannot read credentials.
    Workspace,
    /// In addition, it writes nothing, has no network, and reads only the roots and the system.
    ReadOnly,
}

impl Confinement {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Shield => "shield",
            Self::Workspace => "workspace",
            Self::ReadOnly => "read_only",
        }
    }

    /// The confinement in the words that people read. Machine output keeps [`Self::as_str`].
    #[must_use]
    pub fn for_people(self) -> &'static str {
        match self {
            Self::None | Self::Shield => "not sandboxed",
            Self::Workspace => "sandboxed (workspace)",
            Self::ReadOnly => "sandboxed (read-only)",
        }
    }
}

/// What a kernel can enforce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Kernel {
    /// The Landlock ABI version; 0 if the kernel has no Landlock.
    pub landlock: u32,
    pub seccomp: bool,
}

impl Kernel {
    /// The newest kernel whose features the sandbox uses.
    pub const FULL: Self = Self { landlock: 7, seccomp: true };

    /// Whether the kernel can enforce this confinement. Before Landlock 3, a task can still truncate files that it may
    /// not write.
    #[must_use]
    pub fn can_enforce(self, confinement: Confinement) -> bool {
        match confinement {
            Confinement::None | Confinement::Shield => true,
            Confinement::Workspace | Confinement::ReadOnly => self.landlock >= 3 && self.seccomp,
        }
    }

    /// Whether the kernel can stop a task from signalling other processes while it still signals its own.
    #[must_use]
    pub fn can_scope_signals(self) -> bool {
        self.landlock >= 6
    }

    /// The parts of a confinement that this kernel cannot enforce, for the record; empty if it enforces all of it.
    #[must_use]
    pub fn missing_parts(self, confinement: Confinement) -> Vec<&'static str> {
        let mut missing = Vec::new();
        if !self.can_enforce(confinement) {
            missing.push("files");
        }
        // Without scopes, a read-only task may signal no process at all, so nothing is missing there.
        if matches!(confinement, Confinement::Shield | Confinement::Workspace) && !self.can_scope_signals() {
            missing.extend(["signals", "abstract sockets"]);
        }
        if confinement == Confinement::Shield && !self.can_scope_signals() {
            missing.push("tracing");
        }
        missing
    }
}

/// What was enforced when the process was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EnforcedSandbox {
    /// The Landlock ABI version that was used.
    pub landlock: u32,
    pub seccomp: bool,
    /// Whether the task had its own network namespace, with only a loopback device in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_network: bool,
    /// The parts that the kernel could not enforce; empty if it enforced all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Text>,
}

/// Which hosts a task in a workspace sandbox may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Network {
    #[default]
    Open,
    /// No other machine and no service of this machine; only a loopback device of its own, if the kernel supports that.
    None,
}

impl Network {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::None => "none",
        }
    }
}

/// The operator's setting for the sandbox of granted and approved commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GrantedSandbox {
    /// As narrow as the accepted risks allow.
    #[default]
    Narrow,
    /// Always the workspace sandbox, even if a wider one was accepted.
    Workspace,
    /// Never a sandbox, only the shield.
    Shield,
}

/// Why a task gets its sandbox and not a narrower one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "because", content = "risk")]
pub enum SandboxReason {
    #[default]
    OnlyReads,
    /// It writes files or runs code of the workspace, which the sandbox allows.
    Writes,
    /// A person, a grant or a rule accepted this risk, and every narrower sandbox would block it.
    Accepted(crate::Risk),
    /// It works at a path outside the roots that no sandbox rule can express.
    Outside,
    /// The grant was saved before grants had sandboxes.
    EarlierGrant,
    /// The request names the confinement.
    Requested,
    /// An operator's rule names the confinement.
    Rule,
    /// `[confine] granted` in config.toml names the confinement.
    Operator,
    /// The profile allows it without an approval.
    Profile,
    /// This kernel cannot confine it further.
    Kernel,
}

impl SandboxReason {
    /// The reason for people: on a card, in `csn check` and in `csn show`.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::OnlyReads => "it only reads".to_owned(),
            Self::Writes => "it writes files or runs code of the workspace".to_owned(),
            Self::Accepted(risk) => format!("the accepted risk `{}` needs it", risk.as_str()),
            Self::Outside => {
                "it works outside the workspace roots, at a path that a narrower sandbox cannot express".to_owned()
            }
            Self::EarlierGrant => "its grant was saved without a sandbox; `csn grants narrow` adds one".to_owned(),
            Self::Requested => "the request asks for it".to_owned(),
            Self::Rule => "a rule in config.toml sets it".to_owned(),
            Self::Operator => "`[confine] granted` in config.toml sets it".to_owned(),
            Self::Profile => "the profile allows it without an approval".to_owned(),
            Self::Kernel => "this kernel cannot confine it further".to_owned(),
        }
    }
}

/// The sandbox of one task: its confinement, and what was accepted beyond it. Raw, like the plan that it comes from;
/// records and surfaces use `SandboxSummary`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sandbox {
    pub confinement: Confinement,
    pub network: Network,
    /// Whether it may connect to unix sockets by path: key agents, container daemons, local databases.
    pub unix_sockets: bool,
    /// Paths outside the roots that it may read, and that it may write.
    pub reads: Vec<String>,
    pub writes: Vec<String>,
    /// Paths that look like credentials and that it may read nevertheless.
    pub keys: Vec<String>,
    pub why: SandboxReason,
}

impl Sandbox {
    /// A sandbox that allows nothing beyond its confinement.
    #[must_use]
    pub fn plain(confinement: Confinement, network: Network, why: SandboxReason) -> Self {
        Self { confinement, network, why, ..Self::default() }
    }

    /// The form for records and surfaces. `clean` redacts a path.
    #[must_use]
    pub fn summary(&self, clean: impl Fn(&str) -> Text) -> SandboxSummary {
        let confined = self.confinement >= Confinement::Workspace;
        let texts = |paths: &[String]| paths.iter().filter(|_| confined).map(|p| clean(p)).collect();
        SandboxSummary {
            network: if self.confinement == Confinement::ReadOnly { Network::None } else { self.network },
            unix_sockets: self.unix_sockets,
            reads: texts(&self.reads),
            writes: texts(&self.writes),
            keys: texts(&self.keys),
            why: self.why,
        }
    }
}

/// What a sandbox allows beyond its confinement, and why it is not narrower. Clean: it appears in records and on cards.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SandboxSummary {
    #[serde(default)]
    pub network: Network,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unix_sockets: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<Text>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<Text>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<Text>,
    #[serde(default)]
    pub why: SandboxReason,
}

impl SandboxSummary {
    /// The sandbox in one line, for people.
    #[must_use]
    pub fn sentence(&self, confinement: Confinement) -> String {
        let list = |paths: &[Text]| paths.iter().map(Text::as_str).collect::<Vec<_>>().join(", ");
        let mut sentence = format!("{}: ", confinement.for_people());
        match confinement {
            Confinement::None => {
                sentence.push_str("nothing is restricted; with sudo it has all rights");
                return sentence;
            }
            Confinement::Shield => {
                let why = self.why.text();
                sentence.push_str("it runs with your rights, but cannot signal or trace other processes");
                sentence.push_str(&format!(" ({why})"));
                return sentence;
            }
            Confinement::Workspace => sentence.push_str("writes the workspace roots, its TMPDIR and caches"),
            Confinement::ReadOnly => sentence.push_str("reads the workspace roots and the system, writes nothing"),
        }
        for (verb, paths) in
            [("also writes", &self.writes), ("also reads", &self.reads), ("reads the credentials at", &self.keys)]
        {
            if !paths.is_empty() {
                sentence.push_str(&format!("; {verb} {}", list(paths)));
            }
        }
        sentence.push_str(match (confinement, self.network, self.unix_sockets) {
            (Confinement::ReadOnly, ..) => "; no network",
            (_, Network::Open, true) => "; network and local sockets open",
            (_, Network::Open, false) => "; network open",
            (_, Network::None, true) => "; no network, local sockets open",
            (_, Network::None, false) => "; no network",
        });
        if !matches!(self.why, SandboxReason::OnlyReads | SandboxReason::Writes) {
            sentence.push_str(&format!(" ({})", self.why.text()));
        }
        sentence
    }
}

/// The input from which the shim builds the sandbox of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// Directories that the task may read and, in a workspace sandbox, write. Links are resolved.
    pub roots: Vec<String>,
    /// The task may read everything except places that hold credentials.
    pub read_all: bool,
    /// The home directories in which credentials are recognised by name, in the form that `places` uses.
    pub homes: String,
    /// The home of the user that the daemon runs as. The task uses its toolchains, caches and settings, even if the
    /// request names another HOME.
    pub home: String,
    /// Countersign's own places, which no task may touch.
    pub protected: Vec<String>,
    /// The programs that the plan names, by their resolved paths.
    pub programs: Vec<String>,
    pub network: Network,
    /// Whether the task may connect to unix sockets by path.
    #[serde(default)]
    pub unix_sockets: bool,
    /// What was accepted beyond that: paths outside the roots to read, paths to write, and credentials to read.
    #[serde(default)]
    pub reads: Vec<String>,
    #[serde(default)]
    pub writes: Vec<String>,
    #[serde(default)]
    pub keys: Vec<String>,
    /// The features that the sandbox may use: never more than the kernel has.
    pub kernel: Kernel,
}
