//! MCP: over an agent's pipes and over HTTP, both protocol versions, approvals in-band, and a daemon that restarts.

use crate::{CSN, stream::get};
use countersign_model::{Channel, Choice, DecidedBy, Outcome, Ruling, Status, TaskId, TaskState};
use countersign_testkit::{TestAgent, TestHome};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
};

const NEWEST: &str = "2026-07-28";

/// A client in an agent's process. Each call names what the client answers if it is asked.
struct Client<'a> {
    agent: &'a mut TestAgent,
    name: &'a str,
    next: u64,
    version: &'a str,
    capabilities: Value,
}

impl<'a> Client<'a> {
    fn new(agent: &'a mut TestAgent, name: &'a str, version: &'a str, asks: bool) -> Self {
        agent.start_mcp(name);
        let capabilities = if asks { json!({"elicitation": {}}) } else { json!({}) };
        let mut client = Self { agent, name, next: 0, version, capabilities };
        if version < NEWEST {
            let info = json!({"name": "test", "version": "1"});
            let begun = client.call(
                "initialize",
                json!({"protocolVersion": version, "capabilities": client.capabilities, "clientInfo": info}),
            );
            assert_eq!(begun["result"]["protocolVersion"], version);
            assert_eq!(begun["result"]["serverInfo"]["name"], "countersign");
            let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            client.agent.say(name, &initialized);
        }
        client
    }

    fn send(&mut self, method: &str, mut params: Value) -> u64 {
        self.next += 1;
        if self.version >= NEWEST {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": self.version,
                "io.modelcontextprotocol/clientCapabilities": self.capabilities,
                "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            });
        }
        let message = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        self.agent.say(self.name, &message);
        self.next
    }

    /// The answer, and the messages before it; a question is answered with `answer`.
    fn answer(&mut self, id: u64, answer: &Value) -> (Value, Vec<Value>) {
        let mut meanwhile = Vec::new();
        loop {
            let message = self.agent.next_event(self.name).expect("an answer");
            if message["id"] == id && message.get("method").is_none() {
                return (message, meanwhile);
            }
            if message["method"] == "elicitation/create" {
                let said = json!({"jsonrpc": "2.0", "id": message["id"], "result": answer});
                self.agent.say(self.name, &said);
            }
            meanwhile.push(message);
        }
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id, &Value::Null).0
    }

    /// A tool's structured result, and whether it failed.
    fn tool(&mut self, name: &str, arguments: Value) -> (Value, bool) {
        let said = self.call("tools/call", json!({"name": name, "arguments": arguments}));
        let result = &said["result"];
        assert!(result.is_object(), "{said}");
        (result["structuredContent"].clone(), result["isError"].as_bool().unwrap_or(false))
    }
}

fn accept(decision: &str) -> Value {
    json!({"action": "accept", "content": {"decision": decision}})
}

fn state(daemon: &TestHome, told: &Value) -> TaskState {
    daemon.client().task(told["task_id"].as_str().unwrap()).unwrap()
}

/// The task of this command, once it runs.
fn running(daemon: &TestHome, command: &str) -> TaskId {
    loop {
        let tasks = get(daemon, "/tasks?status=running").unwrap();
        let found = tasks["tasks"].as_array().and_then(|all| all.iter().find(|t| t["display"] == command));
        if let Some(found) = found {
            return task(found);
        }
        std::thread::yield_now();
    }
}

fn task(told: &Value) -> TaskId {
    told["task_id"].as_str().unwrap().parse().unwrap()
}

#[test]
fn both_eras_offer_the_same_tools_and_run_the_same() {
    let daemon = TestHome::started(CSN);
    std::fs::write(daemon.work().join("a.txt"), "hello\n").unwrap();
    let mut agent = daemon.agent();
    let mut lists = Vec::new();
    for version in ["2025-06-18", "2025-11-25", NEWEST] {
        let mut client = Client::new(&mut agent, version, version, false);
        let tools = client.call("tools/list", json!({}))["result"]["tools"].clone();
        assert_eq!(tools[0]["name"], "run");
        assert_eq!(tools[0]["annotations"]["destructiveHint"], true);
        lists.push(tools);
        let (told, failed) = client.tool("run", json!({"command": "cat a.txt"}));
        assert_eq!(
            (&told["output"]["stdout"]["text"], &told["exit_code"], failed),
            (&json!("hello\n"), &json!(0), false)
        );
        let ran = state(&daemon, &told);
        assert_eq!(ran.request.labels["mcp.client"].as_str(), "test 1");
        let (told, failed) = client.tool("run", json!({"command": "csn down"}));
        assert!(failed && told["hint"].as_str().is_some_and(|h| h.contains("csn down")), "{told}");
        let (told, failed) = client.tool("run", json!({"command": "ls", "wait": 3}));
        assert!(failed && told["message"].as_str().unwrap().contains("`wait`"), "{told}");
        assert_eq!(client.call("tools/call", json!({"name": "approve", "arguments": {}}))["error"]["code"], -32602);
        assert_eq!(
            client.call("prompts/list", json!({}))["error"]["code"],
            -32601,
            "an undeclared capability is absent"
        );
    }
    assert!(lists.windows(2).all(|w| w[0] == w[1]));
    let names: Vec<&str> = lists[0].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert!(!names.iter().any(|n| n.contains("approv") || n.contains("grant") || n.contains("answer")), "{names:?}");
}

/// One session for each connection, below the agent's process, however many connections it has.
#[test]
fn a_connection_is_a_session_of_a_known_agent() {
    let daemon = TestHome::started(CSN);
    let mut agent = daemon.agent();
    let pid = agent.pid();
    let mut one = Client::new(&mut agent, "one", "2025-11-25", false);
    let first = one.tool("run", json!({"command": "true"})).0;
    let mut two = Client::new(&mut agent, "two", "2025-11-25", false);
    let second = two.tool("run", json!({"command": "true"})).0;
    assert_ne!(first["session_id"], second["session_id"]);
    let session = get(&daemon, &format!("/sessions/{}", first["session_id"].as_str().unwrap())).unwrap();
    assert_eq!((&session["agent"]["pid"], &session["credential"]), (&json!(pid), &json!("agent")));
    let listed = two.tool("task_list", json!({})).0;
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 2, "all that this agent has: {listed}");
    let state = daemon.ask_with("touch granted", json!({"profile": "safe"}));
    let waiting = state.approval_id().unwrap().to_string();
    assert_ne!(agent.csn(&["approvals", "answer", &waiting, "once"]).0, 0);
    assert!(daemon.client().task(&state.task_id.to_string()).unwrap().outcome().is_none());
}

#[test]
fn a_long_build_is_followed_by_its_id() {
    let daemon = TestHome::started(CSN);
    daemon.configure("profile = \"full_auto\"\n");
    daemon.kill_daemon();
    daemon.start();
    let mut agent = daemon.agent();
    let mut client = Client::new(&mut agent, "build", "2025-11-25", false);
    let text = "seq 1 50000; echo error: E42 >&2; read line; echo got $line; sleep 1000";
    let (told, failed) = client.tool("run", json!({"command": text, "stdin": true, "wait_s": 1, "title": "build"}));
    assert_eq!((&told["status"], failed), (&json!("running"), false));
    let id = told["task_id"].clone();
    daemon.wait_for_stdout(task(&told), "50000");
    let (part, _) = client.tool("task_output", json!({"task_id": id, "offset": 0, "max_bytes": 4}));
    assert_eq!((&part["content"], &part["next_offset"]), (&json!("1\n2\n"), &json!(4)));
    let (tail, _) = client.tool("task_output", json!({"task_id": id, "tail": 1}));
    assert_eq!(tail["content"], "50000\n");
    let (lines, _) = client.tool("task_output", json!({"task_id": id, "line": 10, "lines": 2}));
    assert_eq!(lines["content"], "10\n11\n");
    let (found, _) = client.tool("task_search", json!({"task_id": id, "pattern": "E4[0-9]", "regex": true}));
    assert_eq!(found["matches"][0]["stream"], "stderr");
    let read = json!({"uri": format!("countersign://tasks/{}/stdout?offset=2&length=2", id.as_str().unwrap())});
    let read = client.call("resources/read", read);
    assert_eq!(
        (&read["result"]["contents"][0]["text"], &read["result"]["contents"][0]["_meta"]["next"]),
        (&json!("2\n"), &json!(4))
    );
    let (_, failed) = client.tool("task_input", json!({"task_id": id, "text": "word\n"}));
    assert!(!failed);
    daemon.wait_for_stdout(task(&told), "got word");
    // A client that reconnects finds the task as it was.
    let name = client.name.to_owned();
    assert_eq!(agent.hang_up(&name), 0);
    let mut client = Client::new(&mut agent, "again", "2025-11-25", false);
    let (told, _) = client.tool("task_status", json!({"task_id": id}));
    assert_eq!(told["status"], "running");
    client.tool("task_cancel", json!({"task_id": id, "reason": "enough"}));
    let (told, failed) = client.tool("task_wait", json!({"task_id": id}));
    assert_eq!((&told["status"], failed), (&json!("cancelled"), false));
    assert!(told["output"]["stdout"]["omitted"].as_u64().is_some_and(|n| n > 100_000), "{told}");
    assert!(told["hint"].as_str().unwrap().contains("task_output"), "{told}");
    daemon.sealed(task(&told));
    let (receipt, _) = client.tool("receipt_get", json!({"task_id": id}));
    assert_eq!(receipt["statement"]["predicate"]["task_id"], id);
}

#[test]
fn the_person_at_the_client_may_approve_once_or_deny() {
    let daemon = TestHome::started(CSN);
    let mut agent = daemon.agent();
    let mut client = Client::new(&mut agent, "asks", "2025-11-25", true);
    let run = |command: &str| json!({"name": "run", "arguments": {"command": command, "wait_s": 20}});
    let id = client.send("tools/call", run("touch made"));
    let (said, meanwhile) = client.answer(id, &accept("once"));
    assert_eq!(said["result"]["structuredContent"]["exit_code"], 0, "{said}");
    let question = &meanwhile[0]["params"];
    assert!(question["message"].as_str().unwrap().starts_with("Approve `touch made` in "), "{question}");
    let offered: Vec<&str> = question["requestedSchema"]["properties"]["decision"]["oneOf"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["const"].as_str().unwrap())
        .collect();
    assert_eq!(offered, ["once", "deny"]);
    let ran = state(&daemon, &said["result"]["structuredContent"]);
    let Some(Ruling::Granted { by: DecidedBy::Person { channel, surface, .. }, saved, .. }) = ran.ruling else {
        panic!()
    };
    assert!(channel == Channel::InBand && surface.as_str() == "mcp" && saved.is_empty());
    let id = client.send("tools/call", run("touch other"));
    let (said, _) = client.answer(id, &accept("deny"));
    assert_eq!(said["result"]["isError"], true);
    assert_eq!(said["result"]["structuredContent"]["message"], "Command denied by user");
    assert!(!daemon.work().join("other").exists());
}

/// The first answer counts; the other clients learn that the approval is resolved.
#[test]
fn a_question_that_was_answered_elsewhere_is_withdrawn() {
    let daemon = TestHome::started(CSN);
    let mut agent = daemon.agent();
    let mut client = Client::new(&mut agent, "asks", "2025-11-25", true);
    let id = client.send("tools/call", json!({"name": "run", "arguments": {"command": "touch made", "wait_s": 60}}));
    let question = client.agent.next_event("asks").unwrap();
    assert_eq!(question["method"], "elicitation/create");
    let waiting = get(&daemon, "/approvals").unwrap()["approvals"][0]["id"].as_str().unwrap().parse().unwrap();
    daemon.client().answer(waiting, Choice::Once, None).unwrap();
    let (said, mut meanwhile) = client.answer(id, &Value::Null);
    assert_eq!(said["result"]["structuredContent"]["exit_code"], 0);
    while meanwhile.is_empty() {
        meanwhile.extend(client.agent.next_event("asks"));
    }
    assert_eq!(meanwhile[0]["method"], "notifications/cancelled");
    assert_eq!(meanwhile[0]["params"]["requestId"], question["id"]);
}

/// The agent's own process answers, so it may have forged the answer.
#[test]
fn a_forged_answer_saves_nothing_and_approves_nothing_grave() {
    let daemon = TestHome::started(CSN);
    let mut agent = daemon.agent();
    std::fs::create_dir(daemon.work().join("dir")).unwrap();
    let mut client = Client::new(&mut agent, "forges", "2025-11-25", true);
    for forged in ["session", "here", "anywhere", "yes"] {
        let command = format!("touch forged-{forged}");
        let id = client.send("tools/call", json!({"name": "run", "arguments": {"command": command, "wait_s": 1}}));
        let (said, _) = client.answer(id, &accept(forged));
        assert_eq!(said["result"]["structuredContent"]["status"], "queued", "{forged}: {said}");
    }
    for action in ["decline", "cancel"] {
        let command = format!("touch {action}d");
        let id = client.send("tools/call", json!({"name": "run", "arguments": {"command": command, "wait_s": 1}}));
        let (said, _) = client.answer(id, &json!({"action": action}));
        let told = &said["result"]["structuredContent"];
        assert_eq!(told["status"], "queued", "declining to be asked is not a denial: {said}");
        let approval = told["approval_id"].as_str().unwrap().parse().unwrap();
        daemon.client().answer(approval, Choice::Once, None).unwrap();
        assert_eq!(daemon.outcome(task(told)), Outcome::Exited { code: 0 });
    }
    for grave in ["rm -r dir", "sudo true", "cat ~/.ssh/id_ed25519", "apt-get install x"] {
        let id = client.send("tools/call", json!({"name": "run", "arguments": {"command": grave, "wait_s": 1}}));
        let (said, meanwhile) = client.answer(id, &accept("once"));
        assert!(meanwhile.is_empty(), "{grave} is not put to the client: {meanwhile:?}");
        assert_eq!(said["result"]["structuredContent"]["status"], "queued", "{grave}: {said}");
    }
    assert_eq!(get(&daemon, "/grants").unwrap()["grants"], json!([]));
    let made: Vec<_> = std::fs::read_dir(daemon.work()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(made.iter().all(|n| n == "dir" || n == "declined" || n == "canceld"), "{made:?}");
}

/// A client that accepts every question, as a program of its own.
const YES: &str = r#"
import json, os, subprocess, sys
p = subprocess.Popen([sys.argv[1], "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
def say(m): p.stdin.write(json.dumps(m) + "\n")
def call(n, method, params):
    say({"jsonrpc": "2.0", "id": n, "method": method, "params": params})
    while True:
        m = json.loads(p.stdout.readline())
        if m.get("method") == "elicitation/create":
            print("ASKED"); say({"jsonrpc": "2.0", "id": m["id"], "result": {"action": "accept", "content": {"decision": "once"}}})
        elif m.get("id") == n: return m
call(1, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "y", "version": "1"}})
say({"jsonrpc": "2.0", "method": "notifications/initialized"})
args = json.loads(sys.argv[2])
print(json.dumps(call(2, "tools/call", args).get("result", {}).get("structuredContent", {}).get("status")))
"#;

/// Only the client that the agent itself has started answers in-band, and only for its own requests. A script of the
/// agent or of a task is neither.
#[test]
fn a_script_that_speaks_mcp_cannot_approve() {
    let daemon = TestHome::started(CSN);
    std::fs::write(daemon.work().join("yes.py"), YES).unwrap();
    let mut agent = daemon.agent();
    let mut client = Client::new(&mut agent, "own", "2025-11-25", false);
    let (waiting, _) = client.tool("run", json!({"command": "touch pwned", "wait_s": 0}));
    let of = |name: &str, arguments: Value| json!({"name": name, "arguments": arguments}).to_string();
    let wait = of("task_wait", json!({"task_id": waiting["task_id"], "wait_s": 1}));
    let run = of("run", json!({"command": "touch pwned2", "wait_s": 1}));
    for call in [&wait, &run] {
        let (_, out, err) = agent.run(&["python3", "yes.py", CSN, call], "");
        assert_eq!(out, "\"queued\"\n", "{err}");
    }
    // A later connection could be a script's: it is not asked either, and cannot answer for the first.
    let mut later = Client::new(&mut agent, "later", "2025-11-25", true);
    let id = later.send("tools/call", json!({"name": "run", "arguments": {"command": "touch pwned3", "wait_s": 1}}));
    assert!(later.answer(id, &accept("once")).1.is_empty());
    // A task that a person allowed: it has a session, and no client of its own.
    let text = format!("python3 yes.py {CSN} '{run}'");
    let task = daemon.ask_open(&text, json!({}));
    assert!(matches!(daemon.outcome(task), Outcome::Exited { .. }));
    assert!(!daemon.stdout(task).contains("ASKED"), "{}", daemon.stdout(task));
    for made in ["pwned", "pwned2", "pwned3"] {
        assert!(!daemon.work().join(made).exists(), "{made}");
    }
}

/// An agent's token in the hands of a task answers nothing.
#[test]
fn a_task_cannot_answer_its_own_approval_over_http() {
    let daemon = TestHome::started(CSN);
    let at = daemon.client().listen(Some(([127, 0, 0, 1], 0).into())).unwrap().to_string();
    let made = daemon.csn(&["token", "create", "--agent", "--name", "bot", "--scope", "run,observe", "--json"]);
    let token: Value = serde_json::from_slice(&made.stdout).unwrap_or_else(|_| panic!("{made:?}"));
    let script = format!(
        r#"
import json, urllib.request
meta = {{"io.modelcontextprotocol/protocolVersion": "{NEWEST}", "io.modelcontextprotocol/clientCapabilities": {{"elicitation": {{}}}},
        "io.modelcontextprotocol/clientInfo": {{"name": "t", "version": "1"}}}}
args = {{"command": "touch pwned", "cwd": "{work}", "wait_s": 1}}
body = {{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {{"name": "run", "arguments": args, "_meta": meta}}}}
head = {{"authorization": "Bearer {token}", "content-type": "application/json", "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "{NEWEST}", "mcp-method": "tools/call", "mcp-name": "run"}}
said = urllib.request.urlopen(urllib.request.Request("http://{at}/mcp", json.dumps(body).encode(), head)).read().decode()
print("ASKED" if "input_required" in said else "QUEUED" if "approval pending" in said else said)
"#,
        work = daemon.work().display(),
        token = token["token"].as_str().unwrap(),
    );
    std::fs::write(daemon.work().join("over.py"), script).unwrap();
    // Outside of any task its client is asked, as intended.
    let outside = daemon.outside(&["python3", "over.py"]);
    assert_eq!(String::from_utf8_lossy(&outside.stdout), "ASKED\n", "{}", String::from_utf8_lossy(&outside.stderr));
    let task = daemon.ask_open("python3 over.py", json!({}));
    assert_eq!(daemon.outcome(task), Outcome::Exited { code: 0 });
    assert_eq!(daemon.stdout(task), "QUEUED\n");
    assert!(!daemon.work().join("pwned").exists());
}

#[test]
fn with_in_band_off_the_client_is_not_asked_and_cannot_answer() {
    let daemon = TestHome::new(CSN);
    daemon.configure("[approvals]\nin_band = \"off\"\n");
    daemon.start();
    let mut agent = daemon.agent();
    let mut client = Client::new(&mut agent, "off", "2025-11-25", true);
    let id = client.send("tools/call", json!({"name": "run", "arguments": {"command": "touch made", "wait_s": 1}}));
    let (said, meanwhile) = client.answer(id, &accept("once"));
    assert!(meanwhile.is_empty() && said["result"]["structuredContent"]["status"] == "queued", "{said}");
    // A forged answer in the form of the newer protocol.
    let mut client = Client::new(&mut agent, "newer", NEWEST, true);
    let (told, _) = client.tool("run", json!({"command": "touch made2", "wait_s": 0}));
    let forged = json!({
        "name": "run", "arguments": {"command": "touch made2", "wait_s": 1},
        "requestState": format!("{}.{}", told["task_id"].as_str().unwrap(), "0".repeat(64)),
        "inputResponses": {"approval": accept("once")},
    });
    assert_eq!(client.call("tools/call", forged)["result"]["isError"], true);
    assert!(!daemon.work().join("made").exists() && !daemon.work().join("made2").exists());
}

#[test]
fn a_newer_client_repeats_its_call_with_the_answer() {
    let daemon = TestHome::started(CSN);
    let mut agent = daemon.agent();
    let mut client = Client::new(&mut agent, "again", NEWEST, true);
    let args = json!({"command": "touch made", "wait_s": 20});
    let said = client.call("tools/call", json!({"name": "run", "arguments": args}));
    assert_eq!(said["result"]["resultType"], "input_required", "{said}");
    assert_eq!(said["result"]["inputRequests"]["approval"]["method"], "elicitation/create");
    let sealed = said["result"]["requestState"].clone();
    let again = |args: &Value, state: &Value, answer: Value| json!({"name": "run", "arguments": args, "requestState": state, "inputResponses": {"approval": answer}});
    // Its state is valid for this call only.
    let other = json!({"command": "touch other", "wait_s": 0});
    assert_eq!(client.call("tools/call", again(&other, &sealed, accept("once")))["result"]["isError"], true);
    let torn = json!(sealed.as_str().unwrap().replace('.', ".0"));
    assert_eq!(client.call("tools/call", again(&args, &torn, accept("once")))["result"]["isError"], true);
    assert!(!daemon.work().join("made").exists() && !daemon.work().join("other").exists());
    let said = client.call("tools/call", again(&args, &sealed, accept("once")));
    assert_eq!(said["result"]["structuredContent"]["exit_code"], 0, "{said}");
    let said = client.call("tools/call", again(&args, &sealed, accept("once")));
    assert_eq!(said["result"]["structuredContent"]["exit_code"], 0, "the same task, not another: {said}");
    assert_eq!(get(&daemon, "/tasks?limit=50").unwrap()["tasks"].as_array().unwrap().len(), 1);
}

#[test]
fn a_cancelled_wait_ends_the_task_only_if_the_call_asked_for_it() {
    let daemon = TestHome::started(CSN);
    daemon.configure("profile = \"full_auto\"\n");
    daemon.kill_daemon();
    daemon.start();
    let mut agent = daemon.agent();
    for (way, cancelled) in [("detach", false), ("kill", true)] {
        let mut client = Client::new(&mut agent, way, "2025-11-25", false);
        let marker = format!("sleep 1000 # {way}");
        let args = json!({"command": marker, "wait_s": 600, "on_disconnect": way});
        let id = client.send("tools/call", json!({"name": "run", "arguments": args}));
        let running = running(&daemon, &marker);
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, "reason": "no"}});
        client.agent.say(client.name, &cancel);
        // The daemon has handled what comes after it.
        let (told, _) = client.tool("task_status", json!({"task_id": running}));
        if cancelled {
            assert!(matches!(daemon.settled(task(&told)).outcome(), Some(&Outcome::Cancelled { .. })));
        } else {
            assert_eq!(daemon.client().task(told["task_id"].as_str().unwrap()).unwrap().status, Status::Running);
        }
    }
}

/// The conversation survives the daemon: only the open call is lost, and its task is not.
#[test]
fn the_bridge_reconnects_to_a_restarted_daemon() {
    let daemon = TestHome::started(CSN);
    daemon.configure("profile = \"full_auto\"\n");
    daemon.kill_daemon();
    daemon.start();
    let mut agent = daemon.agent();
    let mut client = Client::new(&mut agent, "stays", "2025-11-25", false);
    let (first, _) = client.tool("run", json!({"command": "sleep 1000", "background": true}));
    let id = client
        .send("tools/call", json!({"name": "task_wait", "arguments": {"task_id": first["task_id"], "wait_s": 600}}));
    // The daemon has read the call once it has answered this.
    client.agent.say("stays", &json!({"jsonrpc": "2.0", "id": 99, "method": "ping"}));
    assert_eq!(client.agent.next_event("stays").unwrap()["id"], 99);
    daemon.kill_daemon();
    let (said, _) = client.answer(id, &Value::Null);
    assert!(said["error"]["message"].as_str().unwrap().contains("tasks keep running"), "{said}");
    daemon.start();
    let (told, failed) = client.tool("task_status", json!({"task_id": first["task_id"]}));
    assert_eq!((&told["status"], failed, &told["session_id"]), (&json!("running"), false, &first["session_id"]));
}

#[test]
fn without_a_daemon_the_agent_learns_what_to_do() {
    let daemon = TestHome::new(CSN);
    let mut agent = daemon.agent();
    agent.start_mcp("early");
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    agent.say("early", &hello);
    let said = agent.next_event("early").unwrap();
    assert!(said["error"]["message"].as_str().unwrap().contains("csn up --detach"), "{said}");
    assert!(!daemon.home().exists(), "nothing was started");
    assert_eq!(agent.hang_up("early"), 0);
    let at_a_terminal = daemon.terminal(&format!("COUNTERSIGN_HOME={} {CSN} mcp", daemon.home().display()));
    let mut at_a_terminal = at_a_terminal;
    at_a_terminal.sees("csn install");
}

/// One request over TCP: its status and its body.
fn post(at: &str, token: Option<&str>, headers: &[(&str, &str)], body: &Value) -> (u16, String) {
    let mut stream = TcpStream::connect(at).unwrap();
    let body = body.to_string();
    let mut head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\ncontent-length: {}\r\n",
        body.len()
    );
    if let Some(token) = token {
        head += &format!("authorization: Bearer {token}\r\n");
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
    let mut from = BufReader::new(stream);
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    let mut rest = String::new();
    from.read_to_string(&mut rest).unwrap();
    (line.split(' ').nth(1).unwrap().parse().unwrap(), rest)
}

#[test]
fn over_http_a_token_is_required_and_foreign_pages_are_refused() {
    let daemon = TestHome::started(CSN);
    std::fs::write(daemon.work().join("a.txt"), "hello\n").unwrap();
    let at = daemon.client().listen(Some(([127, 0, 0, 1], 0).into())).unwrap().to_string();
    let made =
        daemon.csn(&["token", "create", "--agent", "--name", "bot", "--scope", "run", "--scope", "observe", "--json"]);
    let token: Value = serde_json::from_slice(&made.stdout).unwrap_or_else(|_| panic!("{made:?}"));
    let token = token["token"].as_str().unwrap();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": NEWEST, "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    });
    let call = |command: &str| {
        let arguments = json!({"command": command, "cwd": daemon.work(), "wait_s": 10});
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "run", "arguments": arguments, "_meta": meta}})
    };
    let version = ("mcp-protocol-version", NEWEST);
    let headers = [version, ("mcp-method", "tools/call"), ("mcp-name", "run")];
    let (status, body) = post(&at, Some(token), &headers, &call("cat a.txt"));
    assert!(status == 200 && body.contains("hello") && body.contains("\\\"exit_code\\\":0"), "{status} {body}");
    assert_eq!(post(&at, None, &headers, &call("cat a.txt")).0, 401);
    assert_eq!(post(&at, Some("csn_nothing"), &headers, &call("cat a.txt")).0, 401);
    let page = [headers[0], headers[1], headers[2], ("origin", "https://example.com")];
    assert_eq!(post(&at, Some(token), &page, &call("cat a.txt")).0, 403);
    let (_, body) = post(&at, Some(token), &headers, &call("csn down"));
    assert!(body.contains("\"isError\":true"), "{body}");
    let observer = daemon.csn(&["token", "create", "--agent", "--name", "reader", "--scope", "observe", "--json"]);
    let observer: Value = serde_json::from_slice(&observer.stdout).unwrap();
    assert_eq!(post(&at, observer["token"].as_str(), &headers, &call("cat a.txt")).0, 403);
    // Scope `run` does not read, and a revoked token is refused.
    let runs = daemon.csn(&["token", "create", "--agent", "--name", "hands", "--scope", "run", "--json"]);
    let runs: Value = serde_json::from_slice(&runs.stdout).unwrap();
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "task_list", "arguments": {}, "_meta": meta}});
    let named = [headers[0], headers[1], ("mcp-name", "task_list")];
    let (_, body) = post(&at, runs["token"].as_str(), &named, &list);
    assert!(body.contains("observe") && !body.contains("tk_"), "{body}");
    let task_id = get(&daemon, "/tasks?limit=1").unwrap()["tasks"][0]["task_id"].clone();
    let wait = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "task_wait", "arguments": {"task_id": task_id}, "_meta": meta}});
    let named = [headers[0], headers[1], ("mcp-name", "task_wait")];
    let (_, body) = post(&at, runs["token"].as_str(), &named, &wait);
    assert!(body.contains("observe") && !body.contains("cat a.txt"), "{body}");
    // The older protocol, with a session of its own.
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    let (status, body) = post(&at, Some(token), &[], &hello);
    assert_eq!(status, 200, "{body}");
    let session =
        body.lines().find_map(|l| l.to_lowercase().strip_prefix("mcp-session-id: ").map(str::to_owned)).unwrap();
    let tools = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}});
    let own = [("mcp-session-id", session.trim()), ("mcp-protocol-version", "2025-06-18")];
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(post(&at, Some(token), &own, &ready).0, 202);
    assert_eq!(post(&at, Some(token), &own, &tools).0, 200);
    // The session belongs to its credential: another credential does not find it.
    assert_eq!(post(&at, runs["token"].as_str(), &own, &tools).0, 404);
    assert!(daemon.csn(&["token", "revoke", "bot"]).status.success());
    assert_eq!(post(&at, Some(token), &own, &tools).0, 401);
}

/// A broken connection cancels its wait.
#[test]
fn a_broken_connection_ends_the_tasks_bound_to_it() {
    let daemon = TestHome::new(CSN);
    daemon.configure("profile = \"full_auto\"\n");
    daemon.start();
    let mut agent = daemon.agent();
    let mut client = Client::new(&mut agent, "breaks", "2025-11-25", false);
    let args = json!({"command": "sleep 1001", "wait_s": 600, "on_disconnect": "kill"});
    client.send("tools/call", json!({"name": "run", "arguments": args}));
    let task = running(&daemon, "sleep 1001");
    agent.hang_up("breaks");
    assert!(matches!(daemon.settled(task).outcome(), Some(&Outcome::Cancelled { .. })));
}

/// An invalid message gets an error, and the conversation continues.
#[test]
fn garbage_does_not_end_a_conversation() {
    let daemon = TestHome::started(CSN);
    let mut agent = daemon.agent();
    let mut client = Client::new(&mut agent, "noise", "2025-11-25", false);
    for noise in [json!("just text"), json!([]), json!({"jsonrpc": "2.0"}), json!({"id": 7, "method": 3})] {
        client.agent.say("noise", &noise);
    }
    let id = client.send("tools/call", json!({"name": "run", "arguments": {"command": "echo here"}}));
    let (said, _) = client.answer(id, &Value::Null);
    assert_eq!(said["result"]["structuredContent"]["output"]["stdout"]["text"], "here\n", "{said}");
}

/// A waiting client gets progress: growing numbers, the last clean line, and what the task waits for.
#[test]
fn a_waiting_client_gets_progress() {
    let daemon = TestHome::new(CSN);
    daemon.configure("profile = \"full_auto\"\n");
    daemon.start();
    let mut agent = daemon.agent();
    let mut client = Client::new(&mut agent, "waits", "2025-11-25", false);
    let command = "echo first; echo 'step two'; until [ -e go ]; do sleep 0.05; done";
    let arguments = json!({"command": command, "wait_s": 60, "cwd": daemon.work()});
    let call = json!({"name": "run", "arguments": arguments, "_meta": {"progressToken": "p"}});
    let id = client.send("tools/call", call);
    let mut told = Vec::new();
    while told.len() < 3 {
        let said = client.agent.next_event("waits").unwrap();
        let params = &said["params"];
        assert_eq!((&said["method"], &params["progressToken"]), (&json!("notifications/progress"), &json!("p")));
        told.push((params["progress"].as_f64().unwrap(), params["message"].as_str().unwrap().to_owned()));
    }
    assert!(told.windows(2).all(|w| w[0].0 < w[1].0), "{told:?}");
    assert_eq!(told[2].1, "step two");
    std::fs::write(daemon.work().join("go"), "").unwrap();
    let (said, _) = client.answer(id, &Value::Null);
    // Some clients show one of the two, some the other.
    let text: Value = serde_json::from_str(said["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text, said["result"]["structuredContent"]);
}
