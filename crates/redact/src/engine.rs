//! Decides which parts of a stream are redacted.
//!
//! A byte is *decided* once no later byte can change the result for it, so the result does not depend on how the input is
//! cut. A decision is final: a span that is found later is clipped to the undecided part. Held are only unfinished values,
//! key blocks, links whose `@` may still come, words that may become tokens, prefixes of known secrets and prefixes of escape
//! sequences. After a [`Pause`] prefixes of known secrets under four bytes and words without digits are not held.

use crate::{
    Mask, PLACEHOLDER_START, context,
    generated::Composition,
    learned::ShownSecrets,
    link,
    mask::{Hit, SecretTag},
    prefixed, provider_values, runs,
    shape::{self, ShapeCaches},
    span::{Inspection, Rank, RuleId, Span},
    visible_text::{TextGap, TextView, VisibleText, WalkStep, is_break},
};
use std::{collections::VecDeque, ops::Range};

/// Decided text that is kept, because rules inspect what precedes a value.
const CONTEXT_BYTES: usize = context::REINSPECT_BYTES + 640;
/// The most that one placeholder replaces.
const MAX_GROUP_BYTES: usize = 128 * 1024;
/// A prefix of a known secret of this length is held even after a flush.
const MIN_HELD_PREFIX_BYTES: usize = 4;
/// The most of an unfinished word that is held; it covers every token without a public beginning.
const MAX_HELD_WORD_BYTES: usize = 300;
/// A shorter text inside an escape sequence contains no secret.
const MIN_STRING_BYTES: usize = 8;

/// Whether more input will come soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    None,
    /// No input has come for a while.
    Idle,
    /// None is there, and a person waits for the echo of a key.
    Echo,
    /// The stream has ended.
    End,
}

/// A part of the stream, and what replaces it: a placeholder, if it has a tag, and a text.
#[derive(Debug, Clone)]
pub(crate) struct Replacement {
    pub(crate) raw: Range<usize>,
    /// The rule that found it; none for the rest of a run that was already counted.
    pub(crate) rule: Option<RuleId>,
    tag: Option<SecretTag>,
    text: Vec<u8>,
}

/// A line that may continue a token of the line before.
#[derive(Clone)]
struct Continuation {
    /// Where the token ends so far. Until it is decided up to there, it is found again, perhaps by another rule.
    behind: usize,
    /// Where the rest begins.
    at: usize,
    rule: RuleId,
}

#[derive(Default)]
pub(crate) struct Engine {
    visible: VisibleText,
    caches: ShapeCaches,
    /// The end of the decided part, in the text and in the stream.
    decided: usize,
    pub(crate) decided_raw: usize,
    continued: Vec<Continuation>,
    /// Inside a run that is removed to its end.
    swallow: Option<fn(u8) -> bool>,
    /// Replacements that are decided and not yet applied, in order.
    pub(crate) replacements: VecDeque<Replacement>,
    /// Replacements of texts inside escape sequences.
    string_replacements: Vec<Replacement>,
    learned: ShownSecrets,
}

impl Replacement {
    /// What is written instead, in parts.
    pub(crate) fn parts(&self) -> [&[u8]; 4] {
        match (&self.rule, &self.tag) {
            (Some(rule), Some(tag)) => [PLACEHOLDER_START.as_bytes(), rule.as_bytes(), tag, &self.text],
            _ => [&[], &[], &[], &self.text],
        }
    }

    /// How many bytes are written instead.
    pub(crate) fn written_bytes(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    fn write(&self, into: &mut Vec<u8>) {
        self.parts().iter().for_each(|part| into.extend_from_slice(part));
    }
}

impl Continuation {
    /// What may follow a span that ends with its line.
    fn of(span: &Span) -> Self {
        Self { behind: span.end, at: span.end, rule: span.rule.clone() }
    }
}

impl Engine {
    /// Scans the input so far.
    pub(crate) fn scan(&mut self, mask: &Mask, raw: &[u8], pause: Pause) {
        let mut inside = Vec::new();
        let end = pause == Pause::End;
        self.visible.read_stream(raw, end, &mut inside);
        for range in inside {
            self.redact_string(mask, raw, range);
        }
        while !self.scan_pass(mask, raw, pause) {}
        self.decided_raw = self.visible.raw_offset(self.decided);
        // An escape sequence is decided with the byte before it.
        let ready = self.string_replacements.partition_point(|e| e.raw.end <= self.decided_raw);
        for replacement in self.string_replacements.drain(..ready) {
            let at = self.replacements.partition_point(|e| e.raw.start < replacement.raw.start);
            self.replacements.insert(at, replacement);
        }
    }

    /// Redacts a title or a link inside an escape sequence.
    fn redact_string(&mut self, mask: &Mask, raw: &[u8], range: Range<usize>) {
        if range.len() < MIN_STRING_BYTES {
            return;
        }
        let text = &raw[range.clone()];
        let mut engine = Engine::default();
        engine.scan(mask, text, Pause::End);
        if let Some(rule) = engine.replacements.iter().find_map(|e| e.rule.clone()) {
            self.string_replacements.push(Replacement {
                raw: range,
                rule: Some(rule),
                tag: None,
                text: engine.apply_replacements(text),
            });
        }
    }

    /// `raw` with all replacements applied.
    pub(crate) fn apply_replacements(&self, raw: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(raw.len() + 32 * self.replacements.len());
        let mut at = 0;
        for replacement in &self.replacements {
            out.extend_from_slice(&raw[at..replacement.raw.start]);
            replacement.write(&mut out);
            at = replacement.raw.end;
        }
        out.extend_from_slice(&raw[at..]);
        out
    }

    /// Scans from the decided part to the end. False: after what was found, the rest has to be scanned again.
    fn scan_pass(&mut self, mask: &Mask, raw: &[u8], pause: Pause) -> bool {
        let end = pause == Pause::End;
        if let Some(belongs) = self.swallow
            && !self.drop_rest_of_run(raw, belongs, end)
        {
            return true;
        }
        let mut caches = std::mem::take(&mut self.caches);
        let (mut groups, hold, continued) = self.collect_spans(mask, raw, &mut caches, pause);
        self.caches = caches;
        // A group that is only partly there is held as a whole.
        let hold = groups.iter().find(|g| g.start < hold && hold < g.end).map_or(hold, |g| g.start).max(self.decided);
        // An endless overlap is redacted in pieces, so that the held part is bounded.
        if let Some(group) = groups.first().filter(|g| g.end - g.start.max(self.decided) >= MAX_GROUP_BYTES).cloned() {
            let end = group.start.max(self.decided) + MAX_GROUP_BYTES;
            self.continued.clear();
            self.replace(mask, raw, Span { end, ..group });
            return false;
        }
        groups.retain(|g| g.end <= hold && g.end > self.decided);
        // The undecided part is inspected again from its beginning.
        self.continued = continued.iter().filter(|c| c.behind <= hold && hold <= c.at).cloned().collect();
        for group in groups {
            let swallow = group.swallow;
            let is_new = self.learn(mask, raw, &group);
            self.replace(mask, raw, group);
            if swallow.is_some() {
                self.swallow = swallow;
                self.continued.clear();
                return false;
            }
            // What follows is searched again, for this secret, too.
            if is_new {
                self.continued =
                    continued.into_iter().filter(|c| c.behind <= self.decided && self.decided <= c.at).collect();
                return false;
            }
        }
        self.decided = hold;
        true
    }

    /// Learns the secret of a span that no earlier decision has cut. True: it is new.
    fn learn(&mut self, mask: &Mask, raw: &[u8], span: &Span) -> bool {
        if self.learned.is_full() || span.start < self.decided || span.swallow.is_some() {
            return false;
        }
        let view = self.visible.view(raw, true);
        // A part of a longer text is not the secret.
        if view.byte(span.end).is_some_and(|b| b.is_ascii_alphanumeric()) && !view.is_moved_at(span.end) {
            return false;
        }
        let value = view.without_breaks(span.start..span.end).into_owned();
        !mask.known_values().contains(&value) && self.learned.learn(span, &value)
    }

    /// The secrets that were learned since the last call.
    pub(crate) fn take_learned(&mut self) -> Vec<String> {
        self.learned.take_new()
    }

    /// All spans to redact, without overlaps, from left to right; where the held part begins; and where a token may
    /// continue.
    fn collect_spans(
        &self,
        mask: &Mask,
        raw: &[u8],
        caches: &mut ShapeCaches,
        pause: Pause,
    ) -> (Vec<Span>, usize, Vec<Continuation>) {
        let (end, flush) = (pause == Pause::End, pause != Pause::None);
        let view = self.visible.view(raw, end);
        let mut hold = link::unfinished_link(view, flush).unwrap_or(view.len());
        let mut spans: Vec<Span> = Vec::new();
        let mut continued: Vec<Continuation> = Vec::new();
        let is_new = |continued: &[Continuation], at: usize| continued.iter().all(|seen| seen.at != at);
        // A token that ends with its line may continue on the next.
        let mut follow = |from: Continuation, spans: &mut Vec<Span>, hold: &mut usize| {
            let mut next = Some(from);
            while let Some(Continuation { behind, at, rule }) = next.take() {
                match shape::inspect_continuation(view, at, &rule) {
                    Inspection::Nothing | Inspection::Several(..) => {}
                    Inspection::Open(at) => {
                        *hold = (*hold).min(at);
                        if is_new(&continued, at) {
                            continued.push(Continuation { behind, at, rule });
                        }
                    }
                    // Several scans may lead to the same line: it is followed once.
                    Inspection::Found(span) if is_new(&continued, span.start) => {
                        continued.push(Continuation { behind, at: span.start, rule });
                        next = span.continues.then(|| Continuation::of(&span));
                        spans.push(span);
                    }
                    Inspection::Found(_) => {}
                }
            }
        };
        for from in &self.continued {
            follow(from.clone(), &mut spans, &mut hold);
        }
        let from = self.decided.saturating_sub(context::REINSPECT_BYTES);
        // The value of a header contains no other header.
        let mut header = 0;
        for (start, to, hit) in mask.find_hits(&self.learned.values, view.bytes, from, self.visible.returns) {
            if start < header && mask.is_header(hit) {
                continue;
            }
            // Behind the held part, only hits that can reach back before it count.
            if start >= hold && !matches!(hit, Hit::At) {
                continue;
            }
            // A rule has found this word.
            let covers =
                |s: &Span| s.rank == Rank::Shape && s.public <= start && to.min(view.until_moved(start)) <= s.end;
            if matches!(hit, Hit::Word) && spans.last().is_some_and(covers) {
                continue;
            }
            match mask.inspect_hit(view, start, to, hit, caches) {
                Inspection::Nothing => {}
                Inspection::Open(from) => hold = hold.min(from),
                Inspection::Several(found, open) => {
                    hold = open.map_or(hold, |from| hold.min(from));
                    spans.extend(found);
                }
                Inspection::Found(span) => {
                    if mask.is_header(hit) {
                        header = span.end;
                    }
                    if span.continues {
                        let before = hold;
                        follow(Continuation::of(&span), &mut spans, &mut hold);
                        // The next line may show that a rule finds all of it.
                        if span.rank == Rank::Context && hold < before {
                            hold = hold.min(span.start);
                        }
                    }
                    spans.push(span);
                }
            }
        }
        if !end {
            let at_least = if flush { MIN_HELD_PREFIX_BYTES } else { 1 };
            for known in [mask.known_values(), &self.learned.values] {
                hold = hold.min(known.undecided_from(view.bytes, at_least));
            }
            hold = hold.min(unfinished_word(view, pause));
        }
        (merge_spans(spans, self.decided), hold, continued)
    }

    /// Removes the rest of a run that had no end. False: it still has none.
    fn drop_rest_of_run(&mut self, raw: &[u8], belongs: fn(u8) -> bool, end: bool) -> bool {
        let mut walk = self.visible.view(raw, end).walk(self.decided);
        let stop = loop {
            let at = walk.at;
            match walk.step() {
                WalkStep::Byte(b) if belongs(b) => {}
                WalkStep::Gap(TextGap::Escape) => {}
                WalkStep::More => break None,
                _ => break Some(at),
            }
        };
        let to = stop.unwrap_or(self.visible.len());
        if to > self.decided {
            let text = self.escapes_between(raw, self.decided, to);
            let range = self.visible.raw_offset(self.decided)..self.visible.raw_offset(to - 1) + 1;
            self.replacements.push_back(Replacement { raw: range, rule: None, tag: None, text });
            self.decided = to;
        }
        if stop.is_some() {
            self.swallow = None;
        }
        stop.is_some()
    }

    /// Replaces a span by a placeholder. Escape sequences inside stay; line breaks are removed.
    fn replace(&mut self, mask: &Mask, raw: &[u8], span: Span) {
        let view = self.visible.view(raw, true);
        let mut start = span.start.max(self.decided);
        // A break before the rest of a clipped span is no part of it.
        while start + 1 < span.end && is_break(view.bytes[start]) {
            start += 1;
        }
        let tag = Some(mask.tag_of(&view.without_breaks(start..span.end)));
        let range = self.visible.raw_offset(start)..self.visible.raw_offset(span.end - 1) + 1;
        let text = self.escapes_between(raw, start, span.end);
        self.replacements.push_back(Replacement { raw: range, rule: Some(span.rule), tag, text });
        self.decided = span.end;
    }

    /// The escape sequences between two places of the text, redacted.
    fn escapes_between(&mut self, raw: &[u8], from: usize, to: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for gap in self.visible.gaps_inside(from, to) {
            let mut at = gap.start;
            while let Some(n) =
                self.string_replacements.iter().position(|e| gap.contains(&e.raw.start) && e.raw.start >= at)
            {
                let replacement = self.string_replacements.remove(n);
                out.extend_from_slice(&raw[at..replacement.raw.start]);
                replacement.write(&mut out);
                at = replacement.raw.end;
            }
            out.extend_from_slice(&raw[at..gap.end]);
        }
        out
    }

    /// Drops what is no longer needed of a stream that was emitted up to `emitted`. Returns how many raw bytes.
    pub(crate) fn forget(&mut self, emitted: usize) -> usize {
        let text = self.decided.saturating_sub(CONTEXT_BYTES).min(self.visible.text_before(emitted));
        let raw = self.visible.forget(text);
        self.decided -= text;
        self.decided_raw -= raw;
        for continuation in &mut self.continued {
            continuation.at -= text;
            continuation.behind = continuation.behind.saturating_sub(text);
        }
        for replacement in self.replacements.iter_mut().chain(&mut self.string_replacements) {
            replacement.raw = replacement.raw.start - raw..replacement.raw.end - raw;
        }
        raw
    }
}

/// Where the word at the end of the text begins: later bytes may make a token of it that has no public beginning. After a
/// pause only a word is held that may be random.
fn unfinished_word(view: TextView<'_>, pause: Pause) -> usize {
    let end = view.len();
    if view.is_moved_at(end) {
        return end;
    }
    if pause != Pause::None {
        let start = runs::run_start(view.bytes, end);
        let word = Composition::of(&view.bytes[start..]);
        // People type names with digits and wait for the echo. They seldom type random text.
        let (least, changes) = if pause == Pause::Echo { (6, 2) } else { (4, 1) };
        let is_random = end - start >= least && word.digits >= 1 && word.changes >= changes;
        if pause == Pause::Idle
            && let Some(start) = start_of_random_text(view, start, end)
        {
            return start;
        }
        return if is_random { start.max(end.saturating_sub(MAX_HELD_WORD_BYTES)) } else { end };
    }
    let mut start = end;
    while start > 0 && end - start < MAX_HELD_WORD_BYTES && !view.is_moved_at(start) {
        let b = view.bytes[start - 1];
        let is_word =
            b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+' | b'/' | b'.' | b':' | b'~' | b'=' | b'%');
        // A line break may interrupt a token where a terminal wraps.
        if !(is_word || is_break(b) && view.is_wrapped_line_end(start - 1)) {
            break;
        }
        start -= 1;
    }
    start
}

/// Where random text at the end begins, whose last word begins at `start`: base64 with slashes, letters of both cases, or a
/// value whose name tells that it may be a secret.
fn start_of_random_text(view: TextView<'_>, start: usize, end: usize) -> Option<usize> {
    let lowest = end.saturating_sub(MAX_HELD_WORD_BYTES);
    let is_base64 = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'_' | b'-' | b'=' | b'.');
    let length = view.bytes[lowest..end].iter().rev().take_while(|b| is_base64(b)).count();
    let looks_random = |text: &[u8]| text.len() >= 8 && Composition::of(text).changes * 4 >= text.len();
    if looks_random(&view.bytes[end - length..end]) {
        return Some(end - length);
    }
    let may_be_secret =
        || provider_values::may_be_secret(view, start) || prefixed::may_be_token(&view.bytes[start..end]);
    (start < end && may_be_secret()).then_some(start.max(lowest))
}

/// Merges overlapping spans into one, with the rule of the highest rank. A span inside a token and its public prefix is
/// that token.
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
    // The length of the keyword of the last one's rule.
    let mut known = 0;
    for span in spans {
        match out.last_mut() {
            Some(last) if span.start < last.end => {
                if span.end > last.end {
                    (last.end, last.swallow) = (span.end, span.swallow);
                }
                // Of two rules, the one with the longer keyword knows more, and a telling name more than that of a provider.
                let keyword = span.start - span.public;
                let is_clearer = last.rule == provider_values::RULE && span.rank == last.rank;
                if (span.rank, keyword) > (last.rank, known) || is_clearer {
                    (last.rule, last.rank, known) = (span.rule, span.rank, keyword);
                }
            }
            _ => {
                known = span.start - span.public;
                out.push(span);
            }
        }
    }
    out
}
