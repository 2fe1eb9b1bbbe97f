//! Coming back: for every task that the ledger has as launched, find its shim, or find out how it ended.

use crate::{
    desk::Event,
    keeper::{Keeper, secret},
};
use countersign_model::{Frame, Record, TaskId, Text, What};
use countersign_redact::text_by_shape;
use countersign_shim::{
    control::socket_name,
    tree,
    wire::{self, FromShim, PROTOCOL, ToShim},
};
use countersign_store::{
    Home,
    journal::{self, JournalError},
    ledger::{LedgerError, Reader},
    stream,
};
use rustix::net::sockopt;
use std::{io, os::unix::net::UnixStream, sync::Arc, time::Duration};

/// How often, and how long after one another, a shim that lives is tried.
const PATIENCE: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error)]
pub(crate) enum RecoverError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("the ledger does not say that it was launched")]
    NotLaunched,
    #[error("cannot look at its directory: {0}")]
    Io(#[from] io::Error),
}

/// What is known of a launched task without a conversation with its shim.
pub(crate) enum Ending {
    Settles(Event),
    /// Its journal has a writer.
    Lives,
}

/// Finds the shims of launched tasks again; what has ended meanwhile is told to the office.
pub(crate) fn adopt_all(keeper: &Arc<Keeper>, tasks: &[TaskId]) {
    for task in tasks {
        if let Err(e) = adopt(keeper, *task) {
            crate::log!("{task}: {e}");
        }
    }
}

fn adopt(keeper: &Arc<Keeper>, task: TaskId) -> Result<(), RecoverError> {
    for _ in 0..PATIENCE {
        if let Ok((pid, channel)) = reach(keeper, task) {
            keeper.keep(task, pid, channel);
            return Ok(());
        }
        match ending(keeper, task, None)? {
            Ending::Settles(event) => {
                keeper.tell(event);
                return Ok(());
            }
            // It opens its door when it notices that the last daemon is gone, which may be only now.
            Ending::Lives => std::thread::sleep(PAUSE),
        }
    }
    wait_for_end(keeper, task);
    Ok(())
}

/// Alive but not to be reached: it goes on recording, and its end is seen when it lets its journal go.
fn wait_for_end(keeper: &Arc<Keeper>, task: TaskId) {
    crate::log!("{task}: its shim lives but does not answer; waiting for its end");
    let keeper = Arc::clone(keeper);
    std::thread::spawn(move || {
        let waited = journal::wait_for_writer(&keeper.home.task_dir(task));
        match waited.map_err(RecoverError::from).and_then(|()| ending(&keeper, task, None)) {
            Ok(Ending::Settles(event)) => keeper.tell(event),
            Ok(Ending::Lives) => crate::log!("{task}: another writer has its journal"),
            Err(e) => crate::log!("{task}: {e}"),
        }
    });
}

/// Comes back to a shim through its control socket.
fn reach(keeper: &Keeper, task: TaskId) -> io::Result<(u32, UnixStream)> {
    let (_dir, path) = Home::short(&keeper.home.run(), &socket_name(task))?;
    let mut channel = UnixStream::connect(path)?;
    channel.set_read_timeout(Some(Duration::from_secs(2)))?;
    match wire::receive(&mut channel)? {
        FromShim::Hello { protocol: PROTOCOL, task: Some(said), .. } if said == task => {}
        _ => return Err(io::Error::other("not the shim of this task")),
    }
    wire::send(&mut channel, &ToShim::Hello { protocol: PROTOCOL, secret: secret(&keeper.key, task) })?;
    let peer = sockopt::socket_peercred(&channel)?;
    Ok((peer.pid.as_raw_nonzero().get().unsigned_abs(), channel))
}

/// How a launched task ended, from the disk. `shim` is the pid of a shim that has just died before our eyes: then its
/// process group and session are certainly its own.
pub(crate) fn ending(keeper: &Keeper, task: TaskId, shim: Option<u32>) -> Result<Ending, RecoverError> {
    let dir = keeper.home.task_dir(task);
    std::fs::create_dir_all(&dir)?;
    // Taking the name first: a shim that is late finds it taken and stops.
    match journal::take_name(&dir) {
        Ok(_held) => {
            let error = Text::of("the supervisor ended before it had begun");
            return Ok(Ending::Settles(Event::NotStarted { task, error, code: 125 }));
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e.into()),
    }
    if shim.is_none() && journal::is_written(&dir)? {
        return Ok(Ending::Lives);
    }
    let reader = Reader::open(&keeper.home.ledger())?;
    let (first_seq, prologue_head) = stream::prologue(&reader, task)?.ok_or(RecoverError::NotLaunched)?;
    let remains = journal::recover(&dir, task, prologue_head, first_seq)?;
    let _ = std::fs::remove_file(keeper.home.run().join(socket_name(task)));
    if let Some(closing) = remains.closing {
        return Ok(Ending::Settles(Event::Closed { task, closing }));
    }
    let (ended, survivors) = end_strays(keeper, task, shim, first_seq);
    let mut known =
        format!("the supervisor ended without closing its journal; {ended} processes of the task were ended");
    if !survivors.is_empty() {
        known += &format!("; {survivors:?} would not end");
    }
    if shim.is_none() {
        known += "; a process that left its group and cleared its environment would not have been found";
    }
    if remains.torn > 0 {
        known += &format!("; {} bytes of a torn last line were cut off", remains.torn);
    }
    Ok(Ending::Settles(Event::Lost {
        task,
        known: text_by_shape(&known),
        why: Text::of("its supervisor was killed"),
        head: remains.head,
        next_seq: remains.next_seq,
    }))
}

/// Ends what a dead shim left behind.
fn end_strays(keeper: &Keeper, task: TaskId, shim: Option<u32>, first_seq: u64) -> (u64, Vec<u32>) {
    let id = task.to_string();
    let mut groups = Vec::new();
    if let Some(shim) = shim {
        groups.push(shim);
        groups.extend(main_process(keeper, task, first_seq));
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

fn main_process(keeper: &Keeper, task: TaskId, first_seq: u64) -> Option<u32> {
    let mut journal = journal::Reader::open(&keeper.home.task_dir(task), first_seq).ok()?;
    let lines = journal.lines(64 * 1024).ok()?;
    lines.iter().find_map(|(_, line)| match Record::parse(line).ok()?.what {
        What::Frame(Frame::Spawned { pgid, .. }) => Some(pgid),
        _ => None,
    })
}
