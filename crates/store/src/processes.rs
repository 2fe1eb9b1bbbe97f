//! Who started whom, and which of them is an agent.

use crate::{Home, proc};
use countersign_model::{Process, ProcessKind};
use std::{fs, io};

const AGENTS: &str = "agents";
/// Deeper than anybody wraps a program.
const DEEPEST: usize = 32;

/// The process of the agent that started this one: the first program above it, or, below a person's own place, the
/// topmost of what only started it; at last itself.
#[must_use]
pub fn agent_above(pid: u32) -> u32 {
    let mut at = pid;
    for _ in 0..DEEPEST {
        match parent_of(at).map(|parent| (parent, kind(parent))) {
            Some((parent, ProcessKind::Passes)) if parent > 1 => at = parent,
            // In a container the first process may well be the agent.
            Some((parent, ProcessKind::Program)) if parent > 0 => return parent,
            _ => return at,
        }
    }
    at
}

/// Whether a process is a person's place: their shell, or what such shells are below. Nobody makes an agent of that.
#[must_use]
pub fn is_a_persons(pid: u32) -> bool {
    kind(pid) == ProcessKind::Person
}

/// Keeps who is known for an agent where it can be read while no daemon runs.
pub fn keep_agents(home: &Home, agents: impl Iterator<Item = Process>) -> io::Result<()> {
    let lines: String = agents.filter(|a| is_there(*a)).map(|a| format!("{} {}\n", a.pid, a.start)).collect();
    let (path, new) = (home.run().join(AGENTS), home.run().join("agents.new"));
    fs::write(&new, lines)?;
    fs::rename(new, path)
}

/// Whether this process is below one that the last daemon knew for an agent.
#[must_use]
pub fn below_an_agent(home: &Home) -> bool {
    let kept = fs::read_to_string(home.run().join(AGENTS)).unwrap_or_default();
    let agents: Vec<Process> = kept
        .lines()
        .filter_map(|line| {
            let (pid, start) = line.split_once(' ')?;
            Some(Process { pid: pid.parse().ok()?, start: start.parse().ok()? })
        })
        .collect();
    let mut at = Some(std::process::id());
    while let Some(pid) = at.filter(|pid| *pid > 0) {
        if agents.iter().any(|agent| agent.pid == pid && is_there(*agent)) {
            return true;
        }
        at = parent_of(pid);
    }
    false
}

fn is_there(process: Process) -> bool {
    proc::stat(process.pid).is_ok_and(|stat| stat.process == process)
}

fn parent_of(pid: u32) -> Option<u32> {
    proc::stat(pid).ok().map(|stat| stat.parent)
}

fn kind(pid: u32) -> ProcessKind {
    let comm = proc::comm(pid).ok().and_then(|name| String::from_utf8(name).ok()).unwrap_or_default();
    let words = proc::arguments(pid).unwrap_or_default();
    // One that may not be looked into has a terminal for all we know.
    let terminal = proc::open_file(pid, 0).map_or(true, |input| {
        ["/dev/pts/", "/dev/tty", "/dev/console"].iter().any(|t| input.to_string_lossy().starts_with(t))
    });
    ProcessKind::classify(comm.trim_end(), &words, terminal)
}
