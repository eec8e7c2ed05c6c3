//! Plays the kubelet with runc: a pod of the containers of `examples/kubernetes`, each with
//! its own PID and mount namespace, and volumes that they share.

#![allow(clippy::unwrap_used, missing_docs)]

pub mod images;
pub mod manifest;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::common::*;
use manifest::{Container, StatefulSet};

/// What the kubelet gives to a container whose hook has used up the grace.
const LEAST_GRACE: Duration = Duration::from_secs(2);

/// How a container of a pod that went down has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ending {
    /// The exit code of its hook, and of itself.
    pub hook: i32,
    pub container: i32,
    /// Whether KILL was needed at the end of the grace.
    pub killed: bool,
}

pub struct Pod {
    folder: tempfile::TempDir,
    id: String,
    containers: Vec<Container>,
    /// `runc run` of each container that lives.
    running: Mutex<BTreeMap<String, Child>>,
}

impl Pod {
    /// A pod of these sets' containers, its init containers run, its containers ready. None, said
    /// visibly, where there can be no containers.
    pub fn start(sets: &[StatefulSet], scripts: &[(&str, &str)]) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!("pod-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = tempfile::tempdir().unwrap();
        let containers = sets.iter().flat_map(|set| set.containers.clone()).collect();
        let pod = Self { folder, id, containers, running: Mutex::default() };
        if let Err(why) = images::make(&pod.path("images"), scripts).and_then(|()| pod.try_runc()) {
            skip(&why);
            return None;
        }
        for volume in sets.iter().flat_map(|set| &set.volumes) {
            // As an emptyDir is, and as `fsGroup` makes a claim.
            images::make_folder(&pod.path("volumes").join(volume), 0o777);
        }
        for init in sets.iter().flat_map(|set| &set.init_containers) {
            let done = pod.run(init, "init").output().unwrap();
            assert!(done.status.success(), "{}: {done:?}", init.name);
        }
        pod.names().iter().for_each(|name| pod.start_container(name));
        pod.names().iter().for_each(|name| pod.wait_until_ready(name));
        Some(pod)
    }

    pub fn names(&self) -> Vec<String> {
        self.containers.iter().map(|container| container.name.clone()).collect()
    }

    pub fn container(&self, name: &str) -> &Container {
        self.containers.iter().find(|container| container.name == name).unwrap()
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    fn id(&self, name: &str) -> String {
        format!("{}-{name}", self.id)
    }

    fn runc(&self) -> Command {
        let mut runc = Command::new("runc");
        runc.arg("--root").arg(self.path("runc")).stdin(Stdio::null());
        runc
    }

    fn try_runc(&self) -> Result<(), String> {
        let mut trial = manifest::example("db").init_containers[0].clone();
        (trial.name, trial.command, trial.mounts) = ("trial".into(), vec!["true".into()], vec![]);
        match self.run(&trial, "trial").output() {
            Ok(output) if output.status.success() => Ok(()),
            failed => Err(format!("runc cannot run a container here: {failed:?}")),
        }
    }

    /// `runc run`, which lives as long as the container and ends with its exit code.
    fn run(&self, container: &Container, purpose: &str) -> Command {
        let bundle = self.path("bundles").join(purpose).join(&container.name);
        fs::create_dir_all(&bundle).unwrap();
        let id = self.id(&container.name);
        let image = images::root_of(&self.path("images"), &container.image);
        let config = images::configuration(container, &id, &image, &self.path("volumes"));
        fs::write(bundle.join("config.json"), config).unwrap();
        let mut run = self.runc();
        run.args(["run", "--bundle"]).arg(bundle).arg(id);
        run
    }

    pub fn start_container(&self, name: &str) {
        let log = File::options().create(true).append(true).open(self.path(&format!("{name}.log"))).unwrap();
        let mut run = self.run(self.container(name), "main");
        run.stdout(log.try_clone().unwrap()).stderr(log);
        self.running.lock().unwrap().insert(name.to_owned(), run.spawn().unwrap());
    }

    /// As the readiness probe sees it.
    #[track_caller]
    pub fn wait_until_ready(&self, name: &str) {
        let readiness = self.container(name).readiness.clone().unwrap();
        wait_until("the container is ready", || self.exec(name, &readiness).status.success());
    }

    fn exec_command(&self, name: &str, words: &[String]) -> Command {
        let mut exec = self.runc();
        exec.args(["exec", &self.id(name)]).args(words);
        exec
    }

    /// What `kubectl exec` and exec probes do.
    pub fn exec(&self, name: &str, words: &[String]) -> Output {
        self.exec_command(name, words).output().unwrap()
    }

    /// Whether the liveness probe is content.
    pub fn is_well(&self, name: &str) -> bool {
        self.exec(name, &self.container(name).liveness.clone().unwrap()).status.success()
    }

    /// `STATE PID MODE`, asked by the container's own `container-run`.
    #[track_caller]
    pub fn status(&self, name: &str) -> String {
        let container = self.container(name);
        let words =
            ["/var/vcap/bin/container-run", "send", "STATUS", container.job(), "-p", container.process()];
        let answer = self.exec(name, &words.map(str::to_owned));
        assert!(answer.status.success(), "{name}: {answer:?}");
        text(&answer.stdout).trim_end().to_owned()
    }

    /// Ends a container at once, as the kernel does for want of memory.
    #[track_caller]
    pub fn crash(&self, name: &str) {
        let sent = self.runc().args(["kill", &self.id(name), "KILL"]).output().unwrap();
        assert!(sent.status.success(), "{name}: {sent:?}");
        // On a busy machine that takes a while.
        wait_until("it is gone", || !self.exec(name, &["true".to_owned()]).status.success());
    }

    /// The lines that scripts and processes have written, in their order.
    pub fn journal(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("volumes/sys/journal")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    #[track_caller]
    pub fn wait_for_lines(&self, line: &str, times: usize) {
        let count = || self.journal().iter().filter(|found| *found == line).count();
        wait_until(&format!("{times} x '{line}' in {:?}", self.journal()), || count() >= times);
    }

    /// Holds a job's drain, which looks for this file, until it is let go.
    pub fn hold(&self, job: &str) {
        fs::write(self.path(&format!("volumes/sys/hold-{job}")), "").unwrap();
    }

    pub fn let_go(&self, job: &str) {
        fs::remove_file(self.path(&format!("volumes/sys/hold-{job}"))).unwrap();
    }

    /// Takes the whole pod down, as the kubelet does, while `meanwhile` happens.
    pub fn terminate(&self, grace: Duration, meanwhile: impl FnOnce()) -> BTreeMap<String, Ending> {
        let end = Instant::now() + grace;
        std::thread::scope(|scope| {
            let stop =
                |name: String| scope.spawn(move || (name.clone(), self.stop_container(&name, &[], end)));
            let threads: Vec<_> = self.names().into_iter().map(stop).collect();
            meanwhile();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// What the kubelet does to one container: its hook, then TERM, KILL when the grace is over.
    pub fn stop_container(&self, name: &str, more: &[&str], end: Instant) -> Ending {
        let mut runc = self.running.lock().unwrap().remove(name).unwrap();
        let hook =
            [self.container(name).hook.clone().unwrap(), more.iter().map(|word| (*word).into()).collect()];
        let log = File::create(self.path(&format!("{name}.hook"))).unwrap();
        let mut hook = self.exec_command(name, &hook.concat()).stderr(log).spawn().unwrap();
        wait_for(&mut hook, end);
        // A container that crashed is not there any more.
        let _ = self.runc().args(["kill", &self.id(name), "TERM"]).output();
        let ended = wait_for(&mut runc, end.max(Instant::now() + LEAST_GRACE));
        if ended.is_none() {
            let _ = self.runc().args(["kill", &self.id(name), "KILL"]).output();
        }
        let code = |status: ExitStatus| status.code().unwrap();
        Ending {
            hook: code(hook.wait().unwrap()),
            container: code(runc.wait().unwrap()),
            killed: ended.is_none(),
        }
    }

    /// All that was said, for a test that fails.
    pub fn logs(&self) -> String {
        let files = fs::read_dir(self.folder.path()).unwrap().map(|file| file.unwrap().path());
        let logs = files.filter(|path| path.is_file());
        logs.map(|path| format!("{}:\n{}", path.display(), fs::read_to_string(&path).unwrap())).collect()
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?}\n{}", self.journal(), self.logs());
        }
        for left in fs::read_dir(self.path("runc")).into_iter().flatten().flatten() {
            let _ = self.runc().args(["delete", "--force"]).arg(left.file_name()).output();
        }
        for (_, mut runc) in
            std::mem::take(&mut *self.running.lock().unwrap_or_else(|lock| lock.into_inner()))
        {
            let _ = runc.wait();
        }
    }
}

/// The status of a program that ends before `end`.
fn wait_for(child: &mut Child, end: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait().unwrap() {
            None if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            status => return status,
        }
    }
}
