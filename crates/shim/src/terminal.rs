//! The terminal of a task: its two ends, and the screen as a person would see it.

use crate::{
    directories::path_of_url,
    sys::user::as_owner_of,
    vt_modes::{OutputPiece, VtModes},
};
use countersign_model::{KeyMode, Text};
use countersign_redact::Mask;
use rustix::{
    fd::OwnedFd,
    process::Pid,
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, ptsname, unlockpt},
    termios::{InputModes, LocalModes, OptionalActions, Winsize, tcgetattr, tcgetpgrp, tcsetattr, tcsetwinsize},
};
use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
};

/// The end that stays with us.
pub(crate) struct Terminal {
    master: OwnedFd,
}

impl Terminal {
    /// A new terminal and the end that the child gets.
    pub(crate) fn open(rows: u16, cols: u16) -> io::Result<(Self, OwnedFd)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let slave = ioctl_tiocgptpeer(&master, flags)?;
        let mut modes = tcgetattr(&slave)?;
        // Erasing takes a whole character, not a byte of it.
        modes.input_modes |= InputModes::IUTF8;
        tcsetattr(&slave, OptionalActions::Now, &modes)?;
        rustix::io::ioctl_fionbio(&master, true)?;
        let terminal = Self { master };
        terminal.resize(rows, cols)?;
        Ok((terminal, slave))
    }

    /// The file that the child's end is known by.
    pub(crate) fn name(&self) -> Option<String> {
        ptsname(&self.master, Vec::new()).ok()?.into_string().ok()
    }

    /// Another descriptor of our end, to read from or to write to.
    pub(crate) fn end(&self) -> io::Result<OwnedFd> {
        self.master.try_clone()
    }

    /// The kernel tells the program in the foreground.
    pub(crate) fn resize(&self, rows: u16, cols: u16) -> io::Result<()> {
        Ok(tcsetwinsize(&self.master, Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 })?)
    }

    /// The process group that the keyboard belongs to.
    pub(crate) fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.master).ok()
    }

    /// Whether what is typed is shown. Only a line that is read without being shown counts as hidden: programs that
    /// read key by key draw for themselves.
    pub(crate) fn echoes(&self) -> bool {
        tcgetattr(&self.master).is_ok_and(|modes| {
            let local = modes.local_modes;
            !local.contains(LocalModes::ICANON) || local.contains(LocalModes::ECHO)
        })
    }

    /// Where the program in the foreground is. Best effort: a program of another user does not tell.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        let leader = self.foreground()?;
        let pid = u32::try_from(leader.as_raw_nonzero().get()).ok()?;
        as_owner_of(pid, || countersign_store::proc::working_directory(pid)).ok()
    }
}

/// What a terminal of this size shows. Fed with everything that was cut, so that whoever comes late sees what is there.
pub struct Screen {
    parser: vt100::Parser<TerminalEvents>,
    size: (u16, u16),
    sticky: VtModes,
    /// Where the cursor was saved: on the usual screen, and on the alternate one.
    saved: [Option<(u16, u16)>; 2],
}

/// What a program says beside what it draws.
#[derive(Default)]
struct TerminalEvents {
    directory: Option<String>,
}

impl vt100::Callbacks for TerminalEvents {
    fn unhandled_osc(&mut self, _: &mut vt100::Screen, params: &[&[u8]]) {
        if let [b"7", rest @ ..] = params {
            // A path may hold the separator.
            let url = rest.join(&b';');
            let system = rustix::system::uname();
            let path_of = |url| path_of_url(url, &system.nodename().to_string_lossy());
            self.directory = std::str::from_utf8(&url).ok().and_then(path_of).or_else(|| self.directory.take());
        }
    }
}

impl Screen {
    #[must_use]
    pub fn new(rows: u16, cols: u16) -> Self {
        let parser = vt100::Parser::new_with_callbacks(rows, cols, 0, TerminalEvents::default());
        Self { parser, size: (rows, cols), sticky: VtModes::new(), saved: [None; 2] }
    }

    /// More output. What a program prints must never end its supervisor: an emulator that trips starts afresh.
    pub fn feed(&mut self, bytes: &[u8]) {
        let Self { parser, sticky, saved, .. } = self;
        let fed = catch_unwind(AssertUnwindSafe(|| {
            sticky.watch(bytes, |piece| match piece {
                OutputPiece::Bytes(bytes) => parser.process(bytes),
                OutputPiece::Save => {
                    let screen = parser.screen();
                    saved[usize::from(screen.alternate_screen())] = Some(screen.cursor_position());
                }
            });
        }));
        if fed.is_err() {
            *self = Self::new(self.size.0, self.size.1);
        }
    }

    pub fn resize(&mut self, rows: u16, cols: u16) {
        self.size = (rows, cols);
        self.sticky.resized();
        if catch_unwind(AssertUnwindSafe(|| self.parser.screen_mut().set_size(rows, cols))).is_err() {
            *self = Self::new(rows, cols);
        }
    }

    /// The directory on this machine that the program has claimed to be in since the last call.
    pub(crate) fn claimed_directory(&mut self) -> Option<String> {
        self.parser.callbacks_mut().directory.take()
    }

    pub(crate) fn keys(&self) -> KeyMode {
        KeyMode { application_cursor: self.parser.screen().application_cursor() }
    }

    /// Whether the program wants to be told where pasted text begins and ends.
    pub(crate) fn brackets_paste(&self) -> bool {
        self.parser.screen().bracketed_paste()
    }

    /// What draws this on an empty terminal of the same size, and brings that into the same state.
    fn drawn(&mut self) -> Vec<u8> {
        let alternate = self.parser.screen().alternate_screen();
        let mut out = Vec::new();
        if alternate {
            // What lies below comes back when the program leaves. The emulator shows it when asked in its own language.
            if self.sticky.is_between() {
                self.parser.process(b"\x1b[?47l");
                out.extend(self.parser.screen().contents_formatted());
                self.parser.process(b"\x1b[?47h");
            }
            // Entering saves the cursor with its colours, and leaving brings them back: programs enter without any.
            out.extend_from_slice(b"\x1b[0m\x1b[?1049h");
        }
        let screen = self.parser.screen();
        out.extend(screen.state_formatted());
        let saved = self.saved[usize::from(alternate)];
        out.extend(self.sticky.drawn(saved, screen.cursor_position(), &screen.cursor_state_formatted()));
        out.extend(screen.attributes_formatted());
        out
    }

    /// The screen, through redaction once more: what was put together by moving the cursor is text only here.
    #[must_use]
    pub fn show(&mut self, mask: &Mask) -> ScreenSnapshot {
        let shown = catch_unwind(AssertUnwindSafe(|| (self.drawn(), self.parser.screen().contents())));
        let (drawn, text) = shown.unwrap_or_default();
        let screen = self.parser.screen();
        let (row, col) = screen.cursor_position();
        ScreenSnapshot {
            rows: self.size.0,
            cols: self.size.1,
            cursor: (row, col),
            alternate: screen.alternate_screen(),
            drawn: countersign_redact::text(mask, &String::from_utf8_lossy(&drawn)),
            text: countersign_redact::text(mask, &text),
        }
    }
}

/// A screen on its way to somebody.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct ScreenSnapshot {
    pub rows: u16,
    pub cols: u16,
    pub cursor: (u16, u16),
    pub alternate: bool,
    /// What draws it on an empty terminal of the same size.
    pub drawn: Text,
    pub text: Text,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_that_is_drawn_again_is_the_same() {
        let mut screen = Screen::new(5, 20);
        screen.feed(b"below\x1b[2;4r");
        screen.feed("\x1b[?1049h\x1b[2J\x1b[3;4H\x1b[1;31mrot \u{4f60}\u{597d}\x1b[0m\x1b[?2004h\x1b[?1h".as_bytes());
        let shown = screen.show(&Mask::without_values());
        assert!(shown.alternate && screen.brackets_paste() && screen.keys().application_cursor);
        let mut again = Screen::new(5, 20);
        again.feed(shown.drawn.as_str().as_bytes());
        assert_eq!(again.show(&Mask::without_values()).drawn, shown.drawn);
        assert!(shown.text.as_str().contains("rot \u{4f60}\u{597d}"), "{:?}", shown.text);
    }

    #[test]
    fn directories_are_heard_in_any_pieces() {
        let said = b"x\x1b]7;file://localhost/tmp/a%20b%3bc\x07y";
        for cut in 0..said.len() {
            let mut screen = Screen::new(2, 10);
            screen.feed(&said[..cut]);
            screen.feed(&said[cut..]);
            assert_eq!(screen.claimed_directory().as_deref(), Some("/tmp/a b;c"));
        }
        let mut screen = Screen::new(2, 10);
        screen.feed(b"\x1b]7;file:///%zz\x07\x1b]7;nonsense\x07\x1b]7;file://nopath\x07");
        assert_eq!(screen.claimed_directory(), None);
        // What another machine says does not hide what this one said.
        screen.feed(b"\x1b]7;file:///srv\x07\x1b]7;file://another.example/etc\x07");
        assert_eq!(screen.claimed_directory().as_deref(), Some("/srv"));
        let system = rustix::system::uname();
        screen.feed(format!("\x1b]7;file://{}/opt\x07", system.nodename().to_string_lossy()).as_bytes());
        assert_eq!(screen.claimed_directory().as_deref(), Some("/opt"));
    }

    #[test]
    fn nothing_that_is_printed_trips_the_screen() {
        let mut screen = Screen::new(1, 1);
        let mut noise = 1u32;
        for size in [(1, 1), (1, 2), (2, 1), (1000, 1), (3, 7), (24, 80)] {
            screen.resize(size.0, size.1);
            let bytes: Vec<u8> = (0..20_000)
                .map(|_| {
                    noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let pick = b"\x1b[];?0123456789HJKLMPSTXmhlr@ABCDEFGd\x08\x0c\r\n\t\xe4\xbd\xa0 xy";
                    pick[(noise >> 8) as usize % pick.len()]
                })
                .collect();
            bytes.chunks(97).for_each(|c| screen.feed(c));
            let _ = screen.show(&Mask::without_values());
        }
    }
}
