//! A call as a value: what is sent, and how its answer is read. It names no daemon and opens no socket; both clients
//! send it.

use crate::{ClientError, HttpRequest, Result};
use serde::de::DeserializeOwned;
use std::{fmt, time::Duration};

/// One call and the type of its answer. [`crate::calls`] has one for every route.
#[derive(Clone)]
pub struct Call<A> {
    pub(crate) request: HttpRequest,
    read: fn(Vec<u8>) -> Result<A>,
    /// An error status that still carries an answer.
    accepted_status: Option<u16>,
    /// How long each part of the answer may take; none means no limit.
    pub(crate) timeout: Option<Duration>,
}

impl<A> Call<A> {
    fn new(request: HttpRequest, read: fn(Vec<u8>) -> Result<A>) -> Self {
        Self { request, read, accepted_status: None, timeout: None }
    }

    /// Adds an idempotency key: a call that is sent again with the same key, even to a later daemon of the same home,
    /// is executed once.
    #[must_use]
    pub fn with_key(mut self, key: &str) -> Self {
        self.request = self.request.header("idempotency-key", key);
        self
    }

    #[must_use]
    pub(crate) fn accepting_status(mut self, status: u16) -> Self {
        self.accepted_status = Some(status);
        self
    }

    /// Sets a time limit. A daemon that does not answer in time counts as gone.
    #[must_use]
    pub fn with_timeout(mut self, patience: Duration) -> Self {
        self.timeout = Some(patience);
        self
    }

    pub(crate) fn read_answer(&self, status: u16, body: Vec<u8>) -> Result<A> {
        if self.is_answer(status) { (self.read)(body) } else { Err(ClientError::from_problem(status, &body)) }
    }

    pub(crate) fn is_answer(&self, status: u16) -> bool {
        status < 400 || self.accepted_status == Some(status)
    }
}

impl<A: DeserializeOwned> Call<A> {
    /// A call whose answer is JSON.
    #[must_use]
    pub fn json(request: HttpRequest) -> Self {
        Self::new(request, |body| serde_json::from_slice(&body).map_err(ClientError::unreadable))
    }
}

impl Call<Vec<u8>> {
    /// A call whose answer is bytes.
    #[must_use]
    pub fn bytes(request: HttpRequest) -> Self {
        Self::new(request, Ok)
    }
}

impl<A> fmt::Debug for Call<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Call").field(&self.request.target()).finish()
    }
}
