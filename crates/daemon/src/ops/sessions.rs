//! Sessions: conversations, their directories and roots.

use super::{ApiResult, Ops, control, intake};
use crate::{
    caller::{Caller, Visibility},
    calls::AskCall,
    facts::{self, Prepared},
    peer,
    register_command::{RegisterCommand, RegisterReply},
    users::RunAs,
};
use countersign_model::{
    Audience, Command, CredentialKind, CredentialScope, DisplaySafe, Facts, IdMint, KilledWhy, OnSessionEnd, Process,
    Refusal, RefusalCode, Request, Session, SessionId, Status, TaskId, TaskRefusal, Text, Tool, Via,
    api::{Conversation, DirectoryBody, OpenSessionBody, SessionEnd, SessionMove, SessionPage, SessionQuery},
};
use countersign_redact::text_by_shape;
use countersign_store::{clock, is_person_terminal, proc, random, world};
use std::{os::unix::fs::DirBuilderExt as _, path::PathBuf, sync::Arc, time::Duration};

const PAGE: usize = 100;
const MAX_PAGE: usize = 500;
const MAX_TITLE_BYTES: usize = 200;
/// How often what should end with its session is looked for, and how long one of it may take to.
const PASSES: usize = 4;
const ENDING: Duration = Duration::from_secs(8);

/// The session that a request names, or that its credential is bound to; its directory is filled in. None when the
/// request belongs to the session of its place.
pub(crate) fn of_request(ops: &Ops, caller: &Caller, request: &mut Request) -> ApiResult<Option<Arc<Session>>> {
    let session = match (request.session_id, &caller.sees) {
        (Some(id), _) => Some(find_own(ops, caller, &id.to_string())?),
        (None, Visibility::Session(own)) => ops.roster.borrow().session(*own).cloned(),
        (None, Visibility::All | Visibility::Own) => None,
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
    Refusal::new(RefusalCode::SessionOver, format!("{} has ended", session.id)).hint("open another: csn sessions open")
}

/// The session of a credential's requests from one place, and whether it has to be opened.
pub(crate) fn implicit(ops: &Ops, caller: &Caller, facts: &Facts) -> (Arc<Session>, bool) {
    let place = facts.repositories.get(&facts.cwd.resolved).unwrap_or(&facts.cwd.resolved);
    let name = text_by_shape(&format!("{} {place}", caller.via));
    if let Some(known) = ops.roster.borrow().implicit(caller.principal, &name) {
        return (Arc::clone(known), false);
    }
    let mut session = new(caller);
    session.implicit = Some(name);
    session.directory = Some(text_by_shape(place));
    (Arc::new(session), true)
}

fn new(caller: &Caller) -> Session {
    let now = clock::now();
    Session {
        id: SessionId::mint(&mut IdMint::default(), now.millis(), u32::from_le_bytes(random())),
        principal: caller.principal,
        credential: caller.kind,
        audience: caller.audience,
        by: caller.via.clone(),
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

/// Opens a session; whether it is new. An agent that has one gets that.
pub(crate) async fn open(ops: &Arc<Ops>, caller: &Caller, opening: OpenSessionBody) -> ApiResult<(Arc<Session>, bool)> {
    caller.may(CredentialScope::Run)?;
    match caller.sees {
        // What an agent has is what it gets: another session would be another set of cards.
        Visibility::Session(own) => {
            let own = ops.roster.borrow().session(own).cloned();
            let gone = || Refusal::new(RefusalCode::NotFound, "the session of this agent is not there any more");
            return Ok((own.ok_or_else(gone)?, false));
        }
        Visibility::Own => {
            return Err(Refusal::new(RefusalCode::Forbidden, "who cannot be recognised opens no session").into());
        }
        Visibility::All => {}
    }
    let run_as = ops.run_as(caller.principal);
    let session = {
        let (ops, caller) = (Arc::clone(ops), caller.clone());
        crate::blocking(move || prepare(&ops, &caller, opening)).await??
    };
    let folder = session.folder.clone();
    match ops.commit.register(RegisterCommand::Open(Box::new(session))).await {
        Ok(RegisterReply::Session(session)) => Ok((session, true)),
        Ok(_) => Err(Refusal::new(RefusalCode::Internal, "no session came of it").into()),
        Err(refusal) => {
            // Nobody will ever work there.
            if let (Some(folder), Ok(run_as)) = (folder, run_as) {
                let _ = run_as.with_fs_ids(|| std::fs::remove_dir(folder.as_str()));
            }
            Err(refusal.into())
        }
    }
}

fn prepare(ops: &Ops, caller: &Caller, opening: OpenSessionBody) -> ApiResult<Session> {
    let run_as = ops.run_as(caller.principal)?;
    let mut session = new(caller);
    session.title = opening
        .title
        .map(|t| countersign_redact::text_bounded(&countersign_redact::Mask::of_shapes(), &t, MAX_TITLE_BYTES));
    session.agent = opening.agent_pid.map(|pid| above(caller, pid)).transpose()?;
    if session.agent.is_some() {
        session.credential = CredentialKind::Agent;
    }
    if let Some(directory) = opening.directory {
        let facts = place(&run_as, &directory)?;
        session.directory = Some(text_by_shape(&facts.cwd.resolved));
        session.roots =
            facts::root_of(&facts, run_as.home(), run_as.home(), &ops.gate).iter().map(|r| text_by_shape(r)).collect();
    }
    session.folder = Some(folder(&run_as, session.id)?);
    Ok(session)
}

const MAX_NAME_BYTES: usize = 200;

/// The session of an agent's conversation, opened at its first word; and whoever came, as its agent.
pub(crate) async fn conversation(
    ops: &Arc<Ops>,
    caller: &Caller,
    talking: &Conversation,
) -> ApiResult<(Caller, Arc<Session>)> {
    if talking.agent.is_empty() || talking.agent.len() + talking.id.len() > MAX_NAME_BYTES {
        return Err(Refusal::new(RefusalCode::BadRequest, "`agent` and `id` name a conversation in a few words").into());
    }
    let agent = match (&caller.sees, talking.agent_pid) {
        (Visibility::All, Some(pid)) => above(caller, pid)?,
        (Visibility::All, None) => {
            caller.process.ok_or_else(|| Refusal::new(RefusalCode::BadRequest, "`agent_pid` is missing"))?
        }
        (Visibility::Session(own), _) => {
            let own = ops.roster.borrow().session(*own).cloned();
            let own = own.ok_or_else(|| {
                Refusal::new(RefusalCode::NotFound, "the session of this agent is not there any more")
            })?;
            match own.agent {
                Some(agent) => agent,
                // An agent that runs as a task is part of what that task is part of.
                None => return Ok((caller.as_agent(&own), own)),
            }
        }
        (Visibility::Own, _) => {
            return Err(Refusal::new(RefusalCode::Forbidden, "who cannot be recognised has no session").into());
        }
    };
    let name = text_by_shape(&format!("{} {}", talking.agent, talking.id));
    let known = ops.roster.borrow().conversation(caller.principal, &name).cloned();
    if let Some(session) = known.filter(|s| s.agent == Some(agent)) {
        return Ok((caller.as_agent(&session), session));
    }
    let session = {
        let (ops, caller, cwd) = (Arc::clone(ops), caller.clone(), talking.cwd.clone());
        crate::blocking(move || begin(&ops, &caller, agent, &cwd, name)).await?
    };
    let session = session?;
    match ops.commit.register(RegisterCommand::Open(Box::new(session))).await? {
        RegisterReply::Session(session) => Ok((caller.as_agent(&session), session)),
        _ => Err(Refusal::new(RefusalCode::Internal, "no session came of it").into()),
    }
}

/// What an agent says of its directory is only what it says, once it is known for one: then its roots are those it has,
/// and where its process itself works.
fn begin(ops: &Ops, caller: &Caller, agent: Process, directory: &str, name: Text) -> ApiResult<Session> {
    let run_as = ops.run_as(caller.principal)?;
    let mut session = new(caller);
    (session.credential, session.agent) = (CredentialKind::Agent, Some(agent));
    session.by = Via::Agent;
    session.speaker = caller.process.filter(|_| caller.sees == Visibility::All);
    session.conversation = Some(name);
    let facts = place(&run_as, directory)?;
    session.directory = Some(text_by_shape(&facts.cwd.resolved));
    let root = facts::root_of(&facts, run_as.home(), run_as.home(), &ops.gate);
    let mut may = Vec::new();
    if let Visibility::Session(own) = caller.sees {
        let roster = ops.roster.borrow();
        may.extend(roster.session(own).into_iter().flat_map(|s| &s.roots).map(|r| r.as_str().to_owned()));
        let works = countersign_shim::as_owner_of(agent.pid, || proc::working_directory(agent.pid));
        let works = works.ok().and_then(|p| p.into_os_string().into_string().ok());
        let works = works.and_then(|dir| place(&run_as, &dir).ok());
        may.extend(works.and_then(|facts| facts::root_of(&facts, run_as.home(), run_as.home(), &ops.gate)));
    }
    let trusted = |root: &String| caller.sees == Visibility::All || countersign_policy::in_roots(root, &may);
    session.roots = root.iter().filter(|root| trusted(root)).map(|r| text_by_shape(r)).collect();
    session.folder = Some(folder(&run_as, session.id)?);
    Ok(session)
}

/// A process above whoever asks, so that nobody can make an agent of somebody else's.
fn above(caller: &Caller, pid: u32) -> ApiResult<Process> {
    let refused = || {
        TaskRefusal::from(
            Refusal::new(RefusalCode::BadRequest, format!("process {pid} is not above the one that asks"))
                .hint("`agent_pid` is the agent that started you"),
        )
    };
    if is_person_terminal(pid) {
        let refusal = Refusal::new(
            RefusalCode::BadRequest,
            format!("process {pid} is a person's, and what is theirs is below it"),
        );
        return Err(refusal.hint("start the agent from a script or by itself, and name that").into());
    }
    let mut at = caller.process.map(|p| p.pid).ok_or_else(refused)?;
    if at == pid {
        // Whoever was started by a person's own shell is the agent itself.
        return caller.process.ok_or_else(refused);
    }
    while at > 1 {
        let (_, parent) = peer::process(at).map_err(Refusal::from)?.ok_or_else(refused)?;
        // Somebody else's process would make agents of their others.
        let theirs = match caller.uid {
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

fn place(run_as: &RunAs, directory: &str) -> ApiResult<Facts> {
    let shown = || DisplaySafe::bounded(directory, 300).to_string();
    if !directory.starts_with('/') || directory.contains('\0') {
        return Err(Refusal::new(RefusalCode::BadRequest, format!("`{}` is not an absolute path", shown())).into());
    }
    let fact =
        run_as.with_fs_ids(|| world::path_fact(directory).filter(|f| std::path::Path::new(&f.resolved).is_dir()))?;
    let fact =
        fact.ok_or_else(|| Refusal::new(RefusalCode::BadRequest, format!("there is no directory {}", shown())))?;
    let mut facts = Facts { cwd: fact, ..Facts::none(directory) };
    if let Some(top) = run_as.with_fs_ids(|| world::find_repository(&facts.cwd.resolved))? {
        facts.repositories.insert(facts.cwd.resolved.clone(), top);
    }
    Ok(facts)
}

/// The folder of a session, made for it alone.
fn folder(run_as: &RunAs, id: SessionId) -> ApiResult<Text> {
    let var = |name: &str| run_as.base.get(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let data = var("XDG_DATA_HOME").or_else(|| var("HOME").map(|h| h.join(".local/share")));
    let data = data.ok_or_else(|| {
        Refusal::new(
            RefusalCode::Internal,
            "there is no place for the session's folder: neither XDG_DATA_HOME nor HOME is set",
        )
    })?;
    let path = data.join("countersign/sessions").join(id.to_string());
    let made = run_as.with_fs_ids(|| {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.and_then(|()| std::fs::canonicalize(&path))
    })?;
    match made {
        Ok(path) => Ok(text_by_shape(&path.to_string_lossy())),
        Err(e) => Err(Refusal::new(RefusalCode::Internal, format!("{} cannot be made: {e}", path.display())).into()),
    }
}

/// By a whole id, or the beginning of exactly one; one that may not be seen is not there.
fn find(ops: &Ops, caller: &Caller, text: &str) -> ApiResult<Arc<Session>> {
    let prefix = if text.starts_with("se_") { text.to_owned() } else { format!("se_{text}") };
    let unknown = || {
        Refusal::new(RefusalCode::NotFound, format!("there is no session {}", DisplaySafe::bounded(text, 60)))
            .hint("`csn sessions list` shows them")
    };
    let roster = Arc::clone(&ops.roster.borrow());
    let mut found = roster.sessions().filter(|s| {
        prefix.len() >= 7
            && s.id.to_string().starts_with(&prefix)
            && caller.sees(&ops.records.roster(), s.principal, Some(s.id))
    });
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(Arc::clone(one)),
        (Some(_), Some(_)) => {
            Err(Refusal::new(RefusalCode::AmbiguousId, format!("more than one session begins with {prefix}"))
                .hint("give more characters of the id")
                .into())
        }
        (None, _) => Err(unknown().into()),
    }
}

/// One that whoever asks may use, not only see.
pub(crate) fn find_own(ops: &Ops, caller: &Caller, text: &str) -> ApiResult<Arc<Session>> {
    let session = find(ops, caller, text)?;
    if caller.controls(&ops.records.roster(), session.principal, Some(session.id)) {
        return Ok(session);
    }
    Err(Refusal::new(RefusalCode::Forbidden, format!("{} was opened by somebody else", session.id))
        .hint("open your own: csn sessions open")
        .into())
}

pub(crate) fn show(ops: &Ops, caller: &Caller, id: &str) -> ApiResult<Arc<Session>> {
    caller.may(CredentialScope::Observe)?;
    find(ops, caller, id)
}

/// Sessions, newest first: those that go on, or all.
pub(crate) fn list(ops: &Ops, caller: &Caller, query: SessionQuery) -> ApiResult<SessionPage> {
    caller.may(CredentialScope::Observe)?;
    let limit = super::page_limit(query.limit, PAGE, MAX_PAGE)?;
    let roster = ops.records.roster();
    let wanted = |s: &&Arc<Session>| {
        (query.all || s.ended_at.is_none())
            && query.cursor.is_none_or(|before| s.id < before)
            && caller.sees(&roster, s.principal, Some(s.id))
    };
    let mut page: Vec<&Arc<Session>> = roster.sessions().rev().filter(wanted).take(limit + 1).collect();
    let more = page.len() > limit;
    page.truncate(limit);
    let next = page.last().filter(|_| more).map(|s| s.id);
    Ok(SessionPage { sessions: page.into_iter().map(|s| (**s).clone()).collect(), next })
}

/// Inside a root the session only moves; outside, a person is asked to let it read there.
pub(crate) async fn set_directory(
    ops: &Arc<Ops>,
    caller: &Caller,
    id: &str,
    body: DirectoryBody,
) -> ApiResult<SessionMove> {
    caller.may(CredentialScope::Run)?;
    let session = find_own(ops, caller, id)?;
    if session.ended_at.is_some() {
        return Err(over(&session).into());
    }
    if session.implicit.is_some() {
        return Err(Refusal::new(
            RefusalCode::WrongMode,
            "nobody opened this session: each request names its own directory",
        )
        .into());
    }
    if session.audience == Audience::Public {
        return Err(Refusal::new(RefusalCode::NotForAudience, "strangers work in their own folder").into());
    }
    let moving = {
        let (ops, caller, session) = (Arc::clone(ops), caller.clone(), Arc::clone(&session));
        crate::blocking(move || moving(&ops, &caller, &session, &body.directory)).await??
    };
    match moving {
        DirectoryTarget::Inside(directory) => {
            match ops.commit.register(RegisterCommand::Move { session: session.id, directory }).await? {
                RegisterReply::Session(session) => Ok(SessionMove::There(Box::new((*session).clone()))),
                _ => Err(Refusal::new(RefusalCode::Internal, "no session came of it").into()),
            }
        }
        DirectoryTarget::Asked(asking) => {
            let asked = intake::commit_ask(ops, *asking).await?;
            let state = match asked.state {
                Some(state) => state,
                None => Box::new(ops.records.state(asked.task)?),
            };
            Ok(SessionMove::Asked(state))
        }
    }
}

enum DirectoryTarget {
    Inside(Text),
    Asked(Box<AskCall>),
}

fn moving(ops: &Ops, caller: &Caller, session: &Session, directory: &str) -> ApiResult<DirectoryTarget> {
    let run_as = ops.run_as(caller.principal)?;
    let facts = place(&run_as, directory)?;
    let to = &facts.cwd.resolved;
    let own = session.roots.iter().chain(&session.folder).map(|r| r.as_str().to_owned());
    let roots: Vec<String> = own.chain(ops.gate.roots.iter().cloned()).collect();
    if countersign_policy::in_roots(to, &roots) {
        return Ok(DirectoryTarget::Inside(text_by_shape(to)));
    }
    let args = Command { cwd: Some(to.clone()), ..Command::default() };
    let request = Request { session_id: Some(session.id), ..Request::new(Tool::SetWorkingDirectory, args) };
    let prepared: Prepared = facts::prepare(&request, &ops.key, &run_as)?;
    let can = countersign_policy::can_be_root(
        to,
        &prepared.home,
        &ops.gate.protected,
        facts.repositories.get(to) == Some(to),
    );
    let mut asking = intake::asking(ops, caller, request, prepared, session, None, None)?;
    if !can {
        asking.refused = Some(
            Refusal::new(RefusalCode::ProtectedPath, format!("{} can be no root", DisplaySafe::bounded(to, 300)))
                .hint("a root is a project: not /, not a home, nothing that holds keys"),
        );
    }
    Ok(DirectoryTarget::Asked(Box::new(asking)))
}

/// Ends a session: its grants go, and those of its tasks that were to end with it.
pub(crate) async fn end(ops: &Arc<Ops>, caller: &Caller, id: &str) -> ApiResult<SessionEnd> {
    caller.may(CredentialScope::Run)?;
    let session = find_own(ops, caller, id)?;
    let by = caller.actor();
    // A second call goes on with what the first could not stop.
    if session.ended_at.is_none() {
        ops.commit.register(RegisterCommand::End { session: session.id, by: by.clone() }).await?;
    }
    let mut stopped = Vec::new();
    let mut left = Vec::new();
    for _ in 0..PASSES {
        left = stoppable(ops, session.id)?;
        if left.is_empty() {
            break;
        }
        // Those that wait first: none of them should begin while others end.
        left.sort_by_key(|(_, status)| *status != Status::Queued);
        for (task, status) in &left {
            let done = match status {
                Status::Queued => control::withdraw(ops, *task, by.clone()).await,
                _ => control::stop(ops, *task, by.clone(), None, KilledWhy::SessionEnd).await.map(drop),
            };
            // One that began, ended or could not be reached meanwhile is looked at again.
            if done.is_ok() && !stopped.contains(task) {
                stopped.push(*task);
            }
        }
        for (task, _) in &left {
            ops.records.wait_for(*task, ENDING).await?;
        }
    }
    let left: Vec<TaskId> = left.into_iter().map(|(task, _)| task).filter(|t| !stopped.contains(t)).collect();
    let ended = ops.roster.borrow().session(session.id).cloned().unwrap_or(session);
    Ok(SessionEnd { session: (*ended).clone(), stopped, left })
}

/// The tasks that were to end with their session, and have not.
fn stoppable(ops: &Ops, session: SessionId) -> ApiResult<Vec<(TaskId, Status)>> {
    let mut found = Vec::new();
    for task in ops.records.ledger(|r| r.open_tasks_of_session(session))? {
        let state = ops.records.state(task)?;
        let ends =
            state.request.on_session_end == OnSessionEnd::Stop || state.request.tool == Tool::SetWorkingDirectory;
        if ends && !state.settled() {
            found.push((task, state.status));
        }
    }
    Ok(found)
}
