//! `csn-shim`: the supervisor of one task. The daemon starts it; people do not.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

fn main() -> ExitCode {
    let argument = std::env::args_os().nth(1).map(PathBuf::from);
    match argument.as_deref() {
        None => countersign_shim::main(None),
        Some(place) if place.is_absolute() => countersign_shim::main(Some(place)),
        Some(option) if option == Path::new("--version") => {
            println!("csn-shim {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Some(option) if option == Path::new("--probe") => {
            println!("{}", countersign_shim::features());
            ExitCode::SUCCESS
        }
        Some(_) => {
            eprintln!("csn-shim is started by the countersign daemon; use csn");
            ExitCode::from(2)
        }
    }
}
