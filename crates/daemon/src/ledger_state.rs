//! The ledger at start and later: writable, or read-only because it is damaged.

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

/// Why the daemon is read-only, if it is. Once set, it stays until the next start.
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
        crate::log!("read-only: the daemon starts nothing: {why}");
    }
}

/// A ledger, and what the daemon reads from it at start.
pub(crate) struct OpenedLedger {
    pub(crate) ledger: Ledger,
    pub(crate) reader: LedgerReader,
    pub(crate) desk: Desk,
    pub(crate) after_a_crash: bool,
    /// None if the home has no id and the ledger cannot be written.
    pub(crate) home_id: Option<HomeId>,
    pub(crate) reading_only: Arc<ReadOnlyState>,
}

/// Opens the ledger of a home. If it is damaged, opens a copy of the readable part.
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
            let (ledger, _) = salvage(home, &salvage_path(home))?;
            let restored = restore(&ledger, caps, policy)?;
            (ledger, restored)
        }
        Err(e) => return Err(e),
    };
    let home_id = home_id(&mut ledger, &reader, &reading_only)?;
    Ok(OpenedLedger { ledger, reader, desk, after_a_crash, home_id, reading_only })
}

/// The id of the home. A home without one gets it as the first decision of this daemon. If it cannot be written, for
/// example because the disk is full, the next daemon tries again.
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
            // The id may have been written before the error.
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

fn salvage_path(home: &Home) -> PathBuf {
    home.run().join("reading-only.db")
}

/// Checks a large ledger completely while the daemon serves, and again whenever a read fails. Once it is found damaged,
/// the daemon decides nothing more.
pub(crate) async fn watch(
    home: Home,
    records: Arc<Records>,
    reading_only: Arc<ReadOnlyState>,
    ledger_damage: Arc<Notify>,
) {
    // A small ledger was checked completely before the daemon started to serve.
    if condition::is_small(&home) {
        ledger_damage.notified().await;
    }
    loop {
        let home = home.clone();
        let checked = tokio::task::spawn_blocking(move || match condition::check(&home, CheckDepth::Whole) {
            Err(e) if e.is_damage() => {
                Some((e, salvage(&home, &salvage_path(&home)).map(|(ledger, _)| ledger.path().to_owned())))
            }
            _ => None,
        });
        if let Ok(Some((e, salvaged))) = checked.await {
            match salvaged {
                Ok(path) => records.switch_ledger(&path),
                Err(e) => crate::log!("the damaged ledger could not be salvaged: {e}"),
            }
            reading_only.set(&e);
            return;
        }
        ledger_damage.notified().await;
    }
}
