//! Publishing: the streams of a settled task, put where its agent works, in `.runs` below the workspace.
//!
//! A copy for those who look there; never read back. The workspace belongs to whoever works in it, so nothing there
//! is followed: no link, nothing that another user owns.

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

/// Up to this a stream is published whole.
const WHOLE: u64 = 8 * 1024 * 1024;
/// Of a longer one, this much of each end.
const END: u64 = 1024 * 1024;
const RUNS: &str = ".runs";

/// A workspace as it will be opened: by its real path, without links.
pub(crate) fn workspace(path: &str, user: Option<&TaskUser>) -> Result<String, Refusal> {
    let bad = |why: String| {
        Refusal::new(RefusalCode::BadRequest, format!("the workspace {}: {why}", DisplaySafe::bounded(path, 300)))
            .hint("name a directory that is there")
    };
    let real = std::fs::canonicalize(path).map_err(|e| bad(e.to_string()))?;
    // Told now, when somebody listens; whoever changes it later finds the reason in the daemon's log.
    if let Some(why) = std::fs::symlink_metadata(real.join(RUNS)).ok().and_then(|runs| unfit(&runs, owner(user))) {
        return Err(bad(format!("{RUNS} in it {why}")));
    }
    match real.is_dir() {
        true => real.into_os_string().into_string().map_err(|_| bad("its name is not UTF-8".to_owned())),
        false => Err(bad("not a directory".to_owned())),
    }
}

/// Whose `.runs` must be.
fn owner(user: Option<&TaskUser>) -> u32 {
    user.map_or_else(|| rustix::process::geteuid().as_raw(), |l| l.uid)
}

/// Why nothing is published to a `.runs` like this one.
fn unfit(runs: &std::fs::Metadata, owner: u32) -> Option<&'static str> {
    use std::os::unix::fs::MetadataExt as _;
    match (runs.is_dir(), runs.uid() == owner, runs.mode() & 0o022 == 0) {
        (false, ..) => Some("is not a directory of its own"),
        (true, true, true) => None,
        _ => Some("belongs to another user, or others may write there"),
    }
}

/// A thread that publishes what it is told has settled.
pub(crate) fn publisher(
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
                crate::log!("{task}: not published to its workspace: {e}");
            }
        }
    })?;
    Ok(send)
}

fn publish(home: &Home, task: TaskId, run_as: &dyn Fn(PrincipalId) -> io::Result<RunAs>) -> io::Result<()> {
    let reader = LedgerReader::open(&home.ledger()).map_err(io::Error::other)?;
    let lines = reader.decisions(task, 0).map_err(io::Error::other)?;
    // Most tasks have no workspace: their journal need not be folded to find that out.
    if !lines.first().is_some_and(|(_, line)| line.contains(r#""workspace":"#)) {
        return Ok(());
    }
    let Some(state) = TaskStream::read_state(home, task, &reader).map_err(io::Error::other)? else { return Ok(()) };
    let Some(workspace) = &state.request.workspace else { return Ok(()) };
    let user = run_as(state.request.principal)?.user;
    let user = user.as_ref();
    let runs = countersign_shim::with_user_ids(user, || runs(Path::new(workspace.as_str()), owner(user)))??;
    for (stream, _) in state.io.streams.iter().filter(|(_, s)| s.bytes > 0) {
        put(&runs, home, &state, *stream, user)?;
    }
    Ok(())
}

/// `.runs` below the workspace, made if need be; ours, and no link.
fn runs(workspace: &Path, owner: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let workspace = openat2(CWD, workspace, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    match mkdirat(&workspace, RUNS, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let beneath = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
    let runs = openat2(&workspace, RUNS, flags | OFlags::NOFOLLOW, Mode::empty(), beneath)
        .map_err(|e| io::Error::new(e.kind(), format!("{RUNS} is not a directory of its own: {e}")))?;
    let stat = rustix::fs::fstat(&runs)?;
    if stat.st_uid != owner || stat.st_mode & 0o022 != 0 {
        return Err(io::Error::other(format!("{RUNS} belongs to another user, or others may write there")));
    }
    if statat(&runs, ".gitignore", AtFlags::SYMLINK_NOFOLLOW).is_err() {
        let mut ignore = create(&runs, ".gitignore")?;
        ignore.write_all(b"*\n")?;
    }
    Ok(runs)
}

fn create(dir: &OwnedFd, name: &str) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(File::from(openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?))
}

fn put(runs: &OwnedFd, home: &Home, state: &TaskState, stream: StreamName, user: Option<&TaskUser>) -> io::Result<()> {
    let task = state.task_id;
    let mut from = File::open(home.task_dir(task).join(stream.file()))?;
    // Under its name only when it is whole: half a copy would never be made whole.
    let (name, fresh) = (format!("{task}.{stream}.log"), format!(".{task}.{stream}.new"));
    // What is read is the house's, what is written theirs.
    let mut to = countersign_shim::with_user_ids(user, || {
        let _ = rustix::fs::unlinkat(runs, &fresh, AtFlags::empty());
        create(runs, &fresh)
    })??;
    copy(&mut from, &mut to, state, stream)?;
    Ok(countersign_shim::with_user_ids(user, || renameat(runs, &fresh, runs, &name))??)
}

fn copy(from: &mut File, mut to: &mut File, state: &TaskState, stream: StreamName) -> io::Result<()> {
    let task = state.task_id;
    let (len, total) = (from.metadata()?.len(), state.io.streams.get(&stream).map_or(0, |s| s.bytes));
    if len <= WHOLE && len == total {
        // Where the file system can share the bytes, it does; else they are copied.
        if rustix::fs::ioctl_ficlone(&*to, &*from).is_err() {
            io::copy(from, to)?;
        }
        return Ok(());
    }
    // Where something was dropped, each end is on its own side of that.
    let dropped = state.io.streams.get(&stream).map_or(0, |s| s.dropped);
    let before = state.request.limits.output_bytes.filter(|_| dropped > 0).map_or(len / 2, |limit| limit.min(len));
    let (head, tail) = (END.min(before), END.min(len - before));
    io::copy(&mut (&*from).take(head), to)?;
    let between = total - head - tail;
    write!(to, "\n[{between} bytes are not shown here: csn logs {task} --stream {stream}]\n")?;
    from.seek(SeekFrom::Start(len - tail))?;
    io::copy(&mut (&*from).take(tail), &mut to)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_ours_is_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let (workspace, elsewhere) = (dir.path().join("w"), dir.path().join("elsewhere"));
        std::fs::create_dir_all(&workspace).unwrap();
        std::fs::create_dir_all(&elsewhere).unwrap();
        runs(&workspace, owner(None)).unwrap();
        assert_eq!(std::fs::read_to_string(workspace.join(".runs/.gitignore")).unwrap(), "*\n");
        runs(&workspace, owner(None)).unwrap();
        std::fs::remove_dir_all(workspace.join(".runs")).unwrap();
        std::os::unix::fs::symlink(&elsewhere, workspace.join(".runs")).unwrap();
        assert!(runs(&workspace, owner(None)).is_err(), "a link is not followed");
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&workspace, &link).unwrap();
        assert!(runs(&link, owner(None)).is_err(), "nor is one on the way there");
    }
}
