//! What closes a task: its receipt, the files it touched, copies for its workspace, and what is removed in time.

pub(crate) mod publish;
pub(crate) mod sealing;
pub(crate) mod touched;
