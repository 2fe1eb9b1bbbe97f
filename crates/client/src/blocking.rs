//! The blocking client: each call and each stream has its own connection.

use crate::{
    Address, Call, ClientError, Event, HttpRequest, Result, StreamCall,
    stream::{FollowStep, Follower},
    transport::Connection,
    wire::response::{ResponseHead, ResponseReader},
};
use countersign_model::api::StreamRecord;
use serde::de::DeserializeOwned;
use std::{
    io::{self, Read, Write as _},
    path::PathBuf,
    time::Duration,
};

/// How much is read from a connection at a time.
const READ_BYTES: usize = 64 * 1024;

/// A client of one daemon, for programs that wait for each answer.
#[derive(Debug, Clone)]
pub struct Client {
    address: Address,
}

impl Client {
    /// A client for the daemon on this socket.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self::at(Address::unix(socket))
    }

    #[must_use]
    pub fn at(address: Address) -> Self {
        Self { address }
    }

    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Sends a call and waits for its answer.
    pub fn send<A>(&self, call: &Call<A>) -> Result<A> {
        let mut body = self.exchange(&call.request, call.timeout)?;
        let bytes = body.read_all()?;
        call.read_answer(body.head.status, bytes)
    }

    /// Sends a call whose answer is read as it arrives.
    pub fn open(&self, call: &Call<Vec<u8>>) -> Result<Body> {
        let mut body = self.exchange(&call.request, call.timeout)?;
        if call.is_answer(body.head.status) {
            return Ok(body);
        }
        let bytes = body.read_all()?;
        Err(ClientError::from_problem(body.head.status, &bytes))
    }

    /// Follows a stream of events.
    #[must_use]
    pub fn follow<E: DeserializeOwned>(&self, call: StreamCall<E>) -> Events<E> {
        Events { client: self.clone(), stream: None, follower: Follower::new(call) }
    }

    fn exchange(&self, request: &HttpRequest, patience: Option<Duration>) -> Result<Body> {
        let bytes = request.to_bytes(&self.address)?;
        let mut stream = Connection::connect(&self.address)?;
        stream.set_read_timeout(patience)?;
        // A daemon that refuses a body before reading all of it closes the connection; its answer has arrived
        // nevertheless.
        let sent = stream.write_all(&bytes);
        Body::begin(stream).map_err(|e| match (sent, e) {
            (Err(sent), ClientError::Broken(_)) => sent.into(),
            (_, e) => e,
        })
    }
}

/// The body of an answer, as it arrives. On an upgraded connection it is everything that the daemon sends.
#[derive(Debug)]
pub struct Body {
    stream: Connection,
    answer: ResponseReader,
    head: ResponseHead,
    /// Received bytes that have not been read yet, from `at` on.
    ready: Vec<u8>,
    at: usize,
}

impl Body {
    /// Reads the head of an answer.
    fn begin(mut stream: Connection) -> Result<Self> {
        let mut answer = ResponseReader::new();
        loop {
            if let Some(head) = answer.head() {
                return Ok(Self { stream, answer, head, ready: Vec::new(), at: 0 });
            }
            read_into(&mut stream, |bytes| if bytes.is_empty() { answer.end() } else { answer.feed(bytes) })?;
        }
    }

    /// The length of the body in bytes, if the daemon sent it.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.head.length
    }

    #[must_use]
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// The sending side of an upgraded connection.
    pub fn writer(&self) -> io::Result<Connection> {
        self.stream.try_clone()
    }

    fn read_all(&mut self) -> Result<Vec<u8>> {
        let mut whole = Vec::new();
        while self.fill()? {
            whole.append(&mut self.ready);
        }
        Ok(whole)
    }

    /// Whether there are more bytes.
    fn fill(&mut self) -> Result<bool> {
        loop {
            self.ready = self.answer.take_body();
            self.at = 0;
            if !self.ready.is_empty() {
                return Ok(true);
            }
            if self.answer.is_done() {
                return Ok(false);
            }
            let answer = &mut self.answer;
            read_into(&mut self.stream, |bytes| if bytes.is_empty() { answer.end() } else { answer.feed(bytes) })?;
        }
    }
}

impl Read for Body {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.at == self.ready.len() {
            self.fill().map_err(|e| match e {
                ClientError::Broken(e) => e,
                other => io::Error::other(other.to_string()),
            })?;
        }
        let n = buf.len().min(self.ready.len() - self.at);
        buf[..n].copy_from_slice(&self.ready[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

/// Reads once; an empty slice is the end of the connection.
fn read_into(stream: &mut Connection, take: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
    let mut buf = vec![0; READ_BYTES];
    loop {
        match stream.read(&mut buf) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            read => return take(&buf[..read?]),
        }
    }
}

/// A stream of events over any number of connections.
pub struct Events<E = StreamRecord> {
    client: Client,
    stream: Option<Connection>,
    follower: Follower<E>,
}

impl<E: DeserializeOwned> Events<E> {
    /// The next event; none after the last. After an error the next call reconnects and continues after the last event
    /// that was returned.
    pub fn next_event(&mut self) -> Result<Option<Event<E>>> {
        let next = self.advance();
        if !matches!(next, Ok(Some(_))) {
            self.stream = None;
            self.follower.drop_connection();
        }
        next
    }

    fn advance(&mut self) -> Result<Option<Event<E>>> {
        loop {
            match (self.follower.step()?, &mut self.stream) {
                (FollowStep::Event(event), _) => return Ok(Some(event)),
                (FollowStep::End, _) => return Ok(None),
                (FollowStep::Read, Some(stream)) => read_into(stream, |bytes| self.follower.feed(bytes))?,
                (FollowStep::Read, None) => return Err(ClientError::cut_off()),
                (FollowStep::Connect(pause), _) => {
                    std::thread::sleep(pause);
                    let bytes = self.follower.request().to_bytes(&self.client.address)?;
                    let mut stream = Connection::connect(&self.client.address)?;
                    stream.write_all(&bytes)?;
                    self.stream = Some(stream);
                    self.follower.begin_connection();
                }
            }
        }
    }
}
