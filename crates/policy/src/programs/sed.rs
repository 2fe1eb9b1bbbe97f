//! sed scripts: addresses and commands, one by one. What is not followed to its end is taken for the worst.

use super::{Does, Named, Program};

const UNCLEAR: Does = Does::Runs("a sed script that is not plain to read");

pub(crate) fn sed(script: &str) -> Program {
    let mut parser = Parser { s: script.chars().collect(), n: 0, files: Vec::new() };
    let mut does = Does::Reads;
    while !parser.done() {
        match parser.command() {
            Some(Does::Reads) => {}
            Some(other) => does = does.and(other),
            None => {
                does = does.and(UNCLEAR);
                break;
            }
        }
    }
    Program { does, files: parser.files }
}

struct Parser {
    s: Vec<char>,
    n: usize,
    files: Vec<Named>,
}

impl Parser {
    fn done(&self) -> bool {
        self.n >= self.s.len()
    }

    fn peek(&self) -> Option<char> {
        self.s.get(self.n).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.n += 1;
        Some(c)
    }

    fn skip(&mut self, set: &str) {
        while self.peek().is_some_and(|c| set.contains(c)) {
            self.n += 1;
        }
    }

    /// Text up to an unescaped delimiter, which is consumed. In a regular expression a bracket hides it.
    fn delimited(&mut self, delimiter: char, regex: bool) -> Option<String> {
        let mut text = String::new();
        loop {
            match self.next()? {
                c if c == delimiter => return Some(text),
                '\\' => {
                    text.push('\\');
                    text.push(self.next()?);
                }
                '\n' if regex => return None,
                '[' if regex && delimiter != '[' => {
                    text.push('[');
                    // A `]` in first place is itself.
                    for first in ['^', ']'] {
                        if self.peek() == Some(first) {
                            text.extend(self.next());
                        }
                    }
                    while self.peek()? != ']' {
                        let c = self.next()?;
                        text.push(c);
                        // [[:class:]], [[.x.]], [[=x=]]
                        if c == '[' && matches!(self.peek(), Some(':' | '.' | '=')) {
                            let kind = self.next()?;
                            text.push(kind);
                            while !(self.peek()? == kind && self.s.get(self.n + 1) == Some(&']')) {
                                text.extend(self.next());
                            }
                            text.extend(self.next());
                            text.extend(self.next());
                        }
                    }
                    text.extend(self.next());
                }
                c => text.push(c),
            }
        }
    }

    /// Names and commands go to the end of their line.
    fn rest_of_line(&mut self, does: Does) -> Option<Does> {
        let from = self.n;
        while !matches!(self.peek(), None | Some('\n')) {
            self.n += 1;
        }
        if let Does::Touches(_) = does {
            let text: String = self.s[from..self.n].iter().collect();
            let file = text.trim_start_matches(['w', 'W']).trim();
            let write = self.s.get(from.wrapping_sub(1)).is_none_or(|c| !matches!(c, 'r' | 'R'));
            self.files.push(Named { file: Some(file.to_owned()), write });
        }
        Some(does)
    }

    fn address(&mut self) -> Option<bool> {
        match self.peek() {
            Some(c) if c.is_ascii_digit() => {
                self.skip("0123456789");
                if self.peek() == Some('~') {
                    self.n += 1;
                    self.skip("0123456789");
                }
            }
            Some('$') => self.n += 1,
            Some('/') => {
                self.n += 1;
                self.delimited('/', true)?;
                self.skip("IM");
            }
            Some('\\') => {
                self.n += 1;
                let delimiter = self.next()?;
                self.delimited(delimiter, true)?;
                self.skip("IM");
            }
            Some('+' | '~') => {
                self.n += 1;
                self.skip("0123456789");
            }
            _ => return Some(false),
        }
        Some(true)
    }

    fn command(&mut self) -> Option<Does> {
        self.skip(" \t\n;");
        if self.done() {
            return Some(Does::Reads);
        }
        if self.address()? {
            self.skip(" \t");
            if self.peek() == Some(',') {
                self.n += 1;
                self.skip(" \t");
                self.address()?;
            }
        }
        self.skip(" \t!");
        let does = match self.next()? {
            '{' => return Some(Does::Reads),
            '}' => Does::Reads,
            '#' => {
                while !matches!(self.peek(), None | Some('\n')) {
                    self.n += 1;
                }
                return Some(Does::Reads);
            }
            '=' | 'd' | 'D' | 'g' | 'G' | 'h' | 'H' | 'n' | 'N' | 'p' | 'P' | 'x' | 'z' | 'F' => Does::Reads,
            'l' | 'L' | 'q' | 'Q' => {
                self.skip(" \t");
                self.skip("0123456789");
                Does::Reads
            }
            ':' | 'b' | 't' | 'T' | 'v' => {
                // A label ends at a blank, and then something else may follow.
                self.skip(" \t");
                while !matches!(self.peek(), None | Some('\n' | ';' | '}' | ' ' | '\t')) {
                    self.n += 1;
                }
                Does::Reads
            }
            'a' | 'i' | 'c' => {
                // Text to the end of the line; a backslash carries it on.
                while let Some(c) = self.next() {
                    if c == '\\' {
                        self.n += 1;
                    } else if c == '\n' {
                        break;
                    }
                }
                return Some(Does::Reads);
            }
            'y' => {
                let delimiter = self.next()?;
                self.delimited(delimiter, false)?;
                self.delimited(delimiter, false)?;
                Does::Reads
            }
            's' => {
                let delimiter = self.next()?;
                if delimiter == '\\' || delimiter == '\n' {
                    return None;
                }
                self.delimited(delimiter, true)?;
                self.delimited(delimiter, false)?;
                let mut does = Does::Reads;
                loop {
                    match self.peek() {
                        Some('g' | 'p' | 'i' | 'I' | 'm' | 'M' | '0'..='9') => self.n += 1,
                        Some('e') => {
                            does = Does::Runs("sed's s///e runs what it made");
                            self.n += 1;
                        }
                        Some('w') => return self.rest_of_line(does.and(Does::Touches("sed's w writes a file"))),
                        _ => break,
                    }
                }
                does
            }
            'w' | 'W' => return self.rest_of_line(Does::Touches("sed's w writes a file")),
            'r' | 'R' => return self.rest_of_line(Does::Touches("sed's r reads another file")),
            'e' => return self.rest_of_line(Does::Runs("sed's e runs a command")),
            _ => return None,
        };
        self.skip(" \t");
        match self.peek() {
            None | Some('\n' | ';' | '}' | '#') => Some(does),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_that_only_print_are_told_from_those_that_do_not() {
        for script in [
            "1,5p",
            "10,20p;20q",
            "s/w e/x/p",
            "s|/etc|/opt|",
            "/start/,/end/p",
            "$!d",
            "s/a/b/g;s/c/d/2",
            "y/abc/xyz/",
            "/re/{s/a/b/;p}",
            "1~2d",
            "0,/x/d",
            "/a/,+3p",
            "a\\\ntext w file",
            "i hello",
            ":a;N;$!ba;s/\\n/ /g",
            "=",
            "s/[/w]/x/",
            "s/[]w/]/x/g",
            "s,a\\,w f,b,",
            "/w file/d",
            "\\,/w,p",
            "n;d",
            "",
            "# w file\np",
            "s/[[:space:]]*$//",
            "s/x/w file/",
            "1!G;h;$!d",
            "5q",
            "l 20",
        ] {
            assert_eq!(sed(script).does, Does::Reads, "{script}");
        }
        for script in
            ["w out", "1w out", "s/a/b/w out", "s/a/b/gw out", "r /etc/passwd", "/x/w out", "1,2W out", "p;w x"]
        {
            assert!(matches!(sed(script).does, Does::Touches(_)), "{script}");
        }
        let files =
            |script: &str| sed(script).files.into_iter().map(|f| (f.file.unwrap(), f.write)).collect::<Vec<_>>();
        assert_eq!(files("1w out.txt\ns/a/b/gw /tmp/x"), [("out.txt".to_owned(), true), ("/tmp/x".to_owned(), true)]);
        assert_eq!(files("$r /etc/passwd"), [("/etc/passwd".to_owned(), false)]);
        for script in [
            "e id",
            "1e id",
            "s/a/b/e",
            "s/.*/id/ge",
            "e",
            "/x/e id",
            "{e id\n}",
            "s/a/b/x",
            "k",
            "s/a",
            "1,2,3p",
            "pe id",
            ":a e id",
            "v 4.2 e id",
            ":x w out",
        ] {
            assert!(matches!(sed(script).does, Does::Runs(_)), "{script}");
        }
    }
}
