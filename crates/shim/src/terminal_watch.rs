//! What is watched of a task's terminal beside its output: whether it hides what is typed, and where its program is.

use crate::{
    directories::{Directories, DirectoryChange},
    terminal::Terminal,
};
use countersign_model::Frame;
use countersign_redact::{Mask, text};
use std::time::{Duration, Instant};

/// So long after input the terminal is watched closely: what comes now is most likely the echo.
const ATTENTIVE: Duration = Duration::from_millis(100);

pub(crate) struct TerminalWatch {
    pub(crate) terminal: Terminal,
    /// Whether the terminal showed what is typed when we last looked.
    echo: bool,
    directories: Directories,
    /// There was output since the terminal was last looked at.
    spoke: bool,
    /// Until then somebody most likely waits for an echo.
    attentive_until: Option<Instant>,
}

impl TerminalWatch {
    /// `start` is the directory that the task begins in.
    pub(crate) fn new(terminal: Terminal, start: &str) -> Self {
        Self { terminal, echo: true, directories: Directories::new(start), spoke: false, attentive_until: None }
    }

    pub(crate) fn note_output(&mut self) {
        self.spoke = true;
    }

    /// Somebody typed, or changed the size.
    pub(crate) fn note_input(&mut self, now: Instant) {
        self.attentive_until = Some(now + ATTENTIVE);
    }

    /// Whether somebody most likely waits for an echo.
    pub(crate) fn is_attentive(&self, now: Instant) -> bool {
        self.attentive_until.is_some_and(|until| now < until)
    }

    /// What has changed since the last look, if there was output. `claim` is the directory that the program printed.
    pub(crate) fn look(&mut self, quiet: bool, claim: impl FnOnce() -> Option<String>, mask: &Mask) -> Vec<Frame> {
        if !self.spoke {
            return Vec::new();
        }
        // Some programs write their prompt first and hide the answer then: looked at again when it is quiet.
        self.spoke = !quiet;
        let mut frames = Vec::new();
        let echo = self.terminal.echoes();
        if echo != self.echo {
            self.echo = echo;
            frames.push(Frame::Echo { on: echo });
        }
        let claim = claim();
        // A claim is compared with where the program really is, so that the truth needs no second record.
        let look = quiet || claim.is_some();
        let actual = look.then(|| self.terminal.directory()).flatten();
        let actual = actual.and_then(|directory| directory.into_os_string().into_string().ok());
        let moves = self.directories.update(actual, claim).into_iter();
        frames.extend(
            moves.map(|DirectoryChange { path, claimed }| Frame::CwdChanged { path: text(mask, &path), claimed }),
        );
        frames
    }
}
