//! The tools that are one operation each: which one that is, and its answer in the words that a model needs.

use super::{
    service::{CallOutcome, DaemonTools, ToolResult},
    waiting::summary,
};
use crate::{
    caller::Caller,
    json::{parse_arguments, parse_query},
    ops,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_model::{
    Refusal, RefusalCode, TaskRefusal,
    api::{
        AppliedRecord, CancelBody, OutputQuery, ResizeBody, SearchQuery, SignalBody, StdinBody, TaskQuery, WaitQuery,
    },
    tools,
};
use serde_json::{Map, Value, json};

/// A list page, unless the model names a size.
const PAGE: u32 = 20;
/// How long a receipt is waited for: it is made out a moment after the end.
const RECEIPT_WITHIN_MS: u64 = 5000;

pub(super) fn is_id(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Calls the operation that a tool is, where it is just one; none for a tool that is not there.
pub(super) async fn simple(
    mcp: &DaemonTools,
    caller: &Caller,
    name: &str,
    mut args: Map<String, Value>,
) -> Option<Result<CallOutcome, TaskRefusal>> {
    let spec = tools::find_tool(name).filter(|spec| spec.mcp)?;
    // What a model leaves open is left out.
    args.retain(|_, value| !value.is_null());
    if let Err(refusal) = spec.check_arguments(&args) {
        return Some(Err(refusal.into()));
    }
    let task = match args.remove("task_id") {
        Some(Value::String(task)) if is_id(&task) => task,
        None => String::new(),
        Some(_) => {
            return Some(Err(Refusal::new(RefusalCode::BadRequest, "`task_id` is the id that `run` gave").into()));
        }
    };
    let done = call(mcp, caller, name, &task, args).await.transpose()?;
    Some(done.map(|structured| CallOutcome::Done(ToolResult { structured, failed: false, links: Vec::new() })))
}

/// `task_output` has shorter names for two of its arguments than the query has.
const OUTPUT_NAMES: [(&str, &str); 2] = [("offset", "offset_bytes"), ("tail", "tail_lines")];

fn output_query(mut args: Map<String, Value>) -> Result<OutputQuery, Refusal> {
    for (name, field) in OUTPUT_NAMES {
        if let Some(value) = args.remove(name) {
            args.insert(field.to_owned(), value);
        }
    }
    parse_query(args).map_err(|mut refusal| {
        for (name, field) in OUTPUT_NAMES {
            refusal.message = refusal.message.replace(&format!("`{field}`"), &format!("`{name}`"));
        }
        refusal
    })
}

async fn call(
    mcp: &DaemonTools,
    caller: &Caller,
    name: &str,
    task: &str,
    args: Map<String, Value>,
) -> Result<Option<Value>, TaskRefusal> {
    let ops = &mcp.ops;
    let applied = |at: AppliedRecord| json!({"applied": true, "at": at});
    Ok(Some(match name {
        "task_list" => {
            let mut query: TaskQuery = parse_query(args)?;
            query.limit.get_or_insert(PAGE);
            let page = ops::tasks::list(ops, caller, query).await?;
            json!({"tasks": page.tasks.iter().map(summary).collect::<Vec<_>>(), "next": page.next})
        }
        "task_status" => {
            caller.may(countersign_model::CredentialScope::Observe)?;
            let task = ops.records.find(caller, task)?;
            ops.records.warm(task).await?;
            summary(&ops.records.state(task)?)
        }
        "task_output" => {
            json!(ops::output::read(ops, caller, task, output_query(args)?).await?)
        }
        "task_search" => json!(ops::search::search(ops, caller, task, parse_query::<SearchQuery>(args)?).await?),
        "task_input" => {
            applied(ops::control::stdin(ops, caller, task, parse_arguments::<StdinBody>(args)?, None).await?)
        }
        "task_resize" => {
            applied(ops::control::resize(ops, caller, task, parse_arguments::<ResizeBody>(args)?, None).await?)
        }
        "task_signal" => {
            applied(ops::control::signal(ops, caller, task, parse_arguments::<SignalBody>(args)?, None).await?)
        }
        "task_cancel" => applied(ops::control::cancel(ops, caller, task, parse_arguments::<CancelBody>(args)?).await?),
        "receipt_get" => {
            let wait = WaitQuery { wait_ms: Some(RECEIPT_WITHIN_MS) };
            let envelope = ops::receipts::of_task(ops, caller, task, wait).await?;
            // What the receipt says, beside the bytes that are signed.
            let payload = STANDARD.decode(&envelope.payload).unwrap_or_default();
            let statement: Value = serde_json::from_slice(&payload).unwrap_or_default();
            json!({"envelope": envelope, "statement": statement})
        }
        _ => return Ok(None),
    }))
}
