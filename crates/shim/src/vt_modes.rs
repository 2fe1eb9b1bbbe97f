//! Terminal state that the emulator does not report: the scrolling region, modes, character sets, the saved cursor. A
//! viewer that attaches late needs it, or the next line is drawn in the wrong place.

/// A piece of output on its way to the emulator.
pub(crate) enum OutputPiece<'a> {
    Bytes(&'a [u8]),
    /// The cursor is saved as it is now.
    Save,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ground,
    Escape,
    /// After `ESC (` or `ESC )`.
    Charset(usize),
    /// After `ESC` and another intermediate byte.
    Other,
    Csi,
    /// OSC, DCS and similar strings, up to BEL or ST.
    Text,
    TextEscape,
}

#[derive(Debug)]
pub(crate) struct VtModes {
    state: State,
    params: Vec<u8>,
    modes: TerminalModes,
    /// The last byte begins a multi-byte character.
    in_character: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct TerminalModes {
    region: Option<(u16, u16)>,
    wraps: bool,
    origin: bool,
    inserts: bool,
    charsets: [u8; 2],
    shifted: bool,
}

const DEFAULT_MODES: TerminalModes =
    TerminalModes { region: None, wraps: true, origin: false, inserts: false, charsets: [b'B'; 2], shifted: false };
/// No sequence that matters here has longer parameters.
const MAX_PARAMETER_BYTES: usize = 64;

impl VtModes {
    pub(crate) fn new() -> Self {
        Self { state: State::Ground, params: Vec::new(), modes: DEFAULT_MODES, in_character: false }
    }

    /// Whether bytes can be sent to the emulator now without breaking a sequence or a character.
    pub(crate) fn is_between_sequences(&self) -> bool {
        self.state == State::Ground && !self.in_character
    }

    /// The size has changed: terminals reset their scrolling region then.
    pub(crate) fn forget_region(&mut self) {
        self.modes.region = None;
    }

    /// Tracks the state in output and passes the output on to `emit`. Letters of the line-drawing character set are
    /// replaced by the characters that they draw: the emulator knows no character sets.
    pub(crate) fn watch(&mut self, bytes: &[u8], mut emit: impl FnMut(OutputPiece<'_>)) {
        let (mut start, mut at) = (0, 0);
        while let Some(b) = bytes.get(at).copied() {
            if self.state == State::Ground && !self.draws_lines() {
                match memchr::memchr3(0x1b, 0x0e, 0x0f, &bytes[at..]) {
                    None => at = bytes.len(),
                    Some(n) => {
                        at += n + 1;
                        self.apply_control(bytes[at - 1]);
                    }
                }
                continue;
            }
            at += 1;
            match self.state {
                State::Ground => match b {
                    0x5f..=0x7e => {
                        emit(OutputPiece::Bytes(&bytes[start..at - 1]));
                        emit(OutputPiece::Bytes(line_character(b).encode_utf8(&mut [0; 4]).as_bytes()));
                        start = at;
                    }
                    b => self.apply_control(b),
                },
                State::Escape => {
                    if b == b'7' {
                        // Before the emulator processes the end of the sequence.
                        emit(OutputPiece::Bytes(&bytes[start..at - 1]));
                        emit(OutputPiece::Save);
                        start = at - 1;
                    }
                    self.apply_escape(b);
                }
                State::Charset(n) => {
                    self.modes.charsets[n] = b;
                    self.state = State::Ground;
                }
                State::Other => self.state = if (0x20..=0x2f).contains(&b) { State::Other } else { State::Ground },
                State::Csi => match b {
                    0x40..=0x7e => {
                        if self.saves_cursor(b) {
                            emit(OutputPiece::Bytes(&bytes[start..at - 1]));
                            emit(OutputPiece::Save);
                            start = at - 1;
                        }
                        self.apply_csi(b);
                        self.state = State::Ground;
                    }
                    0x1b => self.state = State::Escape,
                    0x18 | 0x1a => self.state = State::Ground,
                    _ if self.params.len() < MAX_PARAMETER_BYTES => self.params.push(b),
                    _ => {}
                },
                State::Text => match b {
                    0x07 | 0x18 | 0x1a => self.state = State::Ground,
                    0x1b => self.state = State::TextEscape,
                    _ => {}
                },
                State::TextEscape if b == b'\\' => self.state = State::Ground,
                State::TextEscape => self.apply_escape(b),
            }
        }
        if let Some(last) = bytes.last() {
            self.in_character = *last >= 0xc0;
        }
        if start < bytes.len() {
            emit(OutputPiece::Bytes(&bytes[start..]));
        }
    }

    /// Whether the line-drawing character set is active.
    fn draws_lines(&self) -> bool {
        self.modes.charsets[usize::from(self.modes.shifted)] == b'0'
    }

    fn apply_control(&mut self, b: u8) {
        match b {
            0x1b => self.state = State::Escape,
            0x0e => self.modes.shifted = true,
            0x0f => self.modes.shifted = false,
            _ => {}
        }
    }

    fn apply_escape(&mut self, b: u8) {
        self.state = match b {
            b'[' => {
                self.params.clear();
                State::Csi
            }
            b'(' => State::Charset(0),
            b')' => State::Charset(1),
            b']' | b'P' | b'X' | b'^' | b'_' => State::Text,
            0x20..=0x2f => State::Other,
            0x1b => State::Escape,
            b'c' => {
                self.modes = DEFAULT_MODES;
                State::Ground
            }
            _ => State::Ground,
        };
    }

    fn numbers(&self) -> Vec<Option<u16>> {
        let digits = self.params.strip_prefix(b"?").unwrap_or(&self.params);
        digits.split(|b| *b == b';').map(|n| std::str::from_utf8(n).ok()?.parse().ok()).collect()
    }

    fn is_private(&self) -> bool {
        self.params.first() == Some(&b'?')
    }

    /// Whether this sequence saves the cursor.
    fn saves_cursor(&self, last: u8) -> bool {
        match last {
            b's' => self.params.is_empty(),
            b'h' => self.is_private() && self.numbers().into_iter().flatten().any(|n| matches!(n, 1048 | 1049)),
            _ => false,
        }
    }

    fn apply_csi(&mut self, last: u8) {
        let on = last == b'h';
        match (last, self.is_private()) {
            (b'r', false) => {
                self.modes.region = match self.numbers()[..] {
                    [top, Some(bottom)] if top.unwrap_or(1) < bottom => Some((top.unwrap_or(1).max(1), bottom)),
                    _ => None,
                };
            }
            (b'h' | b'l', true) => {
                let numbers: Vec<u16> = self.numbers().into_iter().flatten().collect();
                for n in numbers {
                    match n {
                        6 => self.modes.origin = on,
                        7 => self.modes.wraps = on,
                        _ => {}
                    }
                }
            }
            (b'h' | b'l', false) if self.numbers().into_iter().flatten().any(|n| n == 4) => self.modes.inserts = on,
            (b'p', false) if self.params == b"!" => self.modes = DEFAULT_MODES,
            _ => {}
        }
    }

    /// The bytes that restore this state on a terminal that already shows the right content. `cursor` is its position,
    /// from 0, and `position_bytes` moves it there.
    pub(crate) fn restore_bytes(
        &self,
        saved: Option<(u16, u16)>,
        cursor: (u16, u16),
        position_bytes: &[u8],
    ) -> Vec<u8> {
        let (modes, mut out) = (&self.modes, Vec::new());
        if let Some((top, bottom)) = modes.region {
            out.extend(format!("\x1b[{top};{bottom}r").bytes());
        }
        if let Some((row, col)) = saved {
            out.extend(format!("\x1b[{};{}H\x1b7", row + 1, col + 1).bytes());
        }
        for (n, which) in modes.charsets.into_iter().zip(*b"()").filter(|(set, _)| *set != b'B') {
            out.extend([0x1b, which, n]);
        }
        for (on, sequence) in [(!modes.wraps, "\x1b[?7l"), (modes.inserts, "\x1b[4h"), (modes.shifted, "\x0e")] {
            out.extend(sequence.bytes().filter(|_| on));
        }
        if modes.origin {
            let top = modes.region.map_or(1, |(top, _)| top);
            let row = (cursor.0 + 2).saturating_sub(top).max(1);
            out.extend(format!("\x1b[?6h\x1b[{row};{}H", cursor.1 + 1).bytes());
        } else {
            out.extend_from_slice(position_bytes);
        }
        out
    }
}

/// The character that a letter draws in the line-drawing character set.
fn line_character(b: u8) -> char {
    const LINES: &str = "\u{a0}◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·";
    LINES.chars().nth(usize::from(b - 0x5f)).unwrap_or(char::from(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch_in_pieces(text: &[u8], size: usize) -> (String, usize, VtModes) {
        let (mut modes, mut out, mut saves) = (VtModes::new(), Vec::new(), 0);
        for piece in text.chunks(size) {
            modes.watch(piece, |p| match p {
                OutputPiece::Bytes(b) => out.extend_from_slice(b),
                OutputPiece::Save => saves += 1,
            });
        }
        (String::from_utf8(out).unwrap(), saves, modes)
    }

    #[test]
    fn line_letters_are_drawn_and_everything_else_passes_unchanged() {
        let text =
            b"a\x1b(0lqk\x1b(Bq\x1b)0\x0ex\x0fx\x1b[5;20r\x1b[?6;7h\x1b[?7l\x1b[4h\x1b]0;lqk\x07\x1b7\x1b[s\x1b[?1049h";
        for size in 1..text.len() {
            let (out, saves, modes) = watch_in_pieces(text, size);
            assert_eq!(
                out,
                "a\x1b(0┌─┐\x1b(Bq\x1b)0\x0e│\x0fx\x1b[5;20r\x1b[?6;7h\x1b[?7l\x1b[4h\x1b]0;lqk\x07\x1b7\x1b[s\x1b[?1049h"
            );
            assert_eq!((saves, modes.is_between_sequences()), (3, true));
            let expect = TerminalModes {
                region: Some((5, 20)),
                wraps: false,
                origin: true,
                inserts: true,
                charsets: [b'B', b'0'],
                shifted: false,
            };
            assert_eq!(modes.modes, expect, "pieces of {size}");
        }
        let (_, _, modes) = watch_in_pieces(b"\x1b[5;20r\x1b(0\x1b[4h\x1bc", 3);
        assert_eq!(modes.modes, DEFAULT_MODES, "a reset resets");
        assert!(!watch_in_pieces(b"\x1b[5", 9).2.is_between_sequences());
    }
}
