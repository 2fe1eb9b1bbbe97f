//! A question at the terminal: asked, answered there, or taken away.

use super::interrupts::TerminalReader;
use crate::render::card::{CardLimits, card, choices, resolution};
use countersign_client::{Client, ClientError};
use countersign_model::{Approval, ApprovalId, CardView, Choice, DisplaySafe, RefusalCode};
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

/// What was typed: a choice by its key or its name, `*` behind it for any arguments, and words behind that.
fn typed(line: &str, options: &[Choice]) -> Option<(Choice, bool, String)> {
    let (word, words) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
    let lower = word.to_ascii_lowercase();
    let (name, any) = lower.strip_suffix('*').map_or((lower.as_str(), false), |name| (name, true));
    let meant = |c: &&Choice| name == c.as_str() || name.chars().eq([c.key()]);
    let choice = *options.iter().find(meant)?;
    // Words are for a refusal; behind anything else they may be second thoughts.
    let fits = (words.trim().is_empty() || choice == Choice::Deny) && (!any || choice.saves());
    fits.then(|| (choice, any, words.trim().to_owned()))
}

/// A question on the terminal, answered there or taken away when it was answered elsewhere.
pub(crate) struct TerminalPrompt {
    thread: JoinHandle<()>,
    taken_away: OwnedFd,
}

/// The terminal, if there is one and we are in its foreground.
fn terminal() -> Option<File> {
    let tty = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
    (tcgetpgrp(&tty).ok()? == rustix::process::getpgrp()).then_some(tty)
}

impl TerminalPrompt {
    /// Asks, if there is a terminal and we are in its foreground.
    pub(crate) fn begin(client: &Client, approval: ApprovalId) -> Option<Self> {
        let tty = terminal()?;
        let asked = client.approval(&approval.to_string()).ok()?;
        let (gone, taken_away) = rustix::pipe::pipe().ok()?;
        // What was typed before the question is not an answer to it.
        tcflush(&tty, QueueSelector::IFlush).ok()?;
        let client = client.clone();
        let thread = std::thread::spawn(move || {
            let reads = TerminalReader::begin(asked.task_id);
            let _ = ask(&client, &asked, tty, &gone, &reads);
        });
        Some(Self { thread, taken_away })
    }

    pub(crate) fn over(&self) -> bool {
        self.thread.is_finished()
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
    asked: &Approval,
    mut tty: File,
    gone: &OwnedFd,
    reads: &TerminalReader,
) -> std::io::Result<()> {
    let approval = asked.id;
    let room = CardLimits::of_screen();
    let view = CardView::from_approval(asked);
    let mut text = card(&view, room);
    if view.is_longer_than(room.command) {
        let _ = writeln!(text, "  the whole command: csn approvals show {approval}");
    }
    write!(tty, "{text}{}> ", choices(&view))?;
    loop {
        let mut fds = [PollFd::new(&tty, PollFlags::IN), PollFd::new(gone, PollFlags::IN)];
        poll(&mut fds, None)?;
        if !fds[1].revents().is_empty() {
            let withdrawn = rustix::io::read(gone, &mut [0; 1]).is_ok_and(|n| n > 0);
            return writeln!(
                tty,
                "\r({})",
                if withdrawn { "withdrawn".to_owned() } else { elsewhere(client, approval) }
            );
        }
        let mut line = [0; 4096];
        let n = tty.read(&mut line)?;
        if n == 0 {
            reads.end_of_input();
            writeln!(tty, "\nno answer from here any more: csn approvals answer {approval} once")?;
            return writeln!(tty, "it goes on waiting; Ctrl-C withdraws it");
        }
        let line = String::from_utf8_lossy(&line[..n]);
        // Enter alone does nothing.
        if line.trim().is_empty() {
            write!(tty, "> ")?;
            continue;
        }
        if line.trim() == "?" {
            write!(tty, "{text}{}> ", choices(&view))?;
            continue;
        }
        let Some((choice, any, words)) = typed(&line, &asked.options) else {
            let keys: Vec<String> = asked.options.iter().map(|c| c.key().to_string()).collect();
            let shown = DisplaySafe::bounded(line.trim(), 40);
            write!(
                tty,
                "`{shown}` is not one of {} (only d takes words; ? shows the question again)\n> ",
                keys.join(", ")
            )?;
            continue;
        };
        let words = Some(words.as_str()).filter(|w| !w.is_empty());
        return match client.answer_with(approval, choice, words, any) {
            Ok(answered) => writeln!(tty, "{}", resolution(&answered)),
            Err(ClientError::Refused(refused)) if refused.refusal.code == RefusalCode::AlreadyAnswered => {
                writeln!(tty, "{}", refused.refusal.message)
            }
            Err(e) => {
                write!(tty, "{e}\n> ")?;
                continue;
            }
        };
    }
}

/// How it was resolved on another surface.
fn elsewhere(client: &Client, approval: ApprovalId) -> String {
    let resolved = client.approval(&approval.to_string()).ok().and_then(|a| a.resolution());
    match resolved {
        Some(how) => format!("answered elsewhere: {}", DisplaySafe::new(&how)),
        None => "answered elsewhere".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_one_of_the_options_or_nothing() {
        let options = [Choice::Once, Choice::Here, Choice::Deny];
        let check = |line: &str, expect: Option<(Choice, bool, &str)>| {
            assert_eq!(typed(line, &options), expect.map(|(c, any, w)| (c, any, w.to_owned())), "{line}");
        };
        check("o\n", Some((Choice::Once, false, "")));
        check("HERE", Some((Choice::Here, false, "")));
        check("h*", Some((Choice::Here, true, "")));
        check("d use the other remote", Some((Choice::Deny, false, "use the other remote")));
        for bad in ["a", "anywhere", "yes", "oo", "*", "h**", "h *", "o no wait", "here now", "o*", "d*"] {
            check(bad, None);
        }
    }
}
