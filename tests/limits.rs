//! Limits reached: too few processes or descriptors, output that nobody reads; and that a
//! supervisor costs next to nothing.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use common::*;
use container_run::signal::Signal;
use nix::fcntl::OFlag;
use nix::libc;
use nix::unistd::pipe2;

const OBEDIENT: &str = "exit-on=TERM:0 wait";

/// A supervisor that may hold so many descriptors.
fn with_descriptors(sandbox: &Sandbox, most: u32, options: &[&str], command: &str) -> Supervisor {
    sandbox.supervise_after(&format!("ulimit -n {most}"), options, &words(&probe_with(command)))
}

fn main_command(sandbox: &Sandbox, options: &[&str], main: &str) -> Command {
    let mut command = sandbox.command();
    command.args(["--job-name", "j", "--process-name", "p", "--kill-after", "0.5"]).args(options);
    command.arg("--").args(probe_with(main));
    command
}

/// The life of a supervisor whose output goes nowhere: it answers, stops, starts, and ends with 0.
fn assert_it_lives(mut child: std::process::Child, sandbox: &Sandbox) {
    let ask = |verb: &str| sandbox.run(&["send", verb, "j", "-p", "p", "--wait", "10"]);
    wait_until("it runs", || text(&ask("STATUS").stdout).starts_with("running "));
    for (verb, state) in [("STOP", "stopped -"), ("START", "running "), ("STATUS", "running ")] {
        let answer = ask(verb);
        assert!(text(&answer.stdout).starts_with(state), "{verb}: {answer:?}");
    }
    assert!(kill(child.id() as i32, libc::SIGTERM));
    let mut status = None;
    wait_until("it ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(0));
}

/// A pipe with no room left and nobody who reads.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (read, write) = pipe2(OFlag::O_CLOEXEC).unwrap();
    let mut filling = File::from(write.try_clone().unwrap());
    let set = |flags: OFlag| nix::fcntl::fcntl(&write, nix::fcntl::FcntlArg::F_SETFL(flags)).unwrap();
    set(OFlag::O_NONBLOCK);
    // Down to the last byte, so that not even a short line fits.
    for size in [4096, 1] {
        while filling.write(&vec![b'x'; size]).is_ok() {}
    }
    assert_eq!(filling.write(b"x").unwrap_err().kind(), ErrorKind::WouldBlock);
    set(OFlag::empty());
    (read, write)
}

#[test]
fn given_stderr_is_a_full_pipe_when_it_has_much_to_say_then_it_answers_and_stops() {
    let sandbox = Sandbox::new();
    let (_unread, full) = full_pipe();
    let mut command = main_command(&sandbox, &["--debug"], OBEDIENT);
    assert_it_lives(command.stdout(Stdio::null()).stderr(full).spawn().unwrap(), &sandbox);
}

#[test]
fn given_stderr_is_a_pipe_without_a_reader_when_it_has_much_to_say_then_it_answers_and_stops() {
    let sandbox = Sandbox::new();
    let (read, write) = pipe2(OFlag::O_CLOEXEC).unwrap();
    drop(read);
    let mut command = main_command(&sandbox, &["--debug"], OBEDIENT);
    assert_it_lives(command.stdout(Stdio::null()).stderr(write).spawn().unwrap(), &sandbox);
}

#[test]
fn given_full_disks_behind_stdout_and_stderr_when_it_has_much_to_say_then_it_answers_and_stops() {
    let sandbox = Sandbox::new();
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let mut command = main_command(&sandbox, &["--debug"], OBEDIENT);
    assert_it_lives(command.stdout(full()).stderr(full()).spawn().unwrap(), &sandbox);
}

#[test]
fn given_closed_standard_descriptors_then_it_answers_and_stops_and_writes_into_no_file_of_ours() {
    let sandbox = Sandbox::new();
    let options =
        ["--job-name", "j", "--process-name", "p", "--kill-after", "0.5", "--debug", "--", "sleep", "600"];
    let mut command = sandbox.command_after("exec <&- >&- 2>&-", &options);
    assert_it_lives(command.spawn().unwrap(), &sandbox);
}

#[test]
fn given_a_full_disk_behind_stdout_then_a_command_that_must_print_says_so_and_does_not_panic() {
    let sandbox = Sandbox::new();
    for arguments in [&["install-bpm", "--print"][..], &["list"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let done = sandbox.command().args(arguments).stdout(full).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(done.status.code(), Some(1), "{arguments:?}");
        assert!(text(&done.stderr).starts_with("container-run: cannot write to stdout: "), "{done:?}");
    }
}

#[test]
fn given_no_more_processes_when_start_comes_then_it_is_refused_and_the_supervisor_ends_with_1() {
    if !is_root() {
        return skip("only root can become a user with a limit of his own");
    }
    let sandbox = Sandbox::new();
    fs::set_permissions(sandbox.root(), fs::Permissions::from_mode(0o777)).unwrap();
    let programs = [(BINARY.to_owned(), "container-run"), (probe(), "probe")];
    for (from, to) in programs {
        copy_program(from, sandbox.path(to));
    }
    // A user whom nobody else is.
    let user = 1_000_000 + std::process::id();
    let mut command = sandbox.program("./container-run");
    command.args(["--job-name", "j", "--process-name", "p", "--", "./probe", "exit-on=TERM:0", "wait"]);
    command.current_dir(sandbox.root()).uid(user).gid(user);
    let two_processes = || {
        let limit = libc::rlimit { rlim_cur: 2, rlim_max: 2 };
        // SAFETY: the limit lives through the call.
        match unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: setrlimit(2) may be called between fork and exec.
    unsafe { command.pre_exec(two_processes) };
    let mut supervisor = sandbox.start(command, "j", "p");
    supervisor.wait_for_line("ready");
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    let mut other = as_user(user);
    assert_eq!(
        supervisor.ask("START"),
        "ERR cannot run ./probe: Resource temporarily unavailable (os error 11)"
    );
    assert_eq!(supervisor.exit_code(), 1);
    assert!(supervisor.stderr().contains("cannot run ./probe: "), "{}", supervisor.stderr());
    assert!(!supervisor.pidfile().exists() && !supervisor.sentinel().exists());
    other.kill().unwrap();
    other.wait().unwrap();
}

/// One of the processes that a user may have.
fn as_user(user: u32) -> std::process::Child {
    let mut sleep = Command::new("sleep");
    sleep.arg("600").uid(user).gid(user).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    sleep.spawn().unwrap()
}

#[test]
fn given_few_descriptors_then_it_starts_stops_and_kills_a_tree_or_says_why_not() {
    let tree = "trap '' TERM; (trap '' TERM; sleep 600) & setsid sleep 600 & echo ready; wait; sleep 600";
    let mut lived = 0;
    for most in 4..16 {
        let sandbox = Sandbox::new();
        let options = ["--kill-after", "0.1", "--no-install-bpm"];
        let prelude = format!("ulimit -n {most}");
        let mut supervisor = sandbox.supervise_after(&prelude, &options, &words(&sh(tree)));
        wait_until("it runs or refuses", || supervisor.count("ready") == 1 || !supervisor.is_alive());
        if supervisor.is_alive() {
            assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored", "{most} descriptors");
            supervisor.signal(Signal::TERM);
            assert_eq!(supervisor.exit_code(), 0, "{most} descriptors");
            lived += 1;
        } else {
            assert_eq!(supervisor.exit_code(), 1, "{most} descriptors: {}", supervisor.stderr());
            assert!(supervisor.stderr().contains("open files"), "{}", supervisor.stderr());
        }
        // The sandbox sees that no process and no file is left, either way.
    }
    assert!(lived >= 3, "only {lived} lived");
}

#[test]
fn given_too_few_descriptors_for_those_sent_along_then_the_command_is_refused_or_done_but_none_is_kept() {
    let sandbox = Sandbox::new();
    let supervisor = with_descriptors(&sandbox, 16, &[], OBEDIENT);
    supervisor.wait_for_state("running");
    let before = descriptors(supervisor.pid());
    for _ in 0..200 {
        send_many_descriptors(&supervisor);
    }
    assert!(supervisor.ask("STATUS").starts_with("OK running "));
    assert_eq!(descriptors(supervisor.pid()), before);
}

/// A datagram with more descriptors than the supervisor can take: the kernel cuts them short.
fn send_many_descriptors(supervisor: &Supervisor) {
    use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
    use std::os::fd::AsRawFd;
    let file = File::open("/dev/null").unwrap();
    let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
    let address = UnixAddr::new(&supervisor.socket()).unwrap();
    let rights = [ControlMessage::ScmRights(&[file.as_raw_fd(); 50])];
    let text = [std::io::IoSlice::new(b"STATUS")];
    sendmsg(socket.as_raw_fd(), &text, &rights, MsgFlags::empty(), Some(&address)).unwrap();
}

/// A supervisor with a post-start, whose condition is this shell line, tried all the time.
fn with_condition(sandbox: &Sandbox, condition: &str) -> Supervisor {
    let condition = format!("--post-start-condition-arg={condition}");
    let options = [
        "--debug",
        "--kill-after=600",
        "--post-start-name=true",
        "--post-start-interval=0.05",
        "--post-start-condition-name=sh",
        "--post-start-condition-arg=-c",
        &condition,
    ];
    let main = probe_with("print=TERM exit-on=TERM:0 wait");
    let supervisor = sandbox.supervise_with(&options, &words(&main));
    supervisor.wait_for_line("ready");
    supervisor.wait_for_state("running");
    supervisor
}

#[test]
fn given_no_descriptors_for_post_start_then_that_is_its_failure_and_the_process_is_stopped() {
    let sandbox = Sandbox::new();
    let (begun, go) = (sandbox.path("begun"), sandbox.path("go"));
    // It lasts until there is no descriptor left for what follows it.
    let condition = format!(": >{}; until test -e {}; do sleep 0.01; done", begun.display(), go.display());
    let mut supervisor = with_condition(&sandbox, &condition);
    wait_until("the condition runs", || begun.exists());
    limit_descriptors(supervisor.pid(), 3);
    fs::write(go, "").unwrap();
    assert_eq!(supervisor.exit_code(), 1);
    let said = supervisor.stderr();
    for line in ["/true: Too many open files", "post-start of j/p exited with code 126"] {
        assert!(said.contains(line), "no '{line}' in\n{said}");
    }
    assert_eq!(supervisor.count("TERM"), 1);
}

#[test]
fn given_no_descriptors_for_a_condition_then_that_is_no_failure_and_commands_are_answered() {
    let sandbox = Sandbox::new();
    let mut supervisor = with_condition(&sandbox, "false");
    limit_descriptors(supervisor.pid(), 3);
    let refused = || supervisor.stderr().matches("/sh: Too many open files").count();
    wait_until("it has been tried more than once", || refused() > 1);
    let running = format!("OK running {} monitored", supervisor.main_pid());
    assert_eq!([supervisor.ask("STATUS"), supervisor.ask("START")], [running.clone(), running]);
    limit_descriptors(supervisor.pid(), 1024);
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit_code(), 0);
    assert_eq!(supervisor.count("TERM"), 1);
}

/// Changes what a running process may hold.
fn limit_descriptors(pid: i32, most: u64) {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: 4096 };
    // SAFETY: the new limit lives through the call, and the old one is not asked for.
    let result = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &limit, std::ptr::null_mut()) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn given_an_idle_supervisor_then_it_does_not_wake_and_is_small() {
    let sandbox = Sandbox::new();
    let running = sandbox.supervise_as("j", "running", &[], &words(&probe_with("wait")));
    let ended = sandbox.supervise_as("j", "ended", &[], &words(&probe_with("exit=0")));
    running.wait_for_line("ready");
    ended.wait_for_state("ended");
    assert_eq!(running.state(), "running");
    let figures = |supervisor: &Supervisor| {
        let number = |name| status_number(supervisor.pid(), name);
        (number("voluntary_ctxt_switches"), number("nonvoluntary_ctxt_switches"))
    };
    for supervisor in [&running, &ended] {
        wait_until("it sleeps", || state_of(supervisor.pid()) == Some('S'));
    }
    let before = [figures(&running), figures(&ended)];
    // The one wait that is itself what is tested: two seconds in which nothing happens.
    thread::sleep(Duration::from_secs(2));
    assert_eq!([figures(&running), figures(&ended)], before);
    for supervisor in [&running, &ended] {
        assert_eq!(status_number(supervisor.pid(), "Threads"), 1);
        let rss = status_number(supervisor.pid(), "VmRSS");
        println!("RSS {rss} KiB");
        assert!(status_number(supervisor.pid(), "RssAnon") < 1024, "what is its own");
        // The rest is text, of which a debug build has much, and the kernel maps more or less.
        assert!(rss < 6 * 1024, "{rss} KiB");
    }
}

#[test]
fn given_the_supervisor_is_stopped_during_the_grace_when_it_continues_then_the_stop_goes_on() {
    let sandbox = Sandbox::new();
    let mut supervisor =
        sandbox.supervise_with(&["--kill-after", "0.2"], &words(&probe_with("ignore=TERM wait")));
    supervisor.wait_for_line("ready");
    let main = supervisor.main_pid();
    let waiting = supervisor.send("STOP WAIT");
    assert!(supervisor.ask("STATUS").starts_with("OK stopping "));
    assert!(kill(supervisor.pid(), libc::SIGSTOP));
    wait_until("it stands still", || state_of(supervisor.pid()) == Some('T'));
    let over = std::time::Instant::now() + Duration::from_millis(300);
    wait_until("the grace is over", || std::time::Instant::now() > over);
    assert!(is_alive(main), "nobody was there to kill it");
    assert!(kill(supervisor.pid(), libc::SIGCONT));
    assert_eq!(receive(&waiting), "OK stopped - monitored");
    assert!(supervisor.ask("START").starts_with("OK running "));
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit_code(), 0);
}
