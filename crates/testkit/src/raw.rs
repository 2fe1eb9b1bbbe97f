//! Calls as a stranger may make them: any path, any headers, any JSON. Tests of what the daemon refuses need these.

use countersign_client::{Call, Client, HttpRequest, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub trait RawCalls {
    /// Any call; the bytes of its answer.
    fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Result<Vec<u8>>;

    /// Posts any JSON; the answer as JSON.
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

/// A body or a query of the API, written as JSON.
pub fn body<T: DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).expect("a body of the API")
}
