//! Which keys are trusted: those named in advance, or the first one, and every key whose announcement a trusted key
//! signed.

use super::VerifyReport;
use crate::{
    PublicKey,
    ledger::{LedgerError, LedgerReader},
};
use countersign_model::{Decision, Digest, KeyAnnounced, Record, RecordContent};
use std::collections::HashMap;

/// How many characters of a key id are enough to name the key.
const SHORT_ID_CHARS: usize = 16;

/// An announced key, and where it was announced.
#[derive(Debug)]
pub struct KeyAnnouncement {
    pub place: String,
    /// The number of the decision that announced it; none if decisions have no numbers.
    pub decision: Option<u64>,
    pub announced: KeyAnnounced,
}

impl KeyAnnouncement {
    /// An announcement from a line of a file.
    #[must_use]
    pub fn from_line(place: String, announced: KeyAnnounced) -> Self {
        Self { place, decision: None, announced }
    }

    /// All announcements in a ledger. Lines that cannot be read are reported by the pass over the decisions.
    pub fn read_all(ledger: &LedgerReader) -> Result<Vec<Self>, LedgerError> {
        let mut query = ledger.conn.prepare_cached(
            "SELECT n, line FROM decisions WHERE task IS NULL AND line LIKE '%\"kind\":\"key.announced\"%' ORDER BY n",
        )?;
        let mut rows = query.query([])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            let Ok(Ok(record)) = row.get_ref(1)?.as_str().map(Record::parse) else { continue };
            if let RecordContent::Decision(Decision::Key(announced)) = record.what {
                let n: i64 = row.get(0)?;
                all.push(Self { place: format!("decision {n}"), decision: u64::try_from(n).ok(), announced });
            }
        }
        Ok(all)
    }
}

#[derive(Debug, Default)]
pub struct TrustedKeys(HashMap<Digest, TrustedKey>);

#[derive(Debug)]
struct TrustedKey {
    key: PublicKey,
    /// The number of the decision from which another key signs.
    replaced_by: Option<u64>,
}

impl TrustedKeys {
    /// The keys for a part of a home: an unsigned key matters there only if it has signed something.
    pub fn for_part(announcements: &[KeyAnnouncement], pinned: &[PublicKey], report: &mut VerifyReport) -> Self {
        Self::build(announcements, pinned, false, report)
    }

    /// The keys of a whole ledger.
    pub(super) fn for_ledger(
        announcements: &[KeyAnnouncement],
        pinned: &[PublicKey],
        report: &mut VerifyReport,
    ) -> Self {
        Self::build(announcements, pinned, true, report)
    }

    fn build(announcements: &[KeyAnnouncement], pinned: &[PublicKey], whole: bool, report: &mut VerifyReport) -> Self {
        let replaced = |id: Digest| {
            let last = announcements.iter().rposition(|a| a.announced.key == id)?;
            announcements.get(last + 1)?.decision
        };
        let trusted = |key: PublicKey| (key.id(), TrustedKey { replaced_by: replaced(key.id()), key });
        let mut keys = Self(pinned.iter().cloned().map(trusted).collect());
        for (index, KeyAnnouncement { place, announced, .. }) in announcements.iter().enumerate() {
            let Some(key) = PublicKey::from_bytes(&announced.public).filter(|k| k.id() == announced.key) else {
                report
                    .add_finding(place, format!("announces key {}, but its public key has another id", announced.key));
                continue;
            };
            if keys.0.contains_key(&announced.key) {
                continue;
            }
            let confirmed =
                announced.by.and_then(|by| keys.get(by)).is_some_and(|by| by.verifies_announcement(announced));
            if confirmed || pinned.is_empty() && index == 0 {
                keys.0.extend([trusted(key)]);
            } else if pinned.is_empty() && whole {
                report.add_finding(place, describe_unsigned(announcements, announced.key));
            }
        }
        if pinned.is_empty() && !keys.0.is_empty() {
            report.notes.push(
                "the key comes from the checked data itself; compare it with a key that you saved elsewhere (--key)"
                    .to_owned(),
            );
        }
        keys
    }

    #[must_use]
    pub fn get(&self, id: Digest) -> Option<&PublicKey> {
        self.0.get(&id).map(|t| &t.key)
    }

    /// The key, or why nothing that it signs is trusted.
    pub(super) fn signer(&self, id: Digest) -> Result<&PublicKey, String> {
        self.get(id).ok_or_else(|| format!("was signed by key {id}, which is not trusted"))
    }

    /// An error if another key had already replaced this one at this decision.
    pub(super) fn replaced_at(&self, id: Digest, decision: u64) -> Result<(), String> {
        match self.0.get(&id).and_then(|t| t.replaced_by) {
            Some(replaced) if decision >= replaced => {
                Err(format!("was signed by key {id} after it had been replaced (decision {replaced})"))
            }
            _ => Ok(()),
        }
    }
}

/// What to do about a key that no earlier key signed: trust starts with the first key, so it is named as well.
fn describe_unsigned(announcements: &[KeyAnnouncement], key: Digest) -> String {
    let short = |key: Digest| key.to_string()[..SHORT_ID_CHARS].to_owned();
    let first = announcements.first().map_or(key, |a| a.announced.key);
    format!(
        "announces key {key}, which no earlier key signed; if you replaced a lost key: csn keys export {} > OLD.pem; \
         csn keys export {} > NEW.pem; csn verify --key OLD.pem --key NEW.pem",
        short(first),
        short(key)
    )
}
