//! The terminal of a task: its two ends, and the screen as a user would see it.

use crate::{
    directories::path_from_url,
    sys::user::with_owner_ids,
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

/// The shim's end of the terminal.
pub(crate) struct Terminal {
    master: OwnedFd,
}

impl Terminal {
    /// Creates a terminal. Returns the child's end too.
    pub(crate) fn open(rows: u16, cols: u16) -> io::Result<(Self, OwnedFd)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let slave = ioctl_tiocgptpeer(&master, flags)?;
        let mut modes = tcgetattr(&slave)?;
        // The erase key removes a whole character, not one byte of it.
        modes.input_modes |= InputModes::IUTF8;
        tcsetattr(&slave, OptionalActions::Now, &modes)?;
        rustix::io::ioctl_fionbio(&master, true)?;
        let terminal = Self { master };
        terminal.resize(rows, cols)?;
        Ok((terminal, slave))
    }

    /// The path of the child's end.
    pub(crate) fn name(&self) -> Option<String> {
        ptsname(&self.master, Vec::new()).ok()?.into_string().ok()
    }

    /// Another descriptor of the shim's end, to read from or to write to.
    pub(crate) fn duplicate_master(&self) -> io::Result<OwnedFd> {
        self.master.try_clone()
    }

    /// Sets the size. The kernel signals the foreground program.
    pub(crate) fn resize(&self, rows: u16, cols: u16) -> io::Result<()> {
        Ok(tcsetwinsize(&self.master, Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 })?)
    }

    /// The foreground process group.
    pub(crate) fn foreground_group(&self) -> Option<Pid> {
        tcgetpgrp(&self.master).ok()
    }

    /// Whether the terminal shows typed text. Only line input without echo counts as hidden: programs that read key by
    /// key draw the text themselves.
    pub(crate) fn echoes(&self) -> bool {
        tcgetattr(&self.master).is_ok_and(|modes| {
            let local = modes.local_modes;
            !local.contains(LocalModes::ICANON) || local.contains(LocalModes::ECHO)
        })
    }

    /// The working directory of the foreground program, if its `/proc` files are readable.
    pub(crate) fn foreground_directory(&self) -> Option<PathBuf> {
        let leader = self.foreground_group()?;
        let pid = u32::try_from(leader.as_raw_nonzero().get()).ok()?;
        with_owner_ids(pid, || countersign_store::proc::working_directory(pid)).ok()
    }
}

/// The content of a terminal of this size. It is fed with all output that was cut, so that a viewer who attaches late
/// sees the current screen.
pub struct Screen {
    parser: vt100::Parser<TerminalEvents>,
    size: (u16, u16),
    modes: VtModes,
    /// The saved cursor positions of the main screen and of the alternate screen.
    saved_cursors: [Option<(u16, u16)>; 2],
}

/// What a program reports in control sequences.
#[derive(Default)]
struct TerminalEvents {
    directory: Option<String>,
}

impl vt100::Callbacks for TerminalEvents {
    fn unhandled_osc(&mut self, _: &mut vt100::Screen, params: &[&[u8]]) {
        if let [b"7", rest @ ..] = params {
            // A path may contain the separator.
            let url = rest.join(&b';');
            let system = rustix::system::uname();
            let path_of = |url| path_from_url(url, &system.nodename().to_string_lossy());
            self.directory = std::str::from_utf8(&url).ok().and_then(path_of).or_else(|| self.directory.take());
        }
    }
}

impl Screen {
    #[must_use]
    pub fn new(rows: u16, cols: u16) -> Self {
        let parser = vt100::Parser::new_with_callbacks(rows, cols, 0, TerminalEvents::default());
        Self { parser, size: (rows, cols), modes: VtModes::new(), saved_cursors: [None; 2] }
    }

    /// Processes output. No output may end the shim: if the emulator panics, the screen starts empty.
    pub fn feed(&mut self, bytes: &[u8]) {
        let Self { parser, modes, saved_cursors, .. } = self;
        let fed = catch_unwind(AssertUnwindSafe(|| {
            modes.watch(bytes, |piece| match piece {
                OutputPiece::Bytes(bytes) => parser.process(bytes),
                OutputPiece::Save => {
                    let screen = parser.screen();
                    saved_cursors[usize::from(screen.alternate_screen())] = Some(screen.cursor_position());
                }
            });
        }));
        if fed.is_err() {
            *self = Self::new(self.size.0, self.size.1);
        }
    }

    pub fn resize(&mut self, rows: u16, cols: u16) {
        self.size = (rows, cols);
        self.modes.forget_region();
        if catch_unwind(AssertUnwindSafe(|| self.parser.screen_mut().set_size(rows, cols))).is_err() {
            *self = Self::new(rows, cols);
        }
    }

    /// The directory on this machine that the program has claimed to be in since the last call.
    pub(crate) fn claimed_directory(&mut self) -> Option<String> {
        self.parser.callbacks_mut().directory.take()
    }

    pub(crate) fn key_mode(&self) -> KeyMode {
        KeyMode { application_cursor: self.parser.screen().application_cursor() }
    }

    /// Whether the program has requested markers around pasted text.
    pub(crate) fn wants_bracketed_paste(&self) -> bool {
        self.parser.screen().bracketed_paste()
    }

    /// The bytes that draw this screen on an empty terminal of the same size, and restore its modes.
    fn redraw_bytes(&mut self) -> Vec<u8> {
        let alternate = self.parser.screen().alternate_screen();
        let mut out = Vec::new();
        if alternate {
            // The main screen comes back when the program leaves the alternate one. A control sequence makes the
            // emulator show it.
            if self.modes.is_between_sequences() {
                self.parser.process(b"\x1b[?47l");
                out.extend(self.parser.screen().contents_formatted());
                self.parser.process(b"\x1b[?47h");
            }
            // Entering saves the cursor with its colours, and leaving restores them: so enter without colours, as
            // programs do.
            out.extend_from_slice(b"\x1b[0m\x1b[?1049h");
        }
        let screen = self.parser.screen();
        out.extend(screen.state_formatted());
        let saved = self.saved_cursors[usize::from(alternate)];
        out.extend(self.modes.restore_bytes(saved, screen.cursor_position(), &screen.cursor_state_formatted()));
        out.extend(screen.attributes_formatted());
        out
    }

    /// The screen, redacted again: text that a program assembled by moving the cursor appears as text only here.
    #[must_use]
    pub fn snapshot(&mut self, mask: &Mask) -> ScreenSnapshot {
        let shown = catch_unwind(AssertUnwindSafe(|| (self.redraw_bytes(), self.parser.screen().contents())));
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

/// A screen at one point in time, as it is sent to viewers.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct ScreenSnapshot {
    pub rows: u16,
    pub cols: u16,
    pub cursor: (u16, u16),
    pub alternate: bool,
    /// The bytes that draw it on an empty terminal of the same size.
    pub drawn: Text,
    pub text: Text,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redrawn_screen_equals_the_original() {
        let mut screen = Screen::new(5, 20);
        screen.feed(b"below\x1b[2;4r");
        screen.feed("\x1b[?1049h\x1b[2J\x1b[3;4H\x1b[1;31mrot \u{4f60}\u{597d}\x1b[0m\x1b[?2004h\x1b[?1h".as_bytes());
        let shown = screen.snapshot(&Mask::without_values());
        assert!(shown.alternate && screen.wants_bracketed_paste() && screen.key_mode().application_cursor);
        let mut again = Screen::new(5, 20);
        again.feed(shown.drawn.as_str().as_bytes());
        assert_eq!(again.snapshot(&Mask::without_values()).drawn, shown.drawn);
        assert!(shown.text.as_str().contains("rot \u{4f60}\u{597d}"), "{:?}", shown.text);
    }

    #[test]
    fn a_claimed_directory_is_read_across_chunk_boundaries() {
        let output = b"x\x1b]7;file://localhost/tmp/a%20b%3bc\x07y";
        for cut in 0..output.len() {
            let mut screen = Screen::new(2, 10);
            screen.feed(&output[..cut]);
            screen.feed(&output[cut..]);
            assert_eq!(screen.claimed_directory().as_deref(), Some("/tmp/a b;c"));
        }
        let mut screen = Screen::new(2, 10);
        screen.feed(b"\x1b]7;file:///%zz\x07\x1b]7;nonsense\x07\x1b]7;file://nopath\x07");
        assert_eq!(screen.claimed_directory(), None);
        // A claim about another machine does not replace one about this machine.
        screen.feed(b"\x1b]7;file:///srv\x07\x1b]7;file://another.example/etc\x07");
        assert_eq!(screen.claimed_directory().as_deref(), Some("/srv"));
        let system = rustix::system::uname();
        screen.feed(format!("\x1b]7;file://{}/opt\x07", system.nodename().to_string_lossy()).as_bytes());
        assert_eq!(screen.claimed_directory().as_deref(), Some("/opt"));
    }

    #[test]
    fn no_output_makes_the_screen_panic() {
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
            let _ = screen.snapshot(&Mask::without_values());
        }
    }
}
