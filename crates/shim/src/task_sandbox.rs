//! The sandbox of one task over its life: the prepared rules, the escape files to watch, the findings after its end.

use crate::{
    post_run::{self, EscapeFiles},
    sandbox::{self, BaseRuleset},
    sys::user::with_user_ids,
};
use countersign_model::{Confinement, Frame, Limits, Outcome, ResolvedRequest, Text, TimeLimit};
use countersign_redact::{Mask, text};
use std::path::{Path, PathBuf};

pub(crate) struct TaskSandbox {
    pub(crate) confinement: Confinement,
    /// The rules that the shim prepared before it had an order.
    base_ruleset: Option<BaseRuleset>,
    /// Whether the directory of the task was prepared with one for temporary files.
    pub(crate) has_temporary: bool,
    /// The escape files as they were before the task.
    escape_files: Option<EscapeFiles>,
}

impl TaskSandbox {
    pub(crate) fn new(confinement: Confinement, base_ruleset: Option<BaseRuleset>, has_temporary: bool) -> Self {
        Self { confinement, base_ruleset, has_temporary, escape_files: None }
    }

    pub(crate) fn take_base_ruleset(&mut self) -> Option<BaseRuleset> {
        self.base_ruleset.take()
    }

    pub(crate) fn watch_escape_files(&mut self, escape_files: Option<EscapeFiles>) {
        self.escape_files = escape_files;
    }

    /// The frames about changed escape files and refusals, after the task has ended.
    pub(crate) fn findings(
        &mut self,
        request: &ResolvedRequest,
        outcome: &Outcome,
        streams: &[PathBuf],
        mask: &Mask,
    ) -> Vec<Frame> {
        let mut frames = Vec::new();
        if let Some(before) = self.escape_files.take() {
            let now =
                with_user_ids(request.user.as_ref(), || EscapeFiles::for_sandbox(&request.sandbox)).unwrap_or_default();
            for (path, change) in before.changes_until(&now) {
                let path = text(mask, &path);
                frames.push(Frame::WriteDetected { path, change, escape: true, before: None, after: None });
            }
        }
        let failed = matches!(outcome, Outcome::Exited { code } if *code != 0);
        let late = matches!(outcome, Outcome::TimedOut { limit: TimeLimit::Wall });
        // A caller that set its own limit needs no note.
        let late = late && request.limits.wall_ms == Some(Limits::READ_ONLY_WALL_MS);
        if late && self.confinement == Confinement::ReadOnly {
            frames.push(Frame::ConfinementMet { note: Text::from_static(post_run::TIME_LIMIT_NOTE) });
        } else if failed && let Some(note) = post_run::refusal_note(self.confinement, &request.sandbox, streams) {
            frames.push(Frame::ConfinementMet { note: text(mask, &note) });
        }
        frames
    }

    /// Removes the temporary files of the task.
    pub(crate) fn clear_temporary(&self, dir: &Path, request: &ResolvedRequest) {
        if self.confinement >= Confinement::Workspace {
            sandbox::clear_temporary(dir, request.user.as_ref());
        }
    }
}
