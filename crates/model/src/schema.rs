//! JSON Schemas of the types that are written as text.

use crate::{
    ApprovalId, Clean, DecimalCount, Digest, GrantId, HomeId, KeyPress, PermitId, PrincipalId, ReceiptId, SessionId,
    SignalName, TaskId, Timestamp, TokenId,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};
use std::borrow::Cow;

/// A type that is a text in JSON, with the rest of its schema.
macro_rules! texts {
    ($($name:ident: $schema:tt;)*) => {$(
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let mut schema = json_schema!($schema);
                schema.insert("type".to_owned(), "string".into());
                schema
            }
        }
    )*};
}

texts! {
    Timestamp: {"format": "date-time", "description": "A time: RFC 3339, UTC, with microseconds."};
    DecimalCount: {"pattern": "^[0-9]+$", "description": "A number, written as text so that no reader rounds it."};
    Digest: {"pattern": "^[0-9a-fA-F]{64}$", "description": "Thirty-two bytes as hex."};
}

/// Ids: a prefix, and sixteen characters that sort by age.
macro_rules! ids {
    ($($name:ident = $pattern:literal;)*) => {
        texts! { $($name: {"pattern": $pattern};)* }

        #[cfg(test)]
        const ID_PATTERNS: &[(&str, &str)] = &[$(($name::PREFIX, $pattern)),*];
    };
}

ids! {
    TaskId = "^tk_[0-9a-hjkmnp-tv-z]{16}$";
    ApprovalId = "^ap_[0-9a-hjkmnp-tv-z]{16}$";
    PermitId = "^pm_[0-9a-hjkmnp-tv-z]{16}$";
    ReceiptId = "^rc_[0-9a-hjkmnp-tv-z]{16}$";
    SessionId = "^se_[0-9a-hjkmnp-tv-z]{16}$";
    PrincipalId = "^pr_[0-9a-hjkmnp-tv-z]{16}$";
    GrantId = "^gr_[0-9a-hjkmnp-tv-z]{16}$";
    TokenId = "^ct_[0-9a-hjkmnp-tv-z]{16}$";
    HomeId = "^hm_[0-9a-hjkmnp-tv-z]{16}$";
}

impl JsonSchema for KeyPress {
    fn schema_name() -> Cow<'static, str> {
        "Key".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = KeyPress::names().collect();
        // With ctrl, a terminal can send only some characters.
        let pattern = format!(r"^(((ctrl|alt|shift)-)*({}|[@-_a-z ?])|((alt|shift)-)*[\s\S])$", names.join("|"));
        let description = "A key by its name (enter, ctrl-c, f5), or a character.";
        json_schema!({"type": "string", "description": description, "pattern": pattern})
    }
}

impl JsonSchema for SignalName {
    fn schema_name() -> Cow<'static, str> {
        "SignalName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = SignalName::ALL.iter().map(|s| s.name()).collect();
        let pattern = format!("^([Ss][Ii][Gg])?({})$", names.join("|"));
        json_schema!({"type": "string", "description": "A signal, with or without SIG.", "pattern": pattern})
    }
}

/// A clean value has the schema of the value in it.
impl<T: JsonSchema> JsonSchema for Clean<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// Which fields of a [`crate::Request`] go together: arguments with their tool, a size with a terminal.
pub(crate) fn request_forms() -> Value {
    const ARGUMENTS: [&str; 6] = ["command", "argv", "path", "content", "old", "new"];
    let tool = |name: &str, takes: &[&str], more: Value| {
        let mut fields = more.as_object().cloned().unwrap_or_default();
        for other in ARGUMENTS.iter().filter(|argument| !takes.contains(argument)) {
            fields.insert((*other).to_owned(), json!({"type": "null"}));
        }
        // Present, and not null.
        for name in takes {
            fields.insert((*name).to_owned(), json!({"type": ["string", "array"]}));
        }
        let args = json!({"required": takes, "properties": fields});
        json!({"properties": {"tool": {"const": name}, "args": args}})
    };
    let on_a_file = |name: &str, takes: &[&str]| {
        let mut form = tool(name, takes, json!({"stdin": {"const": false}}));
        form["properties"]["execution_mode"] = json!({"const": "pipes"});
        form
    };
    let tools = json!([
        tool("shell", &["command"], json!({})),
        tool("shell", &["argv"], json!({})),
        on_a_file("read_file", &["path"]),
        on_a_file("write_file", &["path", "content"]),
        on_a_file("edit_file", &["path", "old", "new"]),
    ]);
    let size = json!({"rows": {"type": "null"}, "cols": {"type": "null"}});
    let modes = json!([
        {"properties": {"execution_mode": {"const": "pipes"}, "args": {"properties": size}}},
        {"required": ["execution_mode"],
         "properties": {"execution_mode": {"const": "pty"}, "args": {"properties": {"stdin": {"const": false}}}}},
    ]);
    json!([{"anyOf": tools}, {"anyOf": modes}])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_of_an_id_has_its_prefix_and_no_other() {
        for (prefix, pattern) in ID_PATTERNS {
            assert!(pattern.starts_with(&format!("^{prefix}_[")), "{pattern}");
        }
    }
}
