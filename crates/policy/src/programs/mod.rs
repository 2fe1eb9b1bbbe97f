//! Programs that are programmed in their own words: what such a program can do, told by parsing it.

mod awk;
mod jq;
mod sed;

pub(crate) use awk::awk;
pub(crate) use jq::{jq, yq};
pub(crate) use sed::sed;

/// What a program text does, and the files that it names; none is one that it makes up as it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProgramEffects {
    pub(crate) file_use: FileUse,
    pub(crate) files: Vec<NamedFile>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedFile {
    pub(crate) file: Option<String>,
    pub(crate) write: bool,
}

impl From<FileUse> for ProgramEffects {
    fn from(file_use: FileUse) -> Self {
        Self { file_use: file_use, files: Vec::new() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileUse {
    /// Nothing but read what it is given and print.
    Reads,
    /// Writes files, or reads others.
    Touches(&'static str),
    /// Runs commands.
    Runs(&'static str),
}

impl FileUse {
    /// The worse of two.
    pub(crate) fn worse_of(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Runs(_), _) | (_, Self::Reads) => self,
            (_, Self::Runs(_)) | (Self::Reads, _) => other,
            _ => self,
        }
    }
}

/// How a program finds the end of a regular expression: what a bracket in it hides, and what a bracket is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BracketSyntax {
    /// A delimiter between brackets is an ordinary character.
    hide: bool,
    /// Between brackets, too, a backslash escapes.
    escapes: bool,
    /// `[[:alpha:]]`, `[[.x.]]` and `[[=x=]]` nest.
    classes: bool,
    /// A `]` in first place is itself.
    leading: bool,
}

impl BracketSyntax {
    /// A string, or a regular expression to a program that knows no brackets there.
    pub(crate) const PLAIN: Self = Self { hide: false, escapes: true, classes: false, leading: false };

    /// Every way that a program with brackets may read them.
    pub(crate) const READINGS: [Self; 8] = {
        let mut all = [Self { hide: true, ..Self::PLAIN }; 8];
        let mut n = 0;
        while n < 8 {
            all[n].escapes = n & 1 != 0;
            all[n].classes = n & 2 != 0;
            all[n].leading = n & 4 != 0;
            n += 1;
        }
        all
    };
}

/// Behind the unescaped delimiter that ends what starts at `at`; none when a line's end or the text's comes first, or
/// when a character of several bytes stands before a backslash, which some locales take for its second byte.
pub(crate) fn delimited_end(s: &[char], at: usize, delimiter: char, brackets: BracketSyntax) -> Option<usize> {
    let (mut n, mut inside) = (at, false);
    loop {
        let c = *s.get(n)?;
        let next = s.get(n + 1).copied();
        n += 1;
        match c {
            '\n' => return None,
            c if !c.is_ascii() && next == Some('\\') => return None,
            '\\' if !inside || brackets.escapes => {
                if next? == '\n' {
                    return None;
                }
                n += 1;
            }
            ']' if inside => inside = false,
            '[' if inside && brackets.classes && matches!(next, Some(':' | '.' | '=')) => {
                let kind = next?;
                n += 1;
                while !(*s.get(n)? == kind && s.get(n + 1) == Some(&']')) {
                    if s[n] == '\n' {
                        return None;
                    }
                    n += 1;
                }
                n += 2;
            }
            '[' if !inside && brackets.hide => {
                inside = true;
                if brackets.leading {
                    n += usize::from(s.get(n) == Some(&'^'));
                    n += usize::from(s.get(n) == Some(&']'));
                }
            }
            c if c == delimiter && !inside => return Some(n),
            _ => {}
        }
    }
}
