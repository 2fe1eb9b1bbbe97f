//! Generated configurations: JSONC with blanks, comments and commas in every legal place, YAML and TOML with many kinds of
//! neighbouring entries.

use super::{CLAUDE, CODEX, CURSOR, Case, GOOSE, TestHome, edit};
use jsonc_parser::ast::Value;
use proptest::prelude::*;

fn blank() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => Just(""),
        4 => Just(" "),
        4 => Just("\n"),
        2 => Just("\n    "),
        1 => Just("\t"),
        1 => Just("\r\n"),
        1 => Just(" // c, } ]\n"),
        1 => Just("/* a, { */"),
        1 => Just("/* a\n b */ "),
    ];
    proptest::collection::vec(piece, 0..3).prop_map(|pieces| pieces.concat())
}

fn enclosed(
    open: &'static str,
    close: &'static str,
    items: Vec<(String, String, String)>,
    last: Option<String>,
) -> String {
    let mut out = open.to_owned();
    let count = items.len();
    for (at, (before, item, after)) in items.into_iter().enumerate() {
        out += &format!("{before}{item}{after}");
        out += if at + 1 < count || last.is_some() { "," } else { "" };
    }
    out + &last.unwrap_or_default() + close
}

fn list(item: impl Strategy<Value = String>, open: &'static str, close: &'static str) -> impl Strategy<Value = String> {
    (proptest::collection::vec((blank(), item, blank()), 0..4), proptest::option::of(blank()), blank()).prop_map(
        move |(items, last, inside)| {
            if items.is_empty() { format!("{open}{inside}{close}") } else { enclosed(open, close, items, last) }
        },
    )
}

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![Just("1".to_owned()), Just("\"a // b, }\"".to_owned()), Just("null".to_owned())];
    leaf.prop_recursive(3, 12, 3, |inner| list(inner, "[", "]"))
}

/// An object without duplicate keys.
fn object(
    keys: &'static [&'static str],
    value: impl Strategy<Value = String> + Clone,
) -> impl Strategy<Value = String> {
    let prop = (blank(), value, blank(), blank(), any::<bool>());
    (proptest::collection::vec(prop, keys.len()), proptest::option::of(blank()), blank()).prop_map(
        move |(props, last, inside)| {
            let items: Vec<_> = props
                .into_iter()
                .zip(keys)
                .filter(|((.., there), _)| *there)
                .map(|((before, value, colon, after, _), key)| (before, format!("\"{key}\":{colon}{value}"), after))
                .collect();
            if items.is_empty() { format!("{{{inside}}}") } else { enclosed("{", "}", items, last) }
        },
    )
}

fn around(inner: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    (blank(), inner, blank()).prop_map(|(a, b, c)| format!("{a}{b}{c}"))
}

fn settings() -> impl Strategy<Value = String> {
    let group = object(&["matcher", "x"], prop_oneof![Just("\"Edit\"".to_owned()), Just("\"*\"".to_owned())].boxed());
    let hooks = object(&["PreToolUse", "Stop"], list(group, "[", "]").boxed());
    (around(object(&["a", "HOOKS", "b"], value().boxed())), hooks).prop_map(|(all, hooks)| {
        match all.split_once("\"HOOKS\":") {
            // The value that was there becomes the value of another key.
            Some((before, after)) => format!("{before}\"hooks\":{hooks},\"z\":{after}"),
            None => all,
        }
    })
}

fn servers() -> impl Strategy<Value = String> {
    let server = object(&["command", "url"], Just("\"x\"".to_owned()).boxed());
    let servers = object(&["one", "two"], server.boxed());
    around(object(&["mcpServers"], servers.boxed()))
}

/// The values of a text, independent of its layout.
fn meaning(text: &str) -> String {
    fn render(value: &Value<'_>) -> String {
        match value {
            Value::Object(o) => {
                let props: Vec<_> =
                    o.properties.iter().map(|p| format!("{}:{}", p.name.as_str(), render(&p.value))).collect();
                format!("{{{}}}", props.join(","))
            }
            Value::Array(a) => format!("[{}]", a.elements.iter().map(render).collect::<Vec<_>>().join(",")),
            Value::StringLit(s) => format!("{:?}", s.value),
            Value::NumberLit(n) => n.value.to_owned(),
            Value::BooleanLit(b) => b.value.to_string(),
            Value::NullKeyword(_) => "null".to_owned(),
        }
    }
    let parsed = jsonc_parser::parse_to_ast(text, &Default::default(), &Default::default()).unwrap();
    parsed.value.map_or_else(String::new, |v| render(&v))
}

/// Adds the entry and removes it again; only blanks may differ.
fn check_round_trip(case: &Case, text: &str) {
    let home = TestHome::new();
    let request = home.request(case.agent, case.mode, false);
    let part = request.parts().unwrap().remove(0);
    let owner = request.owner(None);
    let put = edit::put_entry(&part.path, Some(text), &part.entry, &owner, &[]).unwrap();
    assert!(put.text.len() > text.len() && put.text.contains("/opt/csn"), "{}", put.text);
    let back = edit::remove_entry(&part.path, &put.text, &part.entry, &owner, &put.made).unwrap();
    let words = |text: &str| text.split_whitespace().collect::<String>();
    assert_eq!(words(&back), words(text), "through\n{}", put.text);
    assert_eq!(meaning(&back), meaning(text), "through\n{}", put.text);
    let again = edit::put_entry(&part.path, Some(&back), &part.entry, &owner, &[]).unwrap();
    let back_again = edit::remove_entry(&part.path, &again.text, &part.entry, &owner, &again.made).unwrap();
    assert_eq!(words(&back_again), words(text));
}

/// One neighbouring extension in YAML, indented by two steps.
fn extension() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("    enabled: true\n"),
        Just("    cmd: npx # here\n"),
        Just("    args:\n    - -y\n    - \"a: b\"\n"),
        Just("    envs: {A: b}\n"),
        Just("    note: |\n      csn:\n        cmd: csn\n\n"),
        Just("    folded: >-\n      a\n      b\n"),
        Just("    quoted: \"one\n      two\"\n"),
        Just("    # a word\n"),
        Just("\n"),
        Just("  # less far in\n"),
        Just("# not in at all\n"),
    ];
    proptest::collection::vec(piece, 0..5).prop_map(|mut pieces| {
        let mut seen = std::collections::BTreeSet::new();
        pieces.retain(|p| !p.contains(':') || seen.insert(*p));
        pieces.concat()
    })
}

fn goose() -> impl Strategy<Value = String> {
    let extensions = proptest::collection::vec((extension(), any::<bool>()), 1..4);
    let before =
        prop_oneof![Just(""), Just("GOOSE_MODEL: x\n"), Just("# top\n\n"), Just("---\n"), Just("a: &x\n  b: 1\n")];
    let after = prop_oneof![Just(""), Just("z: 1\n"), Just("# end\n"), Just("\n\nlast: |+\n  kept\n\n")];
    (before, extensions, after).prop_map(|(before, extensions, after)| {
        let body: String = extensions
            .iter()
            .enumerate()
            .map(|(n, (body, flow))| {
                if *flow { format!("  e{n}: {{enabled: false}}\n") } else { format!("  e{n}:\n    name: e{n}\n{body}") }
            })
            .collect();
        format!("{before}extensions:\n{body}{after}")
    })
}

fn codex() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("[tui]\nx = 1 # one\n"),
        Just("[mcp_servers.a]\ncommand = \"a\"\nargs = [\n  \"x\", # y\n]\n"),
        Just("[mcp_servers.a.env]\nA = \"b\"\n"),
        Just("[projects.\"/srv/a b\"]\ntrust_level = 'trusted'\n"),
        Just("[[profiles.x]]\ntext = \"\"\"\n[mcp_servers.csn]\n\"\"\"\n"),
        Just("[features]\na.b = true\na.c = { d = 1 }\n"),
    ];
    let gap = prop_oneof![Just(""), Just("\n"), Just("\n\n"), Just("# a word\n"), Just("\n# a word\n\n")];
    let head = prop_oneof![Just(""), Just("model = \"x\"\n"), Just("# top\n"), Just("mcp_servers.d.command = \"d\"\n")];
    (head, proptest::collection::vec((gap, piece), 0..5), any::<bool>()).prop_map(|(head, pieces, crlf)| {
        let mut seen = std::collections::BTreeSet::new();
        let body: String = pieces.iter().filter(|(_, p)| seen.insert(*p)).map(|(g, p)| format!("{g}{p}")).collect();
        let text = format!("{head}{body}");
        if crlf { text.replace('\n', "\r\n") } else { text }
    })
}

/// Adds the entry and removes it again, to the byte. Only an invalid text is refused.
fn check_exact_round_trip(case: &Case, text: &str) {
    let home = TestHome::new();
    let request = home.request(case.agent, case.mode, false);
    let part = request.parts().unwrap().remove(0);
    let owner = request.owner(None);
    match edit::put_entry(&part.path, Some(text), &part.entry, &owner, &[]) {
        Ok(put) => {
            let back = edit::remove_entry(&part.path, &put.text, &part.entry, &owner, &put.made).unwrap();
            assert_eq!(back, text, "through\n{}", put.text);
        }
        Err(why) => assert!(why.to_string().contains("not valid"), "{why}:\n{text}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn hooks_are_added_and_removed(text in settings()) {
        check_round_trip(&CLAUDE, &text);
    }

    #[test]
    fn servers_are_added_and_removed(text in servers()) {
        check_round_trip(&CURSOR, &text);
    }

    #[test]
    fn extensions_are_added_and_removed(text in goose()) {
        check_exact_round_trip(&GOOSE, &text);
    }

    #[test]
    fn tables_are_added_and_removed(text in codex()) {
        check_exact_round_trip(&CODEX, &text);
    }
}
