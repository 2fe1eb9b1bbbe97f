//! A rule of the user's for what is taken out of output, as it stands in the configuration and in an order.

use serde::{Deserialize, Serialize};

/// A public keyword that stays, and what follows it, which goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedactionRule {
    pub id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    pub keywords: Vec<String>,
    /// What follows a keyword and goes.
    pub regex: String,
    /// Templates of texts that hold such a secret, and of texts that do not.
    #[serde(default, rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<String>,
    #[serde(default, rename = "miss", skip_serializing_if = "Vec::is_empty")]
    pub misses: Vec<String>,
}
