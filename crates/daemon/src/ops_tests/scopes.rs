//! Every operation checks the scope that it needs, whatever the surface.

use super::{Daemon, of};
use crate::{caller::Caller, ops};
use countersign_model::{
    CredentialKind,
    CredentialScope::{self, Admin, Approve, Observe, Run},
    RefusalCode,
};
use serde_json::json;

/// Calls an operation as a caller; returns the code of its refusal.
type Operation = fn(&Daemon, &Caller) -> Option<RefusalCode>;

/// Each operation with the scope that it needs. Its arguments name nothing that exists: with the scope it is refused
/// for that, or succeeds.
const OPERATIONS: &[(&str, CredentialScope, Operation)] = &[
    ("tasks::list", Observe, |d, c| d.refused(ops::tasks::list(&d.ops, c, of(json!({}))))),
    ("tasks::show", Observe, |d, c| d.refused(ops::tasks::show(&d.ops, c, "tk_none", of(json!({}))))),
    ("intake::ask", Run, |d, c| d.refused(ops::intake::ask(&d.ops, c, d.request(""), None))),
    ("intake::check", Observe, |d, c| d.refused(ops::intake::check(&d.ops, c, d.request("")))),
    ("answers::list", Observe, |d, c| d.refused(ops::answers::list(&d.ops, c, of(json!({}))))),
    ("answers::show", Observe, |d, c| d.refused(ops::answers::show(&d.ops, c, "ap_none"))),
    ("answers::answer", Approve, |d, c| {
        d.refused(ops::answers::answer(&d.ops, c, "ap_none", of(json!({"choice": "once"}))))
    }),
    ("grants::list", Observe, |d, c| d.refused(ops::grants::list(&d.ops, c, of(json!({}))))),
    ("grants::show", Observe, |d, c| d.refused(ops::grants::show(&d.ops, c, "gr_none"))),
    ("grants::add", Approve, |d, c| d.refused(ops::grants::add(&d.ops, c, of(json!({"verb": "", "directory": null}))))),
    ("grants::narrow", Approve, |d, c| d.refused(ops::grants::narrow(&d.ops, c, "gr_none"))),
    ("grants::revoke", Approve, |d, c| d.refused(ops::grants::revoke(&d.ops, c, "gr_none"))),
    ("sessions::open", Run, |d, c| {
        d.refused(ops::sessions::open(&d.ops, c, of(json!({"directory": "/no/such/place"}))))
    }),
    ("sessions::show", Observe, |d, c| d.refused(async { ops::sessions::show(&d.ops, c, "se_none") })),
    ("sessions::list", Observe, |d, c| d.refused(async { ops::sessions::list(&d.ops, c, of(json!({}))) })),
    ("sessions::set_directory", Run, |d, c| {
        d.refused(ops::sessions::set_directory(&d.ops, c, "se_none", of(json!({"directory": "/"}))))
    }),
    ("sessions::end", Run, |d, c| d.refused(ops::sessions::end(&d.ops, c, "se_none"))),
    ("tokens::create", Admin, |d, c| {
        d.refused(ops::tokens::create(&d.ops, c, of(json!({"name": "", "kind": "agent", "scopes": []}))))
    }),
    ("tokens::list", Admin, |d, c| d.refused(async { ops::tokens::list(&d.ops, c) })),
    ("tokens::revoke", Admin, |d, c| d.refused(ops::tokens::revoke(&d.ops, c, "to_none"))),
    ("control::cancel", Run, |d, c| d.refused(ops::control::cancel(&d.ops, c, "tk_none", of(json!({}))))),
    ("control::signal", Run, |d, c| {
        d.refused(ops::control::signal(&d.ops, c, "tk_none", of(json!({"signal": "INT"})), None))
    }),
    ("control::stdin", Run, |d, c| {
        d.refused(ops::control::stdin(&d.ops, c, "tk_none", of(json!({"text": "x"})), None))
    }),
    ("control::resize", Run, |d, c| {
        d.refused(ops::control::resize(&d.ops, c, "tk_none", of(json!({"rows": 1, "cols": 1})), None))
    }),
    ("output::read", Observe, |d, c| d.refused(ops::output::read(&d.ops, c, "tk_none", of(json!({}))))),
    ("search::search", Observe, |d, c| {
        d.refused(ops::search::search(&d.ops, c, "tk_none", of(json!({"pattern": "x"}))))
    }),
    ("screen::show", Observe, |d, c| d.refused(ops::screen::show(&d.ops, c, "tk_none"))),
    ("cast::cast", Observe, |d, c| d.refused(ops::cast::cast(&d.ops, c, "tk_none", of(json!({}))))),
    ("receipts::list", Observe, |d, c| d.refused(ops::receipts::list(&d.ops, c, of(json!({}))))),
    ("receipts::of_task", Observe, |d, c| d.refused(ops::receipts::of_task(&d.ops, c, "tk_none", of(json!({}))))),
    ("receipts::artifact", Observe, |d, c| d.refused(ops::receipts::artifact(&d.ops, c, "none"))),
    ("receipts::keys", Observe, |d, c| d.refused(async { ops::receipts::keys(&d.ops, c) })),
    ("receipts::head", Admin, |d, c| d.refused(ops::receipts::head(&d.ops, c))),
    ("receipts::rotate", Admin, |d, c| d.refused(ops::receipts::rotate(&d.ops, c, of(json!({"rotate": false}))))),
    ("tickets::before", Run, |d, c| {
        let conversation = json!({"agent": "a", "id": "c", "cwd": "/"});
        d.refused(ops::tickets::before(&d.ops, c, of(json!({"conversation": conversation, "command": ""}))))
    }),
    ("tickets::after", Run, |d, c| {
        let conversation = json!({"agent": "a", "id": "c", "cwd": "/"});
        d.refused(ops::tickets::after(&d.ops, c, of(json!({"conversation": conversation, "tool_use": "t"}))))
    }),
    ("tickets::redeem", Run, |d, c| {
        d.refused(ops::tickets::redeem(&d.ops, c, "ti_none", of(json!({"command": "", "cwd": "/", "inherit": {}}))))
    }),
    ("tickets::redeemed", Observe, |d, c| d.refused(async { ops::tickets::redeemed(&d.ops, c, "ti_none") })),
    ("lifecycle::show", Observe, |d, c| d.refused(ops::lifecycle::show(&d.ops, c))),
    ("lifecycle::stop", Admin, |d, c| {
        d.refused(async { ops::lifecycle::stop(&d.ops, c, of(json!({"state": "halted"}))) })
    }),
    ("lifecycle::gc", Admin, |d, c| d.refused(ops::lifecycle::gc(&d.ops, c, of(json!({"dry_run": true}))))),
    ("lifecycle::rebuild", Admin, |d, c| {
        d.refused(ops::lifecycle::rebuild(&d.ops, c, of(json!({"index": "rebuild"}))))
    }),
];

#[test]
fn an_operation_without_its_scope_is_refused_and_with_it_alone_is_not() {
    let daemon = Daemon::new();
    for (name, scope, operation) in OPERATIONS {
        let others: Vec<CredentialScope> = CredentialScope::ALL.into_iter().filter(|s| s != scope).collect();
        let without = operation(&daemon, &Caller::for_test(CredentialKind::Person, &others));
        assert_eq!(without, Some(RefusalCode::MissingScope), "{name} without `{scope}`");
        let with = operation(&daemon, &Caller::for_test(CredentialKind::Person, &[*scope]));
        assert_ne!(with, Some(RefusalCode::MissingScope), "{name} with `{scope}` alone");
    }
}

#[test]
fn no_agent_answers_grants_or_administers() {
    let daemon = Daemon::new();
    let agent = super::agent();
    for (name, scope, operation) in OPERATIONS.iter().filter(|(_, scope, _)| matches!(scope, Approve | Admin)) {
        assert_eq!(operation(&daemon, &agent), Some(RefusalCode::MissingScope), "{name} needs `{scope}`");
    }
}
