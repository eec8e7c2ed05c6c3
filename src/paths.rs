//! The BOSH root, every path below it that we use, and the names that may stand in one.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Result, bail};

/// Where BOSH puts everything, unless told otherwise.
pub const DEFAULT_ROOT: &str = "/var/vcap";

/// The variable that moves the BOSH root; the real bpm reads the same one.
pub const ROOT_VARIABLE: &str = "BPM_BOSH_ROOT";

/// The longest name that a file can have (NAME_MAX of every Linux file system that matters).
const LONGEST_FILE_NAME: usize = 255;

/// How the name of a control socket ends; what stands before it is the process's name.
pub const SOCKET_SUFFIX: &str = "_containerrun.sock";

/// The name of a job or of a process: 1 to 255 bytes, and nothing that could leave its folder
/// or spoil a line of output.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        if name.is_empty() {
            bail!("the name '' is empty");
        }
        if name.len() > LONGEST_FILE_NAME {
            bail!("the name '{name}' is longer than {LONGEST_FILE_NAME} bytes");
        }
        if name == "." || name == ".." || name.contains('/') {
            bail!("the name '{name}' is not the name of a file ('/', '.' and '..' are not allowed)");
        }
        if name.chars().any(char::is_control) {
            bail!("the name {name:?} holds a control character");
        }
        Ok(Self(name.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The folder that everything lies under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoshRoot(PathBuf);

impl BoshRoot {
    /// The root that was asked for, else `$BPM_BOSH_ROOT`, else `/var/vcap`. An empty one counts
    /// as none, a relative one as below the current folder: a path of ours stays what it was
    /// even for a process that has changed its folder.
    pub fn resolve(asked: Option<PathBuf>) -> Result<Self> {
        let not_empty = |path: &PathBuf| !path.as_os_str().is_empty();
        let root = asked
            .filter(not_empty)
            .or_else(|| std::env::var_os(ROOT_VARIABLE).map(PathBuf::from).filter(not_empty))
            .unwrap_or_else(|| PathBuf::from(DEFAULT_ROOT));
        let absolute = std::path::absolute(&root)
            .map_err(|error| anyhow::anyhow!("cannot find {}: {error}", root.display()))?;
        Ok(Self(absolute))
    }

    /// The root itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The generated `bpm` script.
    pub fn bpm_script(&self) -> PathBuf {
        self.0.join("jobs/bpm/bin/bpm")
    }

    /// The folder that holds a folder for each job that ever ran.
    pub fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    /// The folder of a job's scripts and settings.
    pub fn job(&self, job: &Name) -> PathBuf {
        self.0.join("jobs").join(job.as_str())
    }

    /// The folder of a job's logs.
    pub fn logs(&self, job: &Name) -> PathBuf {
        self.0.join("sys/log").join(job.as_str())
    }

    /// Locked by the hook that drains a job, for as long as it does.
    pub fn drain_lock(&self, job: &Name) -> PathBuf {
        self.data().join(job.as_str()).join(".drain.lock")
    }

    /// The control socket of a process.
    pub fn socket(&self, job: &Name, process: &Name) -> PathBuf {
        self.data().join(job.as_str()).join(format!("{process}{SOCKET_SUFFIX}"))
    }

    /// The files of one process. Fails if the process's name leaves no room for their endings.
    pub fn process(&self, job: &Name, process: &Name) -> Result<ProcessPaths> {
        let data = self.data().join(job.as_str());
        let sentinel = format!("{process}_containerrun.running");
        // One byte is for the `~` of a file that is being written.
        if sentinel.len() + 1 > LONGEST_FILE_NAME {
            bail!("the process name '{process}' is too long for the name of its files");
        }
        Ok(ProcessPaths {
            socket: self.socket(job, process),
            lock: data.join(format!("{process}_containerrun.lock")),
            sentinel: data.join(sentinel),
            pidfile: self.0.join("sys/run/bpm").join(job.as_str()).join(format!("{process}.pid")),
        })
    }
}

/// The files by which one process is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessPaths {
    /// Control socket: there while the supervisor lives.
    pub socket: PathBuf,
    /// Locked by the supervisor for as long as it lives: who holds it may own the other files.
    pub lock: PathBuf,
    /// Empty file: there exactly while the main process is alive.
    pub sentinel: PathBuf,
    /// The main process's PID: there exactly while the main process is alive.
    pub pidfile: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn names_of_real_jobs_and_strange_ones_are_data() {
        let longest = "x".repeat(255);
        for text in ["cloud_controller_ng", "a.b-c", "-x", "...", " ", "a b", "$(id)", "'\"", "é", &longest]
        {
            assert_eq!(name(text).as_str(), text);
        }
    }

    #[test]
    fn a_name_that_is_no_file_name_is_refused_and_shown() {
        let long = "x".repeat(256);
        let accents = "é".repeat(128);
        for text in ["", ".", "..", "/", "a/b", "../x", "a\nb", "a\0b", "\x7f", "\u{85}", &long, &accents] {
            let error = text.parse::<Name>().unwrap_err().to_string();
            let shown = text.escape_debug().to_string();
            assert!(error.contains(&shown), "{text:?}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn the_files_of_a_process_lie_where_bpm_and_the_operator_look() {
        let root = BoshRoot(PathBuf::from("/r"));
        let paths = root.process(&name("j"), &name("p.1")).unwrap();
        assert_eq!(paths.socket, Path::new("/r/data/j/p.1_containerrun.sock"));
        assert_eq!(paths.sentinel, Path::new("/r/data/j/p.1_containerrun.running"));
        assert_eq!(paths.pidfile, Path::new("/r/sys/run/bpm/j/p.1.pid"));
        assert_eq!(root.bpm_script(), Path::new("/r/jobs/bpm/bin/bpm"));
    }

    #[test]
    fn a_process_name_that_leaves_no_room_for_an_ending_is_refused() {
        let root = BoshRoot(PathBuf::from("/r"));
        assert!(root.process(&name("j"), &name(&"x".repeat(232))).is_ok());
        let error = root.process(&name("j"), &name(&"x".repeat(240))).unwrap_err();
        assert!(error.to_string().contains("too long"), "{error}");
    }

    #[test]
    fn a_root_that_is_asked_for_wins_and_a_relative_one_becomes_absolute() {
        let here = std::env::current_dir().unwrap();
        let root = BoshRoot::resolve(Some(PathBuf::from("some/where"))).unwrap();
        assert_eq!(root.path(), here.join("some/where"));
    }
}
