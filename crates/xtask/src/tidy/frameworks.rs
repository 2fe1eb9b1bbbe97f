//! Rule: each framework stays behind the module that wraps it, so that it can be replaced there.

use super::{Finding, module_tree::ModuleFile};
use std::path::Path;

/// A crate, and where it may be named.
const ALLOWED_PLACES: &[(&str, &[&str])] = &[
    ("axum", &["crates/daemon/src/http/", "crates/mcp-fixture/src/"]),
    ("rmcp", &["crates/daemon/src/mcp/protocol.rs", "crates/mcp-fixture/src/"]),
];

fn check(file: &ModuleFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, places) in ALLOWED_PLACES {
        let allowed = places.iter().any(|place| file.file.starts_with(Path::new(place)));
        let named = file.source.path_starts.iter().filter(|head| !allowed && head.name == *name);
        findings.extend(named.map(|head| {
            let advice = format!("`{name}` is named outside of {}: move this there", places.join(" and "));
            Finding::new(&file.file.display().to_string(), head.line, advice)
        }));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{assert_none, source::Source, workspace::Workspace};

    fn made_up(file: &str, text: &str) -> ModuleFile {
        ModuleFile { file: file.into(), module: Vec::new(), test: false, source: Source::read(text).unwrap() }
    }

    #[test]
    fn a_framework_outside_of_its_place_is_found() {
        let check = |file: &str, text: &str| check(&made_up(file, text)).iter().map(ToString::to_string).collect();
        let found: Vec<String> = check("crates/daemon/src/ops/mod.rs", "use std::fmt;\nuse axum::Router;");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/daemon/src/ops/mod.rs:2: `axum` is named outside of"));
        let found: Vec<String> = check("crates/daemon/src/http/mcp.rs", "use axum::Router; use rmcp::model;");
        assert_eq!(found.len(), 1);
        assert!(check("crates/daemon/src/mcp/protocol.rs", "fn f(x: rmcp::model::Tool) {}").is_empty());
        assert!(check("crates/store/src/lib.rs", "// axum::x\nconst A: &str = \"axum::\";").is_empty());
    }

    #[test]
    fn every_framework_of_this_tree_stays_in_its_place() {
        let workspace = Workspace::read();
        let files = workspace.crates.iter().flat_map(|c| &c.targets).flat_map(|t| &t.files);
        assert_none(files.flat_map(check).collect());
    }
}
