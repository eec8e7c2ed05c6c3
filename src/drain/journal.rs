//! What a hook says of its progress: on stderr, and with a time stamp in the job's log folder.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use nix::libc;

use crate::log;
use crate::paths::{BoshRoot, Name};
use crate::whole_file;

/// The log of all drains of one job.
pub struct Journal {
    folder: PathBuf,
    file: Option<File>,
    name: String,
}

impl Journal {
    /// Opens the log. If that cannot be done the hook says so and goes on: a drain matters more.
    pub fn open(root: &BoshRoot, job: &Name, process: &Name) -> Self {
        let folder = root.logs(job);
        let name = format!("drain of {job}/{process}");
        match append(&folder, "container-run-drain.log") {
            Ok(file) => Self { folder, file: Some(file), name },
            Err(error) => {
                log::error(format_args!("warning: {error:#}"));
                Self { folder, file: None, name }
            }
        }
    }

    /// Says one line.
    pub fn say(&mut self, message: impl fmt::Display) {
        log::error(format_args!("{}: {message}", self.name));
        if let Some(file) = &mut self.file {
            let now = humantime::format_rfc3339_seconds(SystemTime::now());
            let _ = writeln!(file, "{now} {}: {message}", self.name);
        }
    }

    /// The logs of one of the job's scripts, stdout and stderr, as the agent names them.
    pub fn of_script(&self, script: &str) -> Result<(File, File)> {
        let log = |stream: &str| append(&self.folder, &format!("{script}.{stream}.log"));
        Ok((log("stdout")?, log("stderr")?))
    }
}

/// Opens a file for appending. The folder is the job's to write in, so a link is not followed.
fn append(folder: &Path, name: &str) -> Result<File> {
    whole_file::make_folder(folder)?;
    let path = folder.join(name);
    let open = || -> io::Result<File> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        File::options().create(true).append(true).mode(0o644).custom_flags(flags).open(&path)
    };
    open().with_context(|| format!("cannot write {}", path.display()))
}
