//! A minimal HTTP client over a unix socket, for the load client.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
};

pub(crate) struct Conn {
    stream: BufReader<UnixStream>,
}

impl Conn {
    pub(crate) fn open(socket: &Path) -> io::Result<Self> {
        Ok(Self { stream: BufReader::with_capacity(256 * 1024, UnixStream::connect(socket)?) })
    }

    fn send(&mut self, method: &str, path: &str, extra: &str, body: &str) -> io::Result<()> {
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: bench\r\n{extra}content-length: {}\r\n\r\n{body}", body.len());
        self.stream.get_mut().write_all(head.as_bytes())
    }

    /// Reads the status, and the length of the body unless it is chunked.
    fn read_head(&mut self) -> io::Result<(u16, Option<usize>)> {
        let (mut line, mut status, mut length) = (String::new(), 0, None);
        loop {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match line.trim_end() {
                "" => return Ok((status, length)),
                text if text.starts_with("HTTP/") => {
                    status = text.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
                }
                text => {
                    let (name, value) = text.split_once(':').unwrap_or((text, ""));
                    if name.eq_ignore_ascii_case("content-length") {
                        length = value.trim().parse().ok();
                    }
                }
            }
        }
    }

    /// Sends one request and reads the whole answer, on a connection that stays open.
    pub(crate) fn call(&mut self, method: &str, path: &str, extra: &str, body: &str) -> io::Result<(u16, Vec<u8>)> {
        self.send(method, path, extra, body)?;
        let (status, length) = self.read_head()?;
        let mut answer = vec![0; length.unwrap_or(0)];
        self.stream.read_exact(&mut answer)?;
        Ok((status, answer))
    }

    /// Reads the lines of a stream while `wanted` returns true.
    pub(crate) fn read_lines(mut self, path: &str, mut wanted: impl FnMut(&str) -> bool) {
        if self.send("GET", path, "", "").and_then(|()| self.read_head()).is_err() {
            return;
        }
        let mut line = String::new();
        while self.stream.read_line(&mut line).is_ok_and(|n| n > 0) && wanted(&line) {
            line.clear();
        }
    }

    /// Follows server-sent events until a line contains `until`.
    pub(crate) fn read_events(&mut self, path: &str, until: &str) -> io::Result<u64> {
        self.send("GET", path, "", "")?;
        self.read_head()?;
        let (mut line, mut seen) = (String::new(), 0);
        loop {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            seen += u64::from(line.starts_with("data:"));
            if line.contains(until) {
                return Ok(seen);
            }
        }
    }
}
