//! A server with the tools, prompts and resources that the conformance suite of MCP asks for, on the transport that the
//! daemon's own `/mcp` is on. For development alone: no release has this program, and no daemon has this server.
//!
//! `csn-mcp-fixture 127.0.0.1:PORT` says `ready` once it serves `/mcp` there, until it is killed.

// The suite asks for what the protocol has given up as well: sampling, roots, logging, `resources/subscribe`.
#![expect(deprecated)]

mod asking;
mod prompts;
mod resources;
mod talking;
mod tools;

use asking::{Asked, States};
use axum::Router;
use countersign_daemon::over_http;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult, CompletionInfo,
        ContentBlock, GetPromptRequestParams, GetPromptResponse, Implementation, ListPromptsResult,
        ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, LoggingLevel, PaginatedRequestParams,
        ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig,
        SetLevelRequestMethod, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, Tool,
        UnsubscribeRequestParams,
    },
    service::{RequestContext, SubscriptionContext},
    transport::streamable_http_server::{StreamableHttpService, session::local::LocalSessionManager},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, Mutex},
};
use tokio::{net::TcpListener, sync::watch};

/// The suite sends the origin that a page of this server would have.
const ORIGINS: [&str; 3] = ["http://127.0.0.1:*", "http://localhost:*", "http://[::1]:*"];

#[tokio::main]
async fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).ok_or_else(|| io::Error::other("csn-mcp-fixture 127.0.0.1:PORT"))?;
    let listener = TcpListener::bind(&address).await?;
    println!("ready");
    axum::serve(listener, Router::new().route_service("/mcp", service())).await
}

fn service() -> StreamableHttpService<Fixture, LocalSessionManager> {
    let (states, changes) = (Arc::<States>::default(), Arc::new(watch::Sender::default()));
    over_http(&ORIGINS, move || Fixture {
        states: Arc::clone(&states),
        // From here on nothing is missed, also what changes before anybody listens.
        seen: changes.subscribe(),
        changes: Arc::clone(&changes),
        level: Mutex::new(LoggingLevel::Debug),
        watched: Mutex::default(),
    })
}

/// How often the lists have changed.
#[derive(Default, Clone, Copy)]
struct Changes {
    tools: u64,
    prompts: u64,
}

/// A server for one conversation; the first two fields are of all of them.
struct Fixture {
    states: Arc<States>,
    changes: Arc<watch::Sender<Changes>>,
    seen: watch::Receiver<Changes>,
    level: Mutex<LoggingLevel>,
    watched: Mutex<BTreeSet<String>>,
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_completions()
            .enable_logging()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        let named = Implementation::new("countersign-fixture", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities).with_server_info(named)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all()?))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::all().ok()?.into_iter().find(|t| t.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.to_string();
        if let Some(content) = tools::content(&name) {
            return Ok(CallToolResult::success(read(content)?).into());
        }
        if let Some(rounds) = asking::rounds(&name) {
            let (came, state) = (request.input_responses.unwrap_or_default(), request.request_state);
            return Ok(match rounds.go_on(&self.states, came, state, context.client_capabilities())? {
                Asked::Again(question) => question.into(),
                Asked::Enough(text) => CallToolResult::success(vec![ContentBlock::text(text)]).into(),
            });
        }
        let args = Value::from(request.arguments.unwrap_or_default());
        self.talk(&name, &args, &context).await.map(CallToolResponse::from)
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(prompts::all()?))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if let Some(rounds) = asking::rounds(&request.name) {
            let (came, state) = (request.input_responses.unwrap_or_default(), request.request_state);
            return Ok(match rounds.go_on(&self.states, came, state, context.client_capabilities())? {
                Asked::Again(question) => question.into(),
                Asked::Enough(text) => prompts::text(text).into(),
            });
        }
        let args = Value::from(request.arguments.unwrap_or_default());
        prompts::get(&request.name, &args).map(GetPromptResponse::from)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let all = ["paris", "park", "party", "test"].into_iter();
        let fit = all.filter(|word| word.starts_with(&request.argument.value)).map(str::to_owned).collect();
        CompletionInfo::new(fit).map(CompleteResult::new).map_err(|e| ErrorData::internal_error(e, None))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(resources::all()?))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()?))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        resources::get(&request.uri).map(ReadResourceResponse::from)
    }

    async fn subscribe(&self, request: SubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        resources::get(&request.uri)?;
        self.watched.lock().expect("nothing panics while it holds this lock").insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.watched.lock().expect("nothing panics while it holds this lock").remove(&request.uri);
        Ok(())
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if is_modern(&context) {
            return Err(ErrorData::method_not_found::<SetLevelRequestMethod>());
        }
        *self.level.lock().expect("nothing panics while it holds this lock") = request.level;
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut seen = self.seen.clone();
        let mut told = *seen.borrow();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = seen.changed() => if changed.is_err() { return Ok(()) },
            }
            let now = *seen.borrow_and_update();
            // What was not asked for is not sent: the sink knows.
            if now.tools != told.tools {
                let _ = context.sink().notify_tool_list_changed().await;
            }
            if now.prompts != told.prompts {
                let _ = context.sink().notify_prompt_list_changed().await;
            }
            told = now;
        }
    }
}

/// Whether a request is of the protocol without sessions, where everything comes with the request.
fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|v| v.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

/// What stands here as JSON, as rmcp has it.
fn read<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|e| ErrorData::internal_error(format!("the fixture is wrong: {e}"), None))
}
