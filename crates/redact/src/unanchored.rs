//! Finds the few tokens that have a form of their own and no fixed text in it.

use crate::{
    generated::{Composition, looks_generated},
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
    // A part of base64; but a diff begins a line that it adds with `+`.
    let is_added = |at: &usize| view.byte(*at) == Some(b'+') && view.line_start(*at, 1) == *at;
    let beside = [start.checked_sub(1).filter(|at| !is_added(at)).and_then(|i| view.byte(i)), view.byte(end)];
    if beside.iter().flatten().any(|b| matches!(b, b'+' | b'/')) {
        return Inspection::Nothing;
    }
    let behind = |text: &[u8]| view.bytes[..start].ends_with(text);
    match word.len() {
        24 if is_vault_token(view, start, word) => found(end, "vault-token"),
        24..=26 if matches!(word[0], b'M' | b'N' | b'O') && view.byte(end) == Some(b'.') => {
            inspect_discord_token(view, start, end)
        }
        48 | 49 if word[27] == b'_' && (word[0] == b'2' || is_random_pair(word, 27)) && looks_generated(word) => {
            found(end, "ngrok-token")
        }
        27 | 28 if behind(b"|") && digits_before(view, start - 1) >= 14 && looks_generated(word) => {
            found(end, "facebook-token")
        }
        32 if hex() && behind(b":") && is_asana_owner(view, start - 1) => found(end, "asana-token"),
        // `%3A` in a link: the word begins behind its sign.
        34 if hex() && word.starts_with(b"3A") && behind(b"%") && is_asana_owner(view, start - 1) => {
            Inspection::Found(Span::new(start + 2, end, "asana-token", Rank::Shape))
        }
        32 if hex() && view.byte(end) == Some(b'.') => inspect_dotted_key(view, start, end),
        40 if behind(b"*") && word.iter().all(|b| matches!(b, b'0'..=b'9' | b'A'..=b'F')) => found(end, "mysql-hash"),
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

/// Whether a word consists of two parts of letters and digits that look generated, divided by the sign at `at`.
fn is_random_pair(word: &[u8], at: usize) -> bool {
    [&word[..at], &word[at + 1..]].iter().all(|part| {
        let counted = Composition::of(part);
        counted.lower + counted.upper + counted.digits == part.len()
            && counted.lower >= 3
            && counted.upper >= 3
            && counted.digits >= 1
            && looks_generated(part)
    })
}

/// How many digits precede a place.
fn digits_before(view: TextView<'_>, at: usize) -> usize {
    view.bytes[..at].iter().rev().take(20).take_while(|b| b.is_ascii_digit()).count()
}

/// `1/1200000000000000:` and `2/1200000000000000/1200000000000000:`
fn is_asana_owner(view: TextView<'_>, colon: usize) -> bool {
    let mut at = colon;
    for _ in 0..2 {
        let digits = digits_before(view, at);
        // A link may write the slash as `%2F`; the last digit of the number before it is not part of that.
        let before = &view.bytes[..at - digits];
        let encoded = before.ends_with(b"%2F");
        if digits < 12 || !(encoded || before.ends_with(b"/")) {
            return false;
        }
        at -= digits + if encoded { 3 } else { 1 };
        if matches!(view.bytes[..at].last(), Some(b'0'..=b'2')) && digits_before(view, at) == 1 {
            return true;
        }
    }
    false
}

/// An older token of Vault: `s.` and 24 random characters.
fn is_vault_token(view: TextView<'_>, start: usize, word: &[u8]) -> bool {
    let before = &view.bytes[start.saturating_sub(3)..start];
    let kind = matches!(before, [.., b's' | b'b' | b'r', b'.']);
    let alone =
        before.len() < 3 || !(before[0].is_ascii_alphanumeric() || matches!(before[0], b'.' | b'_' | b'-' | b'/'));
    let counted = Composition::of(word);
    kind && alone
        && word.iter().all(u8::is_ascii_alphanumeric)
        && counted.digits >= 1
        && counted.lower > 0
        && counted.upper > 0
        && looks_generated(word)
}

/// Reads the word behind a dot; none if it may go on.
fn word_behind(view: TextView<'_>, dot: usize) -> Option<usize> {
    let until = view.until_moved(dot).min(dot + 1 + MAX_PART_BYTES);
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    let end = dot + 1 + view.bytes[dot + 1..until].iter().take_while(|b| is_word(b)).count();
    (end < view.len() || view.end || view.is_moved_at(end)).then_some(end)
}

/// `32 hexadecimal digits`, a dot and a random word: the keys of Zhipu and Ollama.
fn inspect_dotted_key(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    let Some(to) = word_behind(view, end) else { return Inspection::Open(start) };
    let part = &view.bytes[end + 1..to];
    let counted = Composition::of(part);
    let is_mixed = counted.lower >= 4 && counted.upper >= 4 && counted.changes >= 6;
    let fits = (16..=24).contains(&part.len()) && (looks_generated(part) || is_mixed);
    if !fits || matches!(view.byte(to), Some(b'.' | b'/' | b'(')) {
        return Inspection::Nothing;
    }
    Inspection::Found(Span::new(start, to, "zhipu-key", Rank::Shape))
}

/// The token of a Discord bot whose id begins unusually: three parts of 24 to 26, six and 27 to 38 bytes.
fn inspect_discord_token(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    let Some(second) = word_behind(view, end) else { return Inspection::Open(start) };
    if second - end != 7 || view.byte(second) != Some(b'.') {
        return if second == view.len() && !view.end { Inspection::Open(start) } else { Inspection::Nothing };
    }
    let Some(third) = word_behind(view, second) else { return Inspection::Open(start) };
    let fits = (28..=39).contains(&(third - second)) && looks_generated(&view.bytes[second + 1..third]);
    if !fits || !looks_generated(&view.bytes[start..end]) {
        return Inspection::Nothing;
    }
    Inspection::Found(Span::new(start, third, "discord-token", Rank::Shape))
}

/// The longest part behind a dot.
const MAX_PART_BYTES: usize = 64;

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
