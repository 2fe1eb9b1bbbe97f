//! Raw mode and the size of the terminal.

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io;

/// The rows and columns of the terminal on standard output or standard input.
pub(crate) fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(io::stdout()).or_else(|_| tcgetwinsize(io::stdin())).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then_some((size.ws_row.min(1000), size.ws_col.min(1000)))
}

/// Puts the terminal into raw mode. Dropping it restores the earlier mode.
pub(crate) struct RawMode {
    earlier: Termios,
}

impl RawMode {
    pub(crate) fn begin() -> anyhow::Result<Self> {
        let earlier = tcgetattr(io::stdin())?;
        let mut raw = earlier.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self { earlier })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // Flush: answers of the terminal that nothing has read would be typed into the shell.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.earlier);
    }
}
