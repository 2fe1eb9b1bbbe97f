//! Sessions: conversations, with their directories and roots.

use super::{ApiResult, Ops, control, intake};
use crate::{
    caller::{Caller, Visibility},
    calls::AskCall,
    facts::{self, PreparedRequest},
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

const DEFAULT_PAGE_ITEMS: usize = 100;
const MAX_PAGE_ITEMS: usize = 500;
const MAX_TITLE_BYTES: usize = 200;
/// How often the tasks that end with their session are listed, and how long each may take to end.
const STOP_PASSES: usize = 4;
const TASK_STOP_TIMEOUT: Duration = Duration::from_secs(8);

/// The session that a request names or that its credential is bound to. Fills in its directory. None if the request
/// belongs to the implicit session of its directory.
pub(crate) fn session_of_request(ops: &Ops, caller: &Caller, request: &mut Request) -> ApiResult<Option<Arc<Session>>> {
    let session = match (request.session_id, &caller.visibility) {
        (Some(id), _) => Some(find_controlled_session(ops, caller, &id.to_string())?),
        (None, Visibility::Session(own)) => ops.roster.borrow().session(*own).cloned(),
        (None, Visibility::All | Visibility::Own) => None,
    };
    let Some(session) = session else { return Ok(None) };
    if session.ended_at.is_some() {
        return Err(ended_refusal(&session).into());
    }
    if request.args.cwd.is_none() {
        let place = session.directory.as_ref().or(session.folder.as_ref());
        request.args.cwd = place.map(|d| d.as_str().to_owned());
    }
    Ok(Some(session))
}

fn ended_refusal(session: &Session) -> Refusal {
    Refusal::new(RefusalCode::SessionOver, format!("{} has ended", session.id))
        .hint("open a new session: csn sessions open")
}

/// The implicit session of a credential and a directory, and whether it is new.
pub(crate) fn implicit_session(ops: &Ops, caller: &Caller, facts: &Facts) -> (Arc<Session>, bool) {
    let place = facts.repositories.get(&facts.cwd.resolved).unwrap_or(&facts.cwd.resolved);
    let name = text_by_shape(&format!("{} {place}", caller.via));
    if let Some(known) = ops.roster.borrow().implicit(caller.principal, &name) {
        return (Arc::clone(known), false);
    }
    let mut session = new_session(caller);
    session.implicit = Some(name);
    session.directory = Some(text_by_shape(place));
    (Arc::new(session), true)
}

fn new_session(caller: &Caller) -> Session {
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

/// Opens a session; returns whether it is new. An agent that has a session gets that one.
pub(crate) async fn open(ops: &Arc<Ops>, caller: &Caller, opening: OpenSessionBody) -> ApiResult<(Arc<Session>, bool)> {
    caller.require_scope(CredentialScope::Run)?;
    match caller.visibility {
        // An agent keeps its session: another one would be another set of cards.
        Visibility::Session(own) => {
            let own = ops.roster.borrow().session(own).cloned();
            let missing = || Refusal::new(RefusalCode::NotFound, "the session of this agent does not exist any more");
            return Ok((own.ok_or_else(missing)?, false));
        }
        Visibility::Own => {
            let message = "cannot open a session: the calling process could not be identified";
            return Err(Refusal::new(RefusalCode::Forbidden, message).into());
        }
        Visibility::All => {}
    }
    let run_as = ops.run_as(caller.principal);
    let session = {
        let (ops, caller) = (Arc::clone(ops), caller.clone());
        crate::blocking(move || prepare_session(&ops, &caller, opening)).await??
    };
    let folder = session.folder.clone();
    match ops.commit.register(RegisterCommand::Open(Box::new(session))).await {
        Ok(RegisterReply::Session(session)) => Ok((session, true)),
        Ok(_) => Err(Refusal::new(RefusalCode::Internal, "the register returned no session").into()),
        Err(refusal) => {
            // The folder will not be used.
            if let (Some(folder), Ok(run_as)) = (folder, run_as) {
                let _ = run_as.with_fs_ids(|| std::fs::remove_dir(folder.as_str()));
            }
            Err(refusal.into())
        }
    }
}

fn prepare_session(ops: &Ops, caller: &Caller, opening: OpenSessionBody) -> ApiResult<Session> {
    let run_as = ops.run_as(caller.principal)?;
    let mut session = new_session(caller);
    session.title = opening
        .title
        .map(|t| countersign_redact::text_bounded(&countersign_redact::Mask::without_values(), &t, MAX_TITLE_BYTES));
    session.agent = opening.agent_pid.map(|pid| find_ancestor(caller, pid)).transpose()?;
    if session.agent.is_some() {
        session.credential = CredentialKind::Agent;
    }
    if let Some(directory) = opening.directory {
        let facts = directory_facts(&run_as, &directory)?;
        session.directory = Some(text_by_shape(&facts.cwd.resolved));
        session.roots = facts::root_for_directory(&facts, run_as.home(), run_as.home(), &ops.gate)
            .iter()
            .map(|r| text_by_shape(r))
            .collect();
    }
    session.folder = Some(create_folder(&run_as, session.id)?);
    Ok(session)
}

const MAX_CONVERSATION_NAME_BYTES: usize = 200;

/// The session of an agent's conversation, opened at its first request; and the caller as its agent.
pub(crate) async fn conversation_session(
    ops: &Arc<Ops>,
    caller: &Caller,
    talking: &Conversation,
) -> ApiResult<(Caller, Arc<Session>)> {
    if talking.agent.is_empty() || talking.agent.len() + talking.id.len() > MAX_CONVERSATION_NAME_BYTES {
        let message = format!(
            "`agent` must not be empty, and `agent` and `id` together have at most {MAX_CONVERSATION_NAME_BYTES} bytes"
        );
        return Err(Refusal::new(RefusalCode::BadRequest, message).into());
    }
    let agent = match (&caller.visibility, talking.agent_pid) {
        (Visibility::All, Some(pid)) => find_ancestor(caller, pid)?,
        (Visibility::All, None) => {
            caller.process.ok_or_else(|| Refusal::new(RefusalCode::BadRequest, "`agent_pid` is missing"))?
        }
        (Visibility::Session(own), _) => {
            let own = ops.roster.borrow().session(*own).cloned();
            let own = own.ok_or_else(|| {
                Refusal::new(RefusalCode::NotFound, "the session of this agent does not exist any more")
            })?;
            match own.agent {
                Some(agent) => agent,
                // An agent that runs as a task belongs to the session of that task.
                None => return Ok((caller.as_agent(&own), own)),
            }
        }
        (Visibility::Own, _) => {
            return Err(Refusal::new(
                RefusalCode::Forbidden,
                "this needs a session, and the calling process could not be identified",
            )
            .into());
        }
    };
    let name = text_by_shape(&format!("{} {}", talking.agent, talking.id));
    let known = ops.roster.borrow().conversation(caller.principal, &name).cloned();
    if let Some(session) = known.filter(|s| s.agent == Some(agent)) {
        return Ok((caller.as_agent(&session), session));
    }
    let session = {
        let (ops, caller, cwd) = (Arc::clone(ops), caller.clone(), talking.cwd.clone());
        crate::blocking(move || begin_conversation(&ops, &caller, agent, &cwd, name)).await?
    };
    let session = session?;
    match ops.commit.register(RegisterCommand::Open(Box::new(session))).await? {
        RegisterReply::Session(session) => Ok((caller.as_agent(&session), session)),
        _ => Err(Refusal::new(RefusalCode::Internal, "the register returned no session").into()),
    }
}

/// Begins the session of a conversation. The directory that a registered agent names is only a claim: its roots are
/// those of its session, and the one of its process's working directory.
fn begin_conversation(ops: &Ops, caller: &Caller, agent: Process, directory: &str, name: Text) -> ApiResult<Session> {
    let run_as = ops.run_as(caller.principal)?;
    let mut session = new_session(caller);
    (session.credential, session.agent) = (CredentialKind::Agent, Some(agent));
    session.by = Via::Agent;
    session.speaker = caller.process.filter(|_| caller.visibility == Visibility::All);
    session.conversation = Some(name);
    let facts = directory_facts(&run_as, directory)?;
    session.directory = Some(text_by_shape(&facts.cwd.resolved));
    let root = facts::root_for_directory(&facts, run_as.home(), run_as.home(), &ops.gate);
    let mut may = Vec::new();
    if let Visibility::Session(own) = caller.visibility {
        let roster = ops.roster.borrow();
        may.extend(roster.session(own).into_iter().flat_map(|s| &s.roots).map(|r| r.as_str().to_owned()));
        let works = countersign_shim::with_owner_ids(agent.pid, || proc::working_directory(agent.pid));
        let works = works.ok().and_then(|p| p.into_os_string().into_string().ok());
        let works = works.and_then(|dir| directory_facts(&run_as, &dir).ok());
        may.extend(works.and_then(|facts| facts::root_for_directory(&facts, run_as.home(), run_as.home(), &ops.gate)));
    }
    let trusted = |root: &String| caller.visibility == Visibility::All || countersign_policy::in_roots(root, &may);
    session.roots = root.iter().filter(|root| trusted(root)).map(|r| text_by_shape(r)).collect();
    session.folder = Some(create_folder(&run_as, session.id)?);
    Ok(session)
}

/// An ancestor of the caller: nobody can register another user's process as an agent.
fn find_ancestor(caller: &Caller, pid: u32) -> ApiResult<Process> {
    let refused = || {
        TaskRefusal::from(
            Refusal::new(RefusalCode::BadRequest, format!("process {pid} is not an ancestor of the calling process"))
                .hint("`agent_pid` must be the agent that started the caller"),
        )
    };
    if is_person_terminal(pid) {
        let refusal = Refusal::new(
            RefusalCode::BadRequest,
            format!("process {pid} belongs to a person and has other processes of that person below it"),
        );
        return Err(refusal.hint("start the agent from a script or on its own, and name that process").into());
    }
    let mut at = caller.process.map(|p| p.pid).ok_or_else(refused)?;
    if at == pid {
        // A process that a person's own shell started is the agent itself.
        return caller.process.ok_or_else(refused);
    }
    while at > 1 {
        let (_, parent) = peer::read_process(at).map_err(Refusal::from)?.ok_or_else(refused)?;
        // Another user's process would make agents of their other processes.
        let same_user = match caller.uid {
            Some(uid) if parent == pid => peer::runs_as(pid, uid).map_err(Refusal::from)?,
            _ => true,
        };
        if parent == pid && pid > 0 && same_user {
            let found = peer::read_process(pid).map_err(Refusal::from)?;
            return found.map(|(process, _)| process).ok_or_else(refused);
        }
        at = parent;
    }
    Err(refused())
}

fn directory_facts(run_as: &RunAs, directory: &str) -> ApiResult<Facts> {
    let shown = || DisplaySafe::bounded(directory, 300).to_string();
    if !directory.starts_with('/') || directory.contains('\0') {
        return Err(Refusal::new(RefusalCode::BadRequest, format!("`{}` is not an absolute path", shown())).into());
    }
    let fact =
        run_as.with_fs_ids(|| world::path_fact(directory).filter(|f| std::path::Path::new(&f.resolved).is_dir()))?;
    let fact =
        fact.ok_or_else(|| Refusal::new(RefusalCode::BadRequest, format!("the directory {} does not exist", shown())))?;
    let mut facts = Facts { cwd: fact, ..Facts::none(directory) };
    if let Some(top) = run_as.with_fs_ids(|| world::find_repository(&facts.cwd.resolved))? {
        facts.repositories.insert(facts.cwd.resolved.clone(), top);
    }
    Ok(facts)
}

/// Creates the folder of a session, for it alone.
fn create_folder(run_as: &RunAs, id: SessionId) -> ApiResult<Text> {
    let var = |name: &str| run_as.base.get(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let data = var("XDG_DATA_HOME").or_else(|| var("HOME").map(|h| h.join(".local/share")));
    let data = data.ok_or_else(|| {
        Refusal::new(
            RefusalCode::Internal,
            "the folder of the session cannot be created: neither XDG_DATA_HOME nor HOME is set",
        )
    })?;
    let path = data.join("countersign/sessions").join(id.to_string());
    let created = run_as.with_fs_ids(|| {
        let created = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        created.and_then(|()| std::fs::canonicalize(&path))
    })?;
    match created {
        Ok(path) => Ok(text_by_shape(&path.to_string_lossy())),
        Err(e) => Err(Refusal::new(RefusalCode::Internal, format!("{} cannot be created: {e}", path.display())).into()),
    }
}

/// Finds a session by its id or an unambiguous prefix. One that the caller may not see does not exist for it.
fn find_session(ops: &Ops, caller: &Caller, text: &str) -> ApiResult<Arc<Session>> {
    let prefix = if text.starts_with("se_") { text.to_owned() } else { format!("se_{text}") };
    let unknown = || {
        Refusal::new(RefusalCode::NotFound, format!("there is no session {}", DisplaySafe::bounded(text, 60)))
            .hint("`csn sessions list` shows all sessions")
    };
    let roster = Arc::clone(&ops.roster.borrow());
    let mut found = roster.sessions().filter(|s| {
        prefix.len() >= 7
            && s.id.to_string().starts_with(&prefix)
            && caller.can_see(&ops.records.roster(), s.principal, Some(s.id))
    });
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(Arc::clone(one)),
        (Some(_), Some(_)) => {
            Err(Refusal::new(RefusalCode::AmbiguousId, format!("several sessions begin with {prefix}"))
                .hint("use more characters of the id")
                .into())
        }
        (None, _) => Err(unknown().into()),
    }
}

/// A session that the caller may use, not only see.
pub(crate) fn find_controlled_session(ops: &Ops, caller: &Caller, text: &str) -> ApiResult<Arc<Session>> {
    let session = find_session(ops, caller, text)?;
    if caller.can_control(&ops.records.roster(), session.principal, Some(session.id)) {
        return Ok(session);
    }
    Err(Refusal::new(RefusalCode::Forbidden, format!("{} was opened by another caller", session.id))
        .hint("open your own session: csn sessions open")
        .into())
}

pub(crate) fn show(ops: &Ops, caller: &Caller, id: &str) -> ApiResult<Arc<Session>> {
    caller.require_scope(CredentialScope::Observe)?;
    find_session(ops, caller, id)
}

/// Sessions, newest first: the open ones, or all.
pub(crate) fn list(ops: &Ops, caller: &Caller, query: SessionQuery) -> ApiResult<SessionPage> {
    caller.require_scope(CredentialScope::Observe)?;
    let limit = super::page_limit(query.limit, DEFAULT_PAGE_ITEMS, MAX_PAGE_ITEMS)?;
    let roster = ops.records.roster();
    let wanted = |s: &&Arc<Session>| {
        (query.all || s.ended_at.is_none())
            && query.cursor.is_none_or(|before| s.id < before)
            && caller.can_see(&roster, s.principal, Some(s.id))
    };
    let mut page: Vec<&Arc<Session>> = roster.sessions().rev().filter(wanted).take(limit + 1).collect();
    let more = page.len() > limit;
    page.truncate(limit);
    let next = page.last().filter(|_| more).map(|s| s.id);
    Ok(SessionPage { sessions: page.into_iter().map(|s| (**s).clone()).collect(), next })
}

/// Inside a root the session only changes its directory; outside, a person is asked for read access.
pub(crate) async fn set_directory(
    ops: &Arc<Ops>,
    caller: &Caller,
    id: &str,
    body: DirectoryBody,
) -> ApiResult<SessionMove> {
    caller.require_scope(CredentialScope::Run)?;
    let session = find_controlled_session(ops, caller, id)?;
    if session.ended_at.is_some() {
        return Err(ended_refusal(&session).into());
    }
    if session.implicit.is_some() {
        return Err(Refusal::new(
            RefusalCode::WrongMode,
            "this is an implicit session: each request names its own directory",
        )
        .into());
    }
    if session.audience == Audience::Public {
        return Err(Refusal::new(RefusalCode::NotForAudience, "a public session works only in its own folder").into());
    }
    let moving = {
        let (ops, caller, session) = (Arc::clone(ops), caller.clone(), Arc::clone(&session));
        crate::blocking(move || directory_target(&ops, &caller, &session, &body.directory)).await??
    };
    match moving {
        DirectoryTarget::Inside(directory) => {
            match ops.commit.register(RegisterCommand::Move { session: session.id, directory }).await? {
                RegisterReply::Session(session) => Ok(SessionMove::There(Box::new((*session).clone()))),
                _ => Err(Refusal::new(RefusalCode::Internal, "the register returned no session").into()),
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

fn directory_target(ops: &Ops, caller: &Caller, session: &Session, directory: &str) -> ApiResult<DirectoryTarget> {
    let run_as = ops.run_as(caller.principal)?;
    let facts = directory_facts(&run_as, directory)?;
    let to = &facts.cwd.resolved;
    let own = session.roots.iter().chain(&session.folder).map(|r| r.as_str().to_owned());
    let roots: Vec<String> = own.chain(ops.gate.roots.iter().cloned()).collect();
    if countersign_policy::in_roots(to, &roots) {
        return Ok(DirectoryTarget::Inside(text_by_shape(to)));
    }
    let args = Command { cwd: Some(to.clone()), ..Command::default() };
    let request = Request { session_id: Some(session.id), ..Request::new(Tool::SetWorkingDirectory, args) };
    let prepared: PreparedRequest = facts::prepare(&request, &ops.key, &run_as)?;
    let can = countersign_policy::can_be_root(
        to,
        &prepared.home,
        &ops.gate.protected,
        facts.repositories.get(to) == Some(to),
    );
    let mut asking = intake::build_ask_call(ops, caller, request, prepared, session, None, None)?;
    if !can {
        asking.refused = Some(
            Refusal::new(
                RefusalCode::ProtectedPath,
                format!("{} cannot be a root of this session", DisplaySafe::bounded(to, 300)),
            )
            .hint("choose a project directory: not /, not a home, no directory that holds keys"),
        );
    }
    Ok(DirectoryTarget::Asked(Box::new(asking)))
}

/// Ends a session: its grants end, and so do its tasks that were to end with it.
pub(crate) async fn end(ops: &Arc<Ops>, caller: &Caller, id: &str) -> ApiResult<SessionEnd> {
    caller.require_scope(CredentialScope::Run)?;
    let session = find_controlled_session(ops, caller, id)?;
    let by = caller.actor();
    // A second call continues with the tasks that the first could not stop.
    if session.ended_at.is_none() {
        ops.commit.register(RegisterCommand::End { session: session.id, by: by.clone() }).await?;
    }
    let mut stopped = Vec::new();
    let mut left = Vec::new();
    for _ in 0..STOP_PASSES {
        left = tasks_to_stop(ops, session.id)?;
        if left.is_empty() {
            break;
        }
        // Waiting tasks first: none of them should start while others end.
        left.sort_by_key(|(_, status)| *status != Status::Queued);
        for (task, status) in &left {
            let done = match status {
                Status::Queued => control::withdraw_task(ops, *task, by.clone()).await,
                _ => control::stop_task(ops, *task, by.clone(), None, KilledWhy::SessionEnd).await.map(drop),
            };
            // A task that started, ended or could not be reached meanwhile is tried in the next pass.
            if done.is_ok() && !stopped.contains(task) {
                stopped.push(*task);
            }
        }
        for (task, _) in &left {
            ops.records.wait_for(*task, TASK_STOP_TIMEOUT).await?;
        }
    }
    let left: Vec<TaskId> = left.into_iter().map(|(task, _)| task).filter(|t| !stopped.contains(t)).collect();
    let ended = ops.roster.borrow().session(session.id).cloned().unwrap_or(session);
    Ok(SessionEnd { session: (*ended).clone(), stopped, left })
}

/// The tasks that were to end with their session and have not.
fn tasks_to_stop(ops: &Ops, session: SessionId) -> ApiResult<Vec<(TaskId, Status)>> {
    let mut found = Vec::new();
    for task in ops.records.read_ledger(|r| r.open_tasks_of_session(session))? {
        let state = ops.records.state(task)?;
        let ends =
            state.request.on_session_end == OnSessionEnd::Stop || state.request.tool == Tool::SetWorkingDirectory;
        if ends && !state.settled() {
            found.push((task, state.status));
        }
    }
    Ok(found)
}
