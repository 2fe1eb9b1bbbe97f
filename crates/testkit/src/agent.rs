//! A test agent in its own process: the processes that it starts are below it, as with a real agent, and the test above
//! it counts as a person.

use crate::TestHome;
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// Executes commands, one JSON object per line: runs a program to its end, or keeps a conversation with one.
const AGENT_SCRIPT: &str = r#"
import json, os, subprocess, sys
talks = {}
for line in sys.stdin:
    command = json.loads(line)
    if "argv" in command:
        done = subprocess.run(command["argv"], input=command.get("input", ""), text=True, capture_output=True)
        result = {"code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
    elif "talk" in command:
        pipe = subprocess.PIPE
        talks[command["name"]] = subprocess.Popen(command["talk"], stdin=pipe, stdout=pipe, text=True, bufsize=1)
        result = {"pid": talks[command["name"]].pid}
    elif "say" in command:
        talks[command["name"]].stdin.write(command["say"] + "\n")
        result = {}
    elif "hear" in command:
        result = {"line": talks[command["name"]].stdout.readline()}
    else:
        talk = talks.pop(command["name"])
        talk.stdin.close()
        result = {"code": talk.wait()}
    print(json.dumps(result), flush=True)
"#;

pub struct TestAgent {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    csn: String,
}

impl TestHome {
    /// An agent that works in the working directory of the home.
    #[expect(clippy::disallowed_methods, reason = "tests drive real programs")]
    pub fn agent(&self) -> TestAgent {
        let mut command = Command::new("python3");
        command.args(["-c", AGENT_SCRIPT]).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
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

    fn call(&mut self, command: &Value) -> Value {
        writeln!(self.to, "{command}").expect("the agent listens");
        let mut line = String::new();
        self.from.read_line(&mut line).expect("the agent answers");
        serde_json::from_str(&line).expect("the agent answers in JSON")
    }

    /// Runs a program to its end: returns its exit code, stdout and stderr.
    pub fn run(&mut self, argv: &[&str], input: &str) -> (i64, String, String) {
        let result = self.call(&json!({"argv": argv, "input": input}));
        let text = |name: &str| result[name].as_str().unwrap_or_default().to_owned();
        (result["code"].as_i64().expect("a code"), text("stdout"), text("stderr"))
    }

    /// Runs `csn …` as the agent.
    pub fn csn(&mut self, args: &[&str]) -> (i64, String, String) {
        let argv: Vec<String> = std::iter::once(self.csn.clone()).chain(args.iter().map(|a| (*a).to_owned())).collect();
        self.run(&argv.iter().map(String::as_str).collect::<Vec<_>>(), "")
    }

    /// Runs the agent's hook for a use of its shell, like agents call hooks.
    pub fn hook(&mut self, agent: &str, event: &Value) -> (i64, String, String) {
        let command = format!("{} hook {agent} || exit 2", self.csn);
        self.run(&["/bin/sh", "-c", &command], &event.to_string())
    }

    /// Runs shell text like the agent's own shell tool.
    pub fn shell(&mut self, text: &str) -> (i64, String, String) {
        self.run(&["bash", "-c", text], "")
    }

    /// Starts a conversation with `csn mcp`.
    pub fn start_mcp(&mut self, name: &str) {
        let argv = [self.csn.clone(), "mcp".to_owned()];
        self.call(&json!({"talk": argv, "name": name}));
    }

    pub fn say(&mut self, name: &str, message: &Value) {
        self.call(&json!({"say": message.to_string(), "name": name}));
    }

    /// The next message; none after the other side has closed the connection.
    pub fn next_event(&mut self, name: &str) -> Option<Value> {
        let result = self.call(&json!({"hear": true, "name": name}));
        serde_json::from_str(result["line"].as_str().unwrap_or_default()).ok()
    }

    /// Closes the connection, and waits until the other side has ended.
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
