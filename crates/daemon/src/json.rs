//! Strict parsing of JSON into types. A refusal names the field at fault.

use countersign_model::{DisplaySafe, Refusal, RefusalCode, api::query};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, error::Category};

/// Parses JSON into a type; the refusal names the field at fault.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let bad = |message: String| Refusal::new(RefusalCode::BadRequest, message);
    // serde would read a list as an object, by the order of its fields.
    if bytes.iter().find(|b| !b.is_ascii_whitespace()).is_some_and(|b| *b == b'[') {
        return Err(bad("the body is a list; it must be a JSON object".to_owned()));
    }
    match parse_strictly(bytes) {
        Err(JsonMismatch { fraction: true, .. }) => parse_strictly(&without_fractions(bytes)),
        read => read,
    }
    .map_err(|unread| unread.refusal)
}

/// Why JSON does not match a type.
struct JsonMismatch {
    refusal: Refusal,
    /// A number has a fraction where a whole number is expected.
    fraction: bool,
}

fn parse_strictly<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, JsonMismatch> {
    let bad = |message: String| Refusal::new(RefusalCode::BadRequest, message);
    let json = &mut serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut *json).map_err(|e| {
        let words = describe_wrong_kind::<T>(bytes, e.inner());
        let refusal = bad(words.unwrap_or_else(|| describe_error(&e.path().to_string(), e.inner())));
        JsonMismatch { refusal, fraction: e.inner().to_string().starts_with("invalid type: floating point") }
    })?;
    match json.end() {
        Ok(()) => Ok(value),
        Err(e) => {
            let place = format!("line {}, column {}", e.line(), e.column());
            Err(JsonMismatch {
                refusal: bad(format!("the body continues after its JSON value ({place})")),
                fraction: false,
            })
        }
    }
}

/// The message for text that is JSON but of the wrong kind: the parser reports some of that as bad syntax.
fn describe_wrong_kind<T: DeserializeOwned>(bytes: &[u8], error: &serde_json::Error) -> Option<String> {
    let value: Value = serde_json::from_slice(bytes).ok().filter(|_| error.classify() == Category::Syntax)?;
    let e = serde_path_to_error::deserialize::<_, T>(value).err()?;
    Some(describe_error(&e.path().to_string(), e.inner()))
}

/// A body whose whole numbers are written without a zero fraction: in JSON, `24.0` is `24`.
fn without_fractions(bytes: &[u8]) -> Vec<u8> {
    let (mut out, mut at, mut in_text) = (Vec::with_capacity(bytes.len()), 0, false);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' if in_text => {
                out.extend(bytes.get(at..at + 2).unwrap_or(&bytes[at..]));
                at += 2;
                continue;
            }
            b'"' => in_text = !in_text,
            b'.' if !in_text => {
                let zeros = bytes[at + 1..].iter().take_while(|b| **b == b'0').count();
                let next = bytes.get(at + 1 + zeros);
                if zeros > 0 && !next.is_some_and(|b| b.is_ascii_alphanumeric()) {
                    at += 1 + zeros;
                    continue;
                }
            }
            _ => {}
        }
        out.push(*byte);
        at += 1;
    }
    out
}

/// The arguments of a read-only tool, as a query: models also write numbers and booleans as text.
pub(crate) fn parse_query<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, Refusal> {
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let pairs = arguments.into_iter().map(|(name, value)| (name, text(value))).collect();
    query::from_pairs(pairs).map_err(|e| Refusal::new(RefusalCode::BadRequest, e.to_string()))
}

/// The arguments of a tool as a type. A mismatch is refused as in [`parse`].
pub(crate) fn parse_arguments<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, Refusal> {
    parse(Value::Object(arguments).to_string().as_bytes())
}

/// The error in a body, in words for people.
fn describe_error(path: &str, error: &serde_json::Error) -> String {
    let place = format!("line {}, column {}", error.line(), error.column());
    match error.classify() {
        Category::Eof if error.column() == 0 => {
            return "the body is empty; it must be a JSON object".to_owned();
        }
        Category::Eof => return format!("the body is incomplete JSON: it ends at {place}"),
        Category::Syntax | Category::Io => return format!("the body is not JSON ({place}): {}", error_cause(error)),
        Category::Data => {}
    }
    let cause = error_cause(error);
    let field = match path {
        "." | "?" | "" => "the body".to_owned(),
        path => format!("`{}`", DisplaySafe::bounded(path.trim_end_matches(".?"), 80)),
    };
    let quoted = |text: &str| text.split('`').nth(1).map(|name| DisplaySafe::bounded(name, 60).to_string());
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
        let fields = if known.is_empty() {
            "it has no fields".to_owned()
        } else {
            format!("its fields are {}", join_names(&known, "and"))
        };
        let of = path.rsplit_once('.').map_or("this request".to_owned(), |(of, _)| format!("`{of}`"));
        return format!("`{name}` is not a field of {of}: {fields}");
    }
    if let Some(rest) = cause.strip_prefix("unknown variant ") {
        let name = quoted(rest).unwrap_or_default();
        let known: Vec<&str> = rest.split('`').skip(3).step_by(2).collect();
        return format!("{field} must be {}, not `{name}`", join_names(&known, "or"));
    }
    if let Some((found, wanted)) = cause.split_once(", expected ") {
        let found = found.trim_start_matches("invalid type: ").trim_start_matches("invalid value: ");
        return format!("{field} must be {}, not {}", describe_expected(wanted), describe_found(found));
    }
    format!("{field}: {cause}")
}

/// The cause without the position, which the message states separately.
fn error_cause(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(cause, _)| cause.to_owned())
}

fn join_names(names: &[&str], last: &str) -> String {
    match names {
        [] => "nothing".to_owned(),
        [one] => (*one).to_owned(),
        [most @ .., end] => format!("{} {last} {end}", most.join(", ")),
    }
}

fn describe_expected(wanted: &str) -> String {
    let wanted = wanted.trim_start_matches("an option of ");
    match wanted {
        "u8" => format!("a whole number from 0 to {}", u8::MAX),
        "u16" => format!("a whole number from 0 to {}", u16::MAX),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "u64" | "usize" => format!("a whole number from 0 to {}", u64::MAX),
        "i8" | "i16" | "i32" | "i64" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" | "string" | "a borrowed string" => "a string".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        other if other.starts_with("struct ") || other.starts_with("internally tagged enum") => "an object".to_owned(),
        other if other.starts_with("string or map") || other.contains("enum ") => "a string".to_owned(),
        other => other.to_owned(),
    }
}

fn describe_found(found: &str) -> String {
    let kind = found.split_once(' ').map_or(found, |(kind, _)| kind);
    match kind {
        "map" => "an object".to_owned(),
        "sequence" => "a list".to_owned(),
        "null" | "unit" => "null".to_owned(),
        "boolean" | "integer" | "floating" => {
            let value = found.split('`').nth(1).unwrap_or(found);
            DisplaySafe::bounded(value, 60).to_string()
        }
        "string" => {
            let value = found.trim_start_matches("string ");
            DisplaySafe::bounded(value, 60).to_string()
        }
        _ => DisplaySafe::bounded(found, 80).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_model::{
        Request,
        api::{GrantBody, ResizeBody, StdinBody, TokenBody},
    };

    fn refusal_message<T: DeserializeOwned>(body: &str) -> String {
        match parse::<T>(body.as_bytes()) {
            Err(refusal) => refusal.message,
            Ok(_) => "read".to_owned(),
        }
    }

    #[test]
    fn a_mismatch_is_refused_with_the_field_at_fault() {
        let check = |message: String, expected: &str| assert_eq!(message, expected);
        check(refusal_message::<ResizeBody>(""), "the body is empty; it must be a JSON object");
        check(refusal_message::<ResizeBody>("[24,80]"), "the body is a list; it must be a JSON object");
        check(
            refusal_message::<ResizeBody>(r#"{"rows": 24, "co"#),
            "the body is incomplete JSON: it ends at line 1, column 16",
        );
        check(refusal_message::<ResizeBody>("rows"), "the body is not JSON (line 1, column 1): expected value");
        check(refusal_message::<ResizeBody>(r#"{"rows": 24}"#), "`cols` is missing");
        check(
            refusal_message::<ResizeBody>(r#"{"rows": "many", "cols": 80}"#),
            "`rows` must be a whole number from 0 to 65535, not \"many\"",
        );
        check(
            refusal_message::<ResizeBody>(r#"{"rows": -1, "cols": 80}"#),
            "`rows` must be a whole number from 0 to 65535, not -1",
        );
        check(
            refusal_message::<ResizeBody>(r#"{"rows": 24, "cols": 80, "depth": 1}"#),
            "`depth` is not a field of this request: its fields are rows and cols",
        );
        check(refusal_message::<ResizeBody>(r#"{"rows": 24.0, "cols": 80}"#), "read");
        check(
            refusal_message::<ResizeBody>(r#"{"rows": 24.5, "cols": 80.0}"#),
            "`rows` must be a whole number from 0 to 65535, not 24.5",
        );
        check(
            refusal_message::<StdinBody>(r#"{"text": "1.0 \\\" 2.0", "text": "x", "eof": 1.0}"#)
                .split(':')
                .next()
                .unwrap()
                .to_owned(),
            "the body",
        );
        check(
            refusal_message::<ResizeBody>(r#"{"rows": 24.5, "cols": 80}"#),
            "`rows` must be a whole number from 0 to 65535, not 24.5",
        );
        check(refusal_message::<ResizeBody>("17"), "the body must be an object, not 17");
        check(refusal_message::<StdinBody>(r#"{"eof": "yes"}"#), "`eof` must be true or false, not \"yes\"");
        check(
            refusal_message::<TokenBody>(r#"{"name":"a","kind":"robot","scopes":[]}"#),
            "`kind` must be person or agent, not `robot`",
        );
        check(refusal_message::<TokenBody>(r#"{"name":"a","kind":5,"scopes":[]}"#), "`kind` must be a string, not 5");
        check(
            refusal_message::<TokenBody>(r#"{"name":"a","kind":"agent","scopes":[true]}"#),
            "`scopes[0]` must be a string, not true",
        );
        check(refusal_message::<GrantBody>(r#"{"verb":"git push"}"#), "`directory` is missing");
        check(
            refusal_message::<Request>(r#"{"tool":"shell","args":{"commando":"ls"}}"#)
                .split(':')
                .next()
                .unwrap()
                .to_owned(),
            "`commando` is not a field of `args`",
        );
        check(refusal_message::<Request>(r#"{"tool":"shell","args":["ls"]}"#), "`args` must be an object, not a list");
        check(
            refusal_message::<ResizeBody>(r#"{"rows":24,"cols":80} x"#),
            "the body continues after its JSON value (line 1, column 23)",
        );
    }
}
