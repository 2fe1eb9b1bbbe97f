//! `hook`: what an agent is about to run, put to the house before it does.
//!
//! It fails closed: whatever goes wrong here, the agent is told not to run it. It starts no house.

use crate::{args::HookAgent, exec::quoted, house::Place, say};
use anyhow::{Context as _, bail};
use countersign_client::{Client, Hooked};
use countersign_model::is_base_variable;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
    process::ExitCode,
    time::Duration,
};

/// What every agent takes for "do not run it", whatever else was said.
const BLOCKED: u8 = 2;
/// Shorter than any agent waits for its hook: some of them run the command when a hook takes too long.
const DEADLINE: Duration = Duration::from_secs(30);
const LONGEST: u64 = 8 * 1024 * 1024;
/// How long before its tool gives up whoever waits for a person says that it goes on without them.
const MARGIN_MS: u64 = 5_000;

/// What an agent says on standard input. Claude Code and Codex speak alike, and our plugin for opencode like them.
#[derive(Deserialize)]
struct Said {
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
    match answered(agent, witness) {
        Ok(answer) => {
            let mut out = io::stdout().lock();
            out.write_all(answer.as_bytes())?;
            out.flush()?;
            Ok(ExitCode::SUCCESS)
        }
        Err(e) => {
            say(&format!("csn: {e:#}; nothing was run"));
            Ok(ExitCode::from(BLOCKED))
        }
    }
}

/// What is printed; nothing is no opinion.
fn answered(agent: HookAgent, witness: bool) -> anyhow::Result<String> {
    let mut text = String::new();
    io::stdin().lock().take(LONGEST).read_to_string(&mut text).context("the hook's input is not text")?;
    let said: Said = serde_json::from_str(&text).context("the hook's input is not what this agent sends")?;
    if !said.tool_name.eq_ignore_ascii_case("bash") {
        return Ok(String::new());
    }
    let client = house()?;
    if said.hook_event_name.starts_with("PostToolUse") {
        if witness {
            client.hook_after(&told(agent, &said))?;
        }
        return Ok(String::new());
    }
    let Some(command) = said.tool_input.get("command").and_then(Value::as_str) else {
        bail!("the hook's input names no command");
    };
    let hooked = client.hook(&asked(agent, &said, command, witness))?;
    Ok(shaped(agent, &said, command, hooked)?.map(|value| format!("{value}\n")).unwrap_or_default())
}

/// The house that is meant, if it is up.
fn house() -> anyhow::Result<Client> {
    let Place { client, home, .. } = Place::find()?;
    match client.lifecycle() {
        Ok(_) => Ok(client),
        Err(_) => bail!(
            "no house serves {}, so nothing may run: a person starts it with `csn up --detach` or `csn service install`",
            home.path().display()
        ),
    }
}

fn conversation(agent: HookAgent, said: &Said) -> Value {
    json!({"agent": agent.name(), "id": said.session_id, "cwd": said.cwd, "agent_pid": agent_above()})
}

fn asked(agent: HookAgent, said: &Said, command: &str, witness: bool) -> Value {
    let number = |name: &str| said.tool_input.get(name).and_then(Value::as_u64);
    let patience = number("timeout").or_else(|| number("timeout_ms")).unwrap_or_else(|| agent.patience_ms());
    let title = said.tool_input.get("description").and_then(Value::as_str);
    json!({
        "conversation": conversation(agent, said),
        "command": command,
        "inherit": inherited(),
        "title": title,
        "tool_use": said.tool_use_id,
        "patience_ms": patience.saturating_sub(MARGIN_MS).max(1_000),
        "witness": witness,
    })
}

/// How it went, as far as the agent says. Where it says no more than that it is done, it went well: a failure is
/// another event.
fn told(agent: HookAgent, said: &Said) -> Value {
    let response = &said.tool_response;
    let number = |name: &str| response.get(name).and_then(Value::as_i64);
    let failed = said.hook_event_name.ends_with("Failure");
    let code = number("exit_code").or_else(|| number("exitCode")).or_else(|| (!failed).then_some(0));
    json!({
        "conversation": conversation(agent, said),
        "tool_use": said.tool_use_id,
        "exit_code": code,
        "interrupted": response.get("interrupted").and_then(Value::as_bool).unwrap_or(false),
    })
}

/// The answer in the agent's own words. What it runs instead is the whole input of its tool with another command.
fn shaped(agent: HookAgent, said: &Said, command: &str, hooked: Hooked) -> anyhow::Result<Option<Value>> {
    let decision = |decision: Value| json!({"hookSpecificOutput": decision});
    let (ticket, moves) = match hooked {
        Hooked::Deny { reason, hint, task_id } => {
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
        Hooked::Allow { ticket: None, .. } => {
            return Ok(match agent {
                HookAgent::ClaudeCode => {
                    Some(decision(json!({"hookEventName": "PreToolUse", "permissionDecision": "allow"})))
                }
                // Codex takes a bare allow for a fault of the hook; saying nothing is how it is told.
                HookAgent::Codex => None,
                HookAgent::Opencode => Some(json!({"decision": "allow"})),
            });
        }
        Hooked::Allow { ticket: Some(ticket), moves } | Hooked::Ask { ticket, moves } => (ticket, moves),
    };
    let csn = std::env::current_exe().context("this program cannot be found")?;
    let csn = quoted(csn.to_str().context("the path of csn is not UTF-8")?);
    let mut rewritten = format!("{csn} exec --ticket {ticket} -- {}", quoted(command));
    // The shell of the others begins where it began before, whatever a command did.
    if moves && agent == HookAgent::ClaudeCode {
        rewritten += &format!("; eval \"$({csn} exec --leave {ticket} $?)\"");
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

/// The process of the agent that started us: the first one above that is not a shell it started us with. A person's own
/// shell is no agent; then we are.
pub(crate) fn agent_above() -> u32 {
    let me = std::process::id();
    let mut at = me;
    for _ in 0..8 {
        let Some(parent) = parent_of(at) else { return me };
        match shell(parent) {
            Some(Shell::OneCommand) => at = parent,
            Some(Shell::Interactive) => return me,
            None if parent > 1 => return parent,
            None => return me,
        }
    }
    me
}

enum Shell {
    /// `sh -c '…'`, or something that only starts another program.
    OneCommand,
    /// Nothing but options: somebody types into it.
    Interactive,
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn shell(pid: u32) -> Option<Shell> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<String> =
        line.split(|b| *b == 0).filter(|w| !w.is_empty()).map(|w| String::from_utf8_lossy(w).into_owned()).collect();
    kind_of(&words)
}

fn kind_of(words: &[String]) -> Option<Shell> {
    let (name, rest) = words.split_first()?;
    let name = name.rsplit('/').next().unwrap_or_default().trim_start_matches('-');
    if matches!(name, "timeout" | "env" | "nice" | "nohup" | "setsid" | "stdbuf") {
        return Some(Shell::OneCommand);
    }
    if !matches!(name, "sh" | "bash" | "dash" | "zsh" | "ksh" | "fish" | "ash") {
        return None;
    }
    let options = rest.iter().take_while(|w| w.starts_with('-')).count();
    let one = rest[..options].iter().any(|w| !w.starts_with("--") && w.contains('c'));
    match (one, rest.len() == options) {
        (true, _) => Some(Shell::OneCommand),
        (false, true) => Some(Shell::Interactive),
        // A script is a program like any other.
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &str) -> &'static str {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        match kind_of(&words) {
            Some(Shell::OneCommand) => "one command",
            Some(Shell::Interactive) => "interactive",
            None => "a program",
        }
    }

    #[test]
    fn a_shell_that_was_started_for_us_is_told_from_a_persons() {
        for (line, is) in [
            ("/bin/sh -c csn", "one command"),
            ("bash -lc csn", "one command"),
            ("sh -e -c csn", "one command"),
            ("timeout -k 1 60 csn hook codex", "one command"),
            ("-bash", "interactive"),
            ("/usr/bin/zsh -il", "interactive"),
            ("bash --login", "interactive"),
            ("bash agent.sh", "a program"),
            ("node /usr/bin/claude -p x", "a program"),
            ("/opt/bash-agent/run -c x", "a program"),
        ] {
            assert_eq!(kind(line), is, "{line}");
        }
    }
}
