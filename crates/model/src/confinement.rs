//! Confinement: what the kernel enforces on a task, what it can enforce here, and what the walls are made of.

use crate::Text;
use serde::{Deserialize, Serialize};

/// What the kernel enforces on a task. In order: each holds it to less than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Confinement {
    #[default]
    None,
    /// It cannot signal, trace or read the memory of anything outside itself, nor gain rights.
    Shield,
    /// And it writes only to the roots, a directory of its own and caches, and reads no keys.
    Workspace,
    /// And it writes nothing, reaches nobody, and reads the roots and the system only.
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
    /// The version of Landlock; 0 where there is none.
    pub landlock: u32,
    pub seccomp: bool,
}

impl Kernel {
    /// The newest that anything here makes use of.
    pub const FULL: Self = Self { landlock: 7, seccomp: true };

    /// Before version 3 a file that may not be written can still be cut off.
    #[must_use]
    pub fn holds(self, confinement: Confinement) -> bool {
        match confinement {
            Confinement::None | Confinement::Shield => true,
            Confinement::Workspace | Confinement::ReadOnly => self.landlock >= 3 && self.seccomp,
        }
    }

    /// Whether a task can be kept from signalling others and still signal its own.
    #[must_use]
    pub fn scopes(self) -> bool {
        self.landlock >= 6
    }

    /// What is missing of a confinement, for the record; empty when it is whole.
    #[must_use]
    pub fn lacks(self, confinement: Confinement) -> Vec<&'static str> {
        let mut lacks = Vec::new();
        if !self.holds(confinement) {
            lacks.push("files");
        }
        // Where it cannot tell its own from others, a read-only task may signal nobody at all: that is whole, too.
        if matches!(confinement, Confinement::Shield | Confinement::Workspace) && !self.scopes() {
            lacks.extend(["signals", "abstract sockets"]);
        }
        if confinement == Confinement::Shield && !self.scopes() {
            lacks.push("tracing");
        }
        lacks
    }
}

/// What was really in force when a process was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EnforcedSandbox {
    /// The version of Landlock that was used.
    pub landlock: u32,
    pub seccomp: bool,
    /// Whether the task has a network of its own, with nothing in it but its loopback.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_network: bool,
    /// What the kernel could not do of it; empty when it was whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Text>,
}

/// Whom a task in a workspace may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Network {
    #[default]
    Open,
    /// No other machine and no service of this one; its own loopback, where the kernel can give it one.
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

/// How far the sandbox of granted and approved work goes: the operator's switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GrantedSandbox {
    /// As narrow as the accepted risks allow.
    #[default]
    Narrow,
    /// Always a workspace, whatever was accepted.
    Workspace,
    /// Always open behind a shield.
    Shield,
}

/// Why a task gets the sandbox that it gets, and not a narrower one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "because", content = "risk")]
pub enum SandboxReason {
    #[default]
    OnlyReads,
    /// It writes, or runs code, where the sandbox lets it.
    Writes,
    /// A person, a grant or a rule accepted this risk, which no narrower sandbox can hold.
    Accepted(crate::Risk),
    /// It works at a path outside the roots that no rule of the sandbox can express.
    Outside,
    /// A grant that was given before sandboxes followed what was accepted.
    EarlierGrant,
    /// The request names its confinement.
    Requested,
    /// An operator's rule names it.
    Rule,
    /// `[confine] granted` in config.toml names it.
    Operator,
    /// The profile lets it run without asking anyone.
    Profile,
    /// This kernel cannot confine it further.
    Kernel,
}

impl SandboxReason {
    /// In words, for a card, `csn check` and `csn show`.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::OnlyReads => "it only reads".to_owned(),
            Self::Writes => "it writes, or runs code of the workspace".to_owned(),
            Self::Accepted(risk) => format!("the risk `{}` needs it", risk.as_str()),
            Self::Outside => "it works outside the roots, at a path that a narrower sandbox cannot name".to_owned(),
            Self::EarlierGrant => "its grant was given with it; `csn grants narrow` changes that".to_owned(),
            Self::Requested => "the request asks for it".to_owned(),
            Self::Rule => "a rule in config.toml says so".to_owned(),
            Self::Operator => "`[confine] granted` in config.toml says so".to_owned(),
            Self::Profile => "the profile lets it run unasked".to_owned(),
            Self::Kernel => "this kernel cannot confine it further".to_owned(),
        }
    }
}

/// The sandbox of one task: its confinement, and what was accepted beyond what that confinement always gives. Raw, like the
/// plan that it is made from; `SandboxSummary` is what is recorded and shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sandbox {
    pub confinement: Confinement,
    pub network: Network,
    /// Whether it may connect to unix sockets by path: agents for keys, container daemons, local databases.
    pub unix_sockets: bool,
    /// Paths outside the roots that it may read, and that it may write.
    pub reads: Vec<String>,
    pub writes: Vec<String>,
    /// Paths that are called like secrets and may be read all the same.
    pub keys: Vec<String>,
    pub why: SandboxReason,
}

impl Sandbox {
    /// One that gives nothing beyond its confinement.
    #[must_use]
    pub fn plain(confinement: Confinement, network: Network, why: SandboxReason) -> Self {
        Self { confinement, network, why, ..Self::default() }
    }

    /// The form that is recorded and shown. `clean` takes secrets out of a path.
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

/// What a sandbox lets a task do beyond its confinement, and why it is not narrower. Clean: it is in records and on cards.
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
    /// One line that says what this sandbox gives, for people.
    #[must_use]
    pub fn sentence(&self, confinement: Confinement) -> String {
        let list = |paths: &[Text]| paths.iter().map(Text::as_str).collect::<Vec<_>>().join(", ");
        let mut says = match confinement {
            Confinement::None => return "none: it can do whatever its user can".to_owned(),
            Confinement::Shield => {
                let why = self.why.text();
                return format!("shield: it runs with your rights, and cannot signal or trace other processes ({why})");
            }
            Confinement::Workspace => "workspace: it writes the roots, its TMPDIR and caches".to_owned(),
            Confinement::ReadOnly => "read_only: it reads the roots and the system, and writes nothing".to_owned(),
        };
        for (what, paths) in
            [("also writes", &self.writes), ("also reads", &self.reads), ("reads the keys at", &self.keys)]
        {
            if !paths.is_empty() {
                says.push_str(&format!("; {what} {}", list(paths)));
            }
        }
        says.push_str(match (confinement, self.network, self.unix_sockets) {
            (Confinement::ReadOnly, ..) => "; no network",
            (_, Network::Open, true) => "; network open, local sockets too",
            (_, Network::Open, false) => "; network open",
            (_, Network::None, true) => "; no network, but local sockets",
            (_, Network::None, false) => "; no network",
        });
        if !matches!(self.why, SandboxReason::OnlyReads | SandboxReason::Writes) {
            says.push_str(&format!(" ({})", self.why.text()));
        }
        says
    }
}

/// What the walls of a task are made of. The supervisor builds them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// What may be read, and in a workspace written; without links in their names.
    pub roots: Vec<String>,
    /// Reading goes everywhere but where secrets are kept.
    pub read_all: bool,
    /// The homes where keys are known by name, as `places` has them.
    pub homes: String,
    /// The home of whoever runs the house: its toolchains, caches and settings are used, whatever an asker calls theirs.
    pub home: String,
    /// Countersign's own places: never.
    pub protected: Vec<String>,
    /// The programs that the plan names, where they were found.
    pub programs: Vec<String>,
    pub network: Network,
    /// Whether unix sockets may be connected to by path.
    #[serde(default)]
    pub unix_sockets: bool,
    /// What else was accepted: paths outside the roots to read, to write, and secrets to read.
    #[serde(default)]
    pub reads: Vec<String>,
    #[serde(default)]
    pub writes: Vec<String>,
    #[serde(default)]
    pub keys: Vec<String>,
    /// What may be made use of: never more than the kernel has.
    pub kernel: Kernel,
}
