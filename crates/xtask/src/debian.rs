//! Programs of the machine, installed with apt where they are missing.

use crate::{Result, command, run};
use std::path::Path;

/// For us and for what we start: the machine's own programs, whatever else the caller has on their PATH.
pub const PATH: &str = "/usr/bin:/bin";

/// Installs what is missing of these programs, each with the package that has it.
pub fn install(needed: &[(&str, &'static str)]) -> Result<()> {
    let missing: Vec<_> =
        needed.iter().filter(|(program, _)| !installed(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    run(command("apt-get").arg("update"))?;
    run(command("apt-get").args(["install", "--yes", "--no-install-recommends"]).args(missing))
}

/// Whether the machine has a program.
#[must_use]
pub fn installed(program: &str) -> bool {
    PATH.split(':').any(|dir| Path::new(dir).join(program).exists())
}
