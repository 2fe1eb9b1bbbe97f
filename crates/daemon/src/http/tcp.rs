//! The loopback listener, for callers with a token: its address, and which web pages may use it.

use super::HttpState;
use axum::http::{HeaderMap, header};
use countersign_model::{DisplaySafe, Refusal, RefusalCode};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};
use tokio::net::TcpListener;

/// The default address.
pub(crate) const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7311);

/// Starts the listener once and returns its address. A second call with the same address returns it again.
pub(crate) async fn start_listener(front: &Arc<HttpState>, wanted: SocketAddr) -> Result<SocketAddr, Refusal> {
    if !wanted.ip().is_loopback() {
        return Err(Refusal::new(
            RefusalCode::BadRequest,
            format!("{wanted} is not a loopback address; the connection would not be encrypted"),
        )
        .hint("listen on 127.0.0.1 and put a proxy with TLS in front of it"));
    }
    let mut door = front.ops.tcp.lock().await;
    if let Some(open) = *door {
        if wanted.port() == 0 || open == wanted {
            return Ok(open);
        }
        return Err(Refusal::new(RefusalCode::BadRequest, format!("the daemon already listens on {open}"))
            .hint("stop the daemon first: csn down"));
    }
    let listener = TcpListener::bind(wanted).await.map_err(|e| {
        Refusal::new(RefusalCode::Internal, format!("cannot listen on {wanted}: {e}"))
            .hint("if another program uses this port, choose another one (`tcp`; csn up --tcp 127.0.0.1:PORT)")
    })?;
    let address = listener.local_addr().map_err(|e| Refusal::new(RefusalCode::Internal, e.to_string()))?;
    *door = Some(address);
    tokio::spawn(super::server::serve_tcp(Arc::clone(front), listener));
    Ok(address)
}

/// A foreign web page must not reach the daemon through a user's browser: the host must be a name of loopback, and the
/// origin must be the daemon's own.
pub(crate) fn check_host(headers: &HeaderMap) -> Result<(), Refusal> {
    let text = |name| headers.get(name).map(|v| v.to_str().unwrap_or("?"));
    let host = text(header::HOST).unwrap_or_default();
    let refused = |what: &str, value: &str| {
        let shown = DisplaySafe::bounded(value, 80).to_string();
        Refusal::new(RefusalCode::Forbidden, format!("{what} `{shown}` is not this daemon"))
            .hint("use http://127.0.0.1:PORT")
    };
    if !is_loopback_host(host) {
        return Err(refused("the Host header", host));
    }
    match text(header::ORIGIN) {
        Some(origin) if origin.strip_prefix("http://") != Some(host) => Err(refused("the Origin header", origin)),
        _ => Ok(()),
    }
}

fn is_loopback_host(host: &str) -> bool {
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
    fn only_names_of_loopback_are_accepted() {
        for host in ["127.0.0.1", "127.0.0.1:7311", "localhost:1", "[::1]:7311", "localhost"] {
            assert!(is_loopback_host(host), "{host}");
        }
        for host in ["", "evil.example", "127.0.0.1.evil.example", "localhost:99999", "0.0.0.0", "127.0.0.1:", "::1"] {
            assert!(!is_loopback_host(host), "{host}");
        }
    }

    #[test]
    fn a_foreign_web_page_is_refused() {
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
