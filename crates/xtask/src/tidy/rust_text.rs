//! The text of a Rust file: identifiers, string literals and comments, each with its line. The compiler's tokens contain no
//! comments, so the file is read character by character.

/// A part of a file, as the rules read it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) kind: PieceKind,
    /// The line on which the text begins.
    pub(super) line: usize,
    pub(super) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PieceKind {
    Identifier,
    /// Without quotes. Escapes became spaces; an escaped line break is a line break.
    StringLiteral,
    /// Adjoining line comments are one piece. Markers became spaces.
    Comment,
    DocComment,
}

/// The pieces of a file, in order.
pub(super) fn read_pieces(text: &str) -> Vec<Piece> {
    let mut reader = Reader { chars: text.chars().collect(), at: 0, line: 1, pieces: Vec::new() };
    while reader.at < reader.chars.len() {
        reader.read_next();
    }
    reader.pieces
}

struct Reader {
    chars: Vec<char>,
    at: usize,
    line: usize,
    pieces: Vec<Piece>,
}

impl Reader {
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(i, c)| self.peek(i) == c)
    }

    fn take(&mut self) -> char {
        let c = self.peek(0);
        self.at += 1;
        if c == '\n' {
            self.line += 1;
        }
        c
    }

    fn push(&mut self, kind: PieceKind, line: usize, text: String) {
        self.pieces.push(Piece { kind, line, text });
    }

    fn read_next(&mut self) {
        let c = self.peek(0);
        if self.starts_with("//") {
            self.read_line_comment();
        } else if self.starts_with("/*") {
            self.read_block_comment();
        } else if c == '"' {
            self.take();
            self.read_string(0, true);
        } else if c == '\'' {
            self.read_char_or_lifetime();
        } else if c.is_alphabetic() || c == '_' {
            self.read_word();
        } else if c.is_ascii_digit() {
            // A number swallows its suffix: `1u8` contains no identifier.
            while self.peek(0).is_alphanumeric() || self.peek(0) == '_' {
                self.take();
            }
        } else {
            self.take();
        }
    }

    fn read_line_comment(&mut self) {
        let line = self.line;
        let doc = (self.starts_with("///") && !self.starts_with("////")) || self.starts_with("//!");
        let kind = if doc { PieceKind::DocComment } else { PieceKind::Comment };
        while matches!(self.peek(0), '/' | '!') {
            self.take();
        }
        let mut text = String::new();
        while !matches!(self.peek(0), '\n' | '\0') {
            text.push(self.take());
        }
        let adjoining = self.pieces.last_mut().filter(|last| {
            let lines = last.text.matches('\n').count() + 1;
            last.kind == kind && last.line + lines == line
        });
        match adjoining {
            Some(last) => {
                last.text.push('\n');
                last.text.push_str(&text);
            }
            None => self.push(kind, line, text),
        }
    }

    fn read_block_comment(&mut self) {
        let line = self.line;
        let doc = self.starts_with("/**") && !self.starts_with("/**/") || self.starts_with("/*!");
        let kind = if doc { PieceKind::DocComment } else { PieceKind::Comment };
        let mut depth = 0;
        let mut text = String::new();
        while self.at < self.chars.len() {
            if self.starts_with("/*") {
                depth += 1;
                self.at += 2;
            } else if self.starts_with("*/") {
                depth -= 1;
                self.at += 2;
                if depth == 0 {
                    break;
                }
            } else {
                let c = self.take();
                text.push(if c == '*' { ' ' } else { c });
            }
        }
        self.push(kind, line, text);
    }

    /// Reads a literal behind its opening quote; a raw one has `hashes` on each side.
    fn read_string(&mut self, hashes: usize, escapes: bool) {
        let line = self.line;
        let mut text = String::new();
        while self.at < self.chars.len() {
            let c = self.take();
            if c == '"' && (0..hashes).all(|i| self.peek(i) == '#') {
                self.at += hashes;
                break;
            }
            if c == '\\' && escapes {
                match self.take() {
                    '\n' => text.push('\n'),
                    'u' => {
                        while !matches!(self.peek(0), '}' | '"' | '\0') {
                            self.take();
                        }
                        text.push(' ');
                    }
                    'x' => {
                        self.at += 2;
                        text.push(' ');
                    }
                    _ => text.push(' '),
                }
            } else {
                text.push(c);
            }
        }
        self.push(PieceKind::StringLiteral, line, text);
    }

    fn read_char_or_lifetime(&mut self) {
        if self.peek(1) == '\\' {
            self.at += 3;
            while !matches!(self.peek(0), '\'' | '\n' | '\0') {
                self.take();
            }
            self.take();
        } else if self.peek(2) == '\'' {
            self.take();
            self.take();
            self.take();
        } else {
            // The name of a lifetime is read as an identifier.
            self.take();
        }
    }

    fn read_word(&mut self) {
        let line = self.line;
        let mut word = String::new();
        while self.peek(0).is_alphanumeric() || self.peek(0) == '_' {
            word.push(self.take());
        }
        let prefix = matches!(word.as_str(), "r" | "b" | "br" | "c" | "cr");
        let hashes = (0..).take_while(|i| self.peek(*i) == '#').count();
        if prefix && self.peek(hashes) == '"' && (hashes == 0 || word.contains('r')) {
            self.at += hashes + 1;
            self.read_string(hashes, !word.contains('r'));
        } else if word == "b" && self.peek(0) == '\'' {
            self.read_char_or_lifetime();
        } else if word == "r" && hashes == 1 {
            self.take();
        } else {
            self.push(PieceKind::Identifier, line, word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(PieceKind, usize, String)> {
        read_pieces(text).into_iter().map(|piece| (piece.kind, piece.line, piece.text)).collect()
    }

    fn of_kind(text: &str, kind: PieceKind) -> Vec<String> {
        read_pieces(text).into_iter().filter(|piece| piece.kind == kind).map(|piece| piece.text).collect()
    }

    #[test]
    fn adjoining_comment_lines_are_one_piece_and_doc_comments_are_separate() {
        let found = read("// a\n// b\n\n// c\n/// d\nx // e\n");
        let expected = [
            (PieceKind::Comment, 1, " a\n b".to_owned()),
            (PieceKind::Comment, 4, " c".to_owned()),
            (PieceKind::DocComment, 5, " d".to_owned()),
            (PieceKind::Identifier, 6, "x".to_owned()),
            (PieceKind::Comment, 6, " e".to_owned()),
        ];
        assert_eq!(found, expected);
        assert_eq!(of_kind("/* a /* b */ c */ d", PieceKind::Identifier), ["d"]);
    }

    #[test]
    fn literals_are_read_without_escapes_and_characters_are_skipped() {
        let text = r##"f("a\nb // c", r#"d "e" \n"#, b"f", '"', '\'', 'g', "h \
            i", 1u8, "j\u{1f600}k")"##;
        let found = of_kind(text, PieceKind::StringLiteral);
        assert_eq!(found[..3], ["a b // c", "d \"e\" \\n", "f"]);
        assert!(found[3].starts_with("h \n") && found[4] == "j }k", "{found:?}");
        assert_eq!(of_kind(text, PieceKind::Identifier), ["f"]);
        assert_eq!(of_kind("&'life str r#type 'x'", PieceKind::Identifier), ["life", "str", "type"]);
    }
}
