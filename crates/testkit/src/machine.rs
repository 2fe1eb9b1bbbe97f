//! A house of several users: its daemon has a user of its own, and may act for the others. Only root can make one.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::Mutex,
};
use tempfile::TempDir;

/// A user that every Debian has, and a directory of theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestUser {
    pub uid: u32,
    pub gid: u32,
    pub name: &'static str,
}

/// Two who ask, and the one that the house is. Nobody logs in as any of them.
pub const ANN: TestUser = TestUser { uid: 5, gid: 60, name: "games" };
pub const BOB: TestUser = TestUser { uid: 6, gid: 12, name: "man" };
pub const ROOT: TestUser = TestUser { uid: 0, gid: 0, name: "root" };
const HOUSE: TestUser = TestUser { uid: 1, gid: 1, name: "daemon" };

/// Starts a program with a session keyring of its own, as a service manager does.
const WITH_KEYRING: &str = "
import ctypes, os, platform, sys
keyctl = {'x86_64': 250, 'aarch64': 219}[platform.machine()]
assert ctypes.CDLL(None).syscall(keyctl, 1, None) > 0
os.execv(sys.argv[1], sys.argv[1:])
";

pub struct SystemService {
    dir: TempDir,
    daemon: Mutex<Option<Child>>,
}

impl SystemService {
    /// One that serves; none where we are not root.
    #[must_use]
    pub fn started(csn: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not root: a house of several users cannot be made");
            return None;
        }
        let dir = TempDir::with_prefix("csn").expect("a temp dir");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        let machine = Self { dir, daemon: Mutex::default() };
        let bin = machine.make("bin", ROOT, 0o755);
        for name in ["csn", "csn-shim"] {
            fs::copy(Path::new(csn).with_file_name(name), bin.join(name)).expect("a copy");
        }
        machine.make("home", HOUSE, 0o700);
        machine.make("run", HOUSE, 0o755);
        machine.make("etc", ROOT, 0o755);
        for user in [ANN, BOB] {
            machine.make(user.name, user, 0o700);
            machine.make(&format!("{}/project", user.name), user, 0o755);
        }
        machine.start();
        Some(machine)
    }

    fn make(&self, name: &str, user: TestUser, mode: u32) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::create_dir_all(&path).expect("a directory");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
        chown(&path, Some(user.uid), Some(user.gid)).expect("we are root");
        path
    }

    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("run/csn.sock")
    }

    #[must_use]
    pub fn csn_path(&self) -> PathBuf {
        self.dir.path().join("bin/csn")
    }

    /// Where a user works.
    #[must_use]
    pub fn project(&self, user: TestUser) -> PathBuf {
        self.dir.path().join(user.name).join("project")
    }

    /// A file of a user's project, theirs.
    pub fn write(&self, user: TestUser, name: &str, text: &str) {
        let path = self.project(user).join(name);
        fs::write(&path, text).expect("a file");
        chown(&path, Some(user.uid), Some(user.gid)).expect("we are root");
    }

    #[expect(clippy::disallowed_methods, reason = "tests drive the real program")]
    pub fn start(&self) {
        let caps = "+setuid,+setgid,+kill";
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "1", "--regid", "1", "--clear-groups", "--inh-caps", caps, "--ambient-caps", caps]);
        command.args(["python3", "-c", WITH_KEYRING]).arg(self.csn_path()).args(["up", "--system"]).env_clear();
        command.env("PATH", "/usr/bin:/bin").env("HOME", self.home()).env("COUNTERSIGN_HOME", self.home());
        command
            .env("XDG_CONFIG_HOME", self.dir.path().join("etc"))
            .env("RUNTIME_DIRECTORY", self.dir.path().join("run"));
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().expect("setpriv runs");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        assert!(lines.any(|line| line.is_ok_and(|l| l.starts_with("socket "))), "the house starts");
        *self.daemon.lock().expect("unpoisoned") = Some(child);
    }

    pub fn kill_daemon(&self) {
        if let Some(mut child) = self.daemon.lock().expect("unpoisoned").take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// A program as somebody, in their project, with this house's door named.
    #[expect(clippy::disallowed_methods, reason = "tests drive the real program")]
    fn as_user(&self, user: TestUser, program: &Path) -> Command {
        let (uid, gid) = (user.uid.to_string(), user.gid.to_string());
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &uid, "--regid", &gid, "--clear-groups", "--inh-caps=-all"]).arg(program);
        let place = if user == ROOT { self.dir.path().to_owned() } else { self.project(user) };
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.dir.path().join(user.name));
        command.env("COUNTERSIGN_SOCKET", self.socket()).current_dir(place).stdin(Stdio::null());
        command
    }

    /// Another program as somebody, to its end.
    pub fn as_user_run(&self, user: TestUser, argv: &[&str]) -> Output {
        self.as_user(user, Path::new(argv[0])).args(&argv[1..]).output().expect("it runs")
    }

    /// `csn …` as somebody, to its end.
    pub fn csn(&self, user: TestUser, args: &[&str]) -> Output {
        self.csn_with(user, args, &[])
    }

    pub fn csn_with(&self, user: TestUser, args: &[&str], env: &[(&str, &str)]) -> Output {
        self.as_user(user, &self.csn_path()).args(args).envs(env.iter().copied()).output().expect("csn runs")
    }
}

impl Drop for SystemService {
    fn drop(&mut self) {
        let _ = self.csn(ROOT, &["down", "--stop-tasks"]);
        self.kill_daemon();
    }
}
