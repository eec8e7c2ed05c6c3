//! The words of the life cycle: its states, what happens, and what is to be done.

use std::time::{Duration, Instant};

use crate::control::protocol::Command;
use crate::signal::Signal;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It exited with this code.
    Exited(u8),
    /// A signal ended it.
    Killed(i32),
}

impl Outcome {
    /// The code by which a shell would show it: 128+n for signal n.
    pub fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Killed(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }

    /// Whether somebody in the container asked it to end, by TERM or INT, and it did as asked.
    pub(super) fn asked_for(self) -> bool {
        self.code() == 143 || self.code() == 130
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Exited(code) => write!(f, "exited with code {code}"),
            Self::Killed(number) => match Signal::from_number(number) {
                Some(signal) => write!(f, "was killed by {signal}"),
                None => write!(f, "was killed by signal {number}"),
            },
        }
    }
}

/// What the options say about the life cycle.
#[derive(Clone, Debug)]
pub struct Config {
    /// The first signal of a stop.
    pub stop_signal: Signal,
    /// From that signal to SIGKILL; also how long after an order an end counts as ordered.
    pub kill_after: Duration,
    /// Whether a condition must succeed before post-start runs.
    pub condition: bool,
    /// Pause before each try of the condition.
    pub interval: Duration,
    /// For condition and post-start together.
    pub timeout: Duration,
}

/// Why no main process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// It was ordered to end, or never started.
    Stopped,
    /// It ended by itself, or somebody else in the container asked it to.
    Ended,
    /// It failed while nobody minded: in the modes `unmonitored` and `drained`.
    Failed,
}

/// What is wanted once the tree is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing more.
    Rest(Rest),
    /// The main process, again.
    Start,
    /// The end of the supervisor, with this code.
    Exit(u8),
}

/// How far a stop has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The stop signal was sent; SIGKILL follows at this time.
    Grace(Instant),
    /// SIGKILL was sent.
    Killing {
        /// When to look for what is left.
        again: Instant,
        /// When to report that something is; `None` when that is done.
        report: Option<Instant>,
    },
}

/// How far post-start has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostStart {
    /// There is none, or it is done.
    None,
    /// Waiting to try the condition.
    Pausing {
        /// When to try it.
        until: Instant,
        /// When to give up.
        limit: Instant,
    },
    /// The condition runs.
    Checking {
        /// When to give up.
        limit: Instant,
    },
    /// Post-start runs.
    Active {
        /// When to give up.
        limit: Instant,
    },
}

/// Where the life cycle stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No main process. Others of its tree may have been left over.
    Down(Rest),
    /// The main process lives, and nobody wants it gone.
    Running {
        /// Until when its end counts as ordered: somebody sent QUIT or the like.
        ordered: Option<Instant>,
        /// Its post-start.
        post_start: PostStart,
    },
    /// The tree is being ended.
    Stopping {
        /// Whether the main process still lives.
        main: bool,
        /// When it gets harsher.
        clock: Clock,
        /// What comes then.
        wish: Wish,
    },
    /// The supervisor ends with this code.
    Over(u8),
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The supervisor is set up: run the main process.
    Begin,
    /// A command came on the socket.
    Command(Command),
    /// The supervisor got TERM or INT.
    Terminate,
    /// The supervisor got a signal that is the main process's business.
    Pass(Signal),
    /// The main process runs and its files are there.
    Spawned {
        /// Whether its post-start exists.
        post_start: bool,
    },
    /// The main process could not be run; the code says why, as a shell's would.
    SpawnFailed(u8),
    /// The main process runs, but its files could not be written.
    SpawnedWithoutFiles,
    /// The main process ended and is reaped.
    MainEnded(Outcome),
    /// The condition ended.
    ConditionEnded(Outcome),
    /// Post-start ended.
    PostStartEnded(Outcome),
    /// No process of the tree is left, nor of post-start's.
    TreeGone,
    /// The time that [`super::Machine::deadline`] named may have come.
    Deadline,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Run the main process and write its files.
    Spawn,
    /// Send this to the main process.
    SignalMain(Signal),
    /// Send this to the main process, and continue it if it is stopped, so that it can obey.
    StopMain(Signal),
    /// Send this to the running post-start.
    StopPostStart(Signal),
    /// Send this, once, to each process of the tree that has not had it.
    StopTree(Signal),
    /// SIGKILL to everything of the tree and of post-start.
    KillTree,
    /// SIGKILL to the condition or post-start and its process group.
    KillPostStart,
    /// Run the condition.
    RunCondition,
    /// Run post-start.
    RunPostStart,
    /// Remove sentinel and pidfile.
    RemoveFiles,
    /// Answer the command.
    Answer(Answer),
    /// The main process runs: answer all who waited for that.
    AnswerStarted,
    /// It will not: tell all who waited for it why.
    RefuseStarted(&'static str),
    /// The tree is gone: answer all who waited for that.
    AnswerStopped,
    /// Say this on stderr.
    Report(Report),
    /// End the supervisor with this code.
    Exit(u8),
}

/// How to answer a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// At once, with the state.
    Now,
    /// When the main process runs.
    WhenStarted,
    /// When the tree is gone.
    WhenStopped,
    /// With an error.
    Refused(&'static str),
}

/// What an operator must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The main process failed.
    MainFailed(Outcome),
    /// Post-start failed.
    PostStartFailed(Outcome),
    /// Condition and post-start took longer than they may.
    PostStartTimedOut,
    /// Something has survived SIGKILL for [`super::KILL_PATIENCE`].
    SurvivesKill,
}
