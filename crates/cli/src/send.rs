//! `send`: text or keys into a task.

use crate::{Doors, Usage, args::SendArgs, house::reach};
use countersign_client::Client;
use countersign_model::{Key, TaskId};
use serde_json::json;
use std::{
    io::{self, Read as _},
    process::ExitCode,
};

/// What one call takes.
const PIECE: usize = 60 * 1024;

pub(crate) fn send(doors: &Doors<'_>, args: &SendArgs) -> anyhow::Result<ExitCode> {
    for key in &args.keys {
        key.parse::<Key>().map_err(|e| Usage(format!("--keys: {e}")))?;
    }
    if args.text.is_none() && args.keys.is_empty() && !args.enter && !args.eof {
        return Err(Usage("give text, --keys, --enter or --eof".to_owned()).into());
    }
    let client = reach(doors)?;
    let task = client.task(&args.task)?.task_id;
    match args.text.as_deref() {
        Some("-") => from_stdin(&client, task, false)?,
        Some(text) if args.paste => drop(client.stdin(task, &json!({"paste": text}))?),
        Some("") | None => {}
        Some(text) => drop(client.stdin(task, &json!({"text": text}))?),
    }
    if !args.keys.is_empty() {
        client.stdin(task, &json!({"keys": args.keys}))?;
    }
    if args.enter {
        client.stdin(task, &json!({"keys": ["enter"]}))?;
    }
    if args.eof {
        client.stdin(task, &json!({"eof": true}))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Passes our standard input on, as it comes.
pub(crate) fn from_stdin(client: &Client, task: TaskId, eof: bool) -> anyhow::Result<()> {
    let mut buf = vec![0; PIECE];
    let mut stdin = io::stdin();
    loop {
        match stdin.read(&mut buf) {
            Ok(0) => break,
            Ok(n) => drop(client.stdin(task, &json!({"chunk_b64": base64(&buf[..n])}))?),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    if eof {
        client.stdin(task, &json!({"eof": true}))?;
    }
    Ok(())
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
