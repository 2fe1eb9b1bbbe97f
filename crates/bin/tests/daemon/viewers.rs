//! Viewers over the WebSocket: late ones, several, slow ones, and those that reconnect.

use crate::{
    CSN,
    stream::get,
    terminal::{ask, pty, refusal, shown},
};
use countersign_client::{AttachedEvent, Attachment, ClientError};
use countersign_model::{Frame, Outcome, RefusalCode, StreamName, TaskId, api::AttachQuery};
use countersign_testkit::{RawCalls as _, TestHome, body};
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Value, json};

/// A viewer, and everything that it was shown.
struct Viewer {
    daemon: Attachment,
    lines: Vec<Value>,
    bytes: Vec<u8>,
}

impl Viewer {
    fn new(daemon: &TestHome, task: TaskId, options: &AttachQuery) -> Self {
        Self { daemon: daemon.client().attach(task, options).unwrap(), lines: Vec::new(), bytes: Vec::new() }
    }

    /// Waits until `seen` is true for what it was shown, or the daemon closes the connection.
    fn until(&mut self, seen: impl Fn(&Self) -> bool) -> Result<bool, ClientError> {
        while !seen(self) {
            match self.daemon.next_message()? {
                Some(AttachedEvent::Record(record)) => self.lines.push(json!(record)),
                Some(AttachedEvent::Attach(word)) => self.lines.push(json!(word)),
                Some(AttachedEvent::Bytes(bytes)) => self.bytes.extend(bytes),
                None if self.daemon.is_over() => return Ok(false),
                None => drop(poll(&mut [PollFd::new(&self.daemon, PollFlags::IN)], None).unwrap()),
            }
        }
        Ok(true)
    }

    fn sees(&mut self, text: &str) {
        let found = self.until(|v| String::from_utf8_lossy(&v.bytes).contains(text)).unwrap();
        assert!(found, "never saw {text}: {}", String::from_utf8_lossy(&self.bytes));
    }

    fn kinds(&self) -> Vec<&str> {
        self.lines.iter().filter_map(|l| l["kind"].as_str()).collect()
    }
}

#[test]
fn late_viewers_see_the_screen_and_all_see_the_same() {
    let daemon = TestHome::started(CSN);
    let task = pty(&daemon, "printf '\\033[2J\\033[5;10Hearlier'; echo; read x; echo later $x");
    daemon.wait_for_stdout(task, "earlier");
    let mut first = Viewer::new(&daemon, task, &AttachQuery::default());
    first.sees("earlier");
    assert_eq!(first.lines[0]["kind"], "attach.begin");
    assert_eq!(
        (first.lines[0]["screen"]["rows"].as_u64(), first.lines[0]["task"]["status"].as_str()),
        (Some(24), Some("running"))
    );
    let mut second = Viewer::new(&daemon, task, &AttachQuery { read_only: true, ..Default::default() });
    second.sees("earlier");
    second.daemon.type_bytes(b"mischief\r").unwrap();
    assert!(second.until(|v| v.kinds().contains(&"attach.refused")).unwrap());
    first.daemon.send(&body(json!({"resize": {"rows": 30, "cols": 100}}))).unwrap();
    first.daemon.type_bytes("w\u{f6}rd\r".as_bytes()).unwrap();
    for viewer in [&mut first, &mut second] {
        viewer.sees("later w\u{f6}rd");
        assert!(!viewer.until(|_| false).unwrap(), "the end of the task is the end of the conversation");
        let kinds: Vec<&str> = viewer.kinds().into_iter().filter(|k| !k.starts_with("attach.")).collect();
        assert!(kinds.ends_with(&["journal.closed", "task.settled"]), "{kinds:?}");
        assert!(viewer.kinds().contains(&"pty.resized") && viewer.kinds().contains(&"stdin.written"));
    }
    assert!(first.kinds().iter().filter(|k| **k == "attach.applied").count() == 2);
    assert!(!shown(&daemon, task).contains("mischief"));

    let mut recording = Viewer::new(&daemon, task, &AttachQuery::default());
    assert!(!recording.until(|_| false).unwrap());
    let drawn = String::from_utf8_lossy(&recording.bytes).into_owned();
    assert!(drawn.contains("earlier") && drawn.contains("later w\u{f6}rd"), "{drawn}");
    assert_eq!(recording.lines[0]["task"]["outcome"]["code"], 0);
    let screen = get(&daemon, &format!("/tasks/{task}/screen")).unwrap();
    assert_eq!((screen["rows"].as_u64(), screen["cols"].as_u64()), (Some(30), Some(100)));
    assert!(screen["text"].as_str().unwrap().contains("         earlier"), "{screen}");
}

#[test]
fn the_input_of_a_viewer_of_a_flood_arrives_and_it_sees_the_screen() {
    let daemon = TestHome::started(CSN);
    let task = pty(&daemon, "trap 'echo; echo stopped; exit 4' INT; yes 0123456789012345678901234567890123456789");
    // It reads nothing while five megabytes pass; then it types, and its input arrives although it has not read them.
    let mut viewer = Viewer::new(&daemon, task, &AttachQuery { skip: true, after: Some(0), ..Default::default() });
    daemon.frame(task, |f| matches!(f, Frame::Output { offset: 5_000_000.., .. }));
    viewer.daemon.type_bytes(&[3]).unwrap();
    viewer.sees("stopped");
    assert!(!viewer.until(|_| false).unwrap());
    assert_eq!(daemon.outcome(task), Outcome::Exited { code: 4 });
    assert!(viewer.kinds().contains(&"attach.screen"), "it was not shown everything");
    assert!((viewer.bytes.len() as u64) < daemon.settled(task).io.streams[&StreamName::Pty].bytes);
}

#[test]
fn a_viewer_far_behind_sees_how_it_ended_and_not_the_flood() {
    let daemon = TestHome::started(CSN);
    let task = pty(&daemon, "yes 0123456789 | head -c 3000000; echo; echo LAST; exit 4");
    daemon.settled(task);
    let mut viewer = Viewer::new(&daemon, task, &AttachQuery { skip: true, after: Some(0), ..Default::default() });
    assert!(!viewer.until(|_| false).unwrap());
    let kinds = viewer.kinds();
    assert!(kinds.contains(&"attach.screen") && kinds.contains(&"process.exited"), "{kinds:?}");
    assert_eq!(kinds.last(), Some(&"task.settled"));
    assert!(String::from_utf8_lossy(&viewer.bytes).contains("LAST"));
    assert!(viewer.bytes.len() < 100_000, "{}", viewer.bytes.len());
}

#[test]
fn a_viewer_who_skips_past_the_limit_sees_the_end() {
    let daemon = TestHome::started(CSN);
    let text = "yes 0123456789 | head -c 4000000; read x; echo LATE; exit 4";
    let with = json!({"execution_mode": "pty", "limits": {"output_bytes": 1_500_000}});
    let task = ask(&daemon, text, with);
    let mut viewer = Viewer::new(&daemon, task, &AttachQuery { skip: true, after: Some(0), ..Default::default() });
    daemon.frame(task, |f| matches!(f, Frame::LimitReached { .. }));
    let written = || get(&daemon, &format!("/tasks/{task}/screen")).unwrap()["offset_bytes"].as_u64().unwrap();
    while written() < 4_000_000 {}
    viewer.daemon.type_bytes(b"\r").unwrap();
    assert!(!viewer.until(|_| false).unwrap(), "nothing was changed after it was recorded");
    let seen = String::from_utf8_lossy(&viewer.bytes).into_owned();
    assert!(seen.contains("LATE"), "{}", &seen[seen.len().saturating_sub(300)..]);
    assert_eq!(daemon.outcome(task), Outcome::Exited { code: 4 });
}

#[test]
fn a_viewer_that_skips_nothing_gets_every_stored_byte_and_no_screens() {
    let daemon = TestHome::started(CSN);
    let with = json!({"execution_mode": "pty", "limits": {"output_bytes": 100_000}});
    let task = ask(&daemon, "seq 1 500000; sleep 0.3; echo LATE", with);
    let mut viewer = Viewer::new(&daemon, task, &AttachQuery { after: Some(0), ..Default::default() });
    assert!(!viewer.until(|_| false).unwrap());
    assert!(!viewer.kinds().contains(&"attach.screen"));
    assert!(viewer.bytes == daemon.stored_output(task, StreamName::Pty), "byte for byte what is in the file");
    assert!(viewer.bytes.ends_with(b"LATE\r\n"));
}

#[test]
fn a_viewer_comes_back_after_the_daemon_and_types_everything_once() {
    let daemon = TestHome::started(CSN);
    let task = pty(
        &daemon,
        "stty -echo; echo ready; while read line; do echo \"<$line>\"; test \"$line\" = end && exit 6; done",
    );
    daemon.wait_for_stdout(task, "ready");
    let options = |from| AttachQuery { key: Some("viewer".into()), from, ..Default::default() };
    let mut viewer = Viewer::new(&daemon, task, &options(0));
    viewer.sees("ready");
    viewer.daemon.type_bytes(b"one\r").unwrap();
    assert!(viewer.until(|v| v.kinds().contains(&"attach.applied")).unwrap());
    viewer.daemon.type_bytes(b"two\r").unwrap();
    viewer.sees("<two>");
    daemon.kill_daemon();
    assert!(viewer.until(|_| false).is_err());
    daemon.start();
    // It does not know whether the second message was applied, so it sends it again under its number.
    let mut viewer = Viewer::new(&daemon, task, &options(1));
    viewer.sees("<two>");
    viewer.daemon.type_bytes(b"two\r").unwrap();
    viewer.daemon.type_bytes(b"end\r").unwrap();
    viewer.until(|_| false).unwrap();
    assert_eq!(daemon.outcome(task), Outcome::Exited { code: 6 });
    assert_eq!(shown(&daemon, task), "ready\r\n<one>\r\n<two>\r\n<end>\r\n");
}

#[test]
fn tasks_over_pipes_can_be_attached_to_as_well() {
    let daemon = TestHome::started(CSN);
    let task = ask(&daemon, "seq 1 300; echo err >&2; read x; echo got $x; exit 2", json!({"args": {"stdin": true}}));
    daemon.wait_for_stdout(task, "300");
    let mut viewer = Viewer::new(&daemon, task, &AttachQuery::default());
    viewer.sees("300");
    viewer.daemon.type_bytes(b"line\n").unwrap();
    viewer.sees("got line");
    viewer.until(|_| false).unwrap();
    let tail = viewer.lines.iter().find(|l| l["kind"] == "attach.tail").unwrap();
    assert_eq!(tail["stream"], "stdout");
    assert!(viewer.bytes.starts_with(b"201\n"), "the last hundred lines");
    let over_http = daemon.client().call("GET", &format!("/tasks/{task}/attach"), &[], None);
    assert_eq!(refusal(over_http).code, RefusalCode::BadRequest);
}
