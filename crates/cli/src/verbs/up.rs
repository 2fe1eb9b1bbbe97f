//! `up`: a daemon in the background.

use crate::{
    UsageError, say,
    target_home::{TargetHome, say_reading_only, start},
};
use countersign_client::ClientError;
use countersign_model::{DisplaySafe, TaskRefusal};
use std::{net::SocketAddr, process::ExitCode};

/// A house in the background, with its door on loopback open; of one that runs, only the door is opened.
pub(crate) fn up(tcp: Option<&str>) -> anyhow::Result<ExitCode> {
    let tcp = tcp.map(address).transpose()?;
    let TargetHome { home, client, own } = TargetHome::find()?;
    if !own {
        say("csn: the house of this machine serves you; COUNTERSIGN_HOME=DIR csn up starts one of your own");
        return Ok(ExitCode::from(u8::from(client.lifecycle().is_err())));
    }
    let already = client.lifecycle().is_ok();
    if !already {
        start(&home)?;
    }
    let life = client.lifecycle()?;
    let state = if already { "already up" } else { "up" };
    say(&format!("csn: {state}, pid {}, serving {}", life.pid, life.home.display()));
    match client.listen(tcp) {
        Ok(at) => say(&format!("csn: listening on http://{at} for those who have a token (csn token create)")),
        // The socket is the way in; the door on loopback is one more.
        Err(ClientError::Refused(TaskRefusal { refusal, .. })) => {
            say(&format!("csn: not listening on loopback: {}", refusal.message));
            refusal.hint.iter().for_each(|hint| say(&format!("     {hint}")));
            return Ok(ExitCode::from(u8::from(tcp.is_some())));
        }
        Err(e) => return Err(e.into()),
    }
    say_reading_only(&life);
    if let Some(why) = life.degraded {
        say(&format!("csn: degraded, only reading is allowed: {why}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn address(tcp: &str) -> Result<SocketAddr, UsageError> {
    let shown = DisplaySafe::bounded(tcp, 60);
    tcp.parse().map_err(|_| UsageError(format!("--tcp {shown}: an address and a port, such as 127.0.0.1:7311")))
}
