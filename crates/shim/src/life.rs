//! When what happens: the life of one task as a pure state machine. Events in, things to do out.

use countersign_model::{ExitStatus, KilledWhy, Leftovers, LimitReached, Outcome, Text, TimedOut};
use std::time::Duration;

/// Time since the child was spawned.
pub(crate) type Now = Duration;

#[derive(Debug, Clone)]
pub(crate) enum Event {
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
    Stop(Stop),
    /// Time has passed.
    Tick,
}

/// Why a task is being stopped.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stop {
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
pub(crate) enum Effect {
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
pub(crate) struct Bounds {
    pub wall: Option<Duration>,
    pub idle: Option<Duration>,
    pub grace: Duration,
    pub drain: Duration,
    pub leftovers: Leftovers,
}

#[derive(Debug, PartialEq)]
enum Phase {
    Running,
    /// The main process is gone, its output is still held open.
    Draining {
        until: Now,
    },
    /// The main process is gone; what it left behind was asked to be kept.
    Keeping,
    /// Asked to end.
    Stopping {
        kill_at: Now,
    },
    Over,
}

pub(crate) struct Life {
    bounds: Bounds,
    phase: Phase,
    exit: Option<ExitStatus>,
    output_open: bool,
    last_output: Now,
    stop: Option<Stop>,
    /// Nothing was below us when we last looked.
    alone: bool,
}

impl Life {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            phase: Phase::Running,
            exit: None,
            output_open: true,
            last_output: Now::ZERO,
            stop: None,
            alone: false,
        }
    }

    /// When the next [`Event::Tick`] is due.
    pub(crate) fn deadline(&self) -> Option<Now> {
        match &self.phase {
            Phase::Running | Phase::Keeping => {
                let idle = self.bounds.idle.map(|idle| self.last_output + idle);
                self.bounds.wall.into_iter().chain(idle).min()
            }
            Phase::Draining { until } => Some(*until),
            Phase::Stopping { kill_at } => Some(*kill_at),
            Phase::Over => None,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    pub(crate) fn step(&mut self, now: Now, event: Event) -> Vec<Effect> {
        match event {
            Event::Output => {
                self.last_output = now;
                Vec::new()
            }
            Event::OutputClosed => {
                self.output_open = false;
                match self.phase {
                    Phase::Draining { .. } => self.over(None),
                    Phase::Keeping if self.alone => self.finish(),
                    _ => Vec::new(),
                }
            }
            Event::MainExited(status) => self.main_exited(now, status),
            Event::TreeShrank { left } => {
                self.alone = left == 0;
                match self.phase {
                    Phase::Keeping if self.alone && !self.output_open => self.finish(),
                    Phase::Keeping if !self.alone => vec![Effect::Keep],
                    Phase::Stopping { .. } if self.alone && self.exit.is_some() => self.over(None),
                    _ => Vec::new(),
                }
            }
            Event::Stop(stop) => self.stop(now, stop),
            Event::Tick => self.tick(now),
        }
    }

    fn main_exited(&mut self, now: Now, status: ExitStatus) -> Vec<Effect> {
        self.exit = Some(status);
        match (&self.phase, self.bounds.leftovers, self.output_open) {
            (Phase::Running, Leftovers::Keep, _) => {
                self.phase = Phase::Keeping;
                vec![Effect::Keep]
            }
            (Phase::Running, Leftovers::Kill, true) => {
                self.phase = Phase::Draining { until: now + self.bounds.drain };
                Vec::new()
            }
            (Phase::Running, Leftovers::Kill, false) => self.over(None),
            _ => Vec::new(),
        }
    }

    fn stop(&mut self, now: Now, stop: Stop) -> Vec<Effect> {
        match self.phase {
            Phase::Running | Phase::Keeping if matches!(stop, Stop::Memory | Stop::Processes | Stop::Temporary) => {
                self.stop = Some(stop);
                self.over(Some(KilledWhy::Limit))
            }
            Phase::Running | Phase::Keeping => {
                self.stop = Some(stop);
                self.phase = Phase::Stopping { kill_at: now + self.bounds.grace };
                vec![Effect::Terminate]
            }
            // It has ended by itself; only its leftovers are stopped, at once.
            Phase::Draining { .. } => self.over(None),
            Phase::Stopping { .. } | Phase::Over => Vec::new(),
        }
    }

    fn tick(&mut self, now: Now) -> Vec<Effect> {
        match self.phase {
            Phase::Running | Phase::Keeping => {
                let limit = |name, value, stop| (Effect::Limit { name, value }, stop);
                let idle_at = self.bounds.idle.map(|idle| self.last_output + idle);
                let (record, stop) = match (self.bounds.wall, self.bounds.idle) {
                    (Some(wall), _) if now >= wall => limit("wall", wall, Stop::Wall),
                    (_, Some(idle)) if idle_at.is_some_and(|at| now >= at) => limit("idle", idle, Stop::Idle),
                    _ => return Vec::new(),
                };
                let mut effects = vec![record];
                effects.extend(self.stop(now, stop));
                effects
            }
            Phase::Draining { until } if now >= until => self.over(None),
            Phase::Stopping { kill_at } if now >= kill_at => {
                let why = self.killed_why();
                self.over(why)
            }
            _ => Vec::new(),
        }
    }

    fn killed_why(&self) -> Option<KilledWhy> {
        Some(match self.stop.as_ref()? {
            Stop::Cancel { .. } => KilledWhy::Cancel,
            Stop::Shutdown { .. } => KilledWhy::Shutdown,
            Stop::SessionEnd { .. } => KilledWhy::SessionEnd,
            Stop::Wall | Stop::Idle => KilledWhy::Timeout,
            Stop::Output | Stop::Frames | Stop::Disk | Stop::Memory | Stop::Processes | Stop::Temporary => {
                KilledWhy::Limit
            }
        })
    }

    fn over(&mut self, why: Option<KilledWhy>) -> Vec<Effect> {
        self.phase = Phase::Over;
        vec![Effect::Kill(why), Effect::Finish]
    }

    fn finish(&mut self) -> Vec<Effect> {
        self.phase = Phase::Over;
        vec![Effect::Finish]
    }

    /// How the task ended.
    pub(crate) fn outcome(&self) -> Outcome {
        match (&self.stop, self.exit) {
            (Some(Stop::Cancel { by, reason }), _) => Outcome::Cancelled { by: by.clone(), reason: reason.clone() },
            (Some(Stop::Shutdown { by }), _) => {
                Outcome::Cancelled { by: by.clone(), reason: Some(Text::of("the house was shut down")) }
            }
            (Some(Stop::SessionEnd { by }), _) => {
                Outcome::Cancelled { by: by.clone(), reason: Some(Text::of("its session has ended")) }
            }
            (Some(Stop::Wall), _) => Outcome::TimedOut { limit: TimedOut::Wall },
            (Some(Stop::Idle), _) => Outcome::TimedOut { limit: TimedOut::Idle },
            (Some(Stop::Output), _) => Outcome::Limited { limit: LimitReached::Output },
            (Some(Stop::Frames), _) => Outcome::Limited { limit: LimitReached::Frames },
            (Some(Stop::Disk), _) => Outcome::Limited { limit: LimitReached::Disk },
            (Some(Stop::Memory), _) => Outcome::Limited { limit: LimitReached::Memory },
            (Some(Stop::Processes), _) => Outcome::Limited { limit: LimitReached::Processes },
            (Some(Stop::Temporary), _) => Outcome::Limited { limit: LimitReached::Temporary },
            (None, Some(exit)) => exit.into(),
            (None, None) => Outcome::Lost { why: Text::of("the main process did not end") },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(leftovers: Leftovers) -> Life {
        let s = Duration::from_secs;
        Life::new(Bounds { wall: Some(s(60)), idle: Some(s(10)), grace: s(5), drain: s(2), leftovers })
    }

    fn at(secs: u64) -> Now {
        Duration::from_secs(secs)
    }

    const ZERO: ExitStatus = ExitStatus::Code { code: 0 };

    fn cancel() -> Event {
        Event::Stop(Stop::Cancel { by: Text::of("test"), reason: None })
    }

    #[test]
    fn an_ordinary_task_ends_with_its_output() {
        for events in [[Event::MainExited(ZERO), Event::OutputClosed], [Event::OutputClosed, Event::MainExited(ZERO)]] {
            let mut life = life(Leftovers::Kill);
            let [a, b] = events;
            assert_eq!(life.step(at(1), a), []);
            assert_eq!(life.step(at(1), b), [Effect::Kill(None), Effect::Finish]);
            assert_eq!(life.outcome(), Outcome::Exited { code: 0 });
        }
    }

    #[test]
    fn held_output_is_drained_for_a_while() {
        let mut life = life(Leftovers::Kill);
        life.step(at(1), Event::MainExited(ZERO));
        assert_eq!(life.deadline(), Some(at(3)));
        assert_eq!(life.step(at(2), Event::Tick), []);
        assert_eq!(life.step(at(3), Event::Tick), [Effect::Kill(None), Effect::Finish]);
    }

    #[test]
    fn kept_leftovers_keep_the_task_running_until_they_are_gone_or_cancelled() {
        let mut one = life(Leftovers::Keep);
        assert_eq!(one.step(at(1), Event::MainExited(ZERO)), [Effect::Keep]);
        assert_eq!(one.step(at(2), Event::TreeShrank { left: 1 }), [Effect::Keep]);
        assert_eq!(one.step(at(2), Event::OutputClosed), []);
        assert_eq!(one.step(at(3), Event::TreeShrank { left: 0 }), [Effect::Finish]);
        assert_eq!(one.outcome(), Outcome::Exited { code: 0 });

        let mut last_byte_late = life(Leftovers::Keep);
        last_byte_late.step(at(1), Event::MainExited(ZERO));
        assert_eq!(last_byte_late.step(at(2), Event::TreeShrank { left: 0 }), []);
        assert_eq!(last_byte_late.step(at(2), Event::OutputClosed), [Effect::Finish]);

        let mut two = life(Leftovers::Keep);
        two.step(at(1), Event::MainExited(ZERO));
        assert_eq!(two.step(at(2), cancel()), [Effect::Terminate]);
        assert_eq!(two.step(at(3), Event::TreeShrank { left: 0 }), [Effect::Kill(None), Effect::Finish]);
        assert!(matches!(two.outcome(), Outcome::Cancelled { .. }));
    }

    #[test]
    fn the_ladder_kills_what_ignores_the_request() {
        let mut life = life(Leftovers::Kill);
        assert_eq!(life.step(at(1), cancel()), [Effect::Terminate]);
        assert_eq!(life.step(at(2), cancel()), []);
        assert_eq!(life.step(at(5), Event::Tick), []);
        assert_eq!(life.step(at(6), Event::Tick), [Effect::Kill(Some(KilledWhy::Cancel)), Effect::Finish]);
    }

    #[test]
    fn output_puts_idle_off_but_never_the_wall() {
        let mut life = life(Leftovers::Kill);
        for s in (0..60).step_by(5) {
            life.step(at(s), Event::Output);
            assert_eq!(life.step(at(s), Event::Tick), []);
        }
        assert_eq!(life.deadline(), Some(at(60)));
        let effects = life.step(at(60), Event::Tick);
        assert!(matches!(effects[..], [Effect::Limit { name: "wall", .. }, Effect::Terminate]));
        assert_eq!(life.outcome(), Outcome::TimedOut { limit: TimedOut::Wall });
    }

    #[test]
    fn silence_ends_a_task_only_where_that_was_asked_for() {
        let mut asked = life(Leftovers::Kill);
        let effects = asked.step(at(10), Event::Tick);
        assert!(matches!(effects[..], [Effect::Limit { name: "idle", .. }, Effect::Terminate]));
        let mut not = life(Leftovers::Kill);
        not.bounds.idle = None;
        assert_eq!(not.step(at(59), Event::Tick), []);
    }

    #[test]
    fn a_task_that_has_ended_keeps_its_exit_when_cancelled_late() {
        let mut life = life(Leftovers::Kill);
        life.step(at(1), Event::MainExited(ExitStatus::Code { code: 3 }));
        assert_eq!(life.step(at(2), cancel()), [Effect::Kill(None), Effect::Finish]);
        assert_eq!(life.outcome(), Outcome::Exited { code: 3 });
    }
}
