//! `build`: the programs that a user runs. They are linked statically, so they start faster and need no libraries. Their
//! relocations are packed: a start that reads 20 KB of them, and not 900, takes a quarter of a millisecond less.

use crate::{Result, cargo, root, run};
use std::path::PathBuf;

/// The directory of the two programs.
pub fn output_dir() -> PathBuf {
    root().join("target/csn")
}

pub fn build() -> Result<()> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    // With an explicit target the flag applies to the programs, and not to build scripts.
    run(cargo()
        .args(["build", "--quiet", "--profile", "dist", "--package", "countersign-bin", "--bins", "--target", &target])
        .env("RUSTFLAGS", "-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs"))?;
    std::fs::create_dir_all(output_dir()).map_err(|e| e.to_string())?;
    for name in ["csn", "csn-shim"] {
        let from = root().join("target").join(&target).join("dist").join(name);
        let to = output_dir().join(name);
        // A running program cannot be overwritten, but its name can be given to another file.
        let new = output_dir().join(format!(".{name}.new"));
        std::fs::copy(&from, &new).map_err(|e| format!("{}: {e}", from.display()))?;
        std::fs::rename(&new, &to).map_err(|e| format!("{}: {e}", to.display()))?;
    }
    eprintln!("xtask: built target/csn/csn and target/csn/csn-shim");
    Ok(())
}
