//! What holds for every command: by properties, over generated and over arbitrary text.

use crate::{
    generate::{Random, script},
    support::{ROOT, assess, grant, plan, word},
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
    match word(assessment) {
        "allow" => 0,
        "ask" => 1,
        _ => 2,
    }
}

fn any_grant() -> impl Strategy<Value = Grant> {
    let place = prop_oneof![Just(None), Just(Some(ROOT)), Just(Some("/work/proj/sub")), Just(Some("/srv"))];
    (0..VERBS.len(), place).prop_map(|(verb, place)| grant(VERBS[verb], place))
}

/// Pieces of shell, some of them dangerous, in any order.
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
    fn a_command_more_never_lowers_the_risk(seed in any::<u64>(), more in any::<u64>(), pieces in fragments()) {
        let (first, second) = (script(&mut Random::new(seed)), script(&mut Random::new(more)));
        // Of text that cannot be read, what can be salvaged depends on where it ends.
        prop_assume!(!plan(&first, ROOT).occurrences.iter().any(|o| o.unread));
        let (alone, both) = (judged(&first, &[]), judged(&format!("{first}\n{second}"), &[]));
        for risk in alone.risk_set() {
            prop_assert!(both.risk_set().contains(&risk), "{first}\n{second}: {risk:?}");
        }
        prop_assert!(strictness(&both) >= strictness(&alone), "{first}\n{second}");
        // Behind text that was read to its end, anything may stand.
        let with_pieces = judged(&format!("{first}\n{pieces}"), &[]);
        prop_assert!(strictness(&with_pieces) >= strictness(&alone), "{first}\n{pieces}");
    }

    #[test]
    fn what_bash_ignores_changes_nothing(seed in any::<u64>(), before in "[ \\t\\n]{0,4}(# [a-z ]{0,12}\n)?", after in "[ \\t\\n]{0,4}( # [a-z' ]{0,12})?") {
        let text = script(&mut Random::new(seed));
        // Of text that cannot be read a bounded number of pieces is tried: a line more may end that sooner.
        prop_assume!(!plan(&text, ROOT).occurrences.iter().any(|o| o.unread));
        let plain = judged(&text, &[]);
        // A newline first: the text may end inside a comment, or in a document's delimiter.
        let padded = judged(&format!("{before}{text}\n{after}"), &[]);
        prop_assert_eq!(word(&plain), word(&padded), "{}", text);
        prop_assert_eq!(plain.risk_set(), padded.risk_set(), "{}", text);
        prop_assert_eq!(plain.directories, padded.directories, "{}", text);
    }

    #[test]
    fn how_a_word_is_quoted_changes_nothing(
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
        prop_assert_eq!(word(&a), word(&b), "{} | {}", plain, quoted);
        prop_assert_eq!(a.risk_set(), b.risk_set(), "{} | {}", plain, quoted);
    }

    #[test]
    fn a_grant_more_never_makes_it_stricter(seed in any::<u64>(), grants in prop::collection::vec(any_grant(), 0..4), more in any_grant()) {
        let text = script(&mut Random::new(seed));
        let without = judged(&text, &grants);
        let with = judged(&text, &[&grants[..], &[more]].concat());
        prop_assert!(strictness(&with) <= strictness(&without), "{}", text);
    }

    #[test]
    fn deny_is_deny_under_every_grant(seed in any::<u64>(), grants in prop::collection::vec(any_grant(), 0..6), n in 0..6usize) {
        let denied = ["rm -rf /", "csn down", "cat ~/.config/countersign/config.toml", "mkfs.ext4 /dev/sda1", ":(){ :|:& };:", "sudo rm -rf ~"][n];
        for text in [format!("{}\n{denied}", script(&mut Random::new(seed))), format!("bash -c '{denied}' && ls"), format!("echo \"$({denied})\"")] {
            // Of text that cannot be read, what can be salvaged depends on what stands before it; it asks at least.
            let unread = plan(&text, ROOT).occurrences.iter().any(|o| o.unread);
            let answer = judged(&text, &grants);
            prop_assert!(word(&answer) == "deny" || unread && word(&answer) == "ask" && answer.one_shot, "{}", text);
        }
    }

    #[test]
    fn spans_lie_in_the_text(seed in any::<u64>()) {
        let text = script(&mut Random::new(seed));
        for occurrence in plan(&text, ROOT).occurrences {
            prop_assert!(occurrence.span.start <= occurrence.span.end && occurrence.span.end <= text.len(), "{text}: {:?}", occurrence.span);
        }
    }
}
