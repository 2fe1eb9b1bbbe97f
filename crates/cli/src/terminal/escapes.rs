//! Filters the escape sequences in a task's output before it reaches a person's terminal.
//!
//! One parser, four policies. *Plain* output (pipes, logs) keeps colours and tabs and prints every other escape as text.
//! A *live* terminal gets everything except access to the clipboard and reports that make the terminal type text that
//! the program chose (answerback, titles). A *recording* may query nothing: no program reads the terminal's answer, so it
//! would be typed into the user's shell. *Text* removes every escape.

use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EscapePolicy {
    Plain,
    Live,
    Recording,
    Text,
}

/// Longer sequences are dropped, except for pictures.
const MAX_SEQUENCE_BYTES: usize = 4096;
/// Longer sequences are not colours.
const MAX_COLOUR_BYTES: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParserState {
    Ground,
    /// After ESC.
    Escape,
    /// After ESC and an intermediate.
    Intermediate,
    Csi,
    /// OSC, DCS, APC, PM or SOS, until BEL or ST; any other escape ends it early.
    Text,
    /// After an ESC inside such a string.
    TextEscape,
    /// The rest of a string that is too long to hold: a picture passes, anything else is dropped.
    Long {
        pass: bool,
    },
    LongEscape {
        pass: bool,
    },
}

/// The filter. It takes output in chunks of any size.
///
/// It follows the states of a terminal's own parser. It holds a sequence back as a terminal would read it: without the
/// control characters inside it that a terminal executes immediately or ignores. So the policy judges exactly what the
/// terminal would execute.
pub(crate) struct EscapeFilter {
    policy: EscapePolicy,
    state: ParserState,
    held: Vec<u8>,
    /// How many bytes of a UTF-8 character are still missing, and the bytes that have arrived.
    missing: usize,
    character: Vec<u8>,
    /// The last byte was a carriage return; a line feed may follow.
    after_return: bool,
    coloured: bool,
    /// Private modes that differ from their usual state.
    modes: BTreeSet<u16>,
    /// The sequences that reset other changed settings.
    resets: BTreeSet<&'static str>,
}

/// Modes that are usually on.
const USUALLY_ON: &[u16] = &[7, 25];
/// Private modes that only change the display: a recording may set them.
const DISPLAY_MODES: &[u16] = &[5, 6, 7, 12, 25, 45, 47, 1047, 1048, 1049, 2026];
/// Modes that no task may set: VT52 emulation (private 2) and a locked keyboard (2).
const FORBIDDEN_PRIVATE_MODES: &[u16] = &[2];
const FORBIDDEN_MODES: &[u16] = &[2];

impl EscapeFilter {
    pub(crate) fn new(policy: EscapePolicy) -> Self {
        Self {
            policy,
            state: ParserState::Ground,
            held: Vec::new(),
            missing: 0,
            character: Vec::new(),
            after_return: false,
            coloured: false,
            modes: BTreeSet::new(),
            resets: BTreeSet::new(),
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len() + 16);
        for b in bytes {
            self.feed_byte(*b, &mut out);
        }
        out
    }

    /// Returns the bytes that are still held, and the sequences that reset the terminal.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.prints_lines() {
            if self.policy == EscapePolicy::Plain {
                self.print_held(&mut out);
            }
            self.drop_sequence();
            self.flush_character(&mut out);
            if std::mem::take(&mut self.after_return) {
                out.push(b'\n');
            }
            if std::mem::take(&mut self.coloured) {
                out.extend_from_slice(b"\x1b[0m");
            }
            return out;
        }
        self.drop_sequence();
        for mode in std::mem::take(&mut self.modes) {
            let letter = if USUALLY_ON.contains(&mode) { 'h' } else { 'l' };
            out.extend(format!("\x1b[?{mode}{letter}").bytes());
        }
        for reset in std::mem::take(&mut self.resets) {
            out.extend_from_slice(reset.as_bytes());
        }
        out.extend_from_slice(b"\x1b[0m");
        out
    }

    /// Whether the result is lines of text rather than a terminal's screen.
    fn prints_lines(&self) -> bool {
        matches!(self.policy, EscapePolicy::Plain | EscapePolicy::Text)
    }

    fn feed_byte(&mut self, b: u8, out: &mut Vec<u8>) {
        match self.state {
            ParserState::Ground => self.feed_ground(b, out),
            _ if self.policy == EscapePolicy::Plain => self.feed_colour(b, out),
            ParserState::Text => self.feed_string(b, out),
            ParserState::TextEscape if b == b'\\' => {
                self.held.extend_from_slice(b"\x1b\\");
                self.end_of_sequence(out);
            }
            // Any other byte after ESC ends the string and starts a new sequence.
            ParserState::TextEscape => self.restart_sequence(b, out),
            ParserState::Long { pass } => match b {
                0x1b => self.state = ParserState::LongEscape { pass },
                0x07 | 0x18 | 0x1a => self.end_long(pass, out),
                0x20..=0x7e if pass => out.push(b),
                _ => {}
            },
            ParserState::LongEscape { pass } => {
                self.end_long(pass, out);
                if b != b'\\' {
                    self.restart_sequence(b, out);
                }
            }
            ParserState::Escape | ParserState::Intermediate | ParserState::Csi => self.feed_sequence(b, out),
        }
    }

    fn end_long(&mut self, pass: bool, out: &mut Vec<u8>) {
        if pass {
            out.extend_from_slice(b"\x1b\\");
        }
        self.drop_sequence();
    }

    fn drop_sequence(&mut self) {
        self.held.clear();
        self.state = ParserState::Ground;
    }

    /// Starts a new sequence after an ESC inside another one.
    fn restart_sequence(&mut self, b: u8, out: &mut Vec<u8>) {
        self.held.clear();
        self.held.push(0x1b);
        self.state = ParserState::Escape;
        self.feed_sequence(b, out);
    }

    fn feed_ground(&mut self, b: u8, out: &mut Vec<u8>) {
        if self.missing > 0 {
            if (0x80..0xc0).contains(&b) {
                self.character.push(b);
                self.missing -= 1;
                if self.missing == 0 {
                    self.flush_character(out);
                }
                return;
            }
            // The character is incomplete.
            self.flush_character(out);
        }
        if self.after_return && self.prints_lines() {
            self.after_return = false;
            out.push(b'\n');
            if b == b'\n' {
                return;
            }
        }
        match b {
            0x1b => {
                self.state = ParserState::Escape;
                self.held.push(b);
            }
            0xc2..=0xdf => self.begin_character(b, 1),
            0xe0..=0xef => self.begin_character(b, 2),
            0xf0..=0xf4 => self.begin_character(b, 3),
            // Overwriting a line would hide its earlier text, so each version gets a line of its own.
            b'\r' if self.prints_lines() => self.after_return = true,
            b'\n' | b'\t' | 0x20..=0x7e => out.push(b),
            _ if self.policy == EscapePolicy::Plain => print_escaped(b, out),
            _ if self.policy == EscapePolicy::Text => {}
            b => self.execute_control(b, out),
        }
    }

    /// Handles a control character, which a terminal executes immediately even inside a sequence.
    fn execute_control(&mut self, b: u8, out: &mut Vec<u8>) {
        match b {
            // The terminal would answer an enquiry (0x05). The others are ignored, or are 8-bit controls.
            0x05 | 0x7f..=0x9f => {}
            b'\n' | b'\t' => out.push(b),
            _ if self.policy == EscapePolicy::Text => {}
            b => {
                if b == 0x0e {
                    self.resets.insert("\x0f");
                }
                out.push(b);
            }
        }
    }

    fn begin_character(&mut self, b: u8, missing: usize) {
        self.missing = missing;
        self.character.push(b);
    }

    /// Prints a character, or the bytes of an incomplete one.
    fn flush_character(&mut self, out: &mut Vec<u8>) {
        self.missing = 0;
        let bytes = std::mem::take(&mut self.character);
        // U+0080 to U+009F are control characters that some terminals execute.
        let control = matches!(bytes[..], [0xc2, 0x80..=0x9f]);
        match (self.policy, control || std::str::from_utf8(&bytes).is_err()) {
            (_, false) => out.extend(bytes),
            (EscapePolicy::Plain, true) => bytes.iter().for_each(|b| print_escaped(*b, out)),
            (EscapePolicy::Text, true) => out.extend("\u{fffd}".bytes().filter(|_| !control && !bytes.is_empty())),
            (_, true) if control => {}
            (_, true) => out.extend("\u{fffd}".bytes()),
        }
    }

    /// Plain output: passes the sequence only if it is a colour.
    fn feed_colour(&mut self, b: u8, out: &mut Vec<u8>) {
        self.held.push(b);
        match (self.state, b) {
            (ParserState::Escape, b'[') => self.state = ParserState::Csi,
            (ParserState::Csi, b'0'..=b'9' | b';' | b':') if self.held.len() < MAX_COLOUR_BYTES => {}
            (ParserState::Csi, b'm') => {
                self.coloured = true;
                out.append(&mut self.held);
                self.state = ParserState::Ground;
            }
            _ => self.print_held(out),
        }
    }

    /// The held bytes are not a colour: prints the escape as text and reads the rest again.
    fn print_held(&mut self, out: &mut Vec<u8>) {
        self.state = ParserState::Ground;
        let held = std::mem::take(&mut self.held);
        if let Some((first, rest)) = held.split_first() {
            print_escaped(*first, out);
            for b in rest {
                self.feed_byte(*b, out);
            }
        }
    }

    /// Takes a byte after ESC, after an intermediate byte, or in a control sequence.
    fn feed_sequence(&mut self, b: u8, out: &mut Vec<u8>) {
        match (self.state, b) {
            (_, 0x1b) => {
                self.held.clear();
                self.held.push(b);
                self.state = ParserState::Escape;
            }
            (_, 0x18 | 0x1a) => self.drop_sequence(),
            (_, 0x00..=0x1f | 0x7f) => self.execute_control(b, out),
            // No sequence contains this byte: the sequence ended early.
            (_, 0x80..) => {
                self.drop_sequence();
                self.feed_ground(b, out);
            }
            (ParserState::Escape, b'[') => self.hold_byte(ParserState::Csi, b),
            (ParserState::Escape, b']' | b'P' | b'X' | b'^' | b'_') => self.hold_byte(ParserState::Text, b),
            (ParserState::Escape | ParserState::Intermediate, 0x20..=0x2f) => {
                self.hold_byte(ParserState::Intermediate, b)
            }
            (ParserState::Csi, 0x20..=0x3f) => self.hold_byte(ParserState::Csi, b),
            _ => {
                self.held.push(b);
                self.end_of_sequence(out);
            }
        }
    }

    fn hold_byte(&mut self, state: ParserState, b: u8) {
        self.state = state;
        if self.held.len() < MAX_SEQUENCE_BYTES {
            self.held.push(b);
        }
    }

    fn feed_string(&mut self, b: u8, out: &mut Vec<u8>) {
        match b {
            0x07 => {
                self.held.push(b);
                self.end_of_sequence(out);
            }
            0x1b => self.state = ParserState::TextEscape,
            0x18 | 0x1a => self.drop_sequence(),
            // A terminal ignores these inside a string.
            0x00..=0x1f | 0x7f => {}
            0x80..=0x9f if self.held.last() == Some(&0xc2) => drop(self.held.pop()),
            _ if self.held.len() < MAX_SEQUENCE_BYTES => self.held.push(b),
            _ => {
                let pass = is_picture(&self.held) && self.policy != EscapePolicy::Text;
                if pass {
                    out.extend(self.held.drain(..).filter(|b| *b < 0x7f));
                    out.push(b);
                }
                self.held.clear();
                self.state = ParserState::Long { pass };
            }
        }
    }

    fn end_of_sequence(&mut self, out: &mut Vec<u8>) {
        if self.held.len() < MAX_SEQUENCE_BYTES && self.is_allowed() {
            self.note_changes();
            out.append(&mut self.held);
        }
        self.drop_sequence();
    }

    /// Whether the held sequence may reach the terminal.
    fn is_allowed(&self) -> bool {
        match (self.policy, &self.held[..]) {
            (EscapePolicy::Live, [0x1b, b']', rest @ ..]) => {
                let clipboard = match leading_number(rest) {
                    Some(52 | 5522) => true,
                    Some(1337) => rest.windows(4).any(|w| w.eq_ignore_ascii_case(b"copy")),
                    _ => false,
                };
                !clipboard
            }
            (EscapePolicy::Live, [0x1b, b'[', rest @ .., last]) => {
                let csi = ControlSequence::parse(rest);
                match (last, csi.prefix) {
                    (b't', _) => !matches!(csi.numbers.first(), Some(20 | 21)),
                    (b'h' | b'l', Some(b'?')) => !csi.numbers.iter().any(|n| FORBIDDEN_PRIVATE_MODES.contains(n)),
                    (b'h' | b'l', None) => !csi.numbers.iter().any(|n| FORBIDDEN_MODES.contains(n)),
                    _ => true,
                }
            }
            // Would switch the terminal's answers to 8-bit controls.
            (EscapePolicy::Live, [0x1b, b' ', ..]) => false,
            (EscapePolicy::Live, _) => true,
            (EscapePolicy::Recording, held) => is_drawing(held),
            (EscapePolicy::Plain | EscapePolicy::Text, _) => false,
        }
    }

    /// Remembers what `finish` must reset.
    fn note_changes(&mut self) {
        match &self.held[..] {
            [0x1b, b'[', rest @ .., last] => {
                let csi = ControlSequence::parse(rest);
                match (csi.prefix, last) {
                    (Some(b'?'), b'h' | b'l') => {
                        for mode in csi.numbers {
                            let changed = (*last == b'h') != USUALLY_ON.contains(&mode);
                            if changed {
                                self.modes.insert(mode);
                            } else {
                                self.modes.remove(&mode);
                            }
                        }
                    }
                    (None, b'h') if csi.numbers.contains(&4) => drop(self.resets.insert("\x1b[4l")),
                    (None, b'h') if csi.numbers.contains(&20) => drop(self.resets.insert("\x1b[20l")),
                    (None, b'r') => drop(self.resets.insert("\x1b7\x1b[r\x1b8")),
                    (None, b'q') if csi.intermediates == b" " => drop(self.resets.insert("\x1b[0 q")),
                    (Some(b'>'), b'm') => drop(self.resets.insert("\x1b[>4m")),
                    (Some(b'>'), b'u') => drop(self.resets.insert("\x1b[<32u")),
                    (Some(b'='), b'u') => drop(self.resets.insert("\x1b[=0u")),
                    _ => {}
                }
            }
            [0x1b, b'='] => drop(self.resets.insert("\x1b>")),
            [0x1b, b'(' | b')' | b'*' | b'+', ..] => drop(self.resets.insert("\x1b(B\x1b)B\x0f")),
            _ => {}
        }
    }
}

/// A control sequence, parsed as a terminal parses it.
struct ControlSequence<'a> {
    prefix: Option<u8>,
    numbers: Vec<u16>,
    intermediates: &'a [u8],
}

impl<'a> ControlSequence<'a> {
    fn parse(rest: &'a [u8]) -> Self {
        let prefix = rest.first().copied().filter(|b| (0x3c..=0x3f).contains(b));
        let rest = &rest[usize::from(prefix.is_some())..];
        let end = rest.iter().position(|b| (0x20..=0x2f).contains(b)).unwrap_or(rest.len());
        let numbers = rest[..end].split(|b| matches!(b, b';' | b':')).map(|n| leading_number(n).unwrap_or(0)).collect();
        Self { prefix, numbers, intermediates: &rest[end..] }
    }
}

/// The number at the beginning; leading zeros do not count.
fn leading_number(text: &[u8]) -> Option<u16> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit());
    let add = |n: Option<u16>, b: &u8| Some(n.unwrap_or(0).saturating_mul(10).saturating_add(u16::from(b - b'0')));
    digits.fold(None, add)
}

/// Whether a sequence only draws, which is all that a recording may do.
fn is_drawing(held: &[u8]) -> bool {
    match held {
        [0x1b, b'[', rest @ .., last] => {
            let csi = ControlSequence::parse(rest);
            match (csi.prefix, csi.intermediates, last) {
                (None, b"", b'@'..=b'Z' | b'`' | b'a' | b'b' | b'd' | b'e' | b'f' | b'g' | b'm' | b'r' | b's') => true,
                (None, b"", b'u') => rest.is_empty(),
                (None, b"", b'h' | b'l') => csi.numbers == [4],
                (None, b" ", b'q') | (None, b"!", b'p') | (None, b"\"", b'q') => true,
                (Some(b'?'), b"", b'J' | b'K') => true,
                (Some(b'?'), b"", b'h' | b'l') => csi.numbers.iter().all(|n| DISPLAY_MODES.contains(n)),
                _ => false,
            }
        }
        // Titles and links.
        [0x1b, b']', rest @ ..] => matches!(leading_number(rest), Some(0 | 1 | 2 | 8)),
        [0x1b, b'P', ..] => is_picture(held),
        [0x1b, b'(' | b')' | b'*' | b'+' | b'#', _] => true,
        [0x1b, last] => b"78DEHMc=>no|}~".contains(last),
        _ => false,
    }
}

/// Whether a string is a sixel picture: numbers, then `q`.
fn is_picture(held: &[u8]) -> bool {
    let Some(rest) = held.strip_prefix(b"\x1bP") else { return false };
    rest.iter().find(|b| !b.is_ascii_digit() && **b != b';') == Some(&b'q')
}

/// Prints a byte as text, for example `\x1b`.
fn print_escaped(b: u8, out: &mut Vec<u8>) {
    out.extend(format!("\\x{b:02x}").bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Filters text as a whole and in small chunks, which must make no difference.
    fn filtered(policy: EscapePolicy, text: &[u8]) -> String {
        let whole = {
            let mut filter = EscapeFilter::new(policy);
            let mut out = filter.feed(text);
            out.extend(filter.finish());
            out
        };
        for size in 1..6 {
            let mut filter = EscapeFilter::new(policy);
            let mut out: Vec<u8> = text.chunks(size).flat_map(|piece| filter.feed(piece)).collect();
            out.extend(filter.finish());
            assert_eq!(out, whole, "pieces of {size}");
        }
        String::from_utf8_lossy(&whole).into_owned()
    }

    #[test]
    fn plain_output_keeps_colours_and_tabs_and_prints_other_escapes_as_text() {
        let plain = |text: &str| filtered(EscapePolicy::Plain, text.as_bytes());
        assert_eq!(plain("a\tb\n"), "a\tb\n");
        assert_eq!(plain("\x1b[1;31mred\x1b[0m\n"), "\x1b[1;31mred\x1b[0m\n\x1b[0m");
        assert_eq!(plain("\x1b[2J\x1b]0;title\x07x"), "\\x1b[2J\\x1b]0;title\\x07x");
        assert_eq!(plain("\x1b]52;c;aGk=\x1b\\"), "\\x1b]52;c;aGk=\\x1b\\");
        assert_eq!(plain("a\x08b\x1b"), "a\\x08b\\x1b");
        assert_eq!(plain("one\r\ntwo\rthree\r"), "one\ntwo\nthree\n");
        assert_eq!(plain("h\u{e4} \u{4f60} \u{9b}2J"), "h\u{e4} \u{4f60} \\xc2\\x9b2J");
        assert_eq!(plain("\x1b[?25l\x1b[38:2:1:2:3mx"), "\\x1b[?25l\x1b[38:2:1:2:3mx\x1b[0m");
        assert_eq!(filtered(EscapePolicy::Plain, b"\xff\x9b2J\xe4\xbd"), "\\xff\\x9b2J\\xe4\\xbd");
        assert_eq!(plain("\x1b[\x1b[31mx"), "\\x1b[\x1b[31mx\x1b[0m");
    }

    #[test]
    fn a_live_task_cannot_reach_the_clipboard_or_make_the_terminal_type() {
        let live = |text: &str| filtered(EscapePolicy::Live, text.as_bytes());
        assert_eq!(live("a\x1b]52;c;aGk=\x07b\x1b]52;c;?\x1b\\c"), "abc\x1b[0m");
        assert_eq!(live("\x1b[21tx\x05y\x1b[20tz"), "xyz\x1b[0m");
        assert_eq!(live("\x1b[6n\x1b[c\x1b]11;?\x07"), "\x1b[6n\x1b[c\x1b]11;?\x07\x1b[0m");
        assert_eq!(live("\x1b]0;t\x07\x1b[2J\x1b[1;1H\u{9d}52;c;x"), "\x1b]0;t\x07\x1b[2J\x1b[1;1H52;c;x\x1b[0m");
        let long = format!("\x1b]52;c;{}\x07after", "A".repeat(3 * MAX_SEQUENCE_BYTES));
        assert_eq!(live(&long), "after\x1b[0m");
        let image = format!("\x1bPq{}\x1b\\after", "~".repeat(3 * MAX_SEQUENCE_BYTES));
        assert_eq!(live(&image), format!("{image}\x1b[0m"));
    }

    #[test]
    fn a_recording_cannot_query_the_terminal() {
        for question in [
            "\x1b[c",
            "\x1b[>c",
            "\x1b[=c",
            "\x1b[6n",
            "\x1b[?6n",
            "\x1b[5n",
            "\x1bZ",
            "\x05",
            "\x1b[?2026$p",
            "\x1b]11;?\x07",
            "\x1b]4;1;?\x1b\\",
            "\x1bP$qm\x1b\\",
            "\x1bP+q544e\x1b\\",
            "\x1b[18t",
            "\x1b[21t",
            "\x1b[>q",
            "\x1b[?u",
            "\x1b[x",
            "\x1b]52;c;?\x07",
        ] {
            assert_eq!(
                filtered(EscapePolicy::Recording, format!("a{question}b").as_bytes()),
                "ab\x1b[0m",
                "{question:?}"
            );
        }
        for more in [
            "\x1b[1;1;1;1;1;1*y",
            "\x1b[2$w",
            "\x1b[?4m",
            "\x1b[?1;1;0S",
            "\x1bP0$qm\x1b\\",
            "\x1b_Ga=q;\x1b\\",
            "\x1b]21;foreground=?\x07",
            "\x1b]1337;ReportCellSize\x07",
            "\x1b[?1000h",
            "\x1b[2h",
            "\x1b[?2l",
            "\x1b[1\x7f8t",
            "\x1b\x7f[6n",
            "\x1b ]\x05\x07",
            "\x1b[?25;1003h",
            "\x1b G",
        ] {
            assert_eq!(
                filtered(EscapePolicy::Recording, format!("a{more}b").as_bytes()).replace(['\x07', ']'], ""),
                "ab\x1b[0m",
                "{more:?}"
            );
        }
        let drawn = "\x1b[2J\x1b[3;4H\x1b[1mx\x1b[0m\x1b[2 q\x1b]0;t\x07";
        assert_eq!(filtered(EscapePolicy::Recording, drawn.as_bytes()), format!("{drawn}\x1b[0 q\x1b[0m"));
    }

    /// Each case would pass a filter whose parser differs from a terminal's.
    #[test]
    fn the_policy_judges_what_a_terminal_would_execute() {
        let long = "A".repeat(MAX_SEQUENCE_BYTES + 1000);
        for policy in [EscapePolicy::Live, EscapePolicy::Recording] {
            for (text, expect) in [
                (format!("\x1b]0;{long}\x1b]52;c;eA==\x07b"), "b"),
                (format!("\x1b]0;{long}\x1b[21tb"), "b"),
                (format!("\x1bPq{long}\x1b]52;c;eA==\x07b"), "b"),
                ("\x1b\x7f]52;c;eA==\x07b".to_owned(), "b"),
                ("\x1b[2\x7f1tb".to_owned(), "b"),
                ("\x1b[2\x001tb".to_owned(), "\0b"),
                ("\x1b[0021tb".to_owned(), "b"),
                ("\x1b]052;c;eA==\x07b".to_owned(), "b"),
                ("\x1b]5\x012;c;eA==\x07b".to_owned(), "b"),
                ("\x1b]5\u{9c}2;c;eA==\x07b".to_owned(), "b"),
                ("\x1b[1\u{9d}52;c;xb".to_owned(), "52;c;xb"),
                ("\x1b]0;t\x1b]52;c;eA==\x1b\\b".to_owned(), "b"),
            ] {
                let out = filtered(policy, text.as_bytes());
                let out = out.strip_suffix("\x1b[0m").unwrap();
                let passed = out.rsplit("\x1b\\").next().unwrap();
                assert_eq!(passed, expect, "{policy:?} {:?}", &text[..text.len().min(40)]);
                assert!(!out.contains("52;c;eA") && !out.contains("21t"), "{policy:?} {out:?}");
            }
        }
    }

    #[test]
    fn text_has_no_escapes() {
        let drawn = "\x1b[1mbold\x1b[0m\r\n\x1b]0;t\x07h\u{e4}\x07 10%\r20%\r\nend\x1b[";
        assert_eq!(filtered(EscapePolicy::Text, drawn.as_bytes()), "bold\nh\u{e4} 10%\n20%\nend");
    }

    #[test]
    fn modes_are_reset_at_the_end() {
        let live = |text: &str| filtered(EscapePolicy::Live, text.as_bytes());
        let set = "\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b[?1000;1006h\x1b=";
        assert_eq!(live(set), format!("{set}\x1b[?25h\x1b[?1000l\x1b[?1006l\x1b[?1049l\x1b[?2004l\x1b>\x1b[0m"));
        let undone = "\x1b[?1049h\x1b[?25l\x1b[?25h\x1b[?1049l";
        assert_eq!(live(undone), format!("{undone}\x1b[0m"));
    }
}
