//! Checks of the decisions about an agent's commands: some run, some wait for approval, some are denied.

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
    /// The model step that runs a command through the integration under test.
    pub(super) fn run_step(&self, command: &str) -> Value {
        match self.integration {
            Integration::Mcp => self.agent.mcp_step("run", json!({"command": command})),
            Integration::Plain | Integration::Hook => self.agent.shell_step(command),
        }
    }

    pub(super) fn start_session(&self, steps: &[Value]) -> Result<AgentSession> {
        AgentSession::start(self, steps, self.agent.usual_args(self.integration))
    }
}

/// Expects the result of a step to contain this text.
pub(super) fn expect_result(results: &[String], step: usize, text: &str) -> Result<()> {
    match results.get(step) {
        Some(result) if result.contains(text) => Ok(()),
        _ => Err(format!("result {step} does not contain {text:?}: {results:?}")),
    }
}

pub(super) fn check_loop(home: &TrialHome) -> Result<()> {
    let results =
        home.start_session(&[home.run_step("cat greeting"), home.run_step("touch made")])?.wait_for_results()?;
    expect_result(&results, 0, "hello from the project")?;
    fs::metadata(home.project_file("made"))
        .map(drop)
        .map_err(|e| format!("the agent did not run the model's command: {e}"))
}

pub(super) fn check_reads(home: &TrialHome) -> Result<()> {
    let mut session = home.start_session(&[home.run_step("cat greeting")])?;
    // Polls while the agent runs, since a pending approval would block the agent.
    loop {
        let waiting = home.list(&["approvals", "list"])?;
        if !waiting.is_empty() {
            return Err(format!("an approval was requested: {waiting:?}"));
        }
        if session.poll_end()?.is_some() {
            break;
        }
    }
    expect_result(&session.wait_for_results()?, 0, "hello from the project")?;
    home.wait_for_receipt(&home.find_task("cat greeting")?).map(drop)
}

pub(super) fn check_push(home: &TrialHome) -> Result<()> {
    let mut steps = vec![home.run_step(PUSH)];
    if home.integration == Integration::Mcp {
        // The task has ended after this call, whether or not the first call waited long enough.
        steps.push(home.agent.mcp_step("task_wait", json!({"task_id": "{{task_id}}"})));
    }
    let mut session = home.start_session(&steps)?;
    let approval = home.wait_for_approval(&mut session)?;
    if home.has_pushed()? {
        return Err("it ran before the approval was answered".into());
    }
    home.csn(&["approvals", "answer", &approval, "once"])?;
    let results = session.wait_for_results()?;
    // Only git prints this; some of the results contain the command itself.
    expect_result(&[results.join("\n")], 0, "HEAD -> main")?;
    if !home.has_pushed()? {
        return Err(format!("it was approved, but did not run: {results:?}"));
    }
    let receipt = home.wait_for_receipt(&home.find_task(PUSH)?)?;
    if receipt["outcome"] == json!({"kind": "exited", "code": 0}) {
        Ok(())
    } else {
        Err(format!("the receipt says {receipt}"))
    }
}

pub(super) fn check_denied(home: &TrialHome) -> Result<()> {
    let results =
        AgentSession::start(home, &[home.run_step("mkdir made")], home.agent.permissive_args(home.integration))?
            .wait_for_results()?;
    if home.project_file("made").exists() {
        return Err("it ran".into());
    }
    expect_result(&results, 0, REASON)
}

pub(super) fn check_refused(home: &TrialHome) -> Result<()> {
    const WORDS: &str = "ask Ada first";
    let mut steps = vec![home.run_step(PUSH)];
    if home.integration == Integration::Mcp {
        steps.push(home.agent.mcp_step("task_wait", json!({"task_id": "{{task_id}}"})));
    }
    let mut session = home.start_session(&steps)?;
    let approval = home.wait_for_approval(&mut session)?;
    home.csn(&["approvals", "answer", &approval, "deny", "--words", WORDS])?;
    let results = session.wait_for_results()?;
    if home.has_pushed()? {
        return Err("it ran".into());
    }
    // The words may be in either result: that of the first call, or that of `task_wait`.
    expect_result(&[results.join("\n")], 0, WORDS)
}

pub(super) fn check_cd(home: &TrialHome) -> Result<()> {
    let results =
        home.start_session(&[home.run_step("cd sub && cat here"), home.run_step("cat here")])?.wait_for_results()?;
    expect_result(&results, 0, "deep in the project")?;
    expect_result(&results, 1, "deep in the project")
}

pub(super) fn check_witness(home: &TrialHome) -> Result<()> {
    home.csn(&["install", "claude-code", "--witness"])?;
    let results =
        home.start_session(&[home.run_step("cat greeting"), home.run_step("mkdir made")])?.wait_for_results()?;
    expect_result(&results, 0, "hello from the project")?;
    expect_result(&results, 1, REASON)?;
    if home.project_file("made").exists() {
        return Err("the denied command ran".into());
    }
    let task = home.find_task("cat greeting")?;
    home.wait_for_receipt(&task)?;
    let whole = home.csn(&["receipts", "show", &task, "--json"])?;
    let whole: Value = serde_json::from_str(&whole).map_err(|e| format!("csn receipts show: {e}"))?;
    // Checks this field by its path, since the same word describes how files were watched.
    let kind = &whole["predicate"]["execution"]["kind"];
    if kind == "observed" { Ok(()) } else { Err(format!("the receipt says that it was {kind}")) }
}
