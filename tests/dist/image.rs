//! Carries out a Dockerfile without Docker: a folder for each stage, its RUN lines under runc. Any
//! base image but `scratch` is a busybox root.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::*;

/// Docker's default.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A folder for stages and for runc's own state. Containers end with it.
pub struct Builder {
    folder: tempfile::TempDir,
}

/// What a Dockerfile makes.
pub struct Image {
    root: PathBuf,
    /// ENTRYPOINT and CMD.
    command: Vec<String>,
}

impl Builder {
    /// None, said visibly, where there can be no containers.
    pub fn new() -> Option<Self> {
        let builder = Self { folder: tempfile::tempdir().unwrap() };
        let root = builder.folder.path().join("tried");
        let tried = busybox_root(&root)
            .and_then(|()| builder.container(&root, &["true".to_owned()]).output())
            .map_err(|error| error.to_string());
        if !tried.as_ref().is_ok_and(|tried| tried.status.success()) {
            skip(&format!("runc does not run busybox here: {tried:?}"));
            return None;
        }
        Some(builder)
    }

    /// Carries out all steps; COPY takes from `context`.
    #[track_caller]
    pub fn build(&self, dockerfile: &str, context: &Path) -> Image {
        let mut stages: Vec<(String, PathBuf)> = vec![];
        let (mut entrypoint, mut command) = (vec![], vec![]);
        for step in steps(dockerfile) {
            let (instruction, rest) = step.split_once(' ').unwrap();
            if instruction == "FROM" {
                let (base, name) = rest.split_once(" AS ").unwrap_or((rest, ""));
                let root = self.folder.path().join(format!("stage-{}", stages.len()));
                fs::create_dir(&root).unwrap();
                if base != "scratch" {
                    busybox_root(&root).unwrap();
                }
                stages.push((name.to_owned(), root));
                continue;
            }
            let root = &stages.last().expect("FROM comes first").1;
            match instruction {
                "COPY" => copy(rest, root, context, &stages),
                "RUN" => self.run(rest, root),
                "ENTRYPOINT" => entrypoint = list(rest),
                "CMD" => command = list(rest),
                _ => panic!("not known here: {step}"),
            }
        }
        let root = stages.pop().unwrap().1;
        Image { root, command: [entrypoint, command].concat() }
    }

    fn run(&self, script: &str, root: &Path) {
        let words = ["/bin/sh", "-c", script].map(str::to_owned);
        let done = self.container(root, &words).output().unwrap();
        assert!(done.status.success(), "RUN {script}: {done:?}");
    }

    /// Starts the image as `docker run` does.
    pub fn start(&self, image: &Image) -> Running<'_> {
        let mut command = self.container(&image.root, &image.command);
        let name = command.get_args().last().unwrap().to_str().unwrap().to_owned();
        Running { runc: command.stdout(Stdio::null()).spawn().unwrap(), builder: self, name }
    }

    /// `runc run` of these words in a root; the container's name is the last argument.
    fn container(&self, root: &Path, words: &[String]) -> Command {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("container-run-dist-{}-{number}", std::process::id());
        let bundle = self.folder.path().join(&name);
        fs::create_dir(&bundle).unwrap();
        fs::write(bundle.join("config.json"), configuration(root, words)).unwrap();
        let mut runc = self.runc();
        runc.args(["run", "--bundle"]).arg(bundle).arg(name);
        runc
    }

    fn runc(&self) -> Command {
        let mut runc = Command::new("runc");
        runc.arg("--root").arg(self.folder.path().join("state")).stdin(Stdio::null());
        runc
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        let left = fs::read_dir(self.folder.path().join("state")).into_iter().flatten().flatten();
        for container in left {
            let _ = self.runc().args(["delete", "--force"]).arg(container.file_name()).output();
        }
    }
}

/// A container of an image.
pub struct Running<'a> {
    builder: &'a Builder,
    name: String,
    runc: Child,
}

impl Running<'_> {
    /// What `docker exec` does.
    pub fn exec(&self, words: &[&str]) -> Output {
        self.builder.runc().args(["exec", &self.name]).args(words).output().unwrap()
    }

    /// What `docker stop` does; the container's exit code.
    #[track_caller]
    pub fn stop(&mut self) -> Option<i32> {
        let sent = self.builder.runc().args(["kill", &self.name, "TERM"]).output().unwrap();
        assert!(sent.status.success(), "{sent:?}");
        let mut status = None;
        wait_until("the container ends", || {
            status = self.runc.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().code()
    }
}

/// The instructions, each on one line, without comments.
fn steps(dockerfile: &str) -> Vec<String> {
    let lines = dockerfile.lines().filter(|line| !line.starts_with('#'));
    let joined = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    joined.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The words of `["a", "b"]`.
fn list(json: &str) -> Vec<String> {
    let inner = json.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).expect("the exec form");
    inner.split(", ").map(|word| word.trim_matches('"').to_owned()).collect()
}

/// COPY [--from=STAGE] SOURCE DESTINATION.
fn copy(arguments: &str, root: &Path, context: &Path, stages: &[(String, PathBuf)]) {
    let mut words: Vec<&str> = arguments.split(' ').collect();
    let mut from = context;
    if let Some(name) = words[0].strip_prefix("--from=") {
        from = &stages.iter().find(|(stage, _)| stage == name).expect("an earlier stage").1;
        words.remove(0);
    }
    let [source, destination] = words[..] else { panic!("COPY {arguments}") };
    let target = root.join(destination.trim_start_matches('/'));
    let folder = if destination.ends_with('/') { &target } else { target.parent().unwrap() };
    fs::create_dir_all(folder).unwrap();
    // By a shell, for SOURCE may be a pattern.
    let script = format!("cp {} \"$1\"", source.trim_start_matches('/'));
    let done =
        Command::new("sh").args(["-ec", &script, "sh"]).arg(&target).current_dir(from).output().unwrap();
    assert!(done.status.success(), "COPY {arguments}: {done:?}");
}

fn busybox_root(root: &Path) -> std::io::Result<()> {
    let busybox = Path::new("/bin/busybox");
    for folder in ["bin", "tmp", "usr/local"] {
        fs::create_dir_all(root.join(folder))?;
    }
    copy_program(busybox, root.join("bin/busybox"));
    for applet in text(&Command::new(busybox).arg("--list").output()?.stdout).lines() {
        if applet != "busybox" {
            symlink("busybox", root.join("bin").join(applet))?;
        }
    }
    Ok(())
}

/// A container with namespaces of its own, and the capabilities that Docker gives and the steps need.
fn configuration(root: &Path, words: &[String]) -> String {
    let capabilities =
        r#"["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_SETGID", "CAP_SETUID"]"#;
    // Plain ASCII: Rust quotes it as JSON does.
    format!(
        r#"{{
  "ociVersion": "1.0.2",
  "process": {{
    "user": {{"uid": 0, "gid": 0}}, "args": {words:?}, "env": ["PATH={PATH}"], "cwd": "/",
    "noNewPrivileges": true,
    "capabilities": {{"bounding": {capabilities}, "effective": {capabilities}, "permitted": {capabilities}}}
  }},
  "root": {{"path": {root:?}}},
  "mounts": [
    {{"destination": "/proc", "type": "proc", "source": "proc"}},
    {{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"}}
  ],
  "linux": {{"namespaces": [{{"type": "pid"}}, {{"type": "mount"}}, {{"type": "ipc"}}, {{"type": "network"}}]}}
}}"#
    )
}
