//! The supervisor at a terminal.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use common::*;
use container_run::signal::Signal;
use nix::libc;

/// Long enough to be still going on when the test looks.
const PATIENT: [&str; 2] = ["--kill-after", "600"];

/// Its two ends: what the user types on, and what the programs see.
fn terminal() -> (File, OwnedFd) {
    let (mut keyboard, mut screen) = (0, 0);
    // SAFETY: the two integers are ours, and the descriptors nobody else's.
    unsafe {
        let null = std::ptr::null_mut();
        assert_eq!(libc::openpty(&mut keyboard, &mut screen, null, null.cast(), null.cast()), 0);
        // Or the supervisor would hold its own terminal open when the user has gone.
        libc::fcntl(keyboard, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::fcntl(screen, libc::F_SETFD, libc::FD_CLOEXEC);
        (File::from_raw_fd(keyboard), OwnedFd::from_raw_fd(screen))
    }
}

/// Starts the command as the leader of a session at this terminal.
fn at(screen: OwnedFd, command: &mut Command) {
    // SAFETY: only system calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::setsid();
            libc::ioctl(screen.as_raw_fd(), libc::TIOCSCTTY, 0);
            libc::dup2(screen.as_raw_fd(), 0);
            Ok(())
        });
    }
}

/// A supervisor at a terminal, after a shell has done `prelude` there.
fn supervise_at_terminal(sandbox: &Sandbox, prelude: &str, main: &[String]) -> (File, Supervisor) {
    let (keyboard, screen) = terminal();
    let own = ["--job-name", "j", "--process-name", "p"];
    let arguments = [&own[..], &PATIENT, &["--"], &words(main)].concat();
    let mut command = sandbox.command_after(prelude, &arguments);
    at(screen, &mut command);
    let supervisor = sandbox.start(command, "j", "p");
    (keyboard, supervisor)
}

#[test]
fn given_a_terminal_when_ctrl_c_then_main_gets_the_stop_signal_once_and_the_supervisor_exits_0() {
    // The second time with an init in between.
    for prelude in [":", "sleep 1000 &"] {
        let sandbox = Sandbox::new();
        let main = probe_with("print=TERM,INT,HUP exit-on=USR1:0 wait");
        let (mut keyboard, mut supervisor) = supervise_at_terminal(&sandbox, prelude, &main);
        supervisor.wait_for_line("ready");
        let pid = supervisor.main_pid();
        keyboard.write_all(b"\x03").unwrap();
        supervisor.wait_for_line("TERM");
        keyboard.write_all(b"\x03").unwrap();
        supervisor.state();
        assert!(kill(pid, libc::SIGHUP));
        supervisor.wait_for_line("HUP");
        assert_eq!(supervisor.stdout(), "ready\nTERM\nHUP\n", "{prelude}");
        assert!(kill(pid, libc::SIGUSR1));
        assert_eq!(supervisor.exit_code(), 0);
        wait_until("the shell's child, in the foreground too, is gone", || sandbox.processes().is_empty());
    }
}

#[test]
fn given_a_terminal_when_ctrl_z_or_ctrl_backslash_then_the_supervisor_goes_on() {
    let sandbox = Sandbox::new();
    let main = probe_with("print=TSTP,QUIT exit-on=TERM:0 wait");
    let (mut keyboard, supervisor) = supervise_at_terminal(&sandbox, ":", &main);
    supervisor.wait_for_line("ready");
    keyboard.write_all(b"\x1a").unwrap();
    // What is typed is read in its order, so the QUIT comes after the TSTP.
    keyboard.write_all(b"\x1c").unwrap();
    supervisor.wait_for_line("QUIT");
    assert_eq!(supervisor.state(), "running");
    assert_eq!(supervisor.stdout(), "ready\nQUIT\n");
}

#[test]
fn given_a_terminal_then_main_reads_nothing_from_it_and_is_not_stopped_by_it() {
    let sandbox = Sandbox::new();
    let main = sh(&format!("read line; echo \"$? <$line>\"; exec {} exit-on=TERM:0 wait", probe()));
    let (mut keyboard, supervisor) = supervise_at_terminal(&sandbox, "stty tostop <&0", &main);
    keyboard.write_all(b"typed\n").unwrap();
    supervisor.wait_for_line("ready");
    assert_eq!(supervisor.stdout(), "1 <>\nready\n");
    assert_eq!(supervisor.state(), "running");
}

#[test]
fn given_main_writes_to_a_terminal_that_forbids_it_then_the_supervisor_is_not_stopped() {
    let sandbox = Sandbox::new();
    let main = sh("echo up; echo text >/dev/tty; echo written; sleep 1000");
    let (_keyboard, supervisor) = supervise_at_terminal(&sandbox, "stty tostop <&0", &main);
    supervisor.wait_for_line("up");
    let pid = supervisor.main_pid();
    wait_until("main is stopped by the terminal", || state_of(pid) == Some('T'));
    assert_eq!(supervisor.state(), "running");
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
}

#[test]
fn given_the_terminal_hangs_up_then_main_is_told_and_the_supervisor_is_not_busy() {
    let sandbox = Sandbox::new();
    let main = probe_with("print=HUP exit-on=TERM:0 wait");
    let (keyboard, mut supervisor) = supervise_at_terminal(&sandbox, ":", &main);
    supervisor.wait_for_line("ready");
    drop(keyboard);
    supervisor.wait_for_line("HUP");
    supervisor.state();
    stays_true("it lives", Duration::from_millis(300), || supervisor.is_alive());
    supervisor.assert_not_busy();
    assert_eq!((supervisor.state().as_str(), supervisor.count("HUP")), ("running", 1));
}

#[test]
fn given_the_terminal_that_all_output_goes_to_hangs_up_then_the_supervisor_goes_on() {
    let sandbox = Sandbox::new();
    let main = sh("trap '' HUP; echo BEGUN; while sleep 0.01; do echo text; done");
    let talk = "exec >&0 2>&0; binary=$1; shift; set -- \"$binary\" --debug \"$@\"";
    let (mut keyboard, mut supervisor) = supervise_at_terminal(&sandbox, talk, &main);
    let (mut shown, mut part) = (String::new(), [0; 1024]);
    while !shown.contains("BEGUN") {
        let length = keyboard.read(&mut part).unwrap();
        shown.push_str(&text(&part[..length]));
    }
    let running = format!("OK running {} monitored", supervisor.main_pid());
    // A HUP, and from now on an error for each line.
    drop(keyboard);
    stays_true("it lives", Duration::from_millis(300), || supervisor.ask("STATUS") == running);
    supervisor.assert_not_busy();
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit_code(), 0);
}

#[test]
fn given_all_or_some_of_the_standard_descriptors_are_closed_then_it_works_and_main_has_them() {
    for prelude in ["exec 0<&-", "exec 0<&- 2>&-", "exec 0<&- 1>&- 2>&-"] {
        let sandbox = Sandbox::new();
        let seen = sandbox.path("seen");
        let look = "exec 3>SEEN; readlink /proc/$$/fd/0 >&3
            for fd in 0 1 2; do test -e /proc/$$/fd/$fd && echo $fd >&3; done; exit 0";
        let main = sh(&look.replace("SEEN", seen.to_str().unwrap()));
        let supervisor = sandbox.supervise_after(prelude, &[], &words(&main));
        supervisor.wait_for_state("ended");
        assert_eq!(std::fs::read_to_string(&seen).unwrap(), "/dev/null\n0\n1\n2\n", "{prelude}");
    }
}
