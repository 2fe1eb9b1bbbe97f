//! Measures what an agent waits for: the answer of its hook, a command by ticket, the start of an MCP server, and a
//! command through it.
//!
//! This part runs last: a process that calls a hook counts as an agent from then on, and so does this one.

use super::{
    BenchHome, build,
    load::{now, percentile},
    print_row,
};
use crate::command;
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Stdio},
};

const ROUNDS: usize = 100;

pub(super) fn measure_agents(bench: &mut BenchHome) {
    let daemon = bench.daemon();
    let mut conn = daemon.connect();
    let direct = p50((0..ROUNDS).map(|_| {
        let began = now();
        let body = r#"{"tool":"shell","args":{"command":"true","cwd":"/tmp"},"wait_ms":5000}"#;
        let (status, _) = conn.call("POST", "/tasks", "content-type: application/json\r\n", body).expect("an answer");
        assert_eq!(status, 201);
        began.elapsed().as_secs_f64() * 1e3
    }));
    let mut starts = Vec::new();
    for _ in 0..20 {
        let began = now();
        let mut server = McpServer::start(bench);
        server.call("tools/list", json!({}));
        starts.push(began.elapsed().as_secs_f64() * 1e3);
    }
    print_row("csn mcp: start → tools/list, p50", ms(percentile(&starts, 0.5)), "50 ms".to_owned(), String::new());
    let mut server = McpServer::start(bench);
    let through = p50((0..ROUNDS).map(|_| {
        let began = now();
        let printed =
            server.call("tools/call", json!({"name": "run", "arguments": {"command": "true", "cwd": "/tmp"}}));
        assert_eq!(printed["result"]["structuredContent"]["exit_code"], 0, "{printed}");
        began.elapsed().as_secs_f64() * 1e3
    }));
    print_row(
        "run true through MCP over stdio, p50",
        ms(through),
        format!("{} (POST /tasks on the socket)", ms(direct)),
        format!("+{:.2} ms", through - direct),
    );
    let hooked = p50((0..ROUNDS).map(|_| {
        let began = now();
        run_hook(bench);
        began.elapsed().as_secs_f64() * 1e3
    }));
    print_row("csn hook: a cold process, its answer, p50", ms(hooked), "15 ms".to_owned(), String::new());
    let csn = build::output_dir().join("csn");
    let exec = p50((0..ROUNDS).map(|_| {
        let rewritten = run_hook(bench);
        let ticket = rewritten.split_ascii_whitespace().nth(3).expect("a ticket");
        run_timed(bench, csn.to_str().unwrap_or_default(), &["exec", "--ticket", ticket, "--", "true"])
    }));
    let bash = p50((0..ROUNDS).map(|_| run_timed(bench, "bash", &["-c", "true"])));
    let raw = format!("{} (bash -c true)", ms(bash));
    print_row("csn exec: true by ticket, p50", ms(exec), raw, format!("+{:.2} ms", exec - bash));
}

fn p50(all: impl Iterator<Item = f64>) -> f64 {
    percentile(&all.collect::<Vec<_>>(), 0.5)
}

fn ms(value: f64) -> String {
    format!("{value:.2} ms")
}

fn run_timed(bench: &BenchHome, program: &str, args: &[&str]) -> f64 {
    let began = now();
    let mut run = command(program);
    run.args(args).env("COUNTERSIGN_HOME", bench.home()).current_dir("/tmp");
    run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(run.status().is_ok_and(|s| s.success()), "{program} {args:?}");
    began.elapsed().as_secs_f64() * 1e3
}

/// Runs a hook; returns the command that it makes the agent run instead.
fn run_hook(bench: &BenchHome) -> String {
    let printed = json!({
        "session_id": "bench", "cwd": "/tmp", "hook_event_name": "PreToolUse", "tool_name": "Bash",
        "tool_input": {"command": "true"}, "tool_use_id": "one",
    });
    let mut run = command(build::output_dir().join("csn").to_str().unwrap_or_default());
    run.args(["hook", "claude-code"]).env("COUNTERSIGN_HOME", bench.home());
    let mut child = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("csn starts");
    child.stdin.take().expect("piped").write_all(printed.to_string().as_bytes()).expect("it reads");
    let out = child.wait_with_output().expect("it answers");
    let answer: Value = serde_json::from_slice(&out.stdout).expect("an answer in JSON");
    answer["hookSpecificOutput"]["updatedInput"]["command"].as_str().expect("it is rewritten").to_owned()
}

/// A conversation with `csn mcp`.
struct McpServer {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    next: u64,
}

impl McpServer {
    fn start(bench: &BenchHome) -> Self {
        let mut run = command(build::output_dir().join("csn").to_str().unwrap_or_default());
        run.arg("mcp").env("COUNTERSIGN_HOME", bench.home()).current_dir("/tmp");
        let mut child = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("csn starts");
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let mut server = Self { child, to, from: BufReader::new(from), next: 0 };
        let info = json!({"name": "bench", "version": "1"});
        server.call("initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}));
        writeln!(server.to, "{}", json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).expect("it reads");
        server
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        writeln!(self.to, "{message}").expect("it reads");
        loop {
            let mut line = String::new();
            self.from.read_line(&mut line).expect("it answers");
            let printed: Value = serde_json::from_str(&line).expect("in JSON");
            if printed["id"] == self.next {
                return printed;
            }
        }
    }
}

impl Drop for McpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
