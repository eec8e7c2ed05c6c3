//! The control socket: what it accepts, from whom, and what it answers.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;
#[path = "control/send.rs"]
mod send;

use std::fs::{self, Permissions};
use std::io::IoSlice;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::time::Duration;

use common::*;
use container_run::signal::Signal;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

/// Long enough to be still going on when the test looks.
const PATIENT: [&str; 2] = ["--kill-after", "600"];

/// A user that is neither root nor ours.
const STRANGER: u32 = 12345;

/// One whose main process prints USR1 and QUIT, fails on USR2, ends well on HUP and on TERM.
fn obedient(sandbox: &Sandbox) -> Supervisor {
    let command = probe_with("print=USR1,QUIT exit-on=USR2:3 exit-on=HUP:0 exit-on=TERM:0 wait");
    let supervisor = sandbox.supervise_with(&PATIENT, &words(&command));
    supervisor.wait_for_line("ready");
    // It answers when all that belongs to a start is done.
    supervisor.wait_for_state("running");
    supervisor
}

/// One whose main process ends by nothing but a KILL.
fn stubborn(sandbox: &Sandbox) -> Supervisor {
    let supervisor = sandbox.supervise_with(&PATIENT, &words(&probe_with("ignore=TERM print=USR1 wait")));
    supervisor.wait_for_line("ready");
    supervisor
}

/// Sends without an address to answer to.
fn throw(supervisor: &Supervisor, datagram: &[u8]) {
    UnixDatagram::unbound().unwrap().send_to(datagram, supervisor.socket()).unwrap();
}

#[test]
fn given_white_space_around_a_command_then_it_is_carried_out() {
    for (before, after) in [("", ""), ("", "\n"), ("", "\r\n"), (" ", "  "), ("\t\n", " \t")] {
        let sandbox = Sandbox::new();
        let supervisor = obedient(&sandbox);
        let ask = |command: &str| supervisor.ask(&format!("{before}{command}{after}"));
        assert!(ask("QUIT").starts_with("OK running "));
        supervisor.wait_for_line("QUIT");
        assert!(ask("STOP").starts_with("OK stopping "));
        assert_eq!(ask("STOP WAIT"), "OK stopped - monitored");
        assert!(ask("START").starts_with("OK running "));
    }
}

#[test]
fn given_anything_malformed_then_it_is_refused_and_changes_nothing() {
    let sandbox = Sandbox::new();
    let supervisor = obedient(&sandbox);
    let before = supervisor.ask("STATUS");
    let padded = format!("{:257}", "STOP").into_bytes();
    let long = vec![b'S'; 64 * 1024];
    let padded_long = [b"STOP".to_vec(), vec![b' '; 64 * 1024]].concat();
    let malformed: [&[u8]; 25] = [
        b"",
        b" \r\n",
        b"stop",
        b"Stop",
        b"STOPX",
        b"STOP START",
        b"STOP  WAIT",
        b"STOP NOW",
        b"STOP WAIT 5",
        b"STOP\nSTART",
        b"STOP\0",
        b"\0STOP",
        b"\0\0\0\0",
        b"\xff\xfeSTOP",
        "ＳＴＯＰ".as_bytes(),
        "STOP\u{a0}".as_bytes(),
        b"SIGNAL",
        b"SIGNAL NOPE",
        b"SIGNAL TERM TERM",
        b"SIGNAL 0",
        b"SIGNAL -9",
        b"KILL",
        &padded,
        &long,
        &padded_long,
    ];
    for datagram in malformed {
        throw(&supervisor, datagram);
        let answer = supervisor.ask_bytes(datagram);
        assert!(answer.starts_with("ERR ") && answer.len() > 8, "{answer}");
        assert!(!answer.contains(['\n', '\0']), "{answer:?}");
    }
    assert_eq!(supervisor.ask("STATUS"), before);
    assert_eq!(supervisor.stderr(), "");
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
}

#[test]
fn given_256_bytes_then_they_are_a_command_and_257_are_not() {
    let sandbox = Sandbox::new();
    let supervisor = obedient(&sandbox);
    assert!(supervisor.ask(&format!("{:257}", "UNMONITOR")).starts_with("ERR "));
    assert!(supervisor.ask(&format!("{:256}", "STATUS")).ends_with(" monitored"));
    assert!(supervisor.ask(&format!("{:>256}", "UNMONITOR")).ends_with(" unmonitored"));
}

#[test]
fn given_datagrams_back_to_back_then_they_are_carried_out_in_their_order() {
    let sandbox = Sandbox::new();
    let supervisor = obedient(&sandbox);
    let modes = [("UNMONITOR", "unmonitored"), ("DRAINED", "drained"), ("MONITOR", "monitored")];
    let socket = supervisor.send("UNMONITOR");
    for (verb, _) in modes.iter().cycle().skip(1).take(9) {
        socket.send(verb.as_bytes()).unwrap();
    }
    for (verb, mode) in modes.iter().cycle().take(10) {
        assert!(receive(&socket).ends_with(&format!(" {mode}")), "{verb}");
    }
    for _ in 0..10 {
        throw(&supervisor, b"QUIT");
    }
    supervisor.wait_for_line("QUIT");
    assert_eq!(supervisor.state(), "running");
}

#[test]
fn given_a_grace_period_then_commands_are_still_carried_out() {
    let sandbox = Sandbox::new();
    let supervisor = stubborn(&sandbox);
    let pid = supervisor.main_pid();
    assert_eq!(supervisor.ask("STOP"), format!("OK stopping {pid} monitored"));
    let stopped = supervisor.send("STOP WAIT");
    assert_eq!(supervisor.ask("SIGNAL USR1"), format!("OK stopping {pid} monitored"));
    supervisor.wait_for_line("USR1");
    assert_eq!(supervisor.ask("UNMONITOR"), format!("OK stopping {pid} unmonitored"));
    assert_eq!(supervisor.ask("SIGNAL KILL"), format!("OK stopping {pid} unmonitored"));
    assert_eq!(receive(&stopped), "OK stopped - unmonitored");
}

#[test]
fn given_a_thousand_commands_then_socket_and_descriptors_stay_the_same() {
    let sandbox = Sandbox::new();
    let supervisor = obedient(&sandbox);
    let inode = || fs::metadata(supervisor.socket()).unwrap().ino();
    let (before, opened) = (inode(), descriptors(supervisor.pid()));
    for round in 0..1000 {
        let command = ["STATUS", "nonsense", "UNMONITOR", "SIGNAL USR1", "MONITOR", "START"][round % 6];
        assert_eq!(supervisor.ask(command).starts_with("ERR"), command == "nonsense");
        assert_eq!(inode(), before);
    }
    assert_eq!(descriptors(supervisor.pid()), opened);
}

#[test]
fn given_senders_with_every_kind_of_address_then_each_that_has_one_is_answered_at_it() {
    let sandbox = Sandbox::new();
    let supervisor = obedient(&sandbox);
    assert!(supervisor.ask("STATUS").starts_with("OK running"));

    let name = format!("container-run-test-{}", std::process::id());
    let in_a_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
    in_a_name.send_to(b"STATUS", supervisor.socket()).unwrap();
    assert!(receive(&in_a_name).starts_with("OK running"));

    let at_a_path = UnixDatagram::bind(sandbox.path("answers")).unwrap();
    at_a_path.send_to(b"STATUS", supervisor.socket()).unwrap();
    assert!(receive(&at_a_path).starts_with("OK running"));

    throw(&supervisor, b"STOP");
    supervisor.wait_for_state("stopped");
}

#[test]
fn given_a_sender_that_is_gone_or_never_reads_then_the_others_are_answered() {
    let sandbox = Sandbox::new();
    let supervisor = obedient(&sandbox);
    drop(supervisor.send("STATUS"));
    let deaf = supervisor.send("STATUS");
    for _ in 0..50 {
        deaf.send(b"STATUS").unwrap();
    }
    assert!(supervisor.ask("STATUS").starts_with("OK running"));
}

#[test]
fn given_descriptors_sent_along_then_none_is_kept() {
    let sandbox = Sandbox::new();
    let supervisor = obedient(&sandbox);
    let before = descriptors(supervisor.pid());
    let socket = supervisor.send("STATUS");
    receive(&socket);
    let passed = vec![socket.as_raw_fd(); 200];
    for _ in 0..20 {
        let text = [IoSlice::new(b"STATUS")];
        let control = [ControlMessage::ScmRights(&passed)];
        sendmsg::<()>(socket.as_raw_fd(), &text, &control, MsgFlags::empty(), None).unwrap();
        assert!(receive(&socket).starts_with("OK running"));
    }
    assert_eq!(descriptors(supervisor.pid()), before);
}

#[test]
fn given_another_user_then_he_may_not_send_and_where_he_may_he_is_ignored() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let supervisor = obedient(&sandbox);
    fs::set_permissions(sandbox.root(), Permissions::from_mode(0o755)).unwrap();
    copy_program(BINARY, sandbox.path("container-run"));
    let stranger_stops = || {
        let mut send = sandbox.program(sandbox.path("container-run").to_str().unwrap());
        send.args(["send", "STOP", "j", "-p", "p", "--wait", "0.3"]).uid(STRANGER).gid(STRANGER);
        let output = send.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        complaint(&output)
    };
    assert!(stranger_stops().contains("Permission denied"));
    fs::set_permissions(supervisor.socket(), Permissions::from_mode(0o666)).unwrap();
    assert!(stranger_stops().contains("no answer"));
    assert!(supervisor.ask("STATUS").starts_with("OK running"));
}

#[test]
fn given_a_supervisor_of_another_user_then_root_and_that_user_command_it() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::new();
    chown(sandbox.root(), Some(STRANGER), Some(STRANGER)).unwrap();
    copy_program(BINARY, sandbox.path("container-run"));
    let program = || {
        let mut command = sandbox.program(sandbox.path("container-run").to_str().unwrap());
        command.uid(STRANGER).gid(STRANGER);
        command
    };
    let mut command = program();
    command.args(["--job-name", "j", "--process-name", "p", "sleep", "600"]);
    let supervisor = sandbox.start(command, "j", "p");
    supervisor.main_pid();
    assert!(supervisor.ask("UNMONITOR").ends_with(" unmonitored"));
    for mut sender in [program(), sandbox.command()] {
        let output = sender.args(["send", "STATUS", "j", "-p", "p"]).output().unwrap();
        assert!(text(&output.stdout).starts_with("running "), "{output:?}");
    }
}

#[test]
fn given_each_state_then_the_answer_names_it_and_the_pid_that_it_has() {
    let sandbox = Sandbox::new();
    let supervisor = obedient(&sandbox);
    let pid = supervisor.main_pid();
    for command in ["STATUS", "START", "MONITOR", "SIGNAL SIGUSR1", "SIGNAL USR1"] {
        assert_eq!(supervisor.ask(command), format!("OK running {pid} monitored"));
    }
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    for command in ["STATUS", "STOP", "STOP WAIT", "QUIT", "MONITOR"] {
        assert_eq!(supervisor.ask(command), "OK stopped - monitored", "{command}");
    }
    assert!(supervisor.ask("SIGNAL USR1").starts_with("ERR "));
    let started = supervisor.ask("START");
    let pid = supervisor.main_pid();
    assert_eq!(started, format!("OK running {pid} monitored"));
    supervisor.wait_for_lines("ready", 2);
    supervisor.ask("SIGNAL HUP");
    supervisor.wait_for_state("ended");
    assert_eq!(supervisor.ask("STATUS"), "OK ended - monitored");
    assert_eq!(supervisor.ask("STOP"), "OK stopped - monitored");
}

#[test]
fn given_a_main_process_that_fails_unmonitored_or_drained_then_the_supervisor_stays() {
    for (verb, mode) in [("UNMONITOR", "unmonitored"), ("DRAINED", "drained")] {
        let sandbox = Sandbox::new();
        let supervisor = obedient(&sandbox);
        assert!(supervisor.ask(verb).ends_with(mode));
        supervisor.ask("SIGNAL USR2");
        supervisor.wait_for_state("failed");
        assert_eq!(supervisor.ask("STATUS"), format!("OK failed - {mode}"));
        assert_eq!(supervisor.stderr(), "container-run: j/p exited with code 3\n");
        supervisor.wait_until_down();
        assert_eq!(supervisor.ask("STOP WAIT"), format!("OK stopped - {mode}"));
        assert!(supervisor.ask("START").starts_with("OK running "));
    }
}

#[test]
fn given_a_main_process_that_fails_monitored_again_then_the_supervisor_ends() {
    let sandbox = Sandbox::new();
    let mut supervisor = obedient(&sandbox);
    supervisor.ask("DRAINED");
    supervisor.ask("MONITOR");
    supervisor.ask("SIGNAL USR2");
    assert_eq!(supervisor.exit_code(), 3);
}

#[test]
fn given_the_socket_or_its_folder_is_removed_then_the_supervisor_lives_and_ends_on_term() {
    for removed in ["data/j/p_containerrun.sock", "data/j"] {
        let sandbox = Sandbox::new();
        let mut supervisor = obedient(&sandbox);
        let pid = supervisor.main_pid();
        let path = sandbox.path(removed);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        stays_true("both live", Duration::from_millis(100), || supervisor.is_alive() && is_alive(pid));
        supervisor.signal(Signal::TERM);
        assert_eq!(supervisor.exit_code(), 0);
        assert_eq!(supervisor.stderr(), "");
    }
}

#[test]
fn given_more_senders_than_may_wait_then_the_first_are_answered_and_the_rest_refused() {
    let sandbox = Sandbox::new();
    let supervisor = stubborn(&sandbox);
    let first = supervisor.send("STOP WAIT");
    let many = supervisor.send("STOP WAIT");
    for _ in 0..1200 {
        many.send(b"STOP WAIT").unwrap();
    }
    assert!(receive(&many).starts_with("ERR "));
    assert!(supervisor.ask("STATUS").starts_with("OK stopping "));
    supervisor.ask("SIGNAL KILL");
    assert_eq!(receive(&first), "OK stopped - monitored");
}

#[test]
fn given_a_flood_of_nonsense_then_a_command_is_carried_out_and_nothing_is_said() {
    let sandbox = Sandbox::new();
    let supervisor = obedient(&sandbox);
    for _ in 0..20_000 {
        throw(&supervisor, b"nonsense");
    }
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    assert_eq!(supervisor.stderr(), "");
}

#[test]
fn given_a_main_process_that_looks_at_once_then_the_socket_is_there() {
    let sandbox = Sandbox::new();
    let look = "test -S $BPM_BOSH_ROOT/data/j/p_containerrun.sock && echo there; exec sleep 600";
    sandbox.supervise(&words(&sh(look))).wait_for_line("there");
}

#[test]
fn given_a_command_sent_as_soon_as_the_socket_is_there_then_it_is_carried_out() {
    let sandbox = Sandbox::new();
    for round in 0..20 {
        let supervisor = sandbox.supervise_as(&format!("j{round}"), "p", &[], &["sleep", "600"]);
        let socket = UnixDatagram::unbound().unwrap();
        while socket.connect(supervisor.socket()).is_err() {
            std::hint::spin_loop();
        }
        socket.send(b"STOP").unwrap();
        supervisor.wait_for_state("stopped");
        assert!(!supervisor.pidfile().exists() && !supervisor.sentinel().exists());
    }
}
