//! `DisplaySafe`: untrusted text made safe to display, so that a person sees exactly which characters it holds.

use std::fmt;

/// Untrusted text for a person: control, escape, bidi and invisible characters appear as `\u{…}`, a newline as ⏎, and
/// the length is bounded. Every prompt, card and list uses this type.
#[derive(Debug, Clone, Copy)]
pub struct DisplaySafe<'a> {
    text: &'a str,
    max: usize,
}

impl<'a> DisplaySafe<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text, max: 4096 }
    }

    /// At most `max` characters, then the number of characters left out.
    pub fn bounded(text: &'a str, max: usize) -> Self {
        Self { text, max }
    }
}

impl fmt::Display for DisplaySafe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, c) in self.text.chars().enumerate() {
            if n == self.max {
                let rest = self.text.chars().count() - n;
                let plural = if rest == 1 { "" } else { "s" };
                return write!(f, "… ({rest} more character{plural})");
            }
            match c {
                '\n' => f.write_str("⏎")?,
                c if is_deceptive(c) => write!(f, "\\u{{{:x}}}", c as u32)?,
                c => fmt::Write::write_char(f, c)?,
            }
        }
        Ok(())
    }
}

/// Characters that do not look like what they are: controls, bidi marks, joiners, tags, fillers, unusual spaces, and
/// letters of other scripts that look like Latin ones.
fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{00a0}' | '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{1680}' | '\u{17b4}'
            | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}'
            | '\u{205f}'..='\u{206f}' | '\u{2800}' | '\u{3000}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}' | '\u{f0000}'..='\u{10ffff}'
            | '\u{e000}'..='\u{f8ff}')
        || is_confusable(c)
}

/// Cyrillic, Greek and full-width look-alikes of ASCII: `rm` spelt with a Cyrillic letter must not read as `rm`.
fn is_confusable(c: char) -> bool {
    matches!(c, '\u{ff01}'..='\u{ff5e}')
        || "аеорсухіјѕԁԛԝһӏАВЕКМНОРСТХІЈЅαικνορτυχΑΒΕΖΗΙΚΜΝΟΡΤΥΧ∕⁄∖．‐‑‒–−ꞌʹ".contains(c)
}

/// A word, quoted for a shell where necessary.
#[must_use]
pub fn quoted(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./=:,@%+".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, shown: &str) {
        assert_eq!(DisplaySafe::new(text).to_string(), shown);
    }

    #[test]
    fn untrusted_text_hides_no_character() {
        check("git push", "git push");
        check("a\nb\tc\r", "a⏎b\\u{9}c\\u{d}");
        check("\u{1b}[2Krm -rf", "\\u{1b}[2Krm -rf");
        check("ls \u{202e}gnp.exe", "ls \\u{202e}gnp.exe");
        check("r\u{200b}m", "r\\u{200b}m");
        check("с\u{61}t", "\\u{441}at");
        check("naïve 日本語 🦀", "naïve 日本語 🦀");
        assert_eq!(DisplaySafe::bounded("abcdef", 4).to_string(), "abcd… (2 more characters)");
    }
}
