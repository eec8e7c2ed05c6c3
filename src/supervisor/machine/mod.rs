//! The life cycle: state + event → state + actions. No I/O, no clock, no PID.
//!
//! ```text
//!              START                       STOP, TERM, failure
//!   Down ───────────────▶ Stopping ◀─────────────────────────── Running
//!    ▲   (first stop what     │  │   the tree is gone: spawn       ▲
//!    │    is left over)       │  └─────────────────────────────────┤
//!    ├────────────────────────┤      wish: Start                   │
//!    │      wish: Rest        └──────────▶ Over   wish: Exit       │
//!    └─────────────────────────────────────────────────────────────┘
//!              the main process ended, and that was no failure
//! ```
//!
//! What is wanted next (the [`Wish`]) is kept apart from what is so (the [`State`]): a START
//! while stopping needs no queue, and the last wish wins by overwriting the one before.
//!
//! The caller carries the actions out in their order. It answers [`Action::Spawn`] with
//! [`Event::Spawned`], [`Event::SpawnedWithoutFiles`] or [`Event::SpawnFailed`] before it feeds any other event, and feeds
//! [`Event::TreeGone`] as soon as [`Machine::awaits_tree`] and no process of the tree is left.

mod types;

use std::time::{Duration, Instant};

use crate::control::protocol::{Command, Mode, StateName};
use crate::signal::Signal;
pub use types::{Action, Answer, Clock, Config, Event, Outcome, PostStart, Report, Rest, State, Wish};

/// How long after a KILL the tree is looked through again for what slipped through: a process
/// that was forked at the same instant. The end of the tree itself is noticed at once.
pub const KILL_AGAIN: Duration = Duration::from_millis(100);

/// How long a tree may survive its KILL before that is reported: only a process that the kernel
/// holds (a dead disk, a debugger) lives that long.
pub const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// Exit code when the supervisor, not the main process, has failed.
pub const OUR_FAILURE: u8 = 1;

const NOT_RUNNING: &str = "the process is not running";
const SHUTTING_DOWN: &str = "the supervisor is shutting down";
const CANCELLED: &str = "the start was cancelled by a STOP";
const NOT_STARTED: &str = "the process could not be started";

/// The life cycle of one main process.
#[derive(Debug)]
pub struct Machine {
    config: Config,
    state: State,
    mode: Mode,
}

impl Machine {
    /// A machine at rest.
    pub fn new(config: Config) -> Self {
        Self { config, state: State::Down(Rest::Stopped), mode: Mode::Monitored }
    }

    /// The state, in the words of the control protocol.
    pub fn state_name(&self) -> StateName {
        match self.state {
            State::Running { .. } => StateName::Running,
            State::Stopping { .. } => StateName::Stopping,
            State::Down(Rest::Ended) => StateName::Ended,
            State::Down(Rest::Failed) => StateName::Failed,
            State::Down(Rest::Stopped) | State::Over(_) => StateName::Stopped,
        }
    }

    /// The state, whole.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether a failing main process ends the supervisor.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// When to feed [`Event::Deadline`], if nothing else happens before.
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Down(_) | State::Over(_) => None,
            State::Running { post_start, .. } => match post_start {
                PostStart::None => None,
                PostStart::Pausing { until, limit } => Some(until.min(limit)),
                PostStart::Checking { limit } | PostStart::Active { limit } => Some(limit),
            },
            State::Stopping { clock: Clock::Grace(kill), .. } => Some(kill),
            State::Stopping { clock: Clock::Killing { again, .. }, .. } => Some(again),
        }
    }

    /// Whether [`Event::TreeGone`] is to be fed as soon as it is true.
    pub fn awaits_tree(&self) -> bool {
        matches!(self.state, State::Stopping { main: false, .. })
    }

    /// What `event` leads to at the time `now`.
    pub fn step(&mut self, event: Event, now: Instant) -> Vec<Action> {
        if let Event::Command(Command::SetMode(mode)) = event {
            self.mode = mode;
        }
        match self.state {
            State::Down(_) => self.step_down(event, now),
            State::Running { ordered, post_start } => self.step_running(event, now, ordered, post_start),
            State::Stopping { main, clock, wish } => self.step_stopping(event, now, main, clock, wish),
            State::Over(_) => match event {
                Event::Command(Command::Start | Command::Signal(_)) => {
                    vec![Action::Answer(Answer::Refused(SHUTTING_DOWN))]
                }
                Event::Command(_) => vec![Action::Answer(Answer::Now)],
                _ => vec![],
            },
        }
    }

    fn step_down(&mut self, event: Event, now: Instant) -> Vec<Action> {
        match event {
            // What the last run left over goes first; the wish outlives it.
            Event::Begin => self.stop_leftovers(Wish::Start, now),
            Event::Command(Command::Start) => {
                let mut actions = self.stop_leftovers(Wish::Start, now);
                actions.push(Action::Answer(Answer::WhenStarted));
                actions
            }
            Event::Command(Command::Stop { wait }) => {
                let mut actions = self.stop_leftovers(Wish::Rest(Rest::Stopped), now);
                actions.push(answer_to_stop(wait));
                actions
            }
            Event::Terminate => self.stop_leftovers(Wish::Exit(0), now),
            Event::Spawned { post_start } => self.spawned(post_start, now),
            Event::SpawnFailed(code) => {
                let mut actions = vec![Action::RefuseStarted(NOT_STARTED)];
                actions.extend(self.fail(code, now));
                actions
            }
            Event::SpawnedWithoutFiles => {
                let wish = match self.mode {
                    Mode::Monitored => Wish::Exit(OUR_FAILURE),
                    Mode::Unmonitored | Mode::Drained => Wish::Rest(Rest::Failed),
                };
                let mut actions = vec![Action::RefuseStarted(NOT_STARTED)];
                actions.extend(self.stop_running(PostStart::None, wish, now));
                actions
            }
            Event::Command(Command::Signal(_)) => vec![Action::Answer(Answer::Refused(NOT_RUNNING))],
            Event::Command(Command::Quit | Command::Status | Command::SetMode(_)) => {
                vec![Action::Answer(Answer::Now)]
            }
            // There is nobody to pass a signal to, and a post-start that outlived its main
            // process is a leftover like any other.
            Event::Pass(_)
            | Event::MainEnded(_)
            | Event::ConditionEnded(_)
            | Event::PostStartEnded(_)
            | Event::TreeGone
            | Event::Deadline => vec![],
        }
    }

    fn step_running(
        &mut self,
        event: Event,
        now: Instant,
        ordered: Option<Instant>,
        post_start: PostStart,
    ) -> Vec<Action> {
        match event {
            Event::Command(Command::Stop { wait }) => {
                let mut actions = self.stop_running(post_start, Wish::Rest(Rest::Stopped), now);
                actions.push(answer_to_stop(wait));
                actions
            }
            Event::Terminate => self.stop_running(post_start, Wish::Exit(0), now),
            Event::Command(Command::Quit) => {
                let mut actions = self.signal_running(Signal::QUIT, post_start, ordered, now);
                actions.push(Action::Answer(Answer::Now));
                actions
            }
            Event::Command(Command::Signal(Signal::KILL)) => {
                self.state = kill_now(true, Wish::Rest(Rest::Stopped), now);
                vec![Action::KillTree, Action::Answer(Answer::Now)]
            }
            Event::Command(Command::Signal(signal)) => {
                let mut actions = self.signal_running(signal, post_start, ordered, now);
                actions.push(Action::Answer(Answer::Now));
                actions
            }
            Event::Pass(signal) => self.signal_running(signal, post_start, ordered, now),
            Event::MainEnded(outcome) => self.main_ended(outcome, ordered, post_start, now),
            Event::ConditionEnded(outcome) => match post_start {
                PostStart::Checking { limit } if outcome == Outcome::Exited(0) => {
                    self.state = State::Running { ordered, post_start: PostStart::Active { limit } };
                    vec![Action::RunPostStart]
                }
                PostStart::Checking { limit } => {
                    let until = now + self.config.interval;
                    self.state = State::Running { ordered, post_start: PostStart::Pausing { until, limit } };
                    vec![]
                }
                PostStart::None | PostStart::Pausing { .. } | PostStart::Active { .. } => vec![],
            },
            Event::PostStartEnded(outcome) => match post_start {
                PostStart::Active { .. } => {
                    self.state = State::Running { ordered, post_start: PostStart::None };
                    match outcome {
                        Outcome::Exited(0) => vec![],
                        _ => self.post_start_failed(Report::PostStartFailed(outcome), now),
                    }
                }
                PostStart::None | PostStart::Pausing { .. } | PostStart::Checking { .. } => vec![],
            },
            Event::Deadline => self.post_start_deadline(ordered, post_start, now),
            Event::Command(Command::Start | Command::Status | Command::SetMode(_)) => {
                vec![Action::Answer(Answer::Now)]
            }
            Event::Begin
            | Event::Spawned { .. }
            | Event::SpawnedWithoutFiles
            | Event::SpawnFailed(_)
            | Event::TreeGone => vec![],
        }
    }

    fn step_stopping(
        &mut self,
        event: Event,
        now: Instant,
        main: bool,
        clock: Clock,
        wish: Wish,
    ) -> Vec<Action> {
        match event {
            Event::Terminate
            | Event::Command(Command::Start | Command::Stop { .. } | Command::SetMode(_)) => {
                let (wish, actions) = rewish(wish, event);
                self.state = State::Stopping { main, clock, wish };
                actions
            }
            Event::Command(Command::Signal(Signal::KILL)) => {
                if let Clock::Grace(_) = clock {
                    self.state = kill_now(main, wish, now);
                }
                vec![Action::KillTree, Action::Answer(Answer::Now)]
            }
            Event::Command(Command::Signal(signal)) if main => {
                vec![Action::SignalMain(signal), Action::Answer(Answer::Now)]
            }
            Event::Command(Command::Quit) if main => {
                vec![Action::SignalMain(Signal::QUIT), Action::Answer(Answer::Now)]
            }
            Event::Pass(signal) if main => vec![Action::SignalMain(signal)],
            Event::MainEnded(_) => {
                self.state = State::Stopping { main: false, clock, wish };
                let survivors = match clock {
                    Clock::Grace(_) => Action::StopTree(self.config.stop_signal),
                    Clock::Killing { .. } => Action::KillTree,
                };
                vec![Action::RemoveFiles, survivors]
            }
            Event::TreeGone if !main => self.stopped(wish),
            Event::Deadline => self.stop_deadline(main, clock, wish, now),
            Event::Command(Command::Signal(_)) => vec![Action::Answer(Answer::Refused(NOT_RUNNING))],
            Event::Command(Command::Quit | Command::Status) => vec![Action::Answer(Answer::Now)],
            // A condition or post-start that ends now was told to.
            Event::Pass(_)
            | Event::TreeGone
            | Event::ConditionEnded(_)
            | Event::PostStartEnded(_)
            | Event::Begin
            | Event::Spawned { .. }
            | Event::SpawnFailed(_)
            | Event::SpawnedWithoutFiles => vec![],
        }
    }

    /// The tree is gone: what was wished for comes next.
    fn stopped(&mut self, wish: Wish) -> Vec<Action> {
        let (state, next) = match wish {
            Wish::Rest(rest) => (State::Down(rest), None),
            Wish::Start => (State::Down(Rest::Stopped), Some(Action::Spawn)),
            Wish::Exit(code) => (State::Over(code), Some(Action::Exit(code))),
        };
        self.state = state;
        std::iter::once(Action::AnswerStopped).chain(next).collect()
    }

    fn spawned(&mut self, post_start: bool, now: Instant) -> Vec<Action> {
        let limit = now + self.config.timeout;
        let mut actions = vec![Action::AnswerStarted];
        let post_start = if !post_start {
            PostStart::None
        } else if self.config.condition {
            PostStart::Pausing { until: now + self.config.interval, limit }
        } else {
            actions.push(Action::RunPostStart);
            PostStart::Active { limit }
        };
        self.state = State::Running { ordered: None, post_start };
        actions
    }

    fn signal_running(
        &mut self,
        signal: Signal,
        post_start: PostStart,
        ordered: Option<Instant>,
        now: Instant,
    ) -> Vec<Action> {
        let ordered = match signal {
            Signal::QUIT | Signal::TERM | Signal::INT => Some(now + self.config.kill_after),
            _ => ordered,
        };
        self.state = State::Running { ordered, post_start };
        vec![Action::SignalMain(signal)]
    }

    fn main_ended(
        &mut self,
        outcome: Outcome,
        ordered: Option<Instant>,
        post_start: PostStart,
        now: Instant,
    ) -> Vec<Action> {
        let mut actions = vec![Action::RemoveFiles];
        if let PostStart::Checking { .. } = post_start {
            actions.push(Action::KillPostStart);
        }
        if ordered.is_some_and(|until| now <= until) {
            self.state = State::Down(Rest::Stopped);
        } else if outcome == Outcome::Exited(0) || outcome.asked_for() {
            self.state = State::Down(Rest::Ended);
        } else {
            actions.push(Action::Report(Report::MainFailed(outcome)));
            actions.extend(self.fail(outcome.code(), now));
        }
        actions
    }

    /// The main process is gone, or never came, and should not be.
    fn fail(&mut self, code: u8, now: Instant) -> Vec<Action> {
        match self.mode {
            Mode::Monitored => self.stop_leftovers(Wish::Exit(code), now),
            Mode::Unmonitored | Mode::Drained => {
                self.state = State::Down(Rest::Failed);
                vec![]
            }
        }
    }

    /// Ends what is left of the tree of a main process that has ended.
    fn stop_leftovers(&mut self, wish: Wish, now: Instant) -> Vec<Action> {
        let clock = Clock::Grace(now + self.config.kill_after);
        self.state = State::Stopping { main: false, clock, wish };
        vec![Action::StopTree(self.config.stop_signal)]
    }

    fn stop_running(&mut self, post_start: PostStart, wish: Wish, now: Instant) -> Vec<Action> {
        let signal = self.config.stop_signal;
        let clock = Clock::Grace(now + self.config.kill_after);
        self.state = State::Stopping { main: true, clock, wish };
        let mut actions = vec![Action::StopMain(signal)];
        match post_start {
            PostStart::None | PostStart::Pausing { .. } => {}
            PostStart::Checking { .. } => actions.push(Action::KillPostStart),
            PostStart::Active { .. } => actions.push(Action::StopPostStart(signal)),
        }
        actions
    }

    fn post_start_failed(&mut self, report: Report, now: Instant) -> Vec<Action> {
        let mut actions = vec![Action::Report(report)];
        if self.mode == Mode::Monitored {
            actions.extend(self.stop_running(PostStart::None, Wish::Exit(OUR_FAILURE), now));
        }
        actions
    }

    fn post_start_deadline(
        &mut self,
        ordered: Option<Instant>,
        post_start: PostStart,
        now: Instant,
    ) -> Vec<Action> {
        let (limit, runs) = match post_start {
            PostStart::None => return vec![],
            PostStart::Pausing { until, limit } if now >= until && now < limit => {
                self.state = State::Running { ordered, post_start: PostStart::Checking { limit } };
                return vec![Action::RunCondition];
            }
            PostStart::Pausing { limit, .. } => (limit, false),
            PostStart::Checking { limit } | PostStart::Active { limit } => (limit, true),
        };
        if now < limit {
            return vec![];
        }
        self.state = State::Running { ordered, post_start: PostStart::None };
        let mut actions = if runs { vec![Action::KillPostStart] } else { vec![] };
        actions.extend(self.post_start_failed(Report::PostStartTimedOut, now));
        actions
    }

    fn stop_deadline(&mut self, main: bool, clock: Clock, wish: Wish, now: Instant) -> Vec<Action> {
        match clock {
            Clock::Grace(kill) if now >= kill => {
                self.state = kill_now(main, wish, now);
                vec![Action::KillTree]
            }
            Clock::Killing { again, report } if now >= again => {
                let due = report.is_some_and(|at| now >= at);
                let clock = Clock::Killing { again: now + KILL_AGAIN, report: report.filter(|_| !due) };
                self.state = State::Stopping { main, clock, wish };
                let mut actions = vec![Action::KillTree];
                if due {
                    actions.push(Action::Report(Report::SurvivesKill));
                }
                actions
            }
            Clock::Grace(_) | Clock::Killing { .. } => vec![],
        }
    }
}

/// What is wished for during a stop when one more wish comes. The last one wins, but for this: once
/// the supervisor is to end nothing is started any more, and only a drain that begins keeps the
/// failure before it from ending the container, and with it the drain.
fn rewish(wish: Wish, event: Event) -> (Wish, Vec<Action>) {
    let now = || Action::Answer(Answer::Now);
    match (event, wish) {
        (Event::Command(Command::Start), Wish::Exit(_)) => {
            (wish, vec![Action::Answer(Answer::Refused(SHUTTING_DOWN))])
        }
        (Event::Command(Command::Start), _) => (Wish::Start, vec![Action::Answer(Answer::WhenStarted)]),
        (Event::Command(Command::Stop { wait }), Wish::Exit(_)) => (wish, vec![answer_to_stop(wait)]),
        (Event::Command(Command::Stop { wait }), Wish::Rest(_)) => {
            (Wish::Rest(Rest::Stopped), vec![answer_to_stop(wait)])
        }
        (Event::Command(Command::Stop { wait }), Wish::Start) => {
            (Wish::Rest(Rest::Stopped), vec![Action::RefuseStarted(CANCELLED), answer_to_stop(wait)])
        }
        (Event::Command(Command::SetMode(Mode::Unmonitored | Mode::Drained)), Wish::Exit(1..)) => {
            (Wish::Rest(Rest::Failed), vec![now()])
        }
        (Event::Command(_), _) => (wish, vec![now()]),
        (_, Wish::Start) => (Wish::Exit(0), vec![Action::RefuseStarted(SHUTTING_DOWN)]),
        (_, Wish::Rest(_) | Wish::Exit(_)) => (Wish::Exit(0), vec![]),
    }
}

fn kill_now(main: bool, wish: Wish, now: Instant) -> State {
    let clock = Clock::Killing { again: now + KILL_AGAIN, report: Some(now + KILL_PATIENCE) };
    State::Stopping { main, clock, wish }
}

fn answer_to_stop(wait: bool) -> Action {
    Action::Answer(if wait { Answer::WhenStopped } else { Answer::Now })
}

#[cfg(test)]
mod tests;
