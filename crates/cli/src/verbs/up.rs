//! `up`: starts the daemon in the background.

use crate::{
    UsageError,
    render::fields::name_options,
    say,
    target_home::{TargetHome, say_restrictions, start},
};
use countersign_client::ClientError;
use countersign_model::{DisplaySafe, TaskRefusal};
use std::{net::SocketAddr, process::ExitCode};

/// Starts a daemon in the background and has it listen on loopback; a daemon that already runs only starts to listen.
pub(crate) fn up(tcp: Option<&str>) -> anyhow::Result<ExitCode> {
    let tcp = tcp.map(parse_address).transpose()?;
    let TargetHome { home, client, own } = TargetHome::find()?;
    if !own {
        say("csn: the system service serves you; to start a daemon of your own: COUNTERSIGN_HOME=DIR csn up --detach");
        return Ok(ExitCode::from(u8::from(client.lifecycle().is_err())));
    }
    let already = client.lifecycle().is_ok();
    if !already {
        start(&home)?;
    }
    let life = client.lifecycle()?;
    let state = if already { "the daemon already runs" } else { "the daemon has started" };
    say(&format!("csn: {state}: pid {}, home {}", life.pid, life.home.display()));
    match client.listen(tcp) {
        Ok(at) => say(&format!("csn: listening on http://{at} for clients with a token (csn token create)")),
        // Clients use the socket; loopback is an addition, so the daemon is up without it.
        Err(ClientError::Refused(TaskRefusal { refusal, .. })) => {
            say(&format!("csn: not listening on loopback: {}", refusal.message));
            if let Some(hint) = &refusal.hint {
                say(&format!("     {}", name_options(hint)));
            }
            return Ok(ExitCode::from(u8::from(tcp.is_some())));
        }
        Err(e) => return Err(e.into()),
    }
    say_restrictions(&life);
    Ok(ExitCode::SUCCESS)
}

fn parse_address(tcp: &str) -> Result<SocketAddr, UsageError> {
    let shown = DisplaySafe::bounded(tcp, 60);
    tcp.parse()
        .map_err(|_| UsageError(format!("--tcp {shown}: give an IP address and a port, for example 127.0.0.1:7311")))
}
