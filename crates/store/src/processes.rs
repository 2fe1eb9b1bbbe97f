//! Which process started which, and which of them is an agent.

use crate::{Home, proc};
use countersign_model::{Process, ProcessKind};
use std::{fs, io};

const AGENTS_FILE: &str = "agents";
/// Deeper than programs are ever wrapped.
const MAX_PARENT_STEPS: usize = 32;

/// The process of the agent that started this one: the first program above it. Below a person's terminal it is the
/// topmost wrapper; if there is none, the process itself.
#[must_use]
pub fn find_agent_above(pid: u32) -> u32 {
    let mut at = pid;
    for _ in 0..MAX_PARENT_STEPS {
        match parent_of(at).map(|parent| (parent, process_kind(parent))) {
            Some((parent, ProcessKind::Passes)) if parent > 1 => at = parent,
            // In a container, the first process may be the agent.
            Some((parent, ProcessKind::Program)) if parent > 0 => return parent,
            _ => return at,
        }
    }
    at
}

/// Whether a process is a person's terminal: their shell, or a program that contains such shells. It never becomes an
/// agent.
#[must_use]
pub fn is_person_terminal(pid: u32) -> bool {
    process_kind(pid) == ProcessKind::Person
}

/// Saves the known agents to a file that can be read while no daemon runs.
pub fn save_agents(home: &Home, agents: impl Iterator<Item = Process>) -> io::Result<()> {
    let lines: String = agents.filter(|a| is_running(*a)).map(|a| format!("{} {}\n", a.pid, a.start)).collect();
    let (path, new) = (home.run().join(AGENTS_FILE), home.run().join("agents.new"));
    fs::write(&new, lines)?;
    fs::rename(new, path)
}

/// Whether this process is below one that the last daemon knew as an agent.
#[must_use]
pub fn is_below_agent(home: &Home) -> bool {
    let saved = fs::read_to_string(home.run().join(AGENTS_FILE)).unwrap_or_default();
    let agents: Vec<Process> = saved
        .lines()
        .filter_map(|line| {
            let (pid, start) = line.split_once(' ')?;
            Some(Process { pid: pid.parse().ok()?, start: start.parse().ok()? })
        })
        .collect();
    let mut at = Some(std::process::id());
    while let Some(pid) = at.filter(|pid| *pid > 0) {
        if agents.iter().any(|agent| agent.pid == pid && is_running(*agent)) {
            return true;
        }
        at = parent_of(pid);
    }
    false
}

fn is_running(process: Process) -> bool {
    proc::stat(process.pid).is_ok_and(|stat| stat.process == process)
}

fn parent_of(pid: u32) -> Option<u32> {
    proc::stat(pid).ok().map(|stat| stat.parent)
}

fn process_kind(pid: u32) -> ProcessKind {
    let comm = proc::comm(pid).ok().and_then(|name| String::from_utf8(name).ok()).unwrap_or_default();
    let words = proc::arguments(pid).unwrap_or_default();
    // A process that may not be inspected might have a terminal.
    let terminal = proc::open_file(pid, 0).map_or(true, |input| {
        ["/dev/pts/", "/dev/tty", "/dev/console"].iter().any(|t| input.to_string_lossy().starts_with(t))
    });
    ProcessKind::classify(comm.trim_end(), &words, terminal)
}
