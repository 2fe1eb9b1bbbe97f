//! `csn`: picks the daemon or the terminal surfaces. No logic lives here.

use countersign_cli::{Action, Answered, Doors, Question};
use countersign_daemon::{HomeError, Start, beside};
use std::{path::PathBuf, process::ExitCode};

fn main() -> ExitCode {
    let doors = Doors {
        start_house: &start_house,
        probe_shim: &probe_shim,
        manage: &countersign_shim::manage,
        converse: &converse,
    };
    match countersign_cli::main(&doors) {
        Action::Exit(code) => code,
        Action::Serve { machine: true, .. } => serve(Start::Machine),
        Action::Serve { detached: true, .. } => serve(Start::Detached),
        Action::Serve { tcp, .. } => serve(Start::Foreground { tcp }),
    }
}

fn serve(start: Start) -> ExitCode {
    let served = me().and_then(|csn| countersign_daemon::main(start, beside(&csn)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("csn: {e:#}");
            let held = matches!(e.downcast_ref(), Some(HomeError::Held { .. }));
            ExitCode::from(if held { countersign_shim::HELD } else { 125 })
        }
    }
}

fn start_house(env: &[(String, String)]) -> std::io::Result<String> {
    countersign_shim::start_house(&me().map_err(std::io::Error::other)?, env)
}

fn probe_shim() -> std::io::Result<String> {
    countersign_shim::probe(&beside(&me().map_err(std::io::Error::other)?))
}

fn converse(asked: &Question<'_>) -> std::io::Result<Answered> {
    let Question { program, args, stdin, env, timeout, until } = *asked;
    let said = countersign_shim::converse(program, args, stdin, env, timeout, until)?;
    Ok(Answered { code: said.code, stdout: said.stdout, stderr: said.stderr, timed_out: said.timed_out })
}

fn me() -> anyhow::Result<PathBuf> {
    Ok(std::env::current_exe()?)
}
