//! Asks an approval at the terminal. Another surface may answer first; then the prompt is closed.

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

/// Parses a typed answer: a choice by its key or name, `*` after it for any arguments, and a message after that.
fn parse_answer(line: &str, options: &[Choice]) -> Option<(Choice, bool, String)> {
    let (word, words) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
    let lower = word.to_ascii_lowercase();
    let (name, any) = lower.strip_suffix('*').map_or((lower.as_str(), false), |name| (name, true));
    let is_named = |c: &&Choice| name == c.as_str() || name.chars().eq([c.key()]);
    let choice = *options.iter().find(is_named)?;
    // Only a denial takes a message. After any other choice more words may mean that the user changed their mind.
    let fits = (words.trim().is_empty() || choice == Choice::Deny) && (!any || choice.saves());
    fits.then(|| (choice, any, words.trim().to_owned()))
}

/// An approval that is asked at the terminal.
pub(crate) struct TerminalPrompt {
    thread: JoinHandle<()>,
    /// Written to or closed when the approval is resolved elsewhere.
    resolved: OwnedFd,
}

/// Opens the terminal if there is one and this process is in its foreground.
fn open_terminal() -> Option<File> {
    let tty = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
    (tcgetpgrp(&tty).ok()? == rustix::process::getpgrp()).then_some(tty)
}

impl TerminalPrompt {
    /// Asks, if there is a terminal and this process is in its foreground.
    pub(crate) fn begin(client: &Client, approval: ApprovalId) -> Option<Self> {
        let tty = open_terminal()?;
        let asked = client.approval(&approval.to_string()).ok()?;
        let (watch, resolved) = rustix::pipe::pipe().ok()?;
        // Keys that were typed before the question are not an answer to it.
        tcflush(&tty, QueueSelector::IFlush).ok()?;
        let client = client.clone();
        let thread = std::thread::spawn(move || {
            let reader = TerminalReader::begin(asked.task_id);
            let _ = ask(&client, &asked, tty, &watch, &reader);
        });
        Some(Self { thread, resolved })
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Closes the prompt: the approval was resolved elsewhere, or withdrawn.
    pub(crate) fn close(self, withdrawn: bool) {
        if withdrawn {
            let _ = rustix::io::write(&self.resolved, b"w");
        }
        drop(self.resolved);
        let _ = self.thread.join();
    }
}

fn ask(
    client: &Client,
    asked: &Approval,
    mut tty: File,
    resolved: &OwnedFd,
    reader: &TerminalReader,
) -> std::io::Result<()> {
    let approval = asked.id;
    let rows = super::raw::size().map_or(24, |(rows, _)| usize::from(rows));
    let limits = CardLimits::for_terminal_rows(rows);
    let view = CardView::from_approval(asked);
    let mut text = card(&view, limits);
    if view.is_longer_than(limits.max_command_chars) {
        let _ = writeln!(text, "  to see the whole command: csn approvals show {approval}");
    }
    write!(tty, "{text}{}> ", choices(&view))?;
    loop {
        let mut fds = [PollFd::new(&tty, PollFlags::IN), PollFd::new(resolved, PollFlags::IN)];
        poll(&mut fds, None)?;
        if !fds[1].revents().is_empty() {
            let withdrawn = rustix::io::read(resolved, &mut [0; 1]).is_ok_and(|n| n > 0);
            let how = if withdrawn { "withdrawn".to_owned() } else { resolution_elsewhere(client, approval) };
            return writeln!(tty, "\r({how})");
        }
        let mut line = [0; 4096];
        let n = tty.read(&mut line)?;
        if n == 0 {
            reader.handle_end_of_input();
            writeln!(tty, "\ninput has ended; to answer from another terminal: csn approvals answer {approval} once")?;
            return writeln!(tty, "the request keeps waiting; press Ctrl-C to withdraw it");
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
        let Some((choice, any, words)) = parse_answer(&line, &asked.options) else {
            let keys: Vec<String> = asked.options.iter().map(|c| c.key().to_string()).collect();
            let shown = DisplaySafe::bounded(line.trim(), 40);
            write!(
                tty,
                "`{shown}` is not an answer: type one of {} (only d takes a message; ? shows the question again)\n> ",
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

/// How the approval was resolved on another surface.
fn resolution_elsewhere(client: &Client, approval: ApprovalId) -> String {
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
    fn a_typed_line_is_one_of_the_options_or_nothing() {
        let options = [Choice::Once, Choice::Here, Choice::Deny];
        let check = |line: &str, expect: Option<(Choice, bool, &str)>| {
            assert_eq!(parse_answer(line, &options), expect.map(|(c, any, w)| (c, any, w.to_owned())), "{line}");
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
