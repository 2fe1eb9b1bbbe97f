//! The end of a task: its last bytes, its last screen, what its sandbox met, the last frame.

use crate::{supervise::Shim, wire::FromShim};
use countersign_model::{Frame, Outcome, Text};
use countersign_redact::text;
use countersign_store::{crash, journal};
use std::process::ExitCode;

/// Up to this a recording is drawn again for those who want to see its last screen.
const DRAWN_AGAIN: u64 = 1024 * 1024;
/// The artifact with the last screen, in the task's directory.
pub const SCREEN: &str = "screen.json";

impl Shim<'_> {
    /// The last bytes, the exit, the end of the journal; then the daemon is told.
    pub(crate) fn close(mut self, outcome: Outcome) -> ExitCode {
        let mut outcome = outcome;
        self.close_input();
        for outlet in &mut self.outlets {
            if outlet.is_stuck() || outlet.drain(&mut self.journal, &self.dir).is_err() {
                outlet.abandon(&self.dir);
                if matches!(outcome, Outcome::Exited { .. } | Outcome::Signalled { .. }) {
                    outcome = Outcome::Limited { limit: countersign_model::LimitReached::Disk };
                }
            }
        }
        if self.main.runs() {
            self.reap();
        }
        self.look_back(&outcome);
        let ended = self.main.take_final_directory().filter(|path| *path != self.what.cwd.resolved);
        if let Some(path) = ended {
            self.journal.push(&Frame::CwdChanged { path: text(&self.mask, &path), claimed: false });
        }
        if let Some(usage) = self.main.ended() {
            self.journal.push(&Frame::Exited {
                status: usage.status,
                duration_us: u64::try_from(self.journal.elapsed().as_micros()).unwrap_or(u64::MAX),
                cpu_us: usage.cpu_us,
                max_rss_kb: usage.max_rss_kb,
            });
        }
        self.keep_screen();
        crash::point("shim.before_close");
        let streams = self.outlets.into_iter().map(|o| (o.name(), o.total())).filter(|(_, t)| t.bytes > 0).collect();
        match self.journal.close(outcome, streams) {
            Ok(closing) => {
                crash::point("shim.after_close");
                self.control.close(&FromShim::Closed(closing));
                ExitCode::SUCCESS
            }
            // The journal ends without its last frame: the daemon will find it so.
            Err(_) => ExitCode::FAILURE,
        }
    }

    /// What the terminal showed last, for those who come when it is over. A short recording is as quick to draw again; and
    /// since a long one can be too, a disk that does not take this costs nothing.
    fn keep_screen(&mut self) {
        // What was put together from known values must not be drawn again by somebody who does not know them.
        let known = self.mask.knows_values();
        let long = self.outlets.iter_mut().find(|o| o.end() > DRAWN_AGAIN || known);
        let Some(screen) = long.and_then(|o| o.screen.as_mut()) else { return };
        let shown = screen.show(&self.mask);
        let Ok(bytes) = serde_json::to_vec(&shown) else { return };
        if journal::write_beside(&self.dir, SCREEN, &bytes).is_ok() {
            let sha256 = countersign_model::Digest::sha256(&[&bytes]);
            let (artifact, what) = (Text::from_static(SCREEN), Text::from_static("the terminal's last screen"));
            self.journal.push(&Frame::ArtifactStored { artifact, what, bytes: bytes.len() as u64, sha256 });
        }
    }

    fn look_back(&mut self, outcome: &Outcome) {
        let streams = self.outlets.iter().map(|o| self.dir.join(o.name().file())).collect::<Vec<_>>();
        for frame in self.sandbox.look_back(self.what, outcome, &streams, &self.mask) {
            self.journal.push(&frame);
        }
        self.sandbox.clear(&self.dir, self.what);
    }
}
