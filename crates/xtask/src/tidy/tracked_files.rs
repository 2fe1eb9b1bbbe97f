//! The files that the rules read.

use crate::command;
use std::path::{Path, PathBuf};

/// Every file of a checkout that is tracked, or that would be, relative to its root.
pub(super) fn tracked_files(root: &Path) -> Vec<PathBuf> {
    let args = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = command("git").current_dir(root).args(args).output().expect("git runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).expect("names of files are UTF-8");
    // A file that is deleted and not committed yet is still listed.
    names.split('\0').filter(|n| !n.is_empty()).map(PathBuf::from).filter(|f| root.join(f).is_file()).collect()
}
