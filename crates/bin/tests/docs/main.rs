//! The documentation, run: every command in README.md and docs/*.md is typed into a terminal and prints what the page says.
//!
//! `page.rs` says how pages are written, `compare.rs` what counts as the same. `COUNTERSIGN_WRITE_DOCS=1` writes the outputs that
//! differ into the pages; `COUNTERSIGN_DOCS_PAGE=docs/tour.md` runs one page. Nothing here reaches a network: pages use throwaway
//! directories and stub programs.
#![allow(clippy::unwrap_used)]

mod compare;
mod failure_cases;
mod links;
mod page;
mod run;
mod shell;

use page::Page;
use shell::Shell;
use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

/// The programs under test.
const CSN: &str = env!("CARGO_BIN_EXE_csn");
const SHIM: &str = env!("CARGO_BIN_EXE_csn-shim");

/// Stands for `cargo xtask build` in README.md: the test runs on programs that are built already.
const CARGO_STUB: &str = "#!/bin/sh\n[ \"$*\" = \"xtask build\" ]\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn read_page(name: &str) -> Page {
    Page::read(name, &fs::read_to_string(root().join(name)).unwrap())
}

/// Every page of the documentation.
fn page_names() -> Vec<String> {
    let listed = fs::read_dir(root().join("docs")).unwrap().flatten();
    let names = listed.map(|entry| entry.file_name().into_string().unwrap());
    let mut pages: Vec<String> = names.filter(|n| n.ends_with(".md")).map(|n| format!("docs/{n}")).collect();
    pages.sort();
    pages
}

/// `COUNTERSIGN_DOCS_PAGE` selects one page.
fn is_selected(name: &str) -> bool {
    std::env::var("COUNTERSIGN_DOCS_PAGE").map_or(true, |only| only == name)
}

/// Everything that is wrong with a page. A refresh writes the outputs that differ into the page instead.
fn finish_page(page: &Page, report: run::Report) -> Vec<String> {
    let run::Report { mut failures, mismatches, mut refreshed, commands } = report;
    eprintln!("{}: {commands} commands, {} blocks not run", page.name, page.skipped.len());
    for skipped in &page.skipped {
        eprintln!("  not run: {skipped}");
    }
    if std::env::var_os("COUNTERSIGN_WRITE_DOCS").is_none() {
        failures.extend(mismatches);
    } else if !refreshed.is_empty() {
        let mut lines = page.lines.clone();
        refreshed.sort_by_key(|(range, _)| range.start);
        for (range, new) in refreshed.into_iter().rev() {
            lines.splice(range, new);
        }
        fs::write(root().join(&page.name), lines.join("\n") + "\n").unwrap();
    }
    failures
}

fn assert_runs(page: &Page, report: run::Report) {
    let failures = finish_page(page, report);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_tour_runs_from_top_to_bottom() {
    if is_selected("docs/tour.md") {
        let page = read_page("docs/tour.md");
        assert!(page.items.len() > 20, "the tour is a tour");
        assert_runs(&page, run::run_page(&page));
    }
}

/// In a directory that looks like a checkout after `cargo xtask build`.
#[test]
fn the_readme_prints_what_its_commands_print() {
    if !is_selected("README.md") {
        return;
    }
    let page = read_page("README.md");
    let shell = Shell::start();
    let work = shell.work();
    fs::copy(root().join("README.md"), work.join("README.md")).unwrap();
    fs::create_dir_all(work.join("target")).unwrap();
    symlink(shell.base().join("usr/local/bin"), work.join("target/csn")).unwrap();
    let cargo = shell.base().join("home/u/bin/cargo");
    fs::write(&cargo, CARGO_STUB).unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    assert_runs(&page, run::run_page_in(&page, shell));
}

#[test]
fn every_other_page_runs_as_printed() {
    let mut failures = Vec::new();
    for name in page_names().into_iter().filter(|name| name != "docs/tour.md" && is_selected(name)) {
        let page = read_page(&name);
        let report = run::run_page(&page);
        failures.extend(finish_page(&page, report));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The test can fail: a page that prints something else is found, at its line.
#[test]
fn a_page_that_prints_something_else_fails() {
    let text = "# Page\n\n```console\n$ echo one; csn check 'ls' > out.txt; head -1 out.txt\none\n  ls\n$ echo two\nthree\n```\n\n```sh\nfalse\n```\n";
    let page = Page::read("page.md", text);
    let report = run::run_page(&page);
    let [failure] = report.failures.as_slice() else { panic!("{:?}", report.failures) };
    assert!(failure.starts_with("page.md:12: `false` exits 1, not 0"), "{failure}");
    let [mismatch] = report.mismatches.as_slice() else { panic!("{:?}", report.mismatches) };
    assert!(mismatch.starts_with("page.md:7: `$ echo two` prints something else"), "{mismatch}");
    assert_eq!(report.refreshed, [(7..8, vec!["two".to_owned()])]);
}
