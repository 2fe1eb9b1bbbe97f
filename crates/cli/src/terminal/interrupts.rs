//! Ctrl-C and Ctrl-\ while a task runs here, and who reads the terminal meanwhile.

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

/// Somebody has pressed Ctrl-C, and what waits to be printed has not been cut short for it yet.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Ctrl-\ was pressed; whoever reads the terminal next and meets the end of input lets go.
static LETTING_GO: AtomicBool = AtomicBool::new(false);
/// Somebody else reads the terminal: a question, or standard input that is passed on.
static READERS: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn was_interrupted() -> bool {
    INTERRUPTED.swap(false, Ordering::AcqRel)
}

/// Reads the terminal for something else than the detach keys, as long as it lives.
pub(crate) struct TerminalReader(TaskId);

impl TerminalReader {
    pub(crate) fn begin(task: TaskId) -> Self {
        READERS.fetch_add(1, Ordering::AcqRel);
        Self(task)
    }

    /// The end of input: was it the second of the detach keys? Then this is the end of us.
    pub(crate) fn end_of_input(&self) {
        if LETTING_GO.swap(false, Ordering::AcqRel) {
            detached(self.0);
        }
    }
}

impl Drop for TerminalReader {
    fn drop(&mut self) {
        READERS.fetch_sub(1, Ordering::AcqRel);
    }
}

fn detached(task: TaskId) -> ! {
    say(&format!("\ncsn: detached; the task goes on: csn attach {task}"));
    std::process::exit(0)
}

/// Ctrl-C interrupts the task; twice cancels it. Ctrl-\ Ctrl-D leaves it to run by itself; Ctrl-\ alone is SIGQUIT.
pub(crate) struct Interrupts {
    /// The task that they are about, and how often it was interrupted.
    about: Arc<Mutex<(TaskId, u32)>>,
}

impl Interrupts {
    pub(crate) fn begin(client: &Client, task: TaskId) -> anyhow::Result<Self> {
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGQUIT])?;
        let client = client.clone();
        let about = Arc::new(Mutex::new((task, 0)));
        let now = Arc::clone(&about);
        std::thread::spawn(move || {
            for signal in signals.forever() {
                let (task, interrupted) = {
                    let mut now = now.lock().expect("nothing panics while it holds this lock");
                    let was = *now;
                    now.1 += u32::from(signal == SIGINT);
                    was
                };
                if signal == SIGQUIT && let_go() {
                    detached(task);
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
        Ok(Self { about })
    }

    /// From now on they are about another task.
    pub(crate) fn go_to(&self, task: TaskId) {
        *self.about.lock().expect("nothing panics while it holds this lock") = (task, 0);
    }
}

/// Whether Ctrl-D follows in a moment. On a terminal that reads lines it is the end of input.
fn let_go() -> bool {
    if READERS.load(Ordering::Acquire) > 0 {
        // Whoever reads it will know, and has as long as the second key may take.
        LETTING_GO.store(true, Ordering::Release);
        std::thread::sleep(Duration::from_secs(1));
        LETTING_GO.store(false, Ordering::Release);
        return false;
    }
    let Ok(mut tty) = std::fs::OpenOptions::new().read(true).open("/dev/tty") else { return false };
    let moment = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
    let mut fds = [rustix::event::PollFd::new(&tty, rustix::event::PollFlags::IN)];
    let came = rustix::event::poll(&mut fds, Some(&moment)).is_ok_and(|n| n > 0);
    came && io::Read::read(&mut tty, &mut [0; 64]).is_ok_and(|n| n == 0)
}
