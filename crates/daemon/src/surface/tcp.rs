//! The door on loopback, for those who have a token: how many come in at once, and from which pages.

use super::arrive::Caller;
use crate::house::House;
use axum::{
    Router,
    http::{HeaderMap, header},
    serve::Listener,
};
use countersign_model::{Code, Refusal, Shown};
use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};

/// Where the house listens unless told otherwise.
pub(crate) const PORT: u16 = 7311;
/// So many connections at once; who comes later waits.
const MOST: usize = 256;
/// How long one may say nothing at first.
const SILENT: Duration = Duration::from_secs(10);

/// A listener that lets in so many at a time.
pub(crate) struct Capped {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

/// A connection, and its place.
pub(crate) struct Held {
    stream: TcpStream,
    /// Who says nothing does not keep a place.
    silent: Option<Pin<Box<tokio::time::Sleep>>>,
    _place: OwnedSemaphorePermit,
}

impl Listener for Capped {
    type Io = Held;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Held, SocketAddr) {
        loop {
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else {
                // The semaphore is never closed.
                std::future::pending::<()>().await;
                continue;
            };
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    let _ = stream.set_nodelay(true);
                    let silent = Some(Box::pin(tokio::time::sleep(SILENT)));
                    return (Held { stream, silent, _place: place }, address);
                }
                // Out of descriptors, most likely: there is nothing to wait for but time.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Held {
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        self.stream.local_addr().ok()
    }
}

impl AsyncRead for Held {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.silent = None;
        }
        let overdue = self.silent.as_mut().is_some_and(|silent| silent.as_mut().poll(cx).is_ready());
        if read.is_pending() && overdue { Poll::Ready(Err(io::ErrorKind::TimedOut.into())) } else { read }
    }
}

impl AsyncWrite for Held {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Opens the door, once; where it is. A second call with the same wish is told where it is.
pub(crate) async fn open(house: &Arc<House>, router: Router, wanted: SocketAddr) -> Result<SocketAddr, Refusal> {
    if !wanted.ip().is_loopback() {
        return Err(Refusal::new(Code::BadRequest, format!("{wanted} is not on loopback: others could listen in"))
            .hint("put a proxy with TLS in front of 127.0.0.1"));
    }
    let mut door = house.tcp.lock().await;
    if let Some(open) = *door {
        return match wanted.port() == 0 || open == wanted {
            true => Ok(open),
            false => Err(Refusal::new(Code::BadRequest, format!("it listens on {open} already"))
                .hint("stop the house first: csn down")),
        };
    }
    let listener = TcpListener::bind(wanted).await.map_err(|e| {
        Refusal::new(Code::Internal, format!("cannot listen on {wanted}: {e}"))
            .hint("another program has this port: name another with --tcp 127.0.0.1:PORT")
    })?;
    let address = listener.local_addr().map_err(|e| Refusal::new(Code::Internal, e.to_string()))?;
    *door = Some(address);
    let listener = Capped { listener, places: Arc::new(Semaphore::new(MOST)) };
    tokio::spawn(async move {
        if let Err(e) = axum::serve(listener, router.into_make_service_with_connect_info::<Caller>()).await {
            crate::log!("loopback is closed: {e}");
        }
    });
    Ok(address)
}

/// A page from elsewhere may not speak to us through somebody's browser: what it asked for must be us, by a name that
/// only loopback has, and what asks must be a page of ours.
pub(crate) fn check_host(headers: &HeaderMap) -> Result<(), Refusal> {
    let text = |name| headers.get(name).map(|v| v.to_str().unwrap_or("?"));
    let host = text(header::HOST).unwrap_or_default();
    let refused = |what: &str, value: &str| {
        let shown = Shown::bounded(value, 80).to_string();
        Refusal::new(Code::Forbidden, format!("{what} `{shown}` is not this house"))
            .hint("use http://127.0.0.1 and the port")
    };
    if !is_here(host) {
        return Err(refused("the host", host));
    }
    match text(header::ORIGIN) {
        Some(origin) if origin.strip_prefix("http://") != Some(host) => Err(refused("the origin", origin)),
        _ => Ok(()),
    }
}

fn is_here(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => (name, Some(port)),
        _ => (host, None),
    };
    let port_fits = port.is_none_or(|p| p.parse::<u16>().is_ok());
    matches!(name, "127.0.0.1" | "localhost" | "[::1]") && port_fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_loopback_are_here() {
        for host in ["127.0.0.1", "127.0.0.1:7311", "localhost:1", "[::1]:7311", "localhost"] {
            assert!(is_here(host), "{host}");
        }
        for host in ["", "evil.example", "127.0.0.1.evil.example", "localhost:99999", "0.0.0.0", "127.0.0.1:", "::1"] {
            assert!(!is_here(host), "{host}");
        }
    }

    #[test]
    fn a_page_from_elsewhere_is_refused() {
        let with = |pairs: &[(header::HeaderName, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(name, value.parse().unwrap());
            }
            check_host(&headers).is_ok()
        };
        assert!(with(&[(header::HOST, "127.0.0.1:7311")]));
        assert!(with(&[(header::HOST, "127.0.0.1:7311"), (header::ORIGIN, "http://127.0.0.1:7311")]));
        assert!(!with(&[(header::HOST, "127.0.0.1:7311"), (header::ORIGIN, "http://127.0.0.1:8080")]));
        assert!(!with(&[(header::HOST, "127.0.0.1:7311"), (header::ORIGIN, "null")]));
        assert!(!with(&[(header::HOST, "rebound.example"), (header::ORIGIN, "http://rebound.example")]));
        assert!(!with(&[]));
    }
}
