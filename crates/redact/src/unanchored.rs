//! Finds the few tokens that have a form of their own and no fixed text in it.

use crate::{
    generated::looks_generated,
    guard::is_uuid,
    span::{Inspection, Rank, Span},
    visible_text::TextView,
};

/// Inspects a word: letters, digits, `_` and `-`.
pub(crate) fn inspect_word(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    let end = end.min(view.until_moved(start));
    let word = &view.bytes[start..end];
    let lengths = || word.split(|b| *b == b'-').map(<[u8]>::len);
    let hex = || word.iter().all(|b| b.is_ascii_hexdigit() || *b == b'-');
    let found = |end: usize, rule: &'static str| Inspection::Found(Span::new(start, end, rule, Rank::Shape));
    // A later byte may belong to the word; the engine holds it.
    if end == view.len() && !view.end && !view.is_moved_at(end) {
        return Inspection::Nothing;
    }
    // A part of base64.
    let beside = [start.checked_sub(1).and_then(|i| view.byte(i)), view.byte(end)];
    if beside.iter().flatten().any(|b| matches!(b, b'+' | b'/')) {
        return Inspection::Nothing;
    }
    match word.len() {
        50 if lengths().eq([32, 8, 8]) && hex() => found(end, "mailgun-key"),
        51 | 52 if is_wallet_key(word) => found(end, "wallet-key"),
        36 if is_uuid(word) && view.byte(end) == Some(b':') => {
            let rest = &view.bytes[end + 1..view.until_moved(end).min(end + 34)];
            let length = rest.iter().take_while(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')).count();
            match rest.get(length) {
                None if length <= 32 && !view.end && !view.is_moved_at(end + 1 + length) => Inspection::Open(start),
                Some(b) if b.is_ascii_alphanumeric() => Inspection::Nothing,
                _ if length == 32 => found(end + 33, "fal-key"),
                _ => Inspection::Nothing,
            }
        }
        _ => Inspection::Nothing,
    }
}

/// A private key of a wallet: base 58 of a length of its own.
fn is_wallet_key(word: &[u8]) -> bool {
    let is_base58 = |b: &u8| b.is_ascii_alphanumeric() && !matches!(b, b'0' | b'O' | b'I' | b'l');
    let first = if word.len() == 51 { &b"5"[..] } else { b"KL" };
    let has = |of: fn(&u8) -> bool| word.iter().any(of);
    first.contains(&word[0])
        && word.iter().all(is_base58)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_uppercase)
        && looks_generated(word)
}
