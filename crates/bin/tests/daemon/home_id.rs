//! The id of a home: created once, named by every receipt, checked by `csn verify`, and part of a task's address.

use crate::{
    CSN,
    receipts::{findings, holds, statement, stop},
    tamper::StoppedHome,
};
use countersign_client::ClientError;
use countersign_model::{HomeId, RefusalCode, TaskAddress, TaskRefusal};
use countersign_testkit::{RawCalls as _, TestHome};
use serde_json::{Value, json};
use std::process::Output;

const OTHER: &str = "hm_01jcx3v9q8k2m4tz";

fn home_of(daemon: &TestHome) -> HomeId {
    daemon.client().lifecycle().unwrap().home_id.expect("the home has an id")
}

fn out(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_home_gets_its_id_once_before_any_other_decision() {
    let daemon = TestHome::started(CSN);
    let home = home_of(&daemon);
    let task = daemon.ask("echo one");
    daemon.sealed(task);
    daemon.kill_daemon();
    daemon.start();
    assert_eq!(home_of(&daemon), home, "it stays over restarts");
    stop(&daemon);
    let conn = rusqlite::Connection::open(daemon.home().join("ledger.db")).unwrap();
    let named = "SELECT min(n), count(*) FROM decisions WHERE line LIKE '%\"kind\":\"home.named\"%'";
    let (first, count): (i64, i64) = conn.query_row(named, [], |r| Ok((r.get(0)?, r.get(1)?))).unwrap();
    assert_eq!((first, count), (1, 1));
    assert_ne!(home_of(&TestHome::started(CSN)), home, "another home has another");
}

#[test]
fn receipts_and_answers_name_the_home() {
    let daemon = TestHome::started(CSN);
    let home = home_of(&daemon);
    let task = daemon.ask("echo one").to_string();
    assert_eq!(statement(&daemon, task.parse().unwrap()).predicate.home_id, Some(home));
    let shown = out(&daemon.csn(&["receipts", "show", &task]));
    assert!(shown.lines().any(|line| line.starts_with("home ") && line.ends_with(&home.to_string())), "{shown}");
    assert!(out(&daemon.csn(&["doctor"])).contains(&home.to_string()));
    let at = |name: &str| daemon.work().join(name).to_str().unwrap().to_owned();
    let (bundle, row, head) = (at("task.tar"), at("row.jsonl"), at("head.json"));
    out(&daemon.csn(&["export", &task, "-o", &bundle]));
    out(&daemon.csn(&["receipts", "export", "--from", "1", "-o", &row]));
    out(&daemon.csn(&["receipts", "head", "-o", &head]));
    let first: Value = serde_json::from_str(std::fs::read_to_string(&row).unwrap().lines().next().unwrap()).unwrap();
    assert_eq!(first["home_id"], json!(home));
    for args in [&[][..], &[bundle.as_str()], &[row.as_str()], &["--since", head.as_str()]] {
        let report: Value = serde_json::from_str(&out(&daemon.csn(&[&["verify", "--json"], args].concat()))).unwrap();
        assert_eq!(report["home_id"], json!(home), "{args:?}");
    }
}

#[test]
fn a_ledger_head_of_another_home_is_rejected() {
    let (daemon, other) = (TestHome::started(CSN), TestHome::started(CSN));
    for daemon in [&daemon, &other] {
        daemon.sealed(daemon.ask("echo one"));
    }
    let head = daemon.work().join("head.json").to_str().unwrap().to_owned();
    out(&other.csn(&["receipts", "head", "-o", &head]));
    let keys = [&daemon, &other].map(|daemon| out(&daemon.csn(&["keys", "export"])));
    let pems = [daemon.work().join("a.pem"), daemon.work().join("b.pem")];
    pems.iter().zip(keys).for_each(|(path, key)| std::fs::write(path, key).unwrap());
    let pems = pems.map(|path| path.to_str().unwrap().to_owned());
    let found = findings(&daemon, &["--since", &head, "--key", &pems[0], "--key", &pems[1]]);
    let (named, ours) = (home_of(&other), home_of(&daemon));
    assert!(
        found.contains(&format!("the saved ledger head: belongs to home {named}; this home is {ours}")),
        "{found:?}"
    );
}

#[test]
fn a_task_is_named_with_its_home_or_without() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("echo one");
    daemon.sealed(task);
    let address = TaskAddress { home: home_of(&daemon), task }.to_string();
    let shown = |name: &str| -> Value { serde_json::from_str(&out(&daemon.csn(&["show", name, "--json"]))).unwrap() };
    assert_eq!(shown(&address), shown(&task.to_string()));
    assert_eq!(out(&daemon.csn(&["logs", &address])), "one\n");
    assert_eq!(out(&daemon.csn(&["replay", "--instant", &address])), "one\n");
    out(&daemon.csn(&["receipts", "show", &address]));
    assert_eq!(findings(&daemon, &[&address]), [""; 0]);
    let path = format!("/tasks/{}", address.replace('/', "%2F"));
    let got: Value = serde_json::from_slice(&daemon.client().call("GET", &path, &[], None).unwrap()).unwrap();
    assert_eq!(got["task_id"], json!(task));
}

#[test]
fn a_task_of_another_home_is_refused_with_the_reason() {
    let daemon = TestHome::started(CSN);
    let (home, task) = (home_of(&daemon), daemon.ask("echo one"));
    daemon.sealed(task);
    let address = format!("{OTHER}/{task}");
    let why = format!("the task belongs to home {OTHER}; this home is {home}");
    match daemon.client().task(&address) {
        Err(ClientError::Refused(TaskRefusal { refusal, .. })) => {
            assert_eq!(refusal.code, RefusalCode::NotFound);
            assert_eq!(refusal.message, format!("there is no task {address}: {why}"));
        }
        other => panic!("not refused: {other:?}"),
    }
    for args in [&["show", &address][..], &["cancel", &address], &["receipts", "show", &address], &["verify", &address]]
    {
        let refused = daemon.csn(args);
        assert!(!refused.status.success());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains(&why), "{args:?}: {said}");
    }
}

#[test]
fn an_exchanged_home_is_found() {
    let it = StoppedHome::with(2);
    let ours: HomeId = statement_home(&it, 1).parse().unwrap();
    let [one, two] = [it.tasks[0], it.tasks[1]];
    let found = it.changed(&format!("UPDATE decisions SET line = replace(line, '{ours}', '{OTHER}') WHERE n = 1"));
    assert!(found.contains(&"decision 1: was changed: the ledger's chain breaks here".to_owned()), "{found:?}");
    for (number, task) in [(1, one), (2, two)] {
        let of = format!("receipt {number} ({task}): belongs to home {ours}; this home is {OTHER}");
        assert!(found.contains(&of), "{found:?}");
    }
    // Also if the attacker has the key.
    it.sign(2, &it.key(), |s| s["predicate"]["home_id"] = OTHER.into());
    let found = findings(&it.daemon, &["--receipts-only"]);
    assert!(found.contains(&format!("receipt 2 ({two}): belongs to home {OTHER}; this home is {ours}")), "{found:?}");
    it.restore();
    it.sign(2, &it.key(), |s| drop(s["predicate"].as_object_mut().unwrap().remove("home_id")));
    let found = findings(&it.daemon, &["2", "--receipts-only"]);
    let none = format!("receipt 2 ({two}): names no home, although decision 1 had already named {ours}");
    assert!(found.contains(&none), "{found:?}");
    it.restore();
    holds(&it.daemon);
}

fn statement_home(it: &StoppedHome, number: u64) -> String {
    it.ask(&format!("SELECT json_extract(payload, '$.predicate.home_id') FROM receipts WHERE number = {number}"))
}
