//! What is refused before anything runs, with which exit code, and in which words.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Output;

use common::*;

const OWN: [&str; 4] = ["--job-name", "j", "--process-name", "p"];

/// Nothing but the script of an earlier test step lies below the root.
#[track_caller]
fn assert_nothing_was_made(sandbox: &Sandbox) {
    let made: Vec<_> = fs::read_dir(sandbox.root()).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(made.is_empty(), "{made:?}");
}

#[track_caller]
fn assert_refused(output: &Output, code: i32, names: &str) {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert!(complaint(output).contains(names), "'{names}' is not in {output:?}");
}

/// Runs a supervisor whose EXECUTABLE cannot be run; no file of it is left.
#[track_caller]
fn assert_cannot_run(sandbox: &Sandbox, executable: impl AsRef<OsStr>, code: i32, reason: &str) {
    let output = sandbox.command().args(OWN).arg("--").arg(&executable).output().unwrap();
    assert_refused(&output, code, reason);
    assert!(complaint(&output).contains(&*executable.as_ref().to_string_lossy()), "{output:?}");
    assert!(sandbox.files().is_empty(), "{:?}", sandbox.files());
}

fn executable_file(sandbox: &Sandbox, name: &str, content: &[u8]) -> OsString {
    let path = sandbox.path(name);
    write_program(&path, content);
    path.into()
}

#[test]
fn given_wrong_usage_then_it_is_one_line_and_2_and_nothing_is_made() {
    let sandbox = Sandbox::new();
    let with = |words: &[&'static str]| [&OWN, words].concat();
    let cases: Vec<(Vec<&str>, &str)> = vec![
        (vec![], "--job-name"),
        (vec!["true"], "--job-name"),
        (vec!["--job-name", "j", "true"], "--process-name"),
        (vec!["--process-name", "p", "true"], "--job-name"),
        (vec!["--job-name", "j", "--process-name"], "--process-name"),
        (with(&[]), "EXECUTABLE"),
        (with(&["--"]), "EXECUTABLE"),
        (with(&["--job-name", "k", "true"]), "--job-name"),
        (with(&["--debug", "--debug", "true"]), "--debug"),
        (with(&["--bogus", "true"]), "--bogus"),
        (with(&["-x", "true"]), "-x"),
        (with(&["--kill-after", "soon", "true"]), "soon"),
        (with(&["--kill-after", "-1", "true"]), "-1"),
        (with(&["--kill-after", "inf", "true"]), "inf"),
        (with(&["--kill-after", "", "true"]), "--kill-after"),
        (with(&["--post-start-interval", "x", "true"]), "--post-start-interval"),
        (with(&["--post-start-timeout", "NaN", "true"]), "NaN"),
        (with(&["--stop-signal", "HUP", "true"]), "HUP"),
        (with(&["--post-start-arg", "a", "true"]), "--post-start-name"),
        (with(&["--post-start-condition-name", "a", "true"]), "--post-start-name"),
        (with(&["--post-start-name", "a", "--post-start-condition-arg", "b", "true"]), "condition-name"),
        (vec!["send"], "VERB"),
        (vec!["send", "STOP"], "J"),
        (vec!["send", "STOP", "j", "extra"], "extra"),
        (vec!["send", "STOP", "j", "--wait", "x"], "--wait"),
        (vec!["probe"], "J"),
        (vec!["probe", "a/b"], "a/b"),
        (vec!["list", "x"], "x"),
        (vec!["install-bpm", "--bogus"], "--bogus"),
    ];
    for (arguments, names) in cases {
        let output = sandbox.run(&arguments);
        assert_refused(&output, 2, names);
        assert_nothing_was_made(&sandbox);
    }
}

#[test]
fn given_a_name_that_is_no_file_name_then_it_is_shown_and_nothing_is_made() {
    let sandbox = Sandbox::new();
    let long = "x".repeat(256);
    let names = ["", ".", "..", "/", "a/b", "../x", "/etc", "a\nb", "a\tb", "\x1b[1m", "\u{7f}", &long];
    for name in names {
        let shown = name.escape_debug().to_string();
        for arguments in [
            ["--job-name", name, "--process-name", "p", "true"],
            ["--job-name", "j", "--process-name", name, "true"],
            ["send", "STATUS", "j", "-p", name],
        ] {
            let output = sandbox.run(&arguments);
            assert_refused(&output, 2, &shown);
            assert_nothing_was_made(&sandbox);
        }
    }
}

#[test]
fn given_a_name_that_is_not_utf_8_then_it_is_refused() {
    let sandbox = Sandbox::new();
    for option in ["--job-name", "--process-name"] {
        let other = if option == OWN[0] { OWN[2] } else { OWN[0] };
        let mut command = sandbox.command();
        command.args([other, "x", option]).arg(OsStr::from_bytes(b"a\xffb")).arg("true");
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = complaint(&output).to_lowercase();
        assert!(said.contains("a\u{fffd}b") || said.contains("a\\xffb"), "the name is not shown: {said}");
        assert_nothing_was_made(&sandbox);
    }
}

#[test]
fn given_a_process_name_that_leaves_no_room_for_its_files_then_it_is_refused() {
    let sandbox = Sandbox::new();
    let name = "x".repeat(250);
    let output = sandbox.run(&["--job-name", "j", "--process-name", &name, "true"]);
    assert!([Some(1), Some(2)].contains(&output.status.code()), "{output:?}");
    assert!(complaint(&output).contains(&name), "{output:?}");
    assert_nothing_was_made(&sandbox);
}

#[test]
fn given_strange_but_valid_names_then_they_are_data() {
    let sandbox = Sandbox::new();
    let longest = "x".repeat(200);
    for name in [" ", "a b", "-x", "--", "...", "$(id)", "`id`", "'", "\"", "*", "\\", "é", "a;b", &longest]
    {
        let supervisor = sandbox.supervise_as(name, name, &[], &["sleep", "600"]);
        let pid = supervisor.main_pid();
        let output = sandbox.run(&["send", "STATUS", &format!("--process={name}"), "--", name]);
        assert_eq!(text(&output.stdout), format!("running {pid} monitored\n"), "{name:?} {output:?}");
    }
}

#[test]
fn given_help_or_version_then_it_is_on_stdout_and_0() {
    let sandbox = Sandbox::new();
    let cases: [&[&str]; 10] = [
        &["--help"],
        &["-h"],
        &["--version"],
        &["-V"],
        &["install-bpm", "--help"],
        &["send", "--help"],
        &["probe", "-h"],
        &["list", "--help"],
        &["send", "--version"],
        &["--job-name", "j", "--help"],
    ];
    for arguments in cases {
        let output = sandbox.run(arguments);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "{arguments:?}");
        assert!(text(&output.stdout).contains("container-run"), "{arguments:?}");
    }
    assert_nothing_was_made(&sandbox);
}

#[test]
fn given_no_reader_of_help_then_nothing_panics() {
    let sandbox = Sandbox::new();
    for redirection in [">&-", ">/dev/full", "| true", ">&- 2>&-"] {
        let script = format!("{{ \"$0\" --help {redirection}; }} 2>&1; true");
        let output = sandbox.program("sh").args(["-c", &script, BINARY]).output().unwrap();
        let said = text(&output.stdout);
        assert!(!said.contains("panic") && said.lines().count() <= 1, "{redirection}: {said}");
    }
}

#[test]
fn given_a_stderr_that_takes_nothing_then_the_exit_code_is_the_same() {
    let sandbox = Sandbox::new();
    for redirection in ["2>&-", "2>/dev/full", "2>&- >&- <&-", "2>/dev/full >/dev/full"] {
        for (arguments, code) in [
            ("--bogus", 2),
            ("--job-name j --process-name p /no/such/program", 127),
            ("--job-name j --process-name p /etc", 126),
            ("--job-name j --process-name p -- sh -c 'exit 7'", 7),
            ("send STATUS j", 3),
        ] {
            let script = format!("\"$0\" {arguments} {redirection}");
            let output = sandbox.program("sh").args(["-c", &script, BINARY]).output().unwrap();
            assert_eq!(output.status.code(), Some(code), "{script}: {output:?}");
            assert!(sandbox.files().is_empty(), "{:?}", sandbox.files());
        }
    }
}

#[test]
fn given_a_stdout_that_takes_nothing_then_send_says_so() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&["sleep", "600"]);
    supervisor.main_pid();
    let script = "\"$0\" send STATUS j -p p >/dev/full";
    let output = sandbox.program("sh").args(["-c", script, BINARY]).output().unwrap();
    assert_refused(&output, 1, "stdout");
}

#[test]
fn given_a_program_that_is_not_there_then_it_is_127_and_named() {
    let sandbox = Sandbox::new();
    symlink("/no/such/target", sandbox.path("dangling")).unwrap();
    for name in ["/no/such/program", "no-such-program-anywhere", "./no-such-program", "/dev/null/x"] {
        assert_cannot_run(&sandbox, name, 127, name);
    }
    assert_cannot_run(&sandbox, sandbox.path("dangling"), 127, "no such file");
    assert_cannot_run(&sandbox, OsStr::from_bytes(b"/no/such/\xff"), 127, "no such file");
    let output = sandbox.command().args(OWN).args(["--", ""]).output().unwrap();
    assert_refused(&output, 127, "");
}

#[test]
fn given_a_program_that_cannot_be_executed_then_it_is_126_and_each_reason_is_another() {
    let sandbox = Sandbox::new();
    let other_machine = {
        let mut header = vec![0; 64];
        header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        // ET_EXEC for a machine that nobody has.
        header[16..20].copy_from_slice(&[2, 0, 0xee, 0xee]);
        header
    };
    let plain = sandbox.path("plain");
    fs::write(&plain, "#!/bin/sh\n").unwrap();
    let directory = sandbox.path("directory");
    fs::create_dir(&directory).unwrap();
    let mut interpreter = executable_file(&sandbox, "bad-interpreter", b"#!/no/such/interpreter\n");
    assert_cannot_run(&sandbox, &directory, 126, "directory");
    assert_cannot_run(&sandbox, &plain, 126, "Permission denied");
    assert_cannot_run(&sandbox, &interpreter, 126, "interpreter");
    interpreter = executable_file(&sandbox, "no-interpreter", b"#!\n");
    assert_cannot_run(&sandbox, &interpreter, 126, "");
    assert_cannot_run(&sandbox, executable_file(&sandbox, "empty", b""), 126, "empty");
    assert_cannot_run(&sandbox, executable_file(&sandbox, "text", b"echo hello\n"), 126, "#!");
    assert_cannot_run(&sandbox, executable_file(&sandbox, "machine", &other_machine), 126, "machine");
    assert_cannot_run(&sandbox, "/dev/null", 126, "regular file");
}

#[test]
fn given_a_name_with_a_newline_then_the_error_is_still_one_line() {
    let sandbox = Sandbox::new();
    let output = sandbox.command().args(OWN).args(["--", "/no/such\nprogram"]).output().unwrap();
    assert_refused(&output, 127, "/no/such\\nprogram");
}

#[test]
fn given_a_path_without_the_program_then_a_relative_name_fails_and_an_absolute_one_works() {
    let sandbox = Sandbox::new();
    for path in [None, Some("")] {
        let command = |executable: &str| {
            let mut command = sandbox.command();
            command.env_remove("PATH");
            command.envs(path.map(|path| ("PATH", path)));
            command.args(OWN).args(["--", executable, "-c", "exit 7"]);
            command.output().unwrap()
        };
        assert_eq!(command("/bin/sh").status.code(), Some(7));
        let output = command("sh");
        assert_refused(&output, 127, "PATH");
        assert!(complaint(&output).contains("sh"));
    }
}

#[test]
fn given_a_path_with_several_folders_then_the_first_that_can_be_executed_is_run() {
    let sandbox = Sandbox::new();
    for (folder, mode, code) in [("a", 0o644, 1), ("b", 0o755, 2), ("c", 0o755, 3)] {
        fs::create_dir(sandbox.path(folder)).unwrap();
        executable_file(&sandbox, &format!("{folder}/tool"), format!("#!/bin/sh\nexit {code}\n").as_bytes());
        let path = sandbox.path(folder).join("tool");
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let run = |folders: &[&str]| {
        let path = std::env::join_paths(folders.iter().map(|folder| sandbox.path(folder))).unwrap();
        sandbox.command().env("PATH", path).args(OWN).args(["--", "tool"]).output().unwrap()
    };
    assert_eq!(run(&["missing", "a", "b", "c"]).status.code(), Some(2));
    assert_refused(&run(&["missing", "a"]), 126, "a/tool");
}

#[test]
fn given_all_that_follows_executable_then_it_belongs_to_it_byte_for_byte() {
    let sandbox = Sandbox::new();
    let show = "for word; do printf '<%s>' \"$word\"; done | od -An -v -tx1; echo; exit 7";
    let arguments: [&[u8]; 8] =
        [b"--", b"--help", b"--job-name", b"", b" a ", b"\xff\xfe", b"new\nline", b"-c"];
    for dashes in [&["--"][..], &[]] {
        let mut command = sandbox.command();
        command.args(OWN).args(dashes).args(["sh", "-c", show, "sh"]);
        let output = command.args(arguments.map(OsStr::from_bytes)).output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        let hex = text(&output.stdout).split_whitespace().collect::<String>();
        let expected: Vec<u8> = arguments.iter().flat_map(|word| [b"<", *word, b">"].concat()).collect();
        assert_eq!(hex, expected.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    }
}

#[test]
fn given_an_executable_that_is_not_utf_8_or_named_like_a_subcommand_then_it_runs() {
    let sandbox = Sandbox::new();
    let odd = sandbox.root().join(OsString::from_vec(b"odd-\xff".to_vec()));
    write_program(&odd, "#!/bin/sh\nexit 7\n");
    let output = sandbox.command().args(OWN).arg("--").arg(&odd).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    for name in ["install-bpm", "send", "status", "probe", "list", "help", "--help"] {
        executable_file(&sandbox, name, b"#!/bin/sh\nexit 8\n");
        let path = format!("{}:/bin:/usr/bin", sandbox.root().display());
        let output = sandbox.command().env("PATH", path).args(OWN).args(["--", name]).output().unwrap();
        assert_eq!(output.status.code(), Some(8), "{name}: {output:?}");
    }
}

#[test]
fn given_arguments_that_just_fit_for_us_but_not_for_the_program_then_that_is_said() {
    let sandbox = Sandbox::new();
    // Its interpreter's path and argument come on top of what it is called with.
    let line = format!("#!/bin/sh -{}\nexit 7\n", "e".repeat(200));
    let script = executable_file(&sandbox, "script", line.as_bytes());
    // So that the limit is the least there is, 128 KiB (execve(2)).
    let limited = |size: usize| {
        let mut command = sandbox.command_after("ulimit -s 512", &OWN);
        command.arg("--").arg(&script);
        (0..size / 1000).for_each(|_| _ = command.arg("x".repeat(999)));
        command.arg("x".repeat(size % 1000));
        command.env_clear().env("PATH", "/bin:/usr/bin").env("BPM_BOSH_ROOT", sandbox.root());
        command.output()
    };
    let mut said = None;
    for size in (100_000..131_072).rev().step_by(40) {
        match limited(size) {
            Ok(output) if text(&output.stderr).starts_with("container-run: ") => {
                said = Some(output);
                break;
            }
            // The shell, or even we ourselves, could not be started.
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ArgumentListTooLong),
        }
    }
    assert_refused(&said.unwrap(), 126, "too long");
    assert!(sandbox.files().is_empty(), "{:?}", sandbox.files());
}

/// The words of every command: none, `send`, `drain-patch`, `drain-patch list` …
fn commands() -> Vec<Vec<String>> {
    fn visit(command: &clap::Command, words: &[String], found: &mut Vec<Vec<String>>) {
        found.push(words.to_vec());
        for subcommand in command.get_subcommands() {
            visit(subcommand, &[words, &[subcommand.get_name().to_owned()]].concat(), found);
        }
    }
    let mut found = vec![];
    visit(&container_run::cli::documentation(), &[], &mut found);
    assert!(found.len() > 8, "{found:?}");
    found
}

/// What a command prints as its help.
#[track_caller]
fn help(sandbox: &Sandbox, command: &[String], option: &str) -> String {
    let output = sandbox.command().args(command).arg(option).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{command:?} {output:?}");
    text(&output.stdout)
}

#[test]
fn given_short_help_of_any_command_then_it_fits_a_screen() {
    let sandbox = Sandbox::new();
    for command in commands() {
        let help = help(&sandbox, &command, "-h");
        assert!(help.lines().count() < 24, "with the prompt, {command:?} needs more lines:\n{help}");
        let wide: Vec<&str> = help.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{command:?}: {wide:?}");
    }
}

#[test]
fn given_long_help_of_any_command_then_it_is_80_columns_wide_and_has_an_example() {
    let sandbox = Sandbox::new();
    for command in commands() {
        let help = help(&sandbox, &command, "--help");
        let wide: Vec<&str> = help.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{command:?}: {wide:?}");
        let (_, examples) = help.split_once("\nExamples:\n").unwrap_or_else(|| panic!("{command:?}: {help}"));
        let called = ["  container-run".to_owned()].into_iter().chain(command).collect::<Vec<_>>().join(" ");
        assert!(examples.lines().any(|line| line.starts_with(&called)), "{called}: {examples}");
        let by_word =
            ["help".to_owned()].into_iter().chain(called.split_whitespace().skip(1).map(str::to_owned));
        let by_word = sandbox.command().args(by_word).output().unwrap();
        assert_eq!(text(&by_word.stdout), help, "{called}");
    }
}

#[test]
fn given_long_help_of_the_supervisor_then_it_has_sections() {
    let sandbox = Sandbox::new();
    let help = help(&sandbox, &[], "--help");
    for section in [
        "Usage",
        "Commands",
        "Arguments",
        "Options",
        "Post-start",
        "Stopping",
        "Logging",
        "Examples",
        "Exit codes",
        "Signals",
        "Files",
        "Environment",
    ] {
        assert!(help.contains(&format!("\n{section}:\n")), "no {section} in\n{help}");
    }
}

#[test]
fn given_a_mistyped_word_then_the_error_names_what_may_be_meant() {
    let sandbox = Sandbox::new();
    let cases: [(&[&str], &str); 9] = [
        (&["stauts"], "'status'"),
        (&["--job-name", "j", "--process-name", "p", "--debgu", "true"], "'--debug'"),
        (&["--job-name", "j", "--process-name", "p", "--stop-signal", "TREM", "true"], "TERM"),
        (&["send", "STOP", "j", "--wiat", "3"], "'--wait'"),
        (&["drain-patch", "aply"], "'apply'"),
        (&["prbe", "web"], "'probe'"),
        (&["help", "sedn"], "'send'"),
        (&["help", "frobnicate"], "unknown command 'frobnicate'"),
        (&["instal-bpm"], "'install-bpm'"),
    ];
    for (arguments, meant) in cases {
        assert_refused(&sandbox.run(arguments), 2, meant);
    }
    let said = complaint(&sandbox.run(&["true"]));
    assert!(!said.contains("mean"), "nothing is like it: {said}");
}

#[test]
fn given_help_and_more_words_then_nothing_is_carried_out() {
    let sandbox = Sandbox::new();
    for arguments in [
        &["help", "--job-name", "j", "--process-name", "p", "--", "echo", "supervised"][..],
        &["help", "drain", "--no-barrier", "--"],
        &["help", "drain", "j", "--pod"],
        &["help", "send", "STOP", "j"],
    ] {
        let output = sandbox.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(text(&output.stdout).contains("Usage:"), "{output:?}");
        assert!(!sandbox.path("data").exists());
    }
}

#[test]
fn given_a_verb_that_there_is_none_of_then_send_names_what_may_be_meant() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&["sleep", "600"]);
    supervisor.main_pid();
    for (verb, meant) in [
        ("stop", "; did you mean 'STOP'?"),
        ("SATUS", "; did you mean 'STATUS'?"),
        ("unmonitor", "; did you mean 'UNMONITOR'?"),
        ("RESTART", "; did you mean 'START'?"),
        ("frobnicate", "unknown command 'frobnicate'; `container-run help send` lists the verbs"),
    ] {
        let output = sandbox.run(&["send", verb, "j", "-p", "p"]);
        assert_refused(&output, 1, &format!("unknown command '{verb}'"));
        assert_refused(&output, 1, meant);
    }
    // Other refusals say all there is.
    let said = complaint(&sandbox.run(&["send", "SIGNAL FOO", "j", "-p", "p"]));
    assert_eq!(said, "container-run: unknown signal 'FOO'");
}

#[test]
fn given_no_supervisor_then_send_and_probe_say_how_to_find_one() {
    let sandbox = Sandbox::new();
    for (arguments, code) in [(["send", "STATUS", "j"], 3), (["probe", "j", "-pp"], 1)] {
        let output = sandbox.run(&arguments);
        assert_refused(&output, code, "no supervisor is at ");
        assert_refused(&output, code, "; `container-run status` shows those that are there");
    }
}
