//! Extractors: a body, a query, a part of the path, parsed once and strictly. A refusal names the field.

use super::problem::Problem;
use crate::{json::parse, ops::OnceKey};
use axum::{
    extract::{FromRequest, FromRequestParts, Path, Request},
    http::{HeaderMap, StatusCode, request::Parts},
};
use bytes::Bytes;
use countersign_model::{DisplaySafe, Refusal, RefusalCode, api::query};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// A JSON body.
pub(crate) struct Payload<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Payload<T> {
    type Rejection = Problem;
    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        Ok(Self(parse(&read_body(request, state).await?)?))
    }
}

/// A JSON body that may be left out.
pub(crate) struct MaybePayload<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for MaybePayload<T> {
    type Rejection = Problem;
    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let bytes = read_body(request, state).await?;
        Ok(Self(if bytes.is_empty() { T::default() } else { parse(&bytes)? }))
    }
}

/// A body whose content does not matter; its size limit holds.
pub(crate) struct AnyPayload;

impl<S: Send + Sync> FromRequest<S> for AnyPayload {
    type Rejection = Problem;
    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        read_body(request, state).await.map(|_| Self)
    }
}

/// A JSON body with its idempotency key.
pub(crate) struct OncePayload<T> {
    pub(crate) body: T,
    key: Option<String>,
    bytes: Bytes,
}

impl<T> OncePayload<T> {
    pub(crate) fn into_parts(self) -> (T, IdempotentBody) {
        (self.body, IdempotentBody { key: self.key, bytes: self.bytes })
    }
}

/// An idempotency key, and the bytes of the body.
pub(crate) struct IdempotentBody {
    key: Option<String>,
    bytes: Bytes,
}

impl IdempotentBody {
    pub(crate) fn key(&self) -> Option<OnceKey<'_>> {
        self.key.as_deref().map(|key| OnceKey { key, body: &self.bytes })
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for OncePayload<T> {
    type Rejection = Problem;
    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let key = idempotency_key(request.headers());
        let bytes = read_body(request, state).await?;
        Ok(Self { body: parse(&bytes)?, key, bytes })
    }
}

fn idempotency_key(headers: &HeaderMap) -> Option<String> {
    headers.get("idempotency-key").map(|key| String::from_utf8_lossy(key.as_bytes()).into_owned())
}

/// The whole body, within the size limit.
async fn read_body<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Problem> {
    Ok(Bytes::from_request(request, state).await.map_err(|e| match e.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            Refusal::new(RefusalCode::TooLarge, format!("the body is too large: {e}")).hint("a body has at most 4 MiB")
        }
        _ => Refusal::new(RefusalCode::BadRequest, format!("the body cannot be read: {e}")),
    })?)
}

/// The parameters of a query; an unknown one is an error.
pub(crate) struct Params<Q>(pub(crate) Q);

impl<S: Send + Sync, Q: DeserializeOwned> FromRequestParts<S> for Params<Q> {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut pairs = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()) {
            if pairs.insert(name.clone().into_owned(), value.into_owned()).is_some() {
                let shown = DisplaySafe::bounded(&name, 40);
                return Err(Refusal::new(RefusalCode::BadRequest, format!("`{shown}` occurs more than once")).into());
            }
        }
        match query::from_pairs(pairs) {
            Ok(query) => Ok(Self(query)),
            Err(e) => Err(Refusal::new(RefusalCode::BadRequest, e.to_string()).into()),
        }
    }
}

/// The variable part of a path.
pub(crate) struct Segment(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::from_request_parts(parts, state).await;
        path.map(|p| Self(p.0)).map_err(|_| Refusal::new(RefusalCode::NotFound, "this path does not exist").into())
    }
}
