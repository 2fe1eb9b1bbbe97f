//! After a task has settled: its receipt, the files it touched, and copies of its output for the workspace.

pub(crate) mod publish;
pub(crate) mod sealing;
pub(crate) mod touched;
