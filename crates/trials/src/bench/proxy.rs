//! Forwards TCP connections to a unix socket, for load clients without unix sockets. Not part of the product.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::PathBuf,
    thread,
};

/// Serves until the process ends.
pub(crate) fn proxy(address: &str, socket: PathBuf) -> crate::Result<()> {
    let listener = TcpListener::bind(address).map_err(|e| format!("{address}: {e}"))?;
    for client in listener.incoming().flatten() {
        let socket = socket.clone();
        thread::spawn(move || {
            let _ = client.set_nodelay(true);
            if let Ok(daemon) = UnixStream::connect(&socket) {
                join(client, daemon);
            }
        });
    }
    Ok(())
}

fn join(client: TcpStream, daemon: UnixStream) {
    let (Ok(from_client), Ok(to_daemon)) = (client.try_clone(), daemon.try_clone()) else { return };
    thread::spawn(move || {
        copy(from_client, &to_daemon);
        let _ = to_daemon.shutdown(std::net::Shutdown::Write);
    });
    copy(daemon, &client);
    let _ = client.shutdown(std::net::Shutdown::Both);
}

fn copy(mut from: impl Read, mut to: impl Write) {
    let mut buf = vec![0; 256 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buf) {
        if to.write_all(&buf[..n]).is_err() {
            return;
        }
    }
}
