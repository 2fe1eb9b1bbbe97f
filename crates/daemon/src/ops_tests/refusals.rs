//! Every refusal code, provoked through operations or HTTP, with the words that a caller reads. The snapshot makes a
//! change of words visible in review.

use super::{Daemon, agent, parse, person};
use crate::{
    caller::Caller,
    descriptors::OutOfDescriptors,
    desk::DeskEvent,
    http::{self, HttpState},
    ops::{self, ApiResult, OnceKey},
};
use countersign_model::{
    Audience, DaemonState, IdMint, Refusal, RefusalCode, Request, Ruling, TaskId, TaskRefusal, Text, api::Problem,
};
use countersign_shim::wire::ToShim;
use countersign_store::Config;
use countersign_testkit::assert_snapshot;
use serde_json::{Value, json};
use std::{
    future::Future,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    sync::Arc,
};
use tempfile::TempDir;

/// The codes that no sample can provoke here, with the reason.
const NOT_PROVOKED: &[(RefusalCode, &str)] = &[
    (RefusalCode::InputFull, "only a running supervisor refuses input"),
    (RefusalCode::GrantRevoked, "only a queued task that gets a slot is denied, and a slot needs a supervisor"),
    (RefusalCode::ArtifactTampered, "only a task that has run leaves files"),
];

const DENYING_RULE: &str = r#"
[[hard_deny]]
name = "no-push"
verb = "git push"
reason = "pushing is not allowed here"
match = "git push"
not_match = "git pull"
"#;

/// One refusal, and what provoked it.
struct Sample {
    provoked_by: &'static str,
    code: RefusalCode,
    message: Option<String>,
    hint: Option<String>,
}

/// The samples of one daemon.
struct Samples<'a> {
    daemon: &'a Daemon,
    collected: &'a mut Vec<Sample>,
}

impl Samples<'_> {
    fn add<T>(&mut self, provoked_by: &'static str, operation: impl Future<Output = ApiResult<T>>) {
        let TaskRefusal { refusal, .. } =
            self.daemon.run(operation).err().unwrap_or_else(|| panic!("not refused: {provoked_by}"));
        self.add_refusal(provoked_by, refusal);
    }

    fn add_refusal(&mut self, provoked_by: &'static str, refusal: Refusal) {
        let clean = |text: String| self.replace_varying(&text);
        let sample = Sample {
            provoked_by,
            code: refusal.code,
            message: Some(clean(refusal.message)),
            hint: refusal.hint.map(clean),
        };
        self.collected.push(sample);
    }

    /// The denial in the record of a task, which has a code and a hint, but no message.
    fn add_recorded(&mut self, provoked_by: &'static str, task: TaskId) {
        let state = self.daemon.ops.records.state(task).unwrap();
        let Some(Ruling::Denied { reason, hint, .. }) = &state.ruling else { panic!("not denied: {provoked_by}") };
        let hint = hint.as_ref().map(|hint| self.replace_varying(hint.as_str()));
        self.collected.push(Sample { provoked_by, code: reason.code(), message: None, hint });
    }

    fn ask(&mut self, provoked_by: &'static str, caller: &Caller, request: Request) {
        self.add(provoked_by, ops::intake::ask(&self.daemon.ops, caller, request, None));
    }

    /// Sends one request over the unix socket; the response must be a problem.
    fn http(&mut self, provoked_by: &'static str, head: &str, body: &[u8]) {
        let mut stream = UnixStream::connect(&self.daemon.ops.socket).unwrap();
        let head = format!("{head}\r\nHost: countersign\r\nConnection: close\r\n\r\n");
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        self.add_refusal(provoked_by, problem(&response));
    }

    /// Ids, times, ports and directories differ between runs.
    fn replace_varying(&self, text: &str) -> String {
        let home = self.daemon.ops.home.path().to_string_lossy().into_owned();
        let mut text = text.replace(&self.daemon.work(), "WORK").replace(&home, "HOME");
        for (pattern, replacement) in [
            (r"\b(tk|ap|gr|se|ct)_[0-9a-z]{16}\b", "${1}_ID"),
            (r"\b(tk|ap|gr|se|ct)_[0-9a-z]{4}\b", "${1}_PREFIX"),
            (r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "TIME"),
            (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
        ] {
            text = regex::Regex::new(pattern).unwrap().replace_all(&text, replacement).into_owned();
        }
        text
    }
}

/// The refusal in an HTTP response.
fn problem(response: &[u8]) -> Refusal {
    let text = String::from_utf8_lossy(response);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let problem: Problem = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {text}"));
    Refusal { code: problem.code, message: problem.detail, hint: problem.hint }
}

fn request_with(daemon: &Daemon, command: &str, more: Value) -> Request {
    let mut body = json!({"tool": "shell", "args": {"command": command, "cwd": daemon.work()}});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    parse(body)
}

fn waiting_task(daemon: &Daemon, command: &str) -> TaskId {
    let asked = daemon.run(ops::intake::ask(&daemon.ops, &agent(), daemon.request(command), None));
    asked.unwrap().answer.task.task_id
}

fn approval_id(daemon: &Daemon, task: TaskId) -> String {
    ops::answers::approval_of_task(&daemon.ops, task).unwrap().unwrap().id.to_string()
}

/// Requests that are refused before the decision, or denied by the gate.
fn refused_requests(samples: &mut Samples<'_>) {
    let daemon = samples.daemon;
    samples.ask("a request with an empty command", &person(), daemon.request(""));
    let no_directory = json!({"tool": "shell", "args": {"command": "true", "cwd": "/no/such/directory"}});
    samples.ask("a request in a missing directory", &person(), parse(no_directory));
    samples.ask(
        "a request for a tool that only grants can name",
        &person(),
        parse(json!({"tool": "git_log", "args": {}})),
    );
    samples.ask("a very long command", &person(), daemon.request(&"x".repeat(200_000)));
    samples.ask("a command with a placeholder", &person(), daemon.request("echo [redacted:known-value:aaaa]"));
    samples.ask("a command that destroys the system", &person(), daemon.request("rm -rf /"));
    samples.ask("a command that stops the daemon", &agent(), daemon.request("csn down"));
    let home = daemon.ops.home.path().display().to_string();
    samples.ask("a command that writes to the home", &person(), daemon.request(&format!("touch {home}/x")));
    samples.ask(
        "a request that needs an approval, without a person to ask",
        &agent(),
        request_with(daemon, "git push", json!({"attended": false})),
    );
    samples.ask(
        "a request with the profile locked",
        &person(),
        request_with(daemon, "git push", json!({"profile": "locked"})),
    );
    samples.ask(
        "an agent with a wider profile",
        &agent(),
        request_with(daemon, "git push", json!({"profile": "full_auto"})),
    );
    let stranger = Caller { audience: Audience::Public, ..agent() };
    samples.ask("a public caller that writes", &stranger, daemon.request("touch x"));
    samples.ask(
        "a privileged command with a confinement",
        &person(),
        request_with(daemon, "sudo true", json!({"confinement": "workspace"})),
    );
    let keyed = |body: &'static [u8]| Some(OnceKey { key: "k", body });
    daemon.run(ops::intake::ask(&daemon.ops, &person(), daemon.request("touch a"), keyed(b"a"))).unwrap();
    samples.add(
        "another request with the same idempotency key",
        ops::intake::ask(&daemon.ops, &person(), daemon.request("touch b"), keyed(b"b")),
    );
}

/// Tasks and approvals in a state that does not allow the operation.
fn refused_by_state(samples: &mut Samples<'_>) {
    let daemon = samples.daemon;
    let ops = &daemon.ops;
    samples
        .add("a task that does not exist", ops::tasks::show(ops, &person(), "tk_0000000000000000", parse(json!({}))));
    let task = waiting_task(daemon, "git push");
    let id = task.to_string();
    waiting_task(daemon, "git push --tags");
    samples.add("an ambiguous prefix of an id", ops::tasks::show(ops, &person(), &id[..7], parse(json!({}))));
    samples.add("the screen of a task with pipes", ops::screen::show(ops, &person(), &id));
    samples.add("the receipt of a waiting task", ops::receipts::envelope(ops, &person(), &id, parse(json!({}))));
    samples.add("input for a waiting task", ops::control::stdin(ops, &agent(), &id, parse(json!({"text": "x"})), None));
    samples
        .add("a task without a supervisor", async { Ok(ops.registry.apply(task, |re| ToShim::Screen { re }).await?) });
    let approval = approval_id(daemon, task);
    let answer = |id: String, choice: &str| {
        let (ops, body) = (Arc::clone(ops), parse(json!({"choice": choice})));
        async move { ops::answers::answer(&ops, &person(), &id, body).await }
    };
    let opaque = approval_id(daemon, waiting_task(daemon, "$PROGRAM --now"));
    samples.add("a choice that an approval does not offer", answer(opaque, "here"));
    daemon.run(answer(approval.clone(), "deny")).unwrap();
    samples.add("a second answer", answer(approval, "once"));
    samples.ask("a request that a person has just denied", &agent(), daemon.request("git push"));
    samples.add("cancelling a task that has ended", ops::control::cancel(ops, &agent(), &id, parse(json!({}))));
    let script = format!("{}/script.sh", daemon.work());
    std::fs::write(&script, "echo before\n").unwrap();
    let changed = waiting_task(daemon, "bash script.sh");
    std::fs::write(&script, "echo after\n").unwrap();
    daemon.run(answer(approval_id(daemon, changed), "once")).unwrap();
    samples.add_recorded("an approved script that has changed", changed);
    samples.add("withdrawing a task that the agent runs itself", async {
        let task = TaskId::mint(&mut IdMint::default(), 1, 1);
        let request = ops::intake::prepare(ops, &agent(), daemon.request("ls"), None).await?;
        let (planned, opens, by) = (Box::new(request.planned), request.opens, Text::from_static("agent"));
        let event = DeskEvent::Observed { task, planned, opens, rule: "phrase", grants: Vec::new(), by };
        ops.commit.decide(vec![event]).await?;
        Ok(ops.commit.withdraw(task, Text::from_static("owner")).await?)
    });
    expired_task(samples);
}

/// A settled task whose files retention has removed.
fn expired_task(samples: &mut Samples<'_>) {
    let daemon = samples.daemon;
    let denied = daemon.run(ops::intake::ask(&daemon.ops, &person(), daemon.request("rm -rf /"), None));
    let task = denied.err().and_then(|refused| refused.task).unwrap();
    std::fs::create_dir_all(daemon.ops.home.task_dir(task)).unwrap();
    let removed = daemon.run(ops::lifecycle::gc(&daemon.ops, &person(), parse(json!({"older_than_days": 0})))).unwrap();
    assert!(removed.removed.iter().any(|removed| removed.task_id == task), "{removed:?}");
    let id = task.to_string();
    samples.add(
        "the recording of a task that retention removed",
        ops::cast::cast(&daemon.ops, &person(), &id, parse(json!({}))),
    );
}

/// Callers without the right to do something, and sessions.
fn refused_callers(samples: &mut Samples<'_>) {
    let daemon = samples.daemon;
    let ops = &daemon.ops;
    samples.add("an agent that approves", ops::grants::revoke(ops, &agent(), "gr_none"));
    let body = parse(json!({"name": "observer", "kind": "person", "scopes": ["observe"]}));
    let token = daemon.run(ops::tokens::create(ops, &person(), body)).unwrap().token;
    let observer = ops::recognition::caller_for_token(ops, &token).unwrap();
    samples.add(
        "a token without the scope",
        ops::tokens::create(ops, &observer, parse(json!({"name": "a", "kind": "agent", "scopes": []}))),
    );
    samples.add("an unknown token", async { Ok(ops::recognition::caller_for_token(ops, "csn_none_none")?) });
    let directory = parse(json!({"directory": daemon.work()}));
    let (session, _) = daemon.run(ops::sessions::open(ops, &person(), directory)).unwrap();
    let id = session.id.to_string();
    samples.add("an agent that ends a person's session", ops::sessions::end(ops, &agent(), &id));
    samples.add(
        "a session that moves to a protected directory",
        ops::sessions::set_directory(ops, &person(), &id, parse(json!({"directory": "/"}))),
    );
    daemon.run(ops::sessions::end(ops, &person(), &id)).unwrap();
    let mut request = daemon.request("touch x");
    request.session_id = Some(session.id);
    samples.ask("a request in an ended session", &person(), request);
}

/// HTTP requests that no operation sees.
fn refused_http(samples: &mut Samples<'_>) {
    let daemon = samples.daemon;
    let front = HttpState::new(Arc::clone(&daemon.ops));
    let _runtime = daemon.runtime.enter();
    let listener = tokio::net::UnixListener::bind(&daemon.ops.socket).unwrap();
    daemon.runtime.spawn(http::serve_unix(Arc::clone(&front), listener));
    samples.http("an unknown path", "GET /nothing HTTP/1.1", b"");
    samples.http("an unsupported method", "DELETE /tasks HTTP/1.1", b"");
    samples.http("an unknown field", "POST /check HTTP/1.1\r\nContent-Length: 12", br#"{"tol":"sh"}"#);
    samples.http("a body that is too large", "POST /check HTTP/1.1\r\nContent-Length: 5000000", b"");
    samples.http("a body that never arrives", "POST /check HTTP/1.1\r\nContent-Length: 5", b"");
    let used = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = used.local_addr().unwrap();
    samples.add("a port that is in use", async { Ok(http::tcp::start_listener(&front, address).await?) });
    refused_on_loopback(samples, &front);
}

/// Requests with a token on loopback, where the configuration allows one connection.
fn refused_on_loopback(samples: &mut Samples<'_>, front: &Arc<HttpState>) {
    let daemon = samples.daemon;
    let body = parse(json!({"name": "ci", "kind": "person", "scopes": ["observe"]}));
    let token = daemon.run(ops::tokens::create(&daemon.ops, &person(), body)).unwrap().token;
    let address = daemon.run(http::tcp::start_listener(front, "127.0.0.1:0".parse().unwrap())).unwrap();
    let send = |head: &str, connection: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        let headers = format!("Host: {address}\r\nAuthorization: Bearer {token}\r\nConnection: {connection}");
        stream.write_all(format!("{head}\r\n{headers}\r\n\r\n").as_bytes()).unwrap();
        stream
    };
    let mut response = Vec::new();
    let task = waiting_task(daemon, "git push");
    let range = "Accept: application/octet-stream\r\nRange: bytes=5-9";
    let mut closed = send(&format!("GET /tasks/{task}/output HTTP/1.1\r\n{range}"), "close");
    closed.read_to_end(&mut response).unwrap();
    samples.add_refusal("a range outside of the output", problem(&response));
    let mut open = send("GET /tasks HTTP/1.1", "keep-alive");
    let mut start = [0; 12];
    open.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    response.clear();
    let _ = send("GET /tasks HTTP/1.1", "close").read_to_end(&mut response);
    samples.add_refusal("more connections than allowed", problem(&response));
}

/// Daemons whose configuration, key or disk cannot be used, and one that stops.
fn refused_by_condition(collected: &mut Vec<Sample>) {
    let place = || tempfile::tempdir().unwrap();
    let degraded = Daemon::in_place(place(), Config::default(), Some("line 1".to_owned()));
    let request = degraded.request("touch x");
    Samples { daemon: &degraded, collected }.ask("a configuration that cannot be read", &person(), request);

    let ruled = Daemon::with(Config::parse(DENYING_RULE).unwrap());
    let request = ruled.request("git push");
    Samples { daemon: &ruled, collected }.ask("a command that a rule denies", &person(), request);

    let keyless = Daemon::in_place(with_damaged_key(), Config::default(), None);
    let mut samples = Samples { daemon: &keyless, collected };
    samples.add("a signing key that is damaged", ops::receipts::signed_head(&keyless.ops, &person()));

    let full = Daemon::new();
    let waiting = full.ops.home.waiting();
    std::fs::remove_dir_all(&waiting).unwrap();
    std::fs::write(&waiting, "").unwrap();
    let request = full.request("git push");
    Samples { daemon: &full, collected }.ask("a disk that cannot be written", &person(), request);

    let stopping = Daemon::new();
    stopping.ops.enter_state(DaemonState::Draining, None);
    let request = stopping.request("ls");
    let mut samples = Samples { daemon: &stopping, collected };
    samples.ask("a daemon that is stopping", &person(), request);
    let descriptors = &stopping.ops.descriptors;
    let none_left = || descriptors.with_reserve(|| Err::<(), _>(OutOfDescriptors)).map_err(Refusal::from);
    samples.add("a process without file descriptors", async { Ok(none_left()?) });
}

fn with_damaged_key() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    let keys = place.path().join("home/keys");
    std::fs::create_dir_all(&keys).unwrap();
    std::fs::write(keys.join("signing.key"), "short").unwrap();
    place
}

fn collect_samples() -> Vec<Sample> {
    let mut collected = Vec::new();
    let mut config = Config::default();
    (config.http.body_timeout_ms, config.http.connections) = (50, 1);
    let daemon = Daemon::with(config);
    let mut samples = Samples { daemon: &daemon, collected: &mut collected };
    refused_requests(&mut samples);
    refused_callers(&mut samples);
    refused_http(&mut samples);
    // Without slots an approved task needs no supervisor.
    let mut config = Config::default();
    config.limits.running = 0;
    refused_by_state(&mut Samples { daemon: &Daemon::with(config), collected: &mut collected });
    refused_by_condition(&mut collected);
    collected
}

#[test]
fn every_refusal_reads_as_reviewed() {
    let samples = collect_samples();
    let mut text = String::new();
    for code in RefusalCode::ALL {
        text += &format!("{}: HTTP {}, exit code {}\n", code.as_str(), code.http_status(), code.exit_code());
        let excused = NOT_PROVOKED.iter().find(|(excused, _)| excused == code);
        let mut provoked = samples.iter().filter(|sample| sample.code == *code).peekable();
        match (excused, provoked.peek()) {
            (Some((_, reason)), None) => text += &format!("  not provoked here: {reason}\n"),
            (Some(_), Some(sample)) => panic!("`{code:?}` is provoked by {}: excuse it no more", sample.provoked_by),
            (None, None) => panic!("no sample provokes `{code:?}`"),
            (None, Some(_)) => {}
        }
        for Sample { provoked_by, message, hint, .. } in provoked {
            text += &format!("  {provoked_by}\n");
            text += &format!("    {}\n", message.as_deref().unwrap_or("(recorded without a message)"));
            if let Some(hint) = hint {
                text += &format!("    hint: {hint}\n");
            }
        }
        text.push('\n');
    }
    assert_snapshot("src/ops_tests/snapshots/refusals.txt", &format!("{}\n", text.trim_end()));
}
