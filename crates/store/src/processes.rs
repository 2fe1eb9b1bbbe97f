//! Processes, as `/proc` tells of them: who started whom.

use countersign_model::Starter;
use std::fs;

/// Deeper than anybody wraps a program.
const DEEPEST: usize = 32;

/// The process of the agent that started this one: the first program above it, or, below a person's own place, the
/// topmost of what only started it; at last itself.
#[must_use]
pub fn agent_above(pid: u32) -> u32 {
    let mut at = pid;
    for _ in 0..DEEPEST {
        match parent_of(at).map(|parent| (parent, kind(parent))) {
            Some((parent, Starter::Passes)) if parent > 1 => at = parent,
            Some((parent, Starter::Program)) if parent > 1 => return parent,
            _ => return at,
        }
    }
    at
}

/// Whether `agent` itself started a process, with nothing but shells and wrappers between them.
#[must_use]
pub fn started_by(pid: u32, agent: u32) -> bool {
    agent_above(pid) == agent
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn kind(pid: u32) -> Starter {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line.split(|b| *b == 0).filter(|w| !w.is_empty()).map(|w| String::from_utf8_lossy(w).into_owned());
    let words: Vec<String> = words.collect();
    let input = fs::read_link(format!("/proc/{pid}/fd/0")).unwrap_or_default();
    // One that may not be looked into has a terminal for all we know.
    let hidden = input.as_os_str().is_empty();
    let terminal =
        hidden || ["/dev/pts/", "/dev/tty", "/dev/console"].iter().any(|t| input.to_string_lossy().starts_with(t));
    Starter::of(comm.trim_end(), &words, terminal)
}
