//! The limits of a task that are neither time nor disk: its budget, how much it prints, how many frames it makes. Each is
//! put on record once.

use crate::{budget::Budget, lifecycle::StopCause};
use countersign_model::{Frame, Limits, OnOutputLimit, ResolvedRequest, Text};
use std::time::Instant;

#[derive(Default)]
pub(crate) struct LimitWatch {
    /// What a read-only task may use; none once it has used more.
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
    /// None where the task goes on.
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

    /// When the budget is looked at next.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.budget.as_ref().map(Budget::due)
    }

    /// Processes, memory and temporary files, when it is time to count them.
    pub(crate) fn budget(&mut self, now: Instant) -> Option<LimitHit> {
        let (stop, value) = self.budget.as_mut()?.exceeded(now)?;
        self.budget = None;
        let limit = match stop {
            StopCause::Memory => "memory",
            StopCause::Temporary => "temporary",
            _ => "processes",
        };
        Some(LimitHit::stopping(limit, value, stop))
    }

    /// `full`: a stream has reached its limit.
    pub(crate) fn output(&mut self, full: bool, what: &ResolvedRequest) -> Option<LimitHit> {
        if !full || std::mem::replace(&mut self.output_reached, true) {
            return None;
        }
        let value = what.limits.output_bytes.unwrap_or(Limits::OUTPUT_BYTES);
        Some(match what.on_output_limit {
            OnOutputLimit::Kill => LimitHit::stopping("output", value, StopCause::Output),
            _ => LimitHit {
                limit: "output",
                value,
                action: "goes on; from here only the last mebibyte is kept",
                stop: None,
            },
        })
    }

    pub(crate) fn frames(&mut self, written: u64, what: &ResolvedRequest) -> Option<LimitHit> {
        let most = what.limits.frames.unwrap_or(Limits::FRAMES);
        if written < most || std::mem::replace(&mut self.frames_reached, true) {
            return None;
        }
        Some(LimitHit::stopping("frames", most, StopCause::Frames))
    }
}
