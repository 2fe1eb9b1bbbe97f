//! A server with the tools, prompts and resources that the MCP conformance suite expects, on the same transport as the
//! daemon's `/mcp`. It is for development: no release contains this program, and no daemon contains this server.
//!
//! `csn-mcp-fixture 127.0.0.1:PORT` prints `ready` once it serves `/mcp` there. It runs until it is killed.

// The suite also covers parts that the protocol has deprecated: sampling, roots, logging, `resources/subscribe`.
#![expect(deprecated)]

mod client_calls;
mod input_rounds;
mod prompts;
mod resources;
mod tools;

use axum::Router;
use countersign_daemon::over_http;
use input_rounds::{RequestStates, RoundResult};
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

/// The suite sends the origin of a page of this server.
const ALLOWED_ORIGINS: [&str; 3] = ["http://127.0.0.1:*", "http://localhost:*", "http://[::1]:*"];

#[tokio::main]
async fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).ok_or_else(|| io::Error::other("usage: csn-mcp-fixture 127.0.0.1:PORT"))?;
    let listener = TcpListener::bind(&address).await?;
    println!("ready");
    axum::serve(listener, Router::new().route_service("/mcp", mcp_service())).await
}

fn mcp_service() -> StreamableHttpService<Fixture, LocalSessionManager> {
    let (states, changes) = (Arc::<RequestStates>::default(), Arc::new(watch::Sender::default()));
    over_http(&ALLOWED_ORIGINS, move || Fixture {
        states: Arc::clone(&states),
        // Subscribed here, so that a change before the first listener is not lost.
        list_changes: changes.subscribe(),
        changes: Arc::clone(&changes),
        level: Mutex::new(LoggingLevel::Debug),
        watched: Mutex::default(),
    })
}

/// How many times each list has changed.
#[derive(Default, Clone, Copy)]
struct ListChanges {
    tools: u64,
    prompts: u64,
}

/// The server of one connection; all connections share the first two fields.
struct Fixture {
    states: Arc<RequestStates>,
    changes: Arc<watch::Sender<ListChanges>>,
    list_changes: watch::Receiver<ListChanges>,
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
        let implementation = Implementation::new("countersign-fixture", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities).with_server_info(implementation)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::list_tools()?))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::list_tools().ok()?.into_iter().find(|t| t.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.to_string();
        if let Some(content) = tools::fixed_content(&name) {
            return Ok(CallToolResult::success(parse_json(content)?).into());
        }
        if let Some(rounds) = input_rounds::find_rounds(&name) {
            let (responses, state) = (request.input_responses.unwrap_or_default(), request.request_state);
            return Ok(match rounds.advance(&self.states, responses, state, context.client_capabilities())? {
                RoundResult::InputRequired(result) => result.into(),
                RoundResult::Answer(text) => CallToolResult::success(vec![ContentBlock::text(text)]).into(),
            });
        }
        let args = Value::from(request.arguments.unwrap_or_default());
        self.call_with_client(&name, &args, &context).await.map(CallToolResponse::from)
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(prompts::list_prompts()?))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if let Some(rounds) = input_rounds::find_rounds(&request.name) {
            let (responses, state) = (request.input_responses.unwrap_or_default(), request.request_state);
            return Ok(match rounds.advance(&self.states, responses, state, context.client_capabilities())? {
                RoundResult::InputRequired(result) => result.into(),
                RoundResult::Answer(text) => prompts::text_prompt(text).into(),
            });
        }
        let args = Value::from(request.arguments.unwrap_or_default());
        prompts::get_prompt(&request.name, &args).map(GetPromptResponse::from)
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
        Ok(ListResourcesResult::with_all_items(resources::list_resources()?))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::list_templates()?))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        resources::read_resource(&request.uri).map(ReadResourceResponse::from)
    }

    async fn subscribe(&self, request: SubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        resources::read_resource(&request.uri)?;
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
        let mut changes = self.list_changes.clone();
        let mut notified = *changes.borrow();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = changes.changed() => if changed.is_err() { return Ok(()) },
            }
            let now = *changes.borrow_and_update();
            // The sink drops what the client has not subscribed to.
            if now.tools != notified.tools {
                let _ = context.sink().notify_tool_list_changed().await;
            }
            if now.prompts != notified.prompts {
                let _ = context.sink().notify_prompt_list_changed().await;
            }
            notified = now;
        }
    }
}

/// Whether a request uses the protocol without sessions, in which each request carries all settings.
fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|v| v.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

/// A type of rmcp, written as JSON here.
fn parse_json<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|e| ErrorData::internal_error(format!("the fixture is wrong: {e}"), None))
}
