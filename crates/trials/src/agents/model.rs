//! The scripted model of one session: the steps that it takes, and the results that it was shown.

use super::super::{Result, command};
use crate::outside::Deadline;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Stdio},
};

const SCRIPT: &str = include_str!("model.py");

pub(super) struct ScriptedModel {
    dir: PathBuf,
    process: Child,
    pub(super) port: u16,
}

impl ScriptedModel {
    /// Starts a model that takes these steps, in a new directory.
    pub(super) fn start(dir: &Path, steps: &[Value]) -> Result<Self> {
        fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let write = |name: &str, text: String| fs::write(dir.join(name), text).map_err(|e| format!("{name}: {e}"));
        write("steps.json", Value::from(steps).to_string())?;
        write("model.py", SCRIPT.to_owned())?;
        let mut python = command("/usr/bin/python3");
        python.arg(dir.join("model.py")).arg(dir).env_clear().stdin(Stdio::null());
        let process = python.spawn().map_err(|e| format!("python3: {e}"))?;
        let mut model = Self { dir: dir.to_owned(), process, port: 0 };
        let deadline = Deadline::start();
        loop {
            if let Ok(port) = fs::read_to_string(dir.join("port")) {
                model.port = port.parse().map_err(|e| format!("the model's port: {e}"))?;
                return Ok(model);
            }
            if !deadline.wait() {
                return Err("the scripted model does not start in time".into());
            }
        }
    }

    /// The tool results that the model was shown, in order: those of the request with the most results.
    pub(super) fn tool_results(&self) -> Result<Vec<String>> {
        let requests = self.dir.join("requests");
        let mut most = Vec::new();
        for entry in fs::read_dir(&requests).map_err(|e| format!("{}: {e}", requests.display()))?.flatten() {
            let text = fs::read_to_string(entry.path()).map_err(|e| e.to_string())?;
            let request: Value = serde_json::from_str(&text).map_err(|e| format!("a request: {e}"))?;
            let results = request_results(&request["body"]);
            if results.len() > most.len() {
                most = results;
            }
        }
        Ok(most)
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The tool results in a request of either API, as the model reads them.
fn request_results(body: &Value) -> Vec<String> {
    let messages = body["messages"].as_array().into_iter().flatten();
    let parts = messages.flat_map(|message| message["content"].as_array().into_iter().flatten());
    let anthropic = parts.filter(|part| part["type"] == "tool_result").map(|part| content_text(&part["content"]));
    let items = body["input"].as_array().into_iter().flatten();
    let openai = items.filter(|item| item["type"] == "function_call_output").map(|item| content_text(&item["output"]));
    anthropic.chain(openai).collect()
}

fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(|part| part["text"].as_str().unwrap_or_default()).collect(),
        other => other.to_string(),
    }
}
