//! A process to supervise: does what its arguments say, one after the other.
//!
//! `say=TEXT` prints; `print=A,B` prints the name of each of these signals when it comes;
//! `ignore=A,B` ignores them; `exit-on=A:CODE` ends on the signal (`exit-on=A:CODE:MS` prints
//! `bye` MS milliseconds later and then ends); `dump` prints how it was started; `lock=FILE` takes
//! a lock that only one may hold, or ends with 99; `wait` waits for signals for ever;
//! `wait=MS` so long; `exit=CODE` ends, `die=A` lets the signal end it.
//! `tally=A,B` counts how often A is queued to it (a real-time signal, which the kernel does not merge),
//! prints `tally N` when B comes, and ends on TERM.
//! `headless` ends its first thread, so that it looks like a zombie, while another one lives on.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use container_run::signal::Signal;
use nix::libc;
use signal_hook::iterator::Signals;

/// What to do when a signal has come: how long to wait, and the code to end with.
type Ends = HashMap<i32, (u64, i32)>;

fn main() {
    let mut printed: Vec<i32> = vec![];
    let mut ends = Ends::new();
    for argument in std::env::args().skip(1) {
        let (verb, value) = argument.split_once('=').unwrap_or((&argument, ""));
        match verb {
            "say" => say(value),
            "print" => printed.extend(numbers(value)),
            "ignore" => numbers(value).for_each(ignore),
            "exit-on" => {
                let parts: Vec<&str> = value.split(':').collect();
                let number = numbers(parts[0]).next().unwrap();
                let delay = parts.get(2).map_or(0, |delay| delay.parse().unwrap());
                ends.insert(number, (delay, parts[1].parse().unwrap()));
            }
            "dump" => dump(),
            "lock" => std::mem::forget(lock(value)),
            "wait" => wait(&printed, &ends, value.parse().ok().map(Duration::from_millis)),
            "exit" => std::process::exit(value.parse().unwrap()),
            "die" => die(numbers(value).next().unwrap()),
            "headless" => headless(),
            "tally" => tally(numbers(value).collect()),
            _ => panic!("unknown word {argument}"),
        }
    }
}

fn say(text: &str) {
    let mut stdout = io::stdout();
    let _ = writeln!(stdout, "{text}");
    let _ = stdout.flush();
}

fn numbers(names: &str) -> impl Iterator<Item = i32> + '_ {
    names
        .split(',')
        .map(|name| name.parse().unwrap_or_else(|_| name.parse::<Signal>().ok().map(Signal::number).unwrap()))
}

fn ignore(number: i32) {
    // SAFETY: ignoring a signal runs no code.
    unsafe { libc::signal(number, libc::SIG_IGN) };
}

fn die(number: i32) -> ! {
    // SAFETY: no pointers; the default action ends this process.
    unsafe {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::signal(number, libc::SIG_DFL);
        libc::raise(number);
    }
    panic!("signal {number} did not end the process");
}

fn headless() -> ! {
    std::thread::spawn(|| {
        loop {
            std::thread::park();
        }
    });
    say("headless");
    // SAFETY: ends this thread and no other; nobody waits for it.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("exit(2) returned")
}

fn lock(path: &str) -> File {
    let file = File::options().create(true).append(true).open(path).unwrap();
    if file.try_lock().is_err() {
        say("TWO AT ONCE");
        std::process::exit(99);
    }
    file
}

fn dump() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    for line in
        status.lines().filter(|line| ["SigBlk", "SigIgn", "SigCgt"].iter().any(|key| line.starts_with(key)))
    {
        say(&line.replace('\t', " "));
    }
    let descriptor = |entry: io::Result<std::fs::DirEntry>| {
        let number = entry.unwrap().file_name().into_string().unwrap();
        // The folder being read is open too, and gone by the time it is asked for.
        std::fs::read_link(format!("/proc/self/fd/{number}")).ok().map(|target| (number, target))
    };
    for (number, target) in std::fs::read_dir("/proc/self/fd").unwrap().filter_map(descriptor) {
        if !target.starts_with("/proc") {
            say(&format!("fd {number} {}", target.display()));
        }
    }
    let mask = nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    nix::sys::stat::umask(mask);
    // SAFETY: these calls take no pointers.
    let (group, session) = unsafe { (libc::getpgrp(), libc::getsid(0)) };
    say(&format!("pid {}", std::process::id()));
    say(&format!("pgrp {group}"));
    say(&format!("session {session}"));
    say(&format!("umask {:04o}", mask.bits()));
    say(&format!("cwd {}", std::env::current_dir().unwrap().display()));
    for (name, value) in std::env::vars() {
        say(&format!("env {name}={value}"));
    }
    for (number, argument) in std::env::args().enumerate() {
        say(&format!("arg {number} {argument}"));
    }
    say("dumped");
}

fn wait(printed: &[i32], ends: &Ends, time: Option<Duration>) {
    let watched: BTreeSet<i32> = printed.iter().chain(ends.keys()).copied().collect();
    // Held back meanwhile: one that comes amid the registration would find neither the default
    // action nor ours, and be lost.
    block(&watched, libc::SIG_BLOCK);
    let mut signals = Signals::new(&watched).unwrap();
    block(&watched, libc::SIG_UNBLOCK);
    say("ready");
    let end = time.map(|time| Instant::now() + time);
    let mut handle = |number: i32| {
        if printed.contains(&number) {
            say(&Signal::from_number(number).unwrap().to_string().replace("SIG", ""));
        }
        if let Some(&(delay, code)) = ends.get(&number) {
            if delay > 0 {
                std::thread::sleep(Duration::from_millis(delay));
                say("bye");
            }
            std::process::exit(code);
        }
    };
    match end {
        None => signals.forever().for_each(&mut handle),
        Some(end) => {
            while Instant::now() < end {
                signals.pending().for_each(&mut handle);
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Blocks or unblocks signals; the set of them.
fn block<'a>(numbers: impl IntoIterator<Item = &'a i32>, how: i32) -> libc::sigset_t {
    // SAFETY: the set is a plain value that lives as long as the calls.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for number in numbers {
            libc::sigaddset(&mut set, *number);
        }
        libc::sigprocmask(how, &set, std::ptr::null_mut());
        set
    }
}

fn tally(numbers: Vec<i32>) -> ! {
    let [counted, asked] = numbers[..] else { panic!("tally takes two signals") };
    let set = block(&[counted, asked, libc::SIGTERM], libc::SIG_BLOCK);
    say("ready");
    let mut count = 0;
    loop {
        // SAFETY: a null siginfo is allowed by sigwaitinfo(2).
        match unsafe { libc::sigwaitinfo(&set, std::ptr::null_mut()) } {
            libc::SIGTERM => std::process::exit(0),
            number if number == counted => count += 1,
            number if number == asked => say(&format!("tally {count}")),
            _ => {}
        }
    }
}
