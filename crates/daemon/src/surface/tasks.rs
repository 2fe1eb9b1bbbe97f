//! `/tasks`: asking, listing, looking, stopping.

use super::{
    Answer, Projections, Shared, find_task,
    problem::{Problem, Query, Segment, Whole, body},
};
use crate::{
    facts,
    house::House,
    office::{Asking, Call},
};
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use countersign_model::{
    Assessment, Audience, Code, Confinement, CredentialKind, Decision, HouseState, Idempotency, Outcome, Plan,
    PrincipalId, Refusal, Request, Status, StreamName, TaskId, TaskState, Text,
};
use countersign_redact::{Known, Mask, text, text_bounded};
use countersign_store::ledger::Filter;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// A list page, unless the asker names a size.
const PAGE: u32 = 50;
const LARGEST_PAGE: u32 = 500;
/// How long an answer may be waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Titles, rationales and reasons are bounded; commands are not.
pub(crate) const LONGEST_TEXT: usize = 4096;

pub(crate) async fn ask(State(house): Shared, headers: HeaderMap, Whole(bytes): Whole) -> Answer<Response> {
    let state = *house.state.borrow();
    if state != HouseState::Running {
        return Err(Refusal::new(Code::Draining, "the house is not taking requests")
            .hint("try again in a moment")
            .into());
    }
    let mut request: Request = body(&bytes)?;
    let wait = request.wait_ms.take().map(|ms| Duration::from_millis(ms).min(LONGEST_WAIT));
    let idempotency = idempotency(&house, &headers, "POST /tasks", &bytes)?;
    let asking = {
        let house = Arc::clone(&house);
        tokio::task::spawn_blocking(move || consider(&house, request, idempotency)).await
    };
    let asking = asking.map_err(|e| Refusal::new(Code::Internal, e.to_string()))??;
    let (reply, answer) = oneshot::channel();
    let gone = || Refusal::new(Code::Draining, "the house is going down");
    house.calls.send(Call::Ask { asking: Box::new(asking), reply }).map_err(|_| gone())?;
    let asked = answer.await.map_err(|_| gone())??;
    if let Some(refusal) = asked.denied {
        return Err(Problem::from(refusal).of_task(asked.task));
    }
    let replayed = asked.state.is_none();
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

/// The answer to a request that was denied when it first came.
fn denied_before(reason: &Text) -> Problem {
    let code = Code::ALL.iter().copied().find(|c| c.as_str() == reason.as_str()).unwrap_or(Code::Forbidden);
    Refusal::new(code, format!("denied before, under the same Idempotency-Key: {}", reason.as_str().replace('_', " ")))
        .into()
}

pub(crate) fn idempotency(
    house: &House,
    headers: &HeaderMap,
    route: &str,
    bytes: &[u8],
) -> Answer<Option<Idempotency>> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    if key.is_empty() || key.len() > 255 {
        return Err(Refusal::new(Code::BadRequest, "`Idempotency-Key` takes 1 to 255 characters").into());
    }
    let owner = PrincipalId::owner().to_string();
    Ok(Some(Idempotency {
        key: house.key.digest("idempotency-key", &[owner.as_bytes(), route.as_bytes(), key.as_bytes()]),
        body: house.key.digest("idempotency-body", &[bytes]),
    }))
}

/// Reads, looks and judges: everything before the desk.
fn consider(house: &House, mut request: Request, idempotency: Option<Idempotency>) -> Answer<Asking> {
    let profile = request.profile.unwrap_or(house.config.profile);
    let credential = CredentialKind::Person;
    facts::bound(&mut request, &house.config, credential)?;
    let looked = facts::look(&request, &house.key, &house.base_env)?;
    let workspace = request.workspace.as_deref().map(crate::publish::workspace).transpose()?;
    let cwd = looked.facts.cwd.resolved.clone();
    let assessment = facts::assess(&request, &looked, &house.gate);
    let known = Known::of_env(looked.env.iter().map(|(k, v)| (k.as_str(), v.as_str())));
    let mask = Mask::new(house.key.digest("mask", &[b"plan"]), known);
    let clean = |raw: &str| text_bounded(&mask, raw, LONGEST_TEXT);
    // Whole, however long: what a person approves is all there is.
    let whole = |raw: &str| text(&mask, raw);
    let display = match (&request.args.command, &request.args.argv) {
        (Some(text), _) => whole(text),
        (None, argv) => whole(&argv.iter().flatten().map(|w| quoted(w)).collect::<Vec<_>>().join(" ")),
    };
    let planned = Decision::Planned {
        plan_digest: looked.plan_digest,
        display: display.clone(),
        verb: clean(&verbs(&looked.plan, &assessment)),
        cwd: clean(&cwd),
        mode: request.mode,
        tool: request.tool,
        title: request.title.as_deref().map(clean),
        rationale: request.rationale.as_deref().map(clean),
        session: request.session_id,
        principal: PrincipalId::owner(),
        credential,
        risks: assessment.risk_set(),
        audience: Audience::Personal,
        profile,
        background: request.background,
        limits: Box::new(request.limits),
        workspace: workspace.as_deref().map(clean),
        idempotency: idempotency.map(Box::new),
    };
    // Nothing confines yet: what only reads asks, and what a person lets run runs open.
    let confinement = Confinement::None;
    Ok(Asking {
        request,
        looked,
        planned,
        answer: assessment.answer,
        uncovered: vec![display],
        confinement,
        idempotency,
    })
}

/// The verbs that matter: those that nothing covers, else all of them.
fn verbs(plan: &Plan, assessment: &Assessment) -> String {
    let own = || plan.occurrences.iter().zip(&assessment.coverage).filter(|(o, _)| !o.shadow);
    let uncovered: Vec<&str> = own().filter(|(_, c)| !c.holds()).map(|(o, _)| o.verb.as_str()).collect();
    let mut all = if uncovered.is_empty() { own().map(|(o, _)| o.verb.as_str()).collect() } else { uncovered };
    all.dedup();
    all.join(", ")
}

/// A word as a shell would need it.
fn quoted(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./=:,@%+".contains(&b);
    match !word.is_empty() && word.bytes().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
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
fn bounded_output(house: &House, state: &TaskState) -> Answer<Value> {
    let mut streams = serde_json::Map::new();
    for &stream in StreamName::of(state.mode) {
        if state.streams.contains_key(&stream) {
            let bytes = super::output::ends(house, state, stream)?;
            streams.insert(stream.to_string(), bytes);
        }
    }
    Ok(Value::Object(streams))
}

pub(crate) async fn list(State(house): Shared, mut query: Query) -> Answer<Json<Value>> {
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
        session: query.text("session"),
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
    tasks.iter_mut().for_each(|task| super::place_in_line(&house, task));
    let next = tasks.last().filter(|_| more).map(|t| t.task_id);
    Ok(Json(json!({"tasks": tasks, "next": next})))
}

pub(crate) async fn show(State(house): Shared, Segment(id): Segment, mut query: Query) -> Answer<Response> {
    let wait = query.parse::<u64>("wait_ms", "a time in milliseconds")?;
    query.nothing_else()?;
    let task = find_task(&house, &id)?;
    Projections::warm(&house, task).await?;
    if let Some(ms) = wait {
        wait_for(&house, task, Duration::from_millis(ms).min(LONGEST_WAIT)).await?;
    }
    let json = house.projections.json(&house, task)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}
