//! Reads one HTTP answer from bytes as they arrive: its head, then its body by length, in chunks or to the end.

use crate::{ClientError, Result};

/// The maximum size of a head or a chunk header. The daemon sends shorter ones.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// The head of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    /// The length of the body, if the daemon sent it.
    pub(crate) length: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParseStage {
    Head,
    /// This many bytes of the body are still missing.
    Bytes(u64),
    ChunkSize,
    Chunk(u64),
    /// The line break after a chunk.
    ChunkEnd,
    /// Lines after the last chunk, up to an empty one.
    Trailer,
    /// The body ends with the connection, or the connection was upgraded to another protocol.
    UntilClosed,
    Done,
}

/// One answer, as far as it has arrived.
#[derive(Debug)]
pub(crate) struct ResponseReader {
    stage: ParseStage,
    /// An incomplete head or line.
    line: Vec<u8>,
    head: Option<ResponseHead>,
    /// Bytes of the body that have not been taken yet.
    body: Vec<u8>,
}

impl ResponseReader {
    pub(crate) fn new() -> Self {
        Self { stage: ParseStage::Head, line: Vec::new(), head: None, body: Vec::new() }
    }

    pub(crate) fn head(&self) -> Option<ResponseHead> {
        self.head
    }

    /// Whether the answer is complete.
    pub(crate) fn is_done(&self) -> bool {
        self.stage == ParseStage::Done
    }

    /// The bytes of the body since the last call.
    pub(crate) fn take_body(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.body)
    }

    /// The connection has ended: an error unless the answer is complete.
    pub(crate) fn end(&mut self) -> Result<()> {
        match self.stage {
            ParseStage::Done | ParseStage::UntilClosed => {
                self.stage = ParseStage::Done;
                Ok(())
            }
            _ => Err(ClientError::cut_off()),
        }
    }

    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match self.stage {
                ParseStage::Done => return Ok(()),
                ParseStage::UntilClosed => {
                    self.body.extend_from_slice(bytes);
                    return Ok(());
                }
                ParseStage::Bytes(left) => {
                    let left = self.take(&mut bytes, left);
                    self.stage = if left == 0 { ParseStage::Done } else { ParseStage::Bytes(left) };
                }
                ParseStage::Chunk(left) => {
                    let left = self.take(&mut bytes, left);
                    self.stage = if left == 0 { ParseStage::ChunkEnd } else { ParseStage::Chunk(left) };
                }
                ParseStage::Head | ParseStage::ChunkSize | ParseStage::ChunkEnd | ParseStage::Trailer => {
                    self.feed_line(&mut bytes)?
                }
            }
        }
        Ok(())
    }

    /// Moves up to `left` bytes into the body; returns how many are still missing.
    fn take(&mut self, bytes: &mut &[u8], left: u64) -> u64 {
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        self.body.extend_from_slice(&bytes[..n]);
        *bytes = &bytes[n..];
        left - n as u64
    }

    /// Reads to the end of a line, and parses the line or head that is complete with it.
    fn feed_line(&mut self, bytes: &mut &[u8]) -> Result<()> {
        let end = bytes.iter().position(|b| *b == b'\n');
        let n = end.map_or(bytes.len(), |at| at + 1);
        self.line.extend_from_slice(&bytes[..n]);
        *bytes = &bytes[n..];
        if self.line.len() > MAX_LINE_BYTES {
            return Err(ClientError::unreadable("an HTTP head without an end"));
        }
        if end.is_none() || self.stage == ParseStage::Head && !self.line.ends_with(b"\r\n\r\n") {
            return Ok(());
        }
        let line = std::mem::take(&mut self.line);
        self.stage = match self.stage {
            ParseStage::Head => self.read_head(&line)?,
            ParseStage::ChunkSize => match chunk_size(&line)? {
                0 => ParseStage::Trailer,
                size => ParseStage::Chunk(size),
            },
            ParseStage::ChunkEnd => ParseStage::ChunkSize,
            ParseStage::Trailer if line.trim_ascii().is_empty() => ParseStage::Done,
            other => other,
        };
        Ok(())
    }

    fn read_head(&mut self, head: &[u8]) -> Result<ParseStage> {
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut parsed = httparse::Response::new(&mut fields);
        parsed.parse(head).map_err(ClientError::unreadable)?;
        let status = parsed.code.unwrap_or(0);
        let field = |name: &str| {
            let found = parsed.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
            found.and_then(|h| std::str::from_utf8(h.value).ok()).map(str::trim)
        };
        let length = match field("content-length").map(str::parse) {
            None => None,
            Some(Ok(length)) => Some(length),
            Some(Err(_)) => return Err(ClientError::unreadable("a content-length that is not a number")),
        };
        let chunked = field("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
        self.head = Some(ResponseHead { status, length: length.filter(|_| !chunked) });
        Ok(match (status, length) {
            (204 | 304, _) => ParseStage::Done,
            _ if chunked => ParseStage::ChunkSize,
            (_, Some(0)) => ParseStage::Done,
            (_, Some(length)) => ParseStage::Bytes(length),
            (_, None) => ParseStage::UntilClosed,
        })
    }
}

fn chunk_size(line: &[u8]) -> Result<u64> {
    let text = std::str::from_utf8(line).unwrap_or_default();
    let digits = text.split(';').next().unwrap_or_default().trim();
    u64::from_str_radix(digits, 16).map_err(|_| ClientError::unreadable("a chunk without a size"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Feeds the bytes in pieces of `step` bytes; returns head and body if the answer was complete.
    fn read(bytes: &[u8], step: usize) -> Option<(ResponseHead, Vec<u8>)> {
        let (mut reader, mut body) = (ResponseReader::new(), Vec::new());
        for piece in bytes.chunks(step) {
            reader.feed(piece).ok()?;
            body.extend(reader.take_body());
        }
        reader.end().ok()?;
        Some((reader.head()?, body))
    }

    #[track_caller]
    fn check(text: &str, expect: Option<(u16, Option<u64>, &str)>) {
        let expect = expect.map(|(status, length, body)| (ResponseHead { status, length }, body.as_bytes().to_vec()));
        for step in 1..=text.len() {
            assert_eq!(read(text.as_bytes(), step), expect, "in pieces of {step}");
        }
    }

    #[test]
    fn a_body_is_read_by_its_length() {
        check("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", Some((200, Some(5), "hello")));
        check("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", Some((201, Some(0), "")));
        check("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello", None);
    }

    #[test]
    fn a_body_is_read_in_chunks() {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        check(
            &format!("{head}5\r\nhello\r\nA;x=y\r\n, world\r\n!\r\n0\r\n\r\n"),
            Some((200, None, "hello, world\r\n!")),
        );
        check(&format!("{head}1\r\nx\r\n0\r\nlate: field\r\n\r\n"), Some((200, None, "x")));
        check(&format!("{head}5\r\nhello\r\n"), None);
        check(&format!("{head}z\r\nhello\r\n"), None);
    }

    #[test]
    fn a_body_without_a_length_ends_with_the_connection() {
        check("HTTP/1.1 200 OK\r\n\r\nall of it", Some((200, None, "all of it")));
        check("HTTP/1.1 101 Switching Protocols\r\nupgrade: mcp\r\n\r\n{}\n", Some((101, None, "{}\n")));
        check("HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n", Some((304, Some(7), "")));
    }

    #[test]
    fn bytes_that_are_not_an_answer_are_refused() {
        check("", None);
        check("HTTP/1.1 200", None);
        check("SSH-2.0-OpenSSH\r\n\r\n", None);
        check("HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n", None);
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(MAX_LINE_BYTES));
        assert!(ResponseReader::new().feed(endless.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn chunks_of_any_size_can_be_cut_anywhere(parts in prop::collection::vec("[a-z\r\n]{1,40}", 0..8), step in 1usize..50) {
            let mut text = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned();
            for part in &parts {
                text += &format!("{:x}\r\n{part}\r\n", part.len());
            }
            text += "0\r\n\r\n";
            let (_, body) = read(text.as_bytes(), step).expect("complete");
            prop_assert_eq!(String::from_utf8(body).unwrap(), parts.concat());
        }

        #[test]
        fn arbitrary_bytes_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), step in 1usize..50) {
            let _ = read(&bytes, step);
        }
    }
}
