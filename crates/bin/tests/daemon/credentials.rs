//! Who may do what: tokens, principals, sessions, and every way by which a task or an agent might approve its own
//! request.

use crate::{CSN, approvals::refusal, tree::kill};
use countersign_client::{Client, ClientError};
use countersign_model::{
    ApprovalState, Choice, CredentialKind, Outcome, RefusalCode, Status, TaskId, TaskRefusal, TaskState,
    api::SessionMove,
};
use countersign_testkit::{RawCalls as _, TestHome, body};
use serde_json::{Value, json};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

/// A daemon that listens on loopback.
fn open() -> (TestHome, String) {
    let daemon = TestHome::started(CSN);
    let at = daemon.client().listen(Some(([127, 0, 0, 1], 0).into())).unwrap();
    (daemon, at.to_string())
}

fn token(daemon: &TestHome, json: Value) -> String {
    daemon.client().create_token(&body(json)).unwrap().token
}

struct Answer {
    status: u16,
    body: Value,
}

/// One request over TCP, as any program would send it.
fn tcp(at: &str, method: &str, path: &str, headers: &[(&str, &str)], body: Option<Value>) -> Answer {
    let mut stream = TcpStream::connect(at).unwrap();
    let body = body.map(|b| b.to_string()).unwrap_or_default();
    let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    if !headers.iter().any(|(n, _)| *n == "host") {
        head += &format!("host: {at}\r\n");
    }
    headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, body: serde_json::from_str(body).unwrap_or(Value::Null) }
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

fn with(at: &str, token: &str, method: &str, path: &str, body: Option<Value>) -> Answer {
    tcp(at, method, path, &[("authorization", &bearer(token))], body)
}

#[test]
fn over_tcp_a_token_is_required_and_limited_to_its_scopes() {
    let (daemon, at) = open();
    for (headers, status) in [
        (vec![], 401),
        (vec![("authorization", "Bearer csn_0000000000000000_x")], 401),
        (vec![("authorization", "Basic abc")], 401),
        (vec![("host", "evil.example")], 403),
        (vec![("origin", "https://evil.example")], 403),
    ] {
        assert_eq!(tcp(&at, "GET", "/tasks", &headers, None).status, status, "{headers:?}");
    }
    assert_eq!(tcp(&at, "GET", "/livez", &[], None).status, 200, "health needs no token");
    let observer = token(&daemon, json!({"name": "eye", "kind": "person", "scopes": ["observe"]}));
    assert_eq!(with(&at, &observer, "GET", "/tasks", None).status, 200);
    for (method, path) in [
        ("POST", "/tasks"),
        ("POST", "/approvals/ap_0000000000000000"),
        ("POST", "/grants"),
        ("DELETE", "/grants/gr_0000000000000000"),
        ("POST", "/sessions"),
        ("GET", "/tokens"),
        ("POST", "/tokens"),
        ("POST", "/lifecycle"),
        ("POST", "/listen"),
        ("POST", "/gc"),
        ("POST", "/ledger"),
    ] {
        let answer = with(&at, &observer, method, path, Some(json!({})));
        assert_eq!((answer.status, &answer.body["code"]), (403, &json!("missing_scope")), "{method} {path}");
    }
    // A valid token does not make a page of another origin trusted.
    let bearer = bearer(&observer);
    let rebound = [("authorization", bearer.as_str()), ("host", "rebound.example")];
    assert_eq!(tcp(&at, "GET", "/tasks", &rebound, None).status, 403);
}

#[test]
fn tokens_are_shown_once_stored_as_hashes_and_can_be_revoked() {
    let (daemon, at) = open();
    let out = daemon.csn(&[
        "token",
        "create",
        "--person",
        "--scope",
        "observe,approve",
        "--name",
        "phone",
        "--expires",
        "30d",
    ]);
    let secret = String::from_utf8(out.stdout).unwrap().trim().to_owned();
    assert!(secret.starts_with("csn_"), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(with(&at, &secret, "GET", "/approvals", None).status, 200);
    // The use of a token is recorded beside the answer, not before it.
    let list = || String::from_utf8(daemon.csn(&["token", "list"]).stdout).unwrap();
    let mut listed = list();
    while listed.contains("last used never") {
        listed = list();
    }
    assert!(listed.contains("phone") && listed.contains("last used") && !listed.contains(&secret), "{listed}");
    for file in ["ledger.db", "ledger.db-wal"] {
        let bytes = std::fs::read(daemon.home().join(file)).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&bytes).contains(&secret[8..]), "{file}");
    }
    let twice = json!({"name": "phone", "kind": "agent", "scopes": ["run"]});
    assert_eq!(
        refusal(daemon.client().create_token(&body(twice))).code,
        RefusalCode::BadRequest,
        "one name, one token"
    );
    for (kind, scopes) in [("agent", json!(["approve"])), ("agent", json!(["run", "admin"])), ("person", json!([]))] {
        let wanted = json!({"name": "x", "kind": kind, "scopes": scopes});
        assert_eq!(
            refusal(daemon.client().create_token(&body(wanted.clone()))).code,
            RefusalCode::BadRequest,
            "{wanted}"
        );
    }
    daemon.kill_daemon();
    daemon.start();
    let at = daemon.client().listen(Some(([127, 0, 0, 1], 0).into())).unwrap().to_string();
    assert_eq!(with(&at, &secret, "GET", "/approvals", None).status, 200, "it outlives the daemon");
    assert!(daemon.csn(&["token", "revoke", "phone"]).status.success());
    assert_eq!(with(&at, &secret, "GET", "/approvals", None).status, 401);
}

#[test]
fn f007_f165_another_principals_tasks_and_approvals_are_invisible() {
    let (daemon, at) = open();
    let alice = token(
        &daemon,
        json!({
            "name": "alice", "principal": "alice", "kind": "person", "scopes": ["observe", "run", "approve"],
        }),
    );
    let owner = daemon.client();
    let mine = daemon.ask_with("touch mine", json!({"profile": "safe"}));
    let approval = mine.approval_id().unwrap();
    let grant = owner.grant(&body(json!({"verb": "mkdir", "directory": daemon.work()}))).unwrap();
    let session = owner.open_session(&body(json!({}))).unwrap();
    for (method, path, body) in [
        ("GET", format!("/tasks/{}", mine.task_id), None),
        ("GET", format!("/tasks/{}/events", mine.task_id), None),
        ("GET", format!("/tasks/{}/output?stream=stdout", mine.task_id), None),
        ("POST", format!("/tasks/{}/cancel", mine.task_id), Some(json!({}))),
        ("POST", format!("/tasks/{}/stdin", mine.task_id), Some(json!({"text": "x"}))),
        ("GET", format!("/approvals/{approval}"), None),
        ("POST", format!("/approvals/{approval}"), Some(json!({"choice": "once"}))),
        ("POST", format!("/approvals/{approval}"), Some(json!({"choice": "deny"}))),
        ("GET", format!("/grants/{}", grant.grant.id.unwrap()), None),
        ("DELETE", format!("/grants/{}", grant.grant.id.unwrap()), None),
        ("GET", format!("/sessions/{}", session.id), None),
        ("DELETE", format!("/sessions/{}", session.id), None),
        ("POST", format!("/sessions/{}/directory", session.id), Some(json!({"directory": daemon.work()}))),
    ] {
        let there = with(&at, &alice, method, &path, body.clone());
        // As for an id that does not exist.
        let id = path.split('/').nth(2).unwrap().split('?').next().unwrap();
        let nobody = format!("{}_0000000000000000", &id[..2]);
        let unknown = with(&at, &alice, method, &path.replace(id, &nobody), body);
        assert_eq!((there.status, unknown.status), (404, 404), "{method} {path}");
        let same = |a: &Answer, id: &str| a.body["detail"].as_str().unwrap().replace(id, "…");
        assert_eq!(same(&there, id), same(&unknown, &nobody), "{method} {path}");
    }
    assert_eq!(with(&at, &alice, "GET", "/tasks", None).body["tasks"], json!([]));
    assert_eq!(with(&at, &alice, "GET", "/approvals?all=true", None).body["approvals"], json!([]));
    assert_eq!(with(&at, &alice, "GET", "/grants", None).body["grants"], json!([]));
    assert_eq!(
        owner.approval(&approval.to_string()).unwrap().state,
        ApprovalState::Waiting,
        "it can still be answered"
    );
    // A grant of one principal covers nothing of another; each answers their own approvals.
    let request = json!({"tool": "shell", "args": {"command": "mkdir theirs", "cwd": daemon.work()}});
    let asked = with(&at, &alice, "POST", "/tasks", Some(request));
    assert_eq!((asked.status, &asked.body["status"]), (202, &json!("queued")));
    let theirs = asked.body["approval_id"].as_str().unwrap();
    assert_eq!(refusal(owner.answer(theirs.parse().unwrap(), Choice::Once, None)).code, RefusalCode::NotFound);
    let answered = with(&at, &alice, "POST", &format!("/approvals/{theirs}"), Some(json!({"choice": "once"})));
    assert_eq!(answered.status, 200, "{}", answered.body);
    for bad in ["../../x", "tk_../../../etc/pas", "%2e%2e%2fx"] {
        assert_eq!(with(&at, &alice, "GET", &format!("/tasks/{bad}"), None).status, 404, "{bad}");
    }
}

#[test]
fn an_agents_token_requests_and_never_approves() {
    let (daemon, at) = open();
    let agent = token(&daemon, json!({"name": "bot", "kind": "agent", "scopes": ["observe", "run"]}));
    let request = |text: &str, more: Value| {
        let mut request = json!({"tool": "shell", "args": {"command": text, "cwd": daemon.work()}});
        more.as_object().unwrap().iter().for_each(|(k, v)| request[k] = v.clone());
        with(&at, &agent, "POST", "/tasks", Some(request))
    };
    let asked = request("touch x", json!({}));
    assert_eq!((asked.status, &asked.body["credential"]), (202, &json!("agent")));
    assert_eq!(asked.body["limits"]["wall_ms"], 600_000, "an agent does not wait for ever");
    let approval = asked.body["approval_id"].as_str().unwrap();
    let answer = with(&at, &agent, "POST", &format!("/approvals/{approval}"), Some(json!({"choice": "once"})));
    assert_eq!(answer.body["code"], "missing_scope");
    let wider = request("touch x", json!({"profile": "full_auto"}));
    assert_eq!((wider.status, &wider.body["code"]), (403, &json!("profile_wider_than_allowed")));
    assert!(wider.body["task_id"].is_string(), "also that is recorded");
    assert_eq!(request("touch x", json!({"profile": "locked"})).body["code"], "locked", "narrower is always allowed");
    let pty = request("python3", json!({"execution_mode": "pty"}));
    assert_eq!((pty.status, &pty.body["code"]), (400, &json!("bad_request")), "a terminal needs a reason");
    assert_eq!(request("python3", json!({"execution_mode": "pty", "rationale": "to try it"})).status, 202);
    // A person of the same principal answers, on any surface.
    daemon.client().answer(approval.parse().unwrap(), Choice::Once, None).unwrap();
    daemon.settled(asked.body["task_id"].as_str().unwrap().parse().unwrap());
    assert!(daemon.work().join("x").exists());
}

#[test]
fn strangers_only_read_and_only_in_their_own_folder() {
    let (daemon, at) = open();
    let stranger =
        token(&daemon, json!({"name": "s", "kind": "agent", "scopes": ["observe", "run"], "audience": "public"}));
    let session = with(&at, &stranger, "POST", "/sessions", Some(json!({}))).body;
    let ask = |text: &str, more: Value| {
        let mut request = json!({"tool": "shell", "args": {"command": text}, "session_id": session["id"]});
        more.as_object().unwrap().iter().for_each(|(k, v)| request[k] = v.clone());
        with(&at, &stranger, "POST", "/tasks", Some(request)).body["code"].as_str().unwrap_or("asked").to_owned()
    };
    daemon.client().grant(&body(json!({"verb": "touch", "directory": null, "audience": "public"}))).unwrap();
    assert_eq!(ask("touch x", json!({})), "not_for_this_audience", "nothing is granted to strangers");
    assert_eq!(ask("ls /etc", json!({})), "not_for_this_audience");
    assert_eq!(ask("ls", json!({"background": true})), "not_for_this_audience");
    let there = Some(json!({"directory": daemon.work()}));
    let moved =
        with(&at, &stranger, "POST", &format!("/sessions/{}/directory", session["id"].as_str().unwrap()), there);
    assert_eq!(moved.body["code"], "not_for_this_audience");
}

#[test]
fn a_session_changes_directory_inside_its_roots_and_asks_outside() {
    let daemon = TestHome::started(CSN);
    let client = daemon.client();
    let work = std::fs::canonicalize(daemon.work()).unwrap();
    for dir in ["repo/.git", "repo/sub/deep", "other"] {
        std::fs::create_dir_all(work.join(dir)).unwrap();
    }
    let session = client.open_session(&body(json!({"directory": work.join("repo/sub")}))).unwrap();
    assert_eq!(session.roots[0].as_str(), work.join("repo").to_str().unwrap(), "the repository around it");
    let folder = session.folder.clone().unwrap();
    assert!(std::path::Path::new(folder.as_str()).is_dir() && folder.as_str().ends_with(&session.id.to_string()));
    let id = session.id.to_string();
    let pwd = |expect: &str| {
        let request = json!({"tool": "shell", "args": {"command": "pwd"}, "session_id": id, "profile": "full_auto"});
        let task: TaskState =
            serde_json::from_slice(&client.call("POST", "/tasks", &[], Some(&request)).unwrap()).unwrap();
        daemon.settled(task.task_id);
        assert_eq!(daemon.stdout(task.task_id).trim_end(), expect);
    };
    pwd(work.join("repo/sub").to_str().unwrap());
    assert!(matches!(
        client.set_directory(&id, work.join("repo/sub/deep").to_str().unwrap()).unwrap(),
        SessionMove::There(_)
    ));
    pwd(work.join("repo/sub/deep").to_str().unwrap());
    // Outside its roots: a person is asked, and the session stays where it is until they answer.
    let SessionMove::Asked(task) = client.set_directory(&id, work.join("other").to_str().unwrap()).unwrap() else {
        panic!("it is outside");
    };
    pwd(work.join("repo/sub/deep").to_str().unwrap());
    let card = client.approval(&task.approval_id().unwrap().to_string()).unwrap();
    assert_eq!(card.display.as_str(), format!("Let this session read {}?", work.join("other").display()));
    assert_eq!(card.options, [Choice::Session, Choice::Deny]);
    client.answer(card.id, Choice::Session, None).unwrap();
    assert_eq!(daemon.outcome(task.task_id), Outcome::Exited { code: 0 });
    pwd(work.join("other").to_str().unwrap());
    assert_eq!(client.session(&id).unwrap().roots.len(), 2);
    // A directory that cannot be a root is refused, and that is recorded.
    for place in ["/", "/etc", daemon.home().to_str().unwrap(), daemon.home().parent().unwrap().to_str().unwrap()] {
        let error = client.set_directory(&id, place).unwrap_err();
        let ClientError::Refused(TaskRefusal { refusal, task }) = error else { panic!("{error}") };
        assert!(refusal.code == RefusalCode::ProtectedPath && task.is_some(), "{place}: {refusal:?}");
    }
    assert_eq!(refusal(client.set_directory(&id, "/no/such/place")).code, RefusalCode::BadRequest);
    daemon.kill_daemon();
    daemon.start();
    assert_eq!(client.session(&id).unwrap().directory.unwrap().as_str(), work.join("other").to_str().unwrap());
}

#[test]
fn tasks_that_should_end_with_their_session_do() {
    let daemon = TestHome::started(CSN);
    let client = daemon.client();
    let session = client.open_session(&body(json!({"directory": daemon.work()}))).unwrap();
    let ask = |text: &str, more: Value| {
        let mut with = json!({"session_id": session.id, "args": {"stdin": true}});
        more.as_object().unwrap().iter().for_each(|(k, v)| with[k] = v.clone());
        daemon.ask_with(text, with)
    };
    let kept = ask("cat", json!({}));
    let stopped = ask("cat", json!({"on_session_end": "stop"}));
    let waiting = ask("touch x", json!({"on_session_end": "stop", "profile": "safe"}));
    assert_eq!(waiting.status, Status::Queued);
    let out = daemon.csn(&["sessions", "end", &session.id.to_string()]);
    assert!(
        String::from_utf8_lossy(&out.stderr).contains("2 tasks were stopped"),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let outcome = daemon.outcome(stopped.task_id);
    assert!(
        matches!(&outcome, Outcome::Cancelled { reason: Some(r), .. } if r.as_str().contains("session")),
        "{outcome:?}"
    );
    assert!(matches!(daemon.outcome(waiting.task_id), Outcome::Withdrawn { .. }));
    assert_eq!(client.task(&kept.task_id.to_string()).unwrap().status, Status::Running);
    assert!(client.end_session(&session.id.to_string()).unwrap().is_empty(), "once more finds nothing to stop");
    let listed = daemon.csn(&["sessions", "list", "--all"]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("ended"));
}

/// Every way by which a process might try to answer an approval itself. `$CSN` is the program, `$AP` the approval,
/// `$SOCK` the socket. Each prints `REFUSED` if it was refused.
const ATTEMPTS: &[(&str, &str)] = &[
    ("answer", "$CSN approvals answer $AP once"),
    ("anywhere", "$CSN approvals answer $AP anywhere"),
    ("deny", "$CSN approvals answer $AP deny"),
    ("grant", "$CSN grants add --verb touch --anywhere"),
    ("token", "$CSN token create --person --scope approve --name mine"),
    ("down", "$CSN down"),
    ("gc", "$CSN gc"),
    ("listen", "curl -sf --unix-socket $SOCK -d '{}' http://csn/listen"),
    ("curl", "curl -sf --unix-socket $SOCK -d '{\"choice\":\"once\"}' http://csn/approvals/$AP"),
    ("no marker", "env -u COUNTERSIGN_TASK $CSN approvals answer $AP once"),
    ("no environment", "env -i COUNTERSIGN_HOME=$COUNTERSIGN_HOME $CSN approvals answer $AP once"),
    ("another session", "setsid -w env -i COUNTERSIGN_HOME=$COUNTERSIGN_HOME $CSN approvals answer $AP once"),
    (
        "double fork",
        "rm -f done; (setsid bash -c 'env -i COUNTERSIGN_HOME=$COUNTERSIGN_HOME $CSN approvals answer $AP once; echo $? > done.new; mv done.new done' &) ; until [ -e done ]; do sleep 0.02; done; exit $(cat done)",
    ),
    ("a terminal of its own", "printf 'o\\n' | script -qec \"$CSN approvals answer $AP once\" /dev/null"),
    (
        "python",
        "python3 -c \"import os,socket; s=socket.socket(socket.AF_UNIX); s.connect(os.environ['SOCK']); b='{\\\"choice\\\":\\\"once\\\"}'; s.sendall(('POST /approvals/'+os.environ['AP']+' HTTP/1.1\\r\\nhost: x\\r\\nconnection: close\\r\\ncontent-length: %d\\r\\n\\r\\n'%len(b)+b).encode()); r=s.recv(9999); exit(0 if b' 200 ' in r else 1)\"",
    ),
    (
        "no process is left",
        "(bash -c 'exec env -i COUNTERSIGN_HOME=$COUNTERSIGN_HOME nohup $CSN approvals answer $AP once')",
    ),
];

fn attempts(daemon: &TestHome, approval: &str) -> String {
    let mut script =
        format!("export CSN={CSN} AP={approval} SOCK={0}/run/csn.sock COUNTERSIGN_HOME={0}\n", daemon.home().display());
    for (name, command) in ATTEMPTS {
        script += &format!("({command}) > /dev/null 2>&1 && echo 'DONE {name}' || echo 'REFUSED {name}'\n");
    }
    script
}

fn all_refused(said: &str) {
    for (name, _) in ATTEMPTS {
        assert!(said.contains(&format!("REFUSED {name}\n")), "{name}: {said}");
    }
    assert!(!said.contains("DONE"), "{said}");
}

#[test]
fn a_task_cannot_answer_its_own_approval() {
    let daemon = TestHome::started(CSN);
    let waiting = daemon.ask_with("touch granted", json!({"profile": "safe"}));
    let approval = waiting.approval_id().unwrap().to_string();
    std::fs::write(daemon.work().join("try.sh"), attempts(&daemon, &approval)).unwrap();
    let task = daemon.ask_open("bash try.sh", json!({}));
    let outcome = daemon.outcome(task);
    let said = daemon.stdout(task);
    assert_eq!(outcome, Outcome::Exited { code: 0 }, "{said}");
    all_refused(&said);
    // It can make requests, as an agent of its own session, and sees nothing of others.
    let session = daemon.client().task(&task.to_string()).unwrap().request.session_id;
    let other = daemon.client().open_session(&body(json!({"directory": daemon.work()}))).unwrap();
    let foreign = daemon.ask_with("touch foreign", json!({"profile": "safe", "session_id": other.id}));
    let csn = format!("COUNTERSIGN_HOME={} {CSN}", daemon.home().display());
    let nested = format!(
        "{csn} run --no-wait --json 'touch nested'; {csn} run --profile full_auto 'touch wider'; echo $?; {csn} show {}; echo $?",
        foreign.task_id
    );
    std::fs::write(daemon.work().join("nested.sh"), nested).unwrap();
    let nested = daemon.ask_open("bash nested.sh", json!({}));
    daemon.settled(nested);
    let said = daemon.stdout(nested);
    let asked: TaskState = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    assert_eq!(
        (asked.request.credential, asked.status, asked.request.session_id),
        (CredentialKind::Agent, Status::Queued, session)
    );
    assert!(said.contains("\n77\n"), "no wider profile: {said}");
    assert!(said.ends_with("1\n"), "another session's task is not there: {said}");
    assert_eq!(daemon.client().approval(&approval).unwrap().state, ApprovalState::Waiting);
    assert!(daemon.client().grants().unwrap().is_empty() && daemon.client().tokens().unwrap().is_empty());
}

#[test]
fn a_persons_token_does_not_approve_from_inside_a_task() {
    let (daemon, at) = open();
    let token = token(&daemon, json!({"name": "phone", "kind": "person", "scopes": ["observe", "approve"]}));
    let waiting = daemon.ask_with("touch granted", json!({"profile": "safe"}));
    let approval = waiting.approval_id().unwrap();
    std::fs::write(daemon.work().join("token"), &token).unwrap();
    let script = format!(
        "curl -s -o said -w '%{{http_code}}' -H \"Authorization: Bearer $(cat token)\" -d '{{\"choice\":\"once\"}}' http://{at}/approvals/{approval}; cat said"
    );
    std::fs::write(daemon.work().join("steal.sh"), script).unwrap();
    let task = daemon.ask("bash steal.sh");
    daemon.settled(task);
    let said = daemon.stdout(task);
    assert!(said.starts_with("403") && said.contains("token phone is a person's token, but a task"), "{said}");
    assert_eq!(daemon.client().approval(&approval.to_string()).unwrap().state, ApprovalState::Waiting);
    // Used by a person it is valid.
    let answer = with(&at, &token, "POST", &format!("/approvals/{approval}"), Some(json!({"choice": "once"})));
    assert_eq!(answer.status, 200, "{}", answer.body);
    let by = daemon.client().approval(&approval.to_string()).unwrap();
    assert!(serde_json::to_string(&by).unwrap().contains("token phone"));
}

#[test]
fn a_task_that_kills_its_supervisor_is_still_not_a_person() {
    let daemon = TestHome::new(CSN);
    // As on a kernel without scopes: with scopes no task can kill a supervisor.
    daemon.configure("[confine]\nlandlock = 5\n");
    daemon.start();
    let waiting = daemon.ask_with("touch granted", json!({"profile": "safe"}));
    let approval = waiting.approval_id().unwrap();
    // Ignores the signal of its parent's death, kills the shim, and continues with nothing of its task about it.
    let script = format!(
        "import os, subprocess, sys, time\n\
         shim = os.getppid()\n\
         if os.fork(): time.sleep(60)\n\
         os.setsid()\n\
         if os.fork(): os._exit(0)\n\
         os.kill(shim, 9)\n\
         env = {{'COUNTERSIGN_HOME': '{home}'}}\n\
         r = subprocess.run(['{CSN}', 'approvals', 'answer', '{approval}', 'once'], env=env, capture_output=True)\n\
         open('{work}/answered', 'w').write(str(r.returncode))\n",
        home = daemon.home().display(),
        work = daemon.work().display(),
    );
    std::fs::write(daemon.work().join("kill.py"), script).unwrap();
    let task = daemon.ask_open("exec python3 kill.py", json!({}));
    assert!(matches!(daemon.outcome(task), Outcome::Lost { .. }));
    let answered = std::fs::read_to_string(daemon.work().join("answered")).unwrap_or_default();
    assert_ne!(answered, "0", "it was refused, or ended before it could ask");
    assert_eq!(daemon.client().approval(&approval.to_string()).unwrap().state, ApprovalState::Waiting);
    assert!(!daemon.work().join("granted").exists());
}

#[test]
fn no_process_below_a_registered_agent_can_approve() {
    let daemon = TestHome::started(CSN);
    let waiting = daemon.ask_with("touch granted", json!({"profile": "safe"}));
    let approval = waiting.approval_id().unwrap().to_string();
    let csn = format!("COUNTERSIGN_HOME={} {CSN}", daemon.home().display());
    // The double fork leaves the process tree of the agent, which is no subreaper: docs/security.md lists it.
    let inside: Vec<_> = ATTEMPTS.iter().filter(|(name, _)| *name != "double fork").collect();
    let mut script = format!("set -e\n{csn} sessions open --agent --in . > session\nset +e\n");
    script += &attempts(&daemon, &approval)
        .lines()
        .filter(|l| !l.contains("'REFUSED double fork'"))
        .map(|l| format!("{l}\n"))
        .collect::<String>();
    script += &format!("{csn} run --no-wait --json 'touch by-agent'\n");
    std::fs::write(daemon.work().join("agent.sh"), script).unwrap();
    let out = daemon.outside(&["bash", "agent.sh"]);
    let said = String::from_utf8(out.stdout).unwrap();
    for (name, _) in inside {
        assert!(said.contains(&format!("REFUSED {name}\n")), "{name}: {said}");
    }
    assert!(!said.contains("DONE"), "{said}");
    let asked: TaskState = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let session = std::fs::read_to_string(daemon.work().join("session")).unwrap();
    assert_eq!(asked.request.credential, CredentialKind::Agent);
    assert_eq!(asked.request.session_id.unwrap().to_string(), session.trim(), "it asks in its own session");
    assert_eq!(daemon.client().approval(&approval).unwrap().state, ApprovalState::Waiting);
    // A process can register only its own ancestors as agents.
    let other = json!({"agent_pid": daemon.daemon_pid()});
    assert_eq!(refusal(daemon.client().open_session(&body(other))).code, RefusalCode::BadRequest);
}

#[test]
fn a_process_with_the_marker_of_a_task_is_not_a_person() {
    let daemon = TestHome::started(CSN);
    let waiting = daemon.ask_with("touch granted", json!({"profile": "safe"}));
    let approval = waiting.approval_id().unwrap().to_string();
    let marked = [("COUNTERSIGN_TASK", "tk_01m7h4jys3gnc16h")];
    let out = daemon.csn_with(&["approvals", "answer", &approval, "once"], &marked);
    assert!(!out.status.success());
    let own = daemon.ask("cat").to_string();
    let out = daemon.csn_with(&["run", "--no-wait", "--json", "touch x"], &[("COUNTERSIGN_TASK", own.as_str())]);
    let asked: TaskState = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(asked.request.credential, CredentialKind::Agent);
    assert_eq!(daemon.client().approval(&approval).unwrap().state, ApprovalState::Waiting);
}

#[test]
fn a_task_does_not_change_the_configuration_or_read_a_token() {
    let daemon = TestHome::started(CSN);
    let config = daemon.home().parent().unwrap().join("config/countersign/config.toml");
    for text in [
        format!("echo 'profile = \"full_auto\"' > {}", config.display()),
        format!("cp x {}", config.display()),
        format!("cat {}/keys/digest.key", daemon.home().display()),
        format!("cat {}/waiting/*", daemon.home().display()),
        format!("{CSN} approvals answer ap_0000000000000000 once"),
        "csn grants add --verb make --anywhere".to_owned(),
        "csn token create --person --scope approve --name x".to_owned(),
    ] {
        let (refusal, task) = daemon.refused(&text, json!({}));
        let code = refusal.code;
        assert!(
            matches!(code, RefusalCode::ProtectedPath | RefusalCode::SelfDestructive) && task.is_some(),
            "{text}: {code:?}"
        );
    }
}

#[test]
fn shims_that_reconnect_late_are_recognised_after_a_restart() {
    let daemon = TestHome::started(CSN);
    let waiting = daemon.ask_with("touch granted", json!({"profile": "safe"}));
    let approval = waiting.approval_id().unwrap().to_string();
    let script = format!(
        "until [ -e go ]; do sleep 0.02; done; env -i COUNTERSIGN_HOME={} {CSN} approvals answer {approval} once; echo code $?",
        daemon.home().display()
    );
    std::fs::write(daemon.work().join("late.sh"), script).unwrap();
    let task: TaskId = daemon.ask_open("bash late.sh", json!({}));
    daemon.frame(task, |f| matches!(f, countersign_model::Frame::Spawned { .. }));
    kill(daemon.daemon_pid());
    daemon.daemon_ends();
    daemon.start();
    std::fs::write(daemon.work().join("go"), "").unwrap();
    daemon.settled(task);
    assert!(daemon.stdout(task).contains("code 77"), "{}", daemon.stdout(task));
    let client: Client = daemon.client();
    assert_eq!(client.approval(&approval).unwrap().state, ApprovalState::Waiting);
}

/// Many tasks at once, some of them queued: all of them end, and none starts meanwhile.
#[test]
fn ending_a_session_ends_all_its_tasks() {
    let daemon = TestHome::new(CSN);
    daemon.configure("[limits]\nrunning_per_session = 4\ngrace_ms = 100\n");
    daemon.start();
    let session = daemon.client().open_session(&body(json!({"directory": daemon.work()}))).unwrap();
    let with = json!({"session_id": session.id, "on_session_end": "stop", "args": {"stdin": true}});
    let tasks: Vec<TaskId> =
        (0..20).map(|n| daemon.ask_with(&format!("cat; echo {n}"), with.clone()).task_id).collect();
    let stopped = daemon.client().end_session(&session.id.to_string()).unwrap();
    assert_eq!(stopped.len(), 20);
    for task in tasks {
        assert!(matches!(daemon.outcome(task), Outcome::Cancelled { .. } | Outcome::Withdrawn { .. }));
    }
    let over = daemon.refused("true", json!({"session_id": session.id})).0;
    assert_eq!(over.code, RefusalCode::SessionOver);
}

/// A process that cannot be followed to the top of its process tree is not a person, however deep it is.
#[test]
fn a_deep_process_tree_does_not_hide_a_task() {
    let daemon = TestHome::started(CSN);
    let script = format!(
        "import os, sys\n\
         n = int(sys.argv[1])\n\
         if n > 0:\n\
         \x20   pid = os.fork()\n\
         \x20   if pid:\n\
         \x20       sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n\
         \x20   os.execve(sys.executable, [sys.executable, sys.argv[0], str(n - 1)], {{}})\n\
         os.execve('{CSN}', ['csn', 'grants', 'add', 'rm anywhere'], {{'COUNTERSIGN_HOME': '{}'}})\n",
        daemon.home().display()
    );
    std::fs::write(daemon.work().join("deep.py"), script).unwrap();
    for depth in [3, 300] {
        let task = daemon.ask_open(&format!("python3 deep.py {depth}"), json!({}));
        assert_eq!(daemon.outcome(task), Outcome::Exited { code: 77 }, "{depth}");
    }
    assert!(daemon.client().grants().unwrap().is_empty());
}

#[test]
fn a_token_gets_no_extra_trust_in_the_session_of_another() {
    let (daemon, at) = open();
    let owner = daemon.client();
    let session = owner.open_session(&body(json!({"directory": daemon.work()}))).unwrap();
    owner.grant(&body(json!({"verb": "touch", "directory": null}))).unwrap();
    let stranger =
        token(&daemon, json!({"name": "s", "kind": "agent", "scopes": ["observe", "run"], "audience": "public"}));
    let agent = token(&daemon, json!({"name": "a", "kind": "agent", "scopes": ["observe", "run"]}));
    let request = json!({"tool": "shell", "args": {"command": "touch x"}, "session_id": session.id});
    assert_eq!(with(&at, &stranger, "POST", "/tasks", Some(request.clone())).status, 404);
    assert_eq!(with(&at, &stranger, "GET", "/sessions", None).body["sessions"], json!([]));
    let running = daemon.ask_with("cat", json!({"session_id": session.id, "args": {"stdin": true}}));
    assert_eq!(with(&at, &stranger, "GET", &format!("/tasks/{}", running.task_id), None).status, 404);
    assert_eq!(with(&at, &stranger, "GET", "/tasks", None).body["tasks"], json!([]));
    // An agent of the same principal may watch, but not type.
    assert_eq!(with(&at, &agent, "GET", &format!("/tasks/{}", running.task_id), None).status, 200);
    for (method, path, body) in [
        ("POST", "/tasks".to_owned(), request),
        ("POST", format!("/tasks/{}/stdin", running.task_id), json!({"text": "x"})),
        ("POST", format!("/tasks/{}/cancel", running.task_id), json!({})),
        ("DELETE", format!("/sessions/{}", session.id), json!({})),
        ("POST", format!("/sessions/{}/directory", session.id), json!({"directory": daemon.work()})),
    ] {
        assert_eq!(with(&at, &agent, method, &path, Some(body)).status, 403, "{method} {path}");
    }
    assert_eq!(owner.task(&running.task_id.to_string()).unwrap().status, Status::Running);
}

#[test]
fn a_persons_token_does_not_run_for_a_task_either() {
    let (daemon, at) = open();
    let token = token(&daemon, json!({"name": "mine", "kind": "person", "scopes": ["observe", "run"]}));
    let body =
        json!({"tool": "shell", "args": {"command": "touch unasked", "cwd": daemon.work()}, "profile": "full_auto"});
    let script = format!("curl -s -H 'Authorization: Bearer {token}' -d '{body}' http://{at}/tasks");
    std::fs::write(daemon.work().join("run.sh"), script).unwrap();
    let task = daemon.ask("bash run.sh");
    daemon.settled(task);
    assert!(daemon.stdout(task).contains("missing_scope"), "{}", daemon.stdout(task));
    assert!(!daemon.work().join("unasked").exists());
    assert_eq!(with(&at, &token, "POST", "/tasks", Some(body)).status, 201, "in a person's hands it does");
}

/// A connection that was opened before its process became an agent does not stay a person's.
#[test]
fn a_process_that_becomes_an_agent_is_one_on_every_connection() {
    let daemon = TestHome::started(CSN);
    let waiting = daemon.ask_with("touch granted", json!({"profile": "safe"}));
    let script = format!(
        "import json, os, socket\n\
         def call(s, method, path, body):\n\
         \x20   b = json.dumps(body)\n\
         \x20   s.sendall((f'{{method}} {{path}} HTTP/1.1\\r\\nhost: x\\r\\ncontent-length: {{len(b)}}\\r\\n\\r\\n' + b).encode())\n\
         \x20   return int(s.recv(65536).split(b' ')[1])\n\
         old = socket.socket(socket.AF_UNIX); old.connect('{sock}')\n\
         first = call(old, 'GET', '/lifecycle', {{}})\n\
         new = socket.socket(socket.AF_UNIX); new.connect('{sock}')\n\
         pid = os.fork()\n\
         if pid == 0:\n\
         \x20   s = socket.socket(socket.AF_UNIX); s.connect('{sock}')\n\
         \x20   os._exit(0 if call(s, 'POST', '/sessions', {{'agent_pid': os.getppid()}}) == 201 else 1)\n\
         opened = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n\
         print(first, opened, call(old, 'POST', '/approvals/{ap}', {{'choice': 'once'}}), call(new, 'POST', '/approvals/{ap}', {{'choice': 'once'}}))\n",
        sock = daemon.home().join("run/csn.sock").display(),
        ap = waiting.approval_id().unwrap(),
    );
    std::fs::write(daemon.work().join("conn.py"), script).unwrap();
    let out = daemon.outside(&["python3", "conn.py"]);
    assert_eq!(String::from_utf8_lossy(&out.stdout), "200 0 403 403\n", "{}", String::from_utf8_lossy(&out.stderr));
}

/// A token that a task has stolen cannot answer either if its connection closes before the daemon identifies the
/// process, and cannot type into a task that others are attached to.
#[test]
fn a_stolen_token_neither_answers_nor_types_on_a_closed_connection() {
    let (daemon, at) = open();
    let token = token(&daemon, json!({"name": "phone", "kind": "person", "scopes": ["observe", "run", "approve"]}));
    let waiting = daemon.ask_with("touch granted", json!({"profile": "safe"}));
    let approval = waiting.approval_id().unwrap();
    let typed = daemon.ask_with("cat > typed", json!({"args": {"stdin": true}})).task_id;
    let (host, port) = at.split_once(':').unwrap();
    let script = format!(
        "import socket\n\
         def send(text, close):\n\
         \x20   s = socket.create_connection(('{host}', {port}))\n\
         \x20   s.sendall(text.replace('\\n', '\\r\\n').encode())\n\
         \x20   if close: s.close(); return\n\
         \x20   print(s.recv(4096).split(b' ')[1].decode())\n\
         auth = 'host: {at}\\nauthorization: Bearer {token}\\n'\n\
         body = '{{\"choice\":\"once\"}}'\n\
         for n in range(20):\n\
         \x20   send('POST /approvals/{approval} HTTP/1.1\\n' + auth + f'content-length: {{len(body)}}\\n\\n' + body + 'POST /x HT', True)\n\
         send('GET /tasks/{typed}/attach HTTP/1.1\\n' + auth + 'connection: upgrade\\nupgrade: websocket\\nsec-websocket-version: 13\\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\\n\\n', False)\n"
    );
    std::fs::write(daemon.work().join("steal.py"), script).unwrap();
    let task = daemon.ask("python3 steal.py");
    assert_eq!(daemon.outcome(task), Outcome::Exited { code: 0 });
    assert_eq!(daemon.stdout(task), "403\n", "attaching with input counts as typing");
    assert_eq!(daemon.client().approval(&approval.to_string()).unwrap().state, ApprovalState::Waiting);
}

/// A process that another principal's task starts belongs to that principal, too.
#[test]
fn a_task_of_a_second_principal_is_not_the_owner_on_the_socket() {
    let (daemon, at) = open();
    let bob = token(
        &daemon,
        json!({
            "name": "bob", "principal": "bob", "kind": "person", "scopes": ["observe", "run", "approve", "admin"],
        }),
    );
    daemon.client().grant(&body(json!({"verb": "mkdir", "directory": daemon.work()}))).unwrap();
    let csn = format!("COUNTERSIGN_HOME={} {CSN}", daemon.home().display());
    std::fs::write(
        daemon.work().join("sock.sh"),
        format!("{csn} run --no-wait --json 'mkdir bobs'; {csn} grants list --json; {csn} ps -a --json"),
    )
    .unwrap();
    let body =
        json!({"tool": "shell", "args": {"command": "bash sock.sh", "cwd": daemon.work()}, "confinement": "shield"});
    let asked = with(&at, &bob, "POST", "/tasks", Some(body));
    let approval = format!("/approvals/{}", asked.body["approval_id"].as_str().unwrap());
    assert_eq!(with(&at, &bob, "POST", &approval, Some(json!({"choice": "once"}))).status, 200);
    let task = asked.body["task_id"].as_str().unwrap();
    let ended = with(&at, &bob, "GET", &format!("/tasks/{task}?wait_ms=20000"), None);
    assert_eq!(ended.body["outcome"], json!({"kind": "exited", "code": 0}), "{}", ended.body);
    let said = with(&at, &bob, "GET", &format!("/tasks/{task}/output?stream=stdout"), None).body;
    let said = said["content"].as_str().unwrap();
    let nested: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    assert_eq!((&nested["principal"], &nested["status"]), (&asked.body["principal"], &json!("queued")));
    assert!(!said.contains("gr_"), "{said}");
    assert!(!daemon.work().join("bobs").exists(), "the owner's grant is not bob's");
    for (path, body) in
        [("/gc", json!({"dry_run": true})), ("/ledger", json!({"index": "rebuild"})), ("/listen", json!({}))]
    {
        assert_eq!(with(&at, &bob, "POST", path, Some(body)).status, 403, "{path} is the owner's");
    }
}

/// A connection ends when its token is revoked.
#[test]
fn a_revoked_token_receives_no_more_events() {
    let (daemon, at) = open();
    let eye = token(&daemon, json!({"name": "eye", "kind": "person", "scopes": ["observe"]}));
    let mut stream = TcpStream::connect(&at).unwrap();
    let head = format!(
        "GET /approvals/events HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\nauthorization: {}\r\n\r\n",
        bearer(&eye)
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut seen = String::new();
    let mut buf = [0; 4096];
    while !seen.contains(": now") {
        let n = stream.read(&mut buf).unwrap();
        seen += &String::from_utf8_lossy(&buf[..n]);
    }
    daemon.client().revoke_token("eye").unwrap();
    daemon.ask_with("touch x", json!({"profile": "safe"}));
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("approval_id") && !rest.contains("touch x"), "{rest}");
}
