//! Publishes the streams of a settled task into `.runs` below its workspace, where its agent works.
//!
//! The copy is never read back. Others can write to the workspace, so nothing there is followed: no link, nothing that
//! another user owns.

use crate::users::{RunAs, Users};
use countersign_model::{
    DisplaySafe, PrincipalId, Refusal, RefusalCode, Roster, StreamName, TaskId, TaskState, TaskUser,
};
use countersign_store::{Home, ledger::LedgerReader, stream::TaskStream};
use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2, renameat, statat},
};
use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::Path,
    sync::{Arc, mpsc},
};
use tokio::sync::watch;

/// The size up to which a stream is published completely.
const MAX_WHOLE_BYTES: u64 = 8 * 1024 * 1024;
/// How much of each end of a longer stream is published.
const END_BYTES: u64 = 1024 * 1024;
const RUNS: &str = ".runs";

/// The real path of a workspace, without links.
pub(crate) fn resolve_workspace(path: &str, user: Option<&TaskUser>) -> Result<String, Refusal> {
    let bad = |why: String| {
        Refusal::new(RefusalCode::BadRequest, format!("the workspace {}: {why}", DisplaySafe::bounded(path, 300)))
            .hint("name an existing directory")
    };
    let real = std::fs::canonicalize(path).map_err(|e| bad(e.to_string()))?;
    // Reported now, while the caller waits; a change after this is reported in the daemon's log.
    if let Some(why) =
        std::fs::symlink_metadata(real.join(RUNS)).ok().and_then(|runs| unfit_reason(&runs, runs_owner(user)))
    {
        return Err(bad(format!("its {RUNS} {why}")));
    }
    if !real.is_dir() {
        return Err(bad("not a directory".to_owned()));
    }
    real.into_os_string().into_string().map_err(|_| bad("its name is not UTF-8".to_owned()))
}

/// The user that must own `.runs`.
fn runs_owner(user: Option<&TaskUser>) -> u32 {
    user.map_or_else(|| rustix::process::geteuid().as_raw(), |l| l.uid)
}

/// Why streams cannot be published to this `.runs`.
fn unfit_reason(runs: &std::fs::Metadata, owner: u32) -> Option<&'static str> {
    use std::os::unix::fs::MetadataExt as _;
    match (runs.is_dir(), runs.uid() == owner, runs.mode() & 0o022 == 0) {
        (false, ..) => Some("is not a directory"),
        (true, true, true) => None,
        _ => Some("belongs to another user or is writable by others"),
    }
}

/// Starts the thread that publishes settled tasks.
pub(crate) fn spawn_publisher(
    home: &Home,
    users: Users,
    roster: watch::Receiver<Arc<Roster>>,
) -> io::Result<mpsc::Sender<TaskId>> {
    let (send, settled) = mpsc::channel();
    let home = home.clone();
    std::thread::Builder::new().name("publish".into()).spawn(move || {
        for task in settled {
            let run_as = |principal| users.run_as(roster.borrow().uid(principal)).map_err(io::Error::other);
            if let Err(e) = publish(&home, task, &run_as) {
                crate::log!("{task}: the output was not published to the workspace: {e}");
            }
        }
    })?;
    Ok(send)
}

fn publish(home: &Home, task: TaskId, run_as: &dyn Fn(PrincipalId) -> io::Result<RunAs>) -> io::Result<()> {
    let reader = LedgerReader::open(&home.ledger()).map_err(io::Error::other)?;
    let Some(state) = TaskStream::read_state(home, task, &reader).map_err(io::Error::other)? else { return Ok(()) };
    let Some(workspace) = &state.request.workspace else { return Ok(()) };
    let user = run_as(state.request.principal)?.user;
    let user = user.as_ref();
    let runs = countersign_shim::with_user_ids(user, || open_runs(Path::new(workspace.as_str()), runs_owner(user)))??;
    for (stream, _) in state.io.streams.iter().filter(|(_, s)| s.bytes > 0) {
        publish_stream(&runs, home, &state, *stream, user)?;
    }
    Ok(())
}

/// Opens `.runs` below the workspace, or creates it. It must belong to the user and be no link.
fn open_runs(workspace: &Path, owner: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let workspace = openat2(CWD, workspace, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    match mkdirat(&workspace, RUNS, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let beneath = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
    let runs = openat2(&workspace, RUNS, flags | OFlags::NOFOLLOW, Mode::empty(), beneath)
        .map_err(|e| io::Error::new(e.kind(), format!("{RUNS} is not a directory: {e}")))?;
    let stat = rustix::fs::fstat(&runs)?;
    if stat.st_uid != owner || stat.st_mode & 0o022 != 0 {
        return Err(io::Error::other(format!("{RUNS} belongs to another user or is writable by others")));
    }
    if statat(&runs, ".gitignore", AtFlags::SYMLINK_NOFOLLOW).is_err() {
        let mut ignore = create_file(&runs, ".gitignore")?;
        ignore.write_all(b"*\n")?;
    }
    Ok(runs)
}

fn create_file(dir: &OwnedFd, name: &str) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(File::from(openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?))
}

fn publish_stream(
    runs: &OwnedFd,
    home: &Home,
    state: &TaskState,
    stream: StreamName,
    user: Option<&TaskUser>,
) -> io::Result<()> {
    let task = state.task_id;
    let mut from = File::open(home.task_dir(task).join(stream.file()))?;
    // Renamed when it is complete: a partial copy would never be completed.
    let (name, fresh) = (format!("{task}.{stream}.log"), format!(".{task}.{stream}.new"));
    // The daemon reads its own file; the user writes the copy.
    let mut to = countersign_shim::with_user_ids(user, || {
        let _ = rustix::fs::unlinkat(runs, &fresh, AtFlags::empty());
        create_file(runs, &fresh)
    })??;
    copy_stream(&mut from, &mut to, state, stream)?;
    Ok(countersign_shim::with_user_ids(user, || renameat(runs, &fresh, runs, &name))??)
}

fn copy_stream(from: &mut File, mut to: &mut File, state: &TaskState, stream: StreamName) -> io::Result<()> {
    let task = state.task_id;
    let (len, total) = (from.metadata()?.len(), state.io.streams.get(&stream).map_or(0, |s| s.bytes));
    if len <= MAX_WHOLE_BYTES && len == total {
        // Shares the bytes where the file system can; otherwise copies them.
        if rustix::fs::ioctl_ficlone(&*to, &*from).is_err() {
            io::copy(from, to)?;
        }
        return Ok(());
    }
    // If the output limit dropped bytes, the two ends lie on either side of the gap.
    let dropped = state.io.streams.get(&stream).map_or(0, |s| s.dropped);
    let before = state.request.limits.output_bytes.filter(|_| dropped > 0).map_or(len / 2, |limit| limit.min(len));
    let (head, tail) = (END_BYTES.min(before), END_BYTES.min(len - before));
    io::copy(&mut (&*from).take(head), to)?;
    let between = total - head - tail;
    write!(to, "\n[{between} bytes omitted; see csn logs {task} --stream {stream}]\n")?;
    from.seek(SeekFrom::Start(len - tail))?;
    io::copy(&mut (&*from).take(tail), &mut to)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linked_runs_directory_is_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let (workspace, elsewhere) = (dir.path().join("w"), dir.path().join("elsewhere"));
        std::fs::create_dir_all(&workspace).unwrap();
        std::fs::create_dir_all(&elsewhere).unwrap();
        open_runs(&workspace, runs_owner(None)).unwrap();
        assert_eq!(std::fs::read_to_string(workspace.join(".runs/.gitignore")).unwrap(), "*\n");
        open_runs(&workspace, runs_owner(None)).unwrap();
        std::fs::remove_dir_all(workspace.join(".runs")).unwrap();
        std::os::unix::fs::symlink(&elsewhere, workspace.join(".runs")).unwrap();
        assert!(open_runs(&workspace, runs_owner(None)).is_err(), "a link is not followed");
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&workspace, &link).unwrap();
        assert!(open_runs(&link, runs_owner(None)).is_err(), "nor is a link in the path");
    }
}
