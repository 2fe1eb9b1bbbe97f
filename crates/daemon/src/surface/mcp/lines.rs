//! Lines between a client and whoever speaks the protocol with it, bounded: who does not take answers gets no more calls
//! in, and a line has an end.

use serde::Deserialize;
use serde_json::Value;
use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader, DuplexStream},
    sync::Notify,
};

/// So many calls of one connection are under way at once.
const MOST_CALLS: usize = 64;
/// A longer line ends the conversation.
const LONGEST: u64 = 8 * 1024 * 1024;
const BETWEEN: usize = 64 * 1024;

/// The calls that have come in and whose answers have not gone out.
#[derive(Default)]
struct Open {
    ids: Mutex<HashSet<String>>,
    fewer: Notify,
}

#[derive(Deserialize)]
struct Head {
    id: Option<Value>,
    method: Option<String>,
    params: Option<Params>,
}

#[derive(Deserialize)]
struct Params {
    #[serde(rename = "requestId")]
    request: Option<Value>,
}

impl Open {
    /// Takes a call in, when there is room for it. Two of one name are one after the other.
    async fn enter(&self, id: String) {
        loop {
            let fewer = self.fewer.notified();
            {
                let mut ids = self.ids.lock().expect("nothing panics while it holds this lock");
                if ids.len() < MOST_CALLS && !ids.contains(&id) {
                    ids.insert(id);
                    return;
                }
            }
            fewer.await;
        }
    }

    fn leave(&self, id: &Value) {
        self.ids.lock().expect("nothing panics while it holds this lock").remove(&id.to_string());
        self.fewer.notify_waiters();
    }
}

/// The other end of a connection, for whoever speaks with it. Ends when either side hangs up.
pub(crate) fn bounded(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> DuplexStream {
    let (inner, ours) = tokio::io::duplex(BETWEEN);
    let (from, to) = tokio::io::split(stream);
    let (answers, calls) = tokio::io::split(ours);
    let open = Arc::new(Open::default());
    let inwards = Arc::clone(&open);
    tokio::spawn(async move {
        // Whichever ends first ends the other: a connection is both ways.
        tokio::select! {
            () = pass(from, calls, Way::In(&inwards)) => {}
            () = pass(answers, to, Way::Out(&open)) => {}
        }
    });
    inner
}

enum Way<'a> {
    In(&'a Open),
    Out(&'a Open),
}

async fn pass(from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, way: Way<'_>) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut from).take(LONGEST).read_until(b'\n', &mut line).await;
        if !read.is_ok_and(|n| n > 0) || line.len() as u64 >= LONGEST {
            break;
        }
        let head = serde_json::from_slice::<Head>(&line).ok();
        if let (Way::In(open), Some(head)) = (&way, &head) {
            match (&head.id, head.method.as_deref()) {
                // One that is cancelled is not answered.
                (None, Some("notifications/cancelled")) => {
                    head.params.iter().filter_map(|p| p.request.as_ref()).for_each(|id| open.leave(id));
                }
                (Some(id), Some(_)) => open.enter(id.to_string()).await,
                _ => {}
            }
        }
        if to.write_all(&line).await.is_err() {
            break;
        }
        if let (Way::Out(open), Some(Head { id: Some(id), method: None, .. })) = (&way, &head) {
            open.leave(id);
        }
    }
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn who_takes_no_answers_gets_no_more_calls_in() {
        let (client, theirs) = tokio::io::duplex(1024 * 1024);
        let inner = bounded(theirs);
        let (from_client, mut to_house) = tokio::io::split(client);
        let (heard, mut said) = tokio::io::split(inner);
        let mut heard = BufReader::new(heard).lines();
        for n in 0..2 * MOST_CALLS {
            let call = json!({"jsonrpc": "2.0", "id": n, "method": "tools/list"});
            to_house.write_all(format!("{call}\n").as_bytes()).await.unwrap();
        }
        for _ in 0..MOST_CALLS {
            heard.next_line().await.unwrap().unwrap();
        }
        let more = tokio::time::timeout(std::time::Duration::from_millis(50), heard.next_line()).await;
        assert!(more.is_err(), "the next waits for an answer to go out");
        said.write_all(format!("{}\n", json!({"jsonrpc": "2.0", "id": 0, "result": {}})).as_bytes()).await.unwrap();
        let mut back = BufReader::new(from_client).lines();
        back.next_line().await.unwrap().unwrap();
        heard.next_line().await.unwrap().unwrap();
    }
}
