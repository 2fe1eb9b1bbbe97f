//! The ledger at start and later: one that decisions are added to, or one that is only read because it cannot be gone on from.

use crate::{
    desk::{Desk, TaskCaps},
    records::Records,
};
use countersign_model::{DaemonState, Digest, HomeId};
use countersign_store::{
    Home,
    condition::{self, CheckDepth},
    ledger::{Ledger, LedgerError, LedgerReader},
    salvage::salvage,
};
use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};
use tokio::sync::Notify;

/// Why nothing is decided, if nothing is. Once set, it stays until the next start.
#[derive(Default)]
pub(crate) struct ReadOnlyState {
    why: OnceLock<String>,
}

impl ReadOnlyState {
    pub(crate) fn why(&self) -> Option<&str> {
        self.why.get().map(String::as_str)
    }

    pub(crate) fn is_set(&self) -> bool {
        self.why.get().is_some()
    }

    fn set(&self, why: &LedgerError) {
        let why = self.why.get_or_init(|| why.to_string());
        crate::log!("reading only: {why}");
    }
}

/// A ledger with what the daemon needs of it to start.
pub(crate) struct OpenedLedger {
    pub(crate) ledger: Ledger,
    pub(crate) reader: LedgerReader,
    pub(crate) desk: Desk,
    pub(crate) after_a_crash: bool,
    /// None where the ledger cannot be written and has none yet.
    pub(crate) home_id: Option<HomeId>,
    pub(crate) reading_only: Arc<ReadOnlyState>,
}

/// Opens the ledger of a home; of one that cannot be gone on from, a copy of what still reads.
pub(crate) fn open(home: &Home, caps: TaskCaps, policy: Digest) -> Result<OpenedLedger, LedgerError> {
    let reading_only = Arc::<ReadOnlyState>::default();
    let opened = Ledger::open_home(home).and_then(|ledger| match restore(&ledger, caps, policy) {
        Ok(restored) => Ok((ledger, restored)),
        Err(e) => {
            ledger.abandon();
            Err(e)
        }
    });
    let (mut ledger, (reader, desk, after_a_crash)) = match opened {
        Ok(opened) => opened,
        Err(e) if e.is_damage() => {
            reading_only.set(&e);
            let (ledger, _) = salvage(home, &scratch(home))?;
            let restored = restore(&ledger, caps, policy)?;
            (ledger, restored)
        }
        Err(e) => return Err(e),
    };
    let home_id = home_id(&mut ledger, &reader, &reading_only)?;
    Ok(OpenedLedger { ledger, reader, desk, after_a_crash, home_id, reading_only })
}

/// The id of the home. One that has none gets it, as the first decision of this daemon; where it cannot be written, for
/// example on a full disk, the next daemon tries again.
fn home_id(
    ledger: &mut Ledger,
    reader: &LedgerReader,
    reading_only: &ReadOnlyState,
) -> Result<Option<HomeId>, LedgerError> {
    if reading_only.is_set() {
        return reader.home_id();
    }
    match ledger.ensure_home_id() {
        Ok(home) => Ok(Some(home)),
        Err(e) if e.is_damage() => Err(e),
        Err(e) => {
            // It may have been written before that went wrong.
            let named = reader.home_id()?;
            if named.is_none() {
                crate::log!("the home has no id yet: {e}");
            }
            Ok(named)
        }
    }
}

type RestoredDesk = (LedgerReader, Desk, bool);

fn restore(ledger: &Ledger, caps: TaskCaps, policy: Digest) -> Result<RestoredDesk, LedgerError> {
    let reader = ledger.reader()?;
    let after_a_crash = reader.last_state()?.is_some_and(|s| s != DaemonState::Halted);
    let desk = Desk::restore(&reader, caps, Some(policy))?;
    Ok((reader, desk, after_a_crash))
}

fn scratch(home: &Home) -> PathBuf {
    home.run().join("reading-only.db")
}

/// Reads a large ledger whole, beside the first requests, and again whenever something does not read. From the moment that it
/// is found damaged, nothing more is decided.
pub(crate) async fn watch(home: Home, records: Arc<Records>, reading_only: Arc<ReadOnlyState>, suspected: Arc<Notify>) {
    // A small one was read whole before anybody was let in.
    if condition::is_small(&home) {
        suspected.notified().await;
    }
    loop {
        let home = home.clone();
        let checked = tokio::task::spawn_blocking(move || match condition::check(&home, CheckDepth::Whole) {
            Err(e) if e.is_damage() => {
                Some((e, salvage(&home, &scratch(&home)).map(|(ledger, _)| ledger.path().to_owned())))
            }
            _ => None,
        });
        if let Ok(Some((e, salvaged))) = checked.await {
            match salvaged {
                Ok(path) => records.switch_ledger(&path),
                Err(e) => crate::log!("nothing could be read from the damaged ledger: {e}"),
            }
            reading_only.set(&e);
            return;
        }
        suspected.notified().await;
    }
}
