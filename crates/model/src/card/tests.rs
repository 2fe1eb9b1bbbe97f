//! Cards built from data: one test for each kind of question.

use super::*;
use serde_json::{Value, json};

/// An approval of `git push` with these members changed.
fn approval(changes: Value) -> Approval {
    let mut approval = json!({
        "id": "ap_01m7h4jys3gnc16j", "task_id": "tk_01m7h4jys3gnc16g", "state": {"is": "waiting"},
        "asked_at": "2026-11-16T03:00:00.000000Z", "principal": "pr_0000000000000000", "tool": "shell",
        "display": "git push", "uncovered": ["git push"], "cwd": "/home/u/repo", "risks": ["network"],
        "about": [{"verb": "git push", "directories": ["/home/u/repo"], "risks": ["network"]}],
        "options": ["once", "here", "anywhere", "deny"],
    });
    merge(&mut approval, changes);
    serde_json::from_value(approval).unwrap()
}

fn merge(into: &mut Value, changes: Value) {
    let Value::Object(changes) = changes else { panic!("changes are an object") };
    for (name, value) in changes {
        into[name] = value;
    }
}

/// The part of the card that only the daemon fills in, with these members changed.
fn card(changes: Value) -> Value {
    let mut card = json!({"asked_by": "you", "risks": [], "offers": [], "scripts": []});
    merge(&mut card, changes);
    json!({ "card": card })
}

fn view(changes: Value) -> CardView {
    CardView::from_approval(&approval(changes))
}

#[test]
fn a_single_command_is_part_of_the_question() {
    let view = view(json!({}));
    assert_eq!(view.question(100), "Approve `git push` in /home/u/repo?");
    assert_eq!(view.question(3), "Approve `git… (5 more characters)` in /home/u/repo?");
    assert_eq!((view.whole_command(100), view.is_longer_than(8), view.is_longer_than(7)), (None, false, true));
    assert_eq!(view.risks, ["risks: network"]);
    assert!(view.commands.is_empty() && view.scripts.is_empty() && view.variables.is_empty());
    assert_eq!((view.title, view.rationale, view.asked_by, view.sandbox), (None, None, None, None));
    let labels: Vec<_> = view.choices.iter().map(|c| (c.key, c.label, c.dangerous, c.takes_words)).collect();
    let wanted = [
        ('o', "Once", false, false),
        ('h', "Always here", false, false),
        ('a', "Always anywhere", true, false),
        ('d', "Deny", false, true),
    ];
    assert_eq!(labels, wanted);
}

#[test]
fn a_question_without_risks_or_directories_says_so() {
    let view = view(json!({"risks": [], "about": []}));
    assert_eq!(view.risks, ["risks: none"]);
    assert!(view.directories.is_empty());
    assert_eq!(view.question(100), "Approve `git push` in /home/u/repo?");
}

#[test]
fn several_commands_are_listed_each_once() {
    let several = json!({
        "display": "a && b && a", "uncovered": ["a", "b", "a"],
        "about": [
            {"verb": "a", "directories": ["/p"], "risks": []},
            {"verb": "b", "directories": ["/p"], "risks": []},
            {"verb": "a", "directories": ["/p"], "risks": []},
        ],
    });
    let view = view(several);
    assert_eq!(view.question(100), "Approve in /p?");
    assert_eq!(view.whole_command(100).as_deref(), Some("a && b && a"));
    let listed: Vec<_> = view.commands.iter().map(|c| (c.command.as_str(), c.directories.len())).collect();
    assert_eq!(listed, [("a", 0), ("b", 0)]);
}

#[test]
fn several_directories_are_named_beside_their_commands() {
    let view = view(json!({
        "uncovered": ["a", "b"],
        "about": [
            {"verb": "a", "directories": ["/p"], "risks": []},
            {"verb": "b", "directories": ["/q", "/p"], "risks": []},
        ],
    }));
    assert_eq!(view.question(100), "Approve in 2 directories?");
    assert_eq!(view.directories, ["/p", "/q"]);
    assert_eq!(view.commands[1].directories, ["/q", "/p"]);
}

#[test]
fn the_folder_of_a_session_is_called_this_session() {
    let view = view(card(json!({"in_session_folder": true})));
    assert_eq!(view.question(100), "Approve `git push` in this session?");
}

#[test]
fn a_directory_change_shows_its_display_text_as_the_question() {
    let mut moves = card(json!({"asked_by": "agent x", "variables": ["A=1"]}));
    merge(&mut moves, json!({"tool": "set_working_directory", "display": "Work in /srv?", "title": "elsewhere"}));
    let view = view(moves);
    assert_eq!((view.question(3).as_str(), view.title.as_deref()), ("Work in /srv?", Some("elsewhere")));
    assert!(view.risks.is_empty() && view.variables.is_empty() && view.asked_by.is_none());
    assert_eq!(view.in_one_line(1000), None);
}

#[test]
fn title_reason_and_requester_are_separate_bounded_texts() {
    let mut asks = card(json!({
        "asked_by": "agent `claude`", "variables": ["A=1"], "risks": ["network: it talks to a remote"],
        "confinement": "shield", "sandbox": {"network": "open", "why": {"because": "writes"}},
    }));
    merge(&mut asks, json!({"title": "ship \u{1b}[2J", "rationale": "r".repeat(600), "asker": "gone"}));
    let view = view(asks);
    assert_eq!(view.title.as_deref(), Some("ship \\u{1b}[2J"));
    assert_eq!(view.rationale, Some(format!("{}… (100 more characters)", "r".repeat(500))));
    assert!(view.asker_gone);
    assert_eq!(view.asked_by.as_deref(), Some("agent `claude`"));
    assert_eq!(view.variables, ["A=1"]);
    assert_eq!(view.risks, ["network: it talks to a remote"]);
    assert!(view.sandbox.is_some_and(|sandbox| sandbox.starts_with("not sandboxed: ")));
}

#[test]
fn a_file_tool_shows_no_sandbox() {
    let mut writes = card(json!({"sandbox": {"network": "none"}}));
    merge(&mut writes, json!({"tool": "write_file"}));
    assert_eq!(view(writes).sandbox, None);
}

#[test]
fn a_long_script_shows_its_beginning_and_its_end() {
    let content: Vec<String> = (1..=10).map(|n| format!("line {n}")).collect();
    let view = view(card(json!({"scripts": [{
        "path": "/p/x.sh", "sha256": "ab".repeat(32), "content": content.join("\n"), "omitted": 7, "changed": true,
    }]})));
    let script = &view.scripts[0];
    assert_eq!((script.path.as_str(), script.sha256.as_str()), ("/p/x.sh", "abababababab"));
    assert_eq!((script.changed, script.omitted), (true, 7));
    let check = |room: usize, expect: (usize, usize, usize)| {
        let (head, left_out, tail) = script.excerpt(room);
        assert_eq!((head.len(), left_out, tail.len()), expect, "{room}");
    };
    check(usize::MAX, (10, 0, 0));
    check(10, (10, 0, 0));
    check(6, (4, 4, 2));
    check(0, (0, 10, 0));
    assert_eq!(script.excerpt(6).2, ["line 9", "line 10"]);
}

#[test]
fn a_choice_names_its_grants_and_examples_of_what_they_cover() {
    let offer = json!({
        "choice": "here", "saves": ["git push in /home/u/repo"], "exact": true,
        "covers": ["git push a", "git push b", "git push c"], "does_not_cover": ["w", "x", "y", "z"],
    });
    let view = view(card(json!({ "offers": [offer] })));
    let here = view.choices.iter().find(|c| c.choice == Choice::Here).unwrap();
    assert_eq!(here.saves, ["git push in /home/u/repo"]);
    assert!(here.these_words_only && !here.takes_words);
    assert_eq!(here.would_cover, ["git push a", "git push b"]);
    assert_eq!(here.would_not_cover, ["w", "x", "y"]);
    let once = &view.choices[0];
    assert!(once.saves.is_empty() && !once.these_words_only && once.would_cover.is_empty());
}

#[test]
fn the_reason_why_nothing_can_be_saved_is_bounded() {
    let view = view(card(json!({"not_saved": "n".repeat(200)})));
    assert_eq!(view.not_saved, Some(format!("{}… (40 more characters)", "n".repeat(160))));
}

#[test]
fn a_one_line_question_is_complete_or_absent() {
    let line = |changes: Value| view(changes).in_one_line(20);
    assert_eq!(line(json!({})).as_deref(), Some("Approve `git push` in /home/u/repo? Risks: network."));
    assert_eq!(line(json!({"risks": []})).as_deref(), Some("Approve `git push` in /home/u/repo?"));
    let both = json!({"display": "a; b", "uncovered": ["a", "b"], "about": [
        {"verb": "a", "directories": ["/p"], "risks": []}, {"verb": "b", "directories": ["/q"], "risks": []},
    ]});
    assert_eq!(line(both).as_deref(), Some("Approve `a; b` in /home/u/repo? It works in /p, /q. Risks: network."));
    for display in ["x` in /? Approve `y", "a\nb", "a command that is longer"] {
        assert_eq!(line(json!({ "display": display })), None, "{display}");
    }
}
