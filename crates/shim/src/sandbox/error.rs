//! Why the sandbox of a task could not be built. Nothing is started then.

use countersign_model::Confinement;
use std::io;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxError {
    #[error("it is to run confined ({}), and this kernel cannot do that (Landlock {landlock})", wanted.as_str())]
    Kernel { wanted: Confinement, landlock: u32 },
    #[error("no Landlock ruleset could be made: {0}")]
    Ruleset(#[source] io::Error),
    #[error("no Landlock rule could be made: {0}")]
    Rule(#[source] io::Error),
    #[error("no directory for temporary files: {0}")]
    Temporary(#[source] io::Error),
}
