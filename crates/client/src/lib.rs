//! The one typed way in for programs: HTTP over the house's unix socket, blocking, and streams that resume by cursor.

mod attach;
mod events;
mod http;

pub use attach::{AttachOptions, Attached, Attachment};
pub use events::{ApprovalEvents, Event, Events};

use countersign_model::{
    Approval, ApprovalId, Choice, Code, CredentialKind, Digest, HomeId, HouseState, Refusal, Request, Session,
    SessionId, SignalName, StreamName, TaskId, TaskState,
};
use http::{Body, Reply};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    io::{self, BufReader},
    os::unix::net::UnixStream,
    path::PathBuf,
};

/// Why a call did not come back with what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens: there is no daemon for this home.
    #[error("no countersign serves {socket}: {error}")]
    NoHouse { socket: PathBuf, error: io::Error },
    /// The house said no.
    #[error("{refusal}")]
    Refused { refusal: Refusal, task: Option<TaskId> },
    #[error("the connection to the house broke: {0}")]
    Broken(io::Error),
    #[error("the house said something that this program does not understand: {0}")]
    Strange(String),
}

pub type Result<T> = std::result::Result<T, ClientError>;

impl ClientError {
    /// Whether the daemon went away, so that asking again, once there is one, may succeed.
    #[must_use]
    pub fn is_daemon_gone(&self) -> bool {
        matches!(self, Self::NoHouse { .. } | Self::Broken(_))
    }
}

// Not a source: the message says it already.
impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        ClientError::Broken(error)
    }
}

/// How long a house may take to say how it is.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// A house, by its socket.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
}

/// What `/lifecycle` tells.
#[derive(Debug, Clone, Deserialize)]
pub struct Lifecycle {
    pub state: HouseState,
    pub pid: u32,
    pub version: String,
    pub home: PathBuf,
    /// The id of that home; earlier daemons do not say it.
    #[serde(default)]
    pub home_id: Option<HomeId>,
    /// Whom it takes us for.
    #[serde(default)]
    pub you: CredentialKind,
    /// Where it listens on loopback, if it does.
    #[serde(default)]
    pub tcp: Option<String>,
    /// Why only reading is allowed, when the configuration cannot be read.
    #[serde(default)]
    pub degraded: Option<String>,
    /// Why nothing is decided, when the ledger cannot be used.
    #[serde(default)]
    pub reading_only: Option<String>,
    /// Why receipts are not made out, when they are not.
    #[serde(default)]
    pub receipts: Option<String>,
}

/// What came of moving a session.
#[derive(Debug, Clone)]
pub enum Moved {
    There(Box<Session>),
    Asked(Box<TaskState>),
}

/// What a hook is told.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Hooked {
    Deny {
        reason: String,
        #[serde(default)]
        hint: Option<String>,
        #[serde(default)]
        task_id: Option<TaskId>,
    },
    /// With a ticket it is run here; without one the agent runs it.
    Allow {
        #[serde(default)]
        ticket: Option<String>,
        #[serde(default)]
        moves: bool,
    },
    /// A person will be asked when it is run.
    Ask {
        ticket: String,
        #[serde(default)]
        moves: bool,
    },
}

/// A ticket that was taken.
#[derive(Debug, Clone, Deserialize)]
pub struct Redeemed {
    pub task: TaskState,
    /// How long whoever waits for it waits.
    pub patience_ms: u64,
}

/// A page of tasks.
#[derive(Debug, Clone, Deserialize)]
pub struct Page {
    pub tasks: Vec<TaskState>,
    pub next: Option<TaskId>,
}

#[derive(Deserialize)]
struct Applied {
    seq: u64,
}

/// A page of matches, and where the next one begins.
#[derive(Debug, Clone, Deserialize)]
pub struct Found {
    pub matches: Vec<FoundMatch>,
    pub next: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct FoundMatch {
    pub stream: StreamName,
    pub offset_bytes: u64,
    pub bytes: u64,
    pub line: Option<u64>,
    pub excerpt: Value,
    pub before: Vec<Value>,
    pub after: Vec<Value>,
}

#[derive(Deserialize)]
struct Problem {
    code: Code,
    detail: String,
    #[serde(default)]
    hint: Option<String>,
    #[serde(default)]
    task_id: Option<TaskId>,
}

impl Client {
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into() }
    }

    /// Any call; a problem becomes [`ClientError::Refused`].
    pub fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Result<Vec<u8>> {
        let mut reply = self.open(method, path, headers, body)?;
        Ok(reply.body.whole()?)
    }

    /// What a hook asks before its agent runs something.
    pub fn hook(&self, said: &Value) -> Result<Hooked> {
        self.json("POST", "/hooks/before", Some(said))
    }

    /// How something went that the agent ran itself.
    pub fn hook_after(&self, said: &Value) -> Result<()> {
        self.call("POST", "/hooks/after", &[], Some(said)).map(drop)
    }

    /// Has the command of a ticket run.
    pub fn redeem(&self, ticket: &str, with: &Value) -> Result<Redeemed> {
        self.json("POST", &format!("/tickets/{ticket}"), Some(with))
    }

    /// The task that a ticket was redeemed for.
    pub fn ticket(&self, ticket: &str) -> Result<TaskState> {
        self.json("GET", &format!("/tickets/{ticket}"), None)
    }

    /// The session of an MCP connection.
    pub fn mcp_session(&self, said: &Value) -> Result<SessionId> {
        #[derive(Deserialize)]
        struct Opened {
            session_id: SessionId,
        }
        let opened: Opened = self.json("POST", "/mcp/session", Some(said))?;
        Ok(opened.session_id)
    }

    /// A connection that speaks MCP, a message a line.
    pub fn mcp(&self, session: SessionId) -> Result<BufReader<UnixStream>> {
        let reply = self.open("GET", &format!("/mcp/stdio?session={session}"), &[("upgrade", "mcp")], None)?;
        match reply.status {
            101 => Ok(reply.body.into_stream()),
            status => Err(ClientError::Strange(format!("status {status} instead of a conversation"))),
        }
    }

    fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Result<Reply> {
        let stream =
            http::connect(&self.socket).map_err(|error| ClientError::NoHouse { socket: self.socket.clone(), error })?;
        let reply = http::exchange(stream, method, path, headers, body)?;
        if reply.status < 400 {
            return Ok(reply);
        }
        Err(problem(reply.status, reply.body))
    }

    fn json<T: DeserializeOwned>(&self, method: &str, path: &str, body: Option<&Value>) -> Result<T> {
        let bytes = self.call(method, path, &[], body)?;
        serde_json::from_slice(&bytes).map_err(|e| ClientError::Strange(e.to_string()))
    }

    /// Whether a house serves; one that does not answer within seconds does not.
    pub fn lifecycle(&self) -> Result<Lifecycle> {
        let no_house = |error| ClientError::NoHouse { socket: self.socket.clone(), error };
        let stream = http::connect(&self.socket).map_err(no_house)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut reply = http::exchange(stream, "GET", "/lifecycle", &[], None)?;
        let body = reply.body.whole()?;
        serde_json::from_slice(&body).map_err(|e| ClientError::Strange(e.to_string()))
    }

    /// Asks the house to stop, with or without its tasks.
    /// None is as the configuration says.
    pub fn stop(&self, tasks_too: Option<bool>) -> Result<()> {
        let tasks = tasks_too.map(|stop| if stop { "stop" } else { "keep" });
        self.call("POST", "/lifecycle", &[], Some(&json!({"state": "halted", "tasks": tasks}))).map(drop)
    }

    /// Asks for a command. A denial is a refusal that names its task.
    pub fn ask(&self, request: &Request) -> Result<TaskState> {
        self.json("POST", "/tasks", Some(&json!(request)))
    }

    /// Asks under a key: asked again under the same key, also of another daemon, it is the same task and runs once.
    pub fn ask_once(&self, request: &Request, key: &str) -> Result<TaskState> {
        let bytes = self.call("POST", "/tasks", &[("idempotency-key", key)], Some(&json!(request)))?;
        serde_json::from_slice(&bytes).map_err(|e| ClientError::Strange(e.to_string()))
    }

    pub fn tasks(&self, query: &str) -> Result<Page> {
        self.json("GET", &format!("/tasks{query}"), None)
    }

    /// A task by its id or the beginning of it.
    pub fn task(&self, id: &str) -> Result<TaskState> {
        self.json("GET", &format!("/tasks/{}", escaped(id)), None)
    }

    /// A task once it has settled, or as it is after `wait_ms`.
    pub fn wait(&self, task: TaskId, wait_ms: u64) -> Result<TaskState> {
        self.json("GET", &format!("/tasks/{task}?wait_ms={wait_ms}"), None)
    }

    pub fn cancel(&self, task: TaskId, reason: Option<&str>) -> Result<()> {
        self.call("POST", &format!("/tasks/{task}/cancel"), &[], Some(&json!({"reason": reason}))).map(drop)
    }

    pub fn signal(&self, task: TaskId, signal: SignalName) -> Result<()> {
        self.call("POST", &format!("/tasks/{task}/signal"), &[], Some(&json!({"signal": signal}))).map(drop)
    }

    /// Stored bytes from `offset` on, at most `max`; empty at the end.
    pub fn output(&self, task: TaskId, stream: StreamName, offset: u64, max: u64) -> Result<Vec<u8>> {
        let path = format!("/tasks/{task}/output?stream={stream}&offset_bytes={offset}&max_bytes={max}");
        self.call("GET", &path, &[("accept", "application/octet-stream")], None)
    }

    /// The last `lines` lines, and where they begin.
    pub fn tail(&self, task: TaskId, stream: StreamName, lines: u64) -> Result<u64> {
        #[derive(Deserialize)]
        struct Tail {
            offset_bytes: u64,
        }
        let path = format!("/tasks/{task}/output?stream={stream}&tail_lines={lines}&max_bytes=0");
        Ok(self.json::<Tail>("GET", &path, None)?.offset_bytes)
    }

    /// Types into a task; the number of the frame in which it stands. `body` is that of `POST /tasks/{id}/stdin`.
    pub fn stdin(&self, task: TaskId, body: &Value) -> Result<u64> {
        Ok(self.json::<Applied>("POST", &format!("/tasks/{task}/stdin"), Some(body))?.seq)
    }

    pub fn resize(&self, task: TaskId, rows: u16, cols: u16) -> Result<u64> {
        let body = json!({"rows": rows, "cols": cols});
        Ok(self.json::<Applied>("POST", &format!("/tasks/{task}/resize"), Some(&body))?.seq)
    }

    /// A page of what was found.
    pub fn search(&self, task: TaskId, query: &[(&str, String)]) -> Result<Found> {
        let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        self.json("GET", &format!("/tasks/{task}/search?{}", query.join("&")), None)
    }

    /// The recording as asciicast, as it comes.
    pub fn cast(&self, task: TaskId, version: &str) -> Result<impl io::Read + use<>> {
        Ok(self.open("GET", &format!("/tasks/{task}/cast?version={}", escaped(version)), &[], None)?.body)
    }

    /// What a terminal shows, as JSON.
    pub fn screen(&self, task: TaskId) -> Result<Value> {
        self.json("GET", &format!("/tasks/{task}/screen"), None)
    }

    /// Tidies up; what was removed, as JSON.
    pub fn gc(&self, body: &Value) -> Result<Value> {
        self.json("POST", "/gc", Some(body))
    }

    /// Has the index of the ledger made anew.
    pub fn rebuild(&self) -> Result<()> {
        self.call("POST", "/ledger", &[], Some(&json!({"index": "rebuild"}))).map(drop)
    }

    /// The same under a key: sent again, it is applied once.
    pub fn stdin_once(&self, task: TaskId, body: &Value, key: &str) -> Result<()> {
        self.call("POST", &format!("/tasks/{task}/stdin"), &[("idempotency-key", key)], Some(body)).map(drop)
    }

    /// Where the lines `line` to `line + lines` of a stream begin and end.
    pub fn lines(&self, task: TaskId, stream: StreamName, line: u64, lines: u64) -> Result<(u64, u64)> {
        #[derive(Deserialize)]
        struct Lines {
            offset_bytes: u64,
            end_offset: u64,
        }
        let path = format!("/tasks/{task}/output?stream={stream}&line={line}&lines={lines}&max_bytes=0");
        let Lines { offset_bytes, end_offset } = self.json("GET", &path, None)?;
        Ok((offset_bytes, end_offset))
    }

    /// The stream of a task in another vocabulary.
    #[must_use]
    pub fn view(&self, task: TaskId, view: &str) -> Events {
        Events::new(self.clone(), task, None).in_view(view)
    }

    /// The stream of a task, from the frame after `after` on.
    #[must_use]
    pub fn events(&self, task: TaskId, after: Option<u64>) -> Events {
        Events::new(self.clone(), task, after)
    }

    /// Approvals, page by page: those that wait and have a card, oldest first; or all, newest first.
    pub fn approvals(&self, all: bool) -> Result<Vec<Approval>> {
        Ok(self.approvals_and_more(all)?.0)
    }

    /// The same, and how many wait without a card.
    pub fn approvals_and_more(&self, all: bool) -> Result<(Vec<Approval>, u64)> {
        #[derive(Deserialize)]
        struct List {
            approvals: Vec<Approval>,
            next: Option<TaskId>,
            without_card: u64,
        }
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let page: List = self.json("GET", &format!("/approvals?all={all}&limit=500{cursor}"), None)?;
            found.extend(page.approvals);
            match page.next {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return Ok((found, page.without_card)),
            }
        }
    }

    /// Approvals as they are opened and resolved; those that wait come first.
    #[must_use]
    pub fn approval_events(&self) -> ApprovalEvents {
        ApprovalEvents::new(self.clone())
    }

    /// An approval by its id or the beginning of it.
    pub fn approval(&self, id: &str) -> Result<Approval> {
        self.json("GET", &format!("/approvals/{}", escaped(id)), None)
    }

    pub fn answer(&self, id: ApprovalId, choice: Choice, words: Option<&str>) -> Result<Approval> {
        self.answer_with(id, choice, words, false)
    }

    /// With what it saves for any arguments, where it would be for these alone.
    pub fn answer_with(
        &self,
        id: ApprovalId,
        choice: Choice,
        words: Option<&str>,
        any_arguments: bool,
    ) -> Result<Approval> {
        let body = json!({"choice": choice, "words": words, "any_arguments": any_arguments});
        self.json("POST", &format!("/approvals/{id}"), Some(&body))
    }

    /// Every grant that holds, newest first, as JSON with its label.
    pub fn grants(&self) -> Result<Vec<Value>> {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let page: Value = self.json("GET", &format!("/grants?limit=500{cursor}"), None)?;
            found.extend(page["grants"].as_array().cloned().unwrap_or_default());
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return Ok(found),
            }
        }
    }

    /// Gives a grant; `body` is that of `POST /grants`.
    pub fn grant(&self, body: &Value) -> Result<Value> {
        self.json("POST", "/grants", Some(body))
    }

    pub fn revoke_grant(&self, id: &str) -> Result<Value> {
        self.json("DELETE", &format!("/grants/{}", escaped(id)), None)
    }

    /// Has the calls of a grant run in what their risks need, from now on.
    pub fn narrow_grant(&self, id: &str) -> Result<Value> {
        self.json("POST", &format!("/grants/{}/narrow", escaped(id)), Some(&Value::Null))
    }

    pub fn open_session(&self, body: &Value) -> Result<Session> {
        self.json("POST", "/sessions", Some(body))
    }

    pub fn session(&self, id: &str) -> Result<Session> {
        self.json("GET", &format!("/sessions/{}", escaped(id)), None)
    }

    pub fn sessions(&self, all: bool) -> Result<Vec<Session>> {
        #[derive(Deserialize)]
        struct List {
            sessions: Vec<Session>,
            next: Option<SessionId>,
        }
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let page: List = self.json("GET", &format!("/sessions?all={all}&limit=500{cursor}"), None)?;
            found.extend(page.sessions);
            match page.next {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return Ok(found),
            }
        }
    }

    /// Where a session works from now on: the session, or the task of a question that a person must answer first.
    pub fn set_directory(&self, id: &str, directory: &str) -> Result<Moved> {
        let body = json!({"directory": directory});
        let value: Value = self.json("POST", &format!("/sessions/{}/directory", escaped(id)), Some(&body))?;
        let strange = |e: serde_json::Error| ClientError::Strange(e.to_string());
        match value.get("task_id").is_some() {
            true => serde_json::from_value(value).map(|t| Moved::Asked(Box::new(t))).map_err(strange),
            false => serde_json::from_value(value).map(|s| Moved::There(Box::new(s))).map_err(strange),
        }
    }

    /// Ends a session; what was stopped with it.
    pub fn end_session(&self, id: &str) -> Result<Vec<TaskId>> {
        #[derive(Deserialize)]
        struct Ended {
            stopped: Vec<TaskId>,
        }
        Ok(self.json::<Ended>("DELETE", &format!("/sessions/{}", escaped(id)), None)?.stopped)
    }

    /// Makes a token; the answer holds it, once.
    pub fn create_token(&self, body: &Value) -> Result<Value> {
        self.json("POST", "/tokens", Some(body))
    }

    pub fn tokens(&self) -> Result<Vec<Value>> {
        let list: Value = self.json("GET", "/tokens", None)?;
        Ok(list["tokens"].as_array().cloned().unwrap_or_default())
    }

    pub fn revoke_token(&self, id: &str) -> Result<Value> {
        self.json("DELETE", &format!("/tokens/{}", escaped(id)), None)
    }

    /// The signed envelope of a receipt, by task, id or number; one that is about to be made out is waited for.
    pub fn receipt(&self, id: &str, wait_ms: u64) -> Result<Vec<u8>> {
        self.call("GET", &format!("/tasks/{}/receipt?wait_ms={wait_ms}", escaped(id)), &[], None)
    }

    /// A page of receipts, newest first, as JSON.
    pub fn receipts(&self, limit: usize, cursor: Option<&str>) -> Result<Value> {
        let cursor = cursor.map(|c| format!("&cursor={}", escaped(c))).unwrap_or_default();
        self.json("GET", &format!("/receipts?limit={limit}{cursor}"), None)
    }

    /// A signed head of the ledger.
    pub fn signed_head(&self) -> Result<Vec<u8>> {
        self.call("POST", "/receipts/head", &[], None)
    }

    /// The keys of the house, as JSON.
    pub fn keys(&self) -> Result<Value> {
        self.json("GET", "/keys", None)
    }

    /// Goes over to a new key; its announcement, as JSON.
    pub fn rotate_key(&self, lost: bool) -> Result<Value> {
        self.json("POST", "/keys", Some(&json!({"rotate": true, "lost": lost})))
    }

    /// Bytes by their digest, as they come, and how many they are.
    pub fn artifact(&self, sha256: Digest) -> Result<(u64, impl io::Read + use<>)> {
        let body = self.open("GET", &format!("/artifacts/{sha256}"), &[], None)?.body;
        let length = body.length().ok_or_else(|| ClientError::Strange("an artifact without a length".to_owned()))?;
        Ok((length, body))
    }

    /// Has the house listen on loopback too; where.
    pub fn listen(&self, tcp: Option<&str>) -> Result<String> {
        let told: Value = self.json("POST", "/listen", Some(&json!({"tcp": tcp})))?;
        Ok(told["tcp"].as_str().unwrap_or_default().to_owned())
    }
}

fn problem(status: u16, mut body: Body) -> ClientError {
    problem_of(status, &body.whole().unwrap_or_default())
}

fn problem_of(status: u16, bytes: &[u8]) -> ClientError {
    match serde_json::from_slice::<Problem>(bytes) {
        Ok(p) => {
            ClientError::Refused { refusal: Refusal { code: p.code, message: p.detail, hint: p.hint }, task: p.task_id }
        }
        Err(_) => ClientError::Strange(format!("status {status}: {}", String::from_utf8_lossy(bytes))),
    }
}

/// An id as a path segment: ids need no escaping, anything else must not become another address.
fn escaped(id: &str) -> String {
    id.bytes()
        .map(|b| match b.is_ascii_alphanumeric() || b == b'_' {
            true => char::from(b).to_string(),
            false => format!("%{b:02X}"),
        })
        .collect()
}
