//! The items of one Rust file, read from its tokens: modules, type names, paths that begin at the crate, and the crates
//! that it names. Tokens suffice for that, and include the arguments of macros.
//!
//! Code below `#[cfg(test)]` and `#[test]` is marked as test code. Types that a macro creates have no
//! line, and types inside a function body have no name outside of it: both are left out.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use std::str::FromStr as _;

/// The items of one file.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) modules: Vec<ModuleDeclaration>,
    pub(super) types: Vec<TypeDefinition>,
    pub(super) paths: Vec<LocalPath>,
    pub(super) path_starts: Vec<PathStart>,
}

/// `mod name;`
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ModuleDeclaration {
    pub(super) name: String,
    /// The inline modules around it.
    pub(super) inside: Vec<String>,
    /// The value of `#[path = "…"]`.
    pub(super) path: Option<String>,
    pub(super) test: bool,
}

/// A struct, enum, trait, union or type alias, outside of test code.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TypeDefinition {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) inside: Vec<String>,
    /// It has a `#[cfg(…)]`: another definition may replace it.
    pub(super) conditional: bool,
}

/// A path that begins with `crate`, `self` or `super`, outside of test code.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LocalPath {
    /// How many modules up it begins; none for `crate`.
    pub(super) up: Option<usize>,
    pub(super) inside: Vec<String>,
    /// The first name behind that.
    pub(super) first: String,
    pub(super) line: usize,
}

/// The first name of a path: `serde` in `serde::Serialize`, perhaps the name of another crate.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PathStart {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) test: bool,
}

impl Source {
    /// Reads a file. The error names the part that is not valid Rust.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let tokens = TokenStream::from_str(text).map_err(|e| format!("{e} at line {}", e.span().start().line))?;
        let mut reader = SourceReader { source: Self::default(), inside: Vec::new(), test: false };
        reader.read(tokens, TokenLevel::Items);
        Ok(reader.source)
    }
}

/// Whether tokens can define items that the rest of the crate sees.
#[derive(Clone, Copy, PartialEq)]
enum TokenLevel {
    Items,
    Body,
}

#[derive(Default)]
struct Attributes {
    test: bool,
    conditional: bool,
    path: Option<String>,
}

impl Attributes {
    fn add(&mut self, attribute: &Group) {
        let text: String = attribute.stream().to_string().split_whitespace().collect();
        self.test |= is_test(&text);
        self.conditional |= text.starts_with("cfg(");
        if let Some(path) = text.strip_prefix("path=") {
            self.path = Some(path.trim_matches('"').to_owned());
        }
    }
}

fn is_test(attribute: &str) -> bool {
    matches!(attribute, "test" | "cfg(test)") || attribute.starts_with("cfg(all(test,")
}

struct SourceReader {
    source: Source,
    inside: Vec<String>,
    test: bool,
}

impl SourceReader {
    fn read(&mut self, tokens: TokenStream, level: TokenLevel) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let around = self.test;
        let mut attributes = Attributes::default();
        for (i, token) in tokens.iter().enumerate() {
            let next = tokens.get(i + 1);
            match token {
                TokenTree::Ident(name) => {
                    let name = name.to_string();
                    let line = token.span().start().line;
                    self.read_path(&tokens, i, &name, line);
                    if level == TokenLevel::Items {
                        self.read_item(&name, next, tokens.get(i + 2), &attributes);
                    }
                }
                TokenTree::Group(group) if follows(&tokens, i, "#") => {
                    attributes.add(group);
                    self.test = around || attributes.test;
                    self.read(group.stream(), TokenLevel::Body);
                }
                TokenTree::Group(group) if follows(&tokens, i, "#!") => {
                    // `#![cfg(test)]`: all of this file or module.
                    self.test |= is_test(&group.stream().to_string().split_whitespace().collect::<String>());
                }
                TokenTree::Group(group) => {
                    self.read_group(group, &tokens[..i], level);
                    if group.delimiter() == Delimiter::Brace {
                        attributes = Attributes::default();
                        self.test = around;
                    }
                }
                // A comma does not end an item, since it also separates the parameters of a type. So behind a field for
                // tests the rest of its struct counts as test code.
                TokenTree::Punct(mark) if mark.as_char() == ';' => {
                    attributes = Attributes::default();
                    self.test = around;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
        self.test = around;
    }

    /// A module is read as part of its path, anything else as a body.
    fn read_group(&mut self, group: &Group, before: &[TokenTree], level: TokenLevel) {
        match before {
            [.., keyword, name] if level == TokenLevel::Items && is_token(keyword, "mod") => {
                self.inside.push(name.to_string());
                self.read(group.stream(), TokenLevel::Items);
                self.inside.pop();
            }
            _ => self.read(group.stream(), TokenLevel::Body),
        }
    }

    fn read_item(
        &mut self,
        keyword: &str,
        name: Option<&TokenTree>,
        after: Option<&TokenTree>,
        attributes: &Attributes,
    ) {
        let Some(TokenTree::Ident(name)) = name else { return };
        let inside = self.inside.clone();
        if keyword == "mod" && after.is_some_and(|after| is_token(after, ";")) {
            let path = attributes.path.clone();
            self.source.modules.push(ModuleDeclaration { name: name.to_string(), inside, path, test: self.test });
        } else if matches!(keyword, "struct" | "enum" | "trait" | "union" | "type") && !self.test {
            let line = name.span().start().line;
            let conditional = attributes.conditional;
            self.source.types.push(TypeDefinition { name: name.to_string(), line, inside, conditional });
        }
    }

    fn read_path(&mut self, tokens: &[TokenTree], at: usize, name: &str, line: usize) {
        let leads = |at: usize| {
            let colon = |i| tokens.get(i).is_some_and(|t: &TokenTree| is_token(t, ":"));
            colon(at + 1) && colon(at + 2)
        };
        let continues = at >= 2 && is_token(&tokens[at - 1], ":") && is_token(&tokens[at - 2], ":");
        let used = at >= 1 && is_token(&tokens[at - 1], "use");
        if continues || !(leads(at) || used) {
            return;
        }
        let mut behind = at + 3;
        let up = match name {
            "crate" => None,
            "self" => Some(0),
            "super" => {
                let mut up = 1;
                while tokens.get(behind).is_some_and(|t| is_token(t, "super")) && leads(behind) {
                    up += 1;
                    behind += 3;
                }
                Some(up)
            }
            _ => {
                self.source.path_starts.push(PathStart { name: name.to_owned(), line, test: self.test });
                return;
            }
        };
        if self.test || !leads(at) {
            return;
        }
        let firsts = tokens.get(behind).map(first_names).unwrap_or_default();
        let inside = &self.inside;
        let paths = firsts.into_iter().map(|(first, line)| LocalPath { up, inside: inside.clone(), first, line });
        self.source.paths.extend(paths);
    }
}

/// The next names of a path: one, or each of `{…}`.
fn first_names(token: &TokenTree) -> Vec<(String, usize)> {
    match token {
        TokenTree::Ident(name) => vec![(name.to_string(), name.span().start().line)],
        TokenTree::Group(group) => {
            let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
            tokens.split(|t| is_token(t, ",")).filter_map(|part| part.first()).flat_map(first_names).collect()
        }
        TokenTree::Punct(_) | TokenTree::Literal(_) => Vec::new(),
    }
}

fn is_token(token: &TokenTree, text: &str) -> bool {
    match token {
        TokenTree::Ident(name) => *name == text,
        TokenTree::Punct(mark) => text.len() == 1 && text.starts_with(mark.as_char()),
        TokenTree::Group(_) | TokenTree::Literal(_) => false,
    }
}

/// Whether these marks directly precede a token.
fn follows(tokens: &[TokenTree], at: usize, marks: &str) -> bool {
    at >= marks.len()
        && marks.char_indices().all(|(i, mark)| is_token(&tokens[at - marks.len() + i], &mark.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Source {
        Source::read(text).unwrap()
    }

    #[test]
    fn modules_are_found_with_their_path_and_marked_as_tests() {
        let source =
            read("mod a; #[path = \"other.rs\"] pub(crate) mod b; mod c { mod d; } #[cfg(test)] mod tests; mod e;");
        let found: Vec<_> =
            source.modules.iter().map(|m| (m.name.as_str(), m.inside.len(), m.path.as_deref(), m.test)).collect();
        let expected = [
            ("a", 0, None, false),
            ("b", 0, Some("other.rs"), false),
            ("d", 1, None, false),
            ("tests", 0, None, true),
            ("e", 0, None, false),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn types_are_found_outside_of_tests_bodies_and_macros() {
        let source = read(
            "pub struct A<T>(T);\n/// doc struct X\nenum B { C }\ntrait D { type Inner; }\ntype E = u8; union F { a: u8 }\n\
             fn f() { struct Local; }\n#[cfg(test)] mod tests { struct G; }\nmacro_rules! m { () => { struct H; } }\n\
             mod inner { #[cfg(unix)] struct I; }",
        );
        let found: Vec<_> = source.types.iter().map(|t| (t.name.as_str(), t.line, t.conditional)).collect();
        let expected = [("A", 1, false), ("B", 3, false), ("D", 4, false), ("E", 5, false), ("F", 5, false)];
        assert_eq!(found[..5], expected);
        assert_eq!(found[5..], [("I", 9, true)]);
    }

    #[test]
    fn paths_of_the_crate_are_found_everywhere() {
        let source = read(
            "use crate::{a::X, b, c::{D, E}};\nuse super::super::f;\nfn g() { crate::h::i!(self::j::K, other::crate_(x)) }\n\
             #[cfg(test)] mod tests { use crate::l::M; }\npub(crate) fn n() {}",
        );
        let found: Vec<_> = source.paths.iter().map(|p| (p.up, p.first.as_str(), p.line)).collect();
        let expected =
            [(None, "a", 1), (None, "b", 1), (None, "c", 1), (Some(2), "f", 2), (None, "h", 3), (Some(0), "j", 3)];
        assert_eq!(found, expected);
    }

    #[test]
    fn other_crates_are_found_by_the_first_names_of_paths() {
        let source = read(
            "use serde::Serialize;\n#[derive(thiserror::Error)] struct A;\nuse libc;\nlet bytes = std::a(bytes);\n\
             #[test] fn t() { tempfile::tempdir() } fn u() { a::tokio::b() }",
        );
        let found: Vec<_> = source.path_starts.iter().map(|h| (h.name.as_str(), h.test)).collect();
        let expected =
            [("serde", false), ("thiserror", false), ("libc", false), ("std", false), ("tempfile", true), ("a", false)];
        assert_eq!(found, expected);
    }

    #[test]
    fn invalid_rust_is_an_error() {
        assert!(Source::read("fn f( {").is_err());
    }
}
