//! The home: one directory, its lock, and the paths of everything in it.

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use std::{
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use countersign_model::TaskId;

/// The home and the runtime directory of the system service, and the name of every daemon's socket.
pub const SYSTEM_HOME: &str = "/var/lib/countersign";
pub const SYSTEM_RUN: &str = "/run/countersign";
pub const SOCKET: &str = "csn.sock";

/// The directory that holds the ledger, the keys and the tasks of one daemon.
#[derive(Debug, Clone)]
pub struct Home {
    path: PathBuf,
}

/// Why a home cannot be used. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error("there is no home directory: set COUNTERSIGN_HOME, XDG_STATE_HOME or HOME to an absolute path")]
    NotSet,
    #[error("cannot use {path} as the home: {error}; set COUNTERSIGN_HOME to a directory that you can write")]
    Unusable { path: PathBuf, error: io::Error },
    #[error("{path} belongs to uid {owner}, not to you; set COUNTERSIGN_HOME to a directory of your own")]
    NotYours { path: PathBuf, owner: u32 },
    #[error("another daemon (pid {holder}) already uses the home {path}; stop it with `csn down`")]
    InUse { holder: String, path: PathBuf },
}

/// The lock on a home, held while the daemon lives. The file contains the daemon's pid.
#[derive(Debug)]
pub struct HomeLock {
    _file: File,
}

impl Home {
    /// The home that the environment names.
    pub fn locate() -> Result<Self, HomeError> {
        let var = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let path = var("COUNTERSIGN_HOME")
            .or_else(|| var("XDG_STATE_HOME").map(|p| p.join("countersign")))
            .or_else(|| var("HOME").map(|p| p.join(".local/state/countersign")))
            .ok_or(HomeError::NotSet)?;
        Ok(Self { path })
    }

    /// The socket of a daemon that is not this user's own: the one that COUNTERSIGN_SOCKET names, or that of the system
    /// service if it exists and no home is named.
    #[must_use]
    pub fn shared_socket() -> Option<PathBuf> {
        let set = |name| std::env::var_os(name).filter(|v| !v.is_empty());
        let system = || Some(Path::new(SYSTEM_RUN).join(SOCKET)).filter(|socket| socket.exists());
        match set("COUNTERSIGN_SOCKET") {
            Some(named) => Some(named.into()),
            None if set("COUNTERSIGN_HOME").is_none() => system(),
            None => None,
        }
    }

    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Creates the missing directories and checks that only the owner has access to the home.
    pub fn prepare(&self) -> Result<(), HomeError> {
        let unusable = |error| HomeError::Unusable { path: self.path.clone(), error };
        for dir in [self.path(), &self.tasks(), &self.prepared(), &self.waiting(), &self.run(), &self.keys()] {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
            made.map_err(unusable)?;
        }
        let meta = std::fs::metadata(&self.path).map_err(unusable)?;
        let me = rustix::process::geteuid().as_raw();
        if meta.uid() != me {
            return Err(HomeError::NotYours { path: self.path.clone(), owner: meta.uid() });
        }
        if meta.mode() & 0o077 != 0 {
            std::fs::set_permissions(&self.path, std::fs::Permissions::from_mode(0o700)).map_err(unusable)?;
        }
        Ok(())
    }

    /// Locks the home for this daemon, or names the daemon that already has it.
    pub fn lock(&self) -> Result<HomeLock, HomeError> {
        let unusable = |error| HomeError::Unusable { path: self.path.clone(), error };
        let path = self.path.join("lock");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(|e| unusable(e.into()))?;
        let mut file = File::from(fd);
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(HomeError::InUse { holder: read_holder(&mut file), path: self.path.clone() });
            }
            Err(e) => return Err(unusable(e.into())),
        }
        file.set_len(0).map_err(unusable)?;
        file.rewind().map_err(unusable)?;
        writeln!(file, "{}", std::process::id()).map_err(unusable)?;
        Ok(HomeLock { _file: file })
    }

    /// The pid of the daemon that has locked this home, if there is one.
    #[must_use]
    pub fn holder(&self) -> Option<u32> {
        let mut file = File::open(self.path.join("lock")).ok()?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(rustix::io::Errno::WOULDBLOCK) => read_holder(&mut file).parse().ok(),
            _ => None,
        }
    }

    /// Waits until this process has ended.
    pub fn wait_for_exit(pid: u32) -> io::Result<()> {
        use rustix::{
            event::{PollFd, PollFlags, poll},
            process::{Pid, PidfdFlags, pidfd_open},
        };
        let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
        let ended = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(ended) => ended,
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        loop {
            match poll(&mut [PollFd::new(&ended, PollFlags::IN)], None) {
                Err(rustix::io::Errno::INTR) => {}
                done => return Ok(done.map(drop)?),
            }
        }
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[must_use]
    pub fn ledger(&self) -> PathBuf {
        self.path.join("ledger.db")
    }

    #[must_use]
    pub fn tasks(&self) -> PathBuf {
        self.path.join("tasks")
    }

    #[must_use]
    pub fn task_dir(&self, task: TaskId) -> PathBuf {
        self.path.join("tasks").join(task.shard()).join(task.to_string())
    }

    /// Where idle shims prepare the directories of the next tasks.
    #[must_use]
    pub fn prepared(&self) -> PathBuf {
        self.path.join("prepared")
    }

    #[must_use]
    pub fn waiting(&self) -> PathBuf {
        self.path.join("waiting")
    }

    #[must_use]
    pub fn run(&self) -> PathBuf {
        self.path.join("run")
    }

    #[must_use]
    pub fn keys(&self) -> PathBuf {
        self.path.join("keys")
    }

    /// The socket that the daemon listens on.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.run().join(SOCKET)
    }

    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.run().join("daemon.log")
    }

    /// A short path to a socket in `dir`, however long `dir` is: socket addresses hold only 108 bytes. It is valid as
    /// long as the returned descriptor is open.
    pub fn short_socket_path(dir: &Path, name: &str) -> io::Result<(OwnedFd, PathBuf)> {
        let fd = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let path = crate::proc::own_file(&fd).join(name);
        Ok((fd, path))
    }
}

fn read_holder(file: &mut File) -> String {
    let mut text = String::new();
    let _ = file.read_to_string(&mut text);
    match text.trim() {
        "" => "unknown".to_owned(),
        pid => pid.to_owned(),
    }
}
