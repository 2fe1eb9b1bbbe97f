//! What an agent's commands meet: some run, some wait for a person, some do not run.

use super::{
    Integration,
    session::AgentSession,
    trial_home::{REASON, TrialHome},
};
use crate::Result;
use serde_json::{Value, json};
use std::fs;

const PUSH: &str = "git push origin HEAD:main";

impl TrialHome {
    /// The step that runs a command, in the way of this check.
    pub(super) fn run(&self, command: &str) -> Value {
        match self.way {
            Integration::Mcp => self.agent.mcp("run", json!({"command": command})),
            Integration::Plain | Integration::Hook => self.agent.shell(command),
        }
    }

    pub(super) fn session(&self, steps: &[Value]) -> Result<AgentSession> {
        AgentSession::start(self, steps, self.agent.usual(self.way))
    }
}

/// What a step was answered with must hold this text.
pub(super) fn holds(saw: &[String], step: usize, text: &str) -> Result<()> {
    match saw.get(step) {
        Some(result) if result.contains(text) => Ok(()),
        _ => Err(format!("result {step} does not hold {text:?}: {saw:?}")),
    }
}

pub(super) fn plain(daemon: &TrialHome) -> Result<()> {
    let saw = daemon.session(&[daemon.run("cat greeting"), daemon.run("touch made")])?.end()?;
    holds(&saw, 0, "hello from the project")?;
    fs::metadata(daemon.project("made")).map(drop).map_err(|e| format!("what the model said was not done: {e}"))
}

pub(super) fn reads(daemon: &TrialHome) -> Result<()> {
    let mut session = daemon.session(&[daemon.run("cat greeting")])?;
    // Looked at while it runs too: a question would keep the agent waiting.
    loop {
        let asked = daemon.list(&["approvals", "list"])?;
        if !asked.is_empty() {
            return Err(format!("somebody was asked: {asked:?}"));
        }
        if session.ended()?.is_some() {
            break;
        }
    }
    holds(&session.end()?, 0, "hello from the project")?;
    daemon.receipt(&daemon.task("cat greeting")?).map(drop)
}

pub(super) fn push(daemon: &TrialHome) -> Result<()> {
    let mut steps = vec![daemon.run(PUSH)];
    if daemon.way == Integration::Mcp {
        // Whether the first call waited long enough or not, after this one it has ended.
        steps.push(daemon.agent.mcp("task_wait", json!({"task_id": "{{task_id}}"})));
    }
    let mut session = daemon.session(&steps)?;
    let question = daemon.question(&mut session)?;
    if daemon.pushed()? {
        return Err("it ran before anybody had answered".into());
    }
    daemon.csn(&["approvals", "answer", &question, "once"])?;
    let saw = session.end()?;
    // Only git says this; the command itself is in some of the answers.
    holds(&[saw.join("\n")], 0, "HEAD -> main")?;
    if !daemon.pushed()? {
        return Err(format!("it was approved and did not run: {saw:?}"));
    }
    let receipt = daemon.receipt(&daemon.task(PUSH)?)?;
    match receipt["outcome"] == json!({"kind": "exited", "code": 0}) {
        true => Ok(()),
        false => Err(format!("the receipt says {receipt}")),
    }
}

pub(super) fn denied(daemon: &TrialHome) -> Result<()> {
    let saw = AgentSession::start(daemon, &[daemon.run("mkdir made")], daemon.agent.willing(daemon.way))?.end()?;
    if daemon.project("made").exists() {
        return Err("it ran".into());
    }
    holds(&saw, 0, REASON)
}

pub(super) fn refused(daemon: &TrialHome) -> Result<()> {
    const WORDS: &str = "ask Ada first";
    let mut steps = vec![daemon.run(PUSH)];
    if daemon.way == Integration::Mcp {
        steps.push(daemon.agent.mcp("task_wait", json!({"task_id": "{{task_id}}"})));
    }
    let mut session = daemon.session(&steps)?;
    let question = daemon.question(&mut session)?;
    daemon.csn(&["approvals", "answer", &question, "deny", "--words", WORDS])?;
    let saw = session.end()?;
    if daemon.pushed()? {
        return Err("it ran".into());
    }
    // In whichever answer: the first, where it waited, or the one that was waited with.
    holds(&[saw.join("\n")], 0, WORDS)
}

pub(super) fn cd(daemon: &TrialHome) -> Result<()> {
    let saw = daemon.session(&[daemon.run("cd sub && cat here"), daemon.run("cat here")])?.end()?;
    holds(&saw, 0, "deep in the project")?;
    holds(&saw, 1, "deep in the project")
}

pub(super) fn witness(daemon: &TrialHome) -> Result<()> {
    daemon.csn(&["install", "claude-code", "--witness"])?;
    let saw = daemon.session(&[daemon.run("cat greeting"), daemon.run("mkdir made")])?.end()?;
    holds(&saw, 0, "hello from the project")?;
    holds(&saw, 1, REASON)?;
    if daemon.project("made").exists() {
        return Err("what was denied ran".into());
    }
    let task = daemon.task("cat greeting")?;
    daemon.receipt(&task)?;
    let whole = daemon.csn(&["receipts", "show", &task, "--json"])?;
    let whole: Value = serde_json::from_str(&whole).map_err(|e| format!("csn receipts show: {e}"))?;
    // By its place: how files were watched is said with the same word elsewhere.
    let kind = &whole["predicate"]["execution"]["kind"];
    if kind == "observed" { Ok(()) } else { Err(format!("the receipt says that it was {kind}")) }
}
