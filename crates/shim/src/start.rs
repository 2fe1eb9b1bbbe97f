//! Starts the child of an order: its directory, its descriptors, its terminal, its sandbox.

use crate::{
    budget::Budget,
    final_cwd::FinalCwd,
    input_queue::InputQueue,
    output_stream::OutputStream,
    post_run::EscapeFiles,
    sandbox::{self, ChildSandbox, SandboxError, SandboxInput},
    supervise::Shim,
    sys::{
        self, ChildStdio,
        user::{ChildUser, with_user_ids},
    },
    terminal::{Screen, Terminal},
    terminal_watch::TerminalWatch,
};
use countersign_model::{Confinement, EnforcedSandbox, Frame, Limits, MARKER, Mode, Outcome, StreamName};
use countersign_redact::text;
use countersign_store::{clock, crash};
use rustix::{
    fd::OwnedFd,
    fs::{Mode as FileMode, OFlags},
    pipe::{PipeFlags, pipe_with},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    sync::Arc,
};

const PIPE_BYTES: usize = 1024 * 1024;

/// The shim's ends of the child's streams.
struct ParentEnds {
    outputs: Vec<OutputStream>,
    input_queue: Option<InputQueue>,
    terminal: Option<Terminal>,
}

/// Why the child was not started.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("the shim cannot act as the user of the task: {0}")]
    User(#[source] io::Error),
    #[error("cannot enter the working directory {path}: {error}")]
    Directory { path: String, error: io::Error },
    #[error("cannot read the working directory {path}: {error}")]
    DirectoryUnread { path: String, error: io::Error },
    #[error("paths changed: {0} is no longer the directory that the decision was made for; ask again")]
    AnotherDirectory(String),
    #[error("{path}: {error}")]
    Program { path: String, error: io::Error },
    #[error("paths changed: {0} is no longer the program that the decision was made for; ask again")]
    AnotherProgram(String),
    #[error("cannot create a terminal: {0}")]
    Terminal(#[source] io::Error),
    #[error("cannot create pipes: {0}")]
    Pipes(#[source] io::Error),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("{path}: {error}{}", exec_hint(error))]
    Exec { path: String, error: io::Error },
}

impl StartError {
    /// The exit code that a shell would give.
    fn code(&self) -> i32 {
        match self {
            Self::Program { .. } | Self::AnotherProgram(_) => 126,
            Self::Exec { error, .. } if error.kind() == io::ErrorKind::NotFound => 127,
            Self::Exec { .. } => 126,
            _ => 125,
        }
    }
}

fn exec_hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::E2BIG) => " (the arguments and the environment exceed the kernel's limit: pass the data in a file)",
        Some(libc::ENOEXEC) => " (the file is not a program and has no `#!` line)",
        _ => "",
    }
}

impl Shim<'_> {
    pub(crate) fn spawn(&mut self) -> Result<(), Outcome> {
        let failed =
            |shim: &Self, e: StartError| Outcome::Failed { error: text(&shim.mask, &e.to_string()), code: e.code() };
        self.start_child().map_err(|e| failed(self, e))
    }

    fn start_child(&mut self) -> Result<(), StartError> {
        let user = self.request.user.as_ref();
        let cwd = self.as_task_user(|| self.open_cwd())??;
        self.as_task_user(|| self.check_program())??;
        // Created as the task's user, so that its processes can open them again by name.
        let (ends, stdio) = self.as_task_user(|| self.open_stdio())?.map_err(match self.request.mode {
            Mode::Pty => StartError::Terminal,
            Mode::Pipes => StartError::Pipes,
        })?;
        let temporary = sandbox::temporary_path(&self.dir, user);
        let ChildSandbox { restrictions, enforced, env: sandbox_env } = self.build_sandbox(&temporary, &ends)?;
        let mut env = self.record_environment(sandbox_env);
        // Without these pipes the task runs the same way; only its last directory stays unknown.
        let final_cwd = self.request.tell_directory.then(FinalCwd::new).and_then(Result::ok);
        env.extend(final_cwd.as_ref().map(|_| FinalCwd::env_variable()));
        let exec = &self.request.exec;
        let started = sys::spawn(sys::ChildSpec {
            program: Path::new(&exec.program.path),
            argv: &exec.argv,
            env: &env,
            cwd,
            stdio,
            extra_descriptors: final_cwd.as_ref().map(FinalCwd::child_descriptors),
            restrictions,
            user: user.map(ChildUser::from_task_user),
        });
        let pid = started.map_err(|error| StartError::Exec { path: exec.program.path.clone(), error })?;
        crash::point("shim.after_spawn");
        self.main.start(pid, final_cwd);
        self.record_spawn(pid, enforced);
        if self.sandbox.confinement == Confinement::ReadOnly {
            self.limits.set_budget(Budget::new(clock::steady(), temporary, self.request.user.clone()));
        }
        if ends.terminal.is_some() {
            self.journal.push(&Frame::Resized { rows: self.request.rows, cols: self.request.cols, by: None });
        }
        (self.outputs, self.input_queue) = (ends.outputs, ends.input_queue);
        self.terminal = ends.terminal.map(|terminal| TerminalWatch::new(terminal, &self.request.cwd.resolved));
        Ok(())
    }

    /// Runs a closure with the file rights of the task's user.
    fn as_task_user<T>(&self, act: impl FnOnce() -> T) -> Result<T, StartError> {
        with_user_ids(self.request.user.as_ref(), act).map_err(StartError::User)
    }

    /// Builds the sandbox, and scans the escape files for changes that the task will make.
    fn build_sandbox(&mut self, temporary: &Path, ends: &ParentEnds) -> Result<ChildSandbox, StartError> {
        let confinement = self.sandbox.confinement;
        let input = SandboxInput {
            temporary,
            has_temporary: self.sandbox.has_temporary && self.request.user.is_none(),
            cwd: &self.request.cwd.resolved,
            env: &self.request.env,
            terminal: ends.terminal.as_ref().and_then(Terminal::name),
        };
        let base_ruleset = self.sandbox.take_base_ruleset();
        let other_user = self.request.user.as_ref().map(|user| (user.uid, user.gid));
        let (sandbox, escape_files) = self.as_task_user(|| {
            let sandbox = sandbox::build(confinement, &self.request.sandbox, &input, base_ruleset, other_user);
            let watched = confinement != Confinement::ReadOnly && sandbox.is_ok();
            (sandbox, watched.then(|| EscapeFiles::for_sandbox(&self.request.sandbox)))
        })?;
        self.sandbox.watch_escape_files(escape_files);
        Ok(sandbox?)
    }

    /// Merges the environment of the child and records its names.
    fn record_environment(&mut self, sandbox_env: BTreeMap<&'static str, String>) -> BTreeMap<String, String> {
        let sandbox_env = sandbox_env.into_iter().map(|(name, value)| (name.to_owned(), value));
        let env: BTreeMap<String, String> = self.request.env.iter().cloned().chain(sandbox_env).collect();
        let names: BTreeSet<&String> = self.request.exposure.names.iter().chain(env.keys()).collect();
        let names = names.into_iter().filter(|n| *n != MARKER).map(|n| text(&self.mask, n)).collect::<Vec<_>>();
        let withheld = self.request.exposure.withheld.iter().map(|n| text(&self.mask, n)).collect();
        self.journal.push(&Frame::EnvExposed { class: self.request.exposure.class, names, withheld });
        env
    }

    /// Records the new process.
    fn record_spawn(&mut self, pid: u32, enforced: Option<EnforcedSandbox>) {
        let exec = &self.request.exec;
        let sid = if self.request.mode == Mode::Pty { pid } else { std::process::id() };
        self.journal.push(&Frame::Spawned {
            pid,
            pgid: pid,
            sid,
            argv_digest: exec.argv_digest,
            executable: text(&self.mask, &exec.program.resolved),
            dev: exec.program.dev,
            inode: exec.program.inode,
            confinement: self.sandbox.confinement,
            enforced,
            uid: self.request.user.as_ref().map(|user| user.uid),
        });
    }

    /// Creates the child's standard streams and the shim's ends of them.
    fn open_stdio(&self) -> io::Result<(ParentEnds, ChildStdio)> {
        let limit = self.request.limits.output_bytes.unwrap_or(Limits::OUTPUT_BYTES);
        let output = |name, fd, screen| OutputStream::new(name, fd, Arc::clone(&self.mask), limit, screen);
        match self.request.mode {
            Mode::Pipes => {
                let (stdout, child_stdout) = output_pipe()?;
                let (stderr, child_stderr) = output_pipe()?;
                let (stdin, input_queue) = if self.request.stdin {
                    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
                    rustix::io::ioctl_fionbio(&write, true)?;
                    (Some(read), Some(InputQueue::new(write)))
                } else {
                    (None, None)
                };
                let outputs = vec![output(StreamName::Stdout, stdout, None), output(StreamName::Stderr, stderr, None)];
                let stdio = ChildStdio::Pipes { stdin, stdout: child_stdout, stderr: child_stderr };
                Ok((ParentEnds { outputs, input_queue, terminal: None }, stdio))
            }
            Mode::Pty => {
                let (terminal, slave) = Terminal::open(self.request.rows, self.request.cols)?;
                let screen = Screen::new(self.request.rows, self.request.cols);
                let outputs = vec![output(StreamName::Pty, terminal.duplicate_master()?, Some(screen))];
                let input_queue = Some(InputQueue::new(terminal.duplicate_master()?));
                Ok((ParentEnds { outputs, input_queue, terminal: Some(terminal) }, ChildStdio::Terminal(slave)))
            }
        }
    }

    /// Opens the working directory, if it is still the one that the decision was made for.
    fn open_cwd(&self) -> Result<OwnedFd, StartError> {
        let fact = &self.request.cwd;
        let path = || fact.path.clone();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&fact.path, flags, FileMode::empty());
        let fd = fd.map_err(|e| StartError::Directory { path: path(), error: e.into() })?;
        let stat = rustix::fs::fstat(&fd);
        let stat = stat.map_err(|e| StartError::DirectoryUnread { path: path(), error: e.into() })?;
        if (stat.st_dev, stat.st_ino) == (fact.dev, fact.inode) {
            Ok(fd)
        } else {
            Err(StartError::AnotherDirectory(path()))
        }
    }

    fn check_program(&self) -> Result<(), StartError> {
        let fact = &self.request.exec.program;
        match rustix::fs::stat(&fact.path) {
            Ok(stat) if (stat.st_dev, stat.st_ino) == (fact.dev, fact.inode) => Ok(()),
            Ok(_) => Err(StartError::AnotherProgram(fact.path.clone())),
            Err(e) => Err(StartError::Program { path: fact.path.clone(), error: e.into() }),
        }
    }
}

fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    // A large pipe means fewer wake-ups. This fails if the user has used up the kernel's allowance.
    let _ = rustix::pipe::fcntl_setpipe_size(&read, PIPE_BYTES);
    rustix::io::ioctl_fionbio(&read, true)?;
    Ok((read, write))
}
