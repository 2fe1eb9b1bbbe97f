//! The end of a task: its last output, its last screen, the findings of its sandbox, the last frame.

use crate::{sandbox, supervise::Shim, wire::FromShim};
use countersign_model::{Frame, Outcome, Text};
use countersign_redact::text;
use countersign_store::{crash, journal};
use std::process::ExitCode;

/// Recordings up to this size are replayed to show the last screen; of longer ones the screen is stored.
const MAX_REDRAWN_BYTES: u64 = 1024 * 1024;
/// The artifact with the last screen, in the task's directory.
pub const SCREEN_ARTIFACT: &str = "screen.json";

impl Shim<'_> {
    /// Records the last output, the exit and the end of the journal, then notifies the daemon.
    pub(crate) fn close(mut self, outcome: Outcome) -> ExitCode {
        let mut outcome = outcome;
        self.close_input();
        for output in &mut self.outputs {
            if output.has_unwritten() || output.drain(&mut self.journal, &self.dir).is_err() {
                output.abandon(&self.dir);
                if matches!(outcome, Outcome::Exited { .. } | Outcome::Signalled { .. }) {
                    outcome = Outcome::Limited { limit: countersign_model::LimitReached::Disk };
                }
            }
        }
        if self.main.is_running() {
            self.reap_children();
        }
        self.record_sandbox_findings(&outcome);
        let final_directory = self.main.take_final_directory().filter(|path| *path != self.request.cwd.resolved);
        if let Some(path) = final_directory {
            self.journal.push(&Frame::CwdChanged { path: text(&self.mask, &path), claimed: false });
        }
        if let Some(usage) = self.main.exited() {
            self.journal.push(&Frame::Exited {
                status: usage.status,
                duration_us: u64::try_from(self.journal.elapsed().as_micros()).unwrap_or(u64::MAX),
                cpu_us: usage.cpu_us,
                max_rss_kb: usage.max_rss_kb,
            });
        }
        self.store_last_screen();
        crash::point("shim.before_close");
        let streams = self.outputs.into_iter().map(|o| (o.name(), o.total())).filter(|(_, t)| t.bytes > 0).collect();
        match self.journal.close(outcome, streams) {
            Ok((closing, journal)) => {
                crash::point("shim.after_close");
                self.control.close(&FromShim::Closed(closing));
                // Nobody waits for the rest.
                drop(journal);
                sandbox::remove_unneeded_temporary(&self.dir);
                ExitCode::SUCCESS
            }
            // The journal has no last frame; the daemon detects that.
            Err(_) => ExitCode::FAILURE,
        }
    }

    /// Stores the last screen of the terminal. Failing to store it loses nothing: the recording can be replayed.
    fn store_last_screen(&mut self) {
        // A process that does not know the task's secret values could not redact a screen that it replays.
        let knows_values = self.mask.knows_values();
        let stored = self.outputs.iter_mut().find(|o| o.cut_offset() > MAX_REDRAWN_BYTES || knows_values);
        let Some(screen) = stored.and_then(|o| o.screen.as_mut()) else { return };
        let snapshot = screen.snapshot(&self.mask);
        let Ok(bytes) = serde_json::to_vec(&snapshot) else { return };
        if journal::write_beside(&self.dir, SCREEN_ARTIFACT, &bytes).is_ok() {
            let sha256 = countersign_model::Digest::sha256(&[&bytes]);
            let (artifact, what) =
                (Text::from_static(SCREEN_ARTIFACT), Text::from_static("the terminal's last screen"));
            self.journal.push(&Frame::ArtifactStored { artifact, what, bytes: bytes.len() as u64, sha256 });
        }
    }

    fn record_sandbox_findings(&mut self, outcome: &Outcome) {
        let streams = self.outputs.iter().map(|o| self.dir.join(o.name().file())).collect::<Vec<_>>();
        for frame in self.sandbox.findings(self.request, outcome, &streams, &self.mask) {
            self.journal.push(&frame);
        }
        self.sandbox.clear_temporary(&self.dir, self.request);
    }
}
