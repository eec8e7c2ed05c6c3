//! container-run: a process supervisor for BOSH jobs in containers.
//!
//! # Theory of operation
//!
//! One supervisor runs one process of one job: the *main process*. It has one thread and one
//! loop, which sleeps in one system call until a signal, a datagram or a deadline comes.
//!
//! 1. **Set up.** Everything that can be wrong with the machine is found out before a child
//!    exists: signals taken over, the lock taken, the control socket bound, what a dead
//!    supervisor left removed ([`supervisor::run`]). As PID 1 the process first splits into an
//!    init and the supervisor, so that orphans of strangers never mix with the tree.
//! 2. **The life cycle** is a pure function ([`supervisor::machine`]): an event and the state
//!    give the next state and a list of actions. What is wanted next is kept apart from what is
//!    so; the last wish wins. Around it `runtime` turns the kernel's news into events and the
//!    actions into system calls.
//! 3. **The tree.** The supervisor is a subreaper: every process that the main process started,
//!    however it forked, has us as its last ancestor. "Stopped" therefore means that we have no
//!    child left, which the kernel tells exactly (ECHILD). `/proc` is only read to find whom to
//!    signal, and each process found is signalled by a handle that no later process can inherit.
//! 4. **Files.** Pidfile and sentinel are there exactly while the main process is alive, written
//!    whole, and belong to the run that wrote them ([`paths`], [`whole_file`], [`identity`]).
//! 5. **Control.** One datagram, one command; a sender with an address gets one answer
//!    ([`control`]). The generated `bpm` script ([`bpm_script`]) is a sender like any other.
//! 6. **Drain.** A container's pre-stop hook ([`drain::hook`]) does for its job what the BOSH agent
//!    does on a VM. The hooks of a pod know of each other by the modes of the supervisors alone: a
//!    container that dies takes its mode along, and nobody waits for what it has left behind.

pub mod bpm_script;
pub mod cli;
pub mod commands;
pub mod control;
pub mod drain;
pub mod help;
pub mod identity;
pub mod json;
pub mod lock;
pub mod log;
pub mod nearest;
pub mod paths;
mod poll;
pub mod shell;
pub mod signal;
mod signals;
pub mod status;
pub mod supervisor;
mod sys;
pub mod table;
pub mod whole_file;

use std::ffi::OsString;

use nix::sys::stat::{Mode, umask};

/// The umask under which the modes of our files are exact: it takes nothing from 0644 and 0755.
/// Children get the one that we were started with.
const UMASK: Mode = Mode::from_bits_truncate(0o022);

/// Does what the arguments say, the program's own name first; returns the exit code.
pub fn run(arguments: Vec<OsString>) -> u8 {
    let inherited = umask(UMASK);
    let done = match cli::parse(arguments) {
        Ok(cli::Request::Supervise(options)) => commands::supervise(*options, inherited),
        Ok(cli::Request::Command(command)) => commands::run(command),
        Err(code) => return code,
    };
    done.unwrap_or_else(|error| {
        log::error(format_args!("{error:#}"));
        1
    })
}
