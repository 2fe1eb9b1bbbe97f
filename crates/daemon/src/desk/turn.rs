//! One event at the desk: one method per event, then the decisions that several of them share.

use super::{
    ApprovalQuestion, Desk, DeskEvent, DeskStep, FactsAtLaunch, GrantedPermission, NewTask, OpenStage, OpenTask,
    PermittedSandbox, PersonAnswer, ShimLaunch,
};
use crate::{
    moment::Moment,
    register_command::{self, RegisterCommand},
};
use countersign_model::{
    ApprovalId, Channel, Choice, Confinement, DecidedBy, Decision, DenialReason, Digest, Grant, GrantId, JournalEnd,
    Outcome, Permit, PermitId, Record, Refusal, RefusalCode, RegisterEntry, SavedGrant, Scope, SealedReceipt, Session,
    TaskId, Text, Timestamp, Tool, TouchedFiles, Verdict, WaitsFor,
};
use countersign_store::{SignedReceipt, ledger::LedgerEntry};

/// The desk while it decides about one event, and the results so far.
pub(super) struct Turn<'a> {
    pub(super) desk: &'a mut Desk,
    pub(super) now: Moment<'a>,
    pub(super) step: DeskStep,
}

/// What is needed to permit one task.
struct LaunchPermit {
    task: TaskId,
    by: DecidedBy,
    scope: Scope,
    permitted: PermittedSandbox,
    saved: Vec<SavedGrant>,
    shim: Option<u32>,
}

impl Turn<'_> {
    pub(super) fn handle_event(&mut self, event: DeskEvent) -> Result<(), Refusal> {
        match event {
            DeskEvent::Asked(new) => self.on_asked(*new),
            DeskEvent::Answered(answer) => self.on_answered(*answer)?,
            DeskEvent::Covered { task, grants, sandbox, shim } => self.on_covered(task, &grants, sandbox, shim)?,
            DeskEvent::RegisterCommand(command) => self.on_register_command(command)?,
            DeskEvent::SlotFree { task, world, denied, sandbox, shim } => {
                self.on_slot_free(task, world, denied, sandbox, shim)?
            }
            DeskEvent::Withdrawn { task, by } => self.on_withdrawn(task, by)?,
            DeskEvent::Unredeemed { task, planned, opens, by } => self.on_unredeemed(task, *planned, opens, by),
            DeskEvent::Observed { task, planned, opens, rule, grants, by } => {
                self.on_observed(task, *planned, opens, rule, &grants, by);
            }
            DeskEvent::OutcomeReported { task, outcome } => self.on_outcome_reported(task, outcome)?,
            DeskEvent::Closed { task, closing, recovered } => self.on_closed(task, closing, recovered)?,
            DeskEvent::NotStarted { task, error, code, recovered } => {
                self.on_not_started(task, error, code, recovered)?
            }
            DeskEvent::Lost { task, known, why, head, next_seq, recovered } => {
                self.on_lost(task, known, why, head, next_seq, recovered)?;
            }
            DeskEvent::Expired { task, seq, why, bytes, streams, signed } => {
                self.decide_settled(self.now.at, task, seq, Decision::Expired { why, bytes, streams, signed });
            }
            DeskEvent::Sealed { seq, at, touched, sealed, signed } => self.on_sealed(seq, at, touched, sealed, signed),
            DeskEvent::DaemonState { state, reason, boot } => {
                self.decide_daemon(Decision::DaemonStateChanged { state, reason, boot })
            }
            DeskEvent::Shutdown(step) => self.decide_daemon(Decision::Shutdown(step)),
            DeskEvent::Key(key) => self.decide_daemon(Decision::Key(key)),
        }
        Ok(())
    }

    /// A judged request runs, waits for an approval, or is denied.
    fn on_asked(&mut self, new: NewTask) {
        let NewTask { task, planned, verdict, question, grants, sandbox, opens, shim } = new;
        self.begin(task, planned, opens);
        match verdict {
            Verdict::Allow { rule } => {
                let (by, scope) = self.covered_by(&grants, rule);
                self.permit(LaunchPermit { task, by, scope, permitted: sandbox, saved: Vec::new(), shim });
            }
            Verdict::Ask { .. } => {
                let approval = ApprovalId::mint(self.now.mint, self.now.at.millis(), self.now.random);
                let ApprovalQuestion { uncovered, about, options } = question;
                self.decide(task, Decision::PermissionRequested { approval, uncovered, options, about });
                self.decide(task, Decision::Queued { waits_for: WaitsFor::Approval, position: None });
            }
            Verdict::Deny(refusal) => self.deny_by_rule(task, &refusal),
        }
    }

    /// A person answered. A request that cannot be allowed any more is denied despite an approval.
    fn on_answered(&mut self, answer: PersonAnswer) -> Result<(), Refusal> {
        let PersonAnswer {
            task,
            approval,
            choice,
            words,
            by,
            world,
            new_grants,
            new_directory,
            hint,
            denied,
            sandbox,
            shim,
        } = answer;
        let tool = self.waiting_task(task, approval, choice, &by)?.requester.tool;
        self.step.drop_request = Some(task);
        match (Scope::from_choice(choice), world, denied) {
            (None, ..) => {
                let mut refusal = Refusal::new(RefusalCode::DeniedByPerson, "a person denied this");
                refusal.hint = hint;
                self.deny(task, by, &refusal, words);
            }
            (Some(_), _, Some(refusal)) => self.deny_by_rule(task, &refusal),
            (Some(_), FactsAtLaunch::Changed(what), None) => self.deny_changed_facts(task, what),
            (Some(scope), FactsAtLaunch::Same, None) if tool == Tool::SetWorkingDirectory => {
                self.move_session(task, by, scope, new_directory);
            }
            (Some(scope), FactsAtLaunch::Same, None) => {
                // A queued task still needs its stored request.
                self.step.drop_request = shim.map(|_| task);
                let saved = self.save_grants(new_grants);
                self.step.may_release.retain(|t| *t != task);
                self.permit(LaunchPermit { task, by, scope, permitted: sandbox, saved, shim });
            }
        }
        Ok(())
    }

    fn on_covered(
        &mut self,
        task: TaskId,
        grants: &[GrantId],
        permitted: PermittedSandbox,
        shim: Option<u32>,
    ) -> Result<(), Refusal> {
        if self.desk.pending_question(task).is_none() {
            return Err(task_over());
        }
        self.step.drop_request = shim.map(|_| task);
        let (by, scope) = self.covered_by(grants, "grant");
        self.permit(LaunchPermit { task, by, scope, permitted, saved: Vec::new(), shim });
        Ok(())
    }

    fn on_register_command(&mut self, command: RegisterCommand) -> Result<(), Refusal> {
        let (entered, reply) = register_command::decide_command(command, &self.desk.register, &mut self.now)?;
        for entry in entered {
            if let RegisterEntry::GrantSaved { grant } = &entry {
                self.step.may_release.extend(self.desk.tasks_grant_may_cover(grant));
            }
            self.enter(entry);
        }
        self.step.register_reply = Some(reply);
        Ok(())
    }

    fn on_slot_free(
        &mut self,
        task: TaskId,
        world: FactsAtLaunch,
        denied: Option<Refusal>,
        sandbox: PermittedSandbox,
        shim: u32,
    ) -> Result<(), Refusal> {
        let Some(OpenTask { stage: OpenStage::Queued { granted, .. }, .. }) = self.desk.open.get_mut(&task) else {
            return Err(task_over());
        };
        self.step.drop_request = Some(task);
        match (denied, world) {
            (Some(refusal), _) => self.deny_by_rule(task, &refusal),
            (None, FactsAtLaunch::Changed(what)) => self.deny_changed_facts(task, what),
            (None, FactsAtLaunch::Same) => {
                // A sandbox that the operator has narrowed since then counts; a permitted sandbox is never widened.
                if sandbox.confinement > granted.permitted.confinement {
                    granted.permitted = sandbox;
                }
                self.launch(task, shim);
            }
        }
        Ok(())
    }

    fn on_withdrawn(&mut self, task: TaskId, by: Text) -> Result<(), Refusal> {
        match self.desk.open.get(&task).map(|o| &o.stage) {
            Some(
                OpenStage::Waiting { .. } | OpenStage::Planned | OpenStage::Permitted(_) | OpenStage::Queued { .. },
            ) => {}
            Some(OpenStage::Launched | OpenStage::Observed(_)) => {
                return Err(Refusal::new(RefusalCode::TaskStarted, "the task has already started"));
            }
            None => return Err(task_over()),
        }
        self.step.drop_request = Some(task);
        self.withdraw(task, by);
        Ok(())
    }

    fn on_unredeemed(&mut self, task: TaskId, planned: Decision, opens: Option<Box<Session>>, by: Text) {
        self.begin(task, planned, opens);
        self.withdraw(task, by);
    }

    fn on_observed(
        &mut self,
        task: TaskId,
        planned: Decision,
        opens: Option<Box<Session>>,
        rule: &'static str,
        grants: &[GrantId],
        by: Text,
    ) {
        self.begin(task, planned, opens);
        let (granted_by, scope) = self.covered_by(grants, rule);
        self.count_uses(&granted_by);
        self.grant_unconfined(task, granted_by, scope);
        self.decide(task, Decision::Observing { by });
    }

    fn on_outcome_reported(&mut self, task: TaskId, outcome: Outcome) -> Result<(), Refusal> {
        match self.desk.open.get(&task).map(|o| &o.stage) {
            Some(OpenStage::Observed(_)) => {
                self.settle(task, outcome, None, false);
                Ok(())
            }
            _ => Err(task_over()),
        }
    }

    fn on_closed(&mut self, task: TaskId, closing: JournalEnd, recovered: bool) -> Result<(), Refusal> {
        self.launched_task(task)?.next_seq = closing.next_seq;
        self.settle(task, closing.outcome, Some(closing.head), recovered);
        Ok(())
    }

    fn on_not_started(&mut self, task: TaskId, error: Text, code: i32, recovered: bool) -> Result<(), Refusal> {
        self.launched_task(task)?;
        self.settle(task, Outcome::Failed { error, code }, None, recovered);
        Ok(())
    }

    fn on_lost(
        &mut self,
        task: TaskId,
        known: Text,
        why: Text,
        head: Option<Digest>,
        next_seq: u64,
        recovered: bool,
    ) -> Result<(), Refusal> {
        self.launched_task(task)?.next_seq = next_seq;
        self.decide(task, Decision::Lost { known });
        self.settle(task, Outcome::Lost { why }, head, recovered);
        Ok(())
    }

    fn on_sealed(
        &mut self,
        mut seq: u64,
        at: Timestamp,
        touched: Option<TouchedFiles>,
        sealed: SealedReceipt,
        signed: Box<SignedReceipt>,
    ) {
        if let Some(touched) = touched {
            self.decide_settled(at, signed.task, seq, Decision::Touched(touched));
            seq += 1;
        }
        self.decide_settled(self.now.at, signed.task, seq, Decision::Sealed(sealed));
        if let Some(entry) = self.step.decisions.last_mut() {
            entry.receipt = Some(signed);
        }
    }

    /// Creates a task and, if this is its first request, the implicit session of its credential and directory.
    fn begin(&mut self, task: TaskId, planned: Decision, opens: Option<Box<Session>>) {
        if let Some(session) = opens {
            self.enter(RegisterEntry::SessionOpened { session });
        }
        self.decide(task, planned);
    }

    /// The task that this answers, if this choice may be made through this channel.
    fn waiting_task(
        &self,
        task: TaskId,
        wanted: ApprovalId,
        choice: Choice,
        by: &DecidedBy,
    ) -> Result<&OpenTask, Refusal> {
        let answered = || {
            Refusal::new(RefusalCode::AlreadyAnswered, "this approval has already been answered or withdrawn")
                .hint(format!("`csn approvals show {wanted}` shows the outcome"))
        };
        let open = self.desk.open.get(&task).ok_or_else(answered)?;
        match &open.stage {
            OpenStage::Waiting { approval, options, .. } if *approval == wanted => {
                if !options.contains(&choice) {
                    return Err(Refusal::new(
                        RefusalCode::OptionNotOffered,
                        format!("this approval does not offer `{choice}`"),
                    )
                    .hint("`csn approvals show` lists the options"));
                }
            }
            _ => return Err(answered()),
        }
        if matches!(by, DecidedBy::Person { channel: Channel::InBand, .. }) {
            check_in_band(choice, open.grave)?;
        }
        Ok(open)
    }

    fn launched_task(&mut self, task: TaskId) -> Result<&mut OpenTask, Refusal> {
        self.desk.open.get_mut(&task).filter(|o| o.stage == OpenStage::Launched).ok_or_else(task_over)
    }

    /// Who allows a request that needs no approval: grants or a rule.
    fn covered_by(&self, grants: &[GrantId], rule: &'static str) -> (DecidedBy, Scope) {
        let scope = grants.iter().filter_map(|g| self.desk.register.grants.get(*g)).map(|g| g.scope()).min();
        match scope.and_then(Scope::from_choice) {
            Some(scope) => (DecidedBy::Grants(grants.to_vec()), scope),
            None => (DecidedBy::Rule(Text::from_static(rule)), Scope::Policy),
        }
    }

    /// Permits a task. It starts now if there is a shim for it; otherwise it joins the queue.
    fn permit(&mut self, leave: LaunchPermit) {
        let LaunchPermit { task, by, scope, permitted: PermittedSandbox { confinement, sandbox }, saved, shim } = leave;
        let permit = self.permit_id();
        self.count_uses(&by);
        let policy = self.desk.policy;
        self.decide(task, Decision::PermissionGranted { permit, by, scope, confinement, sandbox, saved, policy });
        match shim {
            Some(shim) => self.launch(task, shim),
            None => self.join_queue(task),
        }
    }

    /// Adds a task to the end of the queue, even if the clock went back.
    fn join_queue(&mut self, task: TaskId) {
        let line = self.desk.queue();
        let last = line.last().and_then(|task| match self.desk.open.get(task)?.stage {
            OpenStage::Queued { since, .. } => Some(Timestamp::from_micros(since.micros() + 1)),
            _ => None,
        });
        let at = last.map_or(self.now.at, |last| last.max(self.now.at));
        let position = Some(line.len() as u64 + 1);
        self.decide_at(at, task, Decision::Queued { waits_for: WaitsFor::Slot, position });
    }

    #[expect(clippy::disallowed_methods, reason = "the desk is the only thing that permits")]
    fn launch(&mut self, task: TaskId, shim: u32) {
        let Some(OpenTask { next_seq, plan_digest, stage, .. }) = self.desk.open.get(&task).cloned() else { return };
        let (OpenStage::Permitted(granted) | OpenStage::Queued { granted, .. }) = stage else { return };
        let GrantedPermission { permit, by, scope, permitted } = granted;
        let permit = Permit::issue(permit, task, plan_digest, by, scope, permitted.confinement, self.now.at);
        let first_seq = next_seq + 1;
        self.decide(task, Decision::Launched { shim_pid: shim, first_seq });
        let prologue_head = self.desk.open.get(&task).map_or(plan_digest, |o| o.chain.head());
        self.step.launch = Some(ShimLaunch { permit, first_seq, prologue_head });
    }

    /// Records a permission for a command that the daemon does not run and therefore does not confine.
    fn grant_unconfined(&mut self, task: TaskId, by: DecidedBy, scope: Scope) {
        let (permit, policy) = (self.permit_id(), self.desk.policy);
        let (confinement, sandbox, saved) = (Confinement::None, None, Vec::new());
        self.decide(task, Decision::PermissionGranted { permit, by, scope, confinement, sandbox, saved, policy });
    }

    fn permit_id(&mut self) -> PermitId {
        PermitId::mint(self.now.mint, self.now.at.millis(), self.now.random)
    }

    fn count_uses(&mut self, by: &DecidedBy) {
        if let DecidedBy::Grants(grants) = by {
            let counted = |g: &GrantId| self.desk.register.grants.get(*g).is_some_and(|g| g.uses_left.is_some());
            for grant in grants.iter().copied().filter(counted).collect::<Vec<_>>() {
                self.enter(RegisterEntry::GrantUsed { grant });
            }
        }
    }

    /// Saves the grants of an answer, except those that exist already.
    fn save_grants(&mut self, grants: Vec<Grant>) -> Vec<SavedGrant> {
        let mut saved: Vec<SavedGrant> = Vec::new();
        for grant in grants {
            let saved_or_equal = match self.desk.register.grants.find_same(&grant, self.now.at) {
                Some(same) => same.clone(),
                None => {
                    self.step.may_release.extend(self.desk.tasks_grant_may_cover(&grant));
                    self.enter(RegisterEntry::GrantSaved { grant: Box::new(grant.clone()) });
                    grant
                }
            };
            let label = register_command::grant_label(&saved_or_equal);
            saved.extend(saved_or_equal.id.map(|grant| SavedGrant { grant, label }));
        }
        self.step.may_release.sort_unstable();
        self.step.may_release.dedup();
        saved
    }

    /// Sets the working directory of a session. There is nothing to launch.
    fn move_session(&mut self, task: TaskId, by: DecidedBy, scope: Scope, to: Option<Text>) {
        self.grant_unconfined(task, by, scope);
        let session = self.desk.open.get(&task).and_then(|o| o.requester.session);
        if let (Some(session), Some(directory)) = (session, to) {
            let root = Some(directory.clone());
            self.enter(RegisterEntry::SessionMoved { session, directory, root });
        }
        self.settle(task, Outcome::Exited { code: 0 }, None, false);
    }

    fn withdraw(&mut self, task: TaskId, by: Text) {
        self.decide(task, Decision::Withdrawn { by: by.clone() });
        self.settle(task, Outcome::Withdrawn { by }, None, false);
    }

    fn deny_changed_facts(&mut self, task: TaskId, what: &'static str) {
        let refusal = Refusal::new(RefusalCode::PathsChanged, what);
        self.deny_by_rule(task, &refusal.hint("send the request again: files changed after it was approved"));
    }

    fn deny_by_rule(&mut self, task: TaskId, refusal: &Refusal) {
        self.deny(task, DecidedBy::Rule(Text::from_static(refusal.code.as_str())), refusal, None);
    }

    fn deny(&mut self, task: TaskId, by: DecidedBy, refusal: &Refusal, words: Option<Text>) {
        let reason = DenialReason::Code(refusal.code);
        // A refusal is Countersign's own text; it is redacted like everything else.
        let hint = refusal.hint.as_deref().map(countersign_redact::text_by_shape);
        let policy = self.desk.policy;
        self.decide(task, Decision::PermissionDenied { by, reason: reason.clone(), hint, words, policy });
        self.settle(task, Outcome::Denied { reason }, None, false);
    }

    fn settle(&mut self, task: TaskId, outcome: Outcome, journal_head: Option<Digest>, recovered: bool) {
        self.step.publish.extend(self.desk.open.get(&task).filter(|open| open.publishes).map(|_| task));
        self.decide(task, Decision::Settled { outcome, journal_head, recovered });
    }

    fn decide(&mut self, task: TaskId, decision: Decision) {
        self.decide_at(self.now.at, task, decision);
    }

    fn decide_at(&mut self, at: Timestamp, task: TaskId, decision: Decision) {
        let seq = self.desk.open.get(&task).map_or(0, |o| o.next_seq);
        let line = Record::decision_line(seq, at, &decision);
        self.desk.apply(task, at, &line, &decision);
        self.step.decisions.push(LedgerEntry { task: Some(task), seq, at, line, decision, receipt: None });
    }

    /// A decision about a settled task, which the desk does not hold any more.
    fn decide_settled(&mut self, at: Timestamp, task: TaskId, seq: u64, decision: Decision) {
        let line = Record::decision_line(seq, at, &decision);
        self.step.decisions.push(LedgerEntry { task: Some(task), seq, at, line, decision, receipt: None });
    }

    fn enter(&mut self, entered: RegisterEntry) {
        self.desk.register.enter(self.now.at, &entered);
        self.decide_daemon(Decision::Entered(entered));
    }

    fn decide_daemon(&mut self, decision: Decision) {
        let at = self.now.at;
        let line = Record::decision_line(0, at, &decision);
        self.step.decisions.push(LedgerEntry { task: None, seq: 0, at, line, decision, receipt: None });
    }
}

/// Limits answers that come through the agent's own client, which could have made them up.
fn check_in_band(choice: Choice, grave: bool) -> Result<(), Refusal> {
    let hint = "a person must answer this, for example with csn approvals answer";
    match choice {
        Choice::Deny => Ok(()),
        Choice::Once if !grave => Ok(()),
        Choice::Once => Err(Refusal::new(
            RefusalCode::OptionNotOffered,
            "a request with this risk cannot be approved through the agent's own client",
        )
        .hint(hint)),
        _ => Err(Refusal::new(RefusalCode::OptionNotOffered, "a grant cannot be saved through the agent's own client")
            .hint(hint)),
    }
}

fn task_over() -> Refusal {
    Refusal::new(RefusalCode::TaskOver, "the task has ended")
}
