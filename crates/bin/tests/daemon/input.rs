//! Bad input and bad environments: a clear error that says what to do, and nothing lost.

use crate::CSN;
use countersign_client::ClientError;
use countersign_model::{Outcome, Refusal, RefusalCode, TaskRefusal};
use countersign_testkit::{RawCalls as _, TestHome};
use serde_json::{Value, json};

fn post(daemon: &TestHome, body: &Value) -> Refusal {
    match daemon.client().call("POST", "/tasks", &[], Some(body)) {
        Err(ClientError::Refused(TaskRefusal { refusal, .. })) => refusal,
        other => panic!("{:.200}: {other:?}", body.to_string()),
    }
}

#[test]
fn bodies_that_are_not_requests_name_the_field() {
    let daemon = TestHome::started(CSN);
    let shell = |args: Value| json!({"tool": "shell", "args": args});
    let cwd = "/tmp";
    for (body, word) in [
        (json!([]), "body"),
        (json!({"tool": "rocket", "args": {}}), "`tool`"),
        (json!({"tool": "shell"}), "args"),
        (shell(json!({"cwd": cwd})), "command"),
        (shell(json!({"command": "x", "argv": ["x"], "cwd": cwd})), "not both"),
        (shell(json!({"argv": [], "cwd": cwd})), "name of a program"),
        (shell(json!({"command": "x"})), "`args.cwd`"),
        (shell(json!({"command": "x", "cwd": "relative"})), "absolute"),
        (shell(json!({"command": "x\u{0}y", "cwd": cwd})), "NUL"),
        (shell(json!({"argv": ["a", "b\u{0}"], "cwd": cwd})), "NUL"),
        (shell(json!({"command": "x", "cwd": cwd, "env": {"A=B": "1"}})), "environment variable"),
        (shell(json!({"command": 7, "cwd": cwd})), "`args.command`"),
        (json!({"tool": "shell", "args": {"command": "x", "cwd": cwd}, "wall": 1}), "wall"),
        (json!({"tool": "shell", "args": {"command": "x", "cwd": cwd}, "limits": {"wall_ms": -1}}), "`limits.wall_ms`"),
        (
            json!({"tool": "shell", "args": {"command": "x", "cwd": cwd}, "limits": {"wall_ms": u64::MAX}}),
            "longer than a year",
        ),
        (json!({"tool": "shell", "args": {"command": "x", "cwd": cwd, "rows": 24}}), "pty"),
        (
            json!({"tool": "shell", "args": {"command": "x", "cwd": cwd, "rows": 1001}, "execution_mode": "pty"}),
            "1 to 1000",
        ),
        (
            json!({"tool": "shell", "args": {"command": "x", "cwd": cwd, "stdin": true}, "execution_mode": "pty"}),
            "`args.stdin`",
        ),
        (json!({"tool": "shell", "args": {"command": "x", "cwd": cwd}, "limits": {"frames": 1}}), "`limits.frames`"),
        (
            json!({"tool": "shell", "args": {"command": "x", "cwd": cwd}, "limits": {"output_bytes": u64::MAX}}),
            "`limits.output_bytes`",
        ),
        (json!({"tool": "shell", "args": {"command": "x", "cwd": cwd}, "workspace": "w"}), "`workspace`"),
    ] {
        let refusal = post(&daemon, &body);
        assert!(refusal.message.contains(word), "{body}: {}", refusal.message);
        assert_eq!(refusal.code.http_status(), 400, "{body}");
    }
    let long = "x".repeat(128 * 1024);
    let refusal = post(&daemon, &shell(json!({"command": long, "cwd": cwd})));
    assert_eq!(refusal.code, RefusalCode::TooLarge);
    assert!(refusal.hint.unwrap().contains("script"));
    let missing = post(&daemon, &shell(json!({"command": "x", "cwd": "/no/such/place"})));
    assert!(missing.message.contains("/no/such/place"));
    assert!(daemon.client().tasks(&Default::default()).unwrap().tasks.is_empty(), "nothing of this became a task");
}

#[test]
fn unknown_addresses_are_refused_with_a_reason() {
    let daemon = TestHome::started(CSN);
    let code = |method: &str, path: &str| match daemon.client().call(method, path, &[], None) {
        Err(ClientError::Refused(TaskRefusal { refusal, .. })) => refusal.code,
        other => panic!("{path}: {other:?}"),
    };
    assert_eq!(code("GET", "/nowhere"), RefusalCode::NotFound);
    assert_eq!(code("DELETE", "/tasks"), RefusalCode::MethodNotAllowed);
    assert_eq!(code("GET", "/tasks/tk_0000000000000000"), RefusalCode::NotFound);
    assert_eq!(code("GET", "/tasks/..%2f..%2fetc"), RefusalCode::NotFound);
    assert_eq!(code("GET", "/tasks/tk_0000000000000000/events"), RefusalCode::NotFound);
    assert_eq!(code("GET", "/tasks?limit=many"), RefusalCode::BadRequest);
    assert_eq!(code("GET", "/tasks?limit=0"), RefusalCode::BadRequest);
    assert_eq!(code("GET", "/tasks?limit=501"), RefusalCode::BadRequest);
    assert_eq!(code("GET", "/tasks/%ff%fe"), RefusalCode::NotFound);
    let huge = json!({"tool": "x".repeat(5 << 20)});
    assert_eq!(post(&daemon, &huge).code, RefusalCode::TooLarge);
    assert_eq!(code("GET", "/tasks?status=sleepy"), RefusalCode::BadRequest);
    let task = daemon.ask("true");
    daemon.settled(task);
    assert_eq!(code("GET", &format!("/tasks/{task}/events?after=x")), RefusalCode::BadRequest);
    assert_eq!(code("GET", &format!("/tasks/{task}/events?view=cubist")), RefusalCode::BadRequest);
}

#[test]
fn programs_that_cannot_start_are_outcomes() {
    let daemon = TestHome::started(CSN);
    let argv = |words: Value| {
        let task = daemon.ask_with("", json!({"args": {"command": null, "argv": words}})).task_id;
        daemon.outcome(task)
    };
    assert!(matches!(argv(json!(["no-such-program"])), Outcome::Failed { code: 127, .. }));
    let script = daemon.work().join("script");
    std::fs::write(&script, "no header\n").unwrap();
    assert!(matches!(argv(json!(["./script"])), Outcome::Failed { code: 126, .. }));
    let huge = vec!["x".repeat(100_000); 40];
    let outcome = argv(json!([vec!["true".to_owned()], huge].concat()));
    assert!(
        matches!(&outcome, Outcome::Failed { code: 126, error } if error.as_str().contains("in a file")),
        "{outcome:?}"
    );
    let newline = daemon.ask_with("printf '%s' \"$A\"", json!({"args": {"env": {"A": "one\ntwo"}}})).task_id;
    daemon.settled(newline);
    assert_eq!(daemon.stdout(newline), "one\ntwo");
}

#[test]
fn a_directory_that_vanished_is_an_outcome_of_its_own() {
    let daemon = TestHome::started(CSN);
    let gone = daemon.work().join("gone");
    std::fs::create_dir(&gone).unwrap();
    let state = daemon.ask_with("touch x", json!({"profile": "safe", "args": {"cwd": gone}}));
    std::fs::remove_dir(&gone).unwrap();
    daemon.client().answer(state.approval_id().unwrap(), countersign_model::Choice::Once, None).unwrap();
    assert!(matches!(daemon.outcome(state.task_id), Outcome::Denied { .. }));
}

#[test]
fn an_idempotency_key_asks_once() {
    let daemon = TestHome::started(CSN);
    let ask = |key: &str, text: &str| {
        let body = json!(daemon.request(text, json!({})));
        daemon.client().call("POST", "/tasks", &[("idempotency-key", key)], Some(&body))
    };
    let id = |bytes: Vec<u8>| serde_json::from_slice::<Value>(&bytes).unwrap()["task_id"].as_str().unwrap().to_owned();
    let first = id(ask("k1", "echo x >> once").unwrap());
    assert_eq!(id(ask("k1", "echo x >> once").unwrap()), first);
    assert!(
        matches!(ask("k1", "echo y"), Err(ClientError::Refused(TaskRefusal { refusal, .. })) if refusal.code == RefusalCode::IdempotencyConflict)
    );
    assert_ne!(id(ask("k2", "echo x >> once").unwrap()), first);
    let denied = |result| matches!(result, Err(ClientError::Refused(TaskRefusal { refusal, .. })) if refusal.code == RefusalCode::SelfDestructive);
    assert!(denied(ask("k3", "csn down")) && denied(ask("k3", "csn down")), "a denial is repeated too");
    daemon.kill_daemon();
    daemon.start();
    assert_eq!(id(ask("k1", "echo x >> once").unwrap()), first);
}

#[test]
fn csn_up_beside_a_running_daemon_opens_its_port_and_reports_it() {
    let daemon = TestHome::started(CSN);
    let why = daemon.try_start().unwrap_err();
    assert!(why.contains(&format!("pid {}", daemon.daemon_pid())) && why.contains("csn down"), "{why}");
    let up = |args: &[&str]| {
        let out = daemon.csn(args);
        assert!(out.status.success());
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let first = up(&["up", "--tcp", "127.0.0.1:0"]);
    assert!(first.contains("the daemon already runs") && first.contains("listening on http://127.0.0.1:"), "{first}");
    let again = up(&["up", "--detach", "--tcp", "127.0.0.1:0"]);
    assert_eq!(first, again, "there is one port, and both calls report it");
    let out = daemon.csn(&["up", "--tcp", "0.0.0.0:0"]);
    assert!(!out.status.success() && String::from_utf8_lossy(&out.stderr).contains("not a loopback address"));
}

#[test]
fn homes_that_cannot_be_used_are_explained() {
    let daemon = TestHome::new(CSN);
    let file = daemon.work().join("a-file");
    std::fs::write(&file, "").unwrap();
    let below_a_file = file.join("home");
    let out = daemon.csn_with(&["up"], &[("COUNTERSIGN_HOME", below_a_file.to_str().unwrap())]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("set COUNTERSIGN_HOME"), "{:?}", out);
    let out = daemon.csn_with(&["run", "true"], &[("COUNTERSIGN_HOME", "/proc/nope")]);
    assert_eq!(out.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&out.stderr).contains("COUNTERSIGN_HOME"));
    let out = daemon.csn_with(&["run", "true"], &[("COUNTERSIGN_HOME", ""), ("HOME", "")]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("set COUNTERSIGN_HOME"), "{:?}", out);
    let bare = daemon.work().join("bare");
    let out = daemon.csn_with(
        &["run", "--profile", "full_auto", "echo ok"],
        &[("HOME", ""), ("XDG_CONFIG_HOME", ""), ("COUNTERSIGN_HOME", bare.to_str().unwrap())],
    );
    assert_eq!(out.stdout, b"ok\n", "HOME is not needed: {}", String::from_utf8_lossy(&out.stderr));
    daemon.csn_with(&["down"], &[("COUNTERSIGN_HOME", bare.to_str().unwrap())]);
}

#[test]
fn a_home_beyond_the_length_of_a_socket_address_works() {
    let long =
        std::env::temp_dir().join(format!("csn-{}", std::process::id())).join("x".repeat(90)).join("y".repeat(90));
    let daemon = TestHome::new(CSN).with_home(long.clone());
    daemon.start();
    let task = daemon.ask("echo far");
    assert_eq!(daemon.outcome(task), Outcome::Exited { code: 0 });
    let task = daemon.ask("echo up; sleep 1000");
    daemon.wait_for_stdout(task, "up");
    daemon.kill_daemon();
    daemon.start();
    daemon.client().cancel(task, None).unwrap();
    assert!(matches!(daemon.outcome(task), Outcome::Cancelled { .. }));
    drop(daemon);
    std::fs::remove_dir_all(long.ancestors().nth(2).unwrap()).unwrap();
}

#[test]
fn a_bad_configuration_is_reported_with_its_line() {
    let daemon = TestHome::new(CSN);
    daemon.configure("profile = \"full_auto\"\n\n[limits]\ngrace = 3\n");
    let out = daemon.csn(&["run", "touch x"]);
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        err.contains("only commands that read can run") && err.contains("line 4") && err.contains("grace"),
        "{err}"
    );
    assert_eq!(out.status.code(), Some(77));
    daemon.csn(&["down"]);
    daemon.configure("profile = \"full_auto\"\n");
    daemon.start();
    let out = daemon.csn(&["run", "echo as configured"]);
    assert_eq!(out.stdout, b"as configured\n");
}
