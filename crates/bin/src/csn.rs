//! `csn`: picks the daemon or the terminal surfaces. No logic lives here.

use countersign_cli::NextProgram;
use countersign_daemon::{HomeError, Start};
use countersign_spawn::{HOME_HELD, shim_beside};
use std::process::ExitCode;

fn main() -> ExitCode {
    match countersign_cli::main() {
        NextProgram::Exit(code) => code,
        NextProgram::Serve { machine: true, .. } => serve(Start::Machine),
        NextProgram::Serve { detached: true, .. } => serve(Start::Detached),
        NextProgram::Serve { tcp, .. } => serve(Start::Foreground { tcp }),
    }
}

fn serve(start: Start) -> ExitCode {
    let csn = std::env::current_exe().map_err(anyhow::Error::from);
    match csn.and_then(|csn| countersign_daemon::main(start, shim_beside(&csn))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("csn: {e:#}");
            let held = matches!(e.downcast_ref(), Some(HomeError::InUse { .. }));
            ExitCode::from(if held { HOME_HELD } else { 125 })
        }
    }
}
