//! The system service with several users: its daemon has its own system user and may act for the others. Only root can
//! create one.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::Mutex,
};
use tempfile::TempDir;

/// A user that every Debian system has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestUser {
    pub uid: u32,
    pub gid: u32,
    pub name: &'static str,
}

/// Two users who make requests, root, and the user of the daemon. Nobody logs in as any of them.
pub const ANN: TestUser = TestUser { uid: 5, gid: 60, name: "games" };
pub const BOB: TestUser = TestUser { uid: 6, gid: 12, name: "man" };
pub const ROOT: TestUser = TestUser { uid: 0, gid: 0, name: "root" };
const SERVICE: TestUser = TestUser { uid: 1, gid: 1, name: "daemon" };

/// Starts a program with its own session keyring, like a service manager.
const WITH_KEYRING: &str = "
import ctypes, os, platform, sys
keyctl = {'x86_64': 250, 'aarch64': 219}[platform.machine()]
assert ctypes.CDLL(None).syscall(keyctl, 1, None) > 0
os.execv(sys.argv[1], sys.argv[1:])
";

pub struct TestSystemService {
    dir: TempDir,
    daemon: Mutex<Option<Child>>,
}

impl TestSystemService {
    /// A running system service; none if the test does not run as root.
    #[must_use]
    pub fn started(csn: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not root: the system service cannot be created");
            return None;
        }
        let dir = TempDir::with_prefix("csn").expect("a temp dir");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        let service = Self { dir, daemon: Mutex::default() };
        let bin = service.create_dir("bin", ROOT, 0o755);
        for name in ["csn", "csn-shim"] {
            fs::copy(Path::new(csn).with_file_name(name), bin.join(name)).expect("a copy");
        }
        service.create_dir("home", SERVICE, 0o700);
        service.create_dir("run", SERVICE, 0o755);
        service.create_dir("etc", ROOT, 0o755);
        for user in [ANN, BOB] {
            service.create_dir(user.name, user, 0o700);
            service.create_dir(&format!("{}/project", user.name), user, 0o755);
        }
        service.start();
        Some(service)
    }

    fn create_dir(&self, name: &str, user: TestUser, mode: u32) -> PathBuf {
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

    /// The working directory of a user.
    #[must_use]
    pub fn project(&self, user: TestUser) -> PathBuf {
        self.dir.path().join(user.name).join("project")
    }

    /// Writes a file in a user's project that belongs to the user.
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
        assert!(lines.any(|line| line.is_ok_and(|l| l.starts_with("socket "))), "the daemon starts");
        *self.daemon.lock().expect("unpoisoned") = Some(child);
    }

    pub fn kill_daemon(&self) {
        if let Some(mut child) = self.daemon.lock().expect("unpoisoned").take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// A program as this user, in their project, with the socket of this service.
    #[expect(clippy::disallowed_methods, reason = "tests drive the real program")]
    fn command_as(&self, user: TestUser, program: &Path) -> Command {
        let (uid, gid) = (user.uid.to_string(), user.gid.to_string());
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &uid, "--regid", &gid, "--clear-groups", "--inh-caps=-all"]).arg(program);
        let directory = if user == ROOT { self.dir.path().to_owned() } else { self.project(user) };
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.dir.path().join(user.name));
        command.env("COUNTERSIGN_SOCKET", self.socket()).current_dir(directory).stdin(Stdio::null());
        command
    }

    /// Runs another program as this user to its end.
    pub fn run_as(&self, user: TestUser, argv: &[&str]) -> Output {
        self.command_as(user, Path::new(argv[0])).args(&argv[1..]).output().expect("it runs")
    }

    /// Runs `csn …` as this user to its end.
    pub fn csn(&self, user: TestUser, args: &[&str]) -> Output {
        self.csn_with(user, args, &[])
    }

    pub fn csn_with(&self, user: TestUser, args: &[&str], env: &[(&str, &str)]) -> Output {
        self.command_as(user, &self.csn_path()).args(args).envs(env.iter().copied()).output().expect("csn runs")
    }
}

impl Drop for TestSystemService {
    fn drop(&mut self) {
        let _ = self.csn(ROOT, &["down", "--stop-tasks"]);
        self.kill_daemon();
    }
}
