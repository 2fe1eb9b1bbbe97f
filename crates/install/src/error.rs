//! Everything that can go wrong with an installation, as values. The messages are for the user at the terminal: they
//! name the file, the line if there is one, and what to do. Each contains the whole message and names no source, so that
//! a caller that prints the chain does not print it twice.

use crate::{entry::SERVER_NAME, prove::CANARY};
use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// Why nothing was installed or removed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The agent does not support it.
    #[error(transparent)]
    Unsupported(#[from] UnsupportedError),
    /// The environment does not tell where configurations are, or where this program is.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// A file cannot be read, edited or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// An installation that the agent does not support.
#[derive(Debug, thiserror::Error)]
pub enum UnsupportedError {
    #[error("{0} has no hook that Countersign can rely on: use --mode mcp")]
    Hook(&'static str),
    #[error("--witness is for hooks: with --mode mcp, Countersign runs the commands itself")]
    Witness,
    #[error("goose has no project configuration: use --scope user")]
    Project,
}

/// What the environment does not provide.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    #[error("neither XDG_CONFIG_HOME nor HOME is set: set HOME")]
    NoConfig,
    #[error("HOME is not set, so the agent's configuration cannot be found: set HOME")]
    NoHome,
    #[error(transparent)]
    Unknown(io::Error),
    #[error("the path of this csn cannot be determined: {0}")]
    Program(io::Error),
    #[error("the path {} cannot be written into a configuration: move csn to a path that is plain UTF-8", .0.display())]
    ProgramName(PathBuf),
}

/// Why a file cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{}: this symbolic link points to a missing file ({error})", path.display())]
    DanglingLink { path: PathBuf, error: io::Error },
    #[error("{}: {} is not a directory", path.display(), place.display())]
    NoDirectory { path: PathBuf, place: PathBuf },
    #[error("{}: this is not a regular file", .0.display())]
    NotRegular(PathBuf),
    #[error("{}: this file is too large for a configuration", .0.display())]
    TooLong(PathBuf),
    #[error("{}: the file name is not UTF-8", .0.display())]
    Name(PathBuf),
    #[error("{path} is read-only, and nothing was changed: run `chmod u+w {path}`, or edit it by hand", path = .0.display())]
    ReadOnly(PathBuf),
    #[error("another program changed {} in the meantime: run the command again", .0.display())]
    ChangedConcurrently(PathBuf),
    #[error("{} cannot be written: {error}", path.display())]
    Unwritable { path: PathBuf, error: io::Error },
    #[error("{} cannot be created: {error}", path.display())]
    DirectoryNotCreated { path: PathBuf, error: io::Error },
    #[error("{} links to {}, outside of the project: such a link is not followed", link.display(), path.display())]
    OutsideProject { link: PathBuf, path: PathBuf },
    #[error("{}: {error}", path.display())]
    Manifest { path: PathBuf, error: serde_json::Error },
    #[error("{}: this manifest was written by a newer csn: use that version", .0.display())]
    NewerManifest(PathBuf),
    #[error(transparent)]
    Edit(#[from] EditError),
    /// Another error, with the file it is about.
    #[error("{}: {error}", path.display())]
    At { path: PathBuf, error: Box<FileError> },
    #[error("{0}; nothing was changed")]
    NothingChanged(Box<FileError>),
    #[error("{cause}; the files that were already written could not be restored: {restore}")]
    PartlyChanged { cause: Box<FileError>, restore: FileErrors },
    #[error("the changes could not be undone: {0}")]
    NotUndone(FileErrors),
}

impl FileError {
    pub(crate) fn io(path: &Path, error: io::Error) -> Self {
        Self::Io { path: path.to_owned(), error }
    }

    pub(crate) fn at(self, path: &Path) -> Self {
        Self::At { path: path.to_owned(), error: Box::new(self) }
    }
}

/// Several errors in one message.
#[derive(Debug)]
pub struct FileErrors(pub(crate) Vec<FileError>);

impl fmt::Display for FileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&all.join("; "))
    }
}

/// Why an entry cannot be added to a file, or removed from it.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    #[error("the file is not UTF-8 (byte {0})")]
    NotUtf8(usize),
    #[error("the file is not valid {format}: {reason}")]
    Invalid { format: &'static str, reason: String },
    #[error("{0} files cannot contain this kind of entry")]
    NoSuchEntry(&'static str),
    #[error("this file already exists and is not Countersign's: move it away, then run the command again")]
    ForeignFile,
    #[error(
        "line {line}: `{table}.{SERVER_NAME}` already exists and is not Countersign's: rename or remove it, then run the \
         command again"
    )]
    ForeignServer { line: usize, table: String },
    #[error("the file cannot be edited reliably: add the entry by hand")]
    Unreliable,
    #[error("the edit did not converge, and nothing was changed: add the entry by hand")]
    Unsettled,
    #[error("{0}, so the agent would ignore the entry: change that, then run the command again")]
    SwitchedOff(String),
    #[error("line {line}: duplicate key `{key}`")]
    DuplicateKey { line: usize, key: String },
    #[error("the file does not contain an object")]
    NotAnObject,
    #[error("line {line}: `{key}` is not {expected}")]
    WrongKind { line: usize, key: String, expected: &'static str },
    #[error("line {line}: `{table}.{SERVER_NAME}` is written inline: remove it, then run the command again")]
    Inline { line: usize, table: String },
    #[error("`{0}.{SERVER_NAME}` is written inline: remove it by hand")]
    InlineToRemove(String),
    #[error("`{0}.{SERVER_NAME}` is not a table")]
    NotATable(String),
    #[error("line {line}: `{table}` is not a table that can be extended: add `{table}.{SERVER_NAME}` by hand")]
    ClosedTable { line: usize, table: String },
    #[error("[{table}.{SERVER_NAME}] cannot be added to `{table}`: {error}")]
    NotExtensible { table: String, error: Box<EditError> },
    #[error("the file contains more than one document: add the entry by hand")]
    SeveralDocuments,
    #[error("the file contains an empty document: add the entry by hand")]
    EmptyDocument,
    #[error("the file has an end mark (`...`): add the entry by hand")]
    EndMark,
    #[error("the file is nested too deeply")]
    TooDeep,
    #[error("line {0}: this is not a mapping")]
    NotAMapping(usize),
    #[error("line {line}: the mapping is in braces or indented: add `{table}.{SERVER_NAME}` by hand")]
    Braces { line: usize, table: String },
    #[error("line {line}: `{table}` {reason}: add `{SERVER_NAME}` below it by hand")]
    Unusual { line: usize, table: String, reason: &'static str },
    #[error("line {line}: `{table}` has a layout that cannot be edited here: remove `{SERVER_NAME}` by hand")]
    UnusualToRemove { line: usize, table: String },
    #[error("`{0}` has a layout that cannot be edited here: add `{SERVER_NAME}` by hand")]
    Layout(String),
}

/// Why a program gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswerError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("did not answer within {0} s")]
    TimedOut(u64),
}

/// Why it is not proved that an installation denies the canary.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    #[error("the hook has no command")]
    NoCommand,
    #[error("`{hook}`: {error}")]
    Hook { hook: String, error: NoAnswerError },
    #[error("`{hook}` did not deny `{CANARY}`: it answered {answer}")]
    HookAllows { hook: String, answer: String },
    #[error("`{hook}` gave no decision ({exit}): {message}")]
    NoDecision { hook: String, exit: String, message: String },
    #[error("`{hook}` denies `{CANARY}`, but not for Countersign's reason ({exit}): {message}")]
    OtherReason { hook: String, exit: String, message: String },
    #[error("`{csn} mcp` {error}")]
    Mcp { csn: String, error: NoAnswerError },
    #[error("`{csn} mcp` listed no tools ({exit}): {message}")]
    NoTools { csn: String, exit: String, message: String },
    #[error("`{0} mcp` has no tool `run`")]
    NoRunTool(String),
    #[error("`{csn} mcp` did not answer a call ({exit}): {message}")]
    CallUnanswered { csn: String, exit: String, message: String },
    #[error("`{csn} mcp` did not deny `{CANARY}`: {answer}")]
    McpAllows { csn: String, answer: String },
}

/// Why an installation is not intact, or not proved.
#[derive(Debug, thiserror::Error)]
pub enum ExamineError {
    #[error("its manifest names an unknown agent or mode: use the csn that installed it")]
    UnknownKind,
    #[error("it was installed for {installed}, and this is {csn}: {reinstall}")]
    OtherProgram { installed: String, csn: String, reinstall: String },
    #[error("its manifest does not list the {part} entry: {reinstall}")]
    NotWritten { part: &'static str, reinstall: String },
    #[error("Countersign's entry in {} is missing or was changed: {reinstall}", path.display())]
    EntryChanged { path: PathBuf, reinstall: String },
    #[error("Countersign's hook is missing from the agent's configuration")]
    HookMissing,
    #[error("Codex skips this hook silently until you trust it: run /hooks in codex, then `csn doctor`")]
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
