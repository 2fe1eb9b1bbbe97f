//! `/tasks`: asking, listing, looking, stopping.

use super::{
    Answer, Projections, Shared,
    arrive::{Sees, Who},
    find_task,
    problem::{Problem, Query, Segment, Whole, body},
    sessions,
};
use crate::{
    desk::Standing,
    facts::{self, Looked},
    house::House,
    office::{Asked, Asking, Call},
    people::in_the_name_of,
    question::{self, Texts},
};
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use countersign_model::{
    Assessment, Audience, Code, CredentialKind, Decision, Grants, Idempotency, Mode, Outcome, Plan, Refusal, Request,
    Session, Status, StreamName, TaskId, TaskState, Text, Tool, quoted,
};
use countersign_redact::{Known, text, text_bounded};
use countersign_store::ledger::Filter;
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// A list page, unless the asker names a size.
const PAGE: u32 = 50;
const LARGEST_PAGE: u32 = 500;
/// How long an answer may be waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Titles, rationales and reasons are bounded; commands are not.
pub(crate) const LONGEST_TEXT: usize = 4096;
const MOST_LABELS: usize = 16;
const LONGEST_LABEL: usize = 256;

pub(crate) async fn ask(State(house): Shared, who: Who, headers: HeaderMap, Whole(bytes): Whole) -> Answer<Response> {
    let mut request: Request = body(&bytes)?;
    let wait = request.wait_ms.take().map(|ms| Duration::from_millis(ms).min(LONGEST_WAIT));
    let idempotency = idempotency(&house, &who, &headers, "POST /tasks", &bytes)?;
    let asking = considered(&house, &who, request, idempotency).await?;
    let asked = put(&house, asking).await?;
    if asked.state.is_none() && find_task(&house, &who, &asked.task.to_string()).is_err() {
        let refusal = Refusal::new(Code::IdempotencyConflict, "somebody else has used this Idempotency-Key");
        return Err(refusal.hint("use a new key for a new request").into());
    }
    let replayed = asked.state.is_none() && !asked.joined;
    if let Some(state) = &asked.state {
        house.projections.begin(&house, state);
    }
    let finished = match (wait, asked.state) {
        (Some(wait), _) => wait_for(&house, asked.task, wait).await?,
        (None, Some(state)) => *state,
        (None, None) => house.projections.state(&house, asked.task)?,
    };
    if let (true, Some(Outcome::Denied { reason })) = (replayed, &finished.outcome) {
        return Err(denied_before(reason).of_task(asked.task));
    }
    let mut answer = json!(finished);
    if wait.is_some() && finished.settled() {
        answer["output"] = bounded_output(&house, &finished)?;
    }
    let status = if finished.status == Status::Queued { StatusCode::ACCEPTED } else { StatusCode::CREATED };
    let mut response = (status, Json(answer)).into_response();
    if let Ok(location) = HeaderValue::from_str(&format!("/tasks/{}", asked.task)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    if replayed {
        let name = HeaderName::from_static("idempotency-replayed");
        response.headers_mut().insert(name, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// Puts a request to the office. A denial is a problem that names its task.
pub(crate) async fn put(house: &House, asking: Asking) -> Answer<Asked> {
    let (reply, answer) = oneshot::channel();
    let gone = || Refusal::new(Code::Draining, "the house is going down");
    house.calls.send(Call::Ask { asking: Box::new(asking), reply }).map_err(|_| gone())?;
    let asked = answer.await.map_err(|_| gone())??;
    match asked.denied {
        Some(refusal) => Err(Problem::from(refusal).of_task(asked.task)),
        None => Ok(asked),
    }
}

/// The answer to a request that was denied when it first came.
fn denied_before(reason: &Text) -> Problem {
    let code = Code::ALL.iter().copied().find(|c| c.as_str() == reason.as_str()).unwrap_or(Code::Forbidden);
    Refusal::new(code, format!("denied before, under the same Idempotency-Key: {}", reason.as_str().replace('_', " ")))
        .into()
}

pub(crate) fn idempotency(
    house: &House,
    who: &Who,
    headers: &HeaderMap,
    route: &str,
    bytes: &[u8],
) -> Answer<Option<Idempotency>> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    if key.is_empty() || key.len() > 255 {
        return Err(Refusal::new(Code::BadRequest, "`Idempotency-Key` takes 1 to 255 characters").into());
    }
    let owner = who.principal.to_string();
    Ok(Some(Idempotency {
        key: house.key.digest("idempotency-key", &[owner.as_bytes(), route.as_bytes(), key.as_bytes()]),
        body: house.key.digest("idempotency-body", &[bytes]),
    }))
}

/// Reads and looks when it is its principal's turn, on a thread where that may take its time.
pub(crate) async fn considered(
    house: &Arc<House>,
    who: &Who,
    request: Request,
    idempotency: Option<Idempotency>,
) -> Answer<Asking> {
    let _turn = house.turn(who.principal).await;
    let (house, who) = (Arc::clone(house), who.clone());
    let asking = tokio::task::spawn_blocking(move || consider(&house, &who, request, idempotency)).await;
    asking.map_err(|e| Refusal::new(Code::Internal, e.to_string()))?
}

/// Reads and looks: everything before the desk.
fn consider(house: &House, who: &Who, mut request: Request, idempotency: Option<Idempotency>) -> Answer<Asking> {
    if request.tool != Tool::Shell && !request.tool.is_builtin() {
        let tools = "this house runs the tools `shell`, `read_file`, `write_file` and `edit_file`";
        return Err(Refusal::new(Code::Unsupported, tools).into());
    }
    refuse_placeholders(&request)?;
    bound_labels(&request.labels)?;
    if who.kind == CredentialKind::Agent && request.mode == Mode::Pty && request.rationale.is_none() {
        return Err(
            Refusal::new(Code::BadRequest, "`rationale` is missing: an agent says why it needs a terminal").into()
        );
    }
    let eyes = house.eyes(who.principal)?;
    if who.kind == CredentialKind::Agent
        && let (Some(home), true) = (eyes.base.get("HOME"), request.args.inherit.contains_key("HOME"))
    {
        // What is judged by whose home it is, is judged by whom it runs as.
        request.args.inherit.insert("HOME".to_owned(), home.clone());
    }
    let session = sessions::of_request(house, who, &mut request)?;
    facts::bound(&mut request, &house.config, who.kind)?;
    let looked = facts::look(&request, &house.key, &eyes)?;
    let (session, opens) = match session {
        Some(session) => (session, None),
        None => {
            let (session, new) = sessions::implicit(house, who, &looked.facts);
            (Arc::clone(&session), new.then(|| Box::new((*session).clone())))
        }
    };
    request.session_id = Some(session.id);
    asking(house, who, request, looked, &session, opens, idempotency)
}

/// Labels are few and short, and their names are plain.
fn bound_labels(labels: &BTreeMap<String, String>) -> Result<(), Refusal> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-/".contains(&b);
    let bad = labels.len() > MOST_LABELS
        || labels.iter().any(|(name, value)| {
            let secret = || countersign_redact::text_by_shape(name).as_str() != name;
            name.is_empty() || name.len() > 64 || !name.bytes().all(plain) || value.len() > LONGEST_LABEL || secret()
        });
    match bad {
        false => Ok(()),
        true => Err(Refusal::new(
            Code::BadRequest,
            format!(
                "`labels` are at most {MOST_LABELS}, each a plain name of up to 64 and a text of up to {LONGEST_LABEL} characters"
            ),
        )),
    }
}

/// What a request wants run or given to what runs.
fn given(request: &Request) -> impl Iterator<Item = &str> {
    let args = &request.args;
    args.command.iter().chain(args.argv.iter().flatten()).chain(args.env.values()).map(String::as_str)
}

/// Placeholders are for reading. Only `edit_file` can put back what one stands for: where `old` has it too.
fn refuse_placeholders(request: &Request) -> Result<(), Refusal> {
    if let Some(placeholder) = given(request).find_map(countersign_redact::placeholder) {
        return Err(no_placeholder(placeholder, "a command"));
    }
    let args = &request.args;
    if let Some(placeholder) = args.content.as_deref().and_then(countersign_redact::placeholder) {
        return Err(no_placeholder(placeholder, "a file"));
    }
    let (old, new) = (args.old.as_deref().unwrap_or_default(), args.new.as_deref().unwrap_or_default());
    match countersign_redact::placeholders(new).find(|p| !old.contains(p)) {
        Some(placeholder) => Err(no_placeholder(placeholder, "`new` unless `old` has it too")),
        None => Ok(()),
    }
}

/// A placeholder stands for something that this house knows and whoever asks does not: passed on, it would be garbage.
pub(crate) fn no_placeholder(placeholder: &str, place: &str) -> Refusal {
    Refusal::new(Code::PlaceholderInText, format!("{placeholder} stands for a secret and cannot be used in {place}"))
        .hint("leave the secret where it is: use a variable or a file that holds it, or edit_file, which keeps what it stands for")
}

/// A request with everything that is said about it clean.
pub(crate) fn asking(
    house: &House,
    who: &Who,
    request: Request,
    looked: Looked,
    session: &Session,
    opens: Option<Box<Session>>,
    idempotency: Option<Idempotency>,
) -> Answer<Asking> {
    let profile = request.profile.unwrap_or(house.config.profile);
    let wider = who.kind == CredentialKind::Agent && profile > house.config.profile;
    let refused = wider.then(|| {
        Refusal::new(Code::ProfileWider, "an agent cannot choose a profile that asks less than the configured one")
            .hint("leave `profile` out, or let a person run it")
    });
    let standing = Standing {
        principal: who.principal,
        session: Some(session.id),
        audience: session.audience.min(who.audience),
        credential: who.kind,
        profile: if wider { house.config.profile } else { profile },
        tool: request.tool,
    };
    let refused = refused.or_else(|| {
        let public = standing.audience == Audience::Public && (request.mode == Mode::Pty || request.background);
        public.then(|| Refusal::new(Code::NotForAudience, "strangers get no terminal and no background"))
    });
    let workspace = match request.workspace.as_deref() {
        Some(path) => {
            let login = looked.login.as_ref();
            Some(in_the_name_of(login, || crate::publish::workspace(path, login))??)
        }
        None => None,
    };
    let none = Grants::default();
    let assessment =
        facts::assess(&request, &looked, &house.gate, &standing, Some(session), &none, countersign_store::clock::now());
    let mut told = Known::default();
    told.add_found(given(&request));
    let mask = question::mask(&house.key, &looked).and(&told);
    let clean = |raw: &str| text_bounded(&mask, raw, LONGEST_TEXT);
    // Whole, however long: what a person approves is all there is.
    let whole = |raw: &str| text(&mask, raw);
    let display = match (&request.args.command, &request.args.argv) {
        (Some(text), _) => whole(text),
        (None, Some(argv)) => whole(&argv.iter().map(|w| quoted(w)).collect::<Vec<_>>().join(" ")),
        (None, None) if request.tool.is_builtin() => whole(&work(&request)),
        (None, None) => whole(&format!("Let this session read {}?", looked.facts.cwd.resolved)),
    };
    // What runs without a grant asks nothing with one.
    let texts = match &assessment.answer {
        countersign_model::Answer::Ask { .. } => Texts::of(&request, &looked, &assessment, &mask, &display),
        countersign_model::Answer::Allow { .. } | countersign_model::Answer::Deny(_) => Texts::default(),
    };
    let planned = Decision::Planned {
        plan_digest: looked.plan_digest,
        display,
        verb: clean(&verbs(&request, &looked.plan, &assessment)),
        cwd: clean(&looked.facts.cwd.resolved),
        mode: request.mode,
        tool: request.tool,
        title: request.title.as_deref().map(clean),
        rationale: request.rationale.as_deref().map(clean),
        labels: request.labels.iter().map(|(name, value)| (name.clone(), clean(value))).collect(),
        session: Some(session.id),
        principal: who.principal,
        credential: who.kind,
        risks: assessment.risk_set(),
        audience: standing.audience,
        profile: standing.profile,
        background: request.background,
        limits: Box::new(request.limits),
        workspace: workspace.as_deref().map(clean),
        on_session_end: request.on_session_end,
        idempotency: idempotency.map(Box::new),
    };
    let asker = who.process;
    Ok(Asking { request, looked, planned, standing, opens, texts, refused, asker, idempotency })
}

/// What the gate would do with a request, with what this house has granted; nothing is recorded or run.
pub(crate) async fn check(State(house): Shared, who: Who, Whole(bytes): Whole) -> Answer<Json<Value>> {
    let request: Request = body(&bytes)?;
    let asking = considered(&house, &who, request, None).await?;
    let told = house
        .read({
            let house = Arc::clone(&house);
            move |register| {
                let Asking { request, looked, standing, opens, .. } = asking;
                let session = standing.session.and_then(|s| register.roster.session(s)).map(|s| &**s);
                let session = session.or(opens.as_deref());
                let now = countersign_store::clock::now();
                let a = facts::assess(&request, &looked, &house.gate, &standing, session, &register.grants, now);
                let verdict = match &a.answer {
                    countersign_model::Answer::Allow { .. } => "allow",
                    countersign_model::Answer::Ask { .. } => "ask",
                    countersign_model::Answer::Deny(_) => "deny",
                };
                let refusal = match &a.answer {
                    countersign_model::Answer::Deny(refusal) => Some(refusal.clone()),
                    _ => None,
                };
                json!({
                    "verdict": verdict, "one_shot": a.one_shot, "risks": a.risk_set(), "grants": a.grants(),
                    "refusal": refusal,
                })
            }
        })
        .await?;
    Ok(Json(told))
}

/// The verbs that matter: those that nothing covers, else all of them.
fn verbs(request: &Request, plan: &Plan, assessment: &Assessment) -> String {
    if request.tool == Tool::SetWorkingDirectory {
        return "set_working_directory".to_owned();
    }
    let own = || plan.occurrences.iter().zip(&assessment.coverage).filter(|(o, _)| !o.shadow);
    let uncovered: Vec<&str> = own().filter(|(_, c)| !c.holds()).map(|(o, _)| o.verb.as_str()).collect();
    let mut all = if uncovered.is_empty() { own().map(|(o, _)| o.verb.as_str()).collect() } else { uncovered };
    all.dedup();
    all.join(", ")
}

/// What a file tool would do, for people: what goes and what comes, line by line.
fn work(request: &Request) -> String {
    let args = &request.args;
    let path = quoted(args.path.as_deref().unwrap_or_default());
    let mut out = format!("{} {path}", request.tool.as_str());
    if let Some(first) = args.first_line {
        out += &format!(" from line {first}");
    }
    if let Some(count) = args.line_count {
        out += &format!(", {count} lines");
    }
    if args.all {
        out += " (wherever it stands)";
    }
    let parts = [('-', &args.old), ('+', &args.new), ('+', &args.content)];
    // What differs only in how lines end must be seen to differ.
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

/// The state of a task when it has settled or time is up.
pub(crate) async fn wait_for(house: &Arc<House>, task: TaskId, wait: Duration) -> Answer<TaskState> {
    let mut bell = house.keeper.bell(task);
    let ended = async {
        loop {
            let state = house.projections.state(house, task)?;
            if state.settled() {
                return Ok(state);
            }
            if bell.changed().await.is_err() {
                // The entry went with its settlement: what that wrote is there now.
                bell = house.keeper.bell(task);
            }
        }
    };
    match tokio::time::timeout(wait, ended).await {
        Ok(Ok(state)) => {
            house.keeper.unlist(task);
            Ok(state)
        }
        Ok(Err(problem)) => Err(problem),
        Err(_) => house.projections.state(house, task),
    }
}

/// Both streams, whole when short, else both ends.
pub(crate) fn bounded_output(house: &House, state: &TaskState) -> Answer<Value> {
    let mut streams = serde_json::Map::new();
    for &stream in StreamName::of(state.mode) {
        if state.streams.contains_key(&stream) {
            let bytes = super::output::ends(house, state, stream)?;
            streams.insert(stream.to_string(), bytes);
        }
    }
    Ok(Value::Object(streams))
}

pub(crate) async fn list(State(house): Shared, who: Who, mut query: Query) -> Answer<Json<Value>> {
    let status = query.text("status").map(|s| {
        serde_json::from_value::<Status>(Value::String(s.clone())).map_err(|_| {
            let shown = countersign_model::Shown::bounded(&s, 40);
            Refusal::new(
                Code::BadRequest,
                format!("`status` is queued, running, exited, cancelled or failed, not `{shown}`"),
            )
        })
    });
    let since_ms = query.parse::<u64>("since_ms", "a time in milliseconds")?;
    let filter = Filter {
        status: status.transpose()?,
        before: query.parse("cursor", "the `next` of an earlier page")?,
        since: since_ms.map(|ms| TaskId::mint(&mut countersign_model::IdMint::default(), ms.min(1 << 49), 0)),
        verb: query.text("verb"),
        sessions: match (&who.sees, query.text("session")) {
            // Nothing of another's session is told, not even that there is more.
            (Sees::Session(own), named) => {
                let roster = house.roster.borrow();
                let agent = roster.session(*own).and_then(|s| s.agent);
                let its = |s: &&Arc<Session>| s.id == *own || agent.is_some() && s.agent == agent;
                let all = roster.sessions().filter(its).map(|s| s.id.to_string());
                Some(all.filter(|id| named.as_ref().is_none_or(|named| named == id)).collect())
            }
            (Sees::All | Sees::Own, named) => named.map(|named| vec![named]),
        },
        principal: Some(who.principal),
        text: query.text("text"),
        limit: query.parse::<u32>("limit", "a number")?.unwrap_or(PAGE).saturating_add(1),
    };
    query.nothing_else()?;
    if !(2..=LARGEST_PAGE + 1).contains(&filter.limit) {
        return Err(Refusal::new(Code::BadRequest, format!("`limit` is 1 to {LARGEST_PAGE}")).into());
    }
    let mut tasks = house.readers.with(|r| r.list(&filter))?;
    let more = tasks.len() as u32 == filter.limit;
    tasks.truncate(filter.limit as usize - 1);
    let all = tasks.len();
    let next = tasks.last().filter(|_| more).map(|t| t.task_id);
    tasks.retain(|t| who.sees(&house, t.principal, t.session_id));
    let next = next.filter(|_| who.sees == Sees::All && who.audience == Audience::Personal || tasks.len() == all);
    tasks.iter_mut().for_each(|task| super::place_in_line(&house, task));
    Ok(Json(json!({"tasks": tasks, "next": next})))
}

pub(crate) async fn show(State(house): Shared, who: Who, Segment(id): Segment, mut query: Query) -> Answer<Response> {
    let wait = query.parse::<u64>("wait_ms", "a time in milliseconds")?;
    query.nothing_else()?;
    let task = find_task(&house, &who, &id)?;
    Projections::warm(&house, task).await?;
    if let Some(ms) = wait {
        wait_for(&house, task, Duration::from_millis(ms).min(LONGEST_WAIT)).await?;
    }
    let json = house.projections.json(&house, task)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}
