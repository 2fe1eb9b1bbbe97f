//! The limits of a task other than time and disk: its budget, its output, its number of frames. Each is recorded once.

use crate::{budget::Budget, lifecycle::StopCause};
use countersign_model::{Frame, Limits, OnOutputLimit, ResolvedRequest, Text};
use std::time::Instant;

#[derive(Default)]
pub(crate) struct LimitWatch {
    /// The budget of a read-only task; none once the task has exceeded it.
    budget: Option<Budget>,
    output_reached: bool,
    frames_reached: bool,
}

/// A limit that has just been reached.
#[derive(Debug, PartialEq)]
pub(crate) struct LimitHit {
    limit: &'static str,
    value: u64,
    action: &'static str,
    /// None if the task keeps running.
    pub(crate) stop: Option<StopCause>,
}

impl LimitHit {
    fn stopping(limit: &'static str, value: u64, stop: StopCause) -> Self {
        Self { limit, value, action: "stopped", stop: Some(stop) }
    }

    pub(crate) fn frame(&self) -> Frame {
        Frame::LimitReached {
            limit: Text::from_static(self.limit),
            value: self.value,
            action: Text::from_static(self.action),
        }
    }
}

impl LimitWatch {
    pub(crate) fn set_budget(&mut self, budget: Budget) {
        self.budget = Some(budget);
    }

    /// When the budget is checked next.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.budget.as_ref().map(Budget::due)
    }

    /// Checks processes, memory and temporary files, if a check is due.
    pub(crate) fn check_budget(&mut self, now: Instant) -> Option<LimitHit> {
        let (stop, value) = self.budget.as_mut()?.find_exceeded(now)?;
        self.budget = None;
        let limit = match stop {
            StopCause::Memory => "memory",
            StopCause::Temporary => "temporary",
            _ => "processes",
        };
        Some(LimitHit::stopping(limit, value, stop))
    }

    /// `full`: a stream has reached its limit.
    pub(crate) fn check_output(&mut self, full: bool, request: &ResolvedRequest) -> Option<LimitHit> {
        if !full || std::mem::replace(&mut self.output_reached, true) {
            return None;
        }
        let value = request.limits.output_bytes.unwrap_or(Limits::OUTPUT_BYTES);
        Some(match request.on_output_limit {
            OnOutputLimit::Kill => LimitHit::stopping("output", value, StopCause::Output),
            _ => LimitHit {
                limit: "output",
                value,
                action: "continues; of the output from here on, only the last 1 MiB is kept",
                stop: None,
            },
        })
    }

    pub(crate) fn check_frames(&mut self, written: u64, request: &ResolvedRequest) -> Option<LimitHit> {
        let max_frames = request.limits.frames.unwrap_or(Limits::FRAMES);
        if written < max_frames || std::mem::replace(&mut self.frames_reached, true) {
            return None;
        }
        Some(LimitHit::stopping("frames", max_frames, StopCause::Frames))
    }
}
