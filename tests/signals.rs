//! Signals to the supervisor, and those that it is told to send.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::os::unix::process::CommandExt;
use std::process::Command;

use common::*;
use container_run::signal::Signal;
use nix::libc;

/// Long enough to be still going on when the test looks.
const PATIENT: [&str; 2] = ["--kill-after", "600"];

/// What is the main process's business.
const PASSED: [Signal; 7] =
    [Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::ALRM, Signal::CONT, Signal::WINCH];

/// Prints TERM, INT and HUP, and ends well on USR1, which the tests send past the supervisor.
const PRINTER: &str = "print=TERM,INT,HUP exit-on=USR1:0 wait";

/// What kill(2) takes, but KILL and STOP, which nobody can handle.
fn sendable() -> impl Iterator<Item = i32> {
    (1..=64).filter(|number| ![libc::SIGKILL, libc::SIGSTOP].contains(number))
}

/// Those of them for which the probe can have a handler that stays.
fn printable() -> impl Iterator<Item = i32> {
    let special = [libc::SIGILL, libc::SIGFPE, libc::SIGSEGV, libc::SIGBUS, 32, 33];
    sendable().filter(move |number| !special.contains(number))
}

/// As the probe prints it.
fn printed(number: i32) -> String {
    Signal::from_number(number).unwrap().to_string().replace("SIG", "")
}

fn listed(numbers: impl Iterator<Item = i32>) -> String {
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}

/// Any process that was to get a signal before this returns has had it.
#[track_caller]
fn let_signals_arrive(supervisor: &Supervisor, main: i32) {
    let seen = supervisor.count("HUP");
    supervisor.state();
    assert!(kill(main, libc::SIGHUP));
    supervisor.wait_for_lines("HUP", seen + 1);
}

/// Starts the supervisor with every signal ignored and blocked.
fn deaf(command: &mut Command) {
    // SAFETY: only calls that are safe between fork and exec.
    unsafe {
        command.pre_exec(|| {
            for number in 1..=64 {
                libc::signal(number, libc::SIG_IGN);
            }
            let mut all = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
            Ok(())
        });
    }
}

#[test]
fn given_a_tree_is_alive_then_no_signal_ends_or_stops_the_supervisor_without_it() {
    let sandbox = Sandbox::new();
    let stubborn = probe_with(&format!("ignore={} wait", listed(printable())));
    let mut supervisor = sandbox.supervise_with(&PATIENT, &words(&stubborn));
    supervisor.wait_for_line("ready");
    let pid = supervisor.main_pid();
    let asking = [libc::SIGTERM, libc::SIGINT];
    for number in sendable().filter(|number| !asking.contains(number)) {
        assert!(kill(supervisor.pid(), number));
        assert_eq!(supervisor.ask("STATUS"), format!("OK running {pid} monitored"), "signal {number}");
        assert_ne!(state_of(supervisor.pid()), Some('T'), "signal {number}");
    }
    for number in asking {
        assert!(kill(supervisor.pid(), number));
        wait_until("it stops", || supervisor.ask("STATUS") == format!("OK stopping {pid} monitored"));
    }
    supervisor.ask("SIGNAL KILL");
    assert_eq!(supervisor.exit_code(), 0);
    assert!(!is_alive(pid));
}

#[test]
fn given_any_signal_then_main_gets_those_that_are_its_business_once_and_no_other() {
    let sandbox = Sandbox::new();
    let printer = format!("print={} exit-on=SYS:0 wait", listed(printable()));
    let supervisor = sandbox.supervise_with(&PATIENT, &words(&probe_with(&printer)));
    supervisor.wait_for_line("ready");
    let pid = supervisor.main_pid();
    let passed = |number: &i32| PASSED.iter().any(|signal| signal.number() == *number);
    let asking = [libc::SIGTERM, libc::SIGINT];
    for number in sendable().filter(|number| !asking.contains(number)) {
        assert!(kill(supervisor.pid(), number));
        supervisor.state();
        if passed(&number) {
            supervisor.wait_for_line(&printed(number));
        }
    }
    // A second USR1 shows that all before it has arrived.
    supervisor.signal(Signal::USR1);
    supervisor.wait_for_lines("USR1", 2);
    for number in printable() {
        let times = usize::from(passed(&number)) + usize::from(number == libc::SIGUSR1);
        assert_eq!(supervisor.count(&printed(number)), times, "{}", printed(number));
    }
    assert!(kill(pid, libc::SIGSYS));
}

#[test]
fn given_1000_of_chld_urg_pipe_and_winch_then_main_gets_winch_alone_and_commands_are_answered() {
    let sandbox = Sandbox::new();
    let printer = probe_with("print=CHLD,URG,PIPE,WINCH,HUP exit-on=TERM:0 wait");
    let supervisor = sandbox.supervise(&words(&printer));
    supervisor.wait_for_line("ready");
    for number in [libc::SIGCHLD, libc::SIGURG, libc::SIGPIPE, libc::SIGWINCH].repeat(1000) {
        assert!(kill(supervisor.pid(), number));
    }
    let_signals_arrive(&supervisor, supervisor.main_pid());
    supervisor.wait_for_line("WINCH");
    // The kernel merges those that come too fast.
    assert!(supervisor.count("WINCH") <= 1000);
    for never in ["CHLD", "URG", "PIPE"] {
        assert_eq!(supervisor.count(never), 0, "{never}");
    }
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
}

#[test]
fn given_our_parent_ignores_pipe_then_a_pipeline_in_main_ends_quietly() {
    let sandbox = Sandbox::new();
    let job = ["bash", "-c", "yes | head -n 1; echo \"${PIPESTATUS[*]}\""];
    let supervisor = sandbox.supervise_after("trap '' PIPE", &[], &job);
    supervisor.wait_for_state("ended");
    // 128 + SIGPIPE: with PIPE ignored, `yes` would complain of a broken pipe and exit with 1.
    assert_eq!((supervisor.stdout().as_str(), supervisor.stderr().as_str()), ("y\n141 0\n", ""));
}

#[test]
fn given_term_or_int_then_main_gets_the_stop_signal_once_and_the_supervisor_ends_after_it() {
    for sent in [Signal::TERM, Signal::INT] {
        for (name, other) in [("TERM", "INT"), ("INT", "TERM")] {
            let sandbox = Sandbox::new();
            let options = [&PATIENT[..], &["--stop-signal", name]].concat();
            let mut supervisor = sandbox.supervise_with(&options, &words(&probe_with(PRINTER)));
            supervisor.wait_for_line("ready");
            let pid = supervisor.main_pid();
            supervisor.signal(sent);
            supervisor.wait_for_line(name);
            supervisor.signal(sent);
            let_signals_arrive(&supervisor, pid);
            assert_eq!((supervisor.count(name), supervisor.count(other)), (1, 0), "{sent}");
            assert!(supervisor.is_alive() && supervisor.pidfile().exists());
            assert!(kill(pid, libc::SIGUSR1));
            assert_eq!(supervisor.exit_code(), 0);
        }
    }
}

#[test]
fn given_term_then_the_supervisor_exits_0_however_main_ends() {
    for main in
        ["exit-on=TERM:0 wait", "exit-on=TERM:7 wait", "exit-on=TERM:143 wait", "wait", "ignore=TERM wait"]
    {
        let sandbox = Sandbox::new();
        let mut supervisor = sandbox.supervise(&words(&probe_with(main)));
        supervisor.wait_for_line("ready");
        supervisor.signal(Signal::TERM);
        assert_eq!(supervisor.exit_code(), 0, "{main}");
        assert_eq!(supervisor.stderr(), "", "{main}");
    }
}

#[test]
fn given_nothing_runs_when_term_then_the_supervisor_exits_0_at_once() {
    let sandbox = Sandbox::new();
    let mut supervisor = sandbox.supervise_with(&PATIENT, &["true"]);
    supervisor.wait_for_state("ended");
    supervisor.signal(Signal::INT);
    assert_eq!(supervisor.exit_code(), 0);
}

#[test]
fn given_every_signal_is_ignored_and_blocked_at_the_start_then_main_has_a_clean_set() {
    let sandbox = Sandbox::new();
    // Not the probe: Rust programs ignore PIPE.
    let show = ["grep", "^Sig[BI]", "/proc/self/status"];
    let mut command = sandbox.command();
    command.args(["--job-name", "j", "--process-name", "p", "--"]).args(show);
    deaf(&mut command);
    let supervisor = sandbox.start(command, "j", "p");
    supervisor.wait_for_state("ended");
    let none = "0000000000000000";
    assert_eq!(supervisor.stdout(), format!("SigBlk:\t{none}\nSigIgn:\t{none}\n"));
}

#[test]
fn given_every_signal_is_ignored_and_blocked_at_the_start_then_term_and_the_end_of_main_are_noticed() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command();
    command.args(["--job-name", "j", "--process-name", "p", "--"]).args(probe_with(PRINTER));
    deaf(&mut command);
    let mut supervisor = sandbox.start(command, "j", "p");
    supervisor.wait_for_line("ready");
    supervisor.signal(Signal::TERM);
    supervisor.wait_for_line("TERM");
    assert!(kill(supervisor.main_pid(), libc::SIGUSR1));
    assert_eq!(supervisor.exit_code(), 0);
}

#[test]
fn given_main_traps_quit_when_quit_then_it_gets_it_and_everything_stays() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&words(&probe_with("print=QUIT exit-on=TERM:0 wait")));
    supervisor.wait_for_line("ready");
    let pid = supervisor.main_pid();
    supervisor.signal(Signal::QUIT);
    supervisor.wait_for_line("QUIT");
    assert_eq!(supervisor.ask("STATUS"), format!("OK running {pid} monitored"));
    assert!(supervisor.pidfile().exists() && supervisor.sentinel().exists());
}

#[test]
fn given_main_dies_of_a_quit_when_we_passed_it_then_it_is_stopped_and_may_start_again() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise_after("ulimit -c 0", &PATIENT, &words(&probe_with("wait")));
    supervisor.wait_for_line("ready");
    supervisor.signal(Signal::QUIT);
    supervisor.wait_for_state("stopped");
    assert!(!supervisor.pidfile().exists() && !supervisor.sentinel().exists());
    assert!(supervisor.ask("START").starts_with("OK running "));
}

#[test]
fn given_main_dies_of_a_quit_when_nobody_asked_us_then_the_supervisor_exits_131() {
    let sandbox = Sandbox::new();
    let mut supervisor = sandbox.supervise_after("ulimit -c 0", &PATIENT, &words(&probe_with("wait")));
    supervisor.wait_for_line("ready");
    assert!(kill(supervisor.main_pid(), libc::SIGQUIT));
    assert_eq!(supervisor.exit_code(), 131);
}

#[test]
fn given_main_fails_long_after_a_quit_then_that_is_a_failure() {
    let sandbox = Sandbox::new();
    let main = probe_with("exit-on=QUIT:3:300 wait");
    let mut supervisor = sandbox.supervise_with(&["--kill-after", "0.1"], &words(&main));
    supervisor.wait_for_line("ready");
    supervisor.signal(Signal::QUIT);
    assert_eq!(supervisor.exit_code(), 3);
    let supervisor = sandbox.supervise_with(&PATIENT, &words(&main));
    supervisor.wait_for_line("ready");
    supervisor.signal(Signal::QUIT);
    supervisor.wait_for_state("stopped");
}

#[test]
fn given_main_has_ended_when_signals_come_then_they_are_no_error() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&["true"]);
    supervisor.wait_for_state("ended");
    for signal in PASSED {
        supervisor.signal(signal);
        assert_eq!(supervisor.ask("STATUS"), "OK ended - monitored", "{signal}");
    }
    assert_eq!(supervisor.stderr(), "");
}

#[test]
fn given_200_quits_then_main_gets_some_and_stop_works() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&words(&probe_with("print=QUIT exit-on=TERM:0 wait")));
    supervisor.wait_for_line("ready");
    for _ in 0..200 {
        supervisor.signal(Signal::QUIT);
    }
    supervisor.wait_for_line("QUIT");
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    assert!(supervisor.count("QUIT") <= 200);
}

#[test]
fn given_dumb_init_when_term_then_main_gets_one_and_its_exit_code_comes_through() {
    if !is_permitted(&["dumb-init", "true"]) {
        return;
    }
    for mode in [&["dumb-init", "--"][..], &["dumb-init", "--single-child", "--"]] {
        let sandbox = Sandbox::new();
        let under_dumb_init = |main: &str| {
            let mut command = sandbox.program(mode[0]);
            command.args(&mode[1..]).arg(BINARY).args(PATIENT);
            command.args(["--job-name", "j", "--process-name", "p", "--"]).args(probe_with(main));
            sandbox.start(command, "j", "p")
        };
        let mut supervisor = under_dumb_init(PRINTER);
        supervisor.wait_for_line("ready");
        let pid = supervisor.main_pid();
        supervisor.signal(Signal::TERM);
        supervisor.wait_for_line("TERM");
        let_signals_arrive(&supervisor, pid);
        assert_eq!(supervisor.count("TERM"), 1, "{mode:?}");
        assert!(kill(pid, libc::SIGUSR1));
        assert_eq!(supervisor.exit_code(), 0, "{mode:?}");
        assert_eq!(under_dumb_init("exit=7").exit_code(), 7, "{mode:?}");
    }
}

/// Number and name, with SIG, of each signal that bash knows.
fn names() -> Vec<(i32, String)> {
    let output = Command::new("bash").args(["-c", "kill -l"]).output().unwrap();
    let list = text(&output.stdout).replace(')', " ");
    let parts: Vec<&str> = list.split_whitespace().collect();
    parts.chunks(2).map(|pair| (pair[0].parse().unwrap(), pair[1].to_owned())).collect()
}

#[test]
fn given_any_name_that_kill_lists_then_signal_sends_it() {
    let sandbox = Sandbox::new();
    let printer = format!("print={} wait", listed(printable()));
    let supervisor = sandbox.supervise(&words(&probe_with(&printer)));
    supervisor.wait_for_line("ready");
    let pid = supervisor.main_pid();
    let names = names();
    assert!(names.len() >= 62, "{names:?}");
    for (number, name) in names.iter().filter(|(number, _)| printable().any(|other| other == *number)) {
        for (times, name) in [name.as_str(), name.strip_prefix("SIG").unwrap()].iter().enumerate() {
            assert_eq!(supervisor.ask(&format!("SIGNAL {name}")), format!("OK running {pid} monitored"));
            supervisor.wait_for_lines(&printed(*number), times + 1);
        }
        assert_eq!(supervisor.count(&printed(*number)), 2, "{name}");
    }
}

#[test]
fn given_a_tree_when_signal_kill_then_all_of_it_is_killed_and_that_was_an_order() {
    let sandbox = Sandbox::new();
    let script = format!("trap '' TERM; setsid {} ignore=TERM wait & wait", probe());
    let mut supervisor = sandbox.supervise_with(&PATIENT, &words(&sh(&script)));
    supervisor.wait_for_line("ready");
    supervisor.ask("SIGNAL KILL");
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    assert_eq!(sandbox.processes(), [supervisor.pid()]);
    assert!(supervisor.is_alive());
}
