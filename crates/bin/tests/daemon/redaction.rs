//! Secrets end to end: what a task prints, echoes, wraps or encodes is in no file and no answer; files are read and
//! edited without showing the secrets in them.

use crate::CSN;
use countersign_model::{Frame, Mode, Outcome, RecordContent, RefusalCode, StreamName, TaskId};
use countersign_redact::{built_in_rules, examples::expand, placeholder};
use countersign_testkit::TestHome;
use serde_json::json;
use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
};

/// One example of every rule: the text, and the secrets in it.
fn planted_secrets() -> Vec<(&'static str, String, Vec<String>)> {
    let seed = u64::from(std::process::id());
    let mut planted_secrets: Vec<(&'static str, String, Vec<String>)> = Vec::new();
    for (n, rule) in built_in_rules().iter().enumerate() {
        // One that the engine finds without context: its own tests cover the rest. Here it must find them wherever
        // they come from.
        let mut all = (0..).map(|more| expand(rule.matches[0], seed + n as u64 + 1000 * more).unwrap());
        let found = |e: &countersign_redact::examples::Example| {
            let said = countersign_redact::text_by_shape(&format!("said: {}\n", e.text));
            !e.secrets.iter().filter(|s| s.len() >= 12).any(|s| said.as_str().contains(s.as_str()))
        };
        let example = all.find(found).unwrap();
        let secrets = example.secrets.into_iter().filter(|s| s.len() >= 12).collect();
        planted_secrets.push((rule.id, example.text, secrets));
    }
    planted_secrets
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type().unwrap() {
            t if t.is_dir() => all.extend(files_below(&entry.path())),
            t if t.is_file() => all.push(entry.path()),
            _ => {}
        }
    }
    all
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::new();
    for three in bytes.chunks_exact(3) {
        let n = u32::from(three[0]) << 16 | u32::from(three[1]) << 8 | u32::from(three[2]);
        out.extend((0..4).rev().map(|i| alphabet[(n >> (6 * i) & 63) as usize]));
    }
    out
}

fn url(text: &str) -> String {
    text.bytes()
        .map(|b| {
            let unreserved = b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
            if unreserved { char::from(b).to_string() } else { format!("%{b:02X}") }
        })
        .collect()
}

/// Every form of a secret that must not occur.
fn forms(secret: &str) -> Vec<Vec<u8>> {
    vec![
        secret.as_bytes().to_vec(),
        base64(secret.as_bytes()),
        url(secret).into_bytes(),
        serde_json::to_string(secret).unwrap().trim_matches('"').as_bytes().to_vec(),
    ]
}

/// What must not occur anywhere.
struct SecretSearch(Vec<(&'static str, memchr::memmem::Finder<'static>)>);

impl SecretSearch {
    fn new(planted_secrets: &[(&'static str, String, Vec<String>)]) -> Self {
        let forms = planted_secrets
            .iter()
            .flat_map(|(rule, _, secrets)| secrets.iter().flat_map(|s| forms(s)).map(|f| (*rule, f)));
        Self(forms.map(|(rule, form)| (rule, memchr::memmem::Finder::new(&form).into_owned())).collect())
    }

    /// Fails if a form of a secret occurs in `place`.
    fn clean(&self, place: &str, bytes: &[u8]) {
        for (rule, finder) in &self.0 {
            assert!(finder.find(bytes).is_none(), "a secret of {rule} is in {place}");
        }
    }
}

/// The daemon's answer to this request, head and body.
fn get(daemon: &TestHome, path: &str) -> Vec<u8> {
    let mut socket = UnixStream::connect(daemon.home().join("run/csn.sock")).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nHost: csn\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    assert!(
        answer.starts_with(b"HTTP/1.1 200"),
        "{path}: {}",
        String::from_utf8_lossy(&answer[..answer.len().min(300)])
    );
    answer
}

/// Everything that the API and the command line tell of a task.
fn answers(daemon: &TestHome, task: TaskId) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    let id = task.to_string();
    for args in [
        vec!["show", &id, "--json"],
        vec!["show", &id],
        vec!["logs", &id],
        vec!["show", &id, "--view", "native"],
        vec!["show", &id, "--view", "terminal"],
        vec!["show", &id, "--view", "tool_task"],
        vec!["replay", &id, "--cast", "v3", "-"],
        vec!["replay", &id, "--text"],
        vec!["search", &id, "a"],
        vec!["ps", "-a", "--json"],
    ] {
        let out = daemon.csn(&args);
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        all.push((args.join(" "), [out.stdout, out.stderr].concat()));
    }
    let stream = if daemon.settled(task).request.mode == Mode::Pty { "pty" } else { "stderr" };
    for path in [
        "",
        "/events",
        "/events?view=terminal",
        "/events?view=tool_task",
        &format!("/output?stream={stream}&offset_bytes=0&max_bytes=4194304"),
        "/cast?version=v2",
    ] {
        let path = format!("/tasks/{task}{path}");
        all.push((path.clone(), get(daemon, &path)));
    }
    for path in ["/tasks", "/approvals?all=true", "/grants", "/sessions?all=true", "/tokens", "/lifecycle"] {
        all.push((path.to_owned(), get(daemon, path)));
    }
    all
}

#[test]
fn f155_secrets_that_tasks_print_echo_wrap_or_encode_are_stored_nowhere() {
    let daemon = TestHome::started(CSN);
    let planted_secrets = planted_secrets();
    let hunt = SecretSearch::new(&planted_secrets);
    let work = daemon.work();
    let raw: String = planted_secrets.iter().map(|(_, text, _)| format!("{text}\n")).collect();
    let control = std::env::temp_dir().join(format!("csn-plants-{}", std::process::id()));
    std::fs::write(&control, &raw).unwrap();
    let control_path = control.to_str().unwrap().to_owned();
    let printing =
        format!("cat {control_path}; while read -r line; do printf '%s\\n' \"said: $line\"; done < {control_path} >&2");
    // Short pieces with pauses, so that reads and flushes fall inside a secret.
    let slowly = format!(
        "python3 -uc 'import sys\nfor n, c in enumerate(open(\"{control_path}\").read()[:6000]):\n sys.stdout.write(c)\n if n % 7 == 0: sys.stdout.flush()'"
    );
    let coloured =
        format!("grep --color=always -e ghp -e xox -e sk {control_path}; sed 's/./&\\x1b[0m/g' {control_path}");
    let mut tasks = Vec::new();
    for text in [&printing, &slowly, &coloured] {
        for mode in [Mode::Pipes, Mode::Pty] {
            let with = json!({"execution_mode": mode, "profile": "safe", "workspace": work, "confinement": "shield"});
            tasks.push(daemon.ask_open(text, with));
        }
    }
    // In the command, a title and the environment: then the values are known, and their encodings are redacted, too.
    for (_, text, secrets) in planted_secrets.iter().filter(|(_, t, s)| !t.contains('\'') && s.len() == 1).step_by(12) {
        let secret = &secrets[0];
        let encode = "printf %s \"$PLANT_TOKEN\" | base64 -w 20; python3 -c 'import os,json,urllib.parse; t=os.environ[\"PLANT_TOKEN\"]; print(json.dumps(t), urllib.parse.quote(t), t.encode().hex())'";
        let with = json!({"args": {"env": {"PLANT_TOKEN": secret}}, "title": format!("with {text}"), "rationale": text, "confinement": "shield"});
        tasks.push(daemon.ask_open(&format!("echo '{text}'; {encode}"), with));
    }
    for task in &tasks {
        daemon.settled(*task);
    }
    std::fs::remove_file(&control).unwrap();
    // A refusal quotes the request.
    let (refusal, _) = daemon.refused("true", json!({"args": {"cwd": format!("/no/such/{}", planted_secrets[0].1)}}));
    hunt.clean("a refusal", refusal.message.as_bytes());
    let mut read = 0;
    for file in files_below(daemon.home()).into_iter().chain(files_below(&work)) {
        let bytes = std::fs::read(&file).unwrap();
        read += bytes.len();
        hunt.clean(&file.display().to_string(), &bytes);
    }
    assert!(read > 100_000, "the files were read: {read}");
    assert!(work.join(".runs").exists(), "the streams were published");
    for task in tasks.iter().take(7) {
        for (what, bytes) in answers(&daemon, *task) {
            hunt.clean(&what, &bytes);
        }
    }
    // The secrets were there to be found: every rule is named in the record.
    let kept: String =
        [tasks[0], tasks[1]].iter().map(|t| String::from_utf8_lossy(&all_output(&daemon, *t)).into_owned()).collect();
    let missing: Vec<&str> =
        built_in_rules().iter().map(|r| r.id).filter(|id| !kept.contains(&format!("[redacted:{id}:"))).collect();
    assert!(missing.len() <= 4, "some go under another name, but not these: {missing:?}");
    let frames = daemon.records(tasks[0]);
    let counted: u64 = frames
        .iter()
        .map(|r| if let RecordContent::Frame(Frame::Redacted { count, .. }) = &r.what { *count } else { 0 })
        .sum();
    assert!(counted >= planted_secrets.len() as u64, "{counted}");
}

fn stdout(daemon: &TestHome, task: TaskId) -> String {
    daemon.settled(task);
    daemon.stdout(task)
}

fn all_output(daemon: &TestHome, task: TaskId) -> Vec<u8> {
    let state = daemon.settled(task);
    state.io.streams.keys().flat_map(|stream| daemon.output(task, *stream)).collect()
}

#[test]
fn a_known_value_that_comes_byte_by_byte_is_held_back_from_its_fourth_byte() {
    let daemon = TestHome::started(CSN);
    let secret = expand("{alnum:18}", u64::from(std::process::id())).unwrap().text;
    let with = json!({"args": {"env": {"DB_PASSWORD": secret}}, "confinement": "shield"});
    let split = "python3 -uc 'import os,sys,time\nfor c in os.environ[\"DB_PASSWORD\"]:\n sys.stdout.write(c); sys.stdout.flush(); time.sleep(0.03)'";
    let task = daemon.ask_open(split, with);
    let out = stdout(&daemon, task);
    let shown = out.split("[redacted:").next().unwrap();
    assert!(shown.len() <= 3 && out.contains("[redacted:known-value:"), "{out}");
}

#[test]
fn f167_a_file_with_secrets_is_read_edited_and_written_without_showing_or_losing_them() {
    let daemon = TestHome::started(CSN);
    let work = daemon.work();
    let token = format!("ghp_{}", expand("{alnum:36}", 5).unwrap().text);
    let password = expand("{alnum:16}", 6).unwrap().text;
    let before = format!("# settings\ntoken = \"{token}\"\r\nport = 1\nDB_PASSWORD={password}\nname = \"é\"\n");
    std::fs::write(work.join("app.conf"), &before).unwrap();
    let file = |tool: &str, args: serde_json::Value| {
        let mut args = args;
        args["path"] = "app.conf".into();
        args["command"] = serde_json::Value::Null;
        daemon.request("", json!({"tool": tool, "profile": "safe", "args": args}))
    };
    let client = daemon.client();
    let read = || {
        let task = client.ask(&file("read_file", json!({}))).unwrap();
        assert_eq!(daemon.settled(task.task_id).outcome(), Some(&Outcome::Exited { code: 0 }));
        (task.task_id, daemon.stdout(task.task_id))
    };
    let (task, shown) = read();
    assert!(!shown.contains(&token[4..]) && !shown.contains(&password), "{shown}");
    assert_eq!(shown, read().1, "a file looks the same every time");
    let records = daemon.records(task);
    assert!(records.iter().any(|r| matches!(&r.what, RecordContent::Frame(Frame::Redacted { .. }))));
    assert!(!records.iter().any(|r| matches!(&r.what, RecordContent::Frame(Frame::Spawned { .. }))), "no child");
    // A person approves the edits.
    for tool in ["edit_file", "write_file"] {
        let out = daemon.csn(&["grants", "add", "--verb", tool, "--tool", tool, "--in", work.to_str().unwrap()]);
        assert!(out.status.success());
    }
    // A file that git runs is more than a file.
    std::fs::create_dir_all(work.join(".git/hooks")).unwrap();
    for path in [".git/hooks/pre-commit", ".git/config"] {
        let args = json!({"path": path, "content": "x", "command": null});
        let (refusal, _) =
            daemon.refused("", json!({"tool": "write_file", "profile": "safe", "attended": false, "args": args}));
        assert_eq!(refusal.code, RefusalCode::ApprovalRequiredUnattended, "{path}");
    }
    let stands_for = placeholder(&shown).unwrap().to_owned();
    let edit = |old: &str, new: &str| {
        let asked = client.ask(&file("edit_file", json!({"old": old, "new": new})));
        asked.map(|task| daemon.settled(task.task_id))
    };
    // The text beside a secret changes; the secret moves and stays the same.
    let done = edit(
        &format!("token = \"ghp_{stands_for}\"\r\nport = 1"),
        &format!("port = 2\ntoken = \"ghp_{stands_for}\" # moved"),
    )
    .unwrap();
    assert_eq!(done.outcome(), Some(&Outcome::Exited { code: 0 }));
    let after =
        before.replace(&format!("token = \"{token}\"\r\nport = 1"), &format!("port = 2\ntoken = \"{token}\" # moved"));
    assert_eq!(std::fs::read_to_string(work.join("app.conf")).unwrap(), after);
    // No other file may hold a placeholder.
    for request in [
        file("edit_file", json!({"old": "port = 2", "new": format!("port = {stands_for}")})),
        file("write_file", json!({"content": shown})),
        daemon.request(&format!("echo {stands_for}"), json!({})),
    ] {
        match client.ask(&request).unwrap_err() {
            countersign_client::ClientError::Refused(countersign_model::TaskRefusal { refusal, .. }) => {
                assert_eq!(refusal.code, RefusalCode::PlaceholderInText);
                assert!(refusal.hint.is_some());
            }
            other => panic!("{other}"),
        }
    }
    for (old, why) in [
        ("nothing like it", "does not contain `old`"),
        (&stands_for[..12], "inside a placeholder"),
        ("DB_PASSWORD=", "be shown"),
        ("=", "times"),
    ] {
        let state = edit(old, "x").unwrap();
        assert_eq!(state.outcome(), Some(&Outcome::Exited { code: 1 }));
        let said = String::from_utf8(daemon.output(state.task_id, StreamName::Stderr)).unwrap();
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(std::fs::read_to_string(work.join("app.conf")).unwrap(), after, "a refused request changed nothing");
    for file in files_below(daemon.home()) {
        let bytes = std::fs::read(&file).unwrap();
        for secret in [&token[4..], &password] {
            assert!(memchr::memmem::find(&bytes, secret.as_bytes()).is_none(), "{}", file.display());
        }
    }
}

#[test]
fn file_tools_act_only_where_they_were_judged() {
    let daemon = TestHome::started(CSN);
    let work = daemon.work();
    let ask = |tool: &str, args: serde_json::Value| {
        let mut args = args;
        args["command"] = serde_json::Value::Null;
        daemon
            .client()
            .ask(&daemon.request("", json!({"tool": tool, "profile": "safe", "attended": false, "args": args})))
    };
    let denied = |tool: &str, args: serde_json::Value| match ask(tool, args).unwrap_err() {
        countersign_client::ClientError::Refused(countersign_model::TaskRefusal { refusal, .. }) => refusal.code,
        other => panic!("{other}"),
    };
    std::fs::write(work.join("plain"), "text\n").unwrap();
    std::os::unix::fs::symlink("/etc/hostname", work.join("link")).unwrap();
    std::fs::write(work.join(".env"), "A=1\n").unwrap();
    for path in ["/etc/hostname", "link", "../../../../etc/hostname", ".env"] {
        assert_eq!(denied("read_file", json!({"path": path})), RefusalCode::ApprovalRequiredUnattended, "{path}");
    }
    assert_eq!(denied("write_file", json!({"path": "plain", "content": "x"})), RefusalCode::ApprovalRequiredUnattended);
    let config = daemon.home().join("ledger.db");
    assert_eq!(denied("write_file", json!({"path": config, "content": "x"})), RefusalCode::ProtectedPath);
    for (tool, args) in [
        ("read_file", json!({})),
        ("read_file", json!({"path": "plain", "content": "x"})),
        ("edit_file", json!({"path": "plain", "old": "", "new": "x"})),
        ("write_file", json!({"path": "plain"})),
        ("shell", json!({"path": "plain"})),
        ("read_file", json!({"path": "plain", "first_line": 0})),
    ] {
        assert_eq!(denied(tool, args.clone()), RefusalCode::BadRequest, "{tool} {args}");
    }
    let shown = |args: serde_json::Value| stdout(&daemon, ask("read_file", args).unwrap().task_id);
    std::fs::write(work.join("lines"), "1\n2\n3\n4\n").unwrap();
    assert_eq!(shown(json!({"path": "lines", "first_line": 2, "line_count": 2})), "2\n3\n");
    assert_eq!(shown(json!({"path": "lines", "first_line": 9})), "");
    // A directory is not a file, and the refusal says so.
    let state = daemon.settled(ask("read_file", json!({"path": "."})).unwrap().task_id);
    assert_eq!(state.outcome(), Some(&Outcome::Exited { code: 1 }));
}

#[test]
fn a_users_rule_applies_and_a_bad_one_stops_the_start_and_names_its_line() {
    let daemon = TestHome::new(CSN);
    daemon.configure("profile = \"safe\"\n\n[[redact.rules]]\nid = \"acme-key\"\nkeywords = [\"acme_\"]\nregex = \"[a-z0-9]{12,}\"\nmatch = [\"acme_{lower_digit:16}\"]\nmiss = [\"acme_x\"]\n");
    daemon.start();
    let secret = expand("{lower_digit:16}", 3).unwrap().text;
    let task = daemon.ask(&format!("echo acme_{secret} acme_x"));
    let out = stdout(&daemon, task);
    assert!(out.starts_with("acme_[redacted:acme-key:") && out.ends_with(" acme_x\n"), "{out}");
    assert!(!daemon.settled(task).request.display.as_str().contains(&secret));
    let tested = daemon.csn(&["redact", "test"]);
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stderr));
    daemon.csn(&["down"]);
    daemon.configure(
        "profile = \"safe\"\n\n[[redact.rules]]\nid = \"acme-key\"\nkeywords = [\"acme_\"]\nregex = \"[a-z\"\n",
    );
    let why = daemon.try_start().unwrap_err();
    assert!(why.contains("config.toml:3") && why.contains("unclosed"), "{why}");
}

#[test]
fn the_filter_redacts_its_input_and_reports_where() {
    let daemon = TestHome::new(CSN);
    let token = format!("ghp_{}", expand("{alnum:36}", 8).unwrap().text);
    let own = expand("{alnum:20}", 9).unwrap().text;
    let input = daemon.work().join("input");
    std::fs::write(&input, format!("one\nuse {token}\n{own}\n")).unwrap();
    let out = daemon.csn_with(&["redact", "--report", input.to_str().unwrap()], &[("MY_API_KEY", &own)]);
    let (text, report) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
    assert!(
        text.starts_with("one\nuse ghp_[redacted:github-token:") && text.contains("\n[redacted:known-value:"),
        "{text}"
    );
    assert!(
        report.starts_with("2 secrets redacted") && report.contains("input:2") && report.contains("input:3"),
        "{report}"
    );
    assert!(!report.contains(&own) && !report.contains(&token[4..]));
    assert!(daemon.csn(&["redact", "test"]).status.success());
}

#[test]
fn a_secret_that_one_task_has_shown_is_redacted_in_later_tasks_of_its_session() {
    let daemon = TestHome::started(CSN);
    let secret = expand("{alnum:14}", 77).unwrap().text;
    std::fs::write(daemon.work().join("settings"), format!("password={secret}\n")).unwrap();
    std::fs::write(daemon.work().join("note"), format!("it was {secret}\n")).unwrap();
    let open = || {
        let opened = daemon.csn(&["sessions", "open", "--in", "."]);
        assert!(opened.status.success(), "{}", String::from_utf8_lossy(&opened.stderr));
        String::from_utf8(opened.stdout).unwrap().trim().to_owned()
    };
    let show = |session: &str, file: &str| {
        let out = daemon.csn(&["run", "-q", "--session", session, &format!("cat {file}")]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let (one, other) = (open(), open());
    assert!(show(&one, "settings").starts_with("password=[redacted:password:"));
    assert!(show(&one, "note").starts_with("it was [redacted:known-value:"));
    assert_eq!(show(&other, "note"), format!("it was {secret}\n"), "nothing but its session knows it");
}
