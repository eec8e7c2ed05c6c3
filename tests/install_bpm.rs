//! Installing the bpm script: where, for whom, and over what.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use common::*;

const SCRIPT: &str = "jobs/bpm/bin/bpm";
const STRANGER: &str = "#!/bin/sh\necho the real bpm\n";

/// Runs `install-bpm` to its end.
fn install(sandbox: &Sandbox, arguments: &[&str]) -> Output {
    sandbox.run(&[&["install-bpm"], arguments].concat())
}

#[track_caller]
fn assert_silent_success(output: &Output) {
    let said = (output.status.code(), text(&output.stdout), text(&output.stderr));
    assert_eq!(said, (Some(0), String::new(), String::new()));
}

/// What `--print` prints.
#[track_caller]
fn printed(sandbox: &Sandbox, arguments: &[&str]) -> String {
    let output = install(sandbox, &[&["--print"], arguments].concat());
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    text(&output.stdout)
}

fn write(path: &Path, content: &str, mode: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// What tells whether a file was written again.
fn identity(path: &Path) -> (u64, i64, i64, String) {
    let file = fs::metadata(path).unwrap();
    (file.ino(), file.mtime(), file.mtime_nsec(), fs::read_to_string(path).unwrap())
}

fn files_beside(path: &Path) -> Vec<PathBuf> {
    fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// The script as an older version of ours would have written it.
fn older(script: &str) -> String {
    let older = script.replace(env!("CARGO_PKG_VERSION"), "0.0.1");
    assert_ne!(older, script);
    older + "# something that is gone\n"
}

#[test]
fn given_any_umask_and_no_folder_then_the_script_is_there_0755_and_whole() {
    for umask in ["000", "022", "077"] {
        let sandbox = Sandbox::new();
        let mut command = sandbox.command_after(&format!("umask {umask}"), &["install-bpm"]);
        assert_silent_success(&command.output().unwrap());
        let script = sandbox.path(SCRIPT);
        assert_eq!(fs::metadata(&script).unwrap().mode() & 0o7777, 0o755);
        for folder in ["jobs", "jobs/bpm", "jobs/bpm/bin"] {
            assert_eq!(fs::metadata(sandbox.path(folder)).unwrap().mode() & 0o7777, 0o755, "{folder}");
        }
        assert_eq!(fs::read_to_string(&script).unwrap(), printed(&sandbox, &[]));
        assert_eq!(files_beside(&script), [script]);
    }
}

#[test]
fn given_the_same_script_then_it_is_left_as_it_is() {
    let sandbox = Sandbox::new();
    assert_silent_success(&install(&sandbox, &[]));
    let script = sandbox.path(SCRIPT);
    let before = identity(&script);
    assert_silent_success(&install(&sandbox, &[]));
    sandbox.supervise(&["sleep", "600"]).main_pid();
    assert_eq!(identity(&script), before);
}

#[test]
fn given_the_same_script_that_not_all_may_run_then_it_is_made_so() {
    for mode in [0o644, 0o600, 0o711, 0o744] {
        for by_supervisor in [false, true] {
            let sandbox = Sandbox::new();
            let script = sandbox.path(SCRIPT);
            write(&script, &printed(&sandbox, &[]), mode);
            if by_supervisor {
                sandbox.supervise(&["sleep", "600"]).main_pid();
            } else {
                assert_silent_success(&install(&sandbox, &[]));
            }
            assert_eq!(fs::metadata(&script).unwrap().mode() & 0o7777, 0o755, "{mode:o}");
            assert_eq!(files_beside(&script), [script]);
        }
    }
}

#[test]
fn given_the_same_script_that_all_may_run_then_its_mode_is_left_as_it_is() {
    // 0775 is what Kubernetes makes of it on a volume with an fsGroup.
    for mode in [0o775, 0o555] {
        let sandbox = Sandbox::new();
        let script = sandbox.path(SCRIPT);
        write(&script, &printed(&sandbox, &[]), mode);
        let before = identity(&script);
        assert_silent_success(&install(&sandbox, &[]));
        assert_eq!(identity(&script), before);
        assert_eq!(fs::metadata(&script).unwrap().mode() & 0o7777, mode);
    }
}

#[test]
fn given_an_older_one_of_ours_then_it_is_replaced_by_command_and_supervisor() {
    for by_supervisor in [false, true] {
        let sandbox = Sandbox::new();
        let newest = printed(&sandbox, &[]);
        let script = sandbox.path(SCRIPT);
        write(&script, &older(&newest), 0o700);
        if by_supervisor {
            sandbox.supervise(&["sleep", "600"]).main_pid();
        } else {
            assert_silent_success(&install(&sandbox, &[]));
        }
        assert_eq!(fs::read_to_string(&script).unwrap(), newest);
        assert_eq!(fs::metadata(&script).unwrap().mode() & 0o7777, 0o755);
    }
}

#[test]
fn given_a_stranger_then_it_is_left_alone_with_a_message_unless_forced() {
    for content in [STRANGER, "", "\x7fELF\0\u{1}"] {
        let sandbox = Sandbox::new();
        let script = sandbox.path(SCRIPT);
        write(&script, content, 0o711);
        let before = identity(&script);
        let output = install(&sandbox, &[]);
        assert_eq!(output.status.code(), Some(1));
        let said = complaint(&output);
        assert!(said.contains(script.to_str().unwrap()) && said.contains("--force"), "{said}");
        assert_eq!(identity(&script), before);
        assert_silent_success(&install(&sandbox, &["--force"]));
        assert_eq!(fs::read_to_string(&script).unwrap(), printed(&sandbox, &[]));
    }
}

#[test]
fn given_a_stranger_then_a_supervisor_leaves_it_alone_without_a_word() {
    let sandbox = Sandbox::new();
    let script = sandbox.path(SCRIPT);
    write(&script, STRANGER, 0o755);
    let before = identity(&script);
    let supervisor = sandbox.supervise(&["sleep", "600"]);
    supervisor.main_pid();
    assert_eq!(identity(&script), before);
    assert_eq!(supervisor.stderr(), "");
}

#[test]
fn given_a_symbolic_link_then_its_target_is_never_written_to() {
    let sandbox = Sandbox::new();
    let script = sandbox.path(SCRIPT);
    let target = sandbox.path("target");
    write(&target, STRANGER, 0o755);
    fs::create_dir_all(script.parent().unwrap()).unwrap();
    symlink(&target, &script).unwrap();
    assert_eq!(install(&sandbox, &[]).status.code(), Some(1));
    assert_silent_success(&install(&sandbox, &["--force"]));
    assert_eq!(fs::read_to_string(&target).unwrap(), STRANGER);
    assert!(fs::symlink_metadata(&script).unwrap().is_file());
}

#[test]
fn given_no_install_bpm_then_a_supervisor_writes_none() {
    let sandbox = Sandbox::new();
    sandbox.supervise_with(&["--no-install-bpm"], &["sleep", "600"]).main_pid();
    assert!(!sandbox.path("jobs").exists());
}

#[test]
fn given_print_then_nothing_is_written() {
    let sandbox = Sandbox::new();
    assert!(printed(&sandbox, &[]).starts_with("#!/bin/sh\n"));
    assert!(fs::read_dir(sandbox.root()).unwrap().next().is_none());
    let shell = "\"$0\" install-bpm --print >/dev/full";
    let output = sandbox.program("sh").args(["-c", shell, BINARY]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("stdout"), "{output:?}");
}

#[test]
fn given_roots_and_a_binary_then_the_script_uses_those_of_run_time() {
    let sandbox = Sandbox::new();
    let image = sandbox.path("image");
    let image = image.to_str().unwrap();
    let words = |arguments: &[&str]| {
        let script = printed(&sandbox, arguments);
        let quoted = |word: &str| script.contains(&format!("'{word}'"));
        let root = sandbox.root().to_str().unwrap().to_owned();
        [
            quoted("/var/vcap"),
            quoted(&root),
            quoted(image),
            quoted("/elsewhere"),
            quoted(BINARY),
            quoted("/x y"),
        ]
    };
    // Which of: the default root, that of the environment, --root, --target-root, our own path, another.
    assert_eq!(words(&[]), [false, true, false, false, true, false]);
    assert_eq!(words(&["--root", image]), [true, false, false, false, true, false]);
    let target = ["--root", image, "--target-root", "/elsewhere"];
    assert_eq!(words(&target), [false, false, false, true, true, false]);
    assert_eq!(words(&["--target-root", "/elsewhere"]), [false, false, false, true, true, false]);
    assert_eq!(words(&["--container-run", "/x y"]), [false, true, false, false, false, true]);

    assert_silent_success(&install(&sandbox, &[&target[..], &["--container-run", "/x y"]].concat()));
    assert!(Path::new(image).join(SCRIPT).exists() && !sandbox.path("jobs").exists());
}

#[test]
fn given_a_script_with_a_target_root_then_the_variable_still_wins_at_run_time() {
    let sandbox = Sandbox::new();
    sandbox.supervise_as("x", "x", &["--no-install-bpm"], &["sleep", "600"]).main_pid();
    assert_silent_success(&install(&sandbox, &["--target-root", "/no/such/root"]));
    assert_eq!(sandbox.bpm(&["running", "x"]).status.code(), Some(0));
    let mut without = sandbox.program(sandbox.path(SCRIPT).to_str().unwrap());
    without.env_remove("BPM_BOSH_ROOT").args(["running", "x"]);
    assert_eq!(without.output().unwrap().status.code(), Some(1));
}

#[test]
fn given_a_supervisor_with_a_root_of_its_own_then_its_script_uses_that() {
    let sandbox = Sandbox::new();
    // Not the environment's, and with all that a shell would take for its own.
    let root = sandbox.path("it's a $(root) \"here\"");
    let mut command = sandbox.command();
    command.env_remove("BPM_BOSH_ROOT").arg("--root").arg(&root);
    command.args(["--job-name", "x", "--process-name", "x", "sleep", "600"]);
    let supervisor = sandbox.start(command, "x", "x");
    wait_until("it runs", || root.join("data/x/x_containerrun.running").exists());
    let mut bpm = sandbox.program(root.join(SCRIPT).to_str().unwrap());
    let output = bpm.env_remove("BPM_BOSH_ROOT").args(["pid", "x"]).output().unwrap();
    let pid = fs::read_to_string(root.join("sys/run/bpm/x/x.pid")).unwrap();
    assert_eq!(text(&output.stdout).trim(), pid, "{output:?} {}", supervisor.stderr());
}

#[test]
fn given_a_place_that_cannot_be_written_to_then_the_command_fails_and_a_supervisor_only_warns() {
    // Root may write everywhere, but to no folder where a file is.
    for obstacle in ["jobs", "jobs/bpm", "jobs/bpm/bin"] {
        let sandbox = Sandbox::new();
        write(&sandbox.path(obstacle), "", 0o644);
        let output = install(&sandbox, &[]);
        assert_eq!(output.status.code(), Some(1));
        assert!(complaint(&output).contains(sandbox.path("jobs").to_str().unwrap()), "{output:?}");
        let supervisor = sandbox.supervise(&["sleep", "600"]);
        supervisor.wait_for_state("running");
        let said = supervisor.stderr();
        assert!(said.starts_with("container-run: warning: ") && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn given_a_folder_in_the_scripts_place_then_it_is_left_alone_and_named() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.path(SCRIPT).join("precious")).unwrap();
    for arguments in [&[][..], &["--force"]] {
        let output = install(&sandbox, arguments);
        assert_eq!(output.status.code(), Some(1));
        assert!(complaint(&output).contains(sandbox.path(SCRIPT).to_str().unwrap()), "{output:?}");
    }
    assert!(sandbox.path(SCRIPT).join("precious").exists());
    assert_eq!(files_beside(&sandbox.path(SCRIPT)).len(), 1);
}

#[test]
fn given_a_read_only_or_full_file_system_then_the_command_names_the_path() {
    if !is_permitted(&["unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt"]) {
        return;
    }
    let sandbox = Sandbox::new();
    for mount in [
        "mount -t tmpfs -o ro none $BPM_BOSH_ROOT",
        "mount -t tmpfs -o size=4k none $BPM_BOSH_ROOT; head -c 4096 /dev/zero >$BPM_BOSH_ROOT/full",
    ] {
        let mut command = sandbox.program("unshare");
        let script = format!(
            "{mount}\n\"$0\" install-bpm; code=$?; find $BPM_BOSH_ROOT -name 'bpm*' -type f; exit $code"
        );
        let output = command.args(["-m", "sh", "-c", &script, BINARY]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(complaint(&output).contains(sandbox.path("jobs/bpm").to_str().unwrap()), "{output:?}");
    }
}

#[test]
fn given_a_user_without_rights_then_the_command_fails_and_a_supervisor_only_warns() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::new();
    fs::set_permissions(sandbox.root(), Permissions::from_mode(0o777)).unwrap();
    fs::create_dir_all(sandbox.path("jobs")).unwrap();
    copy_program(BINARY, sandbox.path("container-run"));
    let program = || {
        let mut command = sandbox.program(sandbox.path("container-run").to_str().unwrap());
        command.uid(12345).gid(12345);
        command
    };
    let output = program().arg("install-bpm").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("Permission denied"), "{output:?}");
    let mut command = program();
    command.args(["--job-name", "j", "--process-name", "p", "sleep", "600"]);
    let supervisor = sandbox.start(command, "j", "p");
    supervisor.wait_for_state("running");
    assert!(supervisor.stderr().starts_with("container-run: warning: "), "{}", supervisor.stderr());
}

#[test]
fn given_many_at_once_then_one_whole_file_is_left_and_no_reader_sees_less() {
    let sandbox = Sandbox::new();
    let scripts: Vec<String> =
        ["/a", "/b"].iter().map(|binary| printed(&sandbox, &["--container-run", binary])).collect();
    let script = sandbox.path(SCRIPT);
    std::thread::scope(|scope| {
        let installers: Vec<_> = (0..4)
            .map(|number| {
                let binary = ["/a", "/b"][number % 2];
                let sandbox = &sandbox;
                scope.spawn(move || {
                    for _ in 0..15 {
                        assert_silent_success(&install(sandbox, &["--container-run", binary]));
                    }
                })
            })
            .collect();
        while installers.iter().any(|installer| !installer.is_finished()) {
            if let Ok(content) = fs::read_to_string(&script) {
                assert!(scripts.contains(&content), "not whole: {content}");
            }
        }
    });
    assert!(scripts.contains(&fs::read_to_string(&script).unwrap()));
    assert_eq!(fs::metadata(&script).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(files_beside(&script), [script]);
}
