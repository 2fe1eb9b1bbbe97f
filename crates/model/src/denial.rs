//! Why a request was denied, as records store it.

use crate::{RefusalCode, Text};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One of the codes. A record of another version may hold a text that is not a code; it is kept unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DenialReason {
    Code(RefusalCode),
    Unknown(Text),
}

impl DenialReason {
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Code(code) => code.as_str(),
            Self::Unknown(text) => text.as_str(),
        }
    }

    /// The code for refusing the same request again.
    #[must_use]
    pub fn code(&self) -> RefusalCode {
        match self {
            Self::Code(code) => *code,
            Self::Unknown(_) => RefusalCode::Forbidden,
        }
    }
}

/// The reason for people; it continues a sentence such as `denied: …`.
impl fmt::Display for DenialReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sentence = match self {
            Self::Code(code) => sentence(*code),
            Self::Unknown(_) => None,
        };
        match sentence {
            Some(sentence) => f.write_str(sentence),
            None => f.write_str(&self.as_str().replace('_', " ")),
        }
    }
}

/// What a denial with this code means; none for codes that deny nothing.
fn sentence(code: RefusalCode) -> Option<&'static str> {
    Some(match code {
        RefusalCode::SystemDestructive => "it would destroy a file system, a disk or the machine",
        RefusalCode::ProtectedPath => "it would touch Countersign's own files",
        RefusalCode::DeniedByRule => "a rule in config.toml denies it",
        RefusalCode::NotForAudience => "the audience `public` may not do this",
        RefusalCode::SelfDestructive => "a task may not stop Countersign or act for a person",
        RefusalCode::ApprovalRequiredUnattended => "it needs an approval, and nobody can be asked",
        RefusalCode::Locked => "the profile `locked` does not allow it",
        RefusalCode::DeniedByPerson => "a person denied it",
        RefusalCode::PathsChanged => "its files or directories changed after the decision",
        RefusalCode::GrantRevoked => "the grant that covered it was revoked before it started",
        RefusalCode::CannotConfine => "the sandbox that it needs cannot be enforced",
        RefusalCode::PolicyUnavailable => "the configuration cannot be read, so only reading is allowed",
        _ => return None,
    })
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for DenialReason {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        Text::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Text::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_keeps_its_stored_text_and_reads_as_a_sentence() {
        let check = |json: &str, code: RefusalCode, sentence: &str| {
            let reason: DenialReason = serde_json::from_str(json).unwrap();
            assert_eq!((reason.code(), reason.to_string().as_str()), (code, sentence));
            assert_eq!(serde_json::to_string(&reason).unwrap(), json);
        };
        check(r#""paths_changed""#, RefusalCode::PathsChanged, "its files or directories changed after the decision");
        check(r#""denied_by_person""#, RefusalCode::DeniedByPerson, "a person denied it");
        check(r#""of_another_version""#, RefusalCode::Forbidden, "of another version");
        assert!(serde_json::from_str::<DenialReason>("7").is_err());
    }
}
