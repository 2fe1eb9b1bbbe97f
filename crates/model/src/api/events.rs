//! Events of the streams: the records of a task with their output, decisions of the ledger, and both in other
//! vocabularies.

use crate::{Decision, FORMAT, Frame, Record, RecordContent, RenderedOutput, TaskId, Timestamp, view::View};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Map, Value};

/// Which part of a task's stream `GET /tasks/{id}/events` sends, and in which form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct EventQuery {
    /// Starts with the record after this one. The header `Last-Event-ID` takes precedence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub view: Option<View>,
    /// Plays a recording back at this speed: 2 is twice as fast, 0.5 half as fast.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub speed: Option<f64>,
}

/// The point from which `GET /events` and `GET /approvals/events` follow the ledger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct LedgerQuery {
    /// Starts with the decision after this one. The header `Last-Event-ID` takes precedence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<i64>,
}

/// `event: gap`: the records `from` to `to` were removed, or cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GapEvent {
    pub from: u64,
    pub to: u64,
}

/// One decision of the ledger, and the task that it concerns; null if it concerns no task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LedgerEvent {
    pub task: Option<TaskId>,
    pub decision: StreamRecord,
}

/// One record of a task's stream, with the readable part of its output bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamRecord {
    pub record: Record,
    /// Only with `stream.output`.
    pub output: Option<RenderedOutput>,
    /// The fields of a record whose kind this version does not know.
    unknown: Map<String, Value>,
}

impl StreamRecord {
    #[must_use]
    pub fn new(record: Record, output: Option<RenderedOutput>) -> Self {
        let unknown = match &record.what {
            RecordContent::Unknown(kind) => Map::from_iter([("kind".to_owned(), kind.as_str().into())]),
            RecordContent::Decision(_) | RecordContent::Frame(_) => Map::new(),
        };
        Self { record, output, unknown }
    }

    fn from_fields<E: serde::de::Error>(mut fields: Map<String, Value>) -> Result<Self, E> {
        let wrong = |e: serde_json::Error| E::custom(e);
        let output = match fields.get("kind").and_then(Value::as_str) {
            Some("stream.output") if fields.contains_key("text") => {
                let mut output = Map::new();
                for name in ["text", "encoding", "omitted", "omitted_at", "unreadable"] {
                    output.extend(fields.remove_entry(name));
                }
                Some(RenderedOutput::deserialize(Value::Object(output)).map_err(wrong)?)
            }
            _ => None,
        };
        let (record, fields) = Record::from_fields(fields).map_err(E::custom)?;
        let unknown = if matches!(record.what, RecordContent::Unknown(_)) { fields } else { Map::new() };
        Ok(Self { record, output, unknown })
    }
}

impl<'de> Deserialize<'de> for StreamRecord {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::from_fields(Map::deserialize(d)?)
    }
}

impl Serialize for StreamRecord {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct LineFields<'a> {
            v: u32,
            seq: u64,
            at: Timestamp,
            #[serde(skip_serializing_if = "Option::is_none")]
            t_us: Option<u64>,
            #[serde(flatten)]
            what: ContentRef<'a>,
            #[serde(flatten)]
            output: Option<&'a RenderedOutput>,
        }
        #[derive(Serialize)]
        #[serde(untagged)]
        enum ContentRef<'a> {
            Decision(&'a Decision),
            Frame(&'a Frame),
            Unknown(&'a Map<String, Value>),
        }
        let Record { seq, at, t_us, what } = &self.record;
        let what = match what {
            RecordContent::Decision(decision) => ContentRef::Decision(decision),
            RecordContent::Frame(frame) => ContentRef::Frame(frame),
            RecordContent::Unknown(_) => ContentRef::Unknown(&self.unknown),
        };
        LineFields { v: FORMAT, seq: *seq, at: *at, t_us: *t_us, what, output: self.output.as_ref() }.serialize(s)
    }
}

const TERMINAL_PREFIX: &str = "terminal.";
const GRANTED: &str = "permission.granted";
const GRANTED_ONCE: &str = "permission.granted_once";

/// A record in the `terminal` vocabulary: its kind begins with `terminal.`, and a permission for a single run has the
/// kind `terminal.permission.granted_once`.
#[derive(Debug, Clone, PartialEq)]
pub struct TerminalRecord(pub StreamRecord);

impl Serialize for TerminalRecord {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut value = serde_json::to_value(&self.0).map_err(serde::ser::Error::custom)?;
        let kind = value["kind"].as_str().unwrap_or_default();
        let once = kind == GRANTED && value["scope"] == "once";
        value["kind"] = format!("{TERMINAL_PREFIX}{}", if once { GRANTED_ONCE } else { kind }).into();
        value.serialize(s)
    }
}

impl<'de> Deserialize<'de> for TerminalRecord {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let mut fields = Map::deserialize(d)?;
        let kind = fields.get("kind").and_then(Value::as_str).and_then(|kind| kind.strip_prefix(TERMINAL_PREFIX));
        let kind = kind.ok_or_else(|| D::Error::custom("`kind` does not begin with `terminal.`"))?;
        let kind = if kind == GRANTED_ONCE { GRANTED } else { kind };
        let kind = Value::from(kind);
        fields.insert("kind".to_owned(), kind);
        StreamRecord::from_fields(fields).map(Self)
    }
}

#[cfg(feature = "schema")]
mod schema {
    use super::{Decision, Frame, RenderedOutput, StreamRecord, TerminalRecord, Timestamp};
    use schemars::{JsonSchema, Schema, SchemaGenerator};
    use std::borrow::Cow;

    /// A [`StreamRecord`] as written on the wire.
    #[derive(JsonSchema)]
    #[allow(dead_code)]
    struct Line {
        v: u32,
        seq: u64,
        at: Timestamp,
        /// Microseconds since the task began; only in frames, which the shim writes.
        #[serde(default)]
        t_us: Option<u64>,
        #[serde(flatten)]
        what: Content,
        #[serde(flatten)]
        output: Option<RenderedOutput>,
    }

    #[derive(JsonSchema)]
    #[serde(untagged)]
    #[allow(dead_code)]
    enum Content {
        Decision(Decision),
        Frame(Frame),
    }

    /// A [`TerminalRecord`] as written on the wire.
    #[derive(JsonSchema)]
    #[allow(dead_code)]
    struct TerminalLine {
        v: u32,
        seq: u64,
        at: Timestamp,
        #[serde(default)]
        t_us: Option<u64>,
        /// `terminal.` followed by the kind of the record. The other fields of the record follow.
        kind: String,
    }

    impl JsonSchema for StreamRecord {
        fn schema_name() -> Cow<'static, str> {
            "StreamRecord".into()
        }

        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            Line::json_schema(generator)
        }
    }

    impl JsonSchema for TerminalRecord {
        fn schema_name() -> Cow<'static, str> {
            "TerminalRecord".into()
        }

        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            TerminalLine::json_schema(generator)
        }
    }
}
