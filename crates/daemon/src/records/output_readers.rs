//! Output by range: chunk maps of the tasks that were read last. Each grows with its journal; every chunk is verified.

use super::Records;
use crate::lock;
use countersign_model::{Refusal, RefusalCode, StreamName, TaskId, TaskRefusal, TaskState};
use countersign_store::output::{ChunkCache, Gap, OutputChunk, OutputMap};
use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{Arc, Mutex},
};

const MAX_CACHED_READERS: usize = 16;

#[derive(Default)]
pub(super) struct OutputReaders {
    recent: Mutex<VecDeque<(TaskId, Arc<Mutex<OutputReader>>)>>,
}

/// The output of one task, as far as its journal has been read.
pub(crate) struct OutputReader {
    dir: PathBuf,
    map: OutputMap,
    cache: ChunkCache,
}

impl OutputReaders {
    pub(super) fn forget(&self, task: TaskId) {
        lock(&self.recent).retain(|(t, _)| *t != task);
    }
}

impl Records {
    /// The output of a task; none before it was launched.
    pub(crate) fn output(&self, state: &TaskState) -> Result<Option<Arc<Mutex<OutputReader>>>, TaskRefusal> {
        if let Some(at) = state.expired_at {
            let refusal = Refusal::new(RefusalCode::Expired, format!("the output of this task was removed at {at}"))
                .hint("its decisions and digests are kept: csn show");
            return Err(TaskRefusal::from(refusal).of_task(state.task_id));
        }
        let Some(first_seq) = state.first_seq() else { return Ok(None) };
        let mut recent = lock(&self.output_readers.recent);
        if let Some(at) = recent.iter().position(|(t, _)| *t == state.task_id) {
            let reading = Arc::clone(&recent[at].1);
            let entry = recent.remove(at);
            recent.extend(entry);
            return Ok(Some(reading));
        }
        let dir = self.home.task_dir(state.task_id);
        let map = match OutputMap::open(&dir, first_seq) {
            Ok(map) => map,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(unreadable_journal(&e)),
        };
        let reading = Arc::new(Mutex::new(OutputReader { dir, map, cache: ChunkCache::default() }));
        recent.push_back((state.task_id, Arc::clone(&reading)));
        if recent.len() > MAX_CACHED_READERS {
            recent.pop_front();
        }
        Ok(Some(reading))
    }

    /// Whether the task's output can be read without waiting for another reader and without reading its journal first.
    pub(crate) fn output_is_free(&self, task: TaskId) -> bool {
        lock(&self.output_readers.recent).iter().any(|(t, reading)| *t == task && reading.try_lock().is_ok())
    }
}

fn unreadable_journal(e: &std::io::Error) -> TaskRefusal {
    Refusal::new(RefusalCode::Internal, format!("the journal cannot be read: {e}")).into()
}

impl OutputReader {
    pub(crate) fn refresh(&mut self) -> Result<(), TaskRefusal> {
        self.map.refresh().map_err(|e| unreadable_journal(&e))
    }

    pub(crate) fn total(&self, stream: StreamName) -> u64 {
        self.map.total(stream)
    }

    pub(crate) fn spans(&self, stream: StreamName, offset: u64, max: u64) -> Vec<OutputChunk> {
        self.map.chunks_from(stream, offset, max)
    }

    pub(crate) fn gap(&self, stream: StreamName) -> Option<Gap> {
        self.map.gap(stream)
    }

    /// Where the last `lines` lines begin.
    pub(crate) fn tail_offset(&mut self, stream: StreamName, lines: u64) -> Result<u64, TaskRefusal> {
        let Self { dir, map, cache } = self;
        Ok(map.tail(cache, dir, stream, lines)?)
    }

    /// Where the lines from `line` on begin and end.
    pub(crate) fn line_range(&mut self, stream: StreamName, line: u64, lines: u64) -> Result<(u64, u64), TaskRefusal> {
        let Self { dir, map, cache } = self;
        Ok(map.lines(cache, dir, stream, line, lines)?)
    }

    pub(crate) fn read_bytes(&mut self, stream: StreamName, offset: u64, max: u64) -> Result<Vec<u8>, TaskRefusal> {
        let Self { dir, map, cache } = self;
        Ok(map.read(cache, dir, stream, offset, max)?)
    }
}
