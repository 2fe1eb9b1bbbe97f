//! Analyses awk programs: their tokens, and the few that reach outside the program.
//!
//! `awk` may be mawk, gawk, one-true-awk or busybox, and each ends tokens differently. The result is the union of
//! what any of them would do; where they disagree, the program counts as unclear.

use super::{BracketSyntax, FileUse, NamedFile, ProgramEffects, delimited_end};

const UNCLEAR: FileUse = FileUse::Runs("the awk program cannot be analysed");
const CHANGES_INPUT: &str = "the awk program changes what it reads";
const TRANSLATES: &str = "the awk program reads message catalogs";

/// Words that reach outside the program, and how. Every other word only computes.
const REACHING: &[(&str, FileUse)] = &[
    ("system", FileUse::Runs("awk's system() runs a command")),
    ("extension", FileUse::Runs("awk's extension() loads a library")),
    ("ENVIRON", FileUse::Touches("awk's ENVIRON shows the environment")),
    ("ARGV", FileUse::Touches(CHANGES_INPUT)),
    ("ARGC", FileUse::Touches(CHANGES_INPUT)),
    ("SYMTAB", FileUse::Touches(CHANGES_INPUT)),
    ("FUNCTAB", FileUse::Touches(CHANGES_INPUT)),
    ("PROCINFO", FileUse::Touches("awk's PROCINFO shows process details and changes how awk reads")),
    ("TEXTDOMAIN", FileUse::Touches(TRANSLATES)),
    ("bindtextdomain", FileUse::Touches(TRANSLATES)),
    ("dcgettext", FileUse::Touches(TRANSLATES)),
    ("dcngettext", FileUse::Touches(TRANSLATES)),
];

/// The kind of the last token: it decides whether a slash divides or opens a regular expression.
#[derive(PartialEq, Clone, Copy)]
enum LastToken {
    Operand,
    Other,
    /// Only the grammar could tell, or the implementations differ.
    Unclear,
}

pub(crate) fn awk(program: &str) -> ProgramEffects {
    let mut read = AwkLexer::new(program).analyse();
    // A continued line separates two words in every awk tested. An awk that joined them would run this text.
    if program.contains("\\\n") {
        let joined = AwkLexer::new(&program.replace("\\\n", "")).analyse();
        read.file_use = read.file_use.worse_of(joined.file_use);
        read.files.extend(joined.files);
    }
    read
}

struct AwkLexer {
    s: Vec<char>,
    n: usize,
    last: LastToken,
    /// Open parentheses and brackets.
    groups: Vec<char>,
    /// Set inside `print …`: the number of parentheses open there. At that depth, `>` is a redirection.
    printing: Option<usize>,
    getline: bool,
    /// Positions of `<` that may name a file for `getline`.
    less_than_at: Vec<usize>,
    program: ProgramEffects,
}

impl AwkLexer {
    fn new(program: &str) -> Self {
        Self {
            s: program.chars().collect(),
            n: 0,
            last: LastToken::Other,
            groups: Vec::new(),
            printing: None,
            getline: false,
            less_than_at: Vec::new(),
            program: FileUse::Reads.into(),
        }
    }

    fn analyse(mut self) -> ProgramEffects {
        // Some implementations treat a carriage return as a blank or as part of a line end, others as neither.
        let lexed = if self.s.contains(&'\r') { Err(UNCLEAR) } else { self.scan_tokens() };
        if let Err(file_use) = lexed {
            self.note_use(file_use);
        }
        if self.getline {
            for at in std::mem::take(&mut self.less_than_at) {
                let file = self.literal_string(at + 1);
                self.note_file(file, false, "awk's getline reads another file");
            }
        }
        self.program
    }

    fn note_use(&mut self, file_use: FileUse) {
        self.program.file_use = std::mem::replace(&mut self.program.file_use, FileUse::Reads).worse_of(file_use);
    }

    fn note_file(&mut self, file: Option<String>, write: bool, why: &'static str) {
        self.program.files.push(NamedFile { file, write });
        self.note_use(FileUse::Touches(why));
    }

    fn peek_at(&self, offset: usize) -> Option<char> {
        self.s.get(self.n + offset).copied()
    }

    /// Scans every token. An error is the worst that the program may do; the rest is then not scanned.
    fn scan_tokens(&mut self) -> Result<(), FileUse> {
        while let Some(c) = self.peek_at(0) {
            match c {
                ' ' | '\t' => self.n += 1,
                '\\' if self.peek_at(1) == Some('\n') => self.n += 2,
                '#' => self.skip_comment()?,
                '\n' => self.scan_newline(),
                '"' => {
                    self.n = string_end(&self.s, self.n).ok_or(UNCLEAR)?;
                    self.last = LastToken::Operand;
                }
                '/' if self.last == LastToken::Unclear => return self.check_ambiguous_rest(),
                '/' if self.last == LastToken::Other => {
                    self.n = regex_end(&self.s, self.n).ok_or(UNCLEAR)?;
                    self.last = LastToken::Operand;
                }
                c if c.is_ascii_alphabetic() || c == '_' => self.scan_word()?,
                c if c.is_ascii_digit() || c == '.' => self.scan_number()?,
                _ => self.scan_sign(c)?,
            }
        }
        Ok(())
    }

    fn skip_comment(&mut self) -> Result<(), FileUse> {
        while !matches!(self.peek_at(0), None | Some('\n')) {
            self.n += 1;
        }
        if self.s[self.n - 1] == '\\' { Err(UNCLEAR) } else { Ok(()) }
    }

    /// A newline ends a statement behind an operand, and never where another operand must follow. gawk also continues
    /// behind `?` and `:`, and busybox inside parentheses.
    fn scan_newline(&mut self) {
        self.n += 1;
        if self.last == LastToken::Other {
            return;
        }
        if self.groups.is_empty() {
            // busybox continues behind `in`: what follows may still belong to the `print` before it.
            if self.last != LastToken::Unclear {
                self.printing = None;
            }
            self.last = LastToken::Other;
        } else {
            self.last = LastToken::Unclear;
        }
    }

    fn scan_word(&mut self) -> Result<(), FileUse> {
        let start = self.n;
        while self.peek_at(0).is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
            self.n += 1;
        }
        let word: String = self.s[start..self.n].iter().collect();
        if let Some((_, file_use)) = REACHING.iter().find(|(w, _)| *w == word) {
            match file_use {
                FileUse::Runs(_) => return Err(file_use.clone()),
                _ if word == "PROCINFO" && self.is_sort_order() => {}
                FileUse::Touches(CHANGES_INPUT) => self.note_file(None, false, CHANGES_INPUT),
                _ => self.note_use(file_use.clone()),
            }
        }
        self.last = match word.as_str() {
            "getline" => {
                self.getline = true;
                LastToken::Unclear
            }
            "print" | "printf" => {
                self.printing = Some(self.open_parentheses());
                LastToken::Other
            }
            "return" => LastToken::Other,
            // Keywords of at least one awk, and the function that needs no parentheses.
            "BEGIN" | "END" | "BEGINFILE" | "ENDFILE" | "if" | "else" | "while" | "for" | "do" | "in" | "next"
            | "nextfile" | "exit" | "delete" | "function" | "func" | "break" | "continue" | "switch" | "case"
            | "default" | "length" => LastToken::Unclear,
            _ => LastToken::Operand,
        };
        Ok(())
    }

    /// `PROCINFO["sorted_in"]` only sets the order in which a loop visits an array.
    fn is_sort_order(&self) -> bool {
        let rest: String = self.s[self.n..].iter().take(14).collect();
        rest.starts_with("[\"sorted_in\"]")
    }

    /// Implementations end a number differently: `1e5x`, `0x1x`, `1.x`. Any word may start inside of what looks like
    /// a number.
    fn scan_number(&mut self) -> Result<(), FileUse> {
        let start = self.n;
        while self.peek_at(0).is_some_and(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_')) {
            self.n += 1;
        }
        let digits = &self.s[start..self.n];
        self.last = LastToken::Operand;
        if digits.iter().any(|c| c.is_ascii_alphabetic() || *c == '_') {
            let text: String = digits.iter().collect();
            if names_risk(&text) || text.contains("print") {
                return Err(UNCLEAR);
            }
            // `1length / 2`
            self.last = LastToken::Unclear;
        }
        Ok(())
    }

    fn scan_sign(&mut self, c: char) -> Result<(), FileUse> {
        let next = self.peek_at(1);
        self.n += 1;
        self.last = match c {
            '@' => return Err(FileUse::Runs("awk's @ loads a file or calls a function by name")),
            '|' if next == Some('|') => {
                self.n += 1;
                LastToken::Other
            }
            '|' => return Err(FileUse::Runs("the awk program pipes to or from a command")),
            '>' if self.printing.is_some_and(|depth| self.open_parentheses() <= depth) => {
                self.note_redirect();
                LastToken::Other
            }
            '<' if next != Some('=') => {
                self.less_than_at.push(self.n - 1);
                LastToken::Other
            }
            '(' | '[' => {
                self.groups.push(c);
                LastToken::Other
            }
            ')' if self.groups.pop() == Some('(') => {
                // `if (x) /re/` or `(x) / y`.
                LastToken::Unclear
            }
            ']' if self.groups.pop() == Some('[') => LastToken::Operand,
            '{' | '}' if self.groups.is_empty() => {
                self.printing = None;
                LastToken::Other
            }
            ';' => {
                self.printing = None;
                LastToken::Other
            }
            '+' | '-' if next == Some(c) => {
                self.n += 1;
                // It may belong to the operand before or behind it.
                LastToken::Unclear
            }
            '+' | '-' | '*' | '/' | '%' | '^' | '!' | '<' | '>' | '=' | '~' | '?' | ':' | '&' | ',' | '$' => {
                LastToken::Other
            }
            _ => return Err(UNCLEAR),
        };
        Ok(())
    }

    /// The number of open parentheses. mawk does not count brackets.
    fn open_parentheses(&self) -> usize {
        self.groups.iter().filter(|c| **c == '(').count()
    }

    /// Notes the target of a `>` behind `print`.
    fn note_redirect(&mut self) {
        if self.peek_at(0) == Some('>') {
            self.n += 1;
        }
        let file = self.literal_string(self.n);
        if !matches!(file.as_deref(), Some("/dev/stderr" | "/dev/stdout")) {
            self.note_file(file, true, "the awk program writes a file");
        }
    }

    /// The string that starts here, if nothing is concatenated to it.
    fn literal_string(&self, at: usize) -> Option<String> {
        let blank = |c: &&char| matches!(c, ' ' | '\t');
        let start = at + self.s[at..].iter().take_while(blank).count();
        let end = string_end(&self.s, start)?;
        let text: String = self.s[start + 1..end - 1].iter().collect();
        let next = self.s[end..].iter().find(|c| !blank(c));
        (!text.contains('\\') && matches!(next, None | Some(';' | '}' | ')' | '\n' | '>'))).then_some(text)
    }

    /// Behind a slash that only the grammar could classify, the rest must be harmless under either reading.
    fn check_ambiguous_rest(&self) -> Result<(), FileUse> {
        let text: String = self.s[self.n..].iter().collect();
        let signs = text.contains(['|', '>', '@']) || self.getline && text.contains('<');
        if signs || names_risk(&text) { Err(UNCLEAR) } else { Ok(()) }
    }
}

fn names_risk(text: &str) -> bool {
    text.contains("getline") || REACHING.iter().any(|(word, _)| text.contains(word))
}

/// The position behind the string that starts at `at`, if one does. Implementations differ in how they treat a
/// newline inside.
fn string_end(s: &[char], at: usize) -> Option<usize> {
    if s.get(at) != Some(&'"') {
        return None;
    }
    delimited_end(s, at + 1, '"', BracketSyntax::PLAIN)
}

/// The position behind the regular expression that starts at `at`. Some implementations need no escape for a slash
/// inside brackets, and they differ in what a bracket is; only a position on which all agree counts.
fn regex_end(s: &[char], at: usize) -> Option<usize> {
    let end = delimited_end(s, at + 1, '/', BracketSyntax::PLAIN)?;
    BracketSyntax::READINGS.iter().all(|b| delimited_end(s, at + 1, '/', *b) == Some(end)).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_that_print_count_as_reading() {
        for program in [
            "{print $1}",
            "NR==FNR{a[$1];next} $1 in a",
            "END{print NR}",
            "$3 > 100",
            "BEGIN{i=0; while(i<3){print i;i++}}",
            "/start/{p=1} p; /end/{p=0}",
            "{print ($1 > 2)}",
            "/system/{print}",
            "{print \"a > b | system()\"}",
            "$1 ~ /x|y/",
            "{s+=$1} END{print s/NR}",
            "BEGIN{FS=\",\"} {print $2, $3}",
            "length($0) > 80",
            "{ if ($1 > max) max=$1 } END { print max }",
            "{printf \"%s\\n\", $1}",
            "!seen[$0]++",
            "NR>=10 && NR<=20",
            "{gsub(/[^a-z]/, \"\"); print}",
            "{print > \"/dev/stderr\"}",
            "a || b",
            "{print length / 2}",
            "# system(1)\n{print}",
            "{ while ((getline line) > 0) n++ }",
        ] {
            assert_eq!(awk(program).file_use, FileUse::Reads, "{program}");
        }
        for program in [
            "{print > \"out\"}",
            "{print $1 >> \"out\"}",
            "{printf \"x\" > f}",
            "BEGIN{while((getline l < \"/etc/passwd\")>0) print l}",
            "BEGIN{print ENVIRON[\"PATH\"]}",
            "{print $1,\n$2 > \"out.txt\"}",
            "{print > \"/dev/stdout\" \"x\"}",
            "BEGIN{getline x[\"k\"] < \"/etc/passwd\"; print}",
            "BEGIN{getline $(0) < \"/etc/passwd\"}",
            "BEGIN{ARGV[1]=\"/etc/passwd\"}",
        ] {
            assert!(matches!(awk(program).file_use, FileUse::Touches(_)), "{program}");
        }
        for program in [
            "BEGIN{system(\"id\")}",
            "{print | \"sh\"}",
            "BEGIN{\"id\" | getline x}",
            "BEGIN{x=default /2;system(\"id\");y=1/1}",
            "/[[:alpha:]/\"]/; {system(\"id\")} #\"",
            "{x=$(1)++ /2; system(\"id\"); y=1/1}",
            "{print |& \"sh\"}",
            "@load \"x\"",
            "BEGIN{f=\"system\"; @f(\"id\")}",
            "{print \"x",
            "BEGIN{ if (1) /\"/; system(\"id\") #\"/ }",
        ] {
            assert!(matches!(awk(program).file_use, FileUse::Runs(_)), "{program}");
        }
    }
}
