//! Grants: added, listed page by page, found, revoked.

use super::{Daemon, parse, person};
use crate::ops;
use countersign_model::{RefusalCode, VerdictKind, api::GrantView};
use serde_json::{Value, json};

fn add(daemon: &Daemon, body: Value) -> Result<(GrantView, bool), RefusalCode> {
    daemon.run(ops::grants::add(&daemon.ops, &person(), parse(body))).map_err(|refused| refused.refusal.code)
}

#[test]
fn a_grant_covers_until_it_is_revoked() {
    let daemon = Daemon::new();
    let verdict = || {
        let request = daemon.request("git commit -m x");
        daemon.run(ops::intake::check(&daemon.ops, &person(), request)).unwrap().verdict
    };
    assert_eq!(verdict(), VerdictKind::Ask);
    let (grant, new) = add(&daemon, json!({"verb": "git commit", "directory": daemon.work()})).unwrap();
    assert!(new);
    assert_eq!(grant.label.as_str(), format!("git commit in {}", daemon.work()));
    let (same, new) = add(&daemon, json!({"verb": "git commit", "directory": daemon.work()})).unwrap();
    assert!(!new && same.grant.id == grant.grant.id, "an equal grant exists already");
    assert_eq!(verdict(), VerdictKind::Allow);
    let id = grant.grant.id.unwrap().to_string();
    daemon.run(ops::grants::revoke(&daemon.ops, &person(), &id)).unwrap();
    assert_eq!(verdict(), VerdictKind::Ask);
    assert_eq!(daemon.refusal_code(ops::grants::show(&daemon.ops, &person(), &id)), Some(RefusalCode::NotFound));
}

#[test]
fn an_invalid_grant_is_refused() {
    let daemon = Daemon::new();
    for body in [
        json!({"verb": "", "directory": null}),
        json!({"verb": "git push", "directory": "relative"}),
        json!({"verb": "git push && rm", "directory": null}),
        json!({"verb": "git push", "directory": daemon.work(), "uses": 0}),
    ] {
        assert_eq!(add(&daemon, body.clone()).map(drop), Err(RefusalCode::BadRequest), "{body}");
    }
}

#[test]
fn lists_go_page_by_page_newest_first() {
    let daemon = Daemon::new();
    let verbs = ["git add", "git commit", "git push"];
    for verb in verbs {
        add(&daemon, json!({"verb": verb, "directory": daemon.work()})).unwrap();
    }
    let (mut seen, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let query = parse(json!({"limit": 2, "cursor": cursor}));
        let page = daemon.run(ops::grants::list(&daemon.ops, &person(), query)).unwrap();
        assert!(page.grants.len() <= 2);
        seen.extend(page.grants.iter().map(|g| g.grant.verb.as_str().to_owned()));
        match page.next {
            Some(next) => cursor = json!(next),
            None => break,
        }
    }
    assert_eq!(seen, ["git push", "git commit", "git add"]);
    for limit in [0, 501] {
        let (caller, query) = (person(), parse(json!({"limit": limit})));
        assert_eq!(
            daemon.refusal_code(ops::grants::list(&daemon.ops, &caller, query)),
            Some(RefusalCode::BadRequest),
            "limit {limit}"
        );
    }
}
