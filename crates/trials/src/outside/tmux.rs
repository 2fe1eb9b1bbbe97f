//! A terminal that is not ours: panes of a tmux server of our own, and what they show.

use super::Deadline;
use crate::{Result, command};
use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Output},
};

/// What a pane shows besides its characters: the cursor, and the modes that a program may leave behind.
const MODES: &str = "cursor #{cursor_x},#{cursor_y} size #{pane_width}x#{pane_height} shown #{cursor_flag} \
                     alternate #{alternate_on} insert #{insert_flag} keypad #{keypad_flag} arrows #{keypad_cursor_flag} \
                     wrap #{wrap_flag} origin #{origin_flag} mouse #{mouse_any_flag} \
                     region #{scroll_region_upper}-#{scroll_region_lower}";

/// Runs what it is given, says how that ended and how it left the terminal, and stays, so that both can be seen.
/// An interrupt is for the program alone: with a trap the shell itself does not die of it.
const HOST: &str = r#"trap : INT QUIT
before=$(stty -g)
"$@"
code=$?
[ "$before" = "$(stty -g)" ] || echo "[the terminal was left as $(stty -g), it was $before]"
echo "[ended $code]"
exec sleep infinity"#;

/// A server that nobody else uses.
pub(crate) struct Tmux {
    socket: String,
    environment: Vec<(String, String)>,
}

impl Tmux {
    /// Every pane gets this environment and nothing else of ours.
    pub(crate) fn new(environment: Vec<(String, String)>) -> Self {
        Self { socket: format!("csn-outside-{}", std::process::id()), environment }
    }

    fn command(&self) -> Command {
        let mut tmux = command("tmux");
        tmux.env_clear().envs(self.environment.iter().map(|(k, v)| (k, v)));
        tmux.args(["-L", &self.socket, "-f", "/dev/null"]);
        tmux
    }

    fn ask(&self, args: &[&str]) -> Result<String> {
        let output = self.command().args(args).output().map_err(|e| format!("tmux: {e}"))?;
        text_of(&format!("tmux {}", args.join(" ")), &output)
    }

    /// A program in a pane of its own, 80 columns and 24 rows.
    pub(crate) fn pane(&self, name: &str, directory: &Path, argv: &[&str]) -> Result<Pane<'_>> {
        let mut tmux = self.command();
        // Options of a server that does not run yet can only be set in the command that starts it.
        tmux.args(["start-server", ";", "set", "-g", "default-terminal", "screen-256color", ";"]);
        tmux.args(["set", "-g", "history-limit", "0", ";", "set", "-g", "escape-time", "0", ";"]);
        tmux.args(["new-session", "-d", "-x", "80", "-y", "24", "-s", name, "-c"]).arg(directory);
        tmux.args(["--", "bash", "--norc", "-c", HOST, "host"]).args(argv);
        let output = tmux.output().map_err(|e| format!("tmux: {e}"))?;
        text_of("tmux new-session", &output)?;
        Ok(Pane { tmux: self, name: name.to_owned() })
    }

    /// Ends the server and everything in it.
    pub(crate) fn end(&self) {
        let _ = self.command().arg("kill-server").output();
    }
}

/// What a program printed, if it went well.
pub(crate) fn text_of(what: &str, output: &Output) -> Result<String> {
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{what}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// What can be seen of a pane.
#[derive(Clone, PartialEq)]
pub(crate) struct PaneScreen {
    /// Its rows, with their colours as escapes.
    pub(crate) coloured: String,
    /// Its rows.
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
    /// Types text as it is.
    pub(crate) fn text(&self, text: &str) -> Result<()> {
        self.tmux.ask(&["send-keys", "-t", &self.name, "-l", "--", text]).map(drop)
    }

    /// Presses keys by their names, all in one go.
    pub(crate) fn keys(&self, keys: &[&str]) -> Result<()> {
        let args = [&["send-keys", "-t", &self.name, "--"], keys].concat();
        self.tmux.ask(&args).map(drop)
    }

    pub(crate) fn resize(&self, columns: u16, rows: u16) -> Result<()> {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        self.tmux.ask(&["resize-window", "-t", &self.name, "-x", &columns, "-y", &rows]).map(drop)
    }

    pub(crate) fn close(&self) -> Result<()> {
        self.tmux.ask(&["kill-session", "-t", &self.name]).map(drop)
    }

    pub(crate) fn screen(&self) -> Result<PaneScreen> {
        let text = self.tmux.ask(&["capture-pane", "-p", "-t", &self.name])?;
        let coloured = self.tmux.ask(&["capture-pane", "-p", "-e", "-t", &self.name])?;
        let modes = self.tmux.ask(&["display-message", "-p", "-t", &self.name, MODES])?;
        Ok(PaneScreen { coloured, text, modes: modes.trim_end().to_owned() })
    }

    /// Waits until the pane shows this text; the screen that does.
    pub(crate) fn see(&self, expected: &str) -> Result<PaneScreen> {
        let patience = Deadline::begin();
        loop {
            let screen = self.screen()?;
            if screen.text.contains(expected) {
                return Ok(screen);
            }
            if !patience.left() {
                return Err(format!("{} did not come to show {expected:?}:\n{screen}", self.name));
            }
        }
    }
}

/// The same program twice: in one pane by itself, in the other through the house.
pub(crate) struct Twins<'a> {
    pub(crate) direct: Pane<'a>,
    pub(crate) through: Pane<'a>,
}

impl Twins<'_> {
    pub(crate) fn text(&self, text: &str) -> Result<()> {
        self.direct.text(text)?;
        self.through.text(text)
    }

    pub(crate) fn keys(&self, keys: &[&str]) -> Result<()> {
        self.direct.keys(keys)?;
        self.through.keys(keys)
    }

    /// Text and Enter.
    pub(crate) fn line(&self, text: &str) -> Result<()> {
        self.text(text)?;
        self.keys(&["Enter"])
    }

    pub(crate) fn resize(&self, columns: u16, rows: u16) -> Result<()> {
        self.direct.resize(columns, rows)?;
        self.through.resize(columns, rows)
    }

    /// Waits until both show this text, each in its own way.
    pub(crate) fn both(&self, expected: &str) -> Result<(PaneScreen, PaneScreen)> {
        Ok((self.direct.see(expected)?, self.through.see(expected)?))
    }

    /// Waits until both show this text, and the same in everything else: colours byte for byte, cursor and modes.
    pub(crate) fn same(&self, expected: &str) -> Result<()> {
        agree(expected, &[&self.direct, &self.through], |one, other| one == other)
    }

    /// As `same`, after one of them was drawn anew.
    pub(crate) fn same_look(&self, expected: &str) -> Result<()> {
        same(expected, &[&self.direct, &self.through])
    }

    /// Waits until both have ended with this code and show the same; both leave the terminal as it was.
    pub(crate) fn ended(&self, code: u8) -> Result<()> {
        self.same(&format!("[ended {code}]"))?;
        self.restored()?;
        self.close()
    }

    /// As `ended`, where what was printed cannot be the same.
    pub(crate) fn ended_alike(&self, code: u8) -> Result<()> {
        self.both(&format!("[ended {code}]"))?;
        self.restored()?;
        self.close()
    }

    fn restored(&self) -> Result<()> {
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

/// Waits until all of these panes show this text, and otherwise what looks the same. One of them may have come late:
/// cells that were never written and cells that were cleared look the same, and tmux writes them differently.
pub(crate) fn same(expected: &str, panes: &[&Pane<'_>]) -> Result<()> {
    agree(expected, panes, |one, other| one.modes == other.modes && cells(&one.coloured) == cells(&other.coloured))
}

fn agree(expected: &str, panes: &[&Pane<'_>], equal: impl Fn(&PaneScreen, &PaneScreen) -> bool) -> Result<()> {
    let patience = Deadline::begin();
    loop {
        let screens = panes.iter().map(|pane| pane.screen()).collect::<Result<Vec<_>>>()?;
        let shown = screens.iter().all(|screen| screen.text.contains(expected));
        if shown && screens.windows(2).all(|pair| equal(&pair[0], &pair[1])) {
            return Ok(());
        }
        if !patience.left() {
            let why = if shown { "all show, and otherwise differ:" } else { "not everywhere is shown" };
            let screens = panes.iter().zip(&screens).map(|(pane, screen)| format!("  {}:\n{screen}", pane.name));
            return Err(format!("{why} {expected:?}\n{}", screens.collect::<String>()));
        }
    }
}

/// How a cell is drawn: attributes, colour, background.
#[derive(Clone, Default, PartialEq)]
struct CellStyle(BTreeSet<u16>, String, String);

impl CellStyle {
    /// The part of an escape between `[` and `m`.
    fn change(&mut self, codes: &str) {
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
fn cells(coloured: &str) -> Vec<Vec<(char, CellStyle)>> {
    let mut style = CellStyle::default();
    let row = |row: &str| {
        let mut cells = Vec::new();
        for (n, piece) in row.split('\x1b').enumerate() {
            // All but the first piece begin with an escape.
            let text = match piece.strip_prefix('[').and_then(|rest| rest.split_once('m')).filter(|_| n > 0) {
                Some((codes, text)) => {
                    style.change(codes);
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
