//! The tools that are one call of the API each: which call that is, and its answer in the words that a model needs.

use super::{
    offers::{Called, Failed, Outcome},
    tools::{self, Offered},
    waiting::summary,
};
use axum::http::Method;
use countersign_model::{Code, Refusal, Shown, TaskState};
use serde_json::{Map, Value, json};

/// A list page, unless the model names a size.
const PAGE: u64 = 20;

pub(super) fn is_id(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

pub(super) type Simple = (Method, String, Option<Value>);

/// The call of the API that a tool is, where it is just one.
pub(super) fn simple(name: &str, mut args: Map<String, Value>) -> Option<Result<Simple, Failed>> {
    let known = tools::TOOLS.iter().find(|t| t.name == name)?;
    if let Err(failed) = fits(known, &args) {
        return Some(Err(failed));
    }
    let task = match args.remove("task_id") {
        Some(Value::String(task)) if is_id(&task) => Some(task),
        Some(_) => {
            return Some(Err(Refusal::new(Code::BadRequest, "`task_id` is the id that `run` gave").into()));
        }
        None => None,
    };
    let at = |what: &str| format!("/tasks/{}{what}", task.as_deref().unwrap_or_default());
    let renamed = |mut args: Map<String, Value>, names: &[(&str, &str)]| {
        for (from, to) in names {
            if let Some(value) = args.remove(*from) {
                args.insert((*to).to_owned(), value);
            }
        }
        args
    };
    Some(Ok(match name {
        "task_list" => {
            args.entry("limit").or_insert(PAGE.into());
            (Method::GET, format!("/tasks?{}", query(&args)), None)
        }
        "task_status" => (Method::GET, at(""), None),
        "task_output" => {
            let args = renamed(args, &[("offset", "offset_bytes"), ("tail", "tail_lines")]);
            (Method::GET, at(&format!("/output?{}", query(&args))), None)
        }
        "task_search" => (Method::GET, at(&format!("/search?{}", query(&args))), None),
        "task_input" => (Method::POST, at("/stdin"), Some(Value::Object(args))),
        "task_resize" => (Method::POST, at("/resize"), Some(Value::Object(args))),
        "task_signal" => (Method::POST, at("/signal"), Some(Value::Object(args))),
        "task_cancel" => (Method::POST, at("/cancel"), Some(Value::Object(args))),
        // It is made out a moment after the end.
        "receipt_get" => (Method::GET, at("/receipt?wait_ms=5000"), None),
        _ => return None,
    }))
}

/// Arguments that a tool does not have are said to be so, not left out.
fn fits(tool: &Offered, args: &Map<String, Value>) -> Result<(), Failed> {
    let schema: Value = serde_json::from_str(tool.schema).unwrap_or_default();
    let known = |name: &String| schema["properties"].get(name.as_str()).is_some();
    if let Some(name) = args.keys().find(|name| !known(name)) {
        let shown = Shown::bounded(name, 40);
        return Err(Refusal::new(Code::BadRequest, format!("`{}` takes no `{shown}`", tool.name)).into());
    }
    let wanted = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    match wanted.into_iter().find(|name| !args.contains_key(*name)) {
        Some(name) => Err(Refusal::new(Code::BadRequest, format!("`{}` needs `{name}`", tool.name)).into()),
        None => Ok(()),
    }
}

fn query(args: &Map<String, Value>) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in args.iter().filter(|(_, v)| !v.is_null()) {
        query.append_pair(name, &text(value));
    }
    query.finish()
}

/// What the API answered, in the words that a model needs.
pub(super) fn said(name: &str, value: Value) -> Called {
    let short = |value: &Value| serde_json::from_value::<TaskState>(value.clone()).map(|s| summary(&s)).ok();
    let structured = match name {
        "task_status" => short(&value).unwrap_or(value),
        "task_list" => {
            let tasks: Vec<Value> = value["tasks"].as_array().into_iter().flatten().filter_map(short).collect();
            json!({"tasks": tasks, "next": value["next"]})
        }
        "task_input" | "task_resize" | "task_signal" | "task_cancel" => json!({"applied": true, "at": value}),
        "receipt_get" => json!({"envelope": value, "statement": statement(&value)}),
        _ => value,
    };
    Called::Done(Outcome { structured, failed: false, links: Vec::new() })
}

/// What a receipt says, beside the bytes that are signed.
fn statement(envelope: &Value) -> Value {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let payload = envelope["payload"].as_str().and_then(|p| STANDARD.decode(p).ok()).unwrap_or_default();
    serde_json::from_slice(&payload).unwrap_or_default()
}
