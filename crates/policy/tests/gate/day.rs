//! A day's work of a coding agent: what only reads is not asked about, and every question has a reason.

use crate::support::{ROOT, assess, word};
use countersign_model::Coverage;

const DAY: &str = include_str!("data/day.txt");

#[test]
fn a_days_work_asks_only_where_it_must() {
    let (mut reads, mut asked, mut acts, mut slipped, mut unexplained) = (0, Vec::new(), 0, Vec::new(), Vec::new());
    for line in DAY.lines().filter(|l| !l.starts_with("# ") || l.contains('⏎')) {
        let (command, acting) = match line.strip_prefix("? ") {
            Some(command) => (command.replace('⏎', "\n"), true),
            None => (line.replace('⏎', "\n"), false),
        };
        let assessment = assess(&command, ROOT, &[ROOT], &[], None);
        let explained = assessment
            .coverage
            .iter()
            .all(|c| !matches!(c, Coverage::None { why, help } if why.is_empty() || help.is_empty()));
        if !explained {
            unexplained.push(command.clone());
        }
        match (acting, word(&assessment)) {
            (true, "ask") => acts += 1,
            (true, other) => slipped.push(format!("{other}: {command}")),
            (false, answer) => {
                reads += 1;
                if answer != "allow" {
                    asked.push(format!("{answer}: {command} {:?}", assessment.coverage.iter().find(|c| !c.holds())));
                }
            }
        }
    }
    assert!(reads >= 250 && reads + acts >= 300, "{reads} and {acts}");
    assert_eq!(slipped, Vec::<String>::new());
    assert_eq!(unexplained, Vec::<String>::new());
    assert!(asked.len() * 20 <= reads, "{} of {reads}:\n{}", asked.len(), asked.join("\n"));
    println!("{} of {reads} asked:\n{}", asked.len(), asked.join("\n"));
}

#[test]
fn no_phrase_reaches_further_than_reading() {
    let reach = include_str!("data/reach.txt").replace("\n}' a", "⏎}' a");
    let mut allowed = Vec::new();
    let mut count = 0;
    for line in reach.lines().filter(|l| !l.starts_with("# ")) {
        count += 1;
        let command = line.replace('⏎', "\n");
        if word(&assess(&command, ROOT, &[ROOT], &[], None)) == "allow" {
            allowed.push(command);
        }
    }
    assert!(count > 300, "{count}");
    assert_eq!(allowed, Vec::<String>::new());
}
