//! What each form of the command line does, from options to exit code.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::stat::Mode as Umask;

use crate::bpm_script;
use crate::cli::{Command, Supervise, Target};
use crate::control::client::{self, DEFAULT_WAIT, SendError};
use crate::control::peers;
use crate::control::protocol::{Mode, StateName, Status, VERBS};
use crate::drain;
use crate::log;
use crate::nearest;
use crate::paths::{BoshRoot, DEFAULT_ROOT};
use crate::status;
use crate::supervisor::{self, Options, machine::Config};
use crate::table;

/// Exit code of `send` when no supervisor is there.
const NO_SUPERVISOR: u8 = 3;

/// How long `list` and `status` wait for one supervisor: it answers at once or is in trouble.
const LIST_WAIT: Duration = Duration::from_secs(1);

/// Supervises a process.
pub fn supervise(options: Supervise, umask: Umask) -> Result<u8> {
    let with_arguments = |name: Option<_>, arguments: Vec<_>| name.into_iter().chain(arguments).collect();
    let condition: Vec<_> =
        with_arguments(options.post_start_condition_name, options.post_start_condition_arg);
    supervisor::run(Options {
        root: BoshRoot::resolve(options.root)?,
        job: options.job_name,
        process: options.process_name,
        command: options.command,
        post_start: with_arguments(options.post_start_name, options.post_start_arg),
        config: Config {
            stop_signal: options.stop_signal.into(),
            kill_after: options.kill_after,
            condition: !condition.is_empty(),
            interval: options.post_start_interval,
            timeout: options.post_start_timeout,
        },
        condition,
        install_bpm: !options.no_install_bpm,
        debug: options.debug,
        log_format: options.log_format,
        umask,
    })
}

/// Carries out a subcommand.
pub fn run(command: Command) -> Result<u8> {
    match command {
        Command::InstallBpm { root, target_root, container_run, force, print } => {
            install_bpm(root, target_root, container_run, force, print)
        }
        Command::Send { verb, target, wait } => send(&verb, target, wait),
        Command::Probe { target } => probe(target),
        Command::Status(options) => status::run(options, LIST_WAIT),
        Command::List { root } => list(root),
        Command::Drain(options) => drain::hook::run(options),
        Command::DrainPatch { command } => drain::patch::run(command),
    }
}

fn install_bpm(
    root: Option<PathBuf>,
    target_root: Option<PathBuf>,
    container_run: Option<PathBuf>,
    force: bool,
    print: bool,
) -> Result<u8> {
    let elsewhere = root.is_some();
    let root = BoshRoot::resolve(root)?;
    let target_root = match target_root {
        Some(target) => target,
        None if elsewhere => PathBuf::from(DEFAULT_ROOT),
        None => root.path().to_owned(),
    };
    let container_run = match container_run {
        Some(path) => path,
        None => std::env::current_exe().context("cannot find the path of container-run")?,
    };
    let script = bpm_script::render(&target_root, &container_run)?;
    if print {
        io::stdout().write_all(script.as_bytes()).context("cannot write to stdout")?;
    } else {
        bpm_script::install(&root.bpm_script(), &script, force)?;
    }
    Ok(0)
}

/// Asks the supervisor that `target` names.
fn ask(target: Target, command: &str, wait: Duration) -> Result<Result<Status, SendError>> {
    let root = BoshRoot::resolve(target.root)?;
    let process = target.process.unwrap_or_else(|| target.job.clone());
    let paths = root.process(&target.job, &process)?;
    Ok(client::send(&paths.socket, command, wait))
}

fn send(verb: &str, target: Target, wait: Option<Duration>) -> Result<u8> {
    let command = if verb == "STOP" && wait.is_some() { "STOP WAIT" } else { verb };
    match ask(target, command, wait.unwrap_or(DEFAULT_WAIT))? {
        Ok(status) => {
            writeln!(io::stdout(), "{status}").context("cannot write to stdout")?;
            Ok(0)
        }
        Err(error) => {
            log::error(format_args!("{error}{}", advice(verb, &error)));
            Ok(if let SendError::NoSupervisor(_) = error { NO_SUPERVISOR } else { 1 })
        }
    }
}

/// What may help somebody whose command had this error.
fn advice(verb: &str, error: &SendError) -> String {
    match error {
        SendError::NoSupervisor(_) => "; `container-run status` shows those that are there".to_owned(),
        SendError::Refused(reason) if reason.starts_with("unknown command") => {
            match nearest::meant(&verb.to_ascii_uppercase(), VERBS) {
                Some(meant) if meant != verb => format!("; did you mean '{meant}'?"),
                // One that there is lacks its argument, or the supervisor is older.
                _ => "; `container-run help send` lists the verbs".to_owned(),
            }
        }
        SendError::Refused(_) | SendError::TimedOut(..) | SendError::NoRoom(..) | SendError::Failed(..) => {
            String::new()
        }
    }
}

fn probe(target: Target) -> Result<u8> {
    let process = target.process.as_ref().unwrap_or(&target.job);
    let name = format!("{}/{process}", target.job);
    match ask(target, "STATUS", DEFAULT_WAIT)? {
        Ok(status) if is_well(status) => Ok(0),
        Ok(status) => {
            log::error(format_args!("{name} has {}", status.state));
            Ok(1)
        }
        Err(error) => {
            log::error(format_args!("{error}{}", advice("STATUS", &error)));
            Ok(1)
        }
    }
}

/// Whether the container of such a process should live on.
fn is_well(status: Status) -> bool {
    match (status.mode, status.state) {
        (Mode::Unmonitored | Mode::Drained, _) => true,
        (Mode::Monitored, StateName::Running | StateName::Stopping | StateName::Stopped) => true,
        (Mode::Monitored, StateName::Ended | StateName::Failed) => false,
    }
}

/// One line for each process of each job that has a supervisor, or had one that was killed.
///
/// Exit code 0 whatever the supervisors say; why one cannot be asked goes to stderr.
fn list(root: Option<PathBuf>) -> Result<u8> {
    let root = BoshRoot::resolve(root)?;
    let mut rows = vec![["Name".to_owned(), "Pid".to_owned(), "Status".to_owned()]];
    let answers = peers::ask(&root, peers::all(&root)?, "STATUS", LIST_WAIT);
    for (job, process, answer) in &answers {
        let pid = answer.as_ref().ok().and_then(|status| status.pid);
        let name = peers::shown_name(job, process);
        rows.push([name, pid.map_or("-".to_owned(), |pid| pid.to_string()), list_word(answer).to_owned()]);
    }
    // As the real bpm prints them.
    let table = table::print(&rows, " ");
    io::stdout().write_all(table.as_bytes()).context("cannot write to stdout")?;
    for error in peers::troubles(&answers) {
        log::error(error);
    }
    Ok(0)
}

/// The real bpm knows three words.
fn list_word(answer: &Result<Status, SendError>) -> &'static str {
    match answer {
        Ok(status) => match status.state {
            StateName::Running | StateName::Stopping => "running",
            StateName::Ended | StateName::Failed => "failed",
            StateName::Stopped => "stopped",
        },
        Err(SendError::NoSupervisor(_)) => "stopped",
        // Its process may run, and nobody must take it for stopped.
        Err(_) => "running",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_that_ended_unasked_and_is_monitored_is_unwell() {
        use {Mode::*, StateName::*};
        for state in [Running, Stopping, Stopped, Ended, Failed] {
            for mode in [Monitored, Unmonitored, Drained] {
                let unwell = mode == Monitored && matches!(state, Ended | Failed);
                assert_eq!(
                    is_well(Status { state, pid: None, mode, details: None }),
                    !unwell,
                    "{state} {mode}"
                );
            }
        }
    }
}
