//! The senders that come with the program: `send`, `probe` and `list`.

use std::process::{Output, Stdio};

use super::*;

/// No file of a sender's is left.
fn assert_no_return_address(sandbox: &Sandbox) {
    let of_a_sender = |path: &std::path::PathBuf| path.to_str().unwrap().contains("/.answer-");
    assert_eq!(sandbox.files().into_iter().find(of_a_sender), None);
}

fn send(sandbox: &Sandbox, arguments: &[&str]) -> Output {
    let output = sandbox.run(&[&["send"], arguments].concat());
    assert_no_return_address(sandbox);
    output
}

/// What `send` prints on success.
#[track_caller]
fn sent(sandbox: &Sandbox, arguments: &[&str]) -> String {
    let output = send(sandbox, arguments);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    text(&output.stdout)
}

#[test]
fn given_an_ok_then_send_prints_the_state_and_exits_0() {
    let sandbox = Sandbox::new();
    let supervisor = obedient(&sandbox);
    let pid = supervisor.main_pid();
    for verb in ["STATUS", "START", "SIGNAL USR1", "QUIT", "MONITOR"] {
        assert_eq!(sent(&sandbox, &[verb, "j", "-p", "p"]), format!("running {pid} monitored\n"));
    }
    assert_eq!(sent(&sandbox, &["UNMONITOR", "j", "-p", "p"]), format!("running {pid} unmonitored\n"));
    assert_eq!(sent(&sandbox, &["DRAINED", "j", "--process", "p"]), format!("running {pid} drained\n"));
    assert_eq!(sent(&sandbox, &["STOP", "j", "-pp", "--wait", "20"]), "stopped - drained\n");
}

#[test]
fn given_no_process_name_then_send_and_probe_take_the_jobs() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise_as("x", "x", &[], &["sleep", "600"]);
    supervisor.main_pid();
    assert!(sent(&sandbox, &["STATUS", "x"]).starts_with("running "));
    assert_eq!(sandbox.run(&["probe", "x"]).status.code(), Some(0));
}

#[test]
fn given_a_wait_then_stop_is_answered_when_stopped_and_else_at_once() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise_with(&PATIENT, &words(&probe_with("exit-on=TERM:0:300 wait")));
    supervisor.wait_for_line("ready");
    let pid = supervisor.main_pid();
    assert_eq!(sent(&sandbox, &["STOP", "j", "-p", "p"]), format!("stopping {pid} monitored\n"));
    assert_eq!(sent(&sandbox, &["STOP", "j", "-p", "p", "--wait", "20"]), "stopped - monitored\n");
    assert_eq!(supervisor.count("bye"), 1);
}

#[test]
fn given_an_err_then_send_says_the_reason_and_exits_1() {
    let sandbox = Sandbox::new();
    let supervisor = obedient(&sandbox);
    for (verb, reason) in [("NONSENSE", "NONSENSE"), ("SIGNAL NOPE", "NOPE"), ("stop", "stop"), ("", "empty")]
    {
        let output = send(&sandbox, &[verb, "j", "-p", "p"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(complaint(&output).contains(reason), "{output:?}");
    }
    assert_eq!(supervisor.state(), "running");
}

#[test]
fn given_no_supervisor_then_send_names_the_socket_and_exits_3() {
    let mut sandbox = Sandbox::new();
    sandbox.may_leave_files();
    let socket = sandbox.path("data/j/p_containerrun.sock");
    let check = || {
        let output = send(&sandbox, &["STOP", "j", "-p", "p", "--wait", "20"]);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert!(complaint(&output).contains(socket.to_str().unwrap()), "{output:?}");
        let output = sandbox.run(&["probe", "j", "-p", "p"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(complaint(&output).contains(socket.to_str().unwrap()), "{output:?}");
    };
    check();
    fs::create_dir_all(socket.parent().unwrap()).unwrap();
    check();
    drop(UnixDatagram::bind(&socket).unwrap());
    check();
}

#[test]
fn given_a_supervisor_that_does_not_answer_then_send_gives_up_in_time() {
    let sandbox = Sandbox::new();
    let supervisor = obedient(&sandbox);
    supervisor.freeze();
    for wait in ["0", "0.3"] {
        let output = send(&sandbox, &["STATUS", "j", "-p", "p", "--wait", wait]);
        assert_eq!(output.status.code(), Some(1));
        let said = complaint(&output);
        assert!(said.contains("no answer") && said.contains(supervisor.socket().to_str().unwrap()), "{said}");
    }
    // Until the queue is full, when not even the sending gets through.
    let filler = UnixDatagram::unbound().unwrap();
    filler.connect(supervisor.socket()).unwrap();
    filler.set_nonblocking(true).unwrap();
    while filler.send(b"STATUS").is_ok() {}
    let output = send(&sandbox, &["STATUS", "j", "-p", "p", "--wait", "0.3"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("no answer"));
    supervisor.signal(Signal::CONT);
    assert_eq!(supervisor.state(), "running");
}

#[test]
fn given_a_supervisor_killed_while_a_sender_waits_then_the_sender_notices() {
    let mut sandbox = Sandbox::new();
    sandbox.may_leave_files();
    let mut supervisor = stubborn(&sandbox);
    let mut sender = sandbox.command();
    sender.args(["send", "STOP", "j", "-p", "p", "--wait", "600"]);
    let mut sender = sender.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    supervisor.wait_for_state("stopping");
    supervisor.signal(Signal::KILL);
    supervisor.wait();
    let mut code = None;
    wait_until("the sender ends", || {
        code = sender.try_wait().unwrap();
        code.is_some()
    });
    assert_eq!(code.unwrap().code(), Some(3));
    assert_no_return_address(&sandbox);
}

#[test]
fn given_another_network_namespace_then_send_and_probe_work() {
    if !is_permitted(&["unshare", "-n", "true"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let supervisor = obedient(&sandbox);
    let elsewhere = |arguments: &[&str]| {
        sandbox.program("unshare").args(["-n", BINARY]).args(arguments).output().unwrap()
    };
    let output = elsewhere(&["send", "STOP", "j", "-p", "p", "--wait", "20"]);
    assert_eq!(text(&output.stdout), "stopped - monitored\n", "{output:?}");
    assert_eq!(elsewhere(&["probe", "j", "-p", "p"]).status.code(), Some(0));
    assert_eq!(supervisor.state(), "stopped");
    assert_no_return_address(&sandbox);
}

#[test]
fn given_each_state_and_mode_then_probe_fails_only_what_ended_unasked_and_is_monitored() {
    let sandbox = Sandbox::new();
    let supervisor = stubborn_but_for_usr(&sandbox);
    let probe = |state: &str, code: i32| {
        for verb in ["UNMONITOR", "DRAINED", "MONITOR"] {
            assert!(supervisor.ask(verb).starts_with(&format!("OK {state} ")));
            let output = sandbox.run(&["probe", "j", "-p", "p"]);
            let expected = if verb == "MONITOR" { code } else { 0 };
            assert_eq!(output.status.code(), Some(expected), "{state} after {verb}");
            match expected {
                0 => assert_eq!(text(&output.stderr), ""),
                _ => assert_eq!(complaint(&output), format!("container-run: j/p has {state}")),
            }
            assert_eq!(text(&output.stdout), "");
        }
    };
    probe("running", 0);
    supervisor.ask("STOP");
    probe("stopping", 0);
    supervisor.ask("SIGNAL KILL");
    supervisor.wait_for_state("stopped");
    probe("stopped", 0);
    supervisor.ask("START");
    supervisor.wait_for_lines("ready", 2);
    supervisor.ask("SIGNAL USR1");
    supervisor.wait_for_state("ended");
    probe("ended", 1);
    supervisor.ask("START");
    supervisor.wait_for_lines("ready", 3);
    supervisor.ask("UNMONITOR");
    supervisor.ask("SIGNAL USR2");
    supervisor.wait_for_state("failed");
    probe("failed", 1);
}

/// One whose main process ignores TERM, ends well on USR1 and fails on USR2.
fn stubborn_but_for_usr(sandbox: &Sandbox) -> Supervisor {
    let command = probe_with("ignore=TERM exit-on=USR1:0 exit-on=USR2:3 wait");
    let supervisor = sandbox.supervise_with(&PATIENT, &words(&command));
    supervisor.wait_for_line("ready");
    supervisor
}

#[test]
fn given_a_supervisor_that_does_not_answer_then_probe_says_so() {
    let sandbox = Sandbox::new();
    let supervisor = obedient(&sandbox);
    supervisor.freeze();
    let output = sandbox.run(&["probe", "j", "-p", "p"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("no answer"));
    supervisor.signal(Signal::CONT);
}

#[test]
fn given_processes_in_every_state_then_list_is_a_table_of_them() {
    let sandbox = Sandbox::new();
    let list = || {
        let output = sandbox.run(&["list"]);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
        text(&output.stdout)
    };
    assert_eq!(list(), "Name Pid Status\n");
    let runs = sandbox.supervise_as("b", "b", &[], &["sleep", "600"]);
    let ended = sandbox.supervise_as("b", "ended.long-name", &[], &["true"]);
    let stopped = sandbox.supervise_as("a", "stopped", &[], &["sleep", "600"]);
    fs::create_dir_all(sandbox.path("data/other")).unwrap();
    runs.main_pid();
    ended.wait_for_state("ended");
    stopped.ask("STOP WAIT");
    let pid = runs.main_pid().to_string();
    let rows = [
        ["Name", "Pid", "Status"],
        ["a.stopped", "-", "stopped"],
        ["b", &pid, "running"],
        ["b.ended.long-name", "-", "failed"],
    ];
    let width = pid.len().max(3);
    let expected: String =
        rows.iter().map(|[name, pid, status]| format!("{name:17} {pid:width$} {status}\n")).collect();
    assert_eq!(list(), expected);
}

#[test]
fn given_socket_paths_around_and_beyond_the_longest_address_then_all_works() {
    for length in [106, 107, 108, 109, 250, 400] {
        let sandbox = Sandbox::new();
        let fixed = sandbox.path("data//_containerrun.sock").to_str().unwrap().len();
        let missing = length - fixed;
        // Once it is the process's name that is long, once a folder's.
        let (short, long) = ("x".repeat(missing.saturating_sub(200).max(1)), missing);
        let long = "y".repeat(long - short.len());
        for (job, process) in [(&short, &long), (&long, &short)] {
            let supervisor = sandbox.supervise_as(job, process, &[], &["sleep", "600"]);
            assert_eq!(supervisor.socket().to_str().unwrap().len(), length);
            supervisor.main_pid();
            let arguments = [job, "-p", process];
            assert!(sent(&sandbox, &[&["STATUS"], &arguments[..]].concat()).starts_with("running "));
            assert_eq!(sandbox.run(&[&["probe"], &arguments[..]].concat()).status.code(), Some(0));
            let stop = [&["STOP"], &arguments[..], &["--wait", "20"]].concat();
            assert_eq!(sent(&sandbox, &stop), "stopped - monitored\n");
        }
    }
}

#[test]
fn given_return_addresses_of_killed_senders_when_a_supervisor_starts_then_only_the_dead_go() {
    let mut sandbox = Sandbox::new();
    sandbox.may_leave_files();
    let supervisor = stubborn(&sandbox);
    let folder = sandbox.path("data/j");
    let names = || {
        let entries = fs::read_dir(&folder).unwrap().flatten();
        let mut names: Vec<String> = entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .filter(|name| name.starts_with(".answer-"))
            .collect();
        names.sort();
        names
    };
    // A waiting sender that lives, and one that is killed.
    let start_sender = || {
        let before = names().len();
        let mut sender = sandbox.command();
        sender.args(["send", "STOP", "j", "-p", "p", "--wait", "600"]);
        let sender = sender.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("it waits", || names().len() > before);
        sender
    };
    let mut living = start_sender();
    let of_the_living = names();
    let mut killed = start_sender();
    killed.kill().unwrap();
    killed.wait().unwrap();
    // What looks like one: bound by somebody who lives, and one of them connected to somebody else.
    let bound = UnixDatagram::bind(folder.join(".answer-bound")).unwrap();
    let connected = UnixDatagram::bind(folder.join(".answer-connected")).unwrap();
    connected.connect(folder.join(".answer-bound")).unwrap();
    fs::write(folder.join(".answer-file"), "precious").unwrap();
    let dead = sandbox.path("dead");
    drop(UnixDatagram::bind(&dead).unwrap());
    std::os::unix::fs::symlink(&dead, folder.join(".answer-link")).unwrap();
    drop(UnixDatagram::bind(folder.join("another.sock")).unwrap());

    let other = sandbox.supervise_as("j", "q", &[], &["sleep", "600"]);
    other.main_pid();
    let kept = [".answer-bound", ".answer-connected", ".answer-file", ".answer-link"].map(str::to_owned);
    let mut expected = [&of_the_living[..], &kept].concat();
    expected.sort();
    assert_eq!(names(), expected);
    assert!(folder.join("another.sock").exists() && dead.exists());
    supervisor.ask("SIGNAL KILL");
    assert!(living.wait().unwrap().success(), "it has got its answer");
    drop(bound);
}
