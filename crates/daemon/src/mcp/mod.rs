//! MCP, for agents: over HTTP for those who have a token, over lines for the bridge that an agent starts.
//!
//! Tools are operations ([`crate::ops`]), called in the name of whoever is connected: nothing is decided or remembered
//! here. Both eras of the protocol are spoken, on the same addresses.

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

/// How many conversations of one credential are remembered; an older one is not there any more.
const MAX_CONVERSATIONS: usize = 256;

/// Addresses that can be read.
pub(crate) struct TemplateSpec {
    pub(crate) uri: &'static str,
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) mime: &'static str,
}

pub(crate) const INSTRUCTIONS: &str = "Commands run here are read by a gate first: what only reads runs at once, the rest \
    may wait for a person, some is refused; the reason says what to do instead. Every command is a task with an id that \
    outlives this call: `run` waits for it up to wait_s, then `task_wait`, `task_output` and `task_search` go on. Output is \
    shown in part; all of it is kept, with secrets taken out. A person approves, never a tool.";

pub(crate) const TEMPLATES: &[TemplateSpec] = &[
    TemplateSpec {
        uri: "countersign://tasks/{task_id}/{stream}{?offset,length}",
        name: "output",
        description: "Output of a task (stdout, stderr or pty), by range: at most 64 KiB a read",
        mime: "text/plain",
    },
    TemplateSpec {
        uri: "countersign://tasks/{task_id}/receipt",
        name: "receipt",
        description: "The signed receipt of a task, a DSSE envelope",
        mime: "application/json",
    },
];

/// What MCP connections are known by.
#[derive(Default)]
pub(crate) struct Connections {
    /// The base environment of whoever is connected, by session.
    environments: Mutex<HashMap<SessionId, BTreeMap<String, String>>>,
    /// The conversations over HTTP of each credential, oldest first.
    conversations: Mutex<Vec<(ConversationOwner, VecDeque<String>)>>,
}

/// Whose a conversation is: the principal, and the way by which they came.
type ConversationOwner = (PrincipalId, Via);

impl Connections {
    /// Whether a conversation is this caller's.
    pub(crate) fn has(&self, caller: &Caller, id: &str) -> bool {
        let all = lock(&self.conversations);
        let own = all.iter().find(|((principal, via), _)| *principal == caller.principal && *via == caller.via);
        own.is_some_and(|(_, own)| own.iter().any(|known| known == id))
    }

    pub(crate) fn begun(&self, caller: &Caller, id: String) {
        let mut all = lock(&self.conversations);
        let whose = (caller.principal, caller.via.clone());
        let at = all.iter().position(|(known, _)| *known == whose).unwrap_or_else(|| {
            all.push((whose, VecDeque::new()));
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

/// A service for those who come over HTTP. No page has business with it.
pub(crate) fn service(ops: &Arc<Ops>, connections: &Arc<Connections>) -> HttpService<ProtocolServer<DaemonTools>> {
    let tools = DaemonTools::new(Arc::clone(ops), Arc::clone(connections), None, true);
    protocol::over_http(&[], move || ProtocolServer(Arc::new(tools.apart())))
}

/// A session for a connection; whoever started it is known for an agent from now on.
pub(crate) async fn open_session(
    ops: &Arc<Ops>,
    connections: &Connections,
    caller: &Caller,
    body: McpSessionBody,
) -> ApiResult<McpSessionResponse> {
    caller.may(CredentialScope::Run)?;
    let McpSessionBody { conversation, mut environment } = body;
    let (_, session) = sessions::conversation(ops, caller, &conversation).await?;
    environment.retain(|name, _| countersign_model::is_base_variable(name));
    let mut all = lock(&connections.environments);
    // Those whose conversation is over are not asked about any more.
    let roster = ops.records.roster();
    all.retain(|id, _| roster.session(*id).is_some_and(|s| s.agent.is_some_and(|a| peer::is_there(a) != Ok(false))));
    all.insert(session.id, environment);
    Ok(McpSessionResponse { session_id: session.id })
}

/// A connection of an agent that may speak.
pub(crate) struct AgentConnection(DaemonTools);

/// Lets a connection speak as the agent of a session; `pid` is the process at its other end.
pub(crate) fn connect(
    ops: &Arc<Ops>,
    connections: &Arc<Connections>,
    caller: &Caller,
    session: &str,
    pid: Option<u32>,
) -> ApiResult<AgentConnection> {
    caller.may(CredentialScope::Run)?;
    let session = sessions::find_own(ops, caller, session)?;
    if session.ended_at.is_some() {
        return Err(Refusal::new(RefusalCode::SessionOver, "the session has ended").into());
    }
    // Who made the agent known was there before anything that it runs; whatever comes later could be a script of it.
    let speaks = session.speaker.is_some_and(|speaker| pid == Some(speaker.pid) && peer::is_there(speaker) == Ok(true));
    let agent = caller.as_agent(&session);
    Ok(AgentConnection(DaemonTools::new(Arc::clone(ops), Arc::clone(connections), Some(agent), speaks)))
}

impl AgentConnection {
    /// Until the other side hangs up, a message a line.
    pub(crate) async fn serve_stream(self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        protocol::over_lines(self.0, stream).await;
    }
}
