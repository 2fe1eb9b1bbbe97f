//! Named points between ask and settle at which a test may kill the process, as `kill -9` would.
//!
//! In a shipped build this is an empty function: the names exist so that every window between two writes has one.

/// Dies here when the feature `crash-points` is on and the file that `COUNTERSIGN_CRASH_FILE` names holds this name.
#[inline]
pub fn point(name: &'static str) {
    #[cfg(feature = "crash-points")]
    if let Some(file) = std::env::var_os("COUNTERSIGN_CRASH_FILE")
        && std::fs::read_to_string(file).is_ok_and(|wanted| wanted == name)
    {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
    let _ = name;
}
