//! The differential test: a real bash runs generated commands in a directory of its own, with a PATH that contains
//! only programs that record their arguments. Every program that bash starts must be an occurrence of the plan, with
//! the same words where the plan says literal and the same directory where the plan says known, unless the plan is
//! opaque.
//!
//! `CSN_DIFFERENTIAL` sets the number of commands, `CSN_SEED` repeats a run.

use crate::{
    generate::{Random, mutate, script, seed},
    jail::{Jail, explains},
};

const SAMPLE: &str = include_str!("data/gate-sample.jsonl");

#[derive(Default)]
struct Tally {
    commands: usize,
    started: usize,
    opaque: usize,
    plain: usize,
    compared: usize,
    accepted_by_us_only: usize,
    rejected_by_us_only: usize,
    wrong: Vec<String>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.commands += other.commands;
        self.started += other.started;
        self.opaque += other.opaque;
        self.plain += other.plain;
        self.compared += other.compared;
        self.accepted_by_us_only += other.accepted_by_us_only;
        self.rejected_by_us_only += other.rejected_by_us_only;
        self.wrong.extend(other.wrong);
    }
}

fn compare(seed: u64, count: usize) -> Tally {
    let (jail, mut random, mut tally) = (Jail::new(), Random::new(seed), Tally::default());
    let sample: Vec<String> = SAMPLE
        .lines()
        .filter_map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["command"].as_str().map(str::to_owned))
        .filter(|c| is_harmless(c))
        .collect();
    for n in 0..count {
        let mutated = n % 4 == 3;
        let text = if mutated { mutate(&sample, &mut random) } else { script(&mut random) };
        if mutated && !is_harmless(&text) {
            continue;
        }
        let plan = jail.plan(&text);
        let opaque = plan.occurrences.iter().any(|o| o.opaque.is_some());
        tally.commands += 1;
        if !mutated {
            tally.plain += 1;
            tally.opaque += usize::from(opaque);
        }
        if n % 5 == 0 || mutated {
            let unparseable =
                plan.occurrences.iter().any(|o| o.unread && o.opaque == Some(countersign_model::Opaque::Unparseable));
            tally.compared += 1;
            match (jail.accepts(&text), unparseable) {
                (true, true) => tally.rejected_by_us_only += 1,
                (false, false) => tally.accepted_by_us_only += 1,
                _ => {}
            }
        }
        for note in jail.run(&text) {
            tally.started += 1;
            if !opaque && !plan.occurrences.iter().any(|o| explains(o, &note)) {
                let plan: Vec<_> = plan
                    .occurrences
                    .iter()
                    .map(|o| (&o.directory, o.words.iter().map(|w| &w.value).collect::<Vec<_>>()))
                    .collect();
                tally.wrong.push(format!(
                    "{text:?}\n  started {} {:?} in {}\n  plan {plan:?}",
                    note.program,
                    &note.words[1..],
                    note.cwd
                ));
            }
        }
        if tally.wrong.len() >= 5 {
            break;
        }
    }
    tally
}

/// Whether a text cannot reach beyond the directory even by mistake: no absolute paths, no signals, no files of other
/// shells.
fn is_harmless(text: &str) -> bool {
    let absolute = text
        .split(|c: char| c.is_whitespace() || "'\"=<>|&;(){}$`,:".contains(c))
        .any(|w| w.starts_with('/') || w.starts_with("\\x2f"));
    let words = [
        "kill", "/dev", "..", "~", "exec", "ulimit", "sleep", "while", "until", "yes", "\\x", "\\0", "csn", ":|:",
        "f|f", "wait", "tail -f",
    ];
    !absolute && !words.iter().any(|w| text.contains(w)) && text.len() < 2000
}

#[test]
fn every_program_that_bash_starts_is_in_the_plan() {
    let count: usize = std::env::var("CSN_DIFFERENTIAL").ok().and_then(|n| n.parse().ok()).unwrap_or(2400);
    let seed = seed();
    let halves: Vec<_> = (0..2).map(|n| std::thread::spawn(move || compare(seed.wrapping_add(n), count / 2))).collect();
    let mut tally = Tally::default();
    halves.into_iter().for_each(|h| tally.add(h.join().unwrap()));
    println!(
        "{} commands, {} programs started, {:.1} % opaque of the plain ones; against bash -n: {} compared, {} accepted by us only, {} by bash only",
        tally.commands,
        tally.started,
        100.0 * tally.opaque as f64 / tally.plain.max(1) as f64,
        tally.compared,
        tally.accepted_by_us_only,
        tally.rejected_by_us_only,
    );
    assert!(tally.wrong.is_empty(), "CSN_SEED={seed}\n{}", tally.wrong.join("\n"));
    assert!(tally.started > tally.commands / 2, "bash ran: {} of {}", tally.started, tally.commands);
    assert!(tally.opaque * 10 <= tally.plain, "CSN_SEED={seed}: {} of {} are opaque", tally.opaque, tally.plain);
    assert!(
        tally.rejected_by_us_only * 20 <= tally.compared,
        "CSN_SEED={seed}: {} of {}",
        tally.rejected_by_us_only,
        tally.compared
    );
    assert!(
        tally.accepted_by_us_only * 20 <= tally.compared,
        "CSN_SEED={seed}: {} of {}",
        tally.accepted_by_us_only,
        tally.compared
    );
}
