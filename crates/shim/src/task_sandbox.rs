//! The sandbox of one task over its life: what was prepared for it, what is watched while it runs, what is said when it is
//! over.

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
    /// What was made of it before anybody knew which task it would be for.
    base_ruleset: Option<BaseRuleset>,
    /// The files that make programs run later, as they were before the task.
    escapes: Option<EscapeFiles>,
}

impl TaskSandbox {
    pub(crate) fn new(confinement: Confinement, base_ruleset: Option<BaseRuleset>) -> Self {
        Self { confinement, base_ruleset, escapes: None }
    }

    pub(crate) fn take_foundation(&mut self) -> Option<BaseRuleset> {
        self.base_ruleset.take()
    }

    pub(crate) fn watch(&mut self, escapes: Option<EscapeFiles>) {
        self.escapes = escapes;
    }

    /// What there is to say about it, now that the task is over.
    pub(crate) fn look_back(
        &mut self,
        what: &ResolvedRequest,
        outcome: &Outcome,
        streams: &[PathBuf],
        mask: &Mask,
    ) -> Vec<Frame> {
        let mut frames = Vec::new();
        if let Some(before) = self.escapes.take() {
            let now = with_user_ids(what.user.as_ref(), || EscapeFiles::of(&what.sandbox)).unwrap_or_default();
            for (path, change) in before.changes(&now) {
                let path = text(mask, &path);
                frames.push(Frame::WriteDetected { path, change, escape: true, before: None, after: None });
            }
        }
        let failed = matches!(outcome, Outcome::Exited { code } if *code != 0);
        let late = matches!(outcome, Outcome::TimedOut { limit: TimeLimit::Wall });
        // Its own limit it knows about.
        let late = late && what.limits.wall_ms == Some(Limits::READ_ONLY_WALL_MS);
        if late && self.confinement == Confinement::ReadOnly {
            frames.push(Frame::ConfinementMet { note: Text::from_static(post_run::LATE) });
        } else if failed && let Some(note) = post_run::note(self.confinement, &what.sandbox, streams) {
            frames.push(Frame::ConfinementMet { note: text(mask, &note) });
        }
        frames
    }

    /// Removes what only the task needed.
    pub(crate) fn clear(&self, dir: &Path, what: &ResolvedRequest) {
        if self.confinement >= Confinement::Workspace {
            sandbox::clear_temporary(dir, what.user.as_ref());
        }
    }
}
