//! The address of a daemon: its unix socket, or a loopback port with a token. This module opens no connection.

use std::{
    fmt,
    fs::File,
    io,
    net::SocketAddr,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
};

/// The address of one daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(pub(crate) Endpoint);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Unix(PathBuf),
    Tcp(SocketAddr, BearerToken),
}

/// A bearer token. No debug output and no error contains it.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken(String);

/// Why something is not the address of a daemon.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The token would cross the network in clear text.
    #[error("{0} is not a loopback address: tokens are only sent to this machine")]
    NotLoopback(SocketAddr),
    #[error("the token is empty or contains characters that no token has")]
    NoToken,
}

impl BearerToken {
    pub fn new(token: impl Into<String>) -> Result<Self, AddressError> {
        let token = token.into();
        let is_valid = !token.is_empty() && token.bytes().all(|b| b.is_ascii_graphic());
        if is_valid { Ok(Self(token)) } else { Err(AddressError::NoToken) }
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(…)")
    }
}

impl Address {
    /// The socket of a home: the kernel tells the daemon which user calls.
    #[must_use]
    pub fn unix(socket: impl Into<PathBuf>) -> Self {
        Self(Endpoint::Unix(socket.into()))
    }

    /// A loopback port: the token tells the daemon who calls.
    pub fn tcp(at: SocketAddr, token: BearerToken) -> Result<Self, AddressError> {
        if at.ip().is_loopback() { Ok(Self(Endpoint::Tcp(at, token))) } else { Err(AddressError::NotLoopback(at)) }
    }

    /// The value of the `Host` header.
    pub(crate) fn host(&self) -> String {
        match &self.0 {
            Endpoint::Unix(_) => "countersign".to_owned(),
            Endpoint::Tcp(at, _) => at.to_string(),
        }
    }

    /// The value of the `Authorization` header, if the transport needs one.
    pub(crate) fn authorization(&self) -> Option<String> {
        match &self.0 {
            Endpoint::Unix(_) => None,
            Endpoint::Tcp(_, BearerToken(token)) => Some(format!("Bearer {token}")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Endpoint::Unix(socket) => write!(f, "{}", socket.display()),
            Endpoint::Tcp(at, _) => write!(f, "{at}"),
        }
    }
}

/// A path that fits into a socket address, and the directory that must stay open while it is used. Socket addresses
/// hold 108 bytes; a longer path is reached through its open directory.
pub(crate) fn short_path(socket: &Path) -> io::Result<(PathBuf, Option<File>)> {
    const MAX_PATH_BYTES: usize = 100;
    if socket.as_os_str().len() < MAX_PATH_BYTES {
        return Ok((socket.to_owned(), None));
    }
    let (Some(dir), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let dir = File::open(dir)?;
    Ok((PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name), Some(dir)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_contains_the_token() {
        let address = Address::tcp("127.0.0.1:7311".parse().unwrap(), BearerToken::new("csn_secret").unwrap()).unwrap();
        let error = crate::ClientError::NoDaemon { address: address.clone(), error: io::ErrorKind::NotFound.into() };
        for shown in [format!("{address:?}"), address.to_string(), format!("{error:?}"), error.to_string()] {
            assert!(!shown.contains("secret"), "{shown}");
        }
        assert_eq!(address.authorization().as_deref(), Some("Bearer csn_secret"));
    }

    #[test]
    fn a_token_is_only_sent_to_loopback() {
        let token = BearerToken::new("t").unwrap();
        for at in ["127.0.0.1:1", "[::1]:1", "127.8.0.1:1"] {
            assert!(Address::tcp(at.parse().unwrap(), token.clone()).is_ok(), "{at}");
        }
        for at in ["192.168.0.1:1", "0.0.0.0:1", "[::]:1"] {
            assert!(Address::tcp(at.parse().unwrap(), token.clone()).is_err(), "{at}");
        }
    }

    #[test]
    fn a_token_cannot_contain_another_header() {
        for bad in ["", "a b", "a\r\nx: y", "ä"] {
            assert_eq!(BearerToken::new(bad), Err(AddressError::NoToken), "{bad:?}");
        }
    }
}
