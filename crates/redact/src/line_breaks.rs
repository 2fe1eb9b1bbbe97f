//! Finds texts that a line break interrupts. The two bytes around a break select the texts that it could interrupt.

use crate::visible_text::is_break;

/// The places at which texts could be interrupted, by the bytes before and behind.
#[derive(Default)]
pub(crate) struct BreakPairs {
    /// For each pair that occurs: the index of a text, and how much of it precedes the break.
    places: Vec<Vec<(usize, usize)>>,
    /// Where the places of each pair are, counted from 1; 0 for a pair that does not occur. A pair has 16 bits.
    index: Vec<u16>,
}

impl BreakPairs {
    pub(crate) fn new<T: AsRef<[u8]>>(texts: impl IntoIterator<Item = T>) -> Self {
        let mut pairs = Self::default();
        texts.into_iter().enumerate().for_each(|(n, text)| pairs.add(n, text.as_ref()));
        pairs
    }

    /// Adds a text and its index.
    pub(crate) fn add(&mut self, n: usize, text: &[u8]) {
        if self.index.is_empty() {
            self.index = vec![0; 1 << 16];
        }
        for (at, pair) in text.windows(2).enumerate() {
            let slot = &mut self.index[pair_number(pair[0], pair[1])];
            if *slot == 0 {
                self.places.push(Vec::new());
                *slot = u16::try_from(self.places.len()).unwrap_or(u16::MAX);
            }
            self.places[usize::from(*slot) - 1].push((n, at + 1));
        }
    }

    /// Reports each text that the break at `at` interrupts, with its start and end.
    pub(crate) fn find_around<'t>(
        &self,
        text: &[u8],
        at: usize,
        text_of: impl Fn(usize) -> &'t [u8],
        mut report: impl FnMut(usize, usize, usize),
    ) {
        let behind = text[at..].iter().copied().find(|b| !is_break(*b));
        let (Some(before), Some(behind)) = (at.checked_sub(1).map(|i| text[i]), behind) else { return };
        let Some(slot) = self.index.get(pair_number(before, behind)).and_then(|slot| slot.checked_sub(1)) else {
            return;
        };
        for &(n, k) in &self.places[usize::from(slot)] {
            let (first, second) = text_of(n).split_at(k);
            let start = match_skipping_breaks(text, first.iter().rev(), (0..at).rev());
            let end = start.and_then(|_| match_skipping_breaks(text, second.iter(), at..text.len()));
            if let (Some(start), Some(end)) = (start, end) {
                report(n, start, end + 1);
            }
        }
    }
}

fn pair_number(a: u8, b: u8) -> usize {
    usize::from(a) << 8 | usize::from(b)
}

/// The place of a pair in a table of bits, and its bit there.
pub(crate) fn pair_bit(a: u8, b: u8) -> (usize, u64) {
    let bit = pair_number(a, b);
    (bit / 64, 1 << (bit % 64))
}

/// The last of `places` that `wanted` needs, if its bytes are there; breaks are skipped.
fn match_skipping_breaks<'w>(
    text: &[u8],
    wanted: impl Iterator<Item = &'w u8>,
    places: impl Iterator<Item = usize>,
) -> Option<usize> {
    let mut places = places.filter(|i| !is_break(text[*i]));
    let mut last = None;
    for b in wanted {
        last = Some(places.next().filter(|i| text[*i] == *b)?);
    }
    last
}
