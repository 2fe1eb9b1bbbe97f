//! Measures what a user would pick instead: `true` in bash, through each tool in turn. A tool that is not on PATH, or
//! that does not work here, is named as not measured.

use super::{
    BenchHome,
    load::{now, percentile},
    print_row,
};
use crate::{build, command, root};
use std::{
    path::Path,
    process::{Command, Stdio},
};

const ROUNDS: usize = 30;

/// A way to run `true`: what it gives, and the command line.
struct Peer {
    gives: &'static str,
    line: &'static [&'static str],
}

const PEERS: &[Peer] = &[
    Peer { gives: "judged, sandboxed, durable, sealed", line: &["csn", "run", "--quiet", "true"] },
    Peer { gives: "nothing", line: &["bash", "-c", "true"] },
    Peer {
        gives: "sandboxed",
        line: &[
            "bwrap",
            "--unshare-all",
            "--ro-bind",
            "/",
            "/",
            "--dev",
            "/dev",
            "--proc",
            "/proc",
            "bash",
            "-c",
            "true",
        ],
    },
    Peer {
        gives: "sandboxed",
        line: &["firejail", "--quiet", "--noprofile", "--net=none", "--read-only=/", "bash", "-c", "true"],
    },
    Peer { gives: "sandboxed", line: &["srt", "-c", "true"] },
    Peer { gives: "sandboxed", line: &["codex", "sandbox", "bash", "-c", "true"] },
    Peer { gives: "queued", line: &["tsp", "-f", "bash", "-c", "true"] },
    Peer { gives: "queued", line: &["bash", "-c", "pueue wait --quiet $(pueue add --print-task-id true)"] },
];

impl Peer {
    fn command(&self, home: &Path) -> Command {
        let program = match self.line[0] {
            "csn" => build::output_dir().join("csn"),
            other => other.into(),
        };
        let mut run = command(program.to_str().unwrap_or_default());
        run.args(&self.line[1..])
            .env("COUNTERSIGN_HOME", home)
            // Codex refuses to keep its helpers below /tmp.
            .env("CODEX_HOME", root().join("target/peers"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        run
    }

    /// The milliseconds of one run; none if it failed.
    fn time(&self, home: &Path) -> Option<f64> {
        let began = now();
        let succeeded = self.command(home).status().is_ok_and(|status| status.success());
        succeeded.then(|| began.elapsed().as_secs_f64() * 1e3)
    }
}

pub(super) fn measure_peers(bench: &mut BenchHome) {
    let home = bench.home();
    let _ = std::fs::create_dir_all(root().join("target/peers"));
    let (present, missing): (Vec<&Peer>, Vec<&Peer>) = PEERS.iter().partition(|peer| peer.time(&home).is_some());
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); present.len()];
    for _ in 0..ROUNDS {
        for (peer, times) in present.iter().zip(&mut times) {
            times.extend(peer.time(&home));
        }
    }
    let alone = |p| {
        let bash = present.iter().position(|peer| peer.line[..] == ["bash", "-c", "true"]);
        bash.map_or(f64::NAN, |bash| percentile(&times[bash], p))
    };
    for (peer, times) in present.iter().zip(&times) {
        print_row(
            &format!("`{}` ({}), p50", peer.line.join(" "), peer.gives),
            format!("{:.1} ms", percentile(times, 0.5)),
            format!("{:.1} ms (bash -c true)", alone(0.5)),
            format!(
                "{:+.1} ms; fastest {:+.1} ms",
                percentile(times, 0.5) - alone(0.5),
                percentile(times, 0.0) - alone(0.0)
            ),
        );
    }
    for peer in missing {
        print_row(
            &format!("`{}`", peer.line.join(" ")),
            "not measured: it does not work here".to_owned(),
            String::new(),
            String::new(),
        );
    }
}
