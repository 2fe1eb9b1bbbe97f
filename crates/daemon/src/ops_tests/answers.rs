//! Answers: what is offered, what a denial leads to, and who sees an approval.

use super::{Daemon, agent, parse, person};
use crate::{caller::Caller, ops};
use countersign_model::{Approval, ApprovalState, Choice, IdMint, PrincipalId, RefusalCode, TaskId, api::AnswerBody};
use serde_json::json;

fn ask(daemon: &Daemon, command: &str) -> (TaskId, Approval) {
    let asked = daemon.run(ops::intake::ask(&daemon.ops, &agent(), daemon.request(command), None)).unwrap();
    let task = asked.answer.task.task_id;
    let approval = ops::answers::approval_of_task(&daemon.ops, task).unwrap().unwrap();
    (task, approval)
}

fn answer(daemon: &Daemon, approval: &Approval, body: serde_json::Value) -> Result<Approval, RefusalCode> {
    let body: AnswerBody = parse(body);
    let (caller, id) = (person(), approval.id.to_string());
    daemon.run(ops::answers::answer(&daemon.ops, &caller, &id, body)).map_err(|refused| refused.refusal.code)
}

#[test]
fn a_card_offers_the_grants_that_can_be_saved() {
    let daemon = Daemon::new();
    let (_, approval) = ask(&daemon, "git push origin main");
    let shown = daemon.run(ops::answers::show(&daemon.ops, &person(), &approval.id.to_string())).unwrap();
    assert_eq!(shown.options, approval.options);
    let card = shown.card.unwrap();
    assert!(shown.options.contains(&Choice::Here) && shown.options.contains(&Choice::Deny), "{:?}", shown.options);
    let here = card.offers.iter().find(|o| o.choice == Choice::Here).unwrap();
    assert_eq!(
        here.saves.iter().map(|s| s.as_str().to_owned()).collect::<Vec<_>>(),
        [format!("git push in {}", daemon.work())]
    );
    assert!(!card.risks.is_empty() && card.not_saved.is_none());
    let (_, opaque) = ask(&daemon, "$PROGRAM --now");
    assert_eq!(opaque.options, [Choice::Once, Choice::Deny], "no grant could be saved for it");
}

#[test]
fn a_denial_with_words_settles_the_task_and_is_remembered() {
    let daemon = Daemon::new();
    let (task, approval) = ask(&daemon, "git push");
    let denied = answer(&daemon, &approval, json!({"choice": "deny", "words": "not today"})).unwrap();
    assert!(matches!(denied.state, ApprovalState::Answered { choice: Choice::Deny, .. }));
    assert!(daemon.ops.records.state(task).unwrap().settled());
    assert_eq!(answer(&daemon, &approval, json!({"choice": "once"})), Err(RefusalCode::AlreadyAnswered));
    let again = daemon.refusal_code(ops::intake::ask(&daemon.ops, &agent(), daemon.request("git push"), None));
    assert_eq!(again, Some(RefusalCode::DeniedByPerson));
}

#[test]
fn an_answer_with_conflicting_fields_is_refused() {
    let daemon = Daemon::new();
    let (_, approval) = ask(&daemon, "git push");
    for (body, code) in [
        (json!({"choice": "once", "words": "sure"}), RefusalCode::BadRequest),
        (json!({"choice": "deny", "any_arguments": true}), RefusalCode::BadRequest),
        (json!({"choice": "deny", "words": "x".repeat(5000)}), RefusalCode::TooLarge),
    ] {
        assert_eq!(answer(&daemon, &approval, body.clone()).map(drop), Err(code), "{body}");
    }
    assert_eq!(answer(&daemon, &approval, json!({"choice": "deny"})).unwrap().resolution().unwrap(), "Denied");
}

#[test]
fn an_approval_does_not_exist_for_another_principal() {
    let daemon = Daemon::new();
    let (_, approval) = ask(&daemon, "git push");
    let other = Caller { principal: PrincipalId::mint(&mut IdMint::default(), 1, 1), ..person() };
    let id = approval.id.to_string();
    assert_eq!(daemon.refusal_code(ops::answers::show(&daemon.ops, &other, &id)), Some(RefusalCode::NotFound));
    let deny = || parse(json!({"choice": "deny"}));
    assert_eq!(
        daemon.refusal_code(ops::answers::answer(&daemon.ops, &other, &id, deny())),
        Some(RefusalCode::NotFound)
    );
    let page = daemon.run(ops::answers::list(&daemon.ops, &other, parse(json!({})))).unwrap();
    assert!(page.approvals.is_empty());
    let page = daemon.run(ops::answers::list(&daemon.ops, &person(), parse(json!({})))).unwrap();
    assert_eq!(page.approvals.iter().map(|a| a.id).collect::<Vec<_>>(), [approval.id]);
}
