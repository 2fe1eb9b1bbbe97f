//! `send`: sends text or keys to a task.

use crate::{UsageError, args::SendArgs, target_home::reach};
use countersign_client::{Client, ClientError};
use countersign_model::{KeyPress, Mode, RefusalCode, TaskId, api::StdinBody};
use std::{
    io::{self, Read as _},
    process::ExitCode,
    thread,
    time::Duration,
};

/// Pause between attempts to reach a daemon that is restarting.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// How many bytes one call sends at most.
const MAX_CHUNK_BYTES: usize = 60 * 1024;

pub(crate) fn send(args: &SendArgs) -> anyhow::Result<ExitCode> {
    let keys = args.keys.iter().map(|key| key.parse()).collect::<Result<Vec<KeyPress>, _>>();
    let keys = keys.map_err(|e| UsageError(format!("--keys: {e}")))?;
    if args.text.is_none() && keys.is_empty() && !args.enter && !args.eof {
        return Err(UsageError("there is nothing to send: give text, --keys, --enter or --eof".to_owned()).into());
    }
    let client = reach()?;
    let state = client.task(&args.task)?;
    let task = state.task_id;
    match args.text.as_deref() {
        Some("-") => send_stdin(&client, task, false, || ())?,
        Some(text) if args.paste => drop(client.stdin(task, &StdinBody::paste(text))?),
        Some("") | None => {}
        Some(text) => drop(client.stdin(task, &StdinBody::text(text))?),
    }
    if !keys.is_empty() {
        client.stdin(task, &StdinBody::keys(keys))?;
    }
    if args.enter {
        // A terminal gets the Enter key, a pipe gets a newline character.
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

/// Sends our standard input to the task as it arrives. Calls `at_end` at its end, before it sends the end of input.
pub(crate) fn send_stdin(client: &Client, task: TaskId, eof: bool, at_end: impl Fn()) -> anyhow::Result<()> {
    let mut buf = vec![0; MAX_CHUNK_BYTES];
    let mut stdin = io::stdin();
    let key = random_key();
    for n in 0.. {
        match stdin.read(&mut buf) {
            Ok(0) => break,
            Ok(len) => send_once(client, task, &bytes_body(&buf[..len]), &format!("{key}-{n}"))?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    at_end();
    if eof {
        send_once(client, task, &StdinBody::eof(), &format!("{key}-eof"))?;
    }
    Ok(())
}

/// Sends input across any number of restarts of the daemon. The key makes the daemon apply it once.
fn send_once(client: &Client, task: TaskId, body: &StdinBody, key: &str) -> Result<(), ClientError> {
    loop {
        match client.stdin_with_key(task, body, key) {
            Err(e) if e.is_daemon_gone() => thread::sleep(RETRY_PAUSE),
            Err(ClientError::Refused(refused)) if refused.refusal.code == RefusalCode::ShimUnreachable => {
                thread::sleep(RETRY_PAUSE)
            }
            result => return result.map(drop),
        }
    }
}

/// A random idempotency key.
pub(crate) fn random_key() -> String {
    let bytes: [u8; 16] = countersign_store::random();
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn bytes_body(bytes: &[u8]) -> StdinBody {
    use base64::Engine as _;
    let chunk = base64::engine::general_purpose::STANDARD.encode(bytes);
    StdinBody { chunk_b64: Some(chunk), ..StdinBody::default() }
}
