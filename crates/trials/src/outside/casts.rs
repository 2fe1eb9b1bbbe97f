//! Plays and reads recordings with the reference tools of the format: asciinema, and the parser of its player.

use super::{CheckStage, is_installed, tmux::stdout_text};
use crate::Result;
use std::{fs, path::Path, process::Command};

/// Prints colours, wide characters, one character in two pieces, and a resize in the middle.
const SESSION: &str = r#"
import os, shutil, sys, termios, time, tty

def key(prompt):
    os.write(1, prompt.encode())
    os.read(0, 100)

before = termios.tcgetattr(0)
tty.setcbreak(0)
os.write(1, b"\x1b[2J\x1b[H\x1b[1;31mred\x1b[0m \x1b[38;5;208morange\x1b[0m \x1b[48;2;10;20;30mdeep\x1b[0m\r\n")
for piece in (b"whole: \xe4\xbd\xa0\xe5\xa5\xbd caf\xc3\xa9, cut: \xe4\xbd", b"\xa0\xe5", b"\xa5\xbd\r\n"):
    os.write(1, piece)
    # Longer than output is gathered for, so that the pieces are recorded apart.
    time.sleep(0.1)
key("the first key: ")
os.write(1, b"\x1b[2J\x1b[H\"quoted\" and \\ and a tab\there\r\n")
os.write(1, "{0}x{1} \u2500\u2500 \U0001f600\r\n".format(*shutil.get_terminal_size()).encode())
key("the second key: ")
termios.tcsetattr(0, termios.TCSANOW, before)
os.write(1, b"done\r\n")
sys.exit(3)
"#;

/// Checks the documented rules of both versions, and prints the output byte for byte.
const RULES: &str = r#"
import json, sys
version, path = int(sys.argv[1]), sys.argv[2]
header, *events = [json.loads(line) for line in open(path, encoding="utf-8")]
assert header["version"] == version, header
size = (header["term"]["cols"], header["term"]["rows"]) if version == 3 else (header["width"], header["height"])
assert size == (80, 24), size
last = 0
for event in events:
    time, code, data = event
    assert isinstance(time, (int, float)) and isinstance(data, str), event
    assert code in ("oimrx" if version == 3 else "oimr"), event
    assert time >= (0 if version == 3 else last), event
    last = time
assert [data for _, code, data in events if code == "r"] == ["100x30"], "the size changed once"
if version == 3:
    assert [data for _, code, data in events if code == "x"] == ["3"], "it exited with 3"
    assert events[-1][1] == "x", "the exit comes last"
sys.stdout.buffer.write("".join(data for _, code, data in events if code == "o").encode())
"#;

/// The player does not export its parsers; a copy of the file that contains them does. The version is pinned because
/// of that.
const PLAYER: &str = "asciinema-player@3.17.0";
const PARSE: &str = r#"
import fs from "node:fs";
const dist = "node_modules/asciinema-player/dist/";
const core = fs.readdirSync(dist).find((name) => name.startsWith("core-"));
fs.writeFileSync(dist + "parsers.mjs", fs.readFileSync(dist + core) + "\nexport { parse$2 as parse };\n");
const { parse } = await import(process.cwd() + "/" + dist + "parsers.mjs");
const recording = await parse(new Response(fs.readFileSync(process.argv[2])));
if (recording.cols !== 80 || recording.rows !== 24) throw new Error(`${recording.cols}x${recording.rows}`);
let last = 0;
for (const [time, code, data] of recording.events) {
  if (!(time >= last)) throw new Error(`time goes back: ${time} after ${last}`);
  last = time;
  if (code === "o") fs.writeSync(1, data);
}
"#;

pub(super) fn casts(stage: &CheckStage) -> Result<()> {
    let (task, shown) = record_session(stage)?;
    let recorded = find_recording(&stage.dir.join("home/tasks"))?.ok_or("there is no pty.log")?;
    expect_equal("csn logs", &recorded, &stdout_bytes(stage.command(&stage.csn, ".").args(["logs", &task]))?)?;
    expect_equal(
        "csn replay",
        &recorded,
        &stdout_bytes(stage.command(&stage.csn, ".").args(["replay", &task, "--instant"]))?,
    )?;
    for version in ["2", "3"] {
        let file = format!("v{version}.cast");
        stage.csn(&["replay", &task, "--cast", &format!("v{version}"), &file])?;
        let mut rules = stage.command("python3", ".");
        expect_equal(&file, &recorded, &stdout_bytes(rules.args(["-c", RULES, version, &file]))?)?;
    }
    check_asciinema(stage, &recorded, &shown)?;
    check_player(stage, &recorded)
}

/// Records a short session; returns its task and the final screen.
fn record_session(stage: &CheckStage) -> Result<(String, String)> {
    let pair = stage.start_pair("python3 session.py", &[("session.py", SESSION)])?;
    pair.expect_same("the first key:")?;
    pair.resize(100, 30)?;
    pair.expect_same("the first key:")?;
    pair.press_keys(&["x"])?;
    pair.expect_same("100x30")?;
    pair.press_keys(&["y"])?;
    pair.expect_same("[ended 3]")?;
    let listed = stage.csn(&["ps", "-a"])?;
    let task = listed.split_whitespace().find(|word| word.starts_with("tk_")).ok_or("no task is listed")?;
    let shown = pair.through.screen()?.coloured;
    Ok((task.to_owned(), shown.replace("[ended 3]", "")))
}

/// The recorded bytes of the only task.
fn find_recording(dir: &Path) -> Result<Option<Vec<u8>>> {
    for entry in fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))? {
        let path = entry.map_err(|e| e.to_string())?.path();
        if path.is_dir() {
            if let Some(found) = find_recording(&path)? {
                return Ok(Some(found));
            }
        } else if path.file_name().is_some_and(|name| name == "pty.log") {
            return fs::read(&path).map(Some).map_err(|e| format!("{}: {e}", path.display()));
        }
    }
    Ok(None)
}

fn stdout_bytes(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    stdout_text(&format!("{command:?}"), &output)?;
    Ok(output.stdout)
}

fn expect_equal(what: &str, recorded: &[u8], got: &[u8]) -> Result<()> {
    if recorded == got {
        return Ok(());
    }
    let shown = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Err(format!("{what} differs from the recording:\n  {:?}\n  {:?}", shown(got), shown(recorded)))
}

/// Debian's asciinema supports version 2. It needs a terminal even if its output is redirected.
fn check_asciinema(stage: &CheckStage, recorded: &[u8], shown: &str) -> Result<()> {
    let cat = stage.tmux.open_pane("cat", &stage.dir, &["bash", "-c", "asciinema cat v2.cast > cat.out"])?;
    cat.wait_for("[ended 0]")?;
    let printed = fs::read(stage.dir.join("cat.out")).map_err(|e| format!("cat.out: {e}"))?;
    expect_equal("asciinema cat", recorded, &printed)?;
    let play = stage.tmux.open_pane("play", &stage.dir, &["bash", "-c", "asciinema play -s 1000 -i 0.01 v2.cast"])?;
    play.wait_for("[ended 0]")?;
    let played = play.screen()?.coloured.replace("[ended 0]", "");
    if played.trim_end() == shown.trim_end() {
        Ok(())
    } else {
        Err(format!("asciinema played\n{played}\nand this was recorded:\n{shown}"))
    }
}

/// Version 3, as the web player reads it.
fn check_player(stage: &CheckStage, recorded: &[u8]) -> Result<()> {
    let dir = stage.directory("player", &[("parse.mjs", PARSE)])?;
    if !is_installed("node") || !is_installed("npm") {
        println!("casts: npm is not installed: version 3 was checked by its documented rules only, not by the player");
        return Ok(());
    }
    // Uses the caller's environment, which may configure a package registry.
    stdout_bytes(
        crate::command("npm").args(["install", "--silent", "--no-audit", "--no-fund", PLAYER]).current_dir(&dir),
    )?;
    for version in ["v2", "v3"] {
        let file = format!("../{version}.cast");
        let parsed = stdout_bytes(stage.command("node", "player").args(["parse.mjs", &file]))?;
        expect_equal(&format!("asciinema-player's {version}"), recorded, &parsed)?;
    }
    Ok(())
}
