//! Recovery: for every task that the ledger lists as launched, finds its shim, or finds out how the task ended.

use crate::{
    desk::DeskEvent,
    shims::registry::{ShimRegistry, shim_secret},
    users,
};
use countersign_model::{Frame, Record, RecordContent, TaskId, Text};
use countersign_redact::text_by_shape;
use countersign_shim::{
    control::socket_name,
    tree,
    wire::{self, FromShim, PROTOCOL, ToShim},
};
use countersign_store::{
    Home, clock, journal,
    ledger::{LedgerError, LedgerReader},
    stream,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::{
    io,
    os::unix::net::UnixStream,
    sync::{Arc, atomic::Ordering, mpsc},
    thread,
    time::Duration,
};

/// How often a live shim is tried in quick succession, and how long after one another; then every second.
const QUICK_ATTEMPTS: u32 = 100;
const QUICK_RETRY_INTERVAL: Duration = Duration::from_millis(10);
const SLOW_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How long a shim may take to say hello.
const HELLO_TIMEOUT: Duration = Duration::from_millis(500);
/// When the daemon starts to serve, even if some shims are not found yet.
const RECOVERY_WAIT: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub(crate) enum RecoverError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("the ledger does not list it as launched")]
    NotLaunched,
    #[error("its journal cannot be read or written: {0}")]
    Io(#[from] io::Error),
}

/// What the disk shows about a launched task, without a connection to its shim.
pub(crate) enum RecoveredEnd {
    Settled(Box<DeskEvent>),
    /// A process still writes its journal.
    Running,
}

/// Finds the shims of all launched tasks in parallel, and reports those that have ended to the commit loop. Waits for
/// the shims that answer quickly, not for the others.
pub(crate) fn adopt_all(registry: &Arc<ShimRegistry>, tasks: &[TaskId]) {
    let (done, all) = mpsc::channel();
    for task in tasks.iter().copied() {
        let (registry, done) = (Arc::clone(registry), done.clone());
        let adopting = thread::Builder::new().name("adopt".into()).spawn(move || {
            settle_or_adopt(&registry, task, None);
            registry.unfound_shims.fetch_sub(1, Ordering::Release);
            let _ = done.send(());
        });
        if let Err(e) = adopting {
            crate::log!("{task}: no thread to recover it: {e}; restart the daemon");
        }
    }
    drop(done);
    let until = clock::steady() + RECOVERY_WAIT;
    while all.recv_timeout(until.saturating_duration_since(clock::steady())).is_ok() {}
}

/// Settles a task whose shim died without a report, from what is on disk.
pub(crate) fn settle_from_disk(registry: &Arc<ShimRegistry>, task: TaskId, shim: Option<u32>) {
    let registry = Arc::clone(registry);
    let settling = thread::Builder::new().name("settle".into()).spawn(move || settle_or_adopt(&registry, task, shim));
    if let Err(e) = settling {
        crate::log!("{task}: no thread to settle it: {e}; restart the daemon");
    }
}

/// Tries until the task is adopted or settled. Nothing reports when a suspended shim continues or a full disk has space
/// again, so this polls, first often, then every second.
fn settle_or_adopt(registry: &Arc<ShimRegistry>, task: TaskId, shim: Option<u32>) {
    let mut last = String::new();
    for attempt in 0u32.. {
        let found = match shim {
            Some(_) => None,
            None => connect(registry, task).ok(),
        };
        if let Some((pid, channel)) = found {
            return registry.adopt_shim(task, pid, channel);
        }
        match end_from_disk(registry, task, shim) {
            Ok(RecoveredEnd::Settled(event)) => return registry.send_event(*event),
            // The shim opens its control socket when it notices that the last daemon is gone, which may be only now.
            Ok(RecoveredEnd::Running) if attempt < QUICK_ATTEMPTS => thread::sleep(QUICK_RETRY_INTERVAL),
            outcome => {
                let problem = match outcome {
                    Err(e) => e.to_string(),
                    Ok(_) => "its supervisor runs but does not answer".to_owned(),
                };
                if problem != last {
                    crate::log!("{task}: {problem}; the daemon tries again");
                }
                last = problem;
                thread::sleep(SLOW_RETRY_INTERVAL);
            }
        }
    }
}

/// Connects to a shim through its control socket.
fn connect(registry: &ShimRegistry, task: TaskId) -> io::Result<(u32, UnixStream)> {
    let (_dir, path) = Home::short_socket_path(&registry.home.run(), &socket_name(task))?;
    // Without blocking: a suspended shim accepts nothing, and a full queue would block forever.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(&path)?)?;
    let mut channel = UnixStream::from(socket);
    channel.set_nonblocking(false)?;
    channel.set_read_timeout(Some(HELLO_TIMEOUT))?;
    match wire::receive(&mut channel)? {
        FromShim::Hello { protocol: PROTOCOL, task: Some(named), .. } if named == task => {}
        _ => return Err(io::Error::other("not the shim of this task")),
    }
    wire::send(&mut channel, &ToShim::Hello { protocol: PROTOCOL, secret: shim_secret(&registry.key, task) })?;
    channel.set_read_timeout(None)?;
    let peer = sockopt::socket_peercred(&channel)?;
    Ok((peer.pid.as_raw_nonzero().get().unsigned_abs(), channel))
}

/// How a launched task ended, from what is on disk. `shim` is the pid of a shim that this daemon saw dying: then its
/// process group and session are certainly its own.
pub(crate) fn end_from_disk(
    registry: &ShimRegistry,
    task: TaskId,
    shim: Option<u32>,
) -> Result<RecoveredEnd, RecoverError> {
    let dir = registry.home.task_dir(task);
    std::fs::create_dir_all(&dir)?;
    // A daemon that started after a crash found this out.
    let recovered = shim.is_none() && registry.after_a_crash;
    // Takes the journal's name first: a late shim finds it taken and stops.
    match journal::create_locked(&dir) {
        Ok(_held) if machine_restarted_since(registry, task)? => {
            let reader = LedgerReader::open(&registry.home.ledger())?;
            let (next_seq, _) = stream::read_prologue(&reader, task)?.ok_or(RecoverError::NotLaunched)?;
            return Ok(RecoveredEnd::Settled(Box::new(DeskEvent::Lost {
                task,
                known: Text::from_static("the machine was restarted, and nothing of the task is on disk"),
                why: Text::from_static("power"),
                head: None,
                next_seq,
                recovered: true,
            })));
        }
        Ok(_held) => {
            let error = Text::from_static("the supervisor ended before it started the task");
            return Ok(RecoveredEnd::Settled(Box::new(DeskEvent::NotStarted { task, error, code: 125, recovered })));
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e.into()),
    }
    // The lock is held until the journal is closed: no other process can write to it.
    let Some(file) = journal::take_over(&dir)? else { return Ok(RecoveredEnd::Running) };
    let reader = LedgerReader::open(&registry.home.ledger())?;
    let (first_seq, prologue_head) = stream::read_prologue(&reader, task)?.ok_or(RecoverError::NotLaunched)?;
    let remains = journal::recover(&file, &dir, task, prologue_head, first_seq)?;
    let _ = std::fs::remove_file(registry.home.run().join(socket_name(task)));
    if let Some(closing) = remains.closing {
        return Ok(RecoveredEnd::Settled(Box::new(DeskEvent::Closed { task, closing, recovered })));
    }
    let (ended, survivors) = end_strays(registry, task, shim, first_seq);
    // Its temporary files must be removed with it.
    let user =
        read_main_process(registry, task, first_seq, |_, uid| uid).and_then(|uid| users::find_task_user(uid).ok());
    countersign_shim::clear_temporary(&dir, user.as_ref());
    let processes = if ended == 1 { "1 process".to_owned() } else { format!("{ended} processes") };
    let mut known =
        format!("the supervisor ended without closing its journal; the daemon ended {processes} of the task");
    if !survivors.is_empty() {
        known += &format!("; these processes could not be ended: {survivors:?}");
    }
    if shim.is_none() {
        known += "; a process that left its group and cleared its environment would not have been found";
    }
    match remains.damage {
        Some(damage) => known += &format!("; {damage}: {} bytes were moved to journal.damaged", remains.torn),
        None if remains.torn > 0 => known += &format!("; {} bytes of a torn last line were cut off", remains.torn),
        None => {}
    }
    Ok(RecoveredEnd::Settled(Box::new(DeskEvent::Lost {
        task,
        known: text_by_shape(&known),
        why: Text::from_static("its supervisor was killed"),
        head: Some(remains.head),
        next_seq: remains.next_seq,
        recovered,
    })))
}

/// Whether the machine was restarted after a task was launched: unsynced files may be lost.
fn machine_restarted_since(registry: &ShimRegistry, task: TaskId) -> Result<bool, RecoverError> {
    let then = LedgerReader::open(&registry.home.ledger())?.boot_of_launch(task)?;
    Ok(then.zip(boot_id()).is_some_and(|(then, now)| then != now))
}

/// The id of the current boot.
pub(crate) fn boot_id() -> Option<String> {
    countersign_store::proc::boot_id().ok()
}

/// Ends the processes that a dead shim left.
fn end_strays(registry: &ShimRegistry, task: TaskId, shim: Option<u32>, first_seq: u64) -> (u64, Vec<u32>) {
    let id = task.to_string();
    let mut groups = Vec::new();
    if let Some(shim) = shim {
        groups.push(shim);
        groups.extend(read_main_process(registry, task, first_seq, |pgid, _| Some(pgid)));
    }
    let found = || {
        let mut found = tree::strays(&id, &groups);
        if shim.is_some() {
            found.extend(tree::orphans());
        }
        found.sort_unstable();
        found.dedup();
        found
    };
    tree::kill_all(found, tree::reap_orphans)
}

/// Reads the group or the user of the main process from the journal.
fn read_main_process(
    registry: &ShimRegistry,
    task: TaskId,
    first_seq: u64,
    wanted: impl Fn(u32, Option<u32>) -> Option<u32>,
) -> Option<u32> {
    let mut journal = journal::JournalReader::open(&registry.home.task_dir(task), first_seq).ok()?;
    let lines = journal.lines(64 * 1024).ok()?;
    lines.iter().find_map(|(_, line)| match Record::parse(line).ok()?.what {
        RecordContent::Frame(Frame::Spawned { pgid, uid, .. }) => wanted(pgid, uid),
        _ => None,
    })
}
