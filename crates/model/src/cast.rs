//! Recordings as asciicast, versions 2 and 3: a header, then one JSON array a line.

use crate::{Frame, StreamName};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Version {
    /// Times count from the beginning.
    #[serde(alias = "2")]
    V2,
    /// Times count from the previous event; the exit is an event too.
    #[serde(alias = "3")]
    V3,
}

impl std::str::FromStr for Version {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "v2" | "2" => Ok(Version::V2),
            "v3" | "3" => Ok(Version::V3),
            other => {
                Err(format!("`{}` is not an asciicast version: use v2 or v3", crate::DisplaySafe::bounded(other, 20)))
            }
        }
    }
}

/// The header of a recording.
#[derive(Debug, Clone, Default)]
pub struct Header {
    pub rows: u16,
    pub cols: u16,
    /// Unix time in seconds.
    pub timestamp: u64,
    pub command: String,
    pub title: Option<String>,
    pub term: String,
}

/// Turns output and frames into lines of a recording. Characters that are split between two chunks wait for the rest.
pub struct Cast {
    version: Version,
    last_us: u64,
    /// The beginning of a split character, by stream.
    partial: [Vec<u8>; 3],
    /// The last byte of each stream, to tell a bare line feed from one that a terminal wrote.
    last_byte: [u8; 3],
    size: (u16, u16),
}

impl Cast {
    /// The recording and its first line, the header.
    pub fn begin(version: Version, header: &Header) -> (Self, String) {
        let mut line = match version {
            Version::V2 => json!({"version": 2, "width": header.cols, "height": header.rows}),
            Version::V3 => {
                json!({"version": 3, "term": {"cols": header.cols, "rows": header.rows, "type": header.term}})
            }
        };
        line["timestamp"] = header.timestamp.into();
        line["command"] = header.command.as_str().into();
        if let Some(title) = &header.title {
            line["title"] = title.as_str().into();
        }
        if version == Version::V2 {
            line["env"] = json!({"TERM": header.term});
        }
        let cast = Self {
            version,
            last_us: 0,
            partial: Default::default(),
            last_byte: [0; 3],
            size: (header.rows, header.cols),
        };
        (cast, format!("{line}\n"))
    }

    /// Output of a stream. Invalid bytes become U+FFFD, because a cast holds text.
    pub fn output(&mut self, t_us: u64, stream: StreamName, bytes: &[u8]) -> String {
        let n = stream as usize;
        let mut all = std::mem::take(&mut self.partial[n]);
        all.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&all) {
            Err(e) if e.error_len().is_none() => e.valid_up_to(),
            // Invalid further in: only a character that may still become complete is held back.
            Err(_) => all.len() - unfinished(&all),
            Ok(_) => all.len(),
        };
        self.partial[n] = all.split_off(whole);
        if all.is_empty() {
            return String::new();
        }
        let text = String::from_utf8_lossy(&all);
        // Pipes carry bare line feeds; a player needs a carriage return before each of them.
        let text = match stream {
            StreamName::Pty => text.into_owned(),
            _ => self.with_returns(n, &text),
        };
        self.event(t_us, "o", text.into())
    }

    fn with_returns(&mut self, n: usize, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + 16);
        for c in text.chars() {
            if c == '\n' && self.last_byte[n] != b'\r' {
                out.push('\r');
            }
            out.push(c);
            self.last_byte[n] = u8::try_from(c).unwrap_or(0);
        }
        out
    }

    /// The event for a frame that a recording shows; empty for any other frame.
    pub fn frame(&mut self, t_us: u64, frame: &Frame) -> String {
        match frame {
            Frame::Resized { rows, cols, .. } if (*rows, *cols) != self.size => {
                self.size = (*rows, *cols);
                self.event(t_us, "r", format!("{cols}x{rows}").into())
            }
            Frame::Closed { outcome, .. } if self.version == Version::V3 => {
                self.event(t_us, "x", outcome.exit_code().to_string().into())
            }
            _ => String::new(),
        }
    }

    fn event(&mut self, t_us: u64, code: &str, data: Value) -> String {
        let t_us = t_us.max(self.last_us);
        let time_us = match self.version {
            Version::V2 => t_us,
            Version::V3 => t_us - self.last_us,
        };
        self.last_us = t_us;
        format!("[{}.{:06}, {}, {data}]\n", time_us / 1_000_000, time_us % 1_000_000, json!(code))
    }
}

/// How many bytes at the end may be the beginning of a character.
fn unfinished(bytes: &[u8]) -> usize {
    let max = bytes.len().min(3);
    (1..=max)
        .rev()
        .find(|n| {
            std::str::from_utf8(&bytes[bytes.len() - n..])
                .is_err_and(|e| e.error_len().is_none() && e.valid_up_to() == 0)
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outcome;

    fn header() -> Header {
        Header { rows: 24, cols: 80, timestamp: 7, command: "x".into(), title: None, term: "xterm-256color".into() }
    }

    fn closed() -> Frame {
        Frame::Closed { outcome: Outcome::Exited { code: 3 }, frames: 1, streams: Default::default() }
    }

    #[test]
    fn version_2_counts_from_the_beginning() {
        let (mut cast, first) = Cast::begin(Version::V2, &header());
        let first: Value = serde_json::from_str(&first).unwrap();
        assert_eq!((first["version"].as_u64(), first["width"].as_u64()), (Some(2), Some(80)));
        assert_eq!(cast.output(500_000, StreamName::Pty, b"a\r\n"), "[0.500000, \"o\", \"a\\r\\n\"]\n");
        assert_eq!(
            cast.frame(1_500_000, &Frame::Resized { rows: 30, cols: 90, by: None }),
            "[1.500000, \"r\", \"90x30\"]\n"
        );
        assert_eq!(cast.frame(2_000_000, &closed()), "");
    }

    #[test]
    fn version_3_counts_from_the_event_before_and_knows_the_exit() {
        let (mut cast, first) = Cast::begin(Version::V3, &header());
        let first: Value = serde_json::from_str(&first).unwrap();
        assert_eq!((first["version"].as_u64(), first["term"]["cols"].as_u64()), (Some(3), Some(80)));
        cast.output(500_000, StreamName::Pty, b"a");
        assert_eq!(cast.output(700_000, StreamName::Pty, b"b"), "[0.200000, \"o\", \"b\"]\n");
        assert_eq!(cast.frame(1_000_000, &closed()), "[0.300000, \"x\", \"3\"]\n");
    }

    #[test]
    fn characters_across_chunks_stay_whole_and_pipes_get_their_returns() {
        let (mut cast, _) = Cast::begin(Version::V3, &header());
        let euro = "€".as_bytes();
        assert_eq!(cast.output(0, StreamName::Pty, &euro[..2]), "");
        assert_eq!(cast.output(0, StreamName::Pty, &euro[2..]), "[0.000000, \"o\", \"€\"]\n");
        assert_eq!(cast.output(0, StreamName::Stdout, b"a\nb\r\n"), "[0.000000, \"o\", \"a\\r\\nb\\r\\n\"]\n");
        assert_eq!(cast.output(0, StreamName::Stderr, b"\xff\n"), "[0.000000, \"o\", \"\u{fffd}\\r\\n\"]\n");
        assert_eq!(cast.output(0, StreamName::Stderr, b"\xff\xe2\x82"), "[0.000000, \"o\", \"\u{fffd}\"]\n");
        assert_eq!(cast.output(0, StreamName::Stderr, b"\xac"), "[0.000000, \"o\", \"€\"]\n");
    }
}
