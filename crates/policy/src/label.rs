//! The text form of a grant for people, and its parser: `<verb> in <dir>`, `<verb> anywhere`.

use crate::paths;
use countersign_model::{Grant, Text};
use std::{fmt, str::FromStr};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    pub verb: String,
    /// None: anywhere.
    pub directory: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    #[error("`{0}` names no directory: write `{0} in /some/directory` or `{0} anywhere`")]
    Nowhere(String),
    #[error("`{0}` is not an absolute path: write the directory in full")]
    Relative(String),
    #[error("it names no verb")]
    NoVerb,
}

impl Label {
    #[must_use]
    pub fn from_grant(grant: &Grant) -> Self {
        let text = |t: &Text| t.as_str().to_owned();
        Self { verb: text(&grant.verb), directory: grant.directory.as_ref().map(text) }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.directory {
            Some(directory) => write!(f, "{} in {directory}", self.verb),
            None => write!(f, "{} anywhere", self.verb),
        }
    }
}

impl FromStr for Label {
    type Err = LabelError;

    fn from_str(text: &str) -> Result<Self, LabelError> {
        // A verb contains no path, so the first ` in /` starts the directory, which goes to the end of the text.
        let (verb, directory) = if let Some((verb, directory)) = text.split_once(" in /") {
            (verb, Some(paths::clean(&format!("/{directory}"))))
        } else if let Some(verb) = text.trim_end().strip_suffix(" anywhere") {
            (verb, None)
        } else if let Some((_, directory)) = text.split_once(" in ") {
            return Err(LabelError::Relative(directory.to_owned()));
        } else {
            return Err(LabelError::Nowhere(text.trim().to_owned()));
        };
        let verb = verb.split_whitespace().collect::<Vec<_>>().join(" ");
        if verb.is_empty() { Err(LabelError::NoVerb) } else { Ok(Self { verb, directory }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_label_parses_to_the_same_label() {
        for (verb, directory) in [
            ("git push", Some("/srv/in it/a")),
            ("cargo test", None),
            ("sign in", None),
            ("sign in", Some("/srv/a")),
            ("touch", Some("/srv/foo anywhere")),
            ("touch", Some("/srv/trailing ")),
            ("make", Some("/srv/a in /b")),
        ] {
            let label = Label { verb: verb.to_owned(), directory: directory.map(str::to_owned) };
            assert_eq!(label.to_string().parse(), Ok(label));
        }
        assert_eq!(
            "git push in /a/./b/".parse(),
            Ok(Label { verb: "git push".into(), directory: Some("/a/b".into()) })
        );
        for bad in ["git push", "git push in here", " anywhere", ""] {
            assert!(bad.parse::<Label>().is_err(), "{bad}");
        }
    }
}
