//! Retention: removes the directories of finished tasks when they are old or take too much space. Decisions stay, and
//! so do the digests of removed files.
//!
//! The decision comes before the removal: after a crash in between, the next run removes what was decided.

use super::{ApiResult, Ops};
use crate::desk::DeskEvent;
use countersign_model::{
    Refusal, RefusalCode, StreamState, StreamTotal, StreamTotals, TaskId, Text, Timestamp,
    api::{GcRemoved, GcReport},
};
use countersign_store::{RetentionConfig, clock};
use std::{collections::BTreeMap, fs, io, path::Path, sync::Arc, time::Duration};

/// How often retention runs, and how long after the start for the first time.
const RETENTION_INTERVAL: Duration = Duration::from_secs(600);
/// How long an agent may take to report the outcome of a command that it runs itself, in microseconds.
const MAX_UNREPORTED_MICROS: i64 = 6 * 3600 * 1_000_000;
const FIRST_RUN_DELAY: Duration = Duration::from_secs(20);
/// How long retention waits for receipts: a settled task needs its receipt first.
const SEALING_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs retention while the daemon serves.
pub(crate) async fn run_periodically(ops: Arc<Ops>) {
    tokio::time::sleep(FIRST_RUN_DELAY).await;
    if let Err(e) = finish_decided(&ops).await {
        crate::log!("retention: {e}");
    }
    loop {
        ops.commit.give_up_unreported(Timestamp::from_micros(clock::now().micros() - MAX_UNREPORTED_MICROS));
        match run_once(&ops, ops.config.retention.clone(), false).await {
            Ok(done) if done.removed.is_empty() => {}
            Ok(done) => crate::log!("retention: removed {} of {}", count_bytes(done.bytes), count_tasks(&done)),
            Err(e) => crate::log!("retention: {e}"),
        }
        tokio::time::sleep(RETENTION_INTERVAL).await;
    }
}

fn count_tasks(report: &GcReport) -> String {
    match report.removed.len() {
        1 => "1 task".to_owned(),
        count => format!("{count} tasks"),
    }
}

fn count_bytes(bytes: u64) -> String {
    if bytes == 1 { "1 byte".to_owned() } else { format!("{bytes} bytes") }
}

/// Removes what an earlier daemon decided to remove, before it crashed.
async fn finish_decided(ops: &Arc<Ops>) -> Result<(), Refusal> {
    let _lock = ops.retention_lock.lock().await;
    for task in tasks_on_disk(ops).await?.into_keys() {
        if ops.records.read_ledger(|r| r.is_expired(task)).map_err(|e| internal(e.to_string()))? {
            remove_directory(ops, task).await?;
        }
    }
    Ok(())
}

async fn tasks_on_disk(ops: &Arc<Ops>) -> Result<BTreeMap<TaskId, u64>, Refusal> {
    let ops = Arc::clone(ops);
    crate::blocking(move || list_task_directories(&ops)).await?.map_err(|e| internal(e.to_string()))
}

/// One run. Oldest first: ids are in the order in which tasks were created.
pub(crate) async fn run_once(ops: &Arc<Ops>, rule: RetentionConfig, dry: bool) -> Result<GcReport, Refusal> {
    ops.wait_for_receipts(SEALING_TIMEOUT).await;
    let _lock = ops.retention_lock.lock().await;
    let found = tasks_on_disk(ops).await?;
    let (mut done, now) = (GcReport::default(), clock::now());
    let mut left: u64 = found.values().sum();
    let oldest = Duration::from_secs(rule.days.saturating_mul(86_400));
    for (task, bytes) in found {
        let too_much = left > rule.bytes;
        // A task cannot have settled before it was created: the ledger need not be read for young ones.
        let due = too_much || now.since(task.created_at()) >= oldest;
        // The files of a task without a receipt are still needed for it, however long that takes.
        let due = due && ops.records.read_ledger(|r| r.is_sealed(task)).map_err(|e| internal(e.to_string()))?;
        let known = if due {
            ops.records.read_ledger(|r| r.settled_at(task)).map_err(|e| internal(e.to_string()))?
        } else {
            None
        };
        let why = match known {
            Some((at, _)) if now.since(at) >= oldest => Text::from_static("older than the retention period"),
            Some(_) if too_much => Text::from_static("over the size limit of retention"),
            // Young enough, or not settled.
            _ => {
                done.kept_tasks += 1;
                continue;
            }
        };
        if let (false, Some((_, next_seq))) = (dry, known)
            && let Err(e) = expire_task(ops, task, next_seq, bytes, why.clone()).await
        {
            // A task that cannot be removed does not stop the others.
            crate::log!("retention: {task}: {e}");
            done.kept_tasks += 1;
            continue;
        }
        left -= bytes;
        done.bytes += bytes;
        done.removed.push(GcRemoved { task_id: task, bytes, why });
    }
    done.kept_bytes = left;
    Ok(done)
}

fn internal(e: String) -> Refusal {
    Refusal::new(RefusalCode::Internal, e)
}

/// Every task with a directory, and the size of its files.
fn list_task_directories(ops: &Ops) -> io::Result<BTreeMap<TaskId, u64>> {
    let mut found = BTreeMap::new();
    for shard in read_entries(&ops.home.tasks())? {
        for dir in read_entries(&shard.path())? {
            if let Some(task) = dir.file_name().to_str().and_then(|name| name.parse::<TaskId>().ok()) {
                found.insert(task, directory_size(&dir.path()));
            }
        }
    }
    Ok(found)
}

fn read_entries(dir: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(dir) {
        Ok(entries) => entries.collect(),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

fn directory_size(dir: &Path) -> u64 {
    let files = read_entries(dir).unwrap_or_default();
    files.iter().filter_map(|f| f.metadata().ok()).filter(|m| m.is_file()).map(|m| m.len()).sum()
}

async fn expire_task(ops: &Arc<Ops>, task: TaskId, seq: u64, bytes: u64, why: Text) -> Result<(), Refusal> {
    // If the removal was already decided, a crash came before it.
    let decided = ops.records.read_ledger(|r| r.is_expired(task)).map_err(|e| internal(e.to_string()))?;
    if !decided {
        let streams = {
            let ops = Arc::clone(ops);
            crate::blocking(move || stream_totals(&ops, task)).await?
        };
        // A task that cannot be read has no digests to keep; it is removed nevertheless.
        let streams = streams.unwrap_or_default();
        // The signature proves that the daemon removed it: anyone could add a line to the ledger.
        let signed = Some(ops.sealer.signed_expiry(task).await?);
        ops.commit.decide(vec![DeskEvent::Expired { task, seq, why, bytes, streams, signed }]).await?;
    }
    countersign_store::crash::point("retention.before_remove");
    remove_directory(ops, task).await
}

async fn remove_directory(ops: &Arc<Ops>, task: TaskId) -> Result<(), Refusal> {
    ops.records.forget_task(task);
    let dir = ops.home.task_dir(task);
    crate::blocking(move || match fs::remove_dir_all(&dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    })
    .await?
    .map_err(|e| internal(format!("{task}: its directory cannot be removed: {e}")))
}

fn stream_totals(ops: &Ops, task: TaskId) -> ApiResult<StreamTotals> {
    let state = ops.records.state_once(task)?;
    let streams = state.map(|s| s.io.streams).unwrap_or_default();
    let total = |s: StreamState| {
        let bytes = s.bytes.saturating_sub(s.dropped);
        s.sha256.map(|sha256| StreamTotal { bytes, dropped: s.dropped, sha256 })
    };
    Ok(streams.into_iter().filter_map(|(name, s)| Some((name, total(s)?))).collect())
}
