//! One run of an agent: started with a prompt and a script for its model, watched, and ended.

use super::{model::ScriptedModel, trial_home::TrialHome};
use crate::{Result, outside::Deadline};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Stdio},
    time::Duration,
};

/// For an agent on a busy machine; one takes about two seconds by itself.
const LONG: Duration = Duration::from_secs(120);

pub(super) struct AgentSession {
    model: ScriptedModel,
    agent: Child,
    log: PathBuf,
}

impl AgentSession {
    /// Starts the agent; its model takes these steps. `more` are arguments of the agent.
    pub(super) fn start(daemon: &TrialHome, steps: &[Value], more: &[&str]) -> Result<Self> {
        let dir = daemon.dir.join("model");
        // A check may run the agent more than once.
        let _ = fs::remove_dir_all(&dir);
        let model = ScriptedModel::start(&dir, steps)?;
        daemon.agent.point(daemon, model.port)?;
        let log = daemon.dir.join("agent.log");
        let file = fs::File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let errors = file.try_clone().map_err(|e| e.to_string())?;
        let mut agent = daemon.agent.command(daemon, model.port, more);
        // At a pipe that stays open some of them wait for more of the prompt.
        agent.stdin(Stdio::null()).stdout(file).stderr(errors);
        // The programs of npm are launchers: what they launch must end with them.
        agent.process_group(0);
        let agent = agent.spawn().map_err(|e| format!("{}: {e}", daemon.agent.name()))?;
        Ok(Self { model, agent, log })
    }

    /// What its model saw, once the agent has ended, as it does after the last step.
    pub(super) fn end(mut self) -> Result<Vec<String>> {
        let patience = Deadline::begin();
        while self.agent.try_wait().map_err(|e| e.to_string())?.is_none() {
            if !patience.left_of(LONG) {
                return Err(format!("the agent does not end:\n{}", self.log()));
            }
        }
        let saw = self.model.saw()?;
        if saw.is_empty() {
            return Err(format!("the model saw no result:\n{}", self.log()));
        }
        Ok(saw)
    }

    /// Whether it has ended, with what it said: then whoever waits for something else of it need not.
    pub(super) fn ended(&mut self) -> Result<Option<String>> {
        let ended = self.agent.try_wait().map_err(|e| e.to_string())?.is_some();
        Ok(if ended { Some(format!("{}\nthe model saw {:?}", self.log(), self.model.saw()?)) } else { None })
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let from = log.char_indices().rev().nth(4000).map_or(0, |(at, _)| at);
        log[from..].to_owned()
    }
}

impl Drop for AgentSession {
    fn drop(&mut self) {
        if let Ok(None) = self.agent.try_wait() {
            let _ = rustix::process::kill_process_group(Pid::from_child(&self.agent), Signal::KILL);
        }
        let _ = self.agent.wait();
    }
}
