//! The supervisor killed by force, hundreds of times, whatever it is doing: its process dies with
//! it, nobody is told lies meanwhile, and the next supervisor starts over what was left.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::hash::{BuildHasher, RandomState};
use std::thread;
use std::time::Duration;

use common::*;
use nix::libc;

/// Crashes in each state and just after the start; 280 in all.
const CRASHES: u64 = 40;

/// Side by side, each in a root of its own.
const LANES: u64 = 4;

/// No run of the tests is like another.
fn random_below(bound: u64) -> u64 {
    RandomState::new().hash_one(()) % bound
}

/// Ends the supervisor in a way that it cannot see coming, after a pause of up to 5 ms.
fn crash(mut supervisor: Supervisor) {
    thread::sleep(Duration::from_micros(random_below(5_000)));
    supervisor.child.kill().unwrap();
    supervisor.child.wait().unwrap();
}

/// Nothing lives on, and everybody is told that nothing runs, whatever files there are.
fn assert_truth(sandbox: &Sandbox) {
    wait_until("all died with the supervisor", || sandbox.processes().is_empty());
    let sent = sandbox.run(&["send", "STATUS", "j", "-p", "p"]);
    assert_eq!(sent.status.code(), Some(3), "{}", text(&sent.stderr));
    if !sandbox.path("jobs/bpm/bin/bpm").exists() {
        return; // The first one was killed before it could write it.
    }
    let running = sandbox.bpm(&["running", "j", "-p", "p"]);
    assert_eq!(running.status.code(), Some(1), "{}", text(&running.stderr));
    let pid = sandbox.bpm(&["pid", "j", "-p", "p"]);
    assert_eq!((pid.status.code(), text(&pid.stdout)), (Some(1), String::new()));
    assert_eq!(text(&pid.stderr), "Error: process is not running or could not be found\n");
}

/// Over what the crashes have left, a supervisor works as over nothing.
fn assert_recovery(sandbox: &Sandbox) {
    let mut supervisor = sandbox.supervise(&words(&probe_with("exit-on=TERM:0 wait")));
    // The files of the dead one lie there until this one has the socket.
    supervisor.wait_for_state("running");
    let pid = supervisor.main_pid();
    assert_eq!(supervisor.ask("STATUS"), format!("OK running {pid} monitored"));
    assert_eq!(text(&sandbox.bpm(&["pid", "j", "-p", "p"]).stdout), format!("{pid}\n"));
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    supervisor.signal(container_run::signal::Signal::TERM);
    assert_eq!(supervisor.exit_code(), 0);
    assert_eq!(supervisor.stderr(), "");
    // The sandbox itself sees to it that no file is left.
}

/// Crashes a supervisor with these options and this main process, which holds a lock that a
/// second one could not get, each time it has come to `state`.
fn crash_in_state(options: &[&str], main: &str, state: impl Fn(&Supervisor) + Sync) {
    thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                let sandbox = Sandbox::new();
                let lock = sandbox.path("lock");
                let command = probe_with(&format!("lock={} {main}", lock.display()));
                for _ in 0..CRASHES / LANES {
                    let supervisor = sandbox.supervise_with(options, &words(&command));
                    state(&supervisor);
                    assert_eq!(supervisor.count("TWO AT ONCE"), 0);
                    crash(supervisor);
                    assert_truth(&sandbox);
                }
                assert_recovery(&sandbox);
            });
        }
    });
}

#[test]
fn given_it_was_just_started_when_the_supervisor_is_killed_then_the_next_one_starts_over_it() {
    crash_in_state(&[], "wait", |_| thread::sleep(Duration::from_micros(random_below(15_000))));
}

#[test]
fn given_a_running_process_when_the_supervisor_is_killed_then_it_dies_too() {
    crash_in_state(&[], "wait", |supervisor| supervisor.wait_for_state("running"));
}

#[test]
fn given_a_process_that_ignores_term_is_being_stopped_when_the_supervisor_is_killed_then_it_dies_too() {
    crash_in_state(&["--kill-after", "60"], "ignore=TERM say=deaf wait", |supervisor| {
        supervisor.wait_for_line("deaf");
        assert!(supervisor.ask("STOP").starts_with("OK stopping "));
    });
}

#[test]
fn given_an_ended_process_when_the_supervisor_is_killed_then_the_next_one_starts_over_it() {
    crash_in_state(&[], "exit=0", |supervisor| supervisor.wait_for_state("ended"));
}

#[test]
fn given_a_stopped_process_when_the_supervisor_is_killed_then_the_next_one_starts_over_it() {
    crash_in_state(&[], "exit-on=TERM:0 wait", |supervisor| {
        supervisor.wait_for_line("ready");
        assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    });
}

#[test]
fn given_a_failed_process_when_the_supervisor_is_killed_then_the_next_one_starts_over_it() {
    crash_in_state(&[], "exit-on=USR1:7 wait", |supervisor| {
        supervisor.wait_for_line("ready");
        assert!(supervisor.ask("UNMONITOR").ends_with(" unmonitored"));
        supervisor.ask("SIGNAL USR1");
        supervisor.wait_for_state("failed");
    });
}

#[test]
fn given_an_active_post_start_when_the_supervisor_is_killed_then_both_die_too() {
    let probe = probe();
    let options =
        ["--post-start-name", &probe, "--post-start-arg", "say=after", "--post-start-arg", "wait=60000"];
    crash_in_state(&options, "wait", |supervisor| supervisor.wait_for_line("after"));
}

#[test]
fn given_a_leftover_pidfile_with_a_strangers_pid_then_the_stranger_is_never_signalled() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&words(&probe_with("wait")));
    supervisor.main_pid();
    let pidfile = supervisor.pidfile();
    crash(supervisor);
    wait_until("all died with the supervisor", || sandbox.processes().is_empty());
    let mut stranger = sandbox.stranger();
    std::fs::write(pidfile, stranger.id().to_string()).unwrap();
    for command in ["stop", "term", "quit"] {
        assert_eq!(sandbox.bpm(&[command, "j", "-p", "p"]).status.code(), Some(0), "{command}");
    }
    for command in [&["signal", "j", "KILL", "-p", "p"][..], &["running", "j", "-p", "p"]] {
        assert_eq!(sandbox.bpm(command).status.code(), Some(1), "{command:?}");
    }
    assert_truth_of_others(&sandbox, stranger.id() as i32);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

/// A supervisor comes and goes, and the stranger lives.
fn assert_truth_of_others(sandbox: &Sandbox, stranger: i32) {
    assert_recovery(sandbox);
    assert_eq!(state_of(stranger), Some('S'));
    assert!(kill(stranger, libc::SIGCONT), "it can still be signalled, so it is the same");
}
