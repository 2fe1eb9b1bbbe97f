//! Homes of earlier versions (`tests/fixtures`), opened with today's programs: everything reads, verifies and works.

use crate::{CSN, receipts::findings};
use countersign_model::{DenialReason, Outcome, RefusalCode};
use countersign_testkit::{RawCalls as _, TestHome};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// The commits whose homes are stored.
const VERSIONS: [&str; 1] = ["1e5716a"];

/// A home of an earlier version, and what that version reported about it.
struct EarlierHome {
    daemon: TestHome,
    dir: PathBuf,
    said: Value,
}

impl EarlierHome {
    /// Unpacks a home without starting a daemon.
    fn unpack(version: &str, home: &str) -> Self {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(version);
        let daemon = TestHome::new(CSN);
        // Retention must not remove it because it is old by now.
        daemon.configure("[retention]\ndays = 36500\n");
        let archive = dir.join(format!("{home}.tar.gz"));
        let base = daemon.base().to_str().unwrap().to_owned();
        let out = daemon.outside(&["tar", "--no-same-owner", "-C", &base, "-xzf", archive.to_str().unwrap()]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let said = std::fs::read(dir.join(format!("{home}.json"))).unwrap();
        Self { daemon, dir, said: serde_json::from_slice(&said).unwrap() }
    }

    fn up(version: &str, home: &str) -> Self {
        let earlier = Self::unpack(version, home);
        earlier.daemon.start();
        earlier
    }

    fn task(&self, name: &str) -> &str {
        self.said["names"][name].as_str().unwrap_or_else(|| panic!("a task is named {name}"))
    }

    fn tasks(&self) -> impl Iterator<Item = (&str, &str)> {
        self.said["names"].as_object().unwrap().iter().map(|(name, task)| (name.as_str(), task.as_str().unwrap()))
    }

    fn get(&self, path: &str) -> Value {
        let body = self.daemon.client().call("GET", path, &[], None).unwrap_or_else(|e| panic!("{path}: {e}"));
        serde_json::from_slice(&body).unwrap()
    }

    fn csn(&self, args: &[&str]) -> Vec<u8> {
        let out = self.daemon.csn(args);
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        out.stdout
    }

    fn fixture(&self, file: &str) -> String {
        self.dir.join(file).to_str().unwrap().to_owned()
    }
}

/// Where two values differ, with both of them, so that a failure says what is wrong.
fn differences(place: &str, before: &Value, now: &Value) -> Vec<String> {
    let children: Vec<String> = match (before, now) {
        (Value::Object(b), Value::Object(n)) => b.keys().chain(n.keys()).cloned().collect(),
        (Value::Array(b), Value::Array(n)) if b.len() == n.len() => {
            let each = b.iter().zip(n).enumerate();
            return each.flat_map(|(i, (b, n))| differences(&format!("{place}.{i}"), b, n)).collect();
        }
        _ if before == now => return Vec::new(),
        _ => return vec![format!("{place}: {before} became {now}")],
    };
    let names: BTreeSet<String> = children.into_iter().collect();
    names.iter().flat_map(|name| differences(&format!("{place}.{name}"), &before[name], &now[name])).collect()
}

fn assert_same(place: &str, before: &Value, now: &Value) {
    assert_eq!(differences(place, before, now), [""; 0]);
}

/// An approval without what depends on the moment: whether the client still waits (it does not: the daemon was
/// stopped), and the card, which is made from the directories that exist now.
fn without_momentary_members(approval: &Value) -> Value {
    let mut approval = approval.clone();
    let fields = approval.as_object_mut().unwrap();
    fields.remove("asker");
    fields.remove("card");
    approval
}

#[test]
fn a_home_of_an_earlier_version_reads_as_it_did() {
    for version in VERSIONS {
        let earlier = EarlierHome::up(version, "stopped");
        let said = &earlier.said;
        for (name, task) in earlier.tasks() {
            assert_same(name, &said["task"][task], &earlier.get(&format!("/tasks/{task}")));
            let shown: Value = serde_json::from_slice(&earlier.csn(&["show", task, "--json"])).unwrap();
            assert_same(name, &said["show"][task], &shown);
        }
        // Issue 18: a list shows a task as the task's own page does; earlier lists left out what the journal tells.
        let listed = earlier.get("/tasks?limit=500");
        assert_eq!(listed["tasks"].as_array().unwrap().len(), earlier.tasks().count());
        for (before, now) in said["tasks"]["tasks"].as_array().unwrap().iter().zip(listed["tasks"].as_array().unwrap())
        {
            let task = before["task_id"].as_str().unwrap();
            assert_same(task, &said["task"][task], now);
        }
        for (name, path) in [
            ("grants", "/grants?limit=500"),
            ("sessions", "/sessions?all=true&limit=500"),
            ("tokens", "/tokens"),
            ("keys", "/keys"),
            ("receipts", "/receipts?limit=500"),
        ] {
            assert_same(name, &said[name], &earlier.get(path));
        }
        let approvals = earlier.get("/approvals?all=true&limit=500");
        assert_eq!(approvals["approvals"].as_array().unwrap().len(), said["approval"].as_object().unwrap().len());
        for (id, before) in said["approval"].as_object().unwrap() {
            assert_same(
                id,
                &without_momentary_members(before),
                &without_momentary_members(&earlier.get(&format!("/approvals/{id}"))),
            );
        }
    }
}

#[test]
fn earlier_recordings_are_read_and_played_as_before() {
    for version in VERSIONS {
        let earlier = EarlierHome::up(version, "stopped");
        for (task, before) in earlier.said["records"].as_object().unwrap() {
            let mut events = earlier.daemon.client().events(task.parse().unwrap(), None);
            let mut now = Vec::new();
            while let Some(event) = events.next_event().unwrap() {
                now.push(serde_json::from_str::<Value>(&event.json).unwrap());
            }
            assert_same(task, before, &json!(now));
        }
        for (task, before) in earlier.said["logs"].as_object().unwrap() {
            // Bytes, one per character.
            let bytes: Vec<u8> =
                before.as_str().unwrap().chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
            assert_eq!(earlier.daemon.csn(&["logs", "--raw", task]).stdout, bytes, "{task}");
        }
        for (task, before) in earlier.said["statements"].as_object().unwrap() {
            let now: Value = serde_json::from_slice(&earlier.csn(&["receipts", "show", task, "--json"])).unwrap();
            assert_same(task, before, &now);
        }
        let played = earlier.csn(&["replay", "--text", earlier.task("terminal")]);
        assert_eq!(String::from_utf8_lossy(&played), "fixture\nhello fixture\n40 120\n");
    }
}

#[test]
fn receipts_of_an_earlier_version_verify() {
    for version in VERSIONS {
        let earlier = EarlierHome::unpack(version, "stopped");
        let holds = |args: &[&str]| assert_eq!(findings(&earlier.daemon, args), [""; 0], "{args:?}");
        // No daemon has opened it yet.
        holds(&[]);
        holds(&["--since", &earlier.fixture("head.json")]);
        holds(&["--from", "3", "--to", "9"]);
        holds(&[earlier.task("secrets")]);
        for exported in ["exited.tar", "terminal.tar", "secrets.tar", "receipts.jsonl"] {
            holds(&[&earlier.fixture(exported)]);
        }
        assert_eq!(earlier.said["verify"]["ok"], true);
        earlier.daemon.start();
        holds(&[]);
        holds(&["--since", &earlier.fixture("head.json")]);
    }
}

#[test]
fn an_earlier_home_continues_to_work() {
    for version in VERSIONS {
        let earlier = EarlierHome::up(version, "stopped");
        let daemon = &earlier.daemon;
        let last = earlier.said["receipts"]["receipts"][0].clone();
        let task = daemon.ask("echo goes on");
        daemon.sealed(task);
        let next = crate::receipts::statement(daemon, task).predicate;
        assert_eq!(json!(next.seq), json!((last["seq"].as_str().unwrap().parse::<u64>().unwrap() + 1).to_string()));
        assert_eq!(json!(next.prev), last["digest"]);
        assert_eq!(daemon.stdout(task), "goes on\n");
        // Its directory is another one by now, or gone: an approved request is not run, and the refusal says why.
        let approval_of =
            |name: &str| earlier.said["task"][earlier.task(name)]["approval_id"].as_str().unwrap().to_owned();
        daemon.csn(&["approvals", "answer", &approval_of("waits"), "once"]);
        let outcome = daemon.outcome(earlier.task("waits").parse().unwrap());
        assert!(matches!(&outcome, Outcome::Denied { reason } if reason.as_str() == "paths_changed"), "{outcome:?}");
        earlier.csn(&["approvals", "answer", &approval_of("waits_too"), "deny", "--words", "too late"]);
        let denied = daemon.sealed(earlier.task("waits_too").parse().unwrap());
        assert_eq!(
            denied.outcome(),
            Some(&Outcome::Denied { reason: DenialReason::Code(RefusalCode::DeniedByPerson) })
        );
        assert_eq!(findings(daemon, &[]), [""; 0]);
    }
}

#[test]
fn an_earlier_home_whose_daemon_was_killed_is_recovered() {
    for version in VERSIONS {
        let earlier = EarlierHome::up(version, "killed");
        let running = earlier.task("running");
        let lost = earlier.daemon.sealed(running.parse().unwrap());
        assert!(matches!(lost.outcome(), Some(Outcome::Lost { .. })), "{:?}", lost.outcome());
        for (name, task) in earlier.tasks().filter(|(_, task)| *task != running) {
            assert_same(name, &earlier.said["task"][task], &earlier.get(&format!("/tasks/{task}")));
        }
        assert_eq!(findings(&earlier.daemon, &[]), [""; 0]);
    }
}

#[test]
fn an_earlier_home_gets_its_id_when_a_daemon_opens_it() {
    for version in VERSIONS {
        let earlier = EarlierHome::unpack(version, "stopped");
        let daemon = &earlier.daemon;
        let report = || -> Value { serde_json::from_slice(&daemon.csn(&["verify", "--json"]).stdout).unwrap() };
        assert_eq!((&report()["ok"], &report()["home_id"]), (&json!(true), &Value::Null), "reading needs none");
        daemon.start();
        let home = daemon.client().lifecycle().unwrap().home_id.expect("it has one now");
        daemon.kill_daemon();
        daemon.start();
        assert_eq!(daemon.client().lifecycle().unwrap().home_id, Some(home), "it stays");
        let before = crate::receipts::statement(daemon, earlier.task("exited").parse().unwrap());
        assert_eq!(before.predicate.home_id, None, "signed receipts stay unchanged");
        let task = daemon.ask("echo named");
        daemon.sealed(task);
        assert_eq!(crate::receipts::statement(daemon, task).predicate.home_id, Some(home));
        assert_eq!((&report()["ok"], &report()["home_id"]), (&json!(true), &json!(home)));
        let row = daemon.work().join("row.jsonl");
        earlier.csn(&["receipts", "export", "--from", "1", "-o", row.to_str().unwrap()]);
        assert_eq!(findings(daemon, &[row.to_str().unwrap()]), [""; 0], "a row that begins without a home");
    }
}
