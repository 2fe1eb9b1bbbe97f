//! A redaction rule of the user, as in the configuration and in an order.

use serde::{Deserialize, Serialize};

/// A keyword that stays, and the secret after it, which is redacted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedactionRule {
    pub id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    pub keywords: Vec<String>,
    /// Matches the secret after a keyword.
    pub regex: String,
    /// Example texts that hold such a secret, and texts that do not.
    #[serde(default, rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<String>,
    #[serde(default, rename = "miss", skip_serializing_if = "Vec::is_empty")]
    pub misses: Vec<String>,
}
