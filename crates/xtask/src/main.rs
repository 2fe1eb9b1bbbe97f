//! `cargo xtask`: builds, tests and checks the project. It is no part of the product.

mod checks;
#[cfg(test)]
mod crate_dependencies;
mod gate_proofs;
mod tidy;

use countersign_xtask::{Result, build, cargo, command, debian, root, run};
use std::{os::unix::process::CommandExt as _, process::ExitCode};

const USAGE: &str = "\
cargo xtask build                     build csn and csn-shim, statically linked, in target/csn
cargo xtask test                      run every check: formatting, lints, documentation, tests
cargo xtask words [PATH…]             list retired words, long Markdown lines and matches on booleans
cargo xtask bench                     measure, and compare with the limits in docs/performance.md
cargo xtask soak                      run the slow tests: 1,000 trees, 200 random crashes, 1 GB of output
cargo xtask differential [COUNT]      compare the gate with a real bash (1,000,000 commands)
cargo xtask fuzz [TARGET] [SECONDS]   run the gate's fuzz targets: read, judge, tables
cargo xtask outside [CHECK]           test with other tools: a program in tmux, with and without csn
cargo xtask agents [NAME]             test with real agents from npm (1.4 GB) and a scripted model
cargo xtask proxy ADDRESS SOCKET      forward TCP to the daemon's socket, for load clients
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let result = match args.next().as_deref() {
        Some("build") => build::build(),
        Some("test") => checks::run_all_checks(),
        Some("soak") => checks::run_slow_tests(),
        Some("differential") => gate_proofs::run_differential_tests(args.next().as_deref()),
        Some("fuzz") => gate_proofs::run_fuzz_targets(args.next().as_deref(), args.next().as_deref()),
        Some("words") => tidy::words_command::run(args),
        Some("bench") => run_benchmarks(),
        Some(name @ ("outside" | "agents" | "bench-now" | "floor" | "proxy")) => run_trial(name, args),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e}");
            ExitCode::FAILURE
        }
    }
}

/// `bench`: builds the programs, then measures them.
fn run_benchmarks() -> Result<()> {
    build::build()?;
    run(cargo().args(["run", "--quiet", "--release", "--package", "countersign-trials", "--", "bench-now"]))?;
    run(cargo().args(["bench", "--quiet", "--workspace", "--benches"]))
}

/// Replaces this process by the trials: their output and exit code are the result.
fn run_trial(name: &str, args: impl Iterator<Item = String>) -> Result<()> {
    let mut trials = cargo();
    trials.args(["run", "--quiet", "--package", "countersign-trials", "--", name]).args(args);
    Err(format!("cargo: {}", trials.exec()))
}
