//! A byte stream in, `Clean` bytes out, the same for every chunking.
//!
//! Secrets are taken out once, before the first byte is stored. A [`Mask`] is what to look for; a [`Scrubber`] is one
//! stream being looked at. The only place that mints [`Clean`].

mod known;
mod rules;
mod scrub;
mod tail;

pub use known::{Known, looks_secret};
pub use scrub::{CHUNK, Chunk, Found, Mask, Scrubber, warm_up};
pub use tail::{TAIL, Tail};

use countersign_model::{Clean, Text};

/// Up to this length a plain search is cheaper than compiling one.
const SHORT: usize = 512;

/// Text, whole and at once.
#[must_use]
pub fn text(mask: &Mask, raw: &str) -> Text {
    if raw.len() <= SHORT && !mask.suspects(raw.as_bytes()) {
        return mint(raw.to_owned());
    }
    let bytes = scrub::whole(mask, raw.as_bytes());
    let clean = match String::from_utf8(bytes) {
        Ok(text) => text,
        // Only a secret that ends inside a character could cut one; its rest is not text any more.
        Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
    };
    mint(clean)
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

/// Text with nothing known but the shapes of tokens: for words that come without an environment.
#[must_use]
pub fn text_by_shape(raw: &str) -> Text {
    text(&Mask::of_shapes(), raw)
}

#[expect(clippy::disallowed_methods, reason = "this crate is where clean text comes from")]
fn mint<T>(inner: T) -> Clean<T> {
    Clean::mint(inner)
}
