//! Spare shims: forked before they are needed, so that no task waits for a process.

use countersign_shim::{ForkServer, IdleShim};
use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex},
};

/// How many wait. Enough for a burst; the thread that fills up is quick to follow.
const KEPT: usize = 3;

pub(crate) struct ShimPool {
    shim: PathBuf,
    nursery: Mutex<ForkServer>,
    shelf: Mutex<IdleShims>,
    taken: Condvar,
}

#[derive(Default)]
struct IdleShims {
    spares: VecDeque<IdleShim>,
    closed: bool,
}

impl ShimPool {
    pub(crate) fn stock(shim: PathBuf) -> Arc<Self> {
        let spares = Arc::new(Self {
            nursery: Mutex::new(ForkServer::new(shim.clone())),
            shim,
            shelf: Mutex::default(),
            taken: Condvar::new(),
        });
        let filler = Arc::clone(&spares);
        std::thread::Builder::new().name("spares".into()).spawn(move || filler.fill()).map(drop).unwrap_or_else(|e| {
            crate::log!("no thread to keep spare shims: {e}; each task starts its own");
        });
        spares
    }

    pub(crate) fn path(&self) -> &Path {
        &self.shim
    }

    /// A shim that waits for its order: one from the shelf, else a new one.
    pub(crate) fn take(&self) -> io::Result<IdleShim> {
        let spare = self.shelf.lock().ok().and_then(|mut shelf| shelf.spares.pop_front());
        self.taken.notify_one();
        match spare {
            Some(spare) => Ok(spare),
            None => self.fresh(),
        }
    }

    /// Gives back one that was not needed after all.
    pub(crate) fn give_back(&self, spare: IdleShim) {
        if let Ok(mut shelf) = self.shelf.lock() {
            shelf.spares.push_front(spare);
        }
    }

    pub(crate) fn close(&self) {
        if let Ok(mut shelf) = self.shelf.lock() {
            shelf.closed = true;
            shelf.spares.clear();
        }
        self.taken.notify_one();
        if let Ok(mut nursery) = self.nursery.lock() {
            nursery.dismiss();
        }
    }

    fn fresh(&self) -> io::Result<IdleShim> {
        crate::lock(&self.nursery).shim()
    }

    fn fill(&self) {
        let Ok(mut shelf) = self.shelf.lock() else { return };
        loop {
            if shelf.closed {
                return;
            }
            if shelf.spares.len() < KEPT {
                drop(shelf);
                let started = self.fresh();
                shelf = match self.shelf.lock() {
                    Ok(shelf) => shelf,
                    Err(_) => return,
                };
                match started {
                    Ok(_) if shelf.closed => return,
                    Ok(spare) => {
                        shelf.spares.push_back(spare);
                        continue;
                    }
                    // A task that needs one will say why there is none.
                    Err(e) => crate::log!("a spare shim could not be started: {e}"),
                }
            }
            shelf = match self.taken.wait(shelf) {
                Ok(shelf) => shelf,
                Err(_) => return,
            };
        }
    }
}
