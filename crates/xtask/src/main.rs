//! The project's own tasks.

mod agents;
#[cfg(test)]
mod arrows;
mod bench;
mod build;
mod gate;
mod outside;
mod packages;
mod test;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

const USAGE: &str = "\
cargo xtask build    csn and a static csn-shim, in target/csn
cargo xtask test     everything that must pass: formatting, lints, documentation, tests
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
        Some("test") => test::test(),
        Some("soak") => test::soak(),
        Some("differential") => gate::differential(args.next().as_deref()),
        Some("fuzz") => gate::fuzz(args.next().as_deref(), args.next().as_deref()),
        Some("outside") => outside::outside(args.next().as_deref()),
        Some("agents") => agents::agents(args.next().as_deref()),
        Some("bench") => bench::bench(),
        Some("bench-now") => bench::bench_now(args.next().as_deref()),
        Some("floor") => match (args.next(), args.next(), args.next()) {
            (Some(socket), Some(dir), Some(kind)) => bench::floor(&socket, &dir, kind == "sync"),
            _ => Err("cargo xtask floor SOCKET DIR sync|nosync".to_owned()),
        },
        Some("proxy") => match (args.next(), args.next()) {
            (Some(address), Some(socket)) => bench::proxy::proxy(&address, socket.into()),
            _ => Err("cargo xtask proxy 127.0.0.1:PORT SOCKET".to_owned()),
        },
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

type Result<T> = std::result::Result<T, String>;

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("xtask lies two levels below the root").to_owned()
}

#[expect(clippy::disallowed_methods, reason = "xtask drives other programs; it is not part of the product")]
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

fn cargo() -> Command {
    command(&std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()))
}

/// Runs a command to its end; its failure is ours.
fn run(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}").replace('"', "");
    eprintln!("xtask: {shown}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{shown}: {status}")),
        Err(e) => Err(format!("{shown}: {e}")),
    }
}
