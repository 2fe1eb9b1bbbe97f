//! Tells text that a program generated at random from text that people wrote: names, words, numbers.

use crate::{rules::has_entropy, runs::byte_class};

/// Letters of this many in a row may be a word.
const MIN_WORD_BYTES: usize = 5;

/// What can be counted of a value.
pub(crate) struct Composition {
    pub(crate) digits: usize,
    pub(crate) lower: usize,
    pub(crate) upper: usize,
    /// How often it changes between lower case, upper case and digits.
    pub(crate) changes: usize,
    pub(crate) is_hex: bool,
}

impl Composition {
    pub(crate) fn of(value: &[u8]) -> Self {
        let mut counted = Self { digits: 0, lower: 0, upper: 0, changes: 0, is_hex: true };
        let mut last = 0;
        for b in value {
            let class = byte_class(*b);
            counted.changes += usize::from(class != 0 && last != 0 && class != last);
            last = class;
            match class {
                1 => counted.lower += 1,
                2 => counted.upper += 1,
                3 => counted.digits += 1,
                _ => {}
            }
            counted.is_hex &= b.is_ascii_hexdigit();
        }
        counted
    }
}

/// Whether a value looks generated: letters and digits mixed, no words.
pub(crate) fn looks_generated(value: &[u8]) -> bool {
    let counted = Composition::of(value);
    counted.digits >= 1
        && counted.lower + counted.upper >= 1
        && counted.changes >= (value.len() / 6).max(2)
        && spoken_letters(value) <= (value.len() / 2).max(8)
        && has_entropy(value, if value.len() < 20 { 2.5 } else { 2.9 })
}

/// How many letters are in words that can be spoken: five and more in one case, or with one capital at the beginning; a
/// fifth to two thirds of them are vowels, and no four consonants are in a row.
pub(crate) fn spoken_letters(value: &[u8]) -> usize {
    let mut spoken = 0;
    let mut from = 0;
    for at in 1..=value.len() {
        let class = |i: usize| value.get(i).map_or(0, |b| byte_class(*b));
        let continues = match (class(at - 1), class(at)) {
            (1, 1) | (2, 2) => true,
            // A capital begins a word only.
            (2, 1) => at - from == 1,
            _ => false,
        };
        if !continues {
            if can_be_spoken(&value[from..at]) {
                spoken += at - from;
            }
            from = at;
        }
    }
    spoken
}

fn can_be_spoken(word: &[u8]) -> bool {
    if word.len() < MIN_WORD_BYTES || !word[0].is_ascii_alphabetic() {
        return false;
    }
    let vowels = word.iter().filter(|b| is_vowel(**b)).count();
    let longest = word.split(|b| is_vowel(*b)).map(<[u8]>::len).max().unwrap_or(0);
    vowels * 5 >= word.len() && vowels * 20 <= word.len() * 13 && longest <= 3
}

fn is_vowel(b: u8) -> bool {
    matches!(b.to_ascii_lowercase(), b'a' | b'e' | b'i' | b'o' | b'u' | b'y')
}

/// How many letters are in words as names have them: `With`, `SHA`.
pub(crate) fn capitalised_letters(body: &[u8]) -> usize {
    let mut letters = 0;
    let mut rest = body;
    while let Some(b) = rest.first() {
        let upper = rest.iter().take_while(|b| b.is_ascii_uppercase()).count();
        let lower = rest[upper..].iter().take_while(|b| b.is_ascii_lowercase()).count();
        let is_word = upper >= 1 && lower >= 2 || upper >= 3 || upper == 0 && lower >= 4;
        letters += if is_word { upper + lower } else { 0 };
        rest = &rest[(upper + lower).max(usize::from(!b.is_ascii_alphabetic()))..];
    }
    letters
}

/// Whether a text consists of words as names have them, and of nothing else: `Content-Length`.
pub(crate) fn reads_as_words(text: &[u8]) -> bool {
    let letters = text.iter().filter(|b| b.is_ascii_alphabetic()).count();
    let begins_word = matches!(text, [first, second, third, ..] if first.is_ascii_uppercase()
        && second.is_ascii_lowercase() && third.is_ascii_lowercase());
    begins_word
        && text.len() >= 6
        && !text.iter().any(u8::is_ascii_digit)
        && capitalised_letters(text) * 5 >= letters * 4
        && spoken_letters(text) * 2 >= letters.max(1)
}
