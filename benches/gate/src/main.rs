//! Reading and judging, beside the bare parse of tree-sitter-bash, over the same commands in the same run.

use countersign_model::{Facts, Grants};
use countersign_policy::{CheckedRules, JudgeContext, ParseContext, judge, read_text};
use std::{hint::black_box, time::Instant};

const CWD: &str = "/work/proj";
const HOME: &str = "/home/dev";
const ROUNDS: usize = 200;

fn commands() -> Vec<String> {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/policy/tests/gate/data");
    let day = std::fs::read_to_string(format!("{data}/day.txt")).expect("the day's work");
    let mut all: Vec<String> =
        day.lines().filter(|l| !l.starts_with("# ")).map(|l| l.trim_start_matches("? ").replace('⏎', "\n")).collect();
    let sample = std::fs::read_to_string(format!("{data}/gate-sample.jsonl")).expect("the sample");
    for line in sample.lines() {
        let entry: serde_json::Value = serde_json::from_str(line).expect("JSON");
        all.extend(entry["command"].as_str().map(str::to_owned));
    }
    all
}

fn decide(command: &str, facts: &Facts, context: &JudgeContext<'_>, rules: &CheckedRules) {
    let plan = read_text(black_box(command), &ParseContext { cwd: CWD, home: HOME, environment: &|_| false });
    black_box(judge(&plan, facts, context, rules, &Grants::default()));
}

/// Microseconds of every call.
fn each(commands: &[String], mut call: impl FnMut(&str)) -> Vec<f64> {
    commands.iter().for_each(|c| call(c));
    let mut all = Vec::with_capacity(commands.len() * ROUNDS);
    for _ in 0..ROUNDS {
        for command in commands {
            let start = Instant::now();
            call(command);
            all.push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    all.sort_by(f64::total_cmp);
    all
}

fn figures(all: &[f64]) -> (f64, f64, f64) {
    (all.iter().sum::<f64>() / all.len() as f64, all[all.len() / 2], all[all.len() * 99 / 100])
}

fn main() {
    let commands = commands();
    let (facts, rules) = (Facts::none(CWD), CheckedRules::default());
    let context = JudgeContext::personal(HOME, vec![CWD.to_owned()]);
    let gate = figures(&each(&commands, |c| decide(c, &facts, &context, &rules)));
    let mut parser = tree_sitter::Parser::new();
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).expect("the grammar fits");
    let tree_sitter_figures = figures(&each(&commands, |c| {
        black_box(parser.parse(black_box(c), None));
    }));
    println!("{} commands, {ROUNDS} rounds, microseconds: mean, p50, p99", commands.len());
    println!("read + judge              {:7.1} {:7.1} {:7.1}", gate.0, gate.1, gate.2);
    println!(
        "tree-sitter-bash, parse   {:7.1} {:7.1} {:7.1}",
        tree_sitter_figures.0, tree_sitter_figures.1, tree_sitter_figures.2
    );
    println!("ratio of the means        {:7.2}", gate.0 / tree_sitter_figures.0);
    let hostile = [
        ("long word", "echo ".to_owned() + &"a".repeat(65_000)),
        ("substitutions", "$(".repeat(32_000)),
        ("groups", "{ ".repeat(32_000)),
        ("subscripts", "a[".repeat(32_000)),
        ("quotes", "\"'".repeat(32_000)),
        ("commands", "ls;".repeat(21_000)),
        ("pipes", "ls|".repeat(21_000) + "ls"),
        ("braces", "echo ".to_owned() + &"{a,b}".repeat(13_000)),
        ("words", "echo ".to_owned() + &"a ".repeat(32_000)),
        ("nested, as deep as it goes", "echo \"$(".repeat(31) + &"a ".repeat(30_000) + &")\"".repeat(31)),
        ("backquotes", "`a ".repeat(21_000)),
        ("documents", "cat <<A\nx\nA\n".repeat(5_000)),
        ("continuations", "ls \\\n".repeat(13_000)),
        ("continuations in one word", "echo \"".to_owned() + &"aaa\\\n".repeat(13_000) + "\""),
        ("continuations without an end", "echo \"".to_owned() + &"a".repeat(50_000) + &"a\\\n".repeat(4_000)),
        ("continuations, as deep as it goes", "echo \"$(".repeat(31) + &"a \\\n".repeat(250) + &")\"".repeat(31)),
        ("assignments", "a=b ".repeat(16_000) + "ls"),
        ("lines that cannot be read", "if ( ls \"\n".repeat(6_000)),
        ("globs", "ls ".to_owned() + &"*a".repeat(30_000)),
        ("arithmetic", "echo $((".to_owned() + &"1+".repeat(30_000) + "1))"),
        ("cases", "case x in a) ".repeat(5_000)),
    ];
    println!("64 KiB of hostile text, milliseconds, best of 5");
    for (name, text) in hostile {
        let best = (0..5)
            .map(|_| {
                let start = Instant::now();
                decide(&text, &facts, &context, &rules);
                start.elapsed().as_secs_f64() * 1e3
            })
            .fold(f64::MAX, f64::min);
        println!("  {name:28} {best:7.2}");
    }
}
