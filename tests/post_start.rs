//! Post-start and its condition.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use common::*;
use container_run::signal::Signal;
use nix::libc;

/// Long enough to see that something does not happen.
const A_WHILE: Duration = Duration::from_millis(300);

/// Prints TERM and ends well.
const MAIN: &str = "print=TERM exit-on=TERM:0 wait";

/// Options for a post-start and perhaps a condition that are shell scripts.
fn hooks<'a>(post_start: &'a str, condition: Option<&'a str>) -> Vec<&'a str> {
    let mut options =
        vec!["--post-start-name", "sh", "--post-start-arg", "-c", "--post-start-arg", post_start];
    if let Some(condition) = condition {
        options.extend(["--post-start-condition-name", "sh", "--post-start-condition-arg", "-c"]);
        options.extend(["--post-start-condition-arg", condition]);
    }
    options
}

/// A supervisor with these hooks, more options, and this probe as main process.
fn supervise(sandbox: &Sandbox, hooks: &[&str], options: &[&str], main: &str) -> Supervisor {
    sandbox.supervise_with(&[hooks, options].concat(), &words(&probe_with(main)))
}

/// A condition that appends to this file when it is tried, and succeeds at the n-th time.
fn counting(sandbox: &Sandbox, succeeds_at: usize) -> String {
    let file = sandbox.path("tries");
    format!("echo x >>{0}; test $(wc -l <{0}) -ge {succeeds_at}", file.display())
}

fn tries(sandbox: &Sandbox) -> usize {
    fs::read_to_string(sandbox.path("tries")).unwrap_or_default().lines().count()
}

/// The PID that a hook has written with `echo $$ >$BPM_BOSH_ROOT/hook`.
#[track_caller]
fn hook_pid(sandbox: &Sandbox) -> i32 {
    let mut pid = None;
    wait_until("the hook runs", || {
        let written = fs::read_to_string(sandbox.path("hook")).unwrap_or_default();
        pid = written.strip_suffix('\n').and_then(|text| text.parse().ok());
        pid.is_some()
    });
    pid.unwrap()
}

const SAY_PID: &str = "echo $$ >$BPM_BOSH_ROOT/hook; ";
const HANG: &str = "echo $$ >$BPM_BOSH_ROOT/hook; exec sleep 600";
const HANG_HARD: &str = "trap '' TERM; echo $$ >$BPM_BOSH_ROOT/hook; while :; do sleep 600; done";

#[test]
fn given_a_post_start_that_is_nowhere_then_it_is_skipped_without_a_word() {
    // The last one is there, but is no file.
    for name in ["/no/such/post-start", "no-such-post-start", "", "/usr/bin"] {
        let sandbox = Sandbox::new();
        let supervisor = supervise(&sandbox, &["--post-start-name", name], &[], MAIN);
        supervisor.wait_for_line("ready");
        stays_true("it runs", A_WHILE, || supervisor.state() == "running");
        assert_eq!((supervisor.stdout(), supervisor.stderr()), ("ready\n".to_owned(), String::new()));
    }
}

#[test]
fn given_a_post_start_then_it_runs_once_when_the_process_and_its_files_are_there() {
    let sandbox = Sandbox::new();
    let look = "cd $BPM_BOSH_ROOT; test -e data/j/p_containerrun.running && \
                kill -0 $(cat sys/run/bpm/j/p.pid) && echo \"post-start $1 $2\"";
    let hooks = [&hooks(look, None)[..], &["--post-start-arg", "sh", "--post-start-arg=-x"]].concat();
    let supervisor = supervise(&sandbox, &[&hooks[..], &["--post-start-arg", "--debug"]].concat(), &[], MAIN);
    supervisor.wait_for_line("post-start -x --debug");
    stays_true("once", A_WHILE, || supervisor.count("post-start -x --debug") == 1);
    assert_eq!(supervisor.stderr(), "");
    assert_eq!(supervisor.state(), "running");
}

#[test]
fn given_output_then_that_of_post_start_is_ours_and_that_of_the_condition_nobodys() {
    let sandbox = Sandbox::new();
    let condition = "echo condition; echo condition >&2";
    let hooks = hooks("cat; echo out; echo err >&2", Some(condition));
    let supervisor = supervise(&sandbox, &hooks, &["--post-start-interval", "0"], MAIN);
    supervisor.wait_for_line("out");
    wait_until("stderr has it too", || supervisor.stderr() == "err\n");
    assert!(!supervisor.stdout().contains("condition"));
}

#[test]
fn given_a_condition_that_fails_at_first_then_it_is_tried_again_until_post_start_runs_once() {
    let sandbox = Sandbox::new();
    let condition = counting(&sandbox, 4);
    let hooks = hooks("echo post-start", Some(&condition));
    let supervisor = supervise(&sandbox, &hooks, &["--post-start-interval", "0.05"], MAIN);
    supervisor.wait_for_line("post-start");
    assert_eq!(tries(&sandbox), 4);
    stays_true("that was all", A_WHILE, || {
        tries(&sandbox) == 4 && supervisor.count("post-start") == 1 && supervisor.state() == "running"
    });
    assert_eq!(supervisor.stderr(), "");
}

#[test]
fn given_an_interval_then_it_passes_before_each_try_also_the_first() {
    let sandbox = Sandbox::new();
    let interval = Duration::from_millis(400);
    let condition = counting(&sandbox, 2);
    let hooks = hooks("echo post-start", Some(&condition));
    let supervisor = supervise(&sandbox, &hooks, &["--post-start-interval", "0.4"], MAIN);
    supervisor.main_pid();
    let changed =
        |path| fs::metadata(path).and_then(|file| file.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let started = changed(supervisor.sentinel());
    wait_until("the first try", || tries(&sandbox) == 1);
    let first = changed(sandbox.path("tries"));
    assert!(first.duration_since(started).unwrap() > interval - Duration::from_millis(20));
    supervisor.wait_for_line("post-start");
    let second = changed(sandbox.path("tries"));
    assert!(second.duration_since(first).unwrap() > interval - Duration::from_millis(20));
}

#[test]
fn given_a_condition_that_cannot_be_run_then_it_is_tried_until_the_timeout() {
    let sandbox = Sandbox::new();
    let options = ["--post-start-interval", "0.05", "--post-start-timeout", "0.3"];
    let hooks = ["--post-start-name", "true", "--post-start-condition-name", "/no/such/condition"];
    let mut supervisor = supervise(&sandbox, &hooks, &options, MAIN);
    assert_eq!(supervisor.exit_code(), 1);
    let said = supervisor.stderr();
    assert!(said.lines().count() == 1 && said.contains("post-start-timeout"), "{said}");
}

#[test]
fn given_condition_or_post_start_take_too_long_then_they_are_killed_and_the_process_is_stopped() {
    for (post_start, condition) in [
        (HANG_HARD, None),
        (HANG_HARD, Some("true")),
        ("echo never", Some(HANG_HARD)),
        ("echo never", Some("echo $$ >$BPM_BOSH_ROOT/hook; false")),
    ] {
        let sandbox = Sandbox::new();
        let options = ["--post-start-interval", "0.05", "--post-start-timeout", "0.5"];
        let mut supervisor = supervise(&sandbox, &hooks(post_start, condition), &options, MAIN);
        let pid = hook_pid(&sandbox);
        assert_eq!(supervisor.exit_code(), 1);
        assert_eq!((supervisor.count("TERM"), supervisor.count("never")), (1, 0));
        let said = supervisor.stderr();
        assert!(said.lines().count() == 1 && said.contains("0.5 s"), "{said}");
        assert!(!is_alive(pid));
    }
}

#[test]
fn given_one_timeout_then_it_holds_for_condition_and_post_start_together() {
    let sandbox = Sandbox::new();
    let hooks = hooks("sleep 0.7; echo late", Some("sleep 0.7"));
    let options = ["--post-start-interval", "0", "--post-start-timeout", "1"];
    let mut supervisor = supervise(&sandbox, &hooks, &options, MAIN);
    assert_eq!(supervisor.exit_code(), 1);
    assert_eq!(supervisor.count("late"), 0);
}

#[test]
fn given_a_stop_while_a_condition_is_pending_then_it_is_never_tried_again() {
    let sandbox = Sandbox::new();
    let condition = counting(&sandbox, 1000);
    let hooks = hooks("echo post-start", Some(&condition));
    let supervisor = supervise(&sandbox, &hooks, &["--post-start-interval", "0.05"], MAIN);
    wait_until("it is tried", || tries(&sandbox) > 0);
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    let before = tries(&sandbox);
    stays_true("no try", A_WHILE, || tries(&sandbox) == before);
    assert_eq!(supervisor.count("post-start"), 0);
}

#[test]
fn given_a_hanging_condition_then_neither_stop_nor_term_waits_for_it() {
    let sandbox = Sandbox::new();
    let hooks = hooks("echo post-start", Some(HANG_HARD));
    let options = ["--post-start-interval", "0", "--kill-after", "600"];
    let mut supervisor = supervise(&sandbox, &hooks, &options, MAIN);
    supervisor.wait_for_line("ready");
    let pid = hook_pid(&sandbox);
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    assert!(!is_alive(pid));
    fs::remove_file(sandbox.path("hook")).unwrap();
    supervisor.ask("START");
    supervisor.wait_for_lines("ready", 2);
    let pid = hook_pid(&sandbox);
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit_code(), 0);
    assert!(!is_alive(pid));
}

#[test]
fn given_a_term_while_the_first_try_is_awaited_then_the_supervisor_ends_at_once() {
    let sandbox = Sandbox::new();
    let hooks = hooks("echo post-start", Some("true"));
    let mut supervisor = supervise(&sandbox, &hooks, &["--post-start-interval", "600"], MAIN);
    supervisor.wait_for_line("ready");
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit_code(), 0);
    assert_eq!(supervisor.count("post-start"), 0);
}

#[test]
fn given_the_process_ends_before_the_condition_holds_then_there_is_no_post_start() {
    for condition in ["sleep 600", "test -e $BPM_BOSH_ROOT/go"] {
        let sandbox = Sandbox::new();
        let condition = format!("{SAY_PID}{condition}");
        let hooks = hooks("echo post-start", Some(&condition));
        let main = "exit-on=USR1:0 wait";
        let supervisor = supervise(&sandbox, &hooks, &["--post-start-interval", "0.05"], main);
        supervisor.wait_for_line("ready");
        hook_pid(&sandbox);
        supervisor.ask("SIGNAL USR1");
        supervisor.wait_for_state("ended");
        wait_until("no condition is left", || sandbox.processes() == [supervisor.pid()]);
        fs::write(sandbox.path("go"), "").unwrap();
        stays_true("nothing comes", A_WHILE, || {
            supervisor.count("post-start") == 0 && sandbox.processes() == [supervisor.pid()]
        });
        assert_eq!(supervisor.state(), "ended");
    }
}

#[test]
fn given_a_running_post_start_then_a_stop_reaches_it_by_the_stop_signal_once() {
    for signal in ["TERM", "INT"] {
        for by_term in [false, true] {
            let sandbox = Sandbox::new();
            let hook = format!("exec {} say=hook-ready print=TERM,INT exit-on={signal}:0:50 wait", probe());
            let options = ["--kill-after", "600", "--stop-signal", signal];
            let main = format!("ignore=TERM,INT exit-on={signal}:0 wait");
            let mut supervisor = supervise(&sandbox, &hooks(&hook, None), &options, &main);
            supervisor.wait_for_lines("ready", 2);
            if by_term {
                supervisor.signal(Signal::TERM);
                assert_eq!(supervisor.exit_code(), 0);
            } else {
                assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
            }
            assert_eq!(
                (supervisor.count(signal), supervisor.count("bye")),
                (1, 1),
                "{}",
                supervisor.stdout()
            );
        }
    }
}

#[test]
fn given_a_post_start_that_is_a_plain_sleep_then_term_does_not_wait_for_it() {
    let sandbox = Sandbox::new();
    let hooks = hooks(HANG, None);
    let mut supervisor = supervise(&sandbox, &hooks, &["--kill-after", "600"], MAIN);
    supervisor.wait_for_line("ready");
    hook_pid(&sandbox);
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit_code(), 0);
}

#[test]
fn given_a_post_start_that_ignores_term_then_it_is_killed_with_the_rest() {
    let sandbox = Sandbox::new();
    let hooks = hooks(HANG_HARD, None);
    let mut supervisor = supervise(&sandbox, &hooks, &["--kill-after", "0.3"], MAIN);
    supervisor.wait_for_line("ready");
    let pid = hook_pid(&sandbox);
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit_code(), 0);
    assert!(!is_alive(pid));
}

#[test]
fn given_a_post_start_that_fails_then_the_process_is_stopped_first_and_the_code_is_1() {
    let sandbox = Sandbox::new();
    let main = "print=TERM exit-on=TERM:0:200 wait";
    let script = "until grep -q ready $BPM_BOSH_ROOT/out-*; do sleep 0.01; done; exit 3";
    let mut supervisor = supervise(&sandbox, &hooks(script, None), &["--kill-after", "600"], main);
    assert_eq!(supervisor.exit_code(), 1);
    assert_eq!((supervisor.count("TERM"), supervisor.count("bye")), (1, 1));
    assert_eq!(supervisor.stderr(), "container-run: post-start of j/p exited with code 3\n");
}

#[test]
fn given_a_post_start_that_may_not_be_executed_then_it_is_a_failure_that_names_it() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("post-start");
    fs::write(&path, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let mut supervisor = supervise(&sandbox, &["--post-start-name", path.to_str().unwrap()], &[], MAIN);
    assert_eq!(supervisor.exit_code(), 1);
    assert!(supervisor.stderr().contains(path.to_str().unwrap()), "{}", supervisor.stderr());
}

#[test]
fn given_a_post_start_that_fails_unmonitored_then_that_is_only_said() {
    let sandbox = Sandbox::new();
    let script = format!("{SAY_PID} until test -e $BPM_BOSH_ROOT/go; do sleep 0.01; done; exit 3");
    let supervisor = supervise(&sandbox, &hooks(&script, None), &[], MAIN);
    hook_pid(&sandbox);
    supervisor.ask("UNMONITOR");
    fs::write(sandbox.path("go"), "").unwrap();
    wait_until("it is said", || !supervisor.stderr().is_empty());
    stays_true("it runs", A_WHILE, || supervisor.state() == "running");
    assert_eq!(supervisor.stderr(), "container-run: post-start of j/p exited with code 3\n");
    assert_eq!(supervisor.count("TERM"), 0);
}

#[test]
fn given_a_post_start_that_fails_after_a_stop_then_that_is_no_failure() {
    let sandbox = Sandbox::new();
    let script = format!("trap 'exit 3' TERM; {SAY_PID} while :; do sleep 0.01; done");
    let supervisor = supervise(&sandbox, &hooks(&script, None), &["--kill-after", "600"], MAIN);
    supervisor.wait_for_line("ready");
    hook_pid(&sandbox);
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    assert_eq!(supervisor.state(), "stopped");
    // The shell may have a word about its sleep.
    assert!(!supervisor.stderr().contains("container-run"), "{}", supervisor.stderr());
}

#[test]
fn given_a_start_then_post_start_runs_again_but_not_while_running() {
    let sandbox = Sandbox::new();
    let supervisor = supervise(&sandbox, &hooks("echo post-start", None), &[], MAIN);
    supervisor.wait_for_line("post-start");
    let pid = supervisor.main_pid();
    for _ in 0..10 {
        assert_eq!(supervisor.ask("START"), format!("OK running {pid} monitored"));
    }
    stays_true("not again", A_WHILE, || supervisor.count("post-start") == 1);
    supervisor.ask("STOP WAIT");
    supervisor.ask("START");
    supervisor.wait_for_lines("post-start", 2);
}

#[test]
fn given_a_start_while_the_last_runs_post_start_still_runs_then_that_is_stopped_first() {
    let sandbox = Sandbox::new();
    let script = format!("exec {} print=TERM exit-on=TERM:0:50 say=hook wait", probe());
    let main = "exit-on=USR1:0 wait";
    let supervisor = supervise(&sandbox, &hooks(&script, None), &["--kill-after", "600"], main);
    supervisor.wait_for_lines("ready", 2);
    supervisor.ask("SIGNAL USR1");
    supervisor.wait_for_state("ended");
    assert!(supervisor.ask("START").starts_with("OK running "));
    assert_eq!((supervisor.count("TERM"), supervisor.count("bye")), (1, 1));
    supervisor.wait_for_lines("hook", 2);
    supervisor.wait_for_lines("ready", 4);
}

#[test]
fn given_a_process_that_fails_while_post_start_runs_then_that_is_stopped_before_the_end() {
    let sandbox = Sandbox::new();
    let script = format!("exec {} print=TERM exit-on=TERM:0:50 wait", probe());
    let main = "exit-on=USR1:5 wait";
    let mut supervisor = supervise(&sandbox, &hooks(&script, None), &["--kill-after", "600"], main);
    supervisor.wait_for_lines("ready", 2);
    supervisor.ask("SIGNAL USR1");
    assert_eq!(supervisor.exit_code(), 5);
    assert_eq!((supervisor.count("TERM"), supervisor.count("bye")), (1, 1));
}

#[test]
fn given_no_free_descriptor_then_the_condition_is_tried_again_when_there_is_one() {
    let sandbox = Sandbox::new();
    let condition = format!("test -e $BPM_BOSH_ROOT/go && {}", counting(&sandbox, 1));
    let hooks = hooks("echo post-start", Some(&condition));
    let mut supervisor = supervise(&sandbox, &hooks, &["--post-start-interval", "0.05"], MAIN);
    supervisor.wait_for_line("ready");
    supervisor.main_pid();
    let pid = supervisor.pid();
    let limit_descriptors = |soft| {
        let limit = libc::rlimit { rlim_cur: soft, rlim_max: 1024 };
        // SAFETY: the limit is valid, and the old one is not asked for.
        unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &limit, std::ptr::null_mut()) == 0 }
    };
    assert!(limit_descriptors(3));
    // A try that had begun before the limit has found no `go`.
    stays_true("it lives", A_WHILE, || supervisor.is_alive() || panic!("{}", supervisor.stderr()));
    fs::write(sandbox.path("go"), "").unwrap();
    stays_true("nothing can be tried", A_WHILE, || supervisor.is_alive() && tries(&sandbox) == 0);
    assert!(limit_descriptors(1024));
    supervisor.wait_for_line("post-start");
    assert_eq!(supervisor.state(), "running");
}

/// A BOSH root in which job J has what the operator's command line speaks of, and a `curl`.
fn operators_world(sandbox: &Sandbox) {
    for folder in ["jobs/J/bin", "bin"] {
        fs::create_dir_all(sandbox.path(folder)).unwrap();
    }
    write_program(sandbox.path("jobs/J/bin/post-start"), "#!/bin/sh\necho post-start: \"$# arguments\"\n");
    // It is well as soon as the process serves.
    write_program(
        sandbox.path("bin/curl"),
        "#!/bin/sh\necho \"$*\" >>/var/vcap/asked\ntest -e /var/vcap/serving\n",
    );
    let probe = probe();
    let executable = format!("#!/bin/sh\n: >/var/vcap/serving\necho \"main: $*\"\nexec {probe} {MAIN}\n");
    write_program(sandbox.path("bin/executable"), executable);
}

/// The operator's command line as it stands, below `init` in a mount namespace where the sandbox is /var/vcap.
fn as_the_operator(sandbox: &Sandbox, init: &[&str]) -> Supervisor {
    let enter = "mount -t tmpfs none /var && mkdir /var/vcap && mount --bind \"$0\" /var/vcap && \
                 PATH=/var/vcap/bin:$PATH && exec \"$@\"";
    let mut command = sandbox.program("unshare");
    command.args(["--mount", "sh", "-c", enter]).arg(sandbox.root()).args(init).arg(BINARY);
    command.args(["--post-start-name", "/var/vcap/jobs/J/bin/post-start"]);
    command.args(["--post-start-condition-name", "sh", "--post-start-condition-arg", "-c"]);
    command.args(["--post-start-condition-arg", "curl --silent --fail --head http://${HOST}:8080/health"]);
    command.args(["--job-name", "J", "--process-name", "P", "--", "/var/vcap/bin/executable", "-a", "--b=c"]);
    command.env_remove("BPM_BOSH_ROOT").env("HOST", "127.0.0.1");
    sandbox.start(command, "J", "P")
}

#[test]
fn given_the_operators_command_line_then_it_works_as_it_stands_also_below_dumb_init() {
    if !is_permitted(&["unshare", "--mount", "true"]) || !is_permitted(&["dumb-init", "true"]) {
        return;
    }
    let check = |init: &[&str]| {
        let sandbox = Sandbox::new();
        operators_world(&sandbox);
        let mut supervisor = as_the_operator(&sandbox, init);
        supervisor.wait_for_line("ready");
        supervisor.wait_for_line("post-start: 0 arguments");
        assert_eq!(supervisor.count("main: -a --b=c"), 1);
        let asked = fs::read_to_string(sandbox.path("asked")).unwrap();
        assert_eq!(asked, "--silent --fail --head http://127.0.0.1:8080/health\n");
        let pid = supervisor.main_pid();
        assert_eq!(supervisor.ask("STATUS"), format!("OK running {pid} monitored"));
        supervisor.signal(Signal::TERM);
        assert_eq!(supervisor.exit_code(), 0);
        assert_eq!((supervisor.count("TERM"), supervisor.stderr().as_str()), (1, ""), "{init:?}");
    };
    // At the same time: the interval before the first try is the real one.
    std::thread::scope(|scope| {
        for init in [&[][..], &["dumb-init", "--"]] {
            scope.spawn(move || check(init));
        }
    });
}
