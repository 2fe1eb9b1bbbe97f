//! Query strings. The client renders them and the daemon parses them through the same types.

use crate::DisplaySafe;
use serde::{
    Serialize,
    de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, Visitor, value::StringDeserializer},
};
use serde_json::Value;
use std::{collections::BTreeMap, fmt, fmt::Write as _};

/// The query part of a URL: `?name=value&…`, or an empty text if no field has a value.
pub fn to_query<Q: Serialize>(query: &Q) -> String {
    let Ok(Value::Object(fields)) = serde_json::to_value(query) else { return String::new() };
    let mut out = String::new();
    for (name, value) in fields {
        let text = match value {
            Value::Null => continue,
            Value::String(text) => text,
            other => other.to_string(),
        };
        out.push(if out.is_empty() { '?' } else { '&' });
        let _ = write!(out, "{name}={}", percent_encode(&text));
    }
    out
}

/// A text percent-encoded for a URL, so that no character in it has a meaning there.
#[must_use]
pub fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Reads a query from its names and values.
pub fn from_pairs<Q: DeserializeOwned>(pairs: BTreeMap<String, String>) -> Result<Q, QueryError> {
    Q::deserialize(Pairs { rest: pairs.into_iter(), value: None })
}

/// Why a query cannot be read. Each message names the parameter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    #[error("unknown parameter `{}`", DisplaySafe::bounded(.0, 40))]
    Unknown(String),
    #[error("`{0}` is missing")]
    Missing(String),
    /// A parameter has a value of the wrong kind.
    #[error("`{name}` must be {wanted}, not `{}`", DisplaySafe::bounded(.value, 40))]
    Wrong { name: String, wanted: String, value: String },
    #[error("`{name}`: {message}")]
    Other { name: String, message: String },
}

impl QueryError {
    fn with_parameter(self, parameter: &str) -> Self {
        match self {
            Self::Wrong { wanted, value, .. } => Self::Wrong { name: parameter.to_owned(), wanted, value },
            Self::Other { message, .. } => Self::Other { name: parameter.to_owned(), message },
            other => other,
        }
    }
}

impl de::Error for QueryError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Other { name: String::new(), message: message.to_string() }
    }

    fn unknown_field(field: &str, _: &'static [&'static str]) -> Self {
        Self::Unknown(field.to_owned())
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field.to_owned())
    }

    fn unknown_variant(value: &str, known: &'static [&'static str]) -> Self {
        let wanted = match known {
            [] => "nothing".to_owned(),
            [one] => (*one).to_owned(),
            [others @ .., last] => format!("{} or {last}", others.join(", ")),
        };
        Self::Wrong { name: String::new(), wanted, value: value.to_owned() }
    }
}

struct Pairs {
    rest: std::collections::btree_map::IntoIter<String, String>,
    value: Option<(String, String)>,
}

impl<'de> de::Deserializer<'de> for Pairs {
    type Error = QueryError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        visitor.visit_map(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> MapAccess<'de> for Pairs {
    type Error = QueryError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, QueryError> {
        let Some((name, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some((name.clone(), value));
        let name: StringDeserializer<QueryError> = name.into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, QueryError> {
        let (name, value) = self.value.take().unwrap_or_default();
        seed.deserialize(Part(value)).map_err(|e| e.with_parameter(&name))
    }
}

/// The value of one parameter: text that is parsed as the type of the field requires.
struct Part(String);

impl Part {
    fn read<T: std::str::FromStr>(self, wanted: &str) -> Result<T, QueryError> {
        let wrong = |value| QueryError::Wrong { name: String::new(), wanted: wanted.to_owned(), value };
        self.0.parse().map_err(|_| wrong(self.0))
    }
}

macro_rules! read_as {
    ($($method:ident $visit:ident $wanted:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
            visitor.$visit(self.read($wanted)?)
        }
    )*};
}

impl<'de> de::Deserializer<'de> for Part {
    type Error = QueryError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        visitor.visit_string(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, QueryError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, QueryError> {
        let name: StringDeserializer<QueryError> = self.0.into_deserializer();
        visitor.visit_enum(name)
    }

    read_as! {
        deserialize_bool visit_bool "true or false";
        deserialize_u8 visit_u8 "a non-negative whole number";
        deserialize_u16 visit_u16 "a non-negative whole number";
        deserialize_u32 visit_u32 "a non-negative whole number";
        deserialize_u64 visit_u64 "a non-negative whole number";
        deserialize_i32 visit_i32 "a whole number";
        deserialize_i64 visit_i64 "a whole number";
        deserialize_f64 visit_f64 "a number";
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i128 u128 f32 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}
