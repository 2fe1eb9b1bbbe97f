//! Compares what a program prints with a file in the repository, so that words are reviewed like code. It may not change
//! the text that it compares: an ID, a time or a path that differs between runs is for the test to replace.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// Set to `1`, this variable makes the tests write their snapshots instead of comparing them.
pub const WRITE_VARIABLE: &str = "COUNTERSIGN_WRITE_SNAPSHOTS";

/// Compares `actual` byte for byte with the file at `path`, which is relative to the package of the running test.
///
/// # Panics
/// If the file is missing or differs. With [`WRITE_VARIABLE`] set it writes the file, and panics only if it cannot.
#[track_caller]
pub fn assert_snapshot(path: impl AsRef<Path>, actual: &str) {
    if let Err(message) = check_snapshot(&package_dir().join(path), actual, must_write()) {
        panic!("{message}");
    }
}

/// Fails if `dir`, relative to the package of the running test, holds a file that is not in `file_names`: a snapshot
/// whose test is gone. With [`WRITE_VARIABLE`] set it removes such files.
///
/// # Panics
/// If there is such a file, or the directory cannot be read.
#[track_caller]
pub fn assert_no_other_snapshots(dir: impl AsRef<Path>, file_names: &BTreeSet<String>) {
    let dir = package_dir().join(dir);
    for entry in std::fs::read_dir(&dir).expect("the snapshot directory can be read") {
        let path = entry.expect("a directory entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if file_names.contains(&name) {
            continue;
        }
        if must_write() {
            std::fs::remove_file(&path).expect("a stale snapshot can be removed");
        } else {
            panic!("{} is a snapshot of nothing. {}", path.display(), how_to_refresh());
        }
    }
}

/// The package whose test runs: cargo and nextest name it, and start the test in it.
fn package_dir() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default()
}

fn must_write() -> bool {
    std::env::var_os(WRITE_VARIABLE).is_some_and(|value| value == "1")
}

fn how_to_refresh() -> String {
    format!("If the change is intended, run this test with {WRITE_VARIABLE}=1 and review the file.")
}

fn check_snapshot(path: &Path, actual: &str, write: bool) -> Result<(), String> {
    let expected = match std::fs::read(path) {
        Ok(bytes) => Some(bytes),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => return Err(format!("{} cannot be read: {e}.", path.display())),
    };
    if expected.as_deref() == Some(actual.as_bytes()) {
        return Ok(());
    }
    if write {
        let parent = path.parent().unwrap_or(Path::new("."));
        return std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::write(path, actual))
            .map_err(|e| format!("{} cannot be written: {e}.", path.display()));
    }
    let Some(expected) = expected else {
        return Err(format!("{} is missing. {}\nThe text is:\n{actual}", path.display(), how_to_refresh()));
    };
    let difference = first_difference(&String::from_utf8_lossy(&expected), actual);
    Err(format!("{} differs{difference}\n{}\nThe text is:\n{actual}", path.display(), how_to_refresh()))
}

/// Names the first line that differs; escapes show blanks at a line's end.
fn first_difference(expected: &str, actual: &str) -> String {
    let (mut old, mut new) = (expected.split('\n'), actual.split('\n'));
    for number in 1.. {
        match (old.next(), new.next()) {
            (None, None) => break,
            (expected, actual) if expected == actual => {}
            (expected, actual) => {
                let show = |line: Option<&str>| line.map_or("(no such line)".to_owned(), |line| format!("{line:?}"));
                return format!(" at line {number}:\n  file: {}\n  text: {}", show(expected), show(actual));
            }
        }
    }
    " in bytes that are not UTF-8".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_snapshot_fails_until_it_is_written() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let path = dir.path().join("new/one.txt");
        assert!(check_snapshot(&path, "text\n", false).expect_err("missing").contains("is missing"));
        check_snapshot(&path, "text\n", true).expect("writes");
        check_snapshot(&path, "text\n", false).expect("equal");
    }

    #[test]
    fn a_snapshot_that_differs_in_one_byte_fails_and_names_the_line() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let path = dir.path().join("one.txt");
        std::fs::write(&path, "first\nsecond\n").expect("writes");
        let message = check_snapshot(&path, "first\nsecond \n", false).expect_err("differs");
        assert!(message.contains("line 2") && message.contains("\"second \""), "{message}");
        let message = check_snapshot(&path, "first\nsecond", false).expect_err("differs");
        assert!(message.contains("line 3") && message.contains("(no such line)"), "{message}");
    }
}
