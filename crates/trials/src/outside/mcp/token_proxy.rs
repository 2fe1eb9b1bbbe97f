//! A way to an HTTP server for a program that cannot send a token: each request gets one on the way. The rest of what
//! either side says passes as it is, so that what is tested is the server and not this.

use crate::Result;
use std::{
    io::{self, BufRead, BufReader, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
};

/// Serves on a port of its own until the process ends; the address.
pub(super) fn start(server: &str, token: &str) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| format!("127.0.0.1: {e}"))?;
    let address = listener.local_addr().map_err(|e| e.to_string())?;
    let (server, header) = (server.to_owned(), format!("Authorization: Bearer {token}\r\n"));
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (server, header) = (server.clone(), header.clone());
            thread::spawn(move || pass(&client, &server, &header));
        }
    });
    Ok(address.to_string())
}

fn pass(client: &TcpStream, server: &str, header: &str) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    let (mut answers, mut reader) = (server.try_clone()?, client.try_clone()?);
    let back = thread::spawn(move || {
        let _ = io::copy(&mut answers, &mut reader);
        let _ = reader.shutdown(Shutdown::Both);
    });
    let mut requests = BufReader::new(client);
    while request(&mut requests, &server, header)? {}
    // A client that has said all it wants may still listen.
    server.shutdown(Shutdown::Write)?;
    let _ = back.join();
    Ok(())
}

/// Passes one request on; whether there was one.
fn request(from: &mut BufReader<&TcpStream>, mut to: &TcpStream, header: &str) -> io::Result<bool> {
    let mut head = String::new();
    let mut length = 0;
    loop {
        let start = head.len();
        if from.read_line(&mut head)? == 0 {
            return Ok(false);
        }
        let line = &head[start..];
        if line == "\r\n" {
            head.insert_str(start, header);
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    to.write_all(head.as_bytes())?;
    io::copy(&mut from.take(length), &mut to)?;
    Ok(true)
}
