//! The tree of the main process: what belongs to it, and what is done to whom.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::*;
use container_run::signal::Signal;
use nix::libc;

/// Long enough to be still going on when the test looks.
const PATIENT: [&str; 2] = ["--kill-after", "600"];

/// A shell line in which PROBE stands for the helper.
fn tree(script: &str) -> Vec<String> {
    sh(&script.replace("PROBE", &format!("'{}'", probe())))
}

/// A process that has nothing to do with the supervisor.
struct Stranger(Child);

impl Stranger {
    fn new() -> Self {
        Self(Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The PID that the shell of a test has printed behind `name`.
#[track_caller]
fn printed_pid(supervisor: &Supervisor, name: &str) -> i32 {
    let mut pid = None;
    wait_until("the PID is printed", || {
        pid = supervisor.stdout().lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        pid.is_some()
    });
    pid.unwrap()
}

#[test]
fn given_a_shell_that_waits_for_a_worker_when_stop_then_the_shell_gets_term_first_and_alone() {
    let sandbox = Sandbox::new();
    let gate = sandbox.path("gate").display().to_string();
    let script = "mkfifo GATE; trap 'echo shell; read go <GATE; exit 0' TERM
        PROBE print=TERM,HUP exit-on=USR1:0 wait & echo worker $!; wait";
    let supervisor = sandbox.supervise_with(&PATIENT, &words(&tree(&script.replace("GATE", &gate))));
    supervisor.wait_for_line("ready");
    let worker = printed_pid(&supervisor, "worker");
    let waiting = supervisor.send("STOP WAIT");
    supervisor.wait_for_line("shell");
    assert!(kill(worker, libc::SIGHUP));
    supervisor.wait_for_line("HUP");
    assert_eq!(supervisor.count("TERM"), 0, "the worker was signalled beside the main process");
    fs::write(gate, "go\n").unwrap();
    supervisor.wait_for_line("TERM");
    assert!(!supervisor.pidfile().exists() && !supervisor.sentinel().exists());
    assert_eq!(supervisor.ask("STATUS"), "OK stopping - monitored");
    assert!(kill(worker, libc::SIGUSR1));
    assert_eq!(receive(&waiting), "OK stopped - monitored");
    assert_eq!(sandbox.processes(), [supervisor.pid()]);
}

#[test]
fn given_a_wrapper_that_execs_then_the_pid_is_the_programs_and_the_signal_reaches_it() {
    let sandbox = Sandbox::new();
    let supervisor =
        sandbox.supervise_with(&PATIENT, &words(&tree("echo $$; exec PROBE print=TERM exit-on=TERM:0 wait")));
    supervisor.wait_for_line("ready");
    let pid = supervisor.main_pid();
    supervisor.wait_for_line(&pid.to_string());
    assert_eq!(fs::read_to_string(format!("/proc/{pid}/comm")).unwrap(), "probe\n");
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    assert_eq!(supervisor.count("TERM"), 1);
}

#[test]
fn given_a_wrapper_that_forks_then_pgrep_finds_the_server_below_the_pid_in_the_pidfile() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&words(&tree("PROBE exit-on=TERM:0 wait & echo server $!; wait")));
    supervisor.wait_for_line("ready");
    let output = Command::new("pgrep").args(["-P", &supervisor.main_pid().to_string()]).output().unwrap();
    assert_eq!(text(&output.stdout).trim(), printed_pid(&supervisor, "server").to_string());
}

#[test]
fn given_all_ways_to_leave_a_tree_when_stop_then_all_are_killed_and_strangers_are_not() {
    let sandbox = Sandbox::new();
    let stranger = Stranger::new();
    let supervisor = sandbox.supervise(&words(&tree(
        "trap '' TERM HUP
         setsid PROBE wait &
         (setsid PROBE wait &)
         (setsid sh -c '(PROBE wait &)' &)
         bash -c 'set -m; PROBE wait & PROBE wait & exec PROBE wait' &
         PROBE wait",
    )));
    supervisor.wait_for_lines("ready", 7);
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    assert_eq!(sandbox.processes(), [supervisor.pid()]);
    assert!(is_alive(stranger.pid()));
}

#[test]
fn given_a_worker_whose_first_thread_has_ended_when_stop_then_it_is_killed() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&words(&tree("PROBE ignore=TERM headless & echo worker $!; wait")));
    supervisor.wait_for_line("headless");
    let worker = printed_pid(&supervisor, "worker");
    wait_until("the first thread has ended", || state_of(worker) == Some('Z'));
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    assert_eq!(state_of(worker), None);
}

#[test]
fn given_a_worker_that_is_slow_to_end_when_its_leader_has_ended_then_it_may_finish() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise_with(&PATIENT, &words(&tree("PROBE exit-on=TERM:0:700 wait & wait")));
    supervisor.wait_for_line("ready");
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    assert_eq!(supervisor.count("bye"), 1);
}

#[test]
fn given_a_stopped_worker_when_stop_then_it_is_continued_and_obeys() {
    let sandbox = Sandbox::new();
    let supervisor =
        sandbox.supervise_with(&PATIENT, &words(&tree("PROBE exit-on=TERM:0:1 wait & echo worker $!; wait")));
    supervisor.wait_for_line("ready");
    let worker = printed_pid(&supervisor, "worker");
    assert!(kill(worker, libc::SIGSTOP));
    wait_until("the worker is stopped", || state_of(worker) == Some('T'));
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    assert_eq!(supervisor.count("bye"), 1);
}

#[test]
fn given_a_worker_that_survives_term_when_more_stops_come_then_it_gets_no_second_one() {
    let sandbox = Sandbox::new();
    let mut supervisor = sandbox.supervise_with(
        &PATIENT,
        &words(&tree("PROBE print=TERM,HUP exit-on=USR1:0 wait & echo worker $!; wait")),
    );
    supervisor.wait_for_line("ready");
    let worker = printed_pid(&supervisor, "worker");
    supervisor.ask("STOP");
    supervisor.wait_for_line("TERM");
    supervisor.ask("STOP");
    supervisor.signal(Signal::TERM);
    supervisor.ask("STATUS");
    assert!(kill(worker, libc::SIGHUP));
    supervisor.wait_for_line("HUP");
    assert_eq!(supervisor.count("TERM"), 1);
    assert!(kill(worker, libc::SIGUSR1));
    assert_eq!(supervisor.exit_code(), 0);
}

/// A main process that ends with 0 and leaves a worker, also when it starts again.
fn leaves_a_worker(sandbox: &Sandbox) -> (Supervisor, i32) {
    let script = tree("PROBE print=TERM,HUP exit-on=TERM:0:1 wait & echo worker $!");
    let supervisor = sandbox.supervise_with(&PATIENT, &words(&script));
    supervisor.wait_for_line("ready");
    supervisor.wait_for_state("ended");
    let worker = printed_pid(&supervisor, "worker");
    (supervisor, worker)
}

#[test]
fn given_main_has_ended_when_nobody_asks_then_its_worker_lives_on_unharmed() {
    let sandbox = Sandbox::new();
    let (supervisor, worker) = leaves_a_worker(&sandbox);
    assert!(!supervisor.pidfile().exists() && !supervisor.sentinel().exists());
    assert_eq!(sandbox.bpm(&["running", "j", "-p", "p"]).status.code(), Some(1));
    for signal in [Signal::USR1, Signal::QUIT, Signal::CHLD, Signal::WINCH] {
        supervisor.signal(signal);
        assert_eq!(supervisor.ask("STATUS"), "OK ended - monitored");
    }
    assert!(supervisor.ask("SIGNAL KILL").starts_with("ERR "));
    stays_true("it lives", Duration::from_millis(200), || is_alive(worker));
    assert!(kill(worker, libc::SIGHUP));
    supervisor.wait_for_line("HUP");
    assert_eq!(supervisor.count("TERM"), 0);
}

#[test]
fn given_main_turns_itself_into_a_daemon_then_it_has_ended_for_bpm_and_still_goes_with_a_stop() {
    let sandbox = Sandbox::new();
    // As daemon(3) does it, with a second fork.
    let script = "setsid sh -c '\"$0\" print=TERM exit-on=TERM:0 wait & echo daemon $!' PROBE & exit 0";
    let supervisor = sandbox.supervise_with(&PATIENT, &words(&tree(script)));
    supervisor.wait_for_line("ready");
    supervisor.wait_for_state("ended");
    assert!(!supervisor.pidfile().exists() && !supervisor.sentinel().exists());
    assert_eq!(sandbox.bpm(&["running", "j", "-p", "p"]).status.code(), Some(1));
    let daemon = printed_pid(&supervisor, "daemon");
    assert!(is_alive(daemon));
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    assert!(!is_alive(daemon));
    assert_eq!(supervisor.count("TERM"), 1);
    let readme = include_str!("../README.md").replace('\n', " ");
    assert!(readme.contains("run such programs in the foreground"));
}

#[test]
fn given_main_has_left_a_worker_when_start_then_the_worker_is_stopped_first() {
    let sandbox = Sandbox::new();
    let (supervisor, worker) = leaves_a_worker(&sandbox);
    assert!(supervisor.ask("START").starts_with("OK "));
    assert!(!is_alive(worker));
    assert_eq!((supervisor.count("TERM"), supervisor.count("bye")), (1, 1));
    supervisor.wait_for_lines("ready", 2);
}

#[test]
fn given_main_has_left_a_worker_when_stop_or_term_then_the_worker_is_stopped() {
    let sandbox = Sandbox::new();
    let (supervisor, worker) = leaves_a_worker(&sandbox);
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    assert!(!is_alive(worker));
    assert_eq!((supervisor.count("TERM"), supervisor.count("bye")), (1, 1));
    drop(sandbox);
    let sandbox = Sandbox::new();
    let (mut supervisor, worker) = leaves_a_worker(&sandbox);
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit_code(), 0);
    assert!(!is_alive(worker));
    assert_eq!((supervisor.count("TERM"), supervisor.count("bye")), (1, 1));
}

#[test]
fn given_main_fails_and_leaves_a_worker_then_the_worker_may_finish_before_the_supervisor_exits() {
    let sandbox = Sandbox::new();
    let script = tree("trap 'exit 7' USR1; PROBE exit-on=TERM:0:300 wait & while :; do wait; done");
    let mut supervisor = sandbox.supervise_with(&PATIENT, &words(&script));
    supervisor.wait_for_line("ready");
    supervisor.signal(Signal::USR1);
    assert_eq!(supervisor.exit_code(), 7);
    assert_eq!(supervisor.count("bye"), 1);
    assert!(sandbox.processes().is_empty());
}

#[test]
fn given_500_children_when_stop_then_all_are_gone() {
    for (first, kill_after) in [(":", "600"), ("trap '' TERM", "0.5")] {
        let sandbox = Sandbox::new();
        let script = "i=0; while [ $i -lt 500 ]; do sleep 1000 & i=$((i+1)); done; echo up; wait";
        let main = sh(&format!("{first}; {script}"));
        let supervisor = sandbox.supervise_with(&["--kill-after", kill_after], &words(&main));
        supervisor.wait_for_line("up");
        assert!(sandbox.processes().len() > 500);
        assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
        assert_eq!(sandbox.processes(), [supervisor.pid()], "{first}");
    }
}

/// Stops a tree that forks all the time, and by itself ends long after [`DEADLINE`].
fn stop_storm(perl: &str) {
    let sandbox = Sandbox::new();
    let program = format!("$SIG{{TERM}} = 'IGNORE'; $| = 1; print \"up\\n\"; my $end = time + 30; {perl}");
    let supervisor = sandbox.supervise(&["perl", "-MPOSIX", "-e", &program]);
    supervisor.wait_for_line("up");
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    assert_eq!(sandbox.processes(), [supervisor.pid()]);
}

#[test]
fn given_a_main_that_forks_all_the_time_when_stop_then_all_are_gone() {
    stop_storm("for (1..5000) { fork or (sleep(30), exit) } sleep 30");
}

#[test]
fn given_every_process_forks_some_when_stop_then_all_are_gone() {
    // Each generation is one deeper, and in a session of its own.
    stop_storm(
        "sub grow { my $n = shift; for (1..3) { fork or (setsid(), $n && grow($n - 1), sleep(30), exit) } }
         grow(5); sleep 30",
    );
}

#[test]
fn given_a_chain_in_which_each_forks_its_successor_and_ends_when_stop_then_it_is_gone() {
    stop_storm("while (time < $end) { exit if fork }");
}

#[test]
fn given_a_chain_in_which_each_makes_a_session_forks_and_ends_when_stop_then_it_is_gone() {
    stop_storm("while (time < $end) { setsid(); exit if fork }");
}

#[test]
fn given_the_shell_that_became_us_had_a_child_when_stop_or_term_then_that_one_lives() {
    let sandbox = Sandbox::new();
    let mut supervisor = sandbox.supervise_after(
        "sleep 1000 & echo stranger $!",
        &["--kill-after", "0.5"],
        &words(&tree("setsid PROBE ignore=TERM wait & exec PROBE ignore=TERM wait")),
    );
    supervisor.wait_for_lines("ready", 2);
    let stranger = printed_pid(&supervisor, "stranger");
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    assert!(is_alive(stranger));
    assert!(supervisor.ask("START").starts_with("OK running "));
    supervisor.wait_for_lines("ready", 4);
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit_code(), 0);
    assert_eq!(sandbox.processes(), [stranger]);
    end(stranger);
}

#[test]
fn given_the_shell_that_became_us_had_a_child_then_signals_and_exit_codes_come_through() {
    let sandbox = Sandbox::new();
    let main = probe_with("print=USR1,HUP,ALRM exit-on=USR2:7 wait");
    let mut supervisor = sandbox.supervise_after("sleep 1000 & echo stranger $!", &PATIENT, &words(&main));
    supervisor.wait_for_line("ready");
    let stranger = printed_pid(&supervisor, "stranger");
    for number in (1..=64).filter(|number| ![2, 3, 9, 12, 15, 19].contains(number)) {
        assert!(kill(supervisor.pid(), number));
    }
    wait_until("a last one arrives", || {
        supervisor.signal(Signal::HUP);
        supervisor.count("HUP") > 1
    });
    assert_eq!(supervisor.count("USR1"), 1);
    assert!(supervisor.is_alive() && supervisor.state() == "running");
    supervisor.signal(Signal::USR2);
    assert_eq!(supervisor.exit_code(), 7);
    assert!(is_alive(stranger));
    end(stranger);
}

#[test]
fn given_the_shell_that_became_us_had_a_child_when_we_are_killed_then_main_dies_too() {
    let mut sandbox = Sandbox::new();
    sandbox.may_leave_files();
    let mut supervisor = sandbox.supervise_after(
        "sleep 1000 & echo stranger $!",
        &PATIENT,
        &words(&probe_with("ignore=TERM wait")),
    );
    supervisor.wait_for_line("ready");
    let stranger = printed_pid(&supervisor, "stranger");
    supervisor.child.kill().unwrap();
    supervisor.wait();
    wait_until("all but the stranger are gone", || sandbox.processes() == [stranger]);
    end(stranger);
}
