//! `test`: every check, the cheapest first. `soak`: the slow tests.

use crate::{Result, cargo, command, debian, run};

/// The programs that the tests start, with their Debian packages.
pub(crate) const REQUIRED_PROGRAMS: &[(&str, &str)] = &[
    ("bash", "bash"),
    ("curl", "curl"),
    ("jq", "jq"),
    ("gawk", "gawk"),
    ("mawk", "mawk"),
    ("original-awk", "original-awk"),
    ("busybox", "busybox"),
    ("xargs", "findutils"),
    ("ps", "procps"),
    ("openssl", "openssl"),
    ("git", "git"),
    ("python3", "python3"),
    ("script", "bsdutils"),
    ("setsid", "util-linux"),
    ("systemd-analyze", "systemd"),
    ("stty", "coreutils"),
];

pub(crate) fn run_all_checks() -> Result<()> {
    debian::install_missing(REQUIRED_PROGRAMS)?;
    run(cargo().args(["fmt", "--all", "--check"]))?;
    let features = ["--workspace", "--all-targets", "--features", "countersign-bin/crash-points"];
    run(cargo().args(["clippy", "--quiet"]).args(features).args(["--", "-D", "warnings"]))?;
    run(cargo()
        .args(["doc", "--quiet", "--workspace", "--no-deps", "--document-private-items"])
        .env("RUSTDOCFLAGS", "-D warnings"))?;
    if is_available("cargo-deny") {
        run(cargo().args(["deny", "check"]))?;
    }
    run(cargo().args(["test", "--quiet", "--workspace", "--doc"]))?;
    run_tests(&[])
}

/// The slow tests are marked as ignored, and run here alone.
pub(crate) fn run_slow_tests() -> Result<()> {
    run_tests(&["--ignored"])
}

fn run_tests(extra: &[&str]) -> Result<()> {
    let features = ["--workspace", "--features", "countersign-bin/crash-points"];
    let ignored = extra.contains(&"--ignored");
    if is_available("cargo-nextest") {
        let only = if ignored { ["--run-ignored", "only"].as_slice() } else { &[] };
        run(cargo().args(["nextest", "run", "--no-fail-fast"]).args(features).args(only))
    } else {
        run(cargo().args(["test", "--no-fail-fast", "--lib", "--bins", "--tests"]).args(features).arg("--").args(extra))
    }
}

fn is_available(program: &str) -> bool {
    command(program).arg("--version").output().is_ok_and(|o| o.status.success())
}
