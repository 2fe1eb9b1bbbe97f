//! `/tasks/{id}/cast`: the recording as asciicast. Read from the files; nothing is started.

use super::{
    Answer, Projections, Shared,
    arrive::Who,
    find_task,
    output::Pieces,
    problem::{Query, Segment},
};
use crate::house::House;
use axum::{
    body::{Body, Bytes},
    extract::State,
    http::header,
    response::{IntoResponse as _, Response},
};
use countersign_model::{
    Code, Frame, Mode, Record, Refusal, TaskState, What,
    cast::{Cast, Header, Version},
};
use countersign_store::{
    output::{self, Gaps},
    stream::Stream,
};
use std::{io, sync::Arc};
use tokio::sync::mpsc;

const LINES: usize = 64 * 1024;

pub(crate) async fn cast(State(house): Shared, who: Who, Segment(id): Segment, mut query: Query) -> Answer<Response> {
    let version = query.text("version").map_or(Ok(Version::V3), |v| v.parse());
    let version = version.map_err(|e: String| Refusal::new(Code::BadRequest, format!("`version`: {e}")))?;
    query.nothing_else()?;
    let task = find_task(&house, &who, &id)?;
    Projections::warm(&house, task).await?;
    let state = house.projections.state(&house, task)?;
    if state.expired_at.is_some() {
        return Err(Refusal::new(Code::Expired, "what this task wrote was removed")
            .hint("its decisions and digests stay: csn show")
            .into());
    }
    let (send, receive) = mpsc::channel(2);
    tokio::task::spawn_blocking(move || {
        if let Err(e) = record(&house, &state, version, &send) {
            let _ = send.blocking_send(Err(e));
        }
    });
    let headers = [(header::CONTENT_TYPE, "application/x-asciicast")];
    Ok((headers, Body::from_stream(Pieces(receive))).into_response())
}

/// Everything that is there, as lines.
fn record(
    house: &Arc<House>,
    state: &TaskState,
    version: Version,
    send: &mpsc::Sender<io::Result<Bytes>>,
) -> io::Result<()> {
    let mut stream = Stream::from(&house.home, state.task_id, 0);
    let dir = house.home.task_dir(state.task_id);
    let header = |rows, cols| Header {
        rows,
        cols,
        timestamp: state.spawned_at.unwrap_or(state.asked_at).millis() / 1000,
        command: state.display.as_str().to_owned(),
        title: state.title.as_ref().map(|t| t.as_str().to_owned()),
        term: "xterm-256color".to_owned(),
    };
    let (mut cast, mut gaps) = (None, Gaps::default());
    let begin = |rows, cols, text: &mut String| {
        let (cast, first) = Cast::begin(version, &header(rows, cols));
        text.push_str(&first);
        cast
    };
    loop {
        let lines = house.readers.with(|r| Ok(stream.next(r, LINES))).map_err(io::Error::other)?;
        let lines = lines.map_err(io::Error::other)?;
        if lines.is_empty() {
            break;
        }
        for (_, line) in lines {
            let mut text = String::new();
            let record = Record::parse(&line).map_err(io::Error::other)?;
            let (What::Frame(frame), Some(t_us)) = (&record.what, record.t_us) else { continue };
            gaps.note(frame);
            // The size that a terminal begins with comes before anything that it shows.
            let cast = match (&mut cast, frame) {
                (Some(cast), _) => cast,
                (none, Frame::Resized { rows, cols, .. }) => none.insert(begin(*rows, *cols, &mut text)),
                (none, Frame::Output { .. }) if state.mode == Mode::Pipes => none.insert(begin(24, 80, &mut text)),
                (none, Frame::Closed { .. }) => none.insert(begin(24, 80, &mut text)),
                _ => continue,
            };
            text += &match frame {
                Frame::Output { stream, offset, len, digest } => {
                    let dropped = gaps.before(*stream, *offset);
                    let bytes = output::chunk(&dir, *stream, *offset, *len, *digest, dropped);
                    cast.output(t_us, *stream, &bytes.map_err(io::Error::other)?)
                }
                frame => cast.frame(t_us, frame),
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
