//! How many descriptors the daemon may have: all that it is allowed, and its tasks as many as it was given itself.

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use std::{process::Child, sync::OnceLock};

/// The limit that this process was started with, once that was raised.
static GIVEN: OnceLock<Rlimit> = OnceLock::new();

/// Raises the number of descriptors to what is allowed. The daemon holds some for every connection and every task.
pub fn raise_limit() {
    let given = getrlimit(Resource::Nofile);
    if given.current != given.maximum && setrlimit(Resource::Nofile, Rlimit { current: given.maximum, ..given }).is_ok()
    {
        let _ = GIVEN.set(given);
    }
}

/// Gives a child the limit that we were given: some programs close every number there could be, and others cannot
/// count beyond 1,024.
pub(crate) fn restore_limit(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let (Some(given), Some(pid)) = (GIVEN.get(), pid) {
        let _ = prlimit(Some(pid), Resource::Nofile, *given);
    }
}
