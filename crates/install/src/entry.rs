//! What stands in a configuration file because of us, whatever the file is written in; and how ours is told from others'.

/// The name of our server everywhere.
pub(super) const SERVER_NAME: &str = "csn";
/// What makes a hook that cannot answer refuse.
pub(super) const DENY_ON_FAILURE: &str = " || exit 2";
/// The same for an agent that takes an exit code for an answer only when something is said with it.
pub(super) const DENY_ON_FAILURE_WITH_MESSAGE: &str = " || { echo 'csn: the hook failed' >&2; exit 2; }";
/// And for one that runs the command when its hook takes too long.
pub(super) const TIMEOUT_PREFIX: &str = "timeout -k 1 60 ";
/// The first line of a file that is wholly ours.
pub(super) const FILE_MARKER: &str = "// Made by `csn install`; `csn install opencode --uninstall` removes it.\n";

/// A value, with its keys in the order in which they are written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ConfigValue {
    Text(String),
    Number(u64),
    Flag(bool),
    List(Vec<ConfigValue>),
    Map(Vec<(&'static str, ConfigValue)>),
}

impl ConfigValue {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn texts(texts: &[&str]) -> Self {
        Self::List(texts.iter().map(|t| Self::text(*t)).collect())
    }
}

/// One handler for one event.
#[derive(Debug, Clone)]
pub(super) struct HookHandler {
    pub(super) event: &'static str,
    pub(super) matcher: &'static str,
    pub(super) handler: Vec<(&'static str, ConfigValue)>,
}

/// What one file shall hold.
#[derive(Debug, Clone)]
pub(super) enum Entry {
    /// Handlers below `hooks`.
    Hooks(Vec<HookHandler>),
    /// `csn` below `table`. What is not `fixed` is left as a person has set it.
    Server { table: &'static str, value: Vec<(&'static str, ConfigValue)>, fixed: &'static [&'static str] },
    /// The file is ours from its first line.
    Whole(String),
}

/// Who is looking: what it takes for its own.
#[derive(Debug, Clone)]
pub(super) struct EntryOwner {
    pub(super) agent: &'static str,
    /// Where csn is or was, whatever the program is called there.
    pub(super) csn_paths: Vec<String>,
}

impl EntryOwner {
    pub(super) fn is_csn(&self, word: &str) -> bool {
        word.rsplit('/').next() == Some("csn") || self.csn_paths.iter().any(|k| k == word)
    }

    /// Whether a hook's command is one that we write: `csn hook AGENT`, in whichever of its forms.
    pub(super) fn owns_hook(&self, command: &str) -> bool {
        let command = command
            .strip_suffix(DENY_ON_FAILURE)
            .or_else(|| command.strip_suffix(DENY_ON_FAILURE_WITH_MESSAGE))
            .unwrap_or(command);
        let command = command.strip_prefix(TIMEOUT_PREFIX).unwrap_or(command).trim_end();
        let command = command.strip_suffix(" --witness").unwrap_or(command).trim_end();
        let program = command.strip_suffix(self.agent).map(str::trim_end);
        let program = program.and_then(|rest| rest.strip_suffix(" hook")).map(str::trim);
        program.and_then(unquote_word).is_some_and(|p| self.is_csn(&p))
    }

    /// Whether a server's command is ours: `csn mcp`.
    pub(super) fn owns_server<'a>(&self, mut words: impl Iterator<Item = &'a str>) -> bool {
        words.next().is_some_and(|program| self.is_csn(program)) && words.next() == Some("mcp")
    }
}

/// The one word that a text is for `sh`, if it is one.
fn unquote_word(text: &str) -> Option<String> {
    if let Some(inner) = text.strip_prefix('\'').and_then(|t| t.strip_suffix('\'')) {
        let word = inner.replace(r"'\''", "\u{0}");
        return (!word.contains('\'')).then(|| word.replace('\u{0}', "'"));
    }
    if let Some(inner) = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')) {
        return (!inner.contains(['"', '\\', '$', '`'])).then(|| inner.to_owned());
    }
    (!text.is_empty() && !text.contains([' ', '\t', '\'', '"', '\\', '$', '`', ';', '|', '&'])).then(|| text.to_owned())
}

/// A text after a change, and what had to be made around it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EditedText {
    pub(super) text: String,
    /// Containers that were not there before, by their keys with dots between.
    pub(super) made: Vec<String>,
}

/// A piece of a text that another takes the place of.
pub(super) struct Splice(pub(super) std::ops::Range<usize>, pub(super) String);

/// The text with its splices done; they do not overlap.
pub(super) fn apply_splices(text: &str, mut splices: Vec<Splice>) -> String {
    splices.sort_by_key(|s| s.0.start);
    let (mut out, mut at) = (String::with_capacity(text.len() + 512), 0);
    for Splice(range, with) in splices {
        out.push_str(&text[at..range.start]);
        out.push_str(&with);
        at = range.end;
    }
    out.push_str(&text[at..]);
    out
}

/// How a text ends its lines.
pub(super) fn line_ending(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

/// The line that a place is on, from 1.
pub(super) fn line_number(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_is_told_from_others() {
        let mine = EntryOwner { agent: "codex", csn_paths: vec!["/opt/my tools/c's".to_owned()] };
        for (command, is) in [
            ("/usr/bin/csn hook codex || exit 2", true),
            ("timeout -k 1 60 /usr/bin/csn hook codex || { echo 'csn: the hook failed' >&2; exit 2; }", true),
            ("csn hook codex", true),
            ("'/a b/csn' hook codex --witness || exit 2", true),
            ("\"/a b/csn\" hook codex", true),
            (r"'/opt/my tools/c'\''s' hook codex || exit 2", true),
            ("/usr/bin/csn hook claude-code || exit 2", false),
            ("/usr/bin/csn-other hook codex", false),
            ("echo csn hook codex", false),
            ("true; csn hook codex", false),
            ("lint --fix", false),
            ("", false),
        ] {
            assert_eq!(mine.owns_hook(command), is, "{command}");
        }
        for word in ["/usr/bin/csn", "/a b/c'sn", "", "/ü/csn", "$HOME/csn"] {
            let quoted = countersign_model::quoted(word);
            assert!(word.is_empty() || unquote_word(&quoted).as_deref() == Some(word), "{quoted}");
        }
    }
}
