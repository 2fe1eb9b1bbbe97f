//! Calls with any path, any headers and any JSON, for tests of what the daemon refuses.

use countersign_client::{Call, Client, HttpRequest, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub trait RawCalls {
    /// Sends any call; returns the bytes of its answer.
    fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Result<Vec<u8>>;

    /// Posts any JSON; returns the answer as JSON.
    fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let bytes = self.call("POST", path, &[], Some(body))?;
        Ok(serde_json::from_slice(&bytes).expect("answers are JSON"))
    }
}

impl RawCalls for Client {
    fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Result<Vec<u8>> {
        let mut request = HttpRequest::new(method, path);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        self.send(&Call::bytes(request))
    }
}

/// A body or a query of the API, from JSON.
pub fn body<T: DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).expect("a body of the API")
}
