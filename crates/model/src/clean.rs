//! `Clean`: bytes or text that have passed redaction. Logs hold nothing else.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A value without secrets. Only the `redact` crate creates new ones (clippy refuses `mint` elsewhere). Deserialising
/// one from a log is allowed: it was clean when it was written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(transparent)]
pub struct Clean<T>(T);

/// Clean text: the type of every text in frames and decisions that a person or an agent wrote.
pub type Text = Clean<String>;

impl<T> Clean<T> {
    /// Declares that `inner` holds no secret. Only redaction can know that.
    pub fn mint(inner: T) -> Self {
        Self(inner)
    }

    pub fn get(&self) -> &T {
        &self.0
    }

    pub fn into_inner(self) -> T {
        self.0
    }
}

impl Text {
    /// Text that is compiled into this program cannot hold a user's secret.
    pub fn from_static(words: &'static str) -> Self {
        Self(words.to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Clean<T> {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref()
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<T: fmt::Debug> fmt::Debug for Clean<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d).map(Self)
    }
}
