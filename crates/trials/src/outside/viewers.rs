//! Those who look at a task: late, early, together, and while the daemon is killed.

use super::{
    CheckStage,
    programs::{DANCE, VIM},
    tmux::{Pane, same, text_of},
};
use crate::{Result, command, run};
use std::fs;

/// A directly run vim, and one in the background with the same text in it; both stay in insert mode.
fn vims(stage: &CheckStage) -> Result<(Pane<'_>, String)> {
    const TEXT: &str = "caf\u{e9} \u{4f60}\u{597d}, typed before anybody looked";
    let files = [("note.txt", "first line\nlast line\n")];
    let directory = stage.directory("direct", &files)?;
    stage.directory("through", &files)?;
    let direct = stage.tmux.pane("direct", &directory, &["bash", "-c", VIM])?;
    direct.see("last line")?;
    direct.text(&format!("o{TEXT}"))?;
    direct.see("anybody looked")?;
    // Without a terminal of ours it does not know what kind to draw for.
    let task = stage.background(&format!("TERM=screen-256color {VIM}"))?;
    stage.shows(&task, "last line")?;
    stage.csn(&["send", &task, &format!("o{TEXT}")])?;
    stage.shows(&task, "anybody looked")?;
    Ok((direct, task))
}

pub(super) fn attach(stage: &CheckStage) -> Result<()> {
    let (direct, task) = vims(stage)?;
    let late = stage.attach("late", &task)?;
    same("anybody looked", &[&direct, &late])?;
    let (shown, seen) = (stage.shows(&task, "anybody looked")?, direct.screen()?.text);
    if !shown.lines().map(str::trim_end).eq(seen.lines().map(str::trim_end)) {
        return Err(format!("csn show --screen prints\n{shown}\nand the terminal shows\n{seen}"));
    }
    late.keys(&["C-\\", "C-d"])?;
    late.see("detached; the task keeps running")?;
    let left = late.see("[ended 0]")?;
    if !left.modes.contains("alternate 0") || left.text.contains("[the terminal was left") {
        return Err(format!("the pane is not back at its shell:\n{left}"));
    }
    let listed = stage.csn(&["ps"])?;
    if !listed.lines().any(|line| line.contains(&task) && line.contains("running")) {
        return Err(format!("the task does not run on:\n{listed}"));
    }
    stage.csn(&["send", &task, " and after", "--keys", "up,left"])?;
    direct.text(" and after")?;
    direct.keys(&["Up", "Left"])?;
    let later = stage.attach("later", &task)?;
    same("and after", &[&direct, &later])?;
    direct.resize(100, 30)?;
    later.resize(100, 30)?;
    same(" 100x30", &[&direct, &later])?;
    finish(stage, &direct, &[&later])
}

/// Saves and quits; everybody sees the end of it, and both files are the same.
fn finish(stage: &CheckStage, direct: &Pane<'_>, viewers: &[&Pane<'_>]) -> Result<()> {
    for pane in [&[direct], &viewers[..1]].concat() {
        pane.keys(&["Escape"])?;
        pane.text(":wq")?;
        pane.keys(&["Enter"])?;
    }
    for pane in [&[direct], viewers].concat() {
        pane.see("[ended 0]")?;
    }
    let path = stage.dir.join("direct/note.txt");
    let saved = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    stage.same_file("note.txt", &saved)
}

/// Whoever looks at once, and again, sees all of it soon. The last letter may begin a token, and waits for a moment
/// before it is shown: looking must not make it wait for ever.
pub(super) fn early_viewer(stage: &CheckStage) -> Result<()> {
    stage.directory("through", &[])?;
    for word in ["seen", "keys", "packaging", "home"].repeat(3) {
        let task = stage.background(&format!("printf '%s' {word}; exec sleep 100"))?;
        stage.shows(&task, word)?;
    }
    Ok(())
}

/// Writes the one, and the other when a key comes; ends with another key.
const STATE: &str = r"
import os, sys, termios, tty
before = termios.tcgetattr(0)
tty.setcbreak(0)
for text in sys.argv[1:]:
    os.write(1, text.encode().decode('unicode_escape').encode('latin-1') if text.isascii() else text.encode())
    os.read(0, 1)
os.write(1, b'\x1b[r\x1b[?6;9;1000;1006l\x1b[?7;25h\x1b[4l\x1b(B\x1b[0m\x1b[2J\x1b[H')
termios.tcsetattr(0, termios.TCSANOW, before)
";

/// What a program may have set before somebody comes to look, and what comes after depends on. Tab stops, blinking and
/// struck-through text are lost on whoever comes late (decision 7); line drawing is not, but tmux tells the letters from
/// the lines that they stand for, so the supervisor's own tests show that.
const STATES: &[(&str, &str, &str)] = &[
    ("colours and attributes", r"\x1b[1;3;4;7;38;5;208;48;2;9;8;7mseen.", "more."),
    ("dim", r"\x1b[2mseen.", "more."),
    ("a coloured background", r"\x1b[44m\x1b[2J\x1b[Hseen.", r"\x1b[Kmore."),
    ("a scrolling region", r"\x1b[2J\x1b[5;20r\x1b[24;1Hstays\x1b[20;1Hseen.", r"\r\nmore."),
    ("an origin", r"\x1b[5;20r\x1b[?6h\x1b[Hseen.", r"\x1b[2;1Hmore."),
    ("a saved cursor", r"\x1b[3;30H\x1b7\x1b[10;1Hseen.", r"\x1b8more."),
    ("a hidden cursor", r"\x1b[?25lseen.", "more."),
    ("insert mode", r"seen.\x1b[4h\r", "more."),
    ("no wrapping", r"\x1b[?7lseen.", r"\x1b[1;75H0123456789\x1b[3;1Hmore."),
    (
        "a full row",
        r"seen.\r\n01234567890123456789012345678901234567890123456789012345678901234567890123456789",
        "more.",
    ),
    ("the mouse", r"\x1b[?1000h\x1b[?1006hseen.", "more."),
    ("application keys", r"\x1b[?1h\x1b=seen.", r"more.\x1b[?1l\x1b>"),
    ("a screen below", r"below\x1b[?1049h\x1b[Hseen.", r"\x1b[?1049lmore."),
    ("wide and combined characters", "seen. e\u{301} \u{4f60}\u{597d} \u{1f600} a\u{308}", "more."),
];

/// What whoever comes late sees of a program that draws all over the screen.
pub(super) fn late_viewer(stage: &CheckStage) -> Result<()> {
    late(stage, "python3 dance.py", &[("dance.py", DANCE)], ["round 20", "keys: x"])
}

/// Whoever comes late gets the whole state, and what is written afterwards looks as if they had been there.
pub(super) fn late_state(stage: &CheckStage) -> Result<()> {
    let mut missing = String::new();
    for (what, first, second) in STATES {
        let program = format!("python3 state.py '{first}' '{second}'");
        if let Err(why) = late(stage, &program, &[("state.py", STATE)], ["seen.", "more."]) {
            missing.push_str(&format!("\n{what}: {why}"));
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(missing) }
}

/// A program by itself, and one that is looked at after it has shown the first text.
fn late(stage: &CheckStage, program: &str, files: &[(&str, &str)], texts: [&str; 2]) -> Result<()> {
    let directory = stage.directory("direct", files)?;
    stage.directory("through", files)?;
    let direct = stage.tmux.pane("direct", &directory, &["bash", "-c", program])?;
    let looked = look_late(stage, &direct, &format!("TERM=screen-256color {program}"), texts);
    direct.close()?;
    looked
}

fn look_late(stage: &CheckStage, direct: &Pane<'_>, program: &str, texts: [&str; 2]) -> Result<()> {
    let task = stage.background(program)?;
    stage.shows(&task, texts[0])?;
    let late = stage.attach(&task, &task)?;
    same(texts[0], &[direct, &late])?;
    direct.text("x")?;
    late.text("x")?;
    same(texts[1], &[direct, &late])
}

pub(super) fn viewers(stage: &CheckStage) -> Result<()> {
    let (direct, task) = vims(stage)?;
    let (one, two) = (stage.attach("one", &task)?, stage.attach("two", &task)?);
    same("anybody looked", &[&direct, &one, &two])?;
    for (text, typist) in [(", by the first", &one), (", by the second", &two)] {
        direct.text(text)?;
        typist.text(text)?;
        same(text, &[&direct, &one, &two])?;
    }
    two.keys(&["C-\\", "C-d"])?;
    two.see("[ended 0]")?;
    direct.text(", by one")?;
    one.text(", by one")?;
    same(", by one", &[&direct, &one])?;
    finish(stage, &direct, &[&one])
}

pub(super) fn killed_daemon(stage: &CheckStage) -> Result<()> {
    let (direct, task) = vims(stage)?;
    let (one, two) = (stage.attach("one", &task)?, stage.attach("two", &task)?);
    same("anybody looked", &[&direct, &one, &two])?;
    for round in 1..=3 {
        let text = format!(", killed {round}");
        let killed = daemon(stage)?;
        run(command("kill").args(["-9", &killed]))?;
        // Nobody waits for the house to be back.
        direct.text(&text)?;
        one.text(&text)?;
        same(&text, &[&direct, &one, &two])?;
        if daemon(stage)? == killed {
            return Err(format!("the daemon {killed} was not killed"));
        }
    }
    finish(stage, &direct, &[&one, &two])
}

/// Who started a task and is still there goes on too, with what was on the screen before.
pub(super) fn killed_under_run(stage: &CheckStage) -> Result<()> {
    let program = format!("echo before; {VIM}; echo after");
    let twins = stage.twins(&program, &[("note.txt", "first line\nlast line\n")])?;
    twins.same("last line")?;
    twins.text("otyped before")?;
    twins.same("typed before")?;
    let killed = daemon(stage)?;
    run(command("kill").args(["-9", &killed]))?;
    twins.text(" and after")?;
    twins.same_look("typed before and after")?;
    twins.keys(&["Escape"])?;
    twins.line(":wq")?;
    twins.both("[ended 0]")?;
    stage.same_file("note.txt", "first line\ntyped before and after\nlast line\n")?;
    twins.ended(0)
}

/// The daemon's pid.
fn daemon(stage: &CheckStage) -> Result<String> {
    const PID: &str = "import json, sys; print(json.loads(sys.argv[1])['daemon']['pid'])";
    let report = stage.csn(&["doctor", "--json"])?;
    let output = stage.command("python3", ".").args(["-c", PID, &report]).output();
    Ok(text_of("the pid in csn doctor --json", &output.map_err(|e| format!("python3: {e}"))?)?.trim().to_owned())
}
