//! Every error is `application/problem+json` (RFC 9457) with a stable code, never an empty body.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use countersign_model::{Refusal, RefusalCode, TaskRefusal, api};
use countersign_redact::text_by_shape;

/// A refusal as an HTTP response.
#[derive(Debug)]
pub(crate) struct Problem(TaskRefusal);

/// The result of a handler.
pub(crate) type HttpResult<T> = Result<T, Problem>;

impl Problem {
    /// Adds an explanation to this message.
    pub(crate) fn explain(mut self, what: &str, more: &str) -> Self {
        if self.0.refusal.message == what {
            self.0.refusal.message = format!("{what}: {more}");
        }
        self
    }
}

impl From<TaskRefusal> for Problem {
    fn from(refused: TaskRefusal) -> Self {
        Self(refused)
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self(refusal.into())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let TaskRefusal { mut refusal, task } = self.0;
        let code = refusal.code;
        // The message may quote a secret, and the response may be logged.
        refusal.message = text_by_shape(&refusal.message).into_inner();
        refusal.hint = refusal.hint.map(|hint| text_by_shape(&hint).into_inner());
        let body = serde_json::to_vec(&api::Problem::from(TaskRefusal { refusal, task })).unwrap_or_default();
        let status = StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response();
        if code == RefusalCode::Unauthorized {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if code == RefusalCode::Draining {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
