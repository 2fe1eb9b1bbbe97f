//! Tests that each crate depends only on the crates that it may use.

use serde_json::Value;
use std::collections::BTreeSet;

/// The crates of this workspace that each crate may depend on.
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

/// What a crate must not depend on, directly or through others.
const FORBIDDEN_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("model", &["tokio", "rustix", "libc", "rusqlite"]),
    ("policy", &["tokio", "rustix", "libc", "rusqlite"]),
    ("redact", &["tokio", "rustix", "rusqlite"]),
    ("store", &["tokio"]),
    ("shim", &["tokio", "rusqlite", "axum"]),
    ("spawn", &["tokio", "rusqlite", "axum", "countersign-shim", "countersign-daemon"]),
    ("install", &["tokio", "axum", "countersign-client", "countersign-shim", "countersign-daemon"]),
    // Its feature `async` uses tokio; `cli` links it without that feature.
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
        let allowed = ALLOWED_DEPENDENCIES
            .iter()
            .find(|(n, _)| *n == name)
            .unwrap_or_else(|| panic!("{name} has no entry in ALLOWED_DEPENDENCIES"))
            .1;
        for dependency in list(package, "dependencies") {
            let on = dependency["name"].as_str().and_then(crate_name);
            let shipped = dependency["kind"].is_null();
            if let Some(on) = on.filter(|_| shipped) {
                assert!(allowed.contains(&on), "{name} must not depend on {on}");
                assert_ne!(on, "testkit", "{name} must not ship the testkit");
            }
        }
    }
    assert_eq!(seen, ALLOWED_DEPENDENCIES.iter().map(|(n, _)| (*n).to_owned()).collect(), "crates and entries");
}

/// A whole build unifies features; this checks the dependencies of each crate alone.
#[test]
fn crates_never_reach_forbidden_dependencies() {
    for (name, forbidden) in FORBIDDEN_DEPENDENCIES {
        let package = format!("countersign-{name}");
        // The shell parser depends on a test library that depends on files and terminals.
        let prune = ["--prune", "brush-parser"];
        let args =
            ["tree", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}", "--package", &package];
        let args = args.into_iter().chain(prune.into_iter().filter(|_| ["policy", "cli"].contains(name)));
        let out = crate::cargo().args(args).output().expect("cargo runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let tree = String::from_utf8_lossy(&out.stdout);
        let lines = tree.lines().skip(1);
        let reached: BTreeSet<&str> = lines.map(|line| line.split(' ').next().unwrap_or_default()).collect();
        assert!(*name == "model" || reached.contains("countersign-model"), "cargo printed the tree of {name}");
        for package in *forbidden {
            assert!(!reached.contains(package), "{name} depends on {package}");
        }
    }
}
