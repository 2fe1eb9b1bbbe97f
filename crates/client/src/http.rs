//! As much HTTP/1.1 as talking to our own daemon takes: one request, one answer, one connection.

use serde_json::Value;
use std::{
    fmt::Write as _,
    fs::File,
    io::{self, BufRead, BufReader, Read, Write as _},
    os::{fd::AsRawFd as _, unix::net::UnixStream},
    path::{Path, PathBuf},
};

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Body,
}

/// The body of an answer, as it comes.
pub(crate) struct Body {
    from: BufReader<UnixStream>,
    left: Left,
}

enum Left {
    Bytes(u64),
    /// Inside a chunk, or (0) before the next one.
    Chunk(u64),
    Nothing,
}

/// Socket addresses hold 108 bytes; a longer path is reached through its directory. The client does not link the store,
/// where all else of `/proc` is read.
pub(crate) fn connect(socket: &Path) -> io::Result<UnixStream> {
    if socket.as_os_str().len() < 100 {
        return UnixStream::connect(socket);
    }
    let (Some(dir), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let dir = File::open(dir)?;
    UnixStream::connect(PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name))
}

pub(crate) fn exchange(
    mut stream: UnixStream,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> io::Result<Reply> {
    let body = body.map(Value::to_string);
    let upgrades = headers.iter().any(|(name, _)| *name == "upgrade");
    let connection = if upgrades { "upgrade" } else { "close" };
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: countersign\r\nconnection: {connection}\r\n");
    for (name, value) in headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    if let Some(body) = &body {
        let _ = write!(head, "content-type: application/json\r\ncontent-length: {}\r\n", body.len());
    }
    head.push_str("\r\n");
    head.push_str(body.as_deref().unwrap_or_default());
    // A house that refuses a body before it has read it hangs up; its answer is there all the same.
    let sent = stream.write_all(head.as_bytes());
    let mut from = BufReader::with_capacity(64 * 1024, stream);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match from.read_until(b'\n', &mut head) {
            Ok(0) => return Err(sent.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => {}
            Err(e) => return Err(sent.err().unwrap_or(e)),
        }
    }
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut parsed = httparse::Response::new(&mut fields);
    parsed.parse(&head).map_err(io::Error::other)?;
    let field = |name: &str| {
        let found = parsed.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
        found.and_then(|h| std::str::from_utf8(h.value).ok()).map(str::trim)
    };
    let left = match (field("transfer-encoding"), field("content-length").and_then(|n| n.parse().ok())) {
        (Some(coding), _) if coding.eq_ignore_ascii_case("chunked") => Left::Chunk(0),
        (_, Some(n)) => Left::Bytes(n),
        _ => Left::Nothing,
    };
    Ok(Reply { status: parsed.code.unwrap_or(0), body: Body { from, left } })
}

impl Body {
    /// The connection itself, once it speaks something else than HTTP.
    pub(crate) fn into_stream(self) -> BufReader<UnixStream> {
        self.from
    }

    /// How long it is, if that was said and nothing has been read of it.
    pub(crate) fn length(&self) -> Option<u64> {
        match self.left {
            Left::Bytes(n) => Some(n),
            Left::Chunk(_) | Left::Nothing => None,
        }
    }

    pub(crate) fn whole(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn chunk_header(&mut self) -> io::Result<u64> {
        let mut line = String::new();
        // The end of the chunk before leaves an empty line.
        while line.trim().is_empty() {
            line.clear();
            if self.from.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        u64::from_str_radix(line.trim(), 16).map_err(io::Error::other)
    }
}

impl Read for Body {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let Left::Chunk(0) = self.left {
            self.left = match self.chunk_header()? {
                0 => Left::Nothing,
                n => Left::Chunk(n),
            };
        }
        let (Left::Bytes(left) | Left::Chunk(left)) = &mut self.left else { return Ok(0) };
        if *left == 0 {
            return Ok(0);
        }
        let most = usize::try_from(*left).unwrap_or(usize::MAX).min(buf.len());
        let n = self.from.read(&mut buf[..most])?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        *left -= n as u64;
        Ok(n)
    }
}
