//! The sample of judged commands: no false allow, no missed deny, few needless approvals.

use crate::support::{assess, grant, verdict_word};
use countersign_model::{Facts, PathTarget, PathTargetKind, Risk};
use serde_json::Value;

const SAMPLE: &str = include_str!("data/gate-sample.jsonl");

fn entries() -> Vec<Value> {
    SAMPLE.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(one) => vec![one],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// The facts for an entry whose fixture contains symbolic links.
fn facts(entry: &Value, command: &str, cwd: &str) -> Facts {
    let mut facts = Facts::none(cwd);
    let Some(links) = entry["fixture"]["symlinks"].as_object() else { return facts };
    for path in countersign_policy::required_facts(&crate::support::plan(command, cwd)).paths {
        for (link, target) in links {
            if let Some(rest) = path.strip_prefix(link.as_str()).filter(|r| r.is_empty() || r.starts_with('/')) {
                let resolved = format!("{}{rest}", target.as_str().unwrap());
                let found = PathTarget { resolved, kind: PathTargetKind::Absent, dev: 0, inode: 0, mount: false };
                facts.paths.insert(path.clone(), found);
            }
        }
    }
    facts
}

#[test]
fn the_sample_gets_the_expected_verdicts() {
    let (mut false_allows, mut missed_denies, mut over_denied, mut over_asked) = (vec![], vec![], vec![], vec![]);
    let (mut must_allow, mut one_shots, mut wrong_shots, mut risky, mut wrong_risks) = (0, 0, vec![], 0, vec![]);
    let (mut verbs, mut wrong_verbs) = (0, vec![]);
    for entry in entries() {
        let (command, cwd) = (entry["command"].as_str().unwrap(), entry["cwd"].as_str().unwrap());
        let grants: Vec<_> = entry["grants"]
            .as_array()
            .unwrap()
            .iter()
            .map(|g| grant(g["verb"].as_str().unwrap(), g["directory"].as_str()))
            .collect();
        let assessment = assess(command, cwd, &texts(&entry["roots"]), &grants, Some(facts(&entry, command, cwd)));
        let (answer, expect) = (verdict_word(&assessment), texts(&entry["expect"]));
        let id = format!("{} {:.120} => {answer}", entry["id"].as_str().unwrap(), command);
        must_allow += usize::from(expect == ["allow"]);
        match answer {
            "allow" if !expect.contains(&"allow") => false_allows.push(id.clone()),
            "ask" if !expect.contains(&"ask") && expect.contains(&"deny") => missed_denies.push(id.clone()),
            "ask" if !expect.contains(&"ask") => over_asked.push(id.clone()),
            "deny" if !expect.contains(&"deny") => over_denied.push(id.clone()),
            _ => {}
        }
        if let (Some(expected), "ask") = (entry["one_shot_only"].as_bool(), answer) {
            one_shots += 1;
            if expected != assessment.one_shot {
                wrong_shots.push(format!("{id} one_shot {}", assessment.one_shot));
            }
        }
        let risks = assessment.risk_set();
        for name in texts(&entry["risk"]).into_iter().filter(|r| *r != "read_only") {
            risky += 1;
            if !risks.contains(&Risk::from_name(name).unwrap()) {
                wrong_risks.push(format!("{id} lacks {name}: {risks:?}"));
            }
        }
        let plan = crate::support::plan(command, cwd);
        let found: Vec<&str> = plan.occurrences.iter().filter(|o| !o.shadow).map(|o| o.verb.as_str()).collect();
        let wanted = texts(&entry["verbs"]);
        if !wanted.is_empty() {
            verbs += 1;
            if found != wanted {
                wrong_verbs.push(format!("{id} verbs {found:?} not {wanted:?}"));
            }
        }
    }
    println!(
        "one-shot {wrong_shots:#?}\nrisks {wrong_risks:#?}\nverbs {wrong_verbs:#?}\nasked {over_asked:#?}\ndenied {over_denied:#?}"
    );
    assert_eq!(false_allows, Vec::<String>::new(), "allowed and should not be");
    assert_eq!(missed_denies, Vec::<String>::new(), "asked and should be denied");
    assert_eq!(over_denied, Vec::<String>::new(), "denied and should not be");
    assert!(over_asked.len() * 50 <= must_allow, "{must_allow} must be allowed, asked: {over_asked:#?}");
    assert!(wrong_shots.len() * 20 <= one_shots, "{one_shots}: {wrong_shots:#?}");
    assert!(wrong_risks.len() * 20 <= risky, "{risky}: {wrong_risks:#?}");
    assert!(wrong_verbs.len() * 20 <= verbs, "{verbs}: {wrong_verbs:#?}");
}
