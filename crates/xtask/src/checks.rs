//! `test`: every check, the cheapest first. `soak`: the slow tests.

use crate::{Result, cargo, command, debian, run};
use std::process::Command;

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
    let mut tests = cargo();
    if is_available("cargo-nextest") {
        let only = if ignored { ["--run-ignored", "only"].as_slice() } else { &[] };
        tests.args(["nextest", "run", "--no-fail-fast"]).args(features).args(only);
    } else {
        tests.args(["test", "--no-fail-fast", "--lib", "--bins", "--tests"]).args(features).arg("--").args(extra);
    }
    if !ignored {
        repeat_random_inputs(&mut tests);
    }
    run(&mut tests)
}

/// The tests draw the same random inputs in every run, so that a result says something about the change under test. The
/// slow tests, `differential` and `fuzz` draw new ones.
fn repeat_random_inputs(tests: &mut Command) {
    for variable in ["CSN_SEED", "PROPTEST_RNG_SEED"] {
        if std::env::var_os(variable).is_none() {
            tests.env(variable, "20");
        }
    }
}

fn is_available(program: &str) -> bool {
    command(program).arg("--version").output().is_ok_and(|o| o.status.success())
}
