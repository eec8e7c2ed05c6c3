//! Our children: the main process, the condition, post-start, and orphans of the tree.
//!
//! A child keeps its PID until we reap it, and we forget the PID in the same step: no signal can
//! reach a stranger.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use nix::errno::Errno;
use nix::sys::signal::{self, killpg};
use nix::sys::stat::Mode;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::machine::Outcome;
use super::program::Program;
use super::tree;
use crate::signal::Signal;
use crate::sys::{self, Spawn};

/// Which child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The main process.
    Main,
    /// The condition of post-start.
    Condition,
    /// Post-start.
    PostStart,
    /// A process of the tree whose parent has ended before it.
    Orphan,
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Main => "the process",
            Self::Condition => "the condition",
            Self::PostStart => "post-start",
            Self::Orphan => "an orphan of the tree",
        })
    }
}

/// One child that has ended and is reaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What it was to us.
    pub role: Role,
    /// Its PID, now anybody's.
    pub pid: Pid,
    /// How it ended.
    pub outcome: Outcome,
}

struct Helper {
    pid: Pid,
    role: Role,
    /// It has had the stop signal, which is to come once.
    told: bool,
}

/// Whether this process has any child, alive or not yet reaped.
pub fn any() -> bool {
    let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::All, peek) != Err(Errno::ECHILD)
}

/// All children of the supervisor.
pub struct Children {
    main: Option<Pid>,
    /// Condition or post-start: never both.
    helper: Option<Helper>,
    /// The process group of the latest main process: where to look for survivors without `/proc`.
    group: Option<Pid>,
    umask: Mode,
    proc_is_usable: bool,
}

impl Children {
    /// No children yet; they will start with `umask`.
    pub fn new(umask: Mode, proc_is_usable: bool) -> Self {
        Self { main: None, helper: None, group: None, umask, proc_is_usable }
    }

    /// The PID of the main process, if it lives.
    pub fn main(&self) -> Option<Pid> {
        self.main
    }

    /// Starts the main process.
    pub fn start_main(&mut self, program: &Program) -> io::Result<Pid> {
        let pid = self.start(program, Stdio::inherit)?;
        self.main = Some(pid);
        self.group = Some(pid);
        Ok(pid)
    }

    /// Starts the condition, without a voice, or post-start, with ours.
    pub fn start_helper(&mut self, program: &Program, role: Role) -> io::Result<()> {
        let output = if role == Role::Condition { Stdio::null } else { Stdio::inherit };
        let pid = self.start(program, output)?;
        self.helper = Some(Helper { pid, role, told: false });
        Ok(())
    }

    fn start(&self, program: &Program, output: fn() -> Stdio) -> io::Result<Pid> {
        let child = Spawn {
            program: &program.path,
            arguments: &program.arguments,
            variables: &[],
            stdout: output(),
            stderr: output(),
            umask: self.umask,
        };
        Ok(Pid::from_raw(child.start()?.id() as i32))
    }

    /// Sends a signal to the main process, if it lives.
    pub fn signal_main(&self, signal: Signal) -> io::Result<()> {
        self.main.map_or(Ok(()), |pid| sys::kill(pid, signal))
    }

    /// The same, and continues it if it is stopped.
    pub fn stop_main(&self, signal: Signal) -> io::Result<()> {
        let Some(pid) = self.main else { return Ok(()) };
        sys::kill(pid, signal)?;
        // Peeks: the kernel goes on to report the stop for as long as it lasts.
        let peek = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        if let Ok(WaitStatus::Stopped(..)) = waitid(Id::Pid(pid), peek) {
            sys::kill(pid, Signal::CONT)?;
        }
        Ok(())
    }

    /// Sends a signal to post-start, if it runs.
    pub fn stop_post_start(&mut self, signal: Signal) -> io::Result<()> {
        match &mut self.helper {
            Some(helper) if helper.role == Role::PostStart => {
                helper.told = true;
                sys::kill(helper.pid, signal)
            }
            _ => Ok(()),
        }
    }

    /// SIGKILL to the condition or post-start and its process group, which is its own.
    pub fn kill_helper(&self) {
        if let Some(helper) = &self.helper {
            // It is unreaped, so the group is its own; it may have left the group, or be dead.
            let _ = killpg(helper.pid, signal::Signal::SIGKILL);
            let _ = sys::kill(helper.pid, Signal::KILL);
        }
    }

    /// Sends a signal once to each process of the tree, but not to a post-start that has had it,
    /// and continues those that are stopped.
    pub fn stop_tree(&self, signal: Signal) -> io::Result<()> {
        if !any() {
            return Ok(());
        }
        if !self.proc_is_usable {
            self.signal_group(signal);
            return Ok(());
        }
        let told: Option<Pid> = self.helper.as_ref().filter(|helper| helper.told).map(|helper| helper.pid);
        tree::stop(signal, told)
    }

    /// SIGKILL to everything below us.
    pub fn kill_tree(&self) -> io::Result<()> {
        // First what needs no look at `/proc`: a full process table or too few descriptors
        // cannot save these.
        let _ = self.signal_main(Signal::KILL);
        self.kill_helper();
        if !self.proc_is_usable {
            self.signal_group(Signal::KILL);
            return Ok(());
        }
        tree::kill()
    }

    /// The best that can be done without `/proc`: the main process's own group. Others of the
    /// tree, in groups of their own, cannot be found.
    fn signal_group(&self, signal: Signal) {
        if let (Some(group), Ok(signal)) = (self.group, signal::Signal::try_from(signal.number())) {
            let _ = killpg(group, signal);
        }
    }

    /// Reaps all children that have ended. The flag says whether no child is left, neither alive
    /// nor dead: since orphans come to us, there is no descendant left then either.
    pub fn reap(&mut self) -> (Vec<Ended>, bool) {
        let mut ended = vec![];
        loop {
            let (pid, status) = match sys::wait_any() {
                Ok(Some(child)) => child,
                Ok(None) => return (ended, false),
                // ECHILD: there are none.
                Err(_) => return (ended, true),
            };
            let outcome = match status.signal() {
                Some(signal) => Outcome::Killed(signal),
                None => {
                    Outcome::Exited(status.code().and_then(|code| code.try_into().ok()).unwrap_or(u8::MAX))
                }
            };
            ended.push(Ended { role: self.forget(pid), pid, outcome });
        }
    }

    fn forget(&mut self, pid: Pid) -> Role {
        if self.main == Some(pid) {
            self.main = None;
            return Role::Main;
        }
        match &self.helper {
            Some(helper) if helper.pid == pid => {
                let role = helper.role;
                self.helper = None;
                role
            }
            _ => Role::Orphan,
        }
    }
}
