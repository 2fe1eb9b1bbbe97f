//! `outside`: proofs with other people's tools. The same program runs twice in panes of tmux, once by itself and once
//! through `csn run --pty`; the same keys go to both, and both must show the same.
//!
//! `cargo xtask outside NAME` runs one check alone. `CSN_BIN=DIR` takes the programs from there, instead of building
//! them. Programs that are missing are installed with apt.

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
use tmux::{Pane, Tmux, Twins, text_of};

/// Long enough for a busy machine; nothing here takes a second by itself.
const PATIENCE: Duration = Duration::from_secs(20);
/// What a task that nobody asks about is started with.
const RUN: &[&str] = &["run", "--pty", "--profile", "full_auto", "--quiet"];

/// Programs and the packages of Debian that hold them.
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

/// All checks, or the one of this name.
pub(crate) fn outside(only: Option<&str>) -> Result<()> {
    let chosen: Vec<_> = CHECKS.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)).collect();
    if chosen.is_empty() {
        let names: Vec<_> = CHECKS.iter().map(|(name, _)| *name).collect();
        return Err(format!("no check of that name; there are {}", names.join(", ")));
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
        match CheckStage::set(name, &programs).and_then(|stage| check(&stage).and_then(|()| stage.clear())) {
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

/// Time that is left for something to happen.
pub(crate) struct Deadline(Instant);

impl Deadline {
    #[expect(clippy::disallowed_methods, reason = "what others show has no bell: it is looked at until it is there")]
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }

    /// Lets a moment pass; whether there is another.
    pub(crate) fn left(&self) -> bool {
        self.left_of(PATIENCE)
    }

    /// The same for what may take longer.
    pub(crate) fn left_of(&self, all: Duration) -> bool {
        std::thread::sleep(Duration::from_millis(25));
        self.0.elapsed() < all
    }
}

/// A house and a tmux server for one check, in a directory of their own.
struct CheckStage {
    dir: PathBuf,
    csn: String,
    environment: Vec<(String, String)>,
    tmux: Tmux,
}

impl CheckStage {
    fn set(name: &str, programs: &Path) -> Result<Self> {
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
            // Where its socket is: tmux leaves it behind.
            ("TMUX_TMPDIR", dir.display().to_string()),
            ("LANG", "C.UTF-8".to_owned()),
            ("SHELL", "/bin/bash".to_owned()),
        ];
        let environment: Vec<_> = environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let csn = programs.join("csn").display().to_string();
        Ok(Self { tmux: Tmux::new(environment.clone()), dir, csn, environment })
    }

    /// A program in the environment of the panes, in a directory of the stage.
    fn command(&self, program: &str, directory: &str) -> Command {
        let mut command = command(program);
        command.env_clear().envs(self.environment.iter().map(|(k, v)| (k, v)));
        command.current_dir(self.dir.join(directory));
        command
    }

    fn csn(&self, args: &[&str]) -> Result<String> {
        let output = self.command(&self.csn, ".").args(args).output().map_err(|e| format!("{}: {e}", self.csn))?;
        text_of(&format!("csn {}", args.join(" ")), &output)
    }

    /// A directory with these files in it.
    fn directory(&self, name: &str, files: &[(&str, &str)]) -> Result<PathBuf> {
        let dir = self.dir.join(name);
        fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        for (file, content) in files {
            let path = dir.join(file);
            let made =
                fs::write(&path, content).and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)));
            made.map_err(|e| format!("{}: {e}", path.display()))?;
        }
        Ok(dir)
    }

    /// Shell text twice, each in a directory of its own with the same files, so that names are the same too.
    fn twins(&self, program: &str, files: &[(&str, &str)]) -> Result<Twins<'_>> {
        let (here, there) = (self.directory("direct", files)?, self.directory("through", files)?);
        let direct = self.tmux.pane("direct", &here, &["bash", "-c", program])?;
        let through = self.tmux.pane("through", &there, &[&[self.csn.as_str()], RUN, &[program]].concat())?;
        Ok(Twins { direct, through })
    }

    /// Starts shell text in the background, below `through`; its task.
    fn background(&self, program: &str) -> Result<String> {
        let output = self.command(&self.csn, "through").args(RUN).args(["--background", program]).output();
        let output = output.map_err(|e| format!("{}: {e}", self.csn))?;
        Ok(text_of("csn run --background", &output)?.trim().to_owned())
    }

    fn attach(&self, name: &str, task: &str) -> Result<Pane<'_>> {
        self.tmux.pane(name, &self.dir, &[&self.csn, "attach", task])
    }

    /// What `csn show --screen` prints, once it holds this text.
    fn shows(&self, task: &str, expected: &str) -> Result<String> {
        let patience = Deadline::begin();
        loop {
            let screen = self.csn(&["show", task, "--screen"])?;
            if screen.contains(expected) {
                return Ok(screen);
            }
            if !patience.left() {
                return Err(format!("the task does not show {expected:?}:\n{screen}"));
            }
        }
    }

    /// What both programs wrote into this file.
    fn same_file(&self, name: &str, expected: &str) -> Result<()> {
        for side in ["direct", "through"] {
            let path = self.dir.join(side).join(name);
            let bytes = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            if bytes != expected.as_bytes() {
                return Err(format!("{side}/{name} holds {:?}", String::from_utf8_lossy(&bytes)));
            }
        }
        Ok(())
    }

    /// Looks for a secret in every file of the home, as it is and in the forms that bytes are put into text with.
    fn nowhere(&self, secret: &str) -> Result<()> {
        let mut grep = self.command("grep", ".");
        grep.args(["-r", "--text", "--fixed-strings", "--files-with-matches"]);
        grep.args(forms(secret).iter().map(|form| format!("--regexp={form}")));
        let output = grep.arg("home").output().map_err(|e| format!("grep: {e}"))?;
        match output.status.code() {
            Some(0) => Err(format!("a secret is on the disk: {}", String::from_utf8_lossy(&output.stdout).trim())),
            Some(1) => Ok(()),
            _ => Err(format!("grep: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    }

    /// Whether grep finds what must be there: else it finding nothing would prove nothing.
    fn recorded(&self, text: &str) -> Result<()> {
        let mut grep = self.command("grep", ".");
        let output = grep.args(["-r", "--text", "--fixed-strings", "-l", "-e", text, "home"]).output();
        let output = output.map_err(|e| format!("grep: {e}"))?;
        match String::from_utf8_lossy(&output.stdout).contains("pty.log") {
            true => Ok(()),
            false => Err(format!("no pty.log holds {text:?}")),
        }
    }

    fn clear(&self) -> Result<()> {
        self.csn(&["down", "--stop-tasks"]).map(drop)
    }
}

impl Drop for CheckStage {
    fn drop(&mut self) {
        // After a failure the house is still there.
        let _ = self.clear();
        self.tmux.end();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A secret as it is, as hexadecimal digits, and as base64 wherever in a text it begins.
fn forms(secret: &str) -> Vec<String> {
    let hex = secret.bytes().map(|b| format!("{b:02x}")).collect();
    let mut forms = vec![secret.to_owned(), hex];
    for skipped in 0..3 {
        // Whole groups of three bytes come out the same, whatever is around them.
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

/// A password that no other run had, of letters alone: no known shape of a token gives it away.
fn new_secret() -> Result<String> {
    let mut bytes = [0; 24];
    let mut source = fs::File::open("/dev/urandom").map_err(|e| e.to_string())?;
    std::io::Read::read_exact(&mut source, &mut bytes).map_err(|e| e.to_string())?;
    Ok(bytes.iter().map(|b| char::from(b'a' + b % 26)).collect())
}
