//! Programs in other languages among the words of a command (awk, sed, jq, yq): parses them to find what they can do.

mod awk;
mod jq;
mod sed;

pub(crate) use awk::awk;
pub(crate) use jq::{jq, yq};
pub(crate) use sed::sed;

/// What a program does, and the files that it names. A file of None has a computed name.
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
        Self { file_use, files: Vec::new() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileUse {
    /// Reads only its input, and prints.
    Reads,
    /// Writes files, or reads other files.
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

/// How a program finds the end of a regular expression: whether brackets hide the delimiter, and what a bracket is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BracketSyntax {
    /// A delimiter inside brackets is an ordinary character.
    hide: bool,
    /// A backslash escapes inside brackets too.
    escapes: bool,
    /// `[[:alpha:]]`, `[[.x.]]` and `[[=x=]]` nest.
    classes: bool,
    /// A leading `]` is literal.
    leading: bool,
}

impl BracketSyntax {
    /// For a string, or for a program without bracket syntax in regular expressions.
    pub(crate) const PLAIN: Self = Self { hide: false, escapes: true, classes: false, leading: false };

    /// Every way in which a program with bracket syntax may read brackets.
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

/// The position behind the unescaped delimiter that ends the text at `at`. None if a newline or the end comes first,
/// or if a multi-byte character precedes a backslash, which some locales take for its second byte.
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
