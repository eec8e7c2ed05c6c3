//! Finding supervisors by their sockets.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::client::{self, SendError, Sent};
use super::protocol::Status;
use crate::paths::{BoshRoot, Name, SOCKET_SUFFIX};

/// How many supervisors are asked at once: each takes a descriptor, and 1024 is a usual limit.
const ASKED_AT_ONCE: usize = 256;

/// What one supervisor answered.
pub type Answer = (Name, Name, Result<Status, SendError>);

/// Sends `command` to many supervisors at the same time, and waits for each answer until `wait`
/// is over: one that hangs, even one whose queue is full, holds up nobody else. The answers come
/// sorted.
pub fn ask(root: &BoshRoot, processes: Vec<(Name, Name)>, command: &str, wait: Duration) -> Vec<Answer> {
    let Ok(answers) = ask_while(root, processes, command, wait, || Ok::<(), Infallible>(()));
    answers
}

/// The same for as long as `go_on` does not fail, which is asked every now and then.
///
/// # Errors
///
/// That of `go_on`; who has not got the command by then does not get it.
pub fn ask_while<E>(
    root: &BoshRoot,
    processes: Vec<(Name, Name)>,
    command: &str,
    wait: Duration,
    mut go_on: impl FnMut() -> Result<(), E>,
) -> Result<Vec<Answer>, E> {
    let said = |who: &(Name, Name), answer| (who.0.clone(), who.1.clone(), answer);
    let mut answers = vec![];
    for some in processes.chunks(ASKED_AT_ONCE) {
        let mut waiting = vec![];
        for who in some {
            match Sent::new(&root.socket(&who.0, &who.1), command, wait) {
                Ok(sent) => waiting.push((who, sent)),
                Err(error) => answers.push(said(who, Err(error))),
            }
        }
        loop {
            go_on()?;
            waiting.retain_mut(|(who, sent)| match sent.try_answer() {
                None => true,
                Some(answer) => {
                    answers.push(said(who, answer));
                    false
                }
            });
            if waiting.is_empty() {
                break;
            }
            client::wait_for_any(waiting.iter().map(|(_, sent)| sent));
        }
    }
    answers.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
    Ok(answers)
}

/// Why supervisors that are there could not be asked; one that is dead is no trouble.
pub fn troubles(answers: &[Answer]) -> impl Iterator<Item = &SendError> {
    let errors = answers.iter().filter_map(|(_, _, answer)| answer.as_ref().err());
    errors.filter(|error| !matches!(error, SendError::NoSupervisor(_)))
}

/// How lists name a process: JOB.PROCESS, as the real bpm, or JOB if both have one name.
pub fn shown_name(job: &Name, process: &Name) -> String {
    if job == process { job.to_string() } else { format!("{job}.{process}") }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    const ANSWER: &[u8] = b"OK stopped - drained";

    fn receive(supervisor: &UnixDatagram) -> Option<(String, std::os::unix::net::SocketAddr)> {
        let mut command = [0; 64];
        let (length, sender) = supervisor.recv_from(&mut command).ok()?;
        Some((String::from_utf8_lossy(&command[..length]).into_owned(), sender))
    }

    #[test]
    fn full_queues_hold_up_nobody_else_and_what_waits_for_room_is_not_lost() {
        let folder = tempfile::tempdir().unwrap();
        let root = BoshRoot::resolve(Some(folder.path().to_owned())).unwrap();
        let who: Vec<(Name, Name)> =
            ["a", "b", "c"].map(|process| ("j".parse().unwrap(), process.parse().unwrap())).into();
        fs::create_dir_all(folder.path().join("data/j")).unwrap();
        let supervisors: Vec<UnixDatagram> = who
            .iter()
            .map(|(job, process)| {
                let supervisor = UnixDatagram::bind(root.socket(job, process)).unwrap();
                supervisor.set_nonblocking(true).unwrap();
                supervisor
            })
            .collect();
        for supervisor in &supervisors[..2] {
            let filler = UnixDatagram::unbound().unwrap();
            filler.set_nonblocking(true).unwrap();
            filler.connect_addr(&supervisor.local_addr().unwrap()).unwrap();
            while filler.send(b"STATUS").is_ok() {}
        }
        // Each turn is one look of those who ask. The last supervisor answers first, and only then
        // the others find the time, one command at each turn.
        let mut answered = [false; 3];
        let turn = || {
            let busy = if answered[2] { 0..2 } else { 2..3 };
            for number in busy {
                if let Some((command, sender)) = receive(&supervisors[number])
                    && command == "STOP WAIT"
                {
                    supervisors[number].send_to_addr(ANSWER, &sender).unwrap();
                    answered[number] = true;
                }
            }
            Ok::<(), Infallible>(())
        };
        let Ok(answers) = ask_while(&root, who.clone(), "STOP WAIT", Duration::from_secs(600), turn);
        assert_eq!(answered, [true; 3]);
        for ((job, process, answer), asked) in answers.into_iter().zip(who) {
            assert_eq!((job, process), asked);
            assert!(answer.is_ok(), "{answer:?}");
        }
    }

    #[test]
    fn one_who_is_told_to_give_up_waits_no_longer() {
        let folder = tempfile::tempdir().unwrap();
        let root = BoshRoot::resolve(Some(folder.path().to_owned())).unwrap();
        let (job, process): (Name, Name) = ("j".parse().unwrap(), "p".parse().unwrap());
        fs::create_dir_all(folder.path().join("data/j")).unwrap();
        let supervisor = UnixDatagram::bind(root.socket(&job, &process)).unwrap();
        let mut turns = 0;
        let go_on = || {
            turns += 1;
            if turns < 3 { Ok(()) } else { Err("enough") }
        };
        let asked = ask_while(&root, vec![(job, process)], "STOP WAIT", Duration::from_secs(600), go_on);
        assert_eq!(asked.err(), Some("enough"));
        drop(supervisor);
        assert_eq!(fs::read_dir(folder.path().join("data/j")).unwrap().count(), 1, "no return address stays");
    }
}
