//! What the supervisor says on stderr: nothing, errors, or each event; for people or for programs.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::*;
use container_run::signal::Signal;
use serde_json::{Value, json};

const DEBUG: [&str; 3] = ["--debug", "--kill-after", "5"];
const JSON: [&str; 2] = ["--log-format", "json"];

/// Lets a supervisor with `options` see some of everything, and end. What it said.
fn a_life(sandbox: &Sandbox, options: &[&str]) -> String {
    let process = probe_with("print=USR1,HUP exit-on=USR2:0 exit-on=TERM:0 wait");
    let post_start = ["--post-start-name", "sh", "--post-start-arg=-c", "--post-start-arg=echo post"];
    let condition = ["--post-start-condition-name", "true"];
    let quickly = ["--post-start-interval", "0.01"];
    let mut supervisor =
        sandbox.supervise_with(&[options, &post_start, &condition, &quickly].concat(), &words(&process));
    let pid = supervisor.main_pid();
    supervisor.wait_for_line("ready");
    supervisor.wait_for_line("post");
    supervisor.signal(Signal::HUP);
    supervisor.wait_for_line("HUP");
    for command in ["SIGNAL USR1", "garbage", "OK stopped - monitored", "DETAILS", "UNMONITOR", "MONITOR"] {
        // An answer is never answered: only what comes after it shows that it was read.
        drop(supervisor.send(command));
    }
    supervisor.wait_for_line("USR1");
    supervisor.ask("SIGNAL USR2");
    supervisor.wait_for_state("ended");
    assert!(!is_alive(pid));
    supervisor.ask("START");
    supervisor.ask("STOP WAIT");
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit_code(), 0);
    supervisor.stderr()
}

/// What must be told of that life, whatever the form.
fn assert_complete(said: &str) {
    for told in [
        "got SIGHUP",
        "SIGHUP for the process",
        "got SIGTERM",
        "command SIGNAL SIGUSR1",
        "command DETAILS",
        "command UNMONITOR",
        "command START",
        "command STOP WAIT",
        "refused: unknown command 'garbage'",
        "an answer",
        "answered: OK ended - monitored",
        "the process has PID",
        "exited with code 0",
        "run the condition",
        "run post-start",
        "the tree is gone",
        "pidfile",
        "exit code 0",
    ] {
        assert!(said.contains(told), "'{told}' is not told in:\n{said}");
    }
}

#[test]
fn given_debug_then_each_event_is_a_readable_line_with_a_growing_time() {
    let sandbox = Sandbox::new();
    let said = a_life(&sandbox, &DEBUG);
    assert_complete(&said);
    let mut last = 0.0;
    for line in said.lines() {
        let rest = line.strip_prefix("container-run: [").unwrap_or_else(|| panic!("{line}"));
        let (stamp, message) = rest.split_once("] ").unwrap();
        assert_eq!(stamp.len(), "    0.012345".len(), "{line}");
        let time: f64 = stamp.trim_start().parse().unwrap();
        assert!(time >= last, "{line} after {last}");
        last = time;
        // As Rust shows a value for its programmers.
        assert!(!message.contains(['{', '}', '(', '[']) || message.contains(" (SIGKILL"), "{line}");
        assert!(!message.contains("::") && !message.contains("Some"), "{line}");
    }
}

/// The lines as objects.
#[track_caller]
fn objects(said: &str) -> Vec<Value> {
    said.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[test]
fn given_json_then_each_line_is_an_object_for_log_collectors() {
    let sandbox = Sandbox::new();
    let said = a_life(&sandbox, &[&DEBUG[..], &JSON].concat());
    let objects = objects(&said);
    let messages: Vec<&str> = objects.iter().map(|object| object["message"].as_str().unwrap()).collect();
    assert_complete(&messages.join("\n"));
    let mut last = 0.0;
    for object in &objects {
        assert_eq!(object.as_object().unwrap().len(), 6, "{object}");
        assert_eq!(
            (&object["level"], &object["job"], &object["process"]),
            (&json!("debug"), &json!("j"), &json!("p"))
        );
        let uptime = object["uptime_seconds"].as_f64().unwrap();
        assert!(uptime >= last, "{object} after {last}");
        last = uptime;
        // RFC 3339, in UTC: 2026-01-02T03:04:05.000006Z
        let time = object["time"].as_str().unwrap();
        let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00.000000Z", "{time}");
    }
}

#[test]
fn given_no_debug_then_a_good_life_is_silent_in_both_forms() {
    let sandbox = Sandbox::new();
    for options in [&[][..], &JSON, &["--log-format", "text"]] {
        assert_eq!(a_life(&sandbox, &[&["--kill-after", "5"], options].concat()), "");
    }
}

#[test]
fn given_json_then_errors_and_warnings_have_their_level_and_the_exit_code_is_the_same() {
    let sandbox = Sandbox::new();
    // Where a folder should be made for the bpm script.
    std::fs::write(sandbox.path("jobs"), "").unwrap();
    let mut supervisor = sandbox.supervise_with(&JSON, &["/no/such/program"]);
    assert_eq!(supervisor.exit_code(), 127);
    let said = objects(&supervisor.stderr());
    let levels: Vec<&Value> = said.iter().map(|object| &object["level"]).collect();
    assert_eq!(levels, ["warning", "error"], "{said:?}");
    let message = |index: usize| said[index]["message"].as_str().unwrap();
    assert!(message(0).starts_with("cannot install "), "the level says that it is a warning: {said:?}");
    assert!(message(1).starts_with("cannot run /no/such/program: "), "{said:?}");

    let mut failing =
        sandbox.supervise_with(&[&JSON[..], &["--no-install-bpm"]].concat(), &["sh", "-c", "exit 7"]);
    assert_eq!(failing.exit_code(), 7);
    assert_eq!(objects(&failing.stderr())[0]["message"], "j/p exited with code 7");
}

#[test]
fn given_json_when_another_supervisor_lives_then_that_error_is_json_too() {
    let sandbox = Sandbox::new();
    let first = sandbox.supervise(&["sleep", "600"]);
    first.main_pid();
    let mut second = sandbox.supervise_with(&JSON, &["sleep", "600"]);
    assert_eq!(second.exit_code(), 1);
    let said = objects(&second.stderr());
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0]["message"].as_str().unwrap().contains("another supervisor"), "{said:?}");
}

#[test]
fn given_text_then_a_warning_is_what_it_was() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("jobs"), "").unwrap();
    let supervisor = sandbox.supervise(&["sleep", "600"]);
    supervisor.main_pid();
    let said = supervisor.stderr();
    assert!(said.starts_with("container-run: warning: cannot install "), "{said}");
}

#[test]
fn given_a_message_longer_than_a_pipe_takes_whole_then_it_is_cut_and_still_json() {
    let sandbox = Sandbox::new();
    for (name, options) in [("\"\\é", &JSON[..]), ("\u{1}", &JSON), ("x", &JSON), ("é", &[])] {
        let mut supervisor = sandbox.supervise_with(options, &[&format!("/no/{}", name.repeat(4_000))]);
        assert!([126, 127].contains(&supervisor.exit_code()));
        let said = supervisor.stderr();
        assert!(said.len() <= 4_096 && said.ends_with('\n'), "{} bytes", said.len());
        if !options.is_empty() {
            assert_eq!(objects(&said).len(), 1);
        }
    }
}

#[test]
fn given_names_with_quotes_then_json_has_them_as_they_are() {
    let sandbox = Sandbox::new();
    let (job, process) = ("a\"b\\", "é 'x'");
    let mut supervisor = sandbox.supervise_as(job, process, &JSON, &["sh", "-c", "exit 3"]);
    assert_eq!(supervisor.exit_code(), 3);
    let said = &objects(&supervisor.stderr())[0];
    assert_eq!((&said["job"], &said["process"]), (&json!(job), &json!(process)));
    assert_eq!(said["message"], format!("{job}/{process} exited with code 3"));
}

#[test]
fn given_wrong_usage_then_it_is_text_whatever_the_form() {
    let sandbox = Sandbox::new();
    let own = ["--job-name", "j", "--process-name", "p"];
    for wrong in [&["--log-format", "json", "--bogus", "true"][..], &["--log-format", "yaml", "true"]] {
        let output = sandbox.run(&[&own, wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        complaint(&output);
    }
}

#[test]
fn given_a_stderr_that_takes_nothing_then_json_changes_no_exit_code() {
    let sandbox = Sandbox::new();
    for redirection in ["2>&-", "2>/dev/full", "2>&- >&- <&-"] {
        let script = format!(
            "\"$0\" --job-name j --process-name p --debug --log-format json -- sh -c 'exit 7' {redirection}"
        );
        let output = sandbox.program("sh").args(["-c", &script, BINARY]).output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{script}: {output:?}");
    }
}
