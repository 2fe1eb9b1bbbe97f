//! A byte stream in, `Clean` bytes out, the same for every chunking.
//!
//! Secrets are taken out once, before the first byte is stored. A [`Mask`] is what to look for; a [`Scrubber`] is one
//! stream being looked at. The only place that mints [`Clean`].

mod context;
mod engine;
pub mod examples;
mod guard;
mod header;
mod keyword_search;
mod known_secrets;
mod line_breaks;
mod mask;
mod pem;
mod redacted_file;
mod rules;
mod scrubber;
mod shape;
mod span;
mod tail;
mod visible_text;
mod words;

pub use known_secrets::{KnownSecrets, looks_secret};
pub use mask::{Mask, RuleFault, UserRules, built_in_rules, set_user_rules, warm_up};
pub use redacted_file::{EditError, RedactedFile};
pub use rules::BuiltInRule;
pub use scrubber::{Chunk, Finding, MAX_CHUNK_BYTES, Scrubber};
pub use span::RuleId;
pub use tail::{MAX_TAIL_BYTES, Tail};

use countersign_model::{Clean, Text};

/// Text, whole and at once.
#[must_use]
pub fn text(mask: &Mask, raw: &str) -> Text {
    let mut engine = engine::Engine::default();
    engine.scan(mask, raw.as_bytes(), true, true);
    if engine.replacements.is_empty() {
        return mint(raw.to_owned());
    }
    let clean = match String::from_utf8(engine.apply_replacements(raw.as_bytes())) {
        Ok(text) => text,
        // Only a secret that ends inside a character could cut one; its rest is not text any more.
        Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
    };
    mint(clean)
}

/// What is found by looking around it rather than by a rule of its own.
pub const CONTEXT_RULES: &[(&str, &str)] = &[
    ("known-value", "A secret-looking value of the environment, plain, or in base 64, hex, URL or JSON encoding"),
    ("private-key", "The lines of a private key between BEGIN and END, and of a PuTTY key"),
    ("password", "The value of a name that holds password, passwd, passphrase or pwd"),
    ("secret-value", "The value of a name that holds key, token, secret or credential"),
    ("authorization", "The credentials of an Authorization header"),
    ("cookie", "The values of Cookie and Set-Cookie headers"),
    ("url-password", "The password in scheme://user:password@host"),
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

/// How every placeholder begins.
const PLACEHOLDER_START: &str = "[redacted:";

/// What rules find in a text, as it stands there.
pub(crate) fn find_secrets(text: &str) -> Vec<String> {
    let mut engine = engine::Engine::default();
    engine.scan(&Mask::without_values(), text.as_bytes(), true, true);
    engine
        .replacements
        .iter()
        .filter(|e| e.rule.is_some())
        .filter_map(|e| text.get(e.raw.clone()).map(str::to_owned))
        .collect()
}

/// Text, cleaned whole and then cut to `max` bytes, with a word about what is not shown: a cut before could leave half
/// a secret that no rule knows.
#[must_use]
pub fn text_bounded(mask: &Mask, raw: &str, max: usize) -> Text {
    let clean = text(mask, raw).into_inner();
    if clean.len() <= max {
        return mint(clean);
    }
    let kept = clean.floor_char_boundary(max);
    mint(format!("{}… ({} bytes not shown)", &clean[..kept], clean.len() - kept))
}

/// The name of a rule: built in, or checked when the configuration was read.
#[must_use]
pub fn rule_name(rule: &RuleId) -> Text {
    mint(rule.clone().into_owned())
}

/// Text with nothing known but the shapes of tokens: for words that come without an environment.
#[must_use]
pub fn text_by_shape(raw: &str) -> Text {
    text(&Mask::without_values(), raw)
}

#[expect(clippy::disallowed_methods, reason = "this crate is where clean text comes from")]
fn mint<T>(inner: T) -> Clean<T> {
    Clean::mint(inner)
}
