//! When what happens: the life of one task as a pure state machine. Events in, things to do out.

use countersign_model::{ExitStatus, KilledWhy, Leftovers, LimitReached, Outcome, Text, TimeLimit};
use std::time::Duration;

/// Time since the child was spawned.
pub(crate) type Elapsed = Duration;

#[derive(Debug, Clone)]
pub(crate) enum LifecycleEvent {
    /// The main process has ended.
    MainExited(ExitStatus),
    /// Nobody holds the output open any more.
    OutputClosed,
    /// A descendant has ended; `left` are still there.
    TreeShrank {
        left: usize,
    },
    /// Bytes came.
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
    /// The house goes down and takes its tasks with it.
    Shutdown {
        by: Text,
    },
    /// Its session has ended, and it was to end with it.
    SessionEnd {
        by: Text,
    },
    Wall,
    Idle,
    Output,
    Frames,
    Disk,
    /// More than its budget: at once, before there is still more.
    Memory,
    Processes,
    Temporary,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LifecycleAction {
    /// A limit was reached: put it on record.
    Limit { name: &'static str, value: Duration },
    /// SIGTERM to every descendant.
    Terminate,
    /// Freeze and kill all, in passes. Then the task is over.
    Kill(Option<KilledWhy>),
    /// The main process is gone; see who is left and put them on record, if that has changed.
    Keep,
    /// Nothing is left to wait for.
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
    /// The main process is gone, its output is still held open.
    Draining {
        until: Elapsed,
    },
    /// The main process is gone; what it left behind was asked to be kept.
    Keeping,
    /// Asked to end.
    Stopping {
        kill_at: Elapsed,
    },
    Over,
}

pub(crate) struct Lifecycle {
    bounds: TimeLimits,
    phase: LifecyclePhase,
    exit: Option<ExitStatus>,
    output_open: bool,
    last_output: Elapsed,
    stop: Option<StopCause>,
    /// Nothing was below us when we last looked.
    alone: bool,
}

impl Lifecycle {
    pub(crate) fn new(bounds: TimeLimits) -> Self {
        Self {
            bounds,
            phase: LifecyclePhase::Running,
            exit: None,
            output_open: true,
            last_output: Elapsed::ZERO,
            stop: None,
            alone: false,
        }
    }

    /// When the next [`Event::Tick`] is due.
    pub(crate) fn deadline(&self) -> Option<Elapsed> {
        match &self.phase {
            LifecyclePhase::Running | LifecyclePhase::Keeping => {
                let idle = self.bounds.idle.map(|idle| self.last_output + idle);
                self.bounds.wall.into_iter().chain(idle).min()
            }
            LifecyclePhase::Draining { until } => Some(*until),
            LifecyclePhase::Stopping { kill_at } => Some(*kill_at),
            LifecyclePhase::Over => None,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase == LifecyclePhase::Over
    }

    pub(crate) fn step(&mut self, now: Elapsed, event: LifecycleEvent) -> Vec<LifecycleAction> {
        match event {
            LifecycleEvent::Output => {
                self.last_output = now;
                Vec::new()
            }
            LifecycleEvent::OutputClosed => {
                self.output_open = false;
                match self.phase {
                    LifecyclePhase::Draining { .. } => self.over(None),
                    LifecyclePhase::Keeping if self.alone => self.finish(),
                    _ => Vec::new(),
                }
            }
            LifecycleEvent::MainExited(status) => self.main_exited(now, status),
            LifecycleEvent::TreeShrank { left } => {
                self.alone = left == 0;
                match self.phase {
                    LifecyclePhase::Keeping if self.alone && !self.output_open => self.finish(),
                    LifecyclePhase::Keeping if !self.alone => vec![LifecycleAction::Keep],
                    LifecyclePhase::Stopping { .. } if self.alone && self.exit.is_some() => self.over(None),
                    _ => Vec::new(),
                }
            }
            LifecycleEvent::Stop(stop) => self.stop(now, stop),
            LifecycleEvent::Tick => self.tick(now),
        }
    }

    fn main_exited(&mut self, now: Elapsed, status: ExitStatus) -> Vec<LifecycleAction> {
        self.exit = Some(status);
        match (&self.phase, self.bounds.leftovers, self.output_open) {
            (LifecyclePhase::Running, Leftovers::Keep, _) => {
                self.phase = LifecyclePhase::Keeping;
                vec![LifecycleAction::Keep]
            }
            (LifecyclePhase::Running, Leftovers::Kill, true) => {
                self.phase = LifecyclePhase::Draining { until: now + self.bounds.drain };
                Vec::new()
            }
            (LifecyclePhase::Running, Leftovers::Kill, false) => self.over(None),
            _ => Vec::new(),
        }
    }

    fn stop(&mut self, now: Elapsed, stop: StopCause) -> Vec<LifecycleAction> {
        match self.phase {
            LifecyclePhase::Running | LifecyclePhase::Keeping
                if matches!(stop, StopCause::Memory | StopCause::Processes | StopCause::Temporary) =>
            {
                self.stop = Some(stop);
                self.over(Some(KilledWhy::Limit))
            }
            LifecyclePhase::Running | LifecyclePhase::Keeping => {
                self.stop = Some(stop);
                self.phase = LifecyclePhase::Stopping { kill_at: now + self.bounds.grace };
                vec![LifecycleAction::Terminate]
            }
            // It has ended by itself; only its leftovers are stopped, at once.
            LifecyclePhase::Draining { .. } => self.over(None),
            LifecyclePhase::Stopping { .. } | LifecyclePhase::Over => Vec::new(),
        }
    }

    fn tick(&mut self, now: Elapsed) -> Vec<LifecycleAction> {
        match self.phase {
            LifecyclePhase::Running | LifecyclePhase::Keeping => {
                let limit = |name, value, stop| (LifecycleAction::Limit { name, value }, stop);
                let idle_at = self.bounds.idle.map(|idle| self.last_output + idle);
                let (record, stop) = match (self.bounds.wall, self.bounds.idle) {
                    (Some(wall), _) if now >= wall => limit("wall", wall, StopCause::Wall),
                    (_, Some(idle)) if idle_at.is_some_and(|at| now >= at) => limit("idle", idle, StopCause::Idle),
                    _ => return Vec::new(),
                };
                let mut effects = vec![record];
                effects.extend(self.stop(now, stop));
                effects
            }
            LifecyclePhase::Draining { until } if now >= until => self.over(None),
            LifecyclePhase::Stopping { kill_at } if now >= kill_at => {
                let why = self.killed_why();
                self.over(why)
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

    fn over(&mut self, why: Option<KilledWhy>) -> Vec<LifecycleAction> {
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
                Outcome::Cancelled { by: by.clone(), reason: Some(Text::from_static("the house was shut down")) }
            }
            (Some(StopCause::SessionEnd { by }), _) => {
                Outcome::Cancelled { by: by.clone(), reason: Some(Text::from_static("its session has ended")) }
            }
            (Some(StopCause::Wall), _) => Outcome::TimedOut { limit: TimeLimit::Wall },
            (Some(StopCause::Idle), _) => Outcome::TimedOut { limit: TimeLimit::Idle },
            (Some(StopCause::Output), _) => Outcome::Limited { limit: LimitReached::Output },
            (Some(StopCause::Frames), _) => Outcome::Limited { limit: LimitReached::Frames },
            (Some(StopCause::Disk), _) => Outcome::Limited { limit: LimitReached::Disk },
            (Some(StopCause::Memory), _) => Outcome::Limited { limit: LimitReached::Memory },
            (Some(StopCause::Processes), _) => Outcome::Limited { limit: LimitReached::Processes },
            (Some(StopCause::Temporary), _) => Outcome::Limited { limit: LimitReached::Temporary },
            (None, Some(exit)) => exit.into(),
            (None, None) => Outcome::Lost { why: Text::from_static("the main process did not end") },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(leftovers: Leftovers) -> Lifecycle {
        let s = Duration::from_secs;
        Lifecycle::new(TimeLimits { wall: Some(s(60)), idle: Some(s(10)), grace: s(5), drain: s(2), leftovers })
    }

    fn at(secs: u64) -> Elapsed {
        Duration::from_secs(secs)
    }

    const ZERO: ExitStatus = ExitStatus::Code { code: 0 };

    fn cancel() -> LifecycleEvent {
        LifecycleEvent::Stop(StopCause::Cancel { by: Text::from_static("test"), reason: None })
    }

    #[test]
    fn an_ordinary_task_ends_with_its_output() {
        for events in [
            [LifecycleEvent::MainExited(ZERO), LifecycleEvent::OutputClosed],
            [LifecycleEvent::OutputClosed, LifecycleEvent::MainExited(ZERO)],
        ] {
            let mut life = life(Leftovers::Kill);
            let [a, b] = events;
            assert_eq!(life.step(at(1), a), []);
            assert_eq!(life.step(at(1), b), [LifecycleAction::Kill(None), LifecycleAction::Finish]);
            assert_eq!(life.outcome(), Outcome::Exited { code: 0 });
        }
    }

    #[test]
    fn held_output_is_drained_for_a_while() {
        let mut life = life(Leftovers::Kill);
        life.step(at(1), LifecycleEvent::MainExited(ZERO));
        assert_eq!(life.deadline(), Some(at(3)));
        assert_eq!(life.step(at(2), LifecycleEvent::Tick), []);
        assert_eq!(life.step(at(3), LifecycleEvent::Tick), [LifecycleAction::Kill(None), LifecycleAction::Finish]);
    }

    #[test]
    fn kept_leftovers_keep_the_task_running_until_they_are_gone_or_cancelled() {
        let mut one = life(Leftovers::Keep);
        assert_eq!(one.step(at(1), LifecycleEvent::MainExited(ZERO)), [LifecycleAction::Keep]);
        assert_eq!(one.step(at(2), LifecycleEvent::TreeShrank { left: 1 }), [LifecycleAction::Keep]);
        assert_eq!(one.step(at(2), LifecycleEvent::OutputClosed), []);
        assert_eq!(one.step(at(3), LifecycleEvent::TreeShrank { left: 0 }), [LifecycleAction::Finish]);
        assert_eq!(one.outcome(), Outcome::Exited { code: 0 });

        let mut last_byte_late = life(Leftovers::Keep);
        last_byte_late.step(at(1), LifecycleEvent::MainExited(ZERO));
        assert_eq!(last_byte_late.step(at(2), LifecycleEvent::TreeShrank { left: 0 }), []);
        assert_eq!(last_byte_late.step(at(2), LifecycleEvent::OutputClosed), [LifecycleAction::Finish]);

        let mut two = life(Leftovers::Keep);
        two.step(at(1), LifecycleEvent::MainExited(ZERO));
        assert_eq!(two.step(at(2), cancel()), [LifecycleAction::Terminate]);
        assert_eq!(
            two.step(at(3), LifecycleEvent::TreeShrank { left: 0 }),
            [LifecycleAction::Kill(None), LifecycleAction::Finish]
        );
        assert!(matches!(two.outcome(), Outcome::Cancelled { .. }));
    }

    #[test]
    fn the_ladder_kills_what_ignores_the_request() {
        let mut life = life(Leftovers::Kill);
        assert_eq!(life.step(at(1), cancel()), [LifecycleAction::Terminate]);
        assert_eq!(life.step(at(2), cancel()), []);
        assert_eq!(life.step(at(5), LifecycleEvent::Tick), []);
        assert_eq!(
            life.step(at(6), LifecycleEvent::Tick),
            [LifecycleAction::Kill(Some(KilledWhy::Cancel)), LifecycleAction::Finish]
        );
    }

    #[test]
    fn output_puts_idle_off_but_never_the_wall() {
        let mut life = life(Leftovers::Kill);
        for s in (0..60).step_by(5) {
            life.step(at(s), LifecycleEvent::Output);
            assert_eq!(life.step(at(s), LifecycleEvent::Tick), []);
        }
        assert_eq!(life.deadline(), Some(at(60)));
        let effects = life.step(at(60), LifecycleEvent::Tick);
        assert!(matches!(effects[..], [LifecycleAction::Limit { name: "wall", .. }, LifecycleAction::Terminate]));
        assert_eq!(life.outcome(), Outcome::TimedOut { limit: TimeLimit::Wall });
    }

    #[test]
    fn silence_ends_a_task_only_where_that_was_asked_for() {
        let mut asked = life(Leftovers::Kill);
        let effects = asked.step(at(10), LifecycleEvent::Tick);
        assert!(matches!(effects[..], [LifecycleAction::Limit { name: "idle", .. }, LifecycleAction::Terminate]));
        let mut not = life(Leftovers::Kill);
        not.bounds.idle = None;
        assert_eq!(not.step(at(59), LifecycleEvent::Tick), []);
    }

    #[test]
    fn a_task_that_has_ended_keeps_its_exit_when_cancelled_late() {
        let mut life = life(Leftovers::Kill);
        life.step(at(1), LifecycleEvent::MainExited(ExitStatus::Code { code: 3 }));
        assert_eq!(life.step(at(2), cancel()), [LifecycleAction::Kill(None), LifecycleAction::Finish]);
        assert_eq!(life.outcome(), Outcome::Exited { code: 3 });
    }
}
