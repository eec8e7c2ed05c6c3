//! `container-run status`: what all processes do, as a table for people or as JSON for programs.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::control::client::{self, SendError};
use crate::control::peers::{self, Answer};
use crate::control::protocol::{Details, LastExit, Status};
use crate::json;
use crate::log;
use crate::paths::{BoshRoot, Name};
use crate::table;

/// Exit code when a supervisor is there but does not answer.
const NO_ANSWER: u8 = 1;

/// Exit code when no supervisor of the job that was asked for lives, as of `send`.
const NO_SUPERVISOR: u8 = 3;

/// Which processes to show, and how.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The job [default: all jobs]
    #[arg(value_name = "J", value_parser = crate::cli::name())]
    job: Option<Name>,

    /// The process [default: all of the job]
    #[arg(
        short,
        long,
        value_name = "P",
        requires = "job",
        allow_hyphen_values = true,
        value_parser = crate::cli::name()
    )]
    process: Option<Name>,

    /// Print JSON, for programs
    #[arg(long)]
    json: bool,

    /// The BOSH root [default: $BPM_BOSH_ROOT or /var/vcap]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

/// Asks all supervisors at once, and prints what they answered; returns the exit code.
pub fn run(options: Options, wait: Duration) -> Result<u8> {
    let root = BoshRoot::resolve(options.root)?;
    let processes = match (&options.job, &options.process) {
        (None, _) => peers::all(&root)?,
        (Some(job), Some(process)) => vec![(job.clone(), process.clone())],
        (Some(job), None) => {
            peers::of_job(&root, job)?.into_iter().map(|process| (job.clone(), process)).collect()
        }
    };
    let answers: Vec<Answer> = peers::ask(&root, processes, "DETAILS", wait)
        .into_iter()
        .map(|answer| ask_again_if_older(&root, answer, wait))
        .collect();
    if let Some(job) = options.job
        && answers.iter().all(|(_, _, answer)| is_dead(answer))
    {
        let name = options.process.map_or(job.to_string(), |process| peers::shown_name(&job, &process));
        log::error(format_args!("no supervisor of {name} lives below {}", root.path().display()));
        return Ok(NO_SUPERVISOR);
    }
    let text = if options.json { array(&answers) } else { table(&answers) };
    io::stdout().write_all(text.as_bytes()).context("cannot write to stdout")?;
    let mut code = 0;
    for error in peers::troubles(&answers) {
        log::error(error);
        code = NO_ANSWER;
    }
    Ok(code)
}

/// A supervisor that was started before the verb existed, by an older binary, refuses it.
fn ask_again_if_older(root: &BoshRoot, (job, process, answer): Answer, wait: Duration) -> Answer {
    let answer = match answer {
        Err(SendError::Refused(_)) => client::send(&root.socket(&job, &process), "STATUS", wait),
        answer => answer,
    };
    (job, process, answer)
}

fn is_dead(answer: &Result<Status, SendError>) -> bool {
    matches!(answer, Err(SendError::NoSupervisor(_)))
}

/// The state, or the reason why it is not known.
fn state(answer: &Result<Status, SendError>) -> String {
    match answer {
        Ok(status) => status.state.to_string(),
        Err(SendError::NoSupervisor(_)) => "dead".to_owned(),
        Err(_) => "no answer".to_owned(),
    }
}

fn table(answers: &[Answer]) -> String {
    let headings = ["PROCESS", "STATE", "MODE", "PID", "SINCE", "LAST EXIT", "RESTARTS"];
    let mut rows = vec![headings.map(str::to_owned)];
    for (job, process, answer) in answers {
        let status = answer.as_ref().ok();
        let details = status.and_then(|status| status.details);
        rows.push([
            peers::shown_name(job, process),
            state(answer),
            or_dash(status.map(|status| status.mode)),
            or_dash(status.and_then(|status| status.pid)),
            or_dash(details.map(|details| show_time(details.since))),
            or_dash(details.and_then(|details| details.last_exit).map(show_exit)),
            or_dash(details.map(|details| details.restarts)),
        ]);
    }
    table::print(&rows, "  ")
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn show_exit(exit: LastExit) -> String {
    match exit {
        LastExit::Code(code) => format!("code {code}"),
        LastExit::Signal(signal) => signal.to_string(),
    }
}

/// The two largest units: nobody cares for the seconds of a day.
fn show_time(time: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    let seconds = time.as_secs();
    match seconds {
        DAY.. => format!("{}d {}h", seconds / DAY, seconds % DAY / HOUR),
        HOUR.. => format!("{}h {}m", seconds / HOUR, seconds % HOUR / MINUTE),
        MINUTE.. => format!("{}m {}s", seconds / MINUTE, seconds % MINUTE),
        _ => format!("{seconds}s"),
    }
}

/// One object for each process, always with the same members.
fn array(answers: &[Answer]) -> String {
    let objects: Vec<String> = answers.iter().map(object).collect();
    json::array(&objects) + "\n"
}

fn object((job, process, answer): &Answer) -> String {
    let status = answer.as_ref().ok();
    let details: Option<Details> = status.and_then(|status| status.details);
    let text = |value: &dyn ToString| json::text(&value.to_string());
    json::object(&[
        ("job", text(job)),
        ("process", text(process)),
        ("state", json::text(&state(answer))),
        ("mode", json::or_null(status, |status| text(&status.mode))),
        ("pid", json::or_null(status.and_then(|status| status.pid), json::plain)),
        ("since_seconds", json::or_null(details, |details| format!("{:.3}", details.since.as_secs_f64()))),
        ("last_exit", json::or_null(details.and_then(|details| details.last_exit), exit_object)),
        ("restarts", json::or_null(details, |details| json::plain(details.restarts))),
    ])
}

/// One of the two is null.
fn exit_object(exit: LastExit) -> String {
    let (code, signal) = match exit {
        LastExit::Code(code) => (Some(code), None),
        LastExit::Signal(signal) => (None, Some(signal)),
    };
    json::object(&[
        ("code", json::or_null(code, json::plain)),
        ("signal", json::or_null(signal, |signal| json::text(&signal.to_string()))),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_in_its_two_largest_units() {
        let shown = |seconds| show_time(Duration::from_secs(seconds));
        let times = [0, 59, 60, 3599, 3600, 11_520, 86_399, 86_400, 90_000, 40_000_000];
        let expected =
            ["0s", "59s", "1m 0s", "59m 59s", "1h 0m", "3h 12m", "23h 59m", "1d 0h", "1d 1h", "462d 23h"];
        assert_eq!(times.map(shown), expected);
        assert_eq!(show_time(Duration::from_millis(1_999)), "1s");
    }
}
