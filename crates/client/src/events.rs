//! A task's stream over server-sent events. The cursor is the number of the last frame; with it, a reader comes back
//! after any break and misses nothing.

use crate::{Client, ClientError, Result, http::Body};
use countersign_model::TaskId;
use std::{
    io::{self, BufRead as _, BufReader},
    time::Duration,
};

/// One record of the stream, as its line.
#[derive(Debug, Clone)]
pub struct Event {
    pub seq: u64,
    pub line: String,
}

pub struct Events {
    client: Client,
    task: TaskId,
    after: Option<u64>,
    body: Option<BufReader<Body>>,
    ended: bool,
    /// Connections in a row that brought nothing.
    barren: u32,
    view: Option<String>,
}

/// A house that breaks off without a word is asked again, but not at once and not ever faster.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST: u32 = 100;

impl Events {
    pub(crate) fn new(client: Client, task: TaskId, after: Option<u64>) -> Self {
        Self { client, task, after, body: None, ended: false, barren: 0, view: None }
    }

    pub(crate) fn in_view(mut self, view: &str) -> Self {
        self.view = Some(view.to_owned());
        self
    }

    /// The next record; none after the last. After a broken connection the next call begins a new one and goes on
    /// behind the last record that was given out.
    pub fn next_event(&mut self) -> Result<Option<Event>> {
        if self.ended {
            return Ok(None);
        }
        let mut body = match self.body.take() {
            Some(body) => body,
            None => {
                std::thread::sleep(PAUSE * self.barren);
                self.barren = (self.barren + 1).min(LONGEST);
                self.connect()?
            }
        };
        let event = read_event(&mut body)?;
        match event {
            Some(event) => {
                self.after = Some(event.seq);
                self.barren = 0;
                self.body = Some(body);
                Ok(Some(event))
            }
            None => {
                self.ended = true;
                Ok(None)
            }
        }
    }

    fn connect(&self) -> Result<BufReader<Body>> {
        let cursor = self.after.map(|seq| seq.to_string());
        let headers: Vec<(&str, &str)> = cursor.iter().map(|seq| ("last-event-id", seq.as_str())).collect();
        let view = self.view.as_ref().map(|v| format!("?view={}", crate::escaped(v))).unwrap_or_default();
        let reply = self.client.open("GET", &format!("/tasks/{}/events{view}", self.task), &headers, None)?;
        Ok(BufReader::with_capacity(64 * 1024, reply.body))
    }
}

/// Approvals as they come, over any number of connections.
pub struct ApprovalEvents {
    client: Client,
    after: Option<u64>,
    body: Option<BufReader<Body>>,
    barren: u32,
}

impl ApprovalEvents {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, after: None, body: None, barren: 0 }
    }

    /// The next approval that was opened or resolved. After a broken connection the next call goes on behind the last.
    pub fn next_approval(&mut self) -> Result<countersign_model::Approval> {
        let mut body = match self.body.take() {
            Some(body) => body,
            None => {
                std::thread::sleep(PAUSE * self.barren);
                self.barren = (self.barren + 1).min(LONGEST);
                let cursor = self.after.map(|n| n.to_string());
                let headers: Vec<(&str, &str)> = cursor.iter().map(|n| ("last-event-id", n.as_str())).collect();
                BufReader::new(self.client.open("GET", "/approvals/events", &headers, None)?.body)
            }
        };
        let event =
            read_event(&mut body)?.ok_or_else(|| ClientError::Strange("the stream of approvals ended".to_owned()))?;
        (self.after, self.barren, self.body) = (Some(event.seq), 0, Some(body));
        serde_json::from_str(&event.line).map_err(|e| ClientError::Strange(e.to_string()))
    }
}

/// One event with data; none for `event: end`. Comments and retry hints pass by.
fn read_event(body: &mut BufReader<Body>) -> Result<Option<Event>> {
    let (mut seq, mut data, mut end, mut gap) = (None, String::new(), false, false);
    let mut line = String::new();
    loop {
        line.clear();
        if body.read_line(&mut line)? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        match line.trim_end_matches(['\r', '\n']).split_once(':') {
            Some(("id", value)) => {
                // A view that has several events for one record names each behind the record's number.
                let record = value.trim().split('.').next().unwrap_or_default();
                seq = record.parse().ok();
            }
            Some(("data", value)) => data.push_str(value.strip_prefix(' ').unwrap_or(value)),
            Some(("event", value)) => {
                end = value.trim() == "end";
                gap = value.trim() == "gap";
            }
            None if end => return Ok(None),
            // What is missing is missing; the stream goes on behind it.
            None if gap => {
                gap = false;
                data.clear();
            }
            None if !data.is_empty() => {
                let seq = seq.ok_or_else(|| ClientError::Strange("an event without an id".to_owned()))?;
                return Ok(Some(Event { seq, line: data }));
            }
            _ => {}
        }
    }
}
