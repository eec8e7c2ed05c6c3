//! Pidfile, sentinel and socket: content, mode, order, and whatever may lie in their way.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;
#[path = "files/surroundings.rs"]
mod surroundings;

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use common::*;
use container_run::signal::Signal;
use nix::libc;

const FILES: [&str; 4] = [
    "sys/run/bpm/j/p.pid",
    "sys/run/bpm/j/p.pid~",
    "data/j/p_containerrun.running",
    "data/j/p_containerrun.running~",
];
const SOCKET: &str = "data/j/p_containerrun.sock";
const LOCK: &str = "data/j/p_containerrun.lock";
const SLEEP: [&str; 6] = ["--job-name", "j", "--process-name", "p", "sleep", "600"];

fn mode(path: impl AsRef<Path>) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// A root with the folders of job j.
fn with_folders() -> Sandbox {
    let sandbox = Sandbox::new();
    for folder in ["data/j", "sys/run/bpm/j"] {
        fs::create_dir_all(sandbox.path(folder)).unwrap();
    }
    sandbox
}

/// The supervisor ends with code 1 and one line that names the path; no process is left.
#[track_caller]
fn assert_refused(sandbox: &Sandbox, path: &str) {
    let output = sandbox.run(&SLEEP);
    assert_eq!(output.status.code(), Some(1), "{path}: {output:?}");
    assert!(complaint(&output).contains(sandbox.path(path).to_str().unwrap()), "{path}: {output:?}");
    assert!(sandbox.processes().is_empty(), "{path}");
}

#[test]
fn given_a_running_process_then_the_pidfile_is_its_pid_and_nothing_else() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&["sleep", "600"]);
    let pid = supervisor.main_pid();
    assert_eq!(fs::read(supervisor.pidfile()).unwrap(), pid.to_string().as_bytes());
    assert_eq!(supervisor.ask("STATUS"), format!("OK running {pid} monitored"));
    assert_eq!(fs::read(format!("/proc/{pid}/cmdline")).unwrap(), b"sleep\x00600\0");
    assert_eq!(fs::read(supervisor.sentinel()).unwrap(), b"");
    assert!(fs::symlink_metadata(supervisor.socket()).unwrap().file_type().is_socket());
}

#[test]
fn given_a_start_and_a_stop_that_were_answered_then_the_files_are_there_and_gone() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&["sleep", "600"]);
    for _ in 0..20 {
        supervisor.ask("STOP WAIT");
        assert!(!supervisor.pidfile().exists() && !supervisor.sentinel().exists());
        let answer = supervisor.ask("START");
        let pid = fs::read_to_string(supervisor.pidfile()).unwrap();
        assert_eq!(answer, format!("OK running {pid} monitored"));
        assert!(supervisor.sentinel().exists());
    }
}

/// What happens in folders, in its order: `+NAME` for a file renamed to there, `-NAME` for one
/// removed, `!NAME` for one made under its final name.
struct Watch(i32);

impl Watch {
    fn on(folders: &[&Path]) -> Self {
        // SAFETY: the strings end with NUL and live through the calls.
        unsafe {
            let watch = libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK);
            for folder in folders {
                let path = std::ffi::CString::new(folder.to_str().unwrap()).unwrap();
                let events = libc::IN_CREATE | libc::IN_DELETE | libc::IN_MOVED_TO;
                assert!(libc::inotify_add_watch(watch, path.as_ptr(), events) >= 0);
            }
            Self(watch)
        }
    }

    fn events(&self) -> Vec<String> {
        let mut buffer = [0_u8; 65536];
        // SAFETY: the buffer is as long as said.
        let length = unsafe { libc::read(self.0, buffer.as_mut_ptr().cast(), buffer.len()) };
        let mut rest = &buffer[..length.max(0) as usize];
        let mut found = vec![];
        while rest.len() >= 16 {
            let word = |at: usize| u32::from_ne_bytes(rest[at..at + 4].try_into().unwrap());
            let (mask, size) = (word(4), word(12) as usize);
            let name = text(&rest[16..16 + size]).trim_end_matches('\0').to_owned();
            let sign = [(libc::IN_MOVED_TO, '+'), (libc::IN_DELETE, '-'), (libc::IN_CREATE, '!')];
            let (_, sign) = sign.iter().find(|(bit, _)| mask & bit != 0).unwrap();
            found.push(format!("{sign}{name}"));
            rest = &rest[16 + size..];
        }
        found
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours.
        unsafe { libc::close(self.0) };
    }
}

#[test]
fn given_start_and_stop_then_the_pidfile_comes_first_and_goes_last_and_both_come_whole() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&["sleep", "600"]);
    supervisor.main_pid();
    supervisor.ask("STOP WAIT");
    let watch = Watch::on(&[supervisor.pidfile().parent().unwrap(), supervisor.sentinel().parent().unwrap()]);
    supervisor.ask("START");
    supervisor.ask("STOP WAIT");
    let ours = |event: &String| event.ends_with(".pid") || event.ends_with(".running");
    let seen: Vec<String> = watch.events().into_iter().filter(ours).collect();
    assert_eq!(seen, ["+p.pid", "+p_containerrun.running", "-p_containerrun.running", "-p.pid"], "{seen:?}");
}

#[test]
fn given_any_umask_then_modes_are_exact_and_the_process_has_the_inherited_one() {
    for umask in ["0000", "0022", "0077"] {
        let sandbox = Sandbox::new();
        let supervisor =
            sandbox.supervise_after(&format!("umask {umask}"), &[], &words(&probe_with("dump wait")));
        supervisor.wait_for_line("dumped");
        assert_eq!(supervisor.count(&format!("umask {umask}")), 1, "{}", supervisor.stdout());
        supervisor.main_pid();
        assert_eq!(mode(supervisor.pidfile()), 0o644, "{umask}");
        assert_eq!(mode(supervisor.sentinel()), 0o644, "{umask}");
        assert_eq!(mode(supervisor.socket()), 0o600, "{umask}");
        assert_eq!(mode(sandbox.path("jobs/bpm/bin/bpm")), 0o755, "{umask}");
        for folder in ["data", "data/j", "sys", "sys/run", "sys/run/bpm", "sys/run/bpm/j", "jobs/bpm/bin"] {
            assert_eq!(mode(sandbox.path(folder)), 0o755, "{umask} {folder}");
        }
    }
}

#[test]
fn given_folders_with_modes_of_their_own_then_they_are_left_alone() {
    let sandbox = with_folders();
    let folders = [("data", 0o711), ("data/j", 0o1770), ("sys/run", 0o700), ("sys/run/bpm/j", 0o2750)];
    for (folder, mode) in folders {
        fs::set_permissions(sandbox.path(folder), Permissions::from_mode(mode)).unwrap();
    }
    sandbox.supervise(&["sleep", "600"]).main_pid();
    for (folder, expected) in folders {
        assert_eq!(mode(sandbox.path(folder)), expected, "{folder}");
    }
}

#[test]
fn given_symbolic_links_planted_at_the_files_then_what_they_point_at_is_untouched() {
    let sandbox = with_folders();
    let victim = sandbox.path("victim");
    fs::write(&victim, "precious").unwrap();
    for file in FILES {
        symlink(&victim, sandbox.path(file)).unwrap();
    }
    let supervisor = sandbox.supervise(&["sleep", "600"]);
    supervisor.wait_for_state("running");
    let pid = supervisor.main_pid();
    assert!(fs::symlink_metadata(supervisor.pidfile()).unwrap().is_file());
    assert!(fs::symlink_metadata(supervisor.sentinel()).unwrap().is_file());
    assert_eq!(fs::read_to_string(supervisor.pidfile()).unwrap(), pid.to_string());
    supervisor.ask("STOP WAIT");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
}

#[test]
fn given_links_to_nowhere_then_nothing_is_made_there() {
    let sandbox = with_folders();
    for file in FILES {
        symlink(sandbox.path("nowhere"), sandbox.path(file)).unwrap();
    }
    sandbox.supervise(&["sleep", "600"]).main_pid();
    assert!(!sandbox.path("nowhere").exists());
}

#[test]
fn given_a_folder_in_the_way_of_a_file_then_it_is_named_and_nothing_runs_on() {
    for file in FILES {
        let mut sandbox = with_folders();
        sandbox.may_leave_files();
        fs::create_dir(sandbox.path(file)).unwrap();
        fs::write(sandbox.path(file).join("precious"), "").unwrap();
        assert_refused(&sandbox, file.trim_end_matches('~'));
        assert!(sandbox.path(file).join("precious").exists());
        assert_eq!(sandbox.files(), [sandbox.path(file).join("precious")]);
    }
}

#[test]
fn given_something_that_is_no_socket_in_its_place_then_it_is_named_and_untouched() {
    let plant: [fn(&Path); 4] = [
        |path| fs::write(path, "precious").unwrap(),
        |path| fs::create_dir(path).unwrap(),
        |path| symlink("/dev/null", path).unwrap(),
        |path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
    ];
    for place in [SOCKET, LOCK] {
        for plant in &plant {
            let mut sandbox = with_folders();
            sandbox.may_leave_files();
            let path = sandbox.path(place);
            plant(&path);
            let before = fs::symlink_metadata(&path).unwrap();
            if place == LOCK && before.is_file() {
                // A plain file is what a dead supervisor leaves: it may be taken.
                continue;
            }
            assert_refused(&sandbox, place);
            let after = fs::symlink_metadata(&path).unwrap();
            assert_eq!((before.ino(), before.mtime()), (after.ino(), after.mtime()), "{place}");
            assert_eq!(sandbox.files().len(), usize::from(!before.is_dir()), "{:?}", sandbox.files());
        }
    }
}

#[test]
fn given_a_symbolic_link_to_a_live_socket_then_that_is_untouched() {
    let mut sandbox = with_folders();
    sandbox.may_leave_files();
    let _elsewhere = UnixDatagram::bind(sandbox.path("elsewhere")).unwrap();
    symlink(sandbox.path("elsewhere"), sandbox.path(SOCKET)).unwrap();
    assert_refused(&sandbox, SOCKET);
    assert!(sandbox.path("elsewhere").exists());
}

#[test]
fn given_a_socket_that_another_program_holds_then_it_is_named_and_still_held() {
    let mut sandbox = with_folders();
    sandbox.may_leave_files();
    let holder = UnixDatagram::bind(sandbox.path(SOCKET)).unwrap();
    assert_refused(&sandbox, SOCKET);
    UnixDatagram::unbound().unwrap().send_to(b"x", sandbox.path(SOCKET)).unwrap();
    assert_eq!(holder.recv(&mut [0; 9]).unwrap(), 1);
}

#[test]
fn given_lock_and_socket_are_removed_when_a_second_supervisor_starts_then_its_files_stay_its_own() {
    let mut sandbox = Sandbox::new();
    // The first one's socket is gone, so nobody can ask it to remove more.
    sandbox.may_leave_files();
    let mut first = sandbox.supervise(&words(&probe_with("exit-on=TERM:0 wait")));
    first.main_pid();
    for file in [SOCKET, LOCK] {
        fs::remove_file(sandbox.path(file)).unwrap();
    }
    let second = sandbox.supervise(&words(&probe_with("exit-on=TERM:0 wait")));
    second.wait_for_state("running");
    let pid = second.main_pid();
    first.signal(Signal::TERM);
    assert_eq!(first.exit_code(), 0);
    assert_eq!(second.ask("STATUS"), format!("OK running {pid} monitored"));
    assert_eq!(fs::read_to_string(second.pidfile()).unwrap(), pid.to_string());
    assert!(second.sentinel().exists());
}

#[test]
fn given_files_of_a_dead_supervisor_then_they_are_replaced_and_no_stranger_is_signalled() {
    let sandbox = with_folders();
    let mut stranger = Command::new("sleep").arg("600").spawn().unwrap();
    fs::write(sandbox.path(FILES[0]), stranger.id().to_string()).unwrap();
    fs::write(sandbox.path(FILES[2]), "").unwrap();
    fs::write(sandbox.path(LOCK), "").unwrap();
    drop(UnixDatagram::bind(sandbox.path(SOCKET)).unwrap());
    // The stale files are gone by the time the process runs, and until its own are written.
    let mut supervisor = sandbox.supervise(&["sleep", "600"]);
    supervisor.wait_for_state("running");
    let pid = supervisor.main_pid();
    assert_ne!(pid, stranger.id() as i32);
    supervisor.ask("STOP WAIT");
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit_code(), 0);
    assert!(is_alive(stranger.id() as i32));
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn given_stale_files_and_a_program_that_is_missing_then_they_are_gone_all_the_same() {
    let sandbox = with_folders();
    fs::write(sandbox.path(FILES[0]), "1").unwrap();
    fs::write(sandbox.path(FILES[2]), "").unwrap();
    let output = sandbox.run(&["--job-name", "j", "--process-name", "p", "/no/such/program"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(sandbox.files().is_empty(), "{:?}", sandbox.files());
}

#[test]
fn given_a_drain_script_that_removes_the_pidfile_then_a_stop_is_no_error() {
    let sandbox = Sandbox::new();
    let mut supervisor = sandbox.supervise(&["sleep", "600"]);
    supervisor.main_pid();
    fs::remove_file(supervisor.pidfile()).unwrap();
    assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
    supervisor.ask("START");
    supervisor.main_pid();
    fs::remove_file(supervisor.pidfile()).unwrap();
    fs::remove_file(supervisor.sentinel()).unwrap();
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit_code(), 0);
    assert_eq!(supervisor.stderr(), "");
}

#[test]
fn given_several_processes_of_one_job_then_each_has_its_own_files() {
    let sandbox = Sandbox::new();
    let names = [("j", "a"), ("j", "b"), ("j", "a.b-c_d"), ("j.a", "a"), ("j-x", "-p")];
    let supervisors = names.map(|(job, process)| sandbox.supervise_as(job, process, &[], &["sleep", "600"]));
    let pids = supervisors.each_ref().map(Supervisor::main_pid);
    assert_eq!(pids.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
    assert_eq!(supervisors[0].ask("STOP WAIT"), "OK stopped - monitored");
    for (supervisor, pid) in supervisors.iter().zip(pids).skip(1) {
        assert_eq!(supervisor.ask("STATUS"), format!("OK running {pid} monitored"));
        assert_eq!(supervisor.main_pid(), pid);
    }
}

/// Runs the supervisor with this root in a mount namespace of its own, after `prelude`.
fn run_in_mounts(sandbox: &Sandbox, prelude: &str) -> std::process::Output {
    let script = format!("cd $BPM_BOSH_ROOT && {prelude} && cd / && exec \"$@\"");
    let mut shell = sandbox.program("unshare");
    shell.args(["-m", "sh", "-c", &script, "sh", BINARY, "--no-install-bpm"]).args(SLEEP);
    shell.output().unwrap()
}

#[test]
fn given_a_root_that_cannot_be_written_to_then_the_path_is_named_and_nothing_is_left() {
    if !is_permitted(&["unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let cases = [
        ("mount -t tmpfs -o ro none .", "data/j"),
        ("mkdir data && mount -t tmpfs -o ro none data", "data/j"),
        ("mkdir -p sys/run && mount -t tmpfs -o ro none sys/run", "sys/run/bpm/j"),
        ("mkdir -p data/j && mount -t tmpfs -o ro none data/j", LOCK),
        ("mkdir -p sys/run/bpm/j && mount -t tmpfs -o ro none sys/run/bpm/j", FILES[0]),
        (
            "mkdir -p sys/run/bpm/j && mount -t tmpfs -o size=4k none sys && mkdir -p sys/run/bpm/j && \
          head -c 4096 /dev/zero > sys/full",
            FILES[0],
        ),
        ("mount -t tmpfs -o nr_inodes=4 none . && cd $BPM_BOSH_ROOT && mkdir data data/j", SOCKET),
    ];
    for (prelude, path) in cases {
        let output = run_in_mounts(&sandbox, prelude);
        assert_eq!(output.status.code(), Some(1), "{prelude}: {output:?}");
        let said = complaint(&output);
        assert!(said.contains(sandbox.path(path).to_str().unwrap()), "{prelude}: {said}");
        assert!(sandbox.processes().is_empty(), "{prelude}");
    }
}

#[test]
fn given_a_user_without_rights_then_the_path_is_named() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::new();
    fs::set_permissions(sandbox.root(), Permissions::from_mode(0o755)).unwrap();
    copy_program(BINARY, sandbox.path("container-run"));
    let mut command = sandbox.program(sandbox.path("container-run").to_str().unwrap());
    let output = command.args(SLEEP).uid(12345).gid(12345).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains(sandbox.path("data").to_str().unwrap()), "{output:?}");
}
