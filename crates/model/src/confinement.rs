//! Confinement: what the kernel enforces on a task, what it can enforce here, and what the walls are made of.

use crate::Text;
use serde::{Deserialize, Serialize};

/// What the kernel enforces on a task. In order: each holds it to less than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confinement {
    #[default]
    None,
    /// It cannot signal, trace or read the memory of anything outside itself, nor gain rights.
    Shield,
    /// And it writes only to the roots, a directory of its own and caches, and reads no keys.
    Workspace,
    /// And it writes nothing, reaches nobody, and reads the roots and the system only.
    ReadOnly,
}

impl Confinement {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Shield => "shield",
            Self::Workspace => "workspace",
            Self::ReadOnly => "read_only",
        }
    }
}

/// What a kernel can enforce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// The version of Landlock; 0 where there is none.
    pub landlock: u32,
    pub seccomp: bool,
}

impl Kernel {
    /// The newest that anything here makes use of.
    pub const FULL: Self = Self { landlock: 7, seccomp: true };

    /// Before version 3 a file that may not be written can still be cut off.
    #[must_use]
    pub fn holds(self, confinement: Confinement) -> bool {
        match confinement {
            Confinement::None | Confinement::Shield => true,
            Confinement::Workspace | Confinement::ReadOnly => self.landlock >= 3 && self.seccomp,
        }
    }

    /// Whether a task can be kept from signalling others and still signal its own.
    #[must_use]
    pub fn scopes(self) -> bool {
        self.landlock >= 6
    }

    /// What is missing of a confinement, for the record; empty when it is whole.
    #[must_use]
    pub fn lacks(self, confinement: Confinement) -> Vec<&'static str> {
        let mut lacks = Vec::new();
        if !self.holds(confinement) {
            lacks.push("files");
        }
        // Where it cannot tell its own from others, a read-only task may signal nobody at all: that is whole, too.
        if matches!(confinement, Confinement::Shield | Confinement::Workspace) && !self.scopes() {
            lacks.extend(["signals", "abstract sockets"]);
        }
        if confinement == Confinement::Shield && !self.scopes() {
            lacks.push("tracing");
        }
        lacks
    }
}

/// What was really in force when a process was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforced {
    /// The version of Landlock that was used.
    pub landlock: u32,
    pub seccomp: bool,
    /// What the kernel could not do of it; empty when it was whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Text>,
}

/// Whom a task in a workspace may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    #[default]
    Open,
    /// No socket of any kind, but pairs of its own.
    None,
}

/// What the walls of a task are made of. The supervisor builds them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walls {
    /// What may be read, and in a workspace written; without links in their names.
    pub roots: Vec<String>,
    /// Reading goes everywhere but where secrets are kept.
    pub read_all: bool,
    /// The homes where keys are known by name, as `places` has them.
    pub homes: String,
    /// The home of whoever runs the house: its toolchains, caches and settings are used, whatever an asker calls theirs.
    pub home: String,
    /// Countersign's own places: never.
    pub protected: Vec<String>,
    /// The programs that the plan names, where they were found.
    pub programs: Vec<String>,
    pub network: Network,
    /// What may be made use of: never more than the kernel has.
    pub kernel: Kernel,
}
