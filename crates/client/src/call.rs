//! A call as a value: what is sent, and how its answer reads. It names no daemon and opens no socket; both faces send it.

use crate::{ClientError, HttpRequest, Result};
use serde::de::DeserializeOwned;
use std::{fmt, time::Duration};

/// One call, and the type of its answer. [`crate::calls`] makes one for every route.
#[derive(Clone)]
pub struct Call<A> {
    pub(crate) request: HttpRequest,
    read: fn(Vec<u8>) -> Result<A>,
    /// A status that is an answer although it looks like an error.
    also_answers: Option<u16>,
    /// How long each part of the answer may take; without it, as long as it takes.
    pub(crate) patience: Option<Duration>,
}

impl<A> Call<A> {
    fn new(request: HttpRequest, read: fn(Vec<u8>) -> Result<A>) -> Self {
        Self { request, read, also_answers: None, patience: None }
    }

    /// Sent again under the same key, also to another daemon of the same home, it is done once.
    #[must_use]
    pub fn with_key(mut self, key: &str) -> Self {
        self.request = self.request.header("idempotency-key", key);
        self
    }

    #[must_use]
    pub(crate) fn also_answers(mut self, status: u16) -> Self {
        self.also_answers = Some(status);
        self
    }

    /// A daemon that does not answer within this time counts as gone.
    #[must_use]
    pub fn within(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    pub(crate) fn read_answer(&self, status: u16, body: Vec<u8>) -> Result<A> {
        if self.is_answer(status) { (self.read)(body) } else { Err(ClientError::of_problem(status, &body)) }
    }

    pub(crate) fn is_answer(&self, status: u16) -> bool {
        status < 400 || self.also_answers == Some(status)
    }
}

impl<A: DeserializeOwned> Call<A> {
    /// Its answer is JSON.
    #[must_use]
    pub fn json(request: HttpRequest) -> Self {
        Self::new(request, |body| serde_json::from_slice(&body).map_err(ClientError::unreadable))
    }
}

impl Call<Vec<u8>> {
    /// Its answer is bytes.
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
