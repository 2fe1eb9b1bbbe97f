//! From an order to a running child: its directory, its descriptors, its terminal.

use crate::{
    aftermath::Escapes,
    budget::Budget,
    ending::Ending,
    inlet::Inlet,
    outlet::Outlet,
    supervise::Shim,
    sys::{
        self, ChildStdio,
        user::{Become, in_the_name_of},
    },
    terminal::{Screen, Terminal},
    terminal_watch::TerminalWatch,
    walls::{self, Built, Site},
};
use countersign_model::{Confinement, Frame, Limits, MARKER, Mode, Outcome, StreamName};
use countersign_redact::{Mask, text};
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
struct Ends {
    outlets: Vec<Outlet>,
    inlet: Option<Inlet>,
    terminal: Option<Terminal>,
}

impl Shim<'_> {
    pub(crate) fn spawn(&mut self) -> Result<(), Outcome> {
        let failed = |mask: &Mask, error: String, code| Outcome::Failed { error: text(mask, &error), code };
        let nobody = |e: io::Error| failed(&self.mask, format!("it cannot be done in the name of its user: {e}"), 125);
        let login = self.what.login.as_ref();
        let cwd = in_the_name_of(login, || self.open_cwd()).map_err(nobody)?;
        let cwd = cwd.map_err(|e| failed(&self.mask, e, 125))?;
        let checked = in_the_name_of(login, || self.check_program()).map_err(nobody)?;
        checked.map_err(|e| failed(&self.mask, e, 126))?;
        // Theirs, so that they can open them again by name.
        let made = in_the_name_of(login, || self.descriptors()).map_err(nobody)?;
        let (ends, stdio) = made.map_err(|e| {
            let what = if self.what.mode == Mode::Pty { "no terminal could be made" } else { "no pipes could be made" };
            failed(&self.mask, format!("{what}: {e}"), 125)
        })?;
        let temporary = walls::temporary(&self.dir, login);
        let site = Site {
            temporary: &temporary,
            cwd: &self.what.cwd.resolved,
            env: &self.what.env,
            terminal: ends.terminal.as_ref().and_then(Terminal::name),
        };
        let foundation = self.sandbox.take_foundation();
        let (built, escapes) = in_the_name_of(login, || {
            let built = walls::build(
                self.sandbox.confinement,
                &self.what.walls,
                &site,
                foundation,
                login.map(|l| (l.uid, l.gid)),
            );
            let watched = self.sandbox.confinement != Confinement::ReadOnly && built.is_ok();
            (built, watched.then(|| Escapes::of(&self.what.walls)))
        })
        .map_err(nobody)?;
        let Built { forgo, enforced, env: given } = built.map_err(|e| failed(&self.mask, e, 125))?;
        self.sandbox.watch(escapes);
        let given = given.into_iter().map(|(name, value)| (name.to_owned(), value));
        let mut env: BTreeMap<String, String> = self.what.env.iter().cloned().chain(given).collect();
        let names: BTreeSet<&String> = self.what.exposure.names.iter().chain(env.keys()).collect();
        let names = names.into_iter().filter(|n| *n != MARKER).map(|n| text(&self.mask, n)).collect::<Vec<_>>();
        let withheld = self.what.exposure.withheld.iter().map(|n| text(&self.mask, n)).collect();
        self.journal.push(&Frame::EnvExposed { class: self.what.exposure.class, names, withheld });
        let exec = &self.what.exec;
        // Without it nothing is told, and everything runs as it would.
        let ending = self.what.tell_directory.then(Ending::new).and_then(Result::ok);
        let also = ending.as_ref().map(Ending::also);
        env.extend(ending.as_ref().map(|_| Ending::variable()));
        let started = sys::spawn(sys::Child {
            program: Path::new(&exec.program.path),
            argv: &exec.argv,
            env: &env,
            cwd,
            stdio,
            also,
            forgo,
            user: login.map(Become::of),
        });
        let pid = started.map_err(|e| {
            let code = if e.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            let hint = match e.raw_os_error() {
                Some(libc::E2BIG) => " (arguments and environment are larger than the kernel takes: use a file)",
                Some(libc::ENOEXEC) => " (not a program and no `#!` line)",
                _ => "",
            };
            failed(&self.mask, format!("{}: {e}{hint}", exec.program.path), code)
        })?;
        crash::point("shim.after_spawn");
        self.main.start(pid, ending);
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
            uid: login.map(|l| l.uid),
        });
        if self.sandbox.confinement == Confinement::ReadOnly {
            self.limits.set_budget(Budget::new(clock::steady(), temporary, self.what.login.clone()));
        }
        if ends.terminal.is_some() {
            self.journal.push(&Frame::Resized { rows: self.what.rows, cols: self.what.cols, by: None });
        }
        (self.outlets, self.inlet) = (ends.outlets, ends.inlet);
        self.terminal = ends.terminal.map(|terminal| TerminalWatch::new(terminal, &self.what.cwd.resolved));
        Ok(())
    }

    /// What the child reads from and writes to.
    fn descriptors(&self) -> io::Result<(Ends, ChildStdio)> {
        let limit = self.what.limits.output_bytes.unwrap_or(Limits::OUTPUT_BYTES);
        let outlet = |name, fd, screen| Outlet::new(name, fd, Arc::clone(&self.mask), limit, screen);
        match self.what.mode {
            Mode::Pipes => {
                let (stdout, child_stdout) = output_pipe()?;
                let (stderr, child_stderr) = output_pipe()?;
                let (stdin, inlet) = match self.what.stdin {
                    true => {
                        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
                        rustix::io::ioctl_fionbio(&write, true)?;
                        (Some(read), Some(Inlet::new(write)))
                    }
                    false => (None, None),
                };
                let outlets = vec![outlet(StreamName::Stdout, stdout, None), outlet(StreamName::Stderr, stderr, None)];
                let stdio = ChildStdio::Pipes { stdin, stdout: child_stdout, stderr: child_stderr };
                Ok((Ends { outlets, inlet, terminal: None }, stdio))
            }
            Mode::Pty => {
                let (terminal, slave) = Terminal::open(self.what.rows, self.what.cols)?;
                let screen = Screen::new(self.what.rows, self.what.cols);
                let outlets = vec![outlet(StreamName::Pty, terminal.end()?, Some(screen))];
                let inlet = Some(Inlet::new(terminal.end()?));
                Ok((Ends { outlets, inlet, terminal: Some(terminal) }, ChildStdio::Terminal(slave)))
            }
        }
    }

    /// The working directory, by descriptor, if it is still the one that was decided about.
    fn open_cwd(&self) -> Result<OwnedFd, String> {
        let fact = &self.what.cwd;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&fact.path, flags, FileMode::empty());
        let fd = fd.map_err(|e| format!("the working directory {} cannot be entered: {e}", fact.path))?;
        let stat = rustix::fs::fstat(&fd).map_err(|e| format!("{}: {e}", fact.path))?;
        match (stat.st_dev, stat.st_ino) == (fact.dev, fact.inode) {
            true => Ok(fd),
            false => Err(format!("paths changed: {} is not the directory that was decided about", fact.path)),
        }
    }

    fn check_program(&self) -> Result<(), String> {
        let fact = &self.what.exec.program;
        match rustix::fs::stat(&fact.path) {
            Ok(stat) if (stat.st_dev, stat.st_ino) == (fact.dev, fact.inode) => Ok(()),
            Ok(_) => Err(format!("paths changed: {} is not the program that was decided about", fact.path)),
            Err(e) => Err(format!("{}: {e}", fact.path)),
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
