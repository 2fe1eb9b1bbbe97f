//! Measures the gate.

use crate::{Result, build, cargo, command, root, run};
use std::{fmt::Write as _, io::Write as _, process::Stdio, time::Instant};

/// Compares reading and judging with another parser, and counts the commands per second of `csn check --batch`.
#[expect(clippy::disallowed_methods, reason = "a figure is a time")]
pub(super) fn measure_gate() -> Result<()> {
    run(cargo().args(["run", "--release", "--quiet", "--manifest-path", "benches/gate/Cargo.toml"]))?;
    build::build()?;
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
    let csn = build::output_dir().join("csn");
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
