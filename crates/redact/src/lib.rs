//! Redacts secrets: bytes in, `Clean` bytes out. The result does not depend on how the input is cut into pieces.
//!
//! Secrets are redacted once, before the first byte is stored. A [`Mask`] says what to search for; a [`Scrubber`] redacts
//! one stream with it. No other crate may mint [`Clean`].

mod account_file;
mod call;
mod command_line;
mod context;
mod distant_value;
mod encoded_text;
mod engine;
pub mod examples;
mod fixed_search;
mod generated;
mod guard;
mod header;
mod keyword_search;
mod known_secrets;
mod known_values;
mod learned;
mod line_breaks;
mod link;
mod mask;
mod name;
mod pem;
mod pipe;
mod places;
mod prefixed;
mod programs;
mod provider_values;
mod rare_separator;
mod redacted_file;
mod rules;
mod runs;
mod scrubber;
mod searcher;
mod secret_block;
mod separator;
mod shape;
mod span;
mod table;
mod tail;
mod text_search;
mod unanchored;
mod value_reader;
mod value_syntax;
mod visible_text;
mod words;
mod wrapped;

pub use known_secrets::{KnownSecrets, looks_secret};
pub use mask::{Mask, RuleFault, UserRules, built_in_rules, set_user_rules, warm_up};
pub use redacted_file::{EditError, RedactedFile};
pub use rules::BuiltInRule;
pub use scrubber::{Chunk, Finding, MAX_CHUNK_BYTES, Scrubber};
pub use span::RuleId;
pub use tail::{MAX_TAIL_BYTES, Tail};

use countersign_model::{Clean, Text};
use engine::Pause;

/// Redacts a whole text.
#[must_use]
pub fn text(mask: &Mask, raw: &str) -> Text {
    let mut engine = engine::Engine::default();
    engine.scan(mask, raw.as_bytes(), Pause::End);
    if engine.replacements.is_empty() {
        return mint(raw.to_owned());
    }
    let clean = match String::from_utf8(engine.apply_replacements(raw.as_bytes())) {
        Ok(text) => text,
        // A secret that ends inside a character leaves the rest of that character, which is no text.
        Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
    };
    mint(clean)
}

/// What is found by its context instead of a rule: the id in placeholders, and what it stands for.
pub const CONTEXT_RULES: &[(&str, &str)] = &[
    ("known-value", "A value of the environment that looks secret, plain or encoded in base64, hex, URL or JSON form"),
    ("private-key", "The lines of a private key between BEGIN and END, or of a PuTTY key"),
    ("wallet-key", "The private key of a wallet in base 58"),
    ("ngrok-token", "An ngrok token: 27 random characters, an underscore and 20 more"),
    ("mysql-hash", "The hash of a password of MySQL: a star and 40 hexadecimal digits"),
    ("asana-token", "An Asana token: numbers, a colon and 32 hexadecimal digits"),
    ("zhipu-key", "32 hexadecimal digits, a dot and a random word, as Zhipu and Ollama write their keys"),
    ("fal-key", "A fal.ai key: a UUID, a colon and 32 hexadecimal digits"),
    ("password", "The value of a name that contains password, passwd, passphrase or pwd"),
    ("secret-value", "The value of a name that contains key, token, secret or credential"),
    ("authorization", "The credentials of an Authorization header"),
    ("cookie", "The values of Cookie and Set-Cookie headers"),
    ("named-token", "A random value of a name that contains the name of a provider"),
    ("prefixed-token", "A short prefix and a long random text, as tokens of providers that no rule lists have them"),
    ("url-password", "The password in scheme://user:password@host, or a token alone before the @"),
    ("command-password", "An argument of a program that is a password: curl -u, mysql -p, echo V | docker login"),
    ("wrapped-secret", "A link in base64 that contains a secret"),
    ("file-password", "A password in a file without names: .pgpass, sasl_passwd, the data of a Kubernetes Secret"),
];

/// The placeholders in a text, from left to right.
pub fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    let mut from = 0;
    std::iter::from_fn(move || {
        while let Some(at) = text[from..].find(PLACEHOLDER_START).map(|i| from + i) {
            let rest = &text[at + PLACEHOLDER_START.len()..];
            let id = rest.bytes().take_while(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-').count();
            let tail = rest.as_bytes().get(id..id + 6);
            from = at + 1;
            if id > 0 && tail.is_some_and(|t| t[0] == b':' && t[1..5].iter().all(u8::is_ascii_hexdigit) && t[5] == b']')
            {
                return Some(&text[at..at + PLACEHOLDER_START.len() + id + 6]);
            }
        }
        None
    })
}

/// The first placeholder in a text, if there is one.
#[must_use]
pub fn placeholder(text: &str) -> Option<&str> {
    placeholders(text).next()
}

/// Every placeholder begins with this.
const PLACEHOLDER_START: &str = "[redacted:";

/// The secrets that rules find in a text.
pub(crate) fn find_secrets(text: &str) -> Vec<String> {
    let mut engine = engine::Engine::default();
    engine.scan(&Mask::without_values(), text.as_bytes(), Pause::End);
    engine
        .replacements
        .iter()
        .filter(|e| e.rule.is_some())
        .filter_map(|e| text.get(e.raw.clone()).map(str::to_owned))
        .collect()
}

/// Redacts a whole text and cuts it to `max` bytes, with a note of how much is missing. The cut comes last: half a secret
/// matches no rule.
#[must_use]
pub fn text_bounded(mask: &Mask, raw: &str, max: usize) -> Text {
    let clean = text(mask, raw).into_inner();
    if clean.len() <= max {
        return mint(clean);
    }
    let kept = clean.floor_char_boundary(max);
    mint(format!("{}… ({} bytes not shown)", &clean[..kept], clean.len() - kept))
}

/// The id of a rule as clean text: it is built in, or was checked when the configuration was read.
#[must_use]
pub fn rule_name(rule: &RuleId) -> Text {
    mint(rule.clone().into_owned())
}

/// Redacts a text by rules alone, for text that comes without an environment.
#[must_use]
pub fn text_by_shape(raw: &str) -> Text {
    text(&Mask::without_values(), raw)
}

#[expect(clippy::disallowed_methods, reason = "this crate redacts, so it mints")]
fn mint<T>(inner: T) -> Clean<T> {
    Clean::mint(inner)
}
