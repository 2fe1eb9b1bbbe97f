//! Programs of the machine, installed with apt where they are missing.

use crate::{Result, command, run};
use std::path::Path;

/// For us and for what we start: the machine's own programs, whatever else the caller has on their PATH.
pub const SYSTEM_PATH: &str = "/usr/bin:/bin";

/// Installs what is missing of these programs, each with the package that has it.
pub fn install_missing(needed: &[(&str, &'static str)]) -> Result<()> {
    let missing: Vec<_> =
        needed.iter().filter(|(program, _)| !is_installed(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    run(command("apt-get").arg("update"))?;
    run(command("apt-get").args(["install", "--yes", "--no-install-recommends"]).args(missing))
}

/// Whether the machine has a program.
#[must_use]
pub fn is_installed(program: &str) -> bool {
    SYSTEM_PATH.split(':').any(|dir| Path::new(dir).join(program).exists())
}
