//! Whose end is noticed, and whose is nobody's business: no zombie stays with the supervisor.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use common::*;
use nix::libc;

/// A shell line that forks twice, a thousand times; the grandchildren end at once.
const ORPHANS: &str = "i=0; while [ $i -lt 1000 ]; do (true &); i=$((i+1)); done; echo done";

/// How many zombies wait to be reaped by this process.
fn zombies_of(parent: i32) -> usize {
    let is_zombie = |stat: &String| {
        let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        fields.next() == Some("Z") && fields.next() == Some(&parent.to_string())
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok()).filter(is_zombie).count()
}

#[test]
fn given_a_parent_that_does_not_reap_then_the_count_shows_it() {
    let sandbox = Sandbox::new();
    let mut careless = sandbox.program("sh").args(["-c", "true & exec sleep 1000"]).spawn().unwrap();
    let pid = careless.id() as i32;
    wait_until("there is a zombie", || zombies_of(pid) == 1);
    stays_true("it stays", Duration::from_millis(100), || zombies_of(pid) == 1);
    careless.kill().unwrap();
    careless.wait().unwrap();
}

/// Starts a container in which `pid_1` is to run a program that makes the orphans and reaps none.
fn orphans_in_a_container(sandbox: &Sandbox, pid_1: &[&str]) -> Supervisor {
    // system() waits for the shell alone.
    let program =
        "system 'sh', '-c', shift; $SIG{TERM} = sub { exit 0 }; $| = 1; print \"ready\\n\"; sleep 600";
    let mut command = sandbox.program("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]).args(pid_1).args(["perl", "-e", program, ORPHANS]);
    let container = sandbox.start(command, "j", "p");
    container.wait_for_line("ready");
    container
}

#[test]
fn given_a_container_with_1000_orphans_then_only_without_a_reaper_as_pid_1_zombies_stay() {
    if !is_permitted(&["unshare", "--pid", "--fork", "--mount-proc", "true"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let zombies = || sandbox.processes().into_iter().map(zombies_of).sum::<usize>();

    let mut careless = orphans_in_a_container(&sandbox, &[]);
    wait_until("all are zombies", || zombies() == 1000);
    stays_true("they stay", Duration::from_millis(300), || zombies() == 1000);
    let unshare = careless.pid();
    let pid_1 = sandbox.processes().into_iter().find(|pid| parent_of(*pid) == Some(unshare));
    assert!(kill(pid_1.unwrap(), libc::SIGKILL));
    careless.wait();
    assert_eq!(zombies(), 0);

    let reaper = [BINARY, "--job-name", "j", "--process-name", "p", "--"];
    let _container = orphans_in_a_container(&sandbox, &reaper);
    wait_until("none stays", || zombies() == 0);
}

#[test]
fn given_1000_orphans_that_end_at_once_then_no_zombie_stays_and_the_end_of_main_is_not_mistaken() {
    // The second time behind an init of our own, which has its own children to reap.
    for prelude in [":", "sleep 1000 & echo stranger $!"] {
        let sandbox = Sandbox::new();
        let main = sh(&format!("{ORPHANS}; exec {} exit-on=USR1:7 wait", probe()));
        let mut supervisor = sandbox.supervise_after(prelude, &[], &words(&main));
        supervisor.wait_for_line("done");
        supervisor.wait_for_line("ready");
        let pid = supervisor.main_pid();
        let ours = || sandbox.processes().into_iter().filter(|process| *process != pid);
        wait_until("no zombie is left", || ours().map(zombies_of).sum::<usize>() == 0);
        assert_eq!(supervisor.ask("STATUS"), format!("OK running {pid} monitored"));
        assert!(kill(pid, libc::SIGUSR1));
        assert_eq!(supervisor.exit_code(), 7);
        for stranger in sandbox.processes() {
            end(stranger);
        }
    }
}

#[test]
fn given_orphans_that_fail_then_main_runs_on() {
    let sandbox = Sandbox::new();
    let orphans = "(sh -c 'exit 9' &); (sh -c 'kill -9 $$' &); (sh -c 'kill -TERM $$' &)";
    let main = sh(&format!("{orphans}; exec {} exit-on=TERM:0 wait", probe()));
    let supervisor = sandbox.supervise(&words(&main));
    supervisor.wait_for_line("ready");
    let (ours, pid) = (supervisor.pid(), supervisor.main_pid());
    let orphans = || sandbox.processes().into_iter().filter(|process| ![ours, pid].contains(process)).count();
    wait_until("all are reaped", || orphans() == 0 && zombies_of(ours) == 0);
    assert_eq!(supervisor.ask("STATUS"), format!("OK running {pid} monitored"));
}

#[test]
fn given_main_does_not_reap_its_own_then_its_zombie_does_no_harm() {
    let sandbox = Sandbox::new();
    let main = sh(&format!("true & exec {} exit-on=TERM:0 wait", probe()));
    let supervisor = sandbox.supervise_with(&["--kill-after", "600"], &words(&main));
    supervisor.wait_for_line("ready");
    let pid = supervisor.main_pid();
    wait_until("main has a zombie", || zombies_of(pid) == 1);
    stays_true("main keeps it", Duration::from_millis(300), || zombies_of(pid) == 1);
    supervisor.assert_not_busy();
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    assert_eq!(zombies_of(supervisor.pid()), 0);
}

#[test]
fn given_main_is_stopped_and_continued_then_that_is_no_end() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&words(&probe_with("print=HUP exit-on=TERM:0 wait")));
    supervisor.wait_for_line("ready");
    let pid = supervisor.main_pid();
    let running = format!("OK running {pid} monitored");
    assert_eq!(supervisor.ask("SIGNAL STOP"), running);
    wait_until("main is stopped", || state_of(pid) == Some('T'));
    stays_true("it counts as running", Duration::from_millis(100), || {
        supervisor.ask("STATUS") == running && supervisor.pidfile().exists() && supervisor.sentinel().exists()
    });
    assert_eq!(supervisor.ask("SIGNAL CONT"), running);
    assert!(kill(pid, libc::SIGHUP));
    supervisor.wait_for_line("HUP");
    assert_eq!(supervisor.ask("STATUS"), running);
}

#[test]
fn given_main_becomes_another_program_then_nothing_changes() {
    let sandbox = Sandbox::new();
    let again = format!("echo first; exec sh -c 'echo second; exec {} exit-on=TERM:0 wait'", probe());
    let supervisor = sandbox.supervise(&words(&sh(&again)));
    supervisor.wait_for_line("ready");
    let pid = supervisor.main_pid();
    assert_eq!(supervisor.ask("STATUS"), format!("OK running {pid} monitored"));
    assert_eq!(supervisor.stdout(), "first\nsecond\nready\n");
}

#[test]
fn given_main_is_traced_then_its_end_is_seen_once() {
    if !is_permitted(&["strace", "-o", "/dev/null", "true"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let mut supervisor = sandbox.supervise(&words(&probe_with("exit-on=USR1:0 exit-on=USR2:7 wait")));
    for (round, number) in [libc::SIGUSR1, libc::SIGUSR2].into_iter().enumerate() {
        supervisor.wait_for_lines("ready", round + 1);
        let pid = supervisor.main_pid();
        let mut tracer = sandbox.program("strace");
        tracer.args(["-f", "-q", "-o", "/dev/null", "-p", &pid.to_string()]);
        let mut tracer = tracer.stderr(Stdio::null()).spawn().unwrap();
        wait_until("main is traced", || status_number(pid, "TracerPid") == u64::from(tracer.id()));
        assert!(kill(pid, number));
        if number == libc::SIGUSR1 {
            supervisor.wait_for_state("ended");
            assert!(supervisor.ask("START").starts_with("OK running "));
        } else {
            assert_eq!(supervisor.exit_code(), 7);
        }
        tracer.wait().unwrap();
    }
    assert_eq!(supervisor.stderr(), "container-run: j/p exited with code 7\n");
}
