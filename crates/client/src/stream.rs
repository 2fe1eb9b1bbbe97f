//! Follows a stream of events over any number of connections, without a socket: decides what to do next and parses what
//! arrives.
//!
//! A reader identifies its position by the id of the last event it got, unchanged. A view that makes several events of
//! one record gives them the ids `record.index`, so that a reader that disconnects between two of them gets the second
//! one when it reconnects.

use crate::{
    ClientError, HttpRequest, Result,
    wire::{
        response::ResponseReader,
        server_events::{ServerEvent, ServerEvents},
    },
};
use countersign_model::api::GapEvent;
use serde::de::DeserializeOwned;
use std::{fmt, marker::PhantomData, time::Duration};

/// The pause before a reconnect grows with each connection that brought nothing, up to a maximum.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
const MAX_RETRY_PAUSES: u32 = 100;

/// A position in a stream: the id of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventCursor(String);

impl EventCursor {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The position after a record of a task, or after a decision of the ledger.
impl From<u64> for EventCursor {
    fn from(seq: u64) -> Self {
        Self(seq.to_string())
    }
}

/// A saved position.
impl From<String> for EventCursor {
    fn from(id: String) -> Self {
        Self(id)
    }
}

impl fmt::Display for EventCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A stream that can be followed, and the type of its events. [`crate::calls`] has one for every stream.
#[derive(Clone)]
pub struct StreamCall<E> {
    pub(crate) request: HttpRequest,
    after: Option<EventCursor>,
    events: PhantomData<fn() -> E>,
}

impl<E> StreamCall<E> {
    pub(crate) fn new(request: HttpRequest) -> Self {
        Self { request, after: None, events: PhantomData }
    }

    /// Starts after this position.
    #[must_use]
    pub fn after(mut self, cursor: impl Into<EventCursor>) -> Self {
        self.after = Some(cursor.into());
        self
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event<E> {
    /// The position after this event. None while a stream lists existing entries: a reader that disconnects meanwhile
    /// gets all of them again.
    pub cursor: Option<EventCursor>,
    pub value: E,
    /// The JSON of the event, for programs that pass it on unchanged.
    pub json: String,
    /// Records that are missing before this one: they were removed, or cannot be read.
    pub gap: Option<GapEvent>,
}

/// The next step of a reader.
#[derive(Debug)]
pub(crate) enum FollowStep<E> {
    /// Wait this long, connect, and send [`Follower::request`].
    Connect(Duration),
    /// Read from the connection.
    Read,
    Event(Event<E>),
    End,
}

/// The state of a reader of one stream.
pub(crate) struct Follower<E> {
    call: StreamCall<E>,
    connection: Option<(ResponseReader, ServerEvents)>,
    gap: Option<GapEvent>,
    ended: bool,
    /// Consecutive connections that brought no event.
    empty_connections: u32,
}

impl<E: DeserializeOwned> Follower<E> {
    pub(crate) fn new(call: StreamCall<E>) -> Self {
        Self { call, connection: None, gap: None, ended: false, empty_connections: 0 }
    }

    /// The request for a new connection.
    pub(crate) fn request(&self) -> HttpRequest {
        let request = self.call.request.clone();
        match &self.call.after {
            Some(cursor) => request.header("last-event-id", cursor.as_str()),
            None => request,
        }
    }

    pub(crate) fn begin_connection(&mut self) {
        self.connection = Some((ResponseReader::new(), ServerEvents::default()));
    }

    /// The connection is lost; the next step is a new one.
    pub(crate) fn drop_connection(&mut self) {
        self.connection = None;
        self.gap = None;
    }

    /// Adds bytes from the connection; no bytes mean its end.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        let Some((answer, _)) = &mut self.connection else { return Ok(()) };
        if bytes.is_empty() { answer.end() } else { answer.feed(bytes) }
    }

    pub(crate) fn step(&mut self) -> Result<FollowStep<E>> {
        if self.ended {
            return Ok(FollowStep::End);
        }
        loop {
            let Some((answer, events)) = &mut self.connection else {
                let pause = RETRY_PAUSE * self.empty_connections;
                self.empty_connections = (self.empty_connections + 1).min(MAX_RETRY_PAUSES);
                return Ok(FollowStep::Connect(pause));
            };
            if let Some(event) = events.next() {
                match self.take_event(event)? {
                    Some(step) => return Ok(step),
                    None => continue,
                }
            }
            let Some(head) = answer.head() else { return Ok(FollowStep::Read) };
            if head.status >= 400 {
                if !answer.is_done() {
                    return Ok(FollowStep::Read);
                }
                return Err(ClientError::from_problem(head.status, &answer.take_body()));
            }
            let body = answer.take_body();
            if !body.is_empty() {
                events.feed(&body)?;
            } else if answer.is_done() {
                // A complete stream ends with an `end` event.
                return Err(ClientError::cut_off());
            } else {
                return Ok(FollowStep::Read);
            }
        }
    }

    fn take_event(&mut self, event: ServerEvent) -> Result<Option<FollowStep<E>>> {
        let ServerEvent { id, kind, data: json } = event;
        match kind.as_deref() {
            Some("end") => {
                self.ended = true;
                return Ok(Some(FollowStep::End));
            }
            // The gap is returned with the next event, so that a reader that disconnects before it gets the gap again.
            Some("gap") => {
                self.gap = Some(serde_json::from_str(&json).map_err(ClientError::unreadable)?);
                return Ok(None);
            }
            _ => {}
        }
        let cursor = id.map(EventCursor);
        // Also after an event that cannot be parsed: it could not be parsed the next time either.
        if cursor.is_some() {
            self.call.after.clone_from(&cursor);
        }
        self.empty_connections = 0;
        let value = serde_json::from_str(&json).map_err(ClientError::unreadable)?;
        Ok(Some(FollowStep::Event(Event { cursor, value, json, gap: self.gap.take() })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Address;
    use countersign_model::RefusalCode;

    fn follower() -> Follower<u64> {
        Follower::new(StreamCall::new(HttpRequest::get(&["events"])))
    }

    /// The events of one connection, until more bytes are needed.
    fn over_one_connection(follower: &mut Follower<u64>, bytes: &str) -> (Vec<String>, bool) {
        assert!(matches!(follower.step(), Ok(FollowStep::Connect(_))));
        follower.begin_connection();
        follower.feed(bytes.as_bytes()).unwrap();
        let mut seen = Vec::new();
        loop {
            match follower.step().unwrap() {
                FollowStep::Event(event) => {
                    let cursor = event.cursor.map(|c| c.to_string()).unwrap_or_default();
                    seen.push(format!("{cursor}={}", event.value));
                }
                FollowStep::Read => return (seen, false),
                FollowStep::End => return (seen, true),
                FollowStep::Connect(_) => panic!("it is connected"),
            }
        }
    }

    fn request(follower: &Follower<u64>) -> String {
        String::from_utf8(follower.request().to_bytes(&Address::unix("/x")).unwrap()).unwrap()
    }

    const HEAD: &str = "HTTP/1.1 200 OK\r\n\r\n";

    #[test]
    fn a_reader_continues_after_the_last_complete_event() {
        let mut follower = follower();
        assert!(!request(&follower).contains("last-event-id"));
        let (seen, _) = over_one_connection(&mut follower, &format!("{HEAD}id: 4.0\ndata: 1\n\nid: 4.1\ndata: 2"));
        assert_eq!(seen, ["4.0=1"]);
        follower.drop_connection();
        assert!(request(&follower).contains("\r\nlast-event-id: 4.0\r\n"));
        let (seen, ended) =
            over_one_connection(&mut follower, &format!("{HEAD}id: 4.1\ndata: 2\n\nevent: end\ndata: {{}}\n\n"));
        assert_eq!((seen, ended), (vec!["4.1=2".to_owned()], true));
    }

    #[test]
    fn a_gap_comes_with_the_next_event_also_after_a_reconnect() {
        let gap = "event: gap\nid: 6\ndata: {\"from\":3,\"to\":6}\n\n";
        let mut follower = follower();
        over_one_connection(&mut follower, &format!("{HEAD}id: 2\ndata: 0\n\n{gap}"));
        follower.drop_connection();
        assert!(request(&follower).contains("\r\nlast-event-id: 2\r\n"));
        follower.begin_connection();
        follower.feed(format!("{HEAD}{gap}id: 7\ndata: 5\n\n").as_bytes()).unwrap();
        let Ok(FollowStep::Event(event)) = follower.step() else { panic!("an event") };
        assert_eq!(event.gap, Some(GapEvent { from: 3, to: 6 }));
    }

    #[test]
    fn an_interrupted_list_is_sent_again_and_a_complete_one_is_not() {
        let (mut follower, list) = (follower(), "data: 1\n\ndata: 2\n\n");
        let (seen, _) = over_one_connection(&mut follower, &format!("{HEAD}{list}"));
        assert_eq!(seen, ["=1", "=2"]);
        follower.drop_connection();
        assert!(!request(&follower).contains("last-event-id"));
        over_one_connection(&mut follower, &format!("{HEAD}{list}id: 9\ndata: 3\n\n"));
        assert!(request(&follower).contains("\r\nlast-event-id: 9\r\n"));
    }

    #[test]
    fn a_stream_without_an_end_event_counts_as_lost() {
        let mut follower = follower();
        over_one_connection(&mut follower, &format!("{HEAD}id: 1\ndata: 1\n\n"));
        follower.feed(b"").unwrap();
        assert!(follower.step().unwrap_err().is_daemon_gone());
    }

    #[test]
    fn a_refusal_is_read_completely() {
        let problem = r#"{"type":"","title":"","status":404,"detail":"no such task","code":"not_found"}"#;
        let mut follower = follower();
        follower.begin_connection();
        let head = format!("HTTP/1.1 404 Not Found\r\ncontent-length: {}\r\n\r\n", problem.len());
        follower.feed(head.as_bytes()).unwrap();
        assert!(matches!(follower.step(), Ok(FollowStep::Read)));
        follower.feed(problem.as_bytes()).unwrap();
        let Err(ClientError::Refused(refused)) = follower.step() else { panic!("a refusal") };
        assert_eq!(refused.refusal.code, RefusalCode::NotFound);
    }

    #[test]
    fn the_pause_grows_with_each_empty_connection() {
        let mut follower = follower();
        let mut pauses = Vec::new();
        for _ in 0..3 {
            let Ok(FollowStep::Connect(pause)) = follower.step() else { panic!("not connected") };
            pauses.push(pause);
        }
        assert_eq!(pauses, [Duration::ZERO, RETRY_PAUSE, RETRY_PAUSE * 2]);
    }
}
