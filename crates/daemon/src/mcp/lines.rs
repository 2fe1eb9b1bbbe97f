//! Bounds the lines between a client and the protocol: a client that does not read replies cannot send more calls, and
//! the length of a line is limited.

use serde::Deserialize;
use serde_json::Value;
use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};
use tokio::{
    io::{
        AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
        DuplexStream,
    },
    sync::mpsc,
};

/// How many calls of one connection may be open.
const MAX_OPEN_CALLS: usize = 64;
/// A longer line ends the connection.
const MAX_LINE_BYTES: u64 = 8 * 1024 * 1024;
const PIPE_BYTES: usize = 64 * 1024;
/// The JSON-RPC code of a refused request.
const REFUSED_REQUEST_CODE: i64 = -32600;

/// Calls that have arrived and whose replies have not been sent.
#[derive(Default)]
struct OpenCalls {
    ids: HashSet<String>,
    /// A cancelled call may never be answered. Its slot becomes free as the client reads other messages.
    cancelled: HashSet<String>,
}

#[derive(Deserialize)]
struct MessageHead {
    id: Option<Value>,
    method: Option<String>,
    params: Option<CancelParams>,
}

#[derive(Deserialize)]
struct CancelParams {
    #[serde(rename = "requestId")]
    request: Option<Value>,
}

impl OpenCalls {
    /// Admits a call, or returns why not.
    fn enter(&mut self, id: &Value) -> Result<(), &'static str> {
        if !(id.is_string() || id.is_i64() || id.is_u64()) {
            return Err("an id must be a string or an integer");
        }
        if self.ids.len() + self.cancelled.len() >= MAX_OPEN_CALLS {
            return Err("too many open calls; read some replies first");
        }
        self.ids.insert(id.to_string()).then_some(()).ok_or("a call with this id is already open")
    }

    fn cancel(&mut self, id: &Value) {
        self.cancelled.extend(self.ids.take(&id.to_string()));
    }

    /// The client has read a message: a reply, or anything else.
    fn note_sent(&mut self, answer: Option<&Value>) {
        if let Some(id) = answer.map(Value::to_string) {
            self.ids.remove(&id);
            self.cancelled.remove(&id);
        }
        let freed = self.cancelled.iter().next().cloned();
        if let Some(id) = freed {
            self.cancelled.remove(&id);
        }
    }
}

/// The protocol's end of a connection. It closes when either side disconnects.
pub(crate) fn bound_lines(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> DuplexStream {
    let (inner, ours) = tokio::io::duplex(PIPE_BYTES);
    let (from, to) = tokio::io::split(stream);
    let (answers, calls) = tokio::io::split(ours);
    let open = Arc::new(Mutex::new(OpenCalls::default()));
    let (refuse, refused) = mpsc::channel(1);
    let inwards = Arc::clone(&open);
    tokio::spawn(async move {
        // When one direction ends, so does the other.
        tokio::select! {
            () = forward_calls(from, calls, &inwards, refuse) => {}
            () = forward_replies(answers, to, &open, refused) => {}
        }
    });
    inner
}

/// The next line with its line break; none at the end, or if the line is too long.
async fn next_line(from: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> Option<()> {
    line.clear();
    let read = from.take(MAX_LINE_BYTES).read_until(b'\n', line).await;
    (read.is_ok_and(|n| n > 0) && (line.len() as u64) < MAX_LINE_BYTES).then_some(())
}

/// Passes calls in while there are free slots. Without one a call is refused immediately: the reply to an elicitation
/// may come after it.
async fn forward_calls(
    from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    open: &Mutex<OpenCalls>,
    refuse: mpsc::Sender<String>,
) {
    let (mut from, mut line) = (BufReader::new(from), Vec::new());
    while next_line(&mut from, &mut line).await.is_some() {
        let refusal = {
            let mut open = crate::lock(open);
            match serde_json::from_slice::<MessageHead>(&line) {
                Ok(MessageHead { id: Some(id), method: Some(_), .. }) => {
                    open.enter(&id).err().map(|why| refusal_line(&id, why))
                }
                Ok(MessageHead { id: None, method: Some(method), params }) if method == "notifications/cancelled" => {
                    if let Some(id) = params.and_then(|p| p.request) {
                        open.cancel(&id);
                    }
                    None
                }
                _ => None,
            }
        };
        let done = match refusal {
            Some(refusal) => refuse.send(refusal).await.is_ok(),
            None => to.write_all(&line).await.is_ok(),
        };
        if !done {
            break;
        }
    }
    let _ = to.shutdown().await;
}

fn refusal_line(id: &Value, why: &str) -> String {
    let id = if id.is_string() || id.is_number() { id } else { &Value::Null };
    let error = serde_json::json!({"code": REFUSED_REQUEST_CODE, "message": why});
    format!("{}\n", serde_json::json!({"jsonrpc": "2.0", "id": id, "error": error}))
}

async fn forward_replies(
    from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    open: &Mutex<OpenCalls>,
    mut refused: mpsc::Receiver<String>,
) {
    let (answers, mut lines) = mpsc::channel(1);
    // Read in its own future, so that a partial line is not lost when another branch completes first.
    let read = async move {
        let (mut from, mut line) = (BufReader::new(from), Vec::new());
        while next_line(&mut from, &mut line).await.is_some() && answers.send(line.clone()).await.is_ok() {}
    };
    let write = async {
        loop {
            let line = tokio::select! {
                Some(line) = lines.recv() => line,
                Some(line) = refused.recv() => line.into_bytes(),
                else => break,
            };
            if to.write_all(&line).await.is_err() {
                break;
            }
            let answered = match serde_json::from_slice::<MessageHead>(&line) {
                Ok(MessageHead { id, method: None, .. }) => id,
                _ => None,
            };
            crate::lock(open).note_sent(answered.as_ref());
        }
        let _ = to.shutdown().await;
    };
    tokio::join!(read, write);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A client and the protocol's end, each with a reader.
    async fn connected()
    -> (impl AsyncWrite + Unpin, impl AsyncBufRead + Unpin, impl AsyncWrite + Unpin, impl AsyncBufRead + Unpin) {
        let (client, stream) = tokio::io::duplex(1024 * 1024);
        let (from_daemon, to_daemon) = tokio::io::split(client);
        let (calls, replies) = tokio::io::split(bound_lines(stream));
        (to_daemon, BufReader::new(from_daemon), replies, BufReader::new(calls))
    }

    async fn send_message(to: &mut (impl AsyncWrite + Unpin), message: Value) {
        to.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn read_message(from: &mut (impl AsyncBufRead + Unpin)) -> Value {
        let mut line = Vec::new();
        next_line(from, &mut line).await.unwrap();
        serde_json::from_slice(&line).unwrap()
    }

    #[tokio::test]
    async fn a_client_that_reads_no_replies_cannot_send_more_calls() {
        let (mut to_daemon, mut from_daemon, mut replies, mut calls) = connected().await;
        let call = |n: usize| json!({"jsonrpc": "2.0", "id": n, "method": "tools/list"});
        for n in 0..=MAX_OPEN_CALLS {
            send_message(&mut to_daemon, call(n)).await;
        }
        for n in 0..MAX_OPEN_CALLS {
            assert_eq!(read_message(&mut calls).await["id"], n);
        }
        // The call beyond the limit is refused immediately, and the message after it gets through.
        let refused = read_message(&mut from_daemon).await;
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(MAX_OPEN_CALLS), &json!(REFUSED_REQUEST_CODE)));
        send_message(&mut to_daemon, json!({"jsonrpc": "2.0", "id": "ours", "result": {}})).await;
        assert_eq!(read_message(&mut calls).await["id"], "ours");
        // A reply frees a slot. A cancelled call keeps its slot until the client reads another message.
        send_message(&mut to_daemon, json!({"method": "notifications/cancelled", "params": {"requestId": 1}})).await;
        assert_eq!(read_message(&mut calls).await["params"]["requestId"], 1);
        send_message(&mut to_daemon, call(900)).await;
        assert_eq!(read_message(&mut from_daemon).await["id"], 900, "the call is refused");
        send_message(&mut replies, json!({"jsonrpc": "2.0", "id": 0, "result": {}})).await;
        assert_eq!(read_message(&mut from_daemon).await["id"], 0);
        send_message(&mut to_daemon, call(901)).await;
        assert_eq!(read_message(&mut calls).await["id"], 901);
    }

    #[tokio::test]
    async fn an_id_must_be_a_string_or_an_integer() {
        let (mut to_daemon, mut from_daemon, _said, _heard) = connected().await;
        for bad in [json!(0.5), json!([1]), json!({"a": 1}), json!(true)] {
            send_message(&mut to_daemon, json!({"id": bad, "method": "ping"})).await;
            assert_eq!(read_message(&mut from_daemon).await["error"]["code"], REFUSED_REQUEST_CODE);
        }
    }
}
