//! Interactive terminal programs, run directly and through Countersign.

use super::{
    CheckStage, new_secret,
    tmux::{PanePair, PaneScreen, stdout_text},
};
use crate::Result;
use std::fs;

/// Vim without user configuration; its status line shows the size of the terminal.
pub(super) const VIM: &str = "vim -u NONE -i NONE -n --cmd 'set nocompatible showcmd laststatus=2' \
                              --cmd 'set statusline=%f%m\\ %l,%v\\ %{&columns}x%{&lines}' note.txt";

pub(super) fn vim(stage: &CheckStage) -> Result<()> {
    const LONG: &str = "a line that is longer than the eighty columns of the pane, so that it goes on in the row \
                        below: \u{4f60}\u{597d}";
    let pair = stage.start_pair(VIM, &[("note.txt", "first line\nlast line\n")])?;
    pair.expect_same("last line")?;
    pair.press_keys(&["o"])?;
    pair.expect_same("-- INSERT --")?;
    pair.type_line("caf\u{e9} \u{4f60}\u{597d} na\u{ef}ve \u{2014} end")?;
    pair.type_text(LONG)?;
    pair.expect_same("row below: \u{4f60}\u{597d}")?;
    pair.press_keys(&["Escape"])?;
    pair.type_text("yyP0")?;
    pair.type_text(":syntax on")?;
    pair.press_keys(&["Enter", "/"])?;
    pair.type_line("na\u{ef}ve")?;
    pair.expect_same("2,")?;
    pair.type_line(":w")?;
    pair.expect_same("written")?;
    pair.type_line(":q")?;
    pair.expect_end(0)?;
    stage.expect_same_file(
        "note.txt",
        &format!("first line\ncaf\u{e9} \u{4f60}\u{597d} na\u{ef}ve \u{2014} end\n{LONG}\n{LONG}\nlast line\n"),
    )
}

pub(super) fn less(stage: &CheckStage) -> Result<()> {
    let lines: String = (1..=500).map(|n| format!("line {n} of the text\n")).collect();
    let pair = stage.start_pair("less long.txt", &[("long.txt", &lines)])?;
    pair.expect_same("line 23 of")?;
    pair.press_keys(&["Space"])?;
    pair.expect_same("line 46 of")?;
    pair.press_keys(&["NPage", "b", "Down"])?;
    pair.expect_same("line 47 of")?;
    pair.type_line("/line 3.7 of")?;
    pair.expect_same("line 307 of")?;
    pair.press_keys(&["n"])?;
    pair.expect_same("line 317 of")?;
    pair.press_keys(&["G"])?;
    pair.expect_same("(END)")?;
    pair.press_keys(&["q"])?;
    pair.expect_end(0)
}

pub(super) fn python(stage: &CheckStage) -> Result<()> {
    let pair = stage.start_pair("python3 -q -I", &[])?;
    pair.expect_same(">>>")?;
    // Isolated Python has no history; with this module it has one, but no history file.
    pair.type_line("import readline")?;
    pair.type_line("1+1")?;
    pair.expect_same("\n2\n")?;
    for line in ["def double(x):", "    # \u{4f60}\u{597d}", "    return 2 * x", ""] {
        pair.type_line(line)?;
    }
    pair.type_line("double(21)")?;
    pair.expect_same("\n42\n")?;
    pair.press_keys(&["Up"])?;
    pair.expect_same("42\n>>> double(21)")?;
    pair.press_keys(&["BSpace", "BSpace"])?;
    pair.type_line("2)")?;
    pair.expect_same("\n44\n")?;
    pair.type_line("exit()")?;
    pair.expect_end(0)
}

pub(super) fn top(stage: &CheckStage) -> Result<()> {
    let pair = stage.start_pair("top -d 1", &[])?;
    let (direct, through) = pair.wait_for_both("PID USER")?;
    // The figures differ, but not their positions.
    for mark in ["top - ", "Tasks:", "%Cpu(s):", "MiB Mem", "PID USER"] {
        let row = |screen: &PaneScreen| screen.text.lines().position(|row| row.contains(mark));
        if row(&direct).is_none() || row(&direct) != row(&through) {
            return Err(format!("{mark:?} is not in the same row:\n{direct}\n{through}"));
        }
    }
    pair.press_keys(&["q"])?;
    let (direct, through) = pair.wait_for_both("[ended 0]")?;
    if direct.modes != through.modes {
        return Err(format!("what top leaves behind differs:\n{direct}\n{through}"));
    }
    pair.expect_similar_end(0)
}

/// Draws over the whole screen, the same every time, and shows the keys that it gets.
pub(super) const CURSES_PROGRAM: &str = r#"
import curses, locale, sys
locale.setlocale(locale.LC_ALL, "")

def draw(screen, round, keys):
    screen.erase()
    rows, columns = screen.getmaxyx()
    screen.box()
    screen.addstr(0, 2, f" {columns}x{rows} ", curses.A_REVERSE)
    screen.addstr(1, 2, f"round {round:2}", curses.A_BOLD)
    for n in range(1, min(rows - 6, 8)):
        text = f"{n} \u4f60\u597d caf\u00e9 {n * round}"
        screen.addstr(2 + n, 2 + (n * round) % (columns - 30), text, curses.color_pair(n))
    screen.addstr(rows - 3, 2, "\u2500" * (columns - 4), curses.color_pair(9) | curses.A_DIM)
    screen.addnstr(rows - 2, 2, "keys:" + "".join(" " + key for key in keys), columns - 4, curses.A_UNDERLINE)
    screen.move(rows // 2, columns // 2)
    screen.refresh()

def main(screen):
    curses.use_default_colors()
    for n in range(1, 8):
        curses.init_pair(n, n, -1)
    curses.init_pair(9, 208, 17)
    keys = []
    for round in range(1, 21):
        draw(screen, round, keys)
    while True:
        key = screen.getch()
        if key == ord("q"):
            return
        if key != curses.KEY_RESIZE:
            keys.append(curses.keyname(key).decode())
        draw(screen, 20, keys)

curses.wrapper(main)
sys.exit(7)
"#;

pub(super) fn curses(stage: &CheckStage) -> Result<()> {
    let pair = stage.start_pair("python3 dance.py", &[("dance.py", CURSES_PROGRAM)])?;
    pair.expect_same("round 20")?;
    pair.press_keys(&["a", "Up", "F5", "NPage", "Tab", "BSpace", "M-x", "C-a", "DC"])?;
    pair.expect_same("KEY_DC")?;
    pair.press_keys(&["q"])?;
    pair.expect_end(7)
}

/// Reads a secret without echo, then prints it.
const ECHO_SECRET: &str = r#"read -r -s -p 'Secret: ' secret; echo; echo "it was $secret, ${#secret} letters""#;
const GETPASS: &str = r#"python3 -c 'import getpass; p = getpass.getpass(); print(len(p), "letters")'"#;

pub(super) fn password(stage: &CheckStage) -> Result<()> {
    type Type = fn(&PanePair<'_>, &str) -> Result<()>;
    let at_once: Type = |pair, secret| pair.type_line(secret);
    let by_key: Type = |pair, secret| {
        secret.chars().try_for_each(|c| pair.type_text(c.encode_utf8(&mut [0; 4])))?;
        pair.press_keys(&["Enter"])
    };
    let corrected: Type = |pair, secret| {
        let (first, second) = secret.split_at(secret.len() / 2);
        pair.type_text(first)?;
        pair.press_keys(&["x", "BSpace"])?;
        pair.type_line(second)
    };
    for typed in [at_once, by_key, corrected] {
        let secret = new_secret()?;
        let pair = stage.start_pair(GETPASS, &[])?;
        pair.expect_same("Password:")?;
        typed(&pair, &secret)?;
        pair.expect_same("24 letters")?;
        pair.expect_end(0)?;

        let pair = stage.start_pair(ECHO_SECRET, &[])?;
        pair.expect_same("Secret:")?;
        typed(&pair, &secret)?;
        pair.wait_for_both("24 letters")?;
        pair.direct.wait_for(&secret)?;
        pair.through.wait_for("it was [redacted")?;
        pair.expect_similar_end(0)?;
        stage.expect_recorded("it was")?;
        stage.expect_secret_absent(&secret)?;
    }
    let secret = new_secret()?;
    let task = stage.start_background(ECHO_SECRET)?;
    stage.wait_for_screen(&task, "Secret:")?;
    stage.csn(&["send", &task, &secret, "--enter"])?;
    stage.csn(&["wait", &task])?;
    stage.wait_for_screen(&task, "it was [redacted")?;
    stage.expect_secret_absent(&secret)
}

pub(super) fn ssh_keygen(stage: &CheckStage) -> Result<()> {
    const KEYGEN: &str = "ssh-keygen -t ed25519 -C outside";
    let secret = new_secret()?;
    let mut keys = Vec::new();
    for again in [false, true] {
        let pair = stage.start_pair(KEYGEN, &[])?;
        pair.expect_same("Enter file in which to save the key")?;
        pair.type_line("./key")?;
        if again {
            pair.expect_same("Overwrite (y/n)?")?;
            pair.type_line("y")?;
        }
        pair.expect_same("Enter passphrase")?;
        pair.type_line(&secret)?;
        pair.expect_same("Enter same passphrase again")?;
        pair.type_line(&secret)?;
        pair.wait_for_both("[SHA256]")?;
        pair.expect_similar_end(0)?;
        keys.push(public_key(stage, &secret)?);
    }
    if keys[0] == keys[1] {
        return Err("the second run did not replace the key".to_owned());
    }
    let pair = stage.start_pair(KEYGEN, &[])?;
    pair.expect_same("Enter file in which to save the key")?;
    pair.type_line("./key")?;
    pair.expect_same("Overwrite (y/n)?")?;
    pair.type_line("n")?;
    pair.expect_end(1)?;
    stage.expect_recorded("Enter same passphrase again")?;
    stage.expect_secret_absent(&secret)
}

/// The public key that belongs to the private key; it must equal key.pub.
fn public_key(stage: &CheckStage, secret: &str) -> Result<String> {
    let output = stage.command("ssh-keygen", "through").args(["-y", "-P", secret, "-f", "key"]).output();
    let opened = stdout_text("ssh-keygen -y", &output.map_err(|e| format!("ssh-keygen: {e}"))?)?;
    let public = fs::read_to_string(stage.dir.join("through/key.pub")).map_err(|e| format!("key.pub: {e}"))?;
    if opened.trim() == public.trim() { Ok(public) } else { Err("key and key.pub do not belong together".to_owned()) }
}

pub(super) fn resize(stage: &CheckStage) -> Result<()> {
    let pair = stage.start_pair("python3 dance.py", &[("dance.py", CURSES_PROGRAM)])?;
    pair.expect_same("round 20")?;
    for (columns, rows) in [(100, 30), (61, 13), (132, 50)] {
        pair.resize(columns, rows)?;
        pair.expect_same(&format!(" {columns}x{rows} "))?;
    }
    // Resizes without waiting in between: the last size counts.
    for (columns, rows) in [(90, 20), (120, 40), (70, 18)] {
        pair.resize(columns, rows)?;
    }
    pair.expect_same(" 70x18 ")?;
    pair.press_keys(&["q"])?;
    pair.expect_end(7)?;

    let pair = stage
        .start_pair(VIM, &[("note.txt", &"a line of some length, with words in it \u{4f60}\u{597d}\n".repeat(40))])?;
    pair.expect_same("a line of some")?;
    for (columns, rows) in [(100, 30), (37, 11)] {
        pair.resize(columns, rows)?;
        pair.expect_same(&format!(" {columns}x{rows}"))?;
    }
    pair.type_text("Gonew text")?;
    pair.expect_same("new text")?;
    pair.press_keys(&["Escape"])?;
    pair.type_line(":q!")?;
    pair.expect_end(0)
}

pub(super) fn interrupt(stage: &CheckStage) -> Result<()> {
    let pair = stage.start_pair("echo waiting; sleep 100", &[])?;
    pair.expect_same("waiting")?;
    pair.press_keys(&["C-c"])?;
    pair.wait_for_both("^C")?;
    pair.expect_end(130)
}

/// Shows every byte that it reads in raw mode, until `q`.
const SHOW_BYTES: &str = r"
import os, sys, termios, tty
before = termios.tcgetattr(0)
tty.setraw(0)
os.write(1, b'ready\r\n')
read = b''
while not read.endswith(b'q'):
    more = os.read(0, 100)
    read += more
    os.write(1, b''.join(b'%02x ' % b for b in more))
termios.tcsetattr(0, termios.TCSANOW, before)
print()
";

pub(super) fn raw_keys(stage: &CheckStage) -> Result<()> {
    let pair = stage.start_pair("python3 bytes.py", &[("bytes.py", SHOW_BYTES)])?;
    pair.expect_same("ready")?;
    let mut shown = String::new();
    let keys = [
        (["C-c"].as_slice(), "03"),
        (&["C-z"], "1a"),
        (&["C-s", "C-q"], "13 11"),
        // The first of the detach keys followed by another key, and alone.
        (&["C-\\", "x"], "1c 78"),
        (&["C-\\"], "1c"),
        (&["C-d"], "04"),
        (&["C-Space"], "00"),
        (&["Enter"], "0d"),
        (&["Escape"], "1b"),
        (&["Up"], "1b 5b 41"),
        (&["F5"], "1b 5b 31 35 7e"),
        (&["\u{4f60}"], "e4 bd a0"),
        (&["q"], "71"),
    ];
    for (keys, bytes) in keys {
        pair.press_keys(keys)?;
        shown = format!("{shown}{bytes} ");
        // The last row of the shown bytes; rows have 80 columns.
        let row = shown.as_bytes().chunks(80).next_back().map(String::from_utf8_lossy).unwrap_or_default();
        pair.expect_same(row.trim_end())?;
    }
    pair.expect_end(0)
}

pub(super) fn job_control(stage: &CheckStage) -> Result<()> {
    let nap = "#!/bin/bash\necho \"awake, $1\"\nexec sleep 100\n";
    let pair = stage.start_pair("PS1='$ ' HISTFILE= exec bash --norc -i", &[("nap", nap)])?;
    pair.expect_same("$")?;
    pair.type_line("./nap 1")?;
    pair.expect_same("awake, 1")?;
    pair.press_keys(&["C-z"])?;
    pair.expect_same("Stopped")?;
    pair.type_line("jobs | wc -l")?;
    pair.expect_same("\n1\n")?;
    pair.type_line("fg")?;
    pair.expect_same("\n./nap 1\n")?;
    pair.press_keys(&["C-c"])?;
    pair.expect_same("^C\n$")?;
    pair.type_line("echo \"it was $?\"")?;
    pair.expect_same("it was 130")?;
    pair.type_line("./nap 2 & wait")?;
    pair.wait_for_both("awake, 2")?;
    // Only the shell is interrupted: a background job is not in the foreground process group.
    pair.press_keys(&["C-c"])?;
    pair.type_line("kill %1 && echo killed")?;
    pair.wait_for_both("\nkilled")?;
    pair.type_line("exit 3")?;
    pair.expect_similar_end(3)
}
