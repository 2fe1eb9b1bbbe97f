//! The id of a home: one decision in the ledger, the first one of a new home. A home of an earlier version gets its id
//! when a daemon opens it; readers never need one.

use crate::{
    clock,
    ledger::{Ledger, LedgerEntry, LedgerError, LedgerReader},
    random,
};
use countersign_model::{Decision, HomeId, IdMint, Record, RecordContent, Statement};

impl Ledger {
    /// The id of this home. A home without an id gets one now.
    pub fn ensure_home_id(&mut self) -> Result<HomeId, LedgerError> {
        self.restore_home_id()?;
        if let Some(named) = self.reader()?.home_id()? {
            return Ok(named);
        }
        let home = HomeId::mint(&mut IdMint::default(), clock::now().millis(), u32::from_le_bytes(random()));
        self.record_home_id(home)?;
        Ok(home)
    }

    /// Records the id that the receipts name if the decision about it is lost, so that the home keeps its identity.
    pub(crate) fn restore_home_id(&mut self) -> Result<(), LedgerError> {
        let reader = self.reader()?;
        if reader.home_id()?.is_some() {
            return Ok(());
        }
        match reader.home_id_of_receipts()? {
            Some(home) => self.record_home_id(home),
            None => Ok(()),
        }
    }

    fn record_home_id(&mut self, home_id: HomeId) -> Result<(), LedgerError> {
        let (at, decision) = (clock::now(), Decision::HomeNamed { home_id });
        let line = Record::decision_line(0, at, &decision);
        self.commit(&[LedgerEntry { task: None, seq: 0, at, line, decision, receipt: None }])
    }
}

impl LedgerReader {
    /// The id of this home; none if no daemon has opened it since homes have ids.
    pub fn home_id(&self) -> Result<Option<HomeId>, LedgerError> {
        Ok(self.named_homes(1)?.first().map(|(_, home)| *home))
    }

    /// The decisions that name this home, in order, at most `limit`. There is only one, unless the ledger was tampered
    /// with.
    pub(crate) fn named_homes(&self, limit: u32) -> Result<Vec<(i64, HomeId)>, LedgerError> {
        let mut query = self.conn.prepare_cached(
            "SELECT n, line FROM decisions WHERE task IS NULL AND line LIKE '%\"kind\":\"home.named\"%' ORDER BY n LIMIT ?1",
        )?;
        let mut rows = query.query([limit])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            let (n, line): (i64, String) = (row.get(0)?, row.get(1)?);
            let record = Record::parse(&line).map_err(|source| LedgerError::Record { n, source })?;
            if let RecordContent::Decision(Decision::HomeNamed { home_id }) = record.what {
                all.push((n, home_id));
            }
        }
        Ok(all)
    }

    /// The home that the newest receipt names. Signatures are not checked here; `csn verify` does that.
    fn home_id_of_receipts(&self) -> Result<Option<HomeId>, LedgerError> {
        let Some((number, _)) = self.last_receipt()? else { return Ok(None) };
        let home = |payload: &str| serde_json::from_str::<Statement>(payload).ok()?.predicate.home_id;
        Ok(self.receipt(number)?.and_then(|signed| home(&signed.payload)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn ledger(dir: &TempDir) -> Ledger {
        Ledger::open(&dir.path().join("ledger.db")).unwrap()
    }

    #[test]
    fn a_home_is_named_once_and_in_its_first_decision() {
        let dir = TempDir::new().unwrap();
        let home = ledger(&dir).ensure_home_id().unwrap();
        assert_eq!(ledger(&dir).ensure_home_id().unwrap(), home, "it survives restarts");
        let ledger = ledger(&dir);
        assert_eq!(ledger.last_number(), 1);
        assert_eq!(ledger.reader().unwrap().named_homes(9).unwrap(), [(1, home)]);
    }

    #[test]
    fn two_homes_have_two_ids() {
        let dirs = [TempDir::new().unwrap(), TempDir::new().unwrap()];
        assert_ne!(ledger(&dirs[0]).ensure_home_id().unwrap(), ledger(&dirs[1]).ensure_home_id().unwrap());
    }

    #[test]
    fn reading_a_home_without_an_id_gives_it_none() {
        let dir = TempDir::new().unwrap();
        let mut ledger = ledger(&dir);
        assert_eq!(ledger.reader().unwrap().home_id().unwrap(), None);
        ledger.restore_home_id().unwrap();
        assert_eq!(ledger.last_number(), 0, "no receipt names a home");
    }
}
