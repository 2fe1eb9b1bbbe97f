//! The plan: the one normal form of a request, and the facts that the world adds to it.

use crate::{Digest, HouseKey, Request};
use serde::{Deserialize, Serialize};

/// What would run. Raw, like the request: its digest and its clean display text are what gets recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub occurrences: Vec<Occurrence>,
}

/// One simple command somewhere in a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Occurrence {
    pub verb: String,
    pub words: Vec<String>,
    pub directory: String,
    /// Why this could not be read, when it could not.
    pub opaque: Option<Opaque>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Opaque {
    /// Shell text that has not been taken apart.
    ShellText,
}

/// One named reason for care.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    Write,
    Destructive,
    Network,
    Credential,
    HostModifying,
    FilesystemWide,
    Privileged,
    WorkspaceCode,
    Opaque,
    Interactive,
    Background,
    #[serde(rename = "self")]
    OfSelf,
}

/// A risk with the occurrence that caused it and the reason in one line.
#[derive(Debug, Clone, PartialEq)]
pub struct RiskNote {
    pub risk: Risk,
    pub occurrence: usize,
    pub reason: &'static str,
}

/// What the kernel enforces on a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confinement {
    #[default]
    None,
}

/// What the world says about the paths and programs of a plan. Taken at the ask, again at launch; both must agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    pub cwd: PathFact,
    /// The program that will be executed; none when there is no such file.
    pub program: Option<PathFact>,
}

/// A path, where it leads through links, and which file that is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathFact {
    pub path: String,
    pub resolved: String,
    pub dev: u64,
    pub inode: u64,
}

impl Plan {
    /// Identifies this exact request: what runs, where, with which environment, and how it may end.
    pub fn digest(key: &HouseKey, request: &Request, cwd: &str) -> Digest {
        let args = &request.args;
        let mut parts: Vec<&[u8]> = vec![cwd.as_bytes(), if args.argv.is_some() { b"argv" } else { b"text" }];
        parts.extend(args.command.iter().map(|c| c.as_bytes()));
        parts.extend(args.argv.iter().flatten().map(|w| w.as_bytes()));
        for map in [&args.env, &args.inherit] {
            parts.push(b"env");
            parts.extend(map.iter().flat_map(|(k, v)| [k.as_bytes(), v.as_bytes()]));
        }
        let rest = format!(
            "{:?} {:?} {:?} {:?} {:?} {}",
            request.mode,
            request.leftovers,
            request.limits,
            request.on_output_limit,
            request.on_session_end,
            args.stdin
        );
        parts.push(rest.as_bytes());
        key.digest("plan", &parts)
    }
}
