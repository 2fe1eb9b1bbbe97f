//! Ctrl-C and Ctrl-\ while a task runs in the foreground, and which part of the program reads the terminal.

use crate::say;
use countersign_client::Client;
use countersign_model::{SignalName, TaskId};
use signal_hook::consts::{SIGINT, SIGQUIT};
use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// The user pressed Ctrl-C, and the printer has not skipped its backlog yet.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// The user pressed Ctrl-\: if the reader of the terminal meets the end of input now, it detaches.
static DETACHING: AtomicBool = AtomicBool::new(false);
/// How many other parts of the program read the terminal: a prompt, or standard input that goes to the task.
static READERS: AtomicUsize = AtomicUsize::new(0);

/// Whether Ctrl-C was pressed since the last call.
pub(crate) fn take_interrupt() -> bool {
    INTERRUPTED.swap(false, Ordering::AcqRel)
}

/// Marks that the terminal is read for something other than the detach keys, until it is dropped.
pub(crate) struct TerminalReader(TaskId);

impl TerminalReader {
    pub(crate) fn begin(task: TaskId) -> Self {
        READERS.fetch_add(1, Ordering::AcqRel);
        Self(task)
    }

    /// Handles the end of input. After Ctrl-\ it was Ctrl-D, the second detach key: the program exits.
    pub(crate) fn handle_end_of_input(&self) {
        if DETACHING.swap(false, Ordering::AcqRel) {
            exit_detached(self.0);
        }
    }
}

impl Drop for TerminalReader {
    fn drop(&mut self) {
        READERS.fetch_sub(1, Ordering::AcqRel);
    }
}

fn exit_detached(task: TaskId) -> ! {
    say(&format!("\ncsn: detached; the task keeps running. To attach again: csn attach {task}"));
    std::process::exit(0)
}

/// Ctrl-C interrupts the task, a second Ctrl-C cancels it. Ctrl-\ Ctrl-D detaches and the task keeps running; Ctrl-\
/// alone sends SIGQUIT.
pub(crate) struct Interrupts {
    /// The task that gets the signals, and how often it was interrupted.
    target: Arc<Mutex<(TaskId, u32)>>,
}

impl Interrupts {
    pub(crate) fn begin(client: &Client, task: TaskId) -> anyhow::Result<Self> {
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGQUIT])?;
        let client = client.clone();
        let target = Arc::new(Mutex::new((task, 0)));
        let shared = Arc::clone(&target);
        std::thread::spawn(move || {
            for signal in signals.forever() {
                let (task, interrupted) = {
                    let mut target = shared.lock().expect("nothing panics while it holds this lock");
                    let before = *target;
                    target.1 += u32::from(signal == SIGINT);
                    before
                };
                if signal == SIGQUIT && ctrl_d_follows() {
                    exit_detached(task);
                }
                INTERRUPTED.store(signal == SIGINT, Ordering::Release);
                let sent = match (signal, interrupted) {
                    (SIGQUIT, _) => client.signal(task, SignalName::QUIT),
                    (_, 0) => {
                        client.signal(task, SignalName::INT).or_else(|_| client.cancel(task, Some("interrupted")))
                    }
                    _ => client.cancel(task, Some("interrupted twice")),
                };
                if let Err(e) = sent {
                    say(&format!("csn: {e}"));
                }
            }
        });
        Ok(Self { target })
    }

    /// Sends the signals to another task from now on.
    pub(crate) fn retarget(&self, task: TaskId) {
        *self.target.lock().expect("nothing panics while it holds this lock") = (task, 0);
    }
}

/// Whether Ctrl-D follows within a second. In canonical mode, Ctrl-D means end of input.
fn ctrl_d_follows() -> bool {
    if READERS.load(Ordering::Acquire) > 0 {
        // The other reader sees the end of input; it has as long as the second key may take.
        DETACHING.store(true, Ordering::Release);
        std::thread::sleep(Duration::from_secs(1));
        DETACHING.store(false, Ordering::Release);
        return false;
    }
    let Ok(mut tty) = std::fs::OpenOptions::new().read(true).open("/dev/tty") else { return false };
    let timeout = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
    let mut fds = [rustix::event::PollFd::new(&tty, rustix::event::PollFlags::IN)];
    let ready = rustix::event::poll(&mut fds, Some(&timeout)).is_ok_and(|n| n > 0);
    ready && io::Read::read(&mut tty, &mut [0; 64]).is_ok_and(|n| n == 0)
}
