//! The desk as a table of events and decisions. After every step, the replayed desk must equal the live one.

use super::*;
use crate::register_command::{RegisterCommand, RegisterReply};
use countersign_model::{
    Audience, Channel, Confinement, CredentialKind, GrantId, IdMint, JournalEnd, Mode, OnSessionEnd, Outcome,
    PrincipalId, Profile, RefusalCode, Risk, Tool, Verdict,
};
use countersign_store::ledger::LedgerEntry;

struct TestDesk {
    desk: Desk,
    mint: IdMint,
    written: Vec<LedgerEntry>,
    clock: i64,
}

impl TestDesk {
    fn new() -> Self {
        Self { desk: Desk::default(), mint: IdMint::default(), written: Vec::new(), clock: 1_700_000_000_000_000 }
    }

    fn step(&mut self, event: DeskEvent) -> Result<DeskStep, Refusal> {
        let at = Timestamp::from_micros(self.clock + self.written.len() as i64);
        let step = self.desk.step(Moment { at, random: 7, mint: &mut self.mint }, event)?;
        self.written.extend(step.decisions.iter().cloned());
        let mut again = Desk::new(self.desk.caps);
        for entry in &self.written {
            let record = Record::parse(&entry.line).unwrap();
            match (entry.task, &record.what) {
                (Some(task), _) => again.replay(task, &entry.line, &record),
                (None, RecordContent::Decision(Decision::Entered(entered))) => again.register.enter(record.at, entered),
                (None, _) => {}
            }
        }
        // A settlement's `next_seq` counts the journal too; an open task's is the same either way.
        assert_eq!(again, self.desk, "replay equals live");
        Ok(step)
    }

    fn ask(&mut self, answer: Verdict) -> (TaskId, DeskStep) {
        self.ask_in(None, answer)
    }

    fn ask_in(&mut self, session: Option<SessionId>, answer: Verdict) -> (TaskId, DeskStep) {
        let task = TaskId::mint(&mut self.mint, 1, 1);
        let planned = planned(session, Vec::new());
        let question = ApprovalQuestion {
            uncovered: vec![Text::from_static("make")],
            about: vec![UncoveredCommand {
                verb: Text::from_static("make"),
                directories: vec![Text::from_static("/p/x")],
                risks: vec![],
            }],
            options: Choice::ALL.to_vec(),
        };
        let new = NewTask {
            task,
            planned,
            verdict: answer,
            question,
            grants: Vec::new(),
            opens: None,
            sandbox: permitted(Confinement::None),
            shim: self.desk.has_room(SlotOwner { session, principal: PrincipalId::owner() }).then_some(42),
        };
        let step = self.step(DeskEvent::Asked(Box::new(new))).unwrap();
        (task, step)
    }

    fn answer(&mut self, task: TaskId, choice: Choice, world: FactsAtLaunch) -> Result<DeskStep, Refusal> {
        self.answer_and_save(task, choice, world, Vec::new(), Some(1))
    }

    fn answer_and_save(
        &mut self,
        task: TaskId,
        choice: Choice,
        world: FactsAtLaunch,
        new_grants: Vec<Grant>,
        shim: Option<u32>,
    ) -> Result<DeskStep, Refusal> {
        let approval = match self.desk.open.get(&task).map(|o| o.stage.clone()) {
            Some(OpenStage::Waiting { approval, .. }) => approval,
            _ => ApprovalId::mint(&mut self.mint, 1, 1),
        };
        let by = DecidedBy::Person {
            principal: PrincipalId::owner(),
            surface: countersign_model::Via::Socket,
            channel: Channel::Person,
        };
        let (words, new_directory, hint, denied) = (None, None, None, None);
        self.step(DeskEvent::Answered(Box::new(PersonAnswer {
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
            sandbox: permitted(Confinement::Shield),
            shim,
        })))
    }

    fn grant(&mut self, verb: &'static str, session: Option<SessionId>, uses_left: Option<u64>) -> Grant {
        let id = GrantId::mint(&mut self.mint, 1, 1);
        let grant: Grant =
            serde_json::from_value(serde_json::json!({"verb": verb, "directory": "/p/x", "uses_left": uses_left}))
                .unwrap();
        Grant { id: Some(id), session, ..grant }
    }
}

fn permitted(confinement: Confinement) -> PermittedSandbox {
    PermittedSandbox { confinement, sandbox: None }
}

fn planned(session: Option<SessionId>, risks: Vec<Risk>) -> Decision {
    Decision::Planned {
        plan_digest: Digest::sha256(&[b"plan"]),
        display: Text::from_static("make"),
        verb: Text::from_static("make"),
        cwd: Text::from_static("/p"),
        mode: Mode::Pipes,
        tool: Tool::Shell,
        title: None,
        rationale: None,
        labels: Default::default(),
        session,
        principal: PrincipalId::owner(),
        credential: CredentialKind::Person,
        risks,
        audience: Audience::Personal,
        profile: Profile::Safe,
        background: false,
        limits: Box::default(),
        workspace: None,
        on_session_end: OnSessionEnd::Keep,
        idempotency: None,
    }
}

fn kinds(step: &DeskStep) -> Vec<String> {
    let kind =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["kind"].as_str().unwrap().to_owned();
    step.decisions.iter().map(|e| kind(&e.line)).collect()
}

#[test]
fn an_allowed_request_launches_in_one_commit() {
    let mut desk = TestDesk::new();
    let (_, step) = desk.ask(Verdict::Allow { rule: "profile.full_auto" });
    assert_eq!(kinds(&step), ["command.planned", "permission.granted", "task.launched"]);
    assert_eq!(step.launch.unwrap().first_seq, 3);
}

#[test]
fn an_approval_is_answered_once() {
    let mut desk = TestDesk::new();
    let (task, step) = desk.ask(Verdict::Ask { uncovered: vec![0] });
    assert_eq!(kinds(&step), ["command.planned", "permission.requested", "task.queued"]);
    assert!(step.launch.is_none());
    let step = desk.answer(task, Choice::Once, FactsAtLaunch::Same).unwrap();
    assert_eq!(kinds(&step), ["permission.granted", "task.launched"]);
    assert_eq!(desk.answer(task, Choice::Deny, FactsAtLaunch::Same).unwrap_err().code, RefusalCode::AlreadyAnswered);
}

#[test]
fn a_task_whose_facts_changed_never_launches() {
    let mut desk = TestDesk::new();
    let (task, _) = desk.ask(Verdict::Ask { uncovered: vec![0] });
    let step = desk.answer(task, Choice::Once, FactsAtLaunch::Changed("x")).unwrap();
    assert!(step.launch.is_none());
    assert_eq!(kinds(&step), ["permission.denied", "task.settled"]);
}

#[test]
fn a_withdrawn_or_denied_task_never_launches() {
    let mut desk = TestDesk::new();
    let (a, _) = desk.ask(Verdict::Ask { uncovered: vec![0] });
    let (b, _) = desk.ask(Verdict::Ask { uncovered: vec![0] });
    assert!(desk.step(DeskEvent::Withdrawn { task: a, by: Text::from_static("t") }).unwrap().launch.is_none());
    assert!(desk.answer(b, Choice::Deny, FactsAtLaunch::Same).unwrap().launch.is_none());
    for task in [a, b] {
        assert_eq!(
            desk.answer(task, Choice::Once, FactsAtLaunch::Same).unwrap_err().code,
            RefusalCode::AlreadyAnswered
        );
    }
}

#[test]
fn a_task_settles_once() {
    let mut desk = TestDesk::new();
    let (task, step) = desk.ask(Verdict::Allow { rule: "profile.full_auto" });
    let head = step.launch.unwrap().prologue_head;
    let closing = JournalEnd { outcome: Outcome::Exited { code: 0 }, head, next_seq: 9 };
    let step = desk.step(DeskEvent::Closed { task, closing: closing.clone(), recovered: false }).unwrap();
    assert_eq!(step.decisions[0].seq, 9);
    assert_eq!(
        desk.step(DeskEvent::Closed { task, closing, recovered: false }).unwrap_err().code,
        RefusalCode::TaskOver
    );
}
const YES: Verdict = Verdict::Allow { rule: "profile.full_auto" };

fn desk_with_caps(session: u64, principal: u64, total: u64) -> TestDesk {
    TestDesk { desk: Desk::new(TaskCaps { session, principal, total }), ..TestDesk::new() }
}

fn end(desk: &mut TestDesk, task: TaskId) {
    let closing = JournalEnd { outcome: Outcome::Exited { code: 0 }, head: Digest::sha256(&[]), next_seq: 9 };
    desk.step(DeskEvent::Closed { task, closing, recovered: false }).unwrap();
}

fn slot(desk: &mut TestDesk, task: TaskId) -> DeskStep {
    desk.step(DeskEvent::SlotFree {
        task,
        world: FactsAtLaunch::Same,
        denied: None,
        sandbox: permitted(Confinement::Shield),
        shim: 7,
    })
    .unwrap()
}

#[test]
fn f170_the_queue_is_first_come_first_served() {
    let mut desk = desk_with_caps(16, 64, 2);
    let (a, _) = desk.ask(YES);
    desk.ask(YES);
    let (c, step) = desk.ask(YES);
    assert_eq!(kinds(&step), ["command.planned", "permission.granted", "task.queued"]);
    assert_eq!(step.state(c).unwrap().position(), Some(1));
    let (d, step) = desk.ask(YES);
    assert_eq!(step.state(d).unwrap().position(), Some(2));
    assert_eq!((desk.desk.ready_tasks(), desk.desk.queue()), (vec![], vec![c, d]));
    end(&mut desk, a);
    assert_eq!(desk.desk.ready_tasks(), [c]);
    let (e, step) = desk.ask(YES);
    assert!(step.launch.is_none(), "a new task does not overtake a ready one");
    assert_eq!(kinds(&slot(&mut desk, c)), ["task.launched"]);
    assert_eq!((desk.desk.ready_tasks(), desk.desk.queue()), (vec![], vec![d, e]));
}

#[test]
fn the_queue_keeps_its_order_when_the_clock_goes_back() {
    let mut desk = desk_with_caps(16, 64, 1);
    desk.ask(YES);
    let (b, _) = desk.ask(YES);
    desk.clock -= 3_600_000_000;
    let (c, _) = desk.ask(YES);
    let (d, _) = desk.ask(YES);
    assert_eq!(desk.desk.queue(), [b, c, d]);
}

#[test]
fn a_full_session_does_not_block_other_sessions() {
    let mut desk = desk_with_caps(1, 3, 4);
    let session = |n: u32| Some(SessionId::mint(&mut IdMint::default(), 1, n));
    let (a, _) = desk.ask_in(session(1), YES);
    let (b, _) = desk.ask_in(session(1), YES);
    let (c, step) = desk.ask_in(session(2), YES);
    assert!(step.launch.is_some(), "another session has room");
    let (d, _) = desk.ask(YES);
    let (e, _) = desk.ask(YES);
    assert_eq!(desk.desk.queue(), [b, e]);
    end(&mut desk, c);
    assert_eq!(desk.desk.ready_tasks(), [e], "the limit of its own session blocks the first task");
    end(&mut desk, a);
    end(&mut desk, d);
    assert_eq!(desk.desk.ready_tasks(), [b, e]);
}

#[test]
fn f151_a_queued_task_can_be_withdrawn_and_does_not_run_with_changed_facts() {
    let mut desk = desk_with_caps(16, 64, 1);
    let (a, _) = desk.ask(YES);
    let (b, _) = desk.ask(YES);
    let (c, _) = desk.ask(YES);
    let (d, _) = desk.ask(YES);
    let step = desk.step(DeskEvent::Withdrawn { task: b, by: Text::from_static("t") }).unwrap();
    assert_eq!(kinds(&step), ["task.withdrawn", "task.settled"]);
    end(&mut desk, a);
    let changed = DeskEvent::SlotFree {
        task: c,
        world: FactsAtLaunch::Changed("x"),
        denied: None,
        sandbox: permitted(Confinement::Shield),
        shim: 7,
    };
    assert_eq!(kinds(&desk.step(changed).unwrap()), ["permission.denied", "task.settled"]);
    let revoked = Refusal::new(RefusalCode::Locked, "not any more");
    let denied = DeskEvent::SlotFree {
        task: d,
        world: FactsAtLaunch::Same,
        denied: Some(revoked),
        sandbox: permitted(Confinement::Shield),
        shim: 7,
    };
    let step = desk.step(denied).unwrap();
    assert!(step.launch.is_none() && step.drop_request == Some(d));
    assert_eq!(kinds(&step), ["permission.denied", "task.settled"]);
}

#[test]
fn an_approved_task_waits_for_a_slot_too() {
    let mut desk = desk_with_caps(16, 64, 1);
    let (a, _) = desk.ask(YES);
    let (b, _) = desk.ask(Verdict::Ask { uncovered: vec![0] });
    let step = desk.answer_and_save(b, Choice::Once, FactsAtLaunch::Same, Vec::new(), None).unwrap();
    assert_eq!((kinds(&step), step.drop_request), (vec!["permission.granted".to_owned(), "task.queued".into()], None));
    end(&mut desk, a);
    let step = slot(&mut desk, b);
    assert_eq!(step.launch.unwrap().permit.scope, Scope::Once);
}

#[test]
fn a_saving_answer_commits_its_grants_and_names_the_tasks_that_they_may_cover() {
    let mut desk = TestDesk::new();
    let (a, _) = desk.ask(Verdict::Ask { uncovered: vec![0] });
    let (b, _) = desk.ask(Verdict::Ask { uncovered: vec![0] });
    let grant = desk.grant("make", None, None);
    let step = desk.answer_and_save(a, Choice::Here, FactsAtLaunch::Same, vec![grant.clone()], Some(1)).unwrap();
    assert_eq!(kinds(&step), ["grant.saved", "permission.granted", "task.launched"]);
    assert_eq!(step.may_release, [b], "the task that waits for the same verb is judged again");
    let state = step.state(a);
    assert!(state.is_none(), "the task existed before this step");
    let ids = vec![grant.id.unwrap()];
    let step = desk
        .step(DeskEvent::Covered {
            task: b,
            grants: ids.clone(),
            sandbox: permitted(Confinement::Shield),
            shim: Some(2),
        })
        .unwrap();
    assert_eq!(kinds(&step), ["permission.granted", "task.launched"]);
    assert_eq!(step.launch.unwrap().permit.by, DecidedBy::Grants(ids));
    assert!(
        desk.step(DeskEvent::Covered {
            task: b,
            grants: Vec::new(),
            sandbox: permitted(Confinement::Shield),
            shim: Some(2)
        })
        .is_err()
    );
}

#[test]
fn f020_a_grant_saved_twice_is_one_grant_with_its_first_time() {
    let mut desk = TestDesk::new();
    let first = desk.grant("make", None, None);
    let saved_grant = |step: DeskStep| match step.register_reply {
        Some(RegisterReply::Grant { grant, new }) => (grant.id.unwrap(), grant.created_at, new),
        other => panic!("{other:?}"),
    };
    let (id, at, new) =
        saved_grant(desk.step(DeskEvent::RegisterCommand(RegisterCommand::Grant(Box::new(first.clone())))).unwrap());
    assert!(new);
    assert_eq!(
        saved_grant(desk.step(DeskEvent::RegisterCommand(RegisterCommand::Grant(Box::new(first)))).unwrap()),
        (id, at, false)
    );
    let (task, _) = desk.ask(Verdict::Ask { uncovered: vec![0] });
    let again = desk.grant("make", None, None);
    let step = desk.answer_and_save(task, Choice::Here, FactsAtLaunch::Same, vec![again], Some(1)).unwrap();
    assert_eq!(kinds(&step), ["permission.granted", "task.launched"], "nothing new was saved");
    assert_eq!(desk.desk.register.grants.len(), 1);
}

#[test]
fn uses_are_counted_with_the_permit_and_survive_a_replay() {
    let mut desk = TestDesk::new();
    let grant = desk.grant("make", None, Some(1));
    desk.step(DeskEvent::RegisterCommand(RegisterCommand::Grant(Box::new(grant)))).unwrap();
    let id = desk.desk.register.grants.iter().next().unwrap().id.unwrap();
    let (task, _) = desk.ask(Verdict::Ask { uncovered: vec![0] });
    let step = desk
        .step(DeskEvent::Covered { task, grants: vec![id], sandbox: permitted(Confinement::Shield), shim: Some(1) })
        .unwrap();
    assert_eq!(kinds(&step), ["grant.used", "permission.granted", "task.launched"]);
    assert!(!desk.desk.register.grants.get(id).unwrap().is_valid_at(Timestamp::from_micros(0)));
}

#[test]
fn f014_a_denial_by_a_person_is_remembered_for_ten_minutes() {
    let mut desk = TestDesk::new();
    let (task, _) = desk.ask(Verdict::Ask { uncovered: vec![0] });
    let same = desk.desk.open[&task].identity();
    assert_eq!(desk.desk.find_waiting(same), Some(task), "the same request joins while it waits");
    desk.answer(task, Choice::Deny, FactsAtLaunch::Same).unwrap();
    assert_eq!(desk.desk.find_waiting(same), None);
    let now = Timestamp::from_micros(desk.clock + 60_000_000);
    assert!(desk.desk.recent_denial(same, now).is_some());
    assert!(
        desk.desk.recent_denial(RequestIdentity { background: true, ..same }, now).is_none(),
        "a different request is not denied"
    );
    let later = Timestamp::from_micros(desk.clock + 601_000_000);
    assert!(desk.desk.recent_denial(same, later).is_none());
}

/// An agent's own client could make up its answers.
#[test]
fn an_in_band_answer_is_once_or_deny_and_never_for_a_grave_risk() {
    let in_band = |desk: &mut TestDesk, task, choice| {
        let Some(OpenStage::Waiting { approval, .. }) = desk.desk.open.get(&task).map(|o| o.stage.clone()) else {
            panic!()
        };
        let by = DecidedBy::Person {
            principal: PrincipalId::owner(),
            surface: countersign_model::Via::Mcp,
            channel: Channel::InBand,
        };
        desk.step(DeskEvent::Answered(Box::new(PersonAnswer {
            task,
            approval,
            choice,
            words: None,
            by,
            world: FactsAtLaunch::Same,
            new_grants: Vec::new(),
            new_directory: None,
            hint: None,
            denied: None,
            sandbox: permitted(Confinement::Shield),
            shim: Some(1),
        })))
    };
    for risk in Risk::ALL {
        let mut desk = TestDesk::new();
        let task = TaskId::mint(&mut desk.mint, 1, 1);
        let question = ApprovalQuestion { options: Choice::ALL.to_vec(), ..ApprovalQuestion::default() };
        let asked = NewTask {
            task,
            planned: planned(None, vec![risk]),
            verdict: Verdict::Ask { uncovered: Vec::new() },
            question,
            grants: Vec::new(),
            opens: None,
            sandbox: permitted(Confinement::None),
            shim: None,
        };
        desk.step(DeskEvent::Asked(Box::new(asked))).unwrap();
        for new_grants in [Choice::Session, Choice::Here, Choice::Repository, Choice::Anywhere] {
            assert_eq!(in_band(&mut desk, task, new_grants).unwrap_err().code, RefusalCode::OptionNotOffered);
        }
        match (in_band(&mut desk, task, Choice::Once), risk.is_grave()) {
            (Ok(step), false) => assert!(step.launch.is_some()),
            (Err(refusal), true) => {
                assert_eq!(refusal.code, RefusalCode::OptionNotOffered);
                let denied = in_band(&mut desk, task, Choice::Deny).unwrap();
                assert_eq!(kinds(&denied), ["permission.denied", "task.settled"]);
            }
            (other, _) => panic!("{risk:?}: {other:?}"),
        }
    }
}

#[test]
fn a_task_that_an_agent_runs_is_open_until_its_outcome_is_reported() {
    let mut desk = TestDesk::new();
    let task = TaskId::mint(&mut desk.mint, 1, 1);
    let (rule, grants, by) = ("phrase", Vec::new(), Text::from_static("claude-code"));
    let planned = || Box::new(planned(None, Vec::new()));
    let step = desk.step(DeskEvent::Observed { task, planned: planned(), opens: None, rule, grants, by }).unwrap();
    assert_eq!(kinds(&step), ["command.planned", "permission.granted", "task.observing"]);
    assert!(step.launch.is_none() && desk.desk.launched_tasks().is_empty() && desk.desk.running_count() == 0);
    assert_eq!(desk.desk.unreported_before(Timestamp::from_micros(i64::MAX)), [task]);
    assert!(desk.desk.unreported_before(Timestamp::from_micros(0)).is_empty());
    assert!(desk.step(DeskEvent::Withdrawn { task, by: Text::from_static("owner") }).is_err());
    let reported = || DeskEvent::OutcomeReported { task, outcome: Outcome::Exited { code: 2 } };
    assert_eq!(kinds(&desk.step(reported()).unwrap()), ["task.settled"]);
    assert!(desk.step(reported()).is_err(), "an outcome is reported once");
    let task = TaskId::mint(&mut desk.mint, 1, 1);
    let by = Text::from_static("nobody");
    let step = desk.step(DeskEvent::Unredeemed { task, planned: planned(), opens: None, by }).unwrap();
    assert_eq!(kinds(&step), ["command.planned", "task.withdrawn", "task.settled"]);
}
