//! `outside`: checks with third-party tools. The same program runs twice in panes of tmux, once directly and once
//! through `csn run --pty`; both get the same keys and must show the same.
//!
//! `cargo xtask outside NAME` runs one check alone. `CSN_BIN=DIR` uses the programs in DIR instead of building them.
//! Missing programs are installed with apt.

mod accepted;
mod casts;
mod mcp;
mod opinion;
mod programs;
mod receipts;
mod schemathesis;
mod systemd;
mod tmux;
mod viewers;
mod workspace;

use crate::{Result, build, command};
use countersign_xtask::debian::{SYSTEM_PATH, install_missing, is_installed};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};
use tmux::{Pane, PanePair, Tmux, stdout_text};

/// Allows for a busy machine; nothing here normally takes a second.
const CHECK_TIMEOUT: Duration = Duration::from_secs(20);
/// Arguments for a task that needs no approval.
const RUN_ARGS: &[&str] = &["run", "--pty", "--profile", "full_auto", "--quiet"];

/// Programs and the Debian packages that contain them.
const NEEDED: &[(&str, &str)] = &[
    ("tmux", "tmux"),
    ("vim", "vim"),
    ("less", "less"),
    ("top", "procps"),
    ("ssh-keygen", "openssh-client"),
    ("asciinema", "asciinema"),
    ("python3", "python3"),
];

type Check = fn(&CheckStage) -> Result<()>;

const CHECKS: &[(&str, Check)] = &[
    ("vim", programs::vim),
    ("less", programs::less),
    ("python", programs::python),
    ("top", programs::top),
    ("curses", programs::curses),
    ("password", programs::password),
    ("ssh-keygen", programs::ssh_keygen),
    ("resize", programs::resize),
    ("interrupt", programs::interrupt),
    ("raw-keys", programs::raw_keys),
    ("job-control", programs::job_control),
    ("attach", viewers::attach),
    ("viewers", viewers::viewers),
    ("early-viewer", viewers::early_viewer),
    ("late-viewer", viewers::late_viewer),
    ("late-state", viewers::late_state),
    ("killed-daemon", viewers::killed_daemon),
    ("killed-under-run", viewers::killed_under_run),
    ("casts", casts::casts),
    ("workspace", workspace::workspace),
    ("accepted", accepted::accepted),
    ("second-opinion", opinion::second_opinion),
    ("receipts", receipts::receipts),
    ("mcp-conformance", mcp::conformance),
    ("mcp-inspector", mcp::inspector),
    ("mcp-python", mcp::python),
    ("schemathesis", schemathesis::schemathesis),
    ("systemd", systemd::systemd),
];

/// Runs all checks, or the one of this name.
pub(crate) fn outside(only: Option<&str>) -> Result<()> {
    let chosen: Vec<_> = CHECKS.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)).collect();
    if chosen.is_empty() {
        let names: Vec<_> = CHECKS.iter().map(|(name, _)| *name).collect();
        return Err(format!("there is no check of that name; the checks are {}", names.join(", ")));
    }
    install_missing(NEEDED)?;
    let programs = match std::env::var_os("CSN_BIN") {
        Some(dir) => fs::canonicalize(&dir).map_err(|e| format!("CSN_BIN: {e}"))?,
        None => {
            build::build()?;
            build::output_dir()
        }
    };
    let mut failed = Vec::new();
    for (name, check) in &chosen {
        match CheckStage::create(name, &programs).and_then(|stage| check(&stage).and_then(|()| stage.stop_daemon())) {
            Ok(()) => println!("ok {name}"),
            Err(why) => {
                println!("FAIL {name}: {why}");
                failed.push(*name);
            }
        }
    }
    println!("{} of {} passed", chosen.len() - failed.len(), chosen.len());
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

/// A time limit for polling.
pub(crate) struct Deadline(Instant);

impl Deadline {
    #[expect(
        clippy::disallowed_methods,
        reason = "third-party programs send no notification, so their screens are polled"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Sleeps for one polling interval; returns whether time is left.
    pub(crate) fn wait(&self) -> bool {
        self.wait_within(CHECK_TIMEOUT)
    }

    /// As `wait`, with another limit.
    pub(crate) fn wait_within(&self, all: Duration) -> bool {
        std::thread::sleep(Duration::from_millis(25));
        self.0.elapsed() < all
    }
}

/// A home and a tmux server for one check, in a directory of their own.
struct CheckStage {
    dir: PathBuf,
    csn: String,
    environment: Vec<(String, String)>,
    tmux: Tmux,
}

impl CheckStage {
    fn create(name: &str, programs: &Path) -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("csn-outside-{}-{name}", std::process::id()));
        for part in ["config", "user"] {
            fs::create_dir_all(dir.join(part)).map_err(|e| format!("{}: {e}", dir.display()))?;
        }
        let at = |part: &str| dir.join(part).display().to_string();
        let environment = [
            ("PATH", SYSTEM_PATH.to_owned()),
            ("HOME", at("user")),
            ("COUNTERSIGN_HOME", at("home")),
            ("XDG_CONFIG_HOME", at("config")),
            // tmux leaves its socket in this directory.
            ("TMUX_TMPDIR", dir.display().to_string()),
            ("LANG", "C.UTF-8".to_owned()),
            ("SHELL", "/bin/bash".to_owned()),
        ];
        let environment: Vec<_> = environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let csn = programs.join("csn").display().to_string();
        Ok(Self { tmux: Tmux::new(environment.clone()), dir, csn, environment })
    }

    /// A program in the environment of the panes, in a directory of the check.
    fn command(&self, program: &str, directory: &str) -> Command {
        let mut command = command(program);
        command.env_clear().envs(self.environment.iter().map(|(k, v)| (k, v)));
        command.current_dir(self.dir.join(directory));
        command
    }

    fn csn(&self, args: &[&str]) -> Result<String> {
        let output = self.command(&self.csn, ".").args(args).output().map_err(|e| format!("{}: {e}", self.csn))?;
        stdout_text(&format!("csn {}", args.join(" ")), &output)
    }

    /// Creates a directory with these files.
    fn directory(&self, name: &str, files: &[(&str, &str)]) -> Result<PathBuf> {
        let dir = self.dir.join(name);
        fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        for (file, content) in files {
            let path = dir.join(file);
            let result =
                fs::write(&path, content).and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)));
            result.map_err(|e| format!("{}: {e}", path.display()))?;
        }
        Ok(dir)
    }

    /// Starts shell text twice, each in its own directory with the same files.
    fn start_pair(&self, program: &str, files: &[(&str, &str)]) -> Result<PanePair<'_>> {
        let (here, there) = (self.directory("direct", files)?, self.directory("through", files)?);
        let direct = self.tmux.open_pane("direct", &here, &["bash", "-c", program])?;
        let through = self.tmux.open_pane("through", &there, &[&[self.csn.as_str()], RUN_ARGS, &[program]].concat())?;
        Ok(PanePair { direct, through })
    }

    /// Starts shell text in the background, below `through`; returns its task.
    fn start_background(&self, program: &str) -> Result<String> {
        let output = self.command(&self.csn, "through").args(RUN_ARGS).args(["--background", program]).output();
        let output = output.map_err(|e| format!("{}: {e}", self.csn))?;
        Ok(stdout_text("csn run --background", &output)?.trim().to_owned())
    }

    fn attach(&self, name: &str, task: &str) -> Result<Pane<'_>> {
        self.tmux.open_pane(name, &self.dir, &[&self.csn, "attach", task])
    }

    /// Waits until `csn show --screen` prints this text; returns the screen.
    fn wait_for_screen(&self, task: &str, expected: &str) -> Result<String> {
        let deadline = Deadline::start();
        loop {
            let screen = self.csn(&["show", task, "--screen"])?;
            if screen.contains(expected) {
                return Ok(screen);
            }
            if !deadline.wait() {
                return Err(format!("the task does not show {expected:?} in time:\n{screen}"));
            }
        }
    }

    /// Expects this content in the file of both programs.
    fn expect_same_file(&self, name: &str, expected: &str) -> Result<()> {
        for side in ["direct", "through"] {
            let path = self.dir.join(side).join(name);
            let bytes = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            if bytes != expected.as_bytes() {
                return Err(format!("{side}/{name} contains {:?}", String::from_utf8_lossy(&bytes)));
            }
        }
        Ok(())
    }

    /// Expects that no file of the home contains a secret, neither literally nor in a common encoding.
    fn expect_secret_absent(&self, secret: &str) -> Result<()> {
        let mut grep = self.command("grep", ".");
        grep.args(["-r", "--text", "--fixed-strings", "--files-with-matches"]);
        grep.args(secret_forms(secret).iter().map(|form| format!("--regexp={form}")));
        let output = grep.arg("home").output().map_err(|e| format!("grep: {e}"))?;
        match output.status.code() {
            Some(0) => Err(format!("a secret is on the disk: {}", String::from_utf8_lossy(&output.stdout).trim())),
            Some(1) => Ok(()),
            _ => Err(format!("grep: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    }

    /// Expects that grep finds a text that must be there; otherwise an absent secret would prove nothing.
    fn expect_recorded(&self, text: &str) -> Result<()> {
        let mut grep = self.command("grep", ".");
        let output = grep.args(["-r", "--text", "--fixed-strings", "-l", "-e", text, "home"]).output();
        let output = output.map_err(|e| format!("grep: {e}"))?;
        if String::from_utf8_lossy(&output.stdout).contains("pty.log") {
            Ok(())
        } else {
            Err(format!("no pty.log contains {text:?}"))
        }
    }

    fn stop_daemon(&self) -> Result<()> {
        self.csn(&["down", "--stop-tasks"]).map(drop)
    }
}

impl Drop for CheckStage {
    fn drop(&mut self) {
        // After a failure the daemon still runs.
        let _ = self.stop_daemon();
        self.tmux.kill_server();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A secret literally, in hexadecimal, and in base64 at each alignment.
fn secret_forms(secret: &str) -> Vec<String> {
    let hex = secret.bytes().map(|b| format!("{b:02x}")).collect();
    let mut forms = vec![secret.to_owned(), hex];
    for skipped in 0..3 {
        // Whole groups of three bytes are encoded the same, whatever surrounds them.
        let whole = secret.len().saturating_sub(skipped) / 3 * 3;
        forms.push(base64(&secret.as_bytes()[skipped..skipped + whole]));
    }
    forms
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = |group: &[u8]| {
        let bits = group.iter().fold(0, |bits, b| bits << 8 | usize::from(*b));
        [18, 12, 6, 0].map(|shift| char::from(DIGITS[bits >> shift & 63]))
    };
    bytes.chunks_exact(3).flat_map(digits).collect()
}

/// A new random password of letters alone, which matches no known token format.
fn new_secret() -> Result<String> {
    let mut bytes = [0; 24];
    let mut source = fs::File::open("/dev/urandom").map_err(|e| e.to_string())?;
    std::io::Read::read_exact(&mut source, &mut bytes).map_err(|e| e.to_string())?;
    Ok(bytes.iter().map(|b| char::from(b'a' + b % 26)).collect())
}
