//! `hook`: asks the daemon about a command that an agent is about to run, before the agent runs it.
//!
//! It fails closed: whatever goes wrong here, the agent is told not to run the command. It never starts a daemon.

use crate::{args::HookAgent, say, target_home::TargetHome};
use anyhow::{Context as _, bail};
use countersign_client::Client;
use countersign_model::{
    api::{Conversation, HookAfterBody, HookBeforeBody, HookBeforeResponse},
    is_base_variable, quoted,
};
use countersign_store::find_agent_above;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    io::{self, Read as _},
    process::ExitCode,
    time::Duration,
};

/// The exit code that every agent takes for "do not run it".
const BLOCKED: u8 = 2;
/// Shorter than any agent waits for its hook: some agents run the command when a hook takes too long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_INPUT_BYTES: u64 = 8 * 1024 * 1024;
/// The members in which agents' shell tools carry the command.
const COMMAND_MEMBERS: &[&str] = &["command", "cmd", "script", "shell_command"];
/// How long before the agent's tool gives up `csn exec` reports that the approval is still pending.
const MARGIN_MS: u64 = 5_000;

/// The input that an agent writes. Claude Code and Codex use the same form, and so does our plugin for opencode.
#[derive(Deserialize)]
struct HookInput {
    #[serde(default)]
    session_id: String,
    cwd: String,
    #[serde(default)]
    hook_event_name: String,
    tool_name: String,
    tool_input: Map<String, Value>,
    #[serde(default)]
    tool_use_id: Option<String>,
    #[serde(default)]
    tool_response: Value,
}

impl HookAgent {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Opencode => "opencode",
        }
    }

    /// How long the agent's shell tool waits for a command that names no timeout.
    fn default_timeout_ms(self) -> u64 {
        let variable = |name: &str| std::env::var(name).ok().and_then(|ms| ms.parse().ok());
        match self {
            Self::ClaudeCode => variable("BASH_DEFAULT_TIMEOUT_MS").unwrap_or(120_000),
            Self::Codex => 10_000,
            Self::Opencode => 120_000,
        }
    }
}

pub(crate) fn hook(agent: HookAgent, witness: bool) -> anyhow::Result<ExitCode> {
    std::thread::spawn(|| {
        std::thread::sleep(ANSWER_TIMEOUT);
        say("csn: the daemon did not answer in time, so nothing was run; a person can check it: csn doctor");
        std::process::exit(i32::from(BLOCKED));
    });
    let written = answer(agent, witness).and_then(|answer| {
        anyhow::ensure!(answer.is_empty() || !is_stdout_discarded(), "standard output of the hook is closed");
        write_to_stdout(answer.as_bytes()).context("standard output of the hook is closed")
    });
    match written {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(e) => {
            say(&format!("csn: {e:#}; nothing was run"));
            Ok(ExitCode::from(BLOCKED))
        }
    }
}

/// Whether standard output is /dev/null. The runtime opens /dev/null in place of a closed standard output.
fn is_stdout_discarded() -> bool {
    let null = rustix::fs::stat("/dev/null").map(|stat| stat.st_rdev);
    rustix::fs::fstat(io::stdout()).map_or(true, |stat| stat.st_rdev != 0 && Ok(stat.st_rdev) == null)
}

/// Writes with the system call: the standard library reports success for a standard output that is closed.
fn write_to_stdout(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(io::stdout(), bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// The text that the hook prints. An empty text leaves the decision to the agent.
fn answer(agent: HookAgent, witness: bool) -> anyhow::Result<String> {
    let mut text = String::new();
    io::stdin().lock().take(MAX_INPUT_BYTES).read_to_string(&mut text).context("the hook's input is not text")?;
    let input: HookInput =
        serde_json::from_str(&text).context("the hook's input does not have the form that this agent sends")?;
    let shell = input.tool_name.trim().eq_ignore_ascii_case("bash");
    // A tool of another name that carries a command is a shell, too.
    if !shell && !COMMAND_MEMBERS.iter().any(|name| input.tool_input.contains_key(*name)) {
        return Ok(String::new());
    }
    if matches!(input.hook_event_name.as_str(), "PostToolUse" | "PostToolUseFailure") {
        if witness {
            report_end(agent, &input);
        }
        return Ok(String::new());
    }
    let client = running_daemon()?;
    let Some(command) = input.tool_input.get("command").and_then(Value::as_str) else {
        bail!("the hook's input has no `command` that is text");
    };
    let answer = client.hook(&before_body(agent, &input, command, witness))?;
    Ok(agent_answer(agent, &input, command, answer)?.map(|value| format!("{value}\n")).unwrap_or_default())
}

/// Reports how a command of witness mode ended. A failure blocks nothing: the command has already run.
fn report_end(agent: HookAgent, input: &HookInput) {
    if let Err(e) = running_daemon().and_then(|client| Ok(client.hook_after(&after_body(agent, input)?)?)) {
        say(&format!("csn: the end of the command was not recorded: {e:#}"));
    }
}

/// Connects to the daemon, if it runs.
fn running_daemon() -> anyhow::Result<Client> {
    let TargetHome { client, home, .. } = TargetHome::find()?;
    match client.lifecycle() {
        Ok(_) => Ok(client),
        Err(_) => bail!(
            "no daemon serves {}, so nothing may run: a person must run `csn up --detach` or `csn service install`",
            home.path().display()
        ),
    }
}

fn conversation(agent: HookAgent, input: &HookInput) -> Conversation {
    Conversation {
        agent: agent.name().to_owned(),
        id: input.session_id.clone(),
        cwd: input.cwd.clone(),
        agent_pid: Some(find_agent_above(std::process::id())),
    }
}

fn before_body(agent: HookAgent, input: &HookInput, command: &str, witness: bool) -> HookBeforeBody {
    let number = |name: &str| input.tool_input.get(name).and_then(Value::as_u64);
    let timeout_ms = number("timeout").or_else(|| number("timeout_ms")).unwrap_or_else(|| agent.default_timeout_ms());
    let title = input.tool_input.get("description").and_then(Value::as_str);
    HookBeforeBody {
        conversation: conversation(agent, input),
        command: command.to_owned(),
        inherit: inherited_environment(),
        title: title.map(str::to_owned),
        labels: BTreeMap::new(),
        tool_use: input.tool_use_id.clone(),
        patience_ms: Some(timeout_ms.saturating_sub(MARGIN_MS).max(1_000)),
        witness,
    }
}

/// How the command ended, as far as the agent reports it. An event without an exit code means success: a failure is an
/// event of its own.
fn after_body(agent: HookAgent, input: &HookInput) -> anyhow::Result<HookAfterBody> {
    let response = &input.tool_response;
    let number = |name: &str| response.get(name).and_then(Value::as_i64);
    let failed = input.hook_event_name.ends_with("Failure");
    let code = number("exit_code").or_else(|| number("exitCode")).or_else(|| (!failed).then_some(0));
    Ok(HookAfterBody {
        conversation: conversation(agent, input),
        tool_use: input.tool_use_id.clone().context("the hook's input has no `tool_use_id`")?,
        exit_code: code.map(i32::try_from).transpose().context("the exit code in the hook's input is out of range")?,
        interrupted: response.get("interrupted").and_then(Value::as_bool).unwrap_or(false),
    })
}

/// The answer in the form that the agent understands. If the command must run through `csn exec`, the answer replaces the
/// command and repeats the rest of the tool's input.
fn agent_answer(
    agent: HookAgent,
    input: &HookInput,
    command: &str,
    answer: HookBeforeResponse,
) -> anyhow::Result<Option<Value>> {
    let decision = |decision: Value| json!({"hookSpecificOutput": decision});
    let (ticket, moves) = match answer {
        HookBeforeResponse::Deny { reason, hint, task_id, .. } => {
            let task = task_id.map(|task| format!(" [{task}]")).unwrap_or_default();
            let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
            let reason = format!("countersign: {reason}{hint}{task}");
            return Ok(Some(match agent {
                HookAgent::Opencode => json!({"decision": "deny", "reason": reason}),
                HookAgent::ClaudeCode | HookAgent::Codex => decision(json!({
                    "hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": reason,
                })),
            }));
        }
        HookBeforeResponse::Allow { ticket: None, .. } => {
            return Ok(match agent {
                HookAgent::ClaudeCode => {
                    Some(decision(json!({"hookEventName": "PreToolUse", "permissionDecision": "allow"})))
                }
                // Codex treats a bare allow as a fault of the hook; no output means allow.
                HookAgent::Codex => None,
                HookAgent::Opencode => Some(json!({"decision": "allow"})),
            });
        }
        HookBeforeResponse::Allow { ticket: Some(ticket), moves, .. } => (ticket, moves.unwrap_or(false)),
        HookBeforeResponse::Ask { ticket, moves } => (ticket, moves),
    };
    let csn = std::env::current_exe().context("the path of the csn program is unknown")?;
    let csn = quoted(csn.to_str().context("the path of csn is not UTF-8")?);
    let mut rewritten = format!("{csn} exec --ticket {ticket} -- {}", quoted(command));
    // Only Claude Code keeps its shell's directory between commands.
    if moves && agent == HookAgent::ClaudeCode {
        rewritten += &format!("; csn_status=$?; eval \"$({csn} exec --leave {ticket})\"; (exit $csn_status)");
    }
    let mut tool_input = input.tool_input.clone();
    tool_input.insert("command".to_owned(), Value::String(rewritten));
    Ok(Some(match agent {
        HookAgent::Opencode => json!({"decision": "rewrite", "tool_input": tool_input}),
        HookAgent::ClaudeCode | HookAgent::Codex => {
            decision(json!({"hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": tool_input}))
        }
    }))
}

/// All variables of this process: an agent's command gets the agent's environment.
pub(crate) fn inherited_environment() -> BTreeMap<String, String> {
    let vars = std::env::vars_os();
    vars.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect()
}

/// The base variables that every task gets.
pub(crate) fn base_environment() -> BTreeMap<String, String> {
    inherited_environment().into_iter().filter(|(name, _)| is_base_variable(name)).collect()
}
