//! What is typed while a terminal does not show it: a secret from then on, wherever it is printed.

use countersign_redact::Mask;
use std::{collections::VecDeque, sync::Arc};

/// A line that was typed unseen and is longer than this is no password.
const LONGEST_SECRET: usize = 1024;
/// This many are remembered, the last ones; and a call with more lines than this was typed by nobody.
const SECRETS: usize = 32;
const TYPED_LINES: usize = 4;

pub(crate) struct TypedSecrets {
    /// The mask without what was typed.
    first_mask: Arc<Mask>,
    /// The line that is being typed unseen.
    line: Vec<u8>,
    /// Lines that were typed unseen.
    lines: VecDeque<String>,
}

impl TypedSecrets {
    pub(crate) fn new(first_mask: Arc<Mask>) -> Self {
        Self { first_mask, line: Vec::new(), lines: VecDeque::new() }
    }

    /// Input for a terminal. Gives the mask that knows what was typed, when there is something new in it.
    pub(crate) fn learn(&mut self, bytes: &[u8], echoes: bool) -> Option<Arc<Mask>> {
        let is_end = |b: &&u8| matches!(**b, b'\r' | b'\n');
        if echoes || bytes.iter().filter(is_end).count() > TYPED_LINES {
            self.line.clear();
            return None;
        }
        let before = self.lines.len();
        for b in bytes {
            match b {
                b'\r' | b'\n' => {
                    let line = std::mem::take(&mut self.line);
                    self.lines.extend(String::from_utf8(line).ok().filter(|line| !line.is_empty()));
                }
                // Erase and kill, as the terminal would; and the keys that make a signal of the line.
                0x7f | 0x08 => drop(self.line.pop()),
                0x15 | 0x03 | 0x1a | 0x1c => self.line.clear(),
                b if self.line.len() < LONGEST_SECRET => self.line.push(*b),
                _ => {}
            }
        }
        if self.lines.len() == before {
            return None;
        }
        while self.lines.len() > SECRETS {
            self.lines.pop_front();
        }
        Some(Arc::new(self.first_mask.with_values(&self.lines)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each piece of input with whether the terminal showed it; then the lines that are known.
    fn check(typed: &[(&[u8], bool)], expect: &[&str]) {
        let mut secrets = TypedSecrets::new(Arc::new(Mask::without_values()));
        for (bytes, echoes) in typed {
            let before = secrets.lines.len();
            let learnt = secrets.learn(bytes, *echoes).is_some();
            assert_eq!(learnt, secrets.lines.len() > before, "{typed:?}");
        }
        assert_eq!(secrets.lines, expect, "{typed:?}");
    }

    #[test]
    fn lines_that_were_typed_unseen_are_known_as_they_were_meant() {
        check(&[(b"hunter2\n", false)], &["hunter2"]);
        check(&[(b"hun", false), (b"ter2\r", false)], &["hunter2"]);
        check(&[(b"hunter2\n", true)], &[]);
        check(&[(b"hun", false), (b"x", true), (b"ter2\n", false)], &["ter2"]);
        check(&[(b"hunterr\x7f2\n", false)], &["hunter2"]);
        check(&[(b"wrong\x15right\n", false)], &["right"]);
        check(&[(b"gone\x03\n\n", false)], &[]);
        check(&[(b"a\nb\nc\nd\n", false)], &["a", "b", "c", "d"]);
        check(&[(b"a\nb\nc\nd\ne\n", false)], &[]);
        check(&[(b"\xff\n", false)], &[]);
    }

    #[test]
    fn the_last_ones_are_remembered() {
        let mut secrets = TypedSecrets::new(Arc::new(Mask::without_values()));
        for n in 0..40 {
            assert!(secrets.learn(format!("secret {n}\n").as_bytes(), false).is_some());
        }
        assert_eq!((secrets.lines.len(), secrets.lines[0].as_str()), (SECRETS, "secret 8"));
        secrets.learn(&[b'x'; 5000], false);
        secrets.learn(b"\n", false);
        assert_eq!(secrets.lines[SECRETS - 1].len(), LONGEST_SECRET);
    }
}
