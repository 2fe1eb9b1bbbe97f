//! Recognises processes that left the tree of a registered agent: `(cmd &)` in a subshell is enough, because the kernel
//! reparents an orphan to the first process.
//!
//! Two traces stay with such a process. Where the daemon may create control groups, every registered agent gets its own
//! group, which all its descendants inherit. And agents set variables in the environment of their commands, which are
//! inherited unless they are cleared. Neither stops a process that tries to escape: one that may write to another
//! control group and clears its environment is taken for a person's.

use crate::peer::{AgentTrace, ProcessChain};
use countersign_model::{Process, Roster};
use countersign_shim::{tree, with_owner_ids};
use countersign_store::{is_person_terminal, proc};
use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

/// Variables that only agents set for the programs that they run.
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
const GROUP_PREFIX: &str = "csn-agent";
/// How often the descendants are listed: those that start during one pass are moved in the next.
const MOVE_PASSES: usize = 8;

/// Searches a process and its ancestors for a trace of an agent, lowest first.
pub(crate) fn find_trace(chain: &ProcessChain, roster: &Roster) -> Option<AgentTrace> {
    // Without a registered agent, no process can have left one.
    roster.agents().next()?;
    let grouped = chain.iter().filter_map(|(process, _)| agent_of_group(&control_group(process.pid)?));
    let session = grouped.filter_map(|agent| roster.session_of_agent(agent)).map(|s| s.id).next();
    if let Some(session) = session {
        return Some(AgentTrace::Group(session));
    }
    let (variable, parent) =
        chain.iter().rev().find_map(|(process, parent)| Some((find_agent_variable(process.pid)?, *parent)))?;
    // Below an agent that is not registered yet, the agent's process is still an ancestor. It must be able to register.
    (parent <= 1 || is_person_terminal(parent)).then_some(AgentTrace::Variable(variable))
}

fn find_agent_variable(pid: u32) -> Option<&'static str> {
    let environ = with_owner_ids(pid, || proc::environ(pid)).ok()?;
    AGENT_VARIABLES.iter().find(|variable| environ.has(variable)).copied()
}

/// The control group of a process, in the hierarchy of cgroup version 2.
fn control_group(pid: u32) -> Option<String> {
    proc::control_group(pid).ok()?
}

/// The agent that a group was created for.
fn agent_of_group(path: &str) -> Option<Process> {
    path.split('/').find_map(|name| {
        let (pid, start) = name.strip_prefix(GROUP_PREFIX)?.strip_prefix('-')?.split_once('-')?;
        Some(Process { pid: pid.parse().ok()?, start: start.parse().ok()? })
    })
}

/// The control groups that were created for agents.
#[derive(Default)]
pub(crate) struct AgentGroups {
    /// None if the group could not be created; it is not tried again.
    groups: HashMap<Process, Option<PathBuf>>,
}

impl AgentGroups {
    /// Gives every agent its own group where that is permitted, and removes the groups that are empty.
    pub(crate) fn update(&mut self, agents: impl Iterator<Item = Process>) {
        let there: Vec<Process> = agents.filter(|agent| crate::peer::is_running(*agent).unwrap_or(true)).collect();
        for agent in &there {
            self.groups.entry(*agent).or_insert_with(|| create_group(*agent));
        }
        // A group that still has processes cannot be removed, and stays.
        self.groups.retain(|agent, group| {
            there.contains(agent) || group.as_ref().is_some_and(|group| fs::remove_dir(group).is_err())
        });
    }
}

/// Moves an agent and all its descendants into a group below its current one.
fn create_group(agent: Process) -> Option<PathBuf> {
    let within = control_group(agent.pid)?;
    if let Some(held) = agent_of_group(&within) {
        // An agent that another agent started stays in that agent's group. So does one that was moved before a restart.
        return (held == agent).then(|| cgroup_root().map(|root| root.join(within.trim_start_matches('/'))))?;
    }
    let group = cgroup_root()?
        .join(within.trim_start_matches('/'))
        .join(format!("{GROUP_PREFIX}-{}-{}", agent.pid, agent.start));
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
        if fresh.is_empty() || !crate::peer::is_running(agent).unwrap_or(true) {
            break;
        }
        // The agent first: its new children then start in the group.
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

/// The mount point of cgroup version 2: alone, or beside version 1.
fn cgroup_root() -> Option<PathBuf> {
    let places = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    places.into_iter().find(|place| place.join("cgroup.procs").exists()).map(Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_name_identifies_its_agent() {
        let agent = Process { pid: 42, start: 4711 };
        for path in ["/csn-agent-42-4711", "/user.slice/a.scope/csn-agent-42-4711", "/csn-agent-42-4711/below"] {
            assert_eq!(agent_of_group(path), Some(agent), "{path}");
        }
        for path in ["/", "/csn-agent", "/csn-agent-42", "/csn-agent-x-1", "/xcsn-agent-42-4711"] {
            assert_eq!(agent_of_group(path), None, "{path}");
        }
    }
}
