//! Tests of each operation as data: the operations of a daemon with its own home, without HTTP, sockets or a
//! supervisor, so that nothing can run. Running tasks are tested end to end.

mod answers;
mod grants;
mod intake;
mod refusals;
mod scopes;
mod sessions;
mod tokens;

use crate::{
    caller::Caller,
    ops::{ApiResult, Ops},
    startup,
};
use countersign_model::{CredentialKind, CredentialScope, RefusalCode, Request, TaskRefusal};
use countersign_store::Config;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{future::Future, path::PathBuf, sync::Arc};
use tempfile::TempDir;

/// The operations of one daemon, and a working directory.
pub(crate) struct Daemon {
    runtime: tokio::runtime::Runtime,
    pub(crate) ops: Arc<Ops>,
    work: PathBuf,
    _place: TempDir,
}

impl Daemon {
    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Self {
        Self::in_place(tempfile::tempdir().expect("a directory"), config, None)
    }

    /// A daemon whose home is `home` below `place`. `degraded` is why its configuration could not be read.
    pub(crate) fn in_place(place: TempDir, config: Config, degraded: Option<String>) -> Self {
        let work = place.path().join("work");
        std::fs::create_dir_all(work.join(".git")).expect("a repository");
        let work = std::fs::canonicalize(work).expect("it is there");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let guard = runtime.enter();
        let ops =
            startup::test_operations(&place.path().join("home"), config, degraded, runtime.handle()).expect("a home");
        drop(guard);
        Self { runtime, ops, work, _place: place }
    }

    pub(crate) fn run<T>(&self, operation: impl Future<Output = T>) -> T {
        self.runtime.block_on(operation)
    }

    /// The code that an operation is refused with; none if it is not refused.
    pub(crate) fn refusal_code<T>(&self, operation: impl Future<Output = ApiResult<T>>) -> Option<RefusalCode> {
        self.run(operation).err().map(|refused: TaskRefusal| refused.refusal.code)
    }

    /// A request for a shell command in the working directory.
    pub(crate) fn request(&self, command: &str) -> Request {
        parse(json!({"tool": "shell", "args": {"command": command, "cwd": self.work}}))
    }

    pub(crate) fn work(&self) -> String {
        self.work.to_string_lossy().into_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.runtime.block_on(self.ops.commit.halt());
    }
}

/// A body as a client sends it.
pub(crate) fn parse<T: DeserializeOwned>(body: Value) -> T {
    serde_json::from_value(body).expect("it is of this type")
}

/// The owner at a terminal.
pub(crate) fn person() -> Caller {
    Caller::for_test(CredentialKind::Person, &CredentialScope::ALL)
}

/// An agent with every scope that an agent can have.
pub(crate) fn agent() -> Caller {
    Caller::for_test(CredentialKind::Agent, &[CredentialScope::Observe, CredentialScope::Run])
}
