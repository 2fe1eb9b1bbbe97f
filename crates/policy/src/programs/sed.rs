//! Analyses sed scripts, address by address and command by command. A script that is not parsed to its end counts as
//! the worst case, and so does one that GNU, busybox and BSD sed read differently.

use super::{BracketSyntax, FileUse, NamedFile, ProgramEffects, delimited_end};

const UNCLEAR: FileUse = FileUse::Runs("the sed script cannot be analysed");

pub(crate) fn sed(script: &str) -> ProgramEffects {
    let mut parser = SedParser { s: script.chars().collect(), n: 0, open_braces: 0, files: Vec::new() };
    let mut file_use = FileUse::Reads;
    while !parser.at_end() {
        match parser.read_command() {
            Some(FileUse::Reads) => {}
            Some(other) => file_use = file_use.worse_of(other),
            None => {
                file_use = file_use.worse_of(UNCLEAR);
                break;
            }
        }
    }
    if parser.open_braces > 0 {
        file_use = file_use.worse_of(UNCLEAR);
    }
    ProgramEffects { file_use, files: parser.files }
}

struct SedParser {
    s: Vec<char>,
    n: usize,
    /// The number of open braces.
    open_braces: usize,
    files: Vec<NamedFile>,
}

impl SedParser {
    fn at_end(&self) -> bool {
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

    /// Takes the delimiter of a regular expression or a text. Implementations differ in what letters, brackets,
    /// blanks, backslashes and multi-byte characters mean here.
    fn take_delimiter(&mut self) -> Option<char> {
        self.next().filter(|c| c.is_ascii_punctuation() && !matches!(c, '\\' | '[' | ']' | '{' | '}'))
    }

    /// Skips a regular expression and its delimiter. Every sed with bracket syntax must end it here; one without
    /// would find a bracket open and refuse the script.
    fn skip_regex(&mut self, delimiter: char) -> Option<()> {
        let from = self.n;
        let mut ends =
            BracketSyntax::READINGS.iter().filter(|b| b.leading).map(|b| delimited_end(&self.s, from, delimiter, *b));
        let end = ends.next()??;
        let agreed = ends.all(|e| e == Some(end));
        self.n = end;
        agreed.then_some(())
    }

    /// Skips a text and its delimiter; a backslash continues it over a newline.
    fn skip_text(&mut self, delimiter: char) -> Option<()> {
        loop {
            match self.next()? {
                c if c == delimiter => return Some(()),
                '\\' => drop(self.next()?),
                '\n' => return None,
                c if !c.is_ascii() && self.peek() == Some('\\') => return None,
                _ => {}
            }
        }
    }

    /// Skips to the end of the line: file names and commands extend that far.
    fn skip_line(&mut self, file_use: FileUse) -> Option<FileUse> {
        let from = self.n;
        while !matches!(self.peek(), None | Some('\n')) {
            self.n += 1;
        }
        if self.s[from..self.n].contains(&'\r') {
            return None;
        }
        if let FileUse::Touches(_) = file_use {
            let text: String = self.s[from..self.n].iter().collect();
            let file = text.trim_start_matches(['w', 'W']).trim();
            let write = self.s.get(from.wrapping_sub(1)).is_none_or(|c| !matches!(c, 'r' | 'R'));
            self.files.push(NamedFile { file: Some(file.to_owned()), write });
        }
        Some(file_use)
    }

    fn skip_address(&mut self) -> Option<bool> {
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
                self.skip_regex('/')?;
                self.skip("IM");
            }
            Some('\\') => {
                self.n += 1;
                let delimiter = self.take_delimiter()?;
                self.skip_regex(delimiter)?;
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

    /// Skips the text of `a`, `i` and `c` to the end of its line; a backslash continues it. Implementations differ if
    /// the text starts with blanks behind the backslash, with a newline, or if a line ends in two backslashes.
    fn skip_text_lines(&mut self) -> Option<FileUse> {
        self.skip(" \t");
        match self.next()? {
            '\n' | '\r' => return None,
            '\\' if matches!(self.peek()?, ' ' | '\t' | '\r' | '\\') => return None,
            '\\' => self.n += 1,
            _ => {}
        }
        while let Some(c) = self.next() {
            match c {
                '\r' => return None,
                '\n' => break,
                '\\' => match self.next()? {
                    '\\' if self.peek().is_none_or(|c| c == '\n') => return None,
                    '\r' => return None,
                    _ => {}
                },
                c if !c.is_ascii() && self.peek() == Some('\\') => return None,
                _ => {}
            }
        }
        Some(FileUse::Reads)
    }

    /// Skips a comment. busybox ends it at a carriage return, and continues lines in it.
    fn skip_comment(&mut self) -> Option<FileUse> {
        let from = self.n;
        while !matches!(self.peek(), None | Some('\n')) {
            self.n += 1;
        }
        let comment = &self.s[from..self.n];
        (!comment.contains(&'\r') && comment.last() != Some(&'\\')).then_some(FileUse::Reads)
    }

    /// Skips a label and the end of its command.
    fn skip_label(&mut self) -> Option<FileUse> {
        self.skip(" \t");
        while self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')) {
            self.n += 1;
        }
        // busybox includes everything up to a blank or a semicolon in the label; others end it at a brace.
        let behind = self.s[self.n..].iter().find(|c| **c != '}');
        let agreed = matches!(behind, None | Some(' ' | '\t' | '\n' | ';'));
        self.skip(" \t");
        (agreed && matches!(self.peek(), None | Some('\n' | ';' | '}'))).then_some(FileUse::Reads)
    }

    /// Reads what follows an `s`; also returns whether it extends to the end of the line.
    fn read_substitute(&mut self) -> Option<(FileUse, bool)> {
        let delimiter = self.take_delimiter()?;
        self.skip_regex(delimiter)?;
        self.skip_text(delimiter)?;
        let mut file_use = FileUse::Reads;
        loop {
            match self.peek() {
                Some('g' | 'p' | 'i' | 'I' | 'm' | 'M' | '0'..='9') => self.n += 1,
                Some('e') => {
                    file_use = FileUse::Runs("sed's s///e runs its result as a command");
                    self.n += 1;
                }
                Some('w') => {
                    let file_use = self.skip_line(file_use.worse_of(FileUse::Touches("sed's w writes a file")))?;
                    return Some((file_use, true));
                }
                _ => return Some((file_use, false)),
            }
        }
    }

    fn read_command(&mut self) -> Option<FileUse> {
        self.skip(" \t\n;");
        if self.at_end() {
            return Some(FileUse::Reads);
        }
        if self.skip_address()? {
            self.skip(" \t");
            if self.peek() == Some(',') {
                self.n += 1;
                self.skip(" \t");
                self.skip_address()?;
            }
        }
        self.skip(" \t!");
        let file_use = match self.next()? {
            '{' => {
                self.open_braces += 1;
                return Some(FileUse::Reads);
            }
            '}' => {
                self.open_braces = self.open_braces.checked_sub(1)?;
                FileUse::Reads
            }
            '#' => return self.skip_comment(),
            '=' | 'd' | 'D' | 'g' | 'G' | 'h' | 'H' | 'n' | 'N' | 'p' | 'P' | 'x' | 'z' | 'F' => FileUse::Reads,
            'l' | 'L' | 'q' | 'Q' => {
                self.skip(" \t");
                self.skip("0123456789");
                FileUse::Reads
            }
            ':' | 'b' | 't' | 'T' | 'v' => return self.skip_label(),
            'a' | 'i' | 'c' => return self.skip_text_lines(),
            'y' => {
                let delimiter = self.take_delimiter()?;
                self.skip_text(delimiter)?;
                self.skip_text(delimiter)?;
                FileUse::Reads
            }
            's' => {
                let (file_use, ended) = self.read_substitute()?;
                if ended {
                    return Some(file_use);
                }
                file_use
            }
            'w' | 'W' => return self.skip_line(FileUse::Touches("sed's w writes a file")),
            'r' | 'R' => return self.skip_line(FileUse::Touches("sed's r reads another file")),
            'e' => return self.skip_line(FileUse::Runs("sed's e runs a command")),
            _ => return None,
        };
        self.skip(" \t");
        match self.peek() {
            None | Some('\n' | ';' | '}' | '#') => Some(file_use),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn only_scripts_that_print_count_as_reading() {
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
            "$!{N;ba}",
            ":a;$!{N;ba};s/\\n/ /g",
            ":a\ns/^\\(\\s*\\)x/\\1y/\nta",
            "s;a;b;g",
            "s#/usr#/opt#;s@a@b@;s:x:y:;s%a%b%;s,a,b,;s|a|b|",
            "s/[/]/_/g",
            "s/a/b\\\nc/",
            "s/\r$//",
            "s/\u{e9}/e/g",
            "$a last line",
            "1i\\\nfirst line\\\nsecond line\n$p",
            "1i\\text",
            "/x/c\\\n  new\np",
            "1{h;d};$G",
            "/a/,/b/{/b/!d}",
            "\\|/x|p",
            "0~3d;2,~4p",
            "/x/I,/y/Mp",
            "s/\\(.*\\)\\/\\(.*\\)/\\2/",
            "s/[^[:alnum:]_]//g",
            "s/[^/]*$//",
            "s/.*\\[\\(.*\\)\\].*/\\1/",
            "s/\\[[^]]*\\]//g",
            "#n\np",
            "y/abc/\\n\\t\\\\/",
            "T;tend;p;:end",
        ] {
            assert_eq!(sed(script).file_use, FileUse::Reads, "{script}");
        }
        for script in
            ["w out", "1w out", "s/a/b/w out", "s/a/b/gw out", "r /etc/passwd", "/x/w out", "1,2W out", "p;w x"]
        {
            assert!(matches!(sed(script).file_use, FileUse::Touches(_)), "{script}");
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
            // A comment may end at a carriage return, or continue on the next line.
            "#\rw m",
            "# x\\\nw m",
            // A continued line before a command is a blank, or the delimiter of an address.
            "\\\nw m",
            "\\\nx\nw m",
            "p\n\\\np",
            "s/a/b/\r\nw m",
            ":a\u{b}w m",
            "b a\rw m",
            // Behind the blank follows a line of text, or a command.
            "a\\ \ns/x/\nw m\n/",
            "a\ni\\\nw m",
            "a x\\\\\ni\\\nw m",
            "a x\rw m",
            "s/x/\nw m\n/",
            "y/a/\n/;w m",
            // Whether a bracket is open at the slash depends on what a backslash and a class mean inside it.
            "s/[\\]/x/;w m;s/]/y/",
            "s/[[:x]/a/;w m;s/:]]/b/",
            "s\\a\\b\\",
            "s\na\nb\n",
            "snanbn",
            "s\u{e9}a\u{e9}b\u{e9}",
            "s[a[b[",
            "s/\u{8868}\\/x/;w m",
            "}w m",
            "ba}w m",
            "{p}w m",
            "2!!w m\r",
            // A label may extend to the semicolon.
            ":aw#;w m",
            ":a}#;w m",
            "b #c;w m",
            "}p",
            "{p",
        ] {
            assert!(matches!(sed(script).file_use, FileUse::Runs(_)), "{script}");
        }
    }
}
