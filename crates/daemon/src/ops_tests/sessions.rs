//! Sessions: opened, moved inside of their roots, ended.

use super::{Daemon, agent, parse, person};
use crate::ops;
use countersign_model::{RefusalCode, api::SessionMove};
use serde_json::json;

#[test]
fn a_session_moves_inside_its_roots_and_asks_outside() {
    let daemon = Daemon::new();
    let open = parse(json!({"directory": daemon.work(), "title": "work"}));
    let (session, new) = daemon.run(ops::sessions::open(&daemon.ops, &person(), open)).unwrap();
    assert!(new);
    assert_eq!(session.roots.iter().map(|r| r.as_str()).collect::<Vec<_>>(), [daemon.work()]);
    let inside = format!("{}/.git", daemon.work());
    let id = session.id.to_string();
    let go = |to: &str| {
        daemon.run(ops::sessions::set_directory(&daemon.ops, &person(), &id, parse(json!({"directory": to}))))
    };
    match go(&inside).unwrap() {
        SessionMove::There(moved) => assert_eq!(moved.directory.as_ref().map(|d| d.as_str()), Some(inside.as_str())),
        SessionMove::Asked(task) => panic!("asked about {}", task.request.display),
    }
    assert!(matches!(go("/usr/share").unwrap(), SessionMove::Asked(_)));
    assert_eq!(go("/").err().map(|r| r.refusal.code), Some(RefusalCode::ProtectedPath), "a root must be a project");
}

#[test]
fn an_ended_session_accepts_nothing_and_is_listed_only_with_all() {
    let daemon = Daemon::new();
    let open = parse(json!({"directory": daemon.work()}));
    let (session, _) = daemon.run(ops::sessions::open(&daemon.ops, &person(), open)).unwrap();
    let id = session.id.to_string();
    let ended = daemon.run(ops::sessions::end(&daemon.ops, &person(), &id)).unwrap();
    assert!(ended.session.ended_at.is_some() && ended.stopped.is_empty() && ended.left.is_empty());
    let mut request = daemon.request("touch x");
    request.session_id = Some(session.id);
    assert_eq!(
        daemon.refusal_code(ops::intake::ask(&daemon.ops, &person(), request, None)),
        Some(RefusalCode::SessionOver)
    );
    let listed = |all: bool| {
        let page = ops::sessions::list(&daemon.ops, &person(), parse(json!({"all": all}))).unwrap();
        page.sessions.iter().any(|s| s.id == session.id)
    };
    assert!(!listed(false) && listed(true));
}

#[test]
fn an_agent_cannot_end_a_persons_session() {
    let daemon = Daemon::new();
    let open = parse(json!({"directory": daemon.work()}));
    let (session, _) = daemon.run(ops::sessions::open(&daemon.ops, &person(), open)).unwrap();
    let refused = daemon.refusal_code(ops::sessions::end(&daemon.ops, &agent(), &session.id.to_string()));
    assert_eq!(refused, Some(RefusalCode::Forbidden));
}
