//! The table of routes. The router, authentication, the OpenAPI document and the test of docs/api.md follow it: a new
//! route needs one row and one function.

use super::{
    HttpState, approvals, attach, control, events, feed, grants, hooks, lifecycle, mcp, openapi, receipts, sessions,
    tasks, tokens,
};
use crate::ops::recognition::RequestKind;
use axum::{
    Router,
    http::Method,
    routing::{self, MethodRouter},
};
use countersign_model::{Approval, CredentialScope, KeyAnnounced, Request, Session, TaskState, api};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use std::sync::Arc;

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Public,
    Needs(CredentialScope),
}

/// What a route does while the daemon starts or stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhileDraining {
    /// It refuses requests.
    Refused,
    /// It waits while the daemon starts, and is served while it stops.
    Served,
    /// It reads or changes the daemon's state, and is always served.
    AlwaysServed,
}

/// Generates the schema of a type.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// A successful response.
#[derive(Clone, Copy)]
pub(crate) struct Success {
    pub(crate) status: u16,
    pub(crate) body: BodyContent,
}

/// The content of a body.
#[derive(Clone, Copy)]
pub(crate) enum BodyContent {
    Nothing,
    Json(SchemaOf),
    /// Server-sent events with this data.
    Events(SchemaOf),
    /// Another media type.
    Other(&'static str),
}

/// One row of the table.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    pub(crate) while_draining: WhileDraining,
    /// What the request does, as far as the holder of the connection matters.
    pub(crate) request_kind: RequestKind,
    pub(crate) summary: &'static str,
    pub(crate) query: Option<SchemaOf>,
    pub(crate) body: Option<RouteBody>,
    pub(crate) successes: &'static [Success],
    /// The error statuses that the rest of the row does not imply.
    pub(crate) refusals: &'static [u16],
    /// None if a service of its own handles it.
    handler: Option<fn() -> MethodRouter<Arc<HttpState>>>,
}

/// The request body of a route.
#[derive(Clone, Copy)]
pub(crate) struct RouteBody {
    pub(crate) schema: SchemaOf,
    pub(crate) required: bool,
    /// Whether an `Idempotency-Key` is supported.
    pub(crate) once: bool,
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const fn json<T: JsonSchema>(status: u16) -> Success {
    Success { status, body: BodyContent::Json(schema_of::<T>) }
}

const fn stream<T: JsonSchema>() -> Success {
    Success { status: 200, body: BodyContent::Events(schema_of::<T>) }
}

const fn media(status: u16, media: &'static str) -> Success {
    Success { status, body: BodyContent::Other(media) }
}

const UPGRADED: Success = Success { status: 101, body: BodyContent::Nothing };
const NOT_MODIFIED: Success = Success { status: 304, body: BodyContent::Nothing };
const BYTES: &str = "application/octet-stream";
const ENVELOPE: &str = receipts::ENVELOPE;

impl Route {
    const fn new(method: Method, path: &'static str, scope: CredentialScope, summary: &'static str) -> Self {
        let looks = matches!(scope, CredentialScope::Observe);
        Self {
            method,
            path,
            access: Access::Needs(scope),
            while_draining: if looks { WhileDraining::Served } else { WhileDraining::Refused },
            request_kind: if looks { RequestKind::Reads } else { RequestKind::Acts },
            summary,
            query: None,
            body: None,
            successes: &[],
            refusals: &[],
            handler: None,
        }
    }

    const fn public(mut self) -> Self {
        self.access = Access::Public;
        self.while_draining = WhileDraining::AlwaysServed;
        self
    }

    const fn while_draining(mut self, how: WhileDraining) -> Self {
        self.while_draining = how;
        self
    }

    const fn request_kind(mut self, touch: RequestKind) -> Self {
        self.request_kind = touch;
        self
    }

    const fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(schema_of::<T>);
        self
    }

    const fn body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(RouteBody { schema: schema_of::<T>, required: true, once: false });
        self
    }

    const fn body_once<T: JsonSchema>(mut self) -> Self {
        self.body = Some(RouteBody { schema: schema_of::<T>, required: true, once: true });
        self
    }

    const fn maybe_body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(RouteBody { schema: schema_of::<T>, required: false, once: false });
        self
    }

    const fn responds(mut self, successes: &'static [Success]) -> Self {
        self.successes = successes;
        self
    }

    const fn refuses(mut self, statuses: &'static [u16]) -> Self {
        self.refusals = statuses;
        self
    }

    const fn handled_by(mut self, handler: fn() -> MethodRouter<Arc<HttpState>>) -> Self {
        self.handler = Some(handler);
        self
    }

    /// Whether a function of the table handles it. Not so for services of their own and for unknown paths.
    pub(crate) fn has_handler(&self) -> bool {
        self.handler.is_some()
    }
}

use CredentialScope::{Admin, Approve, Observe, Run};

const fn get(path: &'static str, scope: CredentialScope, summary: &'static str) -> Route {
    Route::new(Method::GET, path, scope, summary)
}

const fn post(path: &'static str, scope: CredentialScope, summary: &'static str) -> Route {
    Route::new(Method::POST, path, scope, summary)
}

const fn delete(path: &'static str, scope: CredentialScope, summary: &'static str) -> Route {
    Route::new(Method::DELETE, path, scope, summary)
}

/// Running tasks can still be typed into and stopped while the daemon stops.
const SERVED: WhileDraining = WhileDraining::Served;

pub(crate) static ROUTES: &[Route] = &[
    post("/tasks", Run, "Request a command or a file tool")
        .body_once::<Request>()
        .responds(&[json::<api::AskResponse>(201), json::<api::AskResponse>(202)])
        .refuses(&[404, 409])
        .handled_by(|| routing::post(tasks::ask)),
    get("/tasks", Observe, "List tasks, newest first")
        .query::<api::TaskQuery>()
        .responds(&[json::<api::TaskPage>(200)])
        .handled_by(|| routing::get(tasks::list)),
    get("/tasks/{id}", Observe, "Show a task, or wait for its end")
        .query::<api::WaitQuery>()
        .responds(&[json::<TaskState>(200)])
        .handled_by(|| routing::get(tasks::show)),
    get("/tasks/{id}/events", Observe, "Follow the records of a task")
        .query::<api::EventQuery>()
        .responds(&[stream::<api::StreamRecord>()])
        .refuses(&[410])
        .handled_by(|| routing::get(events::task_events)),
    get("/tasks/{id}/output", Observe, "Read output by range or by line")
        .query::<api::OutputQuery>()
        .responds(&[json::<api::OutputPage>(200), media(200, BYTES), media(206, BYTES)])
        .refuses(&[410, 416])
        .handled_by(|| routing::get(tasks::output)),
    get("/tasks/{id}/search", Observe, "Search output")
        .query::<api::SearchQuery>()
        .responds(&[json::<api::SearchPage>(200)])
        .refuses(&[410, 416])
        .handled_by(|| routing::get(tasks::search)),
    get("/tasks/{id}/receipt", Observe, "Get the signed receipt of a task")
        .query::<api::WaitQuery>()
        .responds(&[media(200, ENVELOPE), media(206, ENVELOPE), NOT_MODIFIED])
        .refuses(&[410, 416])
        .handled_by(|| routing::get(receipts::envelope)),
    get("/tasks/{id}/screen", Observe, "Show the screen of a terminal")
        .responds(&[json::<api::ScreenView>(200), media(200, BYTES)])
        .refuses(&[410])
        .handled_by(|| routing::get(tasks::screen)),
    get("/tasks/{id}/cast", Observe, "Get the recording as asciicast")
        .query::<api::CastQuery>()
        .responds(&[media(200, "application/x-asciicast")])
        .refuses(&[410])
        .handled_by(|| routing::get(tasks::cast)),
    // Attaching is reading and typing.
    get("/tasks/{id}/attach", Observe, "Attach to a task over a WebSocket")
        .query::<api::AttachQuery>()
        .request_kind(RequestKind::Acts)
        .responds(&[UPGRADED])
        .handled_by(|| routing::get(attach::attach)),
    post("/tasks/{id}/cancel", Run, "Withdraw a waiting task, or stop a running one")
        .while_draining(SERVED)
        .maybe_body::<api::CancelBody>()
        .responds(&[json::<api::AppliedRecord>(202)])
        .handled_by(|| routing::post(control::cancel)),
    post("/tasks/{id}/signal", Run, "Send a signal to a task")
        .while_draining(SERVED)
        .body_once::<api::SignalBody>()
        .responds(&[json::<api::AppliedRecord>(202)])
        .handled_by(|| routing::post(control::signal)),
    post("/tasks/{id}/stdin", Run, "Type into a task")
        .while_draining(SERVED)
        .body_once::<api::StdinBody>()
        .responds(&[json::<api::AppliedRecord>(202)])
        .handled_by(|| routing::post(control::stdin)),
    post("/tasks/{id}/resize", Run, "Resize the terminal of a task")
        .while_draining(SERVED)
        .body_once::<api::ResizeBody>()
        .responds(&[json::<api::AppliedRecord>(202)])
        .handled_by(|| routing::post(control::resize)),
    post("/check", Observe, "Get the verdict for a request, without running it")
        .body::<Request>()
        .responds(&[json::<api::CheckResponse>(200)])
        .refuses(&[404, 409, 422])
        .handled_by(|| routing::post(tasks::check)),
    get("/approvals", Observe, "List pending approvals, or all")
        .query::<api::ApprovalQuery>()
        .responds(&[json::<api::ApprovalPage>(200)])
        .handled_by(|| routing::get(approvals::list)),
    get("/approvals/events", Observe, "Follow approvals")
        .query::<api::LedgerQuery>()
        .responds(&[stream::<Approval>()])
        .handled_by(|| routing::get(feed::approvals)),
    get("/approvals/{id}", Observe, "Show an approval and its card")
        .responds(&[json::<Approval>(200)])
        .handled_by(|| routing::get(approvals::show)),
    post("/approvals/{id}", Approve, "Answer an approval")
        .body::<api::AnswerBody>()
        .responds(&[json::<Approval>(200)])
        .refuses(&[422])
        .handled_by(|| routing::post(approvals::answer)),
    get("/grants", Observe, "List grants, newest first")
        .query::<api::GrantQuery>()
        .responds(&[json::<api::GrantPage>(200)])
        .handled_by(|| routing::get(grants::list)),
    post("/grants", Approve, "Add a grant")
        .body::<api::GrantBody>()
        .responds(&[json::<api::GrantView>(200), json::<api::GrantView>(201)])
        .refuses(&[404, 409])
        .handled_by(|| routing::post(grants::add)),
    get("/grants/{id}", Observe, "Show a grant")
        .responds(&[json::<api::GrantView>(200)])
        .handled_by(|| routing::get(grants::show)),
    delete("/grants/{id}", Approve, "Revoke a grant")
        .responds(&[json::<api::GrantView>(200)])
        .handled_by(|| routing::delete(grants::revoke)),
    post("/grants/{id}/narrow", Approve, "Narrow a grant to the sandbox that its calls need")
        .responds(&[json::<api::GrantView>(200)])
        .handled_by(|| routing::post(grants::narrow)),
    get("/sessions", Observe, "List sessions, newest first")
        .query::<api::SessionQuery>()
        .responds(&[json::<api::SessionPage>(200)])
        .handled_by(|| routing::get(sessions::list)),
    post("/sessions", Run, "Open a session")
        .maybe_body::<api::OpenSessionBody>()
        .responds(&[json::<Session>(200), json::<Session>(201)])
        .handled_by(|| routing::post(sessions::open)),
    get("/sessions/{id}", Observe, "Show a session")
        .responds(&[json::<Session>(200)])
        .handled_by(|| routing::get(sessions::show)),
    delete("/sessions/{id}", Run, "End a session, and the tasks that end with it")
        .responds(&[json::<api::SessionEnd>(200)])
        .handled_by(|| routing::delete(sessions::end)),
    post("/sessions/{id}/directory", Run, "Set the working directory of a session")
        .body::<api::DirectoryBody>()
        .responds(&[json::<Session>(200), json::<TaskState>(202)])
        .handled_by(|| routing::post(sessions::set_directory)),
    get("/tokens", Admin, "List tokens, without their secrets")
        .while_draining(WhileDraining::Refused)
        .responds(&[json::<api::TokenList>(200)])
        .handled_by(|| routing::get(tokens::list)),
    post("/tokens", Admin, "Create a token; its secret is shown only once")
        .body::<api::TokenBody>()
        .responds(&[json::<api::NewToken>(201)])
        .refuses(&[409])
        .handled_by(|| routing::post(tokens::create)),
    delete("/tokens/{id}", Admin, "Revoke a token by id or name")
        .responds(&[json::<api::TokenView>(200)])
        .handled_by(|| routing::delete(tokens::revoke)),
    get("/receipts", Observe, "List receipts, newest first")
        .query::<api::ReceiptQuery>()
        .responds(&[json::<api::ReceiptPage>(200)])
        .handled_by(|| routing::get(receipts::list)),
    post("/receipts/head", Admin, "Get a signed ledger head")
        .responds(&[media(200, ENVELOPE)])
        .handled_by(|| routing::post(receipts::signed_head)),
    get("/artifacts/{digest}", Observe, "Get the bytes that a receipt covers")
        .responds(&[media(200, BYTES), media(200, receipts::NDJSON), media(206, BYTES), NOT_MODIFIED])
        .refuses(&[404, 410, 416])
        .handled_by(|| routing::get(receipts::artifact)),
    get("/keys", Observe, "List the keys that receipts are signed with")
        .responds(&[json::<api::KeyList>(200)])
        .handled_by(|| routing::get(receipts::keys)),
    post("/keys", Admin, "Rotate the signing key")
        .body::<api::RotateBody>()
        .responds(&[json::<KeyAnnounced>(200)])
        .handled_by(|| routing::post(receipts::rotate)),
    post("/hooks/before", Run, "Ask before an agent's own shell runs a command")
        .body::<api::HookBeforeBody>()
        .responds(&[json::<api::HookBeforeResponse>(200)])
        .refuses(&[404, 409, 422])
        .handled_by(|| routing::post(hooks::before)),
    post("/hooks/after", Run, "Report the outcome of a command that the agent ran itself")
        .body::<api::HookAfterBody>()
        .responds(&[json::<api::HookAfterResponse>(200)])
        .refuses(&[404, 409])
        .handled_by(|| routing::post(hooks::after)),
    post("/tickets/{id}", Run, "Redeem a ticket: run its command")
        .body::<api::RedeemBody>()
        .responds(&[json::<api::RedeemResponse>(200)])
        .refuses(&[422])
        .handled_by(|| routing::post(hooks::redeem)),
    get("/tickets/{id}", Observe, "Show the task of a redeemed ticket")
        .responds(&[json::<TaskState>(200)])
        .handled_by(|| routing::get(hooks::redeemed)),
    // A connected client can request commands, whatever method began the connection.
    post("/mcp", Run, "Send an MCP message")
        .request_kind(RequestKind::InBand)
        .responds(&[media(200, "application/json")]),
    get("/mcp", Run, "Receive the messages of an MCP session")
        .request_kind(RequestKind::InBand)
        .responds(&[media(200, "text/event-stream")]),
    delete("/mcp", Run, "End an MCP session")
        .request_kind(RequestKind::InBand)
        .responds(&[media(200, "application/json")]),
    post("/mcp/session", Run, "Open the session of an MCP connection")
        .body::<api::McpSessionBody>()
        .responds(&[json::<api::McpSessionResponse>(200)])
        .refuses(&[404, 409])
        .handled_by(|| routing::post(mcp::session)),
    get("/mcp/stdio", Run, "Upgrade to MCP, one message per line, for `csn mcp`")
        .query::<api::McpStdioQuery>()
        .responds(&[UPGRADED])
        .handled_by(|| routing::get(mcp::stdio)),
    get("/events", Observe, "Follow the ledger")
        .query::<api::LedgerQuery>()
        .responds(&[stream::<api::LedgerEvent>()])
        .handled_by(|| routing::get(feed::ledger)),
    get("/lifecycle", Observe, "Show the state of the daemon")
        .while_draining(WhileDraining::AlwaysServed)
        .responds(&[json::<api::Lifecycle>(200)])
        .handled_by(|| routing::get(lifecycle::show)),
    post("/lifecycle", Admin, "Stop the daemon")
        .while_draining(WhileDraining::AlwaysServed)
        .body::<api::StopBody>()
        .responds(&[json::<api::StopResponse>(202)])
        .handled_by(|| routing::post(lifecycle::stop)),
    post("/listen", Admin, "Listen on loopback, for callers with a token")
        .maybe_body::<api::ListenBody>()
        .responds(&[json::<api::ListenResponse>(200)])
        .handled_by(|| routing::post(lifecycle::listen)),
    post("/gc", Admin, "Run retention: remove the files of finished tasks")
        .maybe_body::<api::GcBody>()
        .responds(&[json::<api::GcReport>(200)])
        .handled_by(|| routing::post(lifecycle::gc)),
    post("/ledger", Admin, "Rebuild the index of the ledger")
        .body::<api::RebuildBody>()
        .responds(&[json::<api::IndexRebuilt>(200)])
        .handled_by(|| routing::post(lifecycle::rebuild)),
    get("/livez", Observe, "Check that the daemon answers")
        .public()
        .responds(&[media(200, "text/plain")])
        .handled_by(|| routing::get(lifecycle::alive)),
    get("/readyz", Observe, "Check that the daemon is ready, or why it is not")
        .public()
        .responds(&[json::<api::Readiness>(200), json::<api::Readiness>(503)])
        .handled_by(|| routing::get(lifecycle::ready)),
    get("/openapi.json", Observe, "Get this description of the API")
        .responds(&[media(200, "application/json")])
        .handled_by(|| routing::get(openapi::show)),
];

/// The rows for requests outside of the table. Only recognised callers are told that a path does not exist, and only
/// the owner for methods that change something. A public path tells everyone which methods it supports.
static UNLISTED_ROUTES: [Route; 3] = [get("", Observe, ""), post("", Admin, ""), get("", Observe, "").public()];

/// The row of a request; `path` is the path that it matched.
pub(crate) fn find_route(method: &Method, path: Option<&str>) -> &'static Route {
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    let known = ROUTES.iter().find(|route| Some(route.path) == path && route.method == *method);
    let mut there = ROUTES.iter().filter(|route| Some(route.path) == path).peekable();
    known.unwrap_or_else(|| match *method {
        // The path exists but not with this method; recognised callers are told so.
        _ if there.peek().is_some() => &UNLISTED_ROUTES[if there.any(|r| r.access == Access::Public) { 2 } else { 0 }],
        Method::GET => &UNLISTED_ROUTES[0],
        _ => &UNLISTED_ROUTES[1],
    })
}

/// A router with every route of the table.
pub(crate) fn router() -> Router<Arc<HttpState>> {
    ROUTES.iter().fold(Router::new(), |router, route| match route.handler {
        Some(handler) => router.route(route.path, handler()),
        None => router,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_row_is_unique_and_names_its_responses() {
        let mut seen = HashSet::new();
        for route in ROUTES {
            assert!(seen.insert((route.method.clone(), route.path)), "{} {} twice", route.method, route.path);
            assert!(!route.summary.is_empty() && !route.successes.is_empty(), "{} {}", route.method, route.path);
            assert!(route.body.is_none() || route.method == Method::POST, "{} {}", route.method, route.path);
        }
    }

    #[test]
    fn every_row_except_mcp_has_a_handler() {
        let without: Vec<_> = ROUTES.iter().filter(|r| r.handler.is_none()).map(|r| r.path).collect();
        assert_eq!(without, ["/mcp", "/mcp", "/mcp"]);
        // Two rows for one path and method would panic here.
        let _ = router();
    }

    #[test]
    fn a_route_that_changes_something_needs_more_than_observe() {
        for route in ROUTES {
            let looks = route.access == Access::Public || route.access == Access::Needs(Observe);
            let reads = route.method == Method::GET || route.path == "/check";
            assert!(!looks || reads, "{} {} changes something and needs only `observe`", route.method, route.path);
            assert_eq!(route.access == Access::Public, matches!(route.path, "/livez" | "/readyz"), "{}", route.path);
            if matches!(route.path, "/mcp" | "/mcp/stdio") {
                assert_eq!(route.access, Access::Needs(Run), "{}", route.path);
            }
            if route.path.starts_with("/tokens") {
                assert_eq!(route.access, Access::Needs(Admin), "{}", route.path);
            }
        }
    }

    #[test]
    fn an_unlisted_path_needs_a_caller_and_the_owner_to_change_it() {
        assert_eq!(find_route(&Method::GET, Some("/tasks")).path, "/tasks");
        assert_eq!(find_route(&Method::HEAD, Some("/tasks/{id}")).path, "/tasks/{id}");
        assert_eq!(find_route(&Method::GET, None).access, Access::Needs(Observe));
        for nowhere in
            [find_route(&Method::PUT, None), find_route(&Method::DELETE, None), find_route(&Method::POST, Some("/x"))]
        {
            assert_eq!(nowhere.access, Access::Needs(Admin));
        }
        assert_eq!(
            find_route(&Method::PUT, Some("/tasks")).access,
            Access::Needs(Observe),
            "callers are told which methods exist"
        );
        assert_eq!(find_route(&Method::PUT, Some("/livez")).access, Access::Public);
    }

    #[test]
    fn the_documentation_names_every_route() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md")).unwrap();
        let named: HashSet<(String, String)> = page
            .lines()
            .filter(|line| line.starts_with('|'))
            .flat_map(|line| line.split('`').skip(1).step_by(2))
            .filter_map(|code| code.split_once(' '))
            .map(|(methods, path)| (methods.to_owned(), path.split('?').next().unwrap_or_default().to_owned()))
            .collect();
        for route in ROUTES {
            let row = (route.method.to_string(), route.path.to_owned());
            assert!(named.contains(&row), "docs/api.md has no row for `{} {}`", route.method, route.path);
        }
        for (method, path) in named.iter().filter(|(method, _)| method.bytes().all(|b| b.is_ascii_uppercase())) {
            let known = ROUTES.iter().any(|r| r.method.as_str() == method && r.path == path);
            assert!(known, "docs/api.md names `{method} {path}`, which does not exist");
        }
    }
}
