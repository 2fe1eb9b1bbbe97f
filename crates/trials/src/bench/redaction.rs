//! Measures redaction against other secret scanners on the same file, and on the way from a task to the disk.

use super::{BenchHome, GIGABYTE, build, command, percentile, print_row};
use crate::bench::load::now;
use std::{fs, path::Path, process::Stdio};

const LOG_BYTES: usize = 256 << 20;
/// Lines as builds print them.
const LOG_LINES: &[&str] = &[
    "   Compiling some-crate v1.2.3 (/home/someone/project/crates/some-crate)\n",
    "     Running `rustc --crate-name part --edition=2021 src/lib.rs --crate-type lib -C opt-level=3 -C metadata=0c1d2e3f40516273 --out-dir /build/target/release/deps`\n",
    "warning: unused variable: `x`\n  --> src/part/mod.rs:117:9\n",
    "[ 42%] Building CXX object src/CMakeFiles/part.dir/part17.cpp.o\n",
    "gcc -O2 -g -Wall -I/usr/include/part -c part7.c -o build/part7.o\n",
];

/// The speed of a program that reads the file, in megabytes per second; the best of three.
fn megabytes_per_second(file: &Path, program: &Path, args: &[&str], stdin: bool, bytes: usize) -> Option<f64> {
    let mut best = Vec::new();
    for _ in 0..3 {
        let mut child = command(&program.display().to_string());
        child.args(args).stdout(Stdio::null()).stderr(Stdio::null());
        if stdin {
            child.stdin(fs::File::open(file).ok()?);
        } else {
            child.arg(file);
        }
        let began = now();
        // Kingfisher and rg report findings by their exit code.
        child.status().ok()?.code().filter(|code| *code != 127 && *code != 2)?;
        best.push(bytes as f64 / 1e6 / began.elapsed().as_secs_f64());
    }
    Some(percentile(&best, 1.0))
}

pub(super) fn measure_redaction(bench: &mut BenchHome) {
    let dir = bench.dir.join("redaction");
    let _ = fs::create_dir_all(&dir);
    let log = dir.join("build.log");
    let text: Vec<u8> = LOG_LINES.iter().cycle().flat_map(|l| l.bytes()).take(LOG_BYTES).collect();
    let _ = fs::write(&log, &text);
    let small = dir.join("small.log");
    let _ = fs::write(&small, &text[..LOG_BYTES / 16]);
    // A hundred of the known token formats, as patterns for rg.
    let csn = build::output_dir().join("csn");
    let examples = command(&csn.display().to_string()).args(["redact", "--no-config", "--examples"]).output();
    let examples = examples.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    let pattern = |line: &str| {
        let start: String = line.split('\t').nth(1)?.chars().take(5).collect();
        let start: String = start
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_string() } else { format!("\\x{:02x}", u32::from(c)) })
            .collect();
        Some(format!("{start}[0-9A-Za-z_-]{{20,}}"))
    };
    let patterns: Vec<String> = examples.lines().filter_map(pattern).take(100).collect();
    let file = dir.join("patterns");
    let _ = fs::write(&file, patterns.join("\n"));
    let ours = megabytes_per_second(&log, &csn, &["redact", "--no-config"], true, LOG_BYTES).unwrap_or(0.0);
    let file = file.display().to_string();
    let rg = megabytes_per_second(&log, Path::new("rg"), &["-j1", "-c", "-f", &file], false, LOG_BYTES);
    let kingfisher = std::env::var_os("KINGFISHER").map(std::path::PathBuf::from).and_then(|k| {
        megabytes_per_second(
            &small,
            &k,
            &["scan", "--no-validate", "--no-update-check", "--jobs", "1"],
            false,
            LOG_BYTES / 16,
        )
    });
    let describe = |name: &str, speed: Option<f64>| {
        speed.map_or(format!("{name} not installed"), |s| format!("{s:.0} MB/s ({name})"))
    };
    print_row(
        "`csn redact` of a clean build log",
        format!("{ours:.0} MB/s"),
        format!("{}, {}", describe("rg, 100 regexes", rg), describe("kingfisher", kingfisher)),
        format!("{:.1}×", ours / rg.unwrap_or(f64::NAN)),
    );
    let line = LOG_LINES[1].trim().replace('`', "");
    let print = format!("yes '{line}' | head -c {GIGABYTE}");
    let (mut daemon, mut sync) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        daemon.push(bench.daemon().run_to_end(&print).1);
        sync.push(bench.sync().run_to_end(&print).1);
    }
    let speed = |s: &[f64]| GIGABYTE as f64 / 1e6 / percentile(s, 0.0);
    print_row(
        "1 GiB of build log over pipes, cleaned and hashed",
        format!("{:.0} MB/s", speed(&daemon)),
        format!("{:.0} MB/s (floor-sync)", speed(&sync)),
        format!("{:.2}×", speed(&daemon) / speed(&sync)),
    );
    let _ = fs::remove_dir_all(&dir);
}
