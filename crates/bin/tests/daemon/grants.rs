//! A person's decision holds exactly as far as they meant it: the life of approvals and grants, by failure case.

use crate::{CSN, approvals::refusal, tree::kill};
use countersign_client::{Client, ClientError, Events};
use countersign_model::{
    Approval, ApprovalState, AskerPresence, Choice, Confinement, DecidedBy, Decision, Outcome, RecordContent,
    RefusalCode, Ruling, Session, Status, TaskId, TaskRefusal, TaskState,
};
use countersign_testkit::{RawCalls as _, TestHome, body};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
};

const SAFE: &str = "safe";

/// A daemon with a repository to work in.
struct Scene {
    daemon: TestHome,
    client: Client,
    repo: PathBuf,
    session: Session,
}

impl Scene {
    fn new() -> Self {
        Self::configured("")
    }

    fn configured(toml: &str) -> Self {
        let daemon = TestHome::new(CSN);
        if !toml.is_empty() {
            daemon.configure(toml);
        }
        daemon.start();
        let repo = std::fs::canonicalize(daemon.work()).unwrap().join("repo");
        std::fs::create_dir_all(repo.join(".git")).unwrap();
        std::fs::create_dir_all(repo.join("sub")).unwrap();
        let client = daemon.client();
        let session = client.open_session(&body(json!({"directory": repo, "title": "test"}))).unwrap();
        Self { daemon, client, repo, session }
    }

    fn try_ask(&self, text: &str, with: Value) -> Result<TaskState, ClientError> {
        let mut request = json!({"profile": SAFE, "session_id": self.session.id, "args": {"cwd": self.repo}});
        merge(&mut request, with);
        self.client.ask(&self.daemon.request(text, request))
    }

    fn ask(&self, text: &str) -> TaskState {
        self.try_ask(text, json!({})).unwrap()
    }

    /// Requests a command that a person must answer.
    fn card(&self, text: &str) -> Approval {
        self.card_with(text, json!({}))
    }

    fn card_with(&self, text: &str, with: Value) -> Approval {
        let task = self.try_ask(text, with).unwrap();
        assert_eq!(task.status, Status::Queued, "{text}");
        self.client.approval(&task.approval_id().unwrap().to_string()).unwrap()
    }

    fn answer(&self, card: &Approval, choice: Choice) -> Approval {
        self.client.answer(card.id, choice, None).unwrap()
    }

    /// Requests, answers, and waits for the end.
    fn approved(&self, text: &str, choice: Choice) -> TaskState {
        let card = self.card(text);
        assert!(card.options.contains(&choice), "{text}: {:?}", card.options);
        self.answer(&card, choice);
        self.daemon.settled(card.task_id)
    }

    fn runs(&self, text: &str) -> bool {
        let task = self.ask(text);
        let waits = task.approval_id().is_some() && task.status == Status::Queued;
        if waits {
            self.client.cancel(task.task_id, None).unwrap();
        }
        self.daemon.settled(task.task_id);
        !waits
    }

    fn labels(&self) -> Vec<String> {
        let all = self.client.grants().unwrap();
        let mut labels: Vec<String> = all.iter().map(|g| g.label.as_str().to_owned()).collect();
        labels.sort();
        labels
    }

    fn path(&self, name: &str) -> String {
        self.repo.join(name).to_str().unwrap().to_owned()
    }
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            from.into_iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
        }
        (into, from) => *into = from,
    }
}

fn ran(state: &TaskState) -> bool {
    matches!(state.outcome(), Some(Outcome::Exited { .. }))
}

#[test]
fn f001_echo_in_a_compound_is_neither_saved_nor_checked_again() {
    let s = Scene::new();
    let text = format!("cd {} && touch a && echo \"---\" && mkdir -p b", s.path("sub"));
    let card = s.card(&text);
    let verbs: Vec<&str> = card.about.iter().map(|a| a.verb.as_str()).collect();
    assert_eq!(verbs, ["touch", "mkdir"], "echo and cd ask nothing of their own");
    let answered = s.answer(&card, Choice::Anywhere);
    assert!(ran(&s.daemon.settled(card.task_id)));
    assert_eq!(s.labels(), ["mkdir anywhere", "touch anywhere"]);
    assert_eq!(answered.resolution().unwrap(), "Saved: touch, mkdir anywhere");
    assert!(s.runs(&text), "the same command runs again without approval");
}

#[test]
fn f002_an_approved_call_runs_even_if_nothing_can_be_saved() {
    let s = Scene::new();
    let folder = s.session.folder.clone().unwrap();
    let task = s.try_ask("printf x | tee a | base64", json!({"args": {"cwd": folder.as_str()}})).unwrap();
    let card = s.client.approval(&task.approval_id().unwrap().to_string()).unwrap();
    assert!(!card.options.contains(&Choice::Here), "nothing is granted for a folder that goes with its session");
    assert!(card.card.as_ref().unwrap().in_session_folder);
    s.answer(&card, Choice::Once);
    assert!(ran(&s.daemon.settled(card.task_id)));
    // Two directories without a common one: no folder can be saved, but the call runs.
    let other = s.daemon.work().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(s.path("f"), "x").unwrap();
    let card = s.card(&format!("cp {} {}", s.path("f"), other.display()));
    assert!(!card.options.contains(&Choice::Here) && !card.options.contains(&Choice::Session), "{:?}", card.options);
    s.answer(&card, Choice::Anywhere);
    assert!(ran(&s.daemon.settled(card.task_id)) && other.join("f").exists());
}

#[test]
fn f003_always_here_is_never_stored_without_its_directory() {
    let s = Scene::new();
    for (n, choice) in [Choice::Here, Choice::Repository].into_iter().enumerate() {
        let text = format!("cd {} && mkdir d{n}", s.path("sub"));
        s.approved(&text, choice);
        s.client.grants().unwrap().iter().for_each(|g| assert!(g.grant.directory.is_some(), "{g:?}"));
        let id = s.client.grants().unwrap()[0].grant.id.unwrap();
        let kept = &s.client.grants().unwrap()[0];
        let place = if choice == Choice::Here { s.path("sub") } else { s.repo.to_str().unwrap().to_owned() };
        assert_eq!(kept.grant.directory.as_ref().unwrap().as_str(), place);
        s.client.revoke_grant(id).unwrap();
    }
    // Through the API a grant names its directory or is refused: leaving it out does not mean "anywhere".
    assert_eq!(refusal(s.client.post("/grants", &json!({"verb": "make"}))).code, RefusalCode::BadRequest);
    for place in ["/", "/usr", "relative", "~", s.daemon.home().parent().unwrap().to_str().unwrap()] {
        assert_eq!(
            refusal(s.client.grant(&body(json!({"verb": "make", "directory": place})))).code,
            RefusalCode::BadRequest,
            "{place}"
        );
    }
    let folder = s.session.folder.clone().unwrap();
    assert_eq!(
        refusal(s.client.grant(&body(json!({"verb": "make", "directory": folder})))).code,
        RefusalCode::BadRequest
    );
}

#[test]
fn f004_a_command_approved_once_asks_again() {
    let s = Scene::new();
    let text = "for r in $(ls); do touch \"$r.x\"; done";
    let card = s.card(text);
    assert_eq!(card.options, [Choice::Once, Choice::Deny]);
    s.answer(&card, Choice::Once);
    assert!(ran(&s.daemon.settled(card.task_id)));
    assert!(!s.runs(text), "it asks again");
    assert!(s.labels().is_empty());
}

#[test]
fn f005_a_late_answer_after_a_restart_runs_once_and_still_saves() {
    let s = Scene::new();
    let card = s.card("echo x >> ran");
    s.daemon.kill_daemon();
    s.daemon.start();
    let again = s.client.approval(&card.id.to_string()).unwrap();
    assert_eq!((again.state, again.options), (ApprovalState::Waiting, card.options.clone()));
    s.answer(&card, Choice::Here);
    assert!(ran(&s.daemon.settled(card.task_id)));
    assert_eq!(std::fs::read_to_string(s.path("ran")).unwrap(), "x\n");
    s.daemon.kill_daemon();
    s.daemon.start();
    assert!(s.labels().len() == 1 && s.runs("echo y >> ran"), "a saved grant survives the daemon");
}

#[test]
fn f006_a_second_answer_changes_nothing() {
    let s = Scene::new();
    let card = s.card("echo x >> ran");
    s.answer(&card, Choice::Once);
    s.daemon.settled(card.task_id);
    let late = refusal(s.client.answer(card.id, Choice::Anywhere, None));
    assert_eq!(late.code, RefusalCode::AlreadyAnswered);
    assert!(late.message.contains("already answered with `once` by owner"), "{}", late.message);
    assert!(s.labels().is_empty());
    assert_eq!(s.client.approval(&card.id.to_string()).unwrap().resolution().unwrap(), "Approved (no save)");
    assert_eq!(std::fs::read_to_string(s.path("ran")).unwrap(), "x\n");
}

#[test]
fn f008_a_choice_that_was_not_offered_is_refused() {
    let s = Scene::new();
    let card = s.card("eval \"$X\"; touch a");
    for choice in [Choice::Session, Choice::Here, Choice::Repository, Choice::Anywhere] {
        assert_eq!(refusal(s.client.answer(card.id, choice, None)).code, RefusalCode::OptionNotOffered, "{choice}");
    }
    assert_eq!(
        s.client.approval(&card.id.to_string()).unwrap().state,
        ApprovalState::Waiting,
        "it can still be answered"
    );
    // A request without a session is offered no session grant.
    let task = s.daemon.ask_with("touch b", json!({"profile": SAFE}));
    let options = &task.question.as_ref().unwrap().options;
    assert!(!options.contains(&Choice::Session) && task.request.session_id.is_some(), "{options:?}");
}

#[test]
fn f012_two_questions_each_get_their_own_answer_in_any_order() {
    let s = Scene::new();
    let (a, b) = (s.card("echo a > a"), s.card("echo b > b"));
    s.answer(&b, Choice::Once);
    s.client.answer(a.id, Choice::Deny, Some("not a")).unwrap();
    assert!(ran(&s.daemon.settled(b.task_id)));
    assert!(matches!(s.daemon.outcome(a.task_id), Outcome::Denied { .. }));
    assert!(s.repo.join("b").exists() && !s.repo.join("a").exists());
}

#[test]
fn f013_the_requester_may_be_gone_when_the_answer_comes() {
    let s = Scene::new();
    let mut run = s.daemon.csn_spawn(&["run", "touch late"]);
    let mut line = String::new();
    BufReader::new(run.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let id = line.split_whitespace().find(|w| w.starts_with("ap_")).unwrap().trim_end_matches(';').to_owned();
    assert_eq!(s.client.approval(&id).unwrap().asker, Some(AskerPresence::Waiting));
    run.kill().unwrap();
    run.wait().unwrap();
    let card = s.client.approval(&id).unwrap();
    assert_eq!(card.asker, Some(AskerPresence::Gone));
    let shown = s.daemon.csn(&["approvals", "show", &id]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("the requester no longer waits"));
    s.answer(&card, Choice::Once);
    assert!(ran(&s.daemon.settled(card.task_id)) && s.daemon.work().join("late").exists());
    assert_eq!(s.daemon.csn(&["wait", &card.task_id.to_string()]).status.code(), Some(0), "its result waits by id");
}

#[test]
fn f014_a_denial_carries_a_message_and_the_same_request_is_not_asked_again() {
    let s = Scene::new();
    let card = s.card("touch ../outside");
    s.client.answer(card.id, Choice::Deny, Some("stay in the repository")).unwrap();
    let state = s.daemon.settled(card.task_id);
    let Some(Ruling::Denied { words, hint, reason, .. }) = state.ruling else { panic!("denied") };
    assert_eq!((words.unwrap().as_str(), reason.as_str()), ("stay in the repository", "denied_by_person"));
    assert!(hint.unwrap().as_str().contains("set_working_directory"), "it was outside the roots");
    let (again, task) = match s.try_ask("touch ../outside", json!({})) {
        Err(ClientError::Refused(TaskRefusal { refusal, task })) => (refusal, task),
        other => panic!("{other:?}"),
    };
    assert_eq!(again.code, RefusalCode::DeniedByPerson);
    assert!(again.hint.unwrap().contains("stay in the repository") && task.is_some(), "recorded, and with the words");
    s.daemon.kill_daemon();
    s.daemon.start();
    assert!(s.try_ask("touch ../outside", json!({})).is_err(), "also after a restart");
    assert_eq!(s.ask("touch ../another").status, Status::Queued, "another command asks");
    let other = s.client.open_session(&body(json!({"directory": s.repo}))).unwrap();
    let elsewhere = s.try_ask("touch ../outside", json!({"session_id": other.id})).unwrap();
    assert_eq!(elsewhere.status, Status::Queued, "another session asks");
}

/// A daemon with one slot, occupied by a task that reads a line.
fn daemon_with_one_slot_taken() -> (Scene, TaskId) {
    let s = Scene::configured("[limits]\nrunning = 1\n");
    let holder = s.try_ask("cat", json!({"profile": "full_auto", "args": {"stdin": true}})).unwrap().task_id;
    (s, holder)
}

fn end_reader(s: &Scene, task: TaskId) {
    s.client.stdin(task, &body(json!({"eof": true}))).unwrap();
    s.daemon.settled(task);
}

#[test]
fn f015_f170_a_queued_task_whose_grant_is_revoked_does_not_start() {
    let (s, holder) = daemon_with_one_slot_taken();
    s.client.grant(&body(json!({"verb": "touch", "directory": s.repo}))).unwrap();
    let first = s.ask("touch first");
    let second = s.ask("touch second");
    assert_eq!([first.position(), second.position()], [Some(1), Some(2)]);
    assert!(matches!(&first.ruling, Some(Ruling::Granted { by: DecidedBy::Grants(_), .. })));
    let out = s.daemon.csn(&["grants", "revoke", "touch", "in", s.repo.to_str().unwrap()]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    end_reader(&s, holder);
    for task in [first.task_id, second.task_id] {
        assert!(matches!(s.daemon.outcome(task), Outcome::Denied { reason } if reason.as_str() == "grant_revoked"));
        assert!(!s.daemon.task_dir(task).exists(), "no process");
    }
    assert!(!s.repo.join("first").exists() && !s.repo.join("second").exists());
}

#[test]
fn f016_a_path_that_became_a_link_between_question_and_launch_is_refused() {
    let s = Scene::new();
    std::fs::write(s.path("target"), "").unwrap();
    let card = s.card("truncate -s 0 target");
    std::fs::remove_file(s.path("target")).unwrap();
    let victim = s.daemon.work().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    symlink(&victim, s.path("target")).unwrap();
    s.answer(&card, Choice::Once);
    assert!(matches!(s.daemon.outcome(card.task_id), Outcome::Denied { reason } if reason.as_str() == "paths_changed"));
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    // The check also covers a path that changes while the task is queued.
    let (s, holder) = daemon_with_one_slot_taken();
    let card = s.card("mkdir sub/new");
    s.answer(&card, Choice::Here);
    assert_eq!(s.client.task(&card.task_id.to_string()).unwrap().status, Status::Queued);
    std::fs::rename(s.path("sub"), s.path("moved")).unwrap();
    symlink(s.daemon.work(), s.path("sub")).unwrap();
    end_reader(&s, holder);
    assert!(matches!(s.daemon.outcome(card.task_id), Outcome::Denied { reason } if reason.as_str() == "paths_changed"));
    assert!(!s.daemon.work().join("new").exists());
}

fn script(s: &Scene, name: &str, body: &str) {
    std::fs::write(s.path(name), format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(s.path(name), std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_script_is_shown_bound_to_its_content_and_refused_when_edited() {
    let s = Scene::new();
    script(&s, "build.sh", "echo one >> ran");
    let card = s.card("./build.sh");
    let shown = &card.card.as_ref().unwrap().scripts[0];
    assert!(shown.content.as_str().contains("echo one") && !shown.changed);
    s.answer(&card, Choice::Here);
    assert!(ran(&s.daemon.settled(card.task_id)));
    assert!(s.runs("./build.sh") && s.runs("./build.sh with arguments"));
    script(&s, "build.sh", "echo two >> ran");
    let card = s.card("./build.sh");
    // Edited again between the question and its answer.
    script(&s, "build.sh", "echo three >> ran");
    assert!(s.client.approval(&card.id.to_string()).unwrap().card.unwrap().scripts[0].changed);
    s.answer(&card, Choice::Once);
    assert!(matches!(s.daemon.outcome(card.task_id), Outcome::Denied { reason } if reason.as_str() == "paths_changed"));
    assert_eq!(std::fs::read_to_string(s.path("ran")).unwrap(), "one\none\none\n");
}

#[test]
fn f019_grants_can_be_added_and_revoked_while_the_daemon_runs() {
    let s = Scene::new();
    assert!(!s.runs("touch a"));
    let out = s.daemon.csn(&["grants", "add", "--verb", "touch", "--in", s.repo.to_str().unwrap()]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(s.runs("touch a"), "at the next check, without a restart");
    let label = format!("touch in {}", s.repo.display());
    let listed = s.daemon.csn(&["grants", "list"]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains(&label));
    let stored = s.daemon.csn(&["grants", "list", "--json"]);
    let kept: countersign_model::Grant = serde_json::from_slice(&stored.stdout).unwrap();
    assert!(kept.id.is_some() && kept.created_at.is_some() && kept.created_by.is_some() && kept.surface.is_some());
    assert!(s.daemon.csn(&["grants", "revoke", &label]).status.success());
    assert!(!s.runs("touch a"));
    for bad in [&["git push"][..], &["push in here"], &["eval in /srv/x"], &["git push origin in /srv/x"]] {
        let out = s.daemon.csn(&[&["grants", "add"], bad].concat());
        assert_eq!(out.status.code(), Some(2), "{bad:?}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

#[test]
fn f020_f021_equal_grants_are_stored_once_and_directories_are_separate() {
    let s = Scene::new();
    let add = |directory: Value| s.client.grant(&body(json!({"verb": "touch", "directory": directory}))).unwrap().grant;
    let first = add(json!(s.repo));
    let again = add(json!(format!("{}/", s.repo.display())));
    assert!(first.id.is_some() && first.created_at.is_some());
    assert_eq!((first.id, first.created_at), (again.id, again.created_at));
    let dotted = add(json!(format!("{}/sub/../.", s.repo.display())));
    assert_eq!(first.id, dotted.id);
    let anywhere = add(Value::Null);
    assert_eq!(s.labels().len(), 2);
    s.client.revoke_grant(anywhere.id.unwrap()).unwrap();
    assert!(s.runs("touch here") && !s.runs("touch ../there"), "the folder's own grant still covers its folder");
}

#[test]
fn f022_f023_neighbours_and_links_out_are_not_inside() {
    let s = Scene::new();
    s.client.grant(&body(json!({"verb": "touch", "directory": s.repo}))).unwrap();
    let neighbour = s.daemon.work().join("repo2");
    std::fs::create_dir(&neighbour).unwrap();
    assert!(s.runs("touch sub/a"));
    assert!(!s.runs(&format!("touch {}/a", neighbour.display())), "a longer name is another directory");
    symlink("/etc", s.path("etc")).unwrap();
    assert!(!s.runs("touch etc/x"), "a link that leads out");
    symlink(&neighbour, s.path("inside")).unwrap();
    assert!(!s.runs("touch inside/a"));
}

#[test]
fn f024_a_grant_for_another_session_audience_or_tool_covers_nothing() {
    let s = Scene::new();
    s.approved("touch a", Choice::Session);
    assert!(s.runs("touch b"));
    let other = s.client.open_session(&body(json!({"directory": s.repo}))).unwrap();
    let elsewhere = s.try_ask("touch b", json!({"session_id": other.id})).unwrap();
    assert_eq!(elsewhere.status, Status::Queued);
    s.client.cancel(elsewhere.task_id, None).unwrap();
    for field in [json!({"audience": "team"}), json!({"tool": "write_file"}), json!({"session": other.id})] {
        let mut grant = json!({"verb": "mkdir", "directory": s.repo});
        merge(&mut grant, field.clone());
        s.client.grant(&body(grant)).unwrap();
        assert!(!s.runs("mkdir x"), "{field}");
    }
    s.client.end_session(&s.session.id.to_string()).unwrap();
    assert!(s.labels().iter().all(|l| !l.starts_with("touch")), "session grants go with their session");
    assert_eq!(refusal(s.try_ask("touch c", json!({}))).code, RefusalCode::SessionOver);
}

#[test]
fn f025_waiting_for_a_person_is_not_running() {
    let s = Scene::new();
    let waits = s.try_ask("echo x > done", json!({"limits": {"wall_ms": 1000}})).unwrap();
    // Longer than a wall-clock limit that had started with the question would allow.
    let other = s.try_ask("sleep 60", json!({"profile": "full_auto", "limits": {"wall_ms": 1500}})).unwrap();
    assert!(matches!(s.daemon.outcome(other.task_id), Outcome::TimedOut { .. }));
    s.client.answer(waits.approval_id().unwrap(), Choice::Once, None).unwrap();
    assert!(ran(&s.daemon.settled(waits.task_id)), "{:?}", s.daemon.outcome(waits.task_id));
}

#[test]
fn f028_a_question_waits_as_long_as_its_request() {
    let s = Scene::new();
    let card = s.card("touch a");
    for _ in 0..3 {
        s.daemon.kill_daemon();
        s.daemon.start();
        assert_eq!(s.client.approvals(false).unwrap().iter().map(|a| a.id).collect::<Vec<_>>(), [card.id]);
    }
}

#[test]
fn f029_reading_and_ending_ones_own_task_needs_no_approval() {
    let s = Scene::new();
    let job = s.try_ask("cat", json!({"profile": "full_auto", "background": true, "args": {"stdin": true}})).unwrap();
    let id = job.task_id.to_string();
    for args in
        [&["show", &id][..], &["ps"], &["logs", &id], &["signal", &id, "CONT"], &["cancel", &id], &["wait", &id]]
    {
        s.daemon.csn(args);
    }
    assert!(matches!(s.daemon.outcome(job.task_id), Outcome::Cancelled { .. }));
    assert!(s.client.approvals(true).unwrap().is_empty(), "no approval was requested");
}

#[test]
fn f030_a_withdrawn_request_is_over_and_reports_it() {
    let s = Scene::new();
    let card = s.card("touch a");
    s.client.cancel(card.task_id, Some("a new message")).unwrap();
    let after = s.client.approval(&card.id.to_string()).unwrap();
    assert_eq!((after.state.clone(), after.resolution().unwrap()), (ApprovalState::Withdrawn, "Withdrawn".to_owned()));
    assert_eq!(refusal(s.client.answer(card.id, Choice::Once, None)).code, RefusalCode::AlreadyAnswered);
    assert!(s.client.approvals(false).unwrap().is_empty() && !s.repo.join("a").exists());
}

#[test]
fn f031_four_calls_each_approved_for_this_chat_all_run() {
    let s = Scene::new();
    let cards: Vec<Approval> =
        (0..4).map(|n| s.card(&format!("curl -s --max-time 1 http://127.0.0.1:9/{n}"))).collect();
    assert_eq!(cards.len(), 4);
    for card in &cards {
        match s.client.answer(card.id, Choice::Session, None) {
            Ok(answered) => {
                assert!(answered.resolution().unwrap().starts_with("Saved for this chat: curl in "));
            }
            // The first answer covers the others: they have been released already.
            Err(ClientError::Refused(TaskRefusal { refusal, .. })) => {
                assert_eq!(refusal.code, RefusalCode::AlreadyAnswered)
            }
            Err(e) => panic!("{e}"),
        }
    }
    for card in &cards {
        assert!(ran(&s.daemon.settled(card.task_id)));
    }
    let elsewhere = s.try_ask("curl -s --max-time 1 http://127.0.0.1:9/x", json!({"args": {"cwd": s.path("sub")}}));
    assert!(ran(&s.daemon.settled(elsewhere.unwrap().task_id)), "a call without paths matches by verb and risks");
    assert!(!s.runs("curl -s -o /tmp/out http://127.0.0.1:9/x"), "one with a path elsewhere does not");
}

#[test]
fn f032_a_tilde_and_an_absolute_path_are_one_directory() {
    let s = Scene::new();
    let home = s.daemon.home().parent().unwrap().to_path_buf();
    let base = json!({"args": {"env": {"HOME": home}}});
    std::fs::create_dir_all(home.join("x")).unwrap();
    let place = std::fs::canonicalize(home.join("x")).unwrap();
    let text = format!("cd ~/x && git checkout -b f && git add {}", place.display());
    let task = s.try_ask(&text, base.clone()).unwrap();
    let card = s.client.approval(&task.approval_id().unwrap().to_string()).unwrap();
    let places: Vec<&str> = card.about.iter().flat_map(|a| &a.directories).map(|d| d.as_str()).collect();
    assert!(places.iter().all(|p| *p == place.to_str().unwrap()), "{places:?}");
    let shown = s.daemon.csn(&["approvals", "show", &card.id.to_string()]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains(&format!("Approve in {}?", place.display())), "{shown}");
    s.answer(&card, Choice::Session);
    s.daemon.settled(card.task_id);
    let again = s.try_ask(&text, base).unwrap();
    s.daemon.settled(again.task_id);
    assert!(again.approval_id().is_none(), "the retry passes");
}

#[test]
fn one_saved_grant_releases_every_request_that_it_covers() {
    let s = Scene::new();
    let cards: Vec<Approval> = (0..5).map(|n| s.card(&format!("touch f{n}"))).collect();
    let other = s.card("mkdir d");
    s.answer(&cards[2], Choice::Here);
    for card in &cards {
        let state = s.daemon.settled(card.task_id);
        assert!(ran(&state));
        let released = matches!(&state.ruling, Some(Ruling::Granted { by: DecidedBy::Grants(_), .. }));
        assert_eq!(released, card.id != cards[2].id);
    }
    assert_eq!(s.client.approval(&other.id.to_string()).unwrap().state, ApprovalState::Waiting);
    // A grant that is added in advance releases them, too.
    s.client.grant(&body(json!({"verb": "mkdir", "directory": s.repo}))).unwrap();
    assert!(ran(&s.daemon.settled(other.task_id)));
    assert_eq!(
        s.client.approval(&other.id.to_string()).unwrap().resolution().unwrap(),
        "Approved: a saved grant covers it"
    );
}

#[test]
fn the_same_request_joins_the_one_that_waits() {
    let s = Scene::new();
    let first = s.ask("echo x >> joined");
    let second = s.ask("echo x >> joined");
    assert_eq!(first.task_id, second.task_id);
    let other = s.try_ask("echo x >> joined", json!({"args": {"env": {"A": "1"}}})).unwrap();
    assert_ne!(first.task_id, other.task_id, "with another environment it is another request");
    assert_eq!(s.client.approvals(false).unwrap().len(), 2);
    s.client.answer(first.approval_id().unwrap(), Choice::Once, None).unwrap();
    s.daemon.settled(first.task_id);
    assert_eq!(std::fs::read_to_string(s.path("joined")).unwrap(), "x\n", "once is once");
}

#[test]
fn at_most_eight_cards_of_one_session_are_shown() {
    let s = Scene::new();
    let tasks: Vec<TaskState> = (0..11).map(|n| s.ask(&format!("touch f{n}"))).collect();
    let other = s.client.open_session(&body(json!({"directory": s.repo}))).unwrap();
    s.try_ask("touch mine", json!({"session_id": other.id})).unwrap();
    let (shown, without) = s.client.approvals_with_hidden_count(false).unwrap();
    assert_eq!((shown.len(), without), (9, 3), "eight of the one, one of the other");
    assert!(tasks[..8].iter().all(|t| shown.iter().any(|a| a.task_id == t.task_id)), "the oldest have cards");
    s.client.answer(shown[0].id, Choice::Deny, None).unwrap();
    assert!(s.client.approvals(false).unwrap().iter().any(|a| a.task_id == tasks[8].task_id), "the next one moves up");
}

#[test]
fn a_grant_for_one_risk_does_not_cover_a_worse_one() {
    let s = Scene::new();
    let card = s.card("git push origin main");
    let offers = &card.card.as_ref().unwrap().offers;
    let here = offers.iter().find(|o| o.choice == Choice::Here).unwrap();
    assert_eq!(here.saves[0].as_str(), format!("git push in {}", s.repo.display()));
    assert!(here.does_not_cover.iter().any(|c| c.as_str().contains("--force")), "{here:?}");
    assert!(!here.covers.is_empty());
    s.answer(&card, Choice::Here);
    s.daemon.settled(card.task_id);
    assert!(s.runs("git push origin other"));
    assert!(!s.runs("git push --force origin main"));
    // Destructive: saved with these arguments only, unless the answer allows any.
    let card = s.card("rm -f a.txt");
    assert!(card.card.as_ref().unwrap().offers.iter().all(|o| o.exact));
    s.answer(&card, Choice::Here);
    s.daemon.settled(card.task_id);
    assert!(s.runs("rm -f a.txt") && !s.runs("rm -f b.txt"));
    let card = s.card("rm -f b.txt");
    s.client.answer_with(card.id, Choice::Here, None, true).unwrap();
    s.daemon.settled(card.task_id);
    assert!(s.runs("rm -f c.txt") && !s.runs("rm -f ../c.txt"));
}

#[test]
fn every_example_of_a_card_is_true() {
    let s = Scene::new();
    let verdict = |example: &str, place: &str| {
        let (command, cwd) = match example.rsplit_once(" in /") {
            Some((command, dir)) => (command, format!("/{dir}")),
            None => (example, place.to_owned()),
        };
        // The directory must exist to be examined.
        std::fs::create_dir_all(&cwd).unwrap();
        let mut request = serde_json::to_value(s.daemon.request(command, json!({"profile": SAFE}))).unwrap();
        merge(&mut request, json!({"session_id": s.session.id, "args": {"cwd": cwd}}));
        let told = s.client.call("POST", "/check", &[], Some(&request)).unwrap();
        serde_json::from_slice::<Value>(&told).unwrap()["verdict"].as_str().unwrap().to_owned()
    };
    let (mut covered, mut not) = (0, 0);
    let plain = json!({});
    let shield = json!({"confinement": "shield"});
    for (text, with) in [
        ("git push", &plain),
        ("cargo build", &plain),
        ("touch x", &plain),
        ("curl http://127.0.0.1:9/", &plain),
        ("npm install", &plain),
        ("mkdir sub/d", &plain),
        ("rm -f x", &plain),
        ("sudo -n ls", &plain),
        ("touch x && mkdir -p y", &plain),
        ("mkdir sub/e", &shield),
    ] {
        for choice in [Choice::Here, Choice::Anywhere] {
            let card = s.card_with(text, with.clone());
            let place = card.about[0].directories[0].as_str().to_owned();
            let offer = card.card.as_ref().unwrap().offers.iter().find(|o| o.choice == choice).unwrap().clone();
            s.answer(&card, choice);
            s.daemon.settled(card.task_id);
            for example in &offer.covers {
                assert_eq!(verdict(example.as_str(), &place), "allow", "{text} {choice}: {example}");
            }
            for example in &offer.does_not_cover {
                assert_ne!(verdict(example.as_str(), &place), "allow", "{text} {choice}: {example}");
            }
            covered += offer.covers.len();
            not += offer.does_not_cover.len();
            for grant in s.client.grants().unwrap() {
                s.client.revoke_grant(grant.grant.id.unwrap()).unwrap();
            }
        }
    }
    assert!(covered >= 14 && not >= 14, "{covered} and {not} examples");
}

#[test]
fn uses_and_time_run_out() {
    let s = Scene::new();
    s.client.grant(&body(json!({"verb": "touch", "directory": s.repo, "uses": 2}))).unwrap();
    assert!(s.runs("touch a"));
    s.daemon.kill_daemon();
    s.daemon.start();
    assert!(s.runs("touch b") && !s.runs("touch c"), "counted over a restart");
    assert!(s.labels().is_empty(), "a used-up grant is not listed");
    let past = json!({"verb": "touch", "directory": s.repo, "expires_at": "2020-01-01T00:00:00.000000Z"});
    assert_eq!(refusal(s.client.grant(&body(past))).code, RefusalCode::BadRequest);
    let out = s.daemon.csn(&["grants", "add", "--verb", "touch", "--in", s.repo.to_str().unwrap(), "--expires", "1h"]);
    assert!(out.status.success() && s.runs("touch d"));
}

#[test]
fn unattended_requests_run_only_what_was_approved_in_advance() {
    let s = Scene::new();
    let alone = json!({"attended": false});
    let refused = refusal(s.try_ask("touch a", alone.clone()));
    assert_eq!(refused.code, RefusalCode::ApprovalRequiredUnattended);
    assert!(refused.hint.unwrap().contains("csn grants add --verb 'touch'"));
    let out = s.daemon.csn(&["grants", "add", "--verb", "touch", "--anywhere"]);
    assert!(String::from_utf8_lossy(&out.stdout).contains("Saved: touch anywhere"));
    assert!(ran(&s.daemon.settled(s.try_ask("touch a", alone).unwrap().task_id)));
}

#[test]
fn grants_hold_no_secrets() {
    let s = Scene::new();
    let env = json!({"args": {"env": {"API_TOKEN": "hunter2-hunter2"}}});
    let task = s.try_ask("rm -f hunter2-hunter2.txt", env.clone()).unwrap();
    s.client.answer(task.approval_id().unwrap(), Choice::Here, None).unwrap();
    s.daemon.settled(task.task_id);
    let again = s.try_ask("rm -f hunter2-hunter2.txt", env.clone()).unwrap();
    assert!(again.approval_id().is_none(), "the grant names its script by digest");
    let task = s.try_ask("PASSWORD=hunter2-hunter2 touch x", env.clone()).unwrap();
    s.client.answer(task.approval_id().unwrap(), Choice::Here, None).unwrap();
    s.daemon.settled(task.task_id);
    assert!(s.try_ask("PASSWORD=hunter2-hunter2 touch x", env.clone()).unwrap().approval_id().is_none());
    assert!(s.try_ask("PASSWORD=other touch x", env.clone()).unwrap().approval_id().is_some());
    let env = json!({"args": {"env": {"OTHER_SECRET": "correcthorse"}}});
    let named = s.try_ask("mytool correcthorse", env).unwrap();
    assert_eq!(
        named.question.as_ref().unwrap().options,
        [Choice::Once, Choice::Deny],
        "a verb that holds a secret is not saved"
    );
    let ledger = std::fs::read(s.daemon.home().join("ledger.db")).unwrap();
    let wal = std::fs::read(s.daemon.home().join("ledger.db-wal")).unwrap_or_default();
    for bytes in [ledger, wal] {
        assert!(!String::from_utf8_lossy(&bytes).contains("hunter2-hunter2"));
    }
}

fn next_approval(events: &mut Events<Approval>) -> countersign_client::Result<Approval> {
    Ok(events.next_event()?.expect("this stream does not end").value)
}

#[test]
fn the_stream_of_approvals_reports_pending_and_resolved_ones() {
    let s = Scene::new();
    let before = s.card("touch before");
    let mut events = s.client.approval_events();
    assert_eq!(next_approval(&mut events).unwrap().id, before.id, "pending approvals come first");
    let after = s.card("touch after");
    let next = next_approval(&mut events).unwrap();
    assert_eq!((next.id, next.state), (after.id, ApprovalState::Waiting));
    s.answer(&before, Choice::Once);
    let next = next_approval(&mut events).unwrap();
    assert!(next.id == before.id && matches!(next.state, ApprovalState::Answered { choice: Choice::Once, .. }));
    s.client.cancel(after.task_id, None).unwrap();
    assert_eq!(next_approval(&mut events).unwrap().state, ApprovalState::Withdrawn);
    // After a cursor nothing is reported twice, across a restart.
    s.daemon.kill_daemon();
    assert!(next_approval(&mut events).is_err());
    s.daemon.start();
    let third = s.card("touch third");
    let mut told = next_approval(&mut events);
    while told.is_err() {
        told = next_approval(&mut events);
    }
    assert_eq!(told.unwrap().id, third.id);
}

#[test]
fn f026_a_request_that_was_approved_and_not_run_is_reported_as_such() {
    let s = Scene::new();
    let card = s.card("echo x >> ran");
    s.daemon.kill_daemon();
    let point = s.daemon.work().join("point");
    std::fs::write(&point, "commit.before_hand_over").unwrap();
    s.daemon.try_start_with(&[("COUNTERSIGN_CRASH_FILE", point.to_str().unwrap())]).unwrap();
    assert!(s.client.answer(card.id, Choice::Once, None).is_err(), "the daemon died just before it started the task");
    s.daemon.daemon_ends();
    s.daemon.start();
    let state = s.daemon.settled(card.task_id);
    let approved = matches!(&state.ruling, Some(Ruling::Granted { by: DecidedBy::Person { .. }, .. }));
    assert!(approved && matches!(state.outcome(), Some(&Outcome::Failed { .. })), "{:?}", state.outcome());
    assert!(!s.repo.join("ran").exists());
}

#[test]
fn f027_the_choices_stay_visible_however_long_the_command_is() {
    let s = Scene::new();
    let long = format!("touch {}", "x".repeat(5000));
    let csn = format!("COUNTERSIGN_HOME={} {CSN}", s.daemon.home().display());
    let mut terminal = s.daemon.terminal(&format!("{csn} run '{long}'"));
    terminal.sees("[d] Deny");
    let text = terminal.shown();
    let rest = &text[text.find("Approve `touch").unwrap()..];
    assert!(rest.len() < 3000 && rest.contains("to see the whole command: csn approvals show ap_"), "{rest}");
    terminal.types(b"\n");
    terminal.types(b"d too long\n");
    terminal.sees("Denied");
    let card = &s.client.approvals(true).unwrap()[0];
    assert_eq!(card.display.as_str(), long, "all of it is there");
}

#[test]
fn the_prompt_explains_grants_and_closes_when_answered_elsewhere() {
    let s = Scene::new();
    let csn = format!("cd {} && COUNTERSIGN_HOME={} {CSN}", s.repo.display(), s.daemon.home().display());
    let mut terminal = s.daemon.terminal(&format!("{csn} run 'git push origin main'"));
    terminal.sees("> ");
    let text = terminal.shown();
    for part in [
        "network: talks to other machines",
        "Approve `git push origin main` in",
        "[h] Always here",
        "would also cover",
        "would not cover",
        "[a] Always anywhere (!)",
        "--force",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("[s]"), "a request without a session is offered none");
    terminal.types(b"h\n");
    terminal.sees(&format!("Saved: git push in {}", s.repo.display()));
    // Answered on another surface: the prompt closes.
    let mut terminal = s.daemon.terminal(&format!("{csn} run 'touch elsewhere'"));
    terminal.sees("[d] Deny");
    let card = s.client.approvals(false).unwrap().pop().unwrap();
    s.answer(&card, Choice::Once);
    terminal.sees("answered elsewhere: Approved (no save)");
}

#[test]
fn csn_approvals_watch_asks_at_a_terminal() {
    let s = Scene::new();
    let csn = format!("COUNTERSIGN_HOME={} {CSN}", s.daemon.home().display());
    let mut terminal = s.daemon.terminal(&format!("{csn} approvals watch"));
    terminal.sees("approvals are asked here as they arrive");
    let (a, b) = (s.card("touch a"), s.card("touch b"));
    terminal.sees("Approve `touch a`");
    terminal.types(b"o\n");
    assert!(ran(&s.daemon.settled(a.task_id)));
    terminal.sees("Approve `touch b`");
    terminal.types(b"d no b\n");
    assert!(matches!(s.daemon.outcome(b.task_id), Outcome::Denied { .. }));
    // Without a terminal it only lists.
    let mut child = s.daemon.csn_spawn(&["approvals", "watch", "--json"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let c = s.card("touch c");
    let told: Approval = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(told.id, c.id);
    kill(child.id());
    child.wait().unwrap();
}

#[test]
fn f017_with_an_unreadable_configuration_only_read_only_commands_run() {
    let daemon = TestHome::new(CSN);
    daemon.configure("profile = \"full_auto\"\nnot_a_key = 1\n");
    daemon.start();
    let client = daemon.client();
    assert!(client.lifecycle().unwrap().degraded.unwrap().contains("not_a_key"));
    let writes = refusal(client.ask(&daemon.request("touch x", json!({"profile": "safe"}))));
    assert_eq!(writes.code, RefusalCode::PolicyUnavailable);
    let wide = refusal(client.ask(&daemon.request("touch x", json!({}))));
    assert_eq!(wide.code, RefusalCode::PolicyUnavailable, "no profile widens it");
    client.grant(&body(json!({"verb": "touch", "directory": daemon.work()}))).unwrap();
    assert_eq!(
        refusal(client.ask(&daemon.request("touch x", json!({})))).code,
        RefusalCode::PolicyUnavailable,
        "no grant does"
    );
    let reads = client.ask(&daemon.request("ls", json!({"profile": "safe"}))).unwrap();
    let reads = daemon.settled(reads.task_id);
    assert!(ran(&reads) && reads.confinement() == Some(Confinement::ReadOnly), "a read-only command runs");
    let text = std::fs::read_to_string(daemon.home().parent().unwrap().join("config/countersign/config.toml")).unwrap();
    assert!(text.contains("not_a_key"), "the file is untouched");
    assert!(!daemon.csn(&["doctor"]).status.success());
    // A hard deny that makes no sense: the daemon refuses to start.
    let daemon = TestHome::new(CSN);
    daemon.configure("[[hard_deny]]\nname = \"x\"\nverbs = 3\n");
    let why = daemon.try_start().unwrap_err();
    assert!(why.contains("config.toml") && why.contains("line"), "{why}");
}

#[test]
fn permissions_are_recorded_with_their_giver() {
    let s = Scene::new();
    let state = s.approved("touch a", Choice::Here);
    let records = s.daemon.records(state.task_id);
    let granted = records.iter().find_map(|r| match &r.what {
        RecordContent::Decision(Decision::PermissionGranted { by, scope, saved, .. }) => Some((by, scope, saved)),
        _ => None,
    });
    let (by, scope, saved) = granted.unwrap();
    assert!(matches!(by, DecidedBy::Person { surface, .. } if surface.as_str() == "socket"));
    assert_eq!((json!(scope), saved.len()), (json!("here"), 1));
    assert_eq!(s.client.grants().unwrap()[0].grant.id, Some(saved[0].grant));
}

/// Changes a ledger that no daemon serves.
fn sql(daemon: &TestHome, text: &str) {
    let conn = rusqlite::Connection::open(daemon.home().join("ledger.db")).unwrap();
    conn.execute_batch(text).unwrap();
    conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
}

#[test]
fn f017_without_its_ledger_the_daemon_only_reads() {
    for damage in ["not a database at all, whatever it says", "newer"] {
        let daemon = TestHome::started(CSN);
        let done = daemon.ask("echo kept; echo err >&2; exit 3");
        daemon.settled(done);
        assert!(daemon.csn(&["down"]).status.success());
        let ledger = daemon.home().join("ledger.db");
        match damage {
            "newer" => sql(&daemon, "INSERT INTO schema_version (version, at) VALUES (99, 'later')"),
            garbage => {
                std::fs::write(&ledger, garbage).unwrap();
                let _ = std::fs::remove_file(daemon.home().join("ledger.db-wal"));
            }
        }
        let before = std::fs::read(&ledger).unwrap();
        daemon.start();
        let client = daemon.client();
        assert_eq!(daemon.outcome(done), Outcome::Exited { code: 3 });
        assert_eq!(daemon.stdout(done), "kept\n");
        let listed = daemon.csn(&["ps", "-a"]);
        assert!(String::from_utf8_lossy(&listed.stdout).contains(&done.to_string()));
        assert_eq!(String::from_utf8_lossy(&daemon.csn(&["logs", &done.to_string()]).stdout), "kept\n");
        assert!(daemon.csn(&["show", &done.to_string()]).status.success());
        let out = daemon.csn(&["run", "--profile", "full_auto", "touch never"]);
        assert_eq!(out.status.code(), Some(125));
        for refused in [
            refusal(client.ask(&daemon.request("echo x", json!({})))),
            refusal(client.grant(&body(json!({"verb": "make", "directory": null})))),
            refusal(client.open_session(&body(json!({})))),
        ] {
            assert_eq!(refused.code, RefusalCode::LedgerUnavailable);
        }
        assert!(!daemon.work().join("never").exists());
        assert!(!daemon.csn(&["doctor"]).status.success());
        assert!(daemon.csn(&["down"]).status.success());
        assert_eq!(std::fs::read(&ledger).unwrap(), before, "the file is untouched");
    }
}

/// A ledger of the first schema, with a waiting task, is migrated; a copy stays, and no principal gains a right.
#[test]
fn f018_an_older_ledger_is_migrated_with_a_copy_kept_and_adds_no_authority() {
    let s = Scene::new();
    let card = s.card("touch later");
    s.client.grant(&body(json!({"verb": "mkdir", "directory": s.repo}))).unwrap();
    assert!(s.daemon.csn(&["down"]).status.success());
    sql(&s.daemon, &format!("DROP INDEX {}", "decisions_of_house"));
    sql(
        &s.daemon,
        "DELETE FROM schema_version WHERE version > 1; DELETE FROM decisions WHERE line LIKE '%grant.saved%';
         DROP TABLE receipts; DROP TABLE artifacts; DROP INDEX tasks_unsealed; ALTER TABLE tasks DROP COLUMN sealed;
         DROP INDEX tasks_waiting;
         ALTER TABLE tasks DROP COLUMN principal; ALTER TABLE tasks DROP COLUMN session;
         ALTER TABLE tasks DROP COLUMN waits;",
    );
    s.daemon.start();
    assert!(s.daemon.home().join("ledger.v1.db").exists(), "a copy is kept");
    assert!(s.labels().is_empty() && !s.runs("mkdir d"), "nothing is granted that was not");
    assert_eq!(
        s.client.approvals(false).unwrap().iter().map(|a| a.id).collect::<Vec<_>>(),
        [card.id],
        "it still waits"
    );
    s.answer(&card, Choice::Once);
    assert!(ran(&s.daemon.settled(card.task_id)));
}

#[test]
fn variables_that_come_with_a_request_are_seen_by_the_gate_and_on_the_card() {
    let s = Scene::new();
    s.client.grant(&body(json!({"verb": "touch", "directory": s.repo}))).unwrap();
    let evil = s.daemon.work().join("evil");
    std::fs::create_dir(&evil).unwrap();
    for (name, value) in [
        ("PATH", format!("{}:/usr/bin:/bin", evil.display())),
        ("BASH_FUNC_touch%%", "() { id; }".to_owned()),
        ("BASH_ENV", evil.join("x").display().to_string()),
        ("LD_PRELOAD", "/tmp/x.so".to_owned()),
    ] {
        let task = s.try_ask("touch f", json!({"args": {"env": {name: value}}})).unwrap();
        let card = s.client.approval(&task.approval_id().expect(name).to_string()).unwrap();
        let shown = &card.card.as_ref().unwrap().variables;
        assert!(shown.iter().any(|v| v.as_str().starts_with(name)), "{name}: {shown:?}");
        let told = s.daemon.csn(&["approvals", "show", &card.id.to_string()]);
        assert!(String::from_utf8_lossy(&told.stdout).contains(&format!("with {name}=")), "{name}");
        s.client.cancel(task.task_id, None).unwrap();
    }
    // A name that leads to a file of another user is not the program that was granted.
    script(&s, "touch", "echo mine");
    std::fs::rename(s.path("touch"), evil.join("touch")).unwrap();
    let path = format!("{}:/usr/bin:/bin", evil.display());
    let task = s.try_ask("touch f", json!({"args": {"inherit": {"PATH": path, "HOME": "/root"}}})).unwrap();
    assert_eq!(task.status, Status::Queued);
}

#[test]
fn an_answer_saves_what_its_card_was_about_and_nothing_else() {
    let s = Scene::new();
    let grant = s.client.grant(&body(json!({"verb": "touch", "directory": null}))).unwrap();
    let card = s.card("touch a && mkdir b");
    assert_eq!(card.about.iter().map(|a| a.verb.as_str()).collect::<Vec<_>>(), ["mkdir"]);
    s.client.revoke_grant(grant.grant.id.unwrap()).unwrap();
    s.answer(&card, Choice::Anywhere);
    s.daemon.settled(card.task_id);
    assert_eq!(s.labels(), ["mkdir anywhere"], "a revoked grant does not return");
}

#[test]
fn a_script_that_became_a_pipe_blocks_nothing() {
    let s = Scene::new();
    script(&s, "s.sh", "echo x");
    let card = s.card("bash s.sh");
    std::fs::remove_file(s.path("s.sh")).unwrap();
    assert!(s.daemon.outside(&["mkfifo", &s.path("s.sh")]).status.success());
    assert!(s.client.approval(&card.id.to_string()).unwrap().card.unwrap().scripts[0].changed);
    s.answer(&card, Choice::Once);
    assert!(matches!(s.daemon.outcome(card.task_id), Outcome::Denied { .. }));
}

/// The terminal that asked is gone: the approval is not, and every surface reports its answer.
#[test]
fn f009_f011_an_approval_that_cannot_be_shown_here_waits_on_other_surfaces() {
    let s = Scene::new();
    let csn = format!("COUNTERSIGN_HOME={} {CSN}", s.daemon.home().display());
    let mut terminal = s.daemon.terminal(&format!("{csn} run 'touch a'"));
    terminal.sees("[d] Deny");
    drop(terminal);
    // Nothing can be printed here: no terminal, no output.
    let mute = s.daemon.outside(&["bash", "-c", &format!("{csn} run --no-wait 'touch b' > /dev/full 2> /dev/full")]);
    assert!(!mute.status.success());
    let waiting = s.client.approvals(false).unwrap();
    assert_eq!(waiting.len(), 2);
    for card in &waiting {
        s.answer(card, Choice::Once);
        assert!(ran(&s.daemon.settled(card.task_id)));
        assert_eq!(s.client.approval(&card.id.to_string()).unwrap().resolution().unwrap(), "Approved (no save)");
    }
    assert!(s.client.approvals(false).unwrap().is_empty());
}

#[test]
fn a_terminal_and_the_background_are_asked_about_once_for_a_verb_and_a_place() {
    let s = Scene::new();
    s.client.grant(&body(json!({"verb": "touch", "directory": s.repo}))).unwrap();
    for (with, risk) in [(json!({"background": true}), "background"), (json!({"execution_mode": "pty"}), "interactive")]
    {
        let task = s.try_ask("touch a", with.clone()).unwrap();
        assert!(json!(task.request.risks).as_array().unwrap().contains(&json!(risk)), "{:?}", task.request.risks);
        s.client.answer(task.approval_id().unwrap(), Choice::Here, None).unwrap();
        s.daemon.settled(task.task_id);
        let again = s.try_ask("touch b", with).unwrap();
        assert!(again.approval_id().is_none(), "once for the verb and the place");
        s.daemon.settled(again.task_id);
    }
    assert!(s.runs("touch c"));
}

#[test]
fn a_grant_added_just_before_a_crash_releases_its_requests_after_it() {
    let s = Scene::new();
    let cards: Vec<Approval> = (0..6).map(|n| s.card(&format!("touch f{n}"))).collect();
    s.daemon.kill_daemon();
    let point = s.daemon.work().join("point");
    s.daemon.try_start_with(&[("COUNTERSIGN_CRASH_FILE", point.to_str().unwrap())]).unwrap();
    // Once this is recorded, everything before it is, too.
    s.client.grant(&body(json!({"verb": "other", "directory": s.repo}))).unwrap();
    // The daemon dies when the grant is recorded and before it releases a task.
    std::fs::write(&point, "ledger.after_commit").unwrap();
    assert!(s.client.grant(&body(json!({"verb": "touch", "directory": s.repo}))).is_err());
    s.daemon.daemon_ends();
    s.daemon.start();
    assert_eq!(s.labels().len(), 2);
    for card in &cards {
        // A task that was released in the last commit before the daemon died was not started, and reports so.
        let state = s.daemon.settled(card.task_id);
        let told = matches!(state.outcome(), Some(Outcome::Failed { .. }));
        let granted = matches!(&state.ruling, Some(Ruling::Granted { by: DecidedBy::Grants(_), .. }));
        assert!(granted && (ran(&state) || told), "{:?} {:?}", state.outcome(), state.ruling);
    }
}

#[test]
fn an_ended_session_gets_no_grant_and_short_ids_are_refused() {
    let s = Scene::new();
    let card = s.card("touch a");
    for short in ["0", "ap_", "ap_0", &card.id.to_string()[..6]] {
        assert_eq!(refusal(s.client.approval(short)).code, RefusalCode::NotFound, "{short}");
    }
    s.client.end_session(&s.session.id.to_string()).unwrap();
    assert_eq!(refusal(s.client.answer(card.id, Choice::Session, None)).code, RefusalCode::SessionOver);
    assert!(s.labels().is_empty());
    s.answer(&card, Choice::Once);
    assert!(ran(&s.daemon.settled(card.task_id)), "it can still be approved");
    let words = s.client.answer_with(card.id, Choice::Once, Some("no wait"), false);
    assert_eq!(refusal(words).code, RefusalCode::BadRequest, "only a denial takes a message");
}

#[test]
fn csn_run_in_a_session_runs_where_the_session_works() {
    let s = Scene::new();
    let id = s.session.id.to_string();
    let pwd = |more: &[&str]| {
        let args = [&["run", "-q", "--profile", "full_auto", "--session", &id][..], more, &["pwd"]].concat();
        String::from_utf8(s.daemon.csn(&args).stdout).unwrap().trim_end().to_owned()
    };
    assert_eq!(pwd(&[]), s.repo.to_str().unwrap());
    assert!(s.daemon.csn(&["sessions", "cd", &id, &s.path("sub")]).status.success());
    assert_eq!(pwd(&[]), s.path("sub"));
    assert_eq!(pwd(&["--cwd", s.repo.to_str().unwrap()]), s.repo.to_str().unwrap());
    let out = s.daemon.csn(&["run", "--no-wait", "--background", "--session", &id, "touch later"]);
    assert_eq!(out.status.code(), Some(75));
}
