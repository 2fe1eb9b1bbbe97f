//! Properties of every command, over generated and arbitrary text.

use crate::{
    generate::{Random, script},
    support::{ROOT, assess, grant, plan, verdict_word},
};
use countersign_model::{Assessment, Grant};
use proptest::prelude::*;

const VERBS: &[&str] = &[
    "rm", "cat", "ls", "git push", "git", "make", "alpha", "beta", "gamma", "delta", "grep", "head", "sort", "bash",
    "echo", "sudo", "csn down",
];

fn judged(command: &str, grants: &[Grant]) -> Assessment {
    assess(command, ROOT, &[ROOT], grants, None)
}

fn strictness(assessment: &Assessment) -> u8 {
    match verdict_word(assessment) {
        "allow" => 0,
        "ask" => 1,
        _ => 2,
    }
}

fn any_grant() -> impl Strategy<Value = Grant> {
    let place = prop_oneof![Just(None), Just(Some(ROOT)), Just(Some("/work/proj/sub")), Just(Some("/srv"))];
    (0..VERBS.len(), place).prop_map(|(verb, place)| grant(VERBS[verb], place))
}

/// Fragments of shell text, some of them dangerous, in any order.
fn fragments() -> impl Strategy<Value = String> {
    let pieces = [
        "ls",
        "rm",
        "-rf",
        "/",
        "~",
        "$HOME",
        "cat",
        "'",
        "\"",
        "$(",
        ")",
        "`",
        "${",
        "}",
        "{",
        "|",
        "&",
        ";",
        "\n",
        "<<EOF",
        "EOF",
        "<",
        ">",
        "(",
        "((",
        "))",
        "[[",
        "]]",
        "if",
        "then",
        "fi",
        "for",
        "in",
        "do",
        "done",
        "case",
        "esac",
        "x=1",
        "$x",
        "*",
        "?",
        "[",
        "]",
        "\\",
        "#",
        "!",
        "=",
        " ",
        " ",
        " ",
        "eval",
        "csn down",
        "sudo",
        "git push",
        ".env",
        "/etc/shadow",
        "\u{200b}",
        "\r",
        "é",
        "$'\\x72m'",
        "<(",
        ">(",
        "function f",
        "coproc",
        "time",
        "&&",
        "||",
    ];
    prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..24).prop_map(|p| p.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics_on_any_text(text in "\\PC{0,200}|[\\x00-\\x7f]{0,120}", pieces in fragments()) {
        judged(&text, &[]);
        judged(&pieces, &[grant("rm", None)]);
        judged(&format!("bash -c '{}'", pieces.replace('\'', "'\\''")), &[]);
    }

    #[test]
    fn another_command_never_lowers_the_risk(seed in any::<u64>(), more in any::<u64>(), pieces in fragments()) {
        let (first, second) = (script(&mut Random::new(seed)), script(&mut Random::new(more)));
        // For text that cannot be read, the salvaged parts depend on where it ends.
        prop_assume!(!plan(&first, ROOT).occurrences.iter().any(|o| o.unread));
        let (alone, both) = (judged(&first, &[]), judged(&format!("{first}\n{second}"), &[]));
        for risk in alone.risk_set() {
            prop_assert!(both.risk_set().contains(&risk), "{first}\n{second}: {risk:?}");
        }
        prop_assert!(strictness(&both) >= strictness(&alone), "{first}\n{second}");
        // Anything may follow a text that was read to its end.
        let with_pieces = judged(&format!("{first}\n{pieces}"), &[]);
        prop_assert!(strictness(&with_pieces) >= strictness(&alone), "{first}\n{pieces}");
    }

    #[test]
    fn text_that_bash_ignores_changes_nothing(seed in any::<u64>(), before in "[ \\t\\n]{0,4}(# [a-z ]{0,12}\n)?", after in "[ \\t\\n]{0,4}( # [a-z' ]{0,12})?") {
        let text = script(&mut Random::new(seed));
        // For text that cannot be read, a limited number of parts is tried, and another line may reach the limit
        // earlier.
        prop_assume!(!plan(&text, ROOT).occurrences.iter().any(|o| o.unread));
        let plain = judged(&text, &[]);
        // A newline first: the text may end inside a comment or in a here-document's delimiter.
        let padded = judged(&format!("{before}{text}\n{after}"), &[]);
        prop_assert_eq!(verdict_word(&plain), verdict_word(&padded), "{}", text);
        prop_assert_eq!(plain.risk_set(), padded.risk_set(), "{}", text);
        prop_assert_eq!(plain.directories, padded.directories, "{}", text);
    }

    #[test]
    fn the_quoting_of_a_word_changes_nothing(
        words in prop::collection::vec("[a-z][a-z./=-]{0,8}", 1..5),
        program in prop::sample::select(vec!["ls", "cat", "rm", "git", "sort", "grep", "make", "csn", "sed"]),
        styles in prop::collection::vec(0..5usize, 6),
    ) {
        let mut all = vec![program.to_owned()];
        all.extend(words);
        let plain = all.join(" ");
        let quoted = all.iter().zip(&styles).map(|(w, style)| match style {
            0 => format!("'{w}'"),
            1 => format!("\"{w}\""),
            2 => format!("$'{w}'"),
            3 => w.chars().map(|c| format!("\\{c}")).collect(),
            _ => format!("{}''\"{}\"", &w[..1], &w[1..]),
        }).collect::<Vec<_>>().join(" ");
        let (a, b) = (judged(&plain, &[]), judged(&quoted, &[]));
        prop_assert_eq!(verdict_word(&a), verdict_word(&b), "{} | {}", plain, quoted);
        prop_assert_eq!(a.risk_set(), b.risk_set(), "{} | {}", plain, quoted);
    }

    #[test]
    fn another_grant_never_makes_a_verdict_stricter(seed in any::<u64>(), grants in prop::collection::vec(any_grant(), 0..4), more in any_grant()) {
        let text = script(&mut Random::new(seed));
        let without = judged(&text, &grants);
        let with = judged(&text, &[&grants[..], &[more]].concat());
        prop_assert!(strictness(&with) <= strictness(&without), "{}", text);
    }

    #[test]
    fn deny_is_deny_under_every_grant(seed in any::<u64>(), grants in prop::collection::vec(any_grant(), 0..6), n in 0..6usize) {
        let denied = ["rm -rf /", "csn down", "cat ~/.config/countersign/config.toml", "mkfs.ext4 /dev/sda1", ":(){ :|:& };:", "sudo rm -rf ~"][n];
        for text in [format!("{}\n{denied}", script(&mut Random::new(seed))), format!("bash -c '{denied}' && ls"), format!("echo \"$({denied})\"")] {
            // For text that cannot be read, the salvaged parts depend on what precedes them; it asks at least.
            let unread = plan(&text, ROOT).occurrences.iter().any(|o| o.unread);
            let answer = judged(&text, &grants);
            prop_assert!(verdict_word(&answer) == "deny" || unread && verdict_word(&answer) == "ask" && answer.one_shot, "{}", text);
        }
    }

    #[test]
    fn spans_are_inside_the_text(seed in any::<u64>()) {
        let text = script(&mut Random::new(seed));
        for occurrence in plan(&text, ROOT).occurrences {
            prop_assert!(occurrence.span.start <= occurrence.span.end && occurrence.span.end <= text.len(), "{text}: {:?}", occurrence.span);
        }
    }
}
