//! A file as readers see it, and the way back: what is edited in the clean text is edited in the true bytes.

use crate::{Found, Mask, core::Core, mint, placeholders, span::RuleId};
use countersign_model::Clean;
use std::ops::Range;

/// One placeholder: where it stands in the clean text, and what it stands for.
#[derive(Debug)]
struct Piece {
    clean: Range<usize>,
    raw: Range<usize>,
    rule: Option<RuleId>,
}

/// A file, and its clean text.
#[derive(Debug)]
pub struct Shown {
    raw: Vec<u8>,
    clean: Vec<u8>,
    pieces: Vec<Piece>,
}

/// Why an edit was not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditError {
    NotFound,
    /// It stands there so often.
    Often(usize),
    /// It begins or ends inside a placeholder.
    InsidePlaceholder,
    /// A placeholder that is not in what is replaced, or that stands for more than one thing there.
    Unknown(String),
}

impl Shown {
    /// The same file looks the same under the same mask, always.
    #[must_use]
    pub fn new(mask: &Mask, raw: Vec<u8>) -> Self {
        let mut core = Core::default();
        core.scan(mask, &raw, true, true);
        let clean = core.apply(&raw);
        let (mut pieces, mut grown) = (Vec::with_capacity(core.edits.len()), 0isize);
        for edit in core.edits {
            let start = edit.raw.start.wrapping_add_signed(grown);
            pieces.push(Piece { clean: start..start + edit.text.len(), raw: edit.raw.clone(), rule: edit.rule });
            grown += edit.text.len() as isize - edit.raw.len() as isize;
        }
        Self { raw, clean, pieces }
    }

    #[must_use]
    pub fn text(&self) -> Clean<&[u8]> {
        mint(&self.clean)
    }

    /// Lines of the clean text, `count` of them from `first` (the first is 1), and what was taken out of them.
    #[must_use]
    pub fn lines(&self, first: u64, count: Option<u64>) -> (Clean<&[u8]>, Vec<Found>) {
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
        let inside = self.pieces.iter().filter(|p| p.clean.start >= start && p.clean.start < end);
        let found =
            inside.filter_map(|p| Some(Found { rule: p.rule.clone()?, offset: (p.clean.start - start) as u64 }));
        (mint(&self.clean[start..end]), found.collect())
    }

    /// Where a place in the clean text stands in the file; nowhere, inside a placeholder.
    fn place(&self, at: usize) -> Option<usize> {
        let before = self.pieces.partition_point(|p| p.clean.end <= at);
        if let Some(piece) = self.pieces.get(before)
            && piece.clean.start < at
        {
            return None;
        }
        Some(match before.checked_sub(1).map(|n| &self.pieces[n]) {
            Some(piece) => piece.raw.end + (at - piece.clean.end),
            None => at,
        })
    }

    /// The true bytes with `old`, as the clean text has it, replaced by `new`, and how often. What a placeholder in `old`
    /// stands for is put where `new` has that placeholder.
    ///
    /// # Errors
    /// Says why nothing was changed.
    pub fn edit(&self, old: &str, new: &str, all: bool) -> Result<(Vec<u8>, usize), EditError> {
        let places: Vec<usize> = memchr::memmem::find_iter(&self.clean, old.as_bytes()).collect();
        match places.len() {
            0 => return Err(EditError::NotFound),
            1 => {}
            n if !all => return Err(EditError::Often(n)),
            _ => {}
        }
        let (mut out, mut at) = (Vec::with_capacity(self.raw.len() + new.len()), 0);
        for place in &places {
            let (start, end) = (self.place(*place), self.place(place + old.len()));
            let (Some(start), Some(end)) = (start, end) else { return Err(EditError::InsidePlaceholder) };
            out.extend_from_slice(&self.raw[at..start]);
            self.restore(*place..place + old.len(), new, &mut out)?;
            at = end;
        }
        out.extend_from_slice(&self.raw[at..]);
        Ok((out, places.len()))
    }

    /// Writes `new` with what its placeholders stand for within `span` of the clean text.
    fn restore(&self, span: Range<usize>, new: &str, out: &mut Vec<u8>) -> Result<(), EditError> {
        let inside = || self.pieces.iter().filter(|p| p.clean.start >= span.start && p.clean.end <= span.end);
        let mut rest = new;
        for placeholder in placeholders(new) {
            let Some((before, behind)) = rest.split_once(placeholder) else { continue };
            let mut meant: Vec<&[u8]> = inside()
                .filter(|p| self.clean[p.clean.clone()].starts_with(placeholder.as_bytes()))
                .map(|p| &self.raw[p.raw.clone()])
                .collect();
            meant.dedup();
            // A file may hold what looks like a placeholder and is none.
            let literal =
                meant.is_empty() && memchr::memmem::find(&self.clean[span.clone()], placeholder.as_bytes()).is_some();
            if literal {
                meant.push(placeholder.as_bytes());
            }
            let [meant] = meant[..] else { return Err(EditError::Unknown(placeholder.to_owned())) };
            out.extend_from_slice(before.as_bytes());
            out.extend_from_slice(meant);
            rest = behind;
        }
        out.extend_from_slice(rest.as_bytes());
        Ok(())
    }
}
