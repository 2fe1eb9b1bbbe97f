//! The plan: the one normal form of a request, and the facts that the world adds to it.

use crate::{Confinement, Digest, HomeKey, Request};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, ops::Range};

/// What would run. Raw, like the request: its digest and its clean display text are what gets recorded.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    pub occurrences: Vec<Occurrence>,
    /// A function that multiplies itself without end.
    pub multiplies: bool,
}

/// One simple command somewhere in a plan.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Occurrence {
    /// Program and subcommand: what a grant is for.
    pub verb: String,
    /// The program and its arguments.
    pub words: Vec<Word>,
    /// Where it stands in the text of the request.
    pub span: Range<usize>,
    pub directory: Directory,
    pub redirects: Vec<Redirect>,
    /// The assignments that it sees and that may change what it does.
    pub assignments: Vec<Assignment>,
    pub input: InputSource,
    /// Runs with another user's rights.
    pub privileged: bool,
    /// Text that stays as it is: nothing in it has been told apart.
    pub unread: bool,
    /// Why this could not be read, when it could not.
    pub opaque: Option<Opaque>,
    /// Read from text that the shell itself never shows us: its risks and denies count, it asks nothing of its own.
    pub shadow: bool,
    /// Runs on another machine.
    pub remote: bool,
    /// Another program starts it: a builtin's name means a program then.
    pub wrapped: bool,
    /// Something that ends it by a signal stands before it.
    pub timed: bool,
    /// Every path that it names.
    pub scopes: Vec<PathScope>,
    /// A word in the place of a path or an option is unknown.
    pub loose: bool,
    /// Every word is literal and holds no substitution.
    pub literal: bool,
    pub reading: ReadOnlyProof,
    pub risks: Vec<(Risk, &'static str)>,
    /// The risks that its verb has by itself, with no flags and no operands.
    pub base_risks: Vec<Risk>,
    /// The program that hard denies are about, without its directory.
    pub program: String,
}

/// Whether an occurrence is known to do nothing but read.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum ReadOnlyProof {
    /// Says something, or changes the shell itself: no file is touched.
    SideEffect,
    /// A reviewed phrase, by its name.
    Phrase(&'static str),
    /// Not known; with the reason.
    #[default]
    Unknown,
    /// Close to a phrase, but for this.
    Not(String),
}

/// What is known of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WordValue {
    One(String),
    /// One of these.
    Any(Vec<String>),
    /// File names that match one of these globs; what is literal in them is escaped.
    Pattern(Vec<String>),
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    pub value: WordValue,
    /// Quoted at least in part.
    pub quoted: bool,
    /// May become no word, or several.
    pub many: bool,
    /// Holds a substitution.
    pub substituted: bool,
    /// Where an unknown word probably leads: raises risks, never lowers one.
    pub hint: Option<String>,
}

impl Word {
    /// Whether it is a word of a list of file names that a command prints. Split at blanks, a name may become two words,
    /// so it is a path for what is confined to reading, and unknown to everything else.
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

    /// The text, when there is only one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            WordValue::One(text) => Some(text),
            _ => None,
        }
    }

    /// Every text that it can be, when they are known.
    #[must_use]
    pub fn texts(&self) -> Option<&[String]> {
        match &self.value {
            WordValue::One(text) => Some(std::slice::from_ref(text)),
            WordValue::Any(texts) => Some(texts),
            WordValue::Pattern(_) | WordValue::Unknown => None,
        }
    }
}

/// Where an occurrence runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Directory {
    /// In one of these, depending on what happened before.
    Known(Vec<String>),
    Unknown,
}

impl Default for Directory {
    fn default() -> Self {
        Self::Known(Vec::new())
    }
}

/// Where standard input comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum InputSource {
    #[default]
    Inherited,
    Pipe,
    File,
    /// A here-document, a here-string, or what `echo` was given: the text, when it is literal.
    Text(Option<String>),
    /// Names of files, as `find` and its kind print them: the globs that they match.
    Files(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    pub target: Word,
    pub write: bool,
    /// Adds to what is there.
    pub append: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    pub name: String,
    pub value: WordValue,
}

/// A path that an occurrence names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathScope {
    /// Absolute, `.` and `..` resolved by their letters.
    pub path: String,
    /// As it was written, made absolute: what the kernel will walk.
    pub walked: String,
    pub write: bool,
    pub kind: PathKind,
    /// A glob; `path` is the directory that covers it and `walked` the glob.
    pub pattern: bool,
    /// Everything below it is meant.
    pub recursive: bool,
}

impl PathScope {
    /// Whether what is below goes with it.
    #[must_use]
    pub fn recursive_or_moved(&self, program: &str) -> bool {
        self.recursive || program == "mv"
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    File,
    Directory,
    /// Either; the facts tell, and where there are none, it is taken as it stands.
    Any,
    /// A word of a program that we do not know: a path if there is something there.
    Perhaps,
    /// An entry of its parent directory: what is removed or made.
    Entry,
    /// Its name, size or age is told, and nothing of what is in it.
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
    /// The reason, for a person.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unparseable => "bash and this reader may not agree on what this text means",
            Self::TooLarge => "longer than 64 KiB, or more commands than anyone would read",
            Self::TooDeep => "nested too deep to be read",
            Self::Invisible => "holds invisible or reordering characters",
            Self::DynamicProgram => "the program is known only when it runs",
            Self::Eval => "eval runs text as a command",
            Self::Source => "runs a file in this shell",
            Self::ShellMutation => "changes what later words of this shell mean",
            Self::Function => "calls a function that this text defines",
            Self::Coprocess => "starts a coprocess",
            Self::Code => "code for an interpreter",
            Self::Input => "runs what it is given as input",
            Self::PromptExpansion => "expands a value as a prompt or by another name, which can run commands",
            Self::Arithmetic => "arithmetic over names, which can run commands",
            Self::EvaluatesArguments => "a builtin that evaluates its arguments",
            Self::Wrapper => "runs another command that cannot be told from its words",
        }
    }
}

/// One named reason for care.
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

    /// Only a person answers for these, never an agent's own client.
    #[must_use]
    pub fn is_grave(self) -> bool {
        match self {
            Self::Destructive
            | Self::Credential
            | Self::HostModifying
            | Self::FilesystemWide
            | Self::Privileged
            | Self::OfSelf => true,
            // What cannot be read could be any of them.
            Self::Opaque => true,
            Self::Write | Self::Network | Self::WorkspaceCode | Self::Interactive | Self::Background => false,
        }
    }

    /// The one spelling: in config, JSON and tables.
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
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|r| r.as_str() == name)
    }
}

/// A risk with the occurrence that caused it and the reason in one line.
#[derive(Debug, Clone, PartialEq)]
pub struct RiskNote {
    pub risk: Risk,
    pub occurrence: usize,
    pub reason: &'static str,
}

/// What the world says about the paths and programs of a plan. Taken at the ask, again at launch; both must agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    pub cwd: PathFact,
    /// The program that will be executed; none when there is no such file.
    pub program: Option<PathFact>,
    /// The paths that the plan names, as it names them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub paths: BTreeMap<String, PathTarget>,
    /// Where each bare program name leads on the PATH that will be used.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, String>,
    /// What each glob matches, resolved; none when that is too much to list.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub patterns: BTreeMap<String, Option<Vec<String>>>,
    /// The content of each script that the plan runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scripts: BTreeMap<String, Digest>,
    /// The top of the repository that each directory lies in.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub repositories: BTreeMap<String, String>,
    /// The program of each process that the plan signals.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub processes: BTreeMap<u32, String>,
}

impl Facts {
    /// Whether what was asked about is what is there now. What a glob matches may grow and shrink: it was approved as
    /// a glob, and denies look at its matches again.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        (&self.cwd, &self.program) == (&other.cwd, &other.program)
            && self.paths.len() == other.paths.len()
            && self.paths.iter().all(|(path, found)| other.paths.get(path).is_some_and(|now| found.same(now)))
            && (&self.programs, &self.scripts) == (&other.programs, &other.scripts)
    }

    /// What is known without looking: nothing but where the request runs.
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

/// What judging a plan asks about the world.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FactQuery {
    pub paths: Vec<String>,
    pub patterns: Vec<String>,
    pub programs: Vec<String>,
    pub scripts: Vec<String>,
    pub processes: Vec<u32>,
}

/// A path, where it leads through links, and which file that is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathFact {
    pub path: String,
    pub resolved: String,
    pub dev: u64,
    pub inode: u64,
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathTarget {
    /// Through every link; of what does not exist, as far as it does.
    pub resolved: String,
    pub kind: PathTargetKind,
    pub dev: u64,
    pub inode: u64,
    /// The root of a mounted file system.
    #[serde(default)]
    pub mount: bool,
}

impl PathTarget {
    /// Whether a path still leads to the same place. A file may have been written, made or removed there meanwhile;
    /// a directory must be the one that it was.
    fn same(&self, now: &Self) -> bool {
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

/// A lasting answer in the operator's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub name: String,
    /// What it says; an addition to the hard denies says nothing else.
    #[serde(default)]
    pub answer: crate::VerdictKind,
    /// The verbs it is for, and all that start with their words.
    #[serde(default, deserialize_with = "one_or_many")]
    pub verb: Vec<String>,
    /// Globs; one of the words must match one of them.
    #[serde(default, deserialize_with = "one_or_many")]
    pub with: Vec<String>,
    #[serde(default)]
    pub directory: Option<String>,
    /// To deny or ask: one of these is enough. To allow: the ones that are accepted.
    #[serde(default)]
    pub risks: Option<Vec<Risk>>,
    /// Told to whoever is refused.
    #[serde(default)]
    pub reason: Option<String>,
    /// What it lets run is held to this at least.
    #[serde(default)]
    pub confinement: Confinement,
    /// Commands that it must match, and commands that it must not.
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
    /// Identifies this exact request: what runs, where, with which environment, and how it may end.
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
