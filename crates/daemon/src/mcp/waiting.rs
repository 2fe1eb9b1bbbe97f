//! The tools, done: each is an operation, and waiting is the rest.
//!
//! A call that is cancelled or whose connection breaks ends the wait. It ends the task only where the call said so.

use super::{
    calls::{is_id, simple},
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

/// How long a call waits when it does not say.
const WAIT_S: u64 = 50;
const LONGEST_WAIT_S: u64 = 3600;
/// How often a client hears where its task stands: no more than twice a second.
const PROGRESS: Duration = Duration::from_millis(500);
/// The most that one read of a resource gives.
const LARGEST_READ: u64 = 64 * 1024;
/// A longer command is not put to a client.
const LONGEST_SHOWN: usize = 600;

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
struct TaskWait {
    task_id: String,
    wait_s: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResultPosition {
    path: String,
    wait_s: Option<u64>,
}

impl McpService for DaemonTools {
    fn tools(&self) -> impl Iterator<Item = &'static ToolSpec> + Send {
        tools::offered_by_mcp()
    }

    async fn call(&self, call: ToolCall, talk: &impl ClientChannel) -> CallOutcome {
        let who = match self.who(call.who.clone()) {
            Ok(who) => who,
            Err(refusal) => return refusal_outcome(refusal.into()),
        };
        let done = match call.name.as_str() {
            "run" => self.run(&who, call, talk).await,
            "task_wait" => self.wait(&who, call, talk).await,
            "set_working_directory" => self.move_session(&who, call, talk).await,
            name => match simple(self, &who, name, call.args).await {
                Some(done) => done,
                None => return CallOutcome::Unknown,
            },
        };
        done.unwrap_or_else(refusal_outcome)
    }

    async fn read(&self, uri: &str, came: Option<Caller>) -> Result<ResourceBytes, Refusal> {
        let unknown = || Refusal::new(RefusalCode::NotFound, "there is nothing at this address");
        let who = self.who(came)?;
        let rest = uri.strip_prefix("countersign://tasks/").ok_or_else(unknown)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (task, what) = path.split_once('/').ok_or_else(unknown)?;
        if !is_id(task) {
            return Err(unknown());
        }
        if what == "receipt" {
            let receipt = ops::receipts::of_task(&self.ops, &who, task, WaitQuery::default()).await;
            let receipt = receipt.map_err(|refused| refused.refusal)?;
            return Ok(ResourceBytes { text: Some(receipt.json()), blob: None, place: json!({}) });
        }
        let number = |name: &str| {
            let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            value.map(|v| v.parse::<u64>().map_err(|_| unknown())).transpose()
        };
        let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?.unwrap_or(LARGEST_READ));
        let stream: StreamName = serde_json::from_value(json!(what)).map_err(|_| unknown())?;
        let max = length.clamp(1, LARGEST_READ);
        let query = OutputQuery {
            stream: Some(stream),
            offset_bytes: Some(offset),
            max_bytes: Some(max),
            ..OutputQuery::default()
        };
        let page = ops::output::read(&self.ops, &who, task, query).await.map_err(|refused| refused.refusal)?;
        let place = json!({"offset": page.offset_bytes, "total": page.total_bytes, "next": page.next_offset});
        let (text, blob) = match page.encoding {
            Encoding::Base64 => (None, Some(page.content)),
            Encoding::Utf8 => (Some(page.content), None),
        };
        Ok(ResourceBytes { text, blob, place })
    }
}

type CallResult = Result<CallOutcome, TaskRefusal>;

impl DaemonTools {
    async fn run(&self, who: &Caller, call: ToolCall, talk: &impl ClientChannel) -> CallResult {
        let args: RunArguments = parse_arguments(call.args.clone())?;
        let ends = args.on_disconnect;
        let wait = waits(args.wait_s);
        let seal = RetryBinding::of(who, &call.name, &call.args);
        if let Some(returned) = call.returned {
            let task = self.came_again(who, &seal, returned, talk.lasts()).await?;
            return self.attend(who, task, wait, talk, ends, None).await;
        }
        let session = self.session(who);
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
        let task = ops::intake::ask(&self.ops, who, request, None).await?.answer.task.task_id;
        self.asks_for(task);
        if args.background {
            return self.told(who, task);
        }
        self.attend(who, task, wait, talk, ends, Some(&seal)).await
    }

    async fn wait(&self, who: &Caller, call: ToolCall, talk: &impl ClientChannel) -> CallResult {
        let args: TaskWait = parse_arguments(call.args.clone())?;
        who.may(CredentialScope::Observe)?;
        let task = self.ops.records.find(who, &args.task_id)?;
        let seal = RetryBinding::of(who, &call.name, &call.args);
        // Only who asked for it is asked about it: everyone else who may wait for it is not.
        let asks = match call.returned {
            Some(returned) => {
                self.came_again(who, &seal, returned, talk.lasts()).await?;
                None
            }
            None => self.may_be_asked(task).then_some(&seal),
        };
        self.attend(who, task, waits(args.wait_s), talk, OnDisconnect::Detach, asks).await
    }

    async fn move_session(&self, who: &Caller, call: ToolCall, talk: &impl ClientChannel) -> CallResult {
        let args: ResultPosition = parse_arguments(call.args)?;
        let session = match self.session(who) {
            Some(session) => session,
            None if !talk.lasts() => {
                let refusal = Refusal::new(RefusalCode::WrongMode, "there is no session here that could move");
                return Err(refusal.hint("name `cwd` with each `run`").into());
            }
            None => {
                let opening = OpenSessionBody { title: Some("MCP".to_owned()), ..OpenSessionBody::default() };
                let (session, _) = ops::sessions::open(&self.ops, who, opening).await?;
                self.opened(session.id);
                session.id
            }
        };
        let body = DirectoryBody { directory: args.path };
        match ops::sessions::set_directory(&self.ops, who, &session.to_string(), body).await? {
            SessionMove::There(session) => Ok(done(json!({"directory": session.directory, "roots": session.roots}))),
            // What a session may read is for a person to say, not for its client.
            SessionMove::Asked(task) => {
                self.attend(who, task.task_id, waits(args.wait_s), talk, OnDisconnect::Detach, None).await
            }
        }
    }

    /// A client that was asked to come again with its person's answer.
    async fn came_again(
        &self,
        who: &Caller,
        seal: &RetryBinding,
        returned: RetryAnswer,
        lasts: bool,
    ) -> Result<TaskId, TaskRefusal> {
        let forged =
            || Refusal::new(RefusalCode::BadRequest, "`requestState` is not one of ours, or is for another call");
        let (task, sealed) = returned.state.split_once('.').ok_or_else(forged)?;
        let task = self.ops.records.find(who, task)?;
        // Where a connection lasts, the question was put on it.
        if seal.over(self, task).to_string() != sealed || lasts && !self.may_be_asked(task) {
            return Err(forged().into());
        }
        if let Some(choice) = returned.choice.filter(|_| self.speaks(who)) {
            self.answered(task, choice).await;
        }
        Ok(task)
    }

    /// What the person at the client said. If somebody else was first, or it may not be said there, it says nothing.
    async fn answered(&self, task: TaskId, choice: Choice) {
        let approval = self.ops.records.state(task).ok().and_then(|state| state.approval_id());
        if let Some(approval) = approval {
            let _ = ops::answers::answer_in_band(&self.ops, task, approval, choice, Via::Mcp).await;
        }
    }

    /// Waits with somebody for a task, tells them where it stands, and puts the question to them if there is one.
    async fn attend(
        &self,
        who: &Caller,
        task: TaskId,
        wait: Duration,
        talk: &impl ClientChannel,
        ends: OnDisconnect,
        asks: Option<&RetryBinding>,
    ) -> CallResult {
        let begun = clock::steady();
        let mut guard = CancelGuard { ops: Arc::clone(&self.ops), task, armed: ends == OnDisconnect::Kill };
        let mut asking: Option<Pin<Box<dyn Future<Output = Option<Choice>> + Send + '_>>> = None;
        let mut asked = false;
        loop {
            let state = self.ops.records.state(task)?;
            let left = wait.saturating_sub(begun.elapsed());
            if state.settled() || left.is_zero() {
                guard.armed = false;
                return self.told(who, task);
            }
            let question = asks.filter(|_| !asked && self.speaks(who)).zip(self.question(&state));
            if let Some((seal, question)) = question {
                asked = true;
                match talk.asks() {
                    ElicitationSupport::No => {}
                    ElicitationSupport::Now => asking = Some(Box::pin(async move { talk.ask(&question).await })),
                    ElicitationSupport::Again => {
                        guard.armed = false;
                        return Ok(CallOutcome::Ask { question, state: format!("{task}.{}", seal.over(self, task)) });
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
                waited = self.ops.records.wait_for(task, PROGRESS.min(left)) => {
                    waited?;
                }
                choice = answer => {
                    asking = None;
                    if let Some(choice) = choice {
                        self.answered(task, choice).await;
                    }
                    continue;
                }
                () = talk.gone() => {
                    // What becomes of the task the guard knows.
                    return self.told(who, task);
                }
            }
            if talk.wants_progress() {
                talk.progress(begun.elapsed().as_secs_f64(), self.last_line(who, task, &state).await).await;
            }
        }
    }

    /// What the person at the client may be asked: once or no, and nothing grave.
    fn question(&self, state: &TaskState) -> Option<Elicitation> {
        let waits = state.status == Status::Queued && state.waits_for() == Some(WaitsFor::Approval);
        let grave = state.request.risks.iter().any(|r| r.is_grave());
        if !waits || grave || self.ops.config.approvals.in_band == InBandAnswers::Off {
            return None;
        }
        // All of it, or it is for a surface that can show all of it.
        let message = CardView::from_approval(&Approval::from_task(state)?).in_one_line(LONGEST_SHOWN)?;
        Some(Elicitation { message, choices: vec![Choice::Once, Choice::Deny] })
    }

    async fn last_line(&self, who: &Caller, task: TaskId, state: &TaskState) -> String {
        if state.status == Status::Queued {
            return match state.approval_id() {
                Some(approval) => format!("waiting for a person to answer {approval}"),
                None => "waiting in line".to_owned(),
            };
        }
        let stream = StreamName::for_mode(state.request.mode)[0];
        let query = OutputQuery { stream: Some(stream), tail_lines: Some(1), ..OutputQuery::default() };
        let last = ops::output::read(&self.ops, who, &task.to_string(), query).await.ok();
        let last = last.map(|page| DisplaySafe::bounded(page.content.trim(), 200).to_string());
        last.filter(|line| !line.is_empty()).unwrap_or_else(|| "running".to_owned())
    }

    /// What a model is told of a task as it is now.
    fn told(&self, who: &Caller, task: TaskId) -> CallResult {
        self.ops.records.find(who, &task.to_string())?;
        let state = self.ops.records.state(task)?;
        let mut structured = summary(&state);
        let mut links = Vec::new();
        if state.first_seq().is_some() && state.expired_at.is_none() {
            let output = json!(ops::output::bounded(&self.ops, &state)?);
            for (name, stream) in &state.io.streams {
                if stream.bytes > countersign_model::MAX_COMPLETE_BYTES as u64 {
                    let uri = format!("countersign://tasks/{task}/{name}");
                    links.push(ResourceLink { uri, name: format!("{name} of {task}"), bytes: stream.bytes });
                }
            }
            structured["output"] = output;
        }
        if !links.is_empty() {
            let hint = "the output is shown in part: task_output with an offset, or task_search, reads the rest";
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
                    "approval pending, call task_wait: it runs once a person has approved it".into();
            }
            (_, None) if state.status == Status::Running => {
                structured["message"] = "still running: task_wait, task_output and task_cancel take its task_id".into();
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

/// A task in the words that a model needs.
pub(super) fn summary(state: &TaskState) -> Value {
    let mut told = json!({
        "task_id": state.task_id, "status": state.status, "command": state.request.display, "cwd": state.request.cwd,
        "session_id": state.request.session_id,
    });
    let mut add = |name: &str, value: Value| {
        if !value.is_null() {
            told[name] = value;
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
    told
}

/// Binds a client's second call to its first: the same person, tool and arguments, and the task that came of it.
struct RetryBinding {
    of: Vec<u8>,
}

impl RetryBinding {
    fn of(who: &Caller, tool: &str, args: &Map<String, Value>) -> Self {
        Self { of: json!([who.principal, who.via, tool, args]).to_string().into_bytes() }
    }

    fn over(&self, tools: &DaemonTools, task: TaskId) -> Digest {
        tools.ops.key.digest("mcp-request-state", &[task.to_string().as_bytes(), &self.of])
    }
}

/// Ends a task when whoever waits for it is gone, unless it was let go of.
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
                    (Text::from_static("agent"), Some(Text::from_static("whoever waited for it hung up")));
                let _ = ops::control::stop(&at, task, by, reason, KilledWhy::Cancel).await;
            });
        }
    }
}

fn waits(asked: Option<u64>) -> Duration {
    Duration::from_secs(asked.unwrap_or(WAIT_S).min(LONGEST_WAIT_S))
}

fn done(structured: Value) -> CallOutcome {
    CallOutcome::Done(ToolResult { structured, failed: false, links: Vec::new() })
}
