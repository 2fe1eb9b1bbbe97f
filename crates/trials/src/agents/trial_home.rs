//! What one check needs: a home with nothing in it, a project with a remote, our programs in a place of their own, and
//! whoever is at another terminal.

use super::{Integration, kinds::AgentKind, session::AgentSession};
use crate::{Result, command, outside::Deadline};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

/// What the rule says that denies `mkdir`; the model must see it.
pub(super) const REASON: &str = "directories are made by people";
const CONFIG: &str = r#"[[rules]]
name = "no-directories"
answer = "deny"
verb = "mkdir"
reason = "directories are made by people"
match = ["mkdir made"]
not_match = ["ls"]
"#;

pub(super) struct TrialHome {
    pub(super) agent: AgentKind,
    pub(super) way: Integration,
    pub(super) dir: PathBuf,
    /// The program of the other terminal: it stays as it is when a check breaks the one that the agent was given.
    csn: PathBuf,
    environment: Vec<(&'static str, String)>,
}

impl TrialHome {
    pub(super) fn set(agent: AgentKind, way: Integration, ours: &Path, theirs: &Path) -> Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Short: the house's socket lies below it, and a socket's path has an end.
        let dir = std::env::temp_dir().join(format!("csn-agents-{}-{number}", std::process::id()));
        for part in ["user", "project/sub", "tmp", "bin"] {
            fs::create_dir_all(dir.join(part)).map_err(|e| format!("{}: {e}", dir.display()))?;
        }
        for name in ["csn", "csn-shim"] {
            let (from, to) = (ours.join(name), dir.join("bin").join(name));
            // A link is the same program by another name; a symbolic one would be seen through.
            let made = fs::hard_link(&from, &to).or_else(|_| fs::copy(&from, &to).map(drop));
            made.map_err(|e| format!("{}: {e}", from.display()))?;
        }
        let environment = vec![
            ("PATH", format!("{}:{}:/usr/bin:/bin", dir.join("bin").display(), theirs.display())),
            // Nothing else says where the house is: Codex gives its MCP servers HOME and hardly more.
            ("HOME", dir.join("user").display().to_string()),
            // Codex does without a part of its sandbox in a home below what is for temporary files.
            ("TMPDIR", dir.join("tmp").display().to_string()),
            ("LANG", "C.UTF-8".to_owned()),
            ("SHELL", "/bin/bash".to_owned()),
            ("TERM", "dumb".to_owned()),
        ];
        let daemon = Self { agent, way, dir, csn: ours.join("csn"), environment };
        daemon.furnish()?;
        Ok(daemon)
    }

    fn furnish(&self) -> Result<()> {
        self.write(".config/countersign/config.toml", CONFIG)?;
        self.write(".gitconfig", "[user]\nname = A\nemail = a@example.org\n[init]\ndefaultBranch = main\n")?;
        for (file, text) in [("greeting", "hello from the project\n"), ("sub/here", "deep in the project\n")] {
            fs::write(self.project(file), text).map_err(|e| format!("{file}: {e}"))?;
        }
        for line in [
            "git init --quiet",
            "git add .",
            "git commit --quiet -m first",
            // In the workspace: what is pushed runs in a sandbox that holds no other place.
            "git init --quiet --bare remote.git",
            "git remote add origin ./remote.git",
        ] {
            self.said(self.command("sh").args(["-c", line]))?;
        }
        match self.way {
            Integration::Plain => Ok(()),
            way => {
                self.csn(&["up", "--detach"])?;
                // By the name that the agent is given, since that is what gets written down.
                let mut install = self.command(&self.dir.join("bin/csn").display().to_string());
                install.args(["install", self.agent.name(), "--mode", way.name(), "--scope", "user"]);
                self.said(&mut install).map(drop)
            }
        }
    }

    /// A program in the clean environment, in the project.
    pub(super) fn command(&self, program: &str) -> Command {
        // Looked for here: the PATH that is searched would be ours, not the one that the program gets.
        let path = &self.environment[0].1;
        let found = path.split(':').map(|dir| Path::new(dir).join(program)).find(|path| path.exists());
        let mut command = command(&found.unwrap_or_else(|| program.into()).display().to_string());
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.project("."));
        command
    }

    pub(super) fn project(&self, file: &str) -> PathBuf {
        self.dir.join("project").join(file)
    }

    /// A file of the home.
    pub(super) fn user(&self, file: &str) -> PathBuf {
        self.dir.join("user").join(file)
    }

    pub(super) fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.user(file);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
        made.map_err(|e| format!("{}: {e}", path.display()))
    }

    fn said(&self, command: &mut Command) -> Result<String> {
        let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        match output.status.success() {
            true => Ok(said(&output.stdout)),
            false => Err(format!("{command:?}: {}: {}{}", output.status, said(&output.stdout), said(&output.stderr))),
        }
    }

    /// `csn` at another terminal: no process of an agent is above it.
    pub(super) fn csn(&self, args: &[&str]) -> Result<String> {
        self.said(self.command(&self.csn.display().to_string()).args(args))
    }

    /// What it lists, one value for each line.
    pub(super) fn list(&self, args: &[&str]) -> Result<Vec<Value>> {
        let text = self.csn(&[args, &["--json"]].concat())?;
        let lines =
            text.lines().map(|line| serde_json::from_str(line).map_err(|e| format!("csn {args:?}: {e}: {line}")));
        lines.collect()
    }

    /// What `csn doctor` says; that it fails is part of what it says.
    pub(super) fn doctor(&self) -> Result<Value> {
        let mut csn = self.command(&self.csn.display().to_string());
        let output = csn.args(["doctor", "--json"]).output().map_err(|e| format!("csn doctor: {e}"))?;
        serde_json::from_slice(&output.stdout).map_err(|e| format!("csn doctor: {e}"))
    }

    /// The question that this session comes to ask.
    pub(super) fn question(&self, session: &mut AgentSession) -> Result<String> {
        let patience = Deadline::begin();
        loop {
            let waiting = self.list(&["approvals", "list"])?;
            if let Some(id) = waiting.first().and_then(|question| question["id"].as_str()) {
                return Ok(id.to_owned());
            }
            if let Some(said) = session.ended()? {
                return Err(format!("the agent ended and nobody was asked:\n{said}"));
            }
            if !patience.left() {
                return Err("nobody is asked".into());
            }
        }
    }

    /// The one task that shows this command; its id.
    pub(super) fn task(&self, shown: &str) -> Result<String> {
        let tasks = self.list(&["ps", "-a"])?;
        let found: Vec<_> = tasks.iter().filter(|task| task["display"] == shown).collect();
        match found[..] {
            [task] => Ok(task["task_id"].as_str().unwrap_or_default().to_owned()),
            _ => Err(format!("not one task shows `{shown}`: {tasks:?}")),
        }
    }

    /// What the receipt of a task says, once it is sealed, and that it verifies.
    pub(super) fn receipt(&self, task: &str) -> Result<Value> {
        let patience = Deadline::begin();
        let receipt = loop {
            let receipts = self.list(&["receipts", "list"])?;
            if let Some(receipt) = receipts.into_iter().find(|receipt| receipt["task_id"] == task) {
                break receipt;
            }
            if !patience.left() {
                return Err(format!("{task} has no receipt"));
            }
        };
        self.csn(&["verify", task])?;
        Ok(receipt)
    }

    /// Whether anything was pushed.
    pub(super) fn pushed(&self) -> Result<bool> {
        let refs = self.said(self.command("git").args(["--git-dir", "remote.git", "for-each-ref"]))?;
        Ok(!refs.is_empty())
    }
}

impl Drop for TrialHome {
    fn drop(&mut self) {
        if self.way != Integration::Plain {
            // A check may have ended it already.
            let _ = self.csn(&["down", "--stop-tasks"]);
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}
