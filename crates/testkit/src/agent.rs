//! An agent in a process of its own: what it starts is below it, as with a real one, and the test above it is a person.

use crate::TestHome;
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// Does what it is told, a JSON object a line: run a program to its end, or hold a conversation with one.
const PROGRAM: &str = r#"
import json, os, subprocess, sys
talks = {}
for line in sys.stdin:
    wish = json.loads(line)
    if "argv" in wish:
        done = subprocess.run(wish["argv"], input=wish.get("input", ""), text=True, capture_output=True)
        said = {"code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
    elif "talk" in wish:
        pipe = subprocess.PIPE
        talks[wish["name"]] = subprocess.Popen(wish["talk"], stdin=pipe, stdout=pipe, text=True, bufsize=1)
        said = {"pid": talks[wish["name"]].pid}
    elif "say" in wish:
        talks[wish["name"]].stdin.write(wish["say"] + "\n")
        said = {}
    elif "hear" in wish:
        said = {"line": talks[wish["name"]].stdout.readline()}
    else:
        talk = talks.pop(wish["name"])
        talk.stdin.close()
        said = {"code": talk.wait()}
    print(json.dumps(said), flush=True)
"#;

pub struct TestAgent {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    csn: String,
}

impl TestHome {
    /// An agent that works in the house's directory.
    #[expect(clippy::disallowed_methods, reason = "tests drive real programs")]
    pub fn agent(&self) -> TestAgent {
        let mut command = Command::new("python3");
        command.args(["-c", PROGRAM]).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("COUNTERSIGN_HOME", self.home()).env("HOME", self.base()).env("API_TOKEN", "planted-in-the-agent");
        command.env("XDG_CONFIG_HOME", self.base().join("config")).env("FROM_AGENT", "yes").current_dir(self.work());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 runs");
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        TestAgent { child, to, from: BufReader::new(from), csn: self.csn_path() }
    }
}

impl TestAgent {
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn call(&mut self, wish: &Value) -> Value {
        writeln!(self.to, "{wish}").expect("the agent listens");
        let mut line = String::new();
        self.from.read_line(&mut line).expect("the agent answers");
        serde_json::from_str(&line).expect("the agent answers in JSON")
    }

    /// A program to its end: its exit code, what it said, and what it complained about.
    pub fn run(&mut self, argv: &[&str], input: &str) -> (i64, String, String) {
        let said = self.call(&json!({"argv": argv, "input": input}));
        let text = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
        (said["code"].as_i64().expect("a code"), text("stdout"), text("stderr"))
    }

    /// `csn …`, as the agent calls it.
    pub fn csn(&mut self, args: &[&str]) -> (i64, String, String) {
        let argv: Vec<String> = std::iter::once(self.csn.clone()).chain(args.iter().map(|a| (*a).to_owned())).collect();
        self.run(&argv.iter().map(String::as_str).collect::<Vec<_>>(), "")
    }

    /// What its hook says to a use of its shell, called as agents call hooks.
    pub fn hook(&mut self, agent: &str, said: &Value) -> (i64, String, String) {
        let command = format!("{} hook {agent} || exit 2", self.csn);
        self.run(&["/bin/sh", "-c", &command], &said.to_string())
    }

    /// Shell text, as its own shell tool runs it.
    pub fn shell(&mut self, text: &str) -> (i64, String, String) {
        self.run(&["bash", "-c", text], "")
    }

    /// Begins a conversation with `csn mcp`.
    pub fn talk(&mut self, name: &str) {
        let argv = [self.csn.clone(), "mcp".to_owned()];
        self.call(&json!({"talk": argv, "name": name}));
    }

    pub fn say(&mut self, name: &str, message: &Value) {
        self.call(&json!({"say": message.to_string(), "name": name}));
    }

    /// The next message; none when it has hung up.
    pub fn next_event(&mut self, name: &str) -> Option<Value> {
        let said = self.call(&json!({"hear": true, "name": name}));
        serde_json::from_str(said["line"].as_str().unwrap_or_default()).ok()
    }

    /// Hangs up, and waits until the other side has ended.
    pub fn hang_up(&mut self, name: &str) -> i64 {
        self.call(&json!({"name": name}))["code"].as_i64().unwrap_or(-1)
    }
}

impl Drop for TestAgent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
