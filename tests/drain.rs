//! The drain hook: the agent's protocol, the order of a pod that goes down, and what it must not
//! touch when only one container restarts.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;
use common::*;
use container_run::signal::Signal;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Child, Output, Stdio};

/// Writes one of a job's scripts. `$JOURNAL` in it is a file that keeps the order of things.
fn script(sandbox: &Sandbox, job: &str, name: &str, text: &str) {
    let path = sandbox.path(&format!("jobs/{job}/bin/{name}"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let journal = sandbox.path("journal");
    write_program(path, format!("#!/bin/sh\n{}\n", text.replace("$JOURNAL", journal.to_str().unwrap())));
}

/// A process that writes into the journal when it is told to end.
fn supervise_journalling(sandbox: &Sandbox, job: &str, process: &str) -> Supervisor {
    let journal = sandbox.path("journal");
    let trap = format!("trap 'echo TERM {process} >>{}; exit 0' TERM", journal.display());
    let main = sh(&format!("{trap}; echo ready; while :; do sleep 0.02; done"));
    let supervisor = sandbox.supervise_as(job, process, &[], &words(&main));
    supervisor.wait_for_line("ready");
    supervisor
}

fn journal(sandbox: &Sandbox) -> Vec<String> {
    let text = fs::read_to_string(sandbox.path("journal")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn drain(sandbox: &Sandbox, arguments: &[&str]) -> Output {
    sandbox.command().arg("drain").args(arguments).output().unwrap()
}

fn start_drain(sandbox: &Sandbox, arguments: &[&str]) -> Child {
    sandbox.command().arg("drain").args(arguments).stderr(Stdio::piped()).spawn().unwrap()
}

fn mode(supervisor: &Supervisor) -> String {
    mode_after(supervisor, "STATUS")
}

fn mode_after(supervisor: &Supervisor, command: &str) -> String {
    supervisor.ask(command).rsplit(' ').next().unwrap().to_owned()
}

/// Fills the queue of one that does not receive, so that nobody can send to it.
fn fill_queue(supervisor: &Supervisor) {
    let sender = UnixDatagram::unbound().unwrap();
    sender.connect(supervisor.socket()).unwrap();
    sender.set_nonblocking(true).unwrap();
    while sender.send(b"STATUS").is_ok() {}
}

#[test]
fn given_any_answer_of_a_drain_script_then_it_is_read_as_the_agent_reads_it() {
    let good = [
        ("printf 1", "5"),
        ("printf +1", ""),
        ("printf 01", ""),
        (r"printf ' 0 \t\n\n'", ""),
        ("printf 0", ""),
        ("printf -- -0", ""),
        ("echo 0; exit 1", ""),
        ("echo 0; exit 255", ""),
        ("echo 0; kill -TERM $$", ""),
    ];
    let bad = [
        (":", ""),
        ("printf foo", "foo"),
        (r"printf 'foo\n0'", "foo"),
        ("printf 5.5", "5.5"),
        ("printf 5s", "5s"),
        ("printf 0x10", "0x10"),
        ("echo 0; echo 0", "0"),
        ("exit 3", ""),
    ];
    for (code, cases) in [(0, &good[..]), (1, &bad[..])] {
        for (text, shown) in cases {
            let sandbox = Sandbox::new();
            script(&sandbox, "j", "drain", text);
            script(&sandbox, "j", "post-stop", "echo post-stop >>$JOURNAL");
            let output = drain(&sandbox, &["j"]);
            let said = common::text(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{text}: {said}");
            assert_eq!(journal(&sandbox), ["post-stop"], "{text}: the steps after it still happen");
            if code == 1 {
                assert!(said.contains(&format!("drain of j printed '{shown}' and no integer")), "{said}");
            }
        }
    }
}

#[test]
fn given_a_drain_script_that_cannot_be_executed_then_that_is_a_failure() {
    let sandbox = Sandbox::new();
    script(&sandbox, "j", "drain", "echo 0");
    fs::write(sandbox.path("jobs/j/bin/drain"), "echo 0\n").unwrap();
    let output = drain(&sandbox, &["j"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("cannot run"),
        "a text without #! is no program, as under the agent"
    );
}

#[test]
fn given_a_drain_script_then_it_has_what_the_agent_gives_it() {
    let sandbox = Sandbox::new();
    script(
        &sandbox,
        "j",
        "drain",
        "{ echo \"$*|$PATH|$BOSH_JOB_STATE|${BOSH_JOB_NEXT_STATE-unset}|$INHERITED\"; readlink /proc/self/fd/0; \
         ps -o pgid= -p $$ | tr -d ' '; echo $$; } >>$JOURNAL
         [ \"$1\" = job_shutdown ] && echo -1 || echo 0",
    );
    let output = sandbox.command().args(["drain", "j"]).env("INHERITED", "yes").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let state = r#"{"persistent_disk":0}"#;
    let path = "/usr/sbin:/usr/bin:/sbin:/bin";
    let lines = journal(&sandbox);
    assert_eq!(lines[0], format!("job_shutdown hash_unchanged|{path}|{state}|{state}|yes"));
    assert_eq!(lines[1], "/dev/null");
    assert_eq!(lines[2], lines[3], "a process group of its own");
    assert_eq!(lines[4], format!("job_check_status hash_unchanged|{path}|{state}|unset|yes"));
    assert_eq!(lines.len(), 8);
}

#[test]
fn given_a_job_with_all_scripts_then_the_steps_come_in_the_agents_order() {
    let sandbox = Sandbox::new();
    let mut supervisor = supervise_journalling(&sandbox, "j", "j");
    let states = "$BOSH_VM_NEXT_STATE $BOSH_INSTANCE_NEXT_STATE $BOSH_DEPLOYMENT_NEXT_STATE";
    script(
        &sandbox,
        "j",
        "pre-stop",
        &format!("echo pre-stop $# {states} >>$JOURNAL; echo out; echo err >&2"),
    );
    script(&sandbox, "j", "drain", "echo drain >>$JOURNAL; echo 0");
    script(&sandbox, "j", "post-stop", "echo post-stop >>$JOURNAL");
    let output = drain(&sandbox, &["j"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(journal(&sandbox), ["pre-stop 0 keep keep keep", "drain", "TERM j", "post-stop"]);
    assert_eq!(supervisor.ask("STATUS"), "OK stopped - drained");
    assert!(supervisor.is_alive());

    let log = |name: &str| fs::read_to_string(sandbox.path(&format!("sys/log/j/{name}"))).unwrap();
    assert_eq!((log("pre-stop.stdout.log"), log("pre-stop.stderr.log")), ("out\n".into(), "err\n".into()));
    let said = log("container-run-drain.log");
    for line in said.lines() {
        let stamp: Vec<char> = line.chars().take(20).collect();
        assert!(stamp[4] == '-' && stamp[10] == 'T' && stamp[19] == 'Z', "{line}");
    }
    assert!(said.trim_end().ends_with("drain of j/j: done"), "{said}");
}

#[test]
fn given_a_job_without_scripts_or_supervisor_then_there_is_nothing_to_do() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.path("jobs/j")).unwrap();
    assert!(drain(&sandbox, &["j"]).status.success());
}

#[test]
fn given_scripts_that_fail_then_the_exit_code_is_1_and_the_rest_still_happens() {
    let sandbox = Sandbox::new();
    script(&sandbox, "j", "pre-stop", "exit 3");
    script(&sandbox, "j", "drain", "echo drain >>$JOURNAL; echo 0");
    let output = drain(&sandbox, &["j"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(journal(&sandbox), ["drain"]);
    assert!(
        text(&output.stderr).contains("pre-stop of j failed: exit status: 3"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn given_a_background_child_that_keeps_stdout_then_the_drain_waits_for_it() {
    let sandbox = Sandbox::new();
    script(&sandbox, "j", "drain", "(sleep 0.5; echo child >>$JOURNAL; echo 0) & exit 0");
    script(&sandbox, "j", "post-stop", "echo post-stop >>$JOURNAL");
    assert!(drain(&sandbox, &["j"]).status.success());
    assert_eq!(journal(&sandbox), ["child", "post-stop"]);
}

#[test]
fn given_a_drain_that_kills_the_process_it_drains_then_container_and_hook_live_on() {
    let sandbox = Sandbox::new();
    let mut supervisor = sandbox.supervise_as("j", "j", &[], &["sleep", "1000"]);
    let pid = supervisor.main_pid();
    script(&sandbox, "j", "drain", &format!("kill -KILL {pid}; echo 0"));
    script(&sandbox, "j", "post-stop", "echo post-stop >>$JOURNAL");
    assert!(drain(&sandbox, &["j"]).status.success());
    assert_eq!(journal(&sandbox), ["post-stop"]);
    assert!(supervisor.is_alive());
    assert_eq!(supervisor.ask("STATUS"), "OK stopped - drained");
}

#[test]
fn given_five_jobs_at_once_then_nothing_is_stopped_before_everything_is_drained() {
    let sandbox = Sandbox::new();
    let names: Vec<String> = (1..=5).map(|number| format!("j{number}")).collect();
    let _supervisors: Vec<Supervisor> =
        names.iter().map(|name| supervise_journalling(&sandbox, name, name)).collect();
    for (number, name) in names.iter().enumerate() {
        script(&sandbox, name, "drain", &format!("sleep 0.{number}; echo drained {name} >>$JOURNAL; echo 0"));
    }
    let hooks: Vec<Child> = names.iter().map(|name| start_drain(&sandbox, &[name])).collect();
    for hook in hooks {
        let output = hook.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let journal = journal(&sandbox);
    assert_eq!(journal.len(), 10, "{journal:?}");
    assert!(journal[..5].iter().all(|line| line.starts_with("drained")), "{journal:?}");
    assert!(journal[5..].iter().all(|line| line.starts_with("TERM")), "{journal:?}");
}

#[test]
fn given_a_job_of_two_processes_then_one_hook_drains_and_the_other_waits_for_it() {
    let sandbox = Sandbox::new();
    let supervisors = ["p", "q"].map(|process| supervise_journalling(&sandbox, "j", process));
    script(&sandbox, "j", "drain", "echo drain >>$JOURNAL; echo 0");
    let waiting = start_drain(&sandbox, &["j", "-p", "q", "--wait-only"]);
    wait_until("the other is unmonitored", || mode(&supervisors[1]) == "unmonitored");
    assert!(journal(&sandbox).is_empty());
    let first = drain(&sandbox, &["j", "-p", "p"]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert!(waiting.wait_with_output().unwrap().status.success());
    let mut journal = journal(&sandbox);
    journal[1..].sort();
    assert_eq!(journal, ["drain", "TERM p", "TERM q"]);
}

#[test]
fn given_the_hook_that_drains_its_job_dies_then_the_others_do_not_wait_for_ever() {
    let mut sandbox = Sandbox::new();
    sandbox.may_leave_files();
    let [p, q] = ["p", "q"].map(|process| sandbox.supervise_as("j", process, &[], &["sleep", "1000"]));
    p.main_pid();
    q.main_pid();
    script(&sandbox, "j", "drain", "echo drain >>$JOURNAL; exec sleep 1000");
    let waiting = start_drain(&sandbox, &["j", "-p", "q", "--wait-only", "--settle", "1"]);
    let mut first = start_drain(&sandbox, &["j", "-p", "p"]);
    wait_until("the drain runs", || !journal(&sandbox).is_empty());
    assert!(kill(first.id() as i32, Signal::KILL.number()));
    first.wait().unwrap();
    // The other container of the job is gone with its hook, as when the kernel ran out of memory.
    p.ask("DRAINED");
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no hook drains j any more"));
    assert_eq!(q.ask("STATUS").rsplit(' ').next(), Some("drained"));
}

#[test]
fn given_one_container_that_restarts_in_a_living_pod_then_the_jobs_others_run_on() {
    let sandbox = Sandbox::new();
    let [p, q, other] = [("j", "p"), ("j", "q"), ("other", "other")]
        .map(|(job, process)| sandbox.supervise_as(job, process, &[], &["sleep", "1000"]));
    for supervisor in [&p, &q, &other] {
        supervisor.main_pid();
    }
    for name in ["pre-stop", "drain", "post-stop"] {
        script(&sandbox, "j", name, &format!("echo {name} >>$JOURNAL; echo 0"));
    }
    for extra in [&[][..], &["--wait-only"]] {
        let arguments = [&["j", "-p", "p", "--settle", "0.3"], extra].concat();
        let output = drain(&sandbox, &arguments);
        assert!(output.status.success());
        let said = text(&output.stderr);
        assert!(said.contains("only this container goes down: no hook runs for j/q"), "{said}");
        assert_eq!(p.ask("STATUS"), "OK stopped - unmonitored");
        for supervisor in [&q, &other] {
            assert_eq!(supervisor.state(), "running");
            assert_eq!(mode(supervisor), "monitored");
        }
        assert!(journal(&sandbox).is_empty());
    }
}

#[test]
fn given_a_peer_that_does_not_answer_then_nothing_is_drained_and_the_hook_names_it() {
    let sandbox = Sandbox::new();
    let [p, q, r, s] =
        ["p", "q", "r", "s"].map(|process| sandbox.supervise_as("j", process, &[], &["sleep", "1000"]));
    for supervisor in [&p, &q, &r, &s] {
        supervisor.main_pid();
    }
    script(&sandbox, "j", "drain", "echo drain >>$JOURNAL; echo 0");
    assert_eq!(mode_after(&q, "UNMONITOR"), "unmonitored");
    r.freeze();
    let output = drain(&sandbox, &["j", "-p", "p", "--settle", "0.3"]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains(
            "only this container goes down: j/r does not answer; no hook runs for j/s (still monitored)\n"
        ),
        "{said}"
    );
    assert!(journal(&sandbox).is_empty());
    r.signal(Signal::CONT);
    assert_eq!(p.ask("STATUS"), "OK stopped - unmonitored");
    assert_eq!((q.state(), r.state(), s.state()), ("running".into(), "running".into(), "running".into()));
    assert_eq!((mode(&r), mode(&s)), ("monitored".into(), "monitored".into()));
}

#[test]
fn given_a_peer_that_answers_late_then_it_is_waited_for_until_the_hooks_have_settled() {
    let sandbox = Sandbox::new();
    let [p, q] = ["p", "q"].map(|process| sandbox.supervise_as("j", process, &[], &["sleep", "1000"]));
    p.main_pid();
    q.main_pid();
    script(&sandbox, "j", "drain", "echo drain >>$JOURNAL; echo 0");
    assert_eq!(mode_after(&q, "UNMONITOR"), "unmonitored");
    q.freeze();
    let hook = start_drain(&sandbox, &["j", "-p", "p", "--settle", "600"]);
    wait_until("the hook is at work", || mode(&p) == "unmonitored");
    q.signal(Signal::CONT);
    let output = hook.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(journal(&sandbox), ["drain"]);
    assert_eq!((p.state(), q.state()), ("stopped".into(), "stopped".into()));
}

#[test]
fn given_an_own_supervisor_that_is_slow_to_answer_then_it_is_unmonitored_all_the_same() {
    let sandbox = Sandbox::new();
    let j = sandbox.supervise_as("j", "j", &[], &["sleep", "1000"]);
    j.main_pid();
    script(&sandbox, "j", "pre-stop", "echo pre-stop >>$JOURNAL");
    j.freeze();
    let hook = start_drain(&sandbox, &["j"]);
    let log = sandbox.path("sys/log/j/container-run-drain.log");
    let said = || fs::read_to_string(&log).unwrap_or_default();
    wait_until("the hook has given up waiting for an answer", || !journal(&sandbox).is_empty());
    assert!(said().contains("UNMONITOR to j/j failed: no answer from "), "{}", said());
    assert!(!said().contains("no supervisor"), "{}", said());
    j.signal(Signal::CONT);
    let output = hook.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(j.ask("STATUS"), "OK stopped - drained");
}

#[test]
fn given_a_supervisor_that_is_out_of_reach_when_it_is_to_be_told_then_it_is_told_as_soon_as_it_can() {
    let sandbox = Sandbox::new();
    let j = sandbox.supervise_as("j", "j", &[], &["sleep", "1000"]);
    j.main_pid();
    script(
        &sandbox,
        "j",
        "drain",
        "echo drain >>$JOURNAL; while [ ! -e $JOURNAL.go ]; do sleep 0.02; done; echo 0",
    );
    let hook = start_drain(&sandbox, &["j"]);
    wait_until("it drains", || !journal(&sandbox).is_empty());
    j.freeze();
    fill_queue(&j);
    fs::write(sandbox.path("journal.go"), "").unwrap();
    let log = sandbox.path("sys/log/j/container-run-drain.log");
    let said = || fs::read_to_string(&log).unwrap_or_default();
    wait_until("the hook has not reached it", || said().contains("DRAINED to j/j failed: no answer from "));
    assert!(said().contains("whose queue was full"), "{}", said());
    j.signal(Signal::CONT);
    j.wait_for_state("stopped");
    let output = hook.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(j.ask("STATUS"), "OK stopped - drained");
}

#[test]
fn given_a_process_that_is_not_there_in_a_living_job_then_the_hook_fails_and_stops_nothing() {
    let sandbox = Sandbox::new();
    let p = sandbox.supervise_as("j", "p", &[], &["sleep", "1000"]);
    p.main_pid();
    let output = drain(&sandbox, &["j", "--settle", "0.1"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no process j; see -p"), "{said}");
    assert_eq!(p.ask("STATUS").rsplit(' ').next(), Some("monitored"));
}

#[test]
fn given_a_supervisor_of_another_user_that_may_not_be_asked_then_the_barrier_goes_by_the_time() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::new();
    fs::set_permissions(sandbox.root(), fs::Permissions::from_mode(0o777)).unwrap();
    let others = sandbox.supervise_as("others", "others", &[], &["sleep", "1000"]);
    others.main_pid();
    let binary = sandbox.path("container-run");
    copy_program(BINARY, &binary);
    let as_stranger = || {
        let mut command = sandbox.program(binary.to_str().unwrap());
        command.uid(12345).gid(12345);
        command
    };
    for folder in ["data/j", "sys/run/bpm/j", "sys/log/j"] {
        fs::create_dir_all(sandbox.path(folder)).unwrap();
        chown(sandbox.path(folder), Some(12345), Some(12345)).unwrap();
    }
    let mut command = as_stranger();
    command.args(["--job-name", "j", "--process-name", "j", "--", "sleep", "1000"]);
    let j = sandbox.start(command, "j", "j");
    j.main_pid();
    let mut hook = as_stranger().args(["drain", "j", "--settle", "0.3"]).spawn().unwrap();
    j.wait_for_state("stopped");
    assert!(hook.wait().unwrap().success());
    assert_eq!(others.state(), "running");
}

#[test]
fn given_no_supervisor_of_its_own_then_the_hook_says_so_and_drains() {
    let sandbox = Sandbox::new();
    script(&sandbox, "j", "drain", "echo drain >>$JOURNAL; echo 0");
    let output = drain(&sandbox, &["j"]);
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("no supervisor of its own: no supervisor is at "));
    assert_eq!(journal(&sandbox), ["drain"]);
}

#[test]
fn given_the_option_pod_then_the_other_containers_hooks_are_not_waited_for() {
    let sandbox = Sandbox::new();
    let [p, q] = ["p", "q"].map(|process| sandbox.supervise_as("j", process, &[], &["sleep", "1000"]));
    p.main_pid();
    q.main_pid();
    script(&sandbox, "j", "drain", "echo drain >>$JOURNAL; echo 0");
    assert!(drain(&sandbox, &["j", "-p", "p", "--pod"]).status.success());
    assert_eq!(journal(&sandbox), ["drain"]);
    assert_eq!((p.state(), q.state()), ("stopped".into(), "stopped".into()));
}

#[test]
fn given_supervisors_that_hang_with_full_queues_then_the_others_are_stopped_meanwhile() {
    let sandbox = Sandbox::new();
    // Those that hang are asked first.
    let hung = ["a", "b"].map(|process| sandbox.supervise_as("j", process, &[], &["sleep", "1000"]));
    let [p, q] = ["p", "q"].map(|process| supervise_journalling(&sandbox, "j", process));
    for supervisor in &hung {
        supervisor.main_pid();
        supervisor.freeze();
        fill_queue(supervisor);
    }
    let hook = start_drain(&sandbox, &["j", "-p", "p", "--pod", "--no-barrier"]);
    wait_until("the others are stopped", || journal(&sandbox).len() == 2);
    for supervisor in &hung {
        supervisor.signal(Signal::CONT);
    }
    let output = hook.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    for supervisor in hung.iter().chain([&p, &q]) {
        assert_eq!(supervisor.state(), "stopped", "what had to wait for room was sent, too");
    }
}

#[test]
fn given_a_container_that_dies_or_restarts_during_the_barrier_then_it_is_not_waited_for() {
    let mut sandbox = Sandbox::new();
    sandbox.may_leave_files();
    let j = sandbox.supervise_as("j", "j", &[], &["sleep", "1000"]);
    let mut other = sandbox.supervise_as("other", "other", &[], &["sleep", "1000"]);
    j.main_pid();
    other.main_pid();
    assert_eq!(other.ask("UNMONITOR").rsplit(' ').next(), Some("unmonitored"));
    let hook = start_drain(&sandbox, &["j", "--settle", "0.3"]);
    let log = sandbox.path("sys/log/j/container-run-drain.log");
    let at_barrier = || fs::read_to_string(&log).is_ok_and(|said| said.contains("waiting for other/other"));
    wait_until("the hook is at the barrier", at_barrier);
    assert_eq!(mode(&j), "drained");
    assert_eq!(j.state(), "running", "nothing is stopped while another job drains");
    other.signal(Signal::KILL);
    other.wait();
    let restarted = sandbox.supervise_as("other", "other", &[], &["sleep", "1000"]);
    let output = hook.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(j.state(), "stopped");
    assert_eq!(restarted.state(), "running");
}

#[test]
fn given_no_barrier_then_another_jobs_drain_is_not_waited_for() {
    let sandbox = Sandbox::new();
    let j = sandbox.supervise_as("j", "j", &[], &["sleep", "1000"]);
    let other = sandbox.supervise_as("other", "other", &[], &["sleep", "1000"]);
    j.main_pid();
    other.main_pid();
    other.ask("UNMONITOR");
    assert!(drain(&sandbox, &["j", "--no-barrier"]).status.success());
    assert_eq!((j.state(), other.state()), ("stopped".into(), "running".into()));
}

#[test]
fn given_a_hook_that_is_called_twice_then_the_second_passes_through_and_stays_drained() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise_as("j", "j", &[], &["sleep", "1000"]);
    supervisor.main_pid();
    script(&sandbox, "j", "drain", "echo drain >>$JOURNAL; echo 0");
    for _ in 0..2 {
        assert!(drain(&sandbox, &["j"]).status.success());
        assert_eq!(supervisor.ask("STATUS"), "OK stopped - drained");
    }
    assert_eq!(journal(&sandbox), ["drain", "drain"]);
}

#[test]
fn given_somebody_who_holds_the_drain_lock_then_the_hook_says_so_and_can_be_cancelled() {
    let mut sandbox = Sandbox::new();
    sandbox.may_leave_files();
    let supervisor = sandbox.supervise_as("j", "j", &[], &["sleep", "1000"]);
    supervisor.main_pid();
    script(&sandbox, "j", "drain", "echo drain >>$JOURNAL; echo 0");
    let path = sandbox.path("data/j/.drain.lock");
    let held = fs::File::create(&path).unwrap();
    held.try_lock().unwrap();
    let log = sandbox.path("sys/log/j/container-run-drain.log");
    let waiting = format!("waiting for another drain of j, which holds {}\n", path.display());
    let times_said = || fs::read_to_string(&log).unwrap_or_default().matches(&waiting).count();

    let told = start_drain(&sandbox, &["j"]);
    wait_until("it says what it waits for", || times_said() == 1);
    assert!(kill(told.id() as i32, Signal::TERM.number()));
    let limited = start_drain(&sandbox, &["j", "--timeout", "3"]);
    for hook in [told, limited] {
        let output = hook.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("cancelled"), "{}", text(&output.stderr));
    }
    assert_eq!(times_said(), 2, "each says it once");
    assert!(journal(&sandbox).is_empty());

    let patient = start_drain(&sandbox, &["j"]);
    wait_until("it waits, too", || times_said() == 3);
    drop(held);
    assert!(patient.wait_with_output().unwrap().status.success());
    assert_eq!(journal(&sandbox), ["drain"]);
}

#[test]
fn given_a_term_then_the_scripts_group_gets_it_and_the_hook_fails_at_once() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise_as("j", "j", &[], &["sleep", "1000"]);
    supervisor.main_pid();
    script(
        &sandbox,
        "j",
        "drain",
        "trap 'echo TERM script >>$JOURNAL; exit 0' TERM; echo started >>$JOURNAL; while :; do sleep 0.05; done",
    );
    script(&sandbox, "j", "post-stop", "echo post-stop >>$JOURNAL");
    let hook = start_drain(&sandbox, &["j"]);
    wait_until("the drain runs", || !journal(&sandbox).is_empty());
    assert!(kill(hook.id() as i32, Signal::TERM.number()));
    let output = hook.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cancelled"));
    assert_eq!(journal(&sandbox), ["started", "TERM script"]);
    assert_eq!(supervisor.state(), "running");
}

#[test]
fn given_a_script_that_ends_while_the_hook_looks_then_its_end_is_noticed() {
    let sandbox = Sandbox::new();
    script(&sandbox, "j", "pre-stop", "exec sleep 0.02");
    // Each look at the child takes longer than the child lives.
    let output = sandbox
        .program("strace")
        .args(["-qq", "-e", "trace=waitid", "-e", "inject=waitid:delay_exit=100000", "-o", "/dev/null"])
        .args([BINARY, "drain", "j", "--timeout", "10"])
        .output();
    match output {
        Ok(output) => assert!(output.status.success(), "{}", text(&output.stderr)),
        Err(error) => skip(&format!("strace: {error}")),
    }
}

#[test]
fn given_a_timeout_then_a_drain_is_cancelled_wherever_it_is() {
    for text in ["echo -1", "echo 1000", "sleep 1000", "sleep 1000 & exit 0"] {
        let sandbox = Sandbox::new();
        script(&sandbox, "j", "drain", text);
        let output = drain(&sandbox, &["j", "--timeout", "0.3"]);
        assert_eq!(output.status.code(), Some(1), "{text}");
    }
}

#[test]
fn given_a_cancelled_script_that_ends_first_then_its_children_can_clean_up() {
    let sandbox = Sandbox::new();
    let child = "(trap 'sleep 0.5; echo cleaned >>$JOURNAL; exit 0' TERM
          echo started >>$JOURNAL; while :; do sleep 0.05; done) &";
    // Whether or not somebody holds the stdout that we read.
    for text in [format!("{child}\nwait"), format!("exec >&2\n{child}\nexec sleep 1000")] {
        fs::write(sandbox.path("journal"), "").unwrap();
        script(&sandbox, "j", "drain", &text);
        let hook = start_drain(&sandbox, &["j"]);
        wait_until("the child runs", || !journal(&sandbox).is_empty());
        assert!(kill(hook.id() as i32, Signal::TERM.number()));
        let output = hook.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(journal(&sandbox), ["started", "cleaned"], "{text}");
    }
}

#[test]
fn given_scripts_and_children_that_ignore_term_when_cancelled_then_they_are_killed() {
    let sandbox = Sandbox::new();
    let deaf = "trap '' TERM; echo started >>$JOURNAL; while :; do sleep 0.1; done";
    script(&sandbox, "script", "drain", deaf);
    script(&sandbox, "child", "drain", &format!("({deaf}) &\nwait"));
    let hooks = ["script", "child"].map(|job| start_drain(&sandbox, &[job]));
    wait_until("both run", || journal(&sandbox).len() == 2);
    for hook in &hooks {
        assert!(kill(hook.id() as i32, Signal::TERM.number()));
    }
    for hook in hooks {
        assert_eq!(hook.wait_with_output().unwrap().status.code(), Some(1));
    }
}

#[test]
fn given_an_unknown_job_then_the_nearest_names_are_told_and_nothing_is_made() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.path("jobs/gorouter")).unwrap();
    let output = drain(&sandbox, &["goruter"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("unknown job 'goruter'") && said.contains("the nearest are gorouter"), "{said}");
    assert_eq!(said.lines().count(), 1);
    assert!(!sandbox.path("sys").exists());
}

#[test]
fn given_a_log_folder_that_cannot_be_written_then_the_drain_goes_on() {
    let sandbox = Sandbox::new();
    script(&sandbox, "j", "drain", "echo 0");
    script(&sandbox, "j", "pre-stop", "echo pre-stop >>$JOURNAL");
    fs::create_dir_all(sandbox.path("sys/log")).unwrap();
    fs::write(sandbox.path("sys/log/j"), "").unwrap();
    let output = drain(&sandbox, &["j"]);
    assert!(output.status.success());
    assert!(text(&output.stderr).contains(sandbox.path("sys/log/j").to_str().unwrap()));
    assert_eq!(journal(&sandbox), ["pre-stop"]);
}
