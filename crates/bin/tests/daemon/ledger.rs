//! A ledger that is damaged, missing or older than before: the daemon notices, runs nothing, serves what can be read,
//! and `csn doctor --fix` repairs it.

use crate::{
    CSN,
    receipts::{findings, stop},
};
use countersign_client::ClientError;
use countersign_model::{RefusalCode, TaskId, TaskRefusal};
use countersign_testkit::{TestHome, body};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Output,
};

const PAGE: usize = 4096;

/// A home with some tasks, stopped, with the files of its ledger as they were.
struct Scene {
    daemon: TestHome,
    tasks: Vec<TaskId>,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Scene {
    fn with(tasks: usize) -> Self {
        let scene = Self::running(tasks);
        stop(&scene.daemon);
        scene.keep()
    }

    fn running(tasks: usize) -> Self {
        let daemon = TestHome::started(CSN);
        daemon.client().grant(&body(json!({"verb": "make", "directory": null}))).unwrap();
        let task = |n| {
            let task = daemon.ask(&format!("echo {n}"));
            daemon.sealed(task);
            task
        };
        let tasks = (0..tasks).map(task).collect();
        Self { daemon, tasks, files: BTreeMap::new() }
    }

    fn keep(mut self) -> Self {
        self.files = self.now();
        self
    }

    /// Every file of the home that belongs to the ledger.
    fn now(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let files = std::fs::read_dir(self.daemon.home()).unwrap().map(|e| e.unwrap().path());
        let of_ledger = |p: &PathBuf| p.file_name().unwrap().to_string_lossy().starts_with("ledger.");
        files.filter(of_ledger).map(|p| (p.clone(), std::fs::read(&p).unwrap())).collect()
    }

    fn restore(&self) {
        self.now().keys().for_each(|path| std::fs::remove_file(path).unwrap());
        // What has run since then never did.
        let shards = std::fs::read_dir(self.daemon.home().join("tasks")).unwrap().map(|e| e.unwrap().path());
        for task in shards.flat_map(|shard| std::fs::read_dir(shard).unwrap().map(|e| e.unwrap().path())) {
            if !self.tasks.iter().any(|t| task.ends_with(t.to_string())) {
                std::fs::remove_dir_all(task).unwrap();
            }
        }
        self.files.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
    }

    fn ledger(&self) -> PathBuf {
        self.daemon.home().join("ledger.db")
    }

    /// The page numbers of a table or an index, its root first; found in an intact ledger.
    fn pages(&self, name: &str) -> Vec<usize> {
        let conn = rusqlite::Connection::open(self.ledger()).unwrap();
        let root: i64 =
            conn.query_row("SELECT rootpage FROM sqlite_schema WHERE name = ?1", [name], |r| r.get(0)).unwrap();
        drop(conn);
        let bytes = std::fs::read(self.ledger()).unwrap();
        let mut pages = vec![root as usize];
        let page = |n: usize| &bytes[(n - 1) * PAGE..n * PAGE];
        // The children of an interior page: a big-endian page number at the start of each cell, and one in its header.
        let number = |at: &[u8]| u32::from_be_bytes(at[..4].try_into().unwrap()) as usize;
        let interior = page(pages[0]);
        if [2, 5].contains(&interior[0]) {
            let cells = usize::from(u16::from_be_bytes(interior[3..5].try_into().unwrap()));
            for cell in 0..cells {
                let at = 12 + 2 * cell;
                let at = usize::from(u16::from_be_bytes(interior[at..at + 2].try_into().unwrap()));
                pages.push(number(&interior[at..]));
            }
            pages.push(number(&interior[8..]));
        }
        pages
    }

    fn overwrite(&self, page: usize) {
        let mut bytes = std::fs::read(self.ledger()).unwrap();
        bytes[(page - 1) * PAGE..page * PAGE].fill(0xa5);
        std::fs::write(self.ledger(), bytes).unwrap();
    }

    /// The daemon only reads: it serves what is on the disk, runs nothing and changes nothing.
    fn reads_only(&self, word: &str) {
        let daemon = &self.daemon;
        let before = self.now();
        daemon.start();
        let listed = daemon.csn(&["ps", "-a"]);
        for task in &self.tasks {
            assert!(out(&listed).contains(&task.to_string()), "{word}: {task} is listed");
        }
        assert!(err(&listed).contains("the daemon only reads") && err(&listed).contains(word), "{}", err(&listed));
        assert!(err(&listed).contains("csn doctor --fix"), "{}", err(&listed));
        for (n, task) in self.tasks.iter().enumerate() {
            let logs = daemon.csn(&["logs", &task.to_string()]);
            assert_eq!(out(&logs), format!("{n}\n"), "{word}: {}", err(&logs));
        }
        let shown = daemon.csn(&["show", &self.tasks[0].to_string()]);
        assert!(shown.status.success() && out(&shown).contains("exited 0"), "{}{}", out(&shown), err(&shown));
        let ran = daemon.csn(&["run", "--profile", "full_auto", "touch never"]);
        assert_eq!(ran.status.code(), Some(125), "{}", err(&ran));
        match daemon.client().ask(&daemon.request("touch never", json!({}))) {
            Err(ClientError::Refused(TaskRefusal { refusal, .. })) => {
                assert_eq!(refusal.code, RefusalCode::LedgerUnavailable)
            }
            other => panic!("{other:?}"),
        }
        assert!(!daemon.work().join("never").exists());
        let found = findings(daemon, &[]);
        let named =
            |f: &String| f.starts_with("ledger.db: ") && f.contains(word) || f.contains("older than this directory");
        assert!(found.iter().any(named), "{found:?}");
        let (ok, says) = self.ledger_check();
        assert!(!ok && says.contains(word), "{says}");
        stop(daemon);
        // The same findings without a daemon.
        let (ok, says) = self.ledger_check();
        assert!(!ok && says.contains(word), "{says}");
        let kept = |files: &BTreeMap<PathBuf, Vec<u8>>| -> Vec<(PathBuf, Vec<u8>)> {
            files
                .iter()
                .filter(|(p, b)| !p.ends_with("ledger.db-shm") && !b.is_empty())
                .map(|(p, b)| (p.clone(), b.clone()))
                .collect()
        };
        assert_eq!(kept(&self.now()), kept(&before), "{word}: nothing was changed");
    }

    /// The check of `csn doctor` for the ledger.
    fn ledger_check(&self) -> (bool, String) {
        let told: Value = serde_json::from_slice(&self.daemon.csn(&["doctor", "--json"]).stdout).unwrap();
        let check = told["checks"].as_array().unwrap().iter().find(|c| c["name"] == "ledger").unwrap();
        (check["ok"] == true, check["says"].as_str().unwrap().to_owned())
    }

    fn fix(&self) -> String {
        let fixed = self.daemon.csn(&["doctor", "--fix"]);
        assert!(out(&fixed).contains("repaired the ledger"), "{}{}", out(&fixed), err(&fixed));
        out(&fixed)
    }

    /// Everything works again, and the tasks' output is still known.
    fn works(&self) {
        let daemon = &self.daemon;
        let (ok, says) = self.ledger_check();
        assert!(ok, "{says}");
        let next = daemon.csn(&["run", "--profile", "full_auto", "echo again"]);
        assert_eq!((out(&next).as_str(), next.status.code()), ("again\n", Some(0)), "{}", err(&next));
        let listed = out(&daemon.csn(&["ps", "-a"]));
        for (n, task) in self.tasks.iter().enumerate() {
            assert!(listed.contains(&task.to_string()));
            assert_eq!(out(&daemon.csn(&["logs", &task.to_string()])), format!("{n}\n"));
        }
        // What runs now is sealed, and what was rebuilt, too: nothing is left half done.
        assert_eq!(findings(daemon, &[]).iter().filter(|f| f.contains("no receipt")).count(), 0);
        stop(daemon);
        daemon.start();
        let (ok, says) = self.ledger_check();
        assert!(ok, "{says}");
        stop(daemon);
    }

    fn grants(&self) -> usize {
        self.serve();
        self.daemon.client().grants().unwrap().len()
    }

    /// Starts a daemon, unless `csn doctor --fix` has started one.
    fn serve(&self) {
        if self.daemon.client().lifecycle().is_err() {
            self.daemon.start();
        }
    }

    /// Where the repair put the old ledger.
    fn kept_aside(&self) -> PathBuf {
        let aside = |p: &&PathBuf| {
            let name = p.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with("ledger.damaged-") && name.ends_with(".db")
        };
        self.now().keys().find(aside).cloned().expect("the old ledger is kept")
    }
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn remove(path: &Path) {
    std::fs::remove_file(path).unwrap();
}

#[test]
fn with_any_damaged_page_reading_works_nothing_runs_and_doctor_repairs() {
    let scene = Scene::with(24);
    let decisions = scene.pages("decisions");
    assert!(decisions.len() > 4, "the table has leaves");
    let pages = [
        ("the header", 1, true),
        ("the root of the decisions", decisions[0], true),
        ("the first decisions", decisions[1], true),
        ("decisions in the middle", decisions[decisions.len() / 2], true),
        ("the last decisions", decisions[decisions.len() - 1], true),
        ("the index of tasks", scene.pages("tasks")[0], false),
        ("an index of decisions", scene.pages("decisions_of_task")[0], false),
        ("the receipts", scene.pages("receipts")[0], false),
        ("the artifacts", *scene.pages("artifacts").last().unwrap(), false),
    ];
    for (what, page, loses) in pages {
        scene.restore();
        scene.overwrite(page);
        eprintln!("{what}: page {page}");
        scene.reads_only("is damaged");
        let damaged = std::fs::read(scene.ledger()).unwrap();
        let told = scene.fix();
        assert_eq!(std::fs::read(scene.kept_aside()).unwrap(), damaged, "{what}: the damaged file is kept as it was");
        // A grant survives only if it is certain that no decision revoked it.
        assert_eq!(scene.grants(), usize::from(!loses), "{what}: {told}");
        assert_eq!(told.contains("no decision is lost"), !loses && what != "the receipts", "{what}: {told}");
        scene.works();
    }
}

#[test]
fn a_home_keeps_its_id_when_the_decision_about_it_is_lost() {
    let scene = Scene::running(24);
    let home = scene.daemon.client().lifecycle().unwrap().home_id.unwrap();
    stop(&scene.daemon);
    let scene = scene.keep();
    scene.overwrite(scene.pages("decisions")[1]);
    scene.daemon.start();
    let reading_only = scene.daemon.client().lifecycle().unwrap();
    assert!(reading_only.reading_only.is_some());
    assert_eq!(reading_only.home_id, Some(home), "the receipts still name it");
    stop(&scene.daemon);
    scene.fix();
    scene.serve();
    assert_eq!(scene.daemon.client().lifecycle().unwrap().home_id, Some(home));
    scene.works();
    let found = findings(&scene.daemon, &[]);
    assert!(!found.iter().any(|f| f.contains("home")), "{found:?}");
}

#[test]
fn with_an_unreadable_decision_the_daemon_only_reads() {
    let scene = Scene::with(2);
    let conn = rusqlite::Connection::open(scene.ledger()).unwrap();
    conn.execute_batch("UPDATE decisions SET line = 'nothing' WHERE n = 2; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(conn);
    let second = "SELECT line FROM decisions WHERE n = 2";
    let conn = rusqlite::Connection::open(scene.ledger()).unwrap();
    assert_eq!(conn.query_row(second, [], |r| r.get::<_, String>(0)).unwrap(), "nothing");
    drop(conn);
    scene.daemon.start();
    let listed = scene.daemon.csn(&["ps", "-a"]);
    assert!(err(&listed).contains("the daemon only reads"), "{}", err(&listed));
    assert!(scene.tasks.iter().all(|t| out(&listed).contains(&t.to_string())));
}

#[test]
fn a_ledger_damaged_under_a_running_daemon_is_not_written_any_more() {
    let scene = Scene::running(24);
    let daemon = &scene.daemon;
    // So that the daemon reads from the file.
    stop(daemon);
    let leaf = scene.pages("decisions")[2];
    daemon.start();
    scene.overwrite(leaf);
    // Reading the damaged page is what makes the daemon notice.
    for task in &scene.tasks {
        let _ = daemon.csn(&["show", &task.to_string()]);
    }
    let mut events = 0;
    while daemon.client().lifecycle().unwrap().reading_only.is_none() {
        let _ = daemon.client().task(&scene.tasks[events % scene.tasks.len()].to_string());
        events += 1;
    }
    match daemon.client().ask(&daemon.request("touch never", json!({}))) {
        Err(ClientError::Refused(TaskRefusal { refusal, .. })) => {
            assert_eq!(refusal.code, RefusalCode::LedgerUnavailable)
        }
        other => panic!("{other:?}"),
    }
    let listed = out(&daemon.csn(&["ps", "-a"]));
    assert!(scene.tasks.iter().all(|t| listed.contains(&t.to_string())));
    scene.fix();
    scene.works();
}

#[test]
fn a_missing_ledger_is_noticed_and_its_tasks_are_read_from_their_directories() {
    let scene = Scene::with(3);
    remove(&scene.ledger());
    scene.reads_only("is missing");
    assert!(!scene.ledger().exists(), "no empty ledger takes its place");
    // Without its mark, the task directories show it.
    remove(&scene.daemon.home().join("ledger.mark"));
    scene.reads_only("is missing");
    // An empty file is no ledger either.
    std::fs::write(scene.ledger(), b"").unwrap();
    scene.reads_only("is missing");
    remove(&scene.ledger());
    let told = scene.fix();
    assert!(told.contains("3 tasks: only the output and the exit are known"), "{told}");
    assert_eq!(scene.grants(), 0);
    scene.works();
}

#[test]
fn an_older_copy_of_the_ledger_is_noticed_and_its_grants_do_not_hold() {
    let mut scene = Scene::with(2);
    scene.daemon.start();
    for n in 2..4 {
        let task = scene.daemon.ask(&format!("echo {n}"));
        scene.daemon.sealed(task);
        scene.tasks.push(task);
    }
    let grant = scene.daemon.client().grants().unwrap()[0].grant.id.unwrap().to_string();
    assert!(scene.daemon.csn(&["grants", "revoke", &grant]).status.success());
    stop(&scene.daemon);
    let newer = std::fs::read(scene.ledger()).unwrap();
    std::fs::write(scene.ledger(), &scene.files[&scene.ledger()]).unwrap();
    scene.reads_only("this home had reached decision");
    // With the newer file back, everything is as before.
    std::fs::write(scene.ledger(), &newer).unwrap();
    let (ok, says) = scene.ledger_check();
    assert!(ok, "{says}");
    std::fs::write(scene.ledger(), &scene.files[&scene.ledger()]).unwrap();
    // If the attacker removes the mark as well, the task directories show it.
    let mark = std::fs::read(scene.daemon.home().join("ledger.mark")).unwrap();
    remove(&scene.daemon.home().join("ledger.mark"));
    scene.reads_only("is older than the task directories");
    std::fs::write(scene.daemon.home().join("ledger.mark"), mark).unwrap();
    let told = scene.fix();
    assert!(told.contains("revoked 1 grant and 0 tokens"), "{told}");
    assert_eq!(scene.grants(), 0, "a grant revoked after the copy stays revoked");
    scene.works();
}

#[test]
fn a_missing_or_damaged_write_ahead_log_is_noticed() {
    let scene = Scene::running(3);
    scene.daemon.kill_daemon();
    let log = scene.daemon.home().join("ledger.db-wal");
    let scene = scene.keep();
    assert!(scene.files[&log].len() > PAGE, "a daemon that is killed leaves its log");
    remove(&log);
    remove(&scene.daemon.home().join("ledger.db-shm"));
    let found = findings(&scene.daemon, &["--receipts-only"]);
    assert!(
        found.iter().any(|f| f.contains("decision") || f.contains("is missing") || f.contains("damaged")),
        "{found:?}"
    );
    scene.daemon.start();
    assert!(scene.daemon.client().lifecycle().unwrap().reading_only.is_some());
    stop(&scene.daemon);
    // SQLite reads a log up to the first page that does not match.
    scene.restore();
    let mut bytes = scene.files[&log].clone();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].fill(0xa5);
    std::fs::write(&log, bytes).unwrap();
    remove(&scene.daemon.home().join("ledger.db-shm"));
    scene.reads_only("this home had reached decision");
    scene.fix();
    assert_eq!(scene.grants(), 0);
    scene.works();
}

#[test]
fn a_daemon_that_is_killed_at_any_moment_raises_no_alarm() {
    let daemon = TestHome::started(CSN);
    for n in 0..12 {
        let asked: Vec<_> = (0..n % 4).map(|m| daemon.ask(&format!("echo {n} {m}"))).collect();
        daemon.kill_daemon();
        daemon.start();
        let life = daemon.client().lifecycle().unwrap();
        assert_eq!(life.reading_only, None, "after being killed {n} times");
        asked.into_iter().for_each(|task| drop(daemon.settled(task)));
    }
}

#[test]
fn an_interrupted_repair_is_finished_by_the_next() {
    let scene = Scene::with(3);
    let leaf = *scene.pages("decisions").last().unwrap();
    scene.overwrite(leaf);
    let damaged = std::fs::read(scene.ledger()).unwrap();
    scene.fix();
    stop(&scene.daemon);
    // The state between moving the old ledger away and moving the new one into place.
    let (home, kept) = (scene.daemon.home(), scene.kept_aside());
    let name = kept.file_name().unwrap().to_str().unwrap().to_owned();
    std::fs::rename(scene.ledger(), home.join("ledger.repaired.db")).unwrap();
    let line = std::fs::read_to_string(home.join("ledger.repairs")).unwrap();
    std::fs::write(home.join("ledger.repaired.db.json"), line).unwrap();
    remove(&home.join("ledger.repairs"));
    scene.reads_only("is missing");
    let told = scene.fix();
    assert!(told.contains(&name), "{told}");
    assert_eq!(std::fs::read(&kept).unwrap(), damaged);
    scene.works();
}

#[test]
fn only_a_person_repairs_a_ledger() {
    let scene = Scene::with(1);
    scene.overwrite(1);
    let before = std::fs::read(scene.ledger()).unwrap();
    let task = [(countersign_model::MARKER, scene.tasks[0].to_string())];
    let task: Vec<(&str, &str)> = task.iter().map(|(k, v)| (*k, v.as_str())).collect();
    let fixed = scene.daemon.csn_with(&["doctor", "--fix"], &task);
    assert!(!fixed.status.success() && err(&fixed).contains("only a person"), "{}", err(&fixed));
    assert_eq!(std::fs::read(scene.ledger()).unwrap(), before);
}

#[test]
fn a_ledger_of_a_newer_program_is_not_repaired() {
    let scene = Scene::with(1);
    let conn = rusqlite::Connection::open(scene.ledger()).unwrap();
    conn.execute_batch(
        "INSERT INTO schema_version (version, at) VALUES (99, 'later'); PRAGMA wal_checkpoint(TRUNCATE)",
    )
    .unwrap();
    drop(conn);
    let before = std::fs::read(scene.ledger()).unwrap();
    let fixed = scene.daemon.csn(&["doctor", "--fix"]);
    assert!(!fixed.status.success() && err(&fixed).contains("newer"), "{}", err(&fixed));
    assert_eq!(std::fs::read(scene.ledger()).unwrap(), before);
}
