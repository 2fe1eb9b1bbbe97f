//! Restores the desk from the ledger: the only place where the desk reads it.

use super::{DENIAL_COOLDOWN, Desk, TaskCaps};
use countersign_model::{Digest, Record, Timestamp};
use countersign_store::{
    clock,
    ledger::{LedgerError, LedgerReader},
};

impl Desk {
    pub(crate) fn restore(reader: &LedgerReader, caps: TaskCaps, policy: Option<Digest>) -> Result<Self, LedgerError> {
        let mut desk = Self::new(caps);
        desk.policy = policy;
        for (at, entered) in reader.register_entries()? {
            desk.register.enter(at, &entered);
        }
        let of_late = Timestamp::from_micros(clock::now().micros() - DENIAL_COOLDOWN.as_micros() as i64);
        // A replayed settled task leaves the desk again; a recent denial stays.
        for task in reader.tasks_denied_since(of_late)?.into_iter().chain(reader.open_tasks()?) {
            for (seq, line) in reader.decisions(task, 0)? {
                let record = Record::parse(&line).map_err(|source| LedgerError::Record { n: seq as i64, source })?;
                desk.replay(task, &line, &record);
            }
        }
        Ok(desk)
    }
}
