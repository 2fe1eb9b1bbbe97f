//! `/sessions`: conversations, their directories and roots.

use super::{
    Answer, Shared,
    arrive::{Sees, Who},
    control,
    problem::{Problem, Query, Segment, Whole, body},
    tasks,
};
use crate::{
    facts::{self, Looked},
    house::House,
    peer,
    people::Eyes,
    wish::{Kept, Wish},
};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use countersign_model::{
    Audience, Code, Command, CredentialKind, Facts, IdMint, KilledWhy, OnSessionEnd, Process, Refusal, Request,
    Session, SessionId, Shown, Status, TaskId, Text, Tool,
};
use countersign_redact::text_by_shape;
use countersign_store::{clock, is_a_persons, random, world};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{os::unix::fs::DirBuilderExt as _, path::PathBuf, sync::Arc, time::Duration};

const PAGE: usize = 100;
const LARGEST_PAGE: usize = 500;
const LONGEST_TITLE: usize = 200;
/// How often what should end with its session is looked for, and how long one of it may take to.
const PASSES: usize = 4;
const ENDING: Duration = Duration::from_secs(8);

/// The session that a request names, or that its credential is bound to; its directory is filled in. None when the
/// request belongs to the session of its place.
pub(crate) fn of_request(house: &House, who: &Who, request: &mut Request) -> Answer<Option<Arc<Session>>> {
    let session = match (request.session_id, &who.sees) {
        (Some(id), _) => Some(find_own(house, who, &id.to_string())?),
        (None, Sees::Session(own)) => house.roster.borrow().session(*own).cloned(),
        (None, Sees::All | Sees::Own) => None,
    };
    let Some(session) = session else { return Ok(None) };
    if session.ended_at.is_some() {
        return Err(over(&session).into());
    }
    if request.args.cwd.is_none() {
        let place = session.directory.as_ref().or(session.folder.as_ref());
        request.args.cwd = place.map(|d| d.as_str().to_owned());
    }
    Ok(Some(session))
}

fn over(session: &Session) -> Refusal {
    Refusal::new(Code::SessionOver, format!("{} has ended", session.id)).hint("open another: csn sessions open")
}

/// The session of a credential's requests from one place, and whether it has to be opened.
pub(crate) fn implicit(house: &House, who: &Who, facts: &Facts) -> (Arc<Session>, bool) {
    let place = facts.repositories.get(&facts.cwd.resolved).unwrap_or(&facts.cwd.resolved);
    let name = text_by_shape(&format!("{} {place}", who.name));
    if let Some(known) = house.roster.borrow().implicit(who.principal, &name) {
        return (Arc::clone(known), false);
    }
    let mut session = new(who);
    session.implicit = Some(name);
    session.directory = Some(text_by_shape(place));
    (Arc::new(session), true)
}

fn new(who: &Who) -> Session {
    let now = clock::now();
    Session {
        id: SessionId::mint(&mut IdMint::default(), now.millis(), u32::from_le_bytes(random())),
        principal: who.principal,
        credential: who.kind,
        audience: who.audience,
        by: who.name.clone(),
        directory: None,
        roots: Vec::new(),
        folder: None,
        implicit: None,
        title: None,
        conversation: None,
        agent: None,
        speaker: None,
        opened_at: now,
        ended_at: None,
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Opening {
    /// Where its requests run that name no directory; the first root comes from it.
    #[serde(default)]
    directory: Option<String>,
    #[serde(default)]
    title: Option<String>,
    /// A process above the one that asks: from now on everything below it is an agent, in this session.
    #[serde(default)]
    agent_pid: Option<u32>,
}

pub(crate) async fn open(State(house): Shared, who: Who, Whole(bytes): Whole) -> Answer<Response> {
    let opening: Opening = if bytes.is_empty() { Opening::default() } else { body(&bytes)? };
    if let Sees::Session(own) = who.sees {
        // What an agent has is what it gets: another session would be another set of cards.
        let own = house.roster.borrow().session(own).cloned();
        return match own {
            Some(own) => Ok((StatusCode::OK, Json(shown(&own))).into_response()),
            None => Err(Refusal::new(Code::NotFound, "the session of this agent is not there any more").into()),
        };
    }
    if who.sees == Sees::Own {
        return Err(Refusal::new(Code::Forbidden, "who cannot be recognised opens no session").into());
    }
    let eyes = house.eyes(who.principal);
    let session = {
        let house = Arc::clone(&house);
        tokio::task::spawn_blocking(move || prepare(&house, &who, opening)).await
    };
    let session = session.map_err(|e| Refusal::new(Code::Internal, e.to_string()))??;
    let folder = session.folder.clone();
    match house.wish(Wish::Open(Box::new(session))).await {
        Ok(Kept::Session(session)) => Ok((StatusCode::CREATED, Json(shown(&session))).into_response()),
        Ok(_) => Err(Refusal::new(Code::Internal, "no session came of it").into()),
        Err(problem) => {
            // Nobody will ever work there.
            let _ = folder.zip(eyes.ok()).map(|(f, eyes)| eyes.see(|| std::fs::remove_dir(f.as_str())));
            Err(problem)
        }
    }
}

fn prepare(house: &House, who: &Who, opening: Opening) -> Answer<Session> {
    let eyes = house.eyes(who.principal)?;
    let mut session = new(who);
    session.title = opening
        .title
        .map(|t| countersign_redact::text_bounded(&countersign_redact::Mask::of_shapes(), &t, LONGEST_TITLE));
    session.agent = opening.agent_pid.map(|pid| above(who, pid)).transpose()?;
    if session.agent.is_some() {
        session.credential = CredentialKind::Agent;
    }
    if let Some(directory) = opening.directory {
        let facts = place(&eyes, &directory)?;
        session.directory = Some(text_by_shape(&facts.cwd.resolved));
        session.roots =
            facts::root_of(&facts, eyes.home(), eyes.home(), &house.gate).iter().map(|r| text_by_shape(r)).collect();
    }
    session.folder = Some(folder(&eyes, session.id)?);
    Ok(session)
}

/// A conversation of an agent, as its hook or its client tells of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Talking {
    /// Which agent this is.
    pub(crate) agent: String,
    /// What it calls the conversation.
    pub(crate) id: String,
    pub(crate) cwd: String,
    /// The process of the agent; without one whoever comes is known for an agent already.
    #[serde(default)]
    pub(crate) agent_pid: Option<u32>,
}

const LONGEST_NAME: usize = 200;

/// The session of an agent's conversation, opened at its first word; and whoever came, as its agent.
pub(crate) async fn conversation(house: &Arc<House>, who: &Who, talking: &Talking) -> Answer<(Who, Arc<Session>)> {
    if talking.agent.is_empty() || talking.agent.len() + talking.id.len() > LONGEST_NAME {
        return Err(Refusal::new(Code::BadRequest, "`agent` and `id` name a conversation in a few words").into());
    }
    let agent = match (&who.sees, talking.agent_pid) {
        (Sees::All, Some(pid)) => above(who, pid)?,
        (Sees::All, None) => who.process.ok_or_else(|| Refusal::new(Code::BadRequest, "`agent_pid` is missing"))?,
        (Sees::Session(own), _) => {
            let own = house.roster.borrow().session(*own).cloned();
            let own =
                own.ok_or_else(|| Refusal::new(Code::NotFound, "the session of this agent is not there any more"))?;
            match own.agent {
                Some(agent) => agent,
                // An agent that runs as a task is part of what that task is part of.
                None => return Ok((who.as_agent(&own), own)),
            }
        }
        (Sees::Own, _) => return Err(Refusal::new(Code::Forbidden, "who cannot be recognised has no session").into()),
    };
    let name = text_by_shape(&format!("{} {}", talking.agent, talking.id));
    let known = house.roster.borrow().conversation(who.principal, &name).cloned();
    if let Some(session) = known.filter(|s| s.agent == Some(agent)) {
        return Ok((who.as_agent(&session), session));
    }
    let session = {
        let (house, who, cwd) = (Arc::clone(house), who.clone(), talking.cwd.clone());
        tokio::task::spawn_blocking(move || begin(&house, &who, agent, &cwd, name)).await
    };
    let session = session.map_err(|e| Refusal::new(Code::Internal, e.to_string()))??;
    match house.wish(Wish::Open(Box::new(session))).await? {
        Kept::Session(session) => Ok((who.as_agent(&session), session)),
        _ => Err(Refusal::new(Code::Internal, "no session came of it").into()),
    }
}

/// What an agent says of its directory is only what it says, once it is known for one: then its roots are those it has,
/// and where its process itself works.
fn begin(house: &House, who: &Who, agent: Process, directory: &str, name: Text) -> Answer<Session> {
    let eyes = house.eyes(who.principal)?;
    let mut session = new(who);
    (session.credential, session.agent) = (CredentialKind::Agent, Some(agent));
    session.by = Text::of("agent");
    session.speaker = who.process.filter(|_| who.sees == Sees::All);
    session.conversation = Some(name);
    let facts = place(&eyes, directory)?;
    session.directory = Some(text_by_shape(&facts.cwd.resolved));
    let root = facts::root_of(&facts, eyes.home(), eyes.home(), &house.gate);
    let mut may = Vec::new();
    if let Sees::Session(own) = who.sees {
        let roster = house.roster.borrow();
        may.extend(roster.session(own).into_iter().flat_map(|s| &s.roots).map(|r| r.as_str().to_owned()));
        let works = countersign_shim::as_owner_of(agent.pid, || std::fs::read_link(format!("/proc/{}/cwd", agent.pid)));
        let works = works.ok().and_then(|p| p.into_os_string().into_string().ok());
        let works = works.and_then(|dir| place(&eyes, &dir).ok());
        may.extend(works.and_then(|facts| facts::root_of(&facts, eyes.home(), eyes.home(), &house.gate)));
    }
    let trusted = |root: &String| who.sees == Sees::All || countersign_policy::in_roots(root, &may);
    session.roots = root.iter().filter(|root| trusted(root)).map(|r| text_by_shape(r)).collect();
    session.folder = Some(folder(&eyes, session.id)?);
    Ok(session)
}

/// A process above whoever asks, so that nobody can make an agent of somebody else's.
fn above(who: &Who, pid: u32) -> Answer<Process> {
    let refused = || {
        Problem::from(
            Refusal::new(Code::BadRequest, format!("process {pid} is not above the one that asks"))
                .hint("`agent_pid` is the agent that started you"),
        )
    };
    if is_a_persons(pid) {
        let refusal =
            Refusal::new(Code::BadRequest, format!("process {pid} is a person's, and what is theirs is below it"));
        return Err(refusal.hint("start the agent from a script or by itself, and name that").into());
    }
    let mut at = who.process.map(|p| p.pid).ok_or_else(refused)?;
    if at == pid {
        // Whoever was started by a person's own shell is the agent itself.
        return who.process.ok_or_else(refused);
    }
    while at > 1 {
        let (_, parent) = peer::process(at).map_err(Refusal::from)?.ok_or_else(refused)?;
        // Somebody else's process would make agents of their others.
        let theirs = match who.uid {
            Some(uid) if parent == pid => peer::runs_as(pid, uid).map_err(Refusal::from)?,
            _ => true,
        };
        if parent == pid && pid > 0 && theirs {
            let found = peer::process(pid).map_err(Refusal::from)?;
            return found.map(|(process, _)| process).ok_or_else(refused);
        }
        at = parent;
    }
    Err(refused())
}

fn place(eyes: &Eyes, directory: &str) -> Answer<Facts> {
    let shown = || Shown::bounded(directory, 300).to_string();
    if !directory.starts_with('/') || directory.contains('\0') {
        return Err(Refusal::new(Code::BadRequest, format!("`{}` is not an absolute path", shown())).into());
    }
    let fact = eyes.see(|| world::path_fact(directory).filter(|f| std::path::Path::new(&f.resolved).is_dir()))?;
    let fact = fact.ok_or_else(|| Refusal::new(Code::BadRequest, format!("there is no directory {}", shown())))?;
    let mut facts = Facts { cwd: fact, ..Facts::none(directory) };
    if let Some(top) = eyes.see(|| world::repository(&facts.cwd.resolved))? {
        facts.repositories.insert(facts.cwd.resolved.clone(), top);
    }
    Ok(facts)
}

/// The folder of a session, made for it alone.
fn folder(eyes: &Eyes, id: SessionId) -> Answer<Text> {
    let var = |name: &str| eyes.base.get(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let data = var("XDG_DATA_HOME").or_else(|| var("HOME").map(|h| h.join(".local/share")));
    let data = data.ok_or_else(|| {
        Refusal::new(
            Code::Internal,
            "there is no place for the session's folder: neither XDG_DATA_HOME nor HOME is set",
        )
    })?;
    let path = data.join("countersign/sessions").join(id.to_string());
    let made = eyes.see(|| {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.and_then(|()| std::fs::canonicalize(&path))
    })?;
    match made {
        Ok(path) => Ok(text_by_shape(&path.to_string_lossy())),
        Err(e) => Err(Refusal::new(Code::Internal, format!("{} cannot be made: {e}", path.display())).into()),
    }
}

/// By a whole id, or the beginning of exactly one; one that may not be seen is not there.
fn find(house: &House, who: &Who, text: &str) -> Answer<Arc<Session>> {
    let prefix = if text.starts_with("se_") { text.to_owned() } else { format!("se_{text}") };
    let unknown = || {
        Refusal::new(Code::NotFound, format!("there is no session {}", Shown::bounded(text, 60)))
            .hint("`csn sessions list` shows them")
    };
    let roster = Arc::clone(&house.roster.borrow());
    let mut found = roster.sessions().filter(|s| {
        prefix.len() >= 7 && s.id.to_string().starts_with(&prefix) && who.sees(house, s.principal, Some(s.id))
    });
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(Arc::clone(one)),
        (Some(_), Some(_)) => {
            Err(Refusal::new(Code::AmbiguousId, format!("more than one session begins with {prefix}"))
                .hint("give more characters of the id")
                .into())
        }
        (None, _) => Err(unknown().into()),
    }
}

/// One that whoever asks may use, not only see.
pub(crate) fn find_own(house: &House, who: &Who, text: &str) -> Answer<Arc<Session>> {
    let session = find(house, who, text)?;
    match who.controls(house, session.principal, Some(session.id)) {
        true => Ok(session),
        false => Err(Refusal::new(Code::Forbidden, format!("{} was opened by somebody else", session.id))
            .hint("open your own: csn sessions open")
            .into()),
    }
}

fn shown(session: &Session) -> Value {
    json!(session)
}

pub(crate) async fn show(State(house): Shared, who: Who, Segment(id): Segment) -> Answer<Json<Value>> {
    Ok(Json(shown(&*find(&house, &who, &id)?)))
}

pub(crate) async fn list(State(house): Shared, who: Who, mut query: Query) -> Answer<Json<Value>> {
    let all = query.parse::<bool>("all", "true or false")?.unwrap_or(false);
    let before = query.parse::<SessionId>("cursor", "the `next` of an earlier page")?;
    let limit = query.limit(PAGE, LARGEST_PAGE)?;
    query.nothing_else()?;
    let roster = Arc::clone(&house.roster.borrow());
    let wanted = |s: &&Arc<Session>| {
        (all || s.ended_at.is_none())
            && before.is_none_or(|before| s.id < before)
            && who.sees(&house, s.principal, Some(s.id))
    };
    let mut page: Vec<&Arc<Session>> = roster.sessions().rev().filter(wanted).take(limit + 1).collect();
    let more = page.len() > limit;
    page.truncate(limit);
    let next = page.last().filter(|_| more).map(|s| s.id);
    Ok(Json(json!({"sessions": page.iter().map(|s| shown(s)).collect::<Vec<_>>(), "next": next})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Directory {
    directory: String,
}

/// Inside a root the session only moves; outside, a person is asked to let it read there.
pub(crate) async fn set_directory(
    State(house): Shared,
    who: Who,
    Segment(id): Segment,
    Whole(bytes): Whole,
) -> Answer<Response> {
    let Directory { directory } = body(&bytes)?;
    let session = find_own(&house, &who, &id)?;
    if session.ended_at.is_some() {
        return Err(over(&session).into());
    }
    if session.implicit.is_some() {
        return Err(
            Refusal::new(Code::WrongMode, "nobody opened this session: each request names its own directory").into()
        );
    }
    if session.audience == Audience::Public {
        return Err(Refusal::new(Code::NotForAudience, "strangers work in their own folder").into());
    }
    let asked = {
        let (house, session) = (Arc::clone(&house), Arc::clone(&session));
        tokio::task::spawn_blocking(move || moving(&house, &who, &session, &directory)).await
    };
    match asked.map_err(|e| Refusal::new(Code::Internal, e.to_string()))?? {
        Moving::Inside(directory) => match house.wish(Wish::Move { session: session.id, directory }).await? {
            Kept::Session(session) => Ok(Json(shown(&session)).into_response()),
            _ => Err(Refusal::new(Code::Internal, "no session came of it").into()),
        },
        Moving::Asked(asking) => {
            let asked = tasks::put(&house, *asking).await?;
            let state = match asked.state {
                Some(state) => *state,
                None => house.projections.state(&house, asked.task)?,
            };
            Ok((StatusCode::ACCEPTED, Json(json!(state))).into_response())
        }
    }
}

enum Moving {
    Inside(Text),
    Asked(Box<crate::office::Asking>),
}

fn moving(house: &House, who: &Who, session: &Session, directory: &str) -> Answer<Moving> {
    let eyes = house.eyes(who.principal)?;
    let facts = place(&eyes, directory)?;
    let to = &facts.cwd.resolved;
    let own = session.roots.iter().chain(&session.folder).map(|r| r.as_str().to_owned());
    let roots: Vec<String> = own.chain(house.gate.roots.iter().cloned()).collect();
    if countersign_policy::in_roots(to, &roots) {
        return Ok(Moving::Inside(text_by_shape(to)));
    }
    let args = Command { cwd: Some(to.clone()), ..Command::default() };
    let request = Request { session_id: Some(session.id), ..Request::new(Tool::SetWorkingDirectory, args) };
    let looked: Looked = facts::look(&request, &house.key, &eyes)?;
    let can = countersign_policy::can_be_root(
        to,
        &looked.home,
        &house.gate.protected,
        facts.repositories.get(to) == Some(to),
    );
    let mut asking = tasks::asking(house, who, request, looked, session, None, None)?;
    if !can {
        asking.refused = Some(
            Refusal::new(Code::ProtectedPath, format!("{} can be no root", Shown::bounded(to, 300)))
                .hint("a root is a project: not /, not a home, nothing that holds keys"),
        );
    }
    Ok(Moving::Asked(Box::new(asking)))
}

/// Ends a session: its grants go, and those of its tasks that were to end with it.
pub(crate) async fn end(State(house): Shared, who: Who, Segment(id): Segment) -> Answer<Json<Value>> {
    let session = find_own(&house, &who, &id)?;
    let by = who.actor();
    // A second call goes on with what the first could not stop.
    if session.ended_at.is_none() {
        house.wish(Wish::End { session: session.id, by: by.clone() }).await?;
    }
    let mut stopped = Vec::new();
    let mut left = Vec::new();
    for _ in 0..PASSES {
        left = stoppable(&house, session.id)?;
        if left.is_empty() {
            break;
        }
        // Those that wait first: none of them should begin while others end.
        left.sort_by_key(|(_, status)| *status != Status::Queued);
        for (task, status) in &left {
            let done = match status {
                Status::Queued => control::withdraw(&house, *task, by.clone()).await,
                _ => control::stop(&house, *task, by.clone(), None, KilledWhy::SessionEnd).await.map(drop),
            };
            // One that began, ended or could not be reached meanwhile is looked at again.
            if done.is_ok() && !stopped.contains(task) {
                stopped.push(*task);
            }
        }
        for (task, _) in &left {
            tasks::wait_for(&house, *task, ENDING).await?;
        }
    }
    let left: Vec<TaskId> = left.into_iter().map(|(task, _)| task).filter(|t| !stopped.contains(t)).collect();
    let ended = house.roster.borrow().session(session.id).cloned().unwrap_or(session);
    Ok(Json(json!({"session": shown(&ended), "stopped": stopped, "left": left})))
}

/// The tasks that were to end with their session, and have not.
fn stoppable(house: &House, session: SessionId) -> Answer<Vec<(TaskId, Status)>> {
    let mut found = Vec::new();
    for task in house.readers.with(|r| r.open_in(session))? {
        let state = house.projections.state(house, task)?;
        let ends = state.on_session_end == OnSessionEnd::Stop || state.tool == Tool::SetWorkingDirectory;
        if ends && !state.settled() {
            found.push((task, state.status));
        }
    }
    Ok(found)
}
