//! `send`: text or keys into a task.

use crate::{UsageError, args::SendArgs, target_home::reach};
use countersign_client::{Client, ClientError};
use countersign_model::{KeyPress, Mode, RefusalCode, TaskId, api::StdinBody};
use std::{
    io::{self, Read as _},
    process::ExitCode,
    thread,
    time::Duration,
};

/// Between attempts to reach a house that is restarting.
const PAUSE: Duration = Duration::from_millis(100);

/// What one call takes.
const PIECE: usize = 60 * 1024;

pub(crate) fn send(args: &SendArgs) -> anyhow::Result<ExitCode> {
    let keys = args.keys.iter().map(|key| key.parse()).collect::<Result<Vec<KeyPress>, _>>();
    let keys = keys.map_err(|e| UsageError(format!("--keys: {e}")))?;
    if args.text.is_none() && keys.is_empty() && !args.enter && !args.eof {
        return Err(UsageError("give text, --keys, --enter or --eof".to_owned()).into());
    }
    let client = reach()?;
    let state = client.task(&args.task)?;
    let task = state.task_id;
    match args.text.as_deref() {
        Some("-") => from_stdin(&client, task, false, || ())?,
        Some(text) if args.paste => drop(client.stdin(task, &StdinBody::paste(text))?),
        Some("") | None => {}
        Some(text) => drop(client.stdin(task, &StdinBody::text(text))?),
    }
    if !keys.is_empty() {
        client.stdin(task, &StdinBody::keys(keys))?;
    }
    if args.enter {
        // The end of a line is a key of a terminal, and a character in a pipe.
        let enter = match state.request.mode {
            Mode::Pty => StdinBody::keys("enter".parse().into_iter().collect()),
            Mode::Pipes => StdinBody::text("\n"),
        };
        client.stdin(task, &enter)?;
    }
    if args.eof {
        client.stdin(task, &StdinBody::eof())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Passes our standard input on, as it comes.
pub(crate) fn from_stdin(client: &Client, task: TaskId, eof: bool, last: impl Fn()) -> anyhow::Result<()> {
    let mut buf = vec![0; PIECE];
    let mut stdin = io::stdin();
    let key = random_key();
    for n in 0.. {
        match stdin.read(&mut buf) {
            Ok(0) => break,
            Ok(len) => once(client, task, &typed(&buf[..len]), &format!("{key}-{n}"))?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    last();
    if eof {
        once(client, task, &StdinBody::eof(), &format!("{key}-eof"))?;
    }
    Ok(())
}

/// Through any number of restarts of the daemon: what was not answered is sent again, and applied once.
fn once(client: &Client, task: TaskId, body: &StdinBody, key: &str) -> Result<(), ClientError> {
    loop {
        match client.stdin_with_key(task, body, key) {
            Err(ClientError::Broken(_) | ClientError::NoDaemon { .. }) => thread::sleep(PAUSE),
            Err(ClientError::Refused(refused)) if refused.refusal.code == RefusalCode::ShimUnreachable => {
                thread::sleep(PAUSE)
            }
            done => return done.map(drop),
        }
    }
}

/// A name that nobody else has.
pub(crate) fn random_key() -> String {
    let bytes: [u8; 16] = countersign_store::random();
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Bytes as they were typed.
fn typed(bytes: &[u8]) -> StdinBody {
    use base64::Engine as _;
    let chunk = base64::engine::general_purpose::STANDARD.encode(bytes);
    StdinBody { chunk_b64: Some(chunk), ..StdinBody::default() }
}
