//! `csn-shim`: the supervisor of one task. The daemon starts it; people do not.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        None => countersign_shim::main(),
        Some("--version") => {
            println!("csn-shim {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Some("--probe") => {
            println!("{}", countersign_shim::features());
            ExitCode::SUCCESS
        }
        Some(_) => {
            eprintln!("csn-shim is started by the countersign daemon; use csn");
            ExitCode::from(2)
        }
    }
}
