//! What the end of the main process means, and the supervisor's exit codes.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;
use common::*;
use container_run::signal::Signal;

/// Runs many small supervisors, a few at a time.
fn in_parallel<T: Send + Sync>(cases: &[T], check: impl Fn(&T) + Sync) {
    std::thread::scope(|scope| {
        for share in cases.chunks(cases.len().div_ceil(8)) {
            scope.spawn(|| share.iter().for_each(&check));
        }
    });
}

#[test]
fn given_any_exit_code_unasked_then_only_0_130_and_143_leave_the_supervisor_alive() {
    let sandbox = Sandbox::new();
    in_parallel(&(0..=255).collect::<Vec<i32>>(), |code| {
        let command = probe_with(&format!("exit={code}"));
        let mut supervisor = sandbox.supervise_as(&format!("j{code}"), "p", &[], &words(&command));
        if [0, 130, 143].contains(code) {
            supervisor.wait_for_state("ended");
            assert!(!supervisor.pidfile().exists() && !supervisor.sentinel().exists(), "code {code}");
            supervisor.signal(Signal::TERM);
            assert_eq!(supervisor.exit_code(), 0, "code {code}");
        } else {
            assert_eq!(supervisor.exit_code(), *code);
            let said = format!("container-run: j{code}/p exited with code {code}\n");
            assert_eq!(supervisor.stderr(), said);
        }
    });
}

#[test]
fn given_death_by_any_signal_unasked_then_only_term_and_int_leave_the_supervisor_alive() {
    let sandbox = Sandbox::new();
    // Those whose default action is to end the process.
    let deadly = (1..=64).filter(|number| ![17, 18, 19, 20, 21, 22, 23, 28, 32, 33].contains(number));
    in_parallel(&deadly.collect::<Vec<i32>>(), |number| {
        let command = probe_with(&format!("die={number}"));
        let mut supervisor = sandbox.supervise_as(&format!("j{number}"), "p", &[], &words(&command));
        if [2, 15].contains(number) {
            supervisor.wait_for_state("ended");
            supervisor.signal(Signal::TERM);
            assert_eq!(supervisor.exit_code(), 0, "signal {number}");
        } else {
            assert_eq!(supervisor.exit_code(), 128 + number);
        }
    });
}

#[test]
fn given_a_stop_then_no_way_to_end_is_a_failure() {
    let sandbox = Sandbox::new();
    let ends = [("0", "exit-on=TERM:0 wait"), ("1", "exit-on=TERM:1 wait"), ("SIGKILL", "ignore=TERM wait")];
    in_parallel(&ends, |(end, main)| {
        let options = ["--kill-after", if *end == "SIGKILL" { "0.2" } else { "600" }];
        let supervisor =
            sandbox.supervise_as(&format!("ends-by-{end}"), "p", &options, &words(&probe_with(main)));
        supervisor.wait_for_line("ready");
        assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored", "{end}");
        let details = supervisor.ask("DETAILS");
        assert_eq!(details.split(' ').nth(5), Some(*end), "{details}");
        assert!(supervisor.ask("START").starts_with("OK running "), "{end}");
        assert_eq!(supervisor.stderr(), "", "{end}");
    });
}
