//! An attacker who can write to the home's files: every change is found and named, and nothing in its place makes the
//! daemon or the verifier wait, run out of memory or stop.

use crate::{
    CSN,
    receipts::{findings, flip, holds, sql, statement, stop},
};
use countersign_model::{Decision, Digest, HashChain, Outcome, Record, Statement, TaskId, Text};
use countersign_store::{PublicKey, RECEIPT_TYPE, SigningKey};
use countersign_testkit::{RawCalls as _, TestHome};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const NONE: [&str; 0] = [];

/// A stopped home with some sealed tasks, and its ledger as it was.
pub(crate) struct StoppedHome {
    pub(crate) daemon: TestHome,
    pub(crate) tasks: Vec<TaskId>,
    ledger: Vec<u8>,
}

impl StoppedHome {
    pub(crate) fn with(tasks: usize) -> Self {
        let daemon = TestHome::started(CSN);
        let sealed = |n| {
            let task = daemon.ask(&format!("echo {n}"));
            daemon.sealed(task);
            task
        };
        let tasks = (0..tasks).map(sealed).collect();
        Self::of(daemon, tasks)
    }

    fn of(daemon: TestHome, tasks: Vec<TaskId>) -> Self {
        stop(&daemon);
        holds(&daemon);
        let ledger = std::fs::read(daemon.home().join("ledger.db")).unwrap();
        Self { daemon, tasks, ledger }
    }

    pub(crate) fn restore(&self) {
        for suffix in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(self.daemon.home().join(format!("ledger.db{suffix}")));
        }
        std::fs::write(self.daemon.home().join("ledger.db"), &self.ledger).unwrap();
    }

    /// What is found after a change of the ledger; the change is undone afterwards.
    pub(crate) fn changed(&self, text: &str) -> Vec<String> {
        sql(&self.daemon, text);
        let found = findings(&self.daemon, &["--receipts-only"]);
        self.restore();
        found
    }

    pub(crate) fn ask<T: rusqlite::types::FromSql>(&self, query: &str) -> T {
        let conn = rusqlite::Connection::open(self.daemon.home().join("ledger.db")).unwrap();
        conn.query_row(query, [], |r| r.get(0)).unwrap()
    }

    pub(crate) fn key(&self) -> SigningKey {
        key(&self.daemon.home().join("keys/signing.key"))
    }

    /// Appends a decision with a correct chain.
    fn decide(&self, task: TaskId, decision: &Decision) {
        let conn = rusqlite::Connection::open(self.daemon.home().join("ledger.db")).unwrap();
        let end =
            "SELECT n, head, (SELECT max(seq) FROM decisions WHERE task = ?1) FROM decisions ORDER BY n DESC LIMIT 1";
        let (n, head, seq): (i64, [u8; 32], i64) =
            conn.query_row(end, [task.to_string()], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?))).unwrap();
        let at = countersign_store::clock::now();
        let line = Record::decision_line(seq as u64 + 1, at, decision);
        let mut chain = HashChain::resume(Digest::from_bytes(head));
        chain.push_line(&format!("{task} {line}"));
        let head = chain.head();
        let row = (n + 1, task.to_string(), seq + 1, line, head.as_bytes());
        conn.execute("INSERT INTO decisions VALUES (?1, ?2, ?3, ?4, ?5)", row).unwrap();
    }

    /// Signs a receipt of the ledger again, as it then is.
    pub(crate) fn sign(&self, number: u64, key: &SigningKey, change: impl Fn(&mut Value)) {
        let conn = rusqlite::Connection::open(self.daemon.home().join("ledger.db")).unwrap();
        let payload: String =
            conn.query_row("SELECT payload FROM receipts WHERE number = ?1", [number as i64], |r| r.get(0)).unwrap();
        let mut statement: Value = serde_json::from_str(&payload).unwrap();
        let unchanged = statement.clone();
        change(&mut statement);
        let payload = if statement == unchanged {
            payload
        } else {
            serde_json::from_value::<Statement>(statement).unwrap().payload()
        };
        let row = (number as i64, &payload, key.public().id(), key.sign(RECEIPT_TYPE, payload.as_bytes()));
        conn.execute(
            "UPDATE receipts SET payload = ?2, key = ?3, signature = ?4 WHERE number = ?1",
            (row.0, row.1, row.2.as_bytes(), row.3),
        )
        .unwrap();
    }
}

fn key(path: &Path) -> SigningKey {
    SigningKey::from_seed(&std::fs::read(path).unwrap().try_into().unwrap())
}

fn expired(signed: Option<countersign_model::KeySignature>) -> Decision {
    Decision::Expired { why: Text::from_static("old"), bytes: 7, streams: Default::default(), signed }
}

fn fifo(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
}

fn report(daemon: &TestHome, args: &[&str]) -> Value {
    let out = daemon.csn(&[&["verify", "--json"], args].concat());
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&out.stderr)))
}

/// A task that is exported and unpacked.
fn unpacked(daemon: &TestHome, task: TaskId) -> (PathBuf, PathBuf) {
    let tar = daemon.work().join(format!("{task}.tar"));
    assert!(daemon.csn(&["export", &task.to_string(), "-o", tar.to_str().unwrap()]).status.success());
    let dir = daemon.work().join("unpacked");
    std::fs::create_dir_all(&dir).unwrap();
    assert!(daemon.outside(&["tar", "-C", dir.to_str().unwrap(), "-xf", tar.to_str().unwrap()]).status.success());
    (tar, dir.join(task.to_string()))
}

#[test]
fn a_decision_of_the_daemon_moved_to_a_task_is_named() {
    let it = StoppedHome::with(1);
    let n: i64 = it.ask("SELECT max(n) FROM decisions WHERE task IS NULL");
    for owner in ["-", "", "tk_", "nobody"] {
        let found = it.changed(&format!("UPDATE decisions SET task = '{owner}' WHERE n = {n}"));
        let due = format!("decision {n}: was changed: it names the task `{owner}`, which is not a task id");
        assert_eq!(found[0], due, "{found:?}");
    }
}

#[test]
fn an_unsigned_expiry_excuses_nothing() {
    let it = StoppedHome::with(2);
    let task = it.tasks[0];
    let payload: String = it.ask("SELECT payload FROM receipts WHERE number = 1");
    let digest = Digest::sha256(&[payload.as_bytes()]);
    let stranger = SigningKey::from_seed(&[9; 32]);
    let key = it.key();
    let other = Digest::sha256(&[b"another"]);
    let dir = it.daemon.task_dir(task);
    let aside = it.daemon.work().join("aside");
    std::fs::rename(&dir, &aside).unwrap();
    let unproved = format!("retention.expired of {task}: no key of this home confirms the removal");
    let (journal, log) = (format!("journal of {task}: is missing"), format!("stdout.log of {task}: is missing"));
    for signed in [
        None,
        Some(stranger.sign_expiry(task, digest)),
        Some(key.sign_expiry(task, other)),
        Some(key.sign_expiry(it.tasks[1], digest)),
    ] {
        it.decide(task, &expired(signed));
        for args in [&[][..], &["--from", "1", "--to", "1"], &[&task.to_string()]] {
            assert_eq!(findings(&it.daemon, args), [unproved.clone(), journal.clone(), log.clone()], "{args:?}");
        }
        it.restore();
    }
    // What its key signs about this task and this receipt is believed and reported.
    it.decide(task, &expired(Some(key.sign_expiry(task, digest))));
    for args in [&[][..], &["--from", "1", "--to", "1"], &[&task.to_string()]] {
        let report = report(&it.daemon, args);
        assert_eq!((report["ok"].as_bool(), report["expired"].as_u64()), (Some(true), Some(1)), "{report}");
    }
    let said = String::from_utf8(it.daemon.csn(&["verify"]).stdout).unwrap();
    assert!(!said.contains("everything is intact") && said.contains("1 expired: their output was removed"), "{said}");
    assert!(said.contains("no saved ledger head was given"), "{said}");
}

#[test]
fn an_expiry_in_a_bundle_is_believed_only_if_it_is_signed() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("echo there");
    daemon.sealed(task);
    let (_, dir) = unpacked(&daemon, task);
    let path = dir.to_str().unwrap();
    assert_eq!(findings(&daemon, &[path]), NONE);
    std::fs::remove_file(dir.join("stdout.log")).unwrap();
    let after = std::fs::read_to_string(dir.join("after.jsonl")).unwrap();
    let claim = Record::decision_line(90, countersign_store::clock::now(), &expired(None));
    std::fs::write(dir.join("after.jsonl"), format!("{after}{claim}\n")).unwrap();
    let unproved = format!("retention.expired of {task}: no key of this home confirms the removal");
    assert_eq!(findings(&daemon, &[path]), [unproved, format!("stdout.log of {task}: is missing")]);
    let word = key(&daemon.home().join("keys/signing.key"))
        .sign_expiry(task, Digest::sha256(&[statement(&daemon, task).payload().as_bytes()]));
    let claim = Record::decision_line(90, countersign_store::clock::now(), &expired(Some(word)));
    std::fs::write(dir.join("after.jsonl"), format!("{after}{claim}\n")).unwrap();
    assert_eq!(report(&daemon, &[path])["expired"], 1);
    assert_eq!(findings(&daemon, &[path]), NONE);
}

#[test]
fn every_file_of_a_bundle_is_signed_or_derived() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("echo out; echo err >&2");
    daemon.sealed(task);
    let denied = daemon.refused("rm -rf /", json!({})).1.unwrap();
    daemon.sealed(denied);
    let (tar, dir) = unpacked(&daemon, task);
    let path = dir.to_str().unwrap();
    assert_eq!(findings(&daemon, &[path]), NONE);
    assert_eq!(findings(&daemon, &[unpacked(&daemon, denied).1.to_str().unwrap()]), NONE, "one without a journal, too");
    let other = SigningKey::from_seed(&[5; 32]).public().pem();
    let signer = key(&daemon.home().join("keys/signing.key")).public().id();
    let text = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    let changes = [
        (
            "statement.json",
            text("statement.json").replacen("echo out", "echo our", 1),
            "does not match the signed statement".to_owned(),
        ),
        ("statement.json", "{}".to_owned(), "does not match the signed statement".to_owned()),
        ("key.pub.pem", other, format!("is not key {signer}, which signed the receipt")),
        (
            "plan.json",
            text("plan.json").replacen("echo out", "echo our", 1),
            "does not match the plan in the decisions".to_owned(),
        ),
        (
            "stream.jsonl",
            text("stream.jsonl").replacen("\"pid\"", "\"pie\"", 1),
            "is not the merged decisions and journal".to_owned(),
        ),
        ("stream.jsonl", text("stream.jsonl") + "\n", "is not the merged decisions and journal".to_owned()),
    ];
    for (name, changed, what) in changes {
        let kept = text(name);
        assert_ne!(changed, kept, "{name}");
        std::fs::write(dir.join(name), changed).unwrap();
        assert_eq!(findings(&daemon, &[path]), [format!("{name}: {what}")]);
        std::fs::write(dir.join(name), kept).unwrap();
    }
    for name in ["statement.json", "plan.json", "stream.jsonl", "key.pub.pem", "after.jsonl"] {
        let kept = text(name);
        std::fs::remove_file(dir.join(name)).unwrap();
        assert_eq!(findings(&daemon, &[path]), [format!("{name}: is missing")]);
        fifo(&dir.join(name));
        assert_eq!(findings(&daemon, &[path]), [format!("{name}: is not a regular file")]);
        std::fs::remove_file(dir.join(name)).unwrap();
        std::fs::write(dir.join(name), kept).unwrap();
    }
    std::fs::write(dir.join("more.txt"), "x").unwrap();
    assert_eq!(findings(&daemon, &[path]), ["more.txt: does not belong to the bundle: the receipt does not cover it"]);
    std::fs::remove_file(dir.join("more.txt")).unwrap();
    // Links and duplicate files in an archive.
    let link = dir.join("link");
    std::os::unix::fs::symlink("/etc/hostname", &link).unwrap();
    let of = |args: &[&str]| {
        assert!(
            daemon.outside(&[&["tar", "-C", dir.parent().unwrap().to_str().unwrap()], args].concat()).status.success()
        )
    };
    of(&["-rf", tar.to_str().unwrap(), &format!("{task}/link"), &format!("{task}/plan.json")]);
    assert_eq!(
        findings(&daemon, &[tar.to_str().unwrap()]),
        [format!("{task}/link: is not a regular file"), format!("{task}/plan.json: is in the archive twice")]
    );
    let report = report(&daemon, &[tar.to_str().unwrap()]);
    assert_eq!(report["what"], format!("the bundle {}", tar.display()));
    let pipe = daemon.work().join("pipe.tar");
    fifo(&pipe);
    let out = daemon.csn(&["verify", pipe.to_str().unwrap()]);
    assert!(!out.status.success() && String::from_utf8_lossy(&out.stderr).contains("is not a regular file"), "{out:?}");
}

#[test]
fn a_receipt_covers_only_files_of_its_task() {
    let it = StoppedHome::with(1);
    let task = it.tasks[0];
    let key = it.key();
    for name in ["/etc/hostname", "/dev/zero", "..", ".", "", "../../ledger.db", "a/b"] {
        it.sign(1, &key, |statement| {
            let subject = json!({"name": name, "digest": {"sha256": Digest::sha256(&[])}});
            statement["subject"].as_array_mut().unwrap().push(subject);
        });
        let found = findings(&it.daemon, &[]);
        let due = format!("receipt 1 ({task}): covers `{name}`, which is not a file of a task");
        assert!(found.contains(&due), "{found:?}");
        it.restore();
    }
    // A file that is no regular file does not make the verifier wait, and a link is not followed.
    for name in ["stdout.log", "journal"] {
        let path = it.daemon.task_dir(task).join(name);
        let aside = it.daemon.work().join(name);
        std::fs::rename(&path, &aside).unwrap();
        let due = [format!("{name} of {task}: is not a regular file")];
        fifo(&path);
        assert_eq!(findings(&it.daemon, &[]), due);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&aside, &path).unwrap();
        assert_eq!(findings(&it.daemon, &[]), due);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(findings(&it.daemon, &[]), due);
        std::fs::remove_dir(&path).unwrap();
        std::fs::rename(&aside, &path).unwrap();
    }
    holds(&it.daemon);
}

/// One hostile journal does not keep its own task, or any other, from a receipt.
#[test]
fn a_task_is_sealed_whatever_replaces_its_journal() {
    let daemon = TestHome::started(CSN);
    daemon.sealed(daemon.ask("true"));
    stop(&daemon);
    let (key, aside) = (daemon.home().join("keys/signing.key"), daemon.home().join("keys/aside"));
    std::fs::rename(&key, &aside).unwrap();
    daemon.start();
    type Harm = fn(&Path, &str);
    let harms: [(&str, Harm); 10] = [
        ("the journal is not a regular file", |path, _| fifo(path)),
        ("the journal is not a regular file", |path, _| std::os::unix::fs::symlink("/dev/zero", path).unwrap()),
        ("the journal is not a regular file", |path, _| std::fs::create_dir(path).unwrap()),
        ("the journal is missing", |_, _| {}),
        ("a line of the journal is too long", |path, text| {
            std::fs::write(path, text).unwrap();
            // A hole of a terabyte takes no space on the disk.
            std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(1 << 40).unwrap();
        }),
        ("a line of the journal has the wrong number", |path, text| {
            std::fs::write(path, text.replacen("\"seq\":", "\"seq\":1844674407370955161", 1)).unwrap();
        }),
        ("a line of the journal states impossible values", |path, text| {
            std::fs::write(
                path,
                text.replacen("\"len\":", "\"len\":1844674407370955161", 1).replacen("\"offset\":0", "\"offset\":9", 1),
            )
            .unwrap();
        }),
        ("a line of the journal states impossible values", |path, text| {
            let digest = "0".repeat(64);
            let frame = format!(
                r#""kind":"artifact.stored","artifact":"/etc/hostname","what":"x","bytes":1,"sha256":"{digest}"}}"#
            );
            let lines = text.lines().map(|line| match line.split_once(r#""kind":"stream.output""#) {
                Some((begin, _)) => format!("{begin}{frame}\n"),
                None => format!("{line}\n"),
            });
            std::fs::write(path, lines.collect::<String>()).unwrap();
        }),
        ("a line of the journal cannot be parsed", |path, text| {
            std::fs::write(path, text.replacen("\"digest\":\"", "\"digest\":\"0", 1)).unwrap();
        }),
        ("the journal is not the one that was settled", |path, text| {
            std::fs::write(path, text.replacen("\"max_rss_kb\":", "\"max_rss_kb\":1", 1)).unwrap();
        }),
    ];
    let tasks: Vec<TaskId> = harms.iter().map(|_| daemon.ask("echo out")).collect();
    tasks.iter().for_each(|t| drop(daemon.settled(*t)));
    stop(&daemon);
    for (task, (_, harm)) in tasks.iter().zip(&harms) {
        let path = daemon.task_dir(*task).join("journal");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        harm(&path, &text);
    }
    std::fs::rename(&aside, &key).unwrap();
    daemon.start();
    for (task, (what, _)) in tasks.iter().zip(&harms) {
        daemon.client().receipt(&task.to_string(), 30_000).unwrap();
        let damage = statement(&daemon, *task).predicate.journal.unwrap().damage.unwrap();
        assert_eq!(damage.as_str(), *what);
        let found = findings(&daemon, &[&task.to_string()]);
        assert!(found.iter().any(|f| f.contains(&format!("was sealed with a damaged journal: {damage}"))), "{found:?}");
        assert!(!found.iter().any(|f| f.contains("hostname")), "{found:?}");
    }
    daemon.sealed(daemon.ask("echo the next one"));
}

/// The lengths that a journal states are not believed: neither the daemon nor a verifier allocates memory for them.
#[test]
fn a_journal_with_false_lengths_kills_no_reader() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("echo 0123456789");
    daemon.sealed(task);
    stop(&daemon);
    let path = daemon.task_dir(task).join("journal");
    let text = std::fs::read_to_string(&path).unwrap();
    for (from, to) in [
        ("\"len\":11", "\"len\":100000000000000".to_owned()),
        ("\"len\":11", format!("\"len\":{}", u64::MAX)),
        ("\"len\":11", "\"len\":12".to_owned()),
        ("\"offset\":0,\"len\":11", format!("\"offset\":{},\"len\":11", u64::MAX - 3)),
    ] {
        assert!(text.contains(from), "{text}");
        std::fs::write(&path, text.replacen(from, &to, 1)).unwrap();
        let found = findings(&daemon, &[]);
        assert_eq!(found.len(), 1, "the output is what it was: {found:?}");
        assert!(found[0].starts_with(&format!("journal of {task}: is a different file")), "{found:?}");
        let pid = daemon.start();
        for args in [&["logs"][..], &["logs", "--tail", "1"]] {
            let out = daemon.csn(&[args, &[&task.to_string()]].concat());
            assert_ne!(String::from_utf8_lossy(&out.stdout), "0123456789\n", "{to}");
        }
        assert_eq!(daemon.daemon_pid(), pid);
        assert!(daemon.csn(&["ps"]).status.success(), "{to}");
        stop(&daemon);
    }
    // Its streams are not blamed for the journal, unless they were changed themselves.
    let at = text.find("\"digest\":\"").unwrap() + 10;
    let digit = if text.as_bytes()[at] == b'0' { "1" } else { "0" };
    std::fs::write(&path, format!("{}{digit}{}", &text[..at], &text[at + 1..])).unwrap();
    let found = findings(&daemon, &[]);
    assert!(found.len() == 1 && found[0].starts_with(&format!("journal of {task}: is a different file")), "{found:?}");
    std::fs::write(&path, &text).unwrap();
    flip(&daemon.task_dir(task).join("stdout.log"), 3);
    let due = format!("stdout.log of {task}: was changed: bytes 0 to 11 are not what was recorded");
    assert_eq!(findings(&daemon, &[]), [due]);
}

#[test]
fn table_rows_that_are_no_receipts_are_named() {
    let it = StoppedHome::with(3);
    for number in [i64::MAX, 0, -7] {
        let found = it.changed(&format!(
            "INSERT INTO receipts SELECT {number}, 'rc_0000000000000000', 'tk_0000000000000000', payload, key, signature
             FROM receipts WHERE number = 1"
        ));
        let due = format!("receipt {number}: has an invalid number: receipts are numbered from 1");
        assert_eq!(found, [due]);
    }
    let second = it.tasks[1];
    let found = it.changed(&format!("UPDATE receipts SET number = {} WHERE number = 3", i64::MAX - 1));
    assert!(found.contains(&"receipt 3: is missing".to_owned()), "{found:?}");
    assert!(found.contains(&format!("receipts 23 to {}: are missing", i64::MAX - 2)), "{found:?}");
    let id: String = it.ask("SELECT id FROM receipts WHERE number = 2");
    let found = it.changed("UPDATE receipts SET id = 'rc_0000000000000000' WHERE number = 2");
    assert_eq!(found, [format!("receipt 2 ({second}): is stored as rc_0000000000000000, but its id is {id}")]);
    for (change, why) in [
        ("key = x'00'", "its key id does not have 32 bytes"),
        ("payload = CAST(x'ff' AS TEXT)", "its payload is not text"),
        ("id = CAST(x'ff' AS TEXT)", "its id is not text"),
    ] {
        let change = format!("UPDATE receipts SET {change} WHERE number = 2");
        let due = format!("receipt 2 ({second}): cannot be parsed: {why}");
        let found = it.changed(&change);
        assert_eq!(found, [due.as_str()], "{change}");
        sql(&it.daemon, &change);
        assert_eq!(findings(&it.daemon, &[&second.to_string()]), [due.as_str()]);
        assert_eq!(findings(&it.daemon, &["--from", "2"]), [due]);
        it.restore();
    }
    let found = it.changed("UPDATE receipts SET task = CAST(x'ff' AS TEXT) WHERE number = 2");
    assert!(found.contains(&"receipt 2: cannot be parsed: its task is not text".to_owned()), "{found:?}");
    let n: i64 = it.ask("SELECT max(n) FROM decisions WHERE line LIKE '%task.settled%'");
    let task: String = it.ask(&format!("SELECT task FROM decisions WHERE n = {n}"));
    let found = it.changed(&format!("UPDATE decisions SET line = CAST(x'ff' AS TEXT) WHERE n = {n}"));
    assert!(found.contains(&format!("decision {n} ({task}): cannot be parsed: its line is not text")), "{found:?}");
    let found = it.changed(&format!("UPDATE decisions SET head = x'00' WHERE n = {n}"));
    assert!(
        found.contains(&format!("decision {n} ({task}): cannot be parsed: its hash does not have 32 bytes")),
        "{found:?}"
    );
    let found = it.changed(&format!("UPDATE decisions SET task = CAST(x'ff' AS TEXT) WHERE n = {n}"));
    assert!(found.iter().any(|f| f.starts_with(&format!("decision {n}: was changed: it names the task"))), "{found:?}");
}

#[test]
fn an_index_that_contradicts_the_decisions_is_named() {
    let it = StoppedHome::with(2);
    let task = it.tasks[0];
    let id = task.to_string();
    let principal = "pr_0000000000000000";
    for (change, says, due) in [
        ("sealed = 0", "sealed 0", "1".to_owned()),
        ("settled = 0", "settled 0", "1".to_owned()),
        ("principal = 'pr_0000000000000001'", "principal pr_0000000000000001", principal.to_owned()),
        (
            "session = 'none of ours'",
            "session none of ours",
            it.ask::<Option<String>>(&format!("SELECT session FROM tasks WHERE id = '{id}'"))
                .unwrap_or("none".to_owned()),
        ),
    ] {
        let found = it.changed(&format!("UPDATE tasks SET {change} WHERE id = '{id}'"));
        let due = format!("index of {id}: has {says} instead of {due}; run `csn doctor --fix` to rebuild it");
        assert_eq!(found, [due]);
    }
    let found = it.changed(&format!("DELETE FROM tasks WHERE id = '{id}'"));
    assert_eq!(found, [format!("index of {id}: lacks this task; run `csn doctor --fix` to rebuild it")]);
    let (n, seq): (i64, i64) = (
        it.ask(&format!("SELECT max(n) FROM decisions WHERE task = '{id}'")),
        it.ask(&format!("SELECT max(seq) FROM decisions WHERE task = '{id}'")),
    );
    let change = format!("UPDATE decisions SET seq = 99 WHERE n = {n}");
    let due = format!("decision {n} ({id}): was changed: the ledger stores it as number 99, but its line has {seq}");
    assert_eq!(it.changed(&change), [due.as_str()]);
    sql(&it.daemon, &change);
    assert_eq!(findings(&it.daemon, &[&id]), [due]);
    it.restore();
    // A receipt that was deleted, with an index that lists it.
    let last = it.tasks[1];
    let sealed: i64 = it.ask("SELECT max(n) FROM decisions WHERE line LIKE '%receipt.sealed%'");
    let found = it.changed(&format!(
        "DELETE FROM receipts WHERE number = 2; DELETE FROM decisions WHERE n >= {sealed}; UPDATE tasks SET sealed = 1"
    ));
    assert!(found.contains(&format!("{last}: has settled, but has no receipt")), "{found:?}");
    assert!(
        found.contains(&format!("index of {last}: has sealed 1 instead of 0; run `csn doctor --fix` to rebuild it")),
        "{found:?}"
    );
    // The repair that the finding names works.
    sql(&it.daemon, &format!("UPDATE tasks SET sealed = 0, principal = 'pr_0000000000000001' WHERE id = '{id}'"));
    assert_eq!(findings(&it.daemon, &[]).len(), 2);
    it.daemon.csn(&["doctor", "--fix"]);
    holds(&it.daemon);
}

/// Every column of the index, changed in every way that leaves it readable.
#[test]
#[expect(clippy::too_many_lines, reason = "a table of changes")]
fn every_column_of_the_index_is_compared_with_the_decisions() {
    let daemon = TestHome::started(CSN);
    let body = serde_json::to_value(daemon.request("echo done", json!({}))).unwrap();
    let asked = daemon.client().call("POST", "/tasks", &[("idempotency-key", "the same")], Some(&body)).unwrap();
    let asked: Value = serde_json::from_slice(&asked).unwrap();
    let done: TaskId = asked["task_id"].as_str().unwrap().parse().unwrap();
    daemon.sealed(done);
    let waiting = daemon.ask_with("touch later", json!({"profile": "safe"}));
    let approved = daemon.ask_with("touch once", json!({"profile": "safe"}));
    daemon.client().answer(approved.approval_id().unwrap(), countersign_model::Choice::Once, None).unwrap();
    daemon.sealed(approved.task_id);
    let (waiting, asked) = (waiting.task_id, waiting.approval_id().unwrap());
    let it = StoppedHome::of(daemon, vec![done, waiting, approved.task_id]);
    let columns: i64 = it.ask("SELECT count(*) FROM pragma_table_info('tasks') WHERE name != 'id'");
    let cases = [
        (done, "status = 'failed'", "status failed", "exited".to_owned()),
        (waiting, "status = 'running'", "status running", "queued".to_owned()),
        (done, "waits = 1", "waits 1", "0".to_owned()),
        (waiting, "waits = 0", "waits 0", "1".to_owned()),
        (approved.task_id, "waits = 1", "waits 1", "0".to_owned()),
        (done, "approval = 'ap_0000000000000000'", "approval ap_0000000000000000", "none".to_owned()),
        (waiting, "approval = NULL", "approval none", asked.to_string()),
        (done, "settled = 0", "settled 0", "1".to_owned()),
        (done, "sealed = 0", "sealed 0", "1".to_owned()),
        (
            done,
            "first = 1",
            "first 1",
            it.ask::<i64>(&format!("SELECT first FROM tasks WHERE id = '{done}'")).to_string(),
        ),
        (
            done,
            "last = NULL",
            "last none",
            it.ask::<i64>(&format!("SELECT last FROM tasks WHERE id = '{done}'")).to_string(),
        ),
        (done, "principal = 'x'", "principal x", "pr_0000000000000000".to_owned()),
        (
            done,
            "session = 'x'",
            "session x",
            it.ask::<Option<String>>(&format!("SELECT session FROM tasks WHERE id = '{done}'"))
                .unwrap_or("none".into()),
        ),
        (
            done,
            "idem = NULL",
            "idem none",
            it.ask::<Option<String>>(&format!("SELECT idem FROM tasks WHERE id = '{done}'")).unwrap_or("none".into()),
        ),
        (waiting, "idem = 'x'", "idem x", "none".to_owned()),
    ];
    let tried: std::collections::HashSet<_> = cases.iter().filter_map(|c| c.1.split(' ').next()).collect();
    assert_eq!(tried.len() as i64, columns, "every column is tried");
    for (task, change, says, due) in cases {
        if says == "idem none" {
            assert_ne!(due, "none", "there is a key to forget");
        }
        let found = it.changed(&format!("UPDATE tasks SET {change} WHERE id = '{task}'"));
        let due = format!("index of {task}: has {says} instead of {due}; run `csn doctor --fix` to rebuild it");
        assert_eq!(found, [due]);
    }
    let rebuild_hint = "run `csn doctor --fix` to rebuild it";
    let of = format!("WHERE task = '{done}' AND name = 'stdout.log'");
    let name: String = it.ask(&format!("SELECT name FROM artifacts {of}"));
    let lacks = format!("artifacts of {done}: the index lacks {name}; {rebuild_hint}");
    assert_eq!(it.changed(&format!("DELETE FROM artifacts {of}")), [lacks.as_str()]);
    for (change, has) in [("name = 'stdout.txt'", "stdout.txt"), ("sha256 = zeroblob(32)", "stdout.log")] {
        let has = format!("artifacts of {done}: the index lists {has}, but no receipt does; {rebuild_hint}");
        assert_eq!(it.changed(&format!("UPDATE artifacts SET {change} {of}")), [has, lacks.clone()]);
    }
    let other = it.changed(&format!("UPDATE artifacts SET task = '{waiting}' {of}"));
    let has = format!("artifacts of {waiting}: the index lists stdout.log, but no receipt does; {rebuild_hint}");
    assert_eq!(other, [has, lacks]);
    let made_up = "INSERT INTO artifacts VALUES (zeroblob(32), 'tk_none', 'x')";
    assert_eq!(
        it.changed(made_up),
        [format!("artifacts of tk_none: the index lists x, but no receipt does; {rebuild_hint}")]
    );
    // The repair that the finding names works.
    sql(
        &it.daemon,
        &format!("UPDATE tasks SET waits = 1, status = 'failed', idem = NULL WHERE id = '{done}'; {made_up}"),
    );
    assert_eq!(findings(&it.daemon, &[]).len(), 4);
    it.daemon.csn(&["doctor", "--fix"]);
    holds(&it.daemon);
}

#[test]
fn a_replaced_key_signs_nothing_more() {
    let daemon = TestHome::started(CSN);
    let first = daemon.ask("echo one");
    daemon.sealed(first);
    // An attacker has copied the old key in time: the home itself stores no copy.
    let old = key(&daemon.home().join("keys/signing.key"));
    assert!(daemon.csn(&["keys", "rotate"]).status.success());
    assert_eq!(std::fs::read_dir(daemon.home().join("keys")).unwrap().count(), 2);
    let second = daemon.ask("echo two");
    daemon.sealed(second);
    let it = StoppedHome::of(daemon, vec![first, second]);
    let announced: i64 = it.ask("SELECT max(n) FROM decisions WHERE line LIKE '%key.announced%'");
    let why = format!("was signed by key {} after it had been replaced (decision {announced})", old.public().id());
    it.sign(2, &old, |_| {});
    assert_eq!(findings(&it.daemon, &[]), [format!("receipt 2 ({second}): {why}")]);
    assert_eq!(findings(&it.daemon, &["2"]), [format!("receipt 2 ({second}): {why}")]);
    it.restore();
    // Nor with an earlier date: the decision that it was sealed comes too late.
    it.sign(2, &old, |s| s["predicate"]["ledger_head"]["decision"] = (announced - 1).to_string().into());
    let found = findings(&it.daemon, &[]);
    assert!(found.contains(&format!("receipt 2 ({second}): {why}")), "{found:?}");
    it.restore();
    // According to the ledger, the new key cannot have signed what the old one did.
    let sealed: i64 = it.ask("SELECT min(n) FROM decisions WHERE line LIKE '%receipt.sealed%'");
    it.sign(1, &it.key(), |_| {});
    assert_eq!(
        findings(&it.daemon, &[]),
        [format!("receipt 1 ({first}): is not the receipt that decision {sealed} records for {first}")]
    );
    it.restore();
    holds(&it.daemon);
}

#[test]
fn the_documented_way_after_a_lost_key_works() {
    let daemon = TestHome::started(CSN);
    daemon.sealed(daemon.ask("echo one"));
    stop(&daemon);
    std::fs::remove_file(daemon.home().join("keys/signing.key")).unwrap();
    daemon.start();
    assert!(daemon.csn(&["keys", "rotate", "--lost"]).status.success());
    daemon.sealed(daemon.ask("echo two"));
    let found = findings(&daemon, &[]);
    let hint = found.iter().find_map(|f| f.split_once("if you replaced a lost key: ")).expect("it says what to do").1;
    assert!(hint.contains("--key OLD.pem --key NEW.pem"), "{hint}");
    let script = hint.replace("csn ", &format!("{CSN} "));
    let script = format!(
        "set -e; export COUNTERSIGN_HOME={}; cd {}; {script}",
        daemon.home().display(),
        daemon.work().display()
    );
    let out = daemon.outside(&["bash", "-c", &script]);
    assert!(out.status.success(), "{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(PublicKey::from_pem(&std::fs::read_to_string(daemon.work().join("OLD.pem")).unwrap()).is_some());
}

#[test]
fn ids_are_ids_even_if_files_have_their_names() {
    let it = StoppedHome::with(2);
    let task = it.tasks[0].to_string();
    let receipt: String = it.ask("SELECT id FROM receipts WHERE number = 2");
    for name in [task.as_str(), receipt.as_str(), "2"] {
        std::fs::create_dir(it.daemon.work().join(name)).unwrap();
    }
    for (args, what) in [
        (&[task.as_str()][..], format!("task {task}")),
        (&[&receipt], "receipt 2".to_owned()),
        (&["2"], "receipt 2".to_owned()),
        (&["--from", "1", "--to", "2"], "receipts 1 to 2".to_owned()),
        (&[], format!("the home at {}", it.daemon.home().display())),
    ] {
        assert_eq!(findings(&it.daemon, args), NONE);
        assert_eq!(report(&it.daemon, args)["what"], what);
        let said = String::from_utf8(it.daemon.csn(&[&["verify"], args].concat()).stdout).unwrap();
        assert!(said.starts_with(&format!("ok    everything is intact: {what}: ")), "{said}");
    }
    let notes = report(&it.daemon, &[&task])["notes"].to_string();
    assert!(notes.contains(&format!("csn verify ./{task}")), "{notes}");
    let meant = it.daemon.csn(&["verify", &format!("./{task}")]);
    assert!(
        !meant.status.success() && String::from_utf8_lossy(&meant.stderr).contains("receipt.dsse.json"),
        "{meant:?}"
    );
    assert!(!it.daemon.csn(&["verify", "nowhere.tar"]).status.success());
}

#[test]
fn an_exported_chain_must_be_complete() {
    let daemon = TestHome::started(CSN);
    (0..3).for_each(|n| drop(daemon.sealed(daemon.ask(&format!("echo {n}")))));
    assert_eq!(findings(&daemon, &["--from", "2", "--to", "5"]), ["receipt 4: is missing", "receipt 5: is missing"]);
    assert_eq!(findings(&daemon, &["--to", "3"]), NONE);
    assert_eq!(findings(&daemon, &["--from", "2"]), NONE);
    assert_eq!(findings(&daemon, &["--from", "9"]), ["receipts: no receipt exists from 9 on"]);
    assert_eq!(findings(&daemon, &["--from", "3", "--to", "2"]), ["receipts: no receipt exists from 3 to 2"]);
    assert_eq!(findings(&daemon, &["7"]), ["receipt 7: is missing"]);
    let found = findings(&daemon, &["--to", &u64::MAX.to_string()]);
    assert_eq!(
        (found.len(), found[20].as_str()),
        (21, format!("receipts 24 to {}: are missing", u64::MAX - 1).as_str())
    );
    // A list is not a chain: nothing is missing in it, in whatever order it is.
    let file = daemon.work().join("list.jsonl");
    let path = file.to_str().unwrap();
    let export = |args: &[&str]| {
        let _ = std::fs::remove_file(&file);
        daemon.csn(&[&["receipts", "export", "-o", path], args].concat())
    };
    for list in [["1", "3"], ["3", "1"]] {
        assert!(export(&list).status.success());
        assert_eq!(findings(&daemon, &[path]), NONE);
        let report = report(&daemon, &[path]);
        assert_eq!(
            (report["receipts"].as_u64(), &report["what"]),
            (Some(2), &json!(format!("the receipts in {path}")))
        );
        assert!(report["notes"].to_string().contains("not for gaps"), "{report}");
    }
    // The chain shows that a receipt is missing, also at either end.
    assert!(export(&["--from", "1", "--to", "3"]).status.success());
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let begin: Value = serde_json::from_str(lines[0]).unwrap();
    // Issue 18: it also states its home.
    let home = daemon.client().lifecycle().unwrap().home_id.unwrap();
    assert_eq!(begin, json!({"row": {"from": 1, "to": 3}, "home_id": home}));
    let other = "hm_01jcx3v9q8k2m4tz";
    std::fs::write(&file, text.replacen(&home.to_string(), other, 1)).unwrap();
    let said = format!("line 1: states home {other}, but its receipts name {home}");
    assert_eq!(findings(&daemon, &[path]), [said]);
    let without = |n: usize| {
        let left: Vec<&str> = lines.iter().enumerate().filter(|(i, _)| *i != n).map(|(_, l)| *l).collect();
        std::fs::write(&file, left.join("\n")).unwrap();
        findings(&daemon, &[path])
    };
    for receipt in 1..=3 {
        let found = without(receipt + 1);
        assert_eq!(found, [format!("receipt {receipt}: is missing")]);
    }
    std::fs::write(&file, lines[..2].join("\n")).unwrap();
    assert_eq!(findings(&daemon, &[path])[0], "receipts: the file contains none");
    std::fs::write(&file, lines[1]).unwrap();
    assert_eq!(findings(&daemon, &[path]), ["receipts: the file contains none"]);
    assert_eq!(export(&["--from", "1", "--to", "9"]).status.code(), Some(2));
    assert_eq!(export(&["--from", "1", "2"]).status.code(), Some(2));
    assert!(!file.exists());
}

/// Another kind of file in the place of a journal: no reader waits for it, and the task is settled and sealed.
#[test]
fn a_replaced_journal_blocks_no_reader() {
    let daemon = TestHome::started(CSN);
    let over = daemon.ask("echo over");
    daemon.sealed(over);
    let replace = |task: TaskId, with: &[&str]| {
        let journal = daemon.task_dir(task).join("journal").display().to_string();
        std::fs::remove_file(&journal).unwrap();
        let made = daemon.outside(&[with, &[journal.as_str()]].concat());
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    replace(over, &["mkfifo"]);
    let shown = daemon.csn(&["show", &over.to_string()]);
    assert!(!shown.status.success() || !shown.stdout.is_empty(), "it is answered");
    assert!(daemon.csn(&["logs", &over.to_string()]).status.code().is_some());
    for with in [&["mkfifo"][..], &["ln", "-s", "/dev/zero"], &["mkdir"]] {
        let task = daemon.ask("echo began; while :; do sleep 1; done");
        daemon.wait_for_stdout(task, "began");
        let shim = daemon.client().task(&task.to_string()).unwrap().shim_pid().unwrap();
        replace(task, with);
        crate::tree::kill(shim);
        daemon.sealed(task);
        assert!(matches!(statement(&daemon, task).predicate.outcome, Outcome::Lost { .. }), "{with:?}");
    }
    // The other tasks have their receipts all the same.
    daemon.sealed(daemon.ask("echo other"));
    let found = findings(&daemon, &[]);
    assert!(found.contains(&format!("journal of {over}: is not a regular file")), "{found:?}");
}
