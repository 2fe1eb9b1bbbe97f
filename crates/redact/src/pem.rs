//! Blocks of private keys: from their first line to their last, over any number of lines.

use crate::{
    shadow::{Gap, Step, View},
    span::{Look, Rank, Span},
};

/// What is held back, or masked, of a block that does not end.
const CAP: usize = 64 * 1024;
/// What a first line may hold between its dashes.
const LONGEST_HEADER: usize = 64;
/// A run of this length is taken for a part of the key.
const RUN: usize = 16;
/// And one of this length, whatever stands around it.
const SURE: usize = 40;
pub(crate) const STEM: &str = "-----BEGIN ";
/// What stands before the secret lines of a PuTTY key.
pub(crate) const PUTTY: &str = "Private-Lines: ";

/// Looks at the lines of a PuTTY key whose count begins at `start`.
pub(crate) fn look_putty(view: View<'_>, start: usize) -> Look {
    let digits = view.bytes[start..].iter().take(4).take_while(|b| b.is_ascii_digit()).count();
    match digits {
        0 => Look::Nothing,
        _ => body(view, start + digits),
    }
}

/// Looks at a first line that begins at `start`.
pub(crate) fn look(view: View<'_>, start: usize) -> Look {
    let name = start + STEM.len();
    let header = &view.bytes[name..view.len().min(name + LONGEST_HEADER)];
    let Some(dashes) = memchr::memmem::find(header, b"-----") else {
        // Nothing of a first line is secret.
        return Look::Nothing;
    };
    let label = &header[..dashes];
    let upper = label.to_ascii_uppercase();
    let is_private = [&b"PRIVATE KEY"[..], b"STATIC KEY"].iter().any(|k| memchr::memmem::find(&upper, k).is_some());
    if !is_private || !label.iter().all(|b| b.is_ascii_alphanumeric() || *b == b' ') {
        return Look::Nothing;
    }
    body(view, name + dashes + 5)
}

/// The lines behind the first. A line of a key has a long run of base 64, or is a header (`Proc-Type: …`), or is the
/// short last one; two lines of anything else in a row, and the block is over.
fn body(view: View<'_>, start: usize) -> Look {
    let mut walk = view.walk(start);
    let mut line = Line::default();
    let mut key = 0;
    // Where the key ends as far as we know.
    let mut good = start;
    let mut strikes = 0;
    let mut any = false;
    loop {
        let at = walk.at;
        let ended = match walk.step() {
            // The last line begins with dashes, wherever it stands.
            Step::Byte(b'-') if view.bytes[at..].starts_with(b"-----") => {
                return verdict(view, start, at, key + line.runs());
            }
            Step::Byte(b'-') if view.bytes.len() - at < 5 && !view.end && b"-----".starts_with(&view.bytes[at..]) => {
                return Look::Open(first(view, start));
            }
            Step::Byte(b) => {
                any = true;
                // An escaped line break inside a string.
                let escaped = b == b'n' && at > start && view.byte(at - 1) == Some(b'\\');
                match escaped {
                    true => line.undo(),
                    false => line.take(b),
                }
                escaped
            }
            Step::Gap(Gap::Escape) => false,
            Step::Gap(_) if at >= view.len() && view.end => {
                key += line.runs();
                return verdict(view, start, if line.good() || line.runs() > 0 { at } else { good }, key);
            }
            Step::Gap(_) => true,
            Step::More if !any => return Look::Nothing,
            Step::More => return Look::Open(first(view, start)),
        };
        if ended {
            if line.good() {
                (good, strikes) = (at, 0);
                key += line.runs();
            } else if !line.blank() {
                strikes += 1;
            }
            if strikes >= 2 {
                return verdict(view, start, good, key);
            }
            line = Line::default();
        }
        if at - start >= CAP {
            return verdict(view, start, at, key + line.runs());
        }
    }
}

/// Where the body begins: behind what only separates it from its first line.
fn first(view: View<'_>, start: usize) -> usize {
    let skip = view.bytes[start..]
        .iter()
        .take_while(|b| matches!(b, b' ' | b'\t' | b'\\' | b'"' | b'\'' | b'\n' | b'\r'))
        .count();
    // `\n` in a string is two bytes of which the second is a letter.
    let escape =
        skip > 0 && view.byte(start + skip - 1) == Some(b'\\') && matches!(view.byte(start + skip), Some(b'n' | b'r'));
    start + skip + usize::from(escape)
}

fn verdict(view: View<'_>, start: usize, end: usize, key: usize) -> Look {
    let (start, mut end) = (first(view, start), end);
    // What closes a string or begins a line before the last one is not the key's.
    while end > start
        && matches!(
            view.bytes[end - 1],
            b'\n' | b'\r' | b' ' | b'\t' | b'"' | b'\'' | b'+' | b'#' | b'*' | b'>' | b'\\'
        )
    {
        end -= 1;
    }
    if end > start + 1 && &view.bytes[end - 2..end] == b"\\n" {
        end -= 2;
    }
    match key >= 24 && end > start {
        true => Look::Found(Span::new(start, end, "private-key", Rank::Shape)),
        false => Look::Nothing,
    }
}

/// One line of what may be a key.
#[derive(Default)]
struct Line {
    run: usize,
    longest: usize,
    words: usize,
    bytes: usize,
    header: bool,
    /// It holds what no key holds.
    hopeless: bool,
}

impl Line {
    fn take(&mut self, b: u8) {
        self.bytes += 1;
        match b {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'+' | b'/' | b'=' => {
                self.run += 1;
                self.longest = self.longest.max(self.run);
            }
            b'{' | b'}' | b'(' | b')' | b';' | b'<' | b'$' | b'`' | b'%' | b'!' | b'?' => self.hopeless = true,
            _ => {
                self.words += usize::from(self.run > 0);
                self.header |= b == b':';
                self.run = 0;
                self.hopeless |= self.words > 12 && self.longest < RUN;
            }
        }
    }

    /// The last byte was half of an escape and is not part of a run.
    fn undo(&mut self) {
        self.run = 0;
    }

    fn runs(&self) -> usize {
        if self.longest >= RUN { self.longest } else { 0 }
    }

    fn good(&self) -> bool {
        // What no key holds may stand around a line of one: prefixes of logs, ends of strings.
        self.longest >= if self.hopeless { SURE } else { RUN } || !self.hopeless && self.header && self.bytes < 80
    }

    fn blank(&self) -> bool {
        self.longest == 0
    }
}
