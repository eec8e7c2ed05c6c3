//! Running one process of one job.

pub mod machine;

mod child;
mod files;
mod init;
mod narrate;
mod program;
mod runtime;
mod title;
pub(crate) mod tree;

use std::ffi::OsString;

use anyhow::{Context, Result};
use nix::sys::prctl;
use nix::sys::stat::Mode;

use crate::bpm_script;
use crate::control::socket::ControlSocket;
use crate::log;
use crate::paths::{BoshRoot, Name};
use crate::signals::Signals;
use machine::Config;

/// All that a supervisor must know.
pub struct Options {
    /// The BOSH root.
    pub root: BoshRoot,
    /// The job's name.
    pub job: Name,
    /// The process's name.
    pub process: Name,
    /// EXECUTABLE and its arguments.
    pub command: Vec<OsString>,
    /// Post-start and its arguments; empty if there is none.
    pub post_start: Vec<OsString>,
    /// The condition and its arguments; empty if there is none.
    pub condition: Vec<OsString>,
    /// Signals and times.
    pub config: Config,
    /// Whether to write the `bpm` script.
    pub install_bpm: bool,
    /// Whether to say each event on stderr.
    pub debug: bool,
    /// How lines on stderr look.
    pub log_format: log::Format,
    /// The umask that we were started with, and children are to have.
    pub umask: Mode,
}

/// Supervises until a signal or a failure ends it; returns the exit code.
///
/// # Errors
///
/// What must be right before the main process may start: signals, folders, the lock and the
/// socket. After that, errors are reported and the life cycle goes on.
pub fn run(options: Options) -> Result<u8> {
    log::start(options.job.clone(), options.process.clone(), options.log_format, options.debug);
    if let Err(error) = title::set(&format!("container-run {}/{}", options.job, options.process)) {
        log::debug(|| format!("the command line stays visible: {error}"));
    }
    if let Some(code) = init::split_if_needed()? {
        return Ok(code);
    }
    let signals = Signals::new().context("cannot handle signals")?;
    prctl::set_child_subreaper(true).context("cannot become a subreaper")?;

    let paths = options.root.process(&options.job, &options.process)?;
    let socket = ControlSocket::claim(&paths)?;
    // The lock is ours, so what lies there is a dead supervisor's.
    files::remove_left_over(&paths)?;
    if options.install_bpm {
        install_bpm(&options.root);
    }
    Ok(runtime::Runtime::new(options, paths, socket, signals).run())
}

/// The script is a service to the job: that it cannot be written must not keep the job down.
fn install_bpm(root: &BoshRoot) {
    let installed = std::env::current_exe()
        .context("cannot find the path of container-run")
        .and_then(|binary| bpm_script::render(root.path(), &binary))
        .and_then(|script| bpm_script::install(&root.bpm_script(), &script, false));
    match installed {
        Ok(installed) => log::debug(|| format!("the bpm script is {installed}")),
        Err(error) if error.is::<bpm_script::Stranger>() => log::debug(|| format!("{error:#}")),
        Err(error) => log::warning(format_args!("{error:#}")),
    }
}
