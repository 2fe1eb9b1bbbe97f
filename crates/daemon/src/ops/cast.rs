//! Recordings: a task as asciicast, read from its files. Starts nothing.

use super::{ApiResult, Ops};
use crate::{caller::Caller, records::OutputChunk};
use bytes::Bytes;
use countersign_model::{
    CredentialScope, Frame, Mode, Record, RecordContent, Refusal, RefusalCode, TaskState,
    api::CastQuery,
    cast::{Cast, Header, Version},
};
use countersign_store::output::StreamGaps;
use std::{io, sync::Arc};
use tokio::sync::mpsc;

const READ_BYTES: usize = 64 * 1024;

/// The recording of a task, piece by piece.
pub(crate) async fn cast(
    ops: &Arc<Ops>,
    caller: &Caller,
    id: &str,
    query: CastQuery,
) -> ApiResult<mpsc::Receiver<io::Result<Bytes>>> {
    caller.require_scope(CredentialScope::Observe)?;
    let version = query.version.unwrap_or(Version::V3);
    let task = ops.records.find_task(caller, id)?;
    ops.records.load_task(task).await?;
    let state = ops.records.state(task)?;
    if state.expired_at.is_some() {
        return Err(Refusal::new(RefusalCode::Expired, "the output of this task was removed")
            .hint("its decisions and digests are kept: csn show")
            .into());
    }
    let (send, receive) = mpsc::channel(2);
    let ops = Arc::clone(ops);
    tokio::task::spawn_blocking(move || {
        if let Err(e) = send_recording(&ops, &state, version, &send) {
            let _ = send.blocking_send(Err(e));
        }
    });
    Ok(receive)
}

/// Sends the whole recording as lines.
fn send_recording(
    ops: &Arc<Ops>,
    state: &TaskState,
    version: Version,
    send: &mpsc::Sender<io::Result<Bytes>>,
) -> io::Result<()> {
    let mut stream = ops.records.stream(state.task_id, 0);
    let header = |rows, cols| Header {
        rows,
        cols,
        timestamp: state.spawned_at().unwrap_or(state.request.asked_at).millis() / 1000,
        command: state.request.display.as_str().to_owned(),
        title: state.request.title.as_ref().map(|t| t.as_str().to_owned()),
        term: "xterm-256color".to_owned(),
    };
    let (mut cast, mut gaps) = (None, StreamGaps::default());
    let begin = |rows, cols, text: &mut String| {
        let (cast, first) = Cast::begin(version, &header(rows, cols));
        text.push_str(&first);
        cast
    };
    loop {
        let lines = ops.records.read_lines(&mut stream, READ_BYTES).map_err(io::Error::other)?;
        if lines.is_empty() {
            break;
        }
        for (_, line) in lines {
            let mut text = String::new();
            let record = Record::parse(&line).map_err(io::Error::other)?;
            let (RecordContent::Frame(frame), Some(t_us)) = (&record.what, record.t_us) else { continue };
            gaps.add_frame(frame);
            // The initial size of a terminal comes before its output.
            let cast = match (&mut cast, frame) {
                (Some(cast), _) => cast,
                (none, Frame::Resized { rows, cols, .. }) => none.insert(begin(*rows, *cols, &mut text)),
                (none, Frame::Output { .. }) if state.request.mode == Mode::Pipes => {
                    none.insert(begin(24, 80, &mut text))
                }
                (none, Frame::Closed { .. }) => none.insert(begin(24, 80, &mut text)),
                _ => continue,
            };
            text += &match OutputChunk::from_frame(frame) {
                Some(chunk) => {
                    let dropped = gaps.dropped_before(chunk.stream, chunk.offset);
                    let bytes = ops.records.read_chunk(state.task_id, chunk, dropped);
                    cast.output(t_us, chunk.stream, &bytes.map_err(io::Error::other)?)
                }
                None => cast.frame(t_us, frame),
            };
            if !text.is_empty() && send.blocking_send(Ok(Bytes::from(text))).is_err() {
                return Ok(());
            }
        }
    }
    if cast.is_none() {
        let mut text = String::new();
        begin(24, 80, &mut text);
        let _ = send.blocking_send(Ok(Bytes::from(text)));
    }
    Ok(())
}
