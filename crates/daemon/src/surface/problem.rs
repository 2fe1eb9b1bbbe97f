//! Every error is `application/problem+json` (RFC 9457) with a stable code and a hint; never an empty body.

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Request},
    http::{StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use countersign_model::{Code, Refusal, TaskId};
use countersign_store::ledger::LedgerError;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct Problem {
    refusal: Refusal,
    task: Option<TaskId>,
}

impl Problem {
    pub(crate) fn into_refusal(self) -> Refusal {
        self.refusal
    }

    pub(crate) fn task(&self) -> Option<TaskId> {
        self.task
    }

    pub(crate) fn parts(self) -> (Refusal, Option<TaskId>) {
        (self.refusal, self.task)
    }

    pub(crate) fn of_task(mut self, task: TaskId) -> Self {
        self.task = Some(task);
        self
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, task: None }
    }
}

impl From<LedgerError> for Problem {
    fn from(e: LedgerError) -> Self {
        Refusal::new(Code::LedgerUnavailable, e.to_string()).hint("see `csn doctor`").into()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Refusal { code, message, hint } = self.refusal;
        // What it quotes may hold a secret; who sent it knows it, but not who keeps the answer.
        let message = countersign_redact::text_by_shape(&message);
        let hint = hint.map(|hint| countersign_redact::text_by_shape(&hint).into_inner());
        let mut body = json!({
            "type": format!("urn:countersign:problem:{}", code.as_str()),
            "title": code.as_str().replace('_', " "),
            "status": code.http_status(),
            "detail": message,
            "code": code,
        });
        if let Some(hint) = hint {
            body["hint"] = hint.into();
        }
        if let Some(task) = self.task {
            body["task_id"] = task.to_string().into();
        }
        let status = StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response =
            (status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response();
        if code == Code::Unauthorized {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        }
        if code == Code::Draining {
            response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        }
        response
    }
}

/// A JSON body, or a problem that names the field at fault.
pub(crate) fn body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let de = &mut serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut *de).map_err(|e| {
        let at = e.path().to_string();
        let at = if at == "." { "the body".to_owned() } else { format!("`{at}`") };
        Refusal::new(Code::BadRequest, format!("{at}: {}", plainly(&e.inner().to_string())))
    })?;
    de.end().map_err(|e| Refusal::new(Code::BadRequest, format!("the body: {e}")))?;
    Ok(value)
}

/// What a parser says, without the names that our types have.
fn plainly(message: &str) -> String {
    match message.split_once("expected struct ") {
        Some((before, after)) => {
            let rest = after.find(|c: char| !c.is_alphanumeric()).map_or("", |end| &after[end..]);
            format!("{before}expected an object{rest}")
        }
        None => message.to_owned(),
    }
}

/// The parameters of a query; each may be taken once, and what nobody takes is an error.
pub(crate) struct Query(BTreeMap<String, String>);

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = axum::extract::Query::from_request_parts(parts, state).await;
        query.map(|q| Self(q.0)).map_err(|e| Refusal::new(Code::BadRequest, format!("the query: {e}")).into())
    }
}

/// A whole body, no longer than bodies may be.
pub(crate) struct Whole(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for Whole {
    type Rejection = Problem;
    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        Ok(Self(Bytes::from_request(request, state).await.map_err(|e| match e.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                Refusal::new(Code::TooLarge, format!("the body: {e}")).hint("bodies have at most 4 MiB")
            }
            _ => Refusal::new(Code::BadRequest, format!("the body: {e}")),
        })?))
    }
}

/// The variable part of a path.
pub(crate) struct Segment(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = axum::extract::Path::from_request_parts(parts, state).await;
        path.map(|p| Self(p.0)).map_err(|_| Refusal::new(Code::NotFound, "there is nothing at this address").into())
    }
}

impl Query {
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    pub(crate) fn parse<T: std::str::FromStr>(&mut self, name: &str, wanted: &str) -> Result<Option<T>, Problem> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                let shown = countersign_model::Shown::bounded(&text, 40);
                Refusal::new(Code::BadRequest, format!("`{name}` is {wanted}, not `{shown}`")).into()
            }),
        }
    }

    /// How many of a list: `usual` unless asked for, and no more than `most`.
    pub(crate) fn limit(&mut self, usual: usize, most: usize) -> Result<usize, Problem> {
        let limit = self.parse::<usize>("limit", "a number")?.unwrap_or(usual);
        match (1..=most).contains(&limit) {
            true => Ok(limit),
            false => Err(Refusal::new(Code::BadRequest, format!("`limit` is 1 to {most}")).into()),
        }
    }

    pub(crate) fn nothing_else(self) -> Result<(), Problem> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => {
                let shown = countersign_model::Shown::bounded(name, 40);
                Err(Refusal::new(Code::BadRequest, format!("unknown parameter `{shown}`")).into())
            }
        }
    }
}
