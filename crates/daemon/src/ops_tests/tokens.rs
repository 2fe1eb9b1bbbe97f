//! Tokens: shown once, valid until revoked, never with a scope that agents cannot have.

use super::{Daemon, parse, person};
use crate::ops::{self, recognition};
use countersign_model::{CredentialKind, CredentialScope, RefusalCode};
use serde_json::json;

#[test]
fn a_token_is_valid_until_it_is_revoked() {
    let daemon = Daemon::new();
    let body = parse(json!({"name": "ci", "kind": "person", "scopes": ["observe", "run"]}));
    let new = daemon.run(ops::tokens::create(&daemon.ops, &person(), body)).unwrap();
    let caller = recognition::caller_for_token(&daemon.ops, &new.token).unwrap();
    assert_eq!((caller.kind, &caller.scopes[..]), (CredentialKind::Person, &new.view.scopes[..]));
    assert_eq!(caller.via.to_string(), "token ci");
    assert!(caller.require_scope(CredentialScope::Approve).is_err());
    for wrong in ["", "csn_", "csn_x_y", &new.token[..new.token.len() - 1], &format!("{}x", new.token)] {
        let refused = recognition::caller_for_token(&daemon.ops, wrong).err().map(|r| r.code);
        assert_eq!(refused, Some(RefusalCode::Unauthorized), "{wrong}");
    }
    assert!(daemon.ops.still_admits(&caller));
    daemon.run(ops::tokens::revoke(&daemon.ops, &person(), "ci")).unwrap();
    assert!(!daemon.ops.still_admits(&caller));
    let listed = serde_json::to_string(&ops::tokens::list(&daemon.ops, &person()).unwrap()).unwrap();
    assert!(listed.contains("revoked_at") && !listed.contains(&new.token));
}

#[test]
fn an_agent_token_cannot_have_approve_or_admin() {
    let daemon = Daemon::new();
    for scope in ["approve", "admin"] {
        let body = parse(json!({"name": "bot", "kind": "agent", "scopes": ["observe", scope]}));
        let refused = daemon.refusal_code(ops::tokens::create(&daemon.ops, &person(), body));
        assert_eq!(refused, Some(RefusalCode::BadRequest), "{scope}");
    }
}
