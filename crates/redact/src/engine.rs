//! The engine: which parts of a stream go.
//!
//! A byte is *decided* once no later byte can change what happens to it; that makes the result the same for every way
//! of cutting the input. What is decided never goes back: whatever is found later is clipped to what is left. Held are
//! only values that are open, key blocks, links whose `@` may still come, beginnings of known values, and beginnings of
//! escape sequences. `flush` (nothing has come for a while) lets go of beginnings of known values under four bytes.

use crate::{
    Mask, context, header,
    mask::Hit,
    shape::{self, ShapeCaches},
    span::{Inspection, Rank, RuleId, Span},
    visible_text::{TextGap, VisibleText, WalkStep},
};
use std::{collections::VecDeque, ops::Range};

/// How far back what has been decided is kept: rules look at what stands before a value.
const CONTEXT_BYTES: usize = 640;
/// The most that one placeholder stands for.
const MAX_GROUP_BYTES: usize = 128 * 1024;
/// A text inside an escape sequence that is shorter holds no secret.
const MIN_STRING_BYTES: usize = 8;

/// A part of the stream, and what stands there instead.
#[derive(Debug, Clone)]
pub(crate) struct Replacement {
    pub(crate) raw: Range<usize>,
    pub(crate) text: Vec<u8>,
    /// Which rule it was; what is only swallowed is not counted again.
    pub(crate) rule: Option<RuleId>,
}

#[derive(Default)]
pub(crate) struct Engine {
    shadow: VisibleText,
    caches: ShapeCaches,
    /// In the text, and in the stream.
    decided: usize,
    pub(crate) decided_raw: usize,
    /// Tokens that may go on with the line that begins there.
    continued: Vec<(usize, RuleId)>,
    /// Inside a run that goes to its end.
    swallow: Option<fn(u8) -> bool>,
    /// What has been decided and not yet been carried out, in order.
    pub(crate) replacements: VecDeque<Replacement>,
    /// Texts inside escape sequences that are not clean.
    string_replacements: Vec<Replacement>,
}

impl Engine {
    /// Looks at all there is of the stream.
    pub(crate) fn scan(&mut self, mask: &Mask, raw: &[u8], flush: bool, end: bool) {
        let mut inside = Vec::new();
        self.shadow.read_stream(raw, end, &mut inside);
        for range in inside {
            self.redact_string(mask, raw, range);
        }
        while !self.scan_pass(mask, raw, flush, end) {}
        self.decided_raw = self.shadow.raw_offset(self.decided);
        // What was left out behind the last byte is decided with it; before a held one, too.
        let ready = self.string_replacements.partition_point(|e| e.raw.end <= self.decided_raw);
        for edit in self.string_replacements.drain(..ready) {
            let at = self.replacements.partition_point(|e| e.raw.start < edit.raw.start);
            self.replacements.insert(at, edit);
        }
    }

    /// A title, a link: text that is not shown where it stands.
    fn redact_string(&mut self, mask: &Mask, raw: &[u8], range: Range<usize>) {
        if range.len() < MIN_STRING_BYTES {
            return;
        }
        let text = &raw[range.clone()];
        let mut engine = Engine::default();
        engine.scan(mask, text, true, true);
        if let Some(rule) = engine.replacements.iter().find_map(|e| e.rule.clone()) {
            self.string_replacements.push(Replacement {
                raw: range,
                text: engine.apply_replacements(text),
                rule: Some(rule),
            });
        }
    }

    /// `raw` with all edits carried out.
    pub(crate) fn apply_replacements(&self, raw: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(raw.len() + 32 * self.replacements.len());
        let mut at = 0;
        for edit in &self.replacements {
            out.extend_from_slice(&raw[at..edit.raw.start]);
            out.extend_from_slice(&edit.text);
            at = edit.raw.end;
        }
        out.extend_from_slice(&raw[at..]);
        out
    }

    /// One look from what is decided to the end. False: something was found behind which the text must be looked at anew.
    fn scan_pass(&mut self, mask: &Mask, raw: &[u8], flush: bool, end: bool) -> bool {
        if let Some(goes_on) = self.swallow
            && !self.drop_rest_of_run(raw, goes_on, end)
        {
            return true;
        }
        let mut caches = std::mem::take(&mut self.caches);
        let (mut groups, hold, continued) = self.collect_spans(mask, raw, &mut caches, flush, end);
        self.caches = caches;
        // Something that is only partly there is held as a whole.
        let hold = groups.iter().find(|g| g.start < hold && hold < g.end).map_or(hold, |g| g.start).max(self.decided);
        // What overlaps without end goes in pieces, so that what is held has a bound.
        if let Some(group) = groups.first().filter(|g| g.end - g.start.max(self.decided) >= MAX_GROUP_BYTES).cloned() {
            let end = group.start.max(self.decided) + MAX_GROUP_BYTES;
            self.continued.clear();
            self.replace(mask, raw, Span { end, ..group });
            return false;
        }
        groups.retain(|g| g.end <= hold && g.end > self.decided);
        // What is not decided is looked at again from where it begins.
        self.continued = continued.into_iter().filter(|(at, _)| *at >= hold).collect();
        for group in groups {
            let swallow = group.swallow;
            self.replace(mask, raw, group);
            if swallow.is_some() {
                self.swallow = swallow;
                self.continued.clear();
                return false;
            }
        }
        self.decided = hold;
        true
    }

    /// All that goes, without overlaps, from left to right; where the first thing begins that is still open; and where a
    /// token may go on.
    fn collect_spans(
        &self,
        mask: &Mask,
        raw: &[u8],
        caches: &mut ShapeCaches,
        flush: bool,
        end: bool,
    ) -> (Vec<Span>, usize, Vec<(usize, RuleId)>) {
        let view = self.shadow.view(raw, end);
        let mut hold = header::unfinished_link(view, flush).unwrap_or(view.len());
        let mut spans: Vec<Span> = Vec::new();
        let mut continued = Vec::new();
        // What ends with its line may go on with the next.
        let mut follow = |at: usize, rule: RuleId, spans: &mut Vec<Span>, hold: &mut usize| {
            let mut next = Some((at, rule));
            while let Some((at, rule)) = next.take() {
                match shape::inspect_continuation(view, at, &rule) {
                    Inspection::Nothing => {}
                    Inspection::Open(from) => {
                        *hold = (*hold).min(from);
                        if !continued.contains(&(from, rule.clone())) {
                            continued.push((from, rule));
                        }
                    }
                    Inspection::Found(span) => {
                        continued.push((span.start, rule));
                        next = span.continues.then(|| (span.end, span.rule.clone()));
                        spans.push(span);
                    }
                }
            }
        };
        for (at, rule) in &self.continued {
            follow(*at, rule.clone(), &mut spans, &mut hold);
        }
        let mut hits =
            mask.find_hits(view.bytes, self.decided.saturating_sub(context::REINSPECT_BYTES), self.shadow.returns);
        // Inside the value of a header there is no other.
        let mut header = 0;
        while let Some((start, to, hit)) = hits.next() {
            if start < header && mask.is_header(hit) {
                continue;
            }
            // Behind something open only what may reach back before it counts.
            if start >= hold && !matches!(hit, Hit::At) {
                continue;
            }
            match mask.inspect_hit(view, start, to, hit, caches) {
                Inspection::Nothing => {}
                Inspection::Open(from) => hold = hold.min(from),
                Inspection::Found(span) => {
                    if mask.is_header(hit) {
                        header = span.end;
                    }
                    if span.continues {
                        follow(span.end, span.rule.clone(), &mut spans, &mut hold);
                    }
                    spans.push(span);
                }
            }
        }
        if !end {
            hold = hold.min(mask.undecided_from(view.bytes, flush));
        }
        (merge_spans(spans, self.decided), hold, continued)
    }

    /// Takes out the rest of a run that had no end. False: there is still no end.
    fn drop_rest_of_run(&mut self, raw: &[u8], goes_on: fn(u8) -> bool, end: bool) -> bool {
        let mut walk = self.shadow.view(raw, end).walk(self.decided);
        let stop = loop {
            let at = walk.at;
            match walk.step() {
                WalkStep::Byte(b) if goes_on(b) => {}
                WalkStep::Gap(TextGap::Escape) => {}
                WalkStep::More => break None,
                _ => break Some(at),
            }
        };
        let to = stop.unwrap_or(self.shadow.len());
        if to > self.decided {
            let text = self.escapes_between(raw, self.decided, to);
            let range = self.shadow.raw_offset(self.decided)..self.shadow.raw_offset(to - 1) + 1;
            self.replacements.push_back(Replacement { raw: range, text, rule: None });
            self.decided = to;
        }
        if stop.is_some() {
            self.swallow = None;
        }
        stop.is_some()
    }

    /// Puts a placeholder for a part of the text. Escape sequences inside stay; line breaks go with the rest.
    fn replace(&mut self, mask: &Mask, raw: &[u8], span: Span) {
        let start = span.start.max(self.decided);
        let mut text = Vec::with_capacity(48);
        mask.write_placeholder(&span.rule, &self.shadow.view(raw, true).without_breaks(start..span.end), &mut text);
        let range = self.shadow.raw_offset(start)..self.shadow.raw_offset(span.end - 1) + 1;
        text.extend(self.escapes_between(raw, start, span.end));
        self.replacements.push_back(Replacement { raw: range, text, rule: Some(span.rule) });
        self.decided = span.end;
    }

    /// The escape sequences between two places of the text, cleaned.
    fn escapes_between(&mut self, raw: &[u8], from: usize, to: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for gap in self.shadow.gaps_inside(from, to) {
            let mut at = gap.start;
            while let Some(n) =
                self.string_replacements.iter().position(|e| gap.contains(&e.raw.start) && e.raw.start >= at)
            {
                let edit = self.string_replacements.remove(n);
                out.extend_from_slice(&raw[at..edit.raw.start]);
                out.extend_from_slice(&edit.text);
                at = edit.raw.end;
            }
            out.extend_from_slice(&raw[at..gap.end]);
        }
        out
    }

    /// Forgets what is no longer needed of a stream that has been given out up to `given`. Gives how much of it.
    pub(crate) fn forget(&mut self, given: usize) -> usize {
        let text = self.decided.saturating_sub(CONTEXT_BYTES).min(self.shadow.text_before(given));
        let raw = self.shadow.forget(text);
        self.decided -= text;
        self.decided_raw -= raw;
        for (at, _) in &mut self.continued {
            *at -= text;
        }
        for edit in self.replacements.iter_mut().chain(&mut self.string_replacements) {
            edit.raw = edit.raw.start - raw..edit.raw.end - raw;
        }
        raw
    }
}

/// One span for all that overlap, named after the one that says most. What lies within a token and its public beginning
/// is that token.
fn merge_spans(mut spans: Vec<Span>, decided: usize) -> Vec<Span> {
    if spans.is_empty() {
        return spans;
    }
    let mut tokens: Vec<(usize, usize)> =
        spans.iter().filter(|s| s.rank == Rank::Shape).map(|s| (s.public, s.end)).collect();
    tokens.sort_unstable();
    let inside = |s: &Span| {
        let from = tokens.partition_point(|t| t.0 <= s.start);
        tokens[from.saturating_sub(4)..from].iter().any(|t| s.end <= t.1)
    };
    spans.retain(|s| s.end > decided && (s.rank == Rank::Shape || !inside(s)));
    spans.sort_by(|a, b| (a.start, b.end, &a.rule).cmp(&(b.start, a.end, &b.rule)));
    let mut out: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match out.last_mut() {
            Some(last) if span.start < last.end => {
                if span.end > last.end {
                    (last.end, last.swallow) = (span.end, span.swallow);
                }
                if span.rank > last.rank {
                    (last.rule, last.rank) = (span.rule, span.rank);
                }
            }
            _ => out.push(span),
        }
    }
    out
}
