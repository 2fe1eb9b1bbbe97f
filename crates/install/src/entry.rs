//! The entries that Countersign writes into configuration files, independent of their format, and how they are recognised
//! among other entries.

/// The name of Countersign's MCP server in every configuration.
pub(super) const SERVER_NAME: &str = "csn";
/// Makes a hook that cannot answer deny the command.
pub(super) const DENY_ON_FAILURE: &str = " || exit 2";
/// For an agent that accepts an exit code as an answer only together with a message.
pub(super) const DENY_ON_FAILURE_WITH_MESSAGE: &str = " || { echo 'csn: the hook failed' >&2; exit 2; }";
/// For an agent that runs the command when its hook takes too long.
pub(super) const TIMEOUT_PREFIX: &str = "timeout -k 1 60 ";
/// The first line of a file that contains nothing else.
pub(super) const FILE_MARKER: &str = "// Made by `csn install`; `csn install opencode --uninstall` removes it.\n";

/// A value of a configuration; its keys are written in this order.
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

/// One hook handler for one event.
#[derive(Debug, Clone)]
pub(super) struct HookHandler {
    pub(super) event: &'static str,
    pub(super) matcher: &'static str,
    pub(super) handler: Vec<(&'static str, ConfigValue)>,
}

/// What belongs into one file.
#[derive(Debug, Clone)]
pub(super) enum Entry {
    /// Handlers below `hooks`.
    Hooks(Vec<HookHandler>),
    /// `csn` below `table`. Keys that are not `fixed` keep the value that a user has set.
    Server { table: &'static str, value: Vec<(&'static str, ConfigValue)>, fixed: &'static [&'static str] },
    /// The whole file.
    Whole(String),
}

/// Recognises the entries of one installation.
#[derive(Debug, Clone)]
pub(super) struct EntryOwner {
    pub(super) agent: &'static str,
    /// Paths of csn, now and earlier; its file name may differ.
    pub(super) csn_paths: Vec<String>,
}

impl EntryOwner {
    pub(super) fn is_csn(&self, word: &str) -> bool {
        word.rsplit('/').next() == Some("csn") || self.csn_paths.iter().any(|k| k == word)
    }

    /// Whether a hook's command is Countersign's: `csn hook AGENT`, in any form that was ever written.
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

    /// Whether a server's command is Countersign's: `csn mcp`.
    pub(super) fn owns_server<'a>(&self, mut words: impl Iterator<Item = &'a str>) -> bool {
        words.next().is_some_and(|program| self.is_csn(program)) && words.next() == Some("mcp")
    }
}

/// The word that a text means to `sh`, if it is a single word.
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

/// A text after an edit, and the containers that the edit created.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EditedText {
    pub(super) text: String,
    /// New containers, each by its keys with dots between them.
    pub(super) made: Vec<String>,
}

/// A range of a text, and its replacement.
pub(super) struct Splice(pub(super) std::ops::Range<usize>, pub(super) String);

/// The text with its ranges replaced; they do not overlap.
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

/// The line ending of a text.
pub(super) fn line_ending(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

/// The line number of an offset, from 1.
pub(super) fn line_number(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_hook_commands_are_recognised() {
        let owner = EntryOwner { agent: "codex", csn_paths: vec!["/opt/my tools/c's".to_owned()] };
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
            assert_eq!(owner.owns_hook(command), is, "{command}");
        }
        for word in ["/usr/bin/csn", "/a b/c'sn", "", "/ü/csn", "$HOME/csn"] {
            let quoted = countersign_model::quoted(word);
            assert!(word.is_empty() || unquote_word(&quoted).as_deref() == Some(word), "{quoted}");
        }
    }
}
