//! `build`: what a user runs. Linked statically: it starts faster and needs nothing of the machine.

use crate::{Result, cargo, root, run};
use std::path::PathBuf;

/// Where the two programs end up, side by side.
pub fn output_dir() -> PathBuf {
    root().join("target/csn")
}

pub fn build() -> Result<()> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    // With an explicit target the flag reaches the programs and not the build scripts.
    run(cargo()
        .args(["build", "--quiet", "--release", "--package", "countersign-bin", "--bins", "--target", &target])
        .env("RUSTFLAGS", "-C target-feature=+crt-static"))?;
    std::fs::create_dir_all(output_dir()).map_err(|e| e.to_string())?;
    for name in ["csn", "csn-shim"] {
        let from = root().join("target").join(&target).join("release").join(name);
        let to = output_dir().join(name);
        // A running program cannot be written over, but its name can be given to another file.
        let fresh = output_dir().join(format!(".{name}.new"));
        std::fs::copy(&from, &fresh).map_err(|e| format!("{}: {e}", from.display()))?;
        std::fs::rename(&fresh, &to).map_err(|e| format!("{}: {e}", to.display()))?;
    }
    eprintln!("xtask: target/csn/csn and target/csn/csn-shim");
    Ok(())
}
