//! The environment of one check: an empty home, a project with a remote, a private copy of the programs, and a second
//! terminal for the user.

use super::{Integration, kinds::AgentKind, session::AgentSession};
use crate::{Result, command, outside::Deadline};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

/// The reason of the rule that denies `mkdir`; the model must see it.
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
    pub(super) integration: Integration,
    pub(super) dir: PathBuf,
    /// The program of the second terminal, which stays intact when a check breaks the agent's copy.
    csn: PathBuf,
    environment: Vec<(&'static str, String)>,
}

impl TrialHome {
    pub(super) fn create(
        agent: AgentKind,
        integration: Integration,
        programs: &Path,
        npm_programs: &Path,
    ) -> Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // The path must be short: the daemon's socket is below it, and the length of a socket path is limited.
        let dir = std::env::temp_dir().join(format!("csn-agents-{}-{number}", std::process::id()));
        for part in ["user", "project/sub", "tmp", "bin"] {
            fs::create_dir_all(dir.join(part)).map_err(|e| format!("{}: {e}", dir.display()))?;
        }
        for name in ["csn", "csn-shim"] {
            let (from, to) = (programs.join(name), dir.join("bin").join(name));
            // A hard link gives the program another name; a symbolic link would be resolved.
            let result = fs::hard_link(&from, &to).or_else(|_| fs::copy(&from, &to).map(drop));
            result.map_err(|e| format!("{}: {e}", from.display()))?;
        }
        let environment = vec![
            ("PATH", format!("{}:{}:/usr/bin:/bin", dir.join("bin").display(), npm_programs.display())),
            // Only HOME tells where Countersign's home is: Codex passes little else to its MCP servers.
            ("HOME", dir.join("user").display().to_string()),
            // Codex disables a part of its sandbox if the home is below the directory for temporary files.
            ("TMPDIR", dir.join("tmp").display().to_string()),
            ("LANG", "C.UTF-8".to_owned()),
            ("SHELL", "/bin/bash".to_owned()),
            ("TERM", "dumb".to_owned()),
        ];
        let daemon = Self { agent, integration, dir, csn: programs.join("csn"), environment };
        daemon.set_up_project()?;
        Ok(daemon)
    }

    fn set_up_project(&self) -> Result<()> {
        self.write_home_file(".config/countersign/config.toml", CONFIG)?;
        self.write_home_file(".gitconfig", "[user]\nname = A\nemail = a@example.org\n[init]\ndefaultBranch = main\n")?;
        for (file, text) in [("greeting", "hello from the project\n"), ("sub/here", "deep in the project\n")] {
            fs::write(self.project_file(file), text).map_err(|e| format!("{file}: {e}"))?;
        }
        for line in [
            "git init --quiet",
            "git add .",
            "git commit --quiet -m first",
            // The remote is in the workspace, because the sandbox of the push opens no other directory.
            "git init --quiet --bare remote.git",
            "git remote add origin ./remote.git",
        ] {
            self.stdout_of(self.command("sh").args(["-c", line]))?;
        }
        match self.integration {
            Integration::Plain => Ok(()),
            integration => {
                self.csn(&["up", "--detach"])?;
                // Installs by the name that the agent gets, since that name is written into its configuration.
                let mut install = self.command(&self.dir.join("bin/csn").display().to_string());
                install.args(["install", self.agent.name(), "--mode", integration.name(), "--scope", "user"]);
                self.stdout_of(&mut install).map(drop)
            }
        }
    }

    /// A program in the clean environment, in the project.
    pub(super) fn command(&self, program: &str) -> Command {
        // The search uses the PATH of the trial, not that of this process.
        let path = &self.environment[0].1;
        let found = path.split(':').map(|dir| Path::new(dir).join(program)).find(|path| path.exists());
        let mut command = command(&found.unwrap_or_else(|| program.into()).display().to_string());
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.project_file("."));
        command
    }

    pub(super) fn project_file(&self, file: &str) -> PathBuf {
        self.dir.join("project").join(file)
    }

    /// A file of the home.
    pub(super) fn home_file(&self, file: &str) -> PathBuf {
        self.dir.join("user").join(file)
    }

    pub(super) fn write_home_file(&self, file: &str, text: &str) -> Result<()> {
        let path = self.home_file(file);
        let result = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
        result.map_err(|e| format!("{}: {e}", path.display()))
    }

    fn stdout_of(&self, command: &mut Command) -> Result<String> {
        let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
        let printed = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            Ok(printed(&output.stdout))
        } else {
            Err(format!("{command:?}: {}: {}{}", output.status, printed(&output.stdout), printed(&output.stderr)))
        }
    }

    /// Runs `csn` in the second terminal, with no agent among its parent processes.
    pub(super) fn csn(&self, args: &[&str]) -> Result<String> {
        self.stdout_of(self.command(&self.csn.display().to_string()).args(args))
    }

    /// Runs a listing verb; returns one value for each line.
    pub(super) fn list(&self, args: &[&str]) -> Result<Vec<Value>> {
        let text = self.csn(&[args, &["--json"]].concat())?;
        let lines =
            text.lines().map(|line| serde_json::from_str(line).map_err(|e| format!("csn {args:?}: {e}: {line}")));
        lines.collect()
    }

    /// The report of `csn doctor`, also if it fails.
    pub(super) fn doctor(&self) -> Result<Value> {
        let mut csn = self.command(&self.csn.display().to_string());
        let output = csn.args(["doctor", "--json"]).output().map_err(|e| format!("csn doctor: {e}"))?;
        serde_json::from_slice(&output.stdout).map_err(|e| format!("csn doctor: {e}"))
    }

    /// Waits for the approval that this session requests.
    pub(super) fn wait_for_approval(&self, session: &mut AgentSession) -> Result<String> {
        let deadline = Deadline::start();
        loop {
            let waiting = self.list(&["approvals", "list"])?;
            if let Some(id) = waiting.first().and_then(|approval| approval["id"].as_str()) {
                return Ok(id.to_owned());
            }
            if let Some(printed) = session.poll_end()? {
                return Err(format!("the agent ended without requesting approval:\n{printed}"));
            }
            if !deadline.wait() {
                return Err("no approval was requested in time".into());
            }
        }
    }

    /// The id of the only task that shows this command.
    pub(super) fn find_task(&self, shown: &str) -> Result<String> {
        let tasks = self.list(&["ps", "-a"])?;
        let found: Vec<_> = tasks.iter().filter(|task| task["display"] == shown).collect();
        match found[..] {
            [task] => Ok(task["task_id"].as_str().unwrap_or_default().to_owned()),
            _ => Err(format!("exactly one task should show `{shown}`: {tasks:?}")),
        }
    }

    /// Waits for the receipt of a task, and verifies it.
    pub(super) fn wait_for_receipt(&self, task: &str) -> Result<Value> {
        let deadline = Deadline::start();
        let receipt = loop {
            let receipts = self.list(&["receipts", "list"])?;
            if let Some(receipt) = receipts.into_iter().find(|receipt| receipt["task_id"] == task) {
                break receipt;
            }
            if !deadline.wait() {
                return Err(format!("{task} has no receipt"));
            }
        };
        self.csn(&["verify", task])?;
        Ok(receipt)
    }

    /// Whether anything was pushed.
    pub(super) fn has_pushed(&self) -> Result<bool> {
        let refs = self.stdout_of(self.command("git").args(["--git-dir", "remote.git", "for-each-ref"]))?;
        Ok(!refs.is_empty())
    }
}

impl Drop for TrialHome {
    fn drop(&mut self) {
        if self.integration != Integration::Plain {
            // The check may have stopped the daemon already.
            let _ = self.csn(&["down", "--stop-tasks"]);
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}
