//! The tree: all descendants of the supervisor, found by their parents in `/proc`.
//!
//! The supervisor is a subreaper, so whatever a process of the tree does (fork twice, `setsid`,
//! change its group), its chain of parents ends at us; and nobody else's does, since orphans of
//! strangers go to the PID namespace's init (see [`super::init`]).

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{Pid, getpid};

use crate::signal::Signal;
use crate::sys;

/// How often one KILL looks for processes that were forked meanwhile. Each pass takes what the
/// one before it left forking, so a fork storm needs a handful; what forks faster than that gets
/// its next KILL from the life cycle.
const KILL_PASSES: usize = 64;

/// A process that cannot be mistaken for a later one with its number.
type Identity = (Pid, u64);

/// What `/proc/PID/stat` says of one process.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    pid: Pid,
    parent: Pid,
    group: Pid,
    state: u8,
    threads: u32,
    /// Clock ticks from boot to its start: tells it from a later process with its PID.
    start: u64,
}

impl Stat {
    fn read(pid: Pid) -> Option<Self> {
        Self::parse(&stat_line(pid).ok()?)
    }

    /// Reads the line, in which only the parenthesised name may hold spaces and parentheses.
    fn parse(line: &str) -> Option<Self> {
        let (pid, rest) = line.split_once(' ')?;
        let (_, rest) = rest.rsplit_once(") ")?;
        // Numbers as in proc_pid_stat(5), where the state is field 3.
        let fields: Vec<&str> = rest.split(' ').collect();
        let field = |number: usize| fields.get(number - 3);
        Some(Self {
            pid: Pid::from_raw(pid.parse().ok()?),
            state: *field(3)?.as_bytes().first()?,
            parent: Pid::from_raw(field(4)?.parse().ok()?),
            group: Pid::from_raw(field(5)?.parse().ok()?),
            threads: field(20)?.parse().ok()?,
            start: field(22)?.parse().ok()?,
        })
    }

    /// A process whose first thread has ended looks like a zombie while its others live on.
    fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
    }

    fn is_stopped(&self) -> bool {
        self.state == b'T'
    }

    fn identity(&self) -> Identity {
        (self.pid, self.start)
    }
}

/// `/proc/PROCESS/stat`, in one read: the kernel shows no size, so that `fs::read` would take eight.
pub(super) fn stat_line(process: impl Display) -> io::Result<String> {
    const LONGEST: usize = 2048; // 51 numbers of at most 20 digits, and a name
    let mut line = [0; LONGEST];
    let length = File::open(format!("/proc/{process}/stat"))?.read(&mut line)?;
    Ok(String::from_utf8_lossy(&line[..length]).into_owned())
}

/// Whether `/proc` is there and shows our own PID namespace.
pub fn proc_is_usable() -> bool {
    fs::read_link("/proc/self").is_ok_and(|link| link.to_str() == Some(&getpid().to_string()))
}

/// Sends `signal` once to each live descendant but `except`, and continues those that are
/// stopped, so that they can obey.
///
/// One that cannot be signalled does not keep the others from it; the first error is returned.
pub fn stop(signal: Signal, except: Option<Pid>) -> io::Result<()> {
    let mut result = Ok(());
    for process in descendants()?.iter().filter(|process| Some(process.pid) != except) {
        result = result.and(send(process, signal));
        if process.is_stopped() {
            result = result.and(send(process, Signal::CONT));
        }
    }
    result
}

/// SIGKILL to all descendants, also to those that are forked meanwhile. Needs no fork and two
/// descriptors.
///
/// One that cannot be killed does not save the others; the first error is returned.
pub fn kill() -> io::Result<()> {
    let mut result = Ok(());
    let mut killed: HashSet<Identity> = HashSet::new();
    for _ in 0..KILL_PASSES {
        let mut found_new = false;
        for process in descendants()? {
            if killed.insert(process.identity()) {
                found_new = true;
                result = result.and(send(&process, Signal::KILL));
            }
        }
        if !found_new {
            break;
        }
    }
    result
}

/// Whether somebody of a process group lives; a zombie does not count.
pub fn group_is_alive(group: Pid) -> io::Result<bool> {
    Ok(processes()?.iter().any(|process| process.group == group && !process.is_dead()))
}

/// All processes that can be seen.
fn processes() -> io::Result<Vec<Stat>> {
    let mut found = vec![];
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str() else { continue };
        // One that cannot be read has just ended.
        found.extend(pid.parse().ok().and_then(|pid| Stat::read(Pid::from_raw(pid))));
    }
    Ok(found)
}

/// Our live descendants.
fn descendants() -> io::Result<Vec<Stat>> {
    let mut children: HashMap<Pid, Vec<Stat>> = HashMap::new();
    for process in processes()? {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = children.remove(&getpid()).unwrap_or_default();
    let mut next = 0;
    while next < found.len() {
        found.extend(children.remove(&found[next].pid).unwrap_or_default());
        next += 1;
    }
    found.retain(|process| !process.is_dead());
    Ok(found)
}

/// Sends `signal` to the very process that was seen: its folder is held open, looked at again,
/// and serves as the address. A PID alone might be a stranger's by now.
fn send(process: &Stat, signal: Signal) -> io::Result<()> {
    let folder = format!("/proc/{}", process.pid);
    let opened = File::options().read(true).custom_flags(libc::O_DIRECTORY).open(&folder);
    let folder = match opened {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if Stat::read(process.pid).is_none_or(|now| now.identity() != process.identity()) {
        return Ok(());
    }
    match sys::kill_by_folder(&folder, signal).map_err(|error| error.raw_os_error().map(Errno::from_raw)) {
        Ok(()) | Err(Some(Errno::ESRCH)) => Ok(()),
        // A kernel before 5.1, or a container whose seccomp profile is older than the call. Only the
        // number is left then: it was looked at a moment ago, and who would be hit in its place had to
        // get it in that moment.
        Err(Some(Errno::ENOSYS | Errno::EPERM)) => match sys::kill(process.pid, signal) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            other => other,
        },
        Err(errno) => Err(errno.unwrap_or(Errno::EINVAL).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_process_calls_itself() {
        let rest = "S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 8899 1 2 3";
        for name in ["sh", "a b", ") R 9 (", "(((", "a) Z 1 2"] {
            let stat = Stat::parse(&format!("42 ({name}) {rest}")).unwrap();
            let expected = Stat {
                pid: Pid::from_raw(42),
                parent: Pid::from_raw(1),
                group: Pid::from_raw(7),
                state: b'S',
                threads: 1,
                start: 8899,
            };
            assert_eq!(stat, expected, "{name}");
        }
        for strange in ["", "42", "42 (sh", "42 (sh) S", "x (sh) S 1", "42 (sh) S 1 2 3"] {
            assert_eq!(Stat::parse(strange), None, "{strange:?}");
        }
    }

    #[test]
    fn our_own_stat_line_is_read() {
        let pid = getpid();
        let stat = Stat::read(pid).unwrap();
        assert_eq!((stat.pid, stat.parent), (pid, nix::unistd::getppid()));
        assert!(stat.start > 0 && !stat.is_dead() && !stat.is_stopped());
    }
}
