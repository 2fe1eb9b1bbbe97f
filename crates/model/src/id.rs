//! Typed, sortable, prefixed ids: `tk_` plus ten characters of time and six of chance.
//!
//! They sort by age as text, so that the ledger, the task directories and every list share one order.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, str::FromStr};

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const TIME: usize = 10;
const CHANCE: usize = 6;
const LEN: usize = TIME + CHANCE;
const RANDOM_BITS: u32 = 5 * CHANCE as u32;

/// Why a text is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an id: one looks like {wanted}_01jcx3v9q8k2m4tz")]
pub struct IdError {
    text: String,
    wanted: &'static str,
}

/// Hands out ids that only ever grow, even when the clock stands still or steps back.
#[derive(Debug, Default)]
pub struct IdMint {
    ms: u64,
    random: u32,
}

impl IdMint {
    fn next(&mut self, now_ms: u64, random: u32) -> [u8; LEN] {
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

fn encode(ms: u64, random: u32) -> [u8; LEN] {
    let mut value = (u128::from(ms) << RANDOM_BITS) | u128::from(random);
    let mut out = [b'0'; LEN];
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
        pub struct $name([u8; LEN]);

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
                let error = || IdError { text: text.chars().take(80).collect(), wanted: $prefix };
                let tail = text.strip_prefix(concat!($prefix, "_")).ok_or_else(error)?;
                let bytes: [u8; LEN] = tail.as_bytes().try_into().map_err(|_| error())?;
                match bytes.iter().all(|b| ALPHABET.contains(b)) {
                    true => Ok(Self(bytes)),
                    false => Err(error()),
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
    /// The life of one request; the id that everything hangs on.
    TaskId = "tk";
    /// A question waiting for a person.
    ApprovalId = "ap";
    /// Leave to run one exact request once.
    PermitId = "pm";
    /// The signed closing account of a task.
    ReceiptId = "rc";
    /// One conversation of an agent or client.
    SessionId = "se";
    /// A person.
    PrincipalId = "pr";
    /// A person's saved approval.
    GrantId = "gr";
    /// A bearer token.
    TokenId = "ct";
    /// One home: one ledger with its keys and tasks.
    HomeId = "hm";
}

impl TaskId {
    /// When it was made, to the millisecond; ids that were made in a burst may claim to be a little later.
    pub fn asked_about(&self) -> crate::Timestamp {
        let digit = |b: &u8| ALPHABET.iter().position(|a| a == b).unwrap_or(0) as i64;
        let ms = self.0[..TIME].iter().fold(0i64, |ms, b| (ms << 5) | digit(b));
        crate::Timestamp::from_micros(ms.saturating_mul(1000))
    }

    /// The directory below `tasks/` that holds this task: one for every quarter of an hour or so.
    pub fn shard(&self) -> &str {
        &self.tail()[..TIME - 4]
    }
}

impl PrincipalId {
    /// The owner of a house: the one principal that a fresh house has.
    pub fn owner() -> Self {
        Self(*b"0000000000000000")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_when_the_clock_does_not() {
        let mut mint = IdMint::default();
        let mut last = TaskId::mint(&mut mint, 1_700_000_000_000, 7);
        for (now, random) in [(1_700_000_000_000, 1), (1_600_000_000_000, 9), (1_700_000_000_001, 0), (0, u32::MAX)] {
            let next = TaskId::mint(&mut mint, now, random);
            assert!(next > last && next.to_string() > last.to_string(), "{last} then {next}");
            last = next;
        }
    }

    #[test]
    fn chance_runs_over_into_the_next_millisecond() {
        let mut mint = IdMint::default();
        let a = TaskId::mint(&mut mint, 5, u32::MAX);
        assert!(TaskId::mint(&mut mint, 5, 0) > a);
    }

    #[test]
    fn ids_read_back_and_refuse_what_they_are_not() {
        let id = TaskId::mint(&mut IdMint::default(), 1_700_000_000_000, 12345);
        assert_eq!(id.to_string().parse(), Ok(id));
        let approval = id.to_string().replace("tk_", "ap_");
        for bad in ["", "tk_", "tk_../../../etc/pas", "tk_ilou567890abcdef", "TK_01jcx3v9q8k2m4tz", &approval] {
            assert!(bad.parse::<TaskId>().is_err(), "{bad}");
        }
    }
}
