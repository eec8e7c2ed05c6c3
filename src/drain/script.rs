//! Running one of a job's scripts to its end, or until the drain is cancelled.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{ChildStdout, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{self, killpg};
use nix::sys::stat::Mode;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::signal::Signal;
use crate::signals::Signals;
use crate::supervisor::tree;
use crate::sys::Spawn;

/// How long a cancelled script and its children have, as under the agent.
const CANCEL_GRACE: Duration = Duration::from_secs(10);

/// How often a cancelled script's process group is looked at.
const TICK: Duration = Duration::from_millis(100);

/// More than this no drain script has to say; what comes after it is read, and dropped.
const MOST_OUTPUT: usize = 64 * 1024;

/// The drain was cancelled: by TERM or INT, or by its time limit.
#[derive(Debug, PartialEq, Eq)]
pub struct Cancelled;

/// Waits for time to pass or a script to end, and notices when the drain is cancelled.
pub struct Waiter {
    signals: Signals,
    limit: Option<Instant>,
}

impl Waiter {
    /// Takes over the signals of this process; `limit` is when the drain is cancelled by itself.
    pub fn new(limit: Option<Instant>) -> io::Result<Self> {
        Ok(Self { signals: Signals::new()?, limit })
    }

    /// Sleeps until `end`.
    pub fn sleep_until(&mut self, end: Instant) -> Result<(), Cancelled> {
        self.check()?;
        while Instant::now() < end {
            self.pause(Some(end), None);
            self.check()?;
        }
        Ok(())
    }

    /// Whether the drain is to go on.
    pub fn check(&mut self) -> Result<(), Cancelled> {
        let told = self.signals.pending().iter().any(|signal| [Signal::TERM, Signal::INT].contains(signal));
        if told || self.limit.is_some_and(|limit| limit <= Instant::now()) { Err(Cancelled) } else { Ok(()) }
    }

    /// One sleep: ends by a signal that [`Waiter::check`] has not taken yet, at `end`, at the limit,
    /// or when `readable` is.
    fn pause(&self, end: Option<Instant>, readable: Option<&ChildStdout>) {
        let mut ready = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        ready.extend(readable.map(|output| PollFd::new(output.as_fd(), PollFlags::POLLIN)));
        crate::poll::wait(&mut ready, end.into_iter().chain(self.limit).min());
    }

    /// TERM to a script's process group, KILL after a while, as when the agent cancels.
    fn end(&mut self, group: Pid) {
        let _ = killpg(group, signal::Signal::SIGTERM);
        // The limit has passed, perhaps; this one is our own.
        self.limit = None;
        let end = Instant::now() + CANCEL_GRACE;
        // Nobody tells of the end of a child's child, so this looks again and again.
        while group_lives(group) && Instant::now() < end {
            self.pause(Some(end.min(Instant::now() + TICK)), None);
            // Takes the news, which would end each pause to come at once.
            let _ = self.check();
        }
        let _ = killpg(group, signal::Signal::SIGKILL);
    }
}

/// One of a job's scripts.
pub struct Script<'a> {
    /// Its file.
    pub path: &'a Path,
    /// Its arguments.
    pub arguments: &'a [&'a str],
    /// Variables set for it.
    pub variables: &'a [(&'a str, OsString)],
    /// Where its stdout goes; `None` if we read it.
    pub stdout: Option<Stdio>,
    /// Where its stderr goes.
    pub stderr: Stdio,
}

/// How a script ended.
pub struct Finished {
    /// Its exit status.
    pub status: ExitStatus,
    /// What we read of its stdout.
    pub output: Vec<u8>,
}

impl Script<'_> {
    /// Runs it, directly and in its own process group, and reads its stdout to the end: a child
    /// in the background that holds it is waited for, as the agent does.
    pub fn run(self, waiter: &mut Waiter) -> Result<io::Result<Finished>, Cancelled> {
        let name = self.path.as_os_str().to_owned();
        let arguments: Vec<OsString> =
            std::iter::once(name).chain(self.arguments.iter().map(OsString::from)).collect();
        let started = Spawn {
            program: self.path,
            arguments: &arguments,
            variables: self.variables,
            stdout: self.stdout.unwrap_or_else(Stdio::piped),
            stderr: self.stderr,
            umask: Mode::from_bits_truncate(0o022),
        }
        .start();
        let mut child = match started {
            Ok(child) => child,
            Err(error) => return Ok(Err(error)),
        };
        let pid = Pid::from_raw(child.id() as i32);
        let mut stdout = child.stdout.take();
        let mut output = vec![];
        // Reaped at the very end: until then the group's number is its own.
        loop {
            // Takes the news first and looks then: what comes between ends the pause.
            if let Err(cancelled) = waiter.check() {
                waiter.end(pid);
                let _ = child.wait();
                return Err(cancelled);
            }
            if stdout.is_none() && has_ended(pid) {
                break;
            }
            waiter.pause(None, stdout.as_ref());
            if stdout.as_mut().is_some_and(|stdout| !read_some(stdout, &mut output)) {
                stdout = None;
            }
        }
        Ok(child.wait().map(|status| Finished { status, output }))
    }
}

/// Whether somebody of a script's process group is at work still. Its leader, which is not reaped
/// yet, says nothing of the others; without `/proc` there is nobody else to ask.
fn group_lives(group: Pid) -> bool {
    let seen = if tree::proc_is_usable() { tree::group_is_alive(group).ok() } else { None };
    seen.unwrap_or_else(|| !has_ended(group))
}

fn has_ended(pid: Pid) -> bool {
    let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    // An error is a death by a real-time signal, which nix cannot name.
    waitid(Id::Pid(pid), peek) != Ok(WaitStatus::StillAlive)
}

/// Reads what is there; false at the end.
fn read_some(stdout: &mut ChildStdout, output: &mut Vec<u8>) -> bool {
    let mut ready = [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
    if !matches!(poll(&mut ready, PollTimeout::ZERO), Ok(1..)) {
        return true;
    }
    let mut buffer = [0; 4096];
    match stdout.read(&mut buffer) {
        Ok(0) | Err(_) => false,
        Ok(length) => {
            let room = MOST_OUTPUT - output.len();
            output.extend(&buffer[..length.min(room)]);
            true
        }
    }
}
