//! Intake: a request becomes a task or is refused. It is read and prepared here, before the desk decides.

use super::{ApiResult, OnceKey, Ops, output, sessions};
use crate::{
    caller::Caller,
    calls::{self, AskCall, AskOutcome},
    case,
    facts::{self, PreparedRequest},
    question::CleanTexts,
    users::with_user_ids,
};
use countersign_model::{
    Assessment, Audience, CredentialKind, CredentialScope, Decision, DenialReason, Idempotency, Mode, Outcome, Refusal,
    RefusalCode, Request, Requester, Session, TaskRefusal, Text, Tool, Verdict,
    api::{AskResponse, CheckResponse},
    quoted, tools,
};
use countersign_redact::{text, text_bounded};
use countersign_store::clock;
use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// How long a caller may wait for a task.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(3600);
/// The maximum for titles, rationales and reasons; commands have none.
pub(crate) const MAX_TEXT_BYTES: usize = 4096;
const MAX_LABELS: usize = 16;
const MAX_LABEL_BYTES: usize = 256;

/// The outcome of a request.
pub(crate) struct AskedTask {
    pub(crate) answer: AskResponse,
    /// The request repeats an earlier one with the same key; this is its task.
    pub(crate) replayed: bool,
}

/// Requests a command. With `wait_ms` the reply waits for the task's end and holds its output. A denial names its task.
pub(crate) async fn ask(
    ops: &Arc<Ops>,
    caller: &Caller,
    mut request: Request,
    once: Option<OnceKey<'_>>,
) -> ApiResult<AskedTask> {
    caller.require_scope(CredentialScope::Run)?;
    let idempotency = once.map(|once| once.digest(ops, caller, "POST /tasks")).transpose()?;
    let wait = request.wait_ms.take().map(|ms| Duration::from_millis(ms).min(MAX_WAIT));
    let asked = prepare_and_commit(ops, caller, request, idempotency).await?;
    if asked.state.is_none() && ops.records.find_task(caller, &asked.task.to_string()).is_err() {
        let refusal = Refusal::new(RefusalCode::IdempotencyConflict, "this Idempotency-Key was used by another caller");
        return Err(refusal.hint("use a new key for a new request").into());
    }
    let replayed = asked.state.is_none() && !asked.joined;
    if let Some(state) = &asked.state {
        ops.records.cache_new_task(state);
    }
    let task = match (wait, asked.state) {
        (Some(wait), _) => ops.records.wait_for(asked.task, wait).await?,
        (None, Some(state)) => *state,
        (None, None) => ops.records.state(asked.task)?,
    };
    if let (true, Some(Outcome::Denied { reason })) = (replayed, task.outcome()) {
        return Err(replayed_denial(reason).of_task(asked.task));
    }
    let output = if wait.is_some() && task.settled() { Some(output::bounded_output(ops, &task)?) } else { None };
    Ok(AskedTask { answer: AskResponse { task, output }, replayed })
}

/// The verdict that a request would get now. Records and runs nothing.
pub(crate) async fn check(ops: &Arc<Ops>, caller: &Caller, request: Request) -> ApiResult<CheckResponse> {
    caller.require_scope(CredentialScope::Observe)?;
    let asking = prepare(ops, caller, request, None).await?;
    let (_, assessment) = judge(ops, asking).await?;
    let refusal = match &assessment.verdict {
        Verdict::Deny(refusal) => Some(refusal.clone()),
        Verdict::Allow { .. } | Verdict::Ask { .. } => None,
    };
    Ok(CheckResponse {
        verdict: assessment.verdict.kind(),
        one_shot: assessment.one_shot,
        risks: assessment.risk_set(),
        grants: assessment.grants(),
        refusal,
    })
}

/// Judges a request with the grants of this moment.
pub(super) async fn judge(ops: &Arc<Ops>, mut asking: AskCall) -> ApiResult<(Box<AskCall>, Assessment)> {
    let gate = Arc::clone(&ops.gate);
    let judged = ops.commit.read_register(move |register| {
        let session = asking.requester.session.and_then(|s| register.roster.session(s)).map(|s| &**s);
        let session = session.or(asking.opens.as_deref());
        let assessment = asking.case(&gate, session, &register.grants, clock::now()).assess();
        asking.record_verdict(&assessment);
        (Box::new(asking), assessment)
    });
    Ok(judged.await?)
}

/// Sends a request to the commit loop. A denial is an error that names its task.
pub(crate) async fn commit_ask(ops: &Ops, asking: AskCall) -> ApiResult<AskOutcome> {
    denial_as_error(ops.commit.ask(asking).await?)
}

fn denial_as_error(asked: AskOutcome) -> ApiResult<AskOutcome> {
    match asked.denied {
        Some(refusal) => Err(TaskRefusal::from(refusal).of_task(asked.task)),
        None => Ok(asked),
    }
}

/// The reply to a repeated request that was denied.
fn replayed_denial(reason: &DenialReason) -> TaskRefusal {
    Refusal::new(reason.code(), format!("a request with the same Idempotency-Key was denied: {reason}")).into()
}

/// Prepares a request on a blocking thread, once its principal has a slot for that.
pub(crate) async fn prepare(
    ops: &Arc<Ops>,
    caller: &Caller,
    request: Request,
    idempotency: Option<Idempotency>,
) -> ApiResult<AskCall> {
    let _turn = ops.acquire_lookup_slot(caller.principal).await;
    let (ops, caller) = (Arc::clone(ops), caller.clone());
    crate::blocking(move || prepare_request(&ops, &caller, request, idempotency)).await?
}

/// Like [`prepare`] and [`commit_ask`]. The thread that prepares the request sends it to the commit loop, so that the
/// caller is woken once, by the outcome.
async fn prepare_and_commit(
    ops: &Arc<Ops>,
    caller: &Caller,
    request: Request,
    idempotency: Option<Idempotency>,
) -> ApiResult<AskOutcome> {
    let turn = ops.acquire_lookup_slot(caller.principal).await;
    let (ops, caller) = (Arc::clone(ops), caller.clone());
    let (reply, outcome) = oneshot::channel();
    let prepared = tokio::task::spawn_blocking(move || {
        match prepare_request(&ops, &caller, request, idempotency) {
            Ok(asking) => ops.commit.send_ask(asking, reply),
            // There is no task yet that the refusal could name.
            Err(refused) => drop(reply.send(Err(refused.refusal))),
        }
        drop(turn);
    });
    match outcome.await {
        Ok(asked) => denial_as_error(asked?),
        Err(_) => {
            prepared.await.map_err(|e| Refusal::new(RefusalCode::Internal, e.to_string()))?;
            Err(calls::loop_ended().into())
        }
    }
}

/// Reads and prepares a request: everything before the desk.
fn prepare_request(
    ops: &Ops,
    caller: &Caller,
    mut request: Request,
    idempotency: Option<Idempotency>,
) -> ApiResult<AskCall> {
    tools::check_requestable(request.tool)?;
    refuse_placeholders(&request)?;
    check_labels(&request.labels)?;
    if caller.kind == CredentialKind::Agent && request.mode == Mode::Pty && request.rationale.is_none() {
        return Err(Refusal::new(
            RefusalCode::BadRequest,
            "`rationale` is missing: an agent must say why it needs a terminal",
        )
        .into());
    }
    let run_as = ops.run_as(caller.principal)?;
    if caller.kind == CredentialKind::Agent
        && let (Some(home), true) = (run_as.base.get("HOME"), request.args.inherit.contains_key("HOME"))
    {
        // The home that an agent names does not count: the request is judged by the user that it runs as.
        request.args.inherit.insert("HOME".to_owned(), home.clone());
    }
    let session = sessions::session_of_request(ops, caller, &mut request)?;
    default_to_file_directory(&mut request);
    facts::apply_limits(&mut request, &ops.config, caller.kind)?;
    let prepared = facts::prepare(&request, &ops.key, &run_as)?;
    let (session, opens) = match session {
        Some(session) => (session, None),
        None => {
            let (session, new) = sessions::implicit_session(ops, caller, &prepared.facts);
            (Arc::clone(&session), new.then(|| Box::new((*session).clone())))
        }
    };
    request.session_id = Some(session.id);
    build_ask_call(ops, caller, request, prepared, &session, opens, idempotency)
}

/// A file tool with an absolute path works in the directory of its file, unless the request names another.
fn default_to_file_directory(request: &mut Request) {
    let args = &mut request.args;
    if request.tool.is_builtin() && args.cwd.is_none() {
        let file = args.path.as_deref().map(Path::new).filter(|path| path.is_absolute());
        args.cwd = file.and_then(Path::parent).and_then(Path::to_str).map(str::to_owned);
    }
}

/// Labels must be few and short, with plain names.
fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), Refusal> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-/".contains(&b);
    let bad = labels.len() > MAX_LABELS
        || labels.iter().any(|(name, value)| {
            let secret = || countersign_redact::text_by_shape(name).as_str() != name;
            name.is_empty() || name.len() > 64 || !name.bytes().all(plain) || value.len() > MAX_LABEL_BYTES || secret()
        });
    if !bad {
        return Ok(());
    }
    let message = format!(
        "`labels` may have at most {MAX_LABELS} entries, with plain names of up to 64 and values of up to {MAX_LABEL_BYTES} bytes"
    );
    Err(Refusal::new(RefusalCode::BadRequest, message))
}

/// The texts of a request that are run or passed to what runs.
fn executed_texts(request: &Request) -> impl Iterator<Item = &str> {
    let args = &request.args;
    args.command.iter().chain(args.argv.iter().flatten()).chain(args.env.values()).map(String::as_str)
}

/// Placeholders are only for reading. `edit_file` alone can restore their secrets, if `old` contains them too.
fn refuse_placeholders(request: &Request) -> Result<(), Refusal> {
    if let Some(placeholder) = executed_texts(request).find_map(countersign_redact::placeholder) {
        return Err(placeholder_refusal(placeholder, "a command"));
    }
    let args = &request.args;
    if let Some(placeholder) = args.content.as_deref().and_then(countersign_redact::placeholder) {
        return Err(placeholder_refusal(placeholder, "a file"));
    }
    let (old, new) = (args.old.as_deref().unwrap_or_default(), args.new.as_deref().unwrap_or_default());
    match countersign_redact::placeholders(new).find(|p| !old.contains(p)) {
        Some(placeholder) => Err(placeholder_refusal(placeholder, "`new`, unless `old` contains it too")),
        None => Ok(()),
    }
}

/// A placeholder stands for a secret that only the daemon knows: a command would get the placeholder itself.
pub(crate) fn placeholder_refusal(placeholder: &str, place: &str) -> Refusal {
    Refusal::new(
        RefusalCode::PlaceholderInText,
        format!("{placeholder} stands for a redacted secret and cannot be used in {place}"),
    )
    .hint("do not copy the secret: use a variable or a file that holds it, or edit_file, which restores it")
}

/// A request with all its texts redacted.
pub(crate) fn build_ask_call(
    ops: &Ops,
    caller: &Caller,
    request: Request,
    prepared: PreparedRequest,
    session: &Session,
    opens: Option<Box<Session>>,
    idempotency: Option<Idempotency>,
) -> ApiResult<AskCall> {
    let profile = request.profile.unwrap_or(ops.config.profile);
    let wider = caller.kind == CredentialKind::Agent && profile > ops.config.profile;
    let refused = wider.then(|| {
        Refusal::new(
            RefusalCode::ProfileWider,
            "an agent cannot choose a profile that asks for fewer approvals than the configured one",
        )
        .hint("leave out `profile`, or have a person run it")
    });
    let requester = Requester {
        principal: caller.principal,
        session: Some(session.id),
        audience: session.audience.min(caller.audience),
        credential: caller.kind,
        profile: if wider { ops.config.profile } else { profile },
        tool: request.tool,
    };
    let refused = refused.or_else(|| {
        let public = requester.audience == Audience::Public && (request.mode == Mode::Pty || request.background);
        public.then(|| {
            Refusal::new(RefusalCode::NotForAudience, "a public session cannot use a terminal or background tasks")
        })
    });
    let workspace = match request.workspace.as_deref() {
        Some(path) => {
            let user = prepared.user.as_ref();
            Some(with_user_ids(user, || crate::receipts::publish::resolve_workspace(path, user))??)
        }
        None => None,
    };
    let mask = case::mask(&ops.key, &prepared);
    let clean = |raw: &str| text_bounded(&mask, raw, MAX_TEXT_BYTES);
    // Complete, however long: a person must see everything that they approve.
    let whole = |raw: &str| text(&mask, raw);
    let display = match (&request.args.command, &request.args.argv) {
        (Some(text), _) => whole(text),
        (None, Some(argv)) => whole(&argv.iter().map(|w| quoted(w)).collect::<Vec<_>>().join(" ")),
        (None, None) if request.tool.is_builtin() => whole(&describe_file_work(&request)),
        (None, None) => whole(&format!("Let this session read {}?", prepared.facts.cwd.resolved)),
    };
    let texts = CleanTexts::from_request(&request, &prepared, &mask, &display);
    let sets_directory = request.tool == Tool::SetWorkingDirectory;
    let planned = Decision::Planned {
        plan_digest: prepared.plan_digest,
        display,
        // For a command, the verdict shows which verbs matter.
        verb: Text::from_static(if sets_directory { Tool::SetWorkingDirectory.as_str() } else { "" }),
        cwd: clean(&prepared.facts.cwd.resolved),
        mode: request.mode,
        tool: request.tool,
        title: request.title.as_deref().map(clean),
        rationale: request.rationale.as_deref().map(clean),
        labels: request.labels.iter().map(|(name, value)| (name.clone(), clean(value))).collect(),
        session: Some(session.id),
        principal: caller.principal,
        credential: caller.kind,
        risks: Vec::new(),
        audience: requester.audience,
        profile: requester.profile,
        background: request.background,
        limits: Box::new(request.limits),
        workspace: workspace.as_deref().map(clean),
        on_session_end: request.on_session_end,
        idempotency: idempotency.map(Box::new),
    };
    let asker = caller.process;
    Ok(AskCall { request, prepared, planned, requester, opens, texts, refused, asker, idempotency, judged: None })
}

/// The work of a file tool, for people: removed and added lines.
fn describe_file_work(request: &Request) -> String {
    let args = &request.args;
    let path = quoted(args.path.as_deref().unwrap_or_default());
    let mut out = format!("{} {path}", request.tool.as_str());
    if let Some(first) = args.first_line {
        out += &format!(" from line {first}");
    }
    if let Some(count) = args.line_count {
        out += &if count == 1 { ", 1 line".to_owned() } else { format!(", {count} lines") };
    }
    if args.all {
        out += " (every occurrence)";
    }
    let parts = [('-', &args.old), ('+', &args.new), ('+', &args.content)];
    // Show line ends if they differ.
    let ends = parts.iter().any(|(_, t)| t.as_ref().is_some_and(|t| t.contains('\r')))
        || args.old.as_ref().map(|t| t.ends_with('\n')) != args.new.as_ref().map(|t| t.ends_with('\n'));
    for (mark, text) in parts {
        for line in text.iter().flat_map(|t| t.split_inclusive('\n')) {
            let end = match (ends, line.ends_with("\r\n"), line.ends_with('\n')) {
                (false, ..) => "",
                (true, true, _) => " \\r\\n",
                (true, false, true) => " \\n",
                (true, false, false) => " (no line end)",
            };
            out += &format!("\n{mark} {}{end}", line.trim_end_matches(['\r', '\n']));
        }
    }
    out
}
