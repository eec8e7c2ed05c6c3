//! Pidfile and sentinel: there exactly while the main process is alive.

use std::path::Path;

use anyhow::{Context, Result};
use nix::unistd::Pid;

use crate::paths::ProcessPaths;
use crate::whole_file;

/// Readable by all: drain scripts and probes run as any user.
const MODE: u32 = 0o644;

/// Writes both, the pidfile first: who sees the sentinel finds the PID.
pub fn write(paths: &ProcessPaths, main: Pid) -> Result<()> {
    // No newline: byte for byte what the real bpm writes.
    whole_file::write(&paths.pidfile, main.to_string().as_bytes(), MODE)?;
    whole_file::write(&paths.sentinel, b"", MODE)
}

/// Removes both, in the opposite order. One that is gone already is no error: drain scripts
/// remove the pidfile of a process they have ended.
pub fn remove(paths: &ProcessPaths) -> Result<()> {
    let sentinel = remove_file(&paths.sentinel);
    let pidfile = remove_file(&paths.pidfile);
    sentinel.and(pidfile)
}

fn remove_file(path: &Path) -> Result<()> {
    whole_file::remove(path).with_context(|| format!("cannot remove {}", path.display()))
}
