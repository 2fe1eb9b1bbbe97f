//! Expands words: removes quotes, and resolves tildes, variables, braces and globs as far as the text determines
//! them. Passes substitutions to the plan builder.

use super::{
    braces::{BraceElement, expand_word},
    lex::{self, Parameter, WordPiece},
    plan_builder::{PlanBuilder, TextPosition},
    state::{MAX_WORD_VALUES, ShellState, escape_glob, merge_values, unescape_glob},
};
use countersign_model::{Directory, Opaque, Word, WordValue};

/// A partly expanded word: the globs that it can be, or None if unknown.
struct PartialWord {
    globs: Option<Vec<String>>,
    quoted: bool,
    many: bool,
    substituted: bool,
    /// The piece is one word of a list of file names.
    pattern: bool,
    hint: Option<String>,
}

impl PartialWord {
    fn from_globs(globs: Vec<String>, quoted: bool) -> Self {
        Self { globs: Some(globs), quoted, many: false, substituted: false, pattern: false, hint: None }
    }
}

impl PlanBuilder<'_> {
    /// Expands one word of the text into the words that bash would make of it.
    pub(super) fn expand_words(
        &mut self,
        raw: &str,
        position: TextPosition,
        state: &mut ShellState,
        out: &mut Vec<Word>,
    ) {
        if lex::is_plain(raw) && !raw.is_empty() && !(self.posix && raw.starts_with('=')) {
            out.push(Word::literal(raw));
            return;
        }
        let pieces = match lex::word_pieces(raw, is_assignment_like(raw)) {
            Ok(pieces) => pieces,
            Err(_) => {
                self.mark_opaque(Opaque::Unparseable);
                out.push(Word::unknown());
                return;
            }
        };
        if self.posix && (raw.contains("$'") || raw.starts_with('=')) {
            // Other shells quote and expand this differently.
            self.mark_opaque(Opaque::Unparseable);
        }
        // Each piece is expanded once, even if braces repeat it: a substitution is one occurrence.
        let mut drafts: Vec<PartialWord> = pieces.iter().map(|p| self.expand_piece(p, position, state, true)).collect();
        if pieces.len() > 1 {
            // `--opt=$x` becomes several words if x contains blanks; they count as one unknown word.
            for (piece, draft) in pieces.iter().zip(&mut drafts) {
                let blank = |g: &String| g.contains([' ', '\t', '\n']);
                if matches!(piece, WordPiece::Parameter { quoted: false, .. })
                    && draft.globs.as_ref().is_some_and(|all| all.iter().any(blank))
                {
                    (draft.globs, draft.many) = (None, true);
                }
            }
        }
        let braces = pieces.iter().any(|p| matches!(p, WordPiece::Text { text, quoted: false } if text.contains('{')));
        let lists = match braces.then(|| expand_word(&pieces)) {
            None => vec![(0..pieces.len()).map(BraceElement::Piece).collect::<Vec<_>>()],
            Some(Some(lists)) => lists,
            Some(None) => {
                out.push(Word::unknown());
                return;
            }
        };
        if lists.len() > 1 && self.posix {
            // Shells without brace expansion read this differently.
            self.mark_opaque(Opaque::Unparseable);
        }
        // The shell splits a lone unquoted `$x` at blanks.
        if let ([WordPiece::Parameter { quoted: false, .. }], [draft]) = (&pieces[..], &drafts[..])
            && let Some([glob]) = draft.globs.as_deref()
            && glob.contains([' ', '\t', '\n'])
        {
            for part in glob.split([' ', '\t', '\n']).filter(|p| !p.is_empty()) {
                out.push(finish_word(Some(vec![part.to_owned()]), draft));
            }
            return;
        }
        for list in lists {
            // Braces expand first, so `{~,a}/x` contains a tilde.
            let list = if braces { self.expand_braced_tilde(list, state) } else { list };
            if let Some(word) = join_pieces(&list, &drafts) {
                out.push(word);
            }
        }
    }

    /// The value of a word that is neither split nor matched against files: assignments, here-strings, `case` words.
    pub(super) fn expand_value(&mut self, raw: &str, position: TextPosition, state: &mut ShellState) -> WordValue {
        if lex::is_plain(raw) {
            return WordValue::One(raw.to_owned());
        }
        let Ok(pieces) = lex::word_pieces(raw, true) else {
            self.mark_opaque(Opaque::Unparseable);
            return WordValue::Unknown;
        };
        self.expand_unsplit(&pieces, position, state)
    }

    /// Expands the body of a here-document.
    pub(super) fn expand_heredoc(&mut self, body: &str, position: TextPosition, state: &mut ShellState) -> WordValue {
        match lex::heredoc_pieces(body) {
            Ok(pieces) => self.expand_unsplit(&pieces, position, state),
            Err(_) => {
                self.mark_opaque(Opaque::Unparseable);
                WordValue::Unknown
            }
        }
    }

    fn expand_unsplit(&mut self, pieces: &[WordPiece], position: TextPosition, state: &mut ShellState) -> WordValue {
        let drafts: Vec<PartialWord> = pieces.iter().map(|p| self.expand_piece(p, position, state, false)).collect();
        let list: Vec<BraceElement> = (0..pieces.len()).map(BraceElement::Piece).collect();
        let mut globs = vec![String::new()];
        for atom in &list {
            let BraceElement::Piece(n) = atom else { continue };
            match &drafts[*n].globs {
                Some(more) => match combine_texts(&globs, more) {
                    Some(all) => globs = all,
                    None => return WordValue::Unknown,
                },
                None => return WordValue::Unknown,
            }
        }
        // A pattern in a variable stays text until it is used.
        let texts: Vec<String> = globs.iter().map(|g| glob_text(g)).collect();
        if drafts.iter().any(|d| d.pattern && d.substituted) {
            return WordValue::Unknown;
        }
        if drafts.iter().any(|d| d.pattern) {
            return WordValue::Pattern(globs);
        }
        match <[String; 1]>::try_from(texts) {
            Ok([one]) => WordValue::One(one),
            Err(texts) => WordValue::Any(texts),
        }
    }

    fn expand_piece(
        &mut self,
        piece: &WordPiece,
        position: TextPosition,
        state: &mut ShellState,
        splits: bool,
    ) -> PartialWord {
        let known = PartialWord::from_globs;
        let unknown = |quoted: bool, substituted| PartialWord {
            globs: None,
            quoted,
            many: !quoted && splits,
            substituted,
            pattern: false,
            hint: None,
        };
        match piece {
            WordPiece::Text { text, quoted: true } => known(vec![escape_glob(text)], true),
            WordPiece::Text { text, quoted: false } => known(vec![text.clone()], false),
            WordPiece::Tilde(user) => self.expand_tilde(user, state),
            WordPiece::Unsupported => {
                self.mark_opaque(Opaque::PromptExpansion);
                unknown(false, true)
            }
            WordPiece::Arithmetic { text } => {
                self.check_arithmetic(text, position, state);
                unknown(true, true)
            }
            WordPiece::Command { text, at, quoted } => {
                let hint = self.read_substitution(text, position.nested_at(*at), state);
                match self.listed_files.take() {
                    Some(globs) if splits && !quoted && !state.ifs_changed => {
                        PartialWord { many: true, substituted: true, pattern: true, ..known(globs, false) }
                    }
                    _ => PartialWord { hint, ..unknown(*quoted, true) },
                }
            }
            WordPiece::Process { text, at } => {
                let from = self.occurrences.len();
                self.read_substitution(text, position.nested_at(Some(*at)), state);
                if self.occurrences.len() == from {
                    // Without a command, some versions make no word of it.
                    return PartialWord { many: true, ..unknown(false, true) };
                }
                // A path below `/dev/fd`: one word, and no file on disk.
                PartialWord { hint: Some("/dev/fd".to_owned()), ..unknown(true, true) }
            }
            WordPiece::Parameter { parameter, quoted } => {
                let (value, hint) = self.expand_parameter(parameter, position, state);
                if value == WordValue::Unknown && splits && expands_to_many(parameter) {
                    return PartialWord { hint, many: true, ..unknown(*quoted, false) };
                }
                let listed = state.holds_file_name.contains(&parameter.name);
                match (value.clone(), *quoted || !splits) {
                    (WordValue::Unknown, quoted) => PartialWord { hint, ..unknown(quoted, false) },
                    (WordValue::One(text), true) => known(vec![escape_glob(&text)], true),
                    (WordValue::Any(texts), true) => known(texts.iter().map(|t| escape_glob(t)).collect(), true),
                    (WordValue::Pattern(globs), true) => {
                        PartialWord { pattern: true, substituted: listed, ..known(globs, true) }
                    }
                    (WordValue::Pattern(globs), false) if listed => {
                        PartialWord { many: true, pattern: true, substituted: true, ..known(globs, false) }
                    }
                    // File names may contain blanks, and then become several words.
                    (WordValue::Pattern(globs), false) => {
                        PartialWord { hint: globs.first().map(|g| glob_prefix(g)), ..unknown(false, false) }
                    }
                    (WordValue::One(_) | WordValue::Any(_), false) if state.ifs_changed => unknown(false, false),
                    // A backslash from a value escapes inside a pattern, and is literal elsewhere.
                    (WordValue::One(_) | WordValue::Any(_), false) if escapes_in_pattern(&value) => {
                        unknown(false, false)
                    }
                    (WordValue::One(text), false) => {
                        PartialWord { many: text.trim().is_empty(), ..known(vec![text.replace('\\', "\\\\")], false) }
                    }
                    (WordValue::Any(texts), false) => {
                        if texts.iter().any(|t| t.is_empty() || t.contains([' ', '\t', '\n'])) {
                            unknown(false, false)
                        } else {
                            known(texts.iter().map(|t| t.replace('\\', "\\\\")).collect(), false)
                        }
                    }
                }
            }
        }
    }

    /// Expands a tilde that was inside braces or before them.
    fn expand_braced_tilde(&mut self, mut list: Vec<BraceElement>, state: &ShellState) -> Vec<BraceElement> {
        if !matches!(list.first(), Some(BraceElement::Char('~'))) {
            return list;
        }
        let end = list.iter().position(|a| matches!(a, BraceElement::Char('/'))).unwrap_or(list.len());
        let user: Option<String> = list[1..end]
            .iter()
            .map(|a| match a {
                BraceElement::Char(c) => Some(*c),
                BraceElement::Piece(_) | BraceElement::Home(_) => None,
            })
            .collect();
        let home = match user.map(|user| self.expand_tilde(&user, state)) {
            Some(PartialWord { globs: Some(globs), .. }) => globs.into_iter().next(),
            _ => None,
        };
        list.splice(..end, [BraceElement::Home(home)]);
        list
    }

    fn expand_tilde(&mut self, user: &str, state: &ShellState) -> PartialWord {
        let draft = |globs: Option<Vec<String>>, hint| PartialWord {
            globs,
            quoted: true,
            many: false,
            substituted: false,
            pattern: false,
            hint,
        };
        match user {
            "" if !state.home_changed && !state.variables_unknown => draft(Some(vec![escape_glob(self.home)]), None),
            "+" => match &*state.directory {
                Directory::Known(all) => draft(Some(all.iter().map(|d| escape_glob(d)).collect()), None),
                Directory::Unknown => draft(None, None),
            },
            "-" => draft(None, None),
            user if !user.is_empty() && self.home.rsplit('/').next() == Some(user) && self.home.len() > 1 => {
                draft(Some(vec![escape_glob(self.home)]), None)
            }
            "" => draft(None, Some(self.home.to_owned())),
            "root" => draft(None, Some("/root".to_owned())),
            user => draft(None, Some(format!("/home/{user}"))),
        }
    }

    /// The value of a parameter; and the likely path if the value is not known.
    fn expand_parameter(
        &mut self,
        p: &Parameter,
        position: TextPosition,
        state: &mut ShellState,
    ) -> (WordValue, Option<String>) {
        let position = position.nested_at(None);
        if let Some(subscript) = &p.subscript
            && !matches!(subscript.as_str(), "@" | "*")
        {
            self.check_arithmetic(subscript, position, state);
        }
        let rest = p.rest.as_str();
        if p.indirect || rest.starts_with("@P") {
            self.mark_opaque(Opaque::PromptExpansion);
        }
        let mut otherwise = None;
        let substring = rest.strip_prefix(':').filter(|r| !r.starts_with(['-', '=', '?', '+']));
        if let Some(range) = substring {
            for part in range.split(':') {
                self.check_arithmetic(part, position, state);
            }
        } else if !rest.is_empty() {
            // The word behind the operator is expanded too.
            let word = rest.trim_start_matches([':', '-', '=', '?', '+', '#', '%', '/', '^', ',', '@', '~']);
            let word = if rest.starts_with(":-") || rest.starts_with(":=") { &rest[2..] } else { word };
            if let (WordValue::One(text), true) = (self.expand_value(word, position, state), is_default_operator(rest))
            {
                otherwise = Some(text);
            }
        }
        if rest.starts_with(['=']) || rest.starts_with(":=") {
            self.assign(&p.name, WordValue::Unknown, state);
        }
        // `${x:?}` and `${x:-y}` equal x if x is known and not empty.
        let whole = (rest.is_empty() || is_default_operator(rest) || rest.starts_with(":?"))
            && !p.length
            && !p.indirect
            && p.subscript.is_none();
        if !whole {
            return (WordValue::Unknown, None);
        }
        let value = self.variable_value(&p.name, state);
        match &value {
            WordValue::One(text) if !rest.is_empty() && text.is_empty() => (WordValue::Unknown, otherwise),
            WordValue::Any(_) | WordValue::Pattern(_) if !rest.is_empty() => (WordValue::Unknown, otherwise),
            _ => (value, otherwise),
        }
    }

    fn variable_value(&self, name: &str, state: &ShellState) -> WordValue {
        // Bash sets these itself and ignores assignments.
        const ITS_OWN: &[&str] = &[
            "_",
            "GROUPS",
            "FUNCNAME",
            "DIRSTACK",
            "EPOCHREALTIME",
            "EPOCHSECONDS",
            "RANDOM",
            "SRANDOM",
            "SECONDS",
            "LINENO",
            "BASHPID",
            "PPID",
            "UID",
            "EUID",
            "HISTCMD",
            "PIPESTATUS",
            "BASH_COMMAND",
            "REPLY",
            "OPTARG",
        ];
        if ITS_OWN.contains(&name) {
            return WordValue::Unknown;
        }
        match (name, state.get(name)) {
            (_, Some(value)) => value.clone(),
            _ if state.variables_unknown => WordValue::Unknown,
            ("HOME", None) if !state.home_changed => WordValue::One(self.home.to_owned()),
            ("PWD", None) => match &*state.directory {
                Directory::Known(all) if all.len() == 1 => WordValue::One(all[0].clone()),
                Directory::Known(all) => WordValue::Any(all.clone()),
                Directory::Unknown => WordValue::Unknown,
            },
            _ => WordValue::Unknown,
        }
    }

    /// Arithmetic over numbers is a number. Over names, bash evaluates the values of the variables, which can run
    /// commands.
    pub(super) fn check_arithmetic(&mut self, text: &str, position: TextPosition, state: &mut ShellState) {
        let mut bare = text.chars().filter(|c| !c.is_whitespace()).peekable();
        let mut numeric = true;
        while let Some(c) = bare.next() {
            let number = c.is_ascii_digit() || "+-*/%()<>=!&|^~?:,".contains(c);
            let hex = c == 'x' && bare.peek().is_some_and(char::is_ascii_hexdigit);
            numeric &= number || hex;
        }
        if !numeric {
            self.expand_value(text, position.nested_at(None), state);
            self.mark_opaque(Opaque::Arithmetic);
        }
    }

    /// The values that the variable of a `for` loop can have.
    pub(super) fn merge_loop_values(words: &[Word]) -> WordValue {
        let mut all: Option<WordValue> = None;
        for word in words {
            let value = match &word.value {
                WordValue::Unknown => return WordValue::Unknown,
                value => value,
            };
            all = Some(match all {
                None => value.clone(),
                Some(before) => merge_values(&before, value),
            });
        }
        all.unwrap_or(WordValue::Unknown)
    }
}

/// Whether a parameter expands to any number of words, even when quoted: `"$@"`, `"${a[@]}"`, or one that may name or
/// contain those.
fn expands_to_many(p: &Parameter) -> bool {
    let inside = ["$@", "${@", "@]", "${!"].iter().any(|form| p.rest.contains(form));
    !p.length && (p.name == "@" || p.subscript.as_deref() == Some("@") || p.indirect) || inside
}

fn is_default_operator(rest: &str) -> bool {
    rest.starts_with(":-") || rest.starts_with(":=") || rest.starts_with(['-', '='])
}

/// The fixed text at the start of a glob.
fn glob_prefix(glob: &str) -> String {
    let end = glob.find(['*', '?', '[', '\\']).unwrap_or(glob.len());
    glob[..end].to_owned()
}

fn escapes_in_pattern(value: &WordValue) -> bool {
    let mixed = |t: &String| t.contains('\\') && t.contains(['*', '?', '[']);
    match value {
        WordValue::One(text) => mixed(text),
        WordValue::Any(texts) => texts.iter().any(mixed),
        WordValue::Pattern(_) | WordValue::Unknown => false,
    }
}

/// In a `name=…` argument, bash also expands tildes behind the `=`.
fn is_assignment_like(raw: &str) -> bool {
    lex::name_length(raw.as_bytes()).is_some_and(|n| raw.as_bytes().get(n) == Some(&b'='))
}

/// The text of a glob without its escapes, wildcards included.
fn glob_text(glob: &str) -> String {
    let mut out = String::with_capacity(glob.len());
    let mut chars = glob.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            c => out.push(c),
        }
    }
    out
}

fn combine_texts(before: &[String], more: &[String]) -> Option<Vec<String>> {
    if let ([only], [one]) = (before, more) {
        return Some(vec![format!("{only}{one}")]);
    }
    let all: Vec<String> = before.iter().flat_map(|b| more.iter().map(move |m| format!("{b}{m}"))).collect();
    (all.len() <= MAX_WORD_VALUES).then_some(all)
}

fn join_pieces(list: &[BraceElement], drafts: &[PartialWord]) -> Option<Word> {
    let mut whole = PartialWord {
        globs: Some(vec![String::new()]),
        quoted: false,
        many: false,
        substituted: false,
        pattern: false,
        hint: None,
    };
    let (mut empty, mut hint, mut unknown_seen) = (true, Some(String::new()), false);
    let mut matches_files = false;
    for atom in list {
        match atom {
            BraceElement::Char(c) => {
                empty = false;
                matches_files |= matches!(c, '*' | '?' | '[');
                let more = [c.to_string()];
                whole.globs = whole.globs.and_then(|g| combine_texts(&g, &more));
                if let Some(h) = &mut hint {
                    h.push(*c);
                }
            }
            BraceElement::Home(home) => {
                empty = false;
                whole.quoted = true;
                whole.globs = match (whole.globs, home) {
                    (Some(before), Some(home)) => combine_texts(&before, std::slice::from_ref(home)),
                    _ => None,
                };
                hint = home.as_ref().map(|h| glob_text(h));
            }
            BraceElement::Piece(n) => {
                let d = &drafts[*n];
                whole.globs = match (whole.globs, &d.globs) {
                    (Some(before), Some(more)) => combine_texts(&before, more),
                    _ => None,
                };
                matches_files |=
                    d.globs.iter().flatten().any(|g| unescape_glob(g).is_none() || !d.quoted && g.contains('['));
                whole.quoted |= d.quoted;
                whole.many |= d.many;
                whole.substituted |= d.substituted;
                whole.pattern |= d.pattern;
                empty &= d.globs.as_ref().is_some_and(|g| g.iter().all(String::is_empty)) && !d.quoted;
                unknown_seen |= d.globs.is_none();
                match d.hint.as_deref() {
                    Some(start) if hint.as_deref() == Some("") => hint = Some(start.to_owned()),
                    Some(_) => hint = None,
                    None => match (&mut hint, d.globs.as_deref()) {
                        (Some(h), Some([one])) if !unknown_seen || h.starts_with('/') => h.push_str(&glob_text(one)),
                        // The rest is unknown, but the text before it still shows how the word starts.
                        (Some(h), None) if !h.is_empty() => {}
                        (Some(_), Some([_])) => {}
                        _ => hint = None,
                    },
                }
            }
        }
    }
    // An empty unquoted variable is not a word, and neither is an empty alternative in braces.
    if empty && !whole.quoted {
        return None;
    }
    // A path or URL with a known start is not an option, whatever follows.
    let alone = list.iter().all(|a| match a {
        BraceElement::Piece(n) => drafts[*n].globs.as_ref().is_none_or(|g| g.iter().all(String::is_empty)),
        BraceElement::Char(_) | BraceElement::Home(_) => false,
    });
    let telling = |h: &String| alone || h.starts_with('/') || h.contains("://");
    whole.hint = hint.filter(|h| whole.globs.is_none() && !h.is_empty() && telling(h));
    let globs = whole.globs.take();
    // `"$x"*` becomes as many words as there are matching files.
    whole.many |= matches_files && globs.is_none();
    let mut word = finish_word(globs, &whole);
    if whole.pattern
        && let Some(texts) = word.texts()
    {
        word.value = WordValue::Pattern(texts.iter().map(|t| escape_glob(t)).collect());
        word.many |= whole.many;
    }
    Some(word)
}

fn finish_word(globs: Option<Vec<String>>, draft: &PartialWord) -> Word {
    let (value, many) = match globs {
        None => (WordValue::Unknown, draft.many),
        Some(globs) => match globs.iter().map(|g| unescape_glob(g)).collect::<Option<Vec<String>>>() {
            Some(texts) => match <[String; 1]>::try_from(texts) {
                Ok([one]) => (WordValue::One(one), false),
                Err(texts) => (WordValue::Any(texts), false),
            },
            None => (WordValue::Pattern(globs), true),
        },
    };
    Word { value, quoted: draft.quoted, many, substituted: draft.substituted, hint: draft.hint.clone() }
}
