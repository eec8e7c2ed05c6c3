//! `container-run status`: what people and programs are told about all processes.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::process::Output;
use std::time::Instant;

use common::*;
use nix::libc;
use serde_json::{Value, json};

/// Runs `status`; its exit code, and each line of its table without the headings, as words.
fn table(sandbox: &Sandbox, arguments: &[&str]) -> (i32, Vec<Vec<String>>) {
    let output = sandbox.run(&[&["status"], arguments].concat());
    let stdout = text(&output.stdout);
    let mut lines = stdout.lines();
    // Cells hold single blanks; between columns there are at least two.
    let cells = |line: &str| -> Vec<String> {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    let headings = lines.next().map(cells).unwrap_or_else(|| panic!("{output:?}"));
    assert_eq!(headings, ["PROCESS", "STATE", "MODE", "PID", "SINCE", "LAST EXIT", "RESTARTS"]);
    (output.status.code().unwrap(), lines.map(cells).collect())
}

/// The rows without their times.
#[track_caller]
fn rows(sandbox: &Sandbox, arguments: &[&str], code: i32) -> Vec<String> {
    let (found, rows) = table(sandbox, arguments);
    assert_eq!(found, code, "{rows:?}");
    let without_time = |mut row: Vec<String>| {
        row.remove(4);
        row.join(" ")
    };
    rows.into_iter().map(without_time).collect()
}

/// What `status --json` prints, and its exit code.
#[track_caller]
fn parsed(output: &Output) -> Vec<Value> {
    let stdout = text(&output.stdout);
    match serde_json::from_str(&stdout) {
        Ok(Value::Array(objects)) => objects,
        other => panic!("{other:?}: {stdout}"),
    }
}

#[track_caller]
fn objects(sandbox: &Sandbox, arguments: &[&str], code: i32) -> Vec<Value> {
    let output = sandbox.run(&[&["status", "--json"], arguments].concat());
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    parsed(&output)
}

#[test]
fn given_processes_of_several_jobs_then_the_table_has_all_those_of_a_job_or_one() {
    let sandbox = Sandbox::new();
    let pid = |job, process| sandbox.supervise_as(job, process, &[], &["sleep", "600"]).main_pid();
    let (web, worker, db) = (pid("web", "web"), pid("web", "worker"), pid("db", "db"));
    let row = |name: &str, pid: i32| format!("{name} running monitored {pid} - 0");
    let (web, worker, db) = (row("web", web), row("web.worker", worker), row("db", db));
    assert_eq!(rows(&sandbox, &[], 0), [db.clone(), web.clone(), worker.clone()]);
    assert_eq!(rows(&sandbox, &["web"], 0), [web.clone(), worker.clone()]);
    assert_eq!(rows(&sandbox, &["web", "-p", "worker"], 0), [worker]);
    assert_eq!(rows(&sandbox, &["web", "--process=web"], 0), [web]);
    assert_eq!(rows(&sandbox, &["db"], 0), [db]);
}

#[test]
fn given_no_supervisor_then_the_table_is_empty_and_a_job_that_is_asked_for_is_3() {
    let sandbox = Sandbox::new();
    assert_eq!(rows(&sandbox, &[], 0), Vec::<String>::new());
    assert_eq!(objects(&sandbox, &[], 0), Vec::<Value>::new());
    for arguments in [&["nosuch"][..], &["nosuch", "-p", "x"], &["nosuch", "--json"]] {
        let output = sandbox.run(&[&["status"], arguments].concat());
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let said = complaint(&output);
        assert!(said.contains("no supervisor") && said.contains("nosuch"), "{said}");
    }
    assert!(!sandbox.path("data").exists());
}

#[test]
fn given_wrong_usage_then_it_is_2() {
    let sandbox = Sandbox::new();
    for arguments in [&["-p", "x"][..], &["a", "b"], &["a/b"], &["--jsno"], &["a", "-p", ".."]] {
        let output = sandbox.run(&[&["status"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        complaint(&output);
    }
}

#[test]
fn given_ends_and_starts_then_last_exit_and_restarts_tell_of_them() {
    let sandbox = Sandbox::new();
    let supervisor =
        sandbox.supervise(&words(&probe_with("exit-on=USR1:0 exit-on=USR2:7 exit-on=TERM:0 wait")));
    let is = |state: &str, pid: &str, last: &str, restarts: u32| {
        let row = format!("j.p {state} monitored {pid} {last} {restarts}");
        assert_eq!(rows(&sandbox, &["j"], 0), [row]);
    };
    let start = || assert!(supervisor.ask("START").starts_with("OK running"));
    is("running", &supervisor.main_pid().to_string(), "-", 0);
    supervisor.wait_for_line("ready");
    supervisor.ask("SIGNAL USR1");
    supervisor.wait_for_state("ended");
    is("ended", "-", "code 0", 0);
    start();
    is("running", &supervisor.main_pid().to_string(), "code 0", 1);
    supervisor.ask("SIGNAL KILL");
    supervisor.wait_for_state("stopped");
    is("stopped", "-", "SIGKILL", 1);
    start();
    supervisor.ask("STOP WAIT");
    assert_eq!(rows(&sandbox, &["j"], 0).len(), 1);
    start();
    is_restarted(&sandbox, 3);
}

#[track_caller]
fn is_restarted(sandbox: &Sandbox, times: u32) {
    assert_eq!(objects(sandbox, &[], 0)[0]["restarts"], json!(times));
}

#[test]
fn given_a_failure_while_unmonitored_then_state_mode_and_last_exit_say_so() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&words(&probe_with("exit-on=USR2:7 wait")));
    supervisor.wait_for_line("ready");
    supervisor.ask("UNMONITOR");
    supervisor.ask("SIGNAL USR2");
    supervisor.wait_for_state("failed");
    assert_eq!(rows(&sandbox, &[], 0), ["j.p failed unmonitored - code 7 0"]);
    assert_eq!(
        objects(&sandbox, &[], 0)[0]["last_exit"],
        json!({"code": 7, "signal": null}),
        "for programs it is a number"
    );
}

#[test]
fn given_a_new_state_then_since_counts_from_it_and_not_from_commands() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&["sleep", "600"]);
    supervisor.main_pid();
    let since = || objects(&sandbox, &[], 0)[0]["since_seconds"].as_f64().unwrap();
    wait_until("it is some time that it runs", || since() > 0.3);
    for command in ["START", "STATUS", "SIGNAL CONT", "UNMONITOR", "DETAILS"] {
        supervisor.ask(command);
    }
    let running = since();
    assert!(running > 0.3, "nothing has changed the state: {running}");
    let before = Instant::now();
    supervisor.ask("STOP WAIT");
    supervisor.ask("START");
    let anew = since();
    assert!(anew <= before.elapsed().as_secs_f64(), "it counts anew: {anew}");
    let (_, table) = table(&sandbox, &[]);
    assert!(table[0][4].ends_with('s'), "{table:?}");
}

#[test]
fn given_a_supervisor_that_hangs_then_the_others_are_shown_and_it_is_1() {
    let sandbox = Sandbox::new();
    let web = sandbox.supervise_as("web", "web", &[], &["sleep", "600"]);
    let frozen = sandbox.supervise_as("frozen", "frozen", &[], &["sleep", "600"]);
    let pid = web.main_pid();
    frozen.main_pid();
    kill(frozen.pid(), libc::SIGSTOP);
    wait_until("it is stopped", || state_of(frozen.pid()) == Some('T'));
    let output = sandbox.run(&["status"]);
    let json = sandbox.run(&["status", "--json", "frozen"]);
    kill(frozen.pid(), libc::SIGCONT);

    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stdout = text(&output.stdout);
    assert!(stdout.contains("\nfrozen   no answer  -"), "{stdout}");
    assert!(stdout.contains(&format!("\nweb      running    monitored  {pid}  ")), "{stdout}");
    assert!(text(&output.stderr).starts_with("container-run: no answer from "), "{output:?}");
    assert_eq!(json.status.code(), Some(1));
    let object = &parsed(&json)[0];
    assert_eq!((&object["state"], &object["pid"]), (&json!("no answer"), &Value::Null), "{object}");
}

#[test]
fn given_a_supervisor_that_was_killed_then_it_is_dead_and_asked_for_alone_it_is_3() {
    let mut sandbox = Sandbox::new();
    sandbox.may_leave_files();
    let mut dead = sandbox.supervise_as("dead", "dead", &[], &["sleep", "600"]);
    let main = dead.main_pid();
    kill(dead.pid(), libc::SIGKILL);
    dead.wait();
    wait_until("its process is gone", || !is_alive(main));
    let (code, table) = table(&sandbox, &[]);
    assert_eq!(
        (code, table),
        (0, vec![["dead", "dead", "-", "-", "-", "-", "-"].map(str::to_owned).to_vec()])
    );
    assert_eq!(objects(&sandbox, &[], 0)[0]["state"], json!("dead"));
    let output = sandbox.run(&["status", "dead"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(complaint(&output).contains("no supervisor"));
}

#[test]
fn given_an_older_supervisor_that_does_not_know_the_verb_then_what_it_knows_is_shown() {
    let mut sandbox = Sandbox::new();
    sandbox.may_leave_files();
    std::fs::create_dir_all(sandbox.path("data/old")).unwrap();
    let path = sandbox.path("data/old/old_containerrun.sock");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let child = std::thread::scope(|scope| {
        let answers = scope.spawn(|| {
            for expected in ["DETAILS", "STATUS"] {
                let mut datagram = [0; 256];
                let (length, sender) = socket.recv_from(&mut datagram).unwrap();
                assert_eq!(&datagram[..length], expected.as_bytes());
                let answer = if expected == "STATUS" {
                    "OK running 7 drained"
                } else {
                    "ERR unknown command 'DETAILS'"
                };
                socket.send_to(answer.as_bytes(), sender.as_pathname().unwrap()).unwrap();
            }
        });
        let output = sandbox.run(&["status", "--json"]);
        answers.join().unwrap();
        output
    });
    assert_eq!(child.status.code(), Some(0), "{child:?}");
    let expected = json!({
        "job": "old", "process": "old", "state": "running", "mode": "drained", "pid": 7,
        "since_seconds": null, "last_exit": null, "restarts": null,
    });
    assert_eq!(parsed(&child), [expected]);
}

#[test]
fn given_names_that_json_must_escape_then_they_come_back_as_they_are() {
    let sandbox = Sandbox::new();
    let names = ["a\"b", "a\\b", "\\u0041", "é日本", "it's", " ", "{}", "<b>", "a b  c"];
    for name in names {
        sandbox.supervise_as(name, name, &[], &["sleep", "600"]).main_pid();
    }
    let found = objects(&sandbox, &[], 0);
    let mut jobs: Vec<&str> = found.iter().map(|object| object["job"].as_str().unwrap()).collect();
    let mut expected = names.to_vec();
    jobs.sort_unstable();
    expected.sort_unstable();
    assert_eq!(jobs, expected);
    for object in found {
        assert_eq!(object["job"], object["process"]);
        let keys: Vec<&String> = object.as_object().unwrap().keys().collect();
        assert_eq!(keys.len(), 8, "{keys:?}");
    }
}

#[test]
fn given_details_then_send_prints_them_and_status_stays_what_it_was() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&["sleep", "600"]);
    let pid = supervisor.main_pid();
    assert_eq!(supervisor.ask("STATUS"), format!("OK running {pid} monitored"));
    let answer = supervisor.ask("DETAILS");
    let words: Vec<&str> = answer.split(' ').collect();
    assert_eq!(words[..4], ["OK", "running", &pid.to_string(), "monitored"], "{answer}");
    assert!(words[4].parse::<f64>().unwrap() >= 0.0, "{answer}");
    assert_eq!(words[5..], ["-", "0"], "{answer}");
    let output = sandbox.run(&["send", "DETAILS", "j", "-p", "p"]);
    assert!(text(&output.stdout).starts_with(&format!("running {pid} monitored ")), "{output:?}");
    assert!(supervisor.ask("DETAILS NOW").starts_with("ERR unknown command"));
}

#[test]
fn given_a_full_disk_behind_stdout_then_it_says_so_and_does_not_panic() {
    let sandbox = Sandbox::new();
    for option in [&[][..], &["--json"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = sandbox.command();
        command.arg("status").args(option).stdout(full).stderr(std::process::Stdio::piped());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).starts_with("container-run: cannot write to stdout: "), "{output:?}");
    }
}
