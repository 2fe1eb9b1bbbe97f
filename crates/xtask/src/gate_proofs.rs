//! The slow proofs of the gate: differential tests and fuzzing.

use crate::{Result, cargo, command, debian, root, run};

/// Runs generated and mutated commands in a real bash, and compares the effects with what the gate predicted.
pub(crate) fn run_differential_tests(count: Option<&str>) -> Result<()> {
    let count: usize = match count {
        Some(text) => text.parse().map_err(|_| format!("`{text}` is not a number of commands"))?,
        None => 1_000_000,
    };
    run(cargo().args(["build", "--release", "--package", "countersign-policy", "--example", "stub"]))?;
    debian::install_missing(crate::checks::REQUIRED_PROGRAMS)?;
    // Bash runs every generated command, but only those mutated ones that the gate allows, so more of these are affordable.
    // Programs for awk, sed and others run in every installed implementation.
    for (test, variable, count) in [
        ("mutations", "CSN_MUTATIONS", count),
        ("differential", "CSN_DIFFERENTIAL", count / 20),
        ("marks", "CSN_PROGRAMS", count / 100),
    ] {
        let args = ["test", "--release", "--package", "countersign-policy", "--test", "gate", test];
        run(cargo().args(args).args(["--", "--nocapture"]).env(variable, count.to_string()))?;
    }
    Ok(())
}

const FUZZ_TARGETS: &[&str] = &["read", "judge", "tables", "redact"];
/// The compiler flags that cargo-fuzz uses.
const FUZZ_RUSTFLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Ccodegen-units=1";

pub(crate) fn run_fuzz_targets(target: Option<&str>, seconds: Option<&str>) -> Result<()> {
    let triple = "x86_64-unknown-linux-gnu";
    run(cargo()
        .args(["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", triple])
        .env("RUSTFLAGS", FUZZ_RUSTFLAGS))?;
    for name in FUZZ_TARGETS.iter().filter(|t| target.is_none_or(|only| only == **t)) {
        let corpus = root().join("fuzz/corpus").join(name);
        std::fs::create_dir_all(&corpus).map_err(|e| e.to_string())?;
        let program = root().join("fuzz/target").join(triple).join("release").join(name);
        let limit = format!("-max_total_time={}", seconds.unwrap_or("60"));
        let dictionary = root().join("fuzz/shell.dict");
        run(command(program.to_str().unwrap_or_default())
            .arg(&corpus)
            .args([&limit, "-max_len=4096", "-timeout=5", "-print_final_stats=0", "-verbosity=0"])
            .arg(format!("-dict={}", dictionary.display()))
            .env("RUST_BACKTRACE", "1"))?;
        println!("fuzz {name}: no failure in {} s", seconds.unwrap_or("60"));
    }
    Ok(())
}
