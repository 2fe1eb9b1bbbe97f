//! The client for programs on tokio: the same calls and streams, awaited.

use crate::{
    Address, Call, ClientError, Event, HttpRequest, Result, StreamCall,
    address::{Endpoint, short_path},
    stream::{FollowStep, Follower},
    wire::response::{ResponseHead, ResponseReader},
};
use countersign_model::api::StreamRecord;
use serde::de::DeserializeOwned;
use std::{io, path::PathBuf};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, UnixStream},
};

/// How much is read from a connection at a time.
const READ_BYTES: usize = 64 * 1024;

trait Duplex: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Duplex for T {}

type AsyncConnection = Box<dyn Duplex>;

/// A client of one daemon, for programs that do other work while it answers.
#[derive(Debug, Clone)]
pub struct AsyncClient {
    address: Address,
}

impl AsyncClient {
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
    pub async fn send<A>(&self, call: &Call<A>) -> Result<A> {
        let answer = async {
            let mut body = self.exchange(&call.request).await?;
            let bytes = body.read_all().await?;
            call.read_answer(body.head.status, bytes)
        };
        let Some(patience) = call.timeout else { return answer.await };
        match tokio::time::timeout(patience, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        }
    }

    /// Sends a call whose answer is read as it arrives.
    pub async fn open(&self, call: &Call<Vec<u8>>) -> Result<AsyncBody> {
        let mut body = self.exchange(&call.request).await?;
        if call.is_answer(body.head.status) {
            return Ok(body);
        }
        let bytes = body.read_all().await?;
        Err(ClientError::from_problem(body.head.status, &bytes))
    }

    /// Follows a stream of events.
    #[must_use]
    pub fn follow<E: DeserializeOwned>(&self, call: StreamCall<E>) -> AsyncEvents<E> {
        AsyncEvents { client: self.clone(), stream: None, follower: Follower::new(call) }
    }

    async fn connect(&self) -> Result<AsyncConnection> {
        let connected: io::Result<AsyncConnection> = async {
            Ok(match &self.address.0 {
                Endpoint::Unix(socket) => {
                    let (path, _open) = short_path(socket)?;
                    Box::new(UnixStream::connect(path).await?) as AsyncConnection
                }
                Endpoint::Tcp(at, _) => {
                    let stream = TcpStream::connect(at).await?;
                    stream.set_nodelay(true)?;
                    Box::new(stream)
                }
            })
        }
        .await;
        connected.map_err(|error| ClientError::NoDaemon { address: self.address.clone(), error })
    }

    async fn exchange(&self, request: &HttpRequest) -> Result<AsyncBody> {
        let bytes = request.to_bytes(&self.address)?;
        let mut stream = self.connect().await?;
        // A daemon that refuses a body before reading all of it closes the connection; its answer has arrived
        // nevertheless.
        let sent = stream.write_all(&bytes).await;
        AsyncBody::begin(stream).await.map_err(|e| match (sent, e) {
            (Err(sent), ClientError::Broken(_)) => sent.into(),
            (_, e) => e,
        })
    }
}

/// The body of an answer, as it arrives.
pub struct AsyncBody {
    stream: AsyncConnection,
    answer: ResponseReader,
    head: ResponseHead,
}

impl AsyncBody {
    /// Reads the head of an answer.
    async fn begin(mut stream: AsyncConnection) -> Result<Self> {
        let mut answer = ResponseReader::new();
        loop {
            if let Some(head) = answer.head() {
                return Ok(Self { stream, answer, head });
            }
            let bytes = read(&mut stream).await?;
            if bytes.is_empty() { answer.end() } else { answer.feed(&bytes) }?;
        }
    }

    /// The length of the body in bytes, if the daemon sent it.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.head.length
    }

    /// The next bytes; none after the last.
    pub async fn next_bytes(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            let body = self.answer.take_body();
            if !body.is_empty() {
                return Ok(Some(body));
            }
            if self.answer.is_done() {
                return Ok(None);
            }
            let bytes = read(&mut self.stream).await?;
            if bytes.is_empty() { self.answer.end() } else { self.answer.feed(&bytes) }?;
        }
    }

    async fn read_all(&mut self) -> Result<Vec<u8>> {
        let mut whole = Vec::new();
        while let Some(mut bytes) = self.next_bytes().await? {
            whole.append(&mut bytes);
        }
        Ok(whole)
    }
}

/// Reads once; an empty result is the end of the connection.
async fn read(stream: &mut AsyncConnection) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(READ_BYTES);
    stream.read_buf(&mut bytes).await?;
    Ok(bytes)
}

/// A stream of events over any number of connections.
pub struct AsyncEvents<E = StreamRecord> {
    client: AsyncClient,
    stream: Option<AsyncConnection>,
    follower: Follower<E>,
}

impl<E: DeserializeOwned> AsyncEvents<E> {
    /// The next event; none after the last. After an error the next call reconnects and continues after the last event
    /// that was returned. Dropping the future loses no event.
    pub async fn next_event(&mut self) -> Result<Option<Event<E>>> {
        let next = self.advance().await;
        if !matches!(next, Ok(Some(_))) {
            self.stream = None;
            self.follower.drop_connection();
        }
        next
    }

    async fn advance(&mut self) -> Result<Option<Event<E>>> {
        loop {
            match (self.follower.step()?, &mut self.stream) {
                (FollowStep::Event(event), _) => return Ok(Some(event)),
                (FollowStep::End, _) => return Ok(None),
                (FollowStep::Read, Some(stream)) => self.follower.feed(&read(stream).await?)?,
                (FollowStep::Read, None) => return Err(ClientError::cut_off()),
                (FollowStep::Connect(pause), _) => {
                    tokio::time::sleep(pause).await;
                    let bytes = self.follower.request().to_bytes(&self.client.address)?;
                    let mut stream = self.client.connect().await?;
                    stream.write_all(&bytes).await?;
                    self.stream = Some(stream);
                    self.follower.begin_connection();
                }
            }
        }
    }
}
