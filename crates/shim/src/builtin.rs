//! File tools: an order without a child. One file is read, written or edited here, by the path that was judged and no
//! other: no link is followed on the way.

use crate::{output_stream::OutputStream, supervise::Shim, sys::user::with_user_ids};
use countersign_model::{Builtin, Digest, FileChange, FileWork, Frame, Limits, Outcome, StreamName, Text, file_digest};
use countersign_redact::{EditError, Found, Mask, Shown, text};
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

/// The largest file that is shown or edited.
const LARGEST: u64 = 32 * 1024 * 1024;

/// What it came to: what is told, and whether it worked.
type FileToolResult = Result<FileToolReport, FileToolError>;

/// Why a file could not be read, written or edited.
#[derive(Debug, thiserror::Error)]
enum FileToolError {
    #[error(transparent)]
    File(#[from] io::Error),
    #[error("has {0} bytes, the most is {LARGEST}; `sed -n` and `rg` show parts of it")]
    TooLarge(u64),
    #[error("{}", why(.0))]
    Edit(EditError),
}

#[derive(Default)]
struct FileToolReport {
    text: Vec<u8>,
    change: Option<FileEdit>,
    /// What was taken out of the text.
    found: Vec<Found>,
}

/// What became of the file, and what it held, if that was little.
struct FileEdit {
    what: FileChange,
    before: Option<Digest>,
    after: Option<Digest>,
}

/// Files up to this size are digested.
const SMALL: u64 = 1024 * 1024;

impl Shim<'_> {
    /// Does what the order says and tells it as a program would: on standard output, or on standard error with a code.
    pub(crate) fn work(&mut self, builtin: &Builtin) -> Outcome {
        let names = Vec::new();
        self.journal.push(&Frame::EnvExposed { class: self.what.exposure.class, names, withheld: Vec::new() });
        let limit = self.what.limits.output_bytes.unwrap_or(Limits::OUTPUT_BYTES);
        let (stream, told, code) = match self.done(builtin) {
            Ok(told) => {
                if let Some(FileEdit { what: change, before, after }) = told.change {
                    let path = text(&self.mask, &builtin.resolved);
                    let escape = crate::is_escape(Path::new(&builtin.resolved));
                    self.journal.push(&Frame::WriteDetected { path, change, escape, before, after });
                }
                (StreamName::Stdout, told, 0)
            }
            Err(why) => {
                let text = format!("{}: {why}\n", builtin.named).into_bytes();
                (StreamName::Stderr, FileToolReport { text, ..FileToolReport::default() }, 1)
            }
        };
        let mut outlet = OutputStream::without_pipe(stream, Arc::clone(&self.mask), limit);
        let put = outlet.put(&told.text, &mut self.journal, &self.dir);
        let mut counted: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for found in &told.found {
            counted.entry(&found.rule).or_insert((found.offset, 0)).1 += 1;
        }
        for (rule, (offset, count)) in counted {
            self.journal.push(&Frame::Redacted {
                stream,
                offset,
                rule: countersign_redact::name(&rule.to_owned().into()),
                count,
            });
        }
        self.outlets.push(outlet);
        match put {
            Ok(()) => Outcome::Exited { code },
            Err(e) => Outcome::Failed { error: said(&self.mask, &e.to_string()), code: 125 },
        }
    }
}

impl Shim<'_> {
    fn done(&self, builtin: &Builtin) -> FileToolResult {
        let work = || done(builtin, &self.mask, self.what.mask_key);
        with_user_ids(self.what.user.as_ref(), work)?
    }
}

fn said(mask: &Mask, error: &str) -> Text {
    text(mask, error)
}

fn done(builtin: &Builtin, mask: &Mask, key: Digest) -> FileToolResult {
    let digest = |bytes: &[u8]| (bytes.len() as u64 <= SMALL).then(|| file_digest(key, bytes));
    let path = Path::new(&builtin.resolved);
    match &builtin.work {
        FileWork::Read { first_line, line_count } => {
            let shown = Shown::new(mask, read(path)?.0);
            let (text, found) = shown.lines(first_line.unwrap_or(1), *line_count);
            Ok(FileToolReport { text: text.get().to_vec(), change: None, found })
        }
        FileWork::Write { content } => {
            let old = match open(path) {
                Ok(file) => Some(file),
                Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                Err(e) => return Err(e.into()),
            };
            let held = old.as_ref().filter(|f| f.metadata().is_ok_and(|m| m.len() <= SMALL));
            let mut before = Vec::new();
            let before = held.and_then(|mut f| f.read_to_end(&mut before).ok()).and_then(|_| digest(&before));
            replace(path, old.as_ref(), content.as_bytes())?;
            let what = if old.is_some() { FileChange::Modified } else { FileChange::Created };
            let change = FileEdit { what, before, after: digest(content.as_bytes()) };
            let text = format!("wrote {} bytes to {}\n", content.len(), builtin.named).into_bytes();
            Ok(FileToolReport { text, change: Some(change), ..FileToolReport::default() })
        }
        FileWork::Edit { old, new, all } => {
            let (raw, file) = read(path)?;
            let before = digest(&raw);
            let (bytes, places) = Shown::new(mask, raw).edit(mask, old, new, *all).map_err(FileToolError::Edit)?;
            replace(path, Some(&file), &bytes)?;
            let places = if places == 1 { "one place".to_owned() } else { format!("{places} places") };
            let text = format!("edited {} in {places}\n", builtin.named).into_bytes();
            let change = FileEdit { what: FileChange::Modified, before, after: digest(&bytes) };
            Ok(FileToolReport { text, change: Some(change), ..FileToolReport::default() })
        }
    }
}

fn why(error: &EditError) -> String {
    match error {
        EditError::NotFound => "`old` does not stand there; read_file shows what does, to the letter".to_owned(),
        EditError::Often(n) => format!("`old` stands there {n} times; name more of what is around it, or set `all`"),
        EditError::InsidePlaceholder => {
            "`old` begins or ends inside a placeholder; take in all of it, or none".to_owned()
        }
        EditError::Exposed => {
            "a secret would then stand where nothing says that it is one, and be shown; keep its name or prefix with it"
                .to_owned()
        }
        EditError::Unknown(p) => {
            format!("{p} in `new` is not one thing in `old`; what it stands for cannot be put there")
        }
    }
}

/// The file that was judged: not what a link in its place, or on the way to it, leads to now.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let file = File::from(fd);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("is not a regular file")),
    }
}

fn read(path: &Path) -> Result<(Vec<u8>, File), FileToolError> {
    let mut file = open(path)?;
    let length = file.metadata()?.len();
    if length > LARGEST {
        return Err(FileToolError::TooLarge(length));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    io::Read::take(&mut file, LARGEST + 1).read_to_end(&mut bytes)?;
    Ok((bytes, file))
}

/// Puts a new file in the place of the old one at once: whoever reads it meanwhile sees one or the other. Where that would
/// take something away (other names, attributes, another owner), the file itself is written.
fn replace(path: &Path, old: Option<&File>, bytes: &[u8]) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("is not the name of a file"));
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat2(CWD, parent, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    let directory = directory.map_err(|e| match e {
        rustix::io::Errno::NOENT => {
            io::Error::other(format!("there is no directory {}; make it first", parent.display()))
        }
        e => e.into(),
    })?;
    let Some(old) = old else {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&directory, name, flags, Mode::from_raw_mode(0o666))?;
        return fill(File::from(fd), bytes);
    };
    // Whoever may not write the file may not replace it either.
    let itself = File::from(rustix::fs::open(
        countersign_store::proc::own_file(old),
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?);
    let stat = rustix::fs::fstat(old)?;
    let has_more = stat.st_nlink > 1 || rustix::fs::flistxattr(old, &mut [0u8; 0][..]).is_ok_and(|n| n > 0);
    if !has_more && let Some(temporary) = beside(&directory, name, &stat)? {
        let (file, called) = temporary;
        let swapped = fill(file, bytes).and_then(|()| Ok(rustix::fs::renameat(&directory, &called, &directory, name)?));
        if swapped.is_err() {
            let _ = rustix::fs::unlinkat(&directory, &called, AtFlags::empty());
        }
        return swapped;
    }
    // Room first: a disk that is full must not cost what was there.
    if bytes.len() as u64 > u64::try_from(stat.st_size).unwrap_or(0) {
        rustix::fs::fallocate(&itself, rustix::fs::FallocateFlags::KEEP_SIZE, 0, bytes.len() as u64)?;
    }
    (&itself).write_all(bytes)?;
    itself.set_len(bytes.len() as u64)?;
    itself.sync_all()
}

/// A new file beside the old one that looks like it; none where that cannot be had for want of rights.
fn beside(directory: &OwnedFd, name: &std::ffi::OsStr, stat: &rustix::fs::Stat) -> io::Result<Option<(File, PathBuf)>> {
    let called = PathBuf::from(format!(".{}.csn-{}", name.to_string_lossy(), std::process::id()));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = match rustix::fs::openat(directory.as_fd(), &called, flags, Mode::from_raw_mode(0o600)) {
        Ok(fd) => fd,
        Err(
            rustix::io::Errno::ACCESS
            | rustix::io::Errno::PERM
            | rustix::io::Errno::EXIST
            | rustix::io::Errno::NAMETOOLONG,
        ) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let made = rustix::fs::fstat(&fd)?;
    let (uid, gid) = (rustix::fs::Uid::from_raw(stat.st_uid), rustix::fs::Gid::from_raw(stat.st_gid));
    let same_owner = (made.st_uid, made.st_gid) == (stat.st_uid, stat.st_gid)
        || rustix::fs::fchown(&fd, Some(uid), Some(gid)).is_ok();
    if !same_owner || rustix::fs::fchmod(&fd, Mode::from_raw_mode(stat.st_mode & 0o7777)).is_err() {
        rustix::fs::unlinkat(directory, &called, AtFlags::empty())?;
        return Ok(None);
    }
    Ok(Some((File::from(fd), called)))
}

fn fill(mut file: File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_all()
}
