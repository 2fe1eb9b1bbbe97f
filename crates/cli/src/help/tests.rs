use super::*;
use crate::usage;
use countersign_testkit::{assert_no_other_snapshots, assert_snapshot};
use std::collections::BTreeSet;

const SNAPSHOTS: &str = "tests/help";

/// Every visible verb with the words that lead to it; `csn` itself first.
fn visible_paths() -> Vec<Vec<String>> {
    fn collect(command: &Command, path: &[String], paths: &mut Vec<Vec<String>>) {
        paths.push(path.to_vec());
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            collect(verb, &[path, &[verb.get_name().to_owned()]].concat(), paths);
        }
    }
    let mut paths = Vec::new();
    collect(&Cli::command(), &[], &mut paths);
    paths
}

/// What `csn WORDS` prints when clap answers it itself.
fn printed(words: &[&str], width: usize) -> String {
    let words = [PROGRAM].iter().chain(words);
    printable(&full_command(width).try_get_matches_from(words).expect_err("help"))
}

fn walk(command: &Command, visit: &mut impl FnMut(&Command)) {
    visit(command);
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        walk(verb, visit);
    }
}

#[test]
fn the_help_of_every_verb_reads_as_reviewed() {
    let mut names = BTreeSet::new();
    for path in visible_paths() {
        let name = if path.is_empty() { "csn.txt".to_owned() } else { format!("{}.txt", path.join("-")) };
        let text = page(&path, DEFAULT_WIDTH).expect("help");
        assert_snapshot(format!("{SNAPSHOTS}/{name}"), &text);
        names.insert(name);
    }
    assert_no_other_snapshots(SNAPSHOTS, &names);
}

#[test]
fn help_verb_prints_what_the_help_option_prints() {
    for path in visible_paths() {
        let words: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
        assert_eq!(page(&path, DEFAULT_WIDTH).expect("help"), printed(&words, DEFAULT_WIDTH), "{path:?}");
    }
    assert_eq!(printed(&["-h"], DEFAULT_WIDTH), printed(&["--help"], DEFAULT_WIDTH));
    assert_eq!(printed(&[], DEFAULT_WIDTH), printed(&["--help"], DEFAULT_WIDTH));
}

#[test]
fn no_help_is_wider_than_the_terminal() {
    for path in visible_paths() {
        for flag in ["-h", "--help"] {
            let words: Vec<&str> = path.iter().map(String::as_str).chain([flag]).collect();
            for line in printed(&words, DEFAULT_WIDTH).lines() {
                assert!(line.chars().count() <= DEFAULT_WIDTH, "{path:?} {flag}: {line}");
                assert_eq!(line, line.trim_end(), "{path:?} {flag}");
            }
        }
    }
    for line in printed(&["--help"], 50).lines().filter(|line| !line.contains("csn ")) {
        assert!(line.chars().count() <= 50, "{line}");
    }
}

#[test]
fn each_verb_is_in_one_group_and_takes_one_line() {
    let overview = printed(&["--help"], DEFAULT_WIDTH);
    let root = Cli::command();
    let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter().copied()).collect();
    let mut verbs: Vec<&str> =
        root.get_subcommands().filter(|verb| !verb.is_hide_set()).map(Command::get_name).collect();
    for verb in &verbs {
        let about = root.find_subcommand(verb).and_then(Command::get_about).expect("a text").to_string();
        assert!(overview.lines().any(|line| line == format!("  {verb:11}  {about}")), "{verb} in:\n{overview}");
    }
    grouped.sort_unstable();
    verbs.sort_unstable();
    assert_eq!(grouped, verbs);
}

/// Arguments whose values are names that need no explanation.
const PLAIN_VALUES: [&str; 3] = ["agent", "shell", "stream"];

#[test]
fn every_verb_option_argument_and_value_has_a_text() {
    let mut root = full_command(DEFAULT_WIDTH);
    root.build();
    let mut missing = Vec::new();
    walk(&root, &mut |command| {
        let name = command.get_bin_name().unwrap_or(PROGRAM).to_owned();
        if command.get_about().is_none() {
            missing.push(name.clone());
        }
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            if arg.get_help().is_none() {
                missing.push(format!("{name} {arg}"));
            }
            if PLAIN_VALUES.contains(&arg.get_id().as_str()) || !arg.get_action().takes_values() {
                continue;
            }
            for value in arg.get_possible_values() {
                if value.get_help().is_none() && !value.is_hide_set() {
                    missing.push(format!("{name} {arg}: {}", value.get_name()));
                }
            }
        }
    });
    assert!(missing.is_empty(), "no help text: {missing:#?}");
}

#[test]
fn every_verb_has_an_example_that_parses() {
    for path in visible_paths() {
        let path = path.join(" ");
        assert!(!examples(&path).is_empty(), "{path} has no example");
        for Example { line, .. } in examples(&path) {
            let from_program = &line[line.find(PROGRAM).expect("csn")..];
            let end = from_program.find([')', '>', '<', '|']).unwrap_or(from_program.len());
            let end = if from_program.contains('\'') { from_program.len() } else { end };
            let words = usage::tests::split(&from_program[..end]);
            if let Err(error) = Cli::command().try_get_matches_from(words) {
                panic!("`{line}`: {error}");
            }
        }
    }
}

#[test]
fn the_command_line_is_consistent() {
    full_command(DEFAULT_WIDTH).debug_assert();
}
