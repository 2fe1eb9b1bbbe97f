//! `csn`: starts the daemon or the command line. It holds no logic.

use countersign_cli::NextProgram;
use countersign_daemon::{HomeError, Start};
use countersign_spawn::{EXIT_HOME_IN_USE, shim_path};
use std::process::ExitCode;

fn main() -> ExitCode {
    match countersign_cli::main() {
        NextProgram::Exit(code) => code,
        NextProgram::Serve { machine: true, .. } => serve(Start::SystemService),
        NextProgram::Serve { detached: true, .. } => serve(Start::Detached),
        NextProgram::Serve { tcp, .. } => serve(Start::Foreground { tcp }),
    }
}

fn serve(start: Start) -> ExitCode {
    let csn = std::env::current_exe().map_err(anyhow::Error::from);
    match csn.and_then(|csn| countersign_daemon::main(start, shim_path(&csn))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("csn: {e:#}");
            let held = matches!(e.downcast_ref(), Some(HomeError::InUse { .. }));
            ExitCode::from(if held { EXIT_HOME_IN_USE } else { 125 })
        }
    }
}
