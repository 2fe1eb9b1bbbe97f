//! The slow proofs of the gate, and its figures.

use crate::{Result, cargo, command, outside, root, run};
use std::{fmt::Write as _, io::Write as _, process::Stdio, time::Instant};

/// Generated commands, and commands with something put into them, run by a real bash, against what the gate read in
/// them.
pub(crate) fn differential(count: Option<&str>) -> Result<()> {
    let count: usize = match count {
        Some(text) => text.parse().map_err(|_| format!("`{text}` is not a number of commands"))?,
        None => 1_000_000,
    };
    run(cargo().args(["build", "--release", "--package", "countersign-policy", "--example", "stub"]))?;
    outside::install(crate::test::NEEDED)?;
    // Of the generated ones bash runs all, of the others what the gate allows: they are the cheaper ones. Programs for awk,
    // sed and others are run by every implementation at hand.
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

const TARGETS: &[&str] = &["read", "judge", "tables"];
/// What cargo-fuzz asks of the compiler.
const INSTRUMENTED: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Ccodegen-units=1";

pub(crate) fn fuzz(target: Option<&str>, seconds: Option<&str>) -> Result<()> {
    let triple = "x86_64-unknown-linux-gnu";
    run(cargo()
        .args(["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", triple])
        .env("RUSTFLAGS", INSTRUMENTED))?;
    for name in TARGETS.iter().filter(|t| target.is_none_or(|only| only == **t)) {
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
        println!("fuzz {name}: nothing found in {}s", seconds.unwrap_or("60"));
    }
    Ok(())
}

/// Reading and judging beside another parser, and how many questions `csn check --batch` answers in a second.
#[expect(clippy::disallowed_methods, reason = "a figure is a time")]
pub(crate) fn figures() -> Result<()> {
    run(cargo().args(["run", "--release", "--quiet", "--manifest-path", "benches/gate/Cargo.toml"]))?;
    crate::build::build()?;
    let data = root().join("crates/policy/tests/gate/data/day.txt");
    let day = std::fs::read_to_string(data).map_err(|e| e.to_string())?;
    let day: Vec<&str> = day.lines().filter(|l| !l.starts_with("# ")).collect();
    let mut questions = String::new();
    for (n, line) in day.iter().cycle().take(60_000).enumerate() {
        let command = line
            .trim_start_matches("? ")
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('⏎', "\\n")
            .replace('\t', "\\t");
        let _ = writeln!(questions, r#"{{"id":{n},"command":"{command}","cwd":"/work/proj","roots":["/work/proj"]}}"#);
    }
    let csn = crate::build::out().join("csn");
    let started = Instant::now();
    let mut child = command(csn.to_str().unwrap_or_default())
        .args(["check", "--batch", "--no-config"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| e.to_string())?;
    child.stdin.take().expect("it was piped").write_all(questions.as_bytes()).map_err(|e| e.to_string())?;
    let status = child.wait().map_err(|e| e.to_string())?;
    let rate = 60_000.0 / started.elapsed().as_secs_f64();
    println!("csn check --batch         {rate:7.0} commands a second");
    if status.success() { Ok(()) } else { Err(format!("csn check --batch: {status}")) }
}
