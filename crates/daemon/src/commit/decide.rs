//! Deciding about calls: the commit loop judges a request with the grants of this moment, and lets the desk decide.

use super::{
    AfterCommit, CommitLoop, IDEMPOTENCY_KEY_LIFETIME, MAX_JOINED_KEYS, PendingReplies, ledger_refusal, no_shim,
};
use crate::{
    calls::{AnswerCall, AskCall, AskOutcome, CommitReply},
    case::Case,
    confine,
    desk::{
        ApprovalQuestion, DENIAL_COOLDOWN, DeskEvent, DeskStep, FactsAtLaunch, NewTask, PermittedSandbox, PersonAnswer,
        RequestIdentity, SlotOwner,
    },
    facts::PreparedRequest,
    question,
};
use countersign_model::{
    Assessment, Choice, Confinement, DecidedBy, Decision, Idempotency, Refusal, RefusalCode, Request, Requester,
    Sandbox, Session, TaskId, Text, Tool, Verdict,
};
use countersign_redact::text_by_shape;
use countersign_shim::IdleShim;
use countersign_store::{clock, crash, random, waiting};
use std::sync::Arc;

/// How many requests of one principal may wait for an approval or a slot. Each is kept on disk and in memory.
const MAX_WAITING_REQUESTS: usize = 2_000;

/// A reply that is sent after the commit, without a decision.
fn reply_only(after_commit: AfterCommit) -> Option<PendingReplies> {
    Some(PendingReplies { step: DeskStep::default(), prepared: None, idle_shim: None, after_commit })
}

fn request_identity(asking: &AskCall) -> RequestIdentity {
    let Requester { principal, session, profile, .. } = asking.requester;
    let (plan_digest, background) = (asking.prepared.plan_digest, asking.request.background);
    RequestIdentity { principal, session, plan_digest, background, profile }
}

impl CommitLoop {
    pub(super) fn ask(&mut self, mut asking: AskCall, reply: CommitReply<AskOutcome>) -> Option<PendingReplies> {
        if let Some(earlier) = asking.idempotency.and_then(|i| self.find_replayed(i).transpose()) {
            // Sent after the commit: the request that it repeats may be in this batch.
            return reply_only(AfterCommit::Replayed(reply, earlier));
        }
        let session = self.resolve_session(&mut asking);
        if session.as_ref().is_some_and(|s| s.ended_at.is_some()) {
            let over = Refusal::new(RefusalCode::SessionOver, "the session has ended");
            return reply_only(AfterCommit::Replayed(reply, Err(over)));
        }
        let same = request_identity(&asking);
        if let Some(task) = self.desk.find_waiting(same).filter(|_| asking.request.attended && asking.refused.is_none())
        {
            self.remember_joined_key(asking.idempotency, task);
            return reply_only(AfterCommit::Replayed(
                reply,
                Ok(AskOutcome { task, denied: None, state: None, joined: true }),
            ));
        }
        let refused = asking.refused.take();
        let earlier = asking.judged.take().filter(|_| refused.is_some());
        let texts = std::mem::take(&mut asking.texts);
        let conversation = session.as_deref().or(asking.opens.as_deref());
        let case = asking.case(&self.gate, conversation, &self.desk.register.grants, clock::now());
        let assessment = earlier.map_or_else(|| case.assess(), |judged| *judged);
        let answer = self.final_verdict(&assessment, &asking.request, same, refused);
        let question = match &answer {
            Verdict::Ask { .. } => case.approval_question(&assessment, &texts),
            Verdict::Allow { .. } | Verdict::Deny(_) => ApprovalQuestion::default(),
        };
        asking.texts = texts;
        asking.record_verdict(&assessment);
        let task = TaskId::mint(&mut self.mint, clock::now().millis(), u32::from_le_bytes(random()));
        let idle_shim = match self.reserve(task, &answer, &asking) {
            Ok(idle_shim) => idle_shim,
            Err(refusal) => {
                let _ = reply.send(Err(refusal));
                return None;
            }
        };
        if assessment.sandbox.confinement == Confinement::ReadOnly
            && let Decision::Planned { limits, .. } = &mut asking.planned
        {
            confine::limit_read_only(limits);
        }
        let denied = match &answer {
            Verdict::Deny(refusal) => Some(refusal.clone()),
            _ => None,
        };
        let AskCall { request, prepared, planned, opens, idempotency, .. } = asking;
        let event = NewTask {
            task,
            planned,
            verdict: answer,
            question,
            grants: assessment.grants(),
            sandbox: PermittedSandbox::from_sandbox(&assessment.sandbox),
            opens,
            shim: idle_shim.as_ref().map(IdleShim::pid),
        };
        if let Some(idempotency) = idempotency {
            self.fresh_keys.insert(idempotency.key, (task, idempotency));
        }
        match self.step(DeskEvent::Asked(Box::new(event))) {
            Ok(step) => {
                let asked = AskOutcome { task, denied, state: step.state(task).map(Box::new), joined: false };
                let prepared = Some((prepared, request, assessment.sandbox));
                Some(PendingReplies { step, prepared, idle_shim, after_commit: AfterCommit::Asked(reply, asked) })
            }
            Err(refusal) => {
                let _ = reply.send(Err(refusal));
                None
            }
        }
    }

    /// The session that a request belongs to, if it is open. Another request with the same credential may have opened
    /// the implicit session of this directory first.
    fn resolve_session(&self, asking: &mut AskCall) -> Option<Arc<Session>> {
        let roster = &self.desk.register.roster;
        let first = asking.opens.as_ref().and_then(|s| roster.implicit(s.principal, s.implicit.as_ref()?));
        if let Some(first) = first {
            asking.opens = None;
            asking.requester.session = Some(first.id);
            if let Decision::Planned { session, .. } = &mut asking.planned {
                *session = Some(first.id);
            }
        }
        asking.requester.session.and_then(|s| roster.session(s)).cloned()
    }

    /// A request that joined another finds it again under its own key.
    fn remember_joined_key(&mut self, idempotency: Option<Idempotency>, task: TaskId) {
        if let Some(idempotency) = idempotency {
            if self.joined_keys.len() >= MAX_JOINED_KEYS {
                self.joined_keys.clear();
            }
            self.joined_keys.insert(idempotency.key, (task, idempotency, clock::now()));
        }
    }

    /// Reserves what a request needs before the decision: a shim to run it now, or its raw form on disk until it runs.
    fn reserve(&mut self, task: TaskId, answer: &Verdict, asking: &AskCall) -> Result<Option<IdleShim>, Refusal> {
        let Requester { principal, session, .. } = asking.requester;
        match answer {
            Verdict::Deny(_) => Ok(None),
            Verdict::Allow { .. } if self.desk.has_room(SlotOwner { session, principal }) => {
                self.pool.take().map(Some).map_err(|e| no_shim(&self.pool, &e))
            }
            Verdict::Allow { .. } | Verdict::Ask { .. }
                if self.desk.count_unlaunched(principal) >= MAX_WAITING_REQUESTS =>
            {
                let message = format!("{MAX_WAITING_REQUESTS} of your requests already wait for an approval or a slot");
                Err(Refusal::new(RefusalCode::TooMany, message).hint("answer or cancel some of them first"))
            }
            Verdict::Allow { .. } | Verdict::Ask { .. } => {
                let stored = waiting::WaitingRequest {
                    v: 1,
                    request: asking.request.clone(),
                    facts: asking.prepared.facts.clone(),
                    asker: asking.asker,
                    uid: asking.prepared.user.as_ref().map(|l| l.uid),
                };
                let stored = waiting::save(&self.home, task, &stored);
                stored.map_err(|e| {
                    Refusal::new(RefusalCode::LedgerUnavailable, format!("the request cannot be stored: {e}"))
                        .hint("nothing was started; free disk space for the home, then try again")
                })?;
                crash::point("commit.after_waiting");
                Ok(None)
            }
        }
    }

    /// The case of a task as it would be judged now.
    fn build_case<'a>(
        &'a self,
        request: &'a Request,
        prepared: &'a PreparedRequest,
        requester: &'a Requester,
        session: Option<&'a Session>,
    ) -> Case<'a> {
        let (settings, grants, now) = (&self.gate, &self.desk.register.grants, clock::now());
        Case { request, prepared, settings, requester, session, grants, now }
    }

    /// Judges a waiting task again, as of now.
    fn assess_again(&self, task: TaskId, prepared: &PreparedRequest, request: &Request) -> Option<Assessment> {
        let requester = self.desk.requester(task)?;
        let session = requester.session.and_then(|s| self.desk.register.roster.session(s));
        Some(self.build_case(request, prepared, &requester, session.map(|s| &**s)).assess())
    }

    /// The verdict after the overrides: a refusal that no verdict can lift, and a recent denial by the user.
    fn final_verdict(
        &self,
        assessment: &Assessment,
        request: &Request,
        same: RequestIdentity,
        refused: Option<Refusal>,
    ) -> Verdict {
        if let Some(refusal) = refused {
            return Verdict::Deny(refusal);
        }
        if request.tool == Tool::SetWorkingDirectory {
            return Verdict::Ask { uncovered: Vec::new() };
        }
        match &assessment.verdict {
            Verdict::Ask { .. } => match self.desk.recent_denial(same, clock::now()) {
                Some((at, words)) => {
                    let minutes = DENIAL_COOLDOWN.as_secs() / 60;
                    let refusal = Refusal::new(RefusalCode::DeniedByPerson, format!("a person denied this at {at}"));
                    let words = words.map(|w| format!("the person said: \"{w}\"; ")).unwrap_or_default();
                    Verdict::Deny(refusal.hint(format!(
                        "{words}the same request is denied for {minutes} minutes unless a grant covers it; do something else"
                    )))
                }
                None => assessment.verdict.clone(),
            },
            answer => answer.clone(),
        }
    }

    /// The task of an earlier request with the same idempotency key. A different request under that key is refused.
    fn find_replayed(&self, new: Idempotency) -> Result<Option<AskOutcome>, Refusal> {
        let fresh = self.fresh_keys.get(&new.key).map(|(task, i)| (*task, *i, clock::now()));
        let found = match fresh.or_else(|| self.joined_keys.get(&new.key).copied()) {
            Some(found) => Some(found),
            None => self.reader.task_by_idempotency(new.key).map_err(|e| ledger_refusal(&e))?,
        };
        match found.filter(|(_, _, at)| clock::now().since(*at) < IDEMPOTENCY_KEY_LIFETIME) {
            None => Ok(None),
            Some((task, old, _)) if old.body == new.body => {
                Ok(Some(AskOutcome { task, denied: None, state: None, joined: false }))
            }
            Some((task, _, _)) => Err(Refusal::new(
                RefusalCode::IdempotencyConflict,
                format!("this Idempotency-Key was used for a different request ({task})"),
            )
            .hint("use a new key for a new request")),
        }
    }

    pub(super) fn answer(&mut self, answering: AnswerCall, reply: CommitReply<()>) -> Option<PendingReplies> {
        let AnswerCall { task, approval, choice, any_arguments, words, by, world, prepared } = answering;
        let refuse = |reply: CommitReply<()>, refusal| {
            let after_commit = AfterCommit::Plain(reply, Err(refusal));
            Some(PendingReplies { step: DeskStep::default(), prepared: None, idle_shim: None, after_commit })
        };
        let (mut new_grants, mut denied, mut new_directory, mut sandbox) = (Vec::new(), None, None, Sandbox::default());
        let requester = self.desk.requester(task);
        let session = requester.and_then(|s| self.desk.register.roster.session(s.session?)).cloned();
        if choice == Choice::Session && session.as_ref().is_some_and(|s| s.ended_at.is_some()) {
            let over = Refusal::new(RefusalCode::SessionOver, "the session has ended, so nothing can be saved for it");
            return refuse(reply, over.hint("answer `once` or `deny`"));
        }
        if let (Some((prepared, request)), Some(requester), true) = (&prepared, &requester, choice != Choice::Deny) {
            if request.tool == Tool::SetWorkingDirectory {
                new_directory = Some(text_by_shape(&prepared.facts.cwd.resolved));
            } else {
                let (settings, grants, now) = (&self.gate, &self.desk.register.grants, clock::now());
                let session = session.as_deref();
                let case = Case { request, prepared, settings, requester, session, grants, now };
                let assessment = case.assess();
                if let Verdict::Deny(refusal) = &assessment.verdict {
                    denied = Some(refusal.clone());
                }
                let about = self.desk.pending_question(task).unwrap_or_default();
                let saving = question::SavingAnswer { choice, any_arguments, by: &by, about };
                match case.saved_grants(&saving, &assessment, &mut self.mint) {
                    Ok(grants) => new_grants = grants,
                    Err(refusal) => return refuse(reply, refusal),
                }
                sandbox = assessment.sandbox;
            }
        }
        let mut idle_shim = None;
        let runs = choice != Choice::Deny && new_directory.is_none();
        if runs && self.desk.slot_owner(task).is_some_and(|owner| self.desk.has_room(owner)) {
            match self.pool.take() {
                Ok(taken) => idle_shim = Some(taken),
                Err(e) => {
                    let _ = reply.send(Err(no_shim(&self.pool, &e)));
                    return None;
                }
            }
        }
        let hint = self.outside_roots_hint(task, session.as_deref());
        let shim = idle_shim.as_ref().map(IdleShim::pid);
        let permitted = PermittedSandbox::from_sandbox(&sandbox);
        let answered = PersonAnswer {
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
            sandbox: permitted,
            shim,
        };
        match self.step(DeskEvent::Answered(Box::new(answered))) {
            Ok(step) => {
                let prepared = prepared.map(|(prepared, request)| (prepared, request, sandbox));
                Some(PendingReplies { step, prepared, idle_shim, after_commit: AfterCommit::Plain(reply, Ok(())) })
            }
            Err(refusal) => Some(PendingReplies {
                step: DeskStep::default(),
                prepared: None,
                idle_shim,
                after_commit: AfterCommit::Plain(reply, Err(refusal)),
            }),
        }
    }

    /// Tells an agent that was refused outside of its roots how to ask for access there.
    fn outside_roots_hint(&self, task: TaskId, session: Option<&Session>) -> Option<String> {
        let session = session.filter(|s| s.implicit.is_none())?;
        let roots: Vec<String> = session.roots.iter().chain(&session.folder).map(|r| r.as_str().to_owned()).collect();
        let outside = |d: &&Text| !countersign_policy::in_roots(d.as_str(), &roots);
        let place = self.desk.pending_question(task)?.iter().flat_map(|a| &a.directories).find(outside)?;
        Some(format!(
            "{place} is outside the directories of this session; call set_working_directory to ask for access"
        ))
    }

    /// Permits a task that waits for an approval, if the grants cover it now.
    pub(super) fn release(
        &mut self,
        task: TaskId,
        world: FactsAtLaunch,
        prepared: Option<(PreparedRequest, Request)>,
    ) -> Option<PendingReplies> {
        let (prepared, request) = prepared?;
        if world != FactsAtLaunch::Same {
            return None;
        }
        let assessment = self.assess_again(task, &prepared, &request)?;
        let grants = assessment.grants();
        if !matches!(assessment.verdict, Verdict::Allow { .. }) || grants.is_empty() {
            return None;
        }
        let owner = self.desk.slot_owner(task)?;
        let mut idle_shim = None;
        if self.desk.has_room(owner) {
            match self.pool.take() {
                Ok(taken) => idle_shim = Some(taken),
                // Without a shim the task joins the queue, where it is tried again.
                Err(e) => crate::log!("{}", no_shim(&self.pool, &e)),
            }
        }
        let (sandbox, shim) =
            (PermittedSandbox::from_sandbox(&assessment.sandbox), idle_shim.as_ref().map(IdleShim::pid));
        match self.step(DeskEvent::Covered { task, grants, sandbox, shim }) {
            Ok(step) => {
                let prepared = Some((prepared, request, assessment.sandbox));
                Some(PendingReplies { step, prepared, idle_shim, after_commit: AfterCommit::Event(None) })
            }
            Err(_) => {
                self.give_back(idle_shim);
                None
            }
        }
    }

    /// Prepares the queued tasks that have a slot now.
    pub(super) fn prepare_ready_tasks(&mut self) {
        if !self.serving {
            return;
        }
        for task in self.desk.ready_tasks() {
            self.prepare_task(task);
        }
    }

    /// Starts a queued task that has a slot, after its facts were prepared again: only what was permitted runs.
    pub(super) fn fill_slot(
        &mut self,
        task: TaskId,
        world: FactsAtLaunch,
        prepared: Option<(PreparedRequest, Request)>,
    ) -> Option<PendingReplies> {
        if !self.serving || !self.desk.ready_tasks().contains(&task) {
            return None;
        }
        let idle_shim = match self.pool.take() {
            Ok(idle_shim) => idle_shim,
            Err(e) => {
                crate::log!("{}", no_shim(&self.pool, &e));
                return None;
            }
        };
        let judged = prepared.as_ref().and_then(|(prepared, request)| self.assess_again(task, prepared, request));
        let denied = judged.as_ref().and_then(|assessment| self.denial_since_permit(task, assessment));
        // For a read-only task this is what it was permitted with.
        let sandbox = judged.map(|assessment| assessment.sandbox).unwrap_or_default();
        let now = PermittedSandbox::from_sandbox(&sandbox);
        match self.step(DeskEvent::SlotFree { task, world, denied, sandbox: now, shim: idle_shim.pid() }) {
            Ok(step) => {
                let prepared = prepared.map(|(prepared, request)| (prepared, request, sandbox));
                Some(PendingReplies {
                    step,
                    prepared,
                    idle_shim: Some(idle_shim),
                    after_commit: AfterCommit::Event(None),
                })
            }
            Err(_) => {
                self.pool.give_back(idle_shim);
                None
            }
        }
    }

    /// Whether a permitted task would be denied now, or the grant that permitted it is gone.
    fn denial_since_permit(&self, task: TaskId, assessment: &Assessment) -> Option<Refusal> {
        let register = &self.desk.register;
        if let Verdict::Deny(refusal) = &assessment.verdict
            // An approval is not needed any more, so it does not matter that nobody can give one.
            && !matches!(refusal.code, RefusalCode::ApprovalRequiredUnattended | RefusalCode::Locked)
        {
            return Some(refusal.clone());
        }
        let Some(DecidedBy::Grants(grants)) = self.desk.permitted_by(task) else { return None };
        let now = clock::now();
        let lost =
            grants.iter().find(|g| register.grants.get(**g).is_none_or(|g| g.expires_at.is_some_and(|e| e <= now)));
        lost.map(|grant| {
            Refusal::new(
                RefusalCode::GrantRevoked,
                format!("the grant that allowed this ({grant}) was revoked, has expired or is used up"),
            )
            .hint("send the request again: a person is then asked")
        })
    }
}
