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

pub(super) fn plain(house: &TrialHome) -> Result<()> {
    let saw = house.session(&[house.run("cat greeting"), house.run("touch made")])?.end()?;
    holds(&saw, 0, "hello from the project")?;
    fs::metadata(house.project("made")).map(drop).map_err(|e| format!("what the model said was not done: {e}"))
}

pub(super) fn reads(house: &TrialHome) -> Result<()> {
    let mut session = house.session(&[house.run("cat greeting")])?;
    // Looked at while it runs too: a question would keep the agent waiting.
    loop {
        let asked = house.list(&["approvals", "list"])?;
        if !asked.is_empty() {
            return Err(format!("somebody was asked: {asked:?}"));
        }
        if session.ended()?.is_some() {
            break;
        }
    }
    holds(&session.end()?, 0, "hello from the project")?;
    house.receipt(&house.task("cat greeting")?).map(drop)
}

pub(super) fn push(house: &TrialHome) -> Result<()> {
    let mut steps = vec![house.run(PUSH)];
    if house.way == Integration::Mcp {
        // Whether the first call waited long enough or not, after this one it has ended.
        steps.push(house.agent.mcp("task_wait", json!({"task_id": "{{task_id}}"})));
    }
    let mut session = house.session(&steps)?;
    let question = house.question(&mut session)?;
    if house.pushed()? {
        return Err("it ran before anybody had answered".into());
    }
    house.csn(&["approvals", "answer", &question, "once"])?;
    let saw = session.end()?;
    // Only git says this; the command itself is in some of the answers.
    holds(&[saw.join("\n")], 0, "HEAD -> main")?;
    if !house.pushed()? {
        return Err(format!("it was approved and did not run: {saw:?}"));
    }
    let receipt = house.receipt(&house.task(PUSH)?)?;
    match receipt["outcome"] == json!({"kind": "exited", "code": 0}) {
        true => Ok(()),
        false => Err(format!("the receipt says {receipt}")),
    }
}

pub(super) fn denied(house: &TrialHome) -> Result<()> {
    let saw = AgentSession::start(house, &[house.run("mkdir made")], house.agent.willing(house.way))?.end()?;
    if house.project("made").exists() {
        return Err("it ran".into());
    }
    holds(&saw, 0, REASON)
}

pub(super) fn refused(house: &TrialHome) -> Result<()> {
    const WORDS: &str = "ask Ada first";
    let mut steps = vec![house.run(PUSH)];
    if house.way == Integration::Mcp {
        steps.push(house.agent.mcp("task_wait", json!({"task_id": "{{task_id}}"})));
    }
    let mut session = house.session(&steps)?;
    let question = house.question(&mut session)?;
    house.csn(&["approvals", "answer", &question, "deny", "--words", WORDS])?;
    let saw = session.end()?;
    if house.pushed()? {
        return Err("it ran".into());
    }
    // In whichever answer: the first, where it waited, or the one that was waited with.
    holds(&[saw.join("\n")], 0, WORDS)
}

pub(super) fn cd(house: &TrialHome) -> Result<()> {
    let saw = house.session(&[house.run("cd sub && cat here"), house.run("cat here")])?.end()?;
    holds(&saw, 0, "deep in the project")?;
    holds(&saw, 1, "deep in the project")
}

pub(super) fn witness(house: &TrialHome) -> Result<()> {
    house.csn(&["install", "claude-code", "--witness"])?;
    let saw = house.session(&[house.run("cat greeting"), house.run("mkdir made")])?.end()?;
    holds(&saw, 0, "hello from the project")?;
    holds(&saw, 1, REASON)?;
    if house.project("made").exists() {
        return Err("what was denied ran".into());
    }
    let task = house.task("cat greeting")?;
    house.receipt(&task)?;
    let whole = house.csn(&["receipts", "show", &task, "--json"])?;
    let whole: Value = serde_json::from_str(&whole).map_err(|e| format!("csn receipts show: {e}"))?;
    // By its place: how files were watched is said with the same word elsewhere.
    let kind = &whole["predicate"]["execution"]["kind"];
    if kind == "observed" { Ok(()) } else { Err(format!("the receipt says that it was {kind}")) }
}
