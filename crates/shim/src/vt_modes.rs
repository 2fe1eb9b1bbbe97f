//! What a terminal remembers beside what it shows, and the emulator does not tell: the scrolling region, modes,
//! character sets, the saved cursor. Whoever comes late needs it, or the next line is drawn in the wrong place.

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
    /// After `ESC` and an intermediate of no interest.
    Other,
    Csi,
    /// OSC, DCS and their like, up to BEL or ST.
    Text,
    TextEscape,
}

#[derive(Debug)]
pub(crate) struct VtModes {
    state: State,
    params: Vec<u8>,
    memory: ModeMemory,
    /// The last byte was the beginning of a character.
    in_character: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct ModeMemory {
    region: Option<(u16, u16)>,
    wraps: bool,
    origin: bool,
    inserts: bool,
    charsets: [u8; 2],
    shifted: bool,
}

const USUAL: ModeMemory =
    ModeMemory { region: None, wraps: true, origin: false, inserts: false, charsets: [b'B'; 2], shifted: false };
/// Parameters beyond this are of no sequence that matters here.
const LONGEST: usize = 64;

impl VtModes {
    pub(crate) fn new() -> Self {
        Self { state: State::Ground, params: Vec::new(), memory: USUAL, in_character: false }
    }

    /// Whether something may be said to the emulator now without breaking into a sequence or a character.
    pub(crate) fn is_between(&self) -> bool {
        self.state == State::Ground && !self.in_character
    }

    /// Another size: terminals forget their region then.
    pub(crate) fn resized(&mut self) {
        self.memory.region = None;
    }

    /// Watches output go by. Letters that stand for lines become those lines: the emulator knows no character sets.
    pub(crate) fn watch(&mut self, bytes: &[u8], mut each: impl FnMut(OutputPiece<'_>)) {
        let (mut start, mut at) = (0, 0);
        while let Some(b) = bytes.get(at).copied() {
            if self.state == State::Ground && !self.draws() {
                match memchr::memchr3(0x1b, 0x0e, 0x0f, &bytes[at..]) {
                    None => at = bytes.len(),
                    Some(n) => {
                        at += n + 1;
                        self.control(bytes[at - 1]);
                    }
                }
                continue;
            }
            at += 1;
            match self.state {
                State::Ground => match b {
                    0x5f..=0x7e => {
                        each(OutputPiece::Bytes(&bytes[start..at - 1]));
                        each(OutputPiece::Bytes(line_of(b).encode_utf8(&mut [0; 4]).as_bytes()));
                        start = at;
                    }
                    b => self.control(b),
                },
                State::Escape => {
                    if b == b'7' {
                        // Before the emulator sees the end of it.
                        each(OutputPiece::Bytes(&bytes[start..at - 1]));
                        each(OutputPiece::Save);
                        start = at - 1;
                    }
                    self.escape(b);
                }
                State::Charset(n) => {
                    self.memory.charsets[n] = b;
                    self.state = State::Ground;
                }
                State::Other => self.state = if (0x20..=0x2f).contains(&b) { State::Other } else { State::Ground },
                State::Csi => match b {
                    0x40..=0x7e => {
                        if self.saves(b) {
                            each(OutputPiece::Bytes(&bytes[start..at - 1]));
                            each(OutputPiece::Save);
                            start = at - 1;
                        }
                        self.csi(b);
                        self.state = State::Ground;
                    }
                    0x1b => self.state = State::Escape,
                    0x18 | 0x1a => self.state = State::Ground,
                    _ if self.params.len() < LONGEST => self.params.push(b),
                    _ => {}
                },
                State::Text => match b {
                    0x07 | 0x18 | 0x1a => self.state = State::Ground,
                    0x1b => self.state = State::TextEscape,
                    _ => {}
                },
                State::TextEscape if b == b'\\' => self.state = State::Ground,
                State::TextEscape => self.escape(b),
            }
        }
        if let Some(last) = bytes.last() {
            self.in_character = *last >= 0xc0;
        }
        if start < bytes.len() {
            each(OutputPiece::Bytes(&bytes[start..]));
        }
    }

    /// Whether letters stand for lines now.
    fn draws(&self) -> bool {
        self.memory.charsets[usize::from(self.memory.shifted)] == b'0'
    }

    fn control(&mut self, b: u8) {
        match b {
            0x1b => self.state = State::Escape,
            0x0e => self.memory.shifted = true,
            0x0f => self.memory.shifted = false,
            _ => {}
        }
    }

    fn escape(&mut self, b: u8) {
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
                self.memory = USUAL;
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
    fn saves(&self, last: u8) -> bool {
        match last {
            b's' => self.params.is_empty(),
            b'h' => self.is_private() && self.numbers().into_iter().flatten().any(|n| matches!(n, 1048 | 1049)),
            _ => false,
        }
    }

    fn csi(&mut self, last: u8) {
        let on = last == b'h';
        match (last, self.is_private()) {
            (b'r', false) => {
                self.memory.region = match self.numbers()[..] {
                    [top, Some(bottom)] if top.unwrap_or(1) < bottom => Some((top.unwrap_or(1).max(1), bottom)),
                    _ => None,
                };
            }
            (b'h' | b'l', true) => {
                let numbers: Vec<u16> = self.numbers().into_iter().flatten().collect();
                for n in numbers {
                    match n {
                        6 => self.memory.origin = on,
                        7 => self.memory.wraps = on,
                        _ => {}
                    }
                }
            }
            (b'h' | b'l', false) if self.numbers().into_iter().flatten().any(|n| n == 4) => self.memory.inserts = on,
            (b'p', false) if self.params == b"!" => self.memory = USUAL,
            _ => {}
        }
    }

    /// What brings a terminal that shows the right thing into the right state. `cursor` is where it stands, from 0, and
    /// `put` what puts it there.
    pub(crate) fn drawn(&self, saved: Option<(u16, u16)>, cursor: (u16, u16), put: &[u8]) -> Vec<u8> {
        let (memory, mut out) = (&self.memory, Vec::new());
        if let Some((top, bottom)) = memory.region {
            out.extend(format!("\x1b[{top};{bottom}r").bytes());
        }
        if let Some((row, col)) = saved {
            out.extend(format!("\x1b[{};{}H\x1b7", row + 1, col + 1).bytes());
        }
        for (n, which) in memory.charsets.into_iter().zip(*b"()").filter(|(set, _)| *set != b'B') {
            out.extend([0x1b, which, n]);
        }
        for (on, sequence) in [(!memory.wraps, "\x1b[?7l"), (memory.inserts, "\x1b[4h"), (memory.shifted, "\x0e")] {
            out.extend(sequence.bytes().filter(|_| on));
        }
        match memory.origin {
            true => {
                let top = memory.region.map_or(1, |(top, _)| top);
                out.extend(
                    format!("\x1b[?6h\x1b[{};{}H", (cursor.0 + 2).saturating_sub(top).max(1), cursor.1 + 1).bytes(),
                );
            }
            false => out.extend_from_slice(put),
        }
        out
    }
}

/// The line that a letter stands for in the character set of lines.
fn line_of(b: u8) -> char {
    const LINES: &str = "\u{a0}◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·";
    LINES.chars().nth(usize::from(b - 0x5f)).unwrap_or(char::from(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(text: &[u8], size: usize) -> (String, usize, VtModes) {
        let (mut sticky, mut out, mut saves) = (VtModes::new(), Vec::new(), 0);
        for piece in text.chunks(size) {
            sticky.watch(piece, |p| match p {
                OutputPiece::Bytes(b) => out.extend_from_slice(b),
                OutputPiece::Save => saves += 1,
            });
        }
        (String::from_utf8(out).unwrap(), saves, sticky)
    }

    #[test]
    fn letters_become_lines_and_everything_else_passes_in_any_pieces() {
        let text =
            b"a\x1b(0lqk\x1b(Bq\x1b)0\x0ex\x0fx\x1b[5;20r\x1b[?6;7h\x1b[?7l\x1b[4h\x1b]0;lqk\x07\x1b7\x1b[s\x1b[?1049h";
        for size in 1..text.len() {
            let (out, saves, sticky) = watched(text, size);
            assert_eq!(
                out,
                "a\x1b(0┌─┐\x1b(Bq\x1b)0\x0e│\x0fx\x1b[5;20r\x1b[?6;7h\x1b[?7l\x1b[4h\x1b]0;lqk\x07\x1b7\x1b[s\x1b[?1049h"
            );
            assert_eq!((saves, sticky.is_between()), (3, true));
            let expect = ModeMemory {
                region: Some((5, 20)),
                wraps: false,
                origin: true,
                inserts: true,
                charsets: [b'B', b'0'],
                shifted: false,
            };
            assert_eq!(sticky.memory, expect, "pieces of {size}");
        }
        let (_, _, sticky) = watched(b"\x1b[5;20r\x1b(0\x1b[4h\x1bc", 3);
        assert_eq!(sticky.memory, USUAL, "a reset resets");
        assert!(!watched(b"\x1b[5", 9).2.is_between());
    }
}
