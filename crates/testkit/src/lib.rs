//! A complete home in a temporary directory for tests: the real programs and the real socket, nothing shared with the
//! user's own home.

pub mod agent;
mod raw;
pub mod snapshot;
pub mod system_service;

pub use agent::TestAgent;
pub use raw::{RawCalls, body};
pub use snapshot::{assert_no_other_snapshots, assert_snapshot};

use countersign_client::{Client, ClientError, Events};
use countersign_model::{
    Choice, Frame, Outcome, Record, RecordContent, Refusal, Request, StreamName, TaskId, TaskRefusal, TaskState,
};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::Mutex,
};
use tempfile::TempDir;

/// One home with its daemon. Dropping it stops its tasks and its daemon.
pub struct TestHome {
    dir: TempDir,
    csn: PathBuf,
    daemon: Mutex<Option<Child>>,
    env: Vec<(String, String)>,
    home: PathBuf,
    /// The user that the daemon runs as; none means the user that runs the test.
    user: Option<u32>,
}

impl TestHome {
    /// A home whose daemon has not been started.
    #[must_use]
    pub fn new(csn: &str) -> Self {
        let dir = TempDir::with_prefix("csn").expect("a temp dir");
        let home = dir.path().join("home");
        Self { dir, csn: csn.into(), daemon: Mutex::default(), env: Vec::new(), home, user: None }
    }

    /// A home with a running daemon.
    #[must_use]
    pub fn started(csn: &str) -> Self {
        let home = Self::new(csn);
        home.start();
        home
    }

    /// A home of another user, with programs that this user may start. Only root can create one; tests use it through
    /// `csn`.
    #[must_use]
    pub fn for_user(csn: &str, user: u32) -> Self {
        let mut home = Self::new(csn);
        let bin = home.dir.path().join("bin");
        std::fs::create_dir(&bin).expect("a bin dir");
        for name in ["csn", "csn-shim"] {
            std::fs::copy(Path::new(csn).with_file_name(name), bin.join(name)).expect("a copy");
        }
        home.csn = bin.join("csn");
        home.user = Some(user);
        home.give_to_user();
        home
    }

    /// Gives everything in the base directory to the home's user.
    #[expect(clippy::disallowed_methods, reason = "tests drive real programs")]
    pub fn give_to_user(&self) {
        if let Some(user) = self.user {
            let owner = format!("{user}:{user}");
            let done = Command::new("chown").args(["-Rh", &owner]).arg(self.dir.path()).status();
            assert!(done.is_ok_and(|s| s.success()), "chown works");
        }
    }

    /// The base directory, which contains everything of this home; it is the HOME of its user.
    #[must_use]
    pub fn base(&self) -> &Path {
        self.dir.path()
    }

    /// Uses another directory as the home.
    #[must_use]
    pub fn with_home(mut self, home: PathBuf) -> Self {
        self.home = home;
        self
    }

    /// Sets a variable for the daemon.
    #[must_use]
    pub fn with_env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Writes `config.toml`.
    pub fn configure(&self, toml: &str) {
        let dir = self.dir.path().join("config/countersign");
        std::fs::create_dir_all(&dir).expect("a config dir");
        std::fs::write(dir.join("config.toml"), toml).expect("a config");
    }

    /// A directory for tasks to work in.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        let work = self.dir.path().join("work");
        std::fs::create_dir_all(&work).expect("a work dir");
        work
    }

    fn csn_path(&self) -> String {
        self.csn.to_str().expect("a path in UTF-8").to_owned()
    }

    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }

    #[must_use]
    pub fn task_dir(&self, task: TaskId) -> PathBuf {
        self.home.join("tasks").join(task.shard()).join(task.to_string())
    }

    #[expect(clippy::disallowed_methods, reason = "tests drive the real program")]
    fn command(&self) -> Command {
        let mut command = Command::new(&self.csn);
        command.env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("COUNTERSIGN_HOME", &self.home).env("HOME", self.dir.path());
        command.env("XDG_CONFIG_HOME", self.dir.path().join("config"));
        command.current_dir(self.work());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    /// Starts the daemon and waits until it serves; the error is what it printed instead.
    pub fn try_start(&self) -> Result<u32, String> {
        self.try_start_with(&[])
    }

    pub fn try_start_with(&self, env: &[(&str, &str)]) -> Result<u32, String> {
        let mut command = self.command();
        command.envs(self.env.iter().map(|(k, v)| (k, v))).envs(env.iter().copied());
        command.args(["up", "--detached"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("csn starts");
        let mut line = String::new();
        let _ = BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line);
        if let Some(pid) = line.strip_prefix("ready ").and_then(|pid| pid.trim().parse().ok()) {
            *self.daemon.lock().expect("unpoisoned") = Some(child);
            return Ok(pid);
        }
        let mut why = String::new();
        let _ = child.stderr.take().expect("piped").read_to_string(&mut why);
        let _ = child.wait();
        Err(why)
    }

    pub fn start(&self) -> u32 {
        self.try_start().expect("the daemon starts")
    }

    /// `kill -9` of the daemon, and of nothing else.
    pub fn kill_daemon(&self) {
        if let Some(mut child) = self.daemon.lock().expect("unpoisoned").take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Waits until the daemon has ended.
    pub fn daemon_ends(&self) {
        if let Some(mut child) = self.daemon.lock().expect("unpoisoned").take() {
            let _ = child.wait();
        }
    }

    #[must_use]
    pub fn daemon_pid(&self) -> u32 {
        self.daemon.lock().expect("unpoisoned").as_ref().expect("a daemon runs").id()
    }

    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(self.home.join("run/csn.sock"))
    }

    /// Runs `csn …` to its end.
    pub fn csn(&self, args: &[&str]) -> Output {
        self.csn_with(args, &[])
    }

    pub fn csn_with(&self, args: &[&str], env: &[(&str, &str)]) -> Output {
        self.command().args(args).envs(env.iter().copied()).stdin(Stdio::null()).output().expect("csn runs")
    }

    /// Runs another program to its end, in no relation to any task.
    #[expect(clippy::disallowed_methods, reason = "tests drive real programs")]
    pub fn outside(&self, argv: &[&str]) -> Output {
        let mut command = Command::new(argv[0]);
        command.args(&argv[1..]).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.dir.path()).current_dir(self.work()).stdin(Stdio::null());
        command.output().expect("it runs")
    }

    /// Starts `csn …` and leaves it running.
    pub fn csn_spawn(&self, args: &[&str]) -> Child {
        let mut command = self.command();
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("csn runs")
    }

    /// Runs a command in its own terminal, outside of any task.
    #[expect(clippy::disallowed_methods, reason = "tests drive the real program")]
    pub fn terminal(&self, text: &str) -> TestTerminal {
        let mut command = Command::new("script");
        command.args(["-qefc", text, "/dev/null"]).env("HOME", self.dir.path()).env("TERM", "xterm-256color");
        command.current_dir(self.work()).stdin(Stdio::piped()).stdout(Stdio::piped());
        TestTerminal { child: command.spawn().expect("script runs"), seen: Vec::new() }
    }

    /// A request with the profile `full_auto`, changed by `with`.
    #[must_use]
    pub fn request(&self, text: &str, with: Value) -> Request {
        let mut request = json!({
            "tool": "shell", "args": {"command": text, "cwd": self.work()}, "profile": "full_auto",
        });
        merge(&mut request, with);
        serde_json::from_value(request).expect("a request")
    }

    /// Requests shell text that runs immediately.
    pub fn ask(&self, text: &str) -> TaskId {
        self.ask_with(text, json!({})).task_id
    }

    pub fn ask_with(&self, text: &str, with: Value) -> TaskState {
        self.client().ask(&self.request(text, with)).expect("the daemon accepts the request")
    }

    /// Requests shell text that a person approves to run without a sandbox: the profile `full_auto` keeps it in its
    /// workspace.
    pub fn ask_open(&self, text: &str, with: Value) -> TaskId {
        let mut open = json!({"profile": "safe", "confinement": "shield"});
        merge(&mut open, with);
        let state = self.ask_with(text, open);
        if let Some(approval) = state.approval_id() {
            self.client().answer(approval, Choice::Once, None).expect("the answer is accepted");
        }
        state.task_id
    }

    /// Requests something that the daemon refuses.
    pub fn refused(&self, text: &str, with: Value) -> (Refusal, Option<TaskId>) {
        match self.client().ask(&self.request(text, with)) {
            Err(ClientError::Refused(TaskRefusal { refusal, task })) => (refusal, task),
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Waits until the task has settled.
    pub fn settled(&self, task: TaskId) -> TaskState {
        loop {
            let state = self.client().wait(task, 60_000).expect("the daemon answers");
            if state.settled() {
                return state;
            }
        }
    }

    pub fn outcome(&self, task: TaskId) -> Outcome {
        self.settled(task).settlement.expect("settled tasks have one").outcome
    }

    /// Waits until the task has its receipt: its records do not change any more.
    pub fn sealed(&self, task: TaskId) -> TaskState {
        self.client().receipt(&task.to_string(), 30_000).expect("the task gets its receipt");
        self.client().task(&task.to_string()).expect("the task exists")
    }

    /// Every record of a settled task.
    pub fn records(&self, task: TaskId) -> Vec<Record> {
        let mut events = self.client().events(task, None);
        let mut records = Vec::new();
        while let Some(event) = events.next_event().expect("the stream reads") {
            records.push(event.value.record);
        }
        records
    }

    /// Waits for the first frame that `wanted` accepts.
    pub fn frame(&self, task: TaskId, wanted: impl Fn(&Frame) -> bool) -> Frame {
        let mut events = self.client().events(task, None);
        frame(&mut events, wanted)
    }

    /// Waits until the task has written `text` to stdout, in one chunk.
    pub fn wait_for_stdout(&self, task: TaskId, text: &str) {
        let mut events = self.client().events(task, None);
        while let Some(event) = events.next_event().expect("the stream reads") {
            if event.value.output.is_some_and(|output| output.text.contains(text)) {
                return;
            }
        }
        panic!("{task} ended without writing {text}");
    }

    /// All stored bytes of a stream, through the API.
    pub fn output(&self, task: TaskId, stream: StreamName) -> Vec<u8> {
        let (client, mut all) = (self.client(), Vec::new());
        loop {
            let piece = client.output(task, stream, all.len() as u64, 4 << 20).expect("output reads");
            if piece.is_empty() {
                return all;
            }
            all.extend(piece);
        }
    }

    /// The bytes of a stream's file.
    pub fn stored_output(&self, task: TaskId, stream: StreamName) -> Vec<u8> {
        std::fs::read(self.task_dir(task).join(stream.file())).expect("its file")
    }

    pub fn stdout(&self, task: TaskId) -> String {
        String::from_utf8(self.output(task, StreamName::Stdout)).expect("text")
    }
}

/// A program in a terminal.
pub struct TestTerminal {
    child: Child,
    seen: Vec<u8>,
}

impl TestTerminal {
    /// Waits until the terminal has shown `text`.
    pub fn sees(&mut self, text: &str) {
        let out = self.child.stdout.as_mut().expect("piped");
        while !String::from_utf8_lossy(&self.seen).contains(text) {
            let mut buf = [0; 4096];
            let n = out.read(&mut buf).expect("the terminal reads");
            assert!(n > 0, "ended without showing {text}: {}", String::from_utf8_lossy(&self.seen));
            self.seen.extend_from_slice(&buf[..n]);
        }
    }

    /// Everything that the terminal has shown so far.
    #[must_use]
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    pub fn types(&mut self, bytes: &[u8]) {
        let input = self.child.stdin.as_mut().expect("piped");
        input.write_all(bytes).and_then(|()| input.flush()).expect("the terminal takes input");
    }
}

impl Drop for TestTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn frame(events: &mut Events, wanted: impl Fn(&Frame) -> bool) -> Frame {
    while let Some(event) = events.next_event().expect("the stream reads") {
        if let RecordContent::Frame(frame) = event.value.record.what
            && wanted(&frame)
        {
            return frame;
        }
    }
    panic!("the task ended without such a frame");
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

impl Drop for TestHome {
    fn drop(&mut self) {
        let running = self.daemon.lock().is_ok_and(|d| d.is_some());
        if running || self.client().lifecycle().is_ok() {
            let _ = self.csn(&["down", "--stop-tasks"]);
        }
        self.kill_daemon();
    }
}

/// The state letter of a process, if it exists. Tests read `/proc` themselves, so that a fault in the program's own
/// code cannot hide.
#[must_use]
pub fn process_state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 1..].trim_start().chars().next()
}

/// The memory of a process, in KiB.
#[derive(Debug, Clone, Copy)]
pub struct MemoryUse {
    /// Its own memory, which grows with the data that it handles.
    pub anonymous: u64,
    /// Mapped file pages, mostly its program: 30 MB in a debug build.
    pub file: u64,
    /// The largest sum of both so far.
    pub peak: u64,
}

impl MemoryUse {
    #[must_use]
    pub fn of_process(pid: u32) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process exists");
        let kib = |name: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(name)).expect("the kernel reports it");
            line.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number")
        };
        Self { anonymous: kib("RssAnon:"), file: kib("RssFile:"), peak: kib("VmHWM:") }
    }

    /// An upper bound of the process's own memory at its peak. The kernel only keeps the peak of all memory; file pages
    /// that existed at the beginning are subtracted, and later ones count as its own.
    #[must_use]
    pub fn own_peak(pid: u32, at_first: MemoryUse) -> u64 {
        let now = Self::of_process(pid);
        now.peak.saturating_sub(at_first.file.min(now.file)).max(now.anonymous)
    }
}

/// Living processes whose command line contains `mark`.
#[must_use]
pub fn processes_with(mark: &str) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = all.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let cmdline = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&cmdline).replace('\0', " ");
        words.contains(mark) && process_state(*pid).is_some_and(|s| s != 'Z')
    })
    .filter(|pid| *pid != std::process::id())
    .collect()
}
