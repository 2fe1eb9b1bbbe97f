//! Tasks with a terminal or an open standard input: what goes in, what is recorded, and in which order.

use crate::{CSN, stream::get};
use countersign_client::ClientError;
use countersign_model::{
    Code, Decision, Frame, InputKind, Outcome, Record, RecordContent, SignalName, StreamName, TaskId, TaskRefusal,
    api::StdinBody,
};
use countersign_testkit::{RawCalls as _, TestHome, body};
use serde_json::{Value, json};

pub(crate) fn ask(house: &TestHome, text: &str, with: Value) -> TaskId {
    house.ask_with(text, with).task_id
}

pub(crate) fn pty(house: &TestHome, text: &str) -> TaskId {
    ask(house, text, json!({"execution_mode": "pty"}))
}

/// A terminal for a command that goes where no workspace does.
pub(crate) fn open(house: &TestHome, text: &str) -> TaskId {
    house.ask_open(text, json!({"execution_mode": "pty"}))
}

pub(crate) fn shown(house: &TestHome, task: TaskId) -> String {
    String::from_utf8_lossy(&house.output(task, StreamName::Pty)).into_owned()
}

pub(crate) fn send(house: &TestHome, task: TaskId, typed: Value) -> u64 {
    house.client().stdin(task, &body(typed)).unwrap()
}

pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, ClientError>) -> countersign_model::Refusal {
    match result {
        Err(ClientError::Refused(TaskRefusal { refusal, .. })) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

fn frames(house: &TestHome, task: TaskId) -> Vec<(u64, Frame)> {
    let of = |r: Record| match r.what {
        RecordContent::Frame(frame) => Some((r.seq, frame)),
        _ => None,
    };
    house.records(task).into_iter().filter_map(of).collect()
}

#[test]
fn a_terminal_controls_its_session_and_tells_the_exact_exit() {
    let house = TestHome::up(CSN);
    let task = ask(
        &house,
        "tty; stty size; test -t 0 && test -t 1 && test -t 2 && echo all; cut -d' ' -f 5-8 /proc/$$/stat; echo $$; exit 7",
        json!({"execution_mode": "pty", "args": {"rows": 31, "cols": 97}}),
    );
    assert_eq!(house.outcome(task), Outcome::Exited { code: 7 });
    let shown = shown(&house, task);
    assert!(shown.starts_with("/dev/pts/") && shown.contains("\r\n31 97\r\nall\r\n"), "{shown}");
    let lines: Vec<&str> = shown.lines().collect();
    let ids: Vec<&str> = lines[lines.len() - 2].split(' ').collect();
    let pid = lines[lines.len() - 1];
    assert_eq!((ids[0], ids[1]), (pid, pid), "it leads its group and its session: {shown}");
    assert!(ids[2] != "0" && ids[3] != "-1", "which has the terminal: {shown}");
    let task = pty(&house, "kill -SEGV $$");
    assert!(matches!(house.outcome(task), Outcome::Signalled { signal: 11, .. }));
    let task = pty(&house, "echo $TERM");
    house.settled(task);
    assert_eq!(self::shown(&house, task), "xterm-256color\r\n");
}

#[test]
fn the_exit_is_told_at_once_although_somebody_holds_the_terminal() {
    let house = TestHome::up(CSN);
    // Were the exit told only when the terminal is closed by all, this would wait for the sleep, or for the drain.
    let long = json!({"execution_mode": "pty", "limits": {"drain_ms": 3_600_000}});
    let task = ask(&house, "trap '' HUP; (trap '' HUP; exec sleep 3599) & echo last; exit 4", long.clone());
    assert_eq!(house.outcome(task), Outcome::Exited { code: 4 });
    assert_eq!(shown(&house, task), "last\r\n");
    let task = ask(&house, "setsid sleep 3598 & exit 5", long);
    assert_eq!(house.outcome(task), Outcome::Exited { code: 5 });
}

#[test]
fn a_terminal_that_all_have_closed_may_be_opened_again() {
    let house = TestHome::up(CSN);
    let task = pty(&house, "exec <&- >&- 2>&-; sleep 0.1; echo back >/dev/tty; sleep 0.1; exit 3");
    assert_eq!(house.outcome(task), Outcome::Exited { code: 3 });
    assert_eq!(shown(&house, task), "back\r\n");
}

#[test]
fn the_last_byte_of_a_terminal_is_kept() {
    let house = TestHome::up(CSN);
    let task = pty(&house, "seq 1 200000; printf end");
    house.settled(task);
    let expect: String = (1..=200_000).map(|n| format!("{n}\r\n")).collect();
    assert!(shown(&house, task) == expect + "end");
}

#[test]
fn the_last_word_of_a_cancelled_flood_is_kept() {
    let house = TestHome::up(CSN);
    for _ in 0..6 {
        let text = "trap 'echo FINAL; exit 3' TERM; seq 1 300000; echo ready; while :; do sleep 0.01; done";
        let task = pty(&house, text);
        house.says(task, "ready");
        house.client().cancel(task, None).unwrap();
        house.settled(task);
        assert!(shown(&house, task).contains("\r\nFINAL\r\n"), "all that it wrote is there");
    }
}

#[test]
fn many_hidden_lines_at_once_are_no_passwords() {
    let house = TestHome::up(CSN);
    let task = pty(&house, "stty -echo; echo ready; head -n 7001 | tail -n 1; read -r x; echo $x");
    house.says(task, "ready");
    send(&house, task, json!({"text": "not-a-pw\n".repeat(7000)}));
    send(&house, task, json!({"text": "but-this-one\n"}));
    send(&house, task, json!({"text": "not-a-pw\n"}));
    house.settled(task);
    let all = shown(&house, task);
    assert!(all.contains("[redacted:known-value:") && !all.contains("but-this-one"), "{all}");
}

#[test]
fn a_screen_that_is_too_large_is_refused_at_once() {
    let house = TestHome::up(CSN);
    let draw = r#"awk 'BEGIN { for (r = 1; r <= 1000; r++) { printf "\033[%d;1H", r; for (c = 0; c < 1000; c++)
        printf "\033[38;2;%d;%d;%dmx", r % 256, c % 256, (r * c) % 256 } printf "\033[1;1Hdrawn\n" }'; read x"#;
    let task = ask(&house, draw, json!({"execution_mode": "pty", "args": {"rows": 1000, "cols": 1000}}));
    house.says(task, "drawn");
    let refused = get(&house, &format!("/tasks/{task}/screen")).unwrap_err();
    assert_eq!(refused.code, Code::TooLarge);
    house.client().resize(task, 24, 80).unwrap();
    assert!(get(&house, &format!("/tasks/{task}/screen")).is_ok());
}

#[test]
fn f159_what_is_typed_stands_at_its_place_and_is_not_recorded() {
    let house = TestHome::up(CSN);
    let task = pty(&house, "echo ready; read a; echo got $a; read b; echo and $b");
    house.says(task, "ready");
    let first = send(&house, task, json!({"text": "one\n"}));
    house.says(task, "got one");
    let second = send(&house, task, json!({"keys": ["t", "w", "o", "enter"]}));
    house.settled(task);
    let frames = frames(&house, task);
    let at = |wanted: u64| frames.iter().find(|(seq, _)| *seq == wanted).map(|(_, f)| f.clone()).unwrap();
    let by = || countersign_model::Text::of("owner");
    assert_eq!(at(first), Frame::StdinWritten { bytes: 4, input: InputKind::Text, by: by() });
    assert_eq!(at(second), Frame::StdinWritten { bytes: 4, input: InputKind::Keys, by: by() });
    let all = shown(&house, task);
    assert_eq!(all, "ready\r\none\r\ngot one\r\ntwo\r\nand two\r\n");
    // What was there before the input is recorded before it, its echo after it.
    let before: u64 = frames
        .iter()
        .filter(|(seq, _)| *seq < first)
        .filter_map(|(_, f)| if let Frame::Output { len, .. } = f { Some(*len) } else { None })
        .sum();
    assert_eq!(&all[..before as usize], "ready\r\n");
    assert_eq!(house.settled(task).io.stdin_bytes, 8);
}

/// Everything below the home, as one piece.
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
fn f159_a_hidden_line_is_nowhere_below_the_home_even_when_it_is_printed_later() {
    let house = TestHome::up(CSN);
    let secret = format!("pw-{}-correct-horse", std::process::id());
    let task = pty(&house, "read -s -p 'Password: ' p; echo; echo len ${#p}; echo said $p; read again; echo $again");
    let hidden = house.frame(task, |f| matches!(f, Frame::Echo { .. }));
    assert_eq!(hidden, Frame::Echo { on: false });
    while house.client().task(&task.to_string()).unwrap().io.terminal.is_none_or(|t| t.echo) {}
    // Key by key, as a person types.
    for c in secret.chars() {
        send(&house, task, json!({"text": c.to_string()}));
    }
    send(&house, task, json!({"keys": ["enter"]}));
    house.says(task, &format!("len {}", secret.len()));
    send(&house, task, json!({"text": format!("{secret}\n")}));
    house.settled(task);
    let all = shown(&house, task);
    assert!(all.contains("said [redacted:known-value:"), "{all}");
    let mut bytes = Vec::new();
    all_bytes(house.home(), &mut bytes);
    assert!(bytes.len() > 10_000 && !bytes.windows(secret.len()).any(|w| w == secret.as_bytes()));
}

#[test]
fn ctrl_c_is_a_signal_in_cooked_and_a_byte_in_raw_mode() {
    let house = TestHome::up(CSN);
    let task = pty(&house, "echo ready; sleep 3600");
    house.says(task, "ready");
    send(&house, task, json!({"keys": ["ctrl-c"]}));
    assert!(matches!(house.outcome(task), Outcome::Signalled { signal: 2, .. }));
    let task = pty(&house, "stty raw -echo; echo ready; head -c 1 | od -An -tx1; stty sane");
    house.says(task, "ready");
    send(&house, task, json!({"keys": ["ctrl-c"]}));
    assert_eq!(house.outcome(task), Outcome::Exited { code: 0 });
    assert!(shown(&house, task).contains(" 03"));
}

#[test]
fn a_signal_goes_to_whoever_has_the_terminal() {
    let house = TestHome::up(CSN);
    let task = pty(&house, "PS1='ready: ' exec bash --norc -i");
    house.says(task, "ready: ");
    send(&house, task, json!({"text": "(echo star''ted; exec sleep 3600)\n"}));
    house.says(task, "started");
    house.client().signal(task, SignalName::INT).unwrap();
    send(&house, task, json!({"text": "echo $?; exit 9\n"}));
    assert_eq!(house.outcome(task), Outcome::Exited { code: 9 }, "the shell itself was not hit");
}

#[test]
fn a_new_size_reaches_the_program_and_the_record() {
    let house = TestHome::up(CSN);
    let task = pty(&house, "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.01; done");
    house.says(task, "ready");
    let seq = house.client().resize(task, 40, 132).unwrap();
    assert_eq!(house.outcome(task), Outcome::Exited { code: 0 });
    assert!(shown(&house, task).contains("40 132"));
    let by = Some(countersign_model::Text::of("owner"));
    assert!(frames(&house, task).contains(&(seq, Frame::Resized { rows: 40, cols: 132, by })));
    let state = house.settled(task);
    assert_eq!(state.io.terminal.map(|t| (t.rows, t.cols)), Some((40, 132)));
}

#[test]
fn keys_and_pastes_follow_what_the_program_asked_for() {
    let house = TestHome::up(CSN);
    let modes = "stty raw -echo; printf '\\033[?1h\\033[?2004hready'; head -c 26 | od -An -c -w26; stty sane";
    let task = pty(&house, modes);
    house.says(task, "ready");
    send(&house, task, json!({"keys": ["up"]}));
    // Whatever is pasted, it does not get out of its brackets.
    send(&house, task, json!({"paste": "\u{1b}[20\u{1b}[201~1~x"}));
    house.settled(task);
    let all = shown(&house, task).split_whitespace().collect::<String>();
    assert!(all.contains(r"033OA033[200~[20[201~1~x033[201~"), "{all}");
}

#[test]
fn pipes_take_input_when_asked_to_and_its_end() {
    let house = TestHome::up(CSN);
    let with_stdin = json!({"args": {"stdin": true}});
    let task = ask(&house, "wc -c", with_stdin.clone());
    let text = "x".repeat(60_000);
    for _ in 0..20 {
        send(&house, task, json!({"text": text}));
    }
    send(&house, task, json!({"chunk_b64": "/wA="}));
    send(&house, task, json!({"eof": true}));
    house.settled(task);
    assert_eq!(house.stdout(task).trim(), "1200002");
    let task = ask(&house, "cat", with_stdin.clone());
    send(&house, task, json!({"text": "all at once", "eof": true}));
    house.settled(task);
    assert_eq!(house.stdout(task), "all at once");

    let task = house.ask("cat; echo over; sleep 3600");
    house.says(task, "over");
    let refused = refusal(house.client().stdin(task, &body(json!({"text": "x"}))));
    assert_eq!(refused.code, Code::WrongMode);
    let reads = ask(&house, "read x; echo \"<$x>\"", with_stdin);
    assert_eq!(refusal(house.client().stdin(reads, &body(json!({"keys": ["enter"]})))).code, Code::WrongMode);
    assert!(house.csn(&["send", &reads.to_string(), "a line", "--enter"]).status.success());
    house.settled(reads);
    assert_eq!(house.stdout(reads), "<a line>\n");
    let refused = refusal(house.client().resize(task, 10, 10));
    assert_eq!((refused.code, refused.code.http_status()), (Code::WrongMode, 409));
    house.client().cancel(task, None).unwrap();
    house.settled(task);
    assert_eq!(refusal(house.client().stdin(task, &body(json!({"text": "x"})))).code, Code::TaskOver);
}

#[test]
fn a_program_that_does_not_read_is_told_of_and_input_that_it_never_took() {
    let house = TestHome::up(CSN);
    let task = ask(&house, "echo ready; sleep 3600", json!({"args": {"stdin": true}}));
    house.says(task, "ready");
    let text = "y".repeat(64 * 1024);
    let (client, body) = (house.client(), StdinBody::text(text));
    std::thread::scope(|scope| {
        // Most of these wait for a program that never reads: they are answered when it is over. What is too much is
        // refused at once.
        let (told, full) = std::sync::mpsc::channel();
        let waiting: Vec<_> = (0..20)
            .map(|_| {
                let (client, body, told) = (&client, &body, told.clone());
                scope.spawn(move || {
                    let answer = client.stdin(task, body);
                    if matches!(&answer, Err(ClientError::Refused(TaskRefusal { refusal, .. })) if refusal.code == Code::InputFull) {
                        told.send(()).unwrap();
                    }
                    answer
                })
            })
            .collect();
        full.recv().unwrap();
        client.cancel(task, None).unwrap();
        let answers: Vec<_> = waiting.into_iter().map(|w| w.join().unwrap()).collect();
        assert!(answers.iter().any(Result::is_ok), "what the pipe took was applied");
        let refused: Vec<String> = answers.iter().filter_map(|a| a.as_ref().err()).map(|e| e.to_string()).collect();
        assert!(refused.iter().any(|why| why.contains("closed its input after")), "{refused:?}");
        assert!(refused.iter().any(|why| why.contains("does not read")), "{refused:?}");
    });
}

#[test]
fn input_that_is_no_input_is_refused_with_a_reason() {
    let house = TestHome::up(CSN);
    let task = pty(&house, "cat");
    for (body, code, word) in [
        (json!({}), Code::BadRequest, "nothing to write"),
        (json!({"text": ""}), Code::BadRequest, "nothing to write"),
        (json!({"keys": []}), Code::BadRequest, "nothing to write"),
        (json!({"keys": ["entr"]}), Code::BadRequest, "unknown key `entr`"),
        (json!({"text": "x", "keys": ["a"]}), Code::BadRequest, "do not go together"),
        (json!({"chunk_b64": "!"}), Code::BadRequest, "chunk_b64"),
        (json!({"text": "x", "other": 1}), Code::BadRequest, "other"),
        (json!({"text": "x".repeat(64 * 1024 + 1)}), Code::TooLarge, "more than a call takes"),
    ] {
        let refused = refusal(house.client().post(&format!("/tasks/{task}/stdin"), &body));
        assert_eq!(refused.code, code, "{body}");
        assert!(refused.message.contains(word), "{}", refused.message);
    }
    for (rows, cols) in [(0, 80), (24, 1001)] {
        assert_eq!(refusal(house.client().resize(task, rows, cols)).code, Code::BadRequest);
    }
}

#[test]
fn three_clients_at_once_are_put_in_one_order_and_applied_once() {
    let house = TestHome::up(CSN);
    let task = ask(&house, "cat > taken", json!({"args": {"stdin": true}}));
    let post = |path: &str, key: &str, body: &Value| {
        let reply =
            house.client().call("POST", &format!("/tasks/{task}/{path}"), &[("idempotency-key", key)], Some(body));
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
    assert_eq!((other.code, other.code.http_status()), (Code::IdempotencyConflict, 422));
    send(&house, task, json!({"eof": true}));
    house.settled(task);
    let mut all: Vec<u64> = seqs.concat();
    assert!(seqs.iter().all(|s| s.is_sorted()), "each client sees its own operations in order");
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 3 * 44, "every operation has a number of its own");
    let frames = frames(&house, task);
    let written = frames.iter().filter(|(_, f)| matches!(f, Frame::StdinWritten { bytes: 1.., .. })).count();
    assert_eq!(written, 120);
    let taken = std::fs::read_to_string(house.work().join("taken")).unwrap();
    assert_eq!(taken.lines().count(), 120);
    for who in 0..3 {
        let own: Vec<&str> = taken.lines().filter(|l| l.starts_with(&format!("{who}:"))).collect();
        assert_eq!(own, (0..40).map(|n| format!("{who}:{n}")).collect::<Vec<_>>());
    }
}

fn moves(house: &TestHome, task: TaskId) -> Vec<(String, bool)> {
    let path = |(_, frame)| match frame {
        Frame::CwdChanged { path, claimed } => Some((path.as_str().to_owned(), claimed)),
        _ => None,
    };
    frames(house, task).into_iter().filter_map(path).collect()
}

#[test]
fn directories_are_announced() {
    let house = TestHome::up(CSN);
    let task = pty(&house, "printf '\\033]7;file://localhost/srv/a%%20b\\033\\\\'; echo told; read x");
    let moved = house.frame(task, |f| matches!(f, Frame::CwdChanged { .. }));
    assert_eq!(moved, Frame::CwdChanged { path: countersign_model::Text::of("/srv/a b"), claimed: true });
    send(&house, task, json!({"text": "\n"}));
    house.settled(task);
    let task = pty(&house, "cd /usr; echo moved; read x");
    let moved = house.frame(task, |f| matches!(f, Frame::CwdChanged { .. }));
    assert_eq!(moved, Frame::CwdChanged { path: countersign_model::Text::of("/usr"), claimed: false });
    assert_eq!(house.client().task(&task.to_string()).unwrap().io.current_directory.unwrap().as_str(), "/usr");
}

/// What a program prints cannot move its task, nor hide where it goes.
#[test]
fn a_printed_directory_is_a_claim_and_the_real_one_is_still_followed() {
    let house = TestHome::up(CSN);
    let say = |url: &str| format!("printf '\\033]7;{url}\\033\\\\'");
    let text = format!(
        "{}; {}; echo lied; read x; cd /usr; {}; echo moved; read x; cd /; {}; echo honest; read x",
        say("file://elsewhere.example/etc"),
        say("file:///srv/lie"),
        say("file:///srv/lie"),
        say("file:///"),
    );
    let task = pty(&house, &text);
    let directory =
        || house.client().task(&task.to_string()).unwrap().io.current_directory.map(|d| d.as_str().to_owned());
    house.frame(task, |f| matches!(f, Frame::CwdChanged { claimed: true, .. }));
    assert_eq!(directory(), None, "a claim moves nobody");
    send(&house, task, json!({"text": "\n"}));
    house.frame(task, |f| matches!(f, Frame::CwdChanged { path, .. } if path.as_str() == "/usr"));
    assert_eq!(directory().as_deref(), Some("/usr"));
    send(&house, task, json!({"text": "\n"}));
    house.frame(task, |f| matches!(f, Frame::CwdChanged { path, .. } if path.as_str() == "/"));
    send(&house, task, json!({"text": "\n"}));
    house.settled(task);
    let expect = [("/srv/lie", true), ("/usr", false), ("/srv/lie", true), ("/", false)];
    let moves = moves(&house, task);
    assert_eq!(moves.iter().map(|(path, claimed)| (path.as_str(), *claimed)).collect::<Vec<_>>(), expect);
    assert_eq!(directory().as_deref(), Some("/"), "and the end is where it really was");
}

#[test]
fn a_terminal_needs_a_permission_of_its_own() {
    let house = TestHome::up(CSN);
    let task = house.client().ask(&house.request("ls", json!({"profile": "safe", "execution_mode": "pty"}))).unwrap();
    let risks = serde_json::to_value(&task.request.risks).unwrap();
    assert!(task.approval_id().is_some() && risks.as_array().unwrap().contains(&json!("interactive")), "{risks}");
    let approval = house.client().approval(&task.approval_id().unwrap().to_string()).unwrap();
    assert!(serde_json::to_string(&approval).unwrap().contains("interactive"));
}

/// A command of another house's task that does not look like one: it stands for a person at a terminal.
fn unmarked(text: &str) -> String {
    format!("exec env -u COUNTERSIGN_TASK bash -c '{}'", text.replace('\'', "'\\''"))
}

#[test]
fn csn_in_a_terminal_shows_escapes_and_passes_colours() {
    let house = TestHome::up(CSN);
    let task = house.ask("printf '\\033[31mred\\033[0m\\033[2J\\033]52;c;aGk=\\007\\ttab\\n'");
    house.settled(task);
    // Nobody runs csn against the house that it is a task of: another house is the terminal.
    let stage = TestHome::up(CSN);
    let csn = format!("COUNTERSIGN_HOME={} {CSN}", house.home().display());
    let inside = |command: &str| {
        let task = open(&stage, &unmarked(&format!("{csn} {command}")));
        stage.settled(task);
        shown(&stage, task)
    };
    let safe = "\u{1b}[31mred\u{1b}[0m\\x1b[2J\\x1b]52;c;aGk=\\x07\ttab\r\n";
    assert!(inside(&format!("logs {task}")).starts_with(safe), "{}", inside(&format!("logs {task}")));
    let raw = inside(&format!("logs --raw {task}"));
    assert!(raw.contains("\u{1b}[2J\u{1b}]52;c;aGk=\u{7}"), "{raw}");
    let piped = house.csn(&["logs", &task.to_string()]);
    assert_eq!(piped.stdout, house.output(task, StreamName::Stdout), "always raw into a pipe");
    let run = inside("run -q --profile full_auto \"printf 'a\\033[2Jb\\n'\"");
    assert_eq!(run, "a\\x1b[2Jb\r\n");
}

#[test]
fn csn_attach_and_run_pty_are_terminals_within_terminals() {
    let house = TestHome::up(CSN);
    let stage = TestHome::up(CSN);
    let csn = format!("COUNTERSIGN_HOME={} {CSN}", house.home().display());
    let outer = open(
        &stage,
        &unmarked(&format!(
            "{csn} run --pty -q --profile full_auto 'stty size; read x; echo \"<$x>\"; exit 5'; echo code $?"
        )),
    );
    stage.says(outer, "24 80");
    send(&stage, outer, json!({"text": "hello\r"}));
    stage.settled(outer);
    let all = shown(&stage, outer);
    assert!(all.contains("hello\r\n<hello>\r\n") && all.contains("code 5"), "{all}");

    let inner =
        pty(&house, "stty -echo; echo inner; while read x; do echo \"<$x>\"; test \"$x\" = end && exit 3; done");
    house.says(inner, "inner");
    let outer =
        open(&stage, &unmarked(&format!("{csn} attach {inner}; echo left $?; stty -a | grep -o ' echo '; read x")));
    stage.says(outer, "inner");
    send(&stage, outer, json!({"text": "one\r"}));
    stage.says(outer, "<one>");
    stage.client().resize(outer, 33, 99).unwrap();
    house.frame(inner, |f| matches!(f, Frame::Resized { rows: 33, cols: 99, .. }));
    send(&stage, outer, json!({"keys": ["ctrl-\\", "ctrl-d"]}));
    stage.says(outer, "left 0");
    stage.says(outer, " echo ");
    send(&house, inner, json!({"text": "end\r"}));
    assert_eq!(house.outcome(inner), Outcome::Exited { code: 3 });
    let late = open(&stage, &unmarked(&format!("{csn} attach {inner}; echo left $?")));
    stage.settled(late);
    assert!(shown(&stage, late).contains("<end>") && shown(&stage, late).contains("left 3"), "{}", shown(&stage, late));
}

#[test]
fn who_only_looks_on_types_nothing_anywhere() {
    let house = TestHome::up(CSN);
    let csn = format!("COUNTERSIGN_HOME={} {CSN}", house.home().display());
    let inner = pty(&house, "printf '\\033[?1049hinner'; read x; echo \"<$x>\"");
    house.says(inner, "inner");
    let mut outside =
        house.terminal(&format!("{csn} attach --read-only {inner}; echo left $?; read -t 0.2 y; echo \"[$y]\""));
    outside.sees("inner");
    outside.types(b"touch mischief\r");
    outside.types(&[0x1c, 0x04]);
    // The alternate screen is left, and what was typed is nobody's.
    outside.sees("\u{1b}[?1049l");
    outside.sees("left 0");
    outside.sees("[]");
    send(&house, inner, json!({"text": "end\r"}));
    house.settled(inner);
    assert!(shown(&house, inner).contains("<end>") && !shown(&house, inner).contains("mischief"));
}

#[test]
fn a_killed_daemon_is_not_noticed_by_the_program_nor_by_who_looks_on() {
    let house = TestHome::up(CSN);
    let csn = format!("COUNTERSIGN_HOME={} {CSN}", house.home().display());
    let inner =
        pty(&house, "stty -echo; echo inner; while read x; do echo \"<$x>\"; test \"$x\" = end && exit 3; done");
    house.says(inner, "inner");
    let mut outside = house.terminal(&format!("{csn} attach {inner}; echo left $?"));
    outside.sees("inner");
    outside.types(b"one\r");
    outside.sees("<one>");
    house.kill_daemon();
    outside.types(b"two\r");
    outside.sees("<two>");
    outside.types(b"end\r");
    outside.sees("left 3");
    assert_eq!(house.outcome(inner), Outcome::Exited { code: 3 });
    assert_eq!(shown(&house, inner), "inner\r\n<one>\r\n<two>\r\n<end>\r\n");
    let started = |r: &Record| matches!(r.what, RecordContent::Decision(Decision::Launched { .. }));
    assert_eq!(house.records(inner).iter().filter(|r| started(r)).count(), 1);
}
