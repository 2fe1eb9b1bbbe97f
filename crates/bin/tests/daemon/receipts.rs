//! Receipts: one for every ending, verifiable with standard tools; every later change is found and named.

use crate::{CSN, tree::kill};
use countersign_client::ClientError;
use countersign_model::{Choice, FileChange, FileObservation, Outcome, RefusalCode, Statement, TaskId, TaskRefusal};
use countersign_testkit::{RawCalls as _, TestHome, body};
use serde_json::{Value, json};
use std::path::Path;

/// The signed statement of a task.
pub(crate) fn statement(daemon: &TestHome, task: TaskId) -> Statement {
    let out = daemon.csn(&["receipts", "show", &task.to_string(), "--json"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// What `csn verify …` finds; checks that its exit code agrees.
pub(crate) fn findings(daemon: &TestHome, args: &[&str]) -> Vec<String> {
    let out = daemon.csn(&[&["verify", "--json"], args].concat());
    let report: Value =
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&out.stderr)));
    let found: Vec<String> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| format!("{}: {}", f["place"].as_str().unwrap(), f["what"].as_str().unwrap()))
        .collect();
    assert_eq!(out.status.code(), Some(i32::from(!found.is_empty())), "{found:?}");
    assert_eq!(report["ok"], found.is_empty());
    found
}

pub(crate) fn holds(daemon: &TestHome) {
    assert_eq!(findings(daemon, &[]), [""; 0]);
}

pub(crate) fn stop(daemon: &TestHome) {
    assert!(daemon.csn(&["down"]).status.success());
    daemon.daemon_ends();
}

pub(crate) fn sql(daemon: &TestHome, text: &str) {
    let conn = rusqlite::Connection::open(daemon.home().join("ledger.db")).unwrap();
    conn.execute_batch(text).unwrap();
}

#[test]
fn f180_every_ending_has_its_receipt() {
    let daemon = TestHome::started(CSN);
    let run = daemon.ask("echo out; exit 3");
    let killed = daemon.ask("kill -9 $$");
    let late = daemon.ask_with("sleep 60", json!({"limits": {"wall_ms": 50}})).task_id;
    let cancelled = daemon.ask("sleep 60");
    daemon.client().cancel(cancelled, Some("enough")).unwrap();
    let not_there = daemon.ask_with("", json!({"args": {"command": null, "argv": ["/nonexistent/program"]}})).task_id;
    let (_, denied) = daemon.refused("rm -rf /", json!({}));
    let asks = json!({"profile": "safe"});
    let withdrawn = daemon.ask_with("touch x", asks.clone()).task_id;
    daemon.client().cancel(withdrawn, None).unwrap();
    let refused = daemon.ask_with("touch y", asks).approval_id().unwrap();
    let refused = daemon.client().answer(refused, Choice::Deny, Some("not today")).unwrap().task_id;
    let lost = daemon.ask("echo began; sleep 60");
    daemon.wait_for_stdout(lost, "began");
    kill(daemon.client().task(&lost.to_string()).unwrap().shim_pid().unwrap());
    let receipt = |task| statement(&daemon, task).predicate;
    assert_eq!(receipt(run).outcome, Outcome::Exited { code: 3 });
    assert!(matches!(receipt(killed).outcome, Outcome::Signalled { signal: 9, .. }));
    assert!(matches!(receipt(late).outcome, Outcome::TimedOut { .. }));
    assert!(matches!(receipt(cancelled).outcome, Outcome::Cancelled { .. }));
    assert!(matches!(receipt(not_there).outcome, Outcome::Failed { code: 127, .. }));
    let denied = receipt(denied.unwrap());
    assert!(denied.execution.is_none() && denied.journal.is_none() && denied.confinement.confinement.is_none());
    assert_eq!(json!(denied.decision.outcome), "denied");
    assert_eq!(json!(denied.lifecycle), json!(["planned", "permission_denied", "receipt_sealed"]));
    let withdrawn = receipt(withdrawn);
    assert_eq!(json!(withdrawn.decision.outcome), "unanswered");
    assert!(matches!(withdrawn.outcome, Outcome::Withdrawn { .. }));
    let refused = receipt(refused);
    assert_eq!(
        json!(refused.decision.by),
        json!({"person": {"principal": "pr_0000000000000000", "surface": "socket"}})
    );
    assert_eq!(refused.decision.words.unwrap().as_str(), "not today");
    let lost = receipt(lost);
    assert!(matches!(lost.outcome, Outcome::Lost { .. }));
    assert!(!lost.journal.unwrap().closed);
    holds(&daemon);
    // All in one chain, without a gap.
    let out = daemon.csn(&["receipts", "list", "--json"]);
    let seqs: Vec<u64> = String::from_utf8(out.stdout)
        .unwrap()
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap()["seq"].as_str().unwrap().parse().unwrap())
        .collect();
    assert_eq!(seqs, (1..=9).rev().collect::<Vec<u64>>());
}

#[test]
fn f161_a_task_that_took_too_long_is_sealed_as_killed_with_its_tree() {
    let daemon = TestHome::started(CSN);
    let text = "trap '' TERM; (setsid sleep 1004 &); while :; do sleep 1; done";
    let task = daemon.ask_with(text, json!({"limits": {"wall_ms": 100, "grace_ms": 50}})).task_id;
    let r = statement(&daemon, task).predicate;
    assert!(matches!(r.outcome, Outcome::TimedOut { .. }), "{:?}", r.outcome);
    let execution = r.execution.unwrap();
    assert_eq!(json!(execution.limits_reached), json!(["wall"]));
    assert_eq!(json!(execution.killed[0].why), "timeout");
    let cleanup = execution.cleanup.unwrap();
    assert!(cleanup.ended.0 >= 2 && cleanup.survivors.is_empty(), "{cleanup:?}");
    assert!(execution.exit.is_some());
}

#[test]
fn a_receipt_states_what_ran_and_its_result() {
    let daemon = TestHome::started(CSN);
    let text = "echo one > made; echo all: >> Makefile; echo err >&2; cat /dev/null; sleep 0.1";
    std::fs::create_dir_all(daemon.work().join(".git")).unwrap();
    std::fs::write(daemon.work().join("Makefile"), "x:\n").unwrap();
    let task = daemon
        .ask_with(text, json!({"title": "t", "rationale": "r", "args": {"env": {"COLOUR": "crimson-9"}}}))
        .task_id;
    let s = statement(&daemon, task);
    let r = &s.predicate;
    assert_eq!((r.request.display.as_str(), r.request.title.as_ref().unwrap().as_str()), (text, "t"));
    assert!(r.request.environment.as_ref().unwrap().names.iter().any(|n| n.as_str() == "COLOUR"));
    assert!(!json!(s).to_string().contains("crimson-9"), "names, never values");
    let e = r.execution.as_ref().unwrap();
    assert_eq!(json!(e.kind), "performed");
    assert!(e.executable.as_ref().unwrap().path.as_str().ends_with("bash") && e.process_group.is_some());
    assert!(e.duration_us.unwrap().0 >= 100_000 && e.max_rss_kb.unwrap().0 > 0 && e.cpu_us.is_some());
    assert_eq!(json!(e.streams), json!({"stderr": {"bytes": "4", "dropped": "0"}}));
    assert_eq!(json!(r.confinement.confinement), "workspace");
    assert!(r.confinement.enforced.as_ref().unwrap().seccomp);
    let touched = &r.touched_files;
    let work = std::fs::canonicalize(daemon.work()).unwrap();
    assert_eq!(
        (touched.observed, touched.complete),
        (FileObservation::Scan, false),
        "files were added; others may have been removed"
    );
    assert!(touched.roots.iter().any(|r| r.as_str() == work.to_str().unwrap()), "{touched:?}");
    let named = |name: &str| {
        let path = work.join(name);
        touched
            .files
            .iter()
            .find(|f| f.path.as_str() == path.to_str().unwrap())
            .unwrap_or_else(|| panic!("{touched:?}"))
    };
    assert_eq!((named("made").change, named("made").escape), (FileChange::Created, false));
    assert_eq!((named("Makefile").change, named("Makefile").escape), (FileChange::Modified, true));
    assert!(named("made").after.is_some());
    // A read-only task cannot have changed a file, and its receipt says so.
    let reads = statement(&daemon, daemon.ask("cat made")).predicate;
    assert_eq!((reads.touched_files.observed, reads.touched_files.complete), (FileObservation::Confined, true));
    assert_eq!(json!(reads.confinement.confinement), "read_only");
    assert_ne!(reads.request.plan_digest, r.request.plan_digest);
    // The daemon performs a file tool, so it knows what changed.
    let edit = json!({"tool": "edit_file", "args": {"command": null, "path": "made", "old": "one", "new": "two"}});
    let edited = statement(&daemon, daemon.ask_with("", edit).task_id).predicate;
    assert_eq!(json!(edited.execution.as_ref().unwrap().kind), "builtin");
    let [file] = edited.touched_files.files.as_slice() else { panic!("{:?}", edited.touched_files) };
    assert_eq!((edited.touched_files.observed, file.change), (FileObservation::Exact, FileChange::Modified));
    assert!(file.before.is_some() && file.after.is_some() && file.before != file.after);
    assert_eq!(file.before, named("made").after, "the same bytes have the same digest");
}

#[test]
fn f183_a_callers_claims_decide_nothing() {
    let daemon = TestHome::started(CSN);
    let claims = json!({
        "approved_by": "owner", "decision": "granted", "outcome": "exited", "principal": "pr_0000000000000001",
    });
    let with = json!({
        "profile": "safe", "labels": claims, "title": "approved_by: owner", "rationale": "\"decision\":{\"outcome\":\"granted\"}",
        "args": {"env": {"APPROVED_BY": "owner", "COUNTERSIGN_APPROVED": "1", "COUNTERSIGN_TASK": "tk_0000000000000000"}},
    });
    let state = daemon.ask_with("touch claimed", with.clone());
    assert!(state.approval_id().is_some(), "it asks as ever");
    daemon.client().answer(state.approval_id().unwrap(), Choice::Deny, None).unwrap();
    let denied = statement(&daemon, state.task_id).predicate;
    assert_eq!(json!(denied.decision.outcome), "denied");
    assert!(matches!(denied.outcome, Outcome::Denied { .. }));
    let mut runs = with;
    runs["profile"] = json!("full_auto");
    let ran = statement(&daemon, daemon.ask_with("exit 7", runs).task_id).predicate;
    assert_eq!(ran.outcome, Outcome::Exited { code: 7 });
    assert!(json!(ran.decision.by)["rule"].is_string(), "nobody approved it: {:?}", ran.decision);
    assert_eq!(json!(ran.request.requester.principal), "pr_0000000000000000");
    assert!(!ran.request.caller.trusted);
    assert_eq!(json!(ran.request.caller.labels), claims);
    holds(&daemon);
    // Labels are bounded.
    for labels in [json!({"": "x"}), json!({"a b": "x"}), json!({"a": "x".repeat(300)})] {
        let (refusal, _) = daemon.refused("true", json!({"labels": labels}));
        assert_eq!(refusal.code, RefusalCode::BadRequest);
    }
}

/// The commands of the documentation, word for word.
#[test]
fn jq_openssl_and_sha256sum_verify_a_receipt_alone() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("seq 1 1000; echo err >&2");
    daemon.sealed(task);
    let out = daemon.work().join("out");
    std::fs::create_dir(&out).unwrap();
    let bundle = out.join("b.tar");
    assert!(daemon.csn(&["export", &task.to_string(), "-o", bundle.to_str().unwrap()]).status.success());
    let dir = out.join(task.to_string());
    let unpacked = daemon.outside(&["tar", "-C", out.to_str().unwrap(), "-xf", bundle.to_str().unwrap()]);
    assert!(unpacked.status.success(), "{}", String::from_utf8_lossy(&unpacked.stderr));
    let script = tour_block("jq -r .payload");
    let verify = |dir: &Path| {
        let text = format!("set -e; cd {}; {script}", dir.display());
        daemon.outside(&["bash", "-c", &text])
    };
    let good = verify(&dir);
    let said = String::from_utf8_lossy(&good.stdout);
    assert!(good.status.success(), "{said}{}", String::from_utf8_lossy(&good.stderr));
    assert!(said.contains("Signature Verified Successfully"), "{said}");
    for name in ["decisions.jsonl", "journal", "stdout.log", "stderr.log"] {
        assert!(said.contains(&format!("{name}: OK")), "{said}");
    }
    // The same commands find one changed byte.
    let log = dir.join("stdout.log");
    flip(&log, 10);
    assert!(!verify(&dir).status.success());
    flip(&log, 10);
    assert!(verify(&dir).status.success());
    let receipt = dir.join("receipt.dsse.json");
    let text = std::fs::read_to_string(&receipt).unwrap();
    let mut envelope: Value = serde_json::from_str(&text).unwrap();
    let payload = envelope["payload"].as_str().unwrap().to_owned();
    let other = if payload.as_bytes()[100] == b'A' { "B" } else { "A" };
    envelope["payload"] = format!("{}{other}{}", &payload[..100], &payload[101..]).into();
    std::fs::write(&receipt, envelope.to_string()).unwrap();
    assert!(!verify(&dir).status.success());
}

/// The fenced block of the tour that contains this text.
fn tour_block(with: &str) -> String {
    let tour = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tour.md");
    let text = std::fs::read_to_string(tour).unwrap();
    let mut blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    blocks.find(|block| block.contains(with)).expect("the tour has this block").to_owned()
}

pub(crate) fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn f182_every_change_of_a_file_is_found_and_named() {
    let daemon = TestHome::started(CSN);
    let tasks: Vec<TaskId> = (0..4).map(|n| daemon.ask(&format!("seq {n} 2000"))).collect();
    tasks.iter().for_each(|t| drop(daemon.sealed(*t)));
    stop(&daemon);
    holds(&daemon);
    let file = |n: usize, name: &str| daemon.task_dir(tasks[n]).join(name);
    let copy = |path: &Path| std::fs::read(path).unwrap();
    // One byte of a journal, where it still parses, and where it does not.
    let (journal, kept) = (file(1, "journal"), copy(&file(1, "journal")));
    let text = String::from_utf8(kept.clone()).unwrap();
    std::fs::write(&journal, text.replacen("\"len\":", "\"leN\":", 1)).unwrap();
    let [found] = findings(&daemon, &[]).try_into().unwrap();
    assert!(found.starts_with(&format!("journal of {}: was changed: line ", tasks[1])), "{found}");
    std::fs::write(&journal, text.replacen("\"pid\":", "\"pie\":", 1).replacen("max_rss_kb\":", "max_rss_kb\": ", 1))
        .unwrap();
    let found = findings(&daemon, &[&tasks[1].to_string()]);
    assert!(found.iter().all(|f| f.starts_with(&format!("journal of {}", tasks[1]))) && !found.is_empty(), "{found:?}");
    let digit = text.find("\"cpu_us\":").unwrap() + 9;
    let mut bytes = kept.clone();
    bytes[digit] = if bytes[digit] == b'1' { b'2' } else { b'1' };
    std::fs::write(&journal, bytes).unwrap();
    let [found] = findings(&daemon, &[]).try_into().unwrap();
    assert!(found.starts_with(&format!("journal of {}: is a different file", tasks[1])), "{found}");
    std::fs::write(&journal, &kept).unwrap();
    // One byte of an output file; bytes after its end; the file missing.
    let log = file(2, "stdout.log");
    flip(&log, 5);
    let [found] = findings(&daemon, &[]).try_into().unwrap();
    assert!(found.starts_with(&format!("stdout.log of {}: was changed: bytes 0 to ", tasks[2])), "{found}");
    flip(&log, 5);
    let kept = copy(&log);
    std::fs::write(&log, [kept.as_slice(), b"more"].concat()).unwrap();
    let [found] = findings(&daemon, &[]).try_into().unwrap();
    assert!(found.starts_with(&format!("stdout.log of {}: is a different file", tasks[2])), "{found}");
    std::fs::remove_file(&log).unwrap();
    assert_eq!(findings(&daemon, &[]), [format!("stdout.log of {}: is missing", tasks[2])]);
    std::fs::write(&log, kept).unwrap();
    // Two task directories exchanged.
    let aside = daemon.work().join("aside");
    let exchange = || {
        std::fs::rename(daemon.task_dir(tasks[0]), &aside).unwrap();
        std::fs::rename(daemon.task_dir(tasks[3]), daemon.task_dir(tasks[0])).unwrap();
        std::fs::rename(&aside, daemon.task_dir(tasks[3])).unwrap();
    };
    exchange();
    let found = findings(&daemon, &[]);
    assert!(
        found.contains(&format!("journal of {}: holds journal of {}: the files were swapped", tasks[0], tasks[3])),
        "{found:?}"
    );
    assert!(
        found
            .contains(&format!("stdout.log of {}: holds stdout.log of {}: the files were swapped", tasks[3], tasks[0])),
        "{found:?}"
    );
    exchange();
    holds(&daemon);
}

#[test]
fn f182_changed_receipts_and_decisions_are_named() {
    let daemon = TestHome::started(CSN);
    // One after another, so that their receipts have the same order.
    let one = |n: u32| {
        let task = daemon.ask(&format!("echo {n}"));
        daemon.sealed(task);
        task
    };
    let tasks: Vec<TaskId> = (0..4).map(one).collect();
    stop(&daemon);
    let ledger = daemon.home().join("ledger.db");
    let kept = std::fs::read(&ledger).unwrap();
    let restore = || {
        let _ = std::fs::remove_file(daemon.home().join("ledger.db-wal"));
        let _ = std::fs::remove_file(daemon.home().join("ledger.db-shm"));
        std::fs::write(&ledger, &kept).unwrap();
    };
    let changed = |text: &str| {
        sql(&daemon, text);
        let found = findings(&daemon, &["--receipts-only"]);
        restore();
        found
    };
    let second = tasks[1];
    let found = changed("UPDATE receipts SET payload = replace(payload, '\"code\":0', '\"code\":1') WHERE number = 2");
    assert!(found.contains(&format!("receipt 2 ({second}): was changed: its signature does not verify")), "{found:?}");
    let found = changed("DELETE FROM receipts WHERE number = 2");
    assert!(found.contains(&"receipt 2: is missing".to_owned()), "{found:?}");
    assert!(
        found.iter().any(|f| f.starts_with(&format!("receipt 2 ({second}): is missing, although decision "))),
        "{found:?}"
    );
    let swap = "UPDATE receipts SET number = 90 WHERE number = 2; UPDATE receipts SET number = 2 WHERE number = 3;
                UPDATE receipts SET number = 3 WHERE number = 90;";
    let found = changed(swap);
    assert!(
        found.contains(&format!("receipt 2 ({}): is receipt 3, stored under the wrong number", tasks[2])),
        "{found:?}"
    );
    assert!(found.contains(&format!("receipt 3 ({second}): is receipt 2, stored under the wrong number")), "{found:?}");
    // A decision: what was asked, whose it is, and one that is missing.
    let n = "(SELECT min(n) FROM decisions WHERE task IS NOT NULL)";
    let found = changed(&format!("UPDATE decisions SET line = replace(line, 'echo', 'ecHo') WHERE n = {n}"));
    assert!(found[0].contains(&format!("({}): was changed: the ledger's chain breaks here", tasks[0])), "{found:?}");
    assert!(
        found
            .contains(&format!("receipt 1 ({}): covers other decisions of {} than the ledger has", tasks[0], tasks[0]))
    );
    let found = changed("DELETE FROM decisions WHERE n = (SELECT max(n) FROM decisions WHERE task IS NOT NULL)");
    assert!(found.iter().any(|f| f.starts_with("decision ") && f.ends_with("is missing from the ledger")), "{found:?}");
    // The receipts expose a forger who computes the chain again.
    let found = {
        let conn = rusqlite::Connection::open(&ledger).unwrap();
        conn.execute(&format!("UPDATE decisions SET line = replace(line, 'echo', 'ecHo') WHERE n = {n}"), []).unwrap();
        let rows: Vec<(i64, Option<String>, String)> = conn
            .prepare("SELECT n, task, line FROM decisions ORDER BY n")
            .unwrap()
            .query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let mut chain = countersign_model::HashChain::for_ledger();
        for (n, task, line) in rows {
            chain.push_line(&format!("{} {line}", task.as_deref().unwrap_or("-")));
            conn.execute("UPDATE decisions SET head = ?1 WHERE n = ?2", (chain.head().as_bytes(), n)).unwrap();
        }
        drop(conn);
        let found = findings(&daemon, &["--receipts-only"]);
        restore();
        found
    };
    assert!(
        found.iter().any(|f| f.starts_with(&format!("receipt 1 ({}): covers another ledger", tasks[0]))),
        "{found:?}"
    );
    holds(&daemon);
}

#[test]
fn an_older_ledger_is_exposed_by_a_ledger_head_and_by_task_directories() {
    let daemon = TestHome::started(CSN);
    daemon.sealed(daemon.ask("echo one"));
    let head = daemon.work().join("head.json");
    stop(&daemon);
    let old = std::fs::read(daemon.home().join("ledger.db")).unwrap();
    daemon.start();
    let new = daemon.ask("echo two");
    daemon.sealed(new);
    assert!(daemon.csn(&["receipts", "head", "-o", head.to_str().unwrap()]).status.success());
    stop(&daemon);
    assert_eq!(findings(&daemon, &["--since", head.to_str().unwrap()]), [""; 0]);
    let now = std::fs::read(daemon.home().join("ledger.db")).unwrap();
    std::fs::write(daemon.home().join("ledger.db"), &old).unwrap();
    let found = findings(&daemon, &["--since", head.to_str().unwrap(), "--receipts-only"]);
    assert!(found.iter().any(|f| f.starts_with("the ledger: was rolled back: it ends at decision ")), "{found:?}");
    assert!(found.contains(
        &"receipt 2: is missing, although the saved ledger head names it: the ledger was rolled back".to_owned()
    ));
    let [rolled_back, unknown] = findings(&daemon, &[]).try_into().unwrap();
    assert!(
        rolled_back.starts_with("ledger.db: ") && rolled_back.contains("this home had reached decision"),
        "{rolled_back}"
    );
    let due = "the ledger has no such task: the ledger is older than this directory";
    assert_eq!(unknown, format!("tasks/{}/{new}: {due}", new.shard()));
    std::fs::write(daemon.home().join("ledger.db"), now).unwrap();
    // A forged or changed ledger head proves nothing.
    let text = std::fs::read_to_string(&head).unwrap();
    let mut forged: Value = serde_json::from_str(&text).unwrap();
    forged["signatures"][0]["sig"] = "A".repeat(86).into();
    let path = daemon.work().join("forged.json");
    std::fs::write(&path, forged.to_string()).unwrap();
    let found = findings(&daemon, &["--since", path.to_str().unwrap()]);
    assert!(found[0].starts_with("the saved ledger head: its signature"), "{found:?}");
    // Without a ledger head the report says that it has none.
    let out = daemon.csn(&["verify"]);
    assert!(String::from_utf8_lossy(&out.stdout).contains("no saved ledger head was given"));
}

#[test]
fn files_that_retention_removed_are_expired_and_not_findings() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("echo going");
    daemon.sealed(task);
    let kept = daemon.ask("echo staying; sleep 0.2");
    assert!(daemon.csn(&["gc", "--older-than", "0"]).status.success());
    daemon.sealed(kept);
    assert!(!daemon.task_dir(task).exists());
    let out = daemon.csn(&["verify", "--json"]);
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((report["ok"].as_bool(), report["expired"].as_u64()), (Some(true), Some(1)), "{report}");
    assert_eq!(findings(&daemon, &[&task.to_string()]), [""; 0]);
    // The receipt stays, and reports that what it covers was removed.
    let sha256 = statement(&daemon, task).subject("stdout.log").unwrap();
    let gone = daemon.client().call("GET", &format!("/artifacts/{sha256}"), &[], None).unwrap_err();
    assert!(matches!(gone, ClientError::Refused(TaskRefusal { refusal, .. }) if refusal.code == RefusalCode::Expired));
    let bundle = daemon.work().join("gone.tar");
    let out = daemon.csn(&["export", &task.to_string(), "-o", bundle.to_str().unwrap()]);
    assert!(out.status.success() && String::from_utf8_lossy(&out.stderr).contains("was removed by csn gc"));
    assert_eq!(findings(&daemon, &[bundle.to_str().unwrap()]), [""; 0]);
}

#[test]
fn an_exported_task_verifies_anywhere_and_changes_to_it_are_found() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask_with("printf 'a\\nb\\n'", json!({"execution_mode": "pty"})).task_id;
    daemon.sealed(task);
    let tar = daemon.work().join("task.tar");
    let tar = tar.to_str().unwrap();
    assert!(daemon.csn(&["export", &task.to_string(), "-o", tar]).status.success());
    let key = daemon.work().join("key.pem");
    std::fs::write(&key, daemon.csn(&["keys", "export"]).stdout).unwrap();
    stop(&daemon);
    let nowhere = TestHome::new(CSN);
    assert_eq!(findings(&nowhere, &[tar]), [""; 0]);
    assert_eq!(findings(&nowhere, &[tar, "--key", key.to_str().unwrap()]), [""; 0]);
    let again = daemon.csn(&["export", &task.to_string(), "-o", tar]);
    assert!(!again.status.success(), "an existing file is not overwritten");
    // The key of another home does not verify it.
    nowhere.start();
    let other = nowhere.work().join("other.pem");
    std::fs::write(&other, nowhere.csn(&["keys", "export"]).stdout).unwrap();
    let found = findings(&nowhere, &[tar, "--key", other.to_str().unwrap()]);
    assert!(found[0].contains("which is not trusted"), "{found:?}");
    // A change in it is found.
    let dir = daemon.work().join("un");
    std::fs::create_dir(&dir).unwrap();
    assert!(daemon.outside(&["tar", "-C", dir.to_str().unwrap(), "-xf", tar]).status.success());
    let dir = dir.join(task.to_string());
    for (name, says) in [("pty.log", "was changed"), ("journal", "journal of"), ("decisions.jsonl", "was changed")] {
        flip(&dir.join(name), 2);
        let found = findings(&nowhere, &[dir.to_str().unwrap()]);
        assert!(found.iter().any(|f| f.contains(says) && f.contains(name)), "{name}: {found:?}");
        flip(&dir.join(name), 2);
    }
    std::fs::remove_file(dir.join("pty.log")).unwrap();
    assert_eq!(findings(&nowhere, &[dir.to_str().unwrap()]), [format!("pty.log of {task}: is missing")]);
    // A file that is no export is reported as such.
    for text in ["", "not a bundle", "{}"] {
        std::fs::write(nowhere.work().join("x"), text).unwrap();
        let out = nowhere.csn(&["verify", "x"]);
        assert!(!out.status.success() && !out.stderr.is_empty(), "{text}");
    }
}

#[test]
fn a_chain_of_receipts_can_be_exported_and_verified_alone() {
    let daemon = TestHome::started(CSN);
    for n in 0..5 {
        daemon.sealed(daemon.ask(&format!("echo {n}")));
    }
    let file = daemon.work().join("row.jsonl");
    let path = file.to_str().unwrap();
    assert!(daemon.csn(&["receipts", "export", "--from", "2", "--to", "4", "-o", path]).status.success());
    let nowhere = TestHome::new(CSN);
    assert_eq!(findings(&nowhere, &[path]), [""; 0]);
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5, "where it begins and ends, a key, and three receipts");
    std::fs::write(&file, [lines[0], lines[1], lines[2], lines[4]].join("\n")).unwrap();
    assert_eq!(findings(&nowhere, &[path]), ["receipt 3: is missing"]);
    std::fs::write(&file, [lines[0], lines[1], lines[3], lines[2], lines[4]].join("\n")).unwrap();
    assert!(findings(&nowhere, &[path])[1].contains("is in the place of receipt 4"));
    assert_eq!(findings(&daemon, &["--from", "2", "--to", "3"]), [""; 0]);
    assert_eq!(findings(&daemon, &["3"]), [""; 0]);
    let out = daemon.csn(&["verify", "nothing-like-it"]);
    assert_eq!(out.status.code(), Some(2));
}

/// The daemon may die between exit, settlement and sealing: each task has one receipt, which says what happened.
#[test]
fn f181_a_receipt_that_a_crash_prevented_is_sealed_once() {
    for (point, recovered) in [
        ("ledger.before_commit", true),
        ("ledger.after_commit", true),
        ("seal.before_commit", true),
        ("seal.after_commit", false),
    ] {
        let daemon = TestHome::new(CSN);
        let file = daemon.work().join("crash-at");
        let daemon = daemon.with_env("COUNTERSIGN_CRASH_FILE", file.to_str().unwrap());
        daemon.start();
        let go = daemon.work().join("go");
        let task = daemon.ask("echo began; while ! test -e go; do sleep 0.01; done; echo done");
        daemon.wait_for_stdout(task, "began");
        std::fs::write(&file, point).unwrap();
        std::fs::write(&go, "").unwrap();
        daemon.daemon_ends();
        std::fs::remove_file(&file).unwrap();
        daemon.start();
        let state = daemon.sealed(task);
        assert_eq!(state.outcome(), Some(&Outcome::Exited { code: 0 }), "{point}");
        assert_eq!(statement(&daemon, task).predicate.recovered, recovered, "{point}");
        let records = daemon.records(task);
        let seals = records.iter().filter(|r| {
            matches!(r.what, countersign_model::RecordContent::Decision(countersign_model::Decision::Sealed(_)))
        });
        assert_eq!(seals.count(), 1, "{point}");
        holds(&daemon);
    }
}

/// A task that ends without a daemon, after an orderly stop, is not recovered.
#[test]
fn a_task_that_survives_an_orderly_stop_is_not_recovered() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("while ! test -e go; do sleep 0.01; done");
    let shim = daemon.client().task(&task.to_string()).unwrap().shim_pid().unwrap();
    stop(&daemon);
    std::fs::write(daemon.work().join("go"), "").unwrap();
    crate::tree::gone(shim);
    daemon.start();
    daemon.sealed(task);
    assert!(!statement(&daemon, task).predicate.recovered);
    holds(&daemon);
}

#[test]
fn f153_the_chain_continues_over_twenty_restarts_and_five_crashes() {
    let daemon = TestHome::started(CSN);
    let mut tasks = Vec::new();
    for n in 0..25 {
        tasks.push(daemon.ask(&format!("echo {n}")));
        match n % 5 {
            4 => {
                daemon.kill_daemon();
            }
            _ => stop(&daemon),
        }
        daemon.start();
    }
    tasks.iter().for_each(|t| drop(daemon.sealed(*t)));
    holds(&daemon);
    let out = daemon.csn(&["receipts", "list", "--json"]);
    assert_eq!(String::from_utf8(out.stdout).unwrap().lines().count(), 25);
}

#[test]
fn f185_without_its_key_a_daemon_runs_and_reports_that_nothing_is_signed() {
    let daemon = TestHome::started(CSN);
    daemon.sealed(daemon.ask("true"));
    stop(&daemon);
    let key = daemon.home().join("keys/signing.key");
    let kept = std::fs::read(&key).unwrap();
    for damage in [None, Some(vec![7; 32]), Some(vec![7; 5])] {
        match &damage {
            None => std::fs::remove_file(&key).unwrap(),
            Some(bytes) => std::fs::write(&key, bytes).unwrap(),
        }
        daemon.start();
        let out = daemon.csn(&["run", "--profile", "full_auto", "exit 5"]);
        assert_eq!(out.status.code(), Some(5), "the task's own exit code is what it was");
        let doctor = daemon.csn(&["doctor"]);
        assert!(!doctor.status.success());
        assert!(String::from_utf8_lossy(&doctor.stdout).contains("not being sealed"), "{doctor:?}");
        let found = findings(&daemon, &[]);
        assert!(found.iter().any(|f| f.contains("has settled, but has no receipt")), "{found:?}");
        let ready = daemon.client().call("GET", "/readyz", &[], None).unwrap_err();
        assert!(format!("{ready:?}").contains("keys: no receipts can be made"), "{ready:?}");
        assert_eq!(daemon.csn(&["receipts", "head"]).status.code(), Some(125));
        let latest = daemon.client().tasks(&body(json!({"limit": 1}))).unwrap().tasks[0].task_id;
        assert!(daemon.records(latest).last().is_some(), "the stream ends all the same");
        stop(&daemon);
    }
    // Put back while the daemon runs, the key is found.
    daemon.start();
    std::fs::write(&key, kept).unwrap();
    let latest = daemon.client().tasks(&body(json!({"limit": 1}))).unwrap().tasks[0].task_id;
    daemon.sealed(latest);
    assert!(!statement(&daemon, latest).predicate.recovered, "sealed late, without a crash");
    holds(&daemon);
}

#[test]
fn the_old_key_announces_the_new_one() {
    let daemon = TestHome::started(CSN);
    daemon.sealed(daemon.ask("echo one"));
    let first = daemon.work().join("first.pem");
    std::fs::write(&first, daemon.csn(&["keys", "export"]).stdout).unwrap();
    assert!(daemon.csn(&["keys", "rotate"]).status.success());
    daemon.sealed(daemon.ask("echo two"));
    holds(&daemon);
    assert_eq!(findings(&daemon, &["--key", first.to_str().unwrap()]), [""; 0], "trust continues with the next key");
    let second = daemon.work().join("second.pem");
    std::fs::write(&second, daemon.csn(&["keys", "export"]).stdout).unwrap();
    let found = findings(&daemon, &["--key", second.to_str().unwrap()]);
    assert!(found.iter().all(|f| f.contains("which is not trusted")) && found.len() == 1, "not backwards: {found:?}");
    stop(&daemon);
    daemon.start();
    daemon.sealed(daemon.ask("echo three"));
    holds(&daemon);
    // A task cannot rotate the key or get a signed ledger head.
    let csn = format!("COUNTERSIGN_HOME={} {CSN}", daemon.home().display());
    let script = format!("{csn} keys rotate; echo $?; {csn} receipts head; echo $?");
    std::fs::write(daemon.work().join("keys.sh"), script).unwrap();
    let asked = daemon.ask_open("bash keys.sh", json!({}));
    daemon.settled(asked);
    assert_eq!(daemon.stdout(asked), "77\n77\n");
    // A lost key cannot announce its successor: that is a finding, unless the verifier knows the new key.
    stop(&daemon);
    std::fs::remove_file(daemon.home().join("keys/signing.key")).unwrap();
    daemon.start();
    assert!(!daemon.csn(&["keys", "rotate"]).status.success());
    assert!(daemon.csn(&["keys", "rotate", "--lost"]).status.success());
    daemon.sealed(daemon.ask("echo four"));
    let found = findings(&daemon, &[]);
    assert!(found.iter().any(|f| f.contains("no earlier key signed")), "{found:?}");
    let third = daemon.work().join("third.pem");
    std::fs::write(&third, daemon.csn(&["keys", "export"]).stdout).unwrap();
    let keys = ["--key", first.to_str().unwrap(), "--key", third.to_str().unwrap()];
    assert_eq!(findings(&daemon, &keys), [""; 0]);
}

#[test]
fn an_interrupted_key_rotation_is_completed() {
    let daemon = TestHome::new(CSN);
    let file = daemon.work().join("crash-at");
    let daemon = daemon.with_env("COUNTERSIGN_CRASH_FILE", file.to_str().unwrap());
    daemon.start();
    daemon.sealed(daemon.ask("echo one"));
    std::fs::write(&file, "seal.before_adopt").unwrap();
    assert!(!daemon.csn(&["keys", "rotate"]).status.success());
    daemon.daemon_ends();
    std::fs::remove_file(&file).unwrap();
    daemon.start();
    daemon.sealed(daemon.ask("echo two"));
    holds(&daemon);
    let keys = String::from_utf8(daemon.csn(&["keys", "list"]).stdout).unwrap();
    assert_eq!(keys.lines().count(), 2, "{keys}");
}

#[test]
fn f184_a_receipt_and_an_export_hold_no_secret_and_count_them() {
    let daemon = TestHome::started(CSN);
    let secret: String = ["ghp_", "9aB3dE6gH8jK1mN4pQ7r", "S0tU2vW5xY8zA1bC"].concat();
    let with = json!({"args": {"env": {"API_TOKEN": secret}}, "labels": {"note": secret}, "title": secret});
    let task = daemon.ask_with("echo $API_TOKEN; echo $API_TOKEN >&2; echo $API_TOKEN > out.txt", with).task_id;
    let s = statement(&daemon, task);
    let counted: u64 = s.predicate.redactions.iter().map(|r| r.count.0).sum();
    assert!(counted >= 2, "{:?}", s.predicate.redactions);
    assert!(s.predicate.redactions.iter().all(|r| !r.places.is_empty()));
    // Not in the next task's workspace: files written just before could count as its own.
    let tar = daemon.base().join("t.tar");
    assert!(daemon.csn(&["export", &task.to_string(), "-o", tar.to_str().unwrap()]).status.success());
    for bytes in [std::fs::read(tar).unwrap(), serde_json::to_vec(&s).unwrap()] {
        assert!(!memmem(&bytes, secret.as_bytes()));
    }
    // The names of files that it created and its labels hold no secret either.
    let value = "Zq7v-made-up-value-19";
    let with = json!({"args": {"env": {"API_TOKEN": value}}});
    let named = daemon.ask_with("touch cache-$API_TOKEN.json; sleep 0.05", with).task_id;
    let s2 = statement(&daemon, named);
    assert_eq!(s2.predicate.touched_files.files.len(), 1, "{:?}", s2.predicate.touched_files);
    let records: Vec<String> = daemon.records(named).iter().map(|r| format!("{r:?}")).collect();
    assert!(!json!(s2).to_string().contains(value) && !records.concat().contains(value));
    let (refusal, _) = daemon.refused("true", json!({"labels": {secret.clone(): "1"}}));
    assert_eq!(refusal.code, RefusalCode::BadRequest);
    assert!(!refusal.message.contains(&secret));
    // A daemon after a crash does not know the secrets: it counts the files and does not name them.
    let later = daemon
        .ask_with(
            "until [ -e go ]; do sleep 0.02; done; touch late-$API_TOKEN; sleep 0.05",
            json!({"args": {"env": {"API_TOKEN": value}}}),
        )
        .task_id;
    daemon.kill_daemon();
    daemon.start();
    std::fs::write(daemon.work().join("go"), "").unwrap();
    let files = statement(&daemon, later).predicate.touched_files;
    assert!(files.files.is_empty() && files.more >= 1 && !files.complete, "{files:?}");
    let stored = std::fs::read(daemon.task_dir(task).join("stdout.log")).unwrap();
    let sha256 = countersign_model::Digest::sha256(&[&stored]);
    assert_eq!(s.subject("stdout.log"), Some(sha256), "the digest is of the clean bytes");
}

fn memmem(hay: &[u8], needle: &[u8]) -> bool {
    hay.windows(needle.len()).any(|w| w == needle)
}

#[test]
fn artifacts_are_served_by_digest_in_ranges_and_with_their_names() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("seq 1 5000");
    daemon.sealed(task);
    let sha256 = statement(&daemon, task).subject("stdout.log").unwrap();
    let whole: String = (1..=5000).map(|n| format!("{n}\n")).collect();
    let path = format!("/artifacts/{sha256}");
    let get = |headers: &[&str]| -> (String, Vec<u8>) {
        let socket = daemon.home().join("run/csn.sock");
        let url = format!("http://csn{path}");
        let mut args = vec!["curl", "-s", "-i", "--unix-socket", socket.to_str().unwrap(), url.as_str()];
        headers.iter().for_each(|h| args.extend(["-H", h]));
        let out = daemon.outside(&args).stdout;
        let at = out.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
        (String::from_utf8_lossy(&out[..at]).to_lowercase(), out[at + 4..].to_vec())
    };
    let (head, body) = get(&[]);
    assert!(head.starts_with("http/1.1 200") && body == whole.as_bytes());
    let tag = format!("\"{sha256}\"");
    assert!(
        head.contains(&format!("etag: {tag}"))
            && head.contains("repr-digest: sha-256=:")
            && head.contains("accept-ranges: bytes"),
        "{head}"
    );
    let (head, body) = get(&["Range: bytes=2-5"]);
    assert!(head.starts_with("http/1.1 206") && body == whole.as_bytes()[2..6], "{head}");
    assert!(head.contains(&format!("content-range: bytes 2-5/{}", whole.len())));
    let (_, body) = get(&["Range: bytes=-4"]);
    assert_eq!(body, whole.as_bytes()[whole.len() - 4..]);
    assert!(get(&["Range: bytes=999999999-"]).0.starts_with("http/1.1 416"));
    assert!(get(&[&format!("If-None-Match: {tag}")]).0.starts_with("http/1.1 304"));
    let (head, body) = get(&["Range: bytes=0-1", "If-Range: \"another\""]);
    assert!(head.starts_with("http/1.1 200") && body.len() == whole.len());
    // Decisions, too, and the receipt itself.
    let decisions = statement(&daemon, task).subject("decisions.jsonl").unwrap();
    let lines = daemon.client().call("GET", &format!("/artifacts/{decisions}"), &[], None).unwrap();
    assert!(String::from_utf8(lines).unwrap().lines().all(|l| l.contains("\"kind\"")));
    // A changed artifact is not served.
    flip(&daemon.task_dir(task).join("stdout.log"), 3);
    let refused = daemon.client().call("GET", &path, &[], None).unwrap_err();
    assert!(
        matches!(refused, ClientError::Refused(TaskRefusal { refusal, .. }) if refusal.code == RefusalCode::ArtifactTampered)
    );
    for bad in ["/artifacts/xyz", &format!("/artifacts/{}", "0".repeat(64))] {
        assert!(daemon.client().call("GET", bad, &[], None).is_err());
    }
    for bad in ["/receipts?limit=0", "/receipts?cursor=x", "/tasks/rc_0000000000000000/receipt", "/tasks/99/receipt"] {
        assert!(
            matches!(daemon.client().call("GET", bad, &[], None), Err(ClientError::Refused(TaskRefusal { .. }))),
            "{bad}"
        );
    }
    // A running task has no artifacts yet.
    let running = daemon.ask("sleep 60");
    let none = daemon.client().receipt(&running.to_string(), 0).unwrap_err();
    assert!(
        matches!(none, ClientError::Refused(TaskRefusal { refusal, .. }) if refusal.code == RefusalCode::NotSealed)
    );
}

/// A home from before receipts gets one for every task that has ended.
#[test]
fn an_older_home_gets_its_receipts() {
    let daemon = TestHome::started(CSN);
    let tasks: Vec<TaskId> = (0..3).map(|n| daemon.ask(&format!("echo {n}"))).collect();
    tasks.iter().for_each(|t| drop(daemon.sealed(*t)));
    stop(&daemon);
    // As with the earlier schema: nothing sealed, no key, and no mark of the ledger's length.
    std::fs::remove_file(daemon.home().join("ledger.mark")).unwrap();
    let conn = rusqlite::Connection::open(daemon.home().join("ledger.db")).unwrap();
    let rows: Vec<(Option<String>, Option<i64>, String)> = conn
        .prepare("SELECT task, seq, line FROM decisions ORDER BY n")
        .unwrap()
        .query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))
        .unwrap()
        .map(Result::unwrap)
        .filter(|(_, _, line): &(_, _, String)| {
            !["receipt.sealed", "files.touched", "key.announced"].iter().any(|k| line.contains(k))
        })
        .collect();
    conn.execute_batch(
        "DELETE FROM decisions; DELETE FROM schema_version WHERE version > 2; DROP TABLE receipts; DROP TABLE artifacts;
         DROP INDEX tasks_unsealed; ALTER TABLE tasks DROP COLUMN sealed;",
    )
    .unwrap();
    let mut chain = countersign_model::HashChain::for_ledger();
    for (n, (task, seq, line)) in (1i64..).zip(rows) {
        chain.push_line(&format!("{} {line}", task.as_deref().unwrap_or("-")));
        let head = chain.head();
        conn.execute("INSERT INTO decisions VALUES (?1, ?2, ?3, ?4, ?5)", (n, task, seq, line, head.as_bytes()))
            .unwrap();
    }
    drop(conn);
    std::fs::remove_file(daemon.home().join("keys/signing.key")).unwrap();
    daemon.start();
    assert!(daemon.home().join("ledger.v2.db").exists(), "a copy is kept");
    assert!(daemon.csn(&["doctor", "--fix"]).status.success());
    for task in &tasks {
        daemon.sealed(*task);
        assert!(!statement(&daemon, *task).predicate.recovered, "there was no crash");
    }
    holds(&daemon);
}

#[test]
fn another_principal_sees_no_receipt() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("echo mine");
    daemon.sealed(task);
    let out = daemon.csn(&[
        "token",
        "create",
        "--person",
        "--name",
        "x",
        "--principal",
        "bob",
        "--scope",
        "observe",
        "--scope",
        "run",
    ]);
    let token = String::from_utf8(out.stdout).unwrap();
    let bearer = format!("Bearer {}", token.trim());
    let client = daemon.client();
    let sha256 = statement(&daemon, task).subject("stdout.log").unwrap();
    for path in [format!("/tasks/{task}/receipt"), "/tasks/1/receipt".to_owned(), format!("/artifacts/{sha256}")] {
        let refused = client.call("GET", &path, &[("authorization", &bearer)], None).unwrap_err();
        assert!(
            matches!(refused, ClientError::Refused(TaskRefusal { refusal, .. }) if refusal.code == RefusalCode::NotFound),
            "{path}"
        );
    }
    let list = client.call("GET", "/receipts", &[("authorization", &bearer)], None).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&list).unwrap()["receipts"], json!([]));
}

#[test]
#[ignore = "slow: cargo xtask soak"]
fn ten_thousand_receipts_verify() {
    let daemon = TestHome::started(CSN);
    let client = daemon.client();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..1250 {
                    client.ask(&daemon.request("true", json!({"wait_ms": 60_000}))).unwrap();
                }
            });
        }
    });
    daemon
        .client()
        .tasks(&body(json!({"limit": 1})))
        .unwrap()
        .tasks
        .iter()
        .for_each(|t| drop(daemon.sealed(t.task_id)));
    holds(&daemon);
    let out = daemon.csn(&["verify", "--json"]);
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(report["receipts"], 10_000);
}
