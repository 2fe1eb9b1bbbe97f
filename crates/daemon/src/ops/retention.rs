//! Retention: the directories of finished tasks go when they are old or too many. What was decided stays, and so do
//! the digests of what went.
//!
//! Decided first, removed then: after a crash in between, the next round removes what has been decided about.

use super::{ApiResult, Ops};
use crate::desk::DeskEvent;
use countersign_model::{
    Refusal, RefusalCode, StreamState, StreamTotal, StreamTotals, TaskId, Text, Timestamp,
    api::{GcRemoved, GcReport},
};
use countersign_store::{RetentionConfig, clock};
use std::{collections::BTreeMap, fs, io, path::Path, sync::Arc, time::Duration};

/// How often the house tidies up, and how long after its start for the first time.
const EVERY: Duration = Duration::from_secs(600);
/// So long after it was let run by others, in microseconds, nobody will say how something went.
const NEVER_TOLD: i64 = 6 * 3600 * 1_000_000;
const FIRST: Duration = Duration::from_secs(20);
/// What has just settled gets its receipt first.
const SEALED_WITHIN: Duration = Duration::from_secs(2);

/// Tidies up for as long as the house serves.
pub(crate) async fn tick(ops: Arc<Ops>) {
    tokio::time::sleep(FIRST).await;
    if let Err(e) = finish(&ops).await {
        crate::log!("retention: {e}");
    }
    loop {
        ops.commit.give_up(Timestamp::from_micros(clock::now().micros() - NEVER_TOLD));
        match tidy(&ops, ops.config.retention.clone(), false).await {
            Ok(done) if done.removed.is_empty() => {}
            Ok(done) => crate::log!("retention: {} tasks, {} bytes removed", done.removed.len(), done.bytes),
            Err(e) => crate::log!("retention: {e}"),
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Removes what an earlier house has decided about and not removed: a crash came between.
async fn finish(ops: &Arc<Ops>) -> Result<(), Refusal> {
    let _one = ops.tidying.lock().await;
    for task in found(ops).await?.into_keys() {
        if ops.records.ledger(|r| r.is_expired(task)).map_err(|e| internal(e.to_string()))? {
            take_away(ops, task).await?;
        }
    }
    Ok(())
}

async fn found(ops: &Arc<Ops>) -> Result<BTreeMap<TaskId, u64>, Refusal> {
    let ops = Arc::clone(ops);
    crate::blocking(move || on_disk(&ops)).await?.map_err(|e| internal(e.to_string()))
}

/// One round. Oldest first: ids are in the order in which tasks were asked.
pub(crate) async fn tidy(ops: &Arc<Ops>, rule: RetentionConfig, dry: bool) -> Result<GcReport, Refusal> {
    ops.sealed_so_far(SEALED_WITHIN).await;
    let _one = ops.tidying.lock().await;
    let found = found(ops).await?;
    let (mut done, now) = (GcReport::default(), clock::now());
    let mut left: u64 = found.values().sum();
    let oldest = Duration::from_secs(rule.days.saturating_mul(86_400));
    for (task, bytes) in found {
        let too_much = left > rule.bytes;
        // A task cannot have settled before it was asked: of the young ones the ledger need not be asked.
        let known = match too_much || now.since(task.created_at()) >= oldest {
            // What has no receipt yet is still needed for it, however long that takes.
            true if !ops.records.ledger(|r| r.is_sealed(task)).map_err(|e| internal(e.to_string()))? => None,
            true => ops.records.ledger(|r| r.settled_at(task)).map_err(|e| internal(e.to_string()))?,
            false => None,
        };
        let why = match known {
            Some((at, _)) if now.since(at) >= oldest => Text::from_static("older than is kept"),
            Some(_) if too_much => Text::from_static("more than is kept"),
            // Young enough, or it has not settled: that is never touched.
            _ => {
                done.kept_tasks += 1;
                continue;
            }
        };
        if let (false, Some((_, next_seq))) = (dry, known)
            && let Err(e) = remove(ops, task, next_seq, bytes, why.clone()).await
        {
            // One that cannot be removed does not keep the others.
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

/// Every task that has a directory, and how much is in it.
fn on_disk(ops: &Ops) -> io::Result<BTreeMap<TaskId, u64>> {
    let mut found = BTreeMap::new();
    for shard in entries(&ops.home.tasks())? {
        for dir in entries(&shard.path())? {
            if let Some(task) = dir.file_name().to_str().and_then(|name| name.parse::<TaskId>().ok()) {
                found.insert(task, size(&dir.path()));
            }
        }
    }
    Ok(found)
}

fn entries(dir: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(dir) {
        Ok(entries) => entries.collect(),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

fn size(dir: &Path) -> u64 {
    let files = entries(dir).unwrap_or_default();
    files.iter().filter_map(|f| f.metadata().ok()).filter(|m| m.is_file()).map(|m| m.len()).sum()
}

async fn remove(ops: &Arc<Ops>, task: TaskId, seq: u64, bytes: u64, why: Text) -> Result<(), Refusal> {
    // What has been decided about is only removed: a crash came between.
    let decided = ops.records.ledger(|r| r.is_expired(task)).map_err(|e| internal(e.to_string()))?;
    if !decided {
        let streams = {
            let ops = Arc::clone(ops);
            crate::blocking(move || totals(&ops, task)).await?
        };
        // What cannot be read has no digests to keep; it goes all the same.
        let streams = streams.unwrap_or_default();
        // That it was the house that removed it, its key says: a line in the ledger anybody could add.
        let signed = Some(ops.sealer.expiry(task).await?);
        ops.commit.decide(vec![DeskEvent::Expired { task, seq, why, bytes, streams, signed }]).await?;
    }
    countersign_store::crash::point("retention.before_remove");
    take_away(ops, task).await
}

async fn take_away(ops: &Arc<Ops>, task: TaskId) -> Result<(), Refusal> {
    ops.records.forget(task);
    let dir = ops.home.task_dir(task);
    crate::blocking(move || match fs::remove_dir_all(&dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    })
    .await?
    .map_err(|e| internal(format!("{task}: its directory cannot be removed: {e}")))
}

fn totals(ops: &Ops, task: TaskId) -> ApiResult<StreamTotals> {
    let state = ops.records.state_once(task)?;
    let streams = state.map(|s| s.io.streams).unwrap_or_default();
    let total = |s: StreamState| {
        let bytes = s.bytes.saturating_sub(s.dropped);
        s.sha256.map(|sha256| StreamTotal { bytes, dropped: s.dropped, sha256 })
    };
    Ok(streams.into_iter().filter_map(|(name, s)| Some((name, total(s)?))).collect())
}
