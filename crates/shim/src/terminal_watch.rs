//! Watches a task's terminal: whether it echoes typed text, and the working directory of its program.

use crate::{
    directories::{Directories, DirectoryChange},
    terminal::Terminal,
};
use countersign_model::Frame;
use countersign_redact::{Mask, text};
use std::time::{Duration, Instant};

/// Output within this time after input is most likely its echo.
const ECHO_WINDOW: Duration = Duration::from_millis(100);

pub(crate) struct TerminalWatch {
    pub(crate) terminal: Terminal,
    /// Whether the terminal echoed typed text at the last check.
    echo: bool,
    directories: Directories,
    /// There was output since the last check.
    output_since_check: bool,
    /// Until then a user most likely waits for an echo.
    echo_expected_until: Option<Instant>,
}

impl TerminalWatch {
    /// `start` is the directory that the task begins in.
    pub(crate) fn new(terminal: Terminal, start: &str) -> Self {
        Self {
            terminal,
            echo: true,
            directories: Directories::new(start),
            output_since_check: false,
            echo_expected_until: None,
        }
    }

    pub(crate) fn note_output(&mut self) {
        self.output_since_check = true;
    }

    /// A user typed, or changed the size.
    pub(crate) fn note_input(&mut self, now: Instant) {
        self.echo_expected_until = Some(now + ECHO_WINDOW);
    }

    /// Whether a user most likely waits for an echo.
    pub(crate) fn expects_echo(&self, now: Instant) -> bool {
        self.echo_expected_until.is_some_and(|until| now < until)
    }

    /// Checks for changes if there was output since the last check. `claim` is the directory that the program printed.
    pub(crate) fn check(&mut self, quiet: bool, claim: impl FnOnce() -> Option<String>, mask: &Mask) -> Vec<Frame> {
        if !self.output_since_check {
            return Vec::new();
        }
        // Some programs print a prompt before they turn echo off: so there is another check when output has paused.
        self.output_since_check = !quiet;
        let mut frames = Vec::new();
        let echo = self.terminal.echoes();
        if echo != self.echo {
            self.echo = echo;
            frames.push(Frame::Echo { on: echo });
        }
        let claim = claim();
        // A claim is compared with the actual directory, so that a true claim is not recorded twice.
        let read_actual = quiet || claim.is_some();
        let actual = read_actual.then(|| self.terminal.foreground_directory()).flatten();
        let actual = actual.and_then(|directory| directory.into_os_string().into_string().ok());
        let moves = self.directories.update(actual, claim).into_iter();
        frames.extend(
            moves.map(|DirectoryChange { path, claimed }| Frame::CwdChanged { path: text(mask, &path), claimed }),
        );
        frames
    }
}
