//! Treats lines that a user types without echo as secrets: they are redacted in all output from then on.

use countersign_redact::Mask;
use std::{collections::VecDeque, sync::Arc};

/// The rest of a longer line is not part of a password.
const MAX_SECRET_BYTES: usize = 1024;
/// Only the last secrets are remembered.
const MAX_SECRETS: usize = 32;
/// A single input with more lines than this was not typed by a user.
const MAX_TYPED_LINES: usize = 4;

pub(crate) struct TypedSecrets {
    /// The mask without typed secrets. It knows what the output has shown.
    base_mask: Arc<Mask>,
    /// The line that is being typed without echo.
    line: Vec<u8>,
    /// Lines that were typed without echo.
    lines: VecDeque<String>,
}

impl TypedSecrets {
    pub(crate) fn new(first_mask: Arc<Mask>) -> Self {
        Self { base_mask: first_mask, line: Vec::new(), lines: VecDeque::new() }
    }

    /// Remembers secrets that the output has shown. Returns the new mask.
    pub(crate) fn remember(&mut self, shown: &[String]) -> Arc<Mask> {
        self.base_mask = Arc::new(self.base_mask.with_values(shown));
        self.mask()
    }

    fn mask(&self) -> Arc<Mask> {
        if self.lines.is_empty() {
            Arc::clone(&self.base_mask)
        } else {
            Arc::new(self.base_mask.with_values(&self.lines))
        }
    }

    /// Learns from input for a terminal. Returns a new mask if there is a new secret.
    pub(crate) fn learn(&mut self, bytes: &[u8], echoes: bool) -> Option<Arc<Mask>> {
        let is_end = |b: &&u8| matches!(**b, b'\r' | b'\n');
        if echoes || bytes.iter().filter(is_end).count() > MAX_TYPED_LINES {
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
                // The erase and kill keys, as the terminal applies them, and the keys that send a signal and discard
                // the line.
                0x7f | 0x08 => drop(self.line.pop()),
                0x15 | 0x03 | 0x1a | 0x1c => self.line.clear(),
                b if self.line.len() < MAX_SECRET_BYTES => self.line.push(*b),
                _ => {}
            }
        }
        if self.lines.len() == before {
            return None;
        }
        while self.lines.len() > MAX_SECRETS {
            self.lines.pop_front();
        }
        Some(self.mask())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each piece of input with whether the terminal echoes it; then the expected secrets.
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
    fn lines_typed_without_echo_become_secrets_after_editing_keys() {
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
    fn only_the_last_secrets_are_remembered() {
        let mut secrets = TypedSecrets::new(Arc::new(Mask::without_values()));
        for n in 0..40 {
            assert!(secrets.learn(format!("secret {n}\n").as_bytes(), false).is_some());
        }
        assert_eq!((secrets.lines.len(), secrets.lines[0].as_str()), (MAX_SECRETS, "secret 8"));
        secrets.learn(&[b'x'; 5000], false);
        secrets.learn(b"\n", false);
        assert_eq!(secrets.lines[MAX_SECRETS - 1].len(), MAX_SECRET_BYTES);
    }
}
