//! Every operation checks the scope that it needs, whatever the surface.

use super::{Daemon, parse};
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
    ("tasks::list", Observe, |d, c| d.refusal_code(ops::tasks::list(&d.ops, c, parse(json!({}))))),
    ("tasks::show", Observe, |d, c| d.refusal_code(ops::tasks::show(&d.ops, c, "tk_none", parse(json!({}))))),
    ("intake::ask", Run, |d, c| d.refusal_code(ops::intake::ask(&d.ops, c, d.request(""), None))),
    ("intake::check", Observe, |d, c| d.refusal_code(ops::intake::check(&d.ops, c, d.request("")))),
    ("answers::list", Observe, |d, c| d.refusal_code(ops::answers::list(&d.ops, c, parse(json!({}))))),
    ("answers::show", Observe, |d, c| d.refusal_code(ops::answers::show(&d.ops, c, "ap_none"))),
    ("answers::answer", Approve, |d, c| {
        d.refusal_code(ops::answers::answer(&d.ops, c, "ap_none", parse(json!({"choice": "once"}))))
    }),
    ("grants::list", Observe, |d, c| d.refusal_code(ops::grants::list(&d.ops, c, parse(json!({}))))),
    ("grants::show", Observe, |d, c| d.refusal_code(ops::grants::show(&d.ops, c, "gr_none"))),
    ("grants::add", Approve, |d, c| {
        d.refusal_code(ops::grants::add(&d.ops, c, parse(json!({"verb": "", "directory": null}))))
    }),
    ("grants::narrow", Approve, |d, c| d.refusal_code(ops::grants::narrow(&d.ops, c, "gr_none"))),
    ("grants::revoke", Approve, |d, c| d.refusal_code(ops::grants::revoke(&d.ops, c, "gr_none"))),
    ("sessions::open", Run, |d, c| {
        d.refusal_code(ops::sessions::open(&d.ops, c, parse(json!({"directory": "/no/such/place"}))))
    }),
    ("sessions::show", Observe, |d, c| d.refusal_code(async { ops::sessions::show(&d.ops, c, "se_none") })),
    ("sessions::list", Observe, |d, c| d.refusal_code(async { ops::sessions::list(&d.ops, c, parse(json!({}))) })),
    ("sessions::set_directory", Run, |d, c| {
        d.refusal_code(ops::sessions::set_directory(&d.ops, c, "se_none", parse(json!({"directory": "/"}))))
    }),
    ("sessions::end", Run, |d, c| d.refusal_code(ops::sessions::end(&d.ops, c, "se_none"))),
    ("tokens::create", Admin, |d, c| {
        d.refusal_code(ops::tokens::create(&d.ops, c, parse(json!({"name": "", "kind": "agent", "scopes": []}))))
    }),
    ("tokens::list", Admin, |d, c| d.refusal_code(async { ops::tokens::list(&d.ops, c) })),
    ("tokens::revoke", Admin, |d, c| d.refusal_code(ops::tokens::revoke(&d.ops, c, "to_none"))),
    ("control::cancel", Run, |d, c| d.refusal_code(ops::control::cancel(&d.ops, c, "tk_none", parse(json!({}))))),
    ("control::signal", Run, |d, c| {
        d.refusal_code(ops::control::signal(&d.ops, c, "tk_none", parse(json!({"signal": "INT"})), None))
    }),
    ("control::stdin", Run, |d, c| {
        d.refusal_code(ops::control::stdin(&d.ops, c, "tk_none", parse(json!({"text": "x"})), None))
    }),
    ("control::resize", Run, |d, c| {
        d.refusal_code(ops::control::resize(&d.ops, c, "tk_none", parse(json!({"rows": 1, "cols": 1})), None))
    }),
    ("output::read", Observe, |d, c| d.refusal_code(ops::output::read(&d.ops, c, "tk_none", parse(json!({}))))),
    ("search::search", Observe, |d, c| {
        d.refusal_code(ops::search::search(&d.ops, c, "tk_none", parse(json!({"pattern": "x"}))))
    }),
    ("screen::show", Observe, |d, c| d.refusal_code(ops::screen::show(&d.ops, c, "tk_none"))),
    ("cast::cast", Observe, |d, c| d.refusal_code(ops::cast::cast(&d.ops, c, "tk_none", parse(json!({}))))),
    ("receipts::list", Observe, |d, c| d.refusal_code(ops::receipts::list(&d.ops, c, parse(json!({}))))),
    ("receipts::of_task", Observe, |d, c| {
        d.refusal_code(ops::receipts::envelope(&d.ops, c, "tk_none", parse(json!({}))))
    }),
    ("receipts::artifact", Observe, |d, c| d.refusal_code(ops::receipts::artifact(&d.ops, c, "none"))),
    ("receipts::keys", Observe, |d, c| d.refusal_code(async { ops::receipts::keys(&d.ops, c) })),
    ("receipts::head", Admin, |d, c| d.refusal_code(ops::receipts::signed_head(&d.ops, c))),
    ("receipts::rotate", Admin, |d, c| {
        d.refusal_code(ops::receipts::rotate(&d.ops, c, parse(json!({"rotate": false}))))
    }),
    ("tickets::before", Run, |d, c| {
        let conversation = json!({"agent": "a", "id": "c", "cwd": "/"});
        d.refusal_code(ops::tickets::hook_before(
            &d.ops,
            c,
            parse(json!({"conversation": conversation, "command": ""})),
        ))
    }),
    ("tickets::after", Run, |d, c| {
        let conversation = json!({"agent": "a", "id": "c", "cwd": "/"});
        d.refusal_code(ops::tickets::hook_after(
            &d.ops,
            c,
            parse(json!({"conversation": conversation, "tool_use": "t"})),
        ))
    }),
    ("tickets::redeem", Run, |d, c| {
        d.refusal_code(ops::tickets::redeem(
            &d.ops,
            c,
            "ti_none",
            parse(json!({"command": "", "cwd": "/", "inherit": {}})),
        ))
    }),
    ("tickets::redeemed", Observe, |d, c| d.refusal_code(async { ops::tickets::task_of_ticket(&d.ops, c, "ti_none") })),
    ("lifecycle::show", Observe, |d, c| d.refusal_code(ops::lifecycle::show(&d.ops, c))),
    ("lifecycle::stop", Admin, |d, c| {
        d.refusal_code(async { ops::lifecycle::stop(&d.ops, c, parse(json!({"state": "halted"}))) })
    }),
    ("lifecycle::gc", Admin, |d, c| d.refusal_code(ops::lifecycle::gc(&d.ops, c, parse(json!({"dry_run": true}))))),
    ("lifecycle::rebuild", Admin, |d, c| {
        d.refusal_code(ops::lifecycle::rebuild(&d.ops, c, parse(json!({"index": "rebuild"}))))
    }),
];

#[test]
fn an_operation_needs_its_scope_and_no_other() {
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
fn an_agent_cannot_approve_or_administer() {
    let daemon = Daemon::new();
    let agent = super::agent();
    for (name, scope, operation) in OPERATIONS.iter().filter(|(_, scope, _)| matches!(scope, Approve | Admin)) {
        assert_eq!(operation(&daemon, &agent), Some(RefusalCode::MissingScope), "{name} needs `{scope}`");
    }
}
