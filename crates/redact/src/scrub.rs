//! The engine. One buffer per stream, scanned in place: clean text is never copied.
//!
//! ```text
//! buf:  [ context, already given out ][ clean, not yet given out ][ held: not yet decided ][ spare ]
//!       0                        taken                        clean                      len
//! ```
//!
//! A position is decided once no later byte can change what happens to it. That makes the output the same for every
//! way of cutting the input. Bytes are held only where that is needed: the start of a known value, the start of a
//! prefix, the open value after a complete prefix. `flush` (nothing has come for a while) lets go of all but open
//! values and partial known values of four bytes or more; the context makes sure that what follows is still judged
//! together with what was let go.

use crate::{Known, rules::RULES};
use aho_corasick::{AhoCorasick, Match, MatchKind, packed};
use countersign_model::{Clean, Digest};
use std::sync::{Arc, OnceLock};

/// The largest chunk that is given out at once.
pub const CHUNK: usize = 256 * 1024;
/// The SIMD search takes at most 64 patterns; more go into a second searcher.
const SHARD: usize = 48;
/// A partial known value of this length is held through a flush.
const PARTIAL: usize = 4;

/// What to look for. Shared by the streams of a task; compiled when the first of them has something to look at.
pub struct Mask {
    shards: OnceLock<Vec<Searcher>>,
    values: Vec<Vec<u8>>,
    context: usize,
    key: [u8; 32],
}

/// A search for a few dozen patterns: with SIMD where the processor has it, which is also the cheapest to make.
enum Searcher {
    Packed(packed::Searcher),
    Automaton(AhoCorasick),
}

impl Searcher {
    fn new<P: AsRef<[u8]>>(patterns: &[P]) -> Self {
        let mut builder = packed::Config::new().match_kind(packed::MatchKind::LeftmostFirst).builder();
        match builder.extend(patterns).build() {
            Some(searcher) => Searcher::Packed(searcher),
            None => {
                let mut builder = AhoCorasick::builder();
                let built = builder.match_kind(MatchKind::LeftmostFirst).build(patterns);
                Searcher::Automaton(built.expect("a few dozen short patterns are within every limit of the automaton"))
            }
        }
    }

    fn find(&self, text: &[u8]) -> Option<Match> {
        match self {
            Searcher::Packed(searcher) => searcher.find(text),
            Searcher::Automaton(searcher) => searcher.find(text),
        }
    }
}

/// The rules are the same for everyone: compiled once in a process and inherited by its forks.
fn rules_searcher() -> &'static Searcher {
    static RULES_SEARCHER: OnceLock<Searcher> = OnceLock::new();
    RULES_SEARCHER.get_or_init(|| Searcher::new(&RULES.iter().map(|r| r.prefix).collect::<Vec<_>>()))
}

/// Does what can be done before the first text comes.
pub fn warm_up() {
    let _ = rules_searcher().find(b"warm");
}

enum Pattern {
    Value,
    Rule(usize),
}

struct Hit {
    start: usize,
    end: usize,
    pattern: Pattern,
}

impl Mask {
    #[must_use]
    pub fn new(key: Digest, known: Known) -> Self {
        // Longest first: with leftmost-first search a value then wins over its own prefix.
        let mut values: Vec<Vec<u8>> = known.forms.into_iter().collect();
        values.sort_by_key(|v| std::cmp::Reverse(v.len()));
        let context = RULES.iter().map(|r| r.prefix.len()).max().unwrap_or(0).max(PARTIAL) + 1;
        Self { shards: OnceLock::new(), values, context, key: *key.as_bytes() }
    }

    /// Whether there is anything to look for beside shapes.
    #[must_use]
    pub fn knows_values(&self) -> bool {
        !self.values.is_empty()
    }

    /// The same mask with more known values, in all their forms.
    #[must_use]
    pub fn with<'a>(&self, values: impl IntoIterator<Item = &'a String>) -> Self {
        let mut known = Known { forms: self.values.iter().cloned().collect() };
        values.into_iter().for_each(|value| known.add(value));
        Self::new(Digest::from_bytes(self.key), known)
    }

    /// Nothing known but the shapes of tokens.
    #[must_use]
    pub fn of_shapes() -> Self {
        Self::new(Digest::sha256(&[b"shape"]), Known::default())
    }

    fn patterns(&self) -> impl Iterator<Item = &[u8]> {
        self.values.iter().map(Vec::as_slice).chain(RULES.iter().map(|r| r.prefix.as_bytes()))
    }

    /// The searchers and where their patterns begin: those for the values of this task, and the one for the rules.
    fn shards(&self) -> impl Iterator<Item = (usize, &Searcher)> {
        let values = self.shards.get_or_init(|| self.values.chunks(SHARD).map(Searcher::new).collect());
        let rules = rules_searcher();
        values.iter().enumerate().map(|(n, s)| (n * SHARD, s)).chain([(self.values.len(), rules)])
    }

    /// Whether a short text holds anything that would need a closer look. Compiles nothing.
    pub(crate) fn suspects(&self, text: &[u8]) -> bool {
        let found = |p: &[u8]| p.len() <= text.len() && text.windows(p.len()).any(|w| w == p);
        self.patterns().any(found)
    }

    /// The leftmost hit at or after `from`; values before rules where both start together.
    fn find(&self, buf: &[u8], from: usize) -> Option<Hit> {
        let hits = self.shards().filter_map(|(base, finder)| {
            finder.find(&buf[from..]).map(|m| (from + m.start(), base + m.pattern().as_usize(), from + m.end()))
        });
        let (start, pattern, end) = hits.min()?;
        let pattern = match pattern.checked_sub(self.values.len()) {
            None => Pattern::Value,
            Some(rule) => Pattern::Rule(rule),
        };
        Some(Hit { start, end, pattern })
    }

    /// Where the undecided end of `buf` begins: the earliest place at or after `from` from which a value or a prefix
    /// may still be growing.
    fn undecided(&self, buf: &[u8], from: usize, flush: bool) -> usize {
        let at_least = if flush { PARTIAL } else { 1 };
        let values = self.values.iter().map(|v| partial(buf, v, from, at_least));
        let prefixes = RULES.iter().filter(|_| !flush).map(|r| partial(buf, r.prefix.as_bytes(), from, 1));
        values.chain(prefixes).min().unwrap_or(buf.len())
    }

    fn placeholder(&self, rule: &str, secret: &[u8]) -> Vec<u8> {
        let hash = blake3::keyed_hash(&self.key, secret);
        let [a, b, ..] = *hash.as_bytes();
        format!("[redacted:{rule}:{a:02x}{b:02x}]").into_bytes()
    }
}

/// The start of the longest end of `buf` that is a beginning, but not the whole, of `pattern`.
fn partial(buf: &[u8], pattern: &[u8], from: usize, at_least: usize) -> usize {
    let lowest = buf.len().saturating_sub(pattern.len() - 1).max(from);
    let highest = (buf.len() + 1).saturating_sub(at_least);
    let Some(first) = pattern.first() else { return buf.len() };
    let Some(range) = buf.get(lowest..highest) else { return buf.len() };
    memchr::memchr_iter(*first, range)
        .map(|i| lowest + i)
        .find(|&start| pattern.starts_with(&buf[start..]))
        .unwrap_or(buf.len())
}

/// One replacement: which rule, and where in the clean stream its placeholder begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub rule: &'static str,
    pub offset: u64,
}

/// A piece of clean output. Its buffer can be handed back to [`Scrubber::recycle`].
#[derive(Debug)]
pub struct Chunk {
    buf: Vec<u8>,
    start: usize,
    end: usize,
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }
}

/// One stream being cleaned.
pub struct Scrubber {
    mask: Arc<Mask>,
    buf: Vec<u8>,
    taken: usize,
    clean: usize,
    len: usize,
    /// Hits that start before this have been judged.
    floor: usize,
    /// Inside a run that is masked to its end, by the alphabet of this rule.
    swallow: Option<fn(u8) -> bool>,
    /// Clean bytes given out before `buf[taken]`.
    offset: u64,
    found: Vec<Found>,
    spare: Option<Vec<u8>>,
}

impl Scrubber {
    #[must_use]
    pub fn new(mask: Arc<Mask>) -> Self {
        Self {
            mask,
            buf: Vec::new(),
            taken: 0,
            clean: 0,
            len: 0,
            floor: 0,
            swallow: None,
            offset: 0,
            found: Vec::new(),
            spare: None,
        }
    }

    /// From here on another mask applies: one that knows more.
    pub fn learn(&mut self, mask: Arc<Mask>) {
        self.mask = mask;
    }

    /// Room for the next bytes; tell [`Scrubber::fed`] how many were put there. Never empty.
    pub fn room(&mut self) -> &mut [u8] {
        let used = self.len - self.taken;
        let want = CHUNK.saturating_sub(used).max(4096);
        if self.buf.len() < self.len + want {
            let size = (self.len + want).max(CHUNK + 16 * 1024);
            match self.buf.is_empty() {
                true => self.buf = vec![0; size],
                false => self.buf.resize(size, 0),
            }
        }
        &mut self.buf[self.len..self.len + want]
    }

    /// The next `n` bytes are in the room.
    pub fn fed(&mut self, n: usize) {
        self.len += n;
        self.scan(false, false);
    }

    /// Nothing has come for a while.
    pub fn flush(&mut self) {
        self.scan(true, false);
    }

    /// Nothing more will come.
    pub fn finish(&mut self) {
        self.scan(true, true);
    }

    /// How many clean bytes wait to be given out.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.clean - self.taken
    }

    /// How many bytes are held because what follows may decide about them.
    #[must_use]
    pub fn held(&self) -> usize {
        self.len - self.clean
    }

    /// How many clean bytes have been given out.
    #[must_use]
    pub fn given(&self) -> u64 {
        self.offset
    }

    /// Replacements since the last call.
    pub fn found(&mut self) -> Vec<Found> {
        std::mem::take(&mut self.found)
    }

    /// The buffer of a chunk that is no longer needed.
    pub fn recycle(&mut self, chunk: Chunk) {
        self.spare = Some(chunk.buf);
    }

    /// All clean bytes, at most [`CHUNK`]. A character cut in two at the end waits for its rest unless `all` is set.
    pub fn cut(&mut self, all: bool) -> Option<Clean<Chunk>> {
        let mut end = self.clean.min(self.taken + CHUNK);
        if !all || end < self.clean {
            let whole = whole_characters(&self.buf[self.taken..end]);
            end = if whole == 0 && self.ready() > 3 { end } else { self.taken + whole };
        }
        if end == self.taken {
            return None;
        }
        let context = self.mask.context.min(end);
        let keep = end - context..self.len;
        let mut next = self.spare.take().unwrap_or_default();
        if next.len() < keep.len() {
            next = vec![0; keep.len().max(CHUNK + 16 * 1024)];
        }
        next[..keep.len()].copy_from_slice(&self.buf[keep.clone()]);
        let buf = std::mem::replace(&mut self.buf, next);
        let chunk = Chunk { buf, start: self.taken, end };
        self.offset += (end - self.taken) as u64;
        self.taken = context;
        self.clean -= keep.start;
        self.len -= keep.start;
        self.floor = self.floor.saturating_sub(keep.start);
        Some(crate::mint(chunk))
    }

    fn scan(&mut self, flush: bool, end: bool) {
        if let Some(alphabet) = self.swallow {
            let run = self.buf[self.clean..self.len].iter().take_while(|b| alphabet(**b)).count();
            self.remove(self.clean, self.clean + run);
            if self.clean == self.len {
                return;
            }
            self.swallow = None;
        }
        let mask = Arc::clone(&self.mask);
        let mut from = self.clean.saturating_sub(mask.context).max(self.floor);
        loop {
            let buf = &self.buf[..self.len];
            let undecided = if end { self.len } else { mask.undecided(buf, from, flush) };
            let hit = match mask.find(buf, from) {
                Some(hit) if hit.start < undecided => hit,
                _ => {
                    self.clean = self.clean.max(undecided);
                    return;
                }
            };
            match hit.pattern {
                Pattern::Value if hit.end > self.clean => {
                    from = self.replace(hit.start.max(self.clean), hit.end, "known-value", &mask);
                }
                Pattern::Value => from = hit.start + 1,
                Pattern::Rule(n) => {
                    let rule = &RULES[n];
                    let bounded = hit.start == 0 || !buf[hit.start - 1].is_ascii_alphanumeric();
                    let run = buf[hit.end..].iter().take(rule.max + 1).take_while(|b| (rule.alphabet)(**b)).count();
                    let open = hit.end + run == self.len && run <= rule.max && !end;
                    if bounded && open {
                        // The prefix is public and may go; its value is still growing.
                        self.clean = self.clean.max(hit.end);
                        return;
                    }
                    // A fixed length that goes on is something else; a bounded one is masked to its end.
                    let fits = run >= rule.min && (run <= rule.max || rule.min < rule.max);
                    if bounded && fits {
                        from = self.replace(hit.end.max(self.clean), hit.end + run, rule.id, &mask);
                        if run > rule.max {
                            self.swallow = Some(rule.alphabet);
                            return self.scan(flush, end);
                        }
                    } else {
                        from = hit.start + 1;
                    }
                }
            }
            self.floor = from;
        }
    }

    /// Puts a placeholder for `start..end`; gives the place behind it.
    fn replace(&mut self, start: usize, end: usize, rule: &'static str, mask: &Mask) -> usize {
        let placeholder = mask.placeholder(rule, &self.buf[start..end]);
        self.found.push(Found { rule, offset: self.offset + (start - self.taken) as u64 });
        let after = start + placeholder.len();
        let tail = self.len - end;
        if self.buf.len() < after + tail {
            self.buf.resize(after + tail, 0);
        }
        self.buf.copy_within(end..self.len, after);
        self.buf[start..after].copy_from_slice(&placeholder);
        self.len = after + tail;
        self.clean = after;
        self.floor = after;
        after
    }

    fn remove(&mut self, start: usize, end: usize) {
        self.buf.copy_within(end..self.len, start);
        self.len -= end - start;
    }
}

/// The length of the longest beginning that does not end inside a UTF-8 character.
fn whole_characters(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let b = bytes[bytes.len() - back];
        let width = match b {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return bytes.len(),
        };
        return if width > back { bytes.len() - back } else { bytes.len() };
    }
    bytes.len()
}

/// Everything at once.
pub(crate) fn whole(mask: &Mask, raw: &[u8]) -> Vec<u8> {
    let mut scrubber = Scrubber::new(Arc::new(Mask {
        shards: OnceLock::new(),
        values: mask.values.clone(),
        context: mask.context,
        key: mask.key,
    }));
    let mut out = Vec::with_capacity(raw.len());
    for piece in raw.chunks(CHUNK / 2) {
        let room = scrubber.room();
        room[..piece.len()].copy_from_slice(piece);
        scrubber.fed(piece.len());
        while let Some(chunk) = scrubber.cut(false) {
            out.extend_from_slice(chunk.as_ref());
        }
    }
    scrubber.finish();
    while let Some(chunk) = scrubber.cut(true) {
        out.extend_from_slice(chunk.as_ref());
    }
    out
}
