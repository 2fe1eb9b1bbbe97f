//! Programs that are programmed in their own words: what such a program can do, told by parsing it.

mod awk;
mod jq;
mod sed;

pub(crate) use awk::awk;
pub(crate) use jq::{jq, yq};
pub(crate) use sed::sed;

/// What a program text does, and the files that it names; none is one that it makes up as it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) does: Does,
    pub(crate) files: Vec<Named>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) file: Option<String>,
    pub(crate) write: bool,
}

impl From<Does> for Program {
    fn from(does: Does) -> Self {
        Self { does, files: Vec::new() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Does {
    /// Nothing but read what it is given and print.
    Reads,
    /// Writes files, or reads others.
    Touches(&'static str),
    /// Runs commands.
    Runs(&'static str),
}

impl Does {
    /// The worse of two.
    pub(crate) fn and(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Runs(_), _) | (_, Self::Reads) => self,
            (_, Self::Runs(_)) | (Self::Reads, _) => other,
            _ => self,
        }
    }
}
