//! Decides how likely a name names a secret.

use crate::provider_values::names_provider;
use crate::words::{OTHER_NAME_ENDINGS, OTHER_NAME_WORDS, PASS_WORDS, RANDOM_NAME_WORDS, TELLING_NAME_WORDS};
use aho_corasick::AhoCorasick;
use std::{collections::HashMap, sync::OnceLock};

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

/// Words of names of passwords, secrets and telling tokens.
const PASSWORD_NAME_WORDS: &str = "password passwd passphrase passwort pwd passw";
const SECRET_NAME_WORDS: &str = "secret credential";
const CERTAIN_NAME_WORDS: &str =
    "access_token access-token accesstoken api_token api_key apikey api-key access_key accesskey";

/// Whether a name contains one of many words.
fn matches_any(name: &str, words: &'static str, built: &'static OnceLock<AhoCorasick>) -> bool {
    built.get_or_init(|| AhoCorasick::new(words.split_ascii_whitespace()).expect("a few dozen words")).is_match(name)
}

static PASSWORD_WORDS: OnceLock<AhoCorasick> = OnceLock::new();
static SECRET_WORDS: OnceLock<AhoCorasick> = OnceLock::new();
static CERTAIN_WORDS: OnceLock<AhoCorasick> = OnceLock::new();
static TELLING_WORDS: OnceLock<AhoCorasick> = OnceLock::new();
static OTHER_WORDS: OnceLock<AhoCorasick> = OnceLock::new();

/// Endings by their last byte.
type Endings = HashMap<u8, Vec<&'static str>>;
static ENDINGS: OnceLock<Endings> = OnceLock::new();
static RANDOM_ENDINGS: OnceLock<Endings> = OnceLock::new();

/// The endings that may end a name: those with its last byte.
fn endings_for(name: &str, endings: &'static str, built: &'static OnceLock<Endings>) -> &'static [&'static str] {
    let by_byte = built.get_or_init(|| {
        let mut by_byte = Endings::new();
        for ending in endings.split_ascii_whitespace() {
            by_byte.entry(ending.as_bytes()[ending.len() - 1]).or_default().push(ending);
        }
        by_byte
    });
    name.bytes().last().and_then(|b| by_byte.get(&b)).map_or(&[], Vec::as_slice)
}

fn ends_with_any(name: &str, endings: &'static str, built: &'static OnceLock<Endings>) -> bool {
    endings_for(name, endings, built).iter().any(|e| name.ends_with(e))
}

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
        "private",
    ];
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let name = USES.iter().find_map(|u| name.strip_suffix(u)).unwrap_or(name).trim_end_matches(['_', '-', '.']);
    name.strip_suffix('s').filter(|n| n.ends_with("key") || n.ends_with("token")).unwrap_or(name)
}

/// How likely a name names a secret. `quoted`: it is in quotes, as names in JSON are.
pub(crate) fn name_strength(name: &[u8], quoted: bool) -> NameStrength {
    let Ok(written) = std::str::from_utf8(name) else { return NameStrength::None };
    let lower = written.trim_matches(['-', '.']).to_ascii_lowercase();
    if matches_any(&lower, PASSWORD_NAME_WORDS, &PASSWORD_WORDS)
        || lower.ends_with("pass") && !PASS_WORDS.split_ascii_whitespace().any(|w| lower.ends_with(w))
        || lower.ends_with("psk")
        || lower == "pw"
        || ["_pw", "-pw", ".pw", "dbpw", "adminpw", "userpw", "smtppw", "ftppw"].iter().any(|e| lower.ends_with(e))
    {
        return NameStrength::Password;
    }
    if matches_any(&lower, SECRET_NAME_WORDS, &SECRET_WORDS)
        || is_salt_of_wordpress(written)
        || lower.starts_with("pypi-token.")
        || lower == "_auth"
        || [
            "bindpw",
            "rootbindpw",
            "rootpw",
            "requirepass",
            "masterauth",
            "api_hash",
            "userpwd",
            "ldap_default_authtok",
        ]
        .contains(&&*lower)
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
    let is_variable = is_upper_case && (!quoted || written.contains('_'));
    // `--token V`, `Circle-Token: V`
    let is_given = name.ends_with("token") && (written.starts_with('-') || is_header_name(written))
        || name.ends_with("key") && name.starts_with("x-");
    if is_variable
        || is_given
        || ends
            && !matches!(name, "key" | "token")
            && (matches_any(name, TELLING_NAME_WORDS, &TELLING_WORDS) || names_provider(written.as_bytes()))
    {
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

/// Whether a name is written as headers are: `X-Consul-Token`.
fn is_header_name(name: &str) -> bool {
    name.contains('-') && name.split('-').all(|part| part.starts_with(|c: char| c.is_ascii_uppercase()))
        || name.starts_with("x-")
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
    endings_for(name, RANDOM_NAME_WORDS, &RANDOM_ENDINGS).iter().any(|word| ends(word)) || name.starts_with("__secure-")
}

/// Whether a name does not name a secret, in spite of the words that it contains.
pub(crate) fn names_something_else(name: &[u8], strength: NameStrength) -> bool {
    let Ok(name) = std::str::from_utf8(name) else { return true };
    let name = name.to_ascii_lowercase();
    let is_telling = || {
        strength == NameStrength::Password
            || matches_any(&name, SECRET_NAME_WORDS, &SECRET_WORDS)
            || matches_any(&name, CERTAIN_NAME_WORDS, &CERTAIN_WORDS)
    };
    let is_cookie = strength == NameStrength::Random && is_random_name(&name);
    !is_cookie && ends_with_any(&name, OTHER_NAME_ENDINGS, &ENDINGS)
        || matches_any(&name, OTHER_NAME_WORDS, &OTHER_WORDS) && !is_telling()
}
