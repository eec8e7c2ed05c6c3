//! What the black-box tests share: a BOSH root of their own, a supervisor in it, conditions with
//! a deadline, and a look for what was left behind.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use container_run::signal::Signal;
use nix::libc;
use nix::sys::socket::{UnixAddr, bind};
use std::os::fd::AsRawFd;

/// Far more than anything takes on a busy machine; nobody waits for it but a failing test.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Set for all that a test starts, so that what is left of it can be found.
const MARK: &str = "CONTAINER_RUN_TEST";

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_container-run");

/// The helper of `tests/probe`.
pub fn probe() -> String {
    let folder = Path::new(BINARY).parent().unwrap();
    folder.join("examples/probe").to_str().unwrap().to_owned()
}

/// Waits until `condition` holds.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends a signal by number to a process that the test started.
pub fn kill(pid: i32, number: i32) -> bool {
    assert!(pid > 1);
    // SAFETY: kill(2) takes no pointer.
    unsafe { libc::kill(pid, number) == 0 }
}

/// Kills a process that the test started and that is no child of its own, and waits until it is
/// gone: kill(2) returns before.
#[track_caller]
pub fn end(pid: i32) {
    assert!(kill(pid, libc::SIGKILL));
    wait_until("the killed one is gone", || !is_alive(pid));
}

/// Writes a program, 0755.
///
/// Another process does it: a file that is open for writing cannot be run (ETXTBSY), and what we have
/// open is open as well in each child of the tests beside this one, between its fork and its exec.
#[track_caller]
pub fn write_program(path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
    let mut writer = Command::new("sh");
    writer.args(["-c", r#"cat >"$0" && chmod 755 "$0""#]).arg(path.as_ref()).stdin(Stdio::piped());
    let mut writer = writer.spawn().unwrap();
    writer.stdin.take().unwrap().write_all(content.as_ref()).unwrap();
    assert!(writer.wait().unwrap().success());
}

/// Copies a program, for the same reason by another process.
#[track_caller]
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let copied = Command::new("cp").arg("--").args([from.as_ref(), to.as_ref()]).status().unwrap();
    assert!(copied.success());
}

/// A socket to which answers can come.
pub fn autobound() -> UnixDatagram {
    let socket = UnixDatagram::unbound().unwrap();
    bind(socket.as_raw_fd(), &UnixAddr::new_unnamed()).unwrap();
    socket
}

/// The next answer that comes to this socket.
#[track_caller]
pub fn receive(socket: &UnixDatagram) -> String {
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut answer = [0; 4096];
    loop {
        match socket.recv(&mut answer) {
            // A wait with a time limit is not taken up again by the kernel: signal(7).
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            received => return text(&answer[..received.expect("an answer")]),
        }
    }
}

/// Whether such a process is there and no zombie.
pub fn is_alive(pid: i32) -> bool {
    state_of(pid).is_some_and(|state| state != 'Z')
}

/// The letter of /proc/PID/stat.
pub fn state_of(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// Who started it, or who has adopted it since.
pub fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()
}

/// All processes whose environment holds `NAME=value`, zombies excluded.
pub fn processes_with(name: &str, value: &str) -> Vec<i32> {
    let entry = format!("{name}={value}");
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    let pids = numbers.filter_map(|folder| folder.file_name().to_str()?.parse::<i32>().ok());
    let marked = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|found| found == entry.as_bytes())
    };
    pids.filter(marked).collect()
}

/// Asserts that `condition` holds now and for a while.
#[track_caller]
pub fn stays_true(what: &str, time: Duration, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + time;
    loop {
        assert!(condition(), "no longer true: {what}");
        if Instant::now() >= end {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The one line on stderr of a program that printed nothing else.
#[track_caller]
pub fn complaint(output: &Output) -> String {
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(stdout, "", "stderr: {stderr}");
    let lines: Vec<&str> = stderr.lines().collect();
    assert!(lines.len() == 1 && stderr.ends_with('\n'), "not one line: {stderr:?}");
    assert!(lines[0].starts_with("container-run: "), "{stderr:?}");
    lines[0].to_owned()
}

/// Whether we may do what these words do; if not, the test that asks says that it is skipped.
pub fn is_permitted(words: &[&str]) -> bool {
    let tried = Command::new(words[0]).args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let permitted = tried.is_ok_and(|status| status.success());
    if !permitted {
        skip(&format!("not permitted here: {}", words.join(" ")));
    }
    permitted
}

/// The same for what only root may do.
pub fn is_root() -> bool {
    is_permitted(&["sh", "-c", "test $(id -u) = 0"])
}

/// A BOSH root for one test. When it goes, all supervisors must end on TERM and leave neither
/// process nor file.
pub struct Sandbox {
    folder: tempfile::TempDir,
    mark: String,
    may_leave_files: bool,
}

impl Sandbox {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self { folder: tempfile::tempdir().unwrap(), mark, may_leave_files: false }
    }

    /// For tests that kill a supervisor by force: its files may stay.
    pub fn may_leave_files(&mut self) {
        self.may_leave_files = true;
    }

    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.root().join(below)
    }

    /// What is alive of all that was started here.
    pub fn processes(&self) -> Vec<i32> {
        processes_with(MARK, &self.mark)
    }

    /// `container-run` with this root, its output not yet decided.
    pub fn command(&self) -> Command {
        let mut command = Command::new(BINARY);
        self.prepare(&mut command);
        command
    }

    /// Any other program, in this root and marked.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        self.prepare(&mut command);
        command
    }

    fn prepare(&self, command: &mut Command) {
        command
            .env(MARK, &self.mark)
            .env("BPM_BOSH_ROOT", self.root())
            .env_remove("CONTAINER_RUN")
            .stdin(Stdio::null());
    }

    /// Runs `container-run` to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    /// Runs the installed bpm script to its end.
    pub fn bpm(&self, arguments: &[&str]) -> Output {
        self.program(self.path("jobs/bpm/bin/bpm").to_str().unwrap()).args(arguments).output().unwrap()
    }

    /// A supervisor of job `j`, process `p`, with a short grace period.
    pub fn supervise(&self, command: &[&str]) -> Supervisor {
        self.supervise_with(&["--kill-after", "0.5"], command)
    }

    /// The same with these options.
    pub fn supervise_with(&self, options: &[&str], command: &[&str]) -> Supervisor {
        self.supervise_as("j", "p", options, command)
    }

    /// Any job and process.
    pub fn supervise_as(&self, job: &str, process: &str, options: &[&str], command: &[&str]) -> Supervisor {
        let mut starter = self.command();
        starter.args(["--job-name", job, "--process-name", process]).args(options).arg("--").args(command);
        self.start(starter, job, process)
    }

    /// Starts a prepared command line, output into files.
    pub fn start(&self, mut command: Command, job: &str, process: &str) -> Supervisor {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let (out, err) = (self.path(&format!("out-{number}")), self.path(&format!("err-{number}")));
        let child =
            command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap()).spawn().unwrap();
        Supervisor {
            child,
            out,
            err,
            root: self.root().to_owned(),
            job: job.to_owned(),
            process: process.to_owned(),
        }
    }

    /// A command line that runs `prelude` in a shell, which then becomes `container-run` with
    /// `arguments`.
    pub fn command_after(&self, prelude: &str, arguments: &[&str]) -> Command {
        let mut shell = self.program("sh");
        shell.args(["-c", &format!("{prelude}\nexec \"$@\""), "sh", BINARY]).args(arguments);
        shell
    }

    /// A supervisor of job `j`, process `p`, that becomes one after `prelude` in a shell.
    pub fn supervise_after(&self, prelude: &str, options: &[&str], command: &[&str]) -> Supervisor {
        let own = ["--job-name", "j", "--process-name", "p"];
        let arguments = [&own, options, &["--"], command].concat();
        self.start(self.command_after(prelude, &arguments), "j", "p")
    }

    /// A process that is none of ours and must be left alone.
    pub fn stranger(&self) -> Child {
        let silent = || Stdio::null();
        Command::new("sleep").arg("600").stdin(silent()).stdout(silent()).stderr(silent()).spawn().unwrap()
    }

    /// Our files below the root, but the bpm script.
    pub fn files(&self) -> Vec<PathBuf> {
        fn visit(folder: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    visit(&entry.path(), found);
                } else {
                    found.push(entry.path());
                }
            }
        }
        let mut found = vec![];
        visit(&self.path("data"), &mut found);
        visit(&self.path("sys/run"), &mut found);
        found
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let is_supervisor = |pid: &i32| {
            let title = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            title.starts_with(b"container-run ")
        };
        let all = self.processes();
        let supervisors: Vec<i32> = all.iter().copied().filter(is_supervisor).collect();
        // What only waits for a supervisor, such as `unshare`, ends a moment after it.
        let parents = supervisors.iter().filter_map(|pid| parent_of(*pid));
        let waited_for: Vec<i32> =
            parents.filter(|parent| all.contains(parent)).chain(supervisors.iter().copied()).collect();
        for pid in &supervisors {
            kill(*pid, libc::SIGTERM);
        }
        let end = Instant::now() + DEADLINE;
        while !self.processes().is_empty() && Instant::now() < end {
            if waited_for.iter().all(|pid| !is_alive(*pid)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let left = self.processes();
        let names: Vec<String> = left
            .iter()
            .map(|pid| {
                fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ")
            })
            .collect();
        for pid in &left {
            kill(*pid, libc::SIGKILL);
        }
        if std::thread::panicking() {
            return;
        }
        assert!(left.is_empty(), "processes were left behind: {names:?}");
        let files = self.files();
        assert!(self.may_leave_files || files.is_empty(), "files were left behind: {files:?}");
    }
}

/// A running supervisor.
pub struct Supervisor {
    pub child: Child,
    out: PathBuf,
    err: PathBuf,
    root: PathBuf,
    job: String,
    process: String,
}

impl Supervisor {
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    fn data(&self, suffix: &str) -> PathBuf {
        self.root.join("data").join(&self.job).join(format!("{}_containerrun.{suffix}", self.process))
    }

    pub fn socket(&self) -> PathBuf {
        self.data("sock")
    }

    pub fn sentinel(&self) -> PathBuf {
        self.data("running")
    }

    pub fn pidfile(&self) -> PathBuf {
        self.root.join("sys/run/bpm").join(&self.job).join(format!("{}.pid", self.process))
    }

    /// What the job and the supervisor have printed on stdout so far.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.out).unwrap()).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.err).unwrap()).into_owned()
    }

    /// How often a whole line was printed on stdout.
    pub fn count(&self, line: &str) -> usize {
        self.stdout().lines().filter(|found| *found == line).count()
    }

    #[track_caller]
    pub fn wait_for_line(&self, line: &str) {
        self.wait_for_lines(line, 1);
    }

    #[track_caller]
    pub fn wait_for_lines(&self, line: &str, times: usize) {
        let end = Instant::now() + DEADLINE;
        while self.count(line) < times {
            assert!(
                Instant::now() < end,
                "no {times} x '{line}' in stdout:\n{}\nstderr:\n{}",
                self.stdout(),
                self.stderr()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The PID in the pidfile, as soon as the sentinel says that there is one.
    #[track_caller]
    pub fn main_pid(&self) -> i32 {
        let mut pid = None;
        wait_until("the main process runs", || {
            pid = self.sentinel().exists().then(|| fs::read_to_string(self.pidfile()).ok()).flatten();
            pid.is_some()
        });
        pid.unwrap().parse().unwrap()
    }

    #[track_caller]
    pub fn wait_until_down(&self) {
        wait_until("the files are gone", || !self.sentinel().exists() && !self.pidfile().exists());
    }

    pub fn signal(&self, signal: Signal) {
        assert!(kill(self.pid(), signal.number()));
    }

    /// From here on it lives, and does nothing until it is continued.
    #[track_caller]
    pub fn freeze(&self) {
        assert!(kill(self.pid(), libc::SIGSTOP));
        wait_until("it is frozen", || state_of(self.pid()) == Some('T'));
    }

    /// Sends a command from an autobound address and returns the raw answer.
    #[track_caller]
    pub fn ask(&self, command: &str) -> String {
        self.ask_bytes(command.as_bytes())
    }

    #[track_caller]
    pub fn ask_bytes(&self, command: &[u8]) -> String {
        receive(&self.send_bytes(command))
    }

    /// Sends a command; the answer can be had from the socket returned.
    #[track_caller]
    pub fn send(&self, command: &str) -> UnixDatagram {
        self.send_bytes(command.as_bytes())
    }

    #[track_caller]
    pub fn send_bytes(&self, command: &[u8]) -> UnixDatagram {
        let socket = autobound();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        wait_until("the socket is there", || socket.connect(self.socket()).is_ok());
        socket.send(command).unwrap();
        socket
    }

    /// The first word behind `OK`.
    #[track_caller]
    pub fn state(&self) -> String {
        let answer = self.ask("STATUS");
        answer.split(' ').nth(1).unwrap().to_owned()
    }

    #[track_caller]
    pub fn wait_for_state(&self, state: &str) {
        wait_until(state, || self.state() == state);
    }

    /// Waits for the end of the supervisor.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the supervisor ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Its exit code.
    #[track_caller]
    pub fn exit_code(&mut self) -> i32 {
        let status = self.wait();
        status.code().unwrap_or_else(|| panic!("{status:?}; stderr:\n{}", self.stderr()))
    }

    /// Asserts that it waits for something to happen. One that looks again and again never sleeps,
    /// while the time that it takes says as much of the machine as of it.
    #[track_caller]
    pub fn assert_not_busy(&self) {
        wait_until("it sleeps", || state_of(self.pid()) == Some('S'));
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

/// Numbers that are the same again with the same seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A shell command line as EXECUTABLE.
pub fn sh(script: &str) -> Vec<String> {
    vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()]
}

/// The probe with these words.
pub fn probe_with(words: &str) -> Vec<String> {
    std::iter::once(probe()).chain(words.split_whitespace().map(str::to_owned)).collect()
}

/// As slices, for the functions above.
pub fn words(owned: &[String]) -> Vec<&str> {
    owned.iter().map(String::as_str).collect()
}

/// Text of a program's output.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Arguments as the operating system has them.
pub fn os(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

/// The number that follows `name` in /proc/PID/status: `VmRSS` in KiB, `voluntary_ctxt_switches`.
#[track_caller]
pub fn status_number(pid: i32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// How many descriptors a process holds.
#[track_caller]
pub fn descriptors(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// Says, past the harness that hides what passing tests print, that a test could not be done.
/// Where everything is to be installed, that is a failure.
#[track_caller]
pub fn skip(why: &str) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let line = format!("SKIPPED {name}: {why}\n");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
    assert!(std::env::var_os("CI").is_none(), "nothing may be skipped in CI: {why}");
}
