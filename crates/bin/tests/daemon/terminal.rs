//! Tasks with a terminal or an open standard input: what goes in, what is recorded, and in which order.

use crate::{CSN, stream::get};
use countersign_client::ClientError;
use countersign_model::{
    Decision, Frame, InputKind, Outcome, Record, RecordContent, RefusalCode, SignalName, StreamName, TaskId,
    TaskRefusal, api::StdinBody,
};
use countersign_testkit::{RawCalls as _, TestHome, body};
use serde_json::{Value, json};

pub(crate) fn ask(daemon: &TestHome, text: &str, with: Value) -> TaskId {
    daemon.ask_with(text, with).task_id
}

pub(crate) fn pty(daemon: &TestHome, text: &str) -> TaskId {
    ask(daemon, text, json!({"execution_mode": "pty"}))
}

/// A terminal for a command that no workspace sandbox allows.
pub(crate) fn open(daemon: &TestHome, text: &str) -> TaskId {
    daemon.ask_open(text, json!({"execution_mode": "pty"}))
}

pub(crate) fn shown(daemon: &TestHome, task: TaskId) -> String {
    String::from_utf8_lossy(&daemon.output(task, StreamName::Pty)).into_owned()
}

pub(crate) fn send(daemon: &TestHome, task: TaskId, typed: Value) -> u64 {
    daemon.client().stdin(task, &body(typed)).unwrap()
}

pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, ClientError>) -> countersign_model::Refusal {
    match result {
        Err(ClientError::Refused(TaskRefusal { refusal, .. })) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

fn frames(daemon: &TestHome, task: TaskId) -> Vec<(u64, Frame)> {
    let of = |r: Record| match r.what {
        RecordContent::Frame(frame) => Some((r.seq, frame)),
        _ => None,
    };
    daemon.records(task).into_iter().filter_map(of).collect()
}

#[test]
fn a_terminal_controls_its_session_and_the_exit_is_exact() {
    let daemon = TestHome::started(CSN);
    let task = ask(
        &daemon,
        "tty; stty size; test -t 0 && test -t 1 && test -t 2 && echo all; cut -d' ' -f 5-8 /proc/$$/stat; echo $$; exit 7",
        json!({"execution_mode": "pty", "args": {"rows": 31, "cols": 97}}),
    );
    assert_eq!(daemon.outcome(task), Outcome::Exited { code: 7 });
    let shown = shown(&daemon, task);
    assert!(shown.starts_with("/dev/pts/") && shown.contains("\r\n31 97\r\nall\r\n"), "{shown}");
    let lines: Vec<&str> = shown.lines().collect();
    let ids: Vec<&str> = lines[lines.len() - 2].split(' ').collect();
    let pid = lines[lines.len() - 1];
    assert_eq!((ids[0], ids[1]), (pid, pid), "it leads its group and its session: {shown}");
    assert!(ids[2] != "0" && ids[3] != "-1", "which has the terminal: {shown}");
    let task = pty(&daemon, "kill -SEGV $$");
    assert!(matches!(daemon.outcome(task), Outcome::Signalled { signal: 11, .. }));
    let task = pty(&daemon, "echo $TERM");
    daemon.settled(task);
    assert_eq!(self::shown(&daemon, task), "xterm-256color\r\n");
}

#[test]
fn the_exit_is_reported_immediately_although_a_process_holds_the_terminal() {
    let daemon = TestHome::started(CSN);
    // If the exit were reported only after every process closed the terminal, this would wait for the sleep or drain.
    let long = json!({"execution_mode": "pty", "limits": {"drain_ms": 3_600_000}});
    let task = ask(&daemon, "trap '' HUP; (trap '' HUP; exec sleep 3599) & echo last; exit 4", long.clone());
    assert_eq!(daemon.outcome(task), Outcome::Exited { code: 4 });
    assert_eq!(shown(&daemon, task), "last\r\n");
    let task = ask(&daemon, "setsid sleep 3598 & exit 5", long);
    assert_eq!(daemon.outcome(task), Outcome::Exited { code: 5 });
}

#[test]
fn a_closed_terminal_may_be_opened_again() {
    let daemon = TestHome::started(CSN);
    let task = pty(&daemon, "exec <&- >&- 2>&-; sleep 0.1; echo back >/dev/tty; sleep 0.1; exit 3");
    assert_eq!(daemon.outcome(task), Outcome::Exited { code: 3 });
    assert_eq!(shown(&daemon, task), "back\r\n");
}

#[test]
fn the_last_byte_of_a_terminal_is_stored() {
    let daemon = TestHome::started(CSN);
    let task = pty(&daemon, "seq 1 200000; printf end");
    daemon.settled(task);
    let expect: String = (1..=200_000).map(|n| format!("{n}\r\n")).collect();
    assert!(shown(&daemon, task) == expect + "end");
}

#[test]
fn the_last_output_of_a_cancelled_flood_is_stored() {
    let daemon = TestHome::started(CSN);
    for _ in 0..6 {
        let text = "trap 'echo FINAL; exit 3' TERM; seq 1 300000; echo ready; while :; do sleep 0.01; done";
        let task = pty(&daemon, text);
        daemon.wait_for_stdout(task, "ready");
        daemon.client().cancel(task, None).unwrap();
        daemon.settled(task);
        assert!(shown(&daemon, task).contains("\r\nFINAL\r\n"), "all that it wrote is there");
    }
}

#[test]
fn many_hidden_lines_together_are_not_passwords() {
    let daemon = TestHome::started(CSN);
    let task = pty(&daemon, "stty -echo; echo ready; head -n 7001 | tail -n 1; read -r x; echo $x");
    daemon.wait_for_stdout(task, "ready");
    send(&daemon, task, json!({"text": "not-a-pw\n".repeat(7000)}));
    send(&daemon, task, json!({"text": "but-this-one\n"}));
    send(&daemon, task, json!({"text": "not-a-pw\n"}));
    daemon.settled(task);
    let all = shown(&daemon, task);
    assert!(all.contains("[redacted:known-value:") && !all.contains("but-this-one"), "{all}");
}

#[test]
fn a_screen_that_is_too_large_is_refused_immediately() {
    let daemon = TestHome::started(CSN);
    let draw = r#"awk 'BEGIN { for (r = 1; r <= 1000; r++) { printf "\033[%d;1H", r; for (c = 0; c < 1000; c++)
        printf "\033[38;2;%d;%d;%dmx", r % 256, c % 256, (r * c) % 256 } printf "\033[1;1Hdrawn\n" }'; read x"#;
    let task = ask(&daemon, draw, json!({"execution_mode": "pty", "args": {"rows": 1000, "cols": 1000}}));
    daemon.wait_for_stdout(task, "drawn");
    let refused = get(&daemon, &format!("/tasks/{task}/screen")).unwrap_err();
    assert_eq!(refused.code, RefusalCode::TooLarge);
    daemon.client().resize(task, 24, 80).unwrap();
    assert!(get(&daemon, &format!("/tasks/{task}/screen")).is_ok());
}

#[test]
fn f159_input_has_its_place_in_the_record_but_not_its_text() {
    let daemon = TestHome::started(CSN);
    let task = pty(&daemon, "echo ready; read a; echo got $a; read b; echo and $b");
    daemon.wait_for_stdout(task, "ready");
    let first = send(&daemon, task, json!({"text": "one\n"}));
    daemon.wait_for_stdout(task, "got one");
    let second = send(&daemon, task, json!({"keys": ["t", "w", "o", "enter"]}));
    daemon.settled(task);
    let frames = frames(&daemon, task);
    let at = |wanted: u64| frames.iter().find(|(seq, _)| *seq == wanted).map(|(_, f)| f.clone()).unwrap();
    let by = || countersign_model::Text::from_static("owner");
    assert_eq!(at(first), Frame::StdinWritten { bytes: 4, input: InputKind::Text, by: by() });
    assert_eq!(at(second), Frame::StdinWritten { bytes: 4, input: InputKind::Keys, by: by() });
    let all = shown(&daemon, task);
    assert_eq!(all, "ready\r\none\r\ngot one\r\ntwo\r\nand two\r\n");
    // What was printed before the input is recorded before it, its echo after it.
    let before: u64 = frames
        .iter()
        .filter(|(seq, _)| *seq < first)
        .filter_map(|(_, f)| if let Frame::Output { len, .. } = f { Some(*len) } else { None })
        .sum();
    assert_eq!(&all[..before as usize], "ready\r\n");
    assert_eq!(daemon.settled(task).io.stdin_bytes, 8);
}

/// Every file below the home, as one piece.
fn all_bytes(dir: &std::path::Path, out: &mut Vec<u8>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        match entry.file_type().unwrap() {
            t if t.is_dir() => all_bytes(&entry.path(), out),
            t if t.is_file() => out.extend(std::fs::read(entry.path()).unwrap_or_default()),
            _ => {}
        }
    }
}

#[test]
fn f159_a_hidden_line_is_stored_nowhere_even_if_it_is_printed_later() {
    let daemon = TestHome::started(CSN);
    let secret = format!("pw-{}-correct-horse", std::process::id());
    let task = pty(&daemon, "read -s -p 'Password: ' p; echo; echo len ${#p}; echo said $p; read again; echo $again");
    let hidden = daemon.frame(task, |f| matches!(f, Frame::Echo { .. }));
    assert_eq!(hidden, Frame::Echo { on: false });
    while daemon.client().task(&task.to_string()).unwrap().io.terminal.is_none_or(|t| t.echo) {}
    // Key by key, as a person types.
    for c in secret.chars() {
        send(&daemon, task, json!({"text": c.to_string()}));
    }
    send(&daemon, task, json!({"keys": ["enter"]}));
    daemon.wait_for_stdout(task, &format!("len {}", secret.len()));
    send(&daemon, task, json!({"text": format!("{secret}\n")}));
    daemon.settled(task);
    let all = shown(&daemon, task);
    assert!(all.contains("said [redacted:known-value:"), "{all}");
    let mut bytes = Vec::new();
    all_bytes(daemon.home(), &mut bytes);
    assert!(bytes.len() > 10_000 && !bytes.windows(secret.len()).any(|w| w == secret.as_bytes()));
}

#[test]
fn ctrl_c_is_a_signal_in_cooked_and_a_byte_in_raw_mode() {
    let daemon = TestHome::started(CSN);
    let task = pty(&daemon, "echo ready; sleep 3600");
    daemon.wait_for_stdout(task, "ready");
    send(&daemon, task, json!({"keys": ["ctrl-c"]}));
    assert!(matches!(daemon.outcome(task), Outcome::Signalled { signal: 2, .. }));
    let task = pty(&daemon, "stty raw -echo; echo ready; head -c 1 | od -An -tx1; stty sane");
    daemon.wait_for_stdout(task, "ready");
    send(&daemon, task, json!({"keys": ["ctrl-c"]}));
    assert_eq!(daemon.outcome(task), Outcome::Exited { code: 0 });
    assert!(shown(&daemon, task).contains(" 03"));
}

#[test]
fn a_signal_goes_to_the_foreground_of_the_terminal() {
    let daemon = TestHome::started(CSN);
    let task = pty(&daemon, "PS1='ready: ' exec bash --norc -i");
    daemon.wait_for_stdout(task, "ready: ");
    send(&daemon, task, json!({"text": "(echo star''ted; exec sleep 3600)\n"}));
    daemon.wait_for_stdout(task, "started");
    daemon.client().signal(task, SignalName::INT).unwrap();
    send(&daemon, task, json!({"text": "echo $?; exit 9\n"}));
    assert_eq!(daemon.outcome(task), Outcome::Exited { code: 9 }, "the shell itself was not hit");
}

#[test]
fn a_new_size_reaches_the_program_and_the_record() {
    let daemon = TestHome::started(CSN);
    let task = pty(&daemon, "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.01; done");
    daemon.wait_for_stdout(task, "ready");
    let seq = daemon.client().resize(task, 40, 132).unwrap();
    assert_eq!(daemon.outcome(task), Outcome::Exited { code: 0 });
    assert!(shown(&daemon, task).contains("40 132"));
    let by = Some(countersign_model::Text::from_static("owner"));
    assert!(frames(&daemon, task).contains(&(seq, Frame::Resized { rows: 40, cols: 132, by })));
    let state = daemon.settled(task);
    assert_eq!(state.io.terminal.map(|t| (t.rows, t.cols)), Some((40, 132)));
}

#[test]
fn keys_and_pastes_follow_the_modes_of_the_program() {
    let daemon = TestHome::started(CSN);
    let modes = "stty raw -echo; printf '\\033[?1h\\033[?2004hready'; head -c 26 | od -An -c -w26; stty sane";
    let task = pty(&daemon, modes);
    daemon.wait_for_stdout(task, "ready");
    send(&daemon, task, json!({"keys": ["up"]}));
    // Pasted text cannot leave its brackets.
    send(&daemon, task, json!({"paste": "\u{1b}[20\u{1b}[201~1~x"}));
    daemon.settled(task);
    let all = shown(&daemon, task).split_whitespace().collect::<String>();
    assert!(all.contains(r"033OA033[200~[20[201~1~x033[201~"), "{all}");
}

#[test]
fn pipes_take_input_and_its_end_when_requested() {
    let daemon = TestHome::started(CSN);
    let with_stdin = json!({"args": {"stdin": true}});
    let task = ask(&daemon, "wc -c", with_stdin.clone());
    let text = "x".repeat(60_000);
    for _ in 0..20 {
        send(&daemon, task, json!({"text": text}));
    }
    send(&daemon, task, json!({"chunk_b64": "/wA="}));
    send(&daemon, task, json!({"eof": true}));
    daemon.settled(task);
    assert_eq!(daemon.stdout(task).trim(), "1200002");
    let task = ask(&daemon, "cat", with_stdin.clone());
    send(&daemon, task, json!({"text": "all at once", "eof": true}));
    daemon.settled(task);
    assert_eq!(daemon.stdout(task), "all at once");

    let task = daemon.ask("cat; echo over; sleep 3600");
    daemon.wait_for_stdout(task, "over");
    let refused = refusal(daemon.client().stdin(task, &body(json!({"text": "x"}))));
    assert_eq!(refused.code, RefusalCode::WrongMode);
    let reads = ask(&daemon, "read x; echo \"<$x>\"", with_stdin);
    assert_eq!(refusal(daemon.client().stdin(reads, &body(json!({"keys": ["enter"]})))).code, RefusalCode::WrongMode);
    assert!(daemon.csn(&["send", &reads.to_string(), "a line", "--enter"]).status.success());
    daemon.settled(reads);
    assert_eq!(daemon.stdout(reads), "<a line>\n");
    let refused = refusal(daemon.client().resize(task, 10, 10));
    assert_eq!((refused.code, refused.code.http_status()), (RefusalCode::WrongMode, 409));
    daemon.client().cancel(task, None).unwrap();
    daemon.settled(task);
    assert_eq!(refusal(daemon.client().stdin(task, &body(json!({"text": "x"})))).code, RefusalCode::TaskOver);
}

#[test]
fn input_that_a_program_does_not_read_is_reported() {
    let daemon = TestHome::started(CSN);
    let task = ask(&daemon, "echo ready; sleep 3600", json!({"args": {"stdin": true}}));
    daemon.wait_for_stdout(task, "ready");
    let text = "y".repeat(64 * 1024);
    let (client, body) = (daemon.client(), StdinBody::text(text));
    std::thread::scope(|scope| {
        // Most of these wait for a program that never reads: they are answered when it has ended. Too much input is
        // refused immediately.
        let (told, full) = std::sync::mpsc::channel();
        let waiting: Vec<_> = (0..20)
            .map(|_| {
                let (client, body, told) = (&client, &body, told.clone());
                scope.spawn(move || {
                    let answer = client.stdin(task, body);
                    if matches!(&answer, Err(ClientError::Refused(TaskRefusal { refusal, .. })) if refusal.code == RefusalCode::InputFull) {
                        told.send(()).unwrap();
                    }
                    answer
                })
            })
            .collect();
        full.recv().unwrap();
        client.cancel(task, None).unwrap();
        let answers: Vec<_> = waiting.into_iter().map(|w| w.join().unwrap()).collect();
        assert!(answers.iter().any(Result::is_ok), "the bytes that the pipe took were applied");
        let refused: Vec<String> = answers.iter().filter_map(|a| a.as_ref().err()).map(|e| e.to_string()).collect();
        assert!(refused.iter().any(|why| why.contains("closed its input after")), "{refused:?}");
        assert!(refused.iter().any(|why| why.contains("does not read")), "{refused:?}");
    });
}

#[test]
fn invalid_input_is_refused_with_a_reason() {
    let daemon = TestHome::started(CSN);
    let task = pty(&daemon, "cat");
    for (body, code, word) in [
        (json!({}), RefusalCode::BadRequest, "the input is empty"),
        (json!({"text": ""}), RefusalCode::BadRequest, "the input is empty"),
        (json!({"keys": []}), RefusalCode::BadRequest, "the input is empty"),
        (json!({"keys": ["entr"]}), RefusalCode::BadRequest, "unknown key `entr`"),
        (json!({"text": "x", "keys": ["a"]}), RefusalCode::BadRequest, "cannot be combined"),
        (json!({"chunk_b64": "!"}), RefusalCode::BadRequest, "chunk_b64"),
        (json!({"text": "x", "other": 1}), RefusalCode::BadRequest, "other"),
        (json!({"text": "x".repeat(64 * 1024 + 1)}), RefusalCode::TooLarge, "the maximum is"),
    ] {
        let refused = refusal(daemon.client().post(&format!("/tasks/{task}/stdin"), &body));
        assert_eq!(refused.code, code, "{body}");
        assert!(refused.message.contains(word), "{}", refused.message);
    }
    for (rows, cols) in [(0, 80), (24, 1001)] {
        assert_eq!(refusal(daemon.client().resize(task, rows, cols)).code, RefusalCode::BadRequest);
    }
}

#[test]
fn the_input_of_three_clients_gets_one_order_and_is_applied_once() {
    let daemon = TestHome::started(CSN);
    let task = ask(&daemon, "cat > taken", json!({"args": {"stdin": true}}));
    let post = |path: &str, key: &str, body: &Value| {
        let reply =
            daemon.client().call("POST", &format!("/tasks/{task}/{path}"), &[("idempotency-key", key)], Some(body));
        reply.map(|bytes| serde_json::from_slice::<Value>(&bytes).unwrap()["seq"].as_u64().unwrap())
    };
    let seqs: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let client = |who: usize| {
            let post = &post;
            move || {
                let mut seqs = Vec::new();
                for n in 0..40 {
                    let (key, body) = (format!("{who}-{n}"), json!({"text": format!("{who}:{n}\n")}));
                    let seq = post("stdin", &key, &body).unwrap();
                    assert_eq!(post("stdin", &key, &body).unwrap(), seq, "the second is the first");
                    seqs.push(seq);
                    if n % 10 == 0 {
                        seqs.push(post("signal", &format!("s{who}-{n}"), &json!({"signal": "WINCH"})).unwrap());
                    }
                }
                seqs
            }
        };
        let clients: Vec<_> = (0..3).map(|who| scope.spawn(client(who))).collect();
        clients.into_iter().map(|c| c.join().unwrap()).collect()
    });
    let other = refusal(post("stdin", "0-0", &json!({"text": "another"})));
    assert_eq!((other.code, other.code.http_status()), (RefusalCode::IdempotencyConflict, 422));
    send(&daemon, task, json!({"eof": true}));
    daemon.settled(task);
    let mut all: Vec<u64> = seqs.concat();
    assert!(seqs.iter().all(|s| s.is_sorted()), "each client sees its own operations in order");
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 3 * 44, "every operation has a number of its own");
    let frames = frames(&daemon, task);
    let written = frames.iter().filter(|(_, f)| matches!(f, Frame::StdinWritten { bytes: 1.., .. })).count();
    assert_eq!(written, 120);
    let taken = std::fs::read_to_string(daemon.work().join("taken")).unwrap();
    assert_eq!(taken.lines().count(), 120);
    for who in 0..3 {
        let own: Vec<&str> = taken.lines().filter(|l| l.starts_with(&format!("{who}:"))).collect();
        assert_eq!(own, (0..40).map(|n| format!("{who}:{n}")).collect::<Vec<_>>());
    }
}

fn moves(daemon: &TestHome, task: TaskId) -> Vec<(String, bool)> {
    let path = |(_, frame)| match frame {
        Frame::CwdChanged { path, claimed } => Some((path.as_str().to_owned(), claimed)),
        _ => None,
    };
    frames(daemon, task).into_iter().filter_map(path).collect()
}

#[test]
fn changes_of_directory_are_recorded() {
    let daemon = TestHome::started(CSN);
    let task = pty(&daemon, "printf '\\033]7;file://localhost/srv/a%%20b\\033\\\\'; echo told; read x");
    let moved = daemon.frame(task, |f| matches!(f, Frame::CwdChanged { .. }));
    assert_eq!(moved, Frame::CwdChanged { path: countersign_model::Text::from_static("/srv/a b"), claimed: true });
    send(&daemon, task, json!({"text": "\n"}));
    daemon.settled(task);
    let task = pty(&daemon, "cd /usr; echo moved; read x");
    let moved = daemon.frame(task, |f| matches!(f, Frame::CwdChanged { .. }));
    assert_eq!(moved, Frame::CwdChanged { path: countersign_model::Text::from_static("/usr"), claimed: false });
    assert_eq!(daemon.client().task(&task.to_string()).unwrap().io.current_directory.unwrap().as_str(), "/usr");
}

/// Printed text cannot move its task, or hide where it goes.
#[test]
fn a_printed_directory_is_a_claim_and_the_real_one_is_followed() {
    let daemon = TestHome::started(CSN);
    let say = |url: &str| format!("printf '\\033]7;{url}\\033\\\\'");
    let text = format!(
        "{}; {}; echo lied; read x; cd /usr; {}; echo moved; read x; cd /; {}; echo honest; read x",
        say("file://elsewhere.example/etc"),
        say("file:///srv/lie"),
        say("file:///srv/lie"),
        say("file:///"),
    );
    let task = pty(&daemon, &text);
    let directory =
        || daemon.client().task(&task.to_string()).unwrap().io.current_directory.map(|d| d.as_str().to_owned());
    daemon.frame(task, |f| matches!(f, Frame::CwdChanged { claimed: true, .. }));
    assert_eq!(directory(), None, "a printed directory does not move the task");
    send(&daemon, task, json!({"text": "\n"}));
    daemon.frame(task, |f| matches!(f, Frame::CwdChanged { path, .. } if path.as_str() == "/usr"));
    assert_eq!(directory().as_deref(), Some("/usr"));
    send(&daemon, task, json!({"text": "\n"}));
    daemon.frame(task, |f| matches!(f, Frame::CwdChanged { path, .. } if path.as_str() == "/"));
    send(&daemon, task, json!({"text": "\n"}));
    daemon.settled(task);
    let expect = [("/srv/lie", true), ("/usr", false), ("/srv/lie", true), ("/", false)];
    let moves = moves(&daemon, task);
    assert_eq!(moves.iter().map(|(path, claimed)| (path.as_str(), *claimed)).collect::<Vec<_>>(), expect);
    assert_eq!(directory().as_deref(), Some("/"), "and the end is where it really was");
}

#[test]
fn a_terminal_needs_a_permission_of_its_own() {
    let daemon = TestHome::started(CSN);
    let task = daemon.client().ask(&daemon.request("ls", json!({"profile": "safe", "execution_mode": "pty"}))).unwrap();
    let risks = serde_json::to_value(&task.request.risks).unwrap();
    assert!(task.approval_id().is_some() && risks.as_array().unwrap().contains(&json!("interactive")), "{risks}");
    let approval = daemon.client().approval(&task.approval_id().unwrap().to_string()).unwrap();
    assert!(serde_json::to_string(&approval).unwrap().contains("interactive"));
}

/// A command of another daemon's task without its marker: it stands for a person at a terminal.
fn unmarked(text: &str) -> String {
    format!("exec env -u COUNTERSIGN_TASK bash -c '{}'", text.replace('\'', "'\\''"))
}

#[test]
fn csn_in_a_terminal_shows_escapes_and_passes_colours() {
    let daemon = TestHome::started(CSN);
    let task = daemon.ask("printf '\\033[31mred\\033[0m\\033[2J\\033]52;c;aGk=\\007\\ttab\\n'");
    daemon.settled(task);
    // csn must not run against the daemon whose task it is: another daemon provides the terminal.
    let stage = TestHome::started(CSN);
    let csn = format!("COUNTERSIGN_HOME={} {CSN}", daemon.home().display());
    let inside = |command: &str| {
        let task = open(&stage, &unmarked(&format!("{csn} {command}")));
        stage.settled(task);
        shown(&stage, task)
    };
    let safe = "\u{1b}[31mred\u{1b}[0m\\x1b[2J\\x1b]52;c;aGk=\\x07\ttab\r\n";
    assert!(inside(&format!("logs {task}")).starts_with(safe), "{}", inside(&format!("logs {task}")));
    let raw = inside(&format!("logs --raw {task}"));
    assert!(raw.contains("\u{1b}[2J\u{1b}]52;c;aGk=\u{7}"), "{raw}");
    let piped = daemon.csn(&["logs", &task.to_string()]);
    assert_eq!(piped.stdout, daemon.output(task, StreamName::Stdout), "always raw into a pipe");
    let run = inside("run -q --profile full_auto \"printf 'a\\033[2Jb\\n'\"");
    assert_eq!(run, "a\\x1b[2Jb\r\n");
}

#[test]
fn csn_attach_and_run_pty_are_terminals_within_terminals() {
    let daemon = TestHome::started(CSN);
    let stage = TestHome::started(CSN);
    let csn = format!("COUNTERSIGN_HOME={} {CSN}", daemon.home().display());
    let outer = open(
        &stage,
        &unmarked(&format!(
            "{csn} run --pty -q --profile full_auto 'stty size; read x; echo \"<$x>\"; exit 5'; echo code $?"
        )),
    );
    stage.wait_for_stdout(outer, "24 80");
    send(&stage, outer, json!({"text": "hello\r"}));
    stage.settled(outer);
    let all = shown(&stage, outer);
    assert!(all.contains("hello\r\n<hello>\r\n") && all.contains("code 5"), "{all}");

    let inner =
        pty(&daemon, "stty -echo; echo inner; while read x; do echo \"<$x>\"; test \"$x\" = end && exit 3; done");
    daemon.wait_for_stdout(inner, "inner");
    let outer =
        open(&stage, &unmarked(&format!("{csn} attach {inner}; echo left $?; stty -a | grep -o ' echo '; read x")));
    stage.wait_for_stdout(outer, "inner");
    send(&stage, outer, json!({"text": "one\r"}));
    stage.wait_for_stdout(outer, "<one>");
    stage.client().resize(outer, 33, 99).unwrap();
    daemon.frame(inner, |f| matches!(f, Frame::Resized { rows: 33, cols: 99, .. }));
    send(&stage, outer, json!({"keys": ["ctrl-\\", "ctrl-d"]}));
    stage.wait_for_stdout(outer, "left 0");
    stage.wait_for_stdout(outer, " echo ");
    send(&daemon, inner, json!({"text": "end\r"}));
    assert_eq!(daemon.outcome(inner), Outcome::Exited { code: 3 });
    let late = open(&stage, &unmarked(&format!("{csn} attach {inner}; echo left $?")));
    stage.settled(late);
    assert!(shown(&stage, late).contains("<end>") && shown(&stage, late).contains("left 3"), "{}", shown(&stage, late));
}

#[test]
fn a_read_only_viewer_types_nothing() {
    let daemon = TestHome::started(CSN);
    let csn = format!("COUNTERSIGN_HOME={} {CSN}", daemon.home().display());
    let inner = pty(&daemon, "printf '\\033[?1049hinner'; read x; echo \"<$x>\"");
    daemon.wait_for_stdout(inner, "inner");
    let mut outside =
        daemon.terminal(&format!("{csn} attach --read-only {inner}; echo left $?; read -t 0.2 y; echo \"[$y]\""));
    outside.sees("inner");
    outside.types(b"touch mischief\r");
    outside.types(&[0x1c, 0x04]);
    // The alternate screen is left, and the typed keys reach no program.
    outside.sees("\u{1b}[?1049l");
    outside.sees("left 0");
    outside.sees("[]");
    send(&daemon, inner, json!({"text": "end\r"}));
    daemon.settled(inner);
    assert!(shown(&daemon, inner).contains("<end>") && !shown(&daemon, inner).contains("mischief"));
}

#[test]
fn neither_the_program_nor_a_viewer_notices_a_killed_daemon() {
    let daemon = TestHome::started(CSN);
    let csn = format!("COUNTERSIGN_HOME={} {CSN}", daemon.home().display());
    let inner =
        pty(&daemon, "stty -echo; echo inner; while read x; do echo \"<$x>\"; test \"$x\" = end && exit 3; done");
    daemon.wait_for_stdout(inner, "inner");
    let mut outside = daemon.terminal(&format!("{csn} attach {inner}; echo left $?"));
    outside.sees("inner");
    outside.types(b"one\r");
    outside.sees("<one>");
    daemon.kill_daemon();
    outside.types(b"two\r");
    outside.sees("<two>");
    outside.types(b"end\r");
    outside.sees("left 3");
    assert_eq!(daemon.outcome(inner), Outcome::Exited { code: 3 });
    assert_eq!(shown(&daemon, inner), "inner\r\n<one>\r\n<two>\r\n<end>\r\n");
    let started = |r: &Record| matches!(r.what, RecordContent::Decision(Decision::Launched { .. }));
    assert_eq!(daemon.records(inner).iter().filter(|r| started(r)).count(), 1);
}
