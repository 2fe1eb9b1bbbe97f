//! What a task prints, made fit for a person's terminal.
//!
//! Four rules, one reader of escape sequences. *Plain* output (pipes, logs) keeps colour and tabs and shows every
//! other escape as text. A *live* terminal gets everything but what reaches for the clipboard or makes the terminal
//! type for the program: answerback and title reports. A *recording* may ask no question at all: nobody is there who
//! asked, so the answer would be typed into the shell of whoever watches. *Text* is what is left without any of it.

use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EscapePolicy {
    Plain,
    Live,
    Recording,
    Text,
}

/// No sequence that a terminal should obey is longer, but for pictures.
const LONGEST: usize = 4096;
/// A colour needs no more.
const LONGEST_COLOUR: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParserState {
    Ground,
    /// After ESC.
    Escape,
    /// After ESC and an intermediate.
    Intermediate,
    Csi,
    /// OSC, DCS, APC, PM, SOS: until BEL or ST; any other escape breaks it off.
    Text,
    /// An ESC inside such a string.
    TextEscape,
    /// The rest of a string that is too long to be held: a picture that is passed on, or something that is not.
    Long {
        pass: bool,
    },
    LongEscape {
        pass: bool,
    },
}

/// A reader of output. Feed it in any pieces.
///
/// It keeps to the states of a terminal's own parser, and what it holds back it holds as a terminal would see it: without
/// the control characters that act at once, or are ignored, in the middle of a sequence. So what is judged is what would
/// be obeyed.
pub(crate) struct EscapeFilter {
    rule: EscapePolicy,
    state: ParserState,
    held: Vec<u8>,
    /// Bytes of a UTF-8 character that are still to come, and those that came.
    missing: usize,
    character: Vec<u8>,
    /// A carriage return that may belong to a line feed.
    returned: bool,
    coloured: bool,
    /// Private modes that are on and usually off, and the other way round.
    modes: BTreeSet<u16>,
    /// What puts back whatever else was touched.
    touched: BTreeSet<&'static str>,
}

/// Modes that a terminal usually has on.
const USUALLY_ON: &[u16] = &[7, 25];
/// Private modes that change what is shown and nothing else: a recording may have them.
const SHOWN: &[u16] = &[5, 6, 7, 12, 25, 45, 47, 1047, 1048, 1049, 2026];
/// Modes that nobody's terminal may be put into: another kind of terminal, a locked keyboard.
const NEVER_PRIVATE: &[u16] = &[2];
const NEVER: &[u16] = &[2];

impl EscapeFilter {
    pub(crate) fn new(rule: EscapePolicy) -> Self {
        Self {
            rule,
            state: ParserState::Ground,
            held: Vec::new(),
            missing: 0,
            character: Vec::new(),
            returned: false,
            coloured: false,
            modes: BTreeSet::new(),
            touched: BTreeSet::new(),
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len() + 16);
        for b in bytes {
            self.byte(*b, &mut out);
        }
        out
    }

    /// What is left over, and what puts the terminal back to how it usually is.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.lines() {
            if self.rule == EscapePolicy::Plain {
                self.give_up(&mut out);
            }
            self.drop_sequence();
            self.flush_character(&mut out);
            if std::mem::take(&mut self.returned) {
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
        for reset in std::mem::take(&mut self.touched) {
            out.extend_from_slice(reset.as_bytes());
        }
        out.extend_from_slice(b"\x1b[0m");
        out
    }

    /// Whether what comes out is lines, and not a terminal's picture.
    fn lines(&self) -> bool {
        matches!(self.rule, EscapePolicy::Plain | EscapePolicy::Text)
    }

    fn byte(&mut self, b: u8, out: &mut Vec<u8>) {
        match self.state {
            ParserState::Ground => self.ground(b, out),
            _ if self.rule == EscapePolicy::Plain => self.colour(b, out),
            ParserState::Text => self.text(b, out),
            ParserState::TextEscape if b == b'\\' => {
                self.held.extend_from_slice(b"\x1b\\");
                self.end_of_sequence(out);
            }
            // Anything else after ESC breaks the string off and begins something new.
            ParserState::TextEscape => self.begin_again(b, out),
            ParserState::Long { pass } => match b {
                0x1b => self.state = ParserState::LongEscape { pass },
                0x07 | 0x18 | 0x1a => self.end_long(pass, out),
                0x20..=0x7e if pass => out.push(b),
                _ => {}
            },
            ParserState::LongEscape { pass } => {
                self.end_long(pass, out);
                if b != b'\\' {
                    self.begin_again(b, out);
                }
            }
            ParserState::Escape | ParserState::Intermediate | ParserState::Csi => self.sequence(b, out),
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

    /// An escape that came in the middle of something.
    fn begin_again(&mut self, b: u8, out: &mut Vec<u8>) {
        self.held.clear();
        self.held.push(0x1b);
        self.state = ParserState::Escape;
        self.sequence(b, out);
    }

    fn ground(&mut self, b: u8, out: &mut Vec<u8>) {
        if self.missing > 0 {
            if (0x80..0xc0).contains(&b) {
                self.character.push(b);
                self.missing -= 1;
                if self.missing == 0 {
                    self.flush_character(out);
                }
                return;
            }
            // The character broke off.
            self.flush_character(out);
        }
        if self.returned && self.lines() {
            self.returned = false;
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
            // A line that is written over would hide what was there: each goes on its own.
            b'\r' if self.lines() => self.returned = true,
            b'\n' | b'\t' | 0x20..=0x7e => out.push(b),
            _ if self.rule == EscapePolicy::Plain => show(b, out),
            _ if self.rule == EscapePolicy::Text => {}
            b => self.act_at_once(b, out),
        }
    }

    /// A control character outside of any sequence, or in the middle of one.
    fn act_at_once(&mut self, b: u8, out: &mut Vec<u8>) {
        match b {
            // Enquiry: the terminal would answer. The rest of these are ignored, or controls of eight bits.
            0x05 | 0x7f..=0x9f => {}
            b'\n' | b'\t' => out.push(b),
            _ if self.rule == EscapePolicy::Text => {}
            b => {
                if b == 0x0e {
                    self.touched.insert("\x0f");
                }
                out.push(b);
            }
        }
    }

    fn begin_character(&mut self, b: u8, missing: usize) {
        self.missing = missing;
        self.character.push(b);
    }

    /// A character, or what there is of one.
    fn flush_character(&mut self, out: &mut Vec<u8>) {
        self.missing = 0;
        let bytes = std::mem::take(&mut self.character);
        // U+0080 to U+009F are control characters that some terminals obey.
        let control = matches!(bytes[..], [0xc2, 0x80..=0x9f]);
        match (self.rule, control || std::str::from_utf8(&bytes).is_err()) {
            (_, false) => out.extend(bytes),
            (EscapePolicy::Plain, true) => bytes.iter().for_each(|b| show(*b, out)),
            (EscapePolicy::Text, true) => out.extend("\u{fffd}".bytes().filter(|_| !control && !bytes.is_empty())),
            (_, true) if control => {}
            (_, true) => out.extend("\u{fffd}".bytes()),
        }
    }

    /// Plain output: is it a colour?
    fn colour(&mut self, b: u8, out: &mut Vec<u8>) {
        self.held.push(b);
        match (self.state, b) {
            (ParserState::Escape, b'[') => self.state = ParserState::Csi,
            (ParserState::Csi, b'0'..=b'9' | b';' | b':') if self.held.len() < LONGEST_COLOUR => {}
            (ParserState::Csi, b'm') => {
                self.coloured = true;
                out.append(&mut self.held);
                self.state = ParserState::Ground;
            }
            _ => self.give_up(out),
        }
    }

    /// What was taken for the beginning of a colour is none: it is shown.
    fn give_up(&mut self, out: &mut Vec<u8>) {
        self.state = ParserState::Ground;
        let held = std::mem::take(&mut self.held);
        if let Some((first, rest)) = held.split_first() {
            show(*first, out);
            rest.iter().for_each(|b| self.byte(*b, out));
        }
    }

    /// After ESC, after an intermediate, or in a control sequence.
    fn sequence(&mut self, b: u8, out: &mut Vec<u8>) {
        match (self.state, b) {
            (_, 0x1b) => {
                self.held.clear();
                self.held.push(b);
                self.state = ParserState::Escape;
            }
            (_, 0x18 | 0x1a) => self.drop_sequence(),
            (_, 0x00..=0x1f | 0x7f) => self.act_at_once(b, out),
            // Not of any sequence: it was broken off.
            (_, 0x80..) => {
                self.drop_sequence();
                self.ground(b, out);
            }
            (ParserState::Escape, b'[') => self.go_on(ParserState::Csi, b),
            (ParserState::Escape, b']' | b'P' | b'X' | b'^' | b'_') => self.go_on(ParserState::Text, b),
            (ParserState::Escape | ParserState::Intermediate, 0x20..=0x2f) => self.go_on(ParserState::Intermediate, b),
            (ParserState::Csi, 0x20..=0x3f) => self.go_on(ParserState::Csi, b),
            _ => {
                self.held.push(b);
                self.end_of_sequence(out);
            }
        }
    }

    fn go_on(&mut self, state: ParserState, b: u8) {
        self.state = state;
        if self.held.len() < LONGEST {
            self.held.push(b);
        }
    }

    fn text(&mut self, b: u8, out: &mut Vec<u8>) {
        match b {
            0x07 => {
                self.held.push(b);
                self.end_of_sequence(out);
            }
            0x1b => self.state = ParserState::TextEscape,
            0x18 | 0x1a => self.drop_sequence(),
            // Ignored by a terminal, or a control of its own.
            0x00..=0x1f | 0x7f => {}
            0x80..=0x9f if self.held.last() == Some(&0xc2) => drop(self.held.pop()),
            _ if self.held.len() < LONGEST => self.held.push(b),
            _ => {
                let pass = is_picture(&self.held) && self.rule != EscapePolicy::Text;
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
        if self.held.len() < LONGEST && self.passes() {
            self.note();
            out.append(&mut self.held);
        }
        self.drop_sequence();
    }

    /// Whether the sequence that is held may reach the terminal.
    fn passes(&self) -> bool {
        match (self.rule, &self.held[..]) {
            (EscapePolicy::Live, [0x1b, b']', rest @ ..]) => {
                let clipboard = match number(rest) {
                    Some(52 | 5522) => true,
                    Some(1337) => rest.windows(4).any(|w| w.eq_ignore_ascii_case(b"copy")),
                    _ => false,
                };
                !clipboard
            }
            (EscapePolicy::Live, [0x1b, b'[', rest @ .., last]) => {
                let csi = ControlSequence::read(rest);
                match (last, csi.prefix) {
                    (b't', _) => !matches!(csi.numbers.first(), Some(20 | 21)),
                    (b'h' | b'l', Some(b'?')) => !csi.numbers.iter().any(|n| NEVER_PRIVATE.contains(n)),
                    (b'h' | b'l', None) => !csi.numbers.iter().any(|n| NEVER.contains(n)),
                    _ => true,
                }
            }
            // Answers of eight bits.
            (EscapePolicy::Live, [0x1b, b' ', ..]) => false,
            (EscapePolicy::Live, _) => true,
            (EscapePolicy::Recording, held) => draws(held),
            (EscapePolicy::Plain | EscapePolicy::Text, _) => false,
        }
    }

    /// What must be put back at the end.
    fn note(&mut self) {
        match &self.held[..] {
            [0x1b, b'[', rest @ .., last] => {
                let csi = ControlSequence::read(rest);
                match (csi.prefix, last) {
                    (Some(b'?'), b'h' | b'l') => {
                        for mode in csi.numbers {
                            let changed = (*last == b'h') != USUALLY_ON.contains(&mode);
                            match changed {
                                true => self.modes.insert(mode),
                                false => self.modes.remove(&mode),
                            };
                        }
                    }
                    (None, b'h') if csi.numbers.contains(&4) => drop(self.touched.insert("\x1b[4l")),
                    (None, b'h') if csi.numbers.contains(&20) => drop(self.touched.insert("\x1b[20l")),
                    (None, b'r') => drop(self.touched.insert("\x1b7\x1b[r\x1b8")),
                    (None, b'q') if csi.intermediates == b" " => drop(self.touched.insert("\x1b[0 q")),
                    (Some(b'>'), b'm') => drop(self.touched.insert("\x1b[>4m")),
                    (Some(b'>'), b'u') => drop(self.touched.insert("\x1b[<32u")),
                    (Some(b'='), b'u') => drop(self.touched.insert("\x1b[=0u")),
                    _ => {}
                }
            }
            [0x1b, b'='] => drop(self.touched.insert("\x1b>")),
            [0x1b, b'(' | b')' | b'*' | b'+', ..] => drop(self.touched.insert("\x1b(B\x1b)B\x0f")),
            _ => {}
        }
    }
}

/// A control sequence, as a terminal reads it.
struct ControlSequence<'a> {
    prefix: Option<u8>,
    numbers: Vec<u16>,
    intermediates: &'a [u8],
}

impl<'a> ControlSequence<'a> {
    fn read(rest: &'a [u8]) -> Self {
        let prefix = rest.first().copied().filter(|b| (0x3c..=0x3f).contains(b));
        let rest = &rest[usize::from(prefix.is_some())..];
        let end = rest.iter().position(|b| (0x20..=0x2f).contains(b)).unwrap_or(rest.len());
        let numbers = rest[..end].split(|b| matches!(b, b';' | b':')).map(|n| number(n).unwrap_or(0)).collect();
        Self { prefix, numbers, intermediates: &rest[end..] }
    }
}

/// The digits at the beginning, however many zeros are before them.
fn number(text: &[u8]) -> Option<u16> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit());
    let add = |n: Option<u16>, b: &u8| Some(n.unwrap_or(0).saturating_mul(10).saturating_add(u16::from(b - b'0')));
    digits.fold(None, add)
}

/// Whether a sequence does nothing but draw: all that a recording may do.
fn draws(held: &[u8]) -> bool {
    match held {
        [0x1b, b'[', rest @ .., last] => {
            let csi = ControlSequence::read(rest);
            match (csi.prefix, csi.intermediates, last) {
                (None, b"", b'@'..=b'Z' | b'`' | b'a' | b'b' | b'd' | b'e' | b'f' | b'g' | b'm' | b'r' | b's') => true,
                (None, b"", b'u') => rest.is_empty(),
                (None, b"", b'h' | b'l') => csi.numbers == [4],
                (None, b" ", b'q') | (None, b"!", b'p') | (None, b"\"", b'q') => true,
                (Some(b'?'), b"", b'J' | b'K') => true,
                (Some(b'?'), b"", b'h' | b'l') => csi.numbers.iter().all(|n| SHOWN.contains(n)),
                _ => false,
            }
        }
        // Titles, and links.
        [0x1b, b']', rest @ ..] => matches!(number(rest), Some(0 | 1 | 2 | 8)),
        [0x1b, b'P', ..] => is_picture(held),
        [0x1b, b'(' | b')' | b'*' | b'+' | b'#', _] => true,
        [0x1b, last] => b"78DEHMc=>no|}~".contains(last),
        _ => false,
    }
}

/// A picture in the format that terminals draw: numbers, then `q`.
fn is_picture(held: &[u8]) -> bool {
    let Some(rest) = held.strip_prefix(b"\x1bP") else { return false };
    rest.iter().find(|b| !b.is_ascii_digit() && **b != b';') == Some(&b'q')
}

/// A byte that is not obeyed, as text.
fn show(b: u8, out: &mut Vec<u8>) {
    out.extend(format!("\\x{b:02x}").bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(rule: EscapePolicy, text: &[u8]) -> String {
        let whole = {
            let mut filter = EscapeFilter::new(rule);
            let mut out = filter.feed(text);
            out.extend(filter.finish());
            out
        };
        for size in 1..6 {
            let mut filter = EscapeFilter::new(rule);
            let mut out: Vec<u8> = text.chunks(size).flat_map(|piece| filter.feed(piece)).collect();
            out.extend(filter.finish());
            assert_eq!(out, whole, "pieces of {size}");
        }
        String::from_utf8_lossy(&whole).into_owned()
    }

    #[test]
    fn plain_output_keeps_colour_and_tabs_and_shows_the_rest() {
        let plain = |text: &str| through(EscapePolicy::Plain, text.as_bytes());
        assert_eq!(plain("a\tb\n"), "a\tb\n");
        assert_eq!(plain("\x1b[1;31mred\x1b[0m\n"), "\x1b[1;31mred\x1b[0m\n\x1b[0m");
        assert_eq!(plain("\x1b[2J\x1b]0;title\x07x"), "\\x1b[2J\\x1b]0;title\\x07x");
        assert_eq!(plain("\x1b]52;c;aGk=\x1b\\"), "\\x1b]52;c;aGk=\\x1b\\");
        assert_eq!(plain("a\x08b\x1b"), "a\\x08b\\x1b");
        assert_eq!(plain("one\r\ntwo\rthree\r"), "one\ntwo\nthree\n");
        assert_eq!(plain("h\u{e4} \u{4f60} \u{9b}2J"), "h\u{e4} \u{4f60} \\xc2\\x9b2J");
        assert_eq!(plain("\x1b[?25l\x1b[38:2:1:2:3mx"), "\\x1b[?25l\x1b[38:2:1:2:3mx\x1b[0m");
        assert_eq!(through(EscapePolicy::Plain, b"\xff\x9b2J\xe4\xbd"), "\\xff\\x9b2J\\xe4\\xbd");
        assert_eq!(plain("\x1b[\x1b[31mx"), "\\x1b[\x1b[31mx\x1b[0m");
    }

    #[test]
    fn a_live_terminal_keeps_its_clipboard_and_types_nothing() {
        let live = |text: &str| through(EscapePolicy::Live, text.as_bytes());
        assert_eq!(live("a\x1b]52;c;aGk=\x07b\x1b]52;c;?\x1b\\c"), "abc\x1b[0m");
        assert_eq!(live("\x1b[21tx\x05y\x1b[20tz"), "xyz\x1b[0m");
        assert_eq!(live("\x1b[6n\x1b[c\x1b]11;?\x07"), "\x1b[6n\x1b[c\x1b]11;?\x07\x1b[0m");
        assert_eq!(live("\x1b]0;t\x07\x1b[2J\x1b[1;1H\u{9d}52;c;x"), "\x1b]0;t\x07\x1b[2J\x1b[1;1H52;c;x\x1b[0m");
        let long = format!("\x1b]52;c;{}\x07after", "A".repeat(3 * LONGEST));
        assert_eq!(live(&long), "after\x1b[0m");
        let image = format!("\x1bPq{}\x1b\\after", "~".repeat(3 * LONGEST));
        assert_eq!(live(&image), format!("{image}\x1b[0m"));
    }

    #[test]
    fn a_recording_asks_nothing() {
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
                through(EscapePolicy::Recording, format!("a{question}b").as_bytes()),
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
                through(EscapePolicy::Recording, format!("a{more}b").as_bytes()).replace(['\x07', ']'], ""),
                "ab\x1b[0m",
                "{more:?}"
            );
        }
        let drawn = "\x1b[2J\x1b[3;4H\x1b[1mx\x1b[0m\x1b[2 q\x1b]0;t\x07";
        assert_eq!(through(EscapePolicy::Recording, drawn.as_bytes()), format!("{drawn}\x1b[0 q\x1b[0m"));
    }

    /// Every way around the rules that a parser of its own would open.
    #[test]
    fn what_is_judged_is_what_a_terminal_would_obey() {
        let long = "A".repeat(LONGEST + 1000);
        for rule in [EscapePolicy::Live, EscapePolicy::Recording] {
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
                let out = through(rule, text.as_bytes());
                let out = out.strip_suffix("\x1b[0m").unwrap();
                let kept = out.rsplit("\x1b\\").next().unwrap();
                assert_eq!(kept, expect, "{rule:?} {:?}", &text[..text.len().min(40)]);
                assert!(!out.contains("52;c;eA") && !out.contains("21t"), "{rule:?} {out:?}");
            }
        }
    }

    #[test]
    fn text_is_what_is_left() {
        let drawn = "\x1b[1mbold\x1b[0m\r\n\x1b]0;t\x07h\u{e4}\x07 10%\r20%\r\nend\x1b[";
        assert_eq!(through(EscapePolicy::Text, drawn.as_bytes()), "bold\nh\u{e4} 10%\n20%\nend");
    }

    #[test]
    fn modes_are_put_back() {
        let live = |text: &str| through(EscapePolicy::Live, text.as_bytes());
        let set = "\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b[?1000;1006h\x1b=";
        assert_eq!(live(set), format!("{set}\x1b[?25h\x1b[?1000l\x1b[?1006l\x1b[?1049l\x1b[?2004l\x1b>\x1b[0m"));
        let undone = "\x1b[?1049h\x1b[?25l\x1b[?25h\x1b[?1049l";
        assert_eq!(live(undone), format!("{undone}\x1b[0m"));
    }
}
