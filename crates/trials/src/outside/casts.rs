//! Recordings, played and read by those who made the format: asciinema, and the parser of its player.

use super::{CheckStage, is_installed, tmux::text_of};
use crate::Result;
use std::{fs, path::Path, process::Command};

/// Colours, wide characters, one that is cut in two on its way, and another size in the middle.
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

/// The documented rules of both versions. Prints what was output, byte for byte.
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

/// The player's own parsers, which its package does not export: a copy of the file that holds them does.
/// Its version is fixed because of that.
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
    let (task, shown) = record(stage)?;
    let recorded = recording(&stage.dir.join("home/tasks"))?.ok_or("there is no pty.log")?;
    expect("csn logs", &recorded, &bytes(stage.command(&stage.csn, ".").args(["logs", &task]))?)?;
    expect("csn replay", &recorded, &bytes(stage.command(&stage.csn, ".").args(["replay", &task, "--instant"]))?)?;
    for version in ["2", "3"] {
        let file = format!("v{version}.cast");
        stage.csn(&["replay", &task, "--cast", &format!("v{version}"), &file])?;
        let mut rules = stage.command("python3", ".");
        expect(&file, &recorded, &bytes(rules.args(["-c", RULES, version, &file]))?)?;
    }
    asciinema(stage, &recorded, &shown)?;
    player(stage, &recorded)
}

/// A short session; its task, and what was on the screen in the end.
fn record(stage: &CheckStage) -> Result<(String, String)> {
    let twins = stage.twins("python3 session.py", &[("session.py", SESSION)])?;
    twins.same("the first key:")?;
    twins.resize(100, 30)?;
    twins.same("the first key:")?;
    twins.keys(&["x"])?;
    twins.same("100x30")?;
    twins.keys(&["y"])?;
    twins.same("[ended 3]")?;
    let listed = stage.csn(&["ps", "-a"])?;
    let task = listed.split_whitespace().find(|word| word.starts_with("tk_")).ok_or("no task is listed")?;
    let shown = twins.through.screen()?.coloured;
    Ok((task.to_owned(), shown.replace("[ended 3]", "")))
}

/// The bytes that the house has of the only task.
fn recording(dir: &Path) -> Result<Option<Vec<u8>>> {
    for entry in fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))? {
        let path = entry.map_err(|e| e.to_string())?.path();
        if path.is_dir() {
            if let Some(found) = recording(&path)? {
                return Ok(Some(found));
            }
        } else if path.file_name().is_some_and(|name| name == "pty.log") {
            return fs::read(&path).map(Some).map_err(|e| format!("{}: {e}", path.display()));
        }
    }
    Ok(None)
}

fn bytes(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    text_of(&format!("{command:?}"), &output)?;
    Ok(output.stdout)
}

fn expect(what: &str, recorded: &[u8], got: &[u8]) -> Result<()> {
    if recorded == got {
        return Ok(());
    }
    let shown = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Err(format!("{what} differs from the recording:\n  {:?}\n  {:?}", shown(got), shown(recorded)))
}

/// Debian's asciinema knows version 2. It wants a terminal, also where its output goes elsewhere.
fn asciinema(stage: &CheckStage, recorded: &[u8], shown: &str) -> Result<()> {
    let cat = stage.tmux.pane("cat", &stage.dir, &["bash", "-c", "asciinema cat v2.cast > cat.out"])?;
    cat.see("[ended 0]")?;
    let printed = fs::read(stage.dir.join("cat.out")).map_err(|e| format!("cat.out: {e}"))?;
    expect("asciinema cat", recorded, &printed)?;
    let play = stage.tmux.pane("play", &stage.dir, &["bash", "-c", "asciinema play -s 1000 -i 0.01 v2.cast"])?;
    play.see("[ended 0]")?;
    let played = play.screen()?.coloured.replace("[ended 0]", "");
    match played.trim_end() == shown.trim_end() {
        true => Ok(()),
        false => Err(format!("asciinema played\n{played}\nand this was recorded:\n{shown}")),
    }
}

/// Version 3, as the player reads it that is on the pages of those who use it.
fn player(stage: &CheckStage, recorded: &[u8]) -> Result<()> {
    let dir = stage.directory("player", &[("parse.mjs", PARSE)])?;
    if !is_installed("node") || !is_installed("npm") {
        println!("casts: there is no npm: version 3 was read by its documented rules alone, not by the player");
        return Ok(());
    }
    // With the caller's environment: where packages come from is theirs to say.
    bytes(crate::command("npm").args(["install", "--silent", "--no-audit", "--no-fund", PLAYER]).current_dir(&dir))?;
    for version in ["v2", "v3"] {
        let file = format!("../{version}.cast");
        let parsed = bytes(stage.command("node", "player").args(["parse.mjs", &file]))?;
        expect(&format!("asciinema-player's {version}"), recorded, &parsed)?;
    }
    Ok(())
}
