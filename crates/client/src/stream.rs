//! Following a stream of events over any number of connections, without a socket: what to do next, and what came.
//!
//! A reader says where it is by the id of the last event that it was given, whole and as it came. A view that makes
//! several events of one record names each by `record.place`: a reader that breaks off between two of them gets the
//! second one when it comes back.

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

/// A daemon that breaks off without a word is asked again, but not at once and not ever faster.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
const MAX_RETRY_PAUSES: u32 = 100;

/// A place in a stream: the id of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventCursor(String);

impl EventCursor {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The place behind a record of a task, or behind a decision of the ledger.
impl From<u64> for EventCursor {
    fn from(seq: u64) -> Self {
        Self(seq.to_string())
    }
}

/// A place that was written down.
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

/// A stream that can be followed, and what its events are. [`crate::calls`] makes one for every stream.
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

    /// From behind this place on.
    #[must_use]
    pub fn after(mut self, cursor: impl Into<EventCursor>) -> Self {
        self.after = Some(cursor.into());
        self
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event<E> {
    /// Where a reader that has seen this event goes on. None while a stream lists what is there already: a reader that
    /// breaks off in between is told all of it again.
    pub cursor: Option<EventCursor>,
    pub value: E,
    /// The JSON that it came as, for programs that pass it on unchanged.
    pub json: String,
    /// Records that should be before this one and are not: they were removed, or do not read.
    pub gap: Option<GapEvent>,
}

/// What a reader of a stream does next.
#[derive(Debug)]
pub(crate) enum FollowStep<E> {
    /// Wait this long, connect, and send [`Follower::request`].
    Connect(Duration),
    /// Read from the connection.
    Read,
    Event(Event<E>),
    End,
}

/// How far the reading of one stream has come.
pub(crate) struct Follower<E> {
    call: StreamCall<E>,
    connection: Option<(ResponseReader, ServerEvents)>,
    gap: Option<GapEvent>,
    ended: bool,
    /// Connections in a row that brought nothing.
    barren: u32,
}

impl<E: DeserializeOwned> Follower<E> {
    pub(crate) fn new(call: StreamCall<E>) -> Self {
        Self { call, connection: None, gap: None, ended: false, barren: 0 }
    }

    /// What goes out on a new connection.
    pub(crate) fn request(&self) -> HttpRequest {
        let request = self.call.request.clone();
        match &self.call.after {
            Some(cursor) => request.header("last-event-id", cursor.as_str()),
            None => request,
        }
    }

    pub(crate) fn connected(&mut self) {
        self.connection = Some((ResponseReader::new(), ServerEvents::default()));
    }

    /// The connection is of no more use; the next step is another one.
    pub(crate) fn disconnected(&mut self) {
        self.connection = None;
        self.gap = None;
    }

    /// Bytes from the connection; none is its end.
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
                let pause = RETRY_PAUSE * self.barren;
                self.barren = (self.barren + 1).min(MAX_RETRY_PAUSES);
                return Ok(FollowStep::Connect(pause));
            };
            if let Some(event) = events.next() {
                match self.take(event)? {
                    Some(step) => return Ok(step),
                    None => continue,
                }
            }
            let Some(head) = answer.head() else { return Ok(FollowStep::Read) };
            if head.status >= 400 {
                if !answer.is_done() {
                    return Ok(FollowStep::Read);
                }
                return Err(ClientError::of_problem(head.status, &answer.take_body()));
            }
            let body = answer.take_body();
            if !body.is_empty() {
                events.feed(&body)?;
            } else if answer.is_done() {
                // A stream that is over says so.
                return Err(ClientError::cut_off());
            } else {
                return Ok(FollowStep::Read);
            }
        }
    }

    fn take(&mut self, event: ServerEvent) -> Result<Option<FollowStep<E>>> {
        let ServerEvent { id, kind, data: json } = event;
        match kind.as_deref() {
            Some("end") => {
                self.ended = true;
                return Ok(Some(FollowStep::End));
            }
            // It is told with the event behind it: a reader that breaks off in between hears of it again.
            Some("gap") => {
                self.gap = Some(serde_json::from_str(&json).map_err(ClientError::unreadable)?);
                return Ok(None);
            }
            _ => {}
        }
        let cursor = id.map(EventCursor);
        // Also behind an event that does not read: it would not read the next time either.
        if cursor.is_some() {
            self.call.after.clone_from(&cursor);
        }
        self.barren = 0;
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

    /// What comes over one connection, until it has to be read again.
    fn over_one_connection(follower: &mut Follower<u64>, bytes: &str) -> (Vec<String>, bool) {
        assert!(matches!(follower.step(), Ok(FollowStep::Connect(_))));
        follower.connected();
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
    fn a_reader_comes_back_behind_the_last_event_whole() {
        let mut follower = follower();
        assert!(!request(&follower).contains("last-event-id"));
        let (seen, _) = over_one_connection(&mut follower, &format!("{HEAD}id: 4.0\ndata: 1\n\nid: 4.1\ndata: 2"));
        assert_eq!(seen, ["4.0=1"]);
        follower.disconnected();
        assert!(request(&follower).contains("\r\nlast-event-id: 4.0\r\n"));
        let (seen, ended) =
            over_one_connection(&mut follower, &format!("{HEAD}id: 4.1\ndata: 2\n\nevent: end\ndata: {{}}\n\n"));
        assert_eq!((seen, ended), (vec!["4.1=2".to_owned()], true));
    }

    #[test]
    fn a_gap_is_told_with_the_event_behind_it_also_after_a_break() {
        let gap = "event: gap\nid: 6\ndata: {\"from\":3,\"to\":6}\n\n";
        let mut follower = follower();
        over_one_connection(&mut follower, &format!("{HEAD}id: 2\ndata: 0\n\n{gap}"));
        follower.disconnected();
        assert!(request(&follower).contains("\r\nlast-event-id: 2\r\n"));
        follower.connected();
        follower.feed(format!("{HEAD}{gap}id: 7\ndata: 5\n\n").as_bytes()).unwrap();
        let Ok(FollowStep::Event(event)) = follower.step() else { panic!("an event") };
        assert_eq!(event.gap, Some(GapEvent { from: 3, to: 6 }));
    }

    #[test]
    fn a_list_that_breaks_off_is_told_again_and_one_that_is_whole_is_not() {
        let (mut follower, list) = (follower(), "data: 1\n\ndata: 2\n\n");
        let (seen, _) = over_one_connection(&mut follower, &format!("{HEAD}{list}"));
        assert_eq!(seen, ["=1", "=2"]);
        follower.disconnected();
        assert!(!request(&follower).contains("last-event-id"));
        over_one_connection(&mut follower, &format!("{HEAD}{list}id: 9\ndata: 3\n\n"));
        assert!(request(&follower).contains("\r\nlast-event-id: 9\r\n"));
    }

    #[test]
    fn a_stream_that_ends_without_a_word_has_broken() {
        let mut follower = follower();
        over_one_connection(&mut follower, &format!("{HEAD}id: 1\ndata: 1\n\n"));
        follower.feed(b"").unwrap();
        assert!(follower.step().unwrap_err().is_daemon_gone());
    }

    #[test]
    fn a_refusal_is_read_whole() {
        let problem = r#"{"type":"","title":"","status":404,"detail":"no such task","code":"not_found"}"#;
        let mut follower = follower();
        follower.connected();
        let head = format!("HTTP/1.1 404 Not Found\r\ncontent-length: {}\r\n\r\n", problem.len());
        follower.feed(head.as_bytes()).unwrap();
        assert!(matches!(follower.step(), Ok(FollowStep::Read)));
        follower.feed(problem.as_bytes()).unwrap();
        let Err(ClientError::Refused(refused)) = follower.step() else { panic!("a refusal") };
        assert_eq!(refused.refusal.code, RefusalCode::NotFound);
    }

    #[test]
    fn each_connection_that_brings_nothing_is_waited_for_longer() {
        let mut follower = follower();
        let mut pauses = Vec::new();
        for _ in 0..3 {
            let Ok(FollowStep::Connect(pause)) = follower.step() else { panic!("not connected") };
            pauses.push(pause);
        }
        assert_eq!(pauses, [Duration::ZERO, RETRY_PAUSE, RETRY_PAUSE * 2]);
    }
}
