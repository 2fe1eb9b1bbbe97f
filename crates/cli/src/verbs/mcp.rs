//! `mcp`: a bridge between an agent's pipes and the house. The house speaks MCP; here lines are passed on.
//!
//! A house that goes away and comes back is not the end of the conversation: it is begun again behind the agent's back,
//! and only what was under way is answered with an error. Tasks go on. It starts no house: agents start it.

use super::hook::base;
use crate::{UsageError, target_home::TargetHome};
use anyhow::Context as _;
use countersign_client::{Body, Client, Connection};
use countersign_model::api::{Conversation, McpSessionBody};
use countersign_store::{find_agent_above, clock};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io::{self, BufRead as _, BufReader, IsTerminal as _, Write as _},
    process::ExitCode,
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

/// How long messages wait for a house, from when there was none.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the last answers may take when the agent has hung up.
const LAST: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(100);
/// What a server says that cannot serve right now.
const UNAVAILABLE: i64 = -32000;
const UNREADABLE: i64 = -32700;

pub(crate) fn mcp() -> anyhow::Result<ExitCode> {
    if io::stdin().is_terminal() {
        let message = "`csn mcp` speaks MCP with the agent that starts it: csn install AGENT --mode mcp";
        return Err(UsageError(message.to_owned()).into());
    }
    let bridge = Arc::new(StdioBridge::new(TargetHome::find()?.client)?);
    let reader = Arc::clone(&bridge);
    std::thread::spawn(move || reader.listen());
    for line in io::stdin().lock().split(b'\n') {
        let line = line.context("standard input cannot be read")?;
        let line = String::from_utf8_lossy(&line);
        if !line.trim().is_empty() {
            bridge.pass_on(line.trim_end().to_owned());
        }
    }
    bridge.last_answers();
    Ok(ExitCode::SUCCESS)
}

struct StdioBridge {
    client: Client,
    /// What the house is told of this connection, the same each time.
    said: McpSessionBody,
    talk: Mutex<BridgeState>,
    connected: Condvar,
}

struct BridgeState {
    daemon: Option<Connection>,
    /// Since when there is none.
    alone: Instant,
    /// How the agent began, to begin again for it.
    initialize: Option<String>,
    initialized: Option<String>,
    /// Requests without an answer, by their id as it is written.
    open: BTreeMap<String, Value>,
}

impl StdioBridge {
    fn new(client: Client) -> anyhow::Result<Self> {
        let cwd = std::env::current_dir().context("the current directory is gone")?;
        let cwd = cwd.to_str().context("the directory's name is not UTF-8")?;
        let me = std::process::id();
        let conversation = Conversation {
            agent: "mcp".to_owned(),
            id: format!("connection {me}"),
            cwd: cwd.to_owned(),
            agent_pid: Some(find_agent_above(me)),
        };
        let said = McpSessionBody { conversation, environment: base() };
        let (initialize, initialized, open) = (None, None, BTreeMap::new());
        let talk = BridgeState { daemon: None, alone: clock::steady(), initialize, initialized, open };
        Ok(Self { client, said, talk: Mutex::new(talk), connected: Condvar::new() })
    }

    /// Takes what the house says to the agent, for as long as there is an agent.
    fn listen(&self) {
        loop {
            match self.connect() {
                Ok(daemon) => self.hear(daemon),
                // There is nothing to wait for but time: nobody tells when a house comes up.
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    fn connect(&self) -> anyhow::Result<BufReader<Body>> {
        let session = self.client.mcp_session(&self.said)?;
        let mut from = BufReader::new(self.client.mcp(session)?);
        let mut to = from.get_ref().writer()?;
        let mut talk = self.talk.lock().expect("nothing panics while it holds this lock");
        if let Some(line) = &talk.initialize {
            writeln!(to, "{line}")?;
            let mut answer = String::new();
            from.read_line(&mut answer)?;
            talk.initialized.iter().try_for_each(|line| writeln!(to, "{line}"))?;
        }
        talk.daemon = Some(to);
        drop(talk);
        self.connected.notify_all();
        Ok(from)
    }

    /// Until the house hangs up.
    fn hear(&self, daemon: BufReader<Body>) {
        for line in daemon.lines().map_while(Result::ok) {
            if let Ok(message) = serde_json::from_str::<Value>(&line)
                && message.get("method").is_none()
                && let Some(id) = message.get("id")
            {
                print_line(&line);
                self.talk.lock().expect("nothing panics while it holds this lock").open.remove(&id.to_string());
                self.connected.notify_all();
                continue;
            }
            print_line(&line);
        }
        let mut talk = self.talk.lock().expect("nothing panics while it holds this lock");
        (talk.daemon, talk.alone) = (None, clock::steady());
        let open = std::mem::take(&mut talk.open);
        drop(talk);
        for id in open.into_values() {
            unavailable(&id, "the house went away; tasks go on: look with task_list once it is back");
        }
    }

    /// The agent will say no more. What it asked last is answered, if that does not take long.
    fn last_answers(&self) {
        let talk = self.talk.lock().expect("nothing panics while it holds this lock");
        let _ = self.connected.wait_timeout_while(talk, LAST, |talk| !talk.open.is_empty());
    }

    /// Takes what the agent says to the house.
    fn pass_on(&self, line: String) {
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            let error = json!({"code": UNREADABLE, "message": "this is not JSON"});
            return print_line(&json!({"jsonrpc": "2.0", "id": null, "error": error}).to_string());
        };
        let method = message.get("method").and_then(Value::as_str);
        let id = message.get("id").filter(|_| method.is_some()).cloned();
        let talk = self.talk.lock().expect("nothing panics while it holds this lock");
        let patience = PATIENCE.saturating_sub(talk.alone.elapsed());
        let waited = self.connected.wait_timeout_while(talk, patience, |talk| talk.daemon.is_none());
        let (mut talk, _) = waited.expect("nothing panics while it holds this lock");
        let sent = talk.daemon.as_mut().is_some_and(|daemon| writeln!(daemon, "{line}").is_ok());
        match (sent, id) {
            (true, Some(id)) => {
                talk.open.insert(id.to_string(), id);
            }
            (true, None) => {}
            (false, Some(id)) => {
                let message = "no countersign runs: a person starts it with `csn up --detach` or `csn service install`";
                unavailable(&id, message);
            }
            (false, None) => {}
        }
        match method {
            Some("initialize") => (talk.initialize, talk.initialized) = (Some(line), None),
            Some("notifications/initialized") => talk.initialized = Some(line),
            _ => {}
        }
    }
}

fn unavailable(id: &Value, message: &str) {
    print_line(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": UNAVAILABLE, "message": message}}).to_string());
}

/// Whole lines only, whoever writes them. An agent that has hung up ends us.
fn print_line(line: &str) {
    let mut out = io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}
