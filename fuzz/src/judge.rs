//! Judging never panics; what is allowed without approval is not opaque and writes nothing; a deny stays under every
//! grant, and a grant never makes anything stricter.
#![no_main]

use countersign_model::{Facts, Grant, Grants, Verdict};
use countersign_policy::{CheckedRules, JudgeContext, ParseContext, judge, read_text};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let plan = read_text(text, &ParseContext { cwd: "/work/proj", home: "/home/dev", environment: &|_| false });
    let context = JudgeContext::personal("/home/dev", vec!["/work/proj".to_owned()]);
    let (facts, rules) = (Facts::none("/work/proj"), CheckedRules::default());
    let plain = judge(&plan, &facts, &context, &rules, &Grants::default());
    if let Verdict::Allow { .. } = plain.verdict {
        for occurrence in plan.occurrences.iter().filter(|o| !o.shadow) {
            assert!(occurrence.opaque.is_none() && !occurrence.privileged);
            assert!(occurrence.scopes.iter().all(|s| !s.write));
        }
    }
    let all: Vec<Grant> = plan
        .occurrences
        .iter()
        .map(|o| serde_json::from_value(serde_json::json!({"verb": o.verb, "directory": null})).expect("a grant"))
        .collect();
    let granted = judge(&plan, &facts, &context, &rules, &Grants::from_grants(all));
    match (&plain.verdict, &granted.verdict) {
        (Verdict::Deny(a), Verdict::Deny(b)) => assert_eq!(a, b),
        (Verdict::Deny(_), _) | (Verdict::Allow { .. }, Verdict::Ask { .. } | Verdict::Deny(_)) => panic!("{text:?}"),
        _ => {}
    }
});
