//! From an order to a running child: its directory, its descriptors, its terminal.

use crate::{
    budget::Budget,
    final_cwd::FinalCwd,
    input_queue::InputQueue,
    output_stream::OutputStream,
    post_run::EscapeFiles,
    sandbox::{self, Sandbox, SandboxError, SandboxInput},
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

const PIPE_SIZE: usize = 1024 * 1024;

/// Our ends of what the child has.
struct ParentEnds {
    outlets: Vec<OutputStream>,
    inlet: Option<InputQueue>,
    terminal: Option<Terminal>,
}

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("it cannot be done in the name of its user: {0}")]
    User(#[source] io::Error),
    #[error("the working directory {path} cannot be entered: {error}")]
    Directory { path: String, error: io::Error },
    #[error("{path}: {error}")]
    DirectoryUnread { path: String, error: io::Error },
    #[error("paths changed: {0} is not the directory that was decided about")]
    AnotherDirectory(String),
    #[error("{path}: {error}")]
    Program { path: String, error: io::Error },
    #[error("paths changed: {0} is not the program that was decided about")]
    AnotherProgram(String),
    #[error("no terminal could be made: {0}")]
    Terminal(#[source] io::Error),
    #[error("no pipes could be made: {0}")]
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
        Some(libc::E2BIG) => " (arguments and environment are larger than the kernel takes: use a file)",
        Some(libc::ENOEXEC) => " (not a program and no `#!` line)",
        _ => "",
    }
}

impl Shim<'_> {
    pub(crate) fn spawn(&mut self) -> Result<(), Outcome> {
        let failed =
            |shim: &Self, e: StartError| Outcome::Failed { error: text(&shim.mask, &e.to_string()), code: e.code() };
        self.start().map_err(|e| failed(self, e))
    }

    fn start(&mut self) -> Result<(), StartError> {
        let login = self.what.user.as_ref();
        let cwd = self.as_login(|| self.open_cwd())??;
        self.as_login(|| self.check_program())??;
        // Theirs, so that they can open them again by name.
        let (ends, stdio) = self.as_login(|| self.descriptors())?.map_err(match self.what.mode {
            Mode::Pty => StartError::Terminal,
            Mode::Pipes => StartError::Pipes,
        })?;
        let temporary = sandbox::temporary(&self.dir, login);
        let Sandbox { restrictions, enforced, env: given } = self.build_sandbox(&temporary, &ends)?;
        let mut env = self.environment(given);
        // Without it nothing is told, and everything runs as it would.
        let ending = self.what.tell_directory.then(FinalCwd::new).and_then(Result::ok);
        env.extend(ending.as_ref().map(|_| FinalCwd::variable()));
        let exec = &self.what.exec;
        let started = sys::spawn(sys::ChildSpec {
            program: Path::new(&exec.program.path),
            argv: &exec.argv,
            env: &env,
            cwd,
            stdio,
            also: ending.as_ref().map(FinalCwd::also),
            restrictions,
            user: login.map(ChildUser::of),
        });
        let pid = started.map_err(|error| StartError::Exec { path: exec.program.path.clone(), error })?;
        crash::point("shim.after_spawn");
        self.main.start(pid, ending);
        self.started(pid, enforced);
        if self.sandbox.confinement == Confinement::ReadOnly {
            self.limits.set_budget(Budget::new(clock::steady(), temporary, self.what.user.clone()));
        }
        if ends.terminal.is_some() {
            self.journal.push(&Frame::Resized { rows: self.what.rows, cols: self.what.cols, by: None });
        }
        (self.outlets, self.inlet) = (ends.outlets, ends.inlet);
        self.terminal = ends.terminal.map(|terminal| TerminalWatch::new(terminal, &self.what.cwd.resolved));
        Ok(())
    }

    /// Does something with the rights of the task's user.
    fn as_login<T>(&self, act: impl FnOnce() -> T) -> Result<T, StartError> {
        with_user_ids(self.what.user.as_ref(), act).map_err(StartError::User)
    }

    /// The sandbox; and from then on the files that could let something out of it are watched.
    fn build_sandbox(&mut self, temporary: &Path, ends: &ParentEnds) -> Result<Sandbox, StartError> {
        let confinement = self.sandbox.confinement;
        let site = SandboxInput {
            temporary,
            cwd: &self.what.cwd.resolved,
            env: &self.what.env,
            terminal: ends.terminal.as_ref().and_then(Terminal::name),
        };
        let base_ruleset = self.sandbox.take_foundation();
        let another = self.what.user.as_ref().map(|l| (l.uid, l.gid));
        let (built, escapes) = self.as_login(|| {
            let built = sandbox::build(confinement, &self.what.sandbox, &site, base_ruleset, another);
            let watched = confinement != Confinement::ReadOnly && built.is_ok();
            (built, watched.then(|| EscapeFiles::of(&self.what.sandbox)))
        })?;
        self.sandbox.watch(escapes);
        Ok(built?)
    }

    /// What the child is given, put on record by name.
    fn environment(&mut self, given: BTreeMap<&'static str, String>) -> BTreeMap<String, String> {
        let given = given.into_iter().map(|(name, value)| (name.to_owned(), value));
        let env: BTreeMap<String, String> = self.what.env.iter().cloned().chain(given).collect();
        let names: BTreeSet<&String> = self.what.exposure.names.iter().chain(env.keys()).collect();
        let names = names.into_iter().filter(|n| *n != MARKER).map(|n| text(&self.mask, n)).collect::<Vec<_>>();
        let withheld = self.what.exposure.withheld.iter().map(|n| text(&self.mask, n)).collect();
        self.journal.push(&Frame::EnvExposed { class: self.what.exposure.class, names, withheld });
        env
    }

    /// Puts the new process on record.
    fn started(&mut self, pid: u32, enforced: Option<EnforcedSandbox>) {
        let exec = &self.what.exec;
        let sid = if self.what.mode == Mode::Pty { pid } else { std::process::id() };
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
            uid: self.what.user.as_ref().map(|l| l.uid),
        });
    }

    /// What the child reads from and writes to.
    fn descriptors(&self) -> io::Result<(ParentEnds, ChildStdio)> {
        let limit = self.what.limits.output_bytes.unwrap_or(Limits::OUTPUT_BYTES);
        let outlet = |name, fd, screen| OutputStream::new(name, fd, Arc::clone(&self.mask), limit, screen);
        match self.what.mode {
            Mode::Pipes => {
                let (stdout, child_stdout) = output_pipe()?;
                let (stderr, child_stderr) = output_pipe()?;
                let (stdin, inlet) = if self.what.stdin {
                    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
                    rustix::io::ioctl_fionbio(&write, true)?;
                    (Some(read), Some(InputQueue::new(write)))
                } else {
                    (None, None)
                };
                let outlets = vec![outlet(StreamName::Stdout, stdout, None), outlet(StreamName::Stderr, stderr, None)];
                let stdio = ChildStdio::Pipes { stdin, stdout: child_stdout, stderr: child_stderr };
                Ok((ParentEnds { outlets, inlet, terminal: None }, stdio))
            }
            Mode::Pty => {
                let (terminal, slave) = Terminal::open(self.what.rows, self.what.cols)?;
                let screen = Screen::new(self.what.rows, self.what.cols);
                let outlets = vec![outlet(StreamName::Pty, terminal.end()?, Some(screen))];
                let inlet = Some(InputQueue::new(terminal.end()?));
                Ok((ParentEnds { outlets, inlet, terminal: Some(terminal) }, ChildStdio::Terminal(slave)))
            }
        }
    }

    /// The working directory, by descriptor, if it is still the one that was decided about.
    fn open_cwd(&self) -> Result<OwnedFd, StartError> {
        let fact = &self.what.cwd;
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
        let fact = &self.what.exec.program;
        match rustix::fs::stat(&fact.path) {
            Ok(stat) if (stat.st_dev, stat.st_ino) == (fact.dev, fact.inode) => Ok(()),
            Ok(_) => Err(StartError::AnotherProgram(fact.path.clone())),
            Err(e) => Err(StartError::Program { path: fact.path.clone(), error: e.into() }),
        }
    }
}

fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    // A large pipe means fewer wake-ups; an unprivileged user may have used up the allowance.
    let _ = rustix::pipe::fcntl_setpipe_size(&read, PIPE_SIZE);
    rustix::io::ioctl_fionbio(&read, true)?;
    Ok((read, write))
}
