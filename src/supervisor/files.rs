//! Pidfile and sentinel: there exactly while the main process is alive.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use nix::unistd::Pid;

use crate::identity::Identity;
use crate::paths::ProcessPaths;
use crate::whole_file;

/// Readable by all: drain scripts and probes run as any user.
const MODE: u32 = 0o644;

/// The files of one run of the main process.
pub struct RunFiles {
    pidfile: Identity,
    sentinel: Identity,
}

impl RunFiles {
    /// Writes both, the pidfile first: who sees the sentinel finds the PID.
    pub fn write(paths: &ProcessPaths, main: Pid) -> Result<Self> {
        // No newline: byte for byte what the real bpm writes.
        let pidfile = whole_file::write(&paths.pidfile, main.to_string().as_bytes(), MODE)?;
        let sentinel = whole_file::write(&paths.sentinel, b"", MODE)
            .inspect_err(|_| drop(remove_file(&paths.pidfile, Some(pidfile))))?;
        Ok(Self { pidfile, sentinel })
    }

    /// Removes both, in the opposite order. One that is gone already is no error: drain scripts
    /// remove the pidfile of a process they have ended. Nor is a file of another run: where lock and
    /// socket were removed, a second supervisor may have written it.
    pub fn remove(self, paths: &ProcessPaths) -> Result<()> {
        let sentinel = remove_file(&paths.sentinel, Some(self.sentinel));
        let pidfile = remove_file(&paths.pidfile, Some(self.pidfile));
        sentinel.and(pidfile)
    }
}

/// Removes what a dead supervisor has left.
pub fn remove_left_over(paths: &ProcessPaths) -> Result<()> {
    let sentinel = remove_file(&paths.sentinel, None);
    let pidfile = remove_file(&paths.pidfile, None);
    sentinel.and(pidfile)
}

/// Removes what lies there, but no file other than `ours`, if one is.
fn remove_file(path: &Path, ours: Option<Identity>) -> Result<()> {
    let is_anothers =
        |ours| fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && Identity::of(&found) != ours);
    if ours.is_some_and(is_anothers) {
        return Ok(());
    }
    whole_file::remove(path).with_context(|| format!("cannot remove {}", path.display()))
}
