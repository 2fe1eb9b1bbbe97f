//! The tools, done: each is one call of the API, and waiting is the rest.
//!
//! A call that is cancelled or whose connection breaks ends the wait. It ends the task only where the call said so.

use super::{
    calls::{is_id, said, simple},
    offers::{Asks, Called, Calling, Failed, Link, Offers, Outcome, Question, Read, Returned, Talk, Tools},
    tools::{self, Offered},
};
use crate::surface::{approvals, arrive::Who, control, find_task, problem::body, tasks};
use axum::http::Method;
use countersign_model::{
    Choice, Code, Confinement, CredentialScope, Digest, KilledWhy, Network, Outcome as Ended, Refusal, Risk, Ruling,
    SessionId, Shown, Status, StreamName, TaskId, TaskState, Text, WaitsFor,
};
use countersign_store::{InBand, clock};
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
struct Run {
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
struct Wait {
    task_id: String,
    wait_s: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    path: String,
    wait_s: Option<u64>,
}

impl Offers for Tools {
    fn tools(&self) -> &'static [Offered] {
        tools::TOOLS
    }

    async fn call(&self, call: Calling, talk: &impl Talk) -> Called {
        let who = match self.who(call.who.clone()) {
            Ok(who) => who,
            Err(refusal) => return Failed::from(refusal).told(),
        };
        let done = match call.name.as_str() {
            "run" => self.run(&who, call, talk).await,
            "task_wait" => self.wait(&who, call, talk).await,
            "set_working_directory" => self.move_session(&who, call, talk).await,
            name => match simple(name, call.args) {
                Some(Ok((method, path, body))) => {
                    self.api(&who, method, &path, body.as_ref()).await.map(|value| said(name, value))
                }
                Some(Err(failed)) => Err(failed),
                None => return Called::Unknown,
            },
        };
        done.unwrap_or_else(|failed| failed.told())
    }

    async fn read(&self, uri: &str, came: Option<Who>) -> Result<Read, Refusal> {
        let unknown = || Refusal::new(Code::NotFound, "there is nothing at this address");
        let who = self.who(came)?;
        let rest = uri.strip_prefix("countersign://tasks/").ok_or_else(unknown)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (task, what) = path.split_once('/').ok_or_else(unknown)?;
        if !is_id(task) {
            return Err(unknown());
        }
        if what == "receipt" {
            let path = format!("/tasks/{task}/receipt");
            let receipt = self.api(&who, Method::GET, &path, None).await.map_err(|f| f.refusal)?;
            return Ok(Read { text: Some(receipt.to_string()), blob: None, place: json!({}) });
        }
        let number = |name: &str| {
            let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            value.map(|v| v.parse::<u64>().map_err(|_| unknown())).transpose()
        };
        let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?.unwrap_or(LARGEST_READ));
        let stream: StreamName = serde_json::from_value(json!(what)).map_err(|_| unknown())?;
        let most = length.clamp(1, LARGEST_READ);
        let path = format!("/tasks/{task}/output?stream={stream}&offset_bytes={offset}&max_bytes={most}");
        let got = self.api(&who, Method::GET, &path, None).await.map_err(|f| f.refusal)?;
        let content = got["content"].as_str().unwrap_or_default().to_owned();
        let (text, blob) = match got["encoding"] == "base64" {
            true => (None, Some(content)),
            false => (Some(content), None),
        };
        let place = json!({"offset": got["offset_bytes"], "total": got["total_bytes"], "next": got["next_offset"]});
        Ok(Read { text, blob, place })
    }
}

type Done = Result<Called, Failed>;

impl Tools {
    async fn run(&self, who: &Who, call: Calling, talk: &impl Talk) -> Done {
        let args: Run = arguments(call.args.clone())?;
        let ends = args.on_disconnect;
        let wait = waits(args.wait_s);
        let seal = Seal::of(who, &call.name, &call.args);
        if let Some(returned) = call.returned {
            let task = self.came_again(who, &seal, returned, talk.lasts()).await?;
            return self.attend(who, task, wait, talk, ends, None).await;
        }
        let session = self.session(who);
        let environment = self.house.mcp.environment(session);
        let labels: Map<String, Value> = call.labels.into_iter().map(|(k, v)| (k.to_owned(), v.into())).collect();
        let request = json!({
            "tool": "shell",
            "args": {"command": args.command, "cwd": args.cwd, "stdin": args.stdin && !args.pty, "inherit": environment},
            "title": args.title, "rationale": args.rationale, "labels": labels, "background": args.background,
            "execution_mode": if args.pty { "pty" } else { "pipes" },
            "limits": {"wall_ms": args.timeout_s.map(|s| s.saturating_mul(1000))},
            "confinement": args.confinement, "network": args.network,
            "session_id": session,
        });
        let state = self.api(who, Method::POST, "/tasks", Some(&request)).await?;
        let task = task_of(&state)?;
        self.asks_for(task);
        match args.background {
            true => self.told(who, task),
            false => self.attend(who, task, wait, talk, ends, Some(&seal)).await,
        }
    }

    async fn wait(&self, who: &Who, call: Calling, talk: &impl Talk) -> Done {
        let args: Wait = arguments(call.args.clone())?;
        who.may(CredentialScope::Observe)?;
        let task = find_task(&self.house, who, &args.task_id).map_err(|p| p.into_refusal())?;
        let seal = Seal::of(who, &call.name, &call.args);
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

    async fn move_session(&self, who: &Who, call: Calling, talk: &impl Talk) -> Done {
        let args: Place = arguments(call.args)?;
        let session = match self.session(who) {
            Some(session) => session,
            None if !talk.lasts() => {
                let refusal = Refusal::new(Code::WrongMode, "there is no session here that could move");
                return Err(refusal.hint("name `cwd` with each `run`").into());
            }
            None => {
                let opened = self.api(who, Method::POST, "/sessions", Some(&json!({"title": "MCP"}))).await?;
                let id: Result<SessionId, _> = opened["id"].as_str().unwrap_or_default().parse();
                let id = id.map_err(|_| Refusal::new(Code::Internal, "no session came of it"))?;
                self.opened(id);
                id
            }
        };
        let path = format!("/sessions/{session}/directory");
        let moved = self.api(who, Method::POST, &path, Some(&json!({"directory": args.path}))).await?;
        match moved.get("task_id") {
            Some(_) => {
                // What a session may read is for a person to say, not for its client.
                let task = task_of(&moved)?;
                self.attend(who, task, waits(args.wait_s), talk, OnDisconnect::Detach, None).await
            }
            None => Ok(done(json!({"directory": moved["directory"], "roots": moved["roots"]}))),
        }
    }

    /// A client that was asked to come again with its person's answer.
    async fn came_again(&self, who: &Who, seal: &Seal, returned: Returned, lasts: bool) -> Result<TaskId, Failed> {
        let forged = || Refusal::new(Code::BadRequest, "`requestState` is not one of ours, or is for another call");
        let (task, sealed) = returned.state.split_once('.').ok_or_else(forged)?;
        let task = find_task(&self.house, who, task).map_err(|p| p.into_refusal())?;
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
        let approval = self.house.projections.state(&self.house, task).ok().and_then(|state| state.approval_id);
        if let Some(approval) = approval {
            let _ = approvals::answer_in_band(&self.house, task, approval, choice, "mcp").await;
        }
    }

    /// Waits with somebody for a task, tells them where it stands, and puts the question to them if there is one.
    async fn attend(
        &self,
        who: &Who,
        task: TaskId,
        wait: Duration,
        talk: &impl Talk,
        ends: OnDisconnect,
        asks: Option<&Seal>,
    ) -> Done {
        let begun = clock::steady();
        let mut guard = Guard { house: Arc::clone(&self.house), task, armed: ends == OnDisconnect::Kill };
        let mut asking: Option<Pin<Box<dyn Future<Output = Option<Choice>> + Send + '_>>> = None;
        let mut asked = false;
        loop {
            let state = self.house.projections.state(&self.house, task).map_err(|p| p.into_refusal())?;
            let left = wait.saturating_sub(begun.elapsed());
            if state.settled() || left.is_zero() {
                guard.armed = false;
                return self.told(who, task);
            }
            let question = asks.filter(|_| !asked && self.speaks(who)).zip(self.question(&state));
            if let Some((seal, question)) = question {
                asked = true;
                match talk.asks() {
                    Asks::No => {}
                    Asks::Now => asking = Some(Box::pin(async move { talk.ask(&question).await })),
                    Asks::Again => {
                        guard.armed = false;
                        return Ok(Called::Ask { question, state: format!("{task}.{}", seal.over(self, task)) });
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
                waited = tasks::wait_for(&self.house, task, PROGRESS.min(left)) => {
                    waited.map_err(|p| p.into_refusal())?;
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
    fn question(&self, state: &TaskState) -> Option<Question> {
        let waits = state.status == Status::Queued && state.waits_for == Some(WaitsFor::Approval);
        let grave = state.risks.iter().any(|r| r.is_grave());
        if !waits || grave || self.house.config.approvals.in_band == InBand::Off {
            return None;
        }
        // All of it, or it is for a surface that can show all of it; and nothing that could pass for our words.
        let command = state.display.as_str();
        if command.len() > LONGEST_SHOWN || command.contains(['`', '\n']) {
            return None;
        }
        let risks: Vec<&str> = state.risks.iter().map(|r: &Risk| r.as_str()).collect();
        let shown = Shown::new(command).to_string();
        let place = Shown::bounded(state.cwd.as_str(), LONGEST_SHOWN);
        let message = match risks.is_empty() {
            true => format!("Approve `{shown}` in {place}?"),
            false => format!("Approve `{shown}` in {place}? Risks: {}", risks.join(", ")),
        };
        Some(Question { message, choices: vec![Choice::Once, Choice::Deny] })
    }

    async fn last_line(&self, who: &Who, task: TaskId, state: &TaskState) -> String {
        if state.status == Status::Queued {
            return match state.approval_id {
                Some(approval) => format!("waiting for a person to answer {approval}"),
                None => "waiting in line".to_owned(),
            };
        }
        let stream = StreamName::of(state.mode)[0];
        let path = format!("/tasks/{task}/output?stream={stream}&tail_lines=1");
        let last = self.api(who, Method::GET, &path, None).await.ok();
        let last = last.and_then(|v| v["content"].as_str().map(|text| Shown::bounded(text.trim(), 200).to_string()));
        last.filter(|line| !line.is_empty()).unwrap_or_else(|| "running".to_owned())
    }

    /// What a model is told of a task as it is now.
    fn told(&self, who: &Who, task: TaskId) -> Done {
        find_task(&self.house, who, &task.to_string()).map_err(|p| p.into_refusal())?;
        let state = self.house.projections.state(&self.house, task).map_err(|p| p.into_refusal())?;
        let mut structured = summary(&state);
        let mut links = Vec::new();
        if state.first_seq.is_some() && state.expired_at.is_none() {
            let output = tasks::bounded_output(&self.house, &state).map_err(|p| p.into_refusal())?;
            for (name, stream) in &state.streams {
                if stream.bytes > countersign_model::INLINE_WHOLE as u64 {
                    let uri = format!("countersign://tasks/{task}/{name}");
                    links.push(Link { uri, name: format!("{name} of {task}"), bytes: stream.bytes });
                }
            }
            structured["output"] = output;
        }
        if !links.is_empty() {
            let hint = "the output is shown in part: task_output with an offset, or task_search, reads the rest";
            structured["hint"] = hint.into();
        }
        match (&state.ruling, &state.outcome) {
            (Some(Ruling::Denied { reason, hint, words, .. }), _) => {
                (structured["reason"], structured["hint"]) = (json!(reason), json!(hint));
                structured["words"] = json!(words);
                if reason.as_str() == Code::DeniedByPerson.as_str() {
                    structured["message"] = "Command denied by user".into();
                }
            }
            (_, None) if state.waits_for == Some(WaitsFor::Approval) => {
                structured["message"] =
                    "approval pending, call task_wait: it runs once a person has approved it".into();
            }
            (_, None) if state.status == Status::Running => {
                structured["message"] = "still running: task_wait, task_output and task_cancel take its task_id".into();
            }
            _ => {}
        }
        let failed = matches!(
            state.outcome,
            Some(Ended::Denied { .. } | Ended::Failed { .. } | Ended::Lost { .. } | Ended::Withdrawn { .. })
        );
        Ok(Called::Done(Outcome { structured, failed, links }))
    }
}

/// A task in the words that a model needs.
pub(super) fn summary(state: &TaskState) -> Value {
    let mut told = json!({
        "task_id": state.task_id, "status": state.status, "command": state.display, "cwd": state.cwd,
        "session_id": state.session_id,
    });
    let mut add = |name: &str, value: Value| {
        if !value.is_null() {
            told[name] = value;
        }
    };
    add("outcome", state.outcome.as_ref().map(ToString::to_string).into());
    add("exit_code", state.outcome.as_ref().map(Ended::exit_code).into());
    add("approval_id", state.approval_id.filter(|_| !state.settled()).map(|a| a.to_string()).into());
    add("waits_for", json!(state.waits_for));
    add("position", state.position.into());
    add("duration_ms", state.duration_us.map(|us| us / 1000).into());
    add("confinement", json!(state.confinement));
    add("note", state.note.as_ref().map(|n| n.as_str()).into());
    add("title", state.title.as_ref().map(|t| t.as_str()).into());
    told
}

/// Binds a client's second call to its first: the same person, tool and arguments, and the task that came of it.
struct Seal {
    of: Vec<u8>,
}

impl Seal {
    fn of(who: &Who, tool: &str, args: &Map<String, Value>) -> Self {
        Self { of: json!([who.principal, who.name, tool, args]).to_string().into_bytes() }
    }

    fn over(&self, tools: &Tools, task: TaskId) -> Digest {
        tools.house.key.digest("mcp-request-state", &[task.to_string().as_bytes(), &self.of])
    }
}

/// Ends a task when whoever waits for it is gone, unless it was let go of.
struct Guard {
    house: Arc<crate::house::House>,
    task: TaskId,
    armed: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.armed {
            let (house, task) = (Arc::clone(&self.house), self.task);
            tokio::spawn(async move {
                let (by, reason) = (Text::of("agent"), Some(Text::of("whoever waited for it hung up")));
                let _ = control::stop(&house, task, by, reason, KilledWhy::Cancel).await;
            });
        }
    }
}

fn waits(asked: Option<u64>) -> Duration {
    Duration::from_secs(asked.unwrap_or(WAIT_S).min(LONGEST_WAIT_S))
}

fn arguments<T: serde::de::DeserializeOwned>(args: Map<String, Value>) -> Result<T, Failed> {
    body(Value::Object(args).to_string().as_bytes()).map_err(|p| p.into_refusal().into())
}

fn task_of(state: &Value) -> Result<TaskId, Failed> {
    let task = state["task_id"].as_str().and_then(|t| t.parse().ok());
    task.ok_or_else(|| Refusal::new(Code::Internal, "no task came of it").into())
}

fn done(structured: Value) -> Called {
    Called::Done(Outcome { structured, failed: false, links: Vec::new() })
}
