//! The stream of a task as readers see it: prologue and epilogue from the ledger, the journal between them, with one
//! numbering. Only this module combines the three.

use crate::{
    Home, journal,
    ledger::{LedgerError, LedgerReader},
};
use countersign_model::{Decision, Digest, HashChain, Record, RecordContent, TaskId, TaskState};
use std::{io, path::PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("cannot read the journal: {0}")]
    Journal(#[from] io::Error),
    #[error("record {seq} cannot be parsed: {source}")]
    Record { seq: u64, source: countersign_model::RecordError },
}

/// A reader of one task's stream. Its only state is a cursor.
pub struct TaskStream {
    task: TaskId,
    dir: PathBuf,
    next_seq: u64,
    /// The number of the journal's first record, once it is known.
    first_seq: Option<u64>,
    journal: Option<journal::JournalReader>,
}

impl TaskStream {
    /// Starts at record `next_seq`.
    #[must_use]
    pub fn starting_at(home: &Home, task: TaskId, next_seq: u64) -> Self {
        Self { task, dir: home.task_dir(task), next_seq, first_seq: None, journal: None }
    }

    /// Continues after a known state.
    #[must_use]
    pub fn continuing(home: &Home, state: &TaskState) -> Self {
        Self { first_seq: state.first_seq(), ..Self::starting_at(home, state.task_id, state.next_seq) }
    }

    #[must_use]
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Continues at `seq`, which must not be before the current position.
    pub fn skip_to(&mut self, seq: u64) -> io::Result<()> {
        self.next_seq = seq;
        match &mut self.journal {
            Some(journal) => journal.skip_to(seq),
            None => Ok(()),
        }
    }

    /// The next lines that exist, up to about `max` bytes of journal. Empty if there are none yet.
    pub fn next_lines(&mut self, ledger: &LedgerReader, max: usize) -> Result<Vec<(u64, String)>, StreamError> {
        // Inside the journal its own lines come first; asking the ledger each time would cost more than reading.
        if let Some(lines) = self.journal_lines(max)? {
            return Ok(lines);
        }
        let mut lines = ledger.decisions(self.task, self.next_seq)?;
        let contiguous = lines.iter().zip(self.next_seq..).take_while(|((seq, _), due)| seq == due).count();
        if contiguous == 0 {
            if self.journal.is_none() {
                self.open_journal(ledger)?;
            }
            // An epilogue after a gap is decided after the journal was written. The lines between are in the journal
            // now, or they are lost; then the numbering has a gap, and readers still see the end of the task.
            if let Some(lines) = self.journal_lines(max)? {
                return Ok(lines);
            }
        } else {
            lines.truncate(contiguous);
        }
        if let Some((last, _)) = lines.last() {
            self.next_seq = last + 1;
        }
        Ok(lines)
    }

    /// The state after everything that exists now.
    pub fn read_state(home: &Home, task: TaskId, ledger: &LedgerReader) -> Result<Option<TaskState>, StreamError> {
        let mut stream = Self::starting_at(home, task, 0);
        let mut state = None;
        stream.fold_into(ledger, &mut state)?;
        Ok(state)
    }

    /// Applies the records since the last call.
    pub fn fold_into(&mut self, ledger: &LedgerReader, state: &mut Option<TaskState>) -> Result<(), StreamError> {
        loop {
            let lines = self.next_lines(ledger, 256 * 1024)?;
            if lines.is_empty() {
                return Ok(());
            }
            for (seq, line) in lines {
                let record = Record::parse(&line).map_err(|source| StreamError::Record { seq, source })?;
                match state {
                    Some(state) => state.apply(&record),
                    None => *state = TaskState::begin(self.task, &record),
                }
            }
        }
    }

    fn journal_lines(&mut self, max: usize) -> Result<Option<Vec<(u64, String)>>, StreamError> {
        let Some(journal) = &mut self.journal else { return Ok(None) };
        let lines = journal.lines(max)?;
        if lines.is_empty() {
            return Ok(None);
        }
        self.next_seq = journal.next_seq();
        Ok(Some(lines))
    }

    fn open_journal(&mut self, ledger: &LedgerReader) -> Result<(), StreamError> {
        if self.first_seq.is_none() {
            self.first_seq = read_prologue(ledger, self.task)?.map(|(first_seq, _)| first_seq);
        }
        let Some(first_seq) = self.first_seq else { return Ok(()) };
        if self.next_seq < first_seq {
            return Ok(());
        }
        let mut journal = match journal::JournalReader::open(&self.dir, first_seq) {
            Ok(journal) => journal,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        journal.skip_to(self.next_seq)?;
        if journal.next_seq() == self.next_seq {
            self.journal = Some(journal);
        }
        Ok(())
    }
}

/// The number of the journal's first record, and the hash of the decisions before it. None before the launch is
/// decided, because only then the number is known.
pub fn read_prologue(ledger: &LedgerReader, task: TaskId) -> Result<Option<(u64, Digest)>, LedgerError> {
    Ok(find_prologue(task, &ledger.decisions(task, 0)?))
}

/// Like [`read_prologue`], from the lines of all decisions of a task.
pub(crate) fn find_prologue(task: TaskId, lines: &[(u64, String)]) -> Option<(u64, Digest)> {
    let mut chain = HashChain::for_prologue(task);
    for (seq, line) in lines {
        chain.push_line(line);
        let launched = r#""kind":"task.launched""#;
        if line.contains(launched)
            && let Ok(Record { what: RecordContent::Decision(Decision::Launched { .. }), .. }) = Record::parse(line)
        {
            return Some((seq + 1, chain.head()));
        }
    }
    None
}
