//! Which keys are trusted: those that were named beforehand, or the first one; and those that a trusted one speaks for.

use super::VerifyReport;
use crate::{
    PublicKey,
    ledger::{LedgerError, LedgerReader},
};
use countersign_model::{Decision, Digest, KeyAnnounced, Record, RecordContent};
use std::collections::HashMap;

/// So much of a key's name is enough to ask for it.
const SHORT: usize = 16;

/// A key that was announced, and where.
#[derive(Debug)]
pub struct KeyAnnouncement {
    pub place: String,
    /// The decision that announced it; none where decisions have no numbers.
    pub decision: Option<u64>,
    pub said: KeyAnnounced,
}

impl KeyAnnouncement {
    /// From a line of a file.
    #[must_use]
    pub fn in_line(place: String, said: KeyAnnounced) -> Self {
        Self { place, decision: None, said }
    }

    /// Everything that a ledger announces. What does not read is found by whoever goes through its decisions.
    pub fn all(ledger: &LedgerReader) -> Result<Vec<Self>, LedgerError> {
        let mut query = ledger.conn.prepare_cached(
            "SELECT n, line FROM decisions WHERE task IS NULL AND line LIKE '%\"kind\":\"key.announced\"%' ORDER BY n",
        )?;
        let mut rows = query.query([])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            let Ok(Ok(record)) = row.get_ref(1)?.as_str().map(Record::parse) else { continue };
            if let RecordContent::Decision(Decision::Key(said)) = record.what {
                let n: i64 = row.get(0)?;
                all.push(Self { place: format!("decision {n}"), decision: u64::try_from(n).ok(), said });
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
    /// The decision from which on another one signs.
    replaced: Option<u64>,
}

impl TrustedKeys {
    /// Those of a part of a house: a key that nobody speaks for matters there only where it has signed something.
    pub fn of_a_part(announced: &[KeyAnnouncement], pinned: &[PublicKey], report: &mut VerifyReport) -> Self {
        Self::from(announced, pinned, false, report)
    }

    /// Those of a whole ledger.
    pub(super) fn of(announced: &[KeyAnnouncement], pinned: &[PublicKey], report: &mut VerifyReport) -> Self {
        Self::from(announced, pinned, true, report)
    }

    fn from(announced: &[KeyAnnouncement], pinned: &[PublicKey], whole: bool, report: &mut VerifyReport) -> Self {
        let replaced = |id: Digest| {
            let last = announced.iter().rposition(|a| a.said.key == id)?;
            announced.get(last + 1)?.decision
        };
        let trusted = |key: PublicKey| (key.id(), TrustedKey { replaced: replaced(key.id()), key });
        let mut keys = Self(pinned.iter().cloned().map(trusted).collect());
        for (index, KeyAnnouncement { place, said, .. }) in announced.iter().enumerate() {
            let Some(key) = PublicKey::from_bytes(&said.public).filter(|k| k.id() == said.key) else {
                report.find(place, format!("announces key {}, which is not the key that it shows", said.key));
                continue;
            };
            if keys.0.contains_key(&said.key) {
                continue;
            }
            let spoken_for = said.by.and_then(|by| keys.get(by)).is_some_and(|by| by.speaks_for(said));
            if spoken_for || pinned.is_empty() && index == 0 {
                keys.0.extend([trusted(key)]);
            } else if pinned.is_empty() && whole {
                report.find(place, unspoken(announced, said.key));
            }
        }
        if pinned.is_empty() && !keys.0.is_empty() {
            report.notes.push(
                "the key is taken from what it signed: compare it with one that you have from elsewhere (--key)"
                    .to_owned(),
            );
        }
        keys
    }

    #[must_use]
    pub fn get(&self, id: Digest) -> Option<&PublicKey> {
        self.0.get(&id).map(|t| &t.key)
    }

    /// The key, or why nothing is believed that it signs.
    pub(super) fn signer(&self, id: Digest) -> Result<&PublicKey, String> {
        self.get(id).ok_or_else(|| format!("was signed by key {id}, which is not trusted"))
    }

    /// Whether another key had taken its place when the ledger had so many decisions.
    pub(super) fn replaced_at(&self, id: Digest, decision: u64) -> Result<(), String> {
        match self.0.get(&id).and_then(|t| t.replaced) {
            Some(replaced) if decision >= replaced => {
                Err(format!("was signed by key {id}, which had been replaced by then (decision {replaced})"))
            }
            _ => Ok(()),
        }
    }
}

/// What to do about a key that nobody speaks for: trust is in the first one, so that one is named with it.
fn unspoken(announced: &[KeyAnnouncement], key: Digest) -> String {
    let short = |key: Digest| key.to_string()[..SHORT].to_owned();
    let first = announced.first().map_or(key, |a| a.said.key);
    format!(
        "key {key} was announced, and no key before it speaks for it; if that was you: csn keys export {} > OLD.pem; \
         csn keys export {} > NEW.pem; csn verify --key OLD.pem --key NEW.pem",
        short(first),
        short(key)
    )
}
