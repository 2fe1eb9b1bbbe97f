//! One run of an agent: starts it with a prompt and a scripted model, and waits for its end.

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

/// Allows for a busy machine; an agent normally takes about two seconds.
const AGENT_TIMEOUT: Duration = Duration::from_secs(120);

pub(super) struct AgentSession {
    model: ScriptedModel,
    agent: Child,
    log: PathBuf,
}

impl AgentSession {
    /// Starts the agent with a model that takes these steps. `more` are arguments of the agent.
    pub(super) fn start(home: &TrialHome, steps: &[Value], more: &[&str]) -> Result<Self> {
        let dir = home.dir.join("model");
        // A check may run the agent more than once.
        let _ = fs::remove_dir_all(&dir);
        let model = ScriptedModel::start(&dir, steps)?;
        home.agent.configure_model(home, model.port)?;
        let log = home.dir.join("agent.log");
        let file = fs::File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let errors = file.try_clone().map_err(|e| e.to_string())?;
        let mut agent = home.agent.command(home, model.port, more);
        // Some agents wait for more of the prompt if stdin is an open pipe.
        agent.stdin(Stdio::null()).stdout(file).stderr(errors);
        // The programs from npm are launchers; the processes that they start must end with them.
        agent.process_group(0);
        let agent = agent.spawn().map_err(|e| format!("{}: {e}", home.agent.name()))?;
        Ok(Self { model, agent, log })
    }

    /// Waits for the end of the agent, which follows the last step; returns the results that its model saw.
    pub(super) fn wait_for_results(mut self) -> Result<Vec<String>> {
        let deadline = Deadline::start();
        while self.agent.try_wait().map_err(|e| e.to_string())?.is_none() {
            if !deadline.wait_within(AGENT_TIMEOUT) {
                return Err(format!("the agent does not end in time:\n{}", self.log_tail()));
            }
        }
        let results = self.model.tool_results()?;
        if results.is_empty() {
            return Err(format!("the model saw no result:\n{}", self.log_tail()));
        }
        Ok(results)
    }

    /// Returns the agent's output if it has ended, so that a caller stops waiting for something else.
    pub(super) fn poll_end(&mut self) -> Result<Option<String>> {
        let ended = self.agent.try_wait().map_err(|e| e.to_string())?.is_some();
        Ok(if ended {
            Some(format!("{}\nthe model saw {:?}", self.log_tail(), self.model.tool_results()?))
        } else {
            None
        })
    }

    fn log_tail(&self) -> String {
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
