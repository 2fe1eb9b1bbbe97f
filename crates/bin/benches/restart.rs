//! Restart and listing with many finished tasks: time until the daemon serves, and one page of the list.
//!
//! The tasks are written into the ledger as the desk would have written them; the real daemon is measured.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use countersign_model::{
    Audience, Confinement, CredentialKind, DecidedBy, Decision, Digest, IdMint, Mode, Outcome, PermitId, PrincipalId,
    Profile, Record, Scope, TaskId, Text, Timestamp, Tool,
};
use countersign_store::{
    Home,
    ledger::{Ledger, LedgerEntry},
};
use countersign_testkit::{RawCalls as _, TestHome};
use std::time::Instant;

const CSN: &str = env!("CARGO_BIN_EXE_csn");

fn decisions(task: TaskId, permit: PermitId, at: Timestamp) -> Vec<LedgerEntry> {
    let digest = Digest::sha256(&[task.tail().as_bytes()]);
    let planned = Decision::Planned {
        plan_digest: digest,
        display: Text::from_static("cargo test --workspace --all-features"),
        verb: Text::from_static("bash"),
        cwd: Text::from_static("/home/someone/project"),
        mode: Mode::Pipes,
        tool: Tool::Shell,
        title: None,
        rationale: None,
        labels: Default::default(),
        session: None,
        principal: PrincipalId::owner(),
        credential: CredentialKind::Person,
        risks: vec![countersign_model::Risk::Opaque],
        audience: Audience::Personal,
        profile: Profile::FullAuto,
        background: false,
        limits: Box::default(),
        workspace: None,
        on_session_end: countersign_model::OnSessionEnd::Keep,
        idempotency: None,
    };
    let by = DecidedBy::Rule(Text::from_static("profile.full_auto"));
    let granted = Decision::PermissionGranted {
        permit,
        by,
        scope: Scope::Policy,
        confinement: Confinement::None,
        sandbox: None,
        saved: Vec::new(),
        policy: None,
    };
    let launched = Decision::Launched { shim_pid: 4242, first_seq: 3 };
    let settled =
        Decision::Settled { outcome: Outcome::Exited { code: 0 }, journal_head: Some(digest), recovered: false };
    let entry = |(seq, decision): (u64, Decision)| {
        let line = Record::decision_line(seq, at, &decision);
        LedgerEntry { task: Some(task), seq, at, line, decision, receipt: None }
    };
    [(0, planned), (1, granted), (2, launched), (8, settled)].into_iter().map(entry).collect()
}

fn fill(home: &Home, from: u64, to: u64) {
    let mut ledger = Ledger::open(&home.ledger()).unwrap();
    let mut mint = IdMint::default();
    for start in (from..to).step_by(1000) {
        let mut batch = Vec::new();
        for n in start..(start + 1000).min(to) {
            let ms = 1_700_000_000_000 + n * 10;
            let task = TaskId::mint(&mut mint, ms, 7);
            let permit = PermitId::mint(&mut mint, ms, 9);
            batch.extend(decisions(task, permit, Timestamp::from_micros(ms as i64 * 1000)));
        }
        ledger.commit(&batch).unwrap();
    }
    ledger.checkpoint().unwrap();
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What the daemon records for a task that does nothing: four decisions, chained, indexed, committed in groups.
fn bookkeeping() {
    let dir = TestHome::new(CSN);
    let home = Home::at(dir.home());
    home.prepare().unwrap();
    let mut ledger = Ledger::open(&home.ledger()).unwrap();
    let mut mint = IdMint::default();
    println!("| tasks in a commit | bookkeeping of a no-op task |\n|---|---|");
    for group in [1u32, 8, 64] {
        let rounds = 512 / group;
        let began = Instant::now();
        for round in 0..rounds {
            let mut batch = Vec::new();
            for n in 0..group {
                let ms = 1_600_000_000_000 + u64::from(round * group + n);
                let (task, permit) = (TaskId::mint(&mut mint, ms, 7), PermitId::mint(&mut mint, ms, 9));
                batch.extend(decisions(task, permit, Timestamp::from_micros(ms as i64 * 1000)));
            }
            ledger.commit(&batch).unwrap();
        }
        let each = began.elapsed().as_secs_f64() * 1e6 / f64::from(rounds * group);
        println!("| {group} | {each:.0} µs |");
    }
}

fn main() {
    bookkeeping();
    println!("| finished tasks | restart to serving, p50 | list page of 50, p50 |\n|---|---|---|");
    let daemon = TestHome::new(CSN);
    let home = Home::at(daemon.home());
    home.prepare().unwrap();
    let mut filled = 0;
    for total in [1_000, 100_000] {
        fill(&home, filled, total);
        filled = total;
        let restart = (0..9)
            .map(|_| {
                let began = Instant::now();
                daemon.start();
                let ms = began.elapsed().as_secs_f64() * 1e3;
                daemon.kill_daemon();
                ms
            })
            .collect();
        daemon.start();
        let client = daemon.client();
        let list = (0..200)
            .map(|_| {
                let began = Instant::now();
                client.call("GET", "/tasks", &[], None).unwrap();
                began.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        daemon.kill_daemon();
        println!("| {total} | {:.1} ms | {:.2} ms |", median(restart), median(list));
    }
}
