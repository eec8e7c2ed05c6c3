//! `container-run drain`: a container's pre-stop hook. It does for one job in one pod what the
//! BOSH agent does on a VM, in the same order, and knows what a VM does not have: containers that
//! restart alone.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::journal::Journal;
use super::script::{Cancelled, Finished, Script, Waiter};
use crate::cli::Drain;
use crate::control::client::{DEFAULT_WAIT, SendError};
use crate::control::peers::{self, Answer};
use crate::control::protocol::{Mode, Status};
use crate::lock::Lock;
use crate::nearest;
use crate::paths::{BoshRoot, Name};

/// How often other supervisors are asked for their mode: nobody tells a hook of it.
const TICK: Duration = Duration::from_millis(100);

/// A supervisor that does not answer in this time is in trouble, and not drained.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// How long the agent waits for a job to stop.
const STOP_WAIT: Duration = Duration::from_secs(300);

/// The longest wait that a drain script can ask for; more than any pod has.
const LONGEST_WAIT: Duration = Duration::from_secs(1_000_000_000);

/// The PATH that the agent gives to a job's scripts.
const AGENT_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// What the agent tells scripts about the VM; a pod has no persistent disk of BOSH's.
const JOB_STATE: &str = r#"{"persistent_disk":0}"#;

/// Runs the hook; the exit code is 1 if a script failed or the drain was cancelled.
pub fn run(options: Drain) -> Result<u8> {
    let start = Instant::now();
    let root = BoshRoot::resolve(options.target.root.clone())?;
    let job = options.target.job.clone();
    refuse_unknown_job(&root, &job)?;
    let process = options.target.process.clone().unwrap_or_else(|| job.clone());
    let limit = options.timeout.map(|timeout| start + timeout);
    let mut hook = Hook {
        journal: Journal::open(&root, &job, &process),
        waiter: Waiter::new(limit).context("cannot handle signals")?,
        settled: start + options.settle,
        root,
        job,
        process,
        failed: false,
    };
    if hook.drain(&options).is_err() {
        hook.journal.say("cancelled");
        return Ok(1);
    }
    Ok(u8::from(hook.failed))
}

fn refuse_unknown_job(root: &BoshRoot, job: &Name) -> Result<()> {
    if root.job(job).is_dir() || !peers::of_job(root, job)?.is_empty() {
        return Ok(());
    }
    let mut known = peers::names_in(&root.path().join("jobs"))?;
    known.extend(peers::names_in(&root.data())?);
    known.sort();
    known.dedup();
    // Of a job that was there once, its folder may be left.
    known.retain(|name| name != job);
    let nearest = match nearest::names(job.as_str(), known.iter().map(Name::as_str)).join(", ") {
        names if names.is_empty() => names,
        names => format!("; the nearest are {names}"),
    };
    bail!(
        "unknown job '{job}': neither its scripts nor a supervisor of it are below {}{nearest}",
        root.path().display()
    );
}

struct Hook {
    root: BoshRoot,
    job: Name,
    process: Name,
    journal: Journal,
    waiter: Waiter,
    /// When the hooks of all containers that go down must have started.
    settled: Instant,
    failed: bool,
}

impl Hook {
    fn drain(&mut self, options: &Drain) -> Result<(), Cancelled> {
        let is_supervised = self.unmonitor()?;
        let staying = if options.pod { vec![] } else { self.wait_for_the_others()? };
        if !staying.is_empty() {
            self.journal.say(format_args!("only this container goes down: {}", reasons(&staying)));
            if !is_supervised {
                self.fail(format!("nothing to stop: there is no process {}; see -p", self.process));
            }
            return self.stop(self.own());
        }
        if options.wait_only {
            self.wait_for_drained()?;
            return if options.no_barrier { Ok(()) } else { self.barrier(false) };
        }
        let _lock = self.lock()?;
        self.run_script("pre-stop", &next_states())?;
        self.run_drain_script()?;
        self.tell(self.of_job(), "DRAINED")?;
        if !options.no_barrier {
            self.barrier(true)?;
        }
        self.stop(self.of_job())?;
        self.run_script("post-stop", &[])?;
        self.journal.say(if self.failed { "done, but a script failed" } else { "done" });
        Ok(())
    }

    /// Step 0; false if there is no supervisor. A hook that is called again leaves `drained` as it is.
    fn unmonitor(&mut self) -> Result<bool, Cancelled> {
        let mut is_supervised = true;
        for (_, _, answer) in self.status(self.own())? {
            match answer {
                Ok(Status { mode: Mode::Unmonitored | Mode::Drained, .. }) => {}
                Err(error @ SendError::NoSupervisor(_)) => {
                    self.journal.say(format_args!("no supervisor of its own: {error}"));
                    is_supervised = false;
                }
                // One that is too busy to answer does later what it is told now.
                Ok(_) | Err(_) => self.tell(self.own(), "UNMONITOR")?,
            }
        }
        Ok(is_supervised)
    }

    /// Sends a command that must not be lost. Who does not answer in time will carry it out all the
    /// same, since what is in a queue stays there; who had no room for it is sent it again.
    fn tell(&mut self, processes: Vec<(Name, Name)>, command: &str) -> Result<(), Cancelled> {
        let mut answers = self.ask_for(processes, command, DEFAULT_WAIT)?;
        let had_no_room = |answer: &mut Answer| matches!(answer.2, Err(SendError::NoRoom(..)));
        let again: Vec<(Name, Name)> =
            answers.extract_if(.., had_no_room).map(|(job, process, _)| (job, process)).collect();
        answers.extend(self.ask_for(again, command, DEFAULT_WAIT)?);
        for (job, process, answer) in answers {
            if let Err(error) = answer {
                self.journal.say(format_args!("{command} to {job}/{process} failed: {error}"));
            }
        }
        Ok(())
    }

    /// Step 1: what the processes of the job said whose containers are not going down. They are
    /// looked at once at least, however long step 0 took: their hooks had that time, too.
    fn wait_for_the_others(&mut self) -> Result<Vec<Answer>, Cancelled> {
        loop {
            let others = self.of_job().into_iter().filter(|(_, process)| *process != self.process).collect();
            let mut answers = self.status(others)?;
            answers.retain(is_monitored);
            if answers.is_empty() || Instant::now() >= self.settled {
                return Ok(answers);
            }
            self.waiter.sleep_until(Instant::now() + TICK)?;
        }
    }

    /// Says that this hook drains the job, to those who wait for that, and for as long as it
    /// lives. While another one does, which is a hook called twice, this one waits.
    fn lock(&mut self) -> Result<Option<Lock>, Cancelled> {
        let path = self.root.drain_lock(&self.job);
        let mut tries = 0;
        // Without the folder there is no supervisor either, and nobody who would wait.
        while path.parent().is_some_and(Path::is_dir) {
            match Lock::try_take(&path) {
                Ok(Some(lock)) => return Ok(Some(lock)),
                Ok(None) => {
                    tries += 1;
                    // Not at the first: one that only looks holds it for a moment.
                    if tries == 2 {
                        let (job, path) = (&self.job, path.display());
                        self.journal
                            .say(format_args!("waiting for another drain of {job}, which holds {path}"));
                    }
                    self.waiter.sleep_until(Instant::now() + TICK)?;
                }
                Err(error) => {
                    self.journal.say(format_args!("draining without a lock: {error:#}"));
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    /// For a container whose job is drained by another one's hook. If that has died, or was never
    /// there, this container does not wait for the end of the pod's patience.
    fn wait_for_drained(&mut self) -> Result<(), Cancelled> {
        self.journal.say("waiting for the job's drain");
        let own = self.own();
        loop {
            let is_waited_for = |(_, _, answer): &Answer| match answer {
                Ok(status) => status.mode != Mode::Drained,
                Err(error) => !matches!(error, SendError::NoSupervisor(_)),
            };
            // Looked at first: a hook that has just ended has said DRAINED before.
            let is_draining = Lock::is_held(&self.root.drain_lock(&self.job));
            if !self.status(own.clone())?.iter().any(is_waited_for) {
                return Ok(());
            }
            if !is_draining && Instant::now() >= self.settled {
                self.fail(format!("no hook drains {} any more; going on without", self.job));
                self.tell(own, "DRAINED")?;
                return Ok(());
            }
            self.waiter.sleep_until(Instant::now() + TICK)?;
        }
    }

    /// Step 4: nothing is stopped before everything is drained. Whoever has died is not waited
    /// for, nor who would be unmonitored by now if its container went down. With `drained`, it is this
    /// hook that has drained its job.
    fn barrier(&mut self, drained: bool) -> Result<(), Cancelled> {
        let mut said = vec![];
        loop {
            let settled = Instant::now() >= self.settled;
            let is_waited_for = |(_, _, answer): &Answer| match answer {
                Ok(Status { mode: Mode::Drained, .. }) | Err(SendError::NoSupervisor(_)) => false,
                Ok(Status { mode: Mode::Monitored, .. }) => !settled,
                // One of another user's. Whether it is drained we may not ask.
                Err(SendError::Failed(_, error)) if error.kind() == ErrorKind::PermissionDenied => !settled,
                Ok(Status { mode: Mode::Unmonitored, .. }) | Err(_) => true,
            };
            let answers = self.status(self.everybody())?;
            if drained {
                self.tell_again(&answers)?;
            }
            let waiting: Vec<(Name, Name)> =
                answers.into_iter().filter(is_waited_for).map(|(job, process, _)| (job, process)).collect();
            if waiting.is_empty() {
                return Ok(());
            }
            if waiting != said {
                self.journal.say(format_args!("drained; waiting for {}", list(&waiting)));
                said = waiting;
            }
            self.waiter.sleep_until(Instant::now() + TICK)?;
        }
    }

    /// Whoever of the job had no room for its DRAINED when it was time gets it now.
    fn tell_again(&mut self, answers: &[Answer]) -> Result<(), Cancelled> {
        let was_not_told = |(job, _, answer): &&Answer| {
            *job == self.job && matches!(answer, Ok(Status { mode: Mode::Unmonitored, .. }))
        };
        let untold =
            answers.iter().filter(was_not_told).map(|(job, process, _)| (job.clone(), process.clone()));
        self.tell(untold.collect(), "DRAINED")
    }

    /// Stops processes, all at once, and waits until they have stopped.
    fn stop(&mut self, processes: Vec<(Name, Name)>) -> Result<(), Cancelled> {
        if processes.is_empty() {
            return Ok(());
        }
        self.journal.say(format_args!("stopping {}", list(&processes)));
        for (job, process, answer) in self.ask_for(processes, "STOP WAIT", STOP_WAIT)? {
            match answer {
                Ok(_) | Err(SendError::NoSupervisor(_)) => {}
                Err(error) => self.fail(format!("cannot stop {job}/{process}: {error}")),
            }
        }
        Ok(())
    }

    /// Steps 2 and 6: a script that only has to succeed, if there is one.
    fn run_script(&mut self, name: &str, variables: &[(&str, OsString)]) -> Result<(), Cancelled> {
        let Some(path) = self.script(name) else { return Ok(()) };
        let (stdout, stderr) = match self.journal.of_script(name) {
            Ok((stdout, stderr)) => (stdout.into(), stderr.into()),
            Err(error) => {
                self.journal.say(format_args!("the output of {name} is lost: {error:#}"));
                (Stdio::null(), Stdio::null())
            }
        };
        self.journal.say(format_args!("running {name}"));
        let variables = &[variables, &[("PATH", AGENT_PATH.into())]].concat();
        let script = Script { path: &path, arguments: &[], variables, stdout: Some(stdout), stderr };
        match script.run(&mut self.waiter)? {
            Ok(Finished { status, .. }) if status.success() => {}
            Ok(Finished { status, .. }) => self.fail(format!("{name} of {} failed: {status}", self.job)),
            Err(error) => self.fail(format!("cannot run {}: {error}", path.display())),
        }
        Ok(())
    }

    /// Step 3: the agent's drain protocol.
    fn run_drain_script(&mut self) -> Result<(), Cancelled> {
        let Some(path) = self.script("drain") else { return Ok(()) };
        let mut job_change = "job_shutdown";
        loop {
            let answer = match self.call_drain_script(&path, job_change)? {
                Ok(answer) => answer,
                Err(error) => {
                    self.fail(error);
                    return Ok(());
                }
            };
            let wait = Duration::from_secs(answer.unsigned_abs()).min(LONGEST_WAIT);
            self.journal.say(format_args!("drain answered {answer}"));
            self.waiter.sleep_until(Instant::now() + wait)?;
            if answer >= 0 {
                return Ok(());
            }
            job_change = "job_check_status";
        }
    }

    fn call_drain_script(&mut self, path: &Path, job_change: &str) -> Result<Result<i64, String>, Cancelled> {
        self.journal.say(format_args!("running drain {job_change} hash_unchanged"));
        let mut variables = vec![("PATH", AGENT_PATH.into()), ("BOSH_JOB_STATE", JOB_STATE.into())];
        if job_change == "job_shutdown" {
            variables.push(("BOSH_JOB_NEXT_STATE", JOB_STATE.into()));
        }
        let script = Script {
            path,
            arguments: &[job_change, "hash_unchanged"],
            variables: &variables,
            stdout: None,
            stderr: Stdio::inherit(),
        };
        Ok(match script.run(&mut self.waiter)? {
            // With an integer the exit status does not matter, as in the agent.
            Ok(Finished { output, status }) => read_answer(&output)
                .map_err(|line| format!("drain of {} printed '{line}' and no integer ({status})", self.job)),
            Err(error) => Err(format!("cannot run {}: {error}", path.display())),
        })
    }

    /// A script of the job, if it is there and executable.
    fn script(&self, name: &str) -> Option<PathBuf> {
        let path = self.root.job(&self.job).join("bin").join(name);
        let executable = nix::unistd::access(&path, nix::unistd::AccessFlags::X_OK).is_ok();
        (executable && path.is_file()).then_some(path)
    }

    fn fail(&mut self, message: String) {
        self.failed = true;
        self.journal.say(message);
    }

    /// What these are doing now.
    fn status(&mut self, processes: Vec<(Name, Name)>) -> Result<Vec<Answer>, Cancelled> {
        self.ask_for(processes, "STATUS", ANSWER_WAIT)
    }

    fn ask_for(
        &mut self,
        processes: Vec<(Name, Name)>,
        command: &str,
        wait: Duration,
    ) -> Result<Vec<Answer>, Cancelled> {
        peers::ask_while(&self.root, processes, command, wait, || self.waiter.check())
    }

    fn own(&self) -> Vec<(Name, Name)> {
        vec![(self.job.clone(), self.process.clone())]
    }

    fn of_job(&self) -> Vec<(Name, Name)> {
        let processes = peers::of_job(&self.root, &self.job).unwrap_or_default();
        processes.into_iter().map(|process| (self.job.clone(), process)).collect()
    }

    fn everybody(&self) -> Vec<(Name, Name)> {
        peers::all(&self.root).unwrap_or_default()
    }
}

/// One that lives and does not answer may be: on a busy node nothing of a living pod must be
/// drained for one late answer.
fn is_monitored((_, _, answer): &Answer) -> bool {
    match answer {
        Ok(status) => status.mode == Mode::Monitored,
        Err(SendError::TimedOut(..) | SendError::NoRoom(..) | SendError::Failed(..)) => true,
        Err(SendError::NoSupervisor(_) | SendError::Refused(_)) => false,
    }
}

/// Why these are taken for processes whose containers live on.
fn reasons(answers: &[Answer]) -> String {
    let reason = |(job, process, answer): &Answer| match answer {
        Ok(_) => format!("no hook runs for {job}/{process} (still monitored)"),
        Err(_) => format!("{job}/{process} does not answer"),
    };
    answers.iter().map(reason).collect::<Vec<_>>().join("; ")
}

fn list(processes: &[(Name, Name)]) -> String {
    processes.iter().map(|(job, process)| format!("{job}/{process}")).collect::<Vec<_>>().join(", ")
}

/// Whether instance, VM and deployment are to be there again afterwards; a pod that is deleted for
/// good can be told so by the hook's environment.
fn next_states() -> Vec<(&'static str, OsString)> {
    ["BOSH_VM_NEXT_STATE", "BOSH_INSTANCE_NEXT_STATE", "BOSH_DEPLOYMENT_NEXT_STATE"]
        .into_iter()
        .map(|name| (name, std::env::var_os(name).unwrap_or_else(|| "keep".into())))
        .collect()
}

/// The whole output, trimmed, as one signed integer; else its first line.
fn read_answer(output: &[u8]) -> Result<i64, String> {
    let text = String::from_utf8_lossy(output);
    let first_line = || text.trim_start().lines().next().unwrap_or_default().escape_debug().to_string();
    text.trim().parse().map_err(|_| first_line())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_the_agent_reads_it() {
        for (output, answer) in
            [("5", 5), ("+5", 5), ("05", 5), (" 7 \t\n\n", 7), ("0", 0), ("-0", 0), ("-5", -5), ("-05\n", -5)]
        {
            assert_eq!(read_answer(output.as_bytes()), Ok(answer), "{output:?}");
        }
        for output in
            ["", " \n", "foo", "foo\n0", "5.5", "5s", "0x10", "5 6", "--5", "9999999999999999999", "5\n6"]
        {
            let first_line = output.trim_start().lines().next().unwrap_or_default();
            assert_eq!(read_answer(output.as_bytes()), Err(first_line.to_owned()), "{output:?}");
        }
        assert!(read_answer(b"\xff5").is_err());
    }
}
