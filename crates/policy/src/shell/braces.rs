//! Brace expansion: `a{b,c}d`, `{1..5}`. It precedes every other expansion, and applies to unquoted text.

use super::{lex::WordPiece, state::MAX_WORD_VALUES};

/// One element for brace expansion.
#[derive(Clone)]
pub(super) enum BraceElement {
    Char(char),
    Piece(usize),
    /// The expansion of a tilde; None if it is not known.
    Home(Option<String>),
}

/// Expands the braces of one word into several words; none if there are too many.
pub(super) fn expand_word(pieces: &[WordPiece]) -> Option<Vec<Vec<BraceElement>>> {
    let mut atoms = Vec::new();
    for (n, piece) in pieces.iter().enumerate() {
        match piece {
            WordPiece::Text { text, quoted: false } => atoms.extend(text.chars().map(BraceElement::Char)),
            _ => atoms.push(BraceElement::Piece(n)),
        }
    }
    expand_braces(&atoms, 0)
}

fn expand_braces(atoms: &[BraceElement], depth: usize) -> Option<Vec<Vec<BraceElement>>> {
    if depth > 8 {
        return None;
    }
    let is = |n: usize, c: char| matches!(atoms.get(n), Some(BraceElement::Char(x)) if *x == c);
    let mut start = 0;
    while start < atoms.len() {
        if !is(start, '{') || start > 0 && is(start - 1, '$') {
            start += 1;
            continue;
        }
        let (mut open, mut commas, mut end) = (0, vec![start], None);
        for n in start..atoms.len() {
            if is(n, '{') {
                open += 1;
            } else if is(n, '}') {
                open -= 1;
                if open == 0 {
                    end = Some(n);
                    break;
                }
            } else if is(n, ',') && open == 1 {
                commas.push(n);
            }
        }
        let Some(end) = end else {
            start += 1;
            continue;
        };
        commas.push(end);
        let inner: Vec<Vec<BraceElement>> = if commas.len() > 2 {
            let mut all = Vec::new();
            for pair in commas.windows(2) {
                all.extend(expand_braces(&atoms[pair[0] + 1..pair[1]], depth + 1)?);
            }
            all
        } else {
            match expand_sequence(&atoms[start + 1..end]) {
                Some(Some(all)) => all,
                Some(None) => return None,
                // Not a brace expression, but its inside may contain one.
                None => {
                    start += 1;
                    continue;
                }
            }
        };
        let tails = expand_braces(&atoms[end + 1..], depth + 1)?;
        if inner.len() * tails.len() > MAX_WORD_VALUES {
            return None;
        }
        let head = &atoms[..start];
        let mut all = Vec::new();
        for middle in &inner {
            for tail in &tails {
                all.push(head.iter().chain(middle).chain(tail).cloned().collect());
            }
        }
        return Some(all);
    }
    Some(vec![atoms.to_vec()])
}

/// Expands `1..5` or `a..e`, with a step; `Some(None)` if there are too many values.
fn expand_sequence(atoms: &[BraceElement]) -> Option<Option<Vec<Vec<BraceElement>>>> {
    let text: Option<String> = atoms
        .iter()
        .map(|a| match a {
            BraceElement::Char(c) => Some(*c),
            BraceElement::Piece(_) | BraceElement::Home(_) => None,
        })
        .collect();
    let text = text?;
    let parts: Vec<&str> = text.split("..").collect();
    let (from, to, step) = match parts[..] {
        [from, to] => (from, to, 1),
        [from, to, step] => (from, to, step.parse::<i32>().ok()?.unsigned_abs().max(1)),
        _ => return None,
    };
    let chars = |s: String| s.chars().map(BraceElement::Char).collect::<Vec<BraceElement>>();
    let letter = |s: &str| s.chars().next().filter(|c| s.len() == 1 && c.is_ascii_alphabetic());
    let run = |a: i64, b: i64| -> Option<Vec<i64>> {
        let count = (b - a).unsigned_abs() / u64::from(step) + 1;
        let step = i64::from(step) * if b < a { -1 } else { 1 };
        (count <= MAX_WORD_VALUES as u64).then(|| (0..count as i64).map(|n| a + n * step).collect())
    };
    if let (Ok(a), Ok(b)) = (from.parse::<i32>(), to.parse::<i32>()) {
        let padded = |s: &str| s.trim_start_matches(['-', '+']).starts_with('0') && s.trim_start_matches('-').len() > 1;
        let width = if padded(from) || padded(to) { from.len().max(to.len()) } else { 0 };
        return Some(run(a.into(), b.into()).map(|all| all.iter().map(|n| chars(format!("{n:0width$}"))).collect()));
    }
    let (a, b) = (letter(from)?, letter(to)?);
    // Between upper case and lower case are characters that quote or match.
    if a.is_ascii_uppercase() != b.is_ascii_uppercase() {
        return Some(None);
    }
    let all = run(i64::from(a as u32), i64::from(b as u32));
    Some(all.map(|all| {
        all.iter()
            .filter_map(|n| u32::try_from(*n).ok().and_then(char::from_u32))
            .map(|c| chars(c.to_string()))
            .collect()
    }))
}
