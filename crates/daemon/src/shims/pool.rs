//! Idle shims: forked in advance, so that no task waits for a process.

use countersign_shim::{ForkServer, IdleShim};
use countersign_store::Home;
use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex},
};

/// How many shims are idle: enough for the requests of one commit. While the commit loop waits for a new one, so does
/// everybody else.
const IDLE_SHIMS: usize = 8;

pub(crate) struct ShimPool {
    shim: PathBuf,
    fork_server: Mutex<ForkServer>,
    idle: Mutex<IdleShims>,
    taken: Condvar,
}

#[derive(Default)]
struct IdleShims {
    shims: VecDeque<IdleShim>,
    closed: bool,
}

impl ShimPool {
    pub(crate) fn start(shim: PathBuf, home: &Home) -> Arc<Self> {
        let place = home.prepared();
        let pool = Arc::new(Self {
            fork_server: Mutex::new(ForkServer::new(shim.clone(), place.clone())),
            shim,
            idle: Mutex::default(),
            taken: Condvar::new(),
        });
        let filler = Arc::clone(&pool);
        let fill = move || {
            countersign_shim::remove_left_records(&place);
            filler.fill();
        };
        if let Err(e) = std::thread::Builder::new().name("shim-pool".into()).spawn(fill) {
            crate::log!("no thread for idle shims: {e}; each task starts its own shim");
        }
        pool
    }

    pub(crate) fn path(&self) -> &Path {
        &self.shim
    }

    /// A shim that waits for its order: an idle one, or a new one.
    pub(crate) fn take(&self) -> io::Result<IdleShim> {
        let idle_shim = self.idle.lock().ok().and_then(|mut idle| idle.shims.pop_front());
        self.taken.notify_one();
        match idle_shim {
            Some(idle_shim) => Ok(idle_shim),
            None => self.fork_shim(),
        }
    }

    /// Returns a shim that was not needed.
    pub(crate) fn give_back(&self, idle_shim: IdleShim) {
        if let Ok(mut idle) = self.idle.lock() {
            idle.shims.push_front(idle_shim);
        }
    }

    pub(crate) fn close(&self) {
        if let Ok(mut idle) = self.idle.lock() {
            idle.closed = true;
            idle.shims.clear();
        }
        self.taken.notify_one();
        if let Ok(mut fork_server) = self.fork_server.lock() {
            fork_server.stop();
        }
    }

    fn fork_shim(&self) -> io::Result<IdleShim> {
        crate::lock(&self.fork_server).fork_shim()
    }

    fn fill(&self) {
        let Ok(mut idle) = self.idle.lock() else { return };
        loop {
            if idle.closed {
                return;
            }
            if idle.shims.len() < IDLE_SHIMS {
                drop(idle);
                let started = self.fork_shim();
                idle = match self.idle.lock() {
                    Ok(idle) => idle,
                    Err(_) => return,
                };
                match started {
                    Ok(_) if idle.closed => return,
                    Ok(idle_shim) => {
                        idle.shims.push_back(idle_shim);
                        continue;
                    }
                    // A task that needs a shim reports the reason.
                    Err(e) => crate::log!("an idle shim could not be started: {e}"),
                }
            }
            idle = match self.taken.wait(idle) {
                Ok(idle) => idle,
                Err(_) => return,
            };
        }
    }
}
