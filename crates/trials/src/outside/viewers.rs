//! Viewers of a task: late, early, several at once, and while the daemon is killed.

use super::{
    CheckStage,
    programs::{CURSES_PROGRAM, VIM},
    tmux::{Pane, expect_panes_alike, stdout_text},
};
use crate::{Result, command, run};
use std::fs;

/// A vim that runs directly, and one in the background with the same text; both stay in insert mode.
fn start_vims(stage: &CheckStage) -> Result<(Pane<'_>, String)> {
    const TEXT: &str = "caf\u{e9} \u{4f60}\u{597d}, typed before attaching";
    let files = [("note.txt", "first line\nlast line\n")];
    let directory = stage.directory("direct", &files)?;
    stage.directory("through", &files)?;
    let direct = stage.tmux.open_pane("direct", &directory, &["bash", "-c", VIM])?;
    direct.wait_for("last line")?;
    direct.type_text(&format!("o{TEXT}"))?;
    direct.wait_for("attaching")?;
    // Without a terminal, a background task does not know its terminal type.
    let task = stage.start_background(&format!("TERM=screen-256color {VIM}"))?;
    stage.wait_for_screen(&task, "last line")?;
    stage.csn(&["send", &task, &format!("o{TEXT}")])?;
    stage.wait_for_screen(&task, "attaching")?;
    Ok((direct, task))
}

pub(super) fn attach(stage: &CheckStage) -> Result<()> {
    let (direct, task) = start_vims(stage)?;
    let late = stage.attach("late", &task)?;
    expect_panes_alike("attaching", &[&direct, &late])?;
    let (shown, seen) = (stage.wait_for_screen(&task, "attaching")?, direct.screen()?.text);
    if !shown.lines().map(str::trim_end).eq(seen.lines().map(str::trim_end)) {
        return Err(format!("csn show --screen prints\n{shown}\nand the terminal shows\n{seen}"));
    }
    late.press_keys(&["C-\\", "C-d"])?;
    late.wait_for("detached")?;
    let left = late.wait_for("[ended 0]")?;
    if !left.modes.contains("alternate 0") || left.text.contains("[the terminal was left") {
        return Err(format!("the pane is not back at its shell:\n{left}"));
    }
    let listed = stage.csn(&["ps"])?;
    if !listed.lines().any(|line| line.contains(&task) && line.contains("running")) {
        return Err(format!("the task does not run any more:\n{listed}"));
    }
    stage.csn(&["send", &task, " and after", "--keys", "up,left"])?;
    direct.type_text(" and after")?;
    direct.press_keys(&["Up", "Left"])?;
    let later = stage.attach("later", &task)?;
    expect_panes_alike("and after", &[&direct, &later])?;
    direct.resize(100, 30)?;
    later.resize(100, 30)?;
    expect_panes_alike(" 100x30", &[&direct, &later])?;
    save_and_quit(stage, &direct, &[&later])
}

/// Saves and quits; every viewer sees the end, and both files are equal.
fn save_and_quit(stage: &CheckStage, direct: &Pane<'_>, viewers: &[&Pane<'_>]) -> Result<()> {
    for pane in [&[direct], &viewers[..1]].concat() {
        pane.press_keys(&["Escape"])?;
        pane.type_text(":wq")?;
        pane.press_keys(&["Enter"])?;
    }
    for pane in [&[direct], viewers].concat() {
        pane.wait_for("[ended 0]")?;
    }
    let path = stage.dir.join("direct/note.txt");
    let saved = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    stage.expect_same_file("note.txt", &saved)
}

/// A viewer that polls immediately and repeatedly sees all output soon. The last letter may start a token, so it is
/// held back for a moment: polling must not extend that.
pub(super) fn early_viewer(stage: &CheckStage) -> Result<()> {
    stage.directory("through", &[])?;
    for word in ["seen", "keys", "packaging", "home"].repeat(3) {
        let task = stage.start_background(&format!("printf '%s' {word}; exec sleep 100"))?;
        stage.wait_for_screen(&task, word)?;
    }
    Ok(())
}

/// Writes its first argument, the second after a key, and ends after another key.
const STATE_PROGRAM: &str = r"
import os, sys, termios, tty
before = termios.tcgetattr(0)
tty.setcbreak(0)
for text in sys.argv[1:]:
    os.write(1, text.encode().decode('unicode_escape').encode('latin-1') if text.isascii() else text.encode())
    os.read(0, 1)
os.write(1, b'\x1b[r\x1b[?6;9;1000;1006l\x1b[?7;25h\x1b[4l\x1b(B\x1b[0m\x1b[2J\x1b[H')
termios.tcsetattr(0, termios.TCSANOW, before)
";

/// Terminal state that a program may set before a viewer attaches, and that later output depends on. A late viewer
/// loses tab stops, blinking and struck-through text (decision 7). Line drawing is kept, but tmux does not show it as
/// such; the shim's own tests cover it.
const TERMINAL_STATES: &[(&str, &str, &str)] = &[
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

/// A late viewer sees the screen of a program that draws all over it.
pub(super) fn late_viewer(stage: &CheckStage) -> Result<()> {
    compare_late_viewer(stage, "python3 dance.py", &[("dance.py", CURSES_PROGRAM)], ["round 20", "keys: x"])
}

/// A late viewer gets the whole terminal state, and later output looks as if it had been attached from the start.
pub(super) fn late_state(stage: &CheckStage) -> Result<()> {
    let mut missing = String::new();
    for (what, first, second) in TERMINAL_STATES {
        let program = format!("python3 state.py '{first}' '{second}'");
        if let Err(why) = compare_late_viewer(stage, &program, &[("state.py", STATE_PROGRAM)], ["seen.", "more."]) {
            missing.push_str(&format!("\n{what}: {why}"));
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(missing) }
}

/// Compares a direct run with a viewer that attaches after the first text.
fn compare_late_viewer(stage: &CheckStage, program: &str, files: &[(&str, &str)], texts: [&str; 2]) -> Result<()> {
    let directory = stage.directory("direct", files)?;
    stage.directory("through", files)?;
    let direct = stage.tmux.open_pane("direct", &directory, &["bash", "-c", program])?;
    let result = attach_late(stage, &direct, &format!("TERM=screen-256color {program}"), texts);
    direct.close()?;
    result
}

fn attach_late(stage: &CheckStage, direct: &Pane<'_>, program: &str, texts: [&str; 2]) -> Result<()> {
    let task = stage.start_background(program)?;
    stage.wait_for_screen(&task, texts[0])?;
    let late = stage.attach(&task, &task)?;
    expect_panes_alike(texts[0], &[direct, &late])?;
    direct.type_text("x")?;
    late.type_text("x")?;
    expect_panes_alike(texts[1], &[direct, &late])
}

pub(super) fn viewers(stage: &CheckStage) -> Result<()> {
    let (direct, task) = start_vims(stage)?;
    let (one, two) = (stage.attach("one", &task)?, stage.attach("two", &task)?);
    expect_panes_alike("attaching", &[&direct, &one, &two])?;
    for (text, typist) in [(", by the first", &one), (", by the second", &two)] {
        direct.type_text(text)?;
        typist.type_text(text)?;
        expect_panes_alike(text, &[&direct, &one, &two])?;
    }
    two.press_keys(&["C-\\", "C-d"])?;
    two.wait_for("[ended 0]")?;
    direct.type_text(", by one")?;
    one.type_text(", by one")?;
    expect_panes_alike(", by one", &[&direct, &one])?;
    save_and_quit(stage, &direct, &[&one])
}

pub(super) fn killed_daemon(stage: &CheckStage) -> Result<()> {
    let (direct, task) = start_vims(stage)?;
    let (one, two) = (stage.attach("one", &task)?, stage.attach("two", &task)?);
    expect_panes_alike("attaching", &[&direct, &one, &two])?;
    for round in 1..=3 {
        let text = format!(", killed {round}");
        let killed = daemon_pid(stage)?;
        run(command("kill").args(["-9", &killed]))?;
        // Types immediately, without waiting for the daemon to return.
        direct.type_text(&text)?;
        one.type_text(&text)?;
        expect_panes_alike(&text, &[&direct, &one, &two])?;
        if daemon_pid(stage)? == killed {
            return Err(format!("the daemon {killed} was not killed"));
        }
    }
    save_and_quit(stage, &direct, &[&one, &two])
}

/// `csn run` in the foreground also survives, with the screen that it showed before.
pub(super) fn killed_under_run(stage: &CheckStage) -> Result<()> {
    let program = format!("echo before; {VIM}; echo after");
    let pair = stage.start_pair(&program, &[("note.txt", "first line\nlast line\n")])?;
    pair.expect_same("last line")?;
    pair.type_text("otyped before")?;
    pair.expect_same("typed before")?;
    let killed = daemon_pid(stage)?;
    run(command("kill").args(["-9", &killed]))?;
    pair.type_text(" and after")?;
    pair.expect_same_look("typed before and after")?;
    pair.press_keys(&["Escape"])?;
    pair.type_line(":wq")?;
    pair.wait_for_both("[ended 0]")?;
    stage.expect_same_file("note.txt", "first line\ntyped before and after\nlast line\n")?;
    pair.expect_end(0)
}

/// The process id of the daemon.
fn daemon_pid(stage: &CheckStage) -> Result<String> {
    const PID: &str = "import json, sys; print(json.loads(sys.argv[1])['daemon']['pid'])";
    let report = stage.csn(&["doctor", "--json"])?;
    let output = stage.command("python3", ".").args(["-c", PID, &report]).output();
    Ok(stdout_text("the pid in csn doctor --json", &output.map_err(|e| format!("python3: {e}"))?)?.trim().to_owned())
}
