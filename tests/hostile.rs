//! A neighbour who may write in `data/J`, or who sends what he likes: whatever he plants, nothing
//! outside is written, followed, removed or signalled.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use std::fs::{self, File};
use std::io::IoSlice;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use common::*;
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, bind, sendmsg};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

/// The user whose folder `data/j` is.
const NEIGHBOUR: u32 = 12_345;

/// A sandbox with something to lose: a file, a folder with a file and a process.
struct Neighbourhood {
    sandbox: Sandbox,
    stranger: Child,
}

impl Neighbourhood {
    fn new() -> Self {
        let mut sandbox = Sandbox::new();
        // What he has planted may stay.
        sandbox.may_leave_files();
        for folder in ["data/j", "sys/run/bpm/j", "victims"] {
            fs::create_dir_all(sandbox.path(folder)).unwrap();
        }
        fs::write(sandbox.path("victim"), "precious").unwrap();
        fs::write(sandbox.path("victims/one"), "precious").unwrap();
        fs::set_permissions(sandbox.path("victim"), fs::Permissions::from_mode(0o640)).unwrap();
        for folder in ["data/j", "sys/run/bpm/j"] {
            chown(sandbox.path(folder), Some(NEIGHBOUR), Some(NEIGHBOUR)).expect("these tests need root");
        }
        let stranger = sandbox.stranger();
        Self { sandbox, stranger }
    }

    fn victim(&self) -> PathBuf {
        self.sandbox.path("victim")
    }

    fn stranger(&self) -> i32 {
        self.stranger.id() as i32
    }

    /// Every name at which we make a file, and those that we use on the way there.
    fn names(&self) -> Vec<PathBuf> {
        let data = ["p_containerrun.sock", "p_containerrun.lock", "p_containerrun.running"];
        let data = data.into_iter().chain(["p_containerrun.running~"]);
        let run = ["p.pid", "p.pid~"].map(|name| self.sandbox.path("sys/run/bpm/j").join(name));
        data.map(|name| self.sandbox.path("data/j").join(name)).chain(run).collect()
    }

    #[track_caller]
    fn assert_unharmed(&self) {
        let metadata = fs::symlink_metadata(self.victim()).unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.uid()), (0o640, 0));
        assert_eq!(fs::read_to_string(self.victim()).unwrap(), "precious");
        let others: Vec<_> = fs::read_dir(self.sandbox.path("victims")).unwrap().collect();
        assert_eq!(others.len(), 1, "{others:?}");
        assert_eq!(fs::read_to_string(self.sandbox.path("victims/one")).unwrap(), "precious");
        assert!(is_alive(self.stranger()) && state_of(self.stranger()) != Some('T'));
    }

    /// Runs a supervisor through its life, if it agrees to live, and looks at the victims.
    #[track_caller]
    fn live_through(&self, what: &str) -> bool {
        println!("{what}");
        let mut supervisor = self.sandbox.supervise(&words(&probe_with("exit-on=TERM:0 wait")));
        let mut started = false;
        wait_until("it runs or refuses", || {
            // It prints before its files are written, which may fail.
            started = supervisor.count("ready") == 1
                && text(&self.sandbox.run(&["send", "STATUS", "j", "-p", "p"]).stdout)
                    .starts_with("running ");
            started || !supervisor.is_alive()
        });
        self.assert_unharmed();
        if started {
            for command in [&["stop", "j", "-p", "p"][..], &["start", "j", "-p", "p"]] {
                assert!(self.sandbox.bpm(command).status.success(), "{what}: {command:?}");
            }
            supervisor.signal(container_run::signal::Signal::TERM);
            assert_eq!(supervisor.exit_code(), 0, "{what}");
        } else {
            assert_eq!(supervisor.exit_code(), 1, "{what}");
            let folders = [self.sandbox.path("data/j"), self.sandbox.path("sys/run/bpm/j")];
            let names_it = |folder: &PathBuf| supervisor.stderr().contains(folder.to_str().unwrap());
            assert!(folders.iter().any(names_it), "{what}: {}", supervisor.stderr());
        }
        wait_until("nothing runs", || self.sandbox.processes().is_empty());
        self.assert_unharmed();
        started
    }

    /// Lets `plant` make something at each name in turn, and lives through it; at how many of
    /// them the supervisor ran.
    #[track_caller]
    fn plant_everywhere(&self, what: &str, plant: impl Fn(&Path)) -> usize {
        let mut ran = 0;
        for name in self.names() {
            self.names().iter().for_each(|name| clear(name));
            plant(&name);
            ran += usize::from(self.live_through(&format!("{what} at {}", name.display())));
        }
        ran
    }
}

impl Drop for Neighbourhood {
    fn drop(&mut self) {
        self.stranger.kill().unwrap();
        self.stranger.wait().unwrap();
    }
}

/// Removes whatever lies there, and not what it points at.
fn clear(path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path).unwrap(),
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

#[test]
fn given_planted_links_to_a_file_then_it_stays_what_it_was() {
    let neighbourhood = Neighbourhood::new();
    let victim = neighbourhood.victim();
    // At the socket's and the lock's own names they are refused, elsewhere replaced.
    assert_eq!(neighbourhood.plant_everywhere("a link", |name| symlink(&victim, name).unwrap()), 4);
    let hard = neighbourhood.plant_everywhere("a hard link", |name| fs::hard_link(&victim, name).unwrap());
    assert!(hard >= 5, "{hard}");
}

#[test]
fn given_planted_links_to_a_folder_or_to_nowhere_then_nothing_is_made_behind_them() {
    let neighbourhood = Neighbourhood::new();
    let sandbox = &neighbourhood.sandbox;
    let (folder, nowhere) = (sandbox.path("victims"), sandbox.path("victims/new"));
    assert_eq!(neighbourhood.plant_everywhere("a link", |name| symlink(&folder, name).unwrap()), 4);
    assert_eq!(neighbourhood.plant_everywhere("a loose link", |name| symlink(&nowhere, name).unwrap()), 4);
}

#[test]
fn given_planted_files_and_fifos_then_they_are_replaced_or_refused_and_nobody_hangs() {
    let neighbourhood = Neighbourhood::new();
    let ran = neighbourhood.plant_everywhere("a file", |name| fs::write(name, "his").unwrap());
    assert_eq!(ran, 5, "only the socket's own name is no place for a file");
    let ran = neighbourhood
        .plant_everywhere("a fifo", |name| mkfifo(name, Mode::from_bits_truncate(0o666)).unwrap());
    assert_eq!(ran, 4);
}

#[test]
fn given_planted_folders_then_the_supervisor_refuses_and_leaves_what_is_in_them() {
    let neighbourhood = Neighbourhood::new();
    for name in neighbourhood.names() {
        neighbourhood.names().iter().for_each(|name| clear(name));
        fs::create_dir(&name).unwrap();
        fs::write(name.join("his"), "precious").unwrap();
        assert!(!neighbourhood.live_through(&format!("a folder at {}", name.display())));
        assert_eq!(fs::read_to_string(name.join("his")).unwrap(), "precious");
    }
}

#[test]
fn given_a_live_socket_of_another_process_then_it_is_refused_and_goes_on() {
    let neighbourhood = Neighbourhood::new();
    let path = neighbourhood.sandbox.path("data/j/p_containerrun.sock");
    let datagrams = UnixDatagram::bind(&path).unwrap();
    datagrams.set_nonblocking(true).unwrap();
    assert!(!neighbourhood.live_through("a datagram socket"));
    assert!(datagrams.recv(&mut [0; 16]).is_err(), "it was asked, not written to");
    let sender = UnixDatagram::unbound().unwrap();
    assert_eq!(sender.send_to(b"hello", &path).unwrap(), 5, "it can still be reached");
    clear(&path);
    let stream = UnixListener::bind(&path).unwrap();
    assert!(!neighbourhood.live_through("a stream socket"));
    std::os::unix::net::UnixStream::connect(&path).unwrap();
    drop(stream);
}

#[test]
fn given_a_lock_that_the_neighbour_holds_then_the_supervisor_says_so_and_ends() {
    let neighbourhood = Neighbourhood::new();
    let path = neighbourhood.sandbox.path("data/j/p_containerrun.lock");
    let lock = File::create(&path).unwrap();
    lock.lock().unwrap();
    assert!(!neighbourhood.live_through("a held lock"));
    lock.unlock().unwrap();
    assert!(neighbourhood.live_through("a lock let go"));
}

#[test]
fn given_a_socket_that_is_a_link_to_another_jobs_then_bpm_does_not_command_the_other() {
    let neighbourhood = Neighbourhood::new();
    let sandbox = &neighbourhood.sandbox;
    let other = sandbox.supervise_as("other", "other", &[], &words(&probe_with("print=USR1 wait")));
    other.wait_for_line("ready");
    symlink(other.socket(), sandbox.path("data/j/p_containerrun.sock")).unwrap();
    for command in [&["signal", "j", "USR1", "-p", "p"][..], &["stop", "j", "-p", "p"]] {
        sandbox.bpm(command);
        assert_eq!(other.state(), "running", "after {command:?}");
        assert_eq!(other.count("USR1"), 0, "after {command:?}");
    }
}

#[test]
fn given_a_return_address_that_leads_to_a_supervisor_then_no_answer_is_answered_for_ever() {
    let neighbourhood = Neighbourhood::new();
    let sandbox = &neighbourhood.sandbox;
    let supervisor = sandbox.supervise(&words(&probe_with("wait")));
    let other = sandbox.supervise_as("other", "other", &[], &words(&probe_with("wait")));
    for supervisor in [&supervisor, &other] {
        supervisor.wait_for_line("ready");
    }
    for (number, target) in [&supervisor, &other].into_iter().enumerate() {
        let path = sandbox.path(&format!("data/j/.answer-{number}"));
        let sender = UnixDatagram::bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        symlink(target.socket(), &path).unwrap();
        for command in ["STATUS", "garbage"] {
            sender.send_to(command.as_bytes(), supervisor.socket()).unwrap();
        }
        for supervisor in [&supervisor, &other] {
            assert_eq!(supervisor.state(), "running");
            let sleeps = || state_of(supervisor.pid()) == Some('S');
            wait_until("it sleeps again", sleeps);
            stays_true("it sleeps", Duration::from_millis(50), sleeps);
        }
    }
}

#[test]
fn given_a_sender_of_another_user_then_it_is_ignored_even_where_the_mode_would_let_it() {
    let neighbourhood = Neighbourhood::new();
    let sandbox = &neighbourhood.sandbox;
    let supervisor = sandbox.supervise(&words(&probe_with("print=USR1 wait")));
    supervisor.wait_for_line("ready");
    // Where he can run it: the folder of the build may be closed to him.
    fs::set_permissions(sandbox.root(), fs::Permissions::from_mode(0o755)).unwrap();
    let binary = sandbox.path("container-run");
    copy_program(BINARY, &binary);
    let send_as_neighbour = |verb: &str| {
        let user = NEIGHBOUR.to_string();
        let mut sender = sandbox.program("setpriv");
        sender.args(["--reuid", &user, "--regid", &user, "--clear-groups"]).arg(&binary);
        sender.args(["send", verb, "j", "-p", "p", "--wait", "0.2"]);
        text(&sender.output().unwrap().stderr)
    };
    assert!(send_as_neighbour("STOP").contains("Permission denied"));
    fs::set_permissions(supervisor.socket(), fs::Permissions::from_mode(0o666)).unwrap();
    for verb in ["STOP", "SIGNAL USR1", "STATUS", "STATUS"] {
        let said = send_as_neighbour(verb);
        assert!(said.contains("no answer"), "{verb}: {said}");
    }
    assert_eq!((supervisor.state().as_str(), supervisor.count("USR1")), ("running", 0));
}

/// Sends `command` with so many descriptors, and a sender's address.
fn send_with_descriptors(supervisor: &Supervisor, command: &[u8], count: usize) -> UnixDatagram {
    let file = File::open("/dev/null").unwrap();
    let descriptors: Vec<RawFd> = vec![file.as_raw_fd(); count];
    let socket = UnixDatagram::unbound().unwrap();
    bind(socket.as_raw_fd(), &UnixAddr::new_unnamed()).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let address = UnixAddr::new(&supervisor.socket()).unwrap();
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let sent =
        sendmsg(socket.as_raw_fd(), &[IoSlice::new(command)], &rights, MsgFlags::empty(), Some(&address));
    assert_eq!(sent, Ok(command.len()));
    socket
}

#[test]
fn given_datagrams_with_descriptors_then_they_are_carried_out_and_the_descriptors_closed() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&words(&probe_with("wait")));
    // What it needed to start the process is closed when it answers.
    supervisor.wait_for_state("running");
    let before = descriptors(supervisor.pid());
    for count in (0..1000).map(|round| if round % 100 == 0 { 253 } else { 10 }) {
        let command: &[u8] = if count == 253 { b"rubbish" } else { b"STATUS" };
        let sender = send_with_descriptors(&supervisor, command, count);
        let expected = if count == 253 { "ERR " } else { "OK running " };
        assert!(receive(&sender).starts_with(expected));
    }
    assert_eq!(descriptors(supervisor.pid()), before);
}

#[test]
fn given_names_that_would_leave_the_root_then_they_are_refused_before_anything_is_made() {
    let neighbourhood = Neighbourhood::new();
    let sandbox = &neighbourhood.sandbox;
    for name in ["../victims", "..", ".", "/etc", "a/../../b", ""] {
        for (job, process) in [(name, "p"), ("k", name)] {
            let start = ["--job-name", job, "--process-name", process, "--", "sleep", "600"];
            assert_eq!(sandbox.run(&start).status.code(), Some(2), "{start:?}");
            assert!(!sandbox.run(&["send", "STOP", job, "-p", process]).status.success() || name.is_empty());
        }
    }
    assert!(!sandbox.path("data/k").exists() && !sandbox.path("jobs").exists());
    neighbourhood.assert_unharmed();
}

#[test]
fn given_the_folder_is_replaced_while_it_runs_then_nothing_in_the_new_one_is_touched() {
    let neighbourhood = Neighbourhood::new();
    let sandbox = &neighbourhood.sandbox;
    let mut supervisor = sandbox.supervise(&words(&probe_with("print=HUP wait")));
    // Its files are written when it says so.
    supervisor.wait_for_state("running");
    supervisor.wait_for_line("ready");
    fs::rename(sandbox.path("data/j"), sandbox.path("data/was-j")).unwrap();
    fs::create_dir(sandbox.path("data/j")).unwrap();
    for name in ["p_containerrun.sock", "p_containerrun.lock"] {
        fs::write(sandbox.path("data/j").join(name), "his").unwrap();
    }
    let answered = sandbox.run(&["send", "STOP", "j", "-p", "p"]);
    assert_eq!(answered.status.code(), Some(3), "{}", text(&answered.stderr));
    supervisor.signal(container_run::signal::Signal::HUP);
    supervisor.wait_for_line("HUP");
    supervisor.signal(container_run::signal::Signal::TERM);
    assert_eq!(supervisor.exit_code(), 0);
    assert_eq!(fs::read_dir(sandbox.path("data/j")).unwrap().count(), 2);
    neighbourhood.assert_unharmed();
}

#[test]
fn given_the_folder_becomes_a_link_while_it_runs_then_what_lies_behind_it_stays() {
    let neighbourhood = Neighbourhood::new();
    let sandbox = &neighbourhood.sandbox;
    let mut supervisor = sandbox.supervise(&words(&probe_with("exit-on=TERM:0 wait")));
    // Its files are written when it says so.
    supervisor.wait_for_state("running");
    supervisor.wait_for_line("ready");
    fs::rename(sandbox.path("data/j"), sandbox.path("data/was-j")).unwrap();
    symlink(sandbox.path("victims"), sandbox.path("data/j")).unwrap();
    supervisor.signal(container_run::signal::Signal::TERM);
    assert_eq!(supervisor.exit_code(), 0);
    neighbourhood.assert_unharmed();
}

#[test]
fn given_the_pidfile_names_a_stranger_or_links_to_a_file_then_neither_is_touched() {
    let neighbourhood = Neighbourhood::new();
    let sandbox = &neighbourhood.sandbox;
    let supervisor = sandbox.supervise(&words(&probe_with("print=USR1 exit-on=TERM:0 wait")));
    supervisor.wait_for_line("ready");
    let pid = supervisor.main_pid();
    fs::write(supervisor.pidfile(), neighbourhood.stranger().to_string()).unwrap();
    assert!(sandbox.bpm(&["signal", "j", "USR1", "-p", "p"]).status.success());
    supervisor.wait_for_line("USR1");
    assert_eq!(text(&sandbox.bpm(&["pid", "j", "-p", "p"]).stdout), format!("{pid}\n"));
    fs::remove_file(supervisor.pidfile()).unwrap();
    symlink(neighbourhood.victim(), supervisor.pidfile()).unwrap();
    assert!(sandbox.bpm(&["stop", "j", "-p", "p"]).status.success());
    assert!(fs::symlink_metadata(supervisor.pidfile()).is_err(), "the link itself is gone");
    assert!(!is_alive(pid));
    neighbourhood.assert_unharmed();
}
