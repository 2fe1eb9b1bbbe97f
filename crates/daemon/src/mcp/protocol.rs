//! The protocol, through rmcp. No other module of the daemon uses that crate.

use super::{
    INSTRUCTIONS, TEMPLATES, TemplateSpec, lines,
    service::{
        CallOutcome, ClientChannel, Elicitation, ElicitationSupport, McpService, RetryAnswer, ToolCall, ToolResult,
    },
};
use crate::caller::Caller;
use countersign_model::{Choice, Refusal, RefusalCode, tools::ToolSpec};
use countersign_redact::text_by_shape;
use hyper::http::request::Parts;
use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CancelledNotificationParam, ClientResult,
        CompleteRequestMethod, CompleteRequestParams, CompleteResult, ContentBlock, ElicitRequest, ElicitRequestParams,
        ElicitResult, ElicitationAction, ElicitationSchema, Implementation, InputRequest, InputRequiredResult,
        ListPromptsRequestMethod, ListPromptsResult, ListResourceTemplatesResult, ListToolsResult, MetaObject,
        PaginatedRequestParams, ProgressNotificationParam, ProgressToken, ProtocolVersion, ReadResourceRequestParams,
        ReadResourceResponse, ReadResourceResult, RequestId, Resource, ResourceContents, ResourceTemplate,
        ServerCapabilities, ServerConfig, ServerRequest, Tool, ToolAnnotations,
    },
    service::{Peer, PeerRequestOptions, RequestContext},
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde_json::{Map, Value, json};
use std::{sync::Arc, time::Duration};
use tokio::io::{AsyncRead, AsyncWrite};

/// The key of the elicitation in a call that returns with an answer.
const QUESTION_KEY: &str = "approval";
/// The field of the choice in a form.
const DECISION_FIELD: &str = "decision";
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;
/// The maximum length of a label; what a client reports about itself may be longer.
const MAX_LABEL_BYTES: usize = 200;

/// A service as an rmcp server.
pub(crate) struct ProtocolServer<O>(pub(crate) Arc<O>);

/// An MCP service for one path.
pub type HttpService<S> = StreamableHttpService<S, LocalSessionManager>;

/// An MCP service for one path, with a server per conversation, that accepts only these web origins. The conformance
/// suite tests its own server through this function, so that it checks these settings.
pub fn over_http<S: ServerHandler + Send + Sync + 'static>(
    origins: &[&str],
    server: impl Fn() -> S + Send + Sync + 'static,
) -> HttpService<S> {
    // Authentication checks host and origin as well.
    let config = StreamableHttpServerConfig::default()
        .with_sse_keep_alive(Some(KEEP_ALIVE_INTERVAL))
        .with_max_request_body_bytes(MAX_BODY_BYTES)
        .with_allowed_hosts(["localhost", "127.0.0.1", "[::1]", "countersign"])
        .with_allowed_origins(origins.iter().copied())
        .enforce_origin_validation();
    StreamableHttpService::new(move || Ok(server()), Arc::new(LocalSessionManager::default()), config)
}

/// Serves until the client disconnects.
pub(crate) async fn serve_lines<O: McpService>(
    offers: O,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) {
    let (from, to) = tokio::io::split(lines::bound_lines(stream));
    if let Ok(running) = ProtocolServer(Arc::new(offers)).serve((from, to)).await {
        let _ = running.waiting().await;
    }
}

impl<O: McpService> ServerHandler for ProtocolServer<O> {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        let named = Implementation::new("countersign", env!("CARGO_PKG_VERSION")).with_title("Countersign");
        ServerConfig::new(capabilities).with_server_info(named).with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.0.tools().map(tool).collect()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.0.tools().find(|t| t.name == name).map(tool)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let call = ToolCall {
            name: request.name.to_string(),
            caller: request_caller(&context),
            labels: labels(&context),
            retry: retry_answer(&request),
            args: request.arguments.unwrap_or_default(),
        };
        let client = RequestChannel::new(&context);
        match self.0.call(call, &client).await {
            CallOutcome::Done(done) => Ok(call_result(done).into()),
            CallOutcome::Ask { question, state } => {
                let request = InputRequest::Elicitation(ElicitRequest::new(elicitation_form(&question, true)?));
                let requests = [(QUESTION_KEY.to_owned(), request)].into_iter().collect();
                Ok(InputRequiredResult::new(Some(requests), Some(state)).into())
            }
            CallOutcome::Unknown => {
                Err(ErrorData::invalid_params(format!("the tool `{}` does not exist", request.name), None))
            }
        }
    }

    // A method that is not supported is reported as missing, rather than as an empty list.
    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = |t: &TemplateSpec| {
            ResourceTemplate::new(t.uri, t.name).with_description(t.description).with_mime_type(t.mime)
        };
        Ok(ListResourceTemplatesResult::with_all_items(TEMPLATES.iter().map(template).collect()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let read = self
            .0
            .read(&request.uri, request_caller(&context))
            .await
            .map_err(|refusal| resource_error(&refusal, &request.uri))?;
        let contents = match (read.text, read.blob) {
            (Some(text), _) => ResourceContents::text(text, request.uri),
            (None, blob) => ResourceContents::blob(blob.unwrap_or_default(), request.uri),
        };
        let place = serde_json::from_value::<MetaObject>(read.position).unwrap_or_default();
        Ok(ReadResourceResult::new(vec![contents.with_meta(place)]).into())
    }
}

fn tool(spec: &ToolSpec) -> Tool {
    let schema: Map<String, Value> = spec.schema().as_object().cloned().unwrap_or_default();
    let hints = ToolAnnotations::from_raw(
        Some(spec.title.to_owned()),
        Some(spec.read_only),
        Some(spec.destructive),
        Some(spec.read_only),
        Some(spec.open_world),
    );
    Tool::new(spec.name, spec.description, Arc::new(schema)).with_title(spec.title).with_annotations(hints)
}

fn call_result(done: ToolResult) -> CallToolResult {
    let mut result = if done.failed {
        CallToolResult::structured_error(done.structured)
    } else {
        CallToolResult::structured(done.structured)
    };
    let link =
        |l: super::service::ResourceLink| ContentBlock::resource_link(Resource::new(l.uri, l.name).with_size(l.bytes));
    result.content.extend(done.links.into_iter().map(link));
    result
}

fn resource_error(refusal: &Refusal, uri: &str) -> ErrorData {
    let clean = |text: &str| text_by_shape(text).into_inner();
    let data = Some(json!({"uri": uri, "code": refusal.code, "hint": refusal.hint.as_deref().map(clean)}));
    match refusal.code {
        RefusalCode::Internal | RefusalCode::LedgerUnavailable => {
            ErrorData::internal_error(clean(&refusal.message), data)
        }
        _ => ErrorData::resource_not_found(clean(&refusal.message), data),
    }
}

/// The caller of this request, if it came over HTTP.
fn request_caller(context: &RequestContext<RoleServer>) -> Option<Caller> {
    let parts = context.extensions.get::<Parts>()?;
    parts.extensions.get::<Arc<Caller>>().map(|caller| (**caller).clone())
}

/// What a client reports about itself and a call: untrusted, and recorded as such.
fn labels(context: &RequestContext<RoleServer>) -> Vec<(&'static str, String)> {
    let short = |text: String| text.chars().filter(|c| !c.is_control()).take(MAX_LABEL_BYTES / 4).collect::<String>();
    let client = context.client_info().map(|c| ("mcp.client", short(format!("{} {}", c.name, c.version))));
    let meta = serde_json::to_value(&context.meta).unwrap_or_default();
    let named = [("claudecode/toolUseId", "tool_use_id"), ("callId", "call_id"), ("traceparent", "traceparent")];
    let reported = named.into_iter().filter_map(|(key, label)| Some((label, short(meta[key].as_str()?.to_owned()))));
    client.into_iter().chain(reported).collect()
}

/// The answer that a client returns with. A person who declines the form has not answered. An answer without the state
/// of its elicitation is ignored, and the person is asked again.
fn retry_answer(request: &CallToolRequestParams) -> Option<RetryAnswer> {
    let state = request.request_state.as_ref()?;
    let answer = request.input_responses.as_ref().and_then(|all| all.get(QUESTION_KEY));
    let answer = answer.and_then(|value| serde_json::from_value::<ElicitResult>(value.clone()).ok());
    Some(RetryAnswer { state: state.clone(), choice: answer.and_then(|a| parse_choice(&a)) })
}

fn parse_choice(answer: &ElicitResult) -> Option<Choice> {
    match answer.action {
        ElicitationAction::Accept => answer.content.as_ref()?.get(DECISION_FIELD)?.as_str()?.parse().ok(),
        _ => None,
    }
}

/// A flat form with one choice. Clients before 2025-11-25 do not support titles in a `oneOf`.
fn elicitation_form(question: &Elicitation, titled: bool) -> Result<ElicitRequestParams, ErrorData> {
    let choices = &question.choices;
    let mut decision = json!({"type": "string", "title": "Decision"});
    if titled {
        let one = |c: &Choice| json!({"const": c.as_str(), "title": c.label()});
        decision["oneOf"] = choices.iter().map(one).collect();
    } else {
        decision["enum"] = choices.iter().map(|c| c.as_str()).collect();
        decision["enumNames"] = choices.iter().map(|c| c.label()).collect();
    }
    let schema = json!({"type": "object", "required": [DECISION_FIELD], "properties": {DECISION_FIELD: decision}});
    let schema: ElicitationSchema =
        serde_json::from_value(schema).map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
    Ok(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: question.message.clone(),
        requested_schema: schema,
    })
}

/// An elicitation that is shown by the client. Dropping it without an answer cancels it: the approval was answered
/// elsewhere, or nobody waits for it any more.
struct OpenElicitation {
    peer: Peer<RoleServer>,
    question: Option<RequestId>,
}

impl Drop for OpenElicitation {
    fn drop(&mut self) {
        if let Some(question) = self.question.take() {
            let peer = self.peer.clone();
            tokio::spawn(async move {
                let reason = Some("the approval was answered elsewhere, or the call has ended".to_owned());
                let _ = peer.notify_cancelled(CancelledNotificationParam::new(Some(question), reason)).await;
            });
        }
    }
}

/// The channel to the client during one request.
struct RequestChannel<'a> {
    context: &'a RequestContext<RoleServer>,
    token: Option<ProgressToken>,
    elicitation: ElicitationSupport,
    titled: bool,
    keeps_state: bool,
}

impl<'a> RequestChannel<'a> {
    fn new(context: &'a RequestContext<RoleServer>) -> Self {
        let version = context.protocol_version();
        let since = |v: &ProtocolVersion| version.as_ref().is_some_and(|now| now.as_str() >= v.as_str());
        let can = context.client_capabilities().and_then(|c| c.elicitation);
        // A client that names neither mode supports forms, as before there were two.
        let asked = can.is_some_and(|e| e.form.is_some() || e.url.is_none());
        let asks = match (asked, since(&ProtocolVersion::V_2026_07_28)) {
            (false, _) => ElicitationSupport::No,
            (true, false) => ElicitationSupport::Now,
            (true, true) => ElicitationSupport::Again,
        };
        let token = context.meta.get_progress_token();
        // Over HTTP the newer revision has no conversations.
        let lasts = context.extensions.get::<Parts>().is_none() || !since(&ProtocolVersion::V_2026_07_28);
        Self { context, token, elicitation: asks, titled: since(&ProtocolVersion::V_2025_11_25), keeps_state: lasts }
    }
}

impl ClientChannel for RequestChannel<'_> {
    fn wants_progress(&self) -> bool {
        self.token.is_some()
    }

    async fn progress(&self, done: f64, message: String) {
        if let Some(token) = &self.token {
            let progress = ProgressNotificationParam::new(token.clone(), done).with_message(message);
            let _ = self.context.peer.notify_progress(progress).await;
        }
    }

    fn keeps_state(&self) -> bool {
        self.keeps_state
    }

    fn elicitation_support(&self) -> ElicitationSupport {
        self.elicitation
    }

    async fn ask(&self, question: &Elicitation) -> Option<Choice> {
        let request = ServerRequest::ElicitRequest(ElicitRequest::new(elicitation_form(question, self.titled).ok()?));
        let options = PeerRequestOptions::no_options();
        let handle = self.context.peer.send_cancellable_request(request, options).await.ok()?;
        let mut put = OpenElicitation { peer: self.context.peer.clone(), question: Some(handle.id.clone()) };
        let answer = handle.await_response().await;
        put.question = None;
        match answer {
            Ok(ClientResult::ElicitResult(answer)) => parse_choice(&answer),
            _ => None,
        }
    }

    async fn wait_until_gone(&self) {
        self.context.ct.cancelled().await;
    }
}
