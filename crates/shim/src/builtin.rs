//! File tools: orders without a child process. The shim itself reads, writes or edits one file, by exactly the path
//! that the gate judged: it follows no symbolic link on the way.

use crate::{output_stream::OutputStream, supervise::Shim, sys::user::with_user_ids};
use countersign_model::{Builtin, Digest, FileChange, FileWork, Frame, Limits, Outcome, StreamName, file_digest};
use countersign_redact::{EditError, Finding, Mask, RedactedFile, text};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags},
};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

/// The largest file that a tool reads or edits.
const MAX_FILE_BYTES: u64 = 32 * 1024 * 1024;

type FileToolResult = Result<FileToolReport, FileToolError>;

/// Why a file could not be read, written or edited.
#[derive(Debug, thiserror::Error)]
enum FileToolError {
    #[error(transparent)]
    File(#[from] io::Error),
    #[error(
        "the file has {0} bytes, more than the {MAX_FILE_BYTES} that file tools handle; read a part with `sed -n` or `rg`"
    )]
    TooLarge(u64),
    #[error("{}", describe_edit_error(.0))]
    Edit(EditError),
}

#[derive(Default)]
struct FileToolReport {
    text: Vec<u8>,
    change: Option<FileEdit>,
    /// The secrets that were redacted from the text.
    found: Vec<Finding>,
}

/// The change to the file, with digests of its content before and after where it is small.
struct FileEdit {
    change: FileChange,
    before: Option<Digest>,
    after: Option<Digest>,
}

/// The largest file content that is digested for the record.
const MAX_DIGESTED_BYTES: u64 = 1024 * 1024;

impl Shim<'_> {
    /// Runs the file tool and reports as a program would: on standard output, or on standard error with an exit code.
    pub(crate) fn run_builtin(&mut self, builtin: &Builtin) -> Outcome {
        let names = Vec::new();
        self.journal.push(&Frame::EnvExposed { class: self.request.exposure.class, names, withheld: Vec::new() });
        let limit = self.request.limits.output_bytes.unwrap_or(Limits::OUTPUT_BYTES);
        let (stream, report, code) = match self.run_file_tool(builtin) {
            Ok(report) => {
                if let Some(FileEdit { change, before, after }) = report.change {
                    let path = text(&self.mask, &builtin.resolved);
                    let escape = crate::is_escape(Path::new(&builtin.resolved));
                    self.journal.push(&Frame::WriteDetected { path, change, escape, before, after });
                }
                (StreamName::Stdout, report, 0)
            }
            Err(error) => {
                let text = format!("{}: {error}\n", builtin.named).into_bytes();
                (StreamName::Stderr, FileToolReport { text, ..FileToolReport::default() }, 1)
            }
        };
        let mut output = OutputStream::without_pipe(stream, Arc::clone(&self.mask), limit);
        let put = output.write_all(&report.text, &mut self.journal, &self.dir);
        let mut counted: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for found in &report.found {
            counted.entry(&found.rule).or_insert((found.offset, 0)).1 += 1;
        }
        for (rule, (offset, count)) in counted {
            self.journal.push(&Frame::Redacted {
                stream,
                offset,
                rule: countersign_redact::rule_name(&rule.to_owned().into()),
                count,
            });
        }
        self.outputs.push(output);
        match put {
            Ok(()) => Outcome::Exited { code },
            Err(e) => Outcome::Failed { error: text(&self.mask, &e.to_string()), code: 125 },
        }
    }
}

impl Shim<'_> {
    fn run_file_tool(&self, builtin: &Builtin) -> FileToolResult {
        let work = || apply_file_work(builtin, &self.mask, self.request.mask_key);
        with_user_ids(self.request.user.as_ref(), work)?
    }
}

fn apply_file_work(builtin: &Builtin, mask: &Mask, key: Digest) -> FileToolResult {
    let digest = |bytes: &[u8]| (bytes.len() as u64 <= MAX_DIGESTED_BYTES).then(|| file_digest(key, bytes));
    let path = Path::new(&builtin.resolved);
    match &builtin.work {
        FileWork::Read { first_line, line_count } => {
            let shown = RedactedFile::new(mask, read_regular(path)?.0);
            let (text, found) = shown.lines(first_line.unwrap_or(1), *line_count);
            Ok(FileToolReport { text: text.get().to_vec(), change: None, found })
        }
        FileWork::Write { content } => {
            let old = match open_regular(path) {
                Ok(file) => Some(file),
                Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                Err(e) => return Err(e.into()),
            };
            let small = old.as_ref().filter(|f| f.metadata().is_ok_and(|m| m.len() <= MAX_DIGESTED_BYTES));
            let mut before = Vec::new();
            let before = small.and_then(|mut f| f.read_to_end(&mut before).ok()).and_then(|_| digest(&before));
            replace_file(path, old.as_ref(), content.as_bytes())?;
            let change = if old.is_some() { FileChange::Modified } else { FileChange::Created };
            let edit = FileEdit { change, before, after: digest(content.as_bytes()) };
            let unit = if content.len() == 1 { "byte" } else { "bytes" };
            let text = format!("wrote {} {unit} to {}\n", content.len(), builtin.named).into_bytes();
            Ok(FileToolReport { text, change: Some(edit), ..FileToolReport::default() })
        }
        FileWork::Edit { old, new, all } => {
            let (raw, file) = read_regular(path)?;
            let before = digest(&raw);
            let (bytes, places) =
                RedactedFile::new(mask, raw).edit(mask, old, new, *all).map_err(FileToolError::Edit)?;
            replace_file(path, Some(&file), &bytes)?;
            let places = if places == 1 { "one place".to_owned() } else { format!("{places} places") };
            let text = format!("edited {} in {places}\n", builtin.named).into_bytes();
            let change = FileEdit { change: FileChange::Modified, before, after: digest(&bytes) };
            Ok(FileToolReport { text, change: Some(change), ..FileToolReport::default() })
        }
    }
}

fn describe_edit_error(error: &EditError) -> String {
    match error {
        EditError::NotFound => {
            "the file does not contain `old`; copy the text exactly as read_file shows it, with its white space".to_owned()
        }
        EditError::Ambiguous(n) => {
            format!("the file contains `old` {n} times; include more of the surrounding text, or set `all` to replace each")
        }
        EditError::InsidePlaceholder => {
            "`old` begins or ends inside a placeholder; include the whole placeholder, or none of it".to_owned()
        }
        EditError::Exposed => {
            "this edit would separate a secret from the name or prefix that marks it, and the secret would be shown; keep \
             that name or prefix next to it"
                .to_owned()
        }
        EditError::UnknownPlaceholder(p) => {
            format!("`new` contains {p}, which does not stand for one single secret in `old`; remove it from `new`")
        }
    }
}

/// Opens the file that the gate judged, and never what a link in its place or on the way to it leads to.
fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let file = File::from(fd);
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

fn read_regular(path: &Path) -> Result<(Vec<u8>, File), FileToolError> {
    let mut file = open_regular(path)?;
    let length = file.metadata()?.len();
    if length > MAX_FILE_BYTES {
        return Err(FileToolError::TooLarge(length));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    io::Read::take(&mut file, MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok((bytes, file))
}

/// Replaces a file atomically, so that a reader sees the old or the new content. Where a new file would lose something
/// (hard links, attributes, another owner), it writes into the existing file.
fn replace_file(path: &Path, old: Option<&File>, bytes: &[u8]) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("the path does not name a file"));
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat2(CWD, parent, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    let directory = directory.map_err(|e| match e {
        rustix::io::Errno::NOENT => {
            io::Error::other(format!("the directory {} does not exist; create it first", parent.display()))
        }
        e => e.into(),
    })?;
    let Some(old) = old else {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&directory, name, flags, Mode::from_raw_mode(0o666))?;
        return write_and_sync(File::from(fd), bytes);
    };
    // A user who may not write the file may not replace it either.
    let existing = File::from(rustix::fs::open(
        countersign_store::proc::own_file(old),
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?);
    let stat = rustix::fs::fstat(old)?;
    let has_more = stat.st_nlink > 1 || rustix::fs::flistxattr(old, &mut [0u8; 0][..]).is_ok_and(|n| n > 0);
    if !has_more && let Some((file, temporary)) = create_beside(&directory, name, &stat)? {
        let replaced = write_and_sync(file, bytes)
            .and_then(|()| Ok(rustix::fs::renameat(&directory, &temporary, &directory, name)?));
        if replaced.is_err() {
            let _ = rustix::fs::unlinkat(&directory, &temporary, AtFlags::empty());
        }
        return replaced;
    }
    // Space is reserved first, so that a full disk does not destroy the old content.
    if bytes.len() as u64 > u64::try_from(stat.st_size).unwrap_or(0) {
        rustix::fs::fallocate(&existing, rustix::fs::FallocateFlags::KEEP_SIZE, 0, bytes.len() as u64)?;
    }
    (&existing).write_all(bytes)?;
    existing.set_len(bytes.len() as u64)?;
    existing.sync_all()
}

/// Creates a new file in the same directory with the owner and mode of the old one. None if the user has no right to.
fn create_beside(
    directory: &OwnedFd,
    name: &std::ffi::OsStr,
    stat: &rustix::fs::Stat,
) -> io::Result<Option<(File, PathBuf)>> {
    let temporary = PathBuf::from(format!(".{}.csn-{}", name.to_string_lossy(), std::process::id()));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = match rustix::fs::openat(directory.as_fd(), &temporary, flags, Mode::from_raw_mode(0o600)) {
        Ok(fd) => fd,
        Err(
            rustix::io::Errno::ACCESS
            | rustix::io::Errno::PERM
            | rustix::io::Errno::EXIST
            | rustix::io::Errno::NAMETOOLONG,
        ) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let created = rustix::fs::fstat(&fd)?;
    let (uid, gid) = (rustix::fs::Uid::from_raw(stat.st_uid), rustix::fs::Gid::from_raw(stat.st_gid));
    let same_owner = (created.st_uid, created.st_gid) == (stat.st_uid, stat.st_gid)
        || rustix::fs::fchown(&fd, Some(uid), Some(gid)).is_ok();
    if !same_owner || rustix::fs::fchmod(&fd, Mode::from_raw_mode(stat.st_mode & 0o7777)).is_err() {
        rustix::fs::unlinkat(directory, &temporary, AtFlags::empty())?;
        return Ok(None);
    }
    Ok(Some((File::from(fd), temporary)))
}

fn write_and_sync(mut file: File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_all()
}
