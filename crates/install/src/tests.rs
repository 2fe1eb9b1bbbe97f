//! Real-shaped configurations, one by one: changed in the right way or refused and left alone, and always given back.

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

/// A home with nothing in it but what a test puts there.
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

    fn wanted(&self, agent: AgentProgram, mode: InstallMode, witness: bool) -> InstallRequest<'_> {
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
            plan: plan::plan_install(&self.wanted(agent, mode, false), &self.manifests()).unwrap(),
        }
    }

    /// Whether anything changed.
    fn install(&self, agent: AgentProgram, mode: InstallMode, witness: bool) -> Result<bool, String> {
        let plan =
            plan::plan_install(&self.wanted(agent, mode, witness), &self.manifests()).map_err(|e| e.to_string())?;
        let changes = plan.writes();
        plan::create_private_dir(&self.manifests()).unwrap();
        files::write_all(&changes).map_err(|e| e.to_string())?;
        Ok(changes.iter().any(files::FileWrite::has_effect))
    }

    fn uninstall(&self, agent: AgentProgram) -> Result<bool, String> {
        let plan = plan::plan_removal(&self.wanted(agent, InstallMode::Both, false), &self.manifests())
            .map_err(|e| e.to_string())?;
        let changes = plan.writes();
        files::write_all(&changes).map_err(|e| e.to_string())?;
        Ok(changes.iter().any(files::FileWrite::has_effect))
    }

    /// Every file below the home but ours, with what it holds.
    fn snapshot(&self) -> Vec<(PathBuf, Vec<u8>)> {
        fn walk(dir: &Path, all: &mut Vec<(PathBuf, Vec<u8>)>) {
            let mut names: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
            names.sort();
            for path in names.into_iter().filter(|p| !p.ends_with("countersign")) {
                match path.is_dir() {
                    true => walk(&path, all),
                    false => all.push((path.clone(), fs::read(&path).unwrap())),
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

/// The one door. `expect` is the file afterwards, with what is new between « and »; or, after `refused:`, words of the
/// reason. Whatever it is: a second run changes nothing, removal gives every byte back, also without the copy.
#[track_caller]
fn check_install(case: &Case, before: &str, expect: &str) {
    let desk = TestHome::new();
    desk.write(case.file, before);
    let untouched = desk.snapshot();
    let done = desk.install(case.agent, case.mode, false);
    if let Some(words) = expect.strip_prefix("refused:") {
        let why = done.expect_err("refused");
        assert!(why.contains(words.trim()), "{why}");
        assert!(why.contains(case.file), "names the file: {why}");
        assert_eq!(desk.snapshot(), untouched, "untouched");
        return;
    }
    assert_eq!(done, Ok(true));
    let after = desk.read(case.file);
    if !expect.is_empty() {
        assert_eq!(after, expect.replace(['«', '»'], ""), "the file\n{after}");
        let old: String = expect.split('«').map(|p| p.split_once('»').map_or(p, |(_, old)| old)).collect();
        assert_eq!(old, before, "what is not new stands as it stood");
    }
    assert_eq!(desk.install(case.agent, case.mode, false), Ok(false), "a second run changes nothing");
    check_removal_without_backup(&desk, case, before, &after);
    assert_eq!(desk.uninstall(case.agent), Ok(true));
    assert_eq!(desk.snapshot(), untouched, "every byte is back");
    assert_eq!(desk.uninstall(case.agent), Ok(false), "nothing is installed");
    assert!(fs::read_dir(desk.manifests()).unwrap().next().is_none(), "no copy and no manifest is left");
}

/// Our entry cut out of the text leaves what was there: to the byte, but for blanks and braces where it was alone.
#[track_caller]
fn check_removal_without_backup(desk: &TestHome, case: &Case, before: &str, after: &str) {
    let wanted = desk.wanted(case.agent, case.mode, false);
    let part = wanted.parts().unwrap().remove(0);
    let made = manifest::read_all(&desk.manifests()).remove(0).unwrap().files.remove(0).made;
    let without = edit::remove_entry(&part.path, after, &part.entry, &wanted.owner(None), &made).unwrap();
    let words = |text: &str| text.split_whitespace().collect::<String>().replace("{}", "");
    assert_eq!(words(before), words(&without), "{before:?} came back as {without:?} from {after:?}");
}

/// Taken out by itself, not from the copy, as when somebody has changed the file since: `edit` is done to the file
/// between, and must be all that is different afterwards.
#[track_caller]
fn check_removal_after_edit(case: &Case, before: &str, edit: (&str, &str), expect: &str) {
    let desk = TestHome::new();
    desk.write(case.file, before);
    desk.install(case.agent, case.mode, false).unwrap();
    let after = desk.read(case.file);
    assert!(after.contains(edit.0), "{after}");
    desk.write(case.file, &after.replacen(edit.0, edit.1, 1));
    assert_eq!(desk.uninstall(case.agent), Ok(true));
    assert_eq!(desk.read(case.file), expect);
}

#[test]
fn claude_settings_of_every_shape() {
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
fn claude_hooks_of_others_stay() {
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
fn claude_settings_that_are_refused() {
    for (before, words) in [
        ("{\"a\": 1", "not valid JSON"),
        ("{\"a\": 1} {}", "not valid JSON"),
        ("{a: 1}", "not valid JSON"),
        ("{'a': 1}", "not valid JSON"),
        ("[]", "does not hold an object"),
        ("\"text\"", "does not hold an object"),
        ("{\"hooks\": []}", "line 1: `hooks` is not an object"),
        ("{\n\"hooks\": {\n\"PreToolUse\": {}}}", "line 3: `hooks.PreToolUse` is not a list"),
        ("{\"hooks\": {\"PreToolUse\": [\"x\"]}}", "`hooks.PreToolUse[0]` is not an object"),
        ("{\"hooks\": {},\n \"hooks\": {}}", "line 2: the key `hooks` stands there twice"),
        ("{\"x\": {\"y\": 1, \"y\": 2}}", "the key `y` stands there twice"),
        ("<<<<<<< HEAD\n{}\n", "not valid JSON"),
        ("{\"disableAllHooks\": true}", "`disableAllHooks` is set, so that it would be skipped"),
    ] {
        check_install(&CLAUDE, before, &format!("refused: {words}"));
    }
}

#[test]
fn servers_in_json() {
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
        "refused: is there already and is not Countersign's",
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
fn a_huge_file_is_no_matter() {
    let history: String =
        (0..40_000).map(|n| format!("    \"entry {n}\": {{\"display\": \"text {n}\", \"n\": {n}}},\n")).collect();
    check_install(&CLAUDE_MCP, &format!("{{\n  \"projects\": {{\n{history}    \"last\": {{}}\n  }}\n}}\n"), "");
}

#[test]
fn codex_configuration() {
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
        ("mcp_servers = { a = { command = \"a\" } }\n", "`mcp_servers` is not a table that can be added to"),
        ("mcp_servers = 3\n", "`mcp_servers` is not a table"),
        ("[[mcp_servers]]\na = 1\n", "`mcp_servers` is not a table"),
        (
            "[mcp_servers.csn]\ncommand = \"other\"\n",
            "line 1: `mcp_servers.csn` is there already and is not Countersign's",
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
fn goose_configuration() {
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
        ("a: 1\na: 2\n", "line 2: the key `a` stands there twice"),
        ("a: 1\n---\nb: 2\n", "more than one document"),
        ("{extensions: {a: 1}}\n", "braces"),
        ("extensions: {a: {enabled: true}}\n", "line 1: `extensions` is written in braces"),
        ("extensions: &all\n  a: {}\n", "anchor"),
        ("x: &all\n  a: {}\nextensions: *all\n", "alias"),
        ("extensions: [a]\n", "is not a mapping"),
        ("extensions: text\n", "is not a mapping"),
        ("- a\n- b\n", "does not hold a mapping"),
        ("a: 1\n...\n", "end mark"),
        ("extensions:\n  csn:\n    cmd: other\n    args: [serve]\n", "line 2: `extensions.csn` is there already"),
    ] {
        check_install(&GOOSE, before, &format!("refused: {words}"));
    }
}

#[test]
fn what_others_change_meanwhile_stays() {
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
fn a_file_of_ours_goes_unless_somebody_has_written_into_it() {
    for case in [&CLAUDE, &CLAUDE_MCP, &CODEX, &CODEX_HOOK, &GEMINI, &GOOSE, &CURSOR] {
        let desk = TestHome::new();
        assert_eq!(desk.install(case.agent, case.mode, false), Ok(true));
        let mode = fs::metadata(desk.path(case.file)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", case.file);
        let dir = fs::metadata(desk.manifests()).unwrap().permissions().mode() & 0o777;
        assert_eq!(dir, 0o700);
        // With a blank line more it is not as we left it, and still holds nothing of others.
        let text = desk.read(case.file);
        desk.write(case.file, &format!("{text}\n"));
        assert_eq!(desk.uninstall(case.agent), Ok(true));
        assert_eq!(desk.snapshot(), vec![], "{}", case.file);
        assert!(!desk.path(case.file).parent().unwrap().exists() || case.file == ".claude.json", "{}", case.file);
    }
}

#[test]
fn the_plugin_of_opencode() {
    let file = ".config/opencode/plugins/countersign.js";
    let desk = TestHome::new();
    desk.install(AgentProgram::Opencode, InstallMode::Hook, true).unwrap();
    let text = desk.read(file);
    assert!(text.contains("const CSN = \"/opt/csn\"") && text.contains("--witness"), "{text}");
    assert!(text.contains("tool.execute.after") && !text.contains('@'), "{text}");
    assert_eq!(desk.install(AgentProgram::Opencode, InstallMode::Hook, true), Ok(false));
    desk.install(AgentProgram::Opencode, InstallMode::Hook, false).unwrap();
    assert!(!desk.read(file).contains("tool.execute.after"));
    desk.uninstall(AgentProgram::Opencode).unwrap();
    assert_eq!(desk.snapshot(), vec![]);
    desk.write(file, "export const Other = 1\n");
    let why = desk.install(AgentProgram::Opencode, InstallMode::Hook, false).unwrap_err();
    assert!(why.contains("is there already and is not Countersign's"), "{why}");
    assert_eq!(desk.uninstall(AgentProgram::Opencode), Ok(false));
    assert_eq!(desk.read(file), "export const Other = 1\n");
}

#[test]
fn another_mode_or_path_changes_what_is_ours_and_removal_still_gives_all_back() {
    let mut desk = TestHome::new();
    let theirs =
        "{\n  \"hooks\": {\n    \"PostToolUse\": [\n      {\"matcher\": \"Edit\", \"hooks\": []}\n    ]\n  }\n}\n";
    desk.write(CLAUDE.file, theirs);
    let untouched = desk.snapshot();
    desk.install(AgentProgram::ClaudeCode, InstallMode::Hook, true).unwrap();
    let text = desk.read(CLAUDE.file);
    assert_eq!(text.matches("/opt/csn hook claude-code --witness").count(), 3, "{text}");
    assert!(text.contains("PostToolUseFailure"), "{text}");
    desk.csn = "/usr/local/my bin/csn";
    desk.install(AgentProgram::ClaudeCode, InstallMode::Both, false).unwrap();
    let text = desk.read(CLAUDE.file);
    assert!(text.contains("\"'/usr/local/my bin/csn' hook claude-code || exit 2\""), "{text}");
    assert!(
        !text.contains("/opt/csn") && !text.contains("PostToolUseFailure") && !text.contains("--witness"),
        "{text}"
    );
    assert!(desk.read(CLAUDE_MCP.file).contains("\"command\": \"/usr/local/my bin/csn\""));
    assert_eq!(desk.install(AgentProgram::ClaudeCode, InstallMode::Both, false), Ok(false));
    desk.install(AgentProgram::ClaudeCode, InstallMode::Mcp, false).unwrap();
    assert_eq!(desk.read(CLAUDE.file), theirs);
    desk.uninstall(AgentProgram::ClaudeCode).unwrap();
    assert_eq!(desk.snapshot(), untouched);
}

#[test]
fn an_older_entry_is_brought_up_to_date_where_it_stands() {
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
        let desk = TestHome::new();
        desk.write(case.file, before);
        desk.install(case.agent, case.mode, false).unwrap();
        assert_eq!(desk.read(case.file), expect);
        assert_eq!(desk.install(case.agent, case.mode, false), Ok(false));
    }
}

#[test]
fn what_no_manifest_tells_of_is_known_by_what_it_runs() {
    for case in [&CLAUDE, &CLAUDE_MCP, &CODEX, &GOOSE] {
        let desk = TestHome::new();
        let theirs = match case.file.rsplit('.').next().unwrap() {
            "toml" => "a = 1\n",
            "yaml" => "extensions:\n  a: {}\n",
            _ => {
                "{\n  \"hooks\": {\n    \"PreToolUse\": [\n      {\"matcher\": \"x\"}\n    ]\n  },\n  \"mcpServers\": {\n    \"a\": {}\n  }\n}\n"
            }
        };
        desk.write(case.file, theirs);
        desk.install(case.agent, case.mode, false).unwrap();
        fs::remove_dir_all(desk.manifests()).unwrap();
        assert_eq!(desk.uninstall(case.agent), Ok(true), "{}", case.file);
        assert_eq!(desk.read(case.file), theirs);
    }
}

#[test]
fn a_file_that_somebody_removed_is_made_anew_and_leaves_no_copy_behind() {
    let desk = TestHome::new();
    desk.write(CLAUDE.file, "{\"a\": 1}\n");
    desk.install(CLAUDE.agent, CLAUDE.mode, false).unwrap();
    fs::remove_file(desk.path(CLAUDE.file)).unwrap();
    assert_eq!(desk.install(CLAUDE.agent, CLAUDE.mode, false), Ok(true));
    assert!(desk.read(CLAUDE.file).contains("csn hook"));
    assert_eq!(fs::read_dir(desk.manifests()).unwrap().count(), 1, "the manifest alone");
    desk.uninstall(CLAUDE.agent).unwrap();
    assert_eq!(desk.snapshot(), vec![]);
}

#[test]
fn links_are_followed_and_stay() {
    let desk = TestHome::new();
    desk.write("dotfiles/claude.json", "{\"a\": 1}\n");
    fs::create_dir_all(desk.path(".claude")).unwrap();
    symlink("../dotfiles/claude.json", desk.path(CLAUDE.file)).unwrap();
    fs::set_permissions(desk.path("dotfiles/claude.json"), fs::Permissions::from_mode(0o640)).unwrap();
    desk.install(AgentProgram::ClaudeCode, InstallMode::Hook, false).unwrap();
    assert!(fs::symlink_metadata(desk.path(CLAUDE.file)).unwrap().is_symlink());
    assert!(desk.read("dotfiles/claude.json").contains("csn hook"));
    let mode = fs::metadata(desk.path(CLAUDE.file)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o640, "its mode stays");
    desk.uninstall(AgentProgram::ClaudeCode).unwrap();
    assert_eq!(desk.read("dotfiles/claude.json"), "{\"a\": 1}\n");
    assert!(fs::symlink_metadata(desk.path(CLAUDE.file)).unwrap().is_symlink());
    fs::remove_file(desk.path("dotfiles/claude.json")).unwrap();
    let why = desk.install(AgentProgram::ClaudeCode, InstallMode::Hook, false).unwrap_err();
    assert!(why.contains("leads nowhere"), "{why}");
}

#[test]
fn a_link_of_a_project_leads_nowhere_else() {
    let mut desk = TestHome::new();
    desk.write("mine.json", "{\"a\": 1}\n");
    desk.write("srv/.git/HEAD", "ref\n");
    fs::create_dir_all(desk.path("srv/.claude")).unwrap();
    symlink("../../mine.json", desk.path("srv/.claude/settings.json")).unwrap();
    desk.places.project = Some(desk.path("srv"));
    let why = desk.install(AgentProgram::ClaudeCode, InstallMode::Hook, false).unwrap_err();
    assert!(why.contains("leads out of the project"), "{why}");
    assert_eq!(desk.read("mine.json"), "{\"a\": 1}\n");
}

#[test]
fn what_cannot_be_written_is_refused_before_anything_is() {
    let set = |path: PathBuf, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let desk = TestHome::new();
    desk.write(CLAUDE_MCP.file, "{}\n");
    desk.write(CLAUDE.file, "{}\n");
    set(desk.path(CLAUDE_MCP.file), 0o444);
    let refuse = |words: &str| {
        let before = desk.snapshot();
        let why = desk.install(AgentProgram::ClaudeCode, InstallMode::Both, false).unwrap_err();
        assert!(why.contains(words), "{why}");
        assert_eq!(desk.snapshot(), before);
    };
    refuse("is read-only");
    set(desk.path(CLAUDE_MCP.file), 0o644);
    set(desk.path(".claude"), 0o555);
    refuse("is read-only");
    set(desk.path(".claude"), 0o755);
    fs::remove_file(desk.path(CLAUDE_MCP.file)).unwrap();
    fs::create_dir(desk.path(CLAUDE_MCP.file)).unwrap();
    refuse("is not a regular file");
    fs::remove_dir(desk.path(CLAUDE_MCP.file)).unwrap();
    fs::write(desk.path(CLAUDE_MCP.file), b"{\"a\": \"\xff\"}").unwrap();
    refuse("is not UTF-8");
    fs::remove_file(desk.path(CLAUDE_MCP.file)).unwrap();
    fs::remove_dir_all(desk.path(".claude")).unwrap();
    fs::write(desk.path(".claude"), "a file").unwrap();
    refuse("is not a directory");
}

#[test]
fn a_later_write_that_fails_puts_the_earlier_ones_back() {
    let desk = TestHome::new();
    desk.write(CLAUDE.file, "{\"a\": 1}\n");
    desk.write(CLAUDE_MCP.file, "{}\n");
    let wanted = desk.wanted(AgentProgram::ClaudeCode, InstallMode::Both, false);
    let changes = plan::plan_install(&wanted, &desk.manifests()).unwrap().writes();
    // Somebody writes the second file after it was read.
    desk.write(CLAUDE_MCP.file, "{\"new\": true}\n");
    let before = desk.snapshot();
    let why = files::write_all(&changes).unwrap_err().to_string();
    assert!(why.contains("changed by somebody else meanwhile") && why.contains("nothing was changed"), "{why}");
    assert_eq!(desk.snapshot(), before);
    assert!(!desk.manifests().exists() || fs::read_dir(desk.manifests()).unwrap().next().is_none());
}

#[test]
fn two_agents_and_a_project_do_not_meet() {
    let mut desk = TestHome::new();
    desk.write(".claude/settings.json", "{}\n");
    desk.write("srv/.git/HEAD", "ref\n");
    desk.install(AgentProgram::ClaudeCode, InstallMode::Both, false).unwrap();
    desk.install(AgentProgram::Cursor, InstallMode::Mcp, false).unwrap();
    let both = desk.snapshot();
    desk.places.project = Some(desk.path("srv"));
    desk.install(AgentProgram::ClaudeCode, InstallMode::Both, false).unwrap();
    assert!(desk.read("srv/.mcp.json").contains("csn") && desk.read("srv/.claude/settings.json").contains("csn"));
    assert_eq!(manifest::read_all(&desk.manifests()).len(), 3);
    desk.uninstall(AgentProgram::ClaudeCode).unwrap();
    assert_eq!(desk.snapshot(), both);
    desk.places.project = None;
    desk.uninstall(AgentProgram::ClaudeCode).unwrap();
    assert_eq!(desk.read(".claude/settings.json"), "{}\n");
    assert!(desk.read(".cursor/mcp.json").contains("csn"));
}

#[test]
fn what_an_agent_has_not_is_refused() {
    let desk = TestHome::new();
    for agent in [AgentProgram::Gemini, AgentProgram::Goose, AgentProgram::Cursor] {
        let why = desk.wanted(agent, InstallMode::Hook, false).parts().unwrap_err().to_string();
        assert!(why.contains("gets no hook"), "{why}");
    }
    assert!(
        desk.wanted(AgentProgram::Codex, InstallMode::Mcp, true).parts().unwrap_err().to_string().contains("--witness")
    );
}

#[test]
fn only_a_denial_of_the_gate_is_a_proof() {
    let desk = TestHome::new();
    let prove = |agent, mode, code: i32, stdout: &str, stderr: &str| {
        let part = desk.wanted(agent, mode, false).parts().unwrap().remove(0);
        let (stdout, stderr) = (stdout.as_bytes().to_vec(), stderr.as_bytes().to_vec());
        let answer = move |asked: &ProgramRun<'_>| {
            let told = String::from_utf8_lossy(asked.stdin);
            assert!(told.contains("\"csn down\""), "{told}");
            Ok(ProgramOutput { code: Some(code), stdout: stdout.clone(), stderr: stderr.clone(), timed_out: false })
        };
        super::prove::prove(&answer, &part.proof, &desk.places.home)
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
        (AgentProgram::ClaudeCode, hook, 0, deny.replace("a task may not stop or kill", "no house of"), "", false),
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

/// What was written stays when it is proved, and goes without a trace when it is not.
#[test]
fn without_a_proof_everything_is_taken_back() {
    let desk = TestHome::new();
    desk.write(CLAUDE.file, "{\"a\": 1}\n");
    let untouched = desk.snapshot();
    let run = |converse: &super::prove::RunProgram| {
        let prepared = desk.prepare(AgentProgram::ClaudeCode, InstallMode::Both);
        prepared.prove_with(converse, prepared.write().unwrap())
    };
    let file = desk.path(CLAUDE.file);
    let fails = run(&move |asked| {
        assert!(fs::read_to_string(&file).unwrap().contains("csn hook"), "it is proved as it stands");
        let stdout = format!("{}\n", asked.args.join(" ")).into_bytes();
        Ok(ProgramOutput { code: Some(2), stdout, stderr: b"what?".to_vec(), timed_out: false })
    });
    assert!(matches!(fails.undone, Some(Ok(()))), "{fails:?}");
    assert!(fails.proofs[1].as_ref().unwrap_err().to_string().contains("listed no tools (exit 2): what?"), "{fails:?}");
    assert_eq!(desk.snapshot(), untouched);
    assert!(!desk.manifests().exists());
    let late = run(&|_| Ok(ProgramOutput { code: None, stdout: vec![], stderr: vec![], timed_out: true }));
    assert!(late.proofs[0].as_ref().unwrap_err().to_string().contains("did not answer within 30 s"), "{late:?}");
    let gone = run(&|_| Err(std::io::ErrorKind::NotFound.into()));
    assert!(gone.proofs[0].is_err() && matches!(gone.undone, Some(Ok(()))), "{gone:?}");
    assert_eq!(desk.snapshot(), untouched);
}

/// A csn of a few lines, which denies the canary as the real one does.
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
fn what_is_written_is_run_as_the_agent_would_run_it() {
    let mut desk = TestHome::new();
    let csn = desk.path("my bin/it's/csn");
    desk.csn = csn.to_str().unwrap().to_owned().leak();
    let fake = |body: &str| {
        fs::create_dir_all(csn.parent().unwrap()).unwrap();
        fs::write(&csn, body).unwrap();
        fs::set_permissions(&csn, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let run = |agent| {
        let prepared = desk.prepare(agent, InstallMode::Both);
        let changed = prepared.write().unwrap();
        (changed, prepared.prove(changed))
    };
    for agent in [AgentProgram::ClaudeCode, AgentProgram::Codex, AgentProgram::Opencode] {
        fake(FAKE_CSN);
        let (changed, told) = run(agent);
        assert!(changed && told.undone.is_none(), "{told:?}");
        assert!(told.proofs[1].as_ref().unwrap().starts_with("MCP: 2 tools; run denies"), "{told:?}");
        let (changed, again) = run(agent);
        assert!(!changed && again.proofs[0].is_ok(), "{again:?}");
        // What is there already is not taken away by a proof that fails.
        let before = desk.snapshot();
        fake("#!/bin/sh\nexit 1\n");
        let (changed, fails) = run(agent);
        assert!(!changed && fails.undone.is_none() && fails.proofs[0].is_err(), "{fails:?}");
        fake(FAKE_CSN);
        assert_eq!(desk.snapshot(), before);
    }
}

#[test]
fn codex_trust_is_found_where_codex_keeps_it() {
    let config = "[hooks.state.\"/h/.codex/hooks.json:pre_tool_use:1:0\"]\ntrusted_hash = \"sha256:ab\"\n";
    assert!(super::toml::codex_trusts(config, "/h/.codex/hooks.json:pre_tool_use:1:0"));
    assert!(!super::toml::codex_trusts(config, "/h/.codex/hooks.json:pre_tool_use:0:0"));
    assert!(!super::toml::codex_trusts("", "x"));
    let mine = super::entry::EntryOwner { agent: "codex", csn_paths: vec![] };
    let hooks = "{\"hooks\": {\"PreToolUse\": [{\"matcher\": \"x\", \"hooks\": []}, {\"matcher\": \"^Bash$\", \"hooks\": [{\"command\": \"csn hook codex\"}]}]}}";
    assert_eq!(super::json::find_hook(hooks, "PreToolUse", &mine), Some((1, 0)));
}
