//! The scripted model of one session: what it is to say, and what it was shown.

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
    /// Starts one that takes these steps, in a directory that is not there yet.
    pub(super) fn start(dir: &Path, steps: &[Value]) -> Result<Self> {
        fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let write = |name: &str, text: String| fs::write(dir.join(name), text).map_err(|e| format!("{name}: {e}"));
        write("steps.json", Value::from(steps).to_string())?;
        write("model.py", SCRIPT.to_owned())?;
        let mut python = command("/usr/bin/python3");
        python.arg(dir.join("model.py")).arg(dir).env_clear().stdin(Stdio::null());
        let process = python.spawn().map_err(|e| format!("python3: {e}"))?;
        let mut model = Self { dir: dir.to_owned(), process, port: 0 };
        let patience = Deadline::begin();
        loop {
            if let Ok(port) = fs::read_to_string(dir.join("port")) {
                model.port = port.parse().map_err(|e| format!("the model's port: {e}"))?;
                return Ok(model);
            }
            if !patience.left() {
                return Err("the scripted model does not start".into());
            }
        }
    }

    /// The results of the tools that the model was shown, in order: those of the request that had most of them.
    pub(super) fn saw(&self) -> Result<Vec<String>> {
        let requests = self.dir.join("requests");
        let mut most = Vec::new();
        for entry in fs::read_dir(&requests).map_err(|e| format!("{}: {e}", requests.display()))?.flatten() {
            let text = fs::read_to_string(entry.path()).map_err(|e| e.to_string())?;
            let request: Value = serde_json::from_str(&text).map_err(|e| format!("a request: {e}"))?;
            let results = results(&request["body"]);
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

/// The results of tools in a request of either dialect, as the model reads them.
fn results(body: &Value) -> Vec<String> {
    let messages = body["messages"].as_array().into_iter().flatten();
    let parts = messages.flat_map(|message| message["content"].as_array().into_iter().flatten());
    let anthropic = parts.filter(|part| part["type"] == "tool_result").map(|part| text(&part["content"]));
    let items = body["input"].as_array().into_iter().flatten();
    let openai = items.filter(|item| item["type"] == "function_call_output").map(|item| text(&item["output"]));
    anthropic.chain(openai).collect()
}

fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(|part| part["text"].as_str().unwrap_or_default()).collect(),
        other => other.to_string(),
    }
}
