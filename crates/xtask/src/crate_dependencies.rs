//! The arrows between the rooms, checked: a boundary that no tool checks will not hold.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What each room may depend on, of ours.
const ALLOWED_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("policy", &["model"]),
    ("redact", &["model"]),
    ("store", &["model"]),
    ("shim", &["model", "redact", "store"]),
    ("spawn", &["store"]),
    ("daemon", &["model", "policy", "redact", "store", "shim"]),
    ("install", &["model", "redact", "spawn", "store"]),
    ("client", &["model"]),
    ("cli", &["model", "client", "install", "policy", "redact", "spawn", "store"]),
    ("bin", &["cli", "daemon", "shim", "spawn"]),
    ("testkit", &["client", "model"]),
    ("mcp-fixture", &["daemon"]),
    ("xtask", &[]),
    ("trials", &["xtask"]),
];

/// What a room must never reach, directly or through others.
const FORBIDDEN_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("model", &["tokio", "rustix", "libc", "rusqlite"]),
    ("policy", &["tokio", "rustix", "libc", "rusqlite"]),
    ("redact", &["tokio", "rustix", "rusqlite"]),
    ("store", &["tokio"]),
    ("shim", &["tokio", "rusqlite", "axum"]),
    ("spawn", &["tokio", "rusqlite", "axum", "countersign-shim", "countersign-daemon"]),
    ("install", &["tokio", "axum", "countersign-client", "countersign-shim", "countersign-daemon"]),
    // With its feature `async` it is on tokio; without it, as `cli` links it, never.
    ("client", &["tokio", "rusqlite"]),
    ("cli", &["tokio", "axum", "countersign-shim", "countersign-daemon"]),
];

fn read_metadata() -> Value {
    let args = ["metadata", "--format-version", "1", "--offline", "--no-deps"];
    let out = crate::cargo().args(args).output().expect("cargo runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("cargo metadata is JSON")
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn crate_name(package: &str) -> Option<&str> {
    package.strip_prefix("countersign-")
}

#[test]
fn crates_depend_only_on_allowed_crates() {
    let metadata = read_metadata();
    let mut seen = BTreeSet::new();
    for package in list(&metadata, "packages") {
        let Some(name) = package["name"].as_str().and_then(crate_name) else { continue };
        seen.insert(name.to_owned());
        let may = ALLOWED_DEPENDENCIES
            .iter()
            .find(|(n, _)| *n == name)
            .unwrap_or_else(|| panic!("{name} has no row in MAY"))
            .1;
        for dependency in list(package, "dependencies") {
            let on = dependency["name"].as_str().and_then(crate_name);
            let shipped = dependency["kind"].is_null();
            if let Some(on) = on.filter(|_| shipped) {
                assert!(may.contains(&on), "{name} must not depend on {on}");
                assert_ne!(on, "testkit", "{name} ships the testkit");
            }
        }
    }
    assert_eq!(seen, ALLOWED_DEPENDENCIES.iter().map(|(n, _)| (*n).to_owned()).collect(), "rooms and rows");
}

/// Features are unified over a whole build; here each room is asked about by itself, as it is linked.
#[test]
fn crates_never_reach_forbidden_dependencies() {
    for (name, never) in FORBIDDEN_DEPENDENCIES {
        let package = format!("countersign-{name}");
        // The shell parser names a test library among what it needs, and that one files and terminals.
        let prune = ["--prune", "brush-parser"];
        let args =
            ["tree", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}", "--package", &package];
        let args = args.into_iter().chain(prune.into_iter().filter(|_| ["policy", "cli"].contains(name)));
        let out = crate::cargo().args(args).output().expect("cargo runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let tree = String::from_utf8_lossy(&out.stdout);
        let mut reached: BTreeMap<&str, ()> = BTreeMap::new();
        for line in tree.lines().skip(1) {
            reached.insert(line.split(' ').next().unwrap_or_default(), ());
        }
        assert!(*name == "model" || reached.contains_key("countersign-model"), "the tree of {name} was read");
        for bad in *never {
            assert!(!reached.contains_key(bad), "{name} reaches {bad}");
        }
    }
}
