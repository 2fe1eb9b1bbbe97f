//! Collects the paths that an occurrence names: by the role of each word where a grammar knows it, otherwise by the
//! shape of the word.

use crate::{
    paths,
    tables::{OperandRole, VerbRisks},
};
use countersign_model::{Directory, PathKind, PathScope, Word, WordValue};

/// The paths that an occurrence names.
pub(crate) struct PathCollector<'a> {
    pub(crate) directory: &'a Directory,
    pub(crate) home: &'a str,
    pub(crate) list: Vec<PathScope>,
    pub(crate) loose: bool,
    /// The command searches for secrets by name, or a word that is not completely known leads to one.
    pub(crate) seeks_credentials: bool,
}

impl<'a> PathCollector<'a> {
    pub(crate) fn new(directory: &'a Directory, home: &'a str) -> Self {
        Self { directory, home, list: Vec::new(), loose: false, seeks_credentials: false }
    }

    /// Adds the working directory.
    pub(crate) fn add_working_directory(&mut self, recursive: bool) {
        match self.directory {
            Directory::Known(all) => {
                for directory in all {
                    self.add_scope(directory, directory, false, PathKind::Directory, false, recursive);
                }
            }
            Directory::Unknown => self.loose = true,
        }
    }

    /// Notes a name pattern whose files are searched or read.
    pub(crate) fn note_name_pattern(&mut self, glob: &str) {
        self.seeks_credentials |= paths::glob_aims_at_credentials(glob, self.home);
    }

    /// Notes the value of an option that selects files by name.
    pub(crate) fn note_name_value(&mut self, word: &Word, misfit: &mut Option<String>) {
        match &word.value {
            WordValue::One(text) => self.note_selection(text),
            WordValue::Any(texts) | WordValue::Pattern(texts) => {
                texts.iter().for_each(|text| self.note_selection(text))
            }
            WordValue::Unknown => {
                misfit.get_or_insert_with(|| "the files it reads are known only at run time".to_owned());
            }
        }
    }

    /// Notes a regular expression of names whose files are searched or read.
    pub(crate) fn note_name_regex(&mut self, word: &Word, misfit: &mut Option<String>) {
        match word.texts() {
            Some(texts) => texts.iter().for_each(|text| self.note_name_pattern(&regex_to_glob(text))),
            None => {
                misfit.get_or_insert_with(|| "the files it reads are known only at run time".to_owned());
            }
        }
    }

    /// `!x` excludes files, and excluded files are not read.
    fn note_selection(&mut self, text: &str) {
        if !text.starts_with('!') {
            self.note_name_pattern(text);
            // `--type-add name:glob`
            if let Some((_, glob)) = text.rsplit_once(':') {
                self.note_name_pattern(glob);
            }
        }
    }

    pub(crate) fn add_scope(
        &mut self,
        path: &str,
        walked: &str,
        write: bool,
        kind: PathKind,
        pattern: bool,
        recursive: bool,
    ) {
        let scope = PathScope { path: paths::clean(path), walked: walked.to_owned(), write, kind, pattern, recursive };
        if !self.list.contains(&scope) {
            self.list.push(scope);
        }
    }

    /// Adds a word by its role; returns whether the word names a path.
    pub(crate) fn add_word(
        &mut self,
        word: &Word,
        role: OperandRole,
        recursive: bool,
        misfit: &mut Option<String>,
    ) -> bool {
        let (kind, write) = match role {
            OperandRole::File => (PathKind::File, false),
            OperandRole::Dir => (PathKind::Directory, false),
            OperandRole::Path => (PathKind::Any, false),
            OperandRole::Name => (PathKind::Name, false),
            OperandRole::WriteFile => (PathKind::File, true),
            OperandRole::WriteDir => (PathKind::Directory, true),
            OperandRole::WritePath => (PathKind::Any, true),
            OperandRole::Entry => (PathKind::Entry, true),
            OperandRole::GitArgument => return self.add_git_argument(word, false, PathKind::Any, recursive, misfit),
            OperandRole::GitPath => return self.add_git_argument(word, true, PathKind::Any, recursive, misfit),
            OperandRole::GitName => return self.add_git_argument(word, false, PathKind::Name, recursive, misfit),
            OperandRole::AssignmentOrFile => {
                // If one implementation takes the word for an assignment and another for a file, it counts as a file.
                let assigns = |t: &str| {
                    t.split_once('=').is_some_and(|(n, value)| {
                        n.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                            && n.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
                            && !value.starts_with('=')
                    })
                };
                match word.text() {
                    Some(text) if assigns(text) => return false,
                    _ => (PathKind::File, false),
                }
            }
            OperandRole::Number | OperandRole::Format | OperandRole::Text | OperandRole::Program => {
                return false;
            }
        };
        self.add_path(word, kind, write, recursive, misfit)
    }

    fn add_path(
        &mut self,
        word: &Word,
        kind: PathKind,
        write: bool,
        recursive: bool,
        misfit: &mut Option<String>,
    ) -> bool {
        match &word.value {
            WordValue::One(text) => self.add_text(text, kind, write, recursive, misfit),
            WordValue::Any(texts) => {
                let mut named = false;
                for text in texts {
                    named |= self.add_text(text, kind, write, recursive, misfit);
                }
                named
            }
            WordValue::Pattern(globs) => {
                for glob in globs {
                    self.add_glob(glob, kind, write, recursive, misfit);
                }
                true
            }
            WordValue::Unknown => {
                match &word.hint {
                    // A process substitution: its command is an occurrence of its own.
                    Some(hint) if hint.starts_with("/dev/fd") => {}
                    hint => {
                        // The likely path is enough to refuse the command, never enough to allow it.
                        if let Some(hint) = hint.as_ref().filter(|h| h.starts_with('/')) {
                            self.add_scope(hint, hint, write, kind, false, recursive);
                        }
                        self.loose = true;
                        misfit.get_or_insert_with(|| "a path is known only at run time".to_owned());
                    }
                }
                true
            }
        }
    }

    fn add_text(
        &mut self,
        text: &str,
        kind: PathKind,
        write: bool,
        recursive: bool,
        misfit: &mut Option<String>,
    ) -> bool {
        // `-` is standard input or output; an empty word names nothing.
        if text.is_empty() || text == "-" {
            return false;
        }
        if paths::is_sink(text) || !write && paths::is_source(text) {
            return true;
        }
        if text.starts_with('/') {
            self.add_scope(text, text, write, kind, false, recursive);
            return true;
        }
        match self.directory {
            Directory::Known(all) => {
                for directory in all {
                    let path = paths::join(directory, text);
                    self.add_scope(&path, &path, write, kind, false, recursive);
                }
            }
            Directory::Unknown => {
                self.loose = true;
                misfit.get_or_insert_with(|| "the directory it runs in is not known".to_owned());
            }
        }
        true
    }

    fn add_glob(&mut self, glob: &str, kind: PathKind, write: bool, recursive: bool, misfit: &mut Option<String>) {
        let directories: Vec<String> = match self.directory {
            _ if glob.starts_with('/') => vec![String::new()],
            Directory::Known(all) => all.clone(),
            Directory::Unknown => {
                self.loose = true;
                misfit.get_or_insert_with(|| "the directory it runs in is not known".to_owned());
                return;
            }
        };
        for directory in directories {
            let whole = if directory.is_empty() { glob.to_owned() } else { paths::join(&directory, glob) };
            let parts: Vec<&str> = whole.split('/').collect();
            let fixed = parts.iter().take_while(|p| crate::shell::unescape_glob(p).is_some()).count();
            // `*/../x`: the parent of an unknown directory is unknown.
            let climbs = |p: &&str| *p == ".." || p.starts_with('.') && paths::matches(p, "..");
            if parts[fixed..].iter().any(climbs) {
                self.loose = true;
                misfit.get_or_insert_with(|| "a pattern contains `..`".to_owned());
            }
            let fixed = fixed.min(parts.len() - 1);
            let cover: Vec<String> = parts[..fixed].iter().filter_map(|p| crate::shell::unescape_glob(p)).collect();
            let cover = format!("{}/", cover.join("/"));
            let kind = if kind == PathKind::Name { kind } else { PathKind::Directory };
            self.add_scope(&cover, &whole, write, kind, true, recursive);
        }
    }

    /// git takes revisions and paths in the same position; behind `--` only paths. `kind`: whether git shows the
    /// content or only the names.
    fn add_git_argument(
        &mut self,
        word: &Word,
        is_path: bool,
        kind: PathKind,
        recursive: bool,
        misfit: &mut Option<String>,
    ) -> bool {
        let Some(texts) = word.texts() else {
            if matches!(word.value, WordValue::Pattern(_)) {
                return self.add_path(word, kind, false, recursive, misfit);
            }
            self.loose = true;
            misfit.get_or_insert_with(|| "an argument is known only at run time".to_owned());
            return false;
        };
        let mut named = false;
        for text in texts {
            let pathspec = text.strip_prefix(":/").or_else(|| text.strip_prefix(":!")).unwrap_or(text);
            let leaves = pathspec.starts_with('/')
                || pathspec == ".."
                || pathspec.starts_with("../")
                || pathspec.contains("/../");
            if leaves {
                named |= self.add_text(pathspec, kind, false, recursive, misfit);
            }
            if kind == PathKind::Name || excludes_paths(text) {
                continue;
            }
            // `HEAD:.env` and `-- .env` show the content of the file. A branch may have a secret-like name, but not
            // the name of a file that holds secrets.
            let file = text.rsplit([':', ')']).next().unwrap_or(text);
            let at = paths::clean(&paths::join("/repository", file));
            let whole = is_path || text.contains(':');
            let wanted = if whole || file.contains(['*', '?', '[', '{']) {
                paths::is_credential(&at, self.home)
                    || paths::glob_aims_at_credentials(&at, self.home)
                    || is_path && paths::covers_credentials(&at, self.home)
            } else {
                // `a..b` is a range of two revisions.
                text.split("..").any(|part| paths::looks_like_secret(&paths::join("/repository", part), self.home))
            };
            self.seeks_credentials |= wanted;
        }
        named
    }
}

/// Returns a glob that matches every name the regular expression matches, and possibly more.
fn regex_to_glob(regex: &str) -> String {
    let mut glob = String::from(if regex.starts_with('^') { "" } else { "*" });
    let mut chars = regex.trim_start_matches('^').chars().peekable();
    while let Some(c) = chars.next() {
        let mut unit = match c {
            '.' => "?".to_owned(),
            '(' => "{".to_owned(),
            ')' => "}".to_owned(),
            '|' => ",".to_owned(),
            '$' | '^' => String::new(),
            // In basic syntax the escaped forms group, and the plain ones are literal.
            '\\' => match chars.next() {
                Some('(') => "{".to_owned(),
                Some(')') => "}".to_owned(),
                Some('|') => ",".to_owned(),
                Some(c) if c.is_alphanumeric() => "*".to_owned(),
                Some(c) => format!("\\{c}"),
                None => String::new(),
            },
            '[' => {
                let set: String = chars.by_ref().take_while(|c| *c != ']').collect();
                format!("[{set}]")
            }
            c => c.to_string(),
        };
        if let Some('*' | '+' | '?' | '{') = chars.peek() {
            if chars.next() == Some('{') {
                chars.by_ref().find(|c| *c == '}');
            }
            unit = if unit == "}" { "}*".to_owned() } else { "*".to_owned() };
        }
        glob.push_str(&unit);
    }
    if !regex.ends_with('$') {
        glob.push('*');
    }
    glob
}

/// Whether a pathspec excludes files.
fn excludes_paths(pathspec: &str) -> bool {
    pathspec.starts_with(":!")
        || pathspec.starts_with(":^")
        || pathspec
            .strip_prefix(":(")
            .and_then(|p| p.split_once(')'))
            .is_some_and(|(magic, _)| magic.split(',').any(|m| m == "exclude"))
}

/// Adds words that look like paths, for programs without a grammar.
pub(crate) fn collect_path_like_words(
    words: &[Word],
    from: usize,
    effects: Option<&VerbRisks>,
    scopes: &mut PathCollector<'_>,
) {
    let mut misfit = None;
    let mut after_options = false;
    for word in words.iter().skip(from) {
        match &word.value {
            // A URL with a known start is neither a path nor an option.
            WordValue::Unknown if word.hint.as_deref().is_some_and(|h| h.contains("://")) => {}
            WordValue::Unknown => {
                scopes.add_word(word, OperandRole::Path, false, &mut misfit);
            }
            WordValue::Pattern(globs) => {
                scopes.loose |= !after_options && globs.iter().any(|g| g.starts_with(['*', '?', '[', '-']));
                scopes.add_word(word, OperandRole::Path, false, &mut misfit);
            }
            WordValue::One(_) | WordValue::Any(_) => {
                for text in word.texts().unwrap_or_default() {
                    after_options |= text == "--";
                    let value = match text.strip_prefix('-') {
                        // `--dir=/x`, `-o/x`
                        Some(option) => match option.split_once('=') {
                            Some((_, value)) => value,
                            None => option.find('/').filter(|_| !option.starts_with('-')).map_or("", |n| &option[n..]),
                        },
                        None => match text.split_once('=') {
                            // `dd of=/x`, `make DESTDIR=/x`
                            Some((name, value)) if name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => {
                                value
                            }
                            _ => text.strip_prefix('@').unwrap_or(text),
                        },
                    };
                    let value = value.strip_prefix('@').unwrap_or(value);
                    add_path_like(value, effects, scopes);
                }
            }
        }
    }
}

fn add_path_like(text: &str, effects: Option<&VerbRisks>, scopes: &mut PathCollector<'_>) {
    let container = effects.is_some_and(|e| e.verb.starts_with("docker") || e.verb.starts_with("podman"));
    if container && text.contains("=") && text.contains(',') {
        // `type=bind,source=/x,target=/y`: only `source` is a path on this machine.
        for part in text.split(',') {
            if let Some(("source" | "src" | "dest" | "dst" | "type", value)) = part.split_once('=')
                && !part.starts_with("dst=")
            {
                add_path_like(value, effects, scopes);
            }
        }
        return;
    }
    if container && let Some((ours, _)) = text.split_once(':').filter(|(ours, _)| ours.starts_with(['/', '.', '~'])) {
        return add_path_like(ours, effects, scopes);
    }
    let scheme = text.get(..5).map(str::to_ascii_lowercase);
    if let Some(file) = text.get(5..).filter(|_| scheme.as_deref() == Some("file:")).map(|f| f.trim_start_matches("//"))
    {
        scopes.add_scope(file, file, false, PathKind::Any, false, false);
        return;
    }
    let url = text
        .split_once("://")
        .is_some_and(|(scheme, _)| scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+'));
    if text.is_empty() || url || text.contains('\n') || text.len() > 4096 {
        return;
    }
    let mut misfit = None;
    if let Some(below) = text.strip_prefix('/') {
        let top = below.split('/').next().unwrap_or_default();
        let route = effects.is_some_and(|e| e.routes) && !TOP_LEVEL_DIRECTORIES.contains(&top);
        if !route {
            scopes.add_text(text, PathKind::Any, false, false, &mut misfit);
        }
    } else if matches!(text, "." | "..")
        || ["./", "../", "~/"].iter().any(|start| text.starts_with(start))
        || text.contains("/../")
        || paths::looks_like_secret(text, scopes.home)
    {
        scopes.add_text(text, PathKind::Any, false, false, &mut misfit);
    } else if effects.is_none_or(|e| !e.no_paths) && text.contains('/') {
        scopes.add_text(text, PathKind::Perhaps, false, false, &mut misfit);
    }
}

/// Usual top-level directories. An absolute path that starts with another name may be an API route.
const TOP_LEVEL_DIRECTORIES: &[&str] = &[
    "",
    "bin",
    "boot",
    "dev",
    "etc",
    "home",
    "lib",
    "lib64",
    "media",
    "mnt",
    "opt",
    "proc",
    "root",
    "run",
    "sbin",
    "srv",
    "sys",
    "tmp",
    "usr",
    "var",
    "work",
    "workspace",
    "data",
    "Users",
    "private",
    "nix",
    "snap",
    "app",
    "code",
    "src",
];

/// For a command that does not fit its read-only phrase: the options that are the reason may name files.
pub(crate) fn collect_option_paths(words: &[Word], scopes: &mut PathCollector<'_>) {
    let mut misfit = None;
    for (n, word) in words.iter().enumerate() {
        let Some(text) = word.text() else {
            scopes.loose |= matches!(word.value, WordValue::Unknown | WordValue::Any(_));
            continue;
        };
        if let Some((_, value)) = text.strip_prefix('-').and_then(|o| o.split_once('='))
            && (value.contains('/') || value.contains('.'))
        {
            scopes.add_text(value, PathKind::Any, true, false, &mut misfit);
        } else if matches!(text, "-o" | "--output" | "-T" | "-f" | "--file" | "-O") {
            if let Some(value) = words.get(n + 1) {
                scopes.add_word(value, OperandRole::WriteFile, false, &mut misfit);
            }
        } else if text.starts_with("-o") && text.len() > 2 {
            scopes.add_text(&text[2..], PathKind::File, true, false, &mut misfit);
        }
    }
}
