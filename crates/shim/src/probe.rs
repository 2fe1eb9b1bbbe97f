//! Finds out by trying which features this machine has for tasks.

use rustix::{
    fs::{Mode, OFlags},
    process::{PidfdFlags, getpid, pidfd_open},
};
use serde_json::{Value, json};

/// The features as one JSON object: the version, and for each feature whether it works.
#[must_use]
pub fn features() -> Value {
    let system = rustix::system::uname();
    let terminal = crate::terminal::Terminal::open(24, 80);
    let kernel = crate::sandbox::detect_kernel();
    let landlock = kernel.landlock;
    let unnamed = OFlags::RDWR | OFlags::TMPFILE;
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "kernel": system.release().to_string_lossy(),
        "features": {
            "pidfd": pidfd_open(getpid(), PidfdFlags::empty()).is_ok(),
            "pty": terminal.is_ok(),
            "children_list": countersign_store::proc::lists_children(),
            "subreaper": crate::sys::become_subreaper().is_ok(),
            "unnamed_files": rustix::fs::open(std::env::temp_dir(), unnamed, Mode::RUSR).is_ok(),
            "cgroup2": std::fs::metadata("/sys/fs/cgroup/cgroup.controllers").is_ok(),
            "landlock": landlock > 0,
            "seccomp": kernel.seccomp,
            "own_network": crate::sys::network::OwnNetwork::available(None).is_some(),
        },
        "landlock_version": landlock,
    })
}
