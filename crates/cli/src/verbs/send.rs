//! `send`: text or keys into a task.

use crate::{Usage, args::SendArgs, house::reach};
use countersign_client::{Client, ClientError};
use countersign_model::{Code, Key, Mode, TaskId};
use serde_json::{Value, json};
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
    for key in &args.keys {
        key.parse::<Key>().map_err(|e| Usage(format!("--keys: {e}")))?;
    }
    if args.text.is_none() && args.keys.is_empty() && !args.enter && !args.eof {
        return Err(Usage("give text, --keys, --enter or --eof".to_owned()).into());
    }
    let client = reach()?;
    let state = client.task(&args.task)?;
    let task = state.task_id;
    match args.text.as_deref() {
        Some("-") => from_stdin(&client, task, false, || ())?,
        Some(text) if args.paste => drop(client.stdin(task, &json!({"paste": text}))?),
        Some("") | None => {}
        Some(text) => drop(client.stdin(task, &json!({"text": text}))?),
    }
    if !args.keys.is_empty() {
        client.stdin(task, &json!({"keys": args.keys}))?;
    }
    if args.enter {
        // The end of a line is a key of a terminal, and a character in a pipe.
        let enter = if state.request.mode == Mode::Pty { json!({"keys": ["enter"]}) } else { json!({"text": "\n"}) };
        client.stdin(task, &enter)?;
    }
    if args.eof {
        client.stdin(task, &json!({"eof": true}))?;
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
            Ok(len) => once(client, task, &json!({"chunk_b64": base64(&buf[..len])}), &format!("{key}-{n}"))?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    last();
    if eof {
        once(client, task, &json!({"eof": true}), &format!("{key}-eof"))?;
    }
    Ok(())
}

/// Through any number of restarts of the daemon: what was not answered is sent again, and applied once.
fn once(client: &Client, task: TaskId, body: &Value, key: &str) -> Result<(), ClientError> {
    loop {
        match client.stdin_once(task, body, key) {
            Err(ClientError::Broken(_) | ClientError::NoHouse { .. }) => thread::sleep(PAUSE),
            Err(ClientError::Refused { refusal, .. }) if refusal.code == Code::ShimUnreachable => thread::sleep(PAUSE),
            done => return done,
        }
    }
}

/// A name that nobody else has.
pub(crate) fn random_key() -> String {
    let bytes: [u8; 16] = countersign_store::random();
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
