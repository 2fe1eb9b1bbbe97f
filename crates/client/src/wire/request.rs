//! One request as a value, and as the bytes for an address.

use crate::{Address, ClientError, Result};
use countersign_model::api::{query::percent_encode, to_query};
use serde::Serialize;
use std::fmt::Write as _;

/// A request, before it is known which daemon gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

impl HttpRequest {
    /// `path` is sent unchanged; [`HttpRequest::path`] builds one from parts.
    #[must_use]
    pub fn new(method: &str, path: impl Into<String>) -> Self {
        Self { method: method.to_owned(), path: path.into(), headers: Vec::new(), body: None }
    }

    /// A path of names and ids. Each of them stays one component, whatever characters it contains.
    #[must_use]
    pub fn path(parts: &[&str]) -> String {
        parts.iter().map(|part| format!("/{}", percent_encode(part))).collect()
    }

    pub(crate) fn get(parts: &[&str]) -> Self {
        Self::new("GET", Self::path(parts))
    }

    pub(crate) fn post(parts: &[&str]) -> Self {
        Self::new("POST", Self::path(parts))
    }

    pub(crate) fn delete(parts: &[&str]) -> Self {
        Self::new("DELETE", Self::path(parts))
    }

    #[must_use]
    pub fn query<Q: Serialize>(mut self, query: &Q) -> Self {
        self.path += &to_query(query);
        self
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Adds a JSON body. All API types can be written as JSON; a body that cannot is sent as `null`, which the daemon
    /// refuses.
    #[must_use]
    pub fn json<B: Serialize>(mut self, body: &B) -> Self {
        self.body = Some(serde_json::to_vec(body).unwrap_or_else(|_| b"null".to_vec()));
        self
    }

    pub(crate) fn target(&self) -> &str {
        &self.path
    }

    #[cfg(test)]
    pub(crate) fn method(&self) -> &str {
        &self.method
    }

    #[cfg(test)]
    pub(crate) fn has_body(&self) -> bool {
        self.body.is_some()
    }

    /// The bytes for `address`. A header with a control character is refused.
    pub(crate) fn to_bytes(&self, address: &Address) -> Result<Vec<u8>> {
        let upgrades = self.headers.iter().any(|(name, _)| name == "upgrade");
        let connection = if upgrades { "upgrade" } else { "close" };
        let Self { method, path, headers, body } = self;
        let host = address.host();
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: {connection}\r\n");
        let authorization = address.authorization().map(|value| ("authorization".to_owned(), value));
        for (name, value) in headers.iter().chain(authorization.iter()) {
            if value.bytes().any(|b| b.is_ascii_control()) {
                return Err(ClientError::Unsendable(format!("the header `{name}` has a control character")));
            }
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if let Some(body) = body {
            let _ = write!(head, "content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body.as_deref().unwrap_or_default());
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BearerToken;
    use countersign_model::api::{CancelBody, WaitQuery};

    #[test]
    fn a_request_is_written_correctly_for_each_transport() {
        let body = CancelBody { reason: Some("why".to_owned()) };
        let request =
            HttpRequest::post(&["tasks", "a/b?c", "cancel"]).query(&WaitQuery { wait_ms: Some(5) }).json(&body);
        let text = |address: &Address| String::from_utf8(request.to_bytes(address).unwrap()).unwrap();
        assert_eq!(
            text(&Address::unix("/x")),
            "POST /tasks/a%2Fb%3Fc/cancel?wait_ms=5 HTTP/1.1\r\nhost: countersign\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: 16\r\n\r\n{\"reason\":\"why\"}"
        );
        let tcp = Address::tcp("127.0.0.1:7311".parse().unwrap(), BearerToken::new("t").unwrap()).unwrap();
        assert!(text(&tcp).contains("\r\nhost: 127.0.0.1:7311\r\n"));
        assert!(text(&tcp).contains("\r\nauthorization: Bearer t\r\n"));
    }

    #[test]
    fn a_header_value_cannot_add_another_header() {
        let request = HttpRequest::get(&["tasks"]).header("idempotency-key", "a\r\nauthorization: x");
        let error = request.to_bytes(&Address::unix("/x")).unwrap_err();
        assert!(!error.is_daemon_gone(), "trying again does not help: {error}");
    }
}
