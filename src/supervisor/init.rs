//! The two cases in which other people's processes would become ours, and how to avoid it.
//!
//! As PID 1 we would inherit the orphans of every `kubectl exec` shell and pre-stop hook, and
//! could not tell them from the tree's. A shell that execs us may have children already. In both
//! cases the process splits: the parent stays behind as an init that reaps and passes signals
//! on, the child becomes the supervisor. As a subreaper it gets the orphans of the tree, and only
//! those.

use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{ForkResult, Pid, getpid, setpgid};

use super::child;
use crate::signal::Signal;
use crate::signals::Signals;
use crate::sys;

/// Splits the process if it must. Returns in the supervisor with `None`; in the init, when the
/// supervisor has ended, with the code to exit with.
///
/// Leaves all signals blocked in the supervisor.
pub fn split_if_needed() -> Result<Option<u8>> {
    Signals::block().context("cannot block signals")?;
    if getpid() != Pid::from_raw(1) && !child::any() {
        return Ok(None);
    }
    let init = getpid();
    match sys::fork().context("cannot start the supervisor as a child of this init")? {
        ForkResult::Parent { child } => run_init(child).map(Some),
        ForkResult::Child => {
            sys::die_with(init).context("cannot tie the supervisor to its init")?;
            // At a terminal, a Ctrl-C goes to the init's group; the init passes it on, once.
            setpgid(Pid::from_raw(0), Pid::from_raw(0)).context("cannot make a process group")?;
            Ok(None)
        }
    }
}

fn run_init(supervisor: Pid) -> Result<u8> {
    let mut signals = Signals::new().context("cannot handle signals")?;
    loop {
        for signal in signals.pending() {
            if signal != Signal::CHLD {
                // It may have ended a moment ago, but is not reaped: nobody else has its PID.
                let _ = sys::kill(supervisor, signal);
                continue;
            }
            while let Ok(Some((pid, status))) = sys::wait_any() {
                if pid == supervisor {
                    return Ok(exit_code(status));
                }
            }
        }
        let mut readable = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        // EINTR is a signal, and those are looked at next.
        let _ = poll(&mut readable, PollTimeout::NONE);
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| code.try_into().ok()).unwrap_or(u8::MAX)
}
