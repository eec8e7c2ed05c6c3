//! START and STOP in every order and at every distance: never two at once, and the last wish wins.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::*;
use container_run::signal::Signal;

/// A main process of which only one may live, and that takes this long to stop.
fn exclusive(sandbox: &Sandbox, milliseconds: u32) -> Vec<String> {
    let lock = sandbox.path("lock");
    probe_with(&format!("lock={} exit-on=TERM:0:{milliseconds} wait", lock.display()))
}

fn supervise(sandbox: &Sandbox, command: &[String]) -> Supervisor {
    let supervisor = sandbox.supervise_with(&["--kill-after", "600"], &words(command));
    supervisor.wait_for_line("ready");
    supervisor
}

#[track_caller]
fn assert_never_two(supervisor: &Supervisor) {
    assert_eq!(supervisor.count("TWO AT ONCE"), 0);
    assert_eq!(supervisor.stderr(), "");
}

/// The process runs, and the files are this run's own.
#[track_caller]
fn assert_runs(supervisor: &Supervisor) -> i32 {
    let pid = supervisor.main_pid();
    assert_eq!(supervisor.ask("STATUS"), format!("OK running {pid} monitored"));
    assert!(is_alive(pid) && supervisor.sentinel().exists());
    assert_eq!(fs::read_to_string(supervisor.pidfile()).unwrap(), pid.to_string());
    pid
}

fn throw(supervisor: &Supervisor, command: &str) {
    UnixDatagram::unbound().unwrap().send_to(command.as_bytes(), supervisor.socket()).unwrap();
}

/// Looks at the pidfile for as long as `run` lasts: it is absent, or one whole PID of a process
/// that lives or has just ended, and the supervisor's child.
fn watching_the_pidfile(supervisor: &Supervisor, run: impl FnOnce()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut seen = BTreeSet::new();
            while !over.load(Ordering::Relaxed) {
                let Ok(content) = fs::read_to_string(supervisor.pidfile()) else { continue };
                let pid: i32 = content.parse().unwrap_or_else(|_| panic!("not whole: {content:?}"));
                let dead = state_of(pid).is_none();
                let still_there = || fs::read_to_string(supervisor.pidfile()).is_ok_and(|now| now == content);
                // Reaped means: the file goes before anything else is done.
                if dead {
                    wait_until("a dead PID's file goes", || !still_there());
                }
                seen.insert(pid);
            }
            seen.len()
        });
        run();
        over.store(true, Ordering::Relaxed);
        assert!(watcher.join().unwrap() > 0, "the pidfile was never seen");
    });
}

#[test]
fn given_a_start_at_any_distance_from_a_stop_then_a_new_process_runs_after_the_old_one() {
    // The last takes longer than all distances together.
    std::thread::scope(|scope| {
        for stops_in in [0, 300, 1500] {
            for gap in [0, 1, 5, 50, 200] {
                scope.spawn(move || start_after_stop(stops_in, gap));
            }
        }
    });
}

/// A START so many milliseconds after the STOP of a process that takes so long to obey.
fn start_after_stop(stops_in: u32, gap: u64) {
    let sandbox = Sandbox::new();
    let supervisor = supervise(&sandbox, &exclusive(&sandbox, stops_in));
    let old = supervisor.main_pid();
    supervisor.ask("STOP");
    // The distance is what is tested.
    std::thread::sleep(Duration::from_millis(gap));
    let answer = supervisor.ask("START");
    let new = assert_runs(&supervisor);
    assert_eq!(answer, format!("OK running {new} monitored"));
    assert_ne!(old, new);
    // The new one has found the lock free.
    supervisor.wait_for_lines("ready", 2);
    assert_never_two(&supervisor);
    if stops_in > 0 {
        assert_eq!(supervisor.count("bye"), 1, "the old one had its time");
    }
}

#[test]
fn given_a_hundred_stops_and_starts_then_the_pidfile_is_never_wrong_and_the_last_one_runs() {
    let sandbox = Sandbox::new();
    let supervisor = supervise(&sandbox, &exclusive(&sandbox, 0));
    let mut random = Random(1);
    watching_the_pidfile(&supervisor, || {
        for _ in 0..100 {
            throw(&supervisor, "STOP");
            std::thread::sleep(Duration::from_millis(random.below(8)));
            throw(&supervisor, "START");
            std::thread::sleep(Duration::from_millis(random.below(20)));
        }
        assert!(supervisor.ask("START").starts_with("OK running "));
    });
    assert_runs(&supervisor);
    assert_never_two(&supervisor);
}

#[test]
fn given_any_sequence_of_wishes_then_the_last_one_wins() {
    let sandbox = Sandbox::new();
    let supervisor = supervise(&sandbox, &exclusive(&sandbox, 20));
    let mut random = Random(2);
    for _ in 0..30 {
        let mut starts = false;
        for _ in 0..=random.below(6) {
            starts = random.below(2) == 0;
            throw(&supervisor, if starts { "START" } else { "STOP" });
            if random.below(3) == 0 {
                std::thread::sleep(Duration::from_millis(random.below(30)));
            }
        }
        if starts {
            supervisor.wait_for_state("running");
            assert_runs(&supervisor);
        } else {
            supervisor.wait_for_state("stopped");
            assert!(!supervisor.pidfile().exists() && !supervisor.sentinel().exists());
        }
        assert_never_two(&supervisor);
    }
}

#[test]
fn given_starts_while_running_then_it_is_the_same_process() {
    let sandbox = Sandbox::new();
    let supervisor = supervise(&sandbox, &exclusive(&sandbox, 0));
    let pid = supervisor.main_pid();
    for _ in 0..10 {
        assert_eq!(supervisor.ask("START"), format!("OK running {pid} monitored"));
    }
    assert_eq!(assert_runs(&supervisor), pid);
    assert_eq!(supervisor.count("ready"), 1);
}

#[test]
fn given_starts_from_ten_senders_at_once_then_one_process_runs_and_all_hear_of_it() {
    let sandbox = Sandbox::new();
    // When it is stopped, and while it is stopping.
    for stop in ["STOP WAIT", "STOP"] {
        let supervisor = supervise(&sandbox, &exclusive(&sandbox, 100));
        let before = supervisor.count("ready");
        supervisor.ask(stop);
        let answers: BTreeSet<String> = std::thread::scope(|scope| {
            let senders: Vec<_> = (0..10).map(|_| scope.spawn(|| supervisor.ask("START"))).collect();
            senders.into_iter().map(|sender| sender.join().unwrap()).collect()
        });
        let pid = assert_runs(&supervisor);
        assert_eq!(answers, BTreeSet::from([format!("OK running {pid} monitored")]));
        supervisor.wait_for_lines("ready", before + 1);
        assert_never_two(&supervisor);
        assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
        let mut supervisor = supervisor;
        supervisor.signal(Signal::TERM);
        assert_eq!(supervisor.exit_code(), 0);
    }
}

#[test]
fn given_stop_waits_and_starts_mixed_then_each_sender_is_answered() {
    let sandbox = Sandbox::new();
    let supervisor = supervise(&sandbox, &exclusive(&sandbox, 100));
    let stopped = supervisor.send("STOP WAIT");
    let cancelled = supervisor.send("START");
    let stopped_too = supervisor.send("STOP WAIT");
    let started = supervisor.send("START");
    assert!(receive(&cancelled).starts_with("ERR "));
    assert!(receive(&stopped).starts_with("OK "));
    assert!(receive(&stopped_too).starts_with("OK "));
    assert!(receive(&started).starts_with("OK running "));
    assert_runs(&supervisor);
    assert_never_two(&supervisor);
}

#[test]
fn given_a_stop_after_a_remembered_start_then_that_is_cancelled_at_once() {
    let sandbox = Sandbox::new();
    let command = probe_with("ignore=TERM wait");
    let supervisor = supervise(&sandbox, &command);
    supervisor.ask("STOP");
    let start = supervisor.send("START");
    assert!(supervisor.ask("STATUS").starts_with("OK stopping "));
    assert!(supervisor.ask("STOP").starts_with("OK stopping "));
    assert!(receive(&start).starts_with("ERR "));
    assert_eq!(supervisor.state(), "stopping");
    supervisor.ask("SIGNAL KILL");
    supervisor.wait_for_state("stopped");
    assert_eq!(supervisor.count("ready"), 1);
}

#[test]
fn given_a_term_after_a_remembered_start_then_that_is_refused_and_the_supervisor_ends() {
    let sandbox = Sandbox::new();
    let mut supervisor = supervise(&sandbox, &exclusive(&sandbox, 300));
    supervisor.ask("STOP");
    let start = supervisor.send("START");
    assert!(supervisor.ask("STATUS").starts_with("OK stopping "));
    supervisor.signal(Signal::TERM);
    assert!(receive(&start).starts_with("ERR "));
    assert!(supervisor.ask("START").starts_with("ERR "));
    assert_eq!(supervisor.exit_code(), 0);
    assert_eq!((supervisor.count("ready"), supervisor.count("bye")), (1, 1));
}

#[test]
fn given_a_process_that_must_be_killed_then_a_start_waits_for_its_end() {
    for at_the_kill in [false, true] {
        let sandbox = Sandbox::new();
        let lock = format!("lock={} ignore=TERM wait", sandbox.path("lock").display());
        let supervisor = sandbox.supervise_with(&["--kill-after", "0.3"], &words(&probe_with(&lock)));
        supervisor.wait_for_line("ready");
        let old = supervisor.main_pid();
        supervisor.ask("STOP");
        if at_the_kill {
            wait_until("it is killed", || !is_alive(old));
        }
        assert!(supervisor.ask("START").starts_with("OK running "));
        assert_ne!(assert_runs(&supervisor), old);
        assert_never_two(&supervisor);
    }
}

#[test]
fn given_an_end_by_itself_then_start_runs_it_again_as_often_as_one_likes() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&words(&probe_with("say=ran")));
    for round in 1..=20 {
        supervisor.wait_for_lines("ran", round);
        supervisor.wait_for_state("ended");
        assert!(!supervisor.pidfile().exists() && !supervisor.sentinel().exists());
        assert!(supervisor.ask("START").starts_with("OK "));
    }
    supervisor.wait_for_lines("ran", 21);
}

/// A supervisor that is stopped, and whose program then went away or lost its right to run.
fn without_program(sandbox: &Sandbox, mode: &str, spoil: impl Fn(&std::path::Path)) -> Supervisor {
    let program = sandbox.path("program");
    write_program(&program, "#!/bin/sh\nexec sleep 600\n");
    let supervisor = sandbox.supervise(&[program.to_str().unwrap()]);
    supervisor.main_pid();
    supervisor.ask(mode);
    supervisor.ask("STOP WAIT");
    spoil(&program);
    supervisor
}

fn remove(program: &std::path::Path) {
    fs::remove_file(program).unwrap();
}

fn forbid(program: &std::path::Path) {
    fs::set_permissions(program, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn given_a_program_that_is_gone_then_start_is_an_error_and_ends_the_supervisor() {
    for (spoil, code) in [(remove as fn(&std::path::Path), 127), (forbid, 126)] {
        let sandbox = Sandbox::new();
        let mut supervisor = without_program(&sandbox, "MONITOR", spoil);
        assert!(supervisor.ask("START").starts_with("ERR "));
        assert_eq!(supervisor.exit_code(), code);
        let said = supervisor.stderr();
        assert!(said.lines().count() == 1 && said.contains("/program"), "{said}");
    }
}

#[test]
fn given_a_program_that_is_gone_and_unmonitored_then_the_state_is_failed_until_it_is_back() {
    for mode in ["UNMONITOR", "DRAINED"] {
        let sandbox = Sandbox::new();
        let supervisor = without_program(&sandbox, mode, remove);
        assert!(supervisor.ask("START").starts_with("ERR "));
        assert_eq!(supervisor.state(), "failed");
        assert!(!supervisor.pidfile().exists() && !supervisor.sentinel().exists());
        let program = sandbox.path("program");
        write_program(&program, "#!/bin/sh\nexec sleep 600\n");
        assert!(supervisor.ask("START").starts_with("OK running "));
    }
}

#[test]
fn given_a_remembered_start_and_a_program_that_is_gone_then_its_sender_hears_of_it() {
    let sandbox = Sandbox::new();
    let program = sandbox.path("program");
    std::os::unix::fs::symlink(probe(), &program).unwrap();
    let command = [program.to_str().unwrap(), "exit-on=TERM:0:200", "wait"];
    let mut supervisor = sandbox.supervise_with(&["--kill-after", "600"], &command);
    supervisor.wait_for_line("ready");
    fs::remove_file(&program).unwrap();
    supervisor.ask("STOP");
    assert!(supervisor.ask("START").starts_with("ERR "));
    assert_eq!(supervisor.exit_code(), 127);
}
