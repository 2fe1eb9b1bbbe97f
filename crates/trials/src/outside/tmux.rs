//! Panes of a private tmux server, and what they show.

use super::Deadline;
use crate::{Result, command};
use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Output},
};

/// What a pane shows besides its characters: the cursor, and the modes that a program may leave changed.
const MODES_FORMAT: &str = "cursor #{cursor_x},#{cursor_y} size #{pane_width}x#{pane_height} shown #{cursor_flag} \
                     alternate #{alternate_on} insert #{insert_flag} keypad #{keypad_flag} arrows #{keypad_cursor_flag} \
                     wrap #{wrap_flag} origin #{origin_flag} mouse #{mouse_any_flag} \
                     region #{scroll_region_upper}-#{scroll_region_lower}";

/// Runs its arguments, prints the exit code and any change of the terminal settings, and stays, so that both can be
/// read. The trap keeps an interrupt from ending this shell.
const HOST_SCRIPT: &str = r#"trap : INT QUIT
before=$(stty -g)
"$@"
code=$?
[ "$before" = "$(stty -g)" ] || echo "[the terminal was left as $(stty -g), it was $before]"
echo "[ended $code]"
exec sleep infinity"#;

/// A private tmux server.
pub(crate) struct Tmux {
    socket: String,
    environment: Vec<(String, String)>,
}

impl Tmux {
    /// Every pane gets exactly this environment.
    pub(crate) fn new(environment: Vec<(String, String)>) -> Self {
        Self { socket: format!("csn-outside-{}", std::process::id()), environment }
    }

    fn command(&self) -> Command {
        let mut tmux = command("tmux");
        tmux.env_clear().envs(self.environment.iter().map(|(k, v)| (k, v)));
        tmux.args(["-L", &self.socket, "-f", "/dev/null"]);
        tmux
    }

    fn run(&self, args: &[&str]) -> Result<String> {
        let output = self.command().args(args).output().map_err(|e| format!("tmux: {e}"))?;
        stdout_text(&format!("tmux {}", args.join(" ")), &output)
    }

    /// Runs a program in a new pane of 80 columns and 24 rows.
    pub(crate) fn open_pane(&self, name: &str, directory: &Path, argv: &[&str]) -> Result<Pane<'_>> {
        let mut tmux = self.command();
        // Options of a server that is not running can only be set in the command that starts it.
        tmux.args(["start-server", ";", "set", "-g", "default-terminal", "screen-256color", ";"]);
        tmux.args(["set", "-g", "history-limit", "0", ";", "set", "-g", "escape-time", "0", ";"]);
        tmux.args(["new-session", "-d", "-x", "80", "-y", "24", "-s", name, "-c"]).arg(directory);
        tmux.args(["--", "bash", "--norc", "-c", HOST_SCRIPT, "host"]).args(argv);
        let output = tmux.output().map_err(|e| format!("tmux: {e}"))?;
        stdout_text("tmux new-session", &output)?;
        Ok(Pane { tmux: self, name: name.to_owned() })
    }

    /// Ends the server and everything in it.
    pub(crate) fn kill_server(&self) {
        let _ = self.command().arg("kill-server").output();
    }
}

/// The output of a program, if it succeeded.
pub(crate) fn stdout_text(what: &str, output: &Output) -> Result<String> {
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{what}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// The visible state of a pane.
#[derive(Clone, PartialEq)]
pub(crate) struct PaneScreen {
    /// The rows, with colours as escapes.
    pub(crate) coloured: String,
    /// The rows.
    pub(crate) text: String,
    pub(crate) modes: String,
}

impl std::fmt::Display for PaneScreen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for row in self.coloured.trim_end().lines() {
            writeln!(f, "    | {}", row.replace('\x1b', "␛").replace('\x0e', "␎").replace('\x0f', "␏"))?;
        }
        writeln!(f, "    {}", self.modes)
    }
}

pub(crate) struct Pane<'a> {
    tmux: &'a Tmux,
    name: String,
}

impl Pane<'_> {
    /// Types text literally.
    pub(crate) fn type_text(&self, text: &str) -> Result<()> {
        self.tmux.run(&["send-keys", "-t", &self.name, "-l", "--", text]).map(drop)
    }

    /// Presses keys by their names, all together.
    pub(crate) fn press_keys(&self, keys: &[&str]) -> Result<()> {
        let args = [&["send-keys", "-t", &self.name, "--"], keys].concat();
        self.tmux.run(&args).map(drop)
    }

    pub(crate) fn resize(&self, columns: u16, rows: u16) -> Result<()> {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        self.tmux.run(&["resize-window", "-t", &self.name, "-x", &columns, "-y", &rows]).map(drop)
    }

    pub(crate) fn close(&self) -> Result<()> {
        self.tmux.run(&["kill-session", "-t", &self.name]).map(drop)
    }

    pub(crate) fn screen(&self) -> Result<PaneScreen> {
        let text = self.tmux.run(&["capture-pane", "-p", "-t", &self.name])?;
        let coloured = self.tmux.run(&["capture-pane", "-p", "-e", "-t", &self.name])?;
        let modes = self.tmux.run(&["display-message", "-p", "-t", &self.name, MODES_FORMAT])?;
        Ok(PaneScreen { coloured, text, modes: modes.trim_end().to_owned() })
    }

    /// Waits until the pane shows this text; returns the screen.
    pub(crate) fn wait_for(&self, expected: &str) -> Result<PaneScreen> {
        let deadline = Deadline::start();
        loop {
            let screen = self.screen()?;
            if screen.text.contains(expected) {
                return Ok(screen);
            }
            if !deadline.wait() {
                return Err(format!("{} does not show {expected:?} in time:\n{screen}", self.name));
            }
        }
    }
}

/// The same program twice: directly in one pane, and through Countersign in the other.
pub(crate) struct PanePair<'a> {
    pub(crate) direct: Pane<'a>,
    pub(crate) through: Pane<'a>,
}

impl PanePair<'_> {
    pub(crate) fn type_text(&self, text: &str) -> Result<()> {
        self.direct.type_text(text)?;
        self.through.type_text(text)
    }

    pub(crate) fn press_keys(&self, keys: &[&str]) -> Result<()> {
        self.direct.press_keys(keys)?;
        self.through.press_keys(keys)
    }

    /// Types text and presses Enter.
    pub(crate) fn type_line(&self, text: &str) -> Result<()> {
        self.type_text(text)?;
        self.press_keys(&["Enter"])
    }

    pub(crate) fn resize(&self, columns: u16, rows: u16) -> Result<()> {
        self.direct.resize(columns, rows)?;
        self.through.resize(columns, rows)
    }

    /// Waits until both show this text, each in its own way.
    pub(crate) fn wait_for_both(&self, expected: &str) -> Result<(PaneScreen, PaneScreen)> {
        Ok((self.direct.wait_for(expected)?, self.through.wait_for(expected)?))
    }

    /// Waits until both show this text and are otherwise identical: colours byte for byte, cursor and modes.
    pub(crate) fn expect_same(&self, expected: &str) -> Result<()> {
        wait_until_equal(expected, &[&self.direct, &self.through], |one, other| one == other)
    }

    /// As `expect_same`, after one of them was redrawn.
    pub(crate) fn expect_same_look(&self, expected: &str) -> Result<()> {
        expect_panes_alike(expected, &[&self.direct, &self.through])
    }

    /// Waits until both have ended with this code and show the same; both must leave the terminal unchanged.
    pub(crate) fn expect_end(&self, code: u8) -> Result<()> {
        self.expect_same(&format!("[ended {code}]"))?;
        self.expect_restored()?;
        self.close()
    }

    /// As `expect_end`, if the outputs cannot be equal.
    pub(crate) fn expect_similar_end(&self, code: u8) -> Result<()> {
        self.wait_for_both(&format!("[ended {code}]"))?;
        self.expect_restored()?;
        self.close()
    }

    fn expect_restored(&self) -> Result<()> {
        for pane in [&self.direct, &self.through] {
            let screen = pane.screen()?;
            if screen.text.contains("[the terminal was left") {
                return Err(format!("{} left the terminal changed:\n{screen}", pane.name));
            }
        }
        Ok(())
    }

    fn close(&self) -> Result<()> {
        self.direct.close()?;
        self.through.close()
    }
}

/// Waits until all of these panes show this text and otherwise look alike. One may have attached late: cells that
/// were never written and cells that were cleared look alike, but tmux captures them differently.
pub(crate) fn expect_panes_alike(expected: &str, panes: &[&Pane<'_>]) -> Result<()> {
    wait_until_equal(expected, panes, |one, other| {
        one.modes == other.modes && screen_cells(&one.coloured) == screen_cells(&other.coloured)
    })
}

fn wait_until_equal(
    expected: &str,
    panes: &[&Pane<'_>],
    equal: impl Fn(&PaneScreen, &PaneScreen) -> bool,
) -> Result<()> {
    let deadline = Deadline::start();
    loop {
        let screens = panes.iter().map(|pane| pane.screen()).collect::<Result<Vec<_>>>()?;
        let shown = screens.iter().all(|screen| screen.text.contains(expected));
        if shown && screens.windows(2).all(|pair| equal(&pair[0], &pair[1])) {
            return Ok(());
        }
        if !deadline.wait() {
            let why = if shown { "all show it, but differ otherwise:" } else { "not every pane shows" };
            let screens = panes.iter().zip(&screens).map(|(pane, screen)| format!("  {}:\n{screen}", pane.name));
            return Err(format!("{why} {expected:?}\n{}", screens.collect::<String>()));
        }
    }
}

/// How a cell is drawn: attributes, colour, background.
#[derive(Clone, Default, PartialEq)]
struct CellStyle(BTreeSet<u16>, String, String);

impl CellStyle {
    /// Applies the part of an escape between `[` and `m`.
    fn apply_codes(&mut self, codes: &str) {
        let mut codes = codes.split(';');
        while let Some(code) = codes.next() {
            match code.parse() {
                Ok(0) => *self = Self::default(),
                Ok(n @ 1..=29) => drop(self.0.insert(n)),
                Ok(39) => self.1.clear(),
                Ok(49) => self.2.clear(),
                Ok(38) => self.1 = codes.by_ref().collect(),
                Ok(48) => self.2 = codes.by_ref().collect(),
                Ok(30..=37 | 90..=97) => self.1 = code.to_owned(),
                _ => self.2 = code.to_owned(),
            }
        }
    }
}

/// The cells of a captured screen, without the blank ones at the end of a row.
fn screen_cells(coloured: &str) -> Vec<Vec<(char, CellStyle)>> {
    let mut style = CellStyle::default();
    let row = |row: &str| {
        let mut cells = Vec::new();
        for (n, piece) in row.split('\x1b').enumerate() {
            // All but the first piece start with an escape.
            let text = match piece.strip_prefix('[').and_then(|rest| rest.split_once('m')).filter(|_| n > 0) {
                Some((codes, text)) => {
                    style.apply_codes(codes);
                    text
                }
                None => piece,
            };
            cells.extend(text.chars().map(|c| (c, style.clone())));
        }
        let blank = (' ', CellStyle::default());
        let used = cells.iter().rposition(|cell| *cell != blank).map_or(0, |last| last + 1);
        cells.truncate(used);
        cells
    };
    coloured.trim_end().lines().map(row).collect()
}
