//! Decides how likely a name names a secret.

use crate::words::{OTHER_NAME_ENDINGS, OTHER_NAME_WORDS, PASS_WORDS, RANDOM_NAME_WORDS, TELLING_NAME_WORDS};
use aho_corasick::AhoCorasick;
use std::sync::OnceLock;

/// How likely a name names a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NameStrength {
    /// It names something else: `public_key`, `keyboard`, `max_tokens`.
    None,
    /// `auth`, `salt`, `seed`, `sid`: seldom a secret, unless the value is long and random.
    Random,
    /// `key` and names that contain `key` or `token`: often the key of a table.
    Weak,
    /// `token` itself: often a secret, but also often a number or a hash.
    Fair,
    /// `api_key`, `client_secret`, `GITHUB_TOKEN`.
    Strong,
    Password,
}

fn contains_any(name: &str, words: &[&str]) -> bool {
    words.iter().any(|w| memchr::memmem::find(name.as_bytes(), w.as_bytes()).is_some())
}

/// Whether a name contains one of many words.
fn matches_any(name: &str, words: &'static str, built: &'static OnceLock<AhoCorasick>) -> bool {
    built.get_or_init(|| AhoCorasick::new(words.split_ascii_whitespace()).expect("a few dozen words")).is_match(name)
}

static TELLING_WORDS: OnceLock<AhoCorasick> = OnceLock::new();

static OTHER_WORDS: OnceLock<AhoCorasick> = OnceLock::new();

/// A name without a number, environment or plural at its end: `API_KEY2`, `apiKeyProd`, `TOKENS`.
fn name_stem(name: &str) -> &str {
    const USES: &[&str] = &[
        "prod",
        "production",
        "dev",
        "test",
        "testing",
        "staging",
        "stage",
        "live",
        "main",
        "old",
        "new",
        "primary",
        "secondary",
        "backup",
        "default",
        "value",
        "string",
    ];
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let name = USES.iter().find_map(|u| name.strip_suffix(u)).unwrap_or(name).trim_end_matches(['_', '-', '.']);
    name.strip_suffix('s').filter(|n| n.ends_with("key") || n.ends_with("token")).unwrap_or(name)
}

/// How likely a name names a secret. `quoted`: it is in quotes, as names in JSON are.
pub(crate) fn name_strength(name: &[u8], quoted: bool) -> NameStrength {
    let Ok(written) = std::str::from_utf8(name) else { return NameStrength::None };
    let lower = written.trim_matches(['-', '.']).to_ascii_lowercase();
    if contains_any(&lower, &["password", "passwd", "passphrase", "passwort", "pwd", "passw"])
        || lower.ends_with("pass") && !PASS_WORDS.split_ascii_whitespace().any(|w| lower.ends_with(w))
        || lower.ends_with("psk")
        || lower == "pw"
        || ["_pw", "-pw", ".pw", "dbpw"].iter().any(|e| lower.ends_with(e))
    {
        return NameStrength::Password;
    }
    if contains_any(&lower, &["secret", "credential"])
        || is_salt_of_wordpress(written)
        || lower.starts_with("pypi-token.")
        || lower == "_auth"
    {
        return NameStrength::Strong;
    }
    if is_random_name(&lower) || lower.contains("mnemonic") {
        return NameStrength::Random;
    }
    let name = name_stem(&lower);
    // `GITHUB_TOKEN`, `DEPLOY_KEY`: keys of tables are not written like this.
    let ends = name.ends_with("key") || name.ends_with("token");
    let is_upper_case = !written.bytes().any(|b| b.is_ascii_lowercase()) && written.len() > 3 && ends;
    let ends = ends || name.contains("key-data") || name.contains("token_") || name.contains("key_");
    if is_upper_case && !quoted || ends && matches_any(name, TELLING_NAME_WORDS, &TELLING_WORDS) {
        return NameStrength::Strong;
    }
    if !ends {
        NameStrength::None
    } else if name.ends_with("token") {
        NameStrength::Fair
    } else {
        NameStrength::Weak
    }
}

/// The salts of WordPress: `SECURE_AUTH_SALT`.
fn is_salt_of_wordpress(name: &str) -> bool {
    let kinds = ["AUTH", "SECURE_AUTH", "LOGGED_IN", "NONCE"];
    name.strip_suffix("_SALT").or(name.strip_suffix("_KEY")).is_some_and(|k| kinds.contains(&k))
}

/// Names whose value is a secret only if it is long and random.
fn is_random_name(name: &str) -> bool {
    let ends =
        |word: &str| name.strip_suffix(word).is_some_and(|rest| rest.is_empty() || rest.ends_with(['_', '-', '.']));
    RANDOM_NAME_WORDS.split_ascii_whitespace().any(ends) || name.starts_with("__secure-")
}

/// Whether a name does not name a secret, in spite of the words that it contains.
pub(crate) fn names_something_else(name: &[u8], strength: NameStrength) -> bool {
    let Ok(name) = std::str::from_utf8(name) else { return true };
    let name = name.to_ascii_lowercase();
    let secret = strength == NameStrength::Password || contains_any(&name, &["secret", "credential"]);
    let telling = secret
        || contains_any(
            &name,
            &[
                "access_token",
                "access-token",
                "accesstoken",
                "api_token",
                "api_key",
                "apikey",
                "api-key",
                "access_key",
                "accesskey",
            ],
        );
    OTHER_NAME_ENDINGS.split_ascii_whitespace().any(|e| name.ends_with(e))
        || !telling && matches_any(&name, OTHER_NAME_WORDS, &OTHER_WORDS)
}
