//! As PID 1 of a PID namespace, as in a container, and as a user without a name.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use common::*;
use nix::libc;

/// Long enough to be still going on when the test looks.
const PATIENT: [&str; 2] = ["--kill-after", "600"];

/// Makes a container of what follows.
const CONTAINER: [&str; 4] = ["unshare", "--pid", "--fork", "--mount-proc"];

/// The same, with nothing at /proc.
const WITHOUT_PROC: [&str; 6] = ["unshare", "--pid", "--fork", "--mount", "sh", "-c"];

/// Prints TERM, INT and HUP, and ends well on USR1, which the tests send past the supervisor.
const PRINTER: &str = "print=TERM,INT,HUP exit-on=USR1:0 wait";

fn may_make_containers() -> bool {
    is_permitted(&[&CONTAINER[..], &["true"]].concat())
}

/// `container-run` as PID 1, of process `p` of this job. The `Supervisor` is the maker of the container, which
/// ends with its code.
fn contain(sandbox: &Sandbox, maker: &[&str], job: &str, options: &[&str], main: &[String]) -> Supervisor {
    let mut command = sandbox.program(maker[0]);
    command.args(&maker[1..]).arg(BINARY).args(["--job-name", job, "--process-name", "p"]);
    command.args(options).arg("--").args(main);
    sandbox.start(command, job, "p")
}

fn children(pid: i32) -> Vec<i32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().map(|child| child.parse().unwrap()).collect()
}

/// PID 1 of the container, as seen from here.
#[track_caller]
fn init_of(container: &Supervisor) -> i32 {
    let mut found = vec![];
    wait_until("there is a PID 1", || {
        found = children(container.pid());
        found.len() == 1
    });
    found[0]
}

/// The main process of the container, as seen from here.
#[track_caller]
fn main_of(container: &Supervisor) -> i32 {
    container.main_pid();
    children(children(init_of(container))[0])[0]
}

/// A program beside the supervisor in its container, as with `kubectl exec`.
fn beside(sandbox: &Sandbox, container: &Supervisor, words: &[&str]) -> Command {
    let mut command = sandbox.program("nsenter");
    command.args(["-t", &init_of(container).to_string(), "-p", "-m", "--"]).args(words);
    command
}

#[test]
fn given_pid_1_when_term_or_int_then_main_gets_one_term_and_its_time_and_the_exit_code_is_0() {
    if !may_make_containers() {
        return;
    }
    for number in [libc::SIGTERM, libc::SIGINT] {
        let sandbox = Sandbox::new();
        let mut container = contain(&sandbox, &CONTAINER, "j", &PATIENT, &probe_with(PRINTER));
        container.wait_for_line("ready");
        let (init, main) = (init_of(&container), main_of(&container));
        assert!(kill(init, number));
        container.wait_for_line("TERM");
        assert!(kill(init, number));
        container.state();
        assert!(kill(main, libc::SIGHUP));
        container.wait_for_line("HUP");
        assert_eq!(container.stdout(), "ready\nTERM\nHUP\n");
        assert!(kill(main, libc::SIGUSR1));
        assert_eq!(container.exit_code(), 0);
    }
}

#[test]
fn given_pid_1_when_any_other_signal_then_the_container_stays() {
    if !may_make_containers() {
        return;
    }
    let sandbox = Sandbox::new();
    let main = probe_with("ignore=HUP,QUIT,USR1,USR2,ALRM exit-on=TERM:0 wait");
    let container = contain(&sandbox, &CONTAINER, "j", &PATIENT, &main);
    container.wait_for_line("ready");
    let (init, pid) = (init_of(&container), container.main_pid());
    for number in (1..=64).filter(|number| ![2, 9, 15, 19].contains(number)) {
        assert!(kill(init, number));
        assert_eq!(container.ask("STATUS"), format!("OK running {pid} monitored"), "signal {number}");
    }
    assert_ne!(state_of(init), Some('T'));
}

#[test]
fn given_pid_1_when_it_is_killed_from_inside_then_nothing_happens_and_from_outside_all_ends() {
    if !may_make_containers() {
        return;
    }
    let mut sandbox = Sandbox::new();
    sandbox.may_leave_files();
    let main = sh(&format!("kill -9 1; setsid {} wait & exec {} wait", probe(), probe()));
    let mut container = contain(&sandbox, &CONTAINER, "j", &PATIENT, &main);
    container.wait_for_lines("ready", 2);
    assert_eq!(container.state(), "running");
    assert!(kill(init_of(&container), libc::SIGKILL));
    container.wait();
    wait_until("all are gone", || sandbox.processes().is_empty());
}

#[test]
fn given_pid_1_then_a_good_end_of_main_leaves_the_container_up_and_a_bad_ones_code_is_seen() {
    if !may_make_containers() {
        return;
    }
    let sandbox = Sandbox::new();
    let mut container = contain(&sandbox, &CONTAINER, "j", &PATIENT, &probe_with("exit=0"));
    container.wait_for_state("ended");
    assert!(container.is_alive());
    for (main, code) in [("exit=7", 7), ("die=KILL", 137), ("die=QUIT", 131)] {
        let mut container = contain(&sandbox, &CONTAINER, "other", &PATIENT, &probe_with(main));
        assert_eq!(container.exit_code(), code, "{main}");
    }
}

#[test]
fn given_pid_1_when_1000_orphans_end_then_no_zombie_stays() {
    if !may_make_containers() {
        return;
    }
    let sandbox = Sandbox::new();
    let orphans = "i=0; while [ $i -lt 1000 ]; do (true &); i=$((i+1)); done; echo done";
    let main = sh(&format!("{orphans}; exec {} exit-on=TERM:0 wait", probe()));
    let container = contain(&sandbox, &CONTAINER, "j", &PATIENT, &main);
    container.wait_for_line("done");
    // A stranger's orphan, too, which only the init can reap.
    assert!(beside(&sandbox, &container, &["sh", "-c", "(sh -c 'exit 3' &)"]).status().unwrap().success());
    let (init, main) = (init_of(&container), main_of(&container));
    let supervisor = children(init)[0];
    wait_until("only they are left", || children(init) == [supervisor] && children(supervisor) == [main]);
}

#[test]
fn given_pid_1_when_stop_then_the_orphan_of_a_stranger_lives_until_the_container_ends() {
    if !may_make_containers() {
        return;
    }
    let sandbox = Sandbox::new();
    let main = sh(&format!("trap '' TERM; (setsid {} wait &); exec {} wait", probe(), probe()));
    let mut container = contain(&sandbox, &CONTAINER, "j", &["--kill-after", "0.5"], &main);
    container.wait_for_lines("ready", 2);
    let init = init_of(&container);
    let supervisor = children(init);
    let shell = ["sh", "-c", "(sleep 1000 >/dev/null 2>&1 &)"];
    assert!(beside(&sandbox, &container, &shell).status().unwrap().success());
    let stranger = children(init).into_iter().find(|pid| !supervisor.contains(pid)).unwrap();
    assert_eq!(container.ask("STOP WAIT"), "OK stopped - monitored");
    assert!(is_alive(stranger));
    assert_eq!(sandbox.processes().len(), 4, "maker, init, supervisor, stranger");
    assert!(container.ask("START").starts_with("OK running "));
    assert!(kill(init, libc::SIGTERM));
    assert_eq!(container.exit_code(), 0);
    assert!(!is_alive(stranger));
}

#[test]
fn given_pid_1_without_proc_then_it_says_so_and_starts_stops_kills_and_ends() {
    if !may_make_containers() {
        return;
    }
    let hide = [&WITHOUT_PROC[..], &["mount -t tmpfs none /proc && exec \"$@\"", "sh"]].concat();
    // The second shows the PIDs of another namespace, which must not be taken for ours.
    for maker in [&hide[..], &CONTAINER[..3]] {
        let sandbox = Sandbox::new();
        let main = sh(&format!("trap '' TERM; {} wait & exec {} wait", probe(), probe()));
        let mut container = contain(&sandbox, maker, "j", &["--kill-after", "0.5"], &main);
        container.wait_for_lines("ready", 2);
        let said = container.stderr();
        assert!(said.lines().all(|line| line.starts_with("container-run: warning: ")), "{said}");
        assert!(said.contains("/proc does not show this PID namespace"), "{said}");
        assert_eq!(container.ask("STOP WAIT"), "OK stopped - monitored");
        assert_eq!(sandbox.processes().len(), 3, "maker, init, supervisor");
        assert!(container.ask("START").starts_with("OK running "));
        container.wait_for_lines("ready", 4);
        assert!(kill(init_of(&container), libc::SIGTERM));
        assert_eq!(container.exit_code(), 0);
    }
}

#[test]
fn given_two_containers_that_share_the_root_then_one_drives_the_process_in_the_other() {
    if !may_make_containers() {
        return;
    }
    let sandbox = Sandbox::new();
    let main = probe_with("print=QUIT exit-on=TERM:0 wait");
    let near = contain(&sandbox, &CONTAINER, "near", &PATIENT, &main);
    let far = contain(&sandbox, &CONTAINER, "far", &PATIENT, &main);
    near.wait_for_line("ready");
    far.wait_for_line("ready");
    let bpm = sandbox.path("jobs/bpm/bin/bpm").display().to_string();
    let run = |words: &[&str]| {
        let output = beside(&sandbox, &near, words).output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let pid = far.main_pid();
    let done = |stdout: String| (Some(0), stdout, String::new());
    assert_eq!(
        run(&[BINARY, "send", "STATUS", "far", "-p", "p"]),
        done(format!("running {pid} monitored\n"))
    );
    assert_eq!(run(&[&bpm, "quit", "far", "-p", "p"]), done(String::new()));
    far.wait_for_line("QUIT");
    assert_eq!(run(&[&bpm, "running", "far", "-p", "p"]), done(String::new()));
    assert_eq!(run(&[&bpm, "pid", "far", "-p", "p"]), done(format!("{pid}\n")));
    assert_eq!(run(&[&bpm, "stop", "far", "-p", "p"]), done(String::new()));
    assert_eq!(far.ask("STATUS"), "OK stopped - monitored");
    assert_eq!(run(&[&bpm, "running", "far", "-p", "p"]).0, Some(1));
    assert_eq!(run(&[&bpm, "start", "far", "-p", "p"]), done(String::new()));
    far.wait_for_lines("ready", 2);
    assert_eq!((near.state().as_str(), near.count("QUIT")), ("running", 0));
}

/// `container-run` of this job, below the `nsenter` that put it beside a container's PID 1.
fn supervise_beside(sandbox: &Sandbox, container: &Supervisor, job: &str) -> Supervisor {
    // One in its place, one in a session of its own, one that was orphaned.
    let tree = "$0 $1 & setsid $0 $1 & (setsid $0 $1 &); exec $0 $1";
    let own = [BINARY, "--job-name", job, "--process-name", "p", "--kill-after", "600", "--"];
    let main = ["sh", "-c", tree, "sleep", "1000"];
    let mut command = beside(sandbox, container, &[&own[..], &main].concat());
    command.env("TREE", job);
    let supervisor = sandbox.start(command, job, "p");
    supervisor.wait_for_state("running");
    wait_until("its tree is there", || tree_of(job).len() == 4);
    supervisor
}

/// The sleepers of this job's tree.
fn tree_of(job: &str) -> Vec<i32> {
    let sleeps =
        |pid: &i32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default() == b"sleep\x001000\x00";
    processes_with("TREE", job).into_iter().filter(sleeps).collect()
}

#[test]
fn given_two_supervisors_in_one_pid_namespace_then_what_befalls_one_never_touches_the_others_tree() {
    if !may_make_containers() {
        return;
    }
    // As with shareProcessNamespace, where process 1 is the pod's.
    let pause = ["perl", "-e", "$SIG{CHLD} = 'IGNORE'; sleep"];
    for way in ["STOP WAIT", "SIGNAL KILL", "TERM", "KILL"] {
        let mut sandbox = Sandbox::new();
        let mut command = sandbox.program(CONTAINER[0]);
        command.args(&CONTAINER[1..]).args(pause);
        let mut pod = sandbox.start(command, "pod", "p");
        let (suffering, other) = (format!("suffering-{}", pod.pid()), format!("other-{}", pod.pid()));
        let mut one = supervise_beside(&sandbox, &pod, &suffering);
        let mut two = supervise_beside(&sandbox, &pod, &other);
        let before = (two.ask("STATUS"), tree_of(&other));
        if way == "KILL" {
            sandbox.may_leave_files();
            let main = main_among(&tree_of(&suffering), one.main_pid());
            assert!(kill(children(one.pid())[0], libc::SIGKILL));
            one.wait();
            wait_until("its main process is gone", || !is_alive(main));
        } else {
            if way != "TERM" {
                assert!(one.ask(way).starts_with("OK "));
                assert_eq!(one.ask("STOP WAIT"), "OK stopped - monitored");
                assert_eq!(tree_of(&suffering), []);
            }
            terminate(&mut one, &suffering);
        }
        assert_eq!((two.ask("STATUS"), tree_of(&other)), before, "{way}");
        terminate(&mut two, &other);
        // What a killed supervisor has left goes with the pod's process 1.
        assert!(kill(init_of(&pod), libc::SIGKILL));
        pod.wait();
    }
}

/// Which of these, seen from here, has this PID in its own container.
fn main_among(tree: &[i32], pid: i32) -> i32 {
    let inner = |outer: i32| {
        let status = fs::read_to_string(format!("/proc/{outer}/status")).unwrap();
        let numbers = status.lines().find(|line| line.starts_with("NSpid:")).unwrap().to_owned();
        numbers.split_whitespace().last().unwrap().parse::<i32>().unwrap()
    };
    *tree.iter().find(|outer| inner(**outer) == pid).unwrap()
}

/// Ends a supervisor below `nsenter`, and the job's tree with it.
fn terminate(supervisor: &mut Supervisor, job: &str) {
    assert!(kill(children(supervisor.pid())[0], libc::SIGTERM));
    assert_eq!(supervisor.exit_code(), 0);
    assert_eq!(tree_of(job), []);
}

#[test]
fn given_pid_1_then_main_has_every_variable_unchanged() {
    if !may_make_containers() {
        return;
    }
    let sandbox = Sandbox::new();
    let variables = [
        ("LISTEN_PID", "1"),
        ("LISTEN_FDS", "2"),
        ("NOTIFY_SOCKET", "/x"),
        ("ODD", " a=b\tc "),
        ("EMPTY", ""),
    ];
    let mut command = sandbox.program(CONTAINER[0]);
    command.args(&CONTAINER[1..]).arg(BINARY).envs(variables);
    command.args(["--job-name", "j", "--process-name", "p", "env"]);
    let container = sandbox.start(command, "j", "p");
    container.wait_for_state("ended");
    for (name, value) in variables {
        assert_eq!(container.count(&format!("{name}={value}")), 1, "{name}");
    }
}

/// `container-run` as a user without an entry in passwd, alone or in a container. Nothing of the build
/// folder needs to be readable for that user.
fn as_nobody(sandbox: &Sandbox, maker: &[&str]) -> Command {
    let binary = sandbox.path("container-run");
    copy_program(BINARY, &binary);
    let words = [maker, &["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups"]].concat();
    let mut command = sandbox.program(words[0]);
    command.args(&words[1..]).arg(binary).current_dir("/");
    command.args(["--job-name", "j", "--process-name", "p", "--", "sh", "-c", "id -u; exec sleep 1000"]);
    command
}

#[test]
fn given_a_user_without_a_name_who_may_write_then_it_works() {
    if !is_root() || !may_make_containers() {
        return;
    }
    for maker in [&["env"][..], &CONTAINER] {
        let sandbox = Sandbox::new();
        fs::set_permissions(sandbox.root(), Permissions::from_mode(0o777)).unwrap();
        let supervisor = sandbox.start(as_nobody(&sandbox, maker), "j", "p");
        supervisor.wait_for_line("12345");
        supervisor.main_pid();
        assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
        assert!(supervisor.ask("START").starts_with("OK running "));
        assert_eq!(supervisor.stderr(), "");
    }
}

#[test]
fn given_a_user_who_may_not_write_then_that_is_said_and_nothing_runs() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::new();
    fs::set_permissions(sandbox.root(), Permissions::from_mode(0o755)).unwrap();
    let output = as_nobody(&sandbox, &["env"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = complaint(&output);
    assert!(said.contains(sandbox.root().to_str().unwrap()), "{said}");
    assert!(said.to_lowercase().contains("permission denied"), "{said}");
}
