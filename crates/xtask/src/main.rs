//! The project's own tasks.

mod checks;
#[cfg(test)]
mod crate_dependencies;
mod gate_proofs;
mod tidy;

use countersign_xtask::{Result, build, cargo, command, debian, root, run};
use std::{os::unix::process::CommandExt as _, process::ExitCode};

const USAGE: &str = "\
cargo xtask build    csn and a static csn-shim, in target/csn
cargo xtask test     everything that must pass: formatting, lints, documentation, tests
cargo xtask words    retired words, long Markdown lines and matches on booleans that are left: [--count|--update] [PATH…]
cargo xtask bench    figures beside their limits (see docs/performance.md)
cargo xtask proxy    a TCP door to a house's socket, for load clients: 127.0.0.1:PORT SOCKET
cargo xtask soak     the slow proofs: 1,000 trees, 200 random crashes, 1 GB of output
cargo xtask differential  the gate's reading against a real bash, 1,000,000 commands; [COUNT]
cargo xtask fuzz     the gate's fuzz targets: [read|judge|tables] [SECONDS]
cargo xtask outside  proofs with other people's tools: the same program in tmux, by itself and through csn; [CHECK]
cargo xtask agents   proofs with the agents that people use, from npm (1.4 GB), and a scripted model; [NAME]
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let done = match args.next().as_deref() {
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
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e}");
            ExitCode::FAILURE
        }
    }
}

/// `bench`: builds what is measured and what measures it, then measures.
fn run_benchmarks() -> Result<()> {
    build::build()?;
    run(cargo().args(["run", "--quiet", "--release", "--package", "countersign-trials", "--", "bench-now"]))?;
    run(cargo().args(["bench", "--quiet", "--workspace", "--benches"]))
}

/// Becomes the program of the trials: what it says and how it ends is ours.
fn run_trial(name: &str, args: impl Iterator<Item = String>) -> Result<()> {
    let mut trials = cargo();
    trials.args(["run", "--quiet", "--package", "countersign-trials", "--", name]).args(args);
    Err(format!("cargo: {}", trials.exec()))
}
