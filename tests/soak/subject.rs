//! A supervisor that is soaked: how to start it, ask it, look at it and end it.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::socket::{UnixAddr, bind};

/// Far more than anything takes; what takes longer is lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether it came true in time.
pub fn wait_until(mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// What a process takes of the machine.
#[derive(Clone, Copy)]
pub struct Size {
    /// In KiB, pages of the binary included, which come in as they are used.
    pub rss: u64,
    /// Of it what the process has made itself: what a leak would let grow.
    pub own: u64,
    pub descriptors: usize,
}

pub struct Subject {
    child: Mutex<Child>,
    pid: i32,
    root: PathBuf,
    _own_root: Option<tempfile::TempDir>,
}

impl Subject {
    /// Supervises a shell script in a BOSH root of its own.
    pub fn start(script: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        Self { _own_root: None, ..Self::start_in(root.path(), script) }.owning(root)
    }

    fn owning(mut self, root: tempfile::TempDir) -> Self {
        self._own_root = Some(root);
        self
    }

    /// The same in a root that others may have left in disorder.
    pub fn start_in(root: &Path, script: &str) -> Self {
        let binary = std::env::var_os("CONTAINER_RUN_BINARY").expect("CONTAINER_RUN_BINARY names the binary");
        let mut command = Command::new(binary);
        command.args(["--job-name", "j", "--process-name", "j", "--no-install-bpm", "--root"]).arg(root);
        command.args(["--kill-after", "2", "--", "sh", "-c", script]);
        command.env("ORPHANS", root.join("orphans")).stdin(Stdio::null());
        let child = command.spawn().unwrap();
        let pid = child.id() as i32;
        let subject = Self { child: Mutex::new(child), pid, root: root.to_owned(), _own_root: None };
        let runs = || {
            let answer = subject.try_sender().and_then(|sender| subject.ask(&sender, "STATUS"));
            answer.is_some_and(|answer| answer.starts_with("OK running "))
        };
        assert!(wait_until(runs), "the supervisor does not start");
        subject
    }

    fn try_sender(&self) -> Option<UnixDatagram> {
        let socket = UnixDatagram::unbound().unwrap();
        bind(socket.as_raw_fd(), &UnixAddr::new_unnamed()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect(self.root.join("data/j/j_containerrun.sock")).ok()?;
        Some(socket)
    }

    /// A socket that is answered.
    pub fn sender(&self) -> UnixDatagram {
        self.try_sender().expect("the control socket is there")
    }

    /// The answer, if it comes.
    pub fn ask(&self, sender: &UnixDatagram, command: &str) -> Option<String> {
        sender.send(command.as_bytes()).ok()?;
        let mut answer = [0; 4096];
        let length = sender.recv(&mut answer).ok()?;
        Some(String::from_utf8_lossy(&answer[..length]).into_owned())
    }

    pub fn size(&self) -> Size {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        let descriptors = fs::read_dir(format!("/proc/{}/fd", self.pid)).unwrap().count();
        Size { rss: number("VmRSS:"), own: number("RssAnon:"), descriptors }
    }

    /// Its children, with the letter of their state.
    fn children(&self) -> Vec<(i32, char)> {
        let stats = fs::read_dir("/proc").unwrap().flatten().filter_map(|folder| {
            let pid: i32 = folder.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(folder.path().join("stat")).ok()?;
            let mut fields = stat.rsplit_once(") ")?.1.split(' ');
            let (state, parent) = (fields.next()?.chars().next()?, fields.next()?.parse::<i32>().ok()?);
            (parent == self.pid).then_some((pid, state))
        });
        stats.collect()
    }

    pub fn zombies(&self) -> Vec<i32> {
        self.children().into_iter().filter(|(_, state)| *state == 'Z').map(|(pid, _)| pid).collect()
    }

    /// How many orphans the script has made.
    pub fn orphans(&self) -> u64 {
        fs::metadata(self.root.join("orphans")).map_or(0, |file| file.len())
    }

    /// Stops the process; how many of its tree are still there.
    pub fn finish_tree(&self) -> usize {
        let stopped = self.ask(&self.sender(), "STOP WAIT");
        assert!(stopped.is_some_and(|answer| answer.starts_with("OK stopped ")));
        self.children().len()
    }

    /// Ends it by TERM; whether it went with 0 and left no file.
    pub fn end(&self) -> bool {
        // SAFETY: kill(2) takes no pointer, and the child is not reaped yet.
        unsafe { libc::kill(self.pid, libc::SIGTERM) };
        let status = self.child.lock().unwrap().wait().unwrap();
        let left = ["data/j", "sys/run/bpm/j"].map(|folder| fs::read_dir(self.root.join(folder)));
        status.success() && left.into_iter().flatten().all(|folder| folder.count() == 0)
    }

    /// Kills it by force; whether its process died with it.
    pub fn crash(&self) -> bool {
        let main = self.children().first().map(|(pid, _)| *pid);
        let mut child = self.child.lock().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until(|| main.is_none_or(|pid| !is_ours(pid, &self.root)))
    }
}

/// Whether this PID is still that of a process that was started with this root.
fn is_ours(pid: i32, root: &Path) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mark = format!("ORPHANS={}", root.join("orphans").display());
    environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
}
