//! The tools that wait for a task: each starts an operation, then waits.
//!
//! Cancelling a call or breaking its connection ends the wait. It ends the task only if the call asked for that.

use super::{
    calls::{call_operation, is_id},
    service::{
        CallOutcome, ClientChannel, DaemonTools, Elicitation, ElicitationSupport, McpService, ResourceBytes,
        ResourceLink, RetryAnswer, ToolCall, ToolResult, refusal_outcome,
    },
};
use crate::{caller::Caller, json::parse_arguments, ops};
use countersign_model::{
    Approval, CardView, Choice, Command, Confinement, CredentialScope, Digest, DisplaySafe, Encoding, KilledWhy,
    Limits, Mode, Network, Outcome as Ended, Refusal, RefusalCode, Request, Ruling, Status, StreamName, TaskId,
    TaskRefusal, TaskState, Text, Tool, Via, WaitsFor,
    api::{DirectoryBody, OpenSessionBody, OutputQuery, SessionMove, WaitQuery},
    tools::{self, ToolSpec},
};
use countersign_store::{InBandAnswers, clock};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{pin::Pin, sync::Arc, time::Duration};

/// How long a call waits by default.
const DEFAULT_WAIT_S: u64 = 50;
const MAX_WAIT_S: u64 = 3600;
/// How often progress is reported: at most twice a second.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
/// The most that one read of a resource returns.
const MAX_READ_BYTES: u64 = 64 * 1024;
/// A longer command is not shown in an elicitation.
const MAX_QUESTION_BYTES: usize = 600;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunArguments {
    command: String,
    cwd: Option<String>,
    timeout_s: Option<u64>,
    #[serde(default)]
    background: bool,
    #[serde(default)]
    pty: bool,
    #[serde(default)]
    stdin: bool,
    title: Option<String>,
    rationale: Option<String>,
    wait_s: Option<u64>,
    confinement: Option<Confinement>,
    network: Option<Network>,
    #[serde(default)]
    on_disconnect: OnDisconnect,
}

#[derive(Deserialize, Default, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum OnDisconnect {
    #[default]
    Detach,
    Kill,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskWaitArguments {
    task_id: String,
    wait_s: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetDirectoryArguments {
    path: String,
    wait_s: Option<u64>,
}

impl McpService for DaemonTools {
    fn tools(&self) -> impl Iterator<Item = &'static ToolSpec> + Send {
        tools::offered_by_mcp()
    }

    async fn call(&self, call: ToolCall, client: &impl ClientChannel) -> CallOutcome {
        let caller = match self.resolve_caller(call.caller.clone()) {
            Ok(caller) => caller,
            Err(refusal) => return refusal_outcome(refusal.into()),
        };
        let done = match call.name.as_str() {
            "run" => self.run(&caller, call, client).await,
            "task_wait" => self.wait(&caller, call, client).await,
            "set_working_directory" => self.move_session(&caller, call, client).await,
            name => match call_operation(self, &caller, name, call.args).await {
                Some(done) => done,
                None => return CallOutcome::Unknown,
            },
        };
        done.unwrap_or_else(refusal_outcome)
    }

    async fn read(&self, uri: &str, request_caller: Option<Caller>) -> Result<ResourceBytes, Refusal> {
        let unknown = || Refusal::new(RefusalCode::NotFound, "this resource does not exist");
        let caller = self.resolve_caller(request_caller)?;
        let rest = uri.strip_prefix("countersign://tasks/").ok_or_else(unknown)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (task, what) = path.split_once('/').ok_or_else(unknown)?;
        if !is_id(task) {
            return Err(unknown());
        }
        if what == "receipt" {
            let receipt = ops::receipts::envelope(&self.ops, &caller, task, WaitQuery::default()).await;
            let receipt = receipt.map_err(|refused| refused.refusal)?;
            return Ok(ResourceBytes { text: Some(receipt.json()), blob: None, position: json!({}) });
        }
        let number = |name: &str| {
            let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            value.map(|v| v.parse::<u64>().map_err(|_| unknown())).transpose()
        };
        let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?.unwrap_or(MAX_READ_BYTES));
        let stream: StreamName = serde_json::from_value(json!(what)).map_err(|_| unknown())?;
        let max = length.clamp(1, MAX_READ_BYTES);
        let query = OutputQuery {
            stream: Some(stream),
            offset_bytes: Some(offset),
            max_bytes: Some(max),
            ..OutputQuery::default()
        };
        let page = ops::output::read(&self.ops, &caller, task, query).await.map_err(|refused| refused.refusal)?;
        let position = json!({"offset": page.offset_bytes, "total": page.total_bytes, "next": page.next_offset});
        let (text, blob) = match page.encoding {
            Encoding::Base64 => (None, Some(page.content)),
            Encoding::Utf8 => (Some(page.content), None),
        };
        Ok(ResourceBytes { text, blob, position })
    }
}

type CallResult = Result<CallOutcome, TaskRefusal>;

impl DaemonTools {
    async fn run(&self, caller: &Caller, call: ToolCall, client: &impl ClientChannel) -> CallResult {
        let args: RunArguments = parse_arguments(call.args.clone())?;
        let on_disconnect = args.on_disconnect;
        let wait = wait_duration(args.wait_s);
        let binding = RetryBinding::for_call(caller, &call.name, &call.args);
        if let Some(retry) = call.retry {
            let task = self.check_retry(caller, &binding, retry, client.keeps_state()).await?;
            return self.wait_for_task(caller, task, wait, client, on_disconnect, None).await;
        }
        let session = self.session(caller);
        let command = Command {
            command: Some(args.command),
            cwd: args.cwd,
            stdin: args.stdin && !args.pty,
            inherit: self.connections.environment(session),
            ..Command::default()
        };
        let request = Request {
            title: args.title,
            rationale: args.rationale,
            labels: call.labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            background: args.background,
            mode: if args.pty { Mode::Pty } else { Mode::Pipes },
            limits: Limits { wall_ms: args.timeout_s.map(|s| s.saturating_mul(1000)), ..Limits::default() },
            confinement: args.confinement,
            network: args.network,
            session_id: session,
            ..Request::new(Tool::Shell, command)
        };
        let task = ops::intake::ask(&self.ops, caller, request, None).await?.answer.task.task_id;
        self.remember_task(task);
        if args.background {
            return self.task_result(caller, task);
        }
        self.wait_for_task(caller, task, wait, client, on_disconnect, Some(&binding)).await
    }

    async fn wait(&self, caller: &Caller, call: ToolCall, client: &impl ClientChannel) -> CallResult {
        let args: TaskWaitArguments = parse_arguments(call.args.clone())?;
        caller.require_scope(CredentialScope::Observe)?;
        let task = self.ops.records.find_task(caller, &args.task_id)?;
        let binding = RetryBinding::for_call(caller, &call.name, &call.args);
        // Only the connection that requested the task is asked about it, not everyone who may wait for it.
        let asks = match call.retry {
            Some(retry) => {
                self.check_retry(caller, &binding, retry, client.keeps_state()).await?;
                None
            }
            None => self.may_ask_about(task).then_some(&binding),
        };
        self.wait_for_task(caller, task, wait_duration(args.wait_s), client, OnDisconnect::Detach, asks).await
    }

    async fn move_session(&self, caller: &Caller, call: ToolCall, client: &impl ClientChannel) -> CallResult {
        let args: SetDirectoryArguments = parse_arguments(call.args)?;
        let session = match self.session(caller) {
            Some(session) => session,
            None if !client.keeps_state() => {
                let refusal = Refusal::new(
                    RefusalCode::WrongMode,
                    "this connection has no session, so it has no working directory",
                );
                return Err(refusal.hint("pass `cwd` to each `run` call").into());
            }
            None => {
                let opening = OpenSessionBody { title: Some("MCP".to_owned()), ..OpenSessionBody::default() };
                let (session, _) = ops::sessions::open(&self.ops, caller, opening).await?;
                self.remember_session(session.id);
                session.id
            }
        };
        let body = DirectoryBody { directory: args.path };
        match ops::sessions::set_directory(&self.ops, caller, &session.to_string(), body).await? {
            SessionMove::There(session) => {
                Ok(done_outcome(json!({"directory": session.directory, "roots": session.roots})))
            }
            // Only a person may extend what a session reads; its client is not asked.
            SessionMove::Asked(task) => {
                self.wait_for_task(caller, task.task_id, wait_duration(args.wait_s), client, OnDisconnect::Detach, None)
                    .await
            }
        }
    }

    /// A client returns with its person's answer.
    async fn check_retry(
        &self,
        caller: &Caller,
        binding: &RetryBinding,
        retry: RetryAnswer,
        lasts: bool,
    ) -> Result<TaskId, TaskRefusal> {
        let forged = || Refusal::new(RefusalCode::BadRequest, "`requestState` is invalid or belongs to another call");
        let (task, sealed) = retry.state.split_once('.').ok_or_else(forged)?;
        let task = self.ops.records.find_task(caller, task)?;
        // On a lasting connection, the elicitation must have been sent on it.
        if binding.digest_for(self, task).to_string() != sealed || lasts && !self.may_ask_about(task) {
            return Err(forged().into());
        }
        if let Some(choice) = retry.choice.filter(|_| self.may_answer_for_person(caller)) {
            self.answer_in_band(task, choice).await;
        }
        Ok(task)
    }

    /// Applies the answer of the person at the client. It has no effect if the approval is answered already or not
    /// allowed here.
    async fn answer_in_band(&self, task: TaskId, choice: Choice) {
        let approval = self.ops.records.state(task).ok().and_then(|state| state.approval_id());
        if let Some(approval) = approval {
            let _ = ops::answers::answer_in_band(&self.ops, task, approval, choice, Via::Mcp).await;
        }
    }

    /// Waits for a task on behalf of a client, reports progress, and asks the person at the client if there is an
    /// approval.
    async fn wait_for_task(
        &self,
        caller: &Caller,
        task: TaskId,
        wait: Duration,
        client: &impl ClientChannel,
        on_disconnect: OnDisconnect,
        asks: Option<&RetryBinding>,
    ) -> CallResult {
        let begun = clock::steady();
        let mut guard = CancelGuard { ops: Arc::clone(&self.ops), task, armed: on_disconnect == OnDisconnect::Kill };
        let mut asking: Option<Pin<Box<dyn Future<Output = Option<Choice>> + Send + '_>>> = None;
        let mut asked = false;
        loop {
            let state = self.ops.records.state(task)?;
            let left = wait.saturating_sub(begun.elapsed());
            if state.settled() || left.is_zero() {
                guard.armed = false;
                return self.task_result(caller, task);
            }
            let question = asks.filter(|_| !asked && self.may_answer_for_person(caller)).zip(self.question(&state));
            if let Some((binding, question)) = question {
                asked = true;
                match client.elicitation_support() {
                    ElicitationSupport::No => {}
                    ElicitationSupport::Now => asking = Some(Box::pin(async move { client.ask(&question).await })),
                    ElicitationSupport::Again => {
                        guard.armed = false;
                        return Ok(CallOutcome::Ask {
                            question,
                            state: format!("{task}.{}", binding.digest_for(self, task)),
                        });
                    }
                }
            }
            let answer = async {
                match asking.as_mut() {
                    Some(asking) => asking.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                waited = self.ops.records.wait_for(task, PROGRESS_INTERVAL.min(left)) => {
                    waited?;
                }
                choice = answer => {
                    asking = None;
                    if let Some(choice) = choice {
                        self.answer_in_band(task, choice).await;
                    }
                    continue;
                }
                () = client.wait_until_gone() => {
                    // The guard decides what happens to the task.
                    return self.task_result(caller, task);
                }
            }
            if client.wants_progress() {
                client.progress(begun.elapsed().as_secs_f64(), self.last_line(caller, task, &state).await).await;
            }
        }
    }

    /// The elicitation for a pending approval: allow once or deny, and no grave risk.
    fn question(&self, state: &TaskState) -> Option<Elicitation> {
        let waits = state.status == Status::Queued && state.waits_for() == Some(WaitsFor::Approval);
        let grave = state.request.risks.iter().any(|r| r.is_grave());
        if !waits || grave || self.ops.config.approvals.in_band == InBandAnswers::Off {
            return None;
        }
        // The whole command must fit; otherwise another surface shows it.
        let message = CardView::from_approval(&Approval::from_task(state)?).in_one_line(MAX_QUESTION_BYTES)?;
        Some(Elicitation { message, choices: vec![Choice::Once, Choice::Deny] })
    }

    async fn last_line(&self, caller: &Caller, task: TaskId, state: &TaskState) -> String {
        if state.status == Status::Queued {
            return match state.approval_id() {
                Some(approval) => format!("waiting for a person to answer {approval}"),
                None => "waiting for a free slot".to_owned(),
            };
        }
        let stream = StreamName::for_mode(state.request.mode)[0];
        let query = OutputQuery { stream: Some(stream), tail_lines: Some(1), ..OutputQuery::default() };
        let last = ops::output::read(&self.ops, caller, &task.to_string(), query).await.ok();
        let last = last.map(|page| DisplaySafe::bounded(page.content.trim(), 200).to_string());
        last.filter(|line| !line.is_empty()).unwrap_or_else(|| "running".to_owned())
    }

    /// The current state of a task, for a model.
    fn task_result(&self, caller: &Caller, task: TaskId) -> CallResult {
        self.ops.records.find_task(caller, &task.to_string())?;
        let state = self.ops.records.state(task)?;
        let mut structured = task_summary(&state);
        let mut links = Vec::new();
        if state.first_seq().is_some() && state.expired_at.is_none() {
            let output = json!(ops::output::bounded_output(&self.ops, &state)?);
            for (name, stream) in &state.io.streams {
                if stream.bytes > countersign_model::MAX_COMPLETE_BYTES as u64 {
                    let uri = format!("countersign://tasks/{task}/{name}");
                    links.push(ResourceLink { uri, name: format!("{name} of {task}"), bytes: stream.bytes });
                }
            }
            structured["output"] = output;
        }
        if !links.is_empty() {
            let hint = "the output is shown in part; read the rest with task_output (with an offset) or task_search";
            structured["hint"] = hint.into();
        }
        match (&state.ruling, state.outcome()) {
            (Some(Ruling::Denied { reason, hint, words, .. }), _) => {
                (structured["reason"], structured["hint"]) = (json!(reason), json!(hint));
                structured["words"] = json!(words);
                if reason.as_str() == RefusalCode::DeniedByPerson.as_str() {
                    structured["message"] = "Command denied by user".into();
                }
            }
            (_, None) if state.waits_for() == Some(WaitsFor::Approval) => {
                structured["message"] =
                    "approval pending; call task_wait: the command runs when a person approves it".into();
            }
            (_, None) if state.status == Status::Running => {
                structured["message"] =
                    "still running; use task_wait, task_output or task_cancel with its task_id".into();
            }
            _ => {}
        }
        let failed = matches!(
            state.outcome(),
            Some(Ended::Denied { .. } | Ended::Failed { .. } | Ended::Lost { .. } | Ended::Withdrawn { .. })
        );
        Ok(CallOutcome::Done(ToolResult { structured, failed, links }))
    }
}

/// A task in the form that a model needs.
pub(super) fn task_summary(state: &TaskState) -> Value {
    let mut summary = json!({
        "task_id": state.task_id, "status": state.status, "command": state.request.display, "cwd": state.request.cwd,
        "session_id": state.request.session_id,
    });
    let mut add = |name: &str, value: Value| {
        if !value.is_null() {
            summary[name] = value;
        }
    };
    add("outcome", state.outcome().map(ToString::to_string).into());
    add("exit_code", state.outcome().map(Ended::exit_code).into());
    add("approval_id", state.approval_id().filter(|_| !state.settled()).map(|a| a.to_string()).into());
    add("waits_for", json!(state.waits_for()));
    add("position", state.position().into());
    add("duration_ms", state.usage().map(|u| u.duration_us / 1000).into());
    add("confinement", json!(state.confinement()));
    add("note", state.aftermath.note.as_ref().map(|n| n.as_str()).into());
    add("title", state.request.title.as_ref().map(|t| t.as_str()).into());
    summary
}

/// Binds a client's second call to its first: the same caller, tool and arguments, and the task of the first call.
struct RetryBinding {
    bound: Vec<u8>,
}

impl RetryBinding {
    fn for_call(caller: &Caller, tool: &str, args: &Map<String, Value>) -> Self {
        Self { bound: json!([caller.principal, caller.via, tool, args]).to_string().into_bytes() }
    }

    fn digest_for(&self, tools: &DaemonTools, task: TaskId) -> Digest {
        tools.ops.key.digest("mcp-request-state", &[task.to_string().as_bytes(), &self.bound])
    }
}

/// Ends a task when its waiting client disconnects, unless disarmed.
struct CancelGuard {
    ops: Arc<ops::Ops>,
    task: TaskId,
    armed: bool,
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        if self.armed {
            let (at, task) = (Arc::clone(&self.ops), self.task);
            tokio::spawn(async move {
                let (by, reason) =
                    (Text::from_static("agent"), Some(Text::from_static("the client that waited for it disconnected")));
                let _ = ops::control::stop_task(&at, task, by, reason, KilledWhy::Cancel).await;
            });
        }
    }
}

fn wait_duration(asked: Option<u64>) -> Duration {
    Duration::from_secs(asked.unwrap_or(DEFAULT_WAIT_S).min(MAX_WAIT_S))
}

fn done_outcome(structured: Value) -> CallOutcome {
    CallOutcome::Done(ToolResult { structured, failed: false, links: Vec::new() })
}
