//! `mcp`: a bridge between the standard streams that an agent gives it and the MCP server in the daemon. It forwards
//! lines and understands only what it needs to reconnect.
//!
//! When the daemon restarts, the bridge connects and initializes again without the agent noticing; only open requests
//! get an error. Tasks keep running. The bridge never starts a daemon, because an agent starts the bridge.

use super::hook::base_environment;
use crate::{UsageError, target_home::TargetHome};
use anyhow::Context as _;
use countersign_client::{Body, Client, Connection};
use countersign_model::api::{Conversation, McpSessionBody};
use countersign_store::{clock, find_agent_above};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io::{self, BufRead as _, BufReader, IsTerminal as _, Write as _},
    process::ExitCode,
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

/// How long a message waits for a daemon, counted from when the last one went away.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the last answers may take after the agent has closed its end.
const LAST_ANSWERS_TIMEOUT: Duration = Duration::from_secs(1);
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// The JSON-RPC error codes for a server that is unavailable and for a message that is not JSON.
const UNAVAILABLE_CODE: i64 = -32000;
const PARSE_ERROR_CODE: i64 = -32700;

pub(crate) fn mcp() -> anyhow::Result<ExitCode> {
    if io::stdin().is_terminal() {
        let message = "`csn mcp` talks to the agent that starts it; to set that up: csn install AGENT --mode mcp";
        return Err(UsageError(message.to_owned()).into());
    }
    let bridge = Arc::new(StdioBridge::new(TargetHome::find()?.client)?);
    let reader = Arc::clone(&bridge);
    std::thread::spawn(move || reader.forward_to_agent());
    for line in io::stdin().lock().split(b'\n') {
        let line = line.context("standard input cannot be read")?;
        let line = String::from_utf8_lossy(&line);
        if !line.trim().is_empty() {
            bridge.forward_to_daemon(line.trim_end().to_owned());
        }
    }
    bridge.wait_for_last_answers();
    Ok(ExitCode::SUCCESS)
}

struct StdioBridge {
    client: Client,
    /// What the daemon learns about this connection, each time the bridge connects.
    session: McpSessionBody,
    state: Mutex<BridgeState>,
    connected: Condvar,
}

struct BridgeState {
    daemon: Option<Connection>,
    /// When the last daemon went away.
    disconnected_at: Instant,
    /// The agent's `initialize` and `initialized` messages, to repeat them to the next daemon.
    initialize: Option<String>,
    initialized: Option<String>,
    /// Requests without an answer, by the JSON text of their id.
    open: BTreeMap<String, Value>,
}

impl StdioBridge {
    fn new(client: Client) -> anyhow::Result<Self> {
        let cwd = std::env::current_dir()
            .context("the current directory no longer exists: start the agent in another one")?;
        let cwd =
            cwd.to_str().context("the name of the working directory is not UTF-8; start the agent in another one")?;
        let me = std::process::id();
        let conversation = Conversation {
            agent: "mcp".to_owned(),
            id: format!("connection {me}"),
            cwd: cwd.to_owned(),
            agent_pid: Some(find_agent_above(me)),
        };
        let session = McpSessionBody { conversation, environment: base_environment() };
        let (initialize, initialized, open) = (None, None, BTreeMap::new());
        let state = BridgeState { daemon: None, disconnected_at: clock::steady(), initialize, initialized, open };
        Ok(Self { client, session, state: Mutex::new(state), connected: Condvar::new() })
    }

    /// Forwards messages of the daemon to the agent until this process exits.
    fn forward_to_agent(&self) {
        loop {
            match self.connect() {
                Ok(daemon) => self.forward_until_closed(daemon),
                // Nothing tells when a daemon starts: poll.
                Err(_) => std::thread::sleep(RETRY_PAUSE),
            }
        }
    }

    fn connect(&self) -> anyhow::Result<BufReader<Body>> {
        let session = self.client.mcp_session(&self.session)?;
        let mut from = BufReader::new(self.client.mcp(session)?);
        let mut to = from.get_ref().writer()?;
        let mut state = self.state.lock().expect("nothing panics while it holds this lock");
        if let Some(line) = &state.initialize {
            writeln!(to, "{line}")?;
            let mut answer = String::new();
            from.read_line(&mut answer)?;
            if let Some(line) = &state.initialized {
                writeln!(to, "{line}")?;
            }
        }
        state.daemon = Some(to);
        drop(state);
        self.connected.notify_all();
        Ok(from)
    }

    /// Forwards messages of one daemon until it closes the connection, then answers the open requests with an error.
    fn forward_until_closed(&self, daemon: BufReader<Body>) {
        for line in daemon.lines().map_while(Result::ok) {
            if let Ok(message) = serde_json::from_str::<Value>(&line)
                && message.get("method").is_none()
                && let Some(id) = message.get("id")
            {
                print_line(&line);
                self.state.lock().expect("nothing panics while it holds this lock").open.remove(&id.to_string());
                self.connected.notify_all();
                continue;
            }
            print_line(&line);
        }
        let mut state = self.state.lock().expect("nothing panics while it holds this lock");
        state.daemon = None;
        state.disconnected_at = clock::steady();
        let open = std::mem::take(&mut state.open);
        drop(state);
        for id in open.into_values() {
            print_unavailable(&id, "the daemon stopped; tasks keep running: call task_list once the daemon is back");
        }
    }

    /// Waits a short time for the answers to the last requests, after the agent has closed its end.
    fn wait_for_last_answers(&self) {
        let state = self.state.lock().expect("nothing panics while it holds this lock");
        let _ = self.connected.wait_timeout_while(state, LAST_ANSWERS_TIMEOUT, |state| !state.open.is_empty());
    }

    /// Forwards a message of the agent to the daemon.
    fn forward_to_daemon(&self, line: String) {
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            let error = json!({"code": PARSE_ERROR_CODE, "message": "the message is not JSON"});
            return print_line(&json!({"jsonrpc": "2.0", "id": null, "error": error}).to_string());
        };
        let method = message.get("method").and_then(Value::as_str);
        let id = message.get("id").filter(|_| method.is_some()).cloned();
        let state = self.state.lock().expect("nothing panics while it holds this lock");
        let timeout = CONNECT_TIMEOUT.saturating_sub(state.disconnected_at.elapsed());
        let waited = self.connected.wait_timeout_while(state, timeout, |state| state.daemon.is_none());
        let (mut state, _) = waited.expect("nothing panics while it holds this lock");
        let sent = state.daemon.as_mut().is_some_and(|daemon| writeln!(daemon, "{line}").is_ok());
        if let Some(id) = id {
            if sent {
                state.open.insert(id.to_string(), id);
            } else {
                let message = "the Countersign daemon is not running: a person must run `csn up --detach` or `csn service install`";
                print_unavailable(&id, message);
            }
        }
        match method {
            Some("initialize") => (state.initialize, state.initialized) = (Some(line), None),
            Some("notifications/initialized") => state.initialized = Some(line),
            _ => {}
        }
    }
}

fn print_unavailable(id: &Value, message: &str) {
    print_line(
        &json!({"jsonrpc": "2.0", "id": id, "error": {"code": UNAVAILABLE_CODE, "message": message}}).to_string(),
    );
}

/// Prints one whole line for the agent. Exits if the agent has closed its end.
fn print_line(line: &str) {
    let mut out = io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}
