//! What a task prints, made fit for a person's terminal.
//!
//! Four rules, one reader of escape sequences. *Plain* output (pipes, logs) keeps colour and tabs and shows every
//! other escape as text. A *live* terminal gets everything but what reaches for the clipboard or makes the terminal
//! type for the program: answerback and title reports. A *recording* may ask no question at all: nobody is there who
//! asked, so the answer would be typed into the shell of whoever watches. *Text* is what is left without any of it.

use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    Plain,
    Live,
    Recording,
    Text,
}

/// Longer sequences are decided by their beginning; strings beyond it pass or go as that says.
const LONGEST: usize = 4096;
/// A colour needs no more.
const LONGEST_COLOUR: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ground,
    /// After ESC.
    Escape,
    Csi,
    /// OSC, DCS, APC, PM, SOS: until BEL or ST.
    Text,
    /// An ESC inside such a string.
    TextEscape,
    /// The rest of a string that is too long to be held: passed on, or not.
    LongText {
        pass: bool,
        escape: bool,
    },
}

/// A reader of output. Feed it in any pieces.
pub(crate) struct Filter {
    rule: Rule,
    state: State,
    held: Vec<u8>,
    /// Bytes of a UTF-8 character that are still to come, and those that came.
    missing: usize,
    character: Vec<u8>,
    /// A carriage return that may belong to a line feed.
    returned: bool,
    coloured: bool,
    /// Private modes that are on and usually off, and the other way round.
    modes: BTreeSet<u16>,
    /// Whether the keypad, margins, insert mode, charset or cursor shape were touched.
    touched: BTreeSet<&'static str>,
}

/// Modes that a terminal usually has on.
const USUALLY_ON: &[u16] = &[7, 25];

impl Filter {
    pub(crate) fn new(rule: Rule) -> Self {
        Self {
            rule,
            state: State::Ground,
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
            if self.rule == Rule::Plain {
                self.give_up(&mut out);
            }
            self.held.clear();
            self.state = State::Ground;
            self.flush_character(&mut out);
            if std::mem::take(&mut self.returned) {
                out.push(b'\n');
            }
            if std::mem::take(&mut self.coloured) {
                out.extend_from_slice(b"\x1b[0m");
            }
            return out;
        }
        self.held.clear();
        self.state = State::Ground;
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
        matches!(self.rule, Rule::Plain | Rule::Text)
    }

    fn byte(&mut self, b: u8, out: &mut Vec<u8>) {
        match self.state {
            State::Ground => self.ground(b, out),
            State::Escape => self.escape(b, out),
            State::Csi => self.csi(b, out),
            State::Text => self.text(b, out),
            State::TextEscape => {
                self.held.push(b);
                match b {
                    b'\\' => self.end_of_sequence(out),
                    // Anything else after ESC ends the string and begins something new.
                    _ => {
                        self.held.clear();
                        self.state = State::Escape;
                        self.held.push(0x1b);
                        self.escape(b, out);
                    }
                }
            }
            State::LongText { pass, escape } => {
                if pass {
                    out.push(b);
                }
                let over = b == 0x07 || (escape && b == b'\\') || matches!(b, 0x18 | 0x1a);
                self.state = if over { State::Ground } else { State::LongText { pass, escape: b == 0x1b } };
            }
        }
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
                self.state = State::Escape;
                self.held.push(b);
            }
            0xc2..=0xdf => self.begin_character(b, 1),
            0xe0..=0xef => self.begin_character(b, 2),
            0xf0..=0xf4 => self.begin_character(b, 3),
            // A line that is written over would hide what was there: each goes on its own.
            b'\r' if self.lines() => self.returned = true,
            b'\n' | b'\t' | 0x20..=0x7e => out.push(b),
            _ if self.rule == Rule::Plain => show(b, out),
            _ if self.rule == Rule::Text => {}
            // Enquiry: the terminal would answer.
            0x05 => {}
            // Control characters of eight bits, outside of any character.
            0x80..=0x9f => {}
            b => out.push(b),
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
            (Rule::Plain, true) => bytes.iter().for_each(|b| show(*b, out)),
            (Rule::Text, true) => out.extend("\u{fffd}".bytes().filter(|_| !control && !bytes.is_empty())),
            (_, true) if control => {}
            (_, true) => out.extend(bytes),
        }
    }

    fn escape(&mut self, b: u8, out: &mut Vec<u8>) {
        if self.rule == Rule::Plain {
            self.held.push(b);
            match b {
                b'[' => self.state = State::Csi,
                _ => self.give_up(out),
            }
            return;
        }
        match b {
            b'[' => self.go_on(State::Csi, b),
            b']' | b'P' | b'X' | b'^' | b'_' => self.go_on(State::Text, b),
            // Intermediates: one more byte decides.
            0x20..=0x2f => self.held.push(b),
            0x1b => {
                self.held.clear();
                self.held.push(b);
            }
            0x00..=0x1f => self.ground_in_sequence(b, out),
            _ => {
                self.held.push(b);
                self.end_of_sequence(out);
            }
        }
    }

    fn go_on(&mut self, state: State, b: u8) {
        self.held.push(b);
        self.state = state;
    }

    fn csi(&mut self, b: u8, out: &mut Vec<u8>) {
        if self.rule == Rule::Plain {
            self.held.push(b);
            match b {
                b'0'..=b'9' | b';' | b':' if self.held.len() < LONGEST_COLOUR => {}
                b'm' => {
                    self.coloured = true;
                    out.append(&mut self.held);
                    self.state = State::Ground;
                }
                _ => self.give_up(out),
            }
            return;
        }
        match b {
            0x40..=0x7e => {
                self.held.push(b);
                self.end_of_sequence(out);
            }
            0x1b => {
                self.held.clear();
                self.held.push(b);
                self.state = State::Escape;
            }
            0x18 | 0x1a => {
                self.held.clear();
                self.state = State::Ground;
            }
            // Other controls act at once, in the middle of a sequence.
            0x00..=0x1f => self.ground_in_sequence(b, out),
            _ if self.held.len() < LONGEST => self.held.push(b),
            _ => {
                self.held.clear();
                self.state = State::Ground;
            }
        }
    }

    fn ground_in_sequence(&mut self, b: u8, out: &mut Vec<u8>) {
        if b != 0x05 && (self.rule != Rule::Text || matches!(b, b'\n' | b'\t')) {
            out.push(b);
        }
    }

    fn text(&mut self, b: u8, out: &mut Vec<u8>) {
        self.held.push(b);
        match b {
            0x07 => self.end_of_sequence(out),
            0x1b => self.state = State::TextEscape,
            0x18 | 0x1a => {
                self.held.clear();
                self.state = State::Ground;
            }
            _ if self.held.len() >= LONGEST => {
                let pass = self.passes();
                if pass {
                    out.append(&mut self.held);
                }
                self.held.clear();
                self.state = State::LongText { pass, escape: false };
            }
            _ => {}
        }
    }

    fn end_of_sequence(&mut self, out: &mut Vec<u8>) {
        if self.passes() {
            self.note();
            out.append(&mut self.held);
        }
        self.held.clear();
        self.state = State::Ground;
    }

    /// What was taken for the beginning of a colour is none: it is shown.
    fn give_up(&mut self, out: &mut Vec<u8>) {
        self.state = State::Ground;
        let held = std::mem::take(&mut self.held);
        if let Some((first, rest)) = held.split_first() {
            show(*first, out);
            rest.iter().for_each(|b| self.byte(*b, out));
        }
    }

    /// Whether the sequence that is held may reach the terminal.
    fn passes(&self) -> bool {
        let recording = self.rule == Rule::Recording;
        if self.rule == Rule::Text {
            return false;
        }
        match &self.held[..] {
            [0x1b, b']', rest @ ..] => {
                let clipboard =
                    [&b"52;"[..], b"5522;", b"1337;Copy", b"1337;EndCopy"].iter().any(|p| rest.starts_with(p));
                let question = rest.split(|b| *b == b';').any(|part| matches!(part, [b'?', ..]));
                !(clipboard || recording && question)
            }
            // Requests for settings and capabilities.
            [0x1b, b'P', rest @ ..] => !(recording && (rest.starts_with(b"$q") || rest.starts_with(b"+q"))),
            [0x1b, b'Z'] => !recording,
            [0x1b, b'[', rest @ .., last] => {
                let numbers = numbers(rest);
                match last {
                    b't' if matches!(numbers.first(), Some(20 | 21)) => false,
                    b't' => !(recording && matches!(numbers.first(), Some(11..=19))),
                    b'c' | b'n' | b'x' => !recording,
                    b'p' => !(recording && rest.contains(&b'$')),
                    b'q' => !(recording && rest.starts_with(b">")),
                    b'u' => !(recording && rest.starts_with(b"?")),
                    _ => true,
                }
            }
            _ => true,
        }
    }

    /// What must be put back at the end.
    fn note(&mut self) {
        match &self.held[..] {
            [0x1b, b'[', b'?', rest @ .., last @ (b'h' | b'l')] => {
                for mode in numbers(rest) {
                    let changed = (*last == b'h') != USUALLY_ON.contains(&mode);
                    match changed {
                        true => self.modes.insert(mode),
                        false => self.modes.remove(&mode),
                    };
                }
            }
            [0x1b, b'[', b'4', b'h'] => drop(self.touched.insert("\x1b[4l")),
            [0x1b, b'[', .., b'r'] => drop(self.touched.insert("\x1b7\x1b[r\x1b8")),
            [0x1b, b'[', .., b' ', b'q'] => drop(self.touched.insert("\x1b[0 q")),
            [0x1b, b'[', b'>', .., b'm'] => drop(self.touched.insert("\x1b[>4m")),
            [0x1b, b'[', b'>', .., b'u'] => drop(self.touched.insert("\x1b[<u")),
            [0x1b, b'='] => drop(self.touched.insert("\x1b>")),
            [0x1b, b'(' | b')', ..] => drop(self.touched.insert("\x1b(B\x1b)B\x0f")),
            _ => {}
        }
    }
}

fn numbers(text: &[u8]) -> Vec<u16> {
    let digits = text.split(|b| *b == b';').map(|part| String::from_utf8_lossy(part));
    digits.filter_map(|part| part.trim_start_matches(['?', '>', '=', '<']).parse().ok()).collect()
}

/// A byte that is not obeyed, as text.
fn show(b: u8, out: &mut Vec<u8>) {
    out.extend(format!("\\x{b:02x}").bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(rule: Rule, text: &[u8]) -> String {
        let whole = {
            let mut filter = Filter::new(rule);
            let mut out = filter.feed(text);
            out.extend(filter.finish());
            out
        };
        for size in 1..6 {
            let mut filter = Filter::new(rule);
            let mut out: Vec<u8> = text.chunks(size).flat_map(|piece| filter.feed(piece)).collect();
            out.extend(filter.finish());
            assert_eq!(out, whole, "pieces of {size}");
        }
        String::from_utf8_lossy(&whole).into_owned()
    }

    #[test]
    fn plain_output_keeps_colour_and_tabs_and_shows_the_rest() {
        let plain = |text: &str| through(Rule::Plain, text.as_bytes());
        assert_eq!(plain("a\tb\n"), "a\tb\n");
        assert_eq!(plain("\x1b[1;31mred\x1b[0m\n"), "\x1b[1;31mred\x1b[0m\n\x1b[0m");
        assert_eq!(plain("\x1b[2J\x1b]0;title\x07x"), "\\x1b[2J\\x1b]0;title\\x07x");
        assert_eq!(plain("\x1b]52;c;aGk=\x1b\\"), "\\x1b]52;c;aGk=\\x1b\\");
        assert_eq!(plain("a\x08b\x1b"), "a\\x08b\\x1b");
        assert_eq!(plain("one\r\ntwo\rthree\r"), "one\ntwo\nthree\n");
        assert_eq!(plain("h\u{e4} \u{4f60} \u{9b}2J"), "h\u{e4} \u{4f60} \\xc2\\x9b2J");
        assert_eq!(plain("\x1b[?25l\x1b[38:2:1:2:3mx"), "\\x1b[?25l\x1b[38:2:1:2:3mx\x1b[0m");
        assert_eq!(through(Rule::Plain, b"\xff\x9b2J\xe4\xbd"), "\\xff\\x9b2J\\xe4\\xbd");
        assert_eq!(plain("\x1b[\x1b[31mx"), "\\x1b[\x1b[31mx\x1b[0m");
    }

    #[test]
    fn a_live_terminal_keeps_its_clipboard_and_types_nothing() {
        let live = |text: &str| through(Rule::Live, text.as_bytes());
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
            assert_eq!(through(Rule::Recording, format!("a{question}b").as_bytes()), "ab\x1b[0m", "{question:?}");
        }
        let drawn = "\x1b[2J\x1b[3;4H\x1b[1mx\x1b[0m\x1b[2 q\x1b]0;t\x07";
        assert_eq!(through(Rule::Recording, drawn.as_bytes()), format!("{drawn}\x1b[0 q\x1b[0m"));
    }

    #[test]
    fn text_is_what_is_left() {
        let drawn = "\x1b[1mbold\x1b[0m\r\n\x1b]0;t\x07h\u{e4}\x07 10%\r20%\r\nend\x1b[";
        assert_eq!(through(Rule::Text, drawn.as_bytes()), "bold\nh\u{e4} 10%\n20%\nend");
    }

    #[test]
    fn modes_are_put_back() {
        let live = |text: &str| through(Rule::Live, text.as_bytes());
        let set = "\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b[?1000;1006h\x1b=";
        assert_eq!(live(set), format!("{set}\x1b[?25h\x1b[?1000l\x1b[?1006l\x1b[?1049l\x1b[?2004l\x1b>\x1b[0m"));
        let undone = "\x1b[?1049h\x1b[?25l\x1b[?25h\x1b[?1049l";
        assert_eq!(live(undone), format!("{undone}\x1b[0m"));
    }
}
