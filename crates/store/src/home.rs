//! The home: one directory, one lock, and where everything in it lives.

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

/// Where the house of a machine is, where it listens, and what every house calls its door.
pub const MACHINE_HOME: &str = "/var/lib/countersign";
pub const MACHINE_RUN: &str = "/run/countersign";
pub const SOCKET: &str = "csn.sock";

/// The directory that holds one house.
#[derive(Debug, Clone)]
pub struct Home {
    path: PathBuf,
}

/// Why a home cannot be used. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error("no place for the house: neither COUNTERSIGN_HOME, XDG_STATE_HOME nor HOME is set to an absolute path")]
    Nowhere,
    #[error("cannot use {path} as the house's home: {error}; set COUNTERSIGN_HOME to a directory that you can write")]
    Unusable { path: PathBuf, error: io::Error },
    #[error("{path} belongs to uid {owner}, not to you: set COUNTERSIGN_HOME to a directory of your own")]
    NotYours { path: PathBuf, owner: u32 },
    #[error("another countersign holds this house: pid {holder} ({path}); stop it with `csn down`")]
    Held { holder: String, path: PathBuf },
}

/// Held for as long as a daemon lives; the file says who holds it.
#[derive(Debug)]
pub struct HomeLock {
    _file: File,
}

impl Home {
    /// Where the house is, from the environment.
    pub fn locate() -> Result<Self, HomeError> {
        let var = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let path = var("COUNTERSIGN_HOME")
            .or_else(|| var("XDG_STATE_HOME").map(|p| p.join("countersign")))
            .or_else(|| var("HOME").map(|p| p.join(".local/state/countersign")))
            .ok_or(HomeError::Nowhere)?;
        Ok(Self { path })
    }

    /// The door of a house that is not this user's own: the one that was named, else the machine's, if there is one and
    /// no home was named.
    #[must_use]
    pub fn door_of_others() -> Option<PathBuf> {
        let set = |name| std::env::var_os(name).filter(|v| !v.is_empty());
        let machine = || Some(Path::new(MACHINE_RUN).join(SOCKET)).filter(|door| door.exists());
        match set("COUNTERSIGN_SOCKET") {
            Some(named) => Some(named.into()),
            None if set("COUNTERSIGN_HOME").is_none() => machine(),
            None => None,
        }
    }

    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Makes what is missing and checks what is there: the home is its owner's alone.
    pub fn prepare(&self) -> Result<(), HomeError> {
        let unusable = |error| HomeError::Unusable { path: self.path.clone(), error };
        for dir in [self.path(), &self.tasks(), &self.waiting(), &self.run(), &self.keys()] {
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

    /// Becomes the daemon of this home, or says who is.
    pub fn lock(&self) -> Result<HomeLock, HomeError> {
        let unusable = |error| HomeError::Unusable { path: self.path.clone(), error };
        let path = self.path.join("lock");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(|e| unusable(e.into()))?;
        let mut file = File::from(fd);
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(HomeError::Held { holder: holder(&mut file), path: self.path.clone() });
            }
            Err(e) => return Err(unusable(e.into())),
        }
        file.set_len(0).map_err(unusable)?;
        file.rewind().map_err(unusable)?;
        writeln!(file, "{}", std::process::id()).map_err(unusable)?;
        Ok(HomeLock { _file: file })
    }

    /// The pid of the daemon that holds this home, if one does.
    #[must_use]
    pub fn holder(&self) -> Option<u32> {
        let mut file = File::open(self.path.join("lock")).ok()?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(rustix::io::Errno::WOULDBLOCK) => holder(&mut file).parse().ok(),
            _ => None,
        }
    }

    /// Until this process has ended.
    pub fn wait_until_gone(pid: u32) -> io::Result<()> {
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

    /// Where the daemon listens.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.run().join(SOCKET)
    }

    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.run().join("daemon.log")
    }

    /// A short path to a socket in `dir`, whatever the length of `dir`: socket addresses hold 108 bytes. It is good
    /// for as long as the descriptor that comes with it is open.
    pub fn short(dir: &Path, name: &str) -> io::Result<(OwnedFd, PathBuf)> {
        let fd = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let path = crate::proc::own_file(&fd).join(name);
        Ok((fd, path))
    }
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let _ = file.read_to_string(&mut text);
    match text.trim() {
        "" => "unknown".to_owned(),
        pid => pid.to_owned(),
    }
}
