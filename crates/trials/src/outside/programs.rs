//! Programs that people use at a terminal, by themselves and through the house.

use super::{
    CheckStage, new_secret,
    tmux::{PaneScreen, Twins, text_of},
};
use crate::Result;
use std::fs;

/// Vim without anything of its user; its status line tells the size of the terminal.
pub(super) const VIM: &str = "vim -u NONE -i NONE -n --cmd 'set nocompatible showcmd laststatus=2' \
                              --cmd 'set statusline=%f%m\\ %l,%v\\ %{&columns}x%{&lines}' note.txt";

pub(super) fn vim(stage: &CheckStage) -> Result<()> {
    const LONG: &str = "a line that is longer than the eighty columns of the pane, so that it goes on in the row \
                        below: \u{4f60}\u{597d}";
    let twins = stage.twins(VIM, &[("note.txt", "first line\nlast line\n")])?;
    twins.same("last line")?;
    twins.keys(&["o"])?;
    twins.same("-- INSERT --")?;
    twins.line("caf\u{e9} \u{4f60}\u{597d} na\u{ef}ve \u{2014} end")?;
    twins.text(LONG)?;
    twins.same("row below: \u{4f60}\u{597d}")?;
    twins.keys(&["Escape"])?;
    twins.text("yyP0")?;
    twins.text(":syntax on")?;
    twins.keys(&["Enter", "/"])?;
    twins.line("na\u{ef}ve")?;
    twins.same("2,")?;
    twins.line(":w")?;
    twins.same("written")?;
    twins.line(":q")?;
    twins.ended(0)?;
    stage.same_file(
        "note.txt",
        &format!("first line\ncaf\u{e9} \u{4f60}\u{597d} na\u{ef}ve \u{2014} end\n{LONG}\n{LONG}\nlast line\n"),
    )
}

pub(super) fn less(stage: &CheckStage) -> Result<()> {
    let lines: String = (1..=500).map(|n| format!("line {n} of the text\n")).collect();
    let twins = stage.twins("less long.txt", &[("long.txt", &lines)])?;
    twins.same("line 23 of")?;
    twins.keys(&["Space"])?;
    twins.same("line 46 of")?;
    twins.keys(&["NPage", "b", "Down"])?;
    twins.same("line 47 of")?;
    twins.line("/line 3.7 of")?;
    twins.same("line 307 of")?;
    twins.keys(&["n"])?;
    twins.same("line 317 of")?;
    twins.keys(&["G"])?;
    twins.same("(END)")?;
    twins.keys(&["q"])?;
    twins.ended(0)
}

pub(super) fn python(stage: &CheckStage) -> Result<()> {
    let twins = stage.twins("python3 -q -I", &[])?;
    twins.same(">>>")?;
    // Isolated it has no history; with the module it has one, and no file of it.
    twins.line("import readline")?;
    twins.line("1+1")?;
    twins.same("\n2\n")?;
    for line in ["def double(x):", "    # \u{4f60}\u{597d}", "    return 2 * x", ""] {
        twins.line(line)?;
    }
    twins.line("double(21)")?;
    twins.same("\n42\n")?;
    twins.keys(&["Up"])?;
    twins.same("42\n>>> double(21)")?;
    twins.keys(&["BSpace", "BSpace"])?;
    twins.line("2)")?;
    twins.same("\n44\n")?;
    twins.line("exit()")?;
    twins.ended(0)
}

pub(super) fn top(stage: &CheckStage) -> Result<()> {
    let twins = stage.twins("top -d 1", &[])?;
    let (direct, through) = twins.both("PID USER")?;
    // The figures differ; where they stand does not.
    for mark in ["top - ", "Tasks:", "%Cpu(s):", "MiB Mem", "PID USER"] {
        let row = |screen: &PaneScreen| screen.text.lines().position(|row| row.contains(mark));
        if row(&direct).is_none() || row(&direct) != row(&through) {
            return Err(format!("{mark:?} is not in the same row:\n{direct}\n{through}"));
        }
    }
    twins.keys(&["q"])?;
    let (direct, through) = twins.both("[ended 0]")?;
    if direct.modes != through.modes {
        return Err(format!("what top leaves behind differs:\n{direct}\n{through}"));
    }
    twins.ended_alike(0)
}

/// Draws all over the screen, the same every time, and shows the keys that it gets.
pub(super) const DANCE: &str = r#"
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
    let twins = stage.twins("python3 dance.py", &[("dance.py", DANCE)])?;
    twins.same("round 20")?;
    twins.keys(&["a", "Up", "F5", "NPage", "Tab", "BSpace", "M-x", "C-a", "DC"])?;
    twins.same("KEY_DC")?;
    twins.keys(&["q"])?;
    twins.ended(7)
}

/// Prints back what it read without showing it.
const TELLS: &str = r#"read -r -s -p 'Secret: ' secret; echo; echo "it was $secret, ${#secret} letters""#;
const GETPASS: &str = r#"python3 -c 'import getpass; p = getpass.getpass(); print(len(p), "letters")'"#;

pub(super) fn password(stage: &CheckStage) -> Result<()> {
    type Type = fn(&Twins<'_>, &str) -> Result<()>;
    let at_once: Type = |twins, secret| twins.line(secret);
    let by_key: Type = |twins, secret| {
        secret.chars().try_for_each(|c| twins.text(c.encode_utf8(&mut [0; 4])))?;
        twins.keys(&["Enter"])
    };
    let corrected: Type = |twins, secret| {
        let (first, second) = secret.split_at(secret.len() / 2);
        twins.text(first)?;
        twins.keys(&["x", "BSpace"])?;
        twins.line(second)
    };
    for typed in [at_once, by_key, corrected] {
        let secret = new_secret()?;
        let twins = stage.twins(GETPASS, &[])?;
        twins.same("Password:")?;
        typed(&twins, &secret)?;
        twins.same("24 letters")?;
        twins.ended(0)?;

        let twins = stage.twins(TELLS, &[])?;
        twins.same("Secret:")?;
        typed(&twins, &secret)?;
        twins.both("24 letters")?;
        twins.direct.see(&secret)?;
        twins.through.see("it was [redacted")?;
        twins.ended_alike(0)?;
        stage.recorded("it was")?;
        stage.nowhere(&secret)?;
    }
    let secret = new_secret()?;
    let task = stage.background(TELLS)?;
    stage.shows(&task, "Secret:")?;
    stage.csn(&["send", &task, &secret, "--enter"])?;
    stage.csn(&["wait", &task])?;
    stage.shows(&task, "it was [redacted")?;
    stage.nowhere(&secret)
}

pub(super) fn ssh_keygen(stage: &CheckStage) -> Result<()> {
    const KEYGEN: &str = "ssh-keygen -t ed25519 -C outside";
    let secret = new_secret()?;
    let mut made = Vec::new();
    for again in [false, true] {
        let twins = stage.twins(KEYGEN, &[])?;
        twins.same("Enter file in which to save the key")?;
        twins.line("./key")?;
        if again {
            twins.same("Overwrite (y/n)?")?;
            twins.line("y")?;
        }
        twins.same("Enter passphrase")?;
        twins.line(&secret)?;
        twins.same("Enter same passphrase again")?;
        twins.line(&secret)?;
        twins.both("[SHA256]")?;
        twins.ended_alike(0)?;
        made.push(public_key(stage, &secret)?);
    }
    if made[0] == made[1] {
        return Err("the key was not made anew".to_owned());
    }
    let twins = stage.twins(KEYGEN, &[])?;
    twins.same("Enter file in which to save the key")?;
    twins.line("./key")?;
    twins.same("Overwrite (y/n)?")?;
    twins.line("n")?;
    twins.ended(1)?;
    stage.recorded("Enter same passphrase again")?;
    stage.nowhere(&secret)
}

/// The public key that the secret one opens to; it must be the one beside it.
fn public_key(stage: &CheckStage, secret: &str) -> Result<String> {
    let output = stage.command("ssh-keygen", "through").args(["-y", "-P", secret, "-f", "key"]).output();
    let opened = text_of("ssh-keygen -y", &output.map_err(|e| format!("ssh-keygen: {e}"))?)?;
    let public = fs::read_to_string(stage.dir.join("through/key.pub")).map_err(|e| format!("key.pub: {e}"))?;
    if opened.trim() == public.trim() { Ok(public) } else { Err("key and key.pub do not belong together".to_owned()) }
}

pub(super) fn resize(stage: &CheckStage) -> Result<()> {
    let twins = stage.twins("python3 dance.py", &[("dance.py", DANCE)])?;
    twins.same("round 20")?;
    for (columns, rows) in [(100, 30), (61, 13), (132, 50)] {
        twins.resize(columns, rows)?;
        twins.same(&format!(" {columns}x{rows} "))?;
    }
    // One after another, without waiting: the last one counts.
    for (columns, rows) in [(90, 20), (120, 40), (70, 18)] {
        twins.resize(columns, rows)?;
    }
    twins.same(" 70x18 ")?;
    twins.keys(&["q"])?;
    twins.ended(7)?;

    let twins =
        stage.twins(VIM, &[("note.txt", &"a line of some length, with words in it \u{4f60}\u{597d}\n".repeat(40))])?;
    twins.same("a line of some")?;
    for (columns, rows) in [(100, 30), (37, 11)] {
        twins.resize(columns, rows)?;
        twins.same(&format!(" {columns}x{rows}"))?;
    }
    twins.text("Gonew text")?;
    twins.same("new text")?;
    twins.keys(&["Escape"])?;
    twins.line(":q!")?;
    twins.ended(0)
}

pub(super) fn interrupt(stage: &CheckStage) -> Result<()> {
    let twins = stage.twins("echo waiting; sleep 100", &[])?;
    twins.same("waiting")?;
    twins.keys(&["C-c"])?;
    twins.both("^C")?;
    twins.ended(130)
}

/// Shows every byte that it reads, without a line discipline in between, until `q`.
const BYTES: &str = r"
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
    let twins = stage.twins("python3 bytes.py", &[("bytes.py", BYTES)])?;
    twins.same("ready")?;
    let mut shown = String::new();
    let keys = [
        (["C-c"].as_slice(), "03"),
        (&["C-z"], "1a"),
        (&["C-s", "C-q"], "13 11"),
        // The beginning of the detach keys, and then something else; and by itself.
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
        twins.keys(keys)?;
        shown = format!("{shown}{bytes} ");
        // The last row of them; rows are 80 columns.
        let row = shown.as_bytes().chunks(80).next_back().map(String::from_utf8_lossy).unwrap_or_default();
        twins.same(row.trim_end())?;
    }
    twins.ended(0)
}

pub(super) fn job_control(stage: &CheckStage) -> Result<()> {
    let nap = "#!/bin/bash\necho \"awake, $1\"\nexec sleep 100\n";
    let twins = stage.twins("PS1='$ ' HISTFILE= exec bash --norc -i", &[("nap", nap)])?;
    twins.same("$")?;
    twins.line("./nap 1")?;
    twins.same("awake, 1")?;
    twins.keys(&["C-z"])?;
    twins.same("Stopped")?;
    twins.line("jobs | wc -l")?;
    twins.same("\n1\n")?;
    twins.line("fg")?;
    twins.same("\n./nap 1\n")?;
    twins.keys(&["C-c"])?;
    twins.same("^C\n$")?;
    twins.line("echo \"it was $?\"")?;
    twins.same("it was 130")?;
    twins.line("./nap 2 & wait")?;
    twins.both("awake, 2")?;
    // Only the shell is interrupted: what runs in the background is not in the foreground's group.
    twins.keys(&["C-c"])?;
    twins.line("kill %1 && echo killed")?;
    twins.both("\nkilled")?;
    twins.line("exit 3")?;
    twins.ended_alike(3)
}
