//! Configurations as users have them: each is edited correctly, or refused and left alone, and always restored.

mod shapes;

use super::{
    Installation,
    agents::{AgentPaths, InstallRequest},
    edit, files, manifest, plan,
};
use crate::{AgentProgram, InstallMode};
use countersign_spawn::{ProgramOutput, ProgramRun};
use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};
use tempfile::TempDir;

const CSN: &str = "/opt/csn";

/// A home directory with nothing but the files of a test.
struct TestHome {
    dir: TempDir,
    places: AgentPaths,
    csn: &'static str,
}

impl TestHome {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let config = home.join(".config");
        let places = AgentPaths { config, claude: None, codex: None, home_variables: Vec::new(), project: None, home };
        Self { dir, places, csn: CSN }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.places.home.join(file)
    }

    fn write(&self, file: &str, text: &str) {
        fs::create_dir_all(self.path(file).parent().unwrap()).unwrap();
        fs::write(self.path(file), text).unwrap();
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap()
    }

    fn request(&self, agent: AgentProgram, mode: InstallMode, witness: bool) -> InstallRequest<'_> {
        InstallRequest { agent, mode, witness, csn: self.csn, places: &self.places }
    }

    fn manifests(&self) -> PathBuf {
        self.places.config.join("countersign/agents")
    }

    fn prepare(&self, agent: AgentProgram, mode: InstallMode) -> Installation {
        Installation {
            agent,
            mode,
            witness: false,
            csn: self.csn.to_owned(),
            places: self.places.clone(),
            manifest_dir: self.manifests(),
            plan: plan::plan_install(&self.request(agent, mode, false), &self.manifests()).unwrap(),
        }
    }

    /// Whether anything changed.
    fn install(&self, agent: AgentProgram, mode: InstallMode, witness: bool) -> Result<bool, String> {
        let plan =
            plan::plan_install(&self.request(agent, mode, witness), &self.manifests()).map_err(|e| e.to_string())?;
        let changes = plan.writes();
        plan::create_private_dir(&self.manifests()).unwrap();
        files::write_all(&changes).map_err(|e| e.to_string())?;
        Ok(changes.iter().any(files::FileWrite::has_effect))
    }

    fn uninstall(&self, agent: AgentProgram) -> Result<bool, String> {
        let plan = plan::plan_removal(&self.request(agent, InstallMode::Both, false), &self.manifests())
            .map_err(|e| e.to_string())?;
        let changes = plan.writes();
        files::write_all(&changes).map_err(|e| e.to_string())?;
        Ok(changes.iter().any(files::FileWrite::has_effect))
    }

    /// Every file below the home with its content, without Countersign's own.
    fn snapshot(&self) -> Vec<(PathBuf, Vec<u8>)> {
        fn walk(dir: &Path, all: &mut Vec<(PathBuf, Vec<u8>)>) {
            let mut names: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
            names.sort();
            for path in names.into_iter().filter(|p| !p.ends_with("countersign")) {
                if path.is_dir() {
                    walk(&path, all);
                } else {
                    all.push((path.clone(), fs::read(&path).unwrap()));
                }
            }
        }
        let mut all = Vec::new();
        walk(self.dir.path(), &mut all);
        all
    }
}

struct Case {
    agent: AgentProgram,
    mode: InstallMode,
    file: &'static str,
}

const CLAUDE: Case = Case { agent: AgentProgram::ClaudeCode, mode: InstallMode::Hook, file: ".claude/settings.json" };
const CLAUDE_MCP: Case = Case { agent: AgentProgram::ClaudeCode, mode: InstallMode::Mcp, file: ".claude.json" };
const CODEX: Case = Case { agent: AgentProgram::Codex, mode: InstallMode::Mcp, file: ".codex/config.toml" };
const CODEX_HOOK: Case = Case { agent: AgentProgram::Codex, mode: InstallMode::Hook, file: ".codex/hooks.json" };
const OPENCODE: Case =
    Case { agent: AgentProgram::Opencode, mode: InstallMode::Mcp, file: ".config/opencode/opencode.jsonc" };
const GEMINI: Case = Case { agent: AgentProgram::Gemini, mode: InstallMode::Mcp, file: ".gemini/settings.json" };
const GOOSE: Case = Case { agent: AgentProgram::Goose, mode: InstallMode::Mcp, file: ".config/goose/config.yaml" };
const CURSOR: Case = Case { agent: AgentProgram::Cursor, mode: InstallMode::Mcp, file: ".cursor/mcp.json" };

/// Installs and removes. `expect` is the file after the installation, with new text between « and »; or, after
/// `refused:`, a part of the error. In each case a second installation changes nothing, and the removal restores every
/// byte, with and without the backup.
#[track_caller]
fn check_install(case: &Case, before: &str, expect: &str) {
    let home = TestHome::new();
    home.write(case.file, before);
    let untouched = home.snapshot();
    let done = home.install(case.agent, case.mode, false);
    if let Some(words) = expect.strip_prefix("refused:") {
        let why = done.expect_err("refused");
        assert!(why.contains(words.trim()), "{why}");
        assert!(why.contains(case.file), "names the file: {why}");
        assert_eq!(home.snapshot(), untouched, "untouched");
        return;
    }
    assert_eq!(done, Ok(true));
    let after = home.read(case.file);
    if !expect.is_empty() {
        assert_eq!(after, expect.replace(['«', '»'], ""), "the file\n{after}");
        let old: String = expect.split('«').map(|p| p.split_once('»').map_or(p, |(_, old)| old)).collect();
        assert_eq!(old, before, "the old text is unchanged");
    }
    assert_eq!(home.install(case.agent, case.mode, false), Ok(false), "a second run changes nothing");
    check_removal_without_backup(&home, case, before, &after);
    assert_eq!(home.uninstall(case.agent), Ok(true));
    assert_eq!(home.snapshot(), untouched, "every byte is back");
    assert_eq!(home.uninstall(case.agent), Ok(false), "nothing is installed");
    assert!(fs::read_dir(home.manifests()).unwrap().next().is_none(), "no copy and no manifest is left");
}

/// Without the backup, the removal restores the text to the byte, except for blanks and braces around the only entry.
#[track_caller]
fn check_removal_without_backup(home: &TestHome, case: &Case, before: &str, after: &str) {
    let request = home.request(case.agent, case.mode, false);
    let part = request.parts().unwrap().remove(0);
    let made = manifest::read_all(&home.manifests()).remove(0).unwrap().files.remove(0).made;
    let without = edit::remove_entry(&part.path, after, &part.entry, &request.owner(None), &made).unwrap();
    let words = |text: &str| text.split_whitespace().collect::<String>().replace("{}", "");
    assert_eq!(words(before), words(&without), "{before:?} came back as {without:?} from {after:?}");
}

/// The file is edited after the installation, so that the removal cannot use the backup. Afterwards that edit must be the
/// only difference.
#[track_caller]
fn check_removal_after_edit(case: &Case, before: &str, edit: (&str, &str), expect: &str) {
    let home = TestHome::new();
    home.write(case.file, before);
    home.install(case.agent, case.mode, false).unwrap();
    let after = home.read(case.file);
    assert!(after.contains(edit.0), "{after}");
    home.write(case.file, &after.replacen(edit.0, edit.1, 1));
    assert_eq!(home.uninstall(case.agent), Ok(true));
    assert_eq!(home.read(case.file), expect);
}

#[test]
fn claude_settings_get_the_hook_and_are_restored() {
    check_install(
        &CLAUDE,
        "{}",
        "{«
  \"hooks\": {
    \"PreToolUse\": [
      {
        \"matcher\": \"Bash\",
        \"hooks\": [
          {
            \"type\": \"command\",
            \"command\": \"/opt/csn hook claude-code || exit 2\",
            \"timeout\": 600,
            \"onFailure\": \"block\"
          }
        ]
      }
    ]
  }
»}",
    );
    check_install(&CLAUDE, "", "");
    check_install(&CLAUDE, "\n\n", "");
    check_install(&CLAUDE, "{ }\n", "");
    check_install(&CLAUDE, "{\n}\n", "");
    check_install(&CLAUDE, "// nothing here yet\n", "");
    check_install(&CLAUDE, "{\n  // nothing yet\n}\n", "");
    check_install(&CLAUDE, "{ /* nothing yet */ }", "");
    check_install(
        &CLAUDE,
        "{\"model\":\"opus\",\"env\":{\"A\":\"1\"}}",
        "{\"model\":\"opus\",\"env\":{\"A\":\"1\"}«,\"hooks\":{\"PreToolUse\":[{\"matcher\":\"Bash\",\"hooks\":[{\"type\":\"command\",\"command\":\"/opt/csn hook claude-code || exit 2\",\"timeout\":600,\"onFailure\":\"block\"}]}]}»}",
    );
    check_install(&CLAUDE, "{\"model\": \"opus\"}\n", "");
    check_install(&CLAUDE, "{\"hooks\":{}}", "");
    check_install(&CLAUDE, "{\"hooks\":{\"PreToolUse\":[]}}", "");
    check_install(&CLAUDE, "{\n\t\"permissions\": {\n\t\t\"allow\": [\"Bash(git status)\"]\n\t}\n}\n", "");
    check_install(&CLAUDE, "\u{feff}{\r\n    \"model\": \"opus\"\r\n}\r\n", "");
}

#[test]
fn other_claude_hooks_stay_unchanged() {
    let theirs = "{
  \"$schema\": \"https://json.schemastore.org/claude-code-settings.json\",
  \"hooks\": {
    // formats what was edited
    \"PostToolUse\": [
      { \"matcher\": \"Edit|Write\", \"hooks\": [{ \"type\": \"command\", \"command\": \"prettier --write\" }] },
    ],
    \"PreToolUse\": [
      {
        \"matcher\": \"Bash\", // mine
        \"hooks\": [
          { \"type\": \"command\", \"command\": \"~/bin/lint.sh\" }, // first
        ]
      } // the last one
    ],
  }, /* end of hooks */
  \"model\": \"opus\",
}
";
    let ours = "«
      {
        \"matcher\": \"Bash\",
        \"hooks\": [
          {
            \"type\": \"command\",
            \"command\": \"/opt/csn hook claude-code || exit 2\",
            \"timeout\": 600,
            \"onFailure\": \"block\"
          }
        ]
      }»";
    check_install(&CLAUDE, theirs, &theirs.replace("} // the last one", &format!("}}«,» // the last one{ours}")));
    check_install(&CLAUDE, "{\n  \"hooks\": {\"PreToolUse\": [{\"matcher\": \"Edit\", \"hooks\": []}]}\n}\n", "");
    check_install(
        &CLAUDE,
        "{\n  \"hooks\": {\n    \"Stop\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"say done\"}]}] }}",
        "",
    );
    check_install(
        &CLAUDE,
        "{\n  \"hooks\": {\n    \"PreToolUse\": [\n      {\"matcher\": \"*\", \"hooks\": []},\n    ]\n  }\n}\n",
        "",
    );
}

#[test]
fn claude_settings_that_cannot_be_edited_are_refused() {
    for (before, words) in [
        ("{\"a\": 1", "not valid JSON"),
        ("{\"a\": 1} {}", "not valid JSON"),
        ("{a: 1}", "not valid JSON"),
        ("{'a': 1}", "not valid JSON"),
        ("[]", "does not contain an object"),
        ("\"text\"", "does not contain an object"),
        ("{\"hooks\": []}", "line 1: `hooks` is not an object"),
        ("{\n\"hooks\": {\n\"PreToolUse\": {}}}", "line 3: `hooks.PreToolUse` is not a list"),
        ("{\"hooks\": {\"PreToolUse\": [\"x\"]}}", "`hooks.PreToolUse[0]` is not an object"),
        ("{\"hooks\": {},\n \"hooks\": {}}", "line 2: duplicate key `hooks`"),
        ("{\"x\": {\"y\": 1, \"y\": 2}}", "duplicate key `y`"),
        ("<<<<<<< HEAD\n{}\n", "not valid JSON"),
        ("{\"disableAllHooks\": true}", "`disableAllHooks` is set, so the agent would ignore the entry"),
    ] {
        check_install(&CLAUDE, before, &format!("refused: {words}"));
    }
}

#[test]
fn json_configurations_get_the_server_and_are_restored() {
    check_install(&CLAUDE_MCP, "{\n  \"numStartups\": 12,\n  \"mcpServers\": {\n    \"github\": {\n      \"type\": \"http\",\n      \"url\": \"https://example.test\"\n    }\n  },\n  \"projects\": {}\n}\n", "{\n  \"numStartups\": 12,\n  \"mcpServers\": {\n    \"github\": {\n      \"type\": \"http\",\n      \"url\": \"https://example.test\"\n    }«,
    \"csn\": {
      \"type\": \"stdio\",
      \"command\": \"/opt/csn\",
      \"args\": [\"mcp\"],
      \"env\": {}
    }»\n  },\n  \"projects\": {}\n}\n");
    check_install(
        &CLAUDE_MCP,
        "{\"mcpServers\": {\"csn\": {\"command\": \"consonance\", \"args\": [\"serve\"]}}}",
        "refused: already exists and is not Countersign's",
    );
    check_install(&CLAUDE_MCP, "{\"mcpServers\": {\"csn\": 3}}", "refused: `csn` is not an object");
    check_install(&CLAUDE_MCP, "{\"mcpServers\": []}", "refused: `mcpServers` is not an object");
    check_install(
        &OPENCODE,
        "{\n  // my settings\n  \"$schema\": \"https://opencode.ai/config.json\",\n  \"mcp\": {\n    // nothing\n  },\n  \"theme\": \"x\", // nice\n}\n",
        "",
    );
    check_install(
        &OPENCODE,
        "{\n\t\"mcp\": {\n\t\t\"a\": {\"type\": \"remote\", \"url\": \"https://example.test\"}, // a\n\t},\n}\n",
        "",
    );
    check_install(&GEMINI, "{\n    \"theme\": \"Dracula\", /* dark */\n    \"mcpServers\": {}\n}", "");
    check_install(&GEMINI, "{\"selectedAuthType\":\"oauth-personal\"}\n", "");
    check_install(
        &CURSOR,
        "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"npx\", \"args\": [\"-y\", \"a\"]},\n    \"b\": {\"url\": \"https://example.test\"}\n  }\n}\n",
        "",
    );
    check_install(&CURSOR, "{\"mcpServers\":{\"a\":{\"command\":\"a\"},}}", "");
    check_install(
        &CODEX_HOOK,
        "{\n  \"hooks\": {\n    \"Stop\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"bell\"}]}]\n  }\n}\n",
        "",
    );
    let deep = format!("{{\"a\": {}1{}, \"mcpServers\": {{}}}}", "[".repeat(200), "]".repeat(200));
    check_install(&CURSOR, &deep, "");
    check_install(&CURSOR, &format!("{{\"a\": {}1{}}}", "[".repeat(5000), "]".repeat(5000)), "refused: not valid JSON");
}

#[test]
fn a_huge_file_is_edited_and_restored() {
    let history: String =
        (0..40_000).map(|n| format!("    \"entry {n}\": {{\"display\": \"text {n}\", \"n\": {n}}},\n")).collect();
    check_install(&CLAUDE_MCP, &format!("{{\n  \"projects\": {{\n{history}    \"last\": {{}}\n  }}\n}}\n"), "");
}

#[test]
fn codex_configuration_gets_the_server_and_is_restored() {
    let ours = "[mcp_servers.csn]\ncommand = \"/opt/csn\"\nargs = [\"mcp\"]\ntool_timeout_sec = 3600\ndefault_tools_approval_mode = \"approve\"\n";
    check_install(&CODEX, "", &format!("«{ours}»"));
    for before in [
        "# my codex\nmodel = \"gpt\" # the good one\n\n[projects.\"/srv/a\"]\ntrust_level = \"trusted\"\n",
        "[mcp_servers.docs]\ncommand = \"npx\"\nargs = [\n  \"-y\", # yes\n  \"docs\",\n]\n\n[tui]\ntheme = \"x\"\n",
        "[mcp_servers]\n[mcp_servers.a]\ncommand = 'a'\n",
        "notify = [\"a\"]\n\n# the end\n",
        "mcp_servers.a.command = \"a\"\n",
        "text = \"\"\"\n[mcp_servers.csn]\ncommand = \"x\"\n\"\"\"\n",
    ] {
        check_install(&CODEX, before, &format!("{before}«\n{ours}»"));
    }
    check_install(
        &CODEX,
        "model = \"a\"\r\n[tui]\r\nx = 1\r\n",
        &format!("model = \"a\"\r\n[tui]\r\nx = 1\r\n«\r\n{}»", ours.replace('\n', "\r\n")),
    );
    check_install(&CODEX, "model = \"a\"", &format!("model = \"a\"«\n\n{ours}»"));
    check_install(&CODEX, "\u{feff}model = \"a\"\n", "");
    for (before, words) in [
        ("model = \n", "not valid TOML: line 1"),
        ("a = 1\na = 2\n", "duplicate key"),
        ("mcp_servers = { a = { command = \"a\" } }\n", "`mcp_servers` is not a table that can be extended"),
        ("mcp_servers = 3\n", "`mcp_servers` is not a table"),
        ("[[mcp_servers]]\na = 1\n", "`mcp_servers` is not a table"),
        (
            "[mcp_servers.csn]\ncommand = \"other\"\n",
            "line 1: `mcp_servers.csn` already exists and is not Countersign's",
        ),
        (
            "[mcp_servers.csn]\ncommand = \"/opt/csn\"\nargs = [\"mcp\"]\nenabled = false\n",
            "`mcp_servers.csn.enabled` is false",
        ),
        ("[mcp_servers]\ncsn.command = \"/old/csn\"\ncsn.args = [\"mcp\"]\n", "is written inline"),
        ("[mcp_servers]\ncsn = { command = \"/old/csn\", args = [\"mcp\"] }\n", "is written inline"),
    ] {
        check_install(&CODEX, before, &format!("refused: {words}"));
    }
}

#[test]
fn goose_configuration_gets_the_extension_and_is_restored() {
    let ours = "  csn:\n    enabled: true\n    name: csn\n    type: stdio\n    cmd: /opt/csn\n    args: [mcp]\n    envs: {}\n    timeout: 3600\n";
    let wide = ours.replace("\n  ", "\n    ").replacen("  csn", "    csn", 1);
    check_install(&GOOSE, "", &format!("«extensions:\n{ours}»"));
    check_install(&GOOSE, "# nothing\n", &format!("# nothing\n«extensions:\n{ours}»"));
    check_install(&GOOSE, "GOOSE_MODEL: x\n", &format!("GOOSE_MODEL: x\n«extensions:\n{ours}»"));
    check_install(&GOOSE, "GOOSE_MODEL: x", &format!("GOOSE_MODEL: x«\nextensions:\n{ours}»"));
    check_install(&GOOSE, "extensions: {}\nGOOSE_MODEL: x\n", "");
    check_install(&GOOSE, "extensions:\nGOOSE_MODEL: x\n", &format!("extensions:\n«{ours}»GOOSE_MODEL: x\n"));
    check_install(
        &GOOSE,
        "GOOSE_MODEL: x # mine\nextensions: # all of them\n    # the shell\n    developer:\n        enabled: true\n        text: |\n          csn:\n            x\n    other: {enabled: false}\n# end\nlast: 1\n",
        &format!(
            "GOOSE_MODEL: x # mine\nextensions: # all of them\n«{wide}»    # the shell\n    developer:\n        enabled: true\n        text: |\n          csn:\n            x\n    other: {{enabled: false}}\n# end\nlast: 1\n"
        ),
    );
    check_install(
        &GOOSE,
        "extensions:\r\n  a:\r\n    enabled: true\r\n",
        &format!("extensions:\r\n«{}»  a:\r\n    enabled: true\r\n", ours.replace('\n', "\r\n")),
    );
    check_install(
        &GOOSE,
        "---\nextensions:\n  a:\n    args:\n    - x\n",
        &format!("---\nextensions:\n«{ours}»  a:\n    args:\n    - x\n"),
    );
    check_install(&GOOSE, "a: &x\n  b: 1\nc: *x\n", "");
    check_install(&GOOSE, "text: |+\n  kept\n\n\n", "");
    for (before, words) in [
        ("a: [1\n", "not valid YAML"),
        ("a:\n\t- b\n", "tabs"),
        ("a: 1\na: 2\n", "line 2: duplicate key `a`"),
        ("a: 1\n---\nb: 2\n", "more than one document"),
        ("{extensions: {a: 1}}\n", "braces"),
        ("extensions: {a: {enabled: true}}\n", "line 1: `extensions` is written in braces"),
        ("extensions: &all\n  a: {}\n", "anchor"),
        ("x: &all\n  a: {}\nextensions: *all\n", "alias"),
        ("extensions: [a]\n", "is not a mapping"),
        ("extensions: text\n", "is not a mapping"),
        ("- a\n- b\n", "not a mapping"),
        ("a: 1\n...\n", "end mark"),
        ("extensions:\n  csn:\n    cmd: other\n    args: [serve]\n", "line 2: `extensions.csn` already exists"),
    ] {
        check_install(&GOOSE, before, &format!("refused: {words}"));
    }
}

#[test]
fn edits_after_the_installation_survive_the_removal() {
    check_removal_after_edit(&CLAUDE, "{}\n", ("{", "{\n  \"model\": \"opus\","), "{\n  \"model\": \"opus\"\n}\n");
    check_removal_after_edit(&CLAUDE, "{\n  \"a\": 1 // one\n}\n", ("1", "2"), "{\n  \"a\": 2 // one\n}\n");
    check_removal_after_edit(&CLAUDE, "{\n  \"a\": 1, // one\n}\n", ("1", "2"), "{\n  \"a\": 2, // one\n}\n");
    check_removal_after_edit(&CLAUDE, "{\"a\":1}", ("1", "2"), "{\"a\":2}");
    check_removal_after_edit(
        &CLAUDE,
        "{\"a\":1,\"hooks\":{\"PreToolUse\":[]}}",
        ("1", "2"),
        "{\"a\":2,\"hooks\":{\"PreToolUse\":[]}}",
    );
    check_removal_after_edit(
        &CLAUDE,
        "{\n  \"hooks\": {\n    \"PreToolUse\": [\n      {\"matcher\": \"Edit\", \"hooks\": []} // mine\n    ]\n  }\n}\n",
        ("Edit", "Edit|Write"),
        "{\n  \"hooks\": {\n    \"PreToolUse\": [\n      {\"matcher\": \"Edit|Write\", \"hooks\": []} // mine\n    ]\n  }\n}\n",
    );
    check_removal_after_edit(
        &CURSOR,
        "{\n  \"mcpServers\": {\n    \"a\": {}\n  }\n}\n",
        ("\"env\": {}\n    }", "\"env\": {\"A\": \"1\"}\n    }, // ours\n    \"b\": {}"),
        "{\n  \"mcpServers\": {\n    \"a\": {},\n     // ours\n    \"b\": {}\n  }\n}\n",
    );
    check_removal_after_edit(
        &CODEX,
        "model = \"a\"\n\n# docs\n[mcp_servers.docs]\ncommand = \"d\"\n",
        ("approve\"\n", "approve\"\n\n[mcp_servers.csn.env]\nA = \"b\"\n\n# mine\n[mcp_servers.z]\ncommand = \"z\"\n"),
        "model = \"a\"\n\n# docs\n[mcp_servers.docs]\ncommand = \"d\"\n\n# mine\n[mcp_servers.z]\ncommand = \"z\"\n",
    );
    check_removal_after_edit(
        &GOOSE,
        "extensions:\n  # dev\n  a:\n    enabled: true\n",
        ("envs: {}", "envs: {A: b}\n    # more\n    description: |\n      x\n"),
        "extensions:\n  # dev\n  a:\n    enabled: true\n",
    );
    check_removal_after_edit(
        &CODEX,
        "mcp_servers.a.command = \"a\"\n",
        ("\"a\"", "\"b\""),
        "mcp_servers.a.command = \"b\"\n",
    );
    check_removal_after_edit(&CODEX, "a = 1\r\n", ("1", "2"), "a = 2\r\n");
    check_removal_after_edit(&GOOSE, "a: 1\n", ("a: 1", "a: 2"), "a: 2\n");
    check_removal_after_edit(&GOOSE, "a: 1\n", ("extensions:\n", "extensions:\n  # mine\n"), "a: 1\n  # mine\n");
    check_removal_after_edit(&GOOSE, "extensions: {}\na: 1\n", ("a: 1", "a: 2"), "extensions: {}\na: 2\n");
}

#[test]
fn a_file_that_the_installation_created_is_removed_with_it() {
    for case in [&CLAUDE, &CLAUDE_MCP, &CODEX, &CODEX_HOOK, &GEMINI, &GOOSE, &CURSOR] {
        let home = TestHome::new();
        assert_eq!(home.install(case.agent, case.mode, false), Ok(true));
        let mode = fs::metadata(home.path(case.file)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", case.file);
        let dir = fs::metadata(home.manifests()).unwrap().permissions().mode() & 0o777;
        assert_eq!(dir, 0o700);
        // An added blank line changes the digest, but adds no content.
        let text = home.read(case.file);
        home.write(case.file, &format!("{text}\n"));
        assert_eq!(home.uninstall(case.agent), Ok(true));
        assert_eq!(home.snapshot(), vec![], "{}", case.file);
        assert!(!home.path(case.file).parent().unwrap().exists() || case.file == ".claude.json", "{}", case.file);
    }
}

#[test]
fn the_opencode_plugin_is_written_replaced_and_removed() {
    let file = ".config/opencode/plugins/countersign.js";
    let home = TestHome::new();
    home.install(AgentProgram::Opencode, InstallMode::Hook, true).unwrap();
    let text = home.read(file);
    assert!(text.contains("const CSN = \"/opt/csn\"") && text.contains("--witness"), "{text}");
    assert!(text.contains("tool.execute.after") && !text.contains('@'), "{text}");
    assert_eq!(home.install(AgentProgram::Opencode, InstallMode::Hook, true), Ok(false));
    home.install(AgentProgram::Opencode, InstallMode::Hook, false).unwrap();
    assert!(!home.read(file).contains("tool.execute.after"));
    home.uninstall(AgentProgram::Opencode).unwrap();
    assert_eq!(home.snapshot(), vec![]);
    home.write(file, "export const Other = 1\n");
    let why = home.install(AgentProgram::Opencode, InstallMode::Hook, false).unwrap_err();
    assert!(why.contains("already exists and is not Countersign's"), "{why}");
    assert_eq!(home.uninstall(AgentProgram::Opencode), Ok(false));
    assert_eq!(home.read(file), "export const Other = 1\n");
}

#[test]
fn a_second_installation_replaces_the_entries_and_the_removal_restores_all() {
    let mut home = TestHome::new();
    let theirs =
        "{\n  \"hooks\": {\n    \"PostToolUse\": [\n      {\"matcher\": \"Edit\", \"hooks\": []}\n    ]\n  }\n}\n";
    home.write(CLAUDE.file, theirs);
    let untouched = home.snapshot();
    home.install(AgentProgram::ClaudeCode, InstallMode::Hook, true).unwrap();
    let text = home.read(CLAUDE.file);
    assert_eq!(text.matches("/opt/csn hook claude-code --witness").count(), 3, "{text}");
    assert!(text.contains("PostToolUseFailure"), "{text}");
    home.csn = "/usr/local/my bin/csn";
    home.install(AgentProgram::ClaudeCode, InstallMode::Both, false).unwrap();
    let text = home.read(CLAUDE.file);
    assert!(text.contains("\"'/usr/local/my bin/csn' hook claude-code || exit 2\""), "{text}");
    assert!(
        !text.contains("/opt/csn") && !text.contains("PostToolUseFailure") && !text.contains("--witness"),
        "{text}"
    );
    assert!(home.read(CLAUDE_MCP.file).contains("\"command\": \"/usr/local/my bin/csn\""));
    assert_eq!(home.install(AgentProgram::ClaudeCode, InstallMode::Both, false), Ok(false));
    home.install(AgentProgram::ClaudeCode, InstallMode::Mcp, false).unwrap();
    assert_eq!(home.read(CLAUDE.file), theirs);
    home.uninstall(AgentProgram::ClaudeCode).unwrap();
    assert_eq!(home.snapshot(), untouched);
}

#[test]
fn an_older_entry_is_updated_in_place() {
    for (case, before, expect) in [
        (
            &CLAUDE,
            "{\"hooks\": {\"PreToolUse\": [{\"matcher\": \"Bash\", \"hooks\": [{\"type\": \"command\", \"command\": \"/old/csn hook claude-code\"}, {\"type\": \"command\", \"command\": \"lint\"}]}]}}",
            "{\"hooks\": {\"PreToolUse\": [{\"matcher\": \"Bash\", \"hooks\": [{\"type\": \"command\", \"command\": \"/opt/csn hook claude-code || exit 2\", \"timeout\": 600, \"onFailure\": \"block\"}, {\"type\": \"command\", \"command\": \"lint\"}]}]}}",
        ),
        (
            &CODEX,
            "[mcp_servers.csn] # mine\ncommand = '/old/csn' # here\nargs = [\"mcp\"]\ntool_timeout_sec = 60\n[tui]\nx = 1\n",
            "[mcp_servers.csn] # mine\ndefault_tools_approval_mode = \"approve\"\ncommand = \"/opt/csn\" # here\nargs = [\"mcp\"]\ntool_timeout_sec = 60\n[tui]\nx = 1\n",
        ),
        (
            &CURSOR,
            "{\n  \"mcpServers\": {\n    \"csn\": {\"command\": \"csn\", \"args\": [\"mcp\"], \"type\": \"stdio\", \"env\": {\"A\": \"1\"}}\n  }\n}\n",
            "{\n  \"mcpServers\": {\n    \"csn\": {\"command\": \"/opt/csn\", \"args\": [\"mcp\"], \"type\": \"stdio\", \"env\": {\"A\": \"1\"}}\n  }\n}\n",
        ),
        (
            &GOOSE,
            "extensions:\n  csn:\n    enabled: false\n    cmd: /old/csn\n    args:\n    - mcp\n  b: {}\n",
            "extensions:\n  csn:\n    enabled: true\n    name: csn\n    type: stdio\n    cmd: /opt/csn\n    args: [mcp]\n    envs: {}\n    timeout: 3600\n  b: {}\n",
        ),
    ] {
        let home = TestHome::new();
        home.write(case.file, before);
        home.install(case.agent, case.mode, false).unwrap();
        assert_eq!(home.read(case.file), expect);
        assert_eq!(home.install(case.agent, case.mode, false), Ok(false));
    }
}

#[test]
fn an_entry_without_a_manifest_is_recognised_by_its_command() {
    for case in [&CLAUDE, &CLAUDE_MCP, &CODEX, &GOOSE] {
        let home = TestHome::new();
        let theirs = match case.file.rsplit('.').next().unwrap() {
            "toml" => "a = 1\n",
            "yaml" => "extensions:\n  a: {}\n",
            _ => {
                "{\n  \"hooks\": {\n    \"PreToolUse\": [\n      {\"matcher\": \"x\"}\n    ]\n  },\n  \"mcpServers\": {\n    \"a\": {}\n  }\n}\n"
            }
        };
        home.write(case.file, theirs);
        home.install(case.agent, case.mode, false).unwrap();
        fs::remove_dir_all(home.manifests()).unwrap();
        assert_eq!(home.uninstall(case.agent), Ok(true), "{}", case.file);
        assert_eq!(home.read(case.file), theirs);
    }
}

#[test]
fn a_deleted_file_is_created_again_and_leaves_no_backup() {
    let home = TestHome::new();
    home.write(CLAUDE.file, "{\"a\": 1}\n");
    home.install(CLAUDE.agent, CLAUDE.mode, false).unwrap();
    fs::remove_file(home.path(CLAUDE.file)).unwrap();
    assert_eq!(home.install(CLAUDE.agent, CLAUDE.mode, false), Ok(true));
    assert!(home.read(CLAUDE.file).contains("csn hook"));
    assert_eq!(fs::read_dir(home.manifests()).unwrap().count(), 1, "the manifest alone");
    home.uninstall(CLAUDE.agent).unwrap();
    assert_eq!(home.snapshot(), vec![]);
}

#[test]
fn symbolic_links_are_followed_and_stay() {
    let home = TestHome::new();
    home.write("dotfiles/claude.json", "{\"a\": 1}\n");
    fs::create_dir_all(home.path(".claude")).unwrap();
    symlink("../dotfiles/claude.json", home.path(CLAUDE.file)).unwrap();
    fs::set_permissions(home.path("dotfiles/claude.json"), fs::Permissions::from_mode(0o640)).unwrap();
    home.install(AgentProgram::ClaudeCode, InstallMode::Hook, false).unwrap();
    assert!(fs::symlink_metadata(home.path(CLAUDE.file)).unwrap().is_symlink());
    assert!(home.read("dotfiles/claude.json").contains("csn hook"));
    let mode = fs::metadata(home.path(CLAUDE.file)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o640, "the mode stays");
    home.uninstall(AgentProgram::ClaudeCode).unwrap();
    assert_eq!(home.read("dotfiles/claude.json"), "{\"a\": 1}\n");
    assert!(fs::symlink_metadata(home.path(CLAUDE.file)).unwrap().is_symlink());
    fs::remove_file(home.path("dotfiles/claude.json")).unwrap();
    let why = home.install(AgentProgram::ClaudeCode, InstallMode::Hook, false).unwrap_err();
    assert!(why.contains("points to a missing file"), "{why}");
}

#[test]
fn a_link_out_of_the_project_is_refused() {
    let mut home = TestHome::new();
    home.write("mine.json", "{\"a\": 1}\n");
    home.write("srv/.git/HEAD", "ref\n");
    fs::create_dir_all(home.path("srv/.claude")).unwrap();
    symlink("../../mine.json", home.path("srv/.claude/settings.json")).unwrap();
    home.places.project = Some(home.path("srv"));
    let why = home.install(AgentProgram::ClaudeCode, InstallMode::Hook, false).unwrap_err();
    assert!(why.contains("outside of the project"), "{why}");
    assert_eq!(home.read("mine.json"), "{\"a\": 1}\n");
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_any_change() {
    let set = |path: PathBuf, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let home = TestHome::new();
    home.write(CLAUDE_MCP.file, "{}\n");
    home.write(CLAUDE.file, "{}\n");
    set(home.path(CLAUDE_MCP.file), 0o444);
    let refuse = |words: &str| {
        let before = home.snapshot();
        let why = home.install(AgentProgram::ClaudeCode, InstallMode::Both, false).unwrap_err();
        assert!(why.contains(words), "{why}");
        assert_eq!(home.snapshot(), before);
    };
    refuse("is read-only");
    set(home.path(CLAUDE_MCP.file), 0o644);
    set(home.path(".claude"), 0o555);
    refuse("is read-only");
    set(home.path(".claude"), 0o755);
    fs::remove_file(home.path(CLAUDE_MCP.file)).unwrap();
    fs::create_dir(home.path(CLAUDE_MCP.file)).unwrap();
    refuse("not a regular file");
    fs::remove_dir(home.path(CLAUDE_MCP.file)).unwrap();
    fs::write(home.path(CLAUDE_MCP.file), b"{\"a\": \"\xff\"}").unwrap();
    refuse("is not UTF-8");
    fs::remove_file(home.path(CLAUDE_MCP.file)).unwrap();
    fs::remove_dir_all(home.path(".claude")).unwrap();
    fs::write(home.path(".claude"), "a file").unwrap();
    refuse("is not a directory");
}

#[test]
fn a_failed_write_restores_the_earlier_ones() {
    let home = TestHome::new();
    home.write(CLAUDE.file, "{\"a\": 1}\n");
    home.write(CLAUDE_MCP.file, "{}\n");
    let request = home.request(AgentProgram::ClaudeCode, InstallMode::Both, false);
    let changes = plan::plan_install(&request, &home.manifests()).unwrap().writes();
    // Another program writes the second file after it was read.
    home.write(CLAUDE_MCP.file, "{\"new\": true}\n");
    let before = home.snapshot();
    let why = files::write_all(&changes).unwrap_err().to_string();
    assert!(why.contains("another program changed") && why.contains("nothing was changed"), "{why}");
    assert_eq!(home.snapshot(), before);
    assert!(!home.manifests().exists() || fs::read_dir(home.manifests()).unwrap().next().is_none());
}

#[test]
fn installations_of_agents_and_projects_are_independent() {
    let mut home = TestHome::new();
    home.write(".claude/settings.json", "{}\n");
    home.write("srv/.git/HEAD", "ref\n");
    home.install(AgentProgram::ClaudeCode, InstallMode::Both, false).unwrap();
    home.install(AgentProgram::Cursor, InstallMode::Mcp, false).unwrap();
    let both = home.snapshot();
    home.places.project = Some(home.path("srv"));
    home.install(AgentProgram::ClaudeCode, InstallMode::Both, false).unwrap();
    assert!(home.read("srv/.mcp.json").contains("csn") && home.read("srv/.claude/settings.json").contains("csn"));
    assert_eq!(manifest::read_all(&home.manifests()).len(), 3);
    home.uninstall(AgentProgram::ClaudeCode).unwrap();
    assert_eq!(home.snapshot(), both);
    home.places.project = None;
    home.uninstall(AgentProgram::ClaudeCode).unwrap();
    assert_eq!(home.read(".claude/settings.json"), "{}\n");
    assert!(home.read(".cursor/mcp.json").contains("csn"));
}

#[test]
fn a_mode_that_the_agent_does_not_support_is_refused() {
    let home = TestHome::new();
    for agent in [AgentProgram::Gemini, AgentProgram::Goose, AgentProgram::Cursor] {
        let why = home.request(agent, InstallMode::Hook, false).parts().unwrap_err().to_string();
        assert!(why.contains("has no hook"), "{why}");
    }
    assert!(
        home.request(AgentProgram::Codex, InstallMode::Mcp, true)
            .parts()
            .unwrap_err()
            .to_string()
            .contains("--witness")
    );
}

#[test]
fn only_a_denial_with_the_gates_reason_is_a_proof() {
    let home = TestHome::new();
    let prove = |agent, mode, code: i32, stdout: &str, stderr: &str| {
        let part = home.request(agent, mode, false).parts().unwrap().remove(0);
        let (stdout, stderr) = (stdout.as_bytes().to_vec(), stderr.as_bytes().to_vec());
        let answer = move |run: &ProgramRun<'_>| {
            let input = String::from_utf8_lossy(run.stdin);
            assert!(input.contains("\"csn down\""), "{input}");
            Ok(ProgramOutput { code: Some(code), stdout: stdout.clone(), stderr: stderr.clone(), timed_out: false })
        };
        super::prove::prove(&answer, &part.proof, &home.places.home)
    };
    let deny = r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"countersign: a task may not stop or kill countersign"}}"#;
    let allow = deny.replace("\"deny\"", "\"allow\"");
    let list = r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"run"}]}}"#;
    let call = r#"{"jsonrpc":"2.0","id":3,"result":{"isError":true,"content":[{"type":"text","text":"denied: a task may not stop or kill countersign"}]}}"#;
    let (hook, mcp) = (InstallMode::Hook, InstallMode::Mcp);
    for (agent, mode, code, stdout, stderr, holds) in [
        (AgentProgram::ClaudeCode, hook, 0, deny.to_owned(), "", true),
        (AgentProgram::Codex, hook, 0, deny.to_owned(), "", true),
        (AgentProgram::ClaudeCode, hook, 2, String::new(), "csn: a task may not stop or kill countersign", true),
        (AgentProgram::ClaudeCode, hook, 2, String::new(), "error: unrecognized subcommand 'hook'", false),
        (AgentProgram::ClaudeCode, hook, 0, deny.replace("a task may not stop or kill", "no daemon of"), "", false),
        (AgentProgram::ClaudeCode, hook, 0, allow, "", false),
        (AgentProgram::ClaudeCode, hook, 0, String::new(), "", false),
        (AgentProgram::ClaudeCode, hook, 1, deny.to_owned(), "", false),
        (
            AgentProgram::Opencode,
            hook,
            0,
            r#"{"decision":"deny","reason":"[self_destructive] no"}"#.to_owned(),
            "",
            true,
        ),
        (AgentProgram::Opencode, hook, 0, r#"{"decision":"allow"}"#.to_owned(), "", false),
        (AgentProgram::Opencode, hook, 2, String::new(), "may not stop or kill countersign", false),
        (AgentProgram::Cursor, mcp, 0, format!("{list}\n{call}\n"), "", true),
        (AgentProgram::Cursor, mcp, 0, format!("{list}\n{}\n", call.replace("true", "false")), "", false),
        (AgentProgram::Cursor, mcp, 0, format!("{}\n{call}\n", list.replace("run", "other")), "", false),
        (AgentProgram::Cursor, mcp, 2, String::new(), "unrecognized subcommand", false),
    ] {
        let proved = prove(agent, mode, code, &stdout, stderr);
        assert_eq!(proved.is_ok(), holds, "{agent:?} {mode:?} {code} {stdout} {stderr}: {proved:?}");
    }
}

#[test]
fn without_a_proof_every_change_is_undone() {
    let home = TestHome::new();
    home.write(CLAUDE.file, "{\"a\": 1}\n");
    let untouched = home.snapshot();
    let install = |run: &super::prove::RunProgram| {
        let prepared = home.prepare(AgentProgram::ClaudeCode, InstallMode::Both);
        prepared.prove_with(run, prepared.write().unwrap())
    };
    let file = home.path(CLAUDE.file);
    let failed = install(&move |run| {
        assert!(fs::read_to_string(&file).unwrap().contains("csn hook"), "the proof runs with the entry in place");
        let stdout = format!("{}\n", run.args.join(" ")).into_bytes();
        Ok(ProgramOutput { code: Some(2), stdout, stderr: b"what?".to_vec(), timed_out: false })
    });
    assert!(matches!(failed.undone, Some(Ok(()))), "{failed:?}");
    assert!(
        failed.proofs[1].as_ref().unwrap_err().to_string().contains("listed no tools (exit 2): what?"),
        "{failed:?}"
    );
    assert_eq!(home.snapshot(), untouched);
    assert!(!home.manifests().exists());
    let late = install(&|_| Ok(ProgramOutput { code: None, stdout: vec![], stderr: vec![], timed_out: true }));
    assert!(late.proofs[0].as_ref().unwrap_err().to_string().contains("did not answer within 30 s"), "{late:?}");
    let missing = install(&|_| Err(std::io::ErrorKind::NotFound.into()));
    assert!(missing.proofs[0].is_err() && matches!(missing.undone, Some(Ok(()))), "{missing:?}");
    assert_eq!(home.snapshot(), untouched);
}

/// A script in place of csn that denies the canary as csn does.
const FAKE_CSN: &str = r#"#!/bin/sh
why="a task may not stop or kill countersign"
case "$1 $2" in
"hook opencode") cat >/dev/null; echo "{\"decision\":\"deny\",\"reason\":\"$why\"}" ;;
"hook "*)
    grep -q '"command":"csn down"' || exit 1
    echo "{\"hookSpecificOutput\":{\"permissionDecision\":\"deny\",\"permissionDecisionReason\":\"$why\"}}" ;;
"mcp ")
    while read -r line; do
        case "$line" in
        *'"tools/list"'*) echo '{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"run"},{"name":"task_wait"}]}}' ;;
        *'"tools/call"'*)
            echo "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"isError\":true,\"content\":[{\"type\":\"text\",\"text\":\"$why\"}]}}" ;;
        esac
    done ;;
*) echo "unrecognized $*" >&2; exit 2 ;;
esac
"#;

#[test]
fn a_proof_runs_the_entry_as_the_agent_would() {
    let mut home = TestHome::new();
    let csn = home.path("my bin/it's/csn");
    home.csn = csn.to_str().unwrap().to_owned().leak();
    let fake = |body: &str| {
        fs::create_dir_all(csn.parent().unwrap()).unwrap();
        fs::write(&csn, body).unwrap();
        fs::set_permissions(&csn, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let run = |agent| {
        let prepared = home.prepare(agent, InstallMode::Both);
        let changed = prepared.write().unwrap();
        (changed, prepared.prove(changed))
    };
    for agent in [AgentProgram::ClaudeCode, AgentProgram::Codex, AgentProgram::Opencode] {
        fake(FAKE_CSN);
        let (changed, report) = run(agent);
        assert!(changed && report.undone.is_none(), "{report:?}");
        assert!(report.proofs[1].as_ref().unwrap().starts_with("MCP: 2 tools; run denies"), "{report:?}");
        let (changed, again) = run(agent);
        assert!(!changed && again.proofs[0].is_ok(), "{again:?}");
        // A failed proof does not undo an installation that was already there.
        let before = home.snapshot();
        fake("#!/bin/sh\nexit 1\n");
        let (changed, fails) = run(agent);
        assert!(!changed && fails.undone.is_none() && fails.proofs[0].is_err(), "{fails:?}");
        fake(FAKE_CSN);
        assert_eq!(home.snapshot(), before);
    }
}

#[test]
fn codex_trust_is_read_from_its_configuration() {
    let config = "[hooks.state.\"/h/.codex/hooks.json:pre_tool_use:1:0\"]\ntrusted_hash = \"sha256:ab\"\n";
    assert!(super::toml::codex_trusts(config, "/h/.codex/hooks.json:pre_tool_use:1:0"));
    assert!(!super::toml::codex_trusts(config, "/h/.codex/hooks.json:pre_tool_use:0:0"));
    assert!(!super::toml::codex_trusts("", "x"));
    let owner = super::entry::EntryOwner { agent: "codex", csn_paths: vec![] };
    let hooks = "{\"hooks\": {\"PreToolUse\": [{\"matcher\": \"x\", \"hooks\": []}, {\"matcher\": \"^Bash$\", \"hooks\": [{\"command\": \"csn hook codex\"}]}]}}";
    assert_eq!(super::json::find_hook(hooks, "PreToolUse", &owner), Some((1, 0)));
}
