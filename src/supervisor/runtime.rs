//! The loop around the life cycle: waits for a signal, a datagram or a deadline, feeds the
//! machine, and carries out what it says.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::Instant;

use nix::poll::{PollFd, PollFlags};

use super::child::{Children, Role};
use super::files::RunFiles;
use super::machine::{Action, Answer, Event, KILL_PATIENCE, Machine, Outcome, Report};
use super::program::{self, CannotRun, NOT_EXECUTABLE};
use super::{Options, narrate, tree};
use crate::control::protocol::{self, Details, LastExit, Request, Status};
use crate::control::socket::{Address, ControlSocket, Received};
use crate::log;
use crate::paths::ProcessPaths;
use crate::poll;
use crate::signal::Signal;
use crate::signals::Signals;

/// Datagrams handled before signals and deadlines are looked at again: a flood must not keep a
/// TERM waiting.
const BATCH: usize = 64;

/// Senders that may wait for a start, and for a stop, at the same time. More than these are a
/// fault of the senders', and must not become one of ours: their answers, while unread, take room
/// in the socket's send buffer.
const MOST_WAITING: usize = 256;

/// A supervisor that is set up.
pub struct Runtime {
    options: Options,
    paths: ProcessPaths,
    machine: Machine,
    children: Children,
    socket: ControlSocket,
    signals: Signals,
    queue: VecDeque<Event>,
    /// Who sent the command that is being handled, and is to have its answer when it has been.
    sender: Option<Address>,
    wait_for_start: Vec<Address>,
    wait_for_stop: Vec<Address>,
    /// What says that the main process runs.
    files: Option<RunFiles>,
    /// Why the last spawn went wrong, for those who wait for it.
    fault: Option<String>,
    exit: Option<u8>,
    /// Since when the state has the name that it has.
    since: Instant,
    last_exit: Option<Outcome>,
    /// How often the main process was started.
    starts: u32,
}

impl Runtime {
    /// Nothing runs yet.
    pub fn new(options: Options, paths: ProcessPaths, socket: ControlSocket, signals: Signals) -> Self {
        let proc_is_usable = tree::proc_is_usable();
        if !proc_is_usable {
            log::warning(
                "/proc does not show this PID namespace: of the process's tree, \
                 only its own process group can be stopped",
            );
        }
        Self {
            machine: Machine::new(options.config.clone()),
            children: Children::new(options.umask, proc_is_usable),
            options,
            paths,
            socket,
            signals,
            queue: VecDeque::new(),
            sender: None,
            wait_for_start: vec![],
            wait_for_stop: vec![],
            files: None,
            fault: None,
            exit: None,
            since: Instant::now(),
            last_exit: None,
            starts: 0,
        }
    }

    /// Runs the main process, and the loop until the life cycle is over.
    pub fn run(mut self) -> u8 {
        self.feed(Event::Begin);
        loop {
            if let Some(code) = self.exit {
                // Whoever asked before is answered: the queue is shorter than this, unless
                // net.unix.max_dgram_qlen was raised; and a flood must not keep us from ending.
                let _ = (0..BATCH).all(|_| self.receive());
                return code;
            }
            let more_datagrams = self.turn();
            if self.exit.is_none() && !more_datagrams {
                self.wait();
            }
        }
    }

    /// Handles what is there. True if there may be more datagrams.
    fn turn(&mut self) -> bool {
        for signal in self.signals.pending() {
            log::debug(|| format!("got {signal}"));
            match signal {
                Signal::TERM | Signal::INT => self.feed(Event::Terminate),
                Signal::CHLD => {
                    self.reap();
                    self.settle();
                }
                other => self.feed(Event::Pass(other)),
            }
        }
        if self.machine.deadline().is_some_and(|deadline| deadline <= Instant::now()) {
            self.feed(Event::Deadline);
        }
        (0..BATCH).all(|_| self.exit.is_none() && self.receive())
    }

    /// Sleeps until there is something to do.
    fn wait(&self) {
        let mut readable = [
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
        ];
        poll::wait(&mut readable, self.machine.deadline());
    }

    /// Handles one datagram; false if there is none.
    fn receive(&mut self) -> bool {
        let datagram = match self.socket.receive() {
            Ok(Received::Datagram(datagram)) => datagram,
            Ok(Received::Foreign) => {
                log::debug(|| "a datagram of a user without rights was ignored".to_owned());
                return true;
            }
            Ok(Received::Nothing) => return false,
            Err(error) => {
                log::error(format_args!("cannot receive a command: {error}"));
                return false;
            }
        };
        // A planted return address can lead an answer back to a supervisor. It must not be answered
        // in turn, or the two, or the one, would talk for ever.
        if datagram.text.starts_with(b"OK ") || datagram.text.starts_with(b"ERR ") {
            log::debug(|| "a datagram that is an answer was ignored".to_owned());
            return true;
        }
        match protocol::parse_request(&datagram.text) {
            Ok(Request::Details) => {
                log::debug(|| "command DETAILS".to_owned());
                let status = Status { details: Some(self.details()), ..self.status() };
                self.answer(datagram.sender, Ok(status));
            }
            Ok(Request::Command(command)) => {
                self.sender = datagram.sender;
                self.feed(Event::Command(command));
            }
            Err(reason) => {
                log::debug(|| format!("a datagram was refused: {reason}"));
                self.answer(datagram.sender, Err(&reason));
            }
        }
        true
    }

    /// Feeds one event and all that follow from it.
    fn feed(&mut self, event: Event) {
        self.queue.push_back(event);
        self.settle();
        // What is answered at once is answered with what the command has led to at once.
        if let Some(sender) = self.sender.take() {
            self.answer(Some(sender), Ok(self.status()));
        }
    }

    fn settle(&mut self) {
        loop {
            while let Some(event) = self.queue.pop_front() {
                let (now, before) = (Instant::now(), self.machine.state_name());
                let actions = self.machine.step(event, now);
                if self.machine.state_name() != before {
                    self.since = now;
                }
                log::debug(|| narrate::step(event, self.machine.state(), &actions, now));
                for action in actions {
                    self.act(action);
                }
            }
            if !self.machine.awaits_tree() {
                return;
            }
            if self.reap() {
                self.queue.push_back(Event::TreeGone);
            }
            if self.queue.is_empty() {
                return;
            }
        }
    }

    /// Queues the end of each child that has ended; true if none is left.
    fn reap(&mut self) -> bool {
        let (ended, none_left) = self.children.reap();
        for child in ended {
            log::debug(|| format!("{} with PID {} {}", child.role, child.pid, child.outcome));
            if child.role == Role::Main {
                self.last_exit = Some(child.outcome);
            }
            self.queue.extend(match child.role {
                Role::Main => Some(Event::MainEnded(child.outcome)),
                Role::Condition => Some(Event::ConditionEnded(child.outcome)),
                Role::PostStart => Some(Event::PostStartEnded(child.outcome)),
                Role::Orphan => None,
            });
        }
        none_left
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Spawn => self.spawn(),
            Action::SignalMain(signal) => report("signal the process", self.children.signal_main(signal)),
            Action::StopMain(signal) => report("stop the process", self.children.stop_main(signal)),
            Action::StopPostStart(signal) => report("stop post-start", self.children.stop_post_start(signal)),
            Action::StopTree(signal) => report("stop the process's tree", self.children.stop_tree(signal)),
            Action::KillTree => report("kill the process's tree", self.children.kill_tree()),
            Action::KillPostStart => self.children.kill_helper(),
            Action::RunCondition => self.run_helper(Role::Condition),
            Action::RunPostStart => self.run_helper(Role::PostStart),
            Action::RemoveFiles => {
                if let Some(Err(error)) = self.files.take().map(|files| files.remove(&self.paths)) {
                    log::error(format_args!("{error:#}"));
                }
            }
            Action::Answer(answer) => self.answer_sender(answer),
            Action::AnswerStarted => self.answer_all(|this| &mut this.wait_for_start, None),
            Action::RefuseStarted(reason) => {
                let reason = self.fault.take().unwrap_or_else(|| reason.to_owned());
                self.answer_all(|this| &mut this.wait_for_start, Some(&reason));
            }
            Action::AnswerStopped => self.answer_all(|this| &mut this.wait_for_stop, None),
            Action::Report(what) => self.report(what),
            Action::Exit(code) => self.exit = Some(code),
        }
    }

    fn spawn(&mut self) {
        let started = program::find(&self.options.command).and_then(|program| {
            self.children.start_main(&program).map_err(|error| CannotRun::from_exec(&program, &error))
        });
        let pid = match started {
            Ok(pid) => pid,
            Err(fault) => {
                log::error(&fault);
                self.fault = Some(fault.to_string());
                return self.queue.push_front(Event::SpawnFailed(fault.code));
            }
        };
        self.starts = self.starts.saturating_add(1);
        log::debug(|| format!("the process has PID {pid}"));
        let next = match RunFiles::write(&self.paths, pid) {
            Ok(files) => {
                self.files = Some(files);
                Event::Spawned { post_start: program::exists(&self.options.post_start) }
            }
            Err(error) => {
                log::error(format_args!("{error:#}"));
                self.fault = Some(format!("{error:#}"));
                Event::SpawnedWithoutFiles
            }
        };
        self.queue.push_front(next);
    }

    fn run_helper(&mut self, role: Role) {
        let (command, failed): (_, fn(Outcome) -> Event) = match role {
            Role::Condition => (&self.options.condition, Event::ConditionEnded),
            _ => (&self.options.post_start, Event::PostStartEnded),
        };
        let started = program::find(command).and_then(|program| {
            self.children.start_helper(&program, role).map_err(|error| CannotRun::from_exec(&program, &error))
        });
        if let Err(fault) = started {
            // A condition is tried again, so often that its fault would fill the log.
            match role {
                Role::PostStart => log::error(&fault),
                _ => log::debug(|| fault.to_string()),
            }
            self.queue.push_back(failed(Outcome::Exited(NOT_EXECUTABLE)));
        }
    }

    fn report(&self, what: Report) {
        let name = format!("{}/{}", self.options.job, self.options.process);
        let timeout = self.options.config.timeout.as_secs_f64();
        log::error(match what {
            Report::MainFailed(outcome) => format!("{name} {outcome}"),
            Report::PostStartFailed(outcome) => format!("post-start of {name} {outcome}"),
            Report::PostStartTimedOut => {
                format!(
                    "post-start of {name} and its condition took longer than {timeout} s (--post-start-timeout)"
                )
            }
            Report::SurvivesKill => format!(
                "something of {name} is still there {} s after SIGKILL: the kernel or a debugger holds it",
                KILL_PATIENCE.as_secs()
            ),
        });
    }

    fn status(&self) -> Status {
        Status {
            state: self.machine.state_name(),
            pid: self.children.main().map(|pid| pid.as_raw()),
            mode: self.machine.mode(),
            details: None,
        }
    }

    fn details(&self) -> Details {
        Details {
            since: self.since.elapsed(),
            last_exit: self.last_exit.map(last_exit),
            restarts: self.starts.saturating_sub(1),
        }
    }

    fn answer_sender(&mut self, answer: Answer) {
        let waiting = match answer {
            // `feed` does, when all that follows is done.
            Answer::Now => return,
            Answer::Refused(reason) => {
                let sender = self.sender.take();
                return self.answer(sender, Err(reason));
            }
            Answer::WhenStarted => &mut self.wait_for_start,
            Answer::WhenStopped => &mut self.wait_for_stop,
        };
        let Some(sender) = self.sender.take() else { return };
        if waiting.len() < MOST_WAITING {
            return waiting.push(sender);
        }
        self.answer(Some(sender), Err("too many others wait for an answer"));
    }

    fn answer_all(&mut self, waiting: fn(&mut Self) -> &mut Vec<Address>, refusal: Option<&str>) {
        let answer = refusal.map_or(Ok(self.status()), Err);
        for sender in std::mem::take(waiting(self)) {
            self.answer(Some(sender), answer);
        }
    }

    fn answer(&self, to: Option<Address>, answer: Result<Status, &str>) {
        if let Some(address) = to {
            let text = protocol::print_answer(answer);
            log::debug(|| format!("answered: {text}"));
            self.socket.answer(&address, &text);
        }
    }
}

/// A signal without a name is shown by the code that a shell would give.
fn last_exit(outcome: Outcome) -> LastExit {
    let signal = match outcome {
        Outcome::Killed(number) => Signal::from_number(number),
        Outcome::Exited(_) => None,
    };
    signal.map_or(LastExit::Code(outcome.code()), LastExit::Signal)
}

/// A signal that cannot be sent is said, and the life cycle goes on: its clock still runs.
fn report(what: &str, result: std::io::Result<()>) {
    match result {
        // It has just ended; that comes to us by itself.
        Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => {}
        Err(error) => log::error(format_args!("cannot {what}: {error}")),
        Ok(()) => {}
    }
}
