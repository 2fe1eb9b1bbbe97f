//! Processes that left the tree of a registered agent: `(cmd &)` in a subshell is enough, because the kernel gives an orphan
//! to the first process.
//!
//! Two things stay with such a process. Where the daemon may make control groups, every registered agent gets one of its own,
//! which all of its descendants are born into, whatever they clear or fork. And agents put variables into the environment of
//! what they run, which are inherited unless they are cleared. Neither stops a process that works at getting away: one that
//! may write to another control group and clears its environment is taken for a person's.

use crate::peer::{AgentTrace, ProcessChain};
use countersign_model::{Process, Roster};
use countersign_shim::{as_owner_of, tree};
use countersign_store::{is_person_terminal, proc};
use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

/// Variables that agents set for the programs that they run, and nobody else does.
const AGENT_VARIABLES: &[&str] = &[
    "CLAUDECODE",
    "CODEX_SANDBOX",
    "CODEX_SANDBOX_NETWORK_DISABLED",
    "OPENCODE",
    "GEMINI_CLI",
    "QWEN_CODE",
    "CURSOR_AGENT",
    "GOOSE_TERMINAL",
    "CLINE_ACTIVE",
];
const GROUP: &str = "csn-agent";
/// Descendants that are born while others are moved are moved in the next pass.
const MOVE_PASSES: usize = 8;

/// Looks at a process and everything above it, lowest first.
pub(crate) fn left(chain: &ProcessChain, roster: &Roster) -> Option<AgentTrace> {
    // Without a registered agent there is nobody to have left.
    roster.agents().next()?;
    let grouped = chain.iter().filter_map(|(process, _)| agent_of_group(&group_of(process.pid)?));
    let session = grouped.filter_map(|agent| roster.session_of_agent(agent)).map(|s| s.id).next();
    if let Some(session) = session {
        return Some(AgentTrace::Group(session));
    }
    let (variable, parent) = chain.iter().rev().find_map(|(process, parent)| Some((carried(process.pid)?, *parent)))?;
    // Below an agent that is not registered yet, which is how one comes to be registered, that agent's process stands above.
    (parent <= 1 || is_person_terminal(parent)).then_some(AgentTrace::Variable(variable))
}

fn carried(pid: u32) -> Option<&'static str> {
    let environ = as_owner_of(pid, || proc::environ(pid)).ok()?;
    AGENT_VARIABLES.iter().find(|variable| environ.has(variable)).copied()
}

/// Where a process is in the hierarchy of version 2.
fn group_of(pid: u32) -> Option<String> {
    proc::control_group(pid).ok()?
}

/// The agent that a group was made for.
fn agent_of_group(path: &str) -> Option<Process> {
    path.split('/').find_map(|name| {
        let (pid, start) = name.strip_prefix(GROUP)?.strip_prefix('-')?.split_once('-')?;
        Some(Process { pid: pid.parse().ok()?, start: start.parse().ok()? })
    })
}

/// The control groups that were made for agents.
#[derive(Default)]
pub(crate) struct AgentGroups {
    /// None where one could not be made: that is not tried again.
    made: HashMap<Process, Option<PathBuf>>,
}

impl AgentGroups {
    /// Gives every agent a group of its own, where that is allowed, and takes those away that are empty.
    pub(crate) fn keep(&mut self, agents: impl Iterator<Item = Process>) {
        let there: Vec<Process> = agents.filter(|agent| crate::peer::is_there(*agent).unwrap_or(true)).collect();
        for agent in &there {
            self.made.entry(*agent).or_insert_with(|| enclose(*agent));
        }
        // One that still holds somebody cannot be removed, and stays.
        self.made.retain(|agent, group| {
            there.contains(agent) || group.as_ref().is_some_and(|group| fs::remove_dir(group).is_err())
        });
    }
}

/// Moves an agent and all that is below it into a group below the one that it is in.
fn enclose(agent: Process) -> Option<PathBuf> {
    let within = group_of(agent.pid)?;
    if let Some(held) = agent_of_group(&within) {
        // An agent that another agent has started stays in its group, and so does whatever was moved before a restart.
        return (held == agent).then(|| hierarchy().map(|root| root.join(within.trim_start_matches('/'))))?;
    }
    let group =
        hierarchy()?.join(within.trim_start_matches('/')).join(format!("{GROUP}-{}-{}", agent.pid, agent.start));
    match fs::create_dir(&group) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return None,
        _ => {}
    }
    let procs = group.join("cgroup.procs");
    let mut moved = Vec::new();
    for _ in 0..MOVE_PASSES {
        let mut all = tree::descendants(agent.pid);
        all.push(agent.pid);
        let fresh: Vec<u32> = all.into_iter().filter(|pid| !moved.contains(pid)).collect();
        if fresh.is_empty() || !crate::peer::is_there(agent).unwrap_or(true) {
            break;
        }
        // The agent first: what it starts from then on is born there.
        for pid in fresh.into_iter().rev() {
            if fs::write(&procs, pid.to_string()).is_err() && pid == agent.pid {
                let _ = fs::remove_dir(&group);
                return None;
            }
            moved.push(pid);
        }
    }
    Some(group)
}

/// Where the hierarchy of version 2 is: alone, or beside those of version 1.
fn hierarchy() -> Option<PathBuf> {
    let places = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    places.into_iter().find(|place| place.join("cgroup.procs").exists()).map(Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_group_tells_its_agent() {
        let agent = Process { pid: 42, start: 4711 };
        for path in ["/csn-agent-42-4711", "/user.slice/a.scope/csn-agent-42-4711", "/csn-agent-42-4711/below"] {
            assert_eq!(agent_of_group(path), Some(agent), "{path}");
        }
        for path in ["/", "/csn-agent", "/csn-agent-42", "/csn-agent-x-1", "/xcsn-agent-42-4711"] {
            assert_eq!(agent_of_group(path), None, "{path}");
        }
    }
}
