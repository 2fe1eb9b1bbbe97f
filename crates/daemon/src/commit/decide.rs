//! What the office makes of a call: it judges with what is granted at this moment, and lets the desk decide.

use super::{CommitLoop, Done, IDEMPOTENCY, MOST_JOINED, PendingReplies, ledger_refusal, no_shim};
use crate::{
    calls::{AnswerCall, AskCall, AskOutcome, CommitReply},
    case::Case,
    confine,
    desk::{
        ApprovalQuestion, DeskEvent, DeskStep, FactsAtLaunch, NOT_AGAIN, NewTask, PermittedSandbox, PersonAnswer,
        RequestIdentity, SlotOwner,
    },
    facts::Prepared,
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

/// So many requests of one principal may wait for a person or for a slot: each is kept on the disk, and in memory.
const MOST_WAITING: usize = 2_000;

/// Nothing is decided: whoever called is told, with everybody else.
fn pending_of(done: Done) -> Option<PendingReplies> {
    Some(PendingReplies { step: DeskStep::default(), prepared: None, idle_shim: None, done })
}

fn same(asking: &AskCall) -> RequestIdentity {
    let Requester { principal, session, profile, .. } = asking.requester;
    let (plan_digest, background) = (asking.prepared.plan_digest, asking.request.background);
    RequestIdentity { principal, session, plan_digest, background, profile }
}

impl CommitLoop {
    pub(super) fn ask(&mut self, mut asking: AskCall, reply: CommitReply<AskOutcome>) -> Option<PendingReplies> {
        if let Some(earlier) = asking.idempotency.and_then(|i| self.earlier(i).transpose()) {
            // Told with the rest: what it repeats may be in this very batch.
            return pending_of(Done::Replayed(reply, earlier));
        }
        let session = self.session_of(&mut asking);
        if session.as_ref().is_some_and(|s| s.ended_at.is_some()) {
            let over = Refusal::new(RefusalCode::SessionOver, "the session has ended");
            return pending_of(Done::Replayed(reply, Err(over)));
        }
        let same = same(&asking);
        if let Some(task) = self.desk.joins(same).filter(|_| asking.request.attended && asking.refused.is_none()) {
            self.joined(asking.idempotency, task);
            return pending_of(Done::Replayed(reply, Ok(AskOutcome { task, denied: None, state: None, joined: true })));
        }
        let refused = asking.refused.take();
        let earlier = asking.judged.take().filter(|_| refused.is_some());
        let texts = std::mem::take(&mut asking.texts);
        let conversation = session.as_deref().or(asking.opens.as_deref());
        let case = asking.case(&self.gate, conversation, &self.desk.register.grants, clock::now());
        let assessment = earlier.map_or_else(|| case.assess(), |judged| *judged);
        let answer = self.answer_now(&assessment, &asking.request, same, refused);
        let question = match &answer {
            Verdict::Ask { .. } => case.question(&assessment, &texts),
            Verdict::Allow { .. } | Verdict::Deny(_) => ApprovalQuestion::default(),
        };
        asking.texts = texts;
        asking.note(&assessment);
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
            confine::budget(limits);
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
            sandbox: PermittedSandbox::of(&assessment.sandbox),
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
                Some(PendingReplies { step, prepared, idle_shim, done: Done::Asked(reply, asked) })
            }
            Err(refusal) => {
                let _ = reply.send(Err(refusal));
                None
            }
        }
    }

    /// The session that a request belongs to, if it is open already. Somebody else of the same credential may have been
    /// first in the same place.
    fn session_of(&self, asking: &mut AskCall) -> Option<Arc<Session>> {
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

    /// Under its own key a request that joined another finds that one again.
    fn joined(&mut self, idempotency: Option<Idempotency>, task: TaskId) {
        if let Some(idempotency) = idempotency {
            if self.joined.len() >= MOST_JOINED {
                self.joined.clear();
            }
            self.joined.insert(idempotency.key, (task, idempotency, clock::now()));
        }
    }

    /// What a request needs before it is decided about: a shim to run at once, or its raw form kept until then.
    fn reserve(&mut self, task: TaskId, answer: &Verdict, asking: &AskCall) -> Result<Option<IdleShim>, Refusal> {
        let Requester { principal, session, .. } = asking.requester;
        match answer {
            Verdict::Deny(_) => Ok(None),
            Verdict::Allow { .. } if self.desk.has_room(SlotOwner { session, principal }) => {
                self.pool.take().map(Some).map_err(|e| no_shim(&self.pool, &e))
            }
            Verdict::Allow { .. } | Verdict::Ask { .. } if self.desk.waiting_of(principal) >= MOST_WAITING => {
                Err(Refusal::new(RefusalCode::TooMany, format!("{MOST_WAITING} requests of yours wait already"))
                    .hint("answer or withdraw some first: csn approvals list, csn cancel"))
            }
            Verdict::Allow { .. } | Verdict::Ask { .. } => {
                let kept = waiting::WaitingRequest {
                    v: 1,
                    request: asking.request.clone(),
                    facts: asking.prepared.facts.clone(),
                    asker: asking.asker,
                    uid: asking.prepared.user.as_ref().map(|l| l.uid),
                };
                let kept = waiting::save(&self.home, task, &kept);
                kept.map_err(|e| {
                    Refusal::new(RefusalCode::LedgerUnavailable, format!("the request could not be kept: {e}"))
                        .hint("make room below the house's home; nothing was started")
                })?;
                crash::point("office.after_waiting");
                Ok(None)
            }
        }
    }

    /// The case of a task as it would be judged now.
    fn case_of<'a>(
        &'a self,
        request: &'a Request,
        prepared: &'a Prepared,
        requester: &'a Requester,
        session: Option<&'a Session>,
    ) -> Case<'a> {
        let (settings, grants, now) = (&self.gate, &self.desk.register.grants, clock::now());
        Case { request, prepared, settings, requester, session, grants, now }
    }

    /// How a task that waits would be judged now.
    fn assess_again(&self, task: TaskId, prepared: &Prepared, request: &Request) -> Option<Assessment> {
        let requester = self.desk.requester(task)?;
        let session = requester.session.and_then(|s| self.desk.register.roster.session(s));
        Some(self.case_of(request, prepared, &requester, session.map(|s| &**s)).assess())
    }

    /// The verdict, and what stands above it: what cannot be allowed at all, and what a person has just refused.
    fn answer_now(
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
            Verdict::Ask { .. } => match self.desk.refused(same, clock::now()) {
                Some((at, words)) => {
                    let minutes = NOT_AGAIN.as_secs() / 60;
                    let refusal = Refusal::new(RefusalCode::DeniedByPerson, format!("denied by user at {at}"));
                    let words = words.map(|w| format!("they said: \"{w}\"; ")).unwrap_or_default();
                    Verdict::Deny(refusal.hint(format!(
                        "{words}the same request is not asked again for {minutes} minutes, unless a grant covers it; do something else"
                    )))
                }
                None => assessment.verdict.clone(),
            },
            answer => answer.clone(),
        }
    }

    /// The task that came under the same idempotency key before, if it was the same request.
    fn earlier(&self, new: Idempotency) -> Result<Option<AskOutcome>, Refusal> {
        let fresh = self.fresh_keys.get(&new.key).map(|(task, i)| (*task, *i, clock::now()));
        let found = match fresh.or_else(|| self.joined.get(&new.key).copied()) {
            Some(found) => Some(found),
            None => self.reader.task_by_idempotency(new.key).map_err(|e| ledger_refusal(&e))?,
        };
        match found.filter(|(_, _, at)| clock::now().since(*at) < IDEMPOTENCY) {
            None => Ok(None),
            Some((task, old, _)) if old.body == new.body => {
                Ok(Some(AskOutcome { task, denied: None, state: None, joined: false }))
            }
            Some((task, _, _)) => Err(Refusal::new(
                RefusalCode::IdempotencyConflict,
                format!("this Idempotency-Key came with another request before ({task})"),
            )
            .hint("use a new key for a new request")),
        }
    }

    pub(super) fn answer(&mut self, answering: AnswerCall, reply: CommitReply<()>) -> Option<PendingReplies> {
        let AnswerCall { task, approval, choice, any_arguments, words, by, world, prepared } = answering;
        let refuse = |reply: CommitReply<()>, refusal| {
            let done = Done::Plain(reply, Err(refusal));
            Some(PendingReplies { step: DeskStep::default(), prepared: None, idle_shim: None, done })
        };
        let (mut saves, mut denied, mut moves, mut sandbox) = (Vec::new(), None, None, Sandbox::default());
        let requester = self.desk.requester(task);
        let session = requester.and_then(|s| self.desk.register.roster.session(s.session?)).cloned();
        if choice == Choice::Session && session.as_ref().is_some_and(|s| s.ended_at.is_some()) {
            let over = Refusal::new(RefusalCode::SessionOver, "the session has ended: nothing can be saved for it");
            return refuse(reply, over.hint("answer `once` or `deny`"));
        }
        if let (Some((prepared, request)), Some(requester), true) = (&prepared, &requester, choice != Choice::Deny) {
            if request.tool == Tool::SetWorkingDirectory {
                moves = Some(text_by_shape(&prepared.facts.cwd.resolved));
            } else {
                let (settings, grants, now) = (&self.gate, &self.desk.register.grants, clock::now());
                let session = session.as_deref();
                let case = Case { request, prepared, settings, requester, session, grants, now };
                let assessment = case.assess();
                if let Verdict::Deny(refusal) = &assessment.verdict {
                    denied = Some(refusal.clone());
                }
                let about = self.desk.question(task).unwrap_or_default();
                let given = question::SavingAnswer { choice, any_arguments, by: &by, about };
                match case.saved_grants(&given, &assessment, &mut self.mint) {
                    Ok(grants) => saves = grants,
                    Err(refusal) => return refuse(reply, refusal),
                }
                sandbox = assessment.sandbox;
            }
        }
        let mut idle_shim = None;
        let runs = choice != Choice::Deny && moves.is_none();
        if runs && self.desk.slot_owner(task).is_some_and(|whose| self.desk.has_room(whose)) {
            match self.pool.take() {
                Ok(taken) => idle_shim = Some(taken),
                Err(e) => {
                    let _ = reply.send(Err(no_shim(&self.pool, &e)));
                    return None;
                }
            }
        }
        let hint = self.hint_outside(task, session.as_deref());
        let shim = idle_shim.as_ref().map(IdleShim::pid);
        let permitted = PermittedSandbox::of(&sandbox);
        let answered = PersonAnswer {
            task,
            approval,
            choice,
            words,
            by,
            world,
            saves,
            moves,
            hint,
            denied,
            sandbox: permitted,
            shim,
        };
        match self.step(DeskEvent::Answered(Box::new(answered))) {
            Ok(step) => {
                let prepared = prepared.map(|(prepared, request)| (prepared, request, sandbox));
                Some(PendingReplies { step, prepared, idle_shim, done: Done::Plain(reply, Ok(())) })
            }
            Err(refusal) => Some(PendingReplies {
                step: DeskStep::default(),
                prepared: None,
                idle_shim,
                done: Done::Plain(reply, Err(refusal)),
            }),
        }
    }

    /// Who was refused something outside of its roots may ask to work there.
    fn hint_outside(&self, task: TaskId, session: Option<&Session>) -> Option<String> {
        let session = session.filter(|s| s.implicit.is_none())?;
        let roots: Vec<String> = session.roots.iter().chain(&session.folder).map(|r| r.as_str().to_owned()).collect();
        let outside = |d: &&Text| !countersign_policy::in_roots(d.as_str(), &roots);
        let place = self.desk.question(task)?.iter().flat_map(|a| &a.directories).find(outside)?;
        Some(format!("{place} is outside this session's roots: set_working_directory asks to work there"))
    }

    /// Lets a task go that waited for a person, if what was granted meanwhile covers it.
    pub(super) fn release(
        &mut self,
        task: TaskId,
        world: FactsAtLaunch,
        prepared: Option<(Prepared, Request)>,
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
        let whose = self.desk.slot_owner(task)?;
        let idle_shim = match self.desk.has_room(whose) {
            true => match self.pool.take() {
                Ok(idle_shim) => Some(idle_shim),
                // Without one it waits in line, where it is tried again.
                Err(e) => {
                    crate::log!("{}", no_shim(&self.pool, &e));
                    None
                }
            },
            false => None,
        };
        let (sandbox, shim) = (PermittedSandbox::of(&assessment.sandbox), idle_shim.as_ref().map(IdleShim::pid));
        match self.step(DeskEvent::Covered { task, grants, sandbox, shim }) {
            Ok(step) => {
                let prepared = Some((prepared, request, assessment.sandbox));
                Some(PendingReplies { step, prepared, idle_shim, done: Done::Told(None) })
            }
            Err(_) => {
                self.give_back(idle_shim);
                None
            }
        }
    }

    /// Has the world looked at for whoever in line has room now.
    pub(super) fn look_for_the_next(&mut self) {
        if !self.serving {
            return;
        }
        for task in self.desk.ready() {
            self.look_at(task);
        }
    }

    /// Lets go whoever has room, after facts were looked at again: what runs is what was permitted.
    pub(super) fn fill_slot(
        &mut self,
        task: TaskId,
        world: FactsAtLaunch,
        prepared: Option<(Prepared, Request)>,
    ) -> Option<PendingReplies> {
        if !self.serving || !self.desk.ready().contains(&task) {
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
        let denied = judged.as_ref().and_then(|assessment| self.denied_now(task, assessment));
        // Of one that only reads that is what it was permitted with.
        let sandbox = judged.map(|assessment| assessment.sandbox).unwrap_or_default();
        let now = PermittedSandbox::of(&sandbox);
        match self.step(DeskEvent::Slot { task, world, denied, sandbox: now, shim: idle_shim.pid() }) {
            Ok(step) => {
                let prepared = prepared.map(|(prepared, request)| (prepared, request, sandbox));
                Some(PendingReplies { step, prepared, idle_shim: Some(idle_shim), done: Done::Told(None) })
            }
            Err(_) => {
                self.pool.give_back(idle_shim);
                None
            }
        }
    }

    /// Whether what was permitted before would be denied now, or what permitted it has been taken back.
    fn denied_now(&self, task: TaskId, assessment: &Assessment) -> Option<Refusal> {
        let register = &self.desk.register;
        if let Verdict::Deny(refusal) = &assessment.verdict
            // Nobody could be asked, but nobody has to be.
            && !matches!(refusal.code, RefusalCode::ApprovalRequiredUnattended | RefusalCode::Locked)
        {
            return Some(refusal.clone());
        }
        let Some(DecidedBy::Grants(grants)) = self.desk.permitted_by(task) else { return None };
        let now = clock::now();
        let gone =
            grants.iter().find(|g| register.grants.get(**g).is_none_or(|g| g.expires_at.is_some_and(|e| e <= now)));
        gone.map(|grant| {
            Refusal::new(RefusalCode::GrantRevoked, format!("{grant}, which let it run, does not hold any more"))
                .hint("ask again: a person will be asked")
        })
    }
}
