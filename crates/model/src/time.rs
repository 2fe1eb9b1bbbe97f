//! A time on the wall clock, written as RFC 3339 with microseconds. Callers read the clock.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Microseconds since 1970, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    pub fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    pub fn micros(self) -> i64 {
        self.0
    }

    pub fn millis(self) -> u64 {
        u64::try_from(self.0 / 1000).unwrap_or(0)
    }

    /// The time since `earlier`; zero if the clock went back in between.
    pub fn since(self, earlier: Timestamp) -> std::time::Duration {
        std::time::Duration::from_micros(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(t) => write!(f, "{t:.6}"),
            Err(_) => f.write_str("1970-01-01T00:00:00.000000Z"),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        let t: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self(t.as_microsecond()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_six_digits_and_parse_back() {
        let at = Timestamp::from_micros(1_731_722_988_000_120);
        assert_eq!(at.to_string(), "2024-11-16T02:09:48.000120Z");
        assert_eq!(serde_json::from_str::<Timestamp>(&serde_json::to_string(&at).unwrap()).unwrap(), at);
    }
}
