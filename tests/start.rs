//! Starting: one supervisor for a process, over whatever a dead one left.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::fs;
use std::process::{Child, Stdio};

use common::*;
use container_run::signal::Signal;

#[test]
fn given_twenty_supervisors_at_once_then_exactly_one_lives_and_the_others_name_the_socket() {
    for round in 0..4 {
        let mut sandbox = Sandbox::new();
        if round % 2 == 1 {
            leave_a_dead_supervisors_files(&mut sandbox);
        }
        let mut racers: Vec<Child> = (0..20)
            .map(|_| {
                let mut racer = sandbox.command();
                racer.args(["--job-name", "j", "--process-name", "p", "--no-install-bpm", "sleep", "600"]);
                racer.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        wait_until("all but one have given up", || {
            racers.iter_mut().filter_map(|racer| racer.try_wait().unwrap()).count() >= 19
        });
        let socket = sandbox.path("data/j/p_containerrun.sock");
        let (mut winners, mut losers) = (vec![], vec![]);
        for mut racer in racers {
            match racer.try_wait().unwrap() {
                None => winners.push(racer.id()),
                Some(_) => losers.push(racer.wait_with_output().unwrap()),
            }
        }
        for output in losers {
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            assert!(complaint(&output).contains(socket.to_str().unwrap()), "{output:?}");
        }
        assert_eq!(winners.len(), 1);
        let output = sandbox.run(&["send", "STATUS", "j", "-p", "p"]);
        let pid = fs::read_to_string(sandbox.path("sys/run/bpm/j/p.pid")).unwrap();
        assert_eq!(text(&output.stdout), format!("running {pid} monitored\n"));
        assert_eq!(sandbox.processes().len(), 2, "one supervisor, one process");
    }
}

/// Runs a supervisor and ends it by force.
fn leave_a_dead_supervisors_files(sandbox: &mut Sandbox) {
    sandbox.may_leave_files();
    let mut supervisor = sandbox.supervise(&["sleep", "600"]);
    let pid = supervisor.main_pid();
    supervisor.signal(Signal::KILL);
    supervisor.wait();
    wait_until("the process dies with its supervisor", || !is_alive(pid));
    assert!(supervisor.socket().exists() && supervisor.pidfile().exists());
}

#[test]
fn given_a_live_supervisor_then_a_second_one_is_refused_and_the_first_unharmed() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&["sleep", "600"]);
    // In each state: running, and stopped.
    for state in ["running", "stopped"] {
        let before = supervisor.ask("STATUS");
        assert!(before.starts_with(&format!("OK {state} ")));
        let output = sandbox.run(&["--job-name", "j", "--process-name", "p", "sleep", "600"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(complaint(&output).contains(supervisor.socket().to_str().unwrap()), "{output:?}");
        assert_eq!(supervisor.ask("STATUS"), before);
        assert_eq!(supervisor.pidfile().exists(), state == "running");
        supervisor.ask("STOP WAIT");
    }
    assert_eq!(supervisor.stderr(), "");
}

#[test]
fn given_a_supervisor_that_hangs_then_a_second_one_is_refused_at_once() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&["sleep", "600"]);
    let pid = supervisor.main_pid();
    kill(supervisor.pid(), nix::libc::SIGSTOP);
    wait_until("it is stopped", || state_of(supervisor.pid()) == Some('T'));
    let output = sandbox.run(&["--job-name", "j", "--process-name", "p", "sleep", "600"]);
    supervisor.signal(Signal::CONT);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(supervisor.ask("STATUS"), format!("OK running {pid} monitored"));
}

#[test]
fn given_a_socket_removed_from_a_live_supervisor_then_a_second_one_is_refused() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&["sleep", "600"]);
    let pid = supervisor.main_pid();
    fs::remove_file(supervisor.socket()).unwrap();
    let output = sandbox.run(&["--job-name", "j", "--process-name", "p", "sleep", "600"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains(supervisor.socket().to_str().unwrap()), "{output:?}");
    assert!(is_alive(pid) && supervisor.main_pid() == pid);
}

#[test]
fn given_a_supervisor_killed_by_force_then_its_process_dies_and_the_next_one_starts_over_what_is_left() {
    let mut sandbox = Sandbox::new();
    leave_a_dead_supervisors_files(&mut sandbox);
    assert_eq!(sandbox.bpm(&["running", "j", "-p", "p"]).status.code(), Some(1));
    assert_eq!(sandbox.bpm(&["pid", "j", "-p", "p"]).status.code(), Some(1));
    assert_eq!(sandbox.run(&["send", "STATUS", "j", "-p", "p"]).status.code(), Some(3));
    assert_eq!(sandbox.run(&["probe", "j", "-p", "p"]).status.code(), Some(1));

    let mut next = sandbox.supervise(&["sleep", "600"]);
    next.wait_for_state("running");
    let pid = next.main_pid();
    assert_eq!(next.ask("STATUS"), format!("OK running {pid} monitored"));
    assert_eq!(sandbox.bpm(&["running", "j", "-p", "p"]).status.code(), Some(0));
    assert_eq!(text(&sandbox.bpm(&["pid", "j", "-p", "p"]).stdout).trim(), pid.to_string());
    next.signal(Signal::TERM);
    assert_eq!(next.exit_code(), 0);
    assert_eq!(next.stderr(), "");
    assert!(sandbox.files().is_empty(), "{:?}", sandbox.files());
}

#[test]
fn given_a_supervisor_killed_while_stopping_then_the_next_one_starts_all_the_same() {
    let mut sandbox = Sandbox::new();
    sandbox.may_leave_files();
    let mut supervisor =
        sandbox.supervise_with(&["--kill-after", "600"], &words(&probe_with("ignore=TERM wait")));
    supervisor.wait_for_line("ready");
    let pid = supervisor.main_pid();
    supervisor.ask("STOP");
    supervisor.signal(Signal::KILL);
    supervisor.wait();
    wait_until("the process dies with its supervisor", || !is_alive(pid));
    sandbox.supervise(&["sleep", "600"]).wait_for_state("running");
}

#[test]
fn given_a_long_command_line_then_the_title_is_the_job_and_process_and_nothing_else() {
    let sandbox = Sandbox::new();
    let folder = "x".repeat(300);
    let program = sandbox.path(&folder[..200]).join("a-packages-server");
    fs::create_dir(program.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(probe(), &program).unwrap();
    let command = [program.to_str().unwrap(), "say=an-argument-of-the-process", "wait"];
    let supervisor = sandbox.supervise(&command);
    supervisor.wait_for_line("ready");
    let title = fs::read(format!("/proc/{}/cmdline", supervisor.pid())).unwrap();
    assert_eq!(text(&title), "container-run j/p\0");
    // As drain scripts look for processes.
    let found = |pattern: &str| {
        let output = sandbox.program("pgrep").args(["-f", pattern]).output().unwrap();
        let pids: Vec<i32> = text(&output.stdout).lines().map(|line| line.parse().unwrap()).collect();
        let ours = sandbox.processes();
        pids.into_iter().filter(|pid| ours.contains(pid)).collect::<Vec<i32>>()
    };
    if !is_permitted(&["pgrep", "-V"]) {
        return;
    }
    assert_eq!(found(program.to_str().unwrap()), [supervisor.main_pid()]);
    assert_eq!(found("an-argument-of-the-process"), [supervisor.main_pid()]);
    assert_eq!(found("^container-run j/p$"), [supervisor.pid()]);
}

#[test]
fn given_long_names_then_the_title_shows_them_whole() {
    let sandbox = Sandbox::new();
    let name = "n".repeat(200);
    let supervisor = sandbox.supervise_as(&name, &name, &[], &["sleep", "600"]);
    supervisor.main_pid();
    let title = fs::read(format!("/proc/{}/cmdline", supervisor.pid())).unwrap();
    assert_eq!(text(&title), format!("container-run {name}/{name}\0"));
}

#[test]
fn given_a_supervisor_at_rest_then_its_title_is_there_before_the_process_runs() {
    let sandbox = Sandbox::new();
    let look = "tr '\\0' '\\n' </proc/$PPID/cmdline; exec sleep 600";
    let supervisor = sandbox.supervise(&words(&sh(look)));
    supervisor.wait_for_line("container-run j/p");
    assert_eq!(supervisor.stdout(), "container-run j/p\n");
}
