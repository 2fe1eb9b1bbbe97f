//! The store on its own: logs cut at any byte, rebuilt ledgers, ranges from both ends.
#![allow(clippy::unwrap_used)]

use countersign_model::{
    Audience, Choice, Clean, CredentialKind, Decision, Digest, EnvClass, Frame, HashChain, IdMint, Mode, Outcome,
    PrincipalId, Profile, Record, Status, StreamName, TaskId, Text, Timestamp, Tool, WaitsFor,
};
use countersign_store::{
    Home,
    journal::{self, JournalReader, JournalWriter},
    ledger::{Ledger, LedgerEntry, TaskFilter},
    output::{ChunkCache, OutputAppender, OutputMap, ReadError, chunk_digest},
    stream::{TaskStream, read_prologue},
    verify::{self, VerifyScope},
};
use std::path::Path;

fn task(n: u32) -> TaskId {
    TaskId::mint(&mut IdMint::default(), 1_700_000_000_000 + u64::from(n), n)
}

fn digest(text: &str) -> Digest {
    Digest::sha256(&[text.as_bytes()])
}

fn planned(display: &'static str) -> Decision {
    Decision::Planned {
        plan_digest: digest("plan"),
        display: Text::from_static(display),
        verb: Text::from_static("make"),
        cwd: Text::from_static("/p"),
        mode: Mode::Pipes,
        tool: Tool::Shell,
        title: None,
        rationale: None,
        labels: Default::default(),
        session: None,
        principal: PrincipalId::owner(),
        credential: CredentialKind::Person,
        risks: vec![],
        audience: Audience::Personal,
        profile: Profile::Safe,
        background: false,
        limits: Box::default(),
        workspace: None,
        on_session_end: countersign_model::OnSessionEnd::Keep,
        idempotency: None,
    }
}

fn entries(task: TaskId, from: u64, decisions: Vec<Decision>) -> Vec<LedgerEntry> {
    let at = Timestamp::from_micros(1_700_000_000_000_000);
    let entry = |(seq, decision)| {
        let line = Record::decision_line(seq, at, &decision);
        LedgerEntry { task: Some(task), seq, at, line, decision, receipt: None }
    };
    (from..).zip(decisions).map(entry).collect()
}

fn launched(first_seq: u64) -> Decision {
    Decision::Launched { shim_pid: 1, first_seq }
}

fn settled(code: i32) -> Decision {
    Decision::Settled { outcome: Outcome::Exited { code }, journal_head: None, recovered: false }
}

fn env_exposed() -> Frame {
    Frame::EnvExposed { class: EnvClass::Base, names: vec![Text::from_static("PATH")], withheld: vec![] }
}

fn write_journal(dir: &Path, frames: u64) -> countersign_model::JournalEnd {
    let mut writer = JournalWriter::create(dir, task(1), digest("head"), 3).unwrap();
    for _ in 0..frames {
        writer.push(&env_exposed());
    }
    writer.write().unwrap();
    writer.close(Outcome::Exited { code: 0 }, Default::default()).unwrap().0
}

#[test]
fn every_prefix_of_a_journal_can_be_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let closing = write_journal(dir.path(), 5);
    let whole = std::fs::read(dir.path().join(journal::JOURNAL_FILE)).unwrap();
    let recover = || {
        let file = journal::take_over(dir.path()).unwrap().unwrap();
        journal::recover(&file, dir.path(), task(1), digest("head"), 3).unwrap()
    };
    assert_eq!(recover().closing, Some(closing));
    for cut in 0..whole.len() {
        std::fs::write(dir.path().join(journal::JOURNAL_FILE), &whole[..cut]).unwrap();
        let lines = whole[..cut].iter().filter(|b| **b == b'\n').count() as u64;
        let remains = recover();
        assert_eq!((remains.next_seq, remains.closing.is_some()), (3 + lines, false), "cut at {cut}");
        let kept = std::fs::metadata(dir.path().join(journal::JOURNAL_FILE)).unwrap().len();
        assert_eq!(kept + remains.torn, cut as u64, "the torn line is cut off and counted");
        let mut chain = HashChain::for_journal(task(1), digest("head"));
        for line in String::from_utf8(whole[..kept as usize].to_vec()).unwrap().lines() {
            chain.push_line(line);
        }
        assert_eq!(remains.head, chain.head());
    }
}

#[test]
fn a_journal_is_created_once_and_locked_while_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let writer = JournalWriter::create(dir.path(), task(1), digest("head"), 0).unwrap();
    assert!(JournalWriter::create(dir.path(), task(1), digest("head"), 0).is_err());
    assert!(journal::create_locked(dir.path()).is_err());
    assert!(journal::take_over(dir.path()).unwrap().is_none());
    drop(writer);
    assert!(journal::take_over(dir.path()).unwrap().is_some());
}

#[test]
fn a_damaged_journal_is_cut_and_the_rest_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    write_journal(dir.path(), 5);
    let path = dir.path().join(journal::JOURNAL_FILE);
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    std::fs::write(&path, format!("{}\n{}\nnot a record\n{}\n", lines[0], lines[1], lines[3])).unwrap();
    let file = journal::take_over(dir.path()).unwrap().unwrap();
    let remains = journal::recover(&file, dir.path(), task(1), digest("head"), 3).unwrap();
    assert_eq!((remains.next_seq, remains.closing), (5, None));
    assert_eq!(remains.damage.unwrap(), "line 3 of the journal is not record 5");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n{}\n", lines[0], lines[1]));
    let kept = std::fs::read_to_string(dir.path().join("journal.damaged")).unwrap();
    assert_eq!(kept, format!("not a record\n{}\n", lines[3]));
}

/// A task whose journal is missing still has its end.
#[test]
fn a_stream_without_its_journal_still_has_the_outcome() {
    let (_dir, home, mut ledger) = daemon();
    ledger.commit(&entries(task(1), 0, vec![planned("one"), launched(2)])).unwrap();
    ledger.commit(&entries(task(1), 9, vec![settled(3)])).unwrap();
    let reader = ledger_reader(&home);
    let state = TaskStream::read_state(&home, task(1), &reader).unwrap().unwrap();
    assert_eq!(state.outcome(), Some(&Outcome::Exited { code: 3 }));
    assert_eq!(state.next_seq, 10);
}

#[test]
fn readers_follow_a_journal_from_any_number() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = JournalWriter::create(dir.path(), task(1), digest("head"), 3).unwrap();
    let mut reader = JournalReader::open(dir.path(), 3).unwrap();
    assert!(reader.lines(100).unwrap().is_empty());
    for n in 0..2000 {
        writer.push(&env_exposed());
        if n % 3 == 0 {
            writer.write().unwrap();
        }
    }
    writer.write().unwrap();
    let mut seen = Vec::new();
    loop {
        // Smaller than a line: the line must be read completely nevertheless.
        let lines = reader.lines(50).unwrap();
        if lines.is_empty() {
            break;
        }
        seen.extend(lines.into_iter().map(|(seq, line)| {
            assert_eq!(Record::parse(&line).unwrap().seq, seq);
            seq
        }));
    }
    assert_eq!(seen, (3..2003).collect::<Vec<_>>());
    for from in [3, 4, 1000, 2002, 2003, 5000] {
        let mut reader = JournalReader::open(dir.path(), 3).unwrap();
        reader.skip_to(from).unwrap();
        assert_eq!(reader.next_seq(), from.min(2003));
        assert_eq!(reader.lines(1000).unwrap().first().map(|l| l.0), (from < 2003).then_some(from));
    }
}

fn daemon() -> (tempfile::TempDir, Home, Ledger) {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path());
    home.prepare().unwrap();
    let ledger = Ledger::open(&home.ledger()).unwrap();
    (dir, home, ledger)
}

#[test]
fn the_index_can_be_rebuilt_from_the_decisions() {
    let (_dir, home, mut ledger) = daemon();
    let approval = countersign_model::ApprovalId::mint(&mut IdMint::default(), 1, 1);
    let asked =
        Decision::PermissionRequested { approval, uncovered: vec![], options: vec![Choice::Once], about: vec![] };
    let queued = Decision::Queued { waits_for: WaitsFor::Approval, position: None };
    ledger.commit(&entries(task(1), 0, vec![planned("one"), launched(2)])).unwrap();
    ledger.commit(&entries(task(2), 0, vec![planned("two"), asked, queued])).unwrap();
    ledger.commit(&entries(task(1), 7, vec![settled(3)])).unwrap();
    let look = || {
        let reader = ledger_reader(&home);
        let list = reader.list_tasks(&TaskFilter { limit: 10, ..TaskFilter::default() }).unwrap();
        (list, reader.open_tasks().unwrap(), reader.task_of_approval(approval).unwrap(), reader.head().unwrap())
    };
    let before = look();
    assert_eq!(before.0[1].status, Status::Exited);
    assert_eq!((before.1.as_slice(), before.2), ([task(2)].as_slice(), Some(task(2))));
    ledger.rebuild_index().unwrap();
    assert_eq!(look(), before);
    assert_eq!(verify_findings(&home), [settled_without_receipt()]);
    drop(ledger);
    let mut ledger = Ledger::open(&home.ledger()).unwrap();
    ledger.commit(&entries(task(3), 0, vec![planned("three")])).unwrap();
    assert_eq!(verify_findings(&home), [settled_without_receipt()], "the chain continues after a restart");
}

fn settled_without_receipt() -> String {
    format!("{}: has settled, but has no receipt", task(1))
}

/// The findings of a check of receipts and ledger.
fn verify_findings(home: &Home) -> Vec<String> {
    let wanted = VerifyScope { receipts_only: true, ..VerifyScope::default() };
    let report = verify::home(home, &wanted, &|_, _| {}).unwrap();
    report.findings.iter().map(|f| format!("{}: {}", f.place, f.what)).collect()
}

fn ledger_reader(home: &Home) -> countersign_store::ledger::LedgerReader {
    countersign_store::ledger::LedgerReader::open(&home.ledger()).unwrap()
}

#[test]
fn a_changed_decision_breaks_the_chain() {
    let (_dir, home, mut ledger) = daemon();
    ledger.commit(&entries(task(1), 0, vec![planned("one"), launched(2)])).unwrap();
    drop(ledger);
    let conn = rusqlite::Connection::open(home.ledger()).unwrap();
    conn.execute("UPDATE decisions SET line = replace(line, 'one', 'two') WHERE n = 1", []).unwrap();
    assert_eq!(
        verify_findings(&home),
        [format!("decision 1 ({}): was changed: the ledger's chain breaks here", task(1))]
    );
    conn.execute("DELETE FROM decisions WHERE n = 1", []).unwrap();
    assert_eq!(verify_findings(&home), ["decision 1: is missing from the ledger"]);
}

/// Decisions that a reader finds in memory are those of the file, from the first to the receipt.
#[test]
fn recent_decisions_are_those_of_the_file() {
    let (_dir, home, mut ledger) = daemon();
    let (near, file) = (ledger.reader().unwrap(), ledger_reader(&home));
    let same = |from: u64| {
        let lines = near.decisions(task(1), from).unwrap();
        assert_eq!(lines, file.decisions(task(1), from).unwrap(), "from {from}");
        lines.len()
    };
    assert_eq!(same(0), 0);
    ledger.commit(&entries(task(1), 0, vec![planned("one"), launched(2)])).unwrap();
    assert_eq!((same(0), same(1), same(2)), (2, 1, 0));
    ledger.commit(&entries(task(1), 9, vec![settled(3)])).unwrap();
    assert_eq!((same(0), same(2), same(10)), (3, 1, 0));
    // More tasks than are kept: the first ones are read from the file.
    ledger.commit(&(2..600).flat_map(|n| entries(task(n), 0, vec![planned("more")])).collect::<Vec<_>>()).unwrap();
    assert_eq!(same(0), 3);
}

#[test]
fn pages_and_filters() {
    let (_dir, home, mut ledger) = daemon();
    for n in 0..30 {
        ledger.commit(&entries(task(n), 0, vec![planned(if n == 7 { "needle in" } else { "hay" })])).unwrap();
    }
    let reader = ledger_reader(&home);
    let ids = |filter: TaskFilter| reader.list_tasks(&filter).unwrap().iter().map(|t| t.task_id).collect::<Vec<_>>();
    let page = ids(TaskFilter { limit: 10, ..TaskFilter::default() });
    assert_eq!((page.len(), page[0], page[9]), (10, task(29), task(20)));
    let next = ids(TaskFilter { limit: 10, before: Some(page[9]), ..TaskFilter::default() });
    assert_eq!(next[0], task(19));
    assert_eq!(ids(TaskFilter { limit: 10, text: Some("NEEDLE".into()), ..TaskFilter::default() }), [task(7)]);
    assert_eq!(ids(TaskFilter { limit: 50, verb: Some("make".into()), ..TaskFilter::default() }).len(), 30);
    assert!(ids(TaskFilter { limit: 50, status: Some(Status::Exited), ..TaskFilter::default() }).is_empty());
    assert_eq!(reader.tasks_by_prefix(&task(7).to_string()[..18], PrincipalId::owner()).unwrap().len(), 1);
}

/// The journal may exist before the launch can be read; its numbers are unknown until then.
#[test]
fn a_stream_waits_for_the_launch_before_it_reads_the_journal() {
    let (_dir, home, mut ledger) = daemon();
    let dir = home.task_dir(task(1));
    std::fs::create_dir_all(&dir).unwrap();
    ledger.commit(&entries(task(1), 0, vec![planned("one")])).unwrap();
    let reader = ledger_reader(&home);
    let mut stream = TaskStream::starting_at(&home, task(1), 0);
    assert_eq!(stream.next_lines(&reader, 1000).unwrap().len(), 1);
    write_journal(&dir, 2);
    assert!(stream.next_lines(&reader, 1000).unwrap().is_empty());
    assert_eq!(read_prologue(&reader, task(1)).unwrap(), None);
    ledger
        .commit(&entries(
            task(1),
            1,
            vec![Decision::Queued { waits_for: WaitsFor::Approval, position: None }, launched(3)],
        ))
        .unwrap();
    ledger.commit(&entries(task(1), 6, vec![settled(0)])).unwrap();
    let mut seqs = Vec::new();
    loop {
        let lines = stream.next_lines(&reader, 1000).unwrap();
        if lines.is_empty() {
            break;
        }
        seqs.extend(lines.iter().map(|l| l.0));
    }
    assert_eq!(seqs, [1, 2, 3, 4, 5, 6]);
}

#[expect(clippy::disallowed_methods, reason = "a test's own bytes")]
fn clean(bytes: &[u8]) -> Clean<Vec<u8>> {
    Clean::mint(bytes.to_vec())
}

#[test]
fn ranges_by_byte_and_by_line_from_either_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = JournalWriter::create(dir.path(), task(1), digest("head"), 3).unwrap();
    let mut appender = OutputAppender::new();
    let text: String = (1..=500).map(|n| format!("line {n}\n")).collect::<String>() + "no newline";
    for chunk in text.as_bytes().chunks(77) {
        let offset = appender.offset();
        appender.append(dir.path(), StreamName::Stdout, &clean(chunk), &mut 0, chunk.len()).unwrap();
        let (len, digest) = (chunk.len() as u64, chunk_digest(chunk));
        writer.push(&Frame::Output { stream: StreamName::Stdout, offset, len, digest });
    }
    writer.write().unwrap();
    let mut map = OutputMap::open(dir.path(), 3).unwrap();
    map.refresh().unwrap();
    let mut cache = ChunkCache::default();
    let total = text.len() as u64;
    assert_eq!(map.total(StreamName::Stdout), total);
    let mut read = |offset: u64, max: u64| map.read(&mut cache, dir.path(), StreamName::Stdout, offset, max);
    for (offset, max) in [(0, 1), (0, 77), (76, 2), (77, 77), (0, u64::MAX), (total - 1, 5), (total, 5), (100, 1000)] {
        let end = offset.saturating_add(max).min(total);
        assert_eq!(read(offset, max).unwrap(), &text.as_bytes()[offset as usize..end as usize]);
    }
    assert!(matches!(read(total + 1, 1), Err(ReadError::BeyondEnd { .. })));
    let mut lines = |line, n| {
        let (start, end) = map.lines(&mut cache, dir.path(), StreamName::Stdout, line, n).unwrap();
        &text[start as usize..end as usize]
    };
    assert_eq!(lines(1, 2), "line 1\nline 2\n");
    assert_eq!(lines(500, 9), "line 500\nno newline");
    assert_eq!(lines(502, 9), "");
    assert_eq!(lines(7, 0), "");
    let mut tail = |n| &text[map.tail(&mut cache, dir.path(), StreamName::Stdout, n).unwrap() as usize..];
    assert_eq!((tail(0), tail(1), tail(2)), ("", "no newline", "line 500\nno newline"));
    assert_eq!(tail(9999), text);
}
