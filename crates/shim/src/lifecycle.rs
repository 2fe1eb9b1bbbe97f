//! The life of one task as a state machine without I/O: it takes events and returns actions.

use countersign_model::{ExitStatus, KilledWhy, Leftovers, LimitReached, Outcome, Text, TimeLimit};
use std::time::Duration;

/// Time since the child was spawned.
pub(crate) type TimeSinceSpawn = Duration;

#[derive(Debug, Clone)]
pub(crate) enum LifecycleEvent {
    /// The main process has ended.
    MainExited(ExitStatus),
    /// No process holds the output open any more.
    OutputClosed,
    /// A descendant has ended; `left` are still alive.
    TreeShrank {
        left: usize,
    },
    /// The task has printed something.
    Output,
    Stop(StopCause),
    /// Time has passed.
    Tick,
}

/// Why a task is being stopped.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StopCause {
    Cancel {
        by: Text,
        reason: Option<Text>,
    },
    /// The daemon stops and cancels its tasks.
    Shutdown {
        by: Text,
    },
    /// The task's session has ended, and the task was started to end with it.
    SessionEnd {
        by: Text,
    },
    Wall,
    Idle,
    Output,
    Frames,
    Disk,
    /// The task exceeds its budget. It is killed immediately, before it uses more.
    Memory,
    Processes,
    Temporary,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LifecycleAction {
    /// A limit was reached: record it.
    RecordLimit { name: &'static str, value: Duration },
    /// SIGTERM to every descendant.
    Terminate,
    /// Stop and kill all descendants, in passes. Then the task is over.
    Kill(Option<KilledWhy>),
    /// The main process has ended: record the processes that are left, if they have changed.
    RecordLeftovers,
    /// There is nothing left to wait for.
    Finish,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeLimits {
    pub wall: Option<Duration>,
    pub idle: Option<Duration>,
    pub grace: Duration,
    pub drain: Duration,
    pub leftovers: Leftovers,
}

#[derive(Debug, PartialEq)]
enum LifecyclePhase {
    Running,
    /// The main process has ended, but other processes hold its output open.
    Draining {
        until: TimeSinceSpawn,
    },
    /// The main process has ended; the request keeps the processes that it left behind.
    KeepingLeftovers,
    /// The task has been sent SIGTERM.
    Stopping {
        kill_at: TimeSinceSpawn,
    },
    Over,
}

pub(crate) struct Lifecycle {
    limits: TimeLimits,
    phase: LifecyclePhase,
    exit: Option<ExitStatus>,
    output_open: bool,
    last_output: TimeSinceSpawn,
    stop: Option<StopCause>,
    /// The shim had no descendants at the last check.
    no_descendants: bool,
}

impl Lifecycle {
    pub(crate) fn new(bounds: TimeLimits) -> Self {
        Self {
            limits: bounds,
            phase: LifecyclePhase::Running,
            exit: None,
            output_open: true,
            last_output: TimeSinceSpawn::ZERO,
            stop: None,
            no_descendants: false,
        }
    }

    /// When the next [`LifecycleEvent::Tick`] is due.
    pub(crate) fn deadline(&self) -> Option<TimeSinceSpawn> {
        match &self.phase {
            LifecyclePhase::Running | LifecyclePhase::KeepingLeftovers => {
                let idle = self.limits.idle.map(|idle| self.last_output + idle);
                self.limits.wall.into_iter().chain(idle).min()
            }
            LifecyclePhase::Draining { until } => Some(*until),
            LifecyclePhase::Stopping { kill_at } => Some(*kill_at),
            LifecyclePhase::Over => None,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase == LifecyclePhase::Over
    }

    pub(crate) fn step(&mut self, now: TimeSinceSpawn, event: LifecycleEvent) -> Vec<LifecycleAction> {
        match event {
            LifecycleEvent::Output => {
                self.last_output = now;
                Vec::new()
            }
            LifecycleEvent::OutputClosed => {
                self.output_open = false;
                match self.phase {
                    LifecyclePhase::Draining { .. } => self.kill_and_finish(None),
                    LifecyclePhase::KeepingLeftovers if self.no_descendants => self.finish(),
                    _ => Vec::new(),
                }
            }
            LifecycleEvent::MainExited(status) => self.main_exited(now, status),
            LifecycleEvent::TreeShrank { left } => {
                self.no_descendants = left == 0;
                match self.phase {
                    LifecyclePhase::KeepingLeftovers if self.no_descendants && !self.output_open => self.finish(),
                    LifecyclePhase::KeepingLeftovers if !self.no_descendants => vec![LifecycleAction::RecordLeftovers],
                    LifecyclePhase::Stopping { .. } if self.no_descendants && self.exit.is_some() => {
                        self.kill_and_finish(None)
                    }
                    _ => Vec::new(),
                }
            }
            LifecycleEvent::Stop(stop) => self.stop(now, stop),
            LifecycleEvent::Tick => self.tick(now),
        }
    }

    fn main_exited(&mut self, now: TimeSinceSpawn, status: ExitStatus) -> Vec<LifecycleAction> {
        self.exit = Some(status);
        match (&self.phase, self.limits.leftovers, self.output_open) {
            (LifecyclePhase::Running, Leftovers::Keep, _) => {
                self.phase = LifecyclePhase::KeepingLeftovers;
                vec![LifecycleAction::RecordLeftovers]
            }
            (LifecyclePhase::Running, Leftovers::Kill, true) => {
                self.phase = LifecyclePhase::Draining { until: now + self.limits.drain };
                Vec::new()
            }
            (LifecyclePhase::Running, Leftovers::Kill, false) => self.kill_and_finish(None),
            _ => Vec::new(),
        }
    }

    fn stop(&mut self, now: TimeSinceSpawn, stop: StopCause) -> Vec<LifecycleAction> {
        match self.phase {
            LifecyclePhase::Running | LifecyclePhase::KeepingLeftovers
                if matches!(stop, StopCause::Memory | StopCause::Processes | StopCause::Temporary) =>
            {
                self.stop = Some(stop);
                self.kill_and_finish(Some(KilledWhy::Limit))
            }
            LifecyclePhase::Running | LifecyclePhase::KeepingLeftovers => {
                self.stop = Some(stop);
                self.phase = LifecyclePhase::Stopping { kill_at: now + self.limits.grace };
                vec![LifecycleAction::Terminate]
            }
            // The main process has already ended: only its leftovers are stopped, immediately.
            LifecyclePhase::Draining { .. } => self.kill_and_finish(None),
            LifecyclePhase::Stopping { .. } | LifecyclePhase::Over => Vec::new(),
        }
    }

    fn tick(&mut self, now: TimeSinceSpawn) -> Vec<LifecycleAction> {
        match self.phase {
            LifecyclePhase::Running | LifecyclePhase::KeepingLeftovers => {
                let limit = |name, value, stop| (LifecycleAction::RecordLimit { name, value }, stop);
                let idle_at = self.limits.idle.map(|idle| self.last_output + idle);
                let (record, stop) = match (self.limits.wall, self.limits.idle) {
                    (Some(wall), _) if now >= wall => limit("wall", wall, StopCause::Wall),
                    (_, Some(idle)) if idle_at.is_some_and(|at| now >= at) => limit("idle", idle, StopCause::Idle),
                    _ => return Vec::new(),
                };
                let mut actions = vec![record];
                actions.extend(self.stop(now, stop));
                actions
            }
            LifecyclePhase::Draining { until } if now >= until => self.kill_and_finish(None),
            LifecyclePhase::Stopping { kill_at } if now >= kill_at => {
                let why = self.killed_why();
                self.kill_and_finish(why)
            }
            _ => Vec::new(),
        }
    }

    fn killed_why(&self) -> Option<KilledWhy> {
        Some(match self.stop.as_ref()? {
            StopCause::Cancel { .. } => KilledWhy::Cancel,
            StopCause::Shutdown { .. } => KilledWhy::Shutdown,
            StopCause::SessionEnd { .. } => KilledWhy::SessionEnd,
            StopCause::Wall | StopCause::Idle => KilledWhy::Timeout,
            StopCause::Output
            | StopCause::Frames
            | StopCause::Disk
            | StopCause::Memory
            | StopCause::Processes
            | StopCause::Temporary => KilledWhy::Limit,
        })
    }

    fn kill_and_finish(&mut self, why: Option<KilledWhy>) -> Vec<LifecycleAction> {
        self.phase = LifecyclePhase::Over;
        vec![LifecycleAction::Kill(why), LifecycleAction::Finish]
    }

    fn finish(&mut self) -> Vec<LifecycleAction> {
        self.phase = LifecyclePhase::Over;
        vec![LifecycleAction::Finish]
    }

    /// How the task ended.
    pub(crate) fn outcome(&self) -> Outcome {
        match (&self.stop, self.exit) {
            (Some(StopCause::Cancel { by, reason }), _) => {
                Outcome::Cancelled { by: by.clone(), reason: reason.clone() }
            }
            (Some(StopCause::Shutdown { by }), _) => {
                Outcome::Cancelled { by: by.clone(), reason: Some(Text::from_static("the daemon was stopped")) }
            }
            (Some(StopCause::SessionEnd { by }), _) => Outcome::Cancelled {
                by: by.clone(),
                reason: Some(Text::from_static("the session of the task has ended")),
            },
            (Some(StopCause::Wall), _) => Outcome::TimedOut { limit: TimeLimit::Wall },
            (Some(StopCause::Idle), _) => Outcome::TimedOut { limit: TimeLimit::Idle },
            (Some(StopCause::Output), _) => Outcome::Limited { limit: LimitReached::Output },
            (Some(StopCause::Frames), _) => Outcome::Limited { limit: LimitReached::Frames },
            (Some(StopCause::Disk), _) => Outcome::Limited { limit: LimitReached::Disk },
            (Some(StopCause::Memory), _) => Outcome::Limited { limit: LimitReached::Memory },
            (Some(StopCause::Processes), _) => Outcome::Limited { limit: LimitReached::Processes },
            (Some(StopCause::Temporary), _) => Outcome::Limited { limit: LimitReached::Temporary },
            (None, Some(exit)) => exit.into(),
            (None, None) => Outcome::Lost { why: Text::from_static("the shim did not see the main process end") },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifecycle_with(leftovers: Leftovers) -> Lifecycle {
        let s = Duration::from_secs;
        Lifecycle::new(TimeLimits { wall: Some(s(60)), idle: Some(s(10)), grace: s(5), drain: s(2), leftovers })
    }

    fn at(secs: u64) -> TimeSinceSpawn {
        Duration::from_secs(secs)
    }

    const ZERO: ExitStatus = ExitStatus::Code { code: 0 };

    fn cancel() -> LifecycleEvent {
        LifecycleEvent::Stop(StopCause::Cancel { by: Text::from_static("test"), reason: None })
    }

    #[test]
    fn a_task_ends_when_its_process_and_its_output_have_ended() {
        for events in [
            [LifecycleEvent::MainExited(ZERO), LifecycleEvent::OutputClosed],
            [LifecycleEvent::OutputClosed, LifecycleEvent::MainExited(ZERO)],
        ] {
            let mut lifecycle = lifecycle_with(Leftovers::Kill);
            let [a, b] = events;
            assert_eq!(lifecycle.step(at(1), a), []);
            assert_eq!(lifecycle.step(at(1), b), [LifecycleAction::Kill(None), LifecycleAction::Finish]);
            assert_eq!(lifecycle.outcome(), Outcome::Exited { code: 0 });
        }
    }

    #[test]
    fn output_that_stays_open_is_drained_for_a_bounded_time() {
        let mut lifecycle = lifecycle_with(Leftovers::Kill);
        lifecycle.step(at(1), LifecycleEvent::MainExited(ZERO));
        assert_eq!(lifecycle.deadline(), Some(at(3)));
        assert_eq!(lifecycle.step(at(2), LifecycleEvent::Tick), []);
        assert_eq!(lifecycle.step(at(3), LifecycleEvent::Tick), [LifecycleAction::Kill(None), LifecycleAction::Finish]);
    }

    #[test]
    fn kept_leftovers_keep_the_task_running_until_they_are_gone_or_cancelled() {
        let mut one = lifecycle_with(Leftovers::Keep);
        assert_eq!(one.step(at(1), LifecycleEvent::MainExited(ZERO)), [LifecycleAction::RecordLeftovers]);
        assert_eq!(one.step(at(2), LifecycleEvent::TreeShrank { left: 1 }), [LifecycleAction::RecordLeftovers]);
        assert_eq!(one.step(at(2), LifecycleEvent::OutputClosed), []);
        assert_eq!(one.step(at(3), LifecycleEvent::TreeShrank { left: 0 }), [LifecycleAction::Finish]);
        assert_eq!(one.outcome(), Outcome::Exited { code: 0 });

        let mut last_byte_late = lifecycle_with(Leftovers::Keep);
        last_byte_late.step(at(1), LifecycleEvent::MainExited(ZERO));
        assert_eq!(last_byte_late.step(at(2), LifecycleEvent::TreeShrank { left: 0 }), []);
        assert_eq!(last_byte_late.step(at(2), LifecycleEvent::OutputClosed), [LifecycleAction::Finish]);

        let mut two = lifecycle_with(Leftovers::Keep);
        two.step(at(1), LifecycleEvent::MainExited(ZERO));
        assert_eq!(two.step(at(2), cancel()), [LifecycleAction::Terminate]);
        assert_eq!(
            two.step(at(3), LifecycleEvent::TreeShrank { left: 0 }),
            [LifecycleAction::Kill(None), LifecycleAction::Finish]
        );
        assert!(matches!(two.outcome(), Outcome::Cancelled { .. }));
    }

    #[test]
    fn a_task_that_ignores_sigterm_is_killed_after_the_grace_period() {
        let mut lifecycle = lifecycle_with(Leftovers::Kill);
        assert_eq!(lifecycle.step(at(1), cancel()), [LifecycleAction::Terminate]);
        assert_eq!(lifecycle.step(at(2), cancel()), []);
        assert_eq!(lifecycle.step(at(5), LifecycleEvent::Tick), []);
        assert_eq!(
            lifecycle.step(at(6), LifecycleEvent::Tick),
            [LifecycleAction::Kill(Some(KilledWhy::Cancel)), LifecycleAction::Finish]
        );
    }

    #[test]
    fn output_postpones_the_idle_limit_but_not_the_wall_limit() {
        let mut lifecycle = lifecycle_with(Leftovers::Kill);
        for s in (0..60).step_by(5) {
            lifecycle.step(at(s), LifecycleEvent::Output);
            assert_eq!(lifecycle.step(at(s), LifecycleEvent::Tick), []);
        }
        assert_eq!(lifecycle.deadline(), Some(at(60)));
        let actions = lifecycle.step(at(60), LifecycleEvent::Tick);
        assert!(matches!(actions[..], [LifecycleAction::RecordLimit { name: "wall", .. }, LifecycleAction::Terminate]));
        assert_eq!(lifecycle.outcome(), Outcome::TimedOut { limit: TimeLimit::Wall });
    }

    #[test]
    fn silence_ends_a_task_only_with_an_idle_limit() {
        let mut limited = lifecycle_with(Leftovers::Kill);
        let actions = limited.step(at(10), LifecycleEvent::Tick);
        assert!(matches!(actions[..], [LifecycleAction::RecordLimit { name: "idle", .. }, LifecycleAction::Terminate]));
        let mut unlimited = lifecycle_with(Leftovers::Kill);
        unlimited.limits.idle = None;
        assert_eq!(unlimited.step(at(59), LifecycleEvent::Tick), []);
    }

    #[test]
    fn a_task_that_has_ended_keeps_its_exit_when_cancelled_late() {
        let mut lifecycle = lifecycle_with(Leftovers::Kill);
        lifecycle.step(at(1), LifecycleEvent::MainExited(ExitStatus::Code { code: 3 }));
        assert_eq!(lifecycle.step(at(2), cancel()), [LifecycleAction::Kill(None), LifecycleAction::Finish]);
        assert_eq!(lifecycle.outcome(), Outcome::Exited { code: 3 });
    }
}
