//! Reads server-sent events from bytes as they arrive. Does not interpret them.

use crate::{ClientError, Result};
use std::collections::VecDeque;

/// The maximum size of an event. The daemon sends shorter ones.
const MAX_LINE_BYTES: usize = 64 << 20;

/// One event, as sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServerEvent {
    pub(crate) id: Option<String>,
    /// The `event` field; none for a plain message.
    pub(crate) kind: Option<String>,
    pub(crate) data: String,
}

/// Turns lines into events. Comments and retry hints are ignored.
#[derive(Debug, Default)]
pub(crate) struct ServerEvents {
    line: Vec<u8>,
    event: ServerEvent,
    has_data: bool,
    complete: VecDeque<ServerEvent>,
}

impl ServerEvents {
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Result<()> {
        while let Some(at) = bytes.iter().position(|b| *b == b'\n') {
            self.line.extend_from_slice(&bytes[..at]);
            bytes = &bytes[at + 1..];
            self.end_line()?;
        }
        self.line.extend_from_slice(bytes);
        if self.line.len() > MAX_LINE_BYTES {
            return Err(ClientError::unreadable("an event that does not end"));
        }
        Ok(())
    }

    /// The next complete event.
    pub(crate) fn next(&mut self) -> Option<ServerEvent> {
        self.complete.pop_front()
    }

    fn end_line(&mut self) -> Result<()> {
        let mut line = std::mem::take(&mut self.line);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            let has_data = std::mem::take(&mut self.has_data);
            if has_data {
                self.complete.push_back(event);
            }
            return Ok(());
        }
        let line = String::from_utf8(line).map_err(ClientError::unreadable)?;
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => self.event.id = Some(value.to_owned()),
            "event" => self.event.kind = Some(value.to_owned()),
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
                self.has_data = true;
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: Option<&str>, kind: Option<&str>, data: &str) -> ServerEvent {
        ServerEvent { id: id.map(str::to_owned), kind: kind.map(str::to_owned), data: data.to_owned() }
    }

    #[track_caller]
    fn check(text: &str, expect: &[ServerEvent]) {
        for step in 1..=text.len() {
            let mut events = ServerEvents::default();
            text.as_bytes().chunks(step).for_each(|piece| events.feed(piece).unwrap());
            let read: Vec<_> = std::iter::from_fn(|| events.next()).collect();
            assert_eq!(read, expect, "in pieces of {step}");
        }
    }

    #[test]
    fn events_are_parsed_with_and_without_a_name() {
        check(
            "retry: 2000\n\nid: 7.1\ndata: {\"a\":1}\n\nevent: end\ndata: {}\n\n",
            &[event(Some("7.1"), None, "{\"a\":1}"), event(None, Some("end"), "{}")],
        );
    }

    #[test]
    fn comments_multiple_data_lines_and_carriage_returns_are_parsed() {
        check(": now\n\ndata: a: b\r\ndata:c\r\n\r\n: \n\n", &[event(None, None, "a: b\nc")]);
    }

    #[test]
    fn an_incomplete_event_is_not_returned() {
        check("id: 1\ndata: x\n\nid: 2\ndata: y\n", &[event(Some("1"), None, "x")]);
    }
}
