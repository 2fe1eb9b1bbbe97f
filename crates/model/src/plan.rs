//! The plan: the one normal form of a request, and the facts about paths and programs that judging it needs.

use crate::{Confinement, Digest, HomeKey, Request};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, ops::Range};

/// What would run. Raw, like the request: records hold only its digest and its clean display text.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    pub occurrences: Vec<Occurrence>,
    /// It defines a function that forks itself without end.
    pub multiplies: bool,
}

/// One simple command somewhere in a plan.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Occurrence {
    /// Program and subcommand: the name that a grant covers.
    pub verb: String,
    /// The program and its arguments.
    pub words: Vec<Word>,
    /// Its position in the text of the request.
    pub span: Range<usize>,
    pub directory: Directory,
    pub redirects: Vec<Redirect>,
    /// The assignments in effect that may change what it does.
    pub assignments: Vec<Assignment>,
    pub input: InputSource,
    /// It runs with the rights of another user.
    pub privileged: bool,
    /// Text that was not analysed any further.
    pub unread: bool,
    /// Why it cannot be analysed, if it cannot.
    pub opaque: Option<Opaque>,
    /// Found in text that the shell never executes directly. Its risks and denies count, but it needs no approval of
    /// its own.
    pub shadow: bool,
    /// It runs on another machine.
    pub remote: bool,
    /// Another program starts it, so the name of a builtin means a program.
    pub wrapped: bool,
    /// A command before it ends it with a signal, such as `timeout`.
    pub timed: bool,
    /// Every path that it names.
    pub scopes: Vec<PathScope>,
    /// A word in the position of a path or an option is unknown.
    pub loose: bool,
    /// Every word is literal and contains no substitution.
    pub literal: bool,
    pub reading: ReadOnlyProof,
    pub risks: Vec<(Risk, &'static str)>,
    /// The risks of the verb itself, without options and operands.
    pub base_risks: Vec<Risk>,
    /// The program for the hard denies, without its directory.
    pub program: String,
}

/// Whether a command is known to only read.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum ReadOnlyProof {
    /// It only prints something or changes the shell itself; it touches no file.
    SideEffect,
    /// A known read-only command, by the name of its phrase.
    Phrase(&'static str),
    /// Unknown.
    #[default]
    Unknown,
    /// Close to a known read-only command; the text names the difference.
    Not(String),
}

/// The known value of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WordValue {
    One(String),
    /// One of these.
    Any(Vec<String>),
    /// File names that match one of these globs. Literal characters in them are escaped.
    Pattern(Vec<String>),
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    pub value: WordValue,
    /// At least partly quoted.
    pub quoted: bool,
    /// May expand to no word or to several.
    pub many: bool,
    /// Contains a substitution.
    pub substituted: bool,
    /// Where an unknown word probably leads. It may raise risks, but never lowers one.
    pub hint: Option<String>,
}

impl Word {
    /// Whether it stands for file names that another command prints. The shell splits them at blanks, so one name may
    /// become two words: a read-only command may use them as paths; for anything else they are unknown.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.substituted && matches!(self.value, WordValue::Pattern(_))
    }

    #[must_use]
    pub fn literal(text: impl Into<String>) -> Self {
        Self { value: WordValue::One(text.into()), quoted: false, many: false, substituted: false, hint: None }
    }

    #[must_use]
    pub fn unknown() -> Self {
        Self { value: WordValue::Unknown, quoted: false, many: true, substituted: false, hint: None }
    }

    /// The text, if there is exactly one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            WordValue::One(text) => Some(text),
            _ => None,
        }
    }

    /// Every text that it can be, if all of them are known.
    #[must_use]
    pub fn texts(&self) -> Option<&[String]> {
        match &self.value {
            WordValue::One(text) => Some(std::slice::from_ref(text)),
            WordValue::Any(texts) => Some(texts),
            WordValue::Pattern(_) | WordValue::Unknown => None,
        }
    }
}

/// The directory that a command runs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Directory {
    /// One of these, depending on the commands before it.
    Known(Vec<String>),
    Unknown,
}

impl Default for Directory {
    fn default() -> Self {
        Self::Known(Vec::new())
    }
}

/// The source of standard input.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum InputSource {
    #[default]
    Inherited,
    Pipe,
    File,
    /// A here-document, a here-string, or the output of `echo`: the text, if it is literal.
    Text(Option<String>),
    /// File names, as `find` and similar commands print them: the globs that they match.
    Files(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    pub target: Word,
    pub write: bool,
    /// Appends to the file.
    pub append: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    pub name: String,
    pub value: WordValue,
}

/// A path that a command names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathScope {
    /// Absolute, with `.` and `..` resolved as text.
    pub path: String,
    /// As written, but absolute: the path that the kernel resolves.
    pub walked: String,
    pub write: bool,
    pub kind: PathKind,
    /// It is a glob: `path` is the directory that contains all matches, `walked` is the glob.
    pub pattern: bool,
    /// The command works on everything below it.
    pub recursive: bool,
}

impl PathScope {
    /// Whether everything below the path is affected too.
    #[must_use]
    pub fn recursive_or_moved(&self, program: &str) -> bool {
        self.recursive || program == "mv"
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    File,
    Directory,
    /// A file or a directory; the facts decide. Without facts the path is used as it is.
    Any,
    /// An argument of an unknown program: a path if something exists there.
    Perhaps,
    /// An entry of its parent directory, which the command creates or removes.
    Entry,
    /// The command shows its name, size or age, but not its content.
    Name,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Opaque {
    Unparseable,
    TooLarge,
    TooDeep,
    Invisible,
    DynamicProgram,
    Eval,
    Source,
    ShellMutation,
    Function,
    Coprocess,
    Code,
    Input,
    PromptExpansion,
    Arithmetic,
    EvaluatesArguments,
    Wrapper,
}

impl Opaque {
    /// The reason for people.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unparseable => "bash may understand this text in another way than Countersign",
            Self::TooLarge => "longer than 64 KiB, or too many commands",
            Self::TooDeep => "nested too deeply",
            Self::Invisible => "contains invisible or reordering characters",
            Self::DynamicProgram => "the name of the program is known only when it runs",
            Self::Eval => "`eval` runs text as a command",
            Self::Source => "runs a file in the same shell",
            Self::ShellMutation => "changes the meaning of later commands in this shell",
            Self::Function => "calls a function that the same text defines",
            Self::Coprocess => "starts a coprocess",
            Self::Code => "runs code in an interpreter",
            Self::Input => "runs its input as commands",
            Self::PromptExpansion => "expands a value as a prompt or indirectly, which can run commands",
            Self::Arithmetic => "evaluates arithmetic with variables, which can run commands",
            Self::EvaluatesArguments => "calls a builtin that evaluates its arguments",
            Self::Wrapper => "runs another command that its arguments do not show",
        }
    }
}

/// One named reason for caution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    Write,
    Destructive,
    Network,
    Credential,
    HostModifying,
    FilesystemWide,
    Privileged,
    WorkspaceCode,
    Opaque,
    Interactive,
    Background,
    #[serde(rename = "self")]
    OfSelf,
}

impl Risk {
    pub const ALL: [Self; 12] = [
        Self::Write,
        Self::Destructive,
        Self::Network,
        Self::Credential,
        Self::HostModifying,
        Self::FilesystemWide,
        Self::Privileged,
        Self::WorkspaceCode,
        Self::Opaque,
        Self::Interactive,
        Self::Background,
        Self::OfSelf,
    ];

    /// Only a person may accept these risks; an approval through the agent's own client does not count.
    #[must_use]
    pub fn is_grave(self) -> bool {
        match self {
            Self::Destructive
            | Self::Credential
            | Self::HostModifying
            | Self::FilesystemWide
            | Self::Privileged
            | Self::OfSelf => true,
            // Text that cannot be analysed could do any of them.
            Self::Opaque => true,
            Self::Write | Self::Network | Self::WorkspaceCode | Self::Interactive | Self::Background => false,
        }
    }

    /// The spelling in config, JSON and tables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Destructive => "destructive",
            Self::Network => "network",
            Self::Credential => "credential",
            Self::HostModifying => "host_modifying",
            Self::FilesystemWide => "filesystem_wide",
            Self::Privileged => "privileged",
            Self::WorkspaceCode => "workspace_code",
            Self::Opaque => "opaque",
            Self::Interactive => "interactive",
            Self::Background => "background",
            Self::OfSelf => "self",
        }
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|r| r.as_str() == name)
    }
}

/// A risk with the command that causes it and the reason in one line.
#[derive(Debug, Clone, PartialEq)]
pub struct RiskNote {
    pub risk: Risk,
    pub occurrence: usize,
    pub reason: &'static str,
}

/// The state of the paths and programs that a plan names. The daemon collects it for the decision and again before the
/// launch; both must agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    pub cwd: PathFact,
    /// The program that will be executed; none if there is no such file.
    pub program: Option<PathFact>,
    /// The paths that the plan names, as it names them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub paths: BTreeMap<String, PathTarget>,
    /// The path of each bare program name, found on the PATH of the task.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, String>,
    /// The resolved matches of each glob; none if there are too many to list.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub patterns: BTreeMap<String, Option<Vec<String>>>,
    /// The digest of each script that the plan runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scripts: BTreeMap<String, Digest>,
    /// The top directory of the repository that contains each directory.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub repositories: BTreeMap<String, String>,
    /// The program of each process that the plan signals.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub processes: BTreeMap<u32, String>,
}

impl Facts {
    /// Whether the decision still applies to what exists now. The matches of a glob may change: the approval was for
    /// the glob, and hard denies check its matches again.
    #[must_use]
    pub fn still_matches(&self, other: &Self) -> bool {
        (&self.cwd, &self.program) == (&other.cwd, &other.program)
            && self.paths.len() == other.paths.len()
            && self.paths.iter().all(|(path, found)| other.paths.get(path).is_some_and(|now| found.is_same_place(now)))
            && (&self.programs, &self.scripts) == (&other.programs, &other.scripts)
    }

    /// Facts for a plan that needs none: only the working directory.
    #[must_use]
    pub fn none(cwd: &str) -> Self {
        let cwd = PathFact { path: cwd.to_owned(), resolved: cwd.to_owned(), dev: 0, inode: 0 };
        Self {
            cwd,
            program: None,
            paths: BTreeMap::new(),
            programs: BTreeMap::new(),
            patterns: BTreeMap::new(),
            scripts: BTreeMap::new(),
            repositories: BTreeMap::new(),
            processes: BTreeMap::new(),
        }
    }
}

/// The facts that judging a plan needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FactQuery {
    pub paths: Vec<String>,
    pub patterns: Vec<String>,
    pub programs: Vec<String>,
    pub scripts: Vec<String>,
    pub processes: Vec<u32>,
}

/// A path, its target after resolving links, and the identity of that file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathFact {
    pub path: String,
    pub resolved: String,
    pub dev: u64,
    pub inode: u64,
}

/// What exists at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathTarget {
    /// The path with every link resolved; for a missing file, as far as the path exists.
    pub resolved: String,
    pub kind: PathTargetKind,
    pub dev: u64,
    pub inode: u64,
    /// It is the root of a mounted file system.
    #[serde(default)]
    pub mount: bool,
}

impl PathTarget {
    /// Whether a path still leads to the same place. A file may have been written, created or removed in the meantime;
    /// a directory must be the same one.
    fn is_same_place(&self, now: &Self) -> bool {
        let directory = |f: &Self| f.kind == PathTargetKind::Directory;
        self.resolved == now.resolved
            && directory(self) == directory(now)
            && (!directory(self) || (self.dev, self.inode, self.mount) == (now.dev, now.inode, now.mount))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathTargetKind {
    File,
    Directory,
    Other,
    Absent,
}

/// A rule of the operator in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub name: String,
    /// Its answer. In the list of additional denies, every rule denies.
    #[serde(default)]
    pub answer: crate::VerdictKind,
    /// The verbs that it applies to, and all verbs that begin with the same words.
    #[serde(default, deserialize_with = "one_or_many")]
    pub verb: Vec<String>,
    /// Globs; one of the words must match one of them.
    #[serde(default, deserialize_with = "one_or_many")]
    pub with: Vec<String>,
    #[serde(default)]
    pub directory: Option<String>,
    /// To deny or ask, one of these risks is enough. To allow, these are the accepted risks.
    #[serde(default)]
    pub risks: Option<Vec<Risk>>,
    /// Shown when the rule denies a request.
    #[serde(default)]
    pub reason: Option<String>,
    /// Commands that it allows get at least this confinement.
    #[serde(default)]
    pub confinement: Confinement,
    /// Example commands that the rule must match, and commands that it must not match.
    #[serde(default, rename = "match", deserialize_with = "one_or_many")]
    pub matches: Vec<String>,
    #[serde(default, deserialize_with = "one_or_many")]
    pub not_match: Vec<String>,
}

fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Either::deserialize(deserializer)? {
        Either::One(one) => vec![one],
        Either::Many(many) => many,
    })
}

impl Plan {
    /// Identifies this exact request: the command, its directory and environment, and how it may end.
    pub fn digest(key: &HomeKey, request: &Request, cwd: &str) -> Digest {
        let args = &request.args;
        let mut parts: Vec<&[u8]> = vec![cwd.as_bytes(), if args.argv.is_some() { b"argv" } else { b"text" }];
        parts.extend(args.command.iter().map(|c| c.as_bytes()));
        parts.extend(args.argv.iter().flatten().map(|w| w.as_bytes()));
        for map in [&args.env, &args.inherit] {
            parts.push(b"env");
            parts.extend(map.iter().flat_map(|(k, v)| [k.as_bytes(), v.as_bytes()]));
        }
        if request.tool != crate::Tool::Shell {
            parts.push(request.tool.as_str().as_bytes());
        }
        for part in [&args.path, &args.content, &args.old, &args.new] {
            parts.extend(part.iter().flat_map(|text| [b"part" as &[u8], text.as_bytes()]));
        }
        let lines = format!("{:?} {:?} {}", args.first_line, args.line_count, args.all);
        if args.path.is_some() {
            parts.push(lines.as_bytes());
        }
        let rest = format!(
            "{:?} {:?} {:?} {:?} {:?} {}",
            request.mode,
            request.leftovers,
            request.limits,
            request.on_output_limit,
            request.on_session_end,
            args.stdin
        );
        parts.push(rest.as_bytes());
        parts.extend(request.workspace.iter().map(|w| w.as_bytes()));
        parts.extend(request.confinement.iter().map(|c| c.as_str().as_bytes()));
        parts.extend(request.network.iter().flat_map(|n| [b"network" as &[u8], n.as_str().as_bytes()]));
        key.digest("plan", &parts)
    }
}
