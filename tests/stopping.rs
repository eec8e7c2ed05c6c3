//! STOP and the clock from the stop signal to SIGKILL.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::time::{Duration, Instant};

use common::*;
use container_run::signal::Signal;
use nix::libc;

/// Long enough to be still going on when the test looks.
const PATIENT: [&str; 2] = ["--kill-after", "600"];

/// One that prints TERM and goes on, and ends well on USR1, which the tests send past the supervisor.
fn waiting_for_us(sandbox: &Sandbox) -> Supervisor {
    let lock = sandbox.path("lock").display().to_string();
    let main = format!("lock={lock} print=TERM,QUIT,HUP exit-on=USR1:0 wait");
    let supervisor = sandbox.supervise_with(&PATIENT, &words(&probe_with(&main)));
    supervisor.wait_for_line("ready");
    supervisor
}

/// One whose main process ends by nothing but a KILL.
fn stubborn(sandbox: &Sandbox, kill_after: &str) -> Supervisor {
    let main = probe_with("ignore=TERM,INT,HUP,QUIT wait");
    let supervisor = sandbox.supervise_with(&["--kill-after", kill_after], &words(&main));
    supervisor.wait_for_line("ready");
    supervisor
}

#[test]
fn given_main_takes_a_while_to_end_when_stop_then_it_may() {
    let sandbox = Sandbox::new();
    let main = probe_with("exit-on=TERM:0:700 wait");
    let mut supervisor = sandbox.supervise_with(&PATIENT, &words(&main));
    supervisor.wait_for_line("ready");
    let pid = supervisor.main_pid();
    assert_eq!(supervisor.ask("STOP"), format!("OK stopping {pid} monitored"));
    assert!(supervisor.pidfile().exists() && supervisor.sentinel().exists());
    supervisor.wait_for_line("bye");
    supervisor.wait_until_down();
    supervisor.wait_for_state("stopped");
    assert!(supervisor.is_alive() && !is_alive(pid));
}

#[test]
fn given_main_ignores_term_when_stop_then_it_is_killed_after_the_grace() {
    let sandbox = Sandbox::new();
    let supervisor = stubborn(&sandbox, "0.7");
    let pid = supervisor.main_pid();
    let start = Instant::now();
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    assert!(start.elapsed() >= Duration::from_millis(700), "{:?}", start.elapsed());
    assert!(!is_alive(pid) && !supervisor.pidfile().exists() && !supervisor.sentinel().exists());
    assert!(supervisor.ask("START").starts_with("OK running "));
}

#[test]
fn given_stops_all_the_time_when_main_ignores_them_then_the_clock_does_not_move() {
    let sandbox = Sandbox::new();
    let supervisor = stubborn(&sandbox, "0.7");
    let start = Instant::now();
    wait_until("it is stopped", || supervisor.ask("STOP") == "OK stopped - monitored");
    assert!(start.elapsed() >= Duration::from_millis(700), "{:?}", start.elapsed());
}

#[test]
fn given_terms_all_the_time_when_main_ignores_them_then_the_clock_does_not_move() {
    let sandbox = Sandbox::new();
    let mut supervisor = stubborn(&sandbox, "0.7");
    let pid = supervisor.pid();
    let start = Instant::now();
    wait_until("it ends", || {
        kill(pid, libc::SIGTERM);
        !supervisor.is_alive()
    });
    assert!(start.elapsed() >= Duration::from_millis(700), "{:?}", start.elapsed());
    assert_eq!(supervisor.exit_code(), 0);
}

#[test]
fn given_main_is_stopped_by_a_signal_when_stop_then_it_is_continued_and_obeys() {
    let sandbox = Sandbox::new();
    let main = probe_with("exit-on=TERM:0:1 wait");
    let supervisor = sandbox.supervise_with(&PATIENT, &words(&main));
    supervisor.wait_for_line("ready");
    let pid = supervisor.main_pid();
    assert!(kill(pid, libc::SIGSTOP));
    wait_until("main is stopped", || state_of(pid) == Some('T'));
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    assert_eq!(supervisor.count("bye"), 1);
}

#[test]
fn given_a_slow_worker_when_stop_waits_then_the_answer_comes_when_all_is_gone() {
    let sandbox = Sandbox::new();
    let script = format!("{} exit-on=TERM:0:300 wait & wait", probe());
    let supervisor = sandbox.supervise_with(&PATIENT, &words(&sh(&script)));
    supervisor.wait_for_line("ready");
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    assert_eq!(sandbox.processes(), [supervisor.pid()]);
    assert!(!supervisor.pidfile().exists() && !supervisor.sentinel().exists());
    assert_eq!(supervisor.count("bye"), 1);
}

#[test]
fn given_it_is_stopped_when_stop_then_it_is_answered_at_once() {
    let sandbox = Sandbox::new();
    let supervisor = waiting_for_us(&sandbox);
    supervisor.ask("SIGNAL KILL");
    for command in ["STOP WAIT", "STOP", "STOP WAIT"] {
        supervisor.wait_for_state("stopped");
        assert_eq!(supervisor.ask(command), "OK stopped - monitored");
    }
    let output = sandbox.bpm(&["stop", "j", "-p", "p"]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
}

#[test]
fn given_it_has_ended_when_stop_then_it_is_stopped() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&["true"]);
    supervisor.wait_for_state("ended");
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    assert_eq!(supervisor.state(), "stopped");
}

#[test]
fn given_stop_and_term_then_main_gets_one_term_and_the_supervisor_exits_0() {
    let sandbox = Sandbox::new();
    let mut supervisor = waiting_for_us(&sandbox);
    let pid = supervisor.main_pid();
    let waiting = supervisor.send("STOP WAIT");
    supervisor.wait_for_line("TERM");
    supervisor.signal(Signal::TERM);
    supervisor.signal(Signal::INT);
    supervisor.ask("STOP");
    assert!(kill(pid, libc::SIGHUP));
    supervisor.wait_for_line("HUP");
    assert_eq!(supervisor.count("TERM"), 1);
    assert!(kill(pid, libc::SIGUSR1));
    assert_eq!(receive(&waiting), "OK stopped - monitored");
    assert_eq!(supervisor.exit_code(), 0);
}

#[test]
fn given_it_stops_when_quit_then_main_gets_it() {
    let sandbox = Sandbox::new();
    let supervisor = waiting_for_us(&sandbox);
    let pid = supervisor.main_pid();
    supervisor.ask("STOP");
    supervisor.wait_for_line("TERM");
    supervisor.signal(Signal::QUIT);
    supervisor.wait_for_line("QUIT");
    assert_eq!(supervisor.ask("STATUS"), format!("OK stopping {pid} monitored"));
    supervisor.ask("SIGNAL KILL");
}

#[test]
fn given_it_stops_when_start_then_it_starts_after_the_old_one_has_ended_by_itself() {
    let sandbox = Sandbox::new();
    let supervisor = waiting_for_us(&sandbox);
    let old = supervisor.main_pid();
    supervisor.ask("STOP");
    supervisor.wait_for_line("TERM");
    let start = supervisor.send("START");
    assert_eq!(supervisor.ask("STATUS"), format!("OK stopping {old} monitored"));
    start.set_nonblocking(true).unwrap();
    assert!(start.recv(&mut [0; 256]).is_err(), "answered before it runs");
    start.set_nonblocking(false).unwrap();
    assert!(kill(old, libc::SIGUSR1));
    let answer = receive(&start);
    let new = supervisor.main_pid();
    assert_eq!(answer, format!("OK running {new} monitored"));
    // The lock that each of them takes would have shown two at once.
    supervisor.wait_for_lines("ready", 2);
    assert_ne!(old, new);
    assert!(kill(new, libc::SIGUSR1));
}

#[test]
fn given_start_waits_when_stop_or_term_then_it_is_refused_at_once_and_nothing_starts() {
    for terminate in [false, true] {
        let sandbox = Sandbox::new();
        let mut supervisor = waiting_for_us(&sandbox);
        let old = supervisor.main_pid();
        supervisor.ask("STOP");
        let start = supervisor.send("START");
        supervisor.state();
        if terminate {
            supervisor.signal(Signal::TERM);
        } else {
            supervisor.ask("STOP");
        }
        assert!(receive(&start).starts_with("ERR "));
        assert_eq!(supervisor.ask("STATUS"), format!("OK stopping {old} monitored"));
        if terminate {
            assert!(supervisor.ask("START").starts_with("ERR "));
        }
        assert!(kill(old, libc::SIGUSR1));
        if terminate {
            assert_eq!(supervisor.exit_code(), 0);
        } else {
            supervisor.wait_for_state("stopped");
        }
        assert_eq!(supervisor.count("ready"), 1);
    }
}

/// Traces `pid` from this thread. Its end is then not seen by its parent before we let go.
fn hold(pid: i32) -> bool {
    // SAFETY: PTRACE_SEIZE reads no memory; the process is one that this test started.
    unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) == 0 }
}

/// Takes the end of a process that was held, so that its parent can.
fn let_go(pid: i32) {
    // SAFETY: a null status is allowed by waitpid(2).
    assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) }, pid);
}

#[test]
fn given_a_debugger_holds_main_when_it_is_killed_then_that_is_said_once_and_commands_are_answered() {
    let sandbox = Sandbox::new();
    let supervisor = stubborn(&sandbox, "0.1");
    let pid = supervisor.main_pid();
    if !hold(pid) {
        return skip("no ptrace here");
    }
    let waiting = supervisor.send("STOP WAIT");
    wait_until("main is dead", || state_of(pid) == Some('Z'));
    wait_until("it is said", || supervisor.stderr().contains("after SIGKILL"));
    for command in ["STOP", "STATUS", "SIGNAL KILL"] {
        assert!(supervisor.ask(command).starts_with("OK stopping "), "{command}");
    }
    stays_true("one line", Duration::from_millis(300), || supervisor.stderr().lines().count() == 1);
    supervisor.assert_not_busy();
    let_go(pid);
    assert_eq!(receive(&waiting), "OK stopped - monitored");
    assert!(supervisor.ask("START").starts_with("OK running "));
}

#[test]
fn given_a_stop_while_main_is_being_killed_then_nothing_is_doubled() {
    let sandbox = Sandbox::new();
    let mut supervisor = stubborn(&sandbox, "0.1");
    let pid = supervisor.main_pid();
    if !hold(pid) {
        return skip("no ptrace here");
    }
    let first = supervisor.send("STOP WAIT");
    wait_until("main is dead", || state_of(pid) == Some('Z'));
    let others = [supervisor.send("STOP WAIT"), supervisor.send("START"), supervisor.send("STOP WAIT")];
    assert!(supervisor.ask("STOP").starts_with("OK stopping "));
    let start = supervisor.send("START");
    assert!(supervisor.ask("STATUS").starts_with("OK stopping "));
    let_go(pid);
    // The START between two stops is cancelled; the last one is carried out, once.
    assert!(receive(&start).starts_with("OK running "));
    let answers: Vec<String> = [&first].into_iter().chain(&others).map(receive).collect();
    let refused: Vec<bool> = answers.iter().map(|answer| answer.starts_with("ERR ")).collect();
    assert_eq!(refused, [false, false, true, false], "{answers:?}");
    supervisor.wait_for_lines("ready", 2);
    for socket in [&first, &start].into_iter().chain(&others) {
        socket.set_nonblocking(true).unwrap();
        assert!(socket.recv(&mut [0; 256]).is_err(), "answered twice");
    }
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit_code(), 0);
    assert_eq!(supervisor.count("ready"), 2);
}

#[test]
fn given_only_a_later_thread_of_main_lives_then_it_counts_as_alive_and_stops() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&words(&probe_with("ignore=TERM headless")));
    supervisor.wait_for_line("headless");
    let pid = supervisor.main_pid();
    wait_until("the first thread has ended", || state_of(pid) == Some('Z'));
    let running = format!("OK running {pid} monitored");
    stays_true("it runs", Duration::from_millis(200), || supervisor.ask("STATUS") == running);
    supervisor.assert_not_busy();
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
}
