//! Named points between request and settlement at which a test may kill the process like `kill -9`.
//!
//! In a shipped build this function is empty. Every window between two writes has a name.

/// Kills the process if the feature `crash-points` is on and the file named by `COUNTERSIGN_CRASH_FILE` contains this
/// name.
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
