//! The process that `bench/run` has supervised, and its stopwatch across exec(2).
//!
//! - `stamp run PROGRAM [ARGS…]` notes the time and becomes PROGRAM.
//! - `stamp`, which PROGRAM is to start, prints how many nanoseconds that took, and fails, so that
//!   a supervisor ends, too. One that would start it again is told to end.
//! - `stamp obey SECONDS` prints `ready`, waits for SIGTERM, then so long, prints the time in
//!   nanoseconds of the monotonic clock, and ends with 0.
//! - `stamp tree N` has N descendants, of which nine in ten have a parent that is not it, and
//!   `stamp orphans N` as many without a parent; each prints `.` and waits to be killed, and so
//!   does it itself.

#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

use nix::libc;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

/// When the stopwatch was started.
const START: &str = "STAMP_START";

/// Where s6-supervise and runsv, in whose folder their process runs, take orders; `x` is: end.
const CONTROL: &str = "supervise/control";

/// Children of each child of `stamp tree`.
const GRANDCHILDREN: usize = 9;

fn main() -> ExitCode {
    let arrived = now();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        // s6-supervise passes the service's name.
        [] | [_] => stop_the_watch(arrived),
        ["run", program, ..] => {
            let mut next = Command::new(program);
            next.args(&words[2..]);
            panic!("cannot run {program}: {}", next.env(START, now().to_string()).exec());
        }
        ["obey", seconds] => obey(Duration::from_secs_f64(seconds.parse().unwrap())),
        ["tree", size] => tree(size.parse().unwrap()),
        ["orphans", size] => orphans(size.parse().unwrap()),
        _ => panic!("see the top of bench/stamp.rs"),
    }
}

/// Nanoseconds of the monotonic clock, which all processes share.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is written to a live struct of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}

fn say(text: impl std::fmt::Display) {
    let mut stdout = io::stdout();
    write!(stdout, "{text}").unwrap();
    stdout.flush().unwrap();
}

fn stop_the_watch(arrived: u64) -> ExitCode {
    if let Ok(start) = std::env::var(START) {
        say(format_args!("{}\n", arrived - start.parse::<u64>().unwrap()));
    }
    if Path::new(CONTROL).exists() {
        fs::write(CONTROL, "x").unwrap();
    }
    ExitCode::FAILURE
}

fn obey(linger: Duration) -> ExitCode {
    let signals = SigSet::all();
    signals.thread_block().unwrap();
    say("ready\n");
    while signals.wait().unwrap() != Signal::SIGTERM {}
    thread::sleep(linger);
    say(format_args!("{}\n", now()));
    ExitCode::SUCCESS
}

fn tree(size: usize) -> ! {
    for first in (0..size).step_by(GRANDCHILDREN + 1) {
        let grandchildren = GRANDCHILDREN.min(size - first - 1);
        in_a_child(|| {
            for _ in 0..grandchildren {
                in_a_child(|| wait_to_be_killed());
            }
            wait_to_be_killed()
        });
    }
    wait_to_be_killed()
}

fn orphans(size: usize) -> ! {
    for _ in 0..size {
        let parent = in_a_child(|| {
            in_a_child(|| wait_to_be_killed());
        });
        assert_eq!(waitpid(parent, None::<WaitPidFlag>), Ok(WaitStatus::Exited(parent, 0)));
    }
    wait_to_be_killed()
}

fn in_a_child(life: impl FnOnce()) -> Pid {
    // SAFETY: this program has one thread.
    match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            life();
            std::process::exit(0)
        }
    }
}

fn wait_to_be_killed() -> ! {
    say('.');
    loop {
        thread::park();
    }
}
