//! `csn install` as a user sees it: what it shows, what it refuses, and that it then changes nothing.

use crate::CSN;
use countersign_testkit::TestHome;
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The home directory of the user.
fn home(daemon: &TestHome) -> PathBuf {
    daemon.work().parent().unwrap().to_owned()
}

fn put(path: &Path, body: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, body).unwrap();
}

#[test]
fn a_dry_run_shows_the_diff_and_writes_nothing() {
    let daemon = TestHome::new(CSN);
    let file = home(&daemon).join(".claude/settings.json");
    let before = "{\n  // mine\n  \"env\": {\"TOKEN\": \"ghp_0123456789abcdefghijABCDEFGHIJ012345\"}\n}\n";
    put(&file, before);
    let out = daemon.csn(&["install", "claude-code", "--dry-run"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let shown = text(&out.stdout);
    assert!(shown.contains(&format!("--- {}", file.display())) && shown.contains("+  \"hooks\": {"), "{shown}");
    assert!(shown.contains("hook claude-code || exit 2") && !shown.contains("ghp_0123"), "{shown}");
    assert!(text(&out.stderr).contains("nothing was written"), "{}", text(&out.stderr));
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    assert!(!home(&daemon).join("config/countersign/agents").exists());
    let out = daemon.csn(&["install", "goose", "--dry-run", "--json"]);
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&report["mode"], &report["files"][0]["action"]), (&json!("mcp"), &json!("created")), "{report}");
}

#[test]
fn bad_arguments_and_bad_files_are_refused() {
    let daemon = TestHome::new(CSN);
    let refused = |args: &[&str], code: i32, words: &str| {
        let out = daemon.csn(&[&["install"], args].concat());
        assert_eq!(out.status.code(), Some(code), "{args:?}: {}", text(&out.stderr));
        assert!(text(&out.stderr).contains(words), "{args:?}: {}", text(&out.stderr));
    };
    refused(&["gemini", "--mode", "hook"], 2, "has no hook");
    refused(&["cursor", "--witness"], 2, "--witness is for hooks");
    refused(&["goose", "--scope", "project"], 2, "no project configuration");
    refused(&["emacs"], 2, "Use one of: claude-code");
    let file = home(&daemon).join(".codex/config.toml");
    put(&file, "model = \n");
    refused(&["codex"], 125, ".codex/config.toml: the file is not valid TOML: line 1");
    assert_eq!(fs::read_to_string(&file).unwrap(), "model = \n");
    let out = daemon.csn(&["install", "codex", "--uninstall"]);
    assert_eq!((out.status.code(), text(&out.stderr).contains("not installed; nothing was changed")), (Some(0), true));
}

/// The check of `csn doctor` for an agent.
fn doctor_check(daemon: &TestHome, agent: &str) -> (bool, String) {
    let out = daemon.csn(&["doctor", "--json"]);
    let all: Value = serde_json::from_slice(&out.stdout).unwrap();
    let name = format!("agent {agent}");
    let checks = all["checks"].as_array().unwrap();
    let check = checks.iter().find(|c| c["name"] == name.as_str()).unwrap_or_else(|| panic!("{name}: {all}"));
    assert!(out.status.code() == Some(1) || check["ok"] == true, "a failed check is not a success");
    (check["ok"] == true, check["says"].as_str().unwrap().to_owned())
}

#[test]
fn doctor_reports_what_is_missing_moved_or_skipped() {
    let daemon = TestHome::new(CSN);
    let csn = Path::new(CSN).canonicalize().unwrap();
    let manifest = |agent: &str, kind: &str, csn: &Path, file: &Path| {
        let body = json!({
            "v": 1, "agent": agent, "scope": "user", "project": null, "mode": kind, "witness": false, "csn": csn,
            "files": [{"kind": kind, "path": file, "sha256_before": null, "sha256_after": "", "backup": null,
                "made": [], "dirs": []}],
        });
        put(&home(&daemon).join(format!("config/countersign/agents/{agent}.json")), &body.to_string());
    };
    let file = home(&daemon).join(".cursor/mcp.json");
    manifest("cursor", "mcp", Path::new("/gone/csn"), &file);
    let (ok, says) = doctor_check(&daemon, "cursor");
    assert!(!ok && says.contains("it was installed for /gone/csn") && says.contains("csn install cursor"), "{says}");
    manifest("cursor", "mcp", &csn, &file);
    let (ok, says) = doctor_check(&daemon, "cursor");
    assert!(!ok && says.contains("is missing or was changed") && says.contains(".cursor/mcp.json"), "{says}");

    let hooks = home(&daemon).join(".codex/hooks.json");
    let command =
        format!("timeout -k 1 60 {} hook codex || {{ echo 'csn: the hook failed' >&2; exit 2; }}", csn.display());
    let handler = json!({"type": "command", "command": command, "timeout": 600});
    put(&hooks, &json!({"hooks": {"PreToolUse": [{"matcher": "^Bash$", "hooks": [handler]}]}}).to_string());
    manifest("codex", "hook", &csn, &hooks);
    let (ok, says) = doctor_check(&daemon, "codex");
    assert!(!ok && says.contains("skips this hook silently") && says.contains("/hooks"), "{says}");
    put(
        &home(&daemon).join(".codex/config.toml"),
        &format!("[hooks.state.\"{}:pre_tool_use:0:0\"]\ntrusted_hash = \"sha256:00\"\n", hooks.display()),
    );
    assert!(!doctor_check(&daemon, "codex").1.contains("silently"));
    put(&home(&daemon).join("config/countersign/agents/goose.json"), "{\"v\": 9}");
    let out = daemon.csn(&["doctor"]);
    assert!(text(&out.stdout).contains("written by a newer csn"), "{}", text(&out.stdout));
}

#[test]
fn a_task_installs_nothing() {
    let daemon = TestHome::new(CSN);
    let out = daemon.csn_with(&["install", "codex"], &[(countersign_model::MARKER, "t")]);
    assert_eq!(out.status.code(), Some(125), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("in your own terminal"), "{}", text(&out.stderr));
    assert!(!home(&daemon).join(".codex").exists());
}
