//! Raw mode, and the size of the terminal.

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io;

/// The size of the terminal that we write to.
pub(crate) fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(io::stdout()).or_else(|_| tcgetwinsize(io::stdin())).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then_some((size.ws_row.min(1000), size.ws_col.min(1000)))
}

/// A terminal that passes every key on; as it was when dropped.
pub(crate) struct RawMode {
    was: Termios,
}

impl RawMode {
    pub(crate) fn begin() -> anyhow::Result<Self> {
        let was = tcgetattr(io::stdin())?;
        let mut raw = was.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self { was })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // What the terminal answered and nobody took would be typed into a shell.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.was);
    }
}
