//! Typed, sortable, prefixed ids: `tk_`, then ten characters of time and six random ones.
//!
//! They sort by age as text, so that the ledger, the task directories and every list have the same order.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, str::FromStr};

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const TIME_CHARS: usize = 10;
const RANDOM_CHARS: usize = 6;
const ID_CHARS: usize = TIME_CHARS + RANDOM_CHARS;
const RANDOM_BITS: u32 = 5 * RANDOM_CHARS as u32;

/// A text is not an id of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an id such as {prefix}_01jcx3v9q8k2m4tz")]
pub struct IdError {
    text: String,
    prefix: &'static str,
}

/// Creates ids that always increase, even if the clock stands still or goes back.
#[derive(Debug, Default)]
pub struct IdMint {
    ms: u64,
    random: u32,
}

impl IdMint {
    fn next(&mut self, now_ms: u64, random: u32) -> [u8; ID_CHARS] {
        let random = random & ((1 << RANDOM_BITS) - 1);
        if now_ms > self.ms {
            (self.ms, self.random) = (now_ms, random);
        } else if self.random + 1 < 1 << RANDOM_BITS {
            self.random += 1;
        } else {
            (self.ms, self.random) = (self.ms + 1, 0);
        }
        encode(self.ms, self.random)
    }
}

fn encode(ms: u64, random: u32) -> [u8; ID_CHARS] {
    let mut value = (u128::from(ms) << RANDOM_BITS) | u128::from(random);
    let mut out = [b'0'; ID_CHARS];
    for slot in out.iter_mut().rev() {
        *slot = ALPHABET[(value & 31) as usize];
        value >>= 5;
    }
    out
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; ID_CHARS]);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            pub fn mint(mint: &mut IdMint, now_ms: u64, random: u32) -> Self {
                Self(mint.next(now_ms, random))
            }

            /// The id without its prefix.
            pub fn tail(&self) -> &str {
                std::str::from_utf8(&self.0).expect("ids are made of ASCII letters and digits")
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}"), self.tail())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                let error = || IdError { text: text.chars().take(80).collect(), prefix: $prefix };
                let tail = text.strip_prefix(concat!($prefix, "_")).ok_or_else(error)?;
                let bytes: [u8; ID_CHARS] = tail.as_bytes().try_into().map_err(|_| error())?;
                if bytes.iter().all(|b| ALPHABET.contains(b)) {
                    Ok(Self(bytes))
                } else {
                    Err(error())
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

ids! {
    /// One request from its planning to its receipt. All other records refer to it.
    TaskId = "tk";
    /// A question to a person.
    ApprovalId = "ap";
    /// Permission to run one exact request once.
    PermitId = "pm";
    /// The signed final account of a task.
    ReceiptId = "rc";
    /// One conversation of an agent or a client.
    SessionId = "se";
    /// A person.
    PrincipalId = "pr";
    /// A person's saved approval.
    GrantId = "gr";
    /// A bearer token.
    TokenId = "ct";
    /// One home: a ledger with its keys and tasks.
    HomeId = "hm";
}

impl TaskId {
    /// When the id was created, to the millisecond. Ids created in a burst may have a slightly later time.
    pub fn created_at(&self) -> crate::Timestamp {
        let digit = |b: &u8| ALPHABET.iter().position(|a| a == b).unwrap_or(0) as i64;
        let ms = self.0[..TIME_CHARS].iter().fold(0i64, |ms, b| (ms << 5) | digit(b));
        crate::Timestamp::from_micros(ms.saturating_mul(1000))
    }

    /// The directory below `tasks/` that holds this task. There is a new one about every quarter of an hour.
    pub fn shard(&self) -> &str {
        &self.tail()[..TIME_CHARS - 4]
    }
}

impl PrincipalId {
    /// The owner of a home: its only principal at first.
    pub fn owner() -> Self {
        Self(*b"0000000000000000")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_increase_even_if_the_clock_does_not() {
        let mut mint = IdMint::default();
        let mut last = TaskId::mint(&mut mint, 1_700_000_000_000, 7);
        for (now, random) in [(1_700_000_000_000, 1), (1_600_000_000_000, 9), (1_700_000_000_001, 0), (0, u32::MAX)] {
            let next = TaskId::mint(&mut mint, now, random);
            assert!(next > last && next.to_string() > last.to_string(), "{last} then {next}");
            last = next;
        }
    }

    #[test]
    fn ids_that_run_out_of_random_values_use_the_next_millisecond() {
        let mut mint = IdMint::default();
        let a = TaskId::mint(&mut mint, 5, u32::MAX);
        assert!(TaskId::mint(&mut mint, 5, 0) > a);
    }

    #[test]
    fn ids_parse_back_and_malformed_ids_are_refused() {
        let id = TaskId::mint(&mut IdMint::default(), 1_700_000_000_000, 12345);
        assert_eq!(id.to_string().parse(), Ok(id));
        let approval = id.to_string().replace("tk_", "ap_");
        for bad in ["", "tk_", "tk_../../../etc/pas", "tk_ilou567890abcdef", "TK_01jcx3v9q8k2m4tz", &approval] {
            assert!(bad.parse::<TaskId>().is_err(), "{bad}");
        }
    }
}
