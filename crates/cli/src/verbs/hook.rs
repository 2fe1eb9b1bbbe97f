//! `hook`: what an agent is about to run, put to the house before it does.
//!
//! It fails closed: whatever goes wrong here, the agent is told not to run it. It starts no house.

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

/// What every agent takes for "do not run it", whatever else was said.
const BLOCKED: u8 = 2;
/// Shorter than any agent waits for its hook: some of them run the command when a hook takes too long.
const DEADLINE: Duration = Duration::from_secs(30);
const LONGEST: u64 = 8 * 1024 * 1024;
/// How agents call what their shell is to run.
const COMMANDS: &[&str] = &["command", "cmd", "script", "shell_command"];
/// How long before its tool gives up whoever waits for a person says that it goes on without them.
const MARGIN_MS: u64 = 5_000;

/// What an agent says on standard input. Claude Code and Codex speak alike, and our plugin for opencode like them.
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

    /// How long its shell tool waits for a command that names no time.
    fn patience_ms(self) -> u64 {
        let named = |name: &str| std::env::var(name).ok().and_then(|ms| ms.parse().ok());
        match self {
            Self::ClaudeCode => named("BASH_DEFAULT_TIMEOUT_MS").unwrap_or(120_000),
            Self::Codex => 10_000,
            Self::Opencode => 120_000,
        }
    }
}

pub(crate) fn hook(agent: HookAgent, witness: bool) -> anyhow::Result<ExitCode> {
    std::thread::spawn(|| {
        std::thread::sleep(DEADLINE);
        say("csn: the house did not answer in time; nothing was run");
        std::process::exit(i32::from(BLOCKED));
    });
    let answered = answered(agent, witness).and_then(|answer| {
        anyhow::ensure!(answer.is_empty() || !goes_nowhere(), "nobody reads the answer");
        written(answer.as_bytes()).context("nobody reads the answer")
    });
    match answered {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(e) => {
            say(&format!("csn: {e:#}; nothing was run"));
            Ok(ExitCode::from(BLOCKED))
        }
    }
}

/// Whether standard output is nobody's: a closed one was made that before we began.
fn goes_nowhere() -> bool {
    let null = rustix::fs::stat("/dev/null").map(|stat| stat.st_rdev);
    rustix::fs::fstat(io::stdout()).map_or(true, |stat| stat.st_rdev != 0 && Ok(stat.st_rdev) == null)
}

/// By the call itself: the library takes a descriptor that cannot be written to for one that was written to.
fn written(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(io::stdout(), bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// What is printed; nothing is no opinion.
fn answered(agent: HookAgent, witness: bool) -> anyhow::Result<String> {
    let mut text = String::new();
    io::stdin().lock().take(LONGEST).read_to_string(&mut text).context("the hook's input is not text")?;
    let said: HookInput = serde_json::from_str(&text).context("the hook's input is not what this agent sends")?;
    let shell = said.tool_name.trim().eq_ignore_ascii_case("bash");
    // A tool by any other name that is given a command is a shell, too.
    if !shell && !COMMANDS.iter().any(|name| said.tool_input.contains_key(*name)) {
        return Ok(String::new());
    }
    if matches!(said.hook_event_name.as_str(), "PostToolUse" | "PostToolUseFailure") {
        return Ok(if witness { after(agent, &said) } else { String::new() });
    }
    let client = daemon()?;
    let Some(command) = said.tool_input.get("command").and_then(Value::as_str) else {
        bail!("the hook's input names no command that can be read");
    };
    let answer = client.hook(&asked(agent, &said, command, witness))?;
    Ok(shaped(agent, &said, command, answer)?.map(|value| format!("{value}\n")).unwrap_or_default())
}

/// What has run has run: that its end cannot be written down blocks nothing.
fn after(agent: HookAgent, said: &HookInput) -> String {
    if let Err(e) = daemon().and_then(|client| Ok(client.hook_after(&told(agent, said)?)?)) {
        say(&format!("csn: how it ended was not written down: {e:#}"));
    }
    String::new()
}

/// The house that is meant, if it is up.
fn daemon() -> anyhow::Result<Client> {
    let TargetHome { client, home, .. } = TargetHome::find()?;
    match client.lifecycle() {
        Ok(_) => Ok(client),
        Err(_) => bail!(
            "no house serves {}, so nothing may run: a person starts it with `csn up --detach` or `csn service install`",
            home.path().display()
        ),
    }
}

fn conversation(agent: HookAgent, said: &HookInput) -> Conversation {
    Conversation {
        agent: agent.name().to_owned(),
        id: said.session_id.clone(),
        cwd: said.cwd.clone(),
        agent_pid: Some(find_agent_above(std::process::id())),
    }
}

fn asked(agent: HookAgent, said: &HookInput, command: &str, witness: bool) -> HookBeforeBody {
    let number = |name: &str| said.tool_input.get(name).and_then(Value::as_u64);
    let patience = number("timeout").or_else(|| number("timeout_ms")).unwrap_or_else(|| agent.patience_ms());
    let title = said.tool_input.get("description").and_then(Value::as_str);
    HookBeforeBody {
        conversation: conversation(agent, said),
        command: command.to_owned(),
        inherit: inherited(),
        title: title.map(str::to_owned),
        labels: BTreeMap::new(),
        tool_use: said.tool_use_id.clone(),
        patience_ms: Some(patience.saturating_sub(MARGIN_MS).max(1_000)),
        witness,
    }
}

/// How it went, as far as the agent says. Where it says no more than that it is done, it went well: a failure is
/// another event.
fn told(agent: HookAgent, said: &HookInput) -> anyhow::Result<HookAfterBody> {
    let response = &said.tool_response;
    let number = |name: &str| response.get(name).and_then(Value::as_i64);
    let failed = said.hook_event_name.ends_with("Failure");
    let code = number("exit_code").or_else(|| number("exitCode")).or_else(|| (!failed).then_some(0));
    Ok(HookAfterBody {
        conversation: conversation(agent, said),
        tool_use: said.tool_use_id.clone().context("the hook's input does not name the use of the tool")?,
        exit_code: code.map(i32::try_from).transpose().context("the exit code is no exit code")?,
        interrupted: response.get("interrupted").and_then(Value::as_bool).unwrap_or(false),
    })
}

/// The answer in the agent's own words. What it runs instead is the whole input of its tool with another command.
fn shaped(
    agent: HookAgent,
    said: &HookInput,
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
                // Codex takes a bare allow for a fault of the hook; saying nothing is how it is told.
                HookAgent::Codex => None,
                HookAgent::Opencode => Some(json!({"decision": "allow"})),
            });
        }
        HookBeforeResponse::Allow { ticket: Some(ticket), moves, .. } => (ticket, moves.unwrap_or(false)),
        HookBeforeResponse::Ask { ticket, moves } => (ticket, moves),
    };
    let csn = std::env::current_exe().context("this program cannot be found")?;
    let csn = quoted(csn.to_str().context("the path of csn is not UTF-8")?);
    let mut rewritten = format!("{csn} exec --ticket {ticket} -- {}", quoted(command));
    // The shell of the others begins where it began before, whatever a command did.
    if moves && agent == HookAgent::ClaudeCode {
        rewritten += &format!("; csn_status=$?; eval \"$({csn} exec --leave {ticket})\"; (exit $csn_status)");
    }
    let mut input = said.tool_input.clone();
    input.insert("command".to_owned(), Value::String(rewritten));
    Ok(Some(match agent {
        HookAgent::Opencode => json!({"decision": "rewrite", "tool_input": input}),
        HookAgent::ClaudeCode | HookAgent::Codex => {
            decision(json!({"hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": input}))
        }
    }))
}

/// All that is set here: the command of an agent has its agent's environment.
pub(crate) fn inherited() -> BTreeMap<String, String> {
    let vars = std::env::vars_os();
    vars.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect()
}

/// What every task has.
pub(crate) fn base() -> BTreeMap<String, String> {
    inherited().into_iter().filter(|(name, _)| is_base_variable(name)).collect()
}
