//! Retention: the directories of finished tasks go when they are old or too many. What was decided stays, and so do
//! the digests of what went.
//!
//! Decided first, removed then: after a crash in between, the next round removes what has been decided about.

use crate::{desk::Event, house::House, office::Call, seal::Work};
use countersign_model::{At, Code, Refusal, TaskId, Text};
use countersign_store::{
    RetentionConfig, clock,
    stream::{Stream, StreamError},
};
use serde::Serialize;
use std::{collections::BTreeMap, fs, io, path::Path, sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// How often the house tidies up, and how long after its start for the first time.
const EVERY: Duration = Duration::from_secs(600);
/// So long after it was let run by others, in microseconds, nobody will say how something went.
const NEVER_TOLD: i64 = 6 * 3600 * 1_000_000;
const FIRST: Duration = Duration::from_secs(20);
/// What has just settled gets its receipt first.
const SEALED_WITHIN: Duration = Duration::from_secs(2);

/// What a round did, or would do.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Tidied {
    pub(crate) removed: Vec<Removed>,
    pub(crate) bytes: u64,
    /// What is left, of finished and of running tasks.
    pub(crate) kept_tasks: u64,
    pub(crate) kept_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Removed {
    pub(crate) task_id: TaskId,
    pub(crate) bytes: u64,
    pub(crate) why: Text,
}

/// Tidies up for as long as the house serves.
pub(crate) async fn tick(house: Arc<House>) {
    tokio::time::sleep(FIRST).await;
    if let Err(e) = finish(&house).await {
        crate::log!("retention: {e}");
    }
    loop {
        let _ = house.calls.send(Call::GiveUp { before: At::from_micros(clock::now().micros() - NEVER_TOLD) });
        match tidy(&house, house.config.retention.clone(), false).await {
            Ok(done) if done.removed.is_empty() => {}
            Ok(done) => crate::log!("retention: {} tasks, {} bytes removed", done.removed.len(), done.bytes),
            Err(e) => crate::log!("retention: {e}"),
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Removes what an earlier house has decided about and not removed: a crash came between.
async fn finish(house: &Arc<House>) -> Result<(), Refusal> {
    let _one = house.tidying.lock().await;
    for task in found(house).await?.into_keys() {
        if house.readers.with(|r| r.expired(task)).map_err(|e| internal(e.to_string()))? {
            take_away(house, task).await?;
        }
    }
    Ok(())
}

async fn found(house: &Arc<House>) -> Result<BTreeMap<TaskId, u64>, Refusal> {
    let house = Arc::clone(house);
    let found = tokio::task::spawn_blocking(move || on_disk(&house)).await;
    found.map_err(|e| internal(e.to_string()))?.map_err(|e| internal(e.to_string()))
}

/// One round. Oldest first: ids are in the order in which tasks were asked.
pub(crate) async fn tidy(house: &Arc<House>, rule: RetentionConfig, dry: bool) -> Result<Tidied, Refusal> {
    house.sealed_so_far(SEALED_WITHIN).await;
    let _one = house.tidying.lock().await;
    let found = found(house).await?;
    let (mut done, now) = (Tidied::default(), clock::now());
    let mut left: u64 = found.values().sum();
    let oldest = Duration::from_secs(rule.days.saturating_mul(86_400));
    for (task, bytes) in found {
        let too_much = left > rule.bytes;
        // A task cannot have settled before it was asked: of the young ones the ledger need not be asked.
        let known = match too_much || now.since(task.asked_about()) >= oldest {
            // What has no receipt yet is still needed for it, however long that takes.
            true if !house.readers.with(|r| r.is_sealed(task)).map_err(|e| internal(e.to_string()))? => None,
            true => house.readers.with(|r| r.settled(task)).map_err(|e| internal(e.to_string()))?,
            false => None,
        };
        let why = match known {
            Some((at, _)) if now.since(at) >= oldest => Text::of("older than is kept"),
            Some(_) if too_much => Text::of("more than is kept"),
            // Young enough, or it has not settled: that is never touched.
            _ => {
                done.kept_tasks += 1;
                continue;
            }
        };
        if let (false, Some((_, next_seq))) = (dry, known)
            && let Err(e) = remove(house, task, next_seq, bytes, why.clone()).await
        {
            // One that cannot be removed does not keep the others.
            crate::log!("retention: {task}: {e}");
            done.kept_tasks += 1;
            continue;
        }
        left -= bytes;
        done.bytes += bytes;
        done.removed.push(Removed { task_id: task, bytes, why });
    }
    done.kept_bytes = left;
    Ok(done)
}

fn internal(e: String) -> Refusal {
    Refusal::new(Code::Internal, e)
}

/// Every task that has a directory, and how much is in it.
fn on_disk(house: &House) -> io::Result<BTreeMap<TaskId, u64>> {
    let mut found = BTreeMap::new();
    for shard in entries(&house.home.tasks())? {
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

async fn remove(house: &Arc<House>, task: TaskId, seq: u64, bytes: u64, why: Text) -> Result<(), Refusal> {
    // What has been decided about is only removed: a crash came between.
    let decided = house.readers.with(|r| r.expired(task)).map_err(|e| internal(e.to_string()))?;
    if !decided {
        let streams = {
            let house = Arc::clone(house);
            tokio::task::spawn_blocking(move || totals(&house, task)).await
        };
        // What cannot be read has no digests to keep; it goes all the same.
        let streams = streams.map_err(|e| internal(e.to_string()))?.unwrap_or_default();
        let gone = || Refusal::new(Code::Draining, "the house is going down");
        // That it was the house that removed it, its key says: a line in the ledger anybody could add.
        let (reply, word) = oneshot::channel();
        house.sealer.send(Work::Expiry { task, reply }).map_err(|_| gone())?;
        let signed = Some(word.await.map_err(|_| gone())??);
        let event = Event::Expired { task, seq, why, bytes, streams, signed };
        let (reply, written) = oneshot::channel();
        house.calls.send(Call::Decide { events: vec![event], reply }).map_err(|_| gone())?;
        written.await.map_err(|_| gone())??;
    }
    countersign_store::crash::point("retention.before_remove");
    take_away(house, task).await
}

async fn take_away(house: &Arc<House>, task: TaskId) -> Result<(), Refusal> {
    house.forget(task);
    let dir = house.home.task_dir(task);
    tokio::task::spawn_blocking(move || match fs::remove_dir_all(&dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    })
    .await
    .map_err(|e| internal(e.to_string()))?
    .map_err(|e| internal(format!("{task}: its directory cannot be removed: {e}")))
}

fn totals(house: &House, task: TaskId) -> Result<countersign_model::StreamTotals, StreamError> {
    let state = house.readers.with(|r| Ok(Stream::state(&house.home, task, r)))??;
    let streams = state.map(|s| s.streams).unwrap_or_default();
    let total = |s: countersign_model::StreamState| {
        let bytes = s.bytes.saturating_sub(s.dropped);
        s.sha256.map(|sha256| countersign_model::StreamTotal { bytes, dropped: s.dropped, sha256 })
    };
    Ok(streams.into_iter().filter_map(|(name, s)| Some((name, total(s)?))).collect())
}
