//! Everything that can go wrong with an installation, as values. The messages are for the person at the terminal: they
//! name the file, the line where there is one, and what to do. Each holds the whole message, so none names a source: a
//! caller that prints the chain would say it twice.

use crate::{entry::SERVER_NAME, prove::CANARY};
use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// Why nothing was installed or taken out.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The agent has no such thing.
    #[error(transparent)]
    Unsupported(#[from] UnsupportedError),
    /// This environment does not say where configurations are, or what this program is called.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// A file cannot be read, edited or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// What an agent cannot be given.
#[derive(Debug, thiserror::Error)]
pub enum UnsupportedError {
    #[error("{0} gets no hook: none has been proved to hold there; its tools through MCP: --mode mcp")]
    Hook(&'static str),
    #[error("--witness is for hooks: through MCP Countersign runs the command itself")]
    Witness,
    #[error("goose has no configuration of a project: --scope user")]
    Project,
}

/// What the environment does not tell.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    #[error("neither XDG_CONFIG_HOME nor HOME is set")]
    NoConfig,
    #[error("HOME is not set: where agents are configured is not known")]
    NoHome,
    #[error(transparent)]
    Unknown(io::Error),
    #[error("where this csn is cannot be found out: {0}")]
    Program(io::Error),
    #[error("{} cannot be written into a configuration", .0.display())]
    ProgramName(PathBuf),
}

/// What is wrong with a file, or could not be done with it.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{}: it is a link that leads nowhere ({error})", path.display())]
    DanglingLink { path: PathBuf, error: io::Error },
    #[error("{}: {} is not a directory", path.display(), place.display())]
    NoDirectory { path: PathBuf, place: PathBuf },
    #[error("{}: it is not a regular file", .0.display())]
    NotRegular(PathBuf),
    #[error("{}: it is too long for a configuration", .0.display())]
    TooLong(PathBuf),
    #[error("{}: its name is not UTF-8", .0.display())]
    Name(PathBuf),
    #[error("{shown} is read-only: nothing was changed (chmod u+w {shown}, or change it by hand)", shown = .0.display())]
    ReadOnly(PathBuf),
    #[error("{} was changed by somebody else meanwhile: run this again", .0.display())]
    ChangedMeanwhile(PathBuf),
    #[error("{} cannot be written: {error}", path.display())]
    Unwritable { path: PathBuf, error: io::Error },
    #[error("{} cannot be made: {error}", path.display())]
    DirectoryUnmade { path: PathBuf, error: io::Error },
    #[error("{} leads out of the project, to {}: not followed", named.display(), path.display())]
    OutsideProject { named: PathBuf, path: PathBuf },
    #[error("{}: {error}", path.display())]
    Manifest { path: PathBuf, error: serde_json::Error },
    #[error("{}: it was written by a newer csn: use that one", .0.display())]
    NewerManifest(PathBuf),
    #[error(transparent)]
    Edit(#[from] EditError),
    /// With the file that was being worked on.
    #[error("{}: {error}", path.display())]
    At { path: PathBuf, error: Box<FileError> },
    #[error("{0}; nothing was changed")]
    NothingChanged(Box<FileError>),
    #[error("{why}; and what was written before could not be taken back: {also}")]
    HalfChanged { why: Box<FileError>, also: FileErrors },
    #[error("what was written could not be taken back: {0}")]
    NotTakenBack(FileErrors),
}

impl FileError {
    pub(crate) fn io(path: &Path, error: io::Error) -> Self {
        Self::Io { path: path.to_owned(), error }
    }

    pub(crate) fn at(self, path: &Path) -> Self {
        Self::At { path: path.to_owned(), error: Box::new(self) }
    }
}

/// Several at once.
#[derive(Debug)]
pub struct FileErrors(pub(crate) Vec<FileError>);

impl fmt::Display for FileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&all.join("; "))
    }
}

/// Why a text cannot take our entry, or cannot lose it.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    #[error("it is not UTF-8 (byte {0})")]
    NotUtf8(usize),
    #[error("it is not valid {format}: {why}")]
    Invalid { format: &'static str, why: String },
    #[error("{0} holds no such entry")]
    NoSuchEntry(&'static str),
    #[error("it is there already and is not Countersign's: move it away first")]
    ForeignFile,
    #[error(
        "line {line}: `{table}.{SERVER_NAME}` is there already and is not Countersign's: rename or remove it first"
    )]
    ForeignServer { line: usize, table: String },
    #[error("it cannot be changed reliably: add the entry by hand")]
    Unreliable,
    #[error("it does not settle; nothing was changed")]
    Unsettled,
    #[error("{0}, so that it would be skipped: change that, and run this again")]
    SwitchedOff(String),
    #[error("line {line}: the key `{key}` stands there twice")]
    KeyTwice { line: usize, key: String },
    #[error("it does not hold an object")]
    NoObject,
    #[error("line {line}: `{named}` is not {wanted}")]
    WrongKind { line: usize, named: String, wanted: &'static str },
    #[error("line {line}: `{table}.{SERVER_NAME}` is written inline: remove it, and run this again")]
    Inline { line: usize, table: String },
    #[error("`{0}.{SERVER_NAME}` is written inline: take it out by hand")]
    InlineToRemove(String),
    #[error("`{0}.{SERVER_NAME}` is not a table")]
    NoTable(String),
    #[error("line {line}: `{table}` is not a table that can be added to")]
    ClosedTable { line: usize, table: String },
    #[error("`{table}` takes no [{table}.{SERVER_NAME}]: {error}")]
    TakesNone { table: String, error: Box<EditError> },
    #[error("it holds more than one document")]
    SeveralDocuments,
    #[error("it holds an empty document: add the entry by hand")]
    EmptyDocument,
    #[error("it has an end mark (`...`): add the entry by hand")]
    EndMark,
    #[error("it is nested too deeply")]
    TooDeep,
    #[error("line {0}: it does not hold a mapping")]
    NoMapping(usize),
    #[error("line {line}: it is written in braces or indented: add `{table}.{SERVER_NAME}` by hand")]
    Braces { line: usize, table: String },
    #[error("line {line}: `{table}` {why}: add `{SERVER_NAME}` below it by hand")]
    Unusual { line: usize, table: String, why: &'static str },
    #[error("line {line}: `{table}` is written in a way that is not changed here: take {SERVER_NAME} out by hand")]
    UnusualToRemove { line: usize, table: String },
    #[error("`{0}` is laid out in a way that is not changed here: add `{SERVER_NAME}` by hand")]
    Layout(String),
}

/// How a program that was asked did not answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswerError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("did not answer within {0} s")]
    Late(u64),
}

/// Why it is not proved that an installation holds.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    #[error("there is no command")]
    NoCommand,
    #[error("`{hook}`: {error}")]
    Hook { hook: String, error: NoAnswerError },
    #[error("`{hook}` did not deny `{CANARY}`: it said {said}")]
    HookAllows { hook: String, said: String },
    #[error("`{hook}` gave no decision ({ended}): {said}")]
    NoDecision { hook: String, ended: String, said: String },
    #[error("`{hook}` denies `{CANARY}`, but not for the gate's reason ({ended}): {said}")]
    OtherReason { hook: String, ended: String, said: String },
    #[error("`{csn} mcp` {error}")]
    Mcp { csn: String, error: NoAnswerError },
    #[error("`{csn} mcp` listed no tools ({ended}): {said}")]
    NoTools { csn: String, ended: String, said: String },
    #[error("`{0} mcp` has no tool `run`")]
    NoRun(String),
    #[error("`{csn} mcp` did not answer a call ({ended}): {said}")]
    NoCall { csn: String, ended: String, said: String },
    #[error("`{csn} mcp` did not deny `{CANARY}`: {said}")]
    McpAllows { csn: String, said: String },
}

/// Why an installation does not stand or hold any more.
#[derive(Debug, thiserror::Error)]
pub enum ExamineError {
    #[error("its manifest is of an unknown kind")]
    UnknownKind,
    #[error("it was installed for {was}, and this is {csn}: {again}")]
    AnotherProgram { was: String, csn: String, again: String },
    #[error("its manifest lacks the {part}: {again}")]
    NotWritten { part: &'static str, again: String },
    #[error("our entry is gone from {}, or is not as it was: {again}", path.display())]
    EntryGone { path: PathBuf, again: String },
    #[error("our hook is gone")]
    HookGone,
    #[error("Codex skips this hook silently until you trust it: run /hooks in codex")]
    Untrusted,
    #[error(transparent)]
    Install(#[from] InstallError),
    #[error(transparent)]
    Proof(#[from] ProofError),
}

impl From<FileError> for ExamineError {
    fn from(error: FileError) -> Self {
        Self::Install(error.into())
    }
}

impl From<UnsupportedError> for ExamineError {
    fn from(error: UnsupportedError) -> Self {
        Self::Install(error.into())
    }
}
