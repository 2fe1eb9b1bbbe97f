//! The door on loopback, for those who have a token: where it is, and which pages may use it.

use super::HttpState;
use axum::http::{HeaderMap, header};
use countersign_model::{DisplaySafe, Refusal, RefusalCode};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};
use tokio::net::TcpListener;

/// Where the daemon listens unless told otherwise.
pub(crate) const DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7311);

/// Opens the door, once; where it is. A second call with the same wish is told where it is.
pub(crate) async fn open(front: &Arc<HttpState>, wanted: SocketAddr) -> Result<SocketAddr, Refusal> {
    if !wanted.ip().is_loopback() {
        return Err(Refusal::new(
            RefusalCode::BadRequest,
            format!("{wanted} is not on loopback: others could listen in"),
        )
        .hint("put a proxy with TLS in front of 127.0.0.1"));
    }
    let mut door = front.ops.tcp.lock().await;
    if let Some(open) = *door {
        return match wanted.port() == 0 || open == wanted {
            true => Ok(open),
            false => Err(Refusal::new(RefusalCode::BadRequest, format!("it listens on {open} already"))
                .hint("stop the house first: csn down")),
        };
    }
    let listener = TcpListener::bind(wanted).await.map_err(|e| {
        Refusal::new(RefusalCode::Internal, format!("cannot listen on {wanted}: {e}"))
            .hint("another program has this port: name another with --tcp 127.0.0.1:PORT")
    })?;
    let address = listener.local_addr().map_err(|e| Refusal::new(RefusalCode::Internal, e.to_string()))?;
    *door = Some(address);
    tokio::spawn(super::server::serve_tcp(Arc::clone(front), listener));
    Ok(address)
}

/// A page from elsewhere may not speak to us through somebody's browser: what it asked for must be us, by a name that
/// only loopback has, and what asks must be a page of ours.
pub(crate) fn check_host(headers: &HeaderMap) -> Result<(), Refusal> {
    let text = |name| headers.get(name).map(|v| v.to_str().unwrap_or("?"));
    let host = text(header::HOST).unwrap_or_default();
    let refused = |what: &str, value: &str| {
        let shown = DisplaySafe::bounded(value, 80).to_string();
        Refusal::new(RefusalCode::Forbidden, format!("{what} `{shown}` is not this house"))
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
