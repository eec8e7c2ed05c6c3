//! What the main process inherits, and what not.

use std::collections::BTreeSet;

use super::*;

/// The lines of a probe's `dump`.
#[track_caller]
fn dump(supervisor: &Supervisor, times: usize) -> Vec<String> {
    supervisor.wait_for_lines("dumped", times);
    supervisor.stdout().lines().map(str::to_owned).collect()
}

fn descriptors(lines: &[String]) -> BTreeSet<&str> {
    lines.iter().filter_map(|line| line.strip_prefix("fd ")?.split(' ').next()).collect()
}

/// The same of a probe that becomes one after `prelude`, without a supervisor.
fn dump_unsupervised(sandbox: &Sandbox, prelude: &str) -> Vec<String> {
    let script = format!("{prelude}\nexec \"$0\" dump");
    let output = sandbox.program("sh").args(["-c", &script, &probe()]).output().unwrap();
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn given_an_inherited_descriptor_then_the_process_has_it_and_none_of_ours_also_after_a_restart() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("inherited"), "").unwrap();
    let prelude = "exec 7<$BPM_BOSH_ROOT/inherited";
    let expected = dump_unsupervised(&sandbox, prelude);
    let supervisor = sandbox.supervise_after(prelude, &[], &words(&probe_with("dump wait")));
    let inherited = format!("fd 7 {}", sandbox.path("inherited").display());
    for times in 1..=2 {
        let lines = dump(&supervisor, times);
        assert_eq!(descriptors(&lines), descriptors(&expected));
        assert_eq!(supervisor.count(&inherited), times, "{lines:?}");
        assert_eq!(supervisor.count("fd 0 /dev/null"), times, "{lines:?}");
        supervisor.ask("STOP WAIT");
        supervisor.ask("START");
    }
}

#[test]
fn given_closed_standard_descriptors_then_none_of_ours_takes_their_place() {
    for closed in ["exec <&-", "exec <&- 2>&-", "exec 2>&-"] {
        let sandbox = Sandbox::new();
        let expected = dump_unsupervised(&sandbox, "");
        let supervisor = sandbox.supervise_after(closed, &[], &words(&probe_with("dump wait")));
        let lines = dump(&supervisor, 1);
        assert!(descriptors(&lines).is_subset(&descriptors(&expected)), "{closed}: {lines:?}");
        assert!(lines.contains(&"fd 0 /dev/null".to_owned()), "{closed}: {lines:?}");
        let of_ours = |line: &&String| line.starts_with("fd 2 ") && !line.ends_with("/dev/null");
        assert_eq!(lines.iter().filter(of_ours).count(), usize::from(!closed.contains("2>&-")), "{lines:?}");
        assert!(supervisor.ask("STATUS").starts_with("OK running "));
    }
}

#[test]
fn given_stdin_from_somewhere_then_the_process_reads_nothing_of_it() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("input"), "secret\n").unwrap();
    let prelude = "exec <$BPM_BOSH_ROOT/input";
    let supervisor = sandbox.supervise_after(prelude, &[], &words(&sh("cat; echo end; exec sleep 600")));
    supervisor.wait_for_line("end");
    assert_eq!(supervisor.stdout(), "end\n");
}

#[test]
fn given_folder_environment_and_name_then_they_are_unchanged() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("here")).unwrap();
    symlink(probe(), sandbox.path("worker")).unwrap();
    let prelude = "cd $BPM_BOSH_ROOT/here; PATH=$BPM_BOSH_ROOT:$PATH; export LISTEN_FDS=3 'ODD=a b=\t$(c)'";
    let command = ["worker", "say=a b", "dump", "say=", "wait"];
    let supervisor = sandbox.supervise_after(prelude, &[], &command);
    let lines = dump(&supervisor, 1);
    let has = |line: &str| assert!(lines.contains(&line.to_owned()), "no '{line}' in {lines:?}");
    has(&format!("cwd {}", sandbox.path("here").display()));
    has("env LISTEN_FDS=3");
    has("env ODD=a b=\t$(c)");
    for (number, argument) in command.iter().enumerate() {
        has(&format!("arg {number} {argument}"));
    }
    // Nothing is added either.
    let own = fs::read(format!("/proc/{}/environ", supervisor.pid())).unwrap();
    let inherited = own.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()).count();
    assert_eq!(lines.iter().filter(|line| line.starts_with("env ")).count(), inherited);
}

#[test]
fn given_niceness_limits_and_groups_then_they_are_unchanged_also_after_a_restart() {
    let sandbox = Sandbox::new();
    let report =
        "echo $(nice) $(ulimit -Sn) $(ulimit -Hn) $(ulimit -Sc) $(ulimit -Ss); id -G; exec sleep 600";
    let prelude = "ulimit -Sn 321; ulimit -Hn 654; ulimit -Sc 0; ulimit -Ss 4096; renice -n 5 $$ >/dev/null";
    let supervisor = sandbox.supervise_after(prelude, &[], &words(&sh(report)));
    let groups = text(&sandbox.program("id").arg("-G").output().unwrap().stdout);
    supervisor.wait_for_line("5 321 654 0 4096");
    // The last that it prints: stopped before, it would print it once only.
    supervisor.wait_for_line(groups.trim());
    supervisor.ask("STOP WAIT");
    supervisor.ask("START");
    supervisor.wait_for_lines("5 321 654 0 4096", 2);
    supervisor.wait_for_lines(groups.trim(), 2);
}
