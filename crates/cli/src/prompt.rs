//! The card of an approval, and asking it at the terminal.

use crate::run::ReadsTerminal;
use countersign_client::{Client, ClientError};
use countersign_model::{Approval, ApprovalId, Choice, Code, Shown};
use rustix::{
    event::{PollFd, PollFlags, poll},
    termios::{QueueSelector, tcflush, tcgetpgrp},
};
use std::{
    fmt::Write as _,
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    thread::JoinHandle,
};

/// The question in words, with at most `most` characters of the command. Nothing of the asker stands between the
/// command and the choices.
pub(crate) fn card(approval: &Approval, most: usize) -> String {
    let mut out = String::new();
    let risks: Vec<String> =
        approval.risks.iter().filter_map(|r| Some(serde_json::to_value(r).ok()?.as_str()?.replace('_', " "))).collect();
    if let Some(title) = &approval.title {
        let _ = writeln!(out, "  title, as the asker gave it: \"{}\"", Shown::bounded(title.as_str(), 200));
    }
    if let Some(why) = &approval.rationale {
        let _ = writeln!(out, "  why, in the asker's words: \"{}\"", Shown::bounded(why.as_str(), 500));
    }
    let _ = writeln!(out, "  risks: {}", if risks.is_empty() { "none".to_owned() } else { risks.join(", ") });
    let command = Shown::bounded(approval.display.as_str(), most);
    let _ = writeln!(out, "Approve `{command}` in {}?", Shown::bounded(approval.cwd.as_str(), 300));
    out
}

pub(crate) fn resolution(choice: Choice) -> &'static str {
    match choice {
        Choice::Once => "Approved (no save)",
        Choice::Deny => "Denied",
    }
}

/// As much of a command as is asked about on a screen; the choices must stay in sight.
const SCREEN: usize = 1000;

/// A question on the terminal, answered there or taken away when it was answered elsewhere.
pub(crate) struct Asking {
    thread: JoinHandle<()>,
    taken_away: OwnedFd,
}

impl Asking {
    /// Asks, if there is a terminal and we are in its foreground.
    pub(crate) fn begin(client: &Client, approval: ApprovalId) -> Option<Self> {
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        if tcgetpgrp(&tty).ok()? != rustix::process::getpgrp() {
            return None;
        }
        let asked = client.approval(&approval.to_string()).ok()?;
        let mut card = card(&asked, SCREEN);
        if asked.display.as_str().chars().count() > SCREEN {
            let _ = writeln!(card, "  the whole command: csn approvals show {approval}");
        }
        let (gone, taken_away) = rustix::pipe::pipe().ok()?;
        // What was typed before the question is not an answer to it.
        tcflush(&tty, QueueSelector::IFlush).ok()?;
        let client = client.clone();
        let task = asked.task_id;
        let thread = std::thread::spawn(move || {
            let reads = ReadsTerminal::begin(task);
            let _ = ask(&client, approval, tty, &gone, &card, &reads);
        });
        Some(Self { thread, taken_away })
    }

    /// The task has been decided about, or withdrawn: the question goes.
    pub(crate) fn end(self, withdrawn: bool) {
        if withdrawn {
            let _ = rustix::io::write(&self.taken_away, b"w");
        }
        drop(self.taken_away);
        let _ = self.thread.join();
    }
}

fn ask(
    client: &Client,
    approval: ApprovalId,
    mut tty: File,
    gone: &OwnedFd,
    card: &str,
    reads: &ReadsTerminal,
) -> std::io::Result<()> {
    write!(tty, "{card}  [o] once   [d] deny   [d words to the agent]\n> ")?;
    loop {
        let mut fds = [PollFd::new(&tty, PollFlags::IN), PollFd::new(gone, PollFlags::IN)];
        poll(&mut fds, None)?;
        if !fds[1].revents().is_empty() {
            let withdrawn = rustix::io::read(gone, &mut [0; 1]).is_ok_and(|n| n > 0);
            return writeln!(tty, "\r({})", if withdrawn { "withdrawn" } else { "answered elsewhere" });
        }
        let mut line = [0; 4096];
        let n = tty.read(&mut line)?;
        if n == 0 {
            reads.end_of_input();
            return writeln!(tty, "\nno answer from here any more: csn approvals answer {approval} once");
        }
        let line = String::from_utf8_lossy(&line[..n]);
        let (word, words) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        let choice = match &*word.to_ascii_lowercase() {
            "o" | "once" => Choice::Once,
            "d" | "deny" => Choice::Deny,
            // Enter alone does nothing.
            "" => {
                write!(tty, "> ")?;
                continue;
            }
            other => {
                write!(tty, "`{}` is not one of o, d\n> ", Shown::bounded(other, 40))?;
                continue;
            }
        };
        let words = Some(words.trim()).filter(|w| !w.is_empty());
        return match client.answer(approval, choice, words) {
            Ok(_) => writeln!(tty, "{}", resolution(choice)),
            Err(ClientError::Refused { refusal, .. }) if refusal.code == Code::AlreadyAnswered => {
                writeln!(tty, "{}", refusal.message)
            }
            Err(e) => {
                write!(tty, "{e}\n> ")?;
                continue;
            }
        };
    }
}
