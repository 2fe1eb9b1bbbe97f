//! Coming back: for every task that the ledger has as launched, find its shim, or find out how it ended.

use crate::{
    desk::DeskEvent,
    shims::registry::{ShimRegistry, secret},
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

/// How often a shim that lives is tried in quick succession, and how long after one another; then every second.
const QUICK: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);
const LONG_PAUSE: Duration = Duration::from_secs(1);
/// How long a shim may take to say hello.
const ANSWER: Duration = Duration::from_millis(500);
/// After this the house serves, whoever has not been found yet.
const SERVE_AFTER: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub(crate) enum RecoverError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("the ledger does not say that it was launched")]
    NotLaunched,
    #[error("its journal cannot be worked on: {0}")]
    Io(#[from] io::Error),
}

/// What is known of a launched task without a conversation with its shim.
pub(crate) enum RecoveredEnd {
    Settles(Box<DeskEvent>),
    /// Its journal has a writer.
    Lives,
}

/// Finds the shims of launched tasks again, all at once; what has ended meanwhile is told to the office. Waits for
/// those that answer quickly, not for those that do not.
pub(crate) fn adopt_all(registry: &Arc<ShimRegistry>, tasks: &[TaskId]) {
    let (done, all) = mpsc::channel();
    for task in tasks.iter().copied() {
        let (registry, done) = (Arc::clone(registry), done.clone());
        registry.looked_for.fetch_add(1, Ordering::Relaxed);
        let adopting = thread::Builder::new().name("adopt".into()).spawn(move || {
            settle_or_keep(&registry, task, None);
            registry.looked_for.fetch_sub(1, Ordering::Relaxed);
            let _ = done.send(());
        });
        if let Err(e) = adopting {
            crate::log!("{task}: no thread to look after it: {e}; restart the house");
        }
    }
    drop(done);
    let until = clock::steady() + SERVE_AFTER;
    while all.recv_timeout(until.saturating_duration_since(clock::steady())).is_ok() {}
}

/// The shim is gone without a word: what is on the disk says what became of its task.
pub(crate) fn settle_from_disk(registry: &Arc<ShimRegistry>, task: TaskId, shim: Option<u32>) {
    let registry = Arc::clone(registry);
    let settling = thread::Builder::new().name("settle".into()).spawn(move || settle_or_keep(&registry, task, shim));
    if let Err(e) = settling {
        crate::log!("{task}: no thread to settle it: {e}; restart the house");
    }
}

/// Keeps at it until the task has a keeper or an end. Nothing tells us when a stopped shim goes on or a full disk has
/// room again, so this asks, first often, then every second.
fn settle_or_keep(registry: &Arc<ShimRegistry>, task: TaskId, shim: Option<u32>) {
    let mut last = String::new();
    for attempt in 0u32.. {
        let found = match shim {
            Some(_) => None,
            None => reach(registry, task).ok(),
        };
        if let Some((pid, channel)) = found {
            return registry.adopt_shim(task, pid, channel);
        }
        match ending(registry, task, shim) {
            Ok(RecoveredEnd::Settles(event)) => return registry.send_event(*event),
            // It opens its door when it notices that the last daemon is gone, which may be only now.
            Ok(RecoveredEnd::Lives) if attempt < QUICK => thread::sleep(PAUSE),
            outcome => {
                let says = match outcome {
                    Err(e) => e.to_string(),
                    Ok(_) => "its shim lives but does not answer".to_owned(),
                };
                if says != last {
                    crate::log!("{task}: {says}; trying again");
                }
                last = says;
                thread::sleep(LONG_PAUSE);
            }
        }
    }
}

/// Comes back to a shim through its control socket.
fn reach(registry: &ShimRegistry, task: TaskId) -> io::Result<(u32, UnixStream)> {
    let (_dir, path) = Home::short_socket_path(&registry.home.run(), &socket_name(task))?;
    // Without waiting: a stopped shim takes nobody in, and a full queue would hold us for ever.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(&path)?)?;
    let mut channel = UnixStream::from(socket);
    channel.set_nonblocking(false)?;
    channel.set_read_timeout(Some(ANSWER))?;
    match wire::receive(&mut channel)? {
        FromShim::Hello { protocol: PROTOCOL, task: Some(said), .. } if said == task => {}
        _ => return Err(io::Error::other("not the shim of this task")),
    }
    wire::send(&mut channel, &ToShim::Hello { protocol: PROTOCOL, secret: secret(&registry.key, task) })?;
    channel.set_read_timeout(None)?;
    let peer = sockopt::socket_peercred(&channel)?;
    Ok((peer.pid.as_raw_nonzero().get().unsigned_abs(), channel))
}

/// How a launched task ended, from the disk. `shim` is the pid of a shim that has just died before our eyes: then its
/// process group and session are certainly its own.
pub(crate) fn ending(registry: &ShimRegistry, task: TaskId, shim: Option<u32>) -> Result<RecoveredEnd, RecoverError> {
    let dir = registry.home.task_dir(task);
    std::fs::create_dir_all(&dir)?;
    // Found out by a daemon that came after one that had ended without a word.
    let recovered = shim.is_none() && registry.after_a_crash;
    // Taking the name first: a shim that is late finds it taken and stops.
    match journal::create_locked(&dir) {
        Ok(_held) if after_a_restart(registry, task)? => {
            let reader = LedgerReader::open(&registry.home.ledger())?;
            let (next_seq, _) = stream::read_prologue(&reader, task)?.ok_or(RecoverError::NotLaunched)?;
            return Ok(RecoveredEnd::Settles(Box::new(DeskEvent::Lost {
                task,
                known: Text::from_static("the machine was started anew, and nothing of the task is on the disk"),
                why: Text::from_static("power"),
                head: None,
                next_seq,
                recovered: true,
            })));
        }
        Ok(_held) => {
            let error = Text::from_static("the supervisor ended before it had begun");
            return Ok(RecoveredEnd::Settles(Box::new(DeskEvent::NotStarted { task, error, code: 125, recovered })));
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e.into()),
    }
    // The lock is held until we are done: nobody can begin to write what we are about to close.
    let Some(file) = journal::take_over(&dir)? else { return Ok(RecoveredEnd::Lives) };
    let reader = LedgerReader::open(&registry.home.ledger())?;
    let (first_seq, prologue_head) = stream::read_prologue(&reader, task)?.ok_or(RecoverError::NotLaunched)?;
    let remains = journal::recover(&file, &dir, task, prologue_head, first_seq)?;
    let _ = std::fs::remove_file(registry.home.run().join(socket_name(task)));
    if let Some(closing) = remains.closing {
        return Ok(RecoveredEnd::Settles(Box::new(DeskEvent::Closed { task, closing, recovered })));
    }
    let (ended, survivors) = end_strays(registry, task, shim, first_seq);
    // Its temporary files were to go with it.
    let user = of_main_process(registry, task, first_seq, |_, uid| uid).and_then(|uid| users::find_task_user(uid).ok());
    countersign_shim::clear_temporary(&dir, user.as_ref());
    let mut known =
        format!("the supervisor ended without closing its journal; {ended} processes of the task were ended");
    if !survivors.is_empty() {
        known += &format!("; {survivors:?} would not end");
    }
    if shim.is_none() {
        known += "; a process that left its group and cleared its environment would not have been found";
    }
    match remains.damage {
        Some(damage) => known += &format!("; {damage}: {} bytes were moved to journal.damaged", remains.torn),
        None if remains.torn > 0 => known += &format!("; {} bytes of a torn last line were cut off", remains.torn),
        None => {}
    }
    Ok(RecoveredEnd::Settles(Box::new(DeskEvent::Lost {
        task,
        known: text_by_shape(&known),
        why: Text::from_static("its supervisor was killed"),
        head: Some(remains.head),
        next_seq: remains.next_seq,
        recovered,
    })))
}

/// Whether the machine has been started anew since a task was launched: what was not synced then may be gone.
fn after_a_restart(registry: &ShimRegistry, task: TaskId) -> Result<bool, RecoverError> {
    let then = LedgerReader::open(&registry.home.ledger())?.boot_of_launch(task)?;
    Ok(then.zip(boot()).is_some_and(|(then, now)| then != now))
}

/// Which start of the machine this is.
pub(crate) fn boot() -> Option<String> {
    countersign_store::proc::boot_id().ok()
}

/// Ends what a dead shim left behind.
fn end_strays(registry: &ShimRegistry, task: TaskId, shim: Option<u32>, first_seq: u64) -> (u64, Vec<u32>) {
    let id = task.to_string();
    let mut groups = Vec::new();
    if let Some(shim) = shim {
        groups.push(shim);
        groups.extend(of_main_process(registry, task, first_seq, |pgid, _| Some(pgid)));
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

/// Something of what the record says of the main process: its group, and the user that it runs as.
fn of_main_process(
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
