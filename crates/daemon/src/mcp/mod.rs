//! MCP, for agents: over HTTP for callers with a token, over lines for the bridge that an agent starts (`csn mcp`).
//!
//! Tools call operations ([`crate::ops`]) as the connected caller; nothing is decided or stored here. Old and new
//! revisions of the protocol use the same paths.

mod calls;
mod lines;
pub(crate) mod protocol;
mod service;
mod waiting;

use crate::{
    caller::Caller,
    lock,
    ops::{ApiResult, Ops, sessions},
    peer,
};
use countersign_model::{
    CredentialScope, PrincipalId, Refusal, RefusalCode, SessionId, Via,
    api::{McpSessionBody, McpSessionResponse},
};
use protocol::{HttpService, ProtocolServer};
use service::DaemonTools;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex},
};
use tokio::io::{AsyncRead, AsyncWrite};

/// How many conversations of one credential are remembered; older ones do not exist any more.
const MAX_CONVERSATIONS: usize = 256;

/// A template of resources that can be read.
pub(crate) struct TemplateSpec {
    pub(crate) uri: &'static str,
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) mime: &'static str,
}

pub(crate) const INSTRUCTIONS: &str = "Countersign checks every command first. Read-only commands run immediately; other \
    commands may wait until the user approves them, and some are denied. A denial says what to do instead. Every command \
    becomes a task with an id that outlives the call: `run` waits for it up to `wait_s` seconds; use `task_wait`, \
    `task_output` and `task_search` after that. Long output is shown in part; all of it is stored, with secrets redacted. \
    Only a person can approve a command; no tool can.";

pub(crate) const TEMPLATES: &[TemplateSpec] = &[
    TemplateSpec {
        uri: "countersign://tasks/{task_id}/{stream}{?offset,length}",
        name: "output",
        description: "Output of a task (stdout, stderr or pty), by range: at most 64 KiB per read",
        mime: "text/plain",
    },
    TemplateSpec {
        uri: "countersign://tasks/{task_id}/receipt",
        name: "receipt",
        description: "The signed receipt of a task, as a DSSE envelope",
        mime: "application/json",
    },
];

/// The state of MCP connections.
#[derive(Default)]
pub(crate) struct Connections {
    /// The base environment of each connected agent, by session.
    environments: Mutex<HashMap<SessionId, BTreeMap<String, String>>>,
    /// The conversations over HTTP of each credential, oldest first.
    conversations: Mutex<Vec<(ConversationOwner, VecDeque<String>)>>,
}

/// The owner of a conversation: its principal and how it connected.
type ConversationOwner = (PrincipalId, Via);

impl Connections {
    /// Whether a conversation belongs to this caller.
    pub(crate) fn owns(&self, caller: &Caller, id: &str) -> bool {
        let all = lock(&self.conversations);
        let own = all.iter().find(|((principal, via), _)| *principal == caller.principal && *via == caller.via);
        own.is_some_and(|(_, own)| own.iter().any(|known| known == id))
    }

    pub(crate) fn remember_conversation(&self, caller: &Caller, id: String) {
        let mut all = lock(&self.conversations);
        let owner = (caller.principal, caller.via.clone());
        let at = all.iter().position(|(known, _)| *known == owner).unwrap_or_else(|| {
            all.push((owner, VecDeque::new()));
            all.len() - 1
        });
        let own = &mut all[at].1;
        if !own.contains(&id) {
            own.push_back(id);
            if own.len() > MAX_CONVERSATIONS {
                own.pop_front();
            }
        }
    }

    fn environment(&self, session: Option<SessionId>) -> BTreeMap<String, String> {
        session.and_then(|s| lock(&self.environments).get(&s).cloned()).unwrap_or_default()
    }
}

/// The MCP service over HTTP. Web pages cannot use it.
pub(crate) fn http_service(ops: &Arc<Ops>, connections: &Arc<Connections>) -> HttpService<ProtocolServer<DaemonTools>> {
    let tools = DaemonTools::new(Arc::clone(ops), Arc::clone(connections), None, true);
    protocol::over_http(&[], move || ProtocolServer(Arc::new(tools.for_new_connection())))
}

/// Opens a session for a connection. The process that started it is registered as an agent.
pub(crate) async fn open_session(
    ops: &Arc<Ops>,
    connections: &Connections,
    caller: &Caller,
    body: McpSessionBody,
) -> ApiResult<McpSessionResponse> {
    caller.require_scope(CredentialScope::Run)?;
    let McpSessionBody { conversation, mut environment } = body;
    let (_, session) = sessions::conversation_session(ops, caller, &conversation).await?;
    environment.retain(|name, _| countersign_model::is_base_variable(name));
    let mut all = lock(&connections.environments);
    // Drop the sessions whose agent has ended.
    let roster = ops.records.roster();
    all.retain(|id, _| roster.session(*id).is_some_and(|s| s.agent.is_some_and(|a| peer::is_running(a) != Ok(false))));
    all.insert(session.id, environment);
    Ok(McpSessionResponse { session_id: session.id })
}

/// A connection that an agent may use.
pub(crate) struct AgentConnection(DaemonTools);

/// Connects as the agent of a session; `pid` is the process at the other end.
pub(crate) fn connect(
    ops: &Arc<Ops>,
    connections: &Arc<Connections>,
    caller: &Caller,
    session: &str,
    pid: Option<u32>,
) -> ApiResult<AgentConnection> {
    caller.require_scope(CredentialScope::Run)?;
    let session = sessions::find_controlled_session(ops, caller, session)?;
    if session.ended_at.is_some() {
        return Err(Refusal::new(RefusalCode::SessionOver, "the session has ended").into());
    }
    // The process that registered the agent existed before any of its commands; a later one could be the agent's
    // script.
    let answers_for_person =
        session.speaker.is_some_and(|speaker| pid == Some(speaker.pid) && peer::is_running(speaker) == Ok(true));
    let agent = caller.as_agent(&session);
    Ok(AgentConnection(DaemonTools::new(Arc::clone(ops), Arc::clone(connections), Some(agent), answers_for_person)))
}

impl AgentConnection {
    /// Serves one message per line until the client disconnects.
    pub(crate) async fn serve_stream(self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        protocol::serve_lines(self.0, stream).await;
    }
}
