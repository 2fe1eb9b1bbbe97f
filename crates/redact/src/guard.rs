//! Decides whether the value of a telling name is a secret, or a word, a type, a variable, a call or a placeholder.

use crate::{
    rules::entropy,
    shape::looks_random,
    words::{OTHER_NAME_ENDINGS, OTHER_NAME_WORDS, PLACEHOLDER_WORDS, TELLING_NAME_WORDS},
};
use aho_corasick::AhoCorasick;
use std::{collections::HashSet, sync::OnceLock};

/// How likely a name names a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NameStrength {
    /// It names something else: `public_key`, `keyboard`, `max_tokens`.
    None,
    /// `key` and names that contain `key` or `token`: often the key of a table.
    Weak,
    /// `token` itself: often a secret, but also often a number or a hash.
    Fair,
    /// `api_key`, `client_secret`, `GITHUB_TOKEN`.
    Strong,
    Password,
}

/// How a value is written.
#[derive(Debug)]
pub(crate) struct ValueSetting {
    pub(crate) quoted: bool,
    /// In a place for values rather than for expressions.
    pub(crate) plain: bool,
    pub(crate) spaced: bool,
    /// The byte behind it.
    pub(crate) follows: u8,
    /// `name=value` without blanks.
    pub(crate) shell: bool,
    /// An assignment of a shell: the value ends with a blank.
    pub(crate) alone: bool,
}

fn contains_any(name: &str, words: &[&str]) -> bool {
    words.iter().any(|w| memchr::memmem::find(name.as_bytes(), w.as_bytes()).is_some())
}

/// Whether a name contains one of many words.
fn matches_any(name: &str, words: &'static str, built: &'static OnceLock<AhoCorasick>) -> bool {
    built.get_or_init(|| AhoCorasick::new(words.split_ascii_whitespace()).expect("a few dozen words")).is_match(name)
}

fn is_word(value: &str) -> bool {
    static BUILT: OnceLock<HashSet<&'static str>> = OnceLock::new();
    BUILT.get_or_init(|| PLACEHOLDER_WORDS.split_ascii_whitespace().collect()).contains(value)
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
        || lower.ends_with("pass")
    {
        return NameStrength::Password;
    }
    if contains_any(&lower, &["secret", "credential"]) {
        return NameStrength::Strong;
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

/// Whether a value is written in place of a secret.
pub(crate) fn is_placeholder(value: &[u8]) -> bool {
    let Some(first) = value.first() else { return true };
    if value.iter().all(|b| b == first)
        || value.starts_with(b"[redacted:")
        || memchr::memmem::find(value, b"[redacted:").is_some()
    {
        return true;
    }
    // Variables and templates; a dollar inside a value belongs to the value.
    let closed = |open: &[u8], close: &[u8]| value.starts_with(open) && memchr::memmem::find(value, close).is_some();
    let pairs: [(&[u8], &[u8]); 9] = [
        (b"${", b"}"),
        (b"$(", b")"),
        (b"{{", b"}}"),
        (b"<", b">"),
        (b"%(", b")"),
        (b"%{", b"}"),
        (b"#{", b"}"),
        (b"{", b"}"),
        (b"@@", b"@@"),
    ];
    if pairs.iter().any(|(open, close)| closed(open, close))
        || value.starts_with(b"${")
        || value.starts_with(b"$(")
        || matches!(value, b"%s" | b"%d" | b"%v")
    {
        return true;
    }
    if *first == b'$' && is_variable(&value[1..]) {
        return true;
    }
    let lower = value.to_ascii_lowercase();
    let has = |part: &[u8]| memchr::memmem::find(&lower, part).is_some();
    let parts = [
        &b"xxxxxx"[..],
        b"your_",
        b"your-",
        b"example",
        b"placeholder",
        b"changeme",
        b"change-me",
        b"change_me",
        b"....",
        b"****",
        b"redacted",
        b"-here",
        b"_here",
    ];
    let words = [&b"your"[..], b"dummy", b"insert", b"replace", b"xxxx"];
    if parts.iter().any(|p| has(p)) || !value.iter().any(u8::is_ascii_digit) && words.iter().any(|w| has(w)) {
        return true;
    }
    std::str::from_utf8(&lower).is_ok_and(|v| is_word(v.trim_end_matches(['!', '?', '.', ',', ';', ':'])))
}

/// A name of one case, numbered at most at its end.
fn is_variable(name: &[u8]) -> bool {
    let body = name.len() - name.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let body = &name[..body];
    let letters = body.iter().all(|b| b.is_ascii_alphabetic() || *b == b'_');
    letters && !body.is_empty() && (is_camel_case(body) || body.contains(&b'_'))
}

/// Whether this is code: a call, a link or a name.
pub(crate) fn is_code(value: &[u8]) -> bool {
    value.contains(&b'(') || memchr::memmem::find(value, b"://").is_some() || is_wordy(value)
}

fn is_hex(value: &[u8]) -> bool {
    value.len() >= 8 && value.iter().all(u8::is_ascii_hexdigit)
}

fn is_uuid(value: &[u8]) -> bool {
    value.len() == 36
        && value
            .iter()
            .enumerate()
            .all(|(i, b)| if matches!(i, 8 | 13 | 18 | 23) { *b == b'-' } else { b.is_ascii_hexdigit() })
}

/// A path, or a file's name.
fn is_path(value: &[u8]) -> bool {
    let rooted = value.starts_with(b"/")
        || value.starts_with(b"./")
        || value.starts_with(b"../")
        || value.starts_with(b"~/")
        || value.get(1..3) == Some(b":\\");
    let parts = value.split(|b| *b == b'/');
    let wordy = |p: &[u8]| p.len() <= 32 && !looks_random(p);
    rooted && value.contains(&b'/') && parts.clone().all(wordy)
        || value.contains(&b'/')
            && !value.ends_with(b"=")
            && parts.clone().count() >= 2
            && parts.clone().all(|p| wordy(p) && p.len() < 24)
        || memchr::memmem::find(value, b"://").is_some()
        || [
            &b".pem"[..],
            b".key",
            b".crt",
            b".pub",
            b".json",
            b".yaml",
            b".yml",
            b".toml",
            b".txt",
            b".rs",
            b".py",
            b".js",
            b".ts",
            b".go",
            b".c",
            b".h",
            b".html",
            b".png",
            b".svg",
            b".css",
        ]
        .iter()
        .any(|e| value.ends_with(e))
}

/// Words joined as in a name: `my-app-secret-v2`, `fooBarBaz`, `config.password`, `Token`.
fn is_wordy(value: &[u8]) -> bool {
    value.iter().all(|b| {
        b.is_ascii_alphanumeric()
            || matches!(
                b,
                b'-' | b'_' | b'.' | b':' | b'/' | b' ' | b'*' | b'&' | b'!' | b'?' | b'+' | b'%' | b'\'' | b','
            )
            || !b.is_ascii()
    }) && value.split(|b| !b.is_ascii_alphanumeric()).all(|segment| {
        let digits = segment.iter().filter(|b| b.is_ascii_digit()).count();
        let letters = segment.len() - digits;
        let trailing = segment.iter().rev().take_while(|b| b.is_ascii_digit()).count();
        let leading = segment.iter().take_while(|b| b.is_ascii_digit()).count();
        let at_edge = digits == trailing.max(leading);
        let fits = letters == 0 && digits <= 4 || digits == 0 || at_edge && digits <= 3 && letters > digits;
        fits && is_camel_case(segment) && is_pronounceable(segment)
    })
}

/// Whether letters could be words: words have no six consonants in a row, and have vowels.
fn is_pronounceable(segment: &[u8]) -> bool {
    let letters: Vec<u8> = segment.iter().filter(|b| b.is_ascii_alphabetic()).map(u8::to_ascii_lowercase).collect();
    if letters.len() < 12 {
        return true;
    }
    let vowel = |b: &u8| matches!(b, b'a' | b'e' | b'i' | b'o' | b'u' | b'y');
    let vowels = letters.iter().filter(|b| vowel(b)).count();
    let longest = letters.split(vowel).map(<[u8]>::len).max().unwrap_or(0);
    longest < 6 && vowels * 5 >= letters.len() && vowels * 3 <= letters.len() * 2
}

/// Whether capitals are only at the beginnings of words, or everywhere.
fn is_camel_case(segment: &[u8]) -> bool {
    let upper = segment.iter().filter(|b| b.is_ascii_uppercase()).count();
    let lower = segment.iter().filter(|b| b.is_ascii_lowercase()).count();
    if lower == 0 || upper * 3 <= lower + 2 {
        return true;
    }
    let words = 1 + segment.windows(2).filter(|w| w[0].is_ascii_lowercase() && w[1].is_ascii_uppercase()).count();
    let longest = segment.split(|b| !b.is_ascii_lowercase()).map(<[u8]>::len).max().unwrap_or(0);
    (upper + lower) / words >= 4 && longest >= 4
}

/// Whether a value is an expression rather than text: a call, a member, a number, an operator.
fn is_expression(value: &[u8], setting: &ValueSetting) -> bool {
    if setting.quoted {
        return false;
    }
    let number = value.iter().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-' | b'x' | b'+'));
    let operator = matches!(
        value[0],
        b'&' | b'*' | b'!' | b'-' | b'=' | b'?' | b'|' | b'~' | b'^' | b'\\' | b'%' | b'.' | b'@' | b'#'
    );
    let call = matches!(setting.follows, b'(' | b'[' | b'{');
    let generic = !setting.plain && setting.follows == b'<' || setting.follows == b'>' && setting.spaced;
    // `certs[0][2]`, `request.key):`
    let name = value.iter().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.')).count();
    let indexed = name > 0 && matches!(value.get(name), Some(b'[' | b'('));
    let closes = value.contains(&b')') && !value.contains(&b'(');
    indexed
        || closes
        || call
        || generic
        || (number && !setting.plain && !setting.shell)
        || (operator && !setting.plain)
        || memchr::memmem::find(value, b"::").is_some()
        || memchr::memmem::find(value, b"->").is_some()
}

/// Whether a value is a secret, given the strength of its name and how it is written.
pub(crate) fn is_secret(strength: NameStrength, name: &[u8], value: &[u8], setting: &ValueSetting) -> bool {
    if value.len() < 4 || is_placeholder(value) || is_expression(value, setting) {
        return false;
    }
    let password = strength == NameStrength::Password;
    let rooted = value.starts_with(b"/")
        || value.starts_with(b"./")
        || value.starts_with(b"~/")
        || memchr::memmem::find(value, b"://").is_some();
    if is_path(value) && (!password || rooted) {
        return false;
    }
    let digits = value.iter().filter(|b| b.is_ascii_digit()).count();
    let letters = value.iter().filter(|b| b.is_ascii_alphabetic()).count();
    let blanks = value.iter().filter(|b| **b == b' ').count();
    // Blanks: a sentence.
    if blanks > 0 && (!password || blanks > 6 || digits == 0 && blanks < 3) {
        return false;
    }
    let wordy = is_wordy(value);
    match strength {
        NameStrength::None => false,
        NameStrength::Password if digits == value.len() => setting.plain && digits >= 4 || setting.shell && digits >= 6,
        NameStrength::Password if !wordy => {
            setting.plain || value.len() >= 6 && (digits > 0 && letters > 0 || looks_random(value))
        }
        NameStrength::Password => is_password_of_words(name, value, digits, setting),
        NameStrength::Fair if is_hex(value) || is_uuid(value) => setting.shell && setting.plain && value.len() >= 32,
        NameStrength::Fair | NameStrength::Strong => {
            if digits == value.len() || wordy && !is_hex(value) && !is_uuid(value) {
                return false;
            }
            let mixed = digits > 0 && letters > 0;
            let strong = mixed && value.len() >= 8 || value.len() >= 16 && entropy(value) >= 3.0;
            strong
                && (setting.plain || value.len() >= 16 && entropy(value) >= 3.0)
                && !value.iter().any(|b| matches!(b, b'*' | b'<' | b'>'))
        }
        NameStrength::Weak => {
            let is_token = value.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+' | b'='));
            let is_random =
                digits >= 2 && letters > 0 && value.len() >= 16 && looks_random(value) && entropy(value) >= 3.5;
            is_token && is_random && !is_hex(value) && !is_uuid(value) && !wordy && setting.plain
        }
    }
}

/// Plain words are a password only in a place for values, and only if they do not repeat the name.
fn is_password_of_words(name: &[u8], value: &[u8], digits: usize, setting: &ValueSetting) -> bool {
    let is_upper_case = !name.iter().any(u8::is_ascii_lowercase);
    if setting.alone && is_upper_case && !setting.quoted {
        return value.len() >= 6;
    }
    let words = [
        "pass", "passwd", "password", "pwd", "secret", "token", "key", "cred", "user", "login", "auth", "str",
        "config", "setting", "param",
    ];
    let lower = value.to_ascii_lowercase();
    let own = words.iter().any(|w| lower.starts_with(w.as_bytes()) || lower.ends_with(w.as_bytes()));
    let segments = value.split(|b| !b.is_ascii_alphanumeric()).filter(|s| !s.is_empty()).count();
    let config =
        setting.plain && (!setting.quoted || segments >= 3) && !setting.spaced || is_upper_case && setting.plain;
    let numbered = setting.plain && digits > 0 && segments == 1;
    !own && value.len() >= 6 && (numbered || config && value.is_ascii() && !value.contains(&b'.'))
}

/// Whether the value of a telling variable is a switch, a path or a word rather than a secret.
pub(crate) fn is_ordinary(value: &[u8]) -> bool {
    is_placeholder(value)
        || is_path(value)
        || value.len() < 16 && value.iter().all(u8::is_ascii_digit) && value.len() < 6
}
