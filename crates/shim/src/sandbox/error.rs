//! Why the sandbox of a task could not be built. The task is not started then.

use countersign_model::Confinement;
use std::io;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxError {
    #[error(
        "the task must run sandboxed ({}), and this kernel cannot enforce that: it needs seccomp and Landlock version 3 or \
         later, and has Landlock version {landlock}; see `csn doctor`",
        wanted.as_str().replace('_', "-")
    )]
    Kernel { wanted: Confinement, landlock: u32 },
    #[error("cannot create the Landlock ruleset of the sandbox: {0}")]
    Ruleset(#[source] io::Error),
    #[error("cannot add a Landlock rule to the sandbox: {0}")]
    Rule(#[source] io::Error),
    #[error("cannot create the directory for temporary files: {0}")]
    Temporary(#[source] io::Error),
}
