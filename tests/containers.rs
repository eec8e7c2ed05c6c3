//! Real containers, made by runc with a root file system of busybox: what a pod does to us.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use common::*;
use nix::libc;

/// A main process for a container that has busybox: says what it gets, and ends on TERM.
const OBEDIENT: &str = "trap 'echo TERM; exit 0' TERM; trap 'echo USR1' USR1; echo ready; \
                        while :; do sleep 0.05; done";

/// One that does not.
const STUBBORN: &str = "trap '' TERM; echo ready; while :; do sleep 1; done";

/// The binary that runs in any image, if it was built.
fn static_binary() -> Option<PathBuf> {
    let named = std::env::var_os("CONTAINER_RUN_STATIC").map(PathBuf::from);
    let built = || {
        let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target").join(host);
        folder.join("release/container-run")
    };
    Some(named.unwrap_or_else(built)).filter(|path| path.is_file())
}

/// A folder with containers' root file systems, one volume that they share as /var/vcap, and
/// runc's own state. Containers end with it.
struct Pod {
    folder: tempfile::TempDir,
    binary: PathBuf,
}

impl Pod {
    /// None, said visibly, where there can be no containers.
    fn new() -> Option<Self> {
        let Some(binary) = static_binary() else {
            skip("no static binary: `make build` makes it, or CONTAINER_RUN_STATIC names it");
            return None;
        };
        let pod = Self { folder: tempfile::tempdir().unwrap(), binary };
        fs::create_dir(pod.path("vcap")).unwrap();
        let tried = pod.container(&["/bin/busybox", "true"]).run_to_end();
        if !tried.as_ref().is_ok_and(|tried| tried.status.success()) {
            skip(&format!("runc does not run here: {tried:?}"));
            return None;
        }
        Some(pod)
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    fn runc(&self) -> Command {
        let mut runc = Command::new("runc");
        runc.arg("--root").arg(self.path("state")).stdin(Stdio::null());
        runc
    }

    /// A container that is to run these words, with busybox, dumb-init and container-run in it.
    fn container(&self, words: &[&str]) -> Container<'_> {
        let container = Container::new(self, words);
        for applet in ["sh", "sleep", "ps", "kill", "cat", "date"] {
            std::os::unix::fs::symlink("busybox", container.root().join("bin").join(applet)).unwrap();
        }
        container.add("/bin/busybox", "bin/busybox");
        container.add_with_libraries("/usr/bin/dumb-init");
        container
    }

    /// A container whose process 1 supervises `script` as job `j`.
    fn supervised(&self, script: &str) -> Container<'_> {
        self.supervised_by(&[], script)
    }

    /// The same behind another process 1.
    fn supervised_by(&self, init: &[&str], script: &str) -> Container<'_> {
        let own = ["/bin/container-run", "--job-name", "j", "--process-name", "j", "--kill-after", "1", "--"];
        self.container(&[init, &own, &["sh", "-c", script]].concat())
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let left = fs::read_dir(self.path("state")).into_iter().flatten().flatten();
        for container in left {
            let _ = self.runc().args(["delete", "--force"]).arg(container.file_name()).output();
        }
    }
}

/// A container, its root file system made, its process not yet started.
struct Container<'a> {
    pod: &'a Pod,
    name: String,
}

impl<'a> Container<'a> {
    fn new(pod: &'a Pod, words: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let container = Self { pod, name: format!("container-run-test-{}-{number}", std::process::id()) };
        for folder in ["bin", "proc", "dev", "tmp", "var/vcap"] {
            fs::create_dir_all(container.root().join(folder)).unwrap();
        }
        copy_program(&pod.binary, container.root().join("bin/container-run"));
        let config = configuration(words, &pod.path("vcap"));
        fs::write(pod.path(&container.name).join("config.json"), config).unwrap();
        container
    }

    fn root(&self) -> PathBuf {
        self.pod.path(&self.name).join("rootfs")
    }

    fn add(&self, from: &str, to: &str) {
        let to = self.root().join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        copy_program(from, to);
    }

    /// Copies a program and what the loader says that it needs, to the same paths.
    fn add_with_libraries(&self, program: &str) {
        let needed = text(&Command::new("ldd").arg(program).output().unwrap().stdout);
        let libraries = needed.split_whitespace().filter(|word| word.starts_with('/'));
        for file in libraries.chain([program]) {
            self.add(file, file.trim_start_matches('/'));
        }
    }

    fn command(&self) -> Command {
        let mut runc = self.pod.runc();
        runc.args(["run", "--bundle"]).arg(self.pod.path(&self.name)).arg(&self.name);
        runc
    }

    fn run_to_end(&self) -> std::io::Result<Output> {
        self.command().output()
    }

    /// Starts it; its stdout and stderr are files.
    fn start(self) -> Running<'a> {
        let (out, err) = (self.pod.path(&format!("{}.out", self.name)), self.pod.path("err"));
        let mut command = self.command();
        command.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(err).unwrap());
        let running = Running { runc: command.spawn().unwrap(), container: self, out };
        running.wait_for("ready");
        running
    }
}

struct Running<'a> {
    container: Container<'a>,
    runc: Child,
    out: PathBuf,
}

impl Running<'_> {
    fn count(&self, line: &str) -> usize {
        fs::read_to_string(&self.out).unwrap().lines().filter(|found| *found == line).count()
    }

    #[track_caller]
    fn wait_for(&self, line: &str) {
        wait_until(line, || self.count(line) > 0);
    }

    /// What `kubectl exec` does.
    fn exec(&self, words: &[&str]) -> Output {
        self.container.pod.runc().args(["exec", &self.container.name]).args(words).output().unwrap()
    }

    /// What it prints, if it succeeds.
    #[track_caller]
    fn succeed(&self, words: &[&str]) -> String {
        let done = self.exec(words);
        assert!(done.status.success(), "{words:?}: {done:?}");
        text(&done.stdout).trim_end().to_owned()
    }

    fn bpm(&self, words: &[&str]) -> Output {
        self.exec(&[&["/var/vcap/jobs/bpm/bin/bpm"], words].concat())
    }

    /// Its exit code and what it prints.
    fn bpm_says(&self, words: &str) -> (i32, String) {
        let done = self.bpm(&words.split(' ').collect::<Vec<_>>());
        (done.status.code().unwrap(), text(&done.stdout).trim_end().to_owned())
    }

    /// What the kubelet does when the pod goes down; the container's exit code.
    fn terminate(&mut self) -> i32 {
        let sent = self.container.pod.runc().args(["kill", &self.container.name, "TERM"]).output().unwrap();
        assert!(sent.status.success(), "{sent:?}");
        self.exit_code()
    }

    fn exit_code(&mut self) -> i32 {
        let mut status = None;
        wait_until("the container ends", || {
            status = self.runc.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().code().unwrap()
    }
}

/// A container with PID, mount, IPC and network namespaces of its own and no cgroup limits.
fn configuration(words: &[&str], volume: &Path) -> String {
    let capabilities = r#"["CAP_KILL", "CAP_DAC_OVERRIDE", "CAP_SETUID", "CAP_SETGID"]"#;
    // Plain ASCII words: Rust quotes them as JSON does.
    format!(
        r#"{{
  "ociVersion": "1.0.2",
  "process": {{
    "user": {{"uid": 0, "gid": 0}}, "args": {words:?}, "env": ["PATH=/bin"], "cwd": "/",
    "noNewPrivileges": true,
    "capabilities": {{"bounding": {capabilities}, "effective": {capabilities}, "permitted": {capabilities}}}
  }},
  "root": {{"path": "rootfs"}},
  "mounts": [
    {{"destination": "/proc", "type": "proc", "source": "proc"}},
    {{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"}},
    {{"destination": "/var/vcap", "type": "bind", "source": {volume:?}, "options": ["rbind", "rw"]}}
  ],
  "linux": {{"namespaces": [{{"type": "pid"}}, {{"type": "mount"}}, {{"type": "ipc"}}, {{"type": "network"}}]}}
}}"#
    )
}

#[test]
fn given_process_1_when_the_container_is_told_to_stop_then_it_ends_with_0_and_leaves_no_files() {
    let Some(pod) = Pod::new() else { return };
    let mut obedient = pod.supervised(OBEDIENT).start();
    let title = obedient.succeed(&["cat", "/proc/1/cmdline"]);
    assert_eq!(title.trim_end_matches('\0'), "container-run j/j");
    assert_eq!(obedient.terminate(), 0);
    assert_eq!(obedient.count("TERM"), 1);
    assert_eq!(fs::read_dir(pod.path("vcap/data/j")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(pod.path("vcap/sys/run/bpm/j")).unwrap().count(), 0);
}

#[test]
fn given_process_1_and_a_process_that_ignores_term_then_the_container_ends_after_the_grace() {
    let Some(pod) = Pod::new() else { return };
    assert_eq!(pod.supervised(STUBBORN).start().terminate(), 0);
}

#[test]
fn given_dumb_init_when_the_container_is_told_to_stop_then_the_process_gets_one_term() {
    for init in [&["/usr/bin/dumb-init", "--"][..], &["/usr/bin/dumb-init", "--single-child", "--"]] {
        let Some(pod) = Pod::new() else { return };
        // It does not end on the first TERM, so that a second one would be seen.
        let script = "trap 'echo TERM' TERM; echo ready; while :; do sleep 0.05; done";
        let mut running = pod.supervised_by(init, script).start();
        assert_eq!(running.terminate(), 0, "{init:?}");
        assert_eq!(running.count("TERM"), 1, "{init:?}");
    }
}

#[test]
fn given_a_failing_process_then_the_container_ends_with_its_code() {
    let Some(pod) = Pod::new() else { return };
    for init in [&[][..], &["/usr/bin/dumb-init", "--"]] {
        let ended = pod.supervised_by(init, "exit 42").run_to_end().unwrap();
        assert_eq!(ended.status.code(), Some(42), "{init:?}: {ended:?}");
        assert_eq!(text(&ended.stderr), "container-run: j/j exited with code 42\n", "{init:?}");
    }
}

#[test]
fn given_two_containers_with_one_volume_then_bpm_in_the_one_drives_the_process_in_the_other() {
    let Some(pod) = Pod::new() else { return };
    let mut driven = pod.supervised(OBEDIENT).start();
    let driver = pod.container(&["sh", "-c", "echo ready; exec sleep 600"]).start();
    // The PID is the one that the other container knows.
    let (code, pid) = driver.bpm_says("pid j");
    assert_eq!((code, driven.succeed(&["cat", "/var/vcap/sys/run/bpm/j/j.pid"])), (0, pid.clone()));
    assert_eq!(driver.bpm_says("running j"), (0, String::new()));
    let table = |pid: &str, status: &str| {
        let width = pid.len().max(3);
        format!("Name {:width$} Status\nj    {pid:width$} {status}", "Pid")
    };
    assert_eq!(driver.bpm_says("list"), (0, table(&pid, "running")));
    assert_eq!(driver.bpm_says("signal j USR1"), (0, String::new()));
    driven.wait_for("USR1");
    assert_eq!(driver.bpm_says("stop j"), (0, String::new()));
    assert_eq!(driven.count("TERM"), 1);
    assert_eq!(driver.bpm_says("running j").0, 1);
    assert_eq!(driver.bpm_says("pid j").0, 1);
    assert_eq!(driver.bpm_says("list"), (0, table("-", "stopped")));
    assert_eq!(driver.bpm_says("start j"), (0, String::new()));
    wait_until("it runs again", || driven.count("ready") == 2);
    assert_eq!(driven.terminate(), 0);
    assert_eq!(driver.bpm_says("stop j"), (0, String::new()), "that nothing is there is no error");
}

#[test]
fn given_an_exec_shell_and_its_orphan_when_the_process_is_stopped_then_both_live_on() {
    let Some(pod) = Pod::new() else { return };
    let mut running = pod.supervised(STUBBORN).start();
    let mut shell = pod
        .runc()
        .args(["exec", &running.container.name, "sh", "-c", "echo $$ >/tmp/shell; sleep 600; true"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    running.succeed(&["sh", "-c", "sleep 600 </dev/null >/dev/null 2>&1 & echo $! >/tmp/orphan"]);
    wait_until("the shell runs", || running.container.root().join("tmp/shell").exists());
    assert_eq!(running.bpm_says("stop j"), (0, String::new()), "STOP, and KILL after the grace");
    let both = "kill -0 $(cat /tmp/shell) $(cat /tmp/orphan)";
    running.succeed(&["sh", "-c", both]);
    // The orphan is reaped when it ends, and not mistaken for anything.
    running.succeed(&["sh", "-c", "kill -KILL $(cat /tmp/orphan)"]);
    let zombies = ["sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null"];
    wait_until("no zombie is left", || !running.succeed(&zombies).contains(") Z "));
    assert_eq!(running.terminate(), 0);
    assert!(!shell.wait().unwrap().success(), "the container's end is the shell's");
}

#[test]
fn given_an_image_from_scratch_then_the_binary_needs_nothing_else() {
    let Some(pod) = Pod::new() else { return };
    let own = ["/bin/container-run", "--job-name", "j", "--process-name", "j", "--"];
    let container = Container::new(&pod, &[&own[..], &["/busybox", "sleep", "600"]].concat());
    container.add("/bin/busybox", "busybox");
    let mut runc = container.command().stdout(Stdio::null()).spawn().unwrap();
    wait_until("the process runs", || pod.path("vcap/data/j/j_containerrun.running").exists());
    let send = |words: &[&str]| {
        let mut exec = pod.runc();
        exec.args(["exec", &container.name, "/bin/container-run"]).args(words);
        let done = exec.output().unwrap();
        assert!(done.status.success(), "{done:?}");
        text(&done.stdout)
    };
    assert!(send(&["send", "STATUS", "j"]).starts_with("running "));
    assert_eq!(send(&["send", "STOP", "j", "--wait", "10"]), "stopped - monitored\n");
    assert!(send(&["send", "START", "j"]).starts_with("running "));
    send(&["probe", "j"]);
    assert!(pod.runc().args(["kill", &container.name, "TERM"]).status().unwrap().success());
    assert_eq!(runc.wait().unwrap().code(), Some(0));
}

#[test]
fn given_a_dead_container_when_another_takes_its_place_then_its_files_do_not_matter() {
    let Some(pod) = Pod::new() else { return };
    let mut first = pod.supervised(OBEDIENT).start();
    let driver = pod.container(&["sh", "-c", "echo ready; exec sleep 600"]).start();
    let killed = pod.runc().args(["kill", &first.container.name, "KILL"]).status().unwrap();
    assert!(killed.success());
    assert_eq!(first.exit_code(), 128 + libc::SIGKILL);
    assert!(pod.path("vcap/sys/run/bpm/j/j.pid").exists(), "its pidfile was left");
    assert_eq!(driver.bpm_says("running j").0, 1);
    assert_eq!(driver.bpm_says("pid j").0, 1);
    let mut second = pod.supervised(OBEDIENT).start();
    assert_eq!(driver.bpm_says("running j").0, 0);
    assert_eq!(second.terminate(), 0);
}
