//! Forwards HTTP to a server for a client that cannot send a token: adds one to each request. Everything else passes
//! unchanged, so that the server is tested and not this proxy.

use crate::Result;
use std::{
    io::{self, BufRead, BufReader, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
};

/// Serves on a free port until the process ends; returns the address.
pub(super) fn start(server: &str, token: &str) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| format!("127.0.0.1: {e}"))?;
    let address = listener.local_addr().map_err(|e| e.to_string())?;
    let (server, header) = (server.to_owned(), format!("Authorization: Bearer {token}\r\n"));
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (server, header) = (server.clone(), header.clone());
            thread::spawn(move || forward_connection(&client, &server, &header));
        }
    });
    Ok(address.to_string())
}

fn forward_connection(client: &TcpStream, server: &str, header: &str) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    let (mut answers, mut reader) = (server.try_clone()?, client.try_clone()?);
    let back = thread::spawn(move || {
        let _ = io::copy(&mut answers, &mut reader);
        let _ = reader.shutdown(Shutdown::Both);
    });
    let mut requests = BufReader::new(client);
    while forward_request(&mut requests, &server, header)? {}
    // A client that has sent everything may still read.
    server.shutdown(Shutdown::Write)?;
    let _ = back.join();
    Ok(())
}

/// Forwards one request; returns whether there was one.
fn forward_request(from: &mut BufReader<&TcpStream>, mut to: &TcpStream, header: &str) -> io::Result<bool> {
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
