//! Finding supervisors by their sockets.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::client::{SendError, Sent};
use super::protocol::Status;
use crate::paths::{BoshRoot, Name, SOCKET_SUFFIX};

/// How many supervisors are asked at once: each takes a descriptor, and 1024 is a usual limit.
const ASKED_AT_ONCE: usize = 256;

/// What one supervisor answered.
pub type Answer = (Name, Name, Result<Status, SendError>);

/// Sends `command` to many supervisors at the same time, and waits for each answer until `wait`
/// is over: one that hangs holds up nobody else.
pub fn ask(root: &BoshRoot, processes: Vec<(Name, Name)>, command: &str, wait: Duration) -> Vec<Answer> {
    let mut answers = vec![];
    let mut rest = processes.into_iter().peekable();
    while rest.peek().is_some() {
        let asked: Vec<_> =
            rest.by_ref().take(ASKED_AT_ONCE).map(|who| (send(root, &who, command, wait), who)).collect();
        answers.extend(
            asked.into_iter().map(|(sent, (job, process))| (job, process, sent.and_then(Sent::answer))),
        );
    }
    answers
}

/// Sends `command` to one supervisor.
pub fn send(root: &BoshRoot, who: &(Name, Name), command: &str, wait: Duration) -> Result<Sent, SendError> {
    Sent::new(&root.socket(&who.0, &who.1), command, wait)
}

/// Every job and process with a control socket, sorted.
pub fn all(root: &BoshRoot) -> Result<Vec<(Name, Name)>> {
    let mut found = vec![];
    for job in names_in(&root.data())? {
        found.extend(of_job(root, &job)?.into_iter().map(|process| (job.clone(), process)));
    }
    found.sort();
    Ok(found)
}

/// Every process of one job with a control socket, sorted.
pub fn of_job(root: &BoshRoot, job: &Name) -> Result<Vec<Name>> {
    let files = names_in(&root.data().join(job.as_str()))?;
    let process = |file: &Name| file.as_str().strip_suffix(SOCKET_SUFFIX)?.parse().ok();
    let mut found: Vec<Name> = files.iter().filter_map(process).collect();
    found.sort();
    Ok(found)
}

/// The names in a folder that could be a job's or a process's; none if it is no folder.
pub(crate) fn names_in(folder: &Path) -> Result<Vec<Name>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(vec![]);
        }
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", folder.display())),
    };
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}
