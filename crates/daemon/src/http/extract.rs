//! What a request says, read once and strictly: a body, a query, a part of the path. Whatever does not read is refused
//! in words that name the field.

use super::problem::Problem;
use crate::ops::OnceKey;
use axum::{
    extract::{FromRequest, FromRequestParts, Path, Request},
    http::{HeaderMap, StatusCode, request::Parts},
};
use bytes::Bytes;
use countersign_model::{Code, Refusal, Shown, api::query};
use serde::de::DeserializeOwned;
use serde_json::{Value, error::Category};
use std::collections::BTreeMap;

/// Below this, a number with a fraction holds every whole number exactly: 2^53.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// A JSON body.
pub(crate) struct Payload<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Payload<T> {
    type Rejection = Problem;
    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        Ok(Self(parse(&whole(request, state).await?)?))
    }
}

/// A JSON body that may be left out.
pub(crate) struct MaybePayload<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for MaybePayload<T> {
    type Rejection = Problem;
    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let bytes = whole(request, state).await?;
        Ok(Self(if bytes.is_empty() { T::default() } else { parse(&bytes)? }))
    }
}

/// No body that matters: it is taken, and its bounds hold.
pub(crate) struct AnyPayload;

impl<S: Send + Sync> FromRequest<S> for AnyPayload {
    type Rejection = Problem;
    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        whole(request, state).await.map(|_| Self)
    }
}

/// A JSON body, and the key under which it is to be done once.
pub(crate) struct OncePayload<T> {
    pub(crate) body: T,
    key: Option<String>,
    bytes: Bytes,
}

impl<T> OncePayload<T> {
    pub(crate) fn into_parts(self) -> (T, Once) {
        (self.body, Once { key: self.key, bytes: self.bytes })
    }
}

/// A key, and the bytes of the body that it came with.
pub(crate) struct Once {
    key: Option<String>,
    bytes: Bytes,
}

impl Once {
    pub(crate) fn key(&self) -> Option<OnceKey<'_>> {
        self.key.as_deref().map(|key| OnceKey { key, body: &self.bytes })
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for OncePayload<T> {
    type Rejection = Problem;
    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let key = idempotency_key(request.headers());
        let bytes = whole(request, state).await?;
        Ok(Self { body: parse(&bytes)?, key, bytes })
    }
}

fn idempotency_key(headers: &HeaderMap) -> Option<String> {
    headers.get("idempotency-key").map(|key| String::from_utf8_lossy(key.as_bytes()).into_owned())
}

/// A whole body, no longer than bodies may be.
async fn whole<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Problem> {
    Ok(Bytes::from_request(request, state).await.map_err(|e| match e.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            Refusal::new(Code::TooLarge, format!("the body: {e}")).hint("bodies have at most 4 MiB")
        }
        _ => Refusal::new(Code::BadRequest, format!("the body: {e}")),
    })?)
}

/// The parameters of a query; one that is not known is an error.
pub(crate) struct Params<Q>(pub(crate) Q);

impl<S: Send + Sync, Q: DeserializeOwned> FromRequestParts<S> for Params<Q> {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut pairs = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()) {
            if pairs.insert(name.clone().into_owned(), value.into_owned()).is_some() {
                let shown = Shown::bounded(&name, 40);
                return Err(Refusal::new(Code::BadRequest, format!("`{shown}` is given more than once")).into());
            }
        }
        match query::from_pairs(pairs) {
            Ok(query) => Ok(Self(query)),
            Err(e) => Err(Refusal::new(Code::BadRequest, e.to_string()).into()),
        }
    }
}

/// The variable part of a path.
pub(crate) struct Segment(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::from_request_parts(parts, state).await;
        path.map(|p| Self(p.0)).map_err(|_| Refusal::new(Code::NotFound, "there is nothing at this address").into())
    }
}

/// JSON as a type, or a refusal that names the field at fault.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let bad = |message: String| Refusal::new(Code::BadRequest, message);
    // Lists would be taken for objects by the order of their fields.
    if bytes.iter().find(|b| !b.is_ascii_whitespace()).is_some_and(|b| *b == b'[') {
        return Err(bad("the body is a list; this address takes a JSON object".to_owned()));
    }
    let json = &mut serde_json::Deserializer::from_slice(bytes);
    let value = match serde_path_to_error::deserialize(&mut *json) {
        Ok(value) => value,
        Err(e) => {
            let fractional = e.inner().to_string().starts_with("invalid type: floating point");
            return fractional.then(|| parse_whole_numbers(bytes)).flatten().ok_or_else(|| {
                let path = e.path().to_string();
                bad(in_words(&path, e.inner()))
            });
        }
    };
    match json.end() {
        Ok(()) => Ok(value),
        Err(e) => Err(bad(format!("the body goes on behind its JSON (line {}, column {})", e.line(), e.column()))),
    }
}

/// Reads a body in which whole numbers are written with a fraction: to JSON, `24.0` is the number `24`.
fn parse_whole_numbers<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    fn without_fraction(value: &mut Value) {
        match value {
            Value::Number(number) => {
                let whole = number.as_f64().filter(|n| number.is_f64() && n.fract() == 0.0 && n.abs() < MAX_EXACT);
                if let Some(whole) = whole {
                    *value = Value::from(whole as i64);
                }
            }
            Value::Array(values) => values.iter_mut().for_each(without_fraction),
            Value::Object(fields) => fields.values_mut().for_each(without_fraction),
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }
    let mut value = serde_json::from_slice(bytes).ok()?;
    without_fraction(&mut value);
    T::deserialize(value).ok()
}

/// What is wrong with a body, as a person would say it.
fn in_words(path: &str, error: &serde_json::Error) -> String {
    let place = format!("line {}, column {}", error.line(), error.column());
    match error.classify() {
        Category::Eof if error.column() == 0 => {
            return "the body is empty; this address takes a JSON object".to_owned();
        }
        Category::Eof => return format!("the body ends too early ({place}): it is not complete JSON"),
        Category::Syntax | Category::Io => return format!("the body is not JSON ({place}): {}", cause(error)),
        Category::Data => {}
    }
    let cause = cause(error);
    let field = match path {
        "." | "?" | "" => "the body".to_owned(),
        path => format!("`{}`", Shown::bounded(path.trim_end_matches(".?"), 80)),
    };
    let quoted = |text: &str| text.split('`').nth(1).map(|name| Shown::bounded(name, 60).to_string());
    if cause.starts_with("missing field ") {
        let name = quoted(&cause).unwrap_or_default();
        return if field == "the body" {
            format!("`{name}` is missing")
        } else {
            format!("{field}: `{name}` is missing")
        };
    }
    if let Some(rest) = cause.strip_prefix("unknown field ") {
        let name = quoted(rest).unwrap_or_default();
        let known: Vec<&str> = rest.split('`').skip(3).step_by(2).collect();
        let takes =
            if known.is_empty() { "it takes none".to_owned() } else { format!("it takes {}", list(&known, "and")) };
        let of = path.rsplit_once('.').map_or("this request".to_owned(), |(of, _)| format!("`{of}`"));
        return format!("`{name}` is not a field of {of}: {takes}");
    }
    if let Some(rest) = cause.strip_prefix("unknown variant ") {
        let name = quoted(rest).unwrap_or_default();
        let known: Vec<&str> = rest.split('`').skip(3).step_by(2).collect();
        return format!("{field} is {}, not `{name}`", list(&known, "or"));
    }
    if let Some((given, wanted)) = cause.split_once(", expected ") {
        let given = given.trim_start_matches("invalid type: ").trim_start_matches("invalid value: ");
        return format!("{field} must be {}, not {}", wanted_in_words(wanted), given_in_words(given));
    }
    format!("{field}: {cause}")
}

/// The cause without the place, which is said apart.
fn cause(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(cause, _)| cause.to_owned())
}

fn list(names: &[&str], last: &str) -> String {
    match names {
        [] => "nothing".to_owned(),
        [one] => (*one).to_owned(),
        [most @ .., end] => format!("{} {last} {end}", most.join(", ")),
    }
}

fn wanted_in_words(wanted: &str) -> String {
    let wanted = wanted.trim_start_matches("an option of ");
    match wanted {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number that is not negative".to_owned(),
        "i8" | "i16" | "i32" | "i64" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" | "string" | "a borrowed string" => "a text".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        other if other.starts_with("struct ") || other.starts_with("internally tagged enum") => "an object".to_owned(),
        other if other.starts_with("string or map") || other.contains("enum ") => "a text".to_owned(),
        other => other.to_owned(),
    }
}

fn given_in_words(given: &str) -> String {
    let kind = given.split_once(' ').map_or(given, |(kind, _)| kind);
    match kind {
        "map" => "an object".to_owned(),
        "sequence" => "a list".to_owned(),
        "null" | "unit" => "null".to_owned(),
        "boolean" | "integer" | "floating" => {
            let value = given.split('`').nth(1).unwrap_or(given);
            Shown::bounded(value, 60).to_string()
        }
        "string" => {
            let value = given.trim_start_matches("string ");
            Shown::bounded(value, 60).to_string()
        }
        _ => Shown::bounded(given, 80).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_model::{
        Request,
        api::{GrantBody, ResizeBody, StdinBody, TokenBody},
    };

    fn refused<T: DeserializeOwned>(body: &str) -> String {
        match parse::<T>(body.as_bytes()) {
            Err(refusal) => refusal.message,
            Ok(_) => "read".to_owned(),
        }
    }

    #[test]
    fn what_does_not_read_is_said_in_words_that_name_the_field() {
        let check = |said: String, expected: &str| assert_eq!(said, expected);
        check(refused::<ResizeBody>(""), "the body is empty; this address takes a JSON object");
        check(refused::<ResizeBody>("[24,80]"), "the body is a list; this address takes a JSON object");
        check(
            refused::<ResizeBody>(r#"{"rows": 24, "co"#),
            "the body ends too early (line 1, column 16): it is not complete JSON",
        );
        check(refused::<ResizeBody>("rows"), "the body is not JSON (line 1, column 1): expected value");
        check(refused::<ResizeBody>(r#"{"rows": 24}"#), "`cols` is missing");
        check(
            refused::<ResizeBody>(r#"{"rows": "many", "cols": 80}"#),
            "`rows` must be a whole number that is not negative, not \"many\"",
        );
        check(
            refused::<ResizeBody>(r#"{"rows": -1, "cols": 80}"#),
            "`rows` must be a whole number that is not negative, not -1",
        );
        check(
            refused::<ResizeBody>(r#"{"rows": 24, "cols": 80, "depth": 1}"#),
            "`depth` is not a field of this request: it takes rows and cols",
        );
        check(refused::<ResizeBody>(r#"{"rows": 24.0, "cols": 80}"#), "read");
        check(
            refused::<ResizeBody>(r#"{"rows": 24.5, "cols": 80}"#),
            "`rows` must be a whole number that is not negative, not 24.5",
        );
        check(refused::<ResizeBody>("17"), "the body must be an object, not 17");
        check(refused::<StdinBody>(r#"{"eof": "yes"}"#), "`eof` must be true or false, not \"yes\"");
        check(
            refused::<TokenBody>(r#"{"name":"a","kind":"robot","scopes":[]}"#),
            "`kind` is person or agent, not `robot`",
        );
        check(refused::<GrantBody>(r#"{"verb":"git push"}"#), "`directory` is missing");
        check(
            refused::<Request>(r#"{"tool":"shell","args":{"commando":"ls"}}"#).split(':').next().unwrap().to_owned(),
            "`commando` is not a field of `args`",
        );
        check(
            refused::<ResizeBody>(r#"{"rows":24,"cols":80} x"#),
            "the body goes on behind its JSON (line 1, column 23)",
        );
    }
}
