//! A blocking connection to a daemon, over either transport.

use crate::{
    Address, ClientError, Result,
    address::{Endpoint, short_path},
};
use std::{
    io::{self, Read, Write},
    net::TcpStream,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

/// One connection.
#[derive(Debug)]
pub enum Connection {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Connection {
    pub(crate) fn connect(address: &Address) -> Result<Self> {
        let connected = match &address.0 {
            Endpoint::Unix(socket) => {
                short_path(socket).and_then(|(path, _open)| UnixStream::connect(path)).map(Self::Unix)
            }
            Endpoint::Tcp(at, _) => TcpStream::connect(at).and_then(|stream| {
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }),
        };
        connected.map_err(|error| ClientError::NoDaemon { address: address.clone(), error })
    }

    /// A second handle of the same connection.
    pub fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
        }
    }

    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(timeout),
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
        }
    }

    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_nonblocking(true),
            Self::Tcp(stream) => stream.set_nonblocking(true),
        }
    }
}

impl Read for Connection {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buf),
            Self::Tcp(stream) => stream.read(buf),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(buf),
            Self::Tcp(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}
