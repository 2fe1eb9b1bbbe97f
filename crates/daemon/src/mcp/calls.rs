//! The tools that are one operation each, with results in the form that a model needs.

use super::{
    service::{CallOutcome, DaemonTools, ToolResult},
    waiting::task_summary,
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

/// The default size of a list page.
const DEFAULT_PAGE_ITEMS: u32 = 20;
/// How long a receipt is waited for: it is made a moment after the task ends.
const RECEIPT_WAIT_MS: u64 = 5000;

pub(super) fn is_id(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Calls the operation of a tool that is exactly one; none for an unknown tool.
pub(super) async fn call_operation(
    mcp: &DaemonTools,
    caller: &Caller,
    name: &str,
    mut args: Map<String, Value>,
) -> Option<Result<CallOutcome, TaskRefusal>> {
    let spec = tools::find_tool(name).filter(|spec| spec.mcp)?;
    // A null argument counts as missing.
    args.retain(|_, value| !value.is_null());
    if let Err(refusal) = spec.check_arguments(&args) {
        return Some(Err(refusal.into()));
    }
    let task = match args.remove("task_id") {
        Some(Value::String(task)) if is_id(&task) => task,
        None => String::new(),
        Some(_) => {
            return Some(Err(
                Refusal::new(RefusalCode::BadRequest, "`task_id` must be the id that `run` returned").into()
            ));
        }
    };
    let done = dispatch(mcp, caller, name, &task, args).await.transpose()?;
    Some(done.map(|structured| CallOutcome::Done(ToolResult { structured, failed: false, links: Vec::new() })))
}

/// Two arguments of `task_output` have shorter names than the fields of the query.
const OUTPUT_ARGUMENT_FIELDS: [(&str, &str); 2] = [("offset", "offset_bytes"), ("tail", "tail_lines")];

fn output_query(mut args: Map<String, Value>) -> Result<OutputQuery, Refusal> {
    for (name, field) in OUTPUT_ARGUMENT_FIELDS {
        if let Some(value) = args.remove(name) {
            args.insert(field.to_owned(), value);
        }
    }
    parse_query(args).map_err(|mut refusal| {
        for (name, field) in OUTPUT_ARGUMENT_FIELDS {
            refusal.message = refusal.message.replace(&format!("`{field}`"), &format!("`{name}`"));
        }
        refusal
    })
}

async fn dispatch(
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
            query.limit.get_or_insert(DEFAULT_PAGE_ITEMS);
            let page = ops::tasks::list(ops, caller, query).await?;
            json!({"tasks": page.tasks.iter().map(task_summary).collect::<Vec<_>>(), "next": page.next})
        }
        "task_status" => {
            caller.require_scope(countersign_model::CredentialScope::Observe)?;
            let task = ops.records.find_task(caller, task)?;
            ops.records.load_task(task).await?;
            task_summary(&ops.records.state(task)?)
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
            let wait = WaitQuery { wait_ms: Some(RECEIPT_WAIT_MS) };
            let envelope = ops::receipts::envelope(ops, caller, task, wait).await?;
            // The contents of the receipt, beside the signed bytes.
            let payload = STANDARD.decode(&envelope.payload).unwrap_or_default();
            let statement: Value = serde_json::from_slice(&payload).unwrap_or_default();
            json!({"envelope": envelope, "statement": statement})
        }
        _ => return Ok(None),
    }))
}
