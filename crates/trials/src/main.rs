//! Trials of the built programs: benchmarks, checks with third-party tools, and checks with coding agents. `cargo
//! xtask` builds and starts this program; it is not part of the product.

mod agents;
mod bench;
mod outside;
mod packages;

use countersign_xtask::{Result, build, cargo, command, root, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let result = match args.next().as_deref() {
        Some("outside") => outside::outside(args.next().as_deref()),
        Some("agents") => agents::agents(args.next().as_deref()),
        Some("bench-now") => bench::bench_now(args.next().as_deref()),
        Some("floor") => match (args.next(), args.next(), args.next()) {
            (Some(socket), Some(dir), Some(kind)) => bench::floor(&socket, &dir, kind == "sync"),
            _ => Err("cargo xtask floor SOCKET DIR sync|nosync".to_owned()),
        },
        Some("proxy") => match (args.next(), args.next()) {
            (Some(address), Some(socket)) => bench::proxy::proxy(&address, socket.into()),
            _ => Err("cargo xtask proxy 127.0.0.1:PORT SOCKET".to_owned()),
        },
        _ => Err("`cargo xtask` starts this program; run `cargo xtask` to see its commands".to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e}");
            ExitCode::FAILURE
        }
    }
}
