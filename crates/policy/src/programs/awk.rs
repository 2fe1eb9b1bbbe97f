//! awk programs: their tokens, and the few of them that reach outside.

use super::{Does, Named, Program};

/// What the last token was: whether a slash divides or opens a regular expression.
#[derive(PartialEq, Clone, Copy)]
enum Last {
    Operand,
    Other,
    /// Grammar would have to say.
    Unclear,
}

pub(crate) fn awk(program: &str) -> Program {
    let mut files = Vec::new();
    let does = does(program, &mut files);
    Program { does, files }
}

/// The string that starts here, when nothing is added to it.
fn literal(s: &[char], at: usize) -> Option<String> {
    let mut n = at;
    while s.get(n).is_some_and(|c| matches!(c, '>' | '<' | ' ' | '\t')) {
        n += 1;
    }
    if s.get(n) != Some(&'"') {
        return None;
    }
    let end = closing(s, n, '"')?;
    let text: String = s[n + 1..end - 1].iter().collect();
    let next = s[end..].iter().find(|c| !matches!(c, ' ' | '\t'));
    (!text.contains('\\') && matches!(next, None | Some(';' | '}' | ')' | '\n' | '>'))).then_some(text)
}

fn does(program: &str, files: &mut Vec<Named>) -> Does {
    let s: Vec<char> = program.chars().collect();
    let (mut n, mut last) = (0, Last::Other);
    // Inside `print …` outside of parentheses, `>` and `|` are redirections.
    let (mut printing, mut depth) = (None::<usize>, 0usize);
    let mut does = Does::Reads;
    while n < s.len() {
        let c = s[n];
        match c {
            '#' => {
                while n < s.len() && s[n] != '\n' {
                    n += 1;
                }
                continue;
            }
            '\\' if s.get(n + 1) == Some(&'\n') => {
                n += 2;
                continue;
            }
            '"' => {
                let Some(end) = closing(&s, n, '"') else { return does.and(Does::Runs("unterminated string")) };
                n = end;
                last = Last::Operand;
                continue;
            }
            '/' if last == Last::Unclear => return does.and(outside(&s[n..])),
            '/' if last == Last::Other => {
                let Some(end) = regex(&s, n) else { return does.and(Does::Runs("unterminated pattern")) };
                n = end;
                last = Last::Operand;
                continue;
            }
            c if c.is_alphabetic() || c == '_' => {
                let start = n;
                while n < s.len() && (s[n].is_alphanumeric() || s[n] == '_') {
                    n += 1;
                }
                let word: String = s[start..n].iter().collect();
                last = Last::Operand;
                match word.as_str() {
                    "system" => return Does::Runs("awk's system() runs a command"),
                    "getline" => {
                        // Whatever stands between, a `<` in this statement names a file.
                        let end = s[n..].iter().position(|c| matches!(c, ';' | '}' | '\n')).map_or(s.len(), |e| n + e);
                        if let Some(at) = (n..end).find(|&m| s[m] == '<' && s.get(m + 1) != Some(&'=')) {
                            files.push(Named { file: literal(&s, at), write: false });
                            does = does.and(Does::Touches("awk's getline reads another file"));
                        }
                        last = Last::Unclear;
                    }
                    "ENVIRON" => does = does.and(Does::Touches("awk's ENVIRON holds the environment")),
                    "ARGV" | "ARGC" | "SYMTAB" | "FUNCTAB" => {
                        files.push(Named { file: None, write: false });
                        does = does.and(Does::Touches("an awk program that changes what it reads"));
                    }
                    "print" | "printf" => {
                        printing = Some(depth);
                        last = Last::Other;
                    }
                    "BEGIN" | "END" | "if" | "else" | "while" | "for" | "do" | "return" | "in" | "next" | "exit"
                    | "delete" | "function" | "break" | "continue" => last = Last::Other,
                    // Keywords to one awk, variables to another; or functions that need no parentheses.
                    "length" | "BEGINFILE" | "ENDFILE" | "nextfile" | "func" | "case" | "switch" | "default" => {
                        last = Last::Unclear;
                    }
                    _ => {}
                }
                continue;
            }
            c if c.is_ascii_digit() || c == '.' => {
                while n < s.len() && (s[n].is_alphanumeric() || s[n] == '.') {
                    n += 1;
                }
                last = Last::Operand;
                continue;
            }
            '@' => return does.and(Does::Runs("awk's @ loads or calls by name")),
            '|' if s.get(n + 1) == Some(&'|') => {
                n += 1;
                last = Last::Other;
            }
            '|' => return does.and(Does::Runs("an awk program that pipes to or from a command")),
            '>' if printing == Some(depth) => {
                let mut at = n + 1;
                while s.get(at).is_some_and(|c| matches!(c, '>' | ' ' | '\t')) {
                    at += 1;
                }
                if matches!(literal(&s, n).as_deref(), Some("/dev/stderr" | "/dev/stdout")) {
                    n = at - 1;
                } else {
                    files.push(Named { file: literal(&s, n), write: true });
                    does = does.and(Does::Touches("an awk program that writes a file"));
                }
                last = Last::Other;
            }
            // Behind these a statement goes on in the next line.
            '\n' if s[..n].iter().rev().find(|c| !c.is_whitespace()).is_some_and(|c| matches!(c, ',' | '&' | '|')) => {}
            ';' | '\n' | '}' => {
                printing = None;
                last = Last::Other;
            }
            '{' => {
                printing = None;
                last = Last::Other;
            }
            '(' | '[' => {
                depth += 1;
                last = Last::Other;
            }
            ')' => {
                depth = depth.saturating_sub(1);
                // `if (x) /re/` or `(x) / y`.
                last = Last::Unclear;
            }
            ']' => {
                depth = depth.saturating_sub(1);
                last = Last::Operand;
            }
            '+' | '-' if s.get(n + 1) == Some(&c) => {
                n += 1;
                // Behind an operand it belongs to that; else to what follows.
            }
            ' ' | '\t' | '\r' => {}
            '\'' | '`' => return does.and(Does::Runs("an awk program that is not plain to read")),
            '$' => last = Last::Other,
            _ => last = Last::Other,
        }
        n += 1;
    }
    does
}

/// Behind a slash whose meaning only the grammar knows: nothing that would matter either way may follow.
fn outside(rest: &[char]) -> Does {
    let text: String = rest.iter().collect();
    let risky = ["system", "getline", "|", ">", "@", "ARGV", "ENVIRON", "SYMTAB"].iter().any(|w| text.contains(w));
    if risky { Does::Runs("an awk program that is not plain to read") } else { Does::Reads }
}

/// Behind the string that starts at `at`.
fn closing(s: &[char], at: usize, quote: char) -> Option<usize> {
    let mut n = at + 1;
    while n < s.len() {
        match s[n] {
            '\\' => n += 2,
            '\n' => return None,
            c if c == quote => return Some(n + 1),
            _ => n += 1,
        }
    }
    None
}

/// Behind the regular expression that starts at `at`. Inside brackets a slash need not be escaped, say some awks and
/// not others: such an expression is not plain.
fn regex(s: &[char], at: usize) -> Option<usize> {
    let (mut n, mut bracket) = (at + 1, false);
    while n < s.len() {
        match s[n] {
            '\\' => n += 2,
            '\n' => return None,
            '/' if bracket => return None,
            '/' => return Some(n + 1),
            '[' if bracket && matches!(s.get(n + 1), Some(':' | '.' | '=')) => {
                let kind = s[n + 1];
                n += 2;
                while n + 1 < s.len() && !(s[n] == kind && s[n + 1] == ']') {
                    n += 1;
                }
                n += 2;
            }
            '[' => {
                bracket = true;
                n += 1;
                // A `]` in first place is itself.
                n += usize::from(s.get(n) == Some(&'^'));
                n += usize::from(s.get(n) == Some(&']'));
            }
            ']' => {
                bracket = false;
                n += 1;
            }
            _ => n += 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_only_print_are_told_from_those_that_do_not() {
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
            assert_eq!(awk(program).does, Does::Reads, "{program}");
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
            assert!(matches!(awk(program).does, Does::Touches(_)), "{program}");
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
            assert!(matches!(awk(program).does, Does::Runs(_)), "{program}");
        }
    }
}
