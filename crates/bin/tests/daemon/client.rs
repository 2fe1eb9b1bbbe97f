//! The client as other programs use it: over TCP with a token, on tokio, across broken connections, and by its example.

use crate::CSN;
use countersign_client::{
    Address, AsyncClient, AttachedEvent, BearerToken, Client, ClientError, Event, EventCursor, Result as ClientResult,
    calls,
};
use countersign_model::{
    Decision, Frame, Outcome, RecordContent, RefusalCode, Status, TaskId,
    api::{AttachMessage, AttachQuery, StdinBody, StreamRecord, TaskQuery, ToolTaskEvent, ToolTaskWhat},
};
use countersign_testkit::{TestHome, body};
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::json;
use std::net::SocketAddr;

#[allow(dead_code, reason = "its main is for the command line")]
#[path = "../../../client/examples/run_and_follow.rs"]
mod run_and_follow;

/// Opens the daemon's port: an ephemeral one, or the same one as before.
fn listen(daemon: &TestHome, at: Option<SocketAddr>) -> SocketAddr {
    daemon.client().listen(Some(at.unwrap_or_else(|| ([127, 0, 0, 1], 0).into()))).unwrap()
}

fn token(daemon: &TestHome, scopes: &[&str]) -> BearerToken {
    let wanted = json!({"name": scopes.join("-"), "kind": "person", "scopes": scopes});
    BearerToken::new(daemon.client().create_token(&body(wanted)).unwrap().token).unwrap()
}

/// A daemon that listens, and its address with a token.
fn start_with_token() -> (TestHome, Address) {
    let daemon = TestHome::started(CSN);
    let at = listen(&daemon, None);
    let address = Address::tcp(at, token(&daemon, &["observe", "run"])).unwrap();
    (daemon, address)
}

fn on_tokio<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

#[test]
fn the_example_runs_a_command_over_both_transports() {
    let (daemon, tcp) = start_with_token();
    let cwd = daemon.work().display().to_string();
    for client in [daemon.client(), Client::at(tcp)] {
        let mut out = Vec::new();
        let outcome = run_and_follow::run_and_follow(&client, "echo hello; exit 3", &cwd, &mut out).unwrap();
        assert_eq!((outcome, out.as_slice()), (Outcome::Exited { code: 3 }, b"hello\n".as_slice()));
        let mut out = Vec::new();
        run_and_follow::run_and_follow(&client, "seq 1 100000", &cwd, &mut out).unwrap();
        assert_eq!(
            out,
            (1..=100_000).map(|n| format!("{n}\n")).collect::<String>().into_bytes(),
            "more than is inlined"
        );
    }
}

#[test]
fn a_token_decides_what_may_be_called_and_stays_out_of_errors() {
    let daemon = TestHome::started(CSN);
    let at = listen(&daemon, None);
    let looks = Client::at(Address::tcp(at, token(&daemon, &["observe"])).unwrap());
    assert!(looks.tasks(&TaskQuery::default()).unwrap().tasks.is_empty());
    let asked = looks.ask(&daemon.request("echo x", json!({}))).unwrap_err();
    assert!(
        matches!(&asked, ClientError::Refused(refused) if refused.refusal.code == RefusalCode::MissingScope),
        "{asked:?}"
    );
    let wrong = Client::at(Address::tcp(at, BearerToken::new("csn_not-a-token").unwrap()).unwrap());
    let refused = wrong.lifecycle().unwrap_err();
    assert!(matches!(&refused, ClientError::Refused(r) if r.refusal.code == RefusalCode::Unauthorized), "{refused:?}");
    let attached = wrong.attach(daemon.ask("true"), &AttachQuery::default()).err().unwrap();
    daemon.kill_daemon();
    let gone = wrong.lifecycle().unwrap_err();
    assert!(gone.is_daemon_gone());
    for error in [refused, attached, gone] {
        assert!(!format!("{error} {error:?}").contains("not-a-token"), "{error:?}");
    }
}

#[test]
fn blocking_and_async_clients_make_the_same_calls_over_both_transports() {
    let (daemon, tcp) = start_with_token();
    let unix = daemon.client().address().clone();
    let request = daemon.request("echo again; exit 4", json!({}));
    let ask = calls::tasks::ask(&request).with_key("one key");
    let mut tasks: Vec<TaskId> = vec![daemon.client().send(&ask).unwrap().task.task_id];
    on_tokio(async {
        tasks.push(AsyncClient::at(unix).send(&ask).await.unwrap().task.task_id);
        let client = AsyncClient::at(tcp);
        let settled = client.send(&calls::tasks::wait(tasks[0], 60_000)).await.unwrap();
        assert_eq!(settled.outcome(), Some(&Outcome::Exited { code: 4 }));
        let bytes = calls::output::bytes(tasks[0], &body(json!({"stream": "stdout"})));
        assert_eq!(client.send(&bytes).await.unwrap(), b"again\n");
        let (mut answer, mut read) = (client.open(&bytes).await.unwrap(), Vec::new());
        while let Some(more) = answer.next_bytes().await.unwrap() {
            read.extend(more);
        }
        assert_eq!(read, b"again\n");
        let missing = client.send(&calls::tasks::show("tk_0000000000000000")).await.unwrap_err();
        assert!(matches!(missing, ClientError::Refused(r) if r.refusal.code == RefusalCode::NotFound));
        assert_eq!(client.send(&calls::lifecycle::show()).await.unwrap().pid, daemon.daemon_pid());
        assert!(client.send(&calls::lifecycle::ready()).await.unwrap().ready);
    });
    assert_eq!(tasks[0], tasks[1], "under one key it is one task");
}

/// Every sequence number occurs once, and in order.
fn assert_whole(events: &[Event<StreamRecord>]) {
    let seqs: Vec<u64> = events.iter().map(|event| event.value.record.seq).collect();
    assert_eq!(seqs, (0..seqs.len() as u64).collect::<Vec<_>>());
    assert!(events.iter().all(|event| event.gap.is_none()));
}

fn prints(event: &Event<StreamRecord>, text: &str) -> bool {
    event.value.output.as_ref().is_some_and(|output| output.text.contains(text))
}

/// A task that prints `one`, and `two` once it gets a line.
fn ask_two_part_task(daemon: &TestHome) -> TaskId {
    daemon.ask("echo one; until [ -e go ]; do sleep 0.02; done; echo two")
}

/// Kills the daemon, lets the task continue without one, and starts another daemon on the same port.
fn restart_in_the_middle(daemon: &TestHome, at: SocketAddr) {
    daemon.kill_daemon();
    std::fs::write(daemon.work().join("go"), "").unwrap();
    daemon.start();
    listen(daemon, Some(at));
}

#[test]
fn an_async_stream_over_tcp_continues_after_a_killed_daemon() {
    let daemon = TestHome::started(CSN);
    let at = listen(&daemon, None);
    let client = AsyncClient::at(Address::tcp(at, token(&daemon, &["observe"])).unwrap());
    let task = ask_two_part_task(&daemon);
    on_tokio(async {
        let (mut events, mut seen, mut broke) = (client.follow(calls::tasks::events(task)), Vec::new(), 0);
        loop {
            match events.next_event().await {
                Ok(Some(event)) if prints(&event, "one") => {
                    seen.push(event);
                    restart_in_the_middle(&daemon, at);
                }
                Ok(Some(event)) => seen.push(event),
                Ok(None) => break,
                Err(error) if error.is_daemon_gone() => broke += 1,
                Err(error) => panic!("{error:?}"),
            }
        }
        assert!(broke > 0, "the connection did not break");
        assert_whole(&seen);
        assert!(seen.iter().any(|event| prints(event, "two")));
    });
}

#[test]
fn a_blocking_stream_over_tcp_continues_after_a_killed_daemon() {
    let daemon = TestHome::started(CSN);
    let at = listen(&daemon, None);
    let client = Client::at(Address::tcp(at, token(&daemon, &["observe"])).unwrap());
    let task = ask_two_part_task(&daemon);
    let (mut events, mut seen, mut broke) = (client.events(task, None), Vec::new(), 0);
    loop {
        match events.next_event() {
            Ok(Some(event)) if prints(&event, "one") => {
                seen.push(event);
                restart_in_the_middle(&daemon, at);
            }
            Ok(Some(event)) => seen.push(event),
            Ok(None) => break,
            Err(error) if error.is_daemon_gone() => broke += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(broke > 0, "the connection did not break");
    assert_whole(&seen);
    assert!(seen.iter().any(|event| prints(event, "two")));
}

/// The rest of a stream, on tokio.
async fn remaining_events(
    client: &AsyncClient,
    task: TaskId,
    after: Option<&EventCursor>,
) -> ClientResult<Vec<(EventCursor, ToolTaskEvent)>> {
    let call = calls::tasks::tool_task_events(task);
    let mut events = client.follow(match after {
        Some(cursor) => call.after(cursor.clone()),
        None => call,
    });
    let mut all = Vec::new();
    while let Some(event) = events.next_event().await? {
        all.push((event.cursor.unwrap(), event.value));
    }
    Ok(all)
}

#[test]
fn a_disconnect_between_two_events_of_one_record_loses_neither() {
    let (daemon, tcp) = start_with_token();
    let task = daemon.ask("echo x");
    daemon.sealed(task);
    on_tokio(async {
        let client = AsyncClient::at(tcp);
        let all = remaining_events(&client, task, None).await.unwrap();
        for n in 0..all.len() {
            assert_eq!(
                remaining_events(&client, task, Some(&all[n].0)).await.unwrap(),
                all[n + 1..],
                "behind {}",
                all[n].0
            );
        }
        let exited =
            all.iter().position(|(_, e)| matches!(e.what, ToolTaskWhat::Status { status: Status::Exited, .. }));
        let (behind, ended) = (&all[exited.unwrap()].0, &all[exited.unwrap() + 1]);
        assert!(matches!(ended.1.what, ToolTaskWhat::Ended { exit_code: 0, .. }), "{ended:?}");
        assert_eq!(behind.as_str().split('.').next(), ended.0.as_str().split('.').next(), "of one record");
    });
}

#[test]
fn a_reader_that_reconnects_gets_every_pending_approval_again() {
    let daemon = TestHome::started(CSN);
    let tasks: Vec<TaskId> =
        (0..3).map(|n| daemon.ask_with(&format!("touch {n}"), json!({"profile": "safe"})).task_id).collect();
    let events: Vec<_> = {
        let mut approvals = daemon.client().follow(calls::approvals::events());
        (0..3).map(|_| approvals.next_event().unwrap().unwrap()).collect()
    };
    assert_eq!(events.iter().map(|e| e.value.task_id).collect::<Vec<_>>(), tasks);
    assert_eq!(events.iter().map(|e| e.cursor.is_some()).collect::<Vec<_>>(), [false, false, true]);
}

#[test]
fn ledger_and_approval_streams_are_typed() {
    let daemon = TestHome::started(CSN);
    let state = daemon.ask_with("touch asked", json!({"profile": "safe"}));
    on_tokio(async {
        let client = AsyncClient::at(daemon.client().address().clone());
        let mut approvals = client.follow(calls::approvals::events());
        let waiting = approvals.next_event().await.unwrap().unwrap().value;
        assert_eq!(Some(waiting.id), state.approval_id());
        let mut ledger = client.follow(calls::lifecycle::ledger());
        let (cursor, asked) = loop {
            let event = ledger.next_event().await.unwrap().unwrap();
            if event.value.task == Some(state.task_id) {
                break (event.cursor.unwrap(), event.value.decision.record);
            }
        };
        assert!(matches!(asked.what, RecordContent::Decision(Decision::Planned { .. })), "{asked:?}");
        // After a cursor, across a restart.
        daemon.kill_daemon();
        daemon.start();
        let mut later = client.follow(calls::lifecycle::ledger().after(cursor.clone()));
        let next = later.next_event().await.unwrap().unwrap();
        assert!(next.cursor.unwrap().as_str().parse::<i64>().unwrap() > cursor.as_str().parse().unwrap());
    });
}

#[test]
fn a_task_is_attached_to_over_tcp() {
    let (daemon, tcp) = start_with_token();
    let task = daemon.ask_with("read x; echo got $x", json!({"execution_mode": "pty"})).task_id;
    daemon.frame(task, |f| matches!(f, Frame::Spawned { .. }));
    let client = Client::at(tcp);
    let mut attachment = client.attach(task, &AttachQuery { after: Some(0), ..AttachQuery::default() }).unwrap();
    attachment.send(&AttachMessage::Stdin(StdinBody::text("typed\r"))).unwrap();
    let (mut shown, mut settled) = (Vec::new(), None);
    while !attachment.is_over() {
        match attachment.next_message().unwrap() {
            Some(AttachedEvent::Bytes(bytes)) => shown.extend(bytes),
            Some(AttachedEvent::Record(record)) => {
                if let RecordContent::Decision(Decision::Settled { outcome, .. }) = record.record.what {
                    settled = Some(outcome);
                }
            }
            Some(AttachedEvent::Attach(_)) => {}
            None => drop(poll(&mut [PollFd::new(&attachment, PollFlags::IN)], None).unwrap()),
        }
    }
    assert!(String::from_utf8_lossy(&shown).contains("got typed"), "{}", String::from_utf8_lossy(&shown));
    assert_eq!(settled, Some(Outcome::Exited { code: 0 }));
}
