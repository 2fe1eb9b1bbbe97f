//! The proof: a command that nobody may let through is given to what was written, in the way the agent would, and has
//! to come back denied. That something is blocked is not enough: a hook that cannot run blocks too.

use crate::error::{ProofError, Unanswered};
use countersign_spawn::{Question, Reply};
use serde_json::{Value, json};
use std::{io, path::Path, time::Duration};

/// What the gate denies whatever has been granted: it would stop the house.
pub(crate) const CANARY: &str = "csn down";
/// Words of that refusal. A hook that fails denies as well, and so does one that does not reach the house: neither says this.
const REFUSED: &[&str] = &["self_destructive", "stop or kill Countersign", "stop or kill countersign"];
const PATIENCE: Duration = Duration::from_secs(30);
const PROTOCOL: &str = "2025-11-25";

/// Puts a question to a program.
pub(crate) type Converse = dyn Fn(&Question<'_>) -> io::Result<Reply>;

/// How a hook of an agent answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HookAnswer {
    /// `hookSpecificOutput.permissionDecision`, or exit 2.
    Permission,
    /// `decision`.
    Decision,
}

/// What has to be tried.
#[derive(Debug, Clone)]
pub(super) enum Proof {
    Hook { argv: Vec<String>, answer: HookAnswer },
    Mcp { csn: String },
}

/// Says how the canary was denied, or why that is not proved.
pub(crate) fn prove(converse: &Converse, proof: &Proof, cwd: &Path) -> Result<String, ProofError> {
    match proof {
        Proof::Hook { argv, answer } => hook(converse, argv, *answer, cwd),
        Proof::Mcp { csn } => mcp(converse, csn),
    }
}

fn hook(converse: &Converse, argv: &[String], answer: HookAnswer, cwd: &Path) -> Result<String, ProofError> {
    let shown = argv.last().filter(|_| answer == HookAnswer::Permission).cloned().unwrap_or_else(|| argv.join(" "));
    let tool = if answer == HookAnswer::Permission { "Bash" } else { "bash" };
    let asked = json!({
        "session_id": "csn-canary", "cwd": cwd, "hook_event_name": "PreToolUse", "permission_mode": "default",
        "transcript_path": "", "tool_name": tool, "tool_input": {"command": CANARY, "description": "canary"},
        "tool_use_id": "csn-canary",
    });
    let (program, args) = argv.split_first().ok_or(ProofError::NoCommand)?;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let stdin = format!("{asked}\n");
    let said = ask(
        converse,
        &Question { program, args: &args, stdin: stdin.as_bytes(), env: &[], timeout: PATIENCE, until: None },
    )
    .map_err(|error| ProofError::Hook { hook: shown.clone(), error })?;
    let reply: Value = serde_json::from_slice(&said.stdout).unwrap_or_default();
    let (decision, reason) = match answer {
        HookAnswer::Permission => {
            let told = &reply["hookSpecificOutput"];
            (told["permissionDecision"].as_str(), told["permissionDecisionReason"].as_str())
        }
        HookAnswer::Decision => (reply["decision"].as_str(), reply["reason"].as_str()),
    };
    let why = match (decision, reason) {
        (Some("deny"), Some(reason)) => reason.to_owned(),
        // Agents of this kind also take an exit code for an answer.
        (None, _) if answer == HookAnswer::Permission && said.code == Some(2) => first_line(&said.stderr),
        (Some(other), _) => return Err(ProofError::HookAllows { hook: shown, said: other.to_owned() }),
        (None, _) => {
            let (ended, said) = (ended(said.code), first_line(&said.stderr));
            return Err(ProofError::NoDecision { hook: shown, ended, said });
        }
    };
    let line = first_line(why.as_bytes());
    if is_the_gates(&why) && (said.code == Some(0) || decision.is_none()) {
        return Ok(format!("hook denies `{CANARY}`: {line}"));
    }
    Err(ProofError::OtherReason { hook: shown, ended: ended(said.code), said: line })
}

fn is_the_gates(reason: &str) -> bool {
    REFUSED.iter().any(|words| reason.contains(words))
}

fn mcp(converse: &Converse, csn: &str) -> Result<String, ProofError> {
    let hello = json!({
        "protocolVersion": PROTOCOL, "capabilities": {},
        "clientInfo": {"name": "csn-install", "version": env!("CARGO_PKG_VERSION")},
    });
    let said = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}),
        json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call",
            "params": {"name": "run", "arguments": {"command": CANARY}}}),
    ];
    let stdin: String = said.iter().map(|m| format!("{m}\n")).collect();
    // Whoever hangs up withdraws the call: the line is held until both answers are there.
    let until = |out: &[u8]| reply(out, 2).is_some() && reply(out, 3).is_some();
    let question = Question {
        program: csn,
        args: &["mcp"],
        stdin: stdin.as_bytes(),
        env: &[],
        timeout: PATIENCE,
        until: Some(&until),
    };
    let name = || csn.to_owned();
    let said = ask(converse, &question).map_err(|error| ProofError::Mcp { csn: name(), error })?;
    let failed = || (name(), ended(said.code), first_line(&said.stderr));
    let list = reply(&said.stdout, 2).ok_or_else(|| {
        let (csn, ended, said) = failed();
        ProofError::NoTools { csn, ended, said }
    })?;
    let tools = list["result"]["tools"].as_array().cloned().unwrap_or_default();
    if !tools.iter().any(|t| t["name"] == "run") {
        return Err(ProofError::NoRun(name()));
    }
    let call = reply(&said.stdout, 3).ok_or_else(|| {
        let (csn, ended, said) = failed();
        ProofError::NoCall { csn, ended, said }
    })?;
    let result = &call["result"];
    let text = result["structuredContent"]["message"].as_str().or_else(|| result["content"][0]["text"].as_str());
    let text = text.unwrap_or_default();
    let denied = call["result"]["isError"] == true && is_the_gates(&call["result"].to_string());
    if !denied {
        return Err(ProofError::McpAllows { csn: name(), said: first_line(call.to_string().as_bytes()) });
    }
    Ok(format!("MCP: {} tools; run denies `{CANARY}`: {}", tools.len(), first_line(text.as_bytes())))
}

fn ask(converse: &Converse, question: &Question<'_>) -> Result<Reply, Unanswered> {
    let said = converse(question)?;
    if said.timed_out { Err(Unanswered::Late(question.timeout.as_secs())) } else { Ok(said) }
}

/// The answer to a call, among the lines that a server has written.
fn reply(out: &[u8], id: u64) -> Option<Value> {
    let lines = out.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    lines.into_iter().find(|v| v["id"] == id && (v.get("result").is_some() || v.get("error").is_some()))
}

fn heard(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Enough to know by; what a program says is not ours to print raw.
fn first_line(bytes: &[u8]) -> String {
    let text = heard(bytes);
    let line = text.lines().find(|l| !l.trim().is_empty()).unwrap_or("it said nothing");
    line.chars().filter(|c| !c.is_control()).take(300).collect()
}

fn ended(code: Option<i32>) -> String {
    code.map_or_else(|| "killed".to_owned(), |code| format!("exit {code}"))
}
