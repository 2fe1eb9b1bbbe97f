//! Runs a command, follows its output as it comes, and prints its outcome.
//!
//! ```text
//! cargo run -p countersign-client --example run_and_follow -- --socket ~/.local/state/countersign/run/csn.sock 'ls -l'
//! COUNTERSIGN_TOKEN=csn_… cargo run -p countersign-client --example run_and_follow -- --tcp 127.0.0.1:7311 'ls -l'
//! ```
//!
//! `csn doctor` shows the home; the socket is `run/csn.sock` in it. `csn token create --person --scope run --scope
//! observe --name example` creates a token. The end-to-end tests call [`run_and_follow`] over both transports.

use countersign_client::{Address, BearerToken, Client, Event, calls};
use countersign_model::{
    Command, Decision, Frame, Outcome, RecordContent, Request, TaskId, Tool,
    api::{OutputQuery, StreamRecord},
};
use std::{error::Error, io::Write, process::ExitCode};

/// How often the example tries to reach a daemon that went away. The client waits a little longer before each try.
const MAX_TRIES: u32 = 20;
const USAGE: &str = "run_and_follow (--socket PATH | --tcp ADDRESS) COMMAND";

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [transport, target, command] = &args[..] else { return Err(USAGE.into()) };
    let address = match transport.as_str() {
        "--socket" => Address::unix(target),
        "--tcp" => Address::tcp(target.parse()?, BearerToken::new(std::env::var("COUNTERSIGN_TOKEN")?)?)?,
        _ => return Err(USAGE.into()),
    };
    let cwd = std::env::current_dir()?.display().to_string();
    let outcome = run_and_follow(&Client::at(address), command, &cwd, &mut std::io::stdout())?;
    eprintln!("{outcome}");
    Ok(ExitCode::from(u8::try_from(outcome.exit_code()).unwrap_or(1)))
}

/// Requests a shell command, writes its output to `out`, and returns its outcome. The daemon may restart in the
/// meantime: the stream continues after the last event.
pub(crate) fn run_and_follow(
    client: &Client,
    command: &str,
    cwd: &str,
    out: &mut impl Write,
) -> Result<Outcome, Box<dyn Error>> {
    let args = Command { command: Some(command.to_owned()), cwd: Some(cwd.to_owned()), ..Command::default() };
    let task = client.send(&calls::tasks::ask(&Request::new(Tool::Shell, args)))?.task.task_id;
    let mut events = client.follow(calls::tasks::events(task));
    let mut tries = 0;
    loop {
        let event = match events.next_event() {
            Ok(Some(event)) => event,
            Ok(None) => return Err("the stream ended without an outcome".into()),
            Err(error) if error.is_daemon_gone() && tries < MAX_TRIES => {
                tries += 1;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        tries = 0;
        match &event.value.record.what {
            RecordContent::Frame(Frame::Output { .. }) => write_output(client, task, &event, out)?,
            RecordContent::Decision(Decision::PermissionRequested { .. }) => {
                eprintln!("waiting for a person: csn approvals");
            }
            RecordContent::Decision(Decision::Settled { outcome, .. }) => return Ok(outcome.clone()),
            _ => {}
        }
    }
}

/// Short output comes with its record. Longer output is fetched.
fn write_output(
    client: &Client,
    task: TaskId,
    event: &Event<StreamRecord>,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let RecordContent::Frame(Frame::Output { stream, offset, len, .. }) = event.value.record.what else {
        return Ok(());
    };
    if let Some(output) = &event.value.output
        && output.encoding.is_none()
        && output.text.len() as u64 == len
    {
        out.write_all(output.text.as_bytes())?;
        return Ok(());
    }
    let mut at = offset;
    while at < offset + len {
        let (offset_bytes, max_bytes) = (Some(at), Some(offset + len - at));
        let query = OutputQuery { stream: Some(stream), offset_bytes, max_bytes, ..OutputQuery::default() };
        let bytes = client.send(&calls::output::bytes(task, &query))?;
        if bytes.is_empty() {
            return Err("the output ended too early".into());
        }
        out.write_all(&bytes)?;
        at += bytes.len() as u64;
    }
    Ok(())
}
