//! What can be told of tasks without their ledger: a scratch ledger made from the task directories, for reading only.
//!
//! The real one is not touched. What was asked, by whom and why it was allowed is not in a journal, and so not here.

use crate::{
    Home, clock, journal,
    ledger::{Entry, Ledger, LedgerError},
};
use countersign_model::{
    At, Audience, CredentialKind, Decision, Digest, Frame, Mode, OnSessionEnd, Outcome, PrincipalId, Profile, Record,
    StreamName, TaskId, Text, Tool, What,
};
use std::{
    fs,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::Path,
};

/// The end of a journal that is looked at for its last frame.
const TAIL: u64 = 1024 * 1024;
const BATCH: usize = 1024;

/// Makes a scratch ledger anew, over whatever task directories there are.
pub fn salvage(home: &Home, scratch: &Path) -> Result<Ledger, LedgerError> {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = scratch.as_os_str().to_owned();
        name.push(suffix);
        let _ = fs::remove_file(name);
    }
    let mut ledger = Ledger::open(scratch)?;
    let mut entries = Vec::new();
    for task in tasks(home) {
        entries.extend(told(home, task).unwrap_or_default());
        if entries.len() >= BATCH {
            ledger.commit(&std::mem::take(&mut entries))?;
        }
    }
    if !entries.is_empty() {
        ledger.commit(&entries)?;
    }
    Ok(ledger)
}

/// Every task that has a directory, in order.
pub(crate) fn tasks(home: &Home) -> Vec<TaskId> {
    let children = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect::<Vec<_>>();
    let all = children(&home.tasks()).into_iter().flat_map(|shard| children(&shard));
    let mut tasks: Vec<TaskId> = all.filter_map(|p| p.file_name()?.to_str()?.parse().ok()).collect();
    tasks.sort_unstable();
    tasks
}

/// The decisions that a journal lets one guess: that it began, and how it ended.
fn told(home: &Home, task: TaskId) -> io::Result<Vec<Entry>> {
    let dir = home.task_dir(task);
    let mut reader = journal::Reader::open(&dir, 0)?;
    let Some((_, first)) = reader.lines(64 * 1024)?.into_iter().next() else { return Ok(Vec::new()) };
    let first = Record::parse(&first).map_err(io::Error::other)?;
    let mode = if dir.join(StreamName::Pty.file()).exists() { Mode::Pty } else { Mode::Pipes };
    let unknown = Text::of("not known: the ledger cannot be read");
    let planned = Decision::Planned {
        plan_digest: Digest::sha256(&[]),
        display: unknown.clone(),
        verb: Text::of("unknown"),
        cwd: Text::of("unknown"),
        mode,
        tool: Tool::Shell,
        title: None,
        rationale: None,
        labels: Default::default(),
        session: None,
        principal: PrincipalId::owner(),
        credential: CredentialKind::Person,
        risks: Vec::new(),
        audience: Audience::Personal,
        profile: Profile::Safe,
        background: false,
        limits: Box::default(),
        workspace: None,
        on_session_end: OnSessionEnd::Keep,
        idempotency: None,
    };
    let at = task.asked_about();
    let mut entries = vec![entry(task, 0, at, planned)];
    // What was decided between asking and launch has its numbers, and nothing else is known of it.
    for seq in 1..first.seq.saturating_sub(1) {
        entries.push(entry(task, seq, at, Decision::Lost { known: unknown.clone() }));
    }
    entries.push(entry(task, first.seq - 1, first.at, Decision::Launched { shim_pid: 0, first_seq: first.seq }));
    if let Some((seq, at, outcome)) = ending(&dir)? {
        entries.push(entry(task, seq, at, Decision::Settled { outcome, journal_head: None, recovered: true }));
    }
    Ok(entries)
}

/// How a task ended; none while its journal has a writer.
fn ending(dir: &Path) -> io::Result<Option<(u64, At, Outcome)>> {
    let mut file = crate::output::regular(&dir.join("journal"))?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(TAIL)))?;
    let mut tail = Vec::new();
    file.take(TAIL).read_to_end(&mut tail)?;
    let text = String::from_utf8_lossy(&tail);
    let last = text.lines().rev().find_map(|line| Record::parse(line).ok());
    if let Some(Record { seq, at, what: What::Frame(Frame::Closed { outcome, .. }), .. }) = last {
        return Ok(Some((seq + 1, at, outcome)));
    }
    if journal::take_over(dir)?.is_none() {
        return Ok(None);
    }
    let why = Text::of("its supervisor is gone and its journal was not closed");
    let (seq, at) = last.map_or((u64::MAX, clock::now()), |r| (r.seq + 1, r.at));
    Ok((seq != u64::MAX).then_some((seq, at, Outcome::Lost { why })))
}

fn entry(task: TaskId, seq: u64, at: At, decision: Decision) -> Entry {
    let line = Record::decision_line(seq, at, &decision);
    Entry { task: Some(task), seq, at, line, decision, receipt: None }
}
