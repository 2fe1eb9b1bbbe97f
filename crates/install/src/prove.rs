//! Proves an installation: runs its hook or server as the agent would, with a command that Countersign always denies. The
//! denial must have Countersign's reason: a hook that cannot run blocks commands, too.

use crate::error::{NoAnswerError, ProofError};
use countersign_spawn::{ProgramOutput, ProgramRun};
use serde_json::{Value, json};
use std::{io, path::Path, time::Duration};

/// A command that Countersign denies in every configuration: it would stop the daemon.
pub(crate) const CANARY: &str = "csn down";
/// Parts of the reason for that denial. A hook that fails or does not reach the daemon denies without them.
const GATE_REASONS: &[&str] = &["self_destructive", "stop or kill Countersign", "stop or kill countersign"];
const PROOF_TIMEOUT: Duration = Duration::from_secs(30);
const MCP_PROTOCOL_VERSION: &str = "2025-11-25";

/// Runs a program; tests use another one.
pub(crate) type RunProgram = dyn Fn(&ProgramRun<'_>) -> io::Result<ProgramOutput>;

/// The form in which a hook answers its agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HookReplyFormat {
    /// `hookSpecificOutput.permissionDecision`, or exit 2.
    Permission,
    /// `decision`.
    Decision,
}

/// What has to be run.
#[derive(Debug, Clone)]
pub(super) enum Proof {
    Hook { argv: Vec<String>, format: HookReplyFormat },
    Mcp { csn: String },
}

/// How the canary was denied, or why that is not proved.
pub(crate) fn prove(run: &RunProgram, proof: &Proof, cwd: &Path) -> Result<String, ProofError> {
    match proof {
        Proof::Hook { argv, format } => prove_hook(run, argv, *format, cwd),
        Proof::Mcp { csn } => prove_mcp(run, csn),
    }
}

fn prove_hook(run: &RunProgram, argv: &[String], format: HookReplyFormat, cwd: &Path) -> Result<String, ProofError> {
    // A shell command is shown without its shell.
    let hook = argv.last().filter(|_| format == HookReplyFormat::Permission).cloned().unwrap_or_else(|| argv.join(" "));
    let tool = if format == HookReplyFormat::Permission { "Bash" } else { "bash" };
    let event = json!({
        "session_id": "csn-canary", "cwd": cwd, "hook_event_name": "PreToolUse", "permission_mode": "default",
        "transcript_path": "", "tool_name": tool, "tool_input": {"command": CANARY, "description": "canary"},
        "tool_use_id": "csn-canary",
    });
    let (program, args) = argv.split_first().ok_or(ProofError::NoCommand)?;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let stdin = format!("{event}\n");
    let output = run_in_time(
        run,
        &ProgramRun { program, args: &args, stdin: stdin.as_bytes(), env: &[], timeout: PROOF_TIMEOUT, complete: None },
    )
    .map_err(|error| ProofError::Hook { hook: hook.clone(), error })?;
    let reply: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let (decision, reason) = match format {
        HookReplyFormat::Permission => {
            let specific = &reply["hookSpecificOutput"];
            (specific["permissionDecision"].as_str(), specific["permissionDecisionReason"].as_str())
        }
        HookReplyFormat::Decision => (reply["decision"].as_str(), reply["reason"].as_str()),
    };
    let reason = match (decision, reason) {
        (Some("deny"), Some(reason)) => reason.to_owned(),
        // Agents of this kind also accept an exit code as an answer.
        (None, _) if format == HookReplyFormat::Permission && output.code == Some(2) => first_line(&output.stderr),
        (Some(other), _) => return Err(ProofError::HookAllows { hook, answer: other.to_owned() }),
        (None, _) => {
            let (exit, message) = (describe_exit(output.code), first_line(&output.stderr));
            return Err(ProofError::NoDecision { hook, exit, message });
        }
    };
    let line = first_line(reason.as_bytes());
    if is_gate_reason(&reason) && (output.code == Some(0) || decision.is_none()) {
        return Ok(format!("hook denies `{CANARY}`: {line}"));
    }
    Err(ProofError::OtherReason { hook, exit: describe_exit(output.code), message: line })
}

fn is_gate_reason(reason: &str) -> bool {
    GATE_REASONS.iter().any(|words| reason.contains(words))
}

fn prove_mcp(run: &RunProgram, csn: &str) -> Result<String, ProofError> {
    let hello = json!({
        "protocolVersion": MCP_PROTOCOL_VERSION, "capabilities": {},
        "clientInfo": {"name": "csn-install", "version": env!("CARGO_PKG_VERSION")},
    });
    let messages = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}),
        json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call",
            "params": {"name": "run", "arguments": {"command": CANARY}}}),
    ];
    let stdin: String = messages.iter().map(|m| format!("{m}\n")).collect();
    // The end of the input cancels the call: the input stays open until both answers are there.
    let complete = |out: &[u8]| find_reply(out, 2).is_some() && find_reply(out, 3).is_some();
    let program = ProgramRun {
        program: csn,
        args: &["mcp"],
        stdin: stdin.as_bytes(),
        env: &[],
        timeout: PROOF_TIMEOUT,
        complete: Some(&complete),
    };
    let name = || csn.to_owned();
    let output = run_in_time(run, &program).map_err(|error| ProofError::Mcp { csn: name(), error })?;
    let failed = || (name(), describe_exit(output.code), first_line(&output.stderr));
    let list = find_reply(&output.stdout, 2).ok_or_else(|| {
        let (csn, exit, message) = failed();
        ProofError::NoTools { csn, exit, message }
    })?;
    let tools = list["result"]["tools"].as_array().cloned().unwrap_or_default();
    if !tools.iter().any(|t| t["name"] == "run") {
        return Err(ProofError::NoRunTool(name()));
    }
    let call = find_reply(&output.stdout, 3).ok_or_else(|| {
        let (csn, exit, message) = failed();
        ProofError::CallUnanswered { csn, exit, message }
    })?;
    let result = &call["result"];
    let text = result["structuredContent"]["message"].as_str().or_else(|| result["content"][0]["text"].as_str());
    let text = text.unwrap_or_default();
    let denied = result["isError"] == true && is_gate_reason(&result.to_string());
    if !denied {
        return Err(ProofError::McpAllows { csn: name(), answer: first_line(call.to_string().as_bytes()) });
    }
    Ok(format!("MCP: {} tools; run denies `{CANARY}`: {}", tools.len(), first_line(text.as_bytes())))
}

fn run_in_time(run: &RunProgram, program: &ProgramRun<'_>) -> Result<ProgramOutput, NoAnswerError> {
    let output = run(program)?;
    if output.timed_out { Err(NoAnswerError::TimedOut(program.timeout.as_secs())) } else { Ok(output) }
}

/// The answer to a call, among the lines that the server printed.
fn find_reply(out: &[u8], id: u64) -> Option<Value> {
    let lines = out.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    lines.into_iter().find(|v| v["id"] == id && (v.get("result").is_some() || v.get("error").is_some()))
}

/// The first line of a program's output, shortened and without control characters.
fn first_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().find(|l| !l.trim().is_empty()).unwrap_or("no message");
    line.chars().filter(|c| !c.is_control()).take(300).collect()
}

fn describe_exit(code: Option<i32>) -> String {
    code.map_or_else(|| "killed".to_owned(), |code| format!("exit {code}"))
}
