//! The request: what an agent or a person wants to run, exactly as asked. It is also the body of `POST /tasks`.

use crate::{Confinement, Network, SessionId};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, str::FromStr};

fn yes() -> bool {
    true
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The command, its environment, and who asks for it. Raw: it may hold secrets and is never logged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("allOf" = crate::schema::request_forms())))]
#[serde(deny_unknown_fields)]
pub struct Request {
    pub tool: Tool,
    #[serde(deserialize_with = "crate::api::object")]
    pub args: Command,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rationale: Option<String>,
    /// Labels that the caller chooses, for readers of the record. No decision depends on them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, rename = "execution_mode", skip_serializing_if = "is_default")]
    pub mode: Mode,
    #[serde(default, skip_serializing_if = "is_default")]
    pub background: bool,
    /// Whether a person can be asked. With `false`, every request that needs an approval is denied.
    #[serde(default = "yes")]
    pub attended: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// The confinement to use. A stronger one than the command would get is always possible; for a weaker one a person
    /// is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("not" = {"const": "none"})))]
    pub confinement: Option<Confinement>,
    /// The network access to use: `none`, or `open`, which adds the risk `network` and needs an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// How long the daemon waits for the end of the task before it answers. Never changes what runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    #[serde(default, deserialize_with = "crate::api::object", skip_serializing_if = "is_default")]
    pub limits: Limits,
    #[serde(default, skip_serializing_if = "is_default")]
    pub leftovers: Leftovers,
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_output_limit: OnOutputLimit,
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_session_end: OnSessionEnd,
    /// The directory in which the streams are published, below `.runs`, after the task has settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^/[^\\0]*$")))]
    pub workspace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
}

impl Request {
    /// A foreground request with the defaults for everything else.
    #[must_use]
    pub fn new(tool: Tool, args: Command) -> Self {
        Self {
            tool,
            args,
            title: None,
            rationale: None,
            labels: BTreeMap::new(),
            mode: Mode::default(),
            background: false,
            attended: true,
            profile: None,
            confinement: None,
            network: None,
            wait_ms: None,
            limits: Limits::default(),
            leftovers: Leftovers::default(),
            on_output_limit: OnOutputLimit::default(),
            on_session_end: OnSessionEnd::default(),
            workspace: None,
            session_id: None,
        }
    }
}

/// The arguments of a tool. `shell` takes one of `command` and `argv`; file tools take a `path` and an operation. The
/// environment applies to both.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Command {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[^\\0]*[^\\0\\s][^\\0]*$")))]
    pub command: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub argv: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^/[^\\0]*$")))]
    pub cwd: Option<String>,
    /// Variables that the caller sets; passed on unchanged.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The caller's own environment. The task inherits it without variables that inject code or look secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inherit: BTreeMap<String, String>,
    /// Whether the caller will send input. Without it, standard input is empty; a terminal always takes input.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stdin: bool,
    /// For shell text over pipes: report the directory in which it ended (`cwd.changed`).
    #[serde(default, skip_serializing_if = "is_default")]
    pub tell_directory: bool,
    /// The file of a file tool; relative to `cwd` unless it is absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[^\\0]*[^\\0/]$")))]
    pub path: Option<String>,
    /// `read_file`: the first line to show, from 1, and the number of lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub first_line: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_count: Option<u64>,
    /// `write_file`: the new content of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// `edit_file`: the text to replace, as `read_file` shows it, and its replacement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
    /// Replace every occurrence. Without it, the text must occur exactly once.
    #[serde(default, skip_serializing_if = "is_default")]
    pub all: bool,
    /// The size of the terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub rows: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub cols: Option<u16>,
}

/// The tool of a request. Grants and records may name any of them; a request only those of
/// [`crate::tools::requestable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    #[default]
    Shell,
    SetWorkingDirectory,
    ReadFile,
    WriteFile,
    EditFile,
    ListFiles,
    SearchFiles,
    GitStatus,
    GitDiff,
    GitLog,
    GitShow,
}

impl Tool {
    pub const ALL: [Self; 11] = [
        Self::Shell,
        Self::SetWorkingDirectory,
        Self::ReadFile,
        Self::WriteFile,
        Self::EditFile,
        Self::ListFiles,
        Self::SearchFiles,
        Self::GitStatus,
        Self::GitDiff,
        Self::GitLog,
        Self::GitShow,
    ];

    /// The name, as used for verbs.
    pub fn as_str(self) -> &'static str {
        match self {
            Tool::Shell => "shell",
            Tool::SetWorkingDirectory => "set_working_directory",
            Tool::ReadFile => "read_file",
            Tool::WriteFile => "write_file",
            Tool::EditFile => "edit_file",
            Tool::ListFiles => "list_files",
            Tool::SearchFiles => "search_files",
            Tool::GitStatus => "git_status",
            Tool::GitDiff => "git_diff",
            Tool::GitLog => "git_log",
            Tool::GitShow => "git_show",
        }
    }

    /// Whether the shim does it itself, on one file.
    pub fn is_builtin(self) -> bool {
        matches!(self, Tool::ReadFile | Tool::WriteFile | Tool::EditFile)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    #[default]
    Pipes,
    Pty,
}

/// How often the daemon asks for an approval, most restrictive first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    Locked,
    #[default]
    Safe,
    FullAuto,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Leftovers {
    #[default]
    Kill,
    Keep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnSessionEnd {
    #[default]
    Keep,
    Stop,
}

/// What happens to a task that writes more output than its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnOutputLimit {
    /// The task keeps running; the beginning and the last part of its output are kept.
    #[default]
    Tail,
    Kill,
}

/// The trust profile that a session runs under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Audience {
    Public,
    Team,
    #[default]
    Personal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CredentialKind {
    #[default]
    Person,
    Agent,
}

/// Limits of one task. `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Limits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = Self::MAX_MS)))]
    pub wall_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = Self::MAX_MS)))]
    pub idle_ms: Option<u64>,
    /// The time from SIGTERM to SIGKILL when a task is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = Self::MAX_MS)))]
    pub grace_ms: Option<u64>,
    /// How long descendants may hold the output open after the main process has exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = Self::MAX_MS)))]
    pub drain_ms: Option<u64>,
    /// How much of each stream is kept from its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    /// The maximum number of frames in the journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = Self::FEWEST_FRAMES)))]
    pub frames: Option<u64>,
}

impl Limits {
    pub const GRACE_MS: u64 = 5_000;
    pub const DRAIN_MS: u64 = 2_000;
    /// The longest time limit of a read-only task.
    pub const READ_ONLY_WALL_MS: u64 = 120_000;
    /// The largest limit that a request may ask for: a year.
    pub const MAX_MS: u64 = 366 * 24 * 3_600_000;
    pub const OUTPUT_BYTES: u64 = 1024 * 1024 * 1024;
    pub const FRAMES: u64 = 1_000_000;
    /// The smallest frame limit: a journal needs a few frames to begin and to end.
    pub const FEWEST_FRAMES: u64 = 16;

    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether a variable belongs to the base that every task gets. (PATH does too; the daemon decides which PATH.)
pub fn is_base_variable(name: &str) -> bool {
    const BASE: &[&str] = &["HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TERM", "COLORTERM", "TMPDIR", "PATH"];
    BASE.contains(&name) || name.starts_with("LC_") || name.starts_with("XDG_")
}

macro_rules! signals {
    ($($name:ident = $number:literal),*) => {
        /// The signals that can be sent to a task.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum SignalName { $($name),* }

        impl SignalName {
            pub const ALL: &[SignalName] = &[$(SignalName::$name),*];

            pub fn name(self) -> &'static str {
                match self {
                    $(SignalName::$name => stringify!($name),)*
                }
            }

            /// The number on Linux, identical on all supported architectures.
            pub fn number(self) -> i32 {
                match self {
                    $(SignalName::$name => $number,)*
                }
            }
        }
    };
}
signals!(
    HUP = 1,
    INT = 2,
    QUIT = 3,
    KILL = 9,
    USR1 = 10,
    USR2 = 12,
    TERM = 15,
    CONT = 18,
    STOP = 19,
    TSTP = 20,
    WINCH = 28
);

impl fmt::Display for SignalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SignalName {
    type Err = String;
    /// Parses a name with or without `SIG`, in any case.
    fn from_str(text: &str) -> Result<Self, String> {
        let upper = text.to_ascii_uppercase();
        let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
        Self::ALL.iter().copied().find(|s| s.name() == bare).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|s| s.name()).collect();
            format!("unknown signal `{}`: use one of {}", crate::DisplaySafe::bounded(text, 40), names.join(", "))
        })
    }
}

impl Serialize for SignalName {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for SignalName {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
