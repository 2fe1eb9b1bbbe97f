//! Finds blocks of private keys, from the first line to the last, over any number of lines.

use crate::{
    span::{Inspection, Rank, Span},
    visible_text::{TextGap, TextView, WalkStep},
};

/// The most that is held or redacted of a block without an end.
const MAX_BLOCK_BYTES: usize = 64 * 1024;
/// The longest key in a link or a form.
const MAX_ENCODED_BYTES: usize = 16 * 1024;
/// The longest label between the dashes of a first line.
const MAX_LABEL_BYTES: usize = 64;
/// A run of base64 of this length counts as part of the key.
const MIN_KEY_RUN_BYTES: usize = 16;
/// A run of this length counts even on a line with bytes that no key contains.
const MIN_CERTAIN_RUN_BYTES: usize = 40;
/// A block with fewer bytes of base64 is no key.
const MIN_KEY_BYTES: usize = 24;
pub(crate) const PEM_START: &str = "-----BEGIN ";
/// The beginning of the first line of a key in the form of SSH2, and of its last line.
pub(crate) const SSH2_START: &str = "---- BEGIN SSH2 ";
const SSH2_END: &[u8] = b"---- END";
/// Precedes the secret lines of a PuTTY key.
pub(crate) const PUTTY_START: &str = "Private-Lines: ";

/// Inspects the lines of a PuTTY key; their count begins at `start`.
pub(crate) fn inspect_putty(view: TextView<'_>, start: usize) -> Inspection {
    let digits = view.bytes[start..].iter().take(4).take_while(|b| b.is_ascii_digit()).count();
    if digits == 0 { Inspection::Nothing } else { inspect_body(view, start + digits) }
}

/// Inspects a key in a link or a form: `-----BEGIN+PRIVATE+KEY-----%0AV%0A-----END`; the label begins at `end`.
pub(crate) fn inspect_encoded_pem(view: TextView<'_>, _start: usize, end: usize) -> Inspection {
    let limit = end + MAX_ENCODED_BYTES;
    let until = view.until_moved(end).min(limit);
    let text = &view.bytes[end..until.max(end)];
    let label = &text[..text.len().min(MAX_LABEL_BYTES)];
    let Some(dashes) = memchr::memmem::find(label, b"-----") else { return Inspection::Nothing };
    if memchr::memmem::find(&label[..dashes], b"PRIVATE").is_none() {
        return Inspection::Nothing;
    }
    let from = dashes + 5;
    let is_link = |b: &u8| b.is_ascii_alphanumeric() || b"%+/=-_.~:,".contains(b);
    let stop = text[from..].iter().position(|b| !is_link(b));
    let body = &text[from..from + stop.unwrap_or(text.len() - from)];
    let last_line = memchr::memmem::find(body, b"-----");
    let ends = last_line.or(stop).is_some() || view.end || until == limit || view.is_moved_at(until);
    let body = &body[..last_line.unwrap_or(body.len())];
    // The line breaks around it stay.
    const BREAKS: [&[u8]; 4] = [b"%0A", b"%0D", b"%0a", b"%0d"];
    let mut key = body;
    while let Some(rest) = BREAKS.iter().find_map(|b| key.strip_prefix(*b)) {
        key = rest;
    }
    let before = body.len() - key.len();
    while let Some(rest) = BREAKS.iter().find_map(|b| key.strip_suffix(*b)) {
        key = rest;
    }
    let range = end + from + before..end + from + before + key.len();
    if !ends && before < body.len() {
        Inspection::Open(range.start)
    } else if ends && range.len() >= MIN_KEY_BYTES {
        Inspection::Found(Span::new(range.start, range.end, "private-key", Rank::Shape))
    } else {
        Inspection::Nothing
    }
}

/// Inspects a first line that begins at `start`.
pub(crate) fn inspect_pem(view: TextView<'_>, start: usize) -> Inspection {
    let is_ssh2 = view.bytes[start..].starts_with(SSH2_START.as_bytes());
    let (name, dashes_after) =
        if is_ssh2 { (start + SSH2_START.len(), &b" ----"[..]) } else { (start + PEM_START.len(), &b"-----"[..]) };
    let header = &view.bytes[name..view.len().min(name + MAX_LABEL_BYTES)];
    let Some(dashes) = memchr::memmem::find(header, dashes_after) else {
        // A first line contains no secret, so nothing has to be held.
        return Inspection::Nothing;
    };
    let label = &header[..dashes];
    let upper = label.to_ascii_uppercase();
    let is_private = [&b"PRIVATE KEY"[..], b"STATIC KEY"].iter().any(|k| memchr::memmem::find(&upper, k).is_some());
    if !is_private || !label.iter().all(|b| b.is_ascii_alphanumeric() || *b == b' ') {
        return Inspection::Nothing;
    }
    inspect_body(view, name + dashes + 5)
}

/// Inspects the lines behind the first. A line of a key has a long run of base64, or is a header (`Proc-Type: …`), or is the
/// short last one. Two other lines in a row end the block.
fn inspect_body(view: TextView<'_>, start: usize) -> Inspection {
    let mut walk = view.walk(start);
    let mut line = KeyLine::default();
    let mut key = 0;
    // The end of the key so far.
    let mut good = start;
    let mut strikes = 0;
    let mut any = false;
    loop {
        let at = walk.at;
        let ended = match walk.step() {
            // The last line begins with dashes; other text may precede them.
            WalkStep::Byte(b'-')
                if view.bytes[at..].starts_with(b"-----") || view.bytes[at..].starts_with(SSH2_END) =>
            {
                return conclude(view, start, at, key + line.run_bytes());
            }
            WalkStep::Byte(b'-')
                if !view.end && [b"-----", SSH2_END].iter().any(|end| end.starts_with(&view.bytes[at..])) =>
            {
                return Inspection::Open(body_start(view, start));
            }
            WalkStep::Byte(b) => {
                any = true;
                // An escaped line break inside a string.
                let escaped = b == b'n' && at > start && view.byte(at - 1) == Some(b'\\');
                if escaped {
                    line.end_run();
                } else {
                    line.push_byte(b);
                }
                escaped
            }
            WalkStep::Gap(TextGap::Escape) => false,
            WalkStep::Gap(_) if at >= view.len() && view.end => {
                key += line.run_bytes();
                return conclude(view, start, if line.is_key_line() || line.run_bytes() > 0 { at } else { good }, key);
            }
            WalkStep::Gap(_) => true,
            WalkStep::More if !any => return Inspection::Nothing,
            WalkStep::More => return Inspection::Open(body_start(view, start)),
        };
        if ended {
            if line.is_key_line() {
                (good, strikes) = (at, 0);
                key += line.run_bytes();
            } else if !line.is_blank() {
                strikes += 1;
            }
            if strikes >= 2 {
                return conclude(view, start, good, key);
            }
            line = KeyLine::default();
        }
        if at - start >= MAX_BLOCK_BYTES {
            return conclude(view, start, at, key + line.run_bytes());
        }
    }
}

/// The start of the body, behind the bytes that separate it from the first line.
fn body_start(view: TextView<'_>, start: usize) -> usize {
    let skip = view.bytes[start..]
        .iter()
        .take_while(|b| matches!(b, b' ' | b'\t' | b'\\' | b'"' | b'\'' | b'\n' | b'\r'))
        .count();
    // An escaped `\n` is two bytes, and the second is a letter.
    let escape =
        skip > 0 && view.byte(start + skip - 1) == Some(b'\\') && matches!(view.byte(start + skip), Some(b'n' | b'r'));
    start + skip + usize::from(escape)
}

fn conclude(view: TextView<'_>, start: usize, end: usize, key: usize) -> Inspection {
    let (start, mut end) = (body_start(view, start), end);
    // Bytes that close a string or precede the last line do not belong to the key.
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
    if key >= MIN_KEY_BYTES && end > start {
        Inspection::Found(Span::new(start, end, "private-key", Rank::Shape))
    } else {
        Inspection::Nothing
    }
}

/// One line that may belong to a key.
#[derive(Default)]
struct KeyLine {
    run: usize,
    longest: usize,
    words: usize,
    bytes: usize,
    header: bool,
    /// It contains bytes that no key contains.
    has_foreign_bytes: bool,
}

impl KeyLine {
    fn push_byte(&mut self, b: u8) {
        self.bytes += 1;
        match b {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'+' | b'/' | b'=' => {
                self.run += 1;
                self.longest = self.longest.max(self.run);
            }
            b'{' | b'}' | b'(' | b')' | b';' | b'<' | b'$' | b'`' | b'%' | b'!' | b'?' => self.has_foreign_bytes = true,
            _ => {
                self.words += usize::from(self.run > 0);
                self.header |= b == b':';
                self.run = 0;
                self.has_foreign_bytes |= self.words > 12 && self.longest < MIN_KEY_RUN_BYTES;
            }
        }
    }

    /// Ends the run: the last byte was part of an escape.
    fn end_run(&mut self) {
        self.run = 0;
    }

    fn run_bytes(&self) -> usize {
        if self.longest >= MIN_KEY_RUN_BYTES { self.longest } else { 0 }
    }

    fn is_key_line(&self) -> bool {
        // Such bytes may surround a line of a key: log prefixes, ends of strings.
        self.longest >= if self.has_foreign_bytes { MIN_CERTAIN_RUN_BYTES } else { MIN_KEY_RUN_BYTES }
            || !self.has_foreign_bytes && self.header && self.bytes < 80
    }

    /// Whether it has at most what surrounds an empty line in program text: `" +`, `\r`.
    fn is_blank(&self) -> bool {
        self.longest <= 1 && self.bytes <= 12
    }
}
