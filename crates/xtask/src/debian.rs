//! Programs that the tests need, installed with apt where they are missing.

use crate::{Result, command, run};
use std::path::Path;

/// The search path for these programs, independent of the caller's PATH.
pub const SYSTEM_PATH: &str = "/usr/bin:/bin";

/// Installs the missing programs; each is given with its package.
pub fn install_missing(needed: &[(&str, &'static str)]) -> Result<()> {
    let missing: Vec<_> =
        needed.iter().filter(|(program, _)| !is_installed(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    run(command("apt-get").arg("update"))?;
    run(command("apt-get").args(["install", "--yes", "--no-install-recommends"]).args(missing))
}

/// Whether a program is installed.
#[must_use]
pub fn is_installed(program: &str) -> bool {
    SYSTEM_PATH.split(':').any(|dir| Path::new(dir).join(program).exists())
}
