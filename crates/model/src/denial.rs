//! Why a request was denied, as records have it.

use crate::{RefusalCode, Text};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One of our codes. A record of another version may hold a text that is none of them; it is kept as it is.
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

    /// The code to refuse the same request with again.
    #[must_use]
    pub fn code(&self) -> RefusalCode {
        match self {
            Self::Code(code) => *code,
            Self::Unknown(_) => RefusalCode::Forbidden,
        }
    }
}

/// In words.
impl fmt::Display for DenialReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.as_str().replace('_', " "))
    }
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
    fn a_reason_is_written_as_the_text_that_it_always_was() {
        let check = |json: &str, code: RefusalCode, words: &str| {
            let reason: DenialReason = serde_json::from_str(json).unwrap();
            assert_eq!((reason.code(), reason.to_string().as_str()), (code, words));
            assert_eq!(serde_json::to_string(&reason).unwrap(), json);
        };
        check(r#""paths_changed""#, RefusalCode::PathsChanged, "paths changed");
        check(r#""denied_by_person""#, RefusalCode::DeniedByPerson, "denied by person");
        check(r#""of_another_version""#, RefusalCode::Forbidden, "of another version");
        assert!(serde_json::from_str::<DenialReason>("7").is_err());
    }
}
