//! A file with its redacted text. An edit of the redacted text is applied to the raw bytes, and exposes no secret.

use crate::{
    Finding, Mask,
    engine::{Engine, Pause},
    mint, placeholders,
    span::RuleId,
};
use countersign_model::Clean;
use std::ops::Range;

/// One placeholder: its range in the clean text, and the range of the raw bytes that it replaces.
#[derive(Debug)]
struct PlaceholderSpan {
    clean: Range<usize>,
    raw: Range<usize>,
    rule: Option<RuleId>,
}

/// The raw bytes of a file, and its clean text.
#[derive(Debug)]
pub struct RedactedFile {
    raw: Vec<u8>,
    clean: Vec<u8>,
    placeholders: Vec<PlaceholderSpan>,
}

/// Why an edit was not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditError {
    NotFound,
    /// The old text occurs this many times.
    Ambiguous(usize),
    /// The old text begins or ends inside a placeholder.
    InsidePlaceholder,
    /// The new text has a placeholder that is not in the old text, or that has more than one meaning there.
    UnknownPlaceholder(String),
    /// The edit would put a secret where no rule recognises it.
    Exposed,
}

impl RedactedFile {
    /// Redacts a file. The result depends on the bytes and the mask alone.
    #[must_use]
    pub fn new(mask: &Mask, raw: Vec<u8>) -> Self {
        let mut engine = Engine::default();
        engine.scan(mask, &raw, Pause::End);
        let clean = engine.apply_replacements(&raw);
        let (mut spans, mut growth) = (Vec::with_capacity(engine.replacements.len()), 0isize);
        for replacement in engine.replacements {
            let start = replacement.raw.start.wrapping_add_signed(growth);
            let length = replacement.written_bytes();
            growth += length as isize - replacement.raw.len() as isize;
            spans.push(PlaceholderSpan { clean: start..start + length, raw: replacement.raw, rule: replacement.rule });
        }
        Self { raw, clean, placeholders: spans }
    }

    #[must_use]
    pub fn text(&self) -> Clean<&[u8]> {
        mint(&self.clean)
    }

    /// `count` lines of the clean text from line `first` (from 1), and what was redacted in them.
    #[must_use]
    pub fn lines(&self, first: u64, count: Option<u64>) -> (Clean<&[u8]>, Vec<Finding>) {
        let skip = usize::try_from(first.saturating_sub(1)).unwrap_or(usize::MAX);
        let count = count.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
        let mut ends = memchr::memchr_iter(b'\n', &self.clean).map(|i| i + 1);
        let start = match skip {
            0 => 0,
            n => ends.nth(n - 1).unwrap_or(self.clean.len()),
        };
        let end = match count {
            0 => start,
            n => ends.nth(n - 1).unwrap_or(self.clean.len()),
        };
        let inside = self.placeholders.iter().filter(|p| p.clean.start >= start && p.clean.start < end);
        let found =
            inside.filter_map(|p| Some(Finding { rule: p.rule.clone()?, offset: (p.clean.start - start) as u64 }));
        (mint(&self.clean[start..end]), found.collect())
    }

    /// The raw offset of an offset in the clean text; none inside a placeholder.
    fn raw_offset(&self, at: usize) -> Option<usize> {
        let before = self.placeholders.partition_point(|p| p.clean.end <= at);
        if let Some(span) = self.placeholders.get(before)
            && span.clean.start < at
        {
            return None;
        }
        Some(match before.checked_sub(1).map(|n| &self.placeholders[n]) {
            Some(span) => span.raw.end + (at - span.clean.end),
            None => at,
        })
    }

    /// The raw bytes with `old`, as it appears in the clean text, replaced by `new`; and how many times. A placeholder of
    /// `old` that `new` repeats keeps its secret. A secret that was redacted before is redacted afterwards.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub fn edit(&self, mask: &Mask, old: &str, new: &str, all: bool) -> Result<(Vec<u8>, usize), EditError> {
        let places: Vec<usize> = memchr::memmem::find_iter(&self.clean, old.as_bytes()).collect();
        match places.len() {
            0 => return Err(EditError::NotFound),
            1 => {}
            n if !all => return Err(EditError::Ambiguous(n)),
            _ => {}
        }
        let (mut out, mut at) = (Vec::with_capacity(self.raw.len() + new.len()), 0);
        // The ranges of secrets after the edit.
        let mut secrets = Vec::new();
        for place in &places {
            let (start, end) = (self.raw_offset(*place), self.raw_offset(place + old.len()));
            let (Some(start), Some(end)) = (start, end) else { return Err(EditError::InsidePlaceholder) };
            self.copy_unchanged(at..start, &mut out, &mut secrets);
            self.write_with_secrets(*place..place + old.len(), new, &mut out, &mut secrets)?;
            at = end;
        }
        self.copy_unchanged(at..self.raw.len(), &mut out, &mut secrets);
        let after = Self::new(mask, out);
        let is_redacted = |secret: &Range<usize>| {
            let n = after.placeholders.partition_point(|p| p.raw.end < secret.end);
            after.placeholders.get(n).is_some_and(|p| p.raw.start <= secret.start && secret.end <= p.raw.end)
        };
        if secrets.iter().all(is_redacted) { Ok((after.raw, places.len())) } else { Err(EditError::Exposed) }
    }

    /// Copies a part of the raw bytes, and adds the ranges of its secrets.
    fn copy_unchanged(&self, part: Range<usize>, out: &mut Vec<u8>, secrets: &mut Vec<Range<usize>>) {
        let inside = self.placeholders.iter().filter(|p| p.raw.start >= part.start && p.raw.end <= part.end);
        secrets.extend(inside.map(|p| {
            let start = out.len() + p.raw.start - part.start;
            start..start + p.raw.len()
        }));
        out.extend_from_slice(&self.raw[part]);
    }

    /// Writes `new`, with the secrets that its placeholders replace within `span` of the clean text.
    fn write_with_secrets(
        &self,
        span: Range<usize>,
        new: &str,
        out: &mut Vec<u8>,
        secrets: &mut Vec<Range<usize>>,
    ) -> Result<(), EditError> {
        let inside = || self.placeholders.iter().filter(|p| p.clean.start >= span.start && p.clean.end <= span.end);
        let mut rest = new;
        for placeholder in placeholders(new) {
            let Some((before, behind)) = rest.split_once(placeholder) else { continue };
            out.extend_from_slice(before.as_bytes());
            rest = behind;
            let spans: Vec<&PlaceholderSpan> =
                inside().filter(|p| self.clean[p.clean.clone()].starts_with(placeholder.as_bytes())).collect();
            // A file may contain text that looks like a placeholder.
            let written = memchr::memmem::find_iter(&self.clean[span.clone()], placeholder.as_bytes()).count();
            let mut meanings: Vec<&[u8]> = spans.iter().map(|p| &self.raw[p.raw.clone()]).collect();
            meanings.dedup();
            match (&meanings[..], written - spans.len()) {
                ([secret], 0) => {
                    secrets.push(out.len()..out.len() + secret.len());
                    out.extend_from_slice(secret);
                }
                ([], 1..) => out.extend_from_slice(placeholder.as_bytes()),
                _ => return Err(EditError::UnknownPlaceholder(placeholder.to_owned())),
            }
        }
        out.extend_from_slice(rest.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples::expand;

    fn redacted(text: &str) -> (Mask, RedactedFile, Vec<String>) {
        let mask = Mask::without_values();
        let file = RedactedFile::new(&mask, text.as_bytes().to_vec());
        let clean = String::from_utf8(file.clean.clone()).unwrap();
        (mask, file, placeholders(&clean).map(str::to_owned).collect())
    }

    #[test]
    fn an_edit_is_exact_and_exposes_no_secret() {
        let token = expand("ghp_{alnum:36}", 1).unwrap().text;
        let password = expand("p{alnum:11}", 2).unwrap().text;
        let text = format!("a = \"{token}\"\npassword={password}\nend");
        let (mask, file, marks) = redacted(&text);
        let [one, two] = &marks[..] else { panic!("{marks:?}") };
        let edited =
            |old: &str, new: &str| file.edit(&mask, old, new, false).map(|(b, _)| String::from_utf8(b).unwrap());
        assert_eq!(edited("end", "END"), Ok(text.replace("end", "END")));
        assert_eq!(
            edited(&format!("password={two}"), &format!("x=1\npassword={two}!")),
            Ok(text.replace("password=", "x=1\npassword=").replace("\nend", "!\nend"))
        );
        assert_eq!(edited(&format!("ghp_{one}"), "none"), Ok(text.replace(&token, "none")), "a secret may be removed");
        for (old, new) in [
            (format!("password={two}"), format!("note {two}")),
            ("password=".to_owned(), "note ".to_owned()),
            (format!("ghp_{one}"), format!("ghp {one}")),
            ("ghp_".to_owned(), "x".to_owned()),
        ] {
            assert_eq!(edited(&old, &new), Err(EditError::Exposed), "{old} → {new}");
        }
        assert_eq!(edited("nowhere", "x"), Err(EditError::NotFound));
        assert_eq!(edited("\n", "x"), Err(EditError::Ambiguous(2)));
        assert_eq!(edited(&one[3..], "x"), Err(EditError::InsidePlaceholder));
        assert_eq!(
            edited(&format!("ghp_{one}"), &format!("ghp_{two}")),
            Err(EditError::UnknownPlaceholder(two.clone()))
        );
    }

    #[test]
    fn text_that_looks_like_a_placeholder_stays_text() {
        let password = expand("p{alnum:11}", 3).unwrap().text;
        let (_, _, marks) = redacted(&format!("password={password}\n"));
        let mark = &marks[0];
        let text = format!("doc: {mark}\npassword={password}\n");
        let (mask, file, _) = redacted(&text);
        let both = format!("doc: {mark}\npassword={mark}\n");
        assert_eq!(file.edit(&mask, &both, &both, false), Err(EditError::UnknownPlaceholder(mark.clone())));
        let (bytes, _) = file.edit(&mask, &format!("doc: {mark}"), &format!("docs: {mark}"), false).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), text.replace("doc:", "docs:"));
    }
}
