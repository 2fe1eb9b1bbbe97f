//! The sample of judged commands, through the gate as it is: nothing is taken apart yet, so what matters is that
//! reading and judging are total, that nothing is allowed which must not be, and that denials do not depend on the
//! profile. How well it judges is measured when there is a parser to measure.
#![allow(clippy::unwrap_used)]

use countersign_model::{Answer, Facts, PathFact, Profile, Request, Risk};
use countersign_policy::{Context, judge, read};
use serde_json::{Value, json};

const SAMPLE: &str = include_str!("data/gate-sample.jsonl");

fn entries() -> Vec<Value> {
    SAMPLE.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn answer(entry: &Value, profile: Profile, attended: bool) -> (Answer, Vec<Risk>) {
    let request: Request =
        serde_json::from_value(json!({"tool": "shell", "args": {"command": entry["command"]}})).unwrap();
    let cwd = entry["cwd"].as_str().unwrap();
    let fact = PathFact { path: cwd.to_owned(), resolved: cwd.to_owned(), dev: 1, inode: 1 };
    let facts = Facts { cwd: fact, program: None };
    let context = Context { profile, attended, can_confine: false, background: false, interactive: false };
    let assessment = judge(&read(&request, cwd), &facts, context);
    let risks = assessment.risk_set();
    (assessment.answer, risks)
}

#[test]
fn nothing_of_the_sample_runs_unasked_while_nothing_confines_it() {
    assert!(entries().len() > 200, "the sample is there");
    for entry in entries() {
        let (safe, risks) = answer(&entry, Profile::Safe, true);
        assert!(!matches!(safe, Answer::Allow { .. }), "{entry}");
        assert!(risks.contains(&Risk::Opaque), "{entry}");
        let (unattended, _) = answer(&entry, Profile::Safe, false);
        assert!(matches!(unattended, Answer::Deny(_)), "{entry}");
        let (locked, _) = answer(&entry, Profile::Locked, true);
        assert!(matches!(locked, Answer::Deny(_)), "{entry}");
    }
}

#[test]
fn denials_and_escalation_do_not_depend_on_the_profile() {
    let mut escalations = 0;
    for entry in entries() {
        let (safe, _) = answer(&entry, Profile::Safe, true);
        let (full_auto, risks) = answer(&entry, Profile::FullAuto, true);
        assert_eq!(matches!(safe, Answer::Deny(_)), matches!(full_auto, Answer::Deny(_)), "{entry}");
        if risks.contains(&Risk::Privileged) {
            escalations += 1;
            assert!(!matches!(full_auto, Answer::Allow { .. }), "{entry}");
        }
    }
    assert!(escalations > 0, "some of the sample asks for another user's rights");
}
