//! MCP, for agents: `/mcp` over HTTP for those who have a token, `/mcp/stdio` for the bridge that an agent starts.
//!
//! Tools are calls of the house's own API, made in the name of whoever is connected: nothing is decided or remembered
//! here. Both eras of the protocol are spoken, on the same addresses.

mod calls;
#[cfg(feature = "fixture")]
mod fixture;
mod lines;
mod offers;
mod protocol;
mod tools;
mod waiting;

use super::{
    Answer, Shared,
    arrive::{Caller, Who},
    find_own_session,
    problem::{Problem, Query, Whole, body},
    sessions::{self, Talking},
};
use crate::{house::House, peer};
use axum::{
    Json, Router,
    extract::{ConnectInfo, Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
};
use countersign_model::{Code, PrincipalId, Refusal, SessionId, Text};
#[cfg(feature = "fixture")]
pub(crate) use fixture::PATH as FIXTURE;
use hyper_util::rt::TokioIo;
use offers::Tools;
use protocol::Speaker;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex},
};

/// What the protocol calls a conversation over HTTP.
const CONVERSATION: &str = "mcp-session-id";
/// So many of one credential are remembered; an older one is not there any more.
const MOST: usize = 256;

/// A conversation over HTTP belongs to the credential that began it; to another it is not there.
async fn bound(State(house): Shared, who: Who, request: Request, next: Next) -> Response {
    let named =
        |headers: &axum::http::HeaderMap| headers.get(CONVERSATION).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let whose = (who.principal, who.name.clone());
    if let Some(id) = named(request.headers())
        && !house.mcp.has(&whose, &id)
    {
        let refusal = Refusal::new(Code::NotFound, "there is no such conversation").hint("begin anew: initialize");
        return Problem::from(refusal).into_response();
    }
    let response = next.run(request).await;
    if let Some(id) = named(response.headers()) {
        house.mcp.begun(whose, id);
    }
    response
}

/// What the house keeps for its MCP connections.
#[derive(Default)]
pub(crate) struct Connections {
    /// The base environment of whoever is connected, by session.
    environments: Mutex<HashMap<SessionId, BTreeMap<String, String>>>,
    /// The conversations over HTTP of each credential, oldest first.
    conversations: Mutex<HashMap<Whose, VecDeque<String>>>,
}

type Whose = (PrincipalId, Text);

impl Connections {
    fn has(&self, whose: &Whose, id: &str) -> bool {
        let all = self.conversations.lock().expect("nothing panics while it holds this lock");
        all.get(whose).is_some_and(|own| own.iter().any(|known| known == id))
    }

    fn begun(&self, whose: Whose, id: String) {
        let mut all = self.conversations.lock().expect("nothing panics while it holds this lock");
        let own = all.entry(whose).or_default();
        if !own.contains(&id) {
            own.push_back(id);
            if own.len() > MOST {
                own.pop_front();
            }
        }
    }

    fn environment(&self, session: Option<SessionId>) -> BTreeMap<String, String> {
        let all = self.environments.lock().expect("nothing panics while it holds this lock");
        session.and_then(|s| all.get(&s)).cloned().unwrap_or_default()
    }
}

/// The address for those who come over HTTP, as a service of its own. `api` is the rest of the house.
pub(crate) fn http(house: &Arc<House>, api: Router) -> Router {
    let tools = Tools::new(Arc::clone(house), api, None, true);
    // No page has business with this address.
    let served = protocol::over_http(&[], move || Speaker(Arc::new(tools.apart())));
    let bound = middleware::from_fn_with_state(Arc::clone(house), bound);
    let router = Router::new().route_service("/mcp", served).layer(bound);
    #[cfg(feature = "fixture")]
    let router = router.route_service(fixture::PATH, fixture::service());
    router
}

/// What the bridge says before it begins.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bridge {
    conversation: Talking,
    /// What its agent's tasks have: the base alone, whatever else stands here.
    #[serde(default)]
    environment: BTreeMap<String, String>,
}

/// A session for a connection; whoever started it is known for an agent from now on.
pub(crate) async fn session(State(house): Shared, who: Who, Whole(bytes): Whole) -> Answer<Json<Value>> {
    let Bridge { conversation, mut environment } = body(&bytes)?;
    let (_, session) = sessions::conversation(&house, &who, &conversation).await?;
    environment.retain(|name, _| countersign_model::is_base_variable(name));
    let mut all = house.mcp.environments.lock().expect("nothing panics while it holds this lock");
    // Those whose conversation is over are not asked about any more.
    let roster = house.roster.borrow();
    all.retain(|id, _| roster.session(*id).is_some_and(|s| s.agent.is_some_and(|a| peer::is_there(a) != Ok(false))));
    drop(roster);
    all.insert(session.id, environment);
    Ok(Json(json!({"session_id": session.id})))
}

/// From here on the connection speaks MCP, a message a line.
pub(crate) async fn stdio(
    State(house): Shared,
    ConnectInfo(caller): ConnectInfo<Caller>,
    who: Who,
    mut query: Query,
    request: Request,
) -> Answer<Response> {
    let id = query.text("session").unwrap_or_default();
    query.nothing_else()?;
    let session = find_own_session(&house, &who, &id)?;
    if session.ended_at.is_some() {
        return Err(Refusal::new(Code::SessionOver, "the session has ended").into());
    }
    if request.headers().get(header::UPGRADE).is_none_or(|v| v.as_bytes() != b"mcp") {
        return Err(Refusal::new(Code::BadRequest, "this address speaks MCP with `csn mcp`")
            .hint("over HTTP it is /mcp")
            .into());
    }
    let api = super::routes(&house);
    // Who made the agent known was there before anything that it runs; whatever comes later could be a script of it.
    let its_own =
        session.speaker.is_some_and(|speaker| caller.pid() == Some(speaker.pid) && peer::is_there(speaker) == Ok(true));
    let tools = Tools::new(Arc::clone(&house), api, Some(who.as_agent(&session)), its_own);
    tokio::spawn(async move {
        if let Ok(upgraded) = hyper::upgrade::on(request).await {
            protocol::over_lines(tools, TokioIo::new(upgraded)).await;
        }
    });
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("mcp"));
    Ok(response)
}
