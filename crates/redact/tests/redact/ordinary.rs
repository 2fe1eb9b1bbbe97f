//! Ordinary text is not redacted: real text of several kinds, collected from the machine that runs the tests.
#![expect(clippy::disallowed_methods, reason = "manual pages are compressed, and git prints the history")]

use crate::support::mask;
use countersign_redact::{Scrubber, examples::expand};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

/// The most text of each kind.
const MAX_PART_BYTES: usize = 4 << 20;

/// Appends the files below `dirs` whose names have one of these endings.
fn collect_files(dirs: &[PathBuf], ends: &[&str], out: &mut Vec<u8>) {
    for dir in dirs {
        let mut entries: Vec<PathBuf> =
            std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect();
        entries.sort();
        for path in entries {
            if out.len() >= MAX_PART_BYTES {
                return;
            }
            let Ok(kind) = path.symlink_metadata().map(|m| m.file_type()) else { continue };
            if kind.is_dir() {
                collect_files(&[path], ends, out);
            } else if kind.is_file() && ends.iter().any(|e| path.to_string_lossy().ends_with(e)) {
                out.extend(read(&path).into_iter().take(1 << 20));
                out.push(b'\n');
            }
        }
    }
}

fn read(path: &Path) -> Vec<u8> {
    if path.extension().is_some_and(|e| e == "gz") {
        Command::new("zcat").arg(path).output().map(|o| o.stdout).unwrap_or_default()
    } else {
        std::fs::read(path).unwrap_or_default()
    }
}

/// The sources of the dependencies in Cargo's registry, and no other crates that are there. `url` is left out, because its
/// tests contain links with passwords.
fn sources() -> Vec<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cargo")));
    let src = home.unwrap_or_default().join("registry/src");
    let registries: Vec<PathBuf> = std::fs::read_dir(src).into_iter().flatten().flatten().map(|e| e.path()).collect();
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).unwrap_or_default();
    let field = |of: &str, name: &str| Some(of.split_once(&format!("{name} = \""))?.1.split_once('"')?.0.to_owned());
    let crates = lock.split("[[package]]").filter_map(|p| Some((field(p, "name")?, field(p, "version")?)));
    let mut found: Vec<PathBuf> = crates
        .filter(|(name, _)| name != "url")
        .flat_map(|(name, version)| registries.iter().map(move |r| r.join(format!("{name}-{version}"))))
        .filter(|dir| dir.is_dir())
        .collect();
    found.sort();
    found
}

fn expand_lines(template: &str, lines: u64) -> Vec<u8> {
    (0..lines).flat_map(|n| format!("{}\n", expand(template, n).unwrap().text).into_bytes()).collect()
}

fn collect_parts() -> BTreeMap<&'static str, Vec<u8>> {
    let sources = sources();
    let mut parts = BTreeMap::new();
    let mut part = |name, dirs: &[PathBuf], ends: &[&str]| {
        let mut out = Vec::new();
        collect_files(dirs, ends, &mut out);
        parts.insert(name, out);
    };
    let at = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
    part("Rust", &sources, &[".rs"]);
    part("C", &sources, &[".c", ".h"]);
    part("lock files", &sources, &["Cargo.lock", ".lock"]);
    part("documents", &sources, &[".md"]);
    part("JSON, TOML and YAML", &sources, &[".json", ".toml", ".yml", ".yaml"]);
    part(
        "Python",
        &at(&["/usr/lib/python3.11", "/usr/lib/python3.12", "/usr/lib/python3.13", "/usr/lib/python3.14"]),
        &[".py"],
    );
    part(
        "the manual",
        &at(&["/usr/share/man/man1", "/usr/share/man/man8", "/usr/share/doc"]),
        &[".gz", "copyright", ".txt"],
    );
    let log = Command::new("git").args(["log", "--stat", "--format=fuller"]).output();
    parts.insert("git log", log.map(|o| o.stdout).unwrap_or_default());
    parts.insert("hashes", expand_lines("{=hex:40}  {=lower:8}/{=lower:6}.c\nsha256:{=hex:64}\nkey: {=hex:64}\ncommit {=hex:40}\nETag: \"{=hex:32}\"", 4000));
    parts.insert("UUIDs", expand_lines("{=uuid}\nid={=uuid} request_id: {=uuid}\n\"key\": \"{=uuid}\"", 6000));
    parts.insert(
        "base 64 images",
        expand_lines("![x](data:image/png;base64,{=base64:900}=)\nintegrity sha512-{=base64:86}==\n{=base64:76}", 900),
    );
    parts.insert(
        "build logs",
        expand_lines("   Compiling {=lower:8}-{=lower:5} v1.{=digit:2}.3\n     Running `rustc --crate-name {=lower:9} -C metadata={=hex:16} -C extra-filename=-{=hex:16} --out-dir /home/u/p/target/debug/deps -L dependency=/home/u/p/target/debug/deps`\n[ {=digit:2}%] Building CXX object CMakeFiles/{=lower:6}.dir/{=lower:8}.cpp.o\ntest {=lower:7}::{=lower:9} ... ok\n2026-11-16T18:{=digit:2}:{=digit:2}.{=digit:6}Z INFO request{{id={=uuid} token_count={=digit:4}}}: done in {=digit:2}ms", 3000),
    );
    parts
}

#[test]
fn hardly_any_real_text_is_redacted() {
    let mask = mask(&[]);
    let (mut total, mut wrong) = (0, Vec::new());
    for (name, text) in collect_parts() {
        total += text.len();
        let mut scrubber = Scrubber::new(Arc::clone(&mask));
        let mut clean = Vec::with_capacity(text.len());
        for piece in text.chunks(100_000) {
            scrubber.input_buffer()[..piece.len()].copy_from_slice(piece);
            scrubber.accept_input(piece.len());
            while let Some(chunk) = scrubber.take_chunk(false) {
                clean.extend_from_slice(chunk.as_ref());
            }
        }
        scrubber.finish();
        while let Some(chunk) = scrubber.take_chunk(true) {
            clean.extend_from_slice(chunk.as_ref());
        }
        let found = scrubber.take_findings().len();
        let allowed = text.len().div_ceil(1 << 20);
        let replaced = replaced_values(&text, &clean);
        println!("{name}: {} bytes, {found} replaced: {replaced:?}", text.len());
        if found > allowed {
            wrong.push(format!("{name}: {found} in {} bytes, {allowed} allowed: {replaced:?}", text.len()));
        }
        wrong.extend(replaced.into_iter().filter(|v| is_plain(v)).map(|v| format!("{name}: {v:?} is no secret")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(total >= 20 << 20, "only {total} bytes of text were found on this machine");
}

/// The values that were replaced, on lines with one placeholder.
fn replaced_values(text: &[u8], clean: &[u8]) -> Vec<String> {
    let lines = text.split(|b| *b == b'\n').zip(clean.split(|b| *b == b'\n'));
    let changed = lines.filter(|(before, after)| before != after);
    changed
        .take(40)
        .filter_map(|(before, after)| {
            let (before, after) = (String::from_utf8_lossy(before), String::from_utf8_lossy(after));
            let start = after.find("[redacted:")?;
            let rest = after[start..].split_once(']')?.1;
            before.get(start..before.len().checked_sub(rest.len())?).map(str::to_owned)
        })
        .collect()
}

/// Whether this is a hash, a UUID or a path.
fn is_plain(value: &str) -> bool {
    let hex = |text: &str| text.len() >= 7 && text.bytes().all(|b| b.is_ascii_hexdigit());
    hex(value) || value.split('-').all(hex) || value.starts_with('/') && value.matches('/').count() > 1
}
