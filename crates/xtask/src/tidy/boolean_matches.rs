//! Rule: a condition is written with `if`, not as a `match` whose arms are `true` and `false`.

use super::Finding;
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use std::str::FromStr as _;

pub(super) fn check(file: &str, text: &str) -> Vec<Finding> {
    let mut lines = Vec::new();
    // The compiler reports a file that is not valid Rust.
    if let Ok(tokens) = TokenStream::from_str(text) {
        collect_lines(tokens, &mut lines);
    }
    let advice = "this `match` has the arms `true` and `false`: write `if`";
    lines.into_iter().map(|line| Finding::new(file, line, advice)).collect()
}

/// The lines of all matches on a boolean.
fn collect_lines(tokens: TokenStream, lines: &mut Vec<usize>) {
    let mut open_match = None;
    for token in tokens {
        match &token {
            TokenTree::Ident(name) if *name == "match" => open_match = Some(name.span().start().line),
            TokenTree::Group(group) => {
                if group.delimiter() == Delimiter::Brace
                    && let Some(line) = open_match.take()
                    && is_boolean(&patterns(group))
                {
                    lines.push(line);
                }
                collect_lines(group.stream(), lines);
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Whether these are the two arms of a condition. A match that a macro fills in has no pattern of its own.
fn is_boolean(patterns: &[String]) -> bool {
    patterns.len() == 2 && patterns.iter().all(|pattern| pattern == "true" || pattern == "false")
}

/// The patterns of a match, as text without spaces.
fn patterns(body: &Group) -> Vec<String> {
    let mut patterns = Vec::new();
    let mut pattern = String::new();
    let mut tokens = body.stream().into_iter().peekable();
    while let Some(token) = tokens.next() {
        let text = token.to_string();
        let is_arrow = text == "=" && tokens.peek().is_some_and(|next| next.to_string() == ">");
        if !is_arrow {
            pattern.push_str(&text);
            continue;
        }
        tokens.next();
        patterns.push(std::mem::take(&mut pattern));
        let is_block = |token: &TokenTree| matches!(token, TokenTree::Group(g) if g.delimiter() == Delimiter::Brace);
        let block = tokens.next_if(is_block).is_some();
        let is_comma = |token: &TokenTree| token.to_string() == ",";
        if block {
            tokens.next_if(is_comma);
        } else {
            while tokens.next().is_some_and(|token| !is_comma(&token)) {}
        }
    }
    patterns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<usize> {
        check("a.rs", text).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_match_on_a_boolean_is_found() {
        assert_eq!(found("fn f() {\n    match a.b(c) { true => d(e, f), false => g }\n}"), [2]);
        assert_eq!(found("match a { false => { b; c } true => {} }"), [1]);
        assert_eq!(found("x!(\nmatch a { true => match b { true => 1, false => 2 }, false => 3 })"), [2, 2]);
    }

    #[test]
    fn other_matches_are_fine() {
        assert!(found("match (a, b) { (true, _) => 1, (false, _) => 2 }").is_empty());
        assert!(found("match a { true if b => 1, _ => 2 }").is_empty());
        assert!(found("match a { Some(true) => 1, Some(false) => 2, None => 3 }").is_empty());
        assert!(found("matches!(a, true)").is_empty());
    }
}
