//! The sender's side: one command, one answer.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{UnixAddr, bind};
use nix::sys::stat::{Mode, umask};

use super::protocol::{self, Status};
use super::reach::{self, LONGEST_ADDRESS};
use crate::identity::Identity;
use crate::poll;

/// How long an answer may take if nothing else was said.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(5);

/// How often a waiting sender looks whether the supervisor still lives. A datagram socket is not
/// told of its peer's death, and a PID in another container cannot be watched.
const LIFE_SIGN: Duration = Duration::from_millis(100);

/// A supervisor that is well has this long, whatever was asked for.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// The longest answer that is read; a reason may quote a command.
const LONGEST_ANSWER: usize = 4096;

/// Why there is no good answer.
#[derive(Debug)]
pub enum SendError {
    /// No supervisor holds the socket.
    NoSupervisor(PathBuf),
    /// The supervisor said `ERR`.
    Refused(String),
    /// There is a supervisor, but it did not answer in time.
    TimedOut(PathBuf, Duration),
    /// There is a supervisor, but its queue was full all the time: it never got the command.
    NoRoom(PathBuf, Duration),
    /// The socket could not be used.
    Failed(PathBuf, io::Error),
}

impl SendError {
    /// What an error of the socket means: without a file, or with one that nobody holds, there is
    /// no supervisor.
    fn from_io(path: &Path, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::ConnectionRefused => {
                Self::NoSupervisor(path.to_owned())
            }
            _ => Self::Failed(path.to_owned(), error),
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSupervisor(path) => write!(f, "no supervisor is at {}", path.display()),
            Self::Refused(reason) => f.write_str(reason),
            Self::TimedOut(path, wait) => {
                write!(f, "no answer from {} within {} s", path.display(), wait.as_secs_f64())
            }
            Self::NoRoom(path, wait) => {
                let path = path.display();
                write!(f, "no answer from {path}, whose queue was full, within {} s", wait.as_secs_f64())
            }
            Self::Failed(path, error) => write!(f, "cannot send to {}: {error}", path.display()),
        }
    }
}

/// Sends `command` to the supervisor at `path` and waits for its answer.
pub fn send(path: &Path, command: &str, wait: Duration) -> Result<Status, SendError> {
    let mut sent = Sent::new(path, command, wait)?;
    loop {
        if let Some(answer) = sent.try_answer() {
            return answer;
        }
        wait_for_any([&sent]);
    }
}

/// Waits until one of these commands may have got on, but not longer than it takes until the next
/// look whether a supervisor still lives.
pub fn wait_for_any<'a>(sent: impl IntoIterator<Item = &'a Sent>) {
    let mut ready = vec![];
    let mut end = Instant::now() + LIFE_SIGN;
    for one in sent {
        let room = if one.unsent.is_some() { PollFlags::POLLOUT } else { PollFlags::empty() };
        ready.push(PollFd::new(one.socket.as_fd(), PollFlags::POLLIN | room));
        end = end.min(one.end);
    }
    poll::wait(&mut ready, Some(end));
}

/// A command that is on its way, or whose answer is. Nothing here waits, so many can be asked at
/// once, and one whose queue is full holds up nobody else.
pub struct Sent {
    socket: UnixDatagram,
    path: PathBuf,
    /// The supervisor's socket: another one may take its path.
    supervisor: Identity,
    /// What found no room in the supervisor's queue yet.
    unsent: Option<String>,
    wait: Duration,
    end: Instant,
    next_life_sign: Instant,
    _return_address: ReturnAddress,
}

impl Sent {
    /// Sends `command` to the supervisor at `path`, as soon as there is room for it; from here on
    /// `wait` counts.
    pub fn new(path: &Path, command: &str, wait: Duration) -> Result<Self, SendError> {
        Self::begin(path, command, wait).map_err(|error| SendError::from_io(path, error))
    }

    fn begin(path: &Path, command: &str, wait: Duration) -> io::Result<Self> {
        let now = Instant::now();
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        // Connected, it takes datagrams from the supervisor alone.
        let supervisor = reach::connect(&socket, path)?;
        let return_address = ReturnAddress::bind(&socket, path)?;
        let mut sent = Self {
            socket,
            path: path.to_owned(),
            supervisor,
            unsent: Some(command.to_owned()),
            wait,
            end: now + wait.max(SHORTEST_WAIT),
            next_life_sign: now + LIFE_SIGN,
            _return_address: return_address,
        };
        sent.deliver()?;
        Ok(sent)
    }

    /// The answer, if it is there; `None` if it may still come.
    pub fn try_answer(&mut self) -> Option<Result<Status, SendError>> {
        // Before the look, so that what is there in time counts.
        let now = Instant::now();
        match self.get_on(now, reach::look) {
            Ok(Some(answer)) => Some(protocol::parse_answer(&answer).map_err(SendError::Refused)),
            Ok(None) if now < self.end => None,
            Ok(None) if self.unsent.is_some() => Some(Err(SendError::NoRoom(self.path.clone(), self.wait))),
            Ok(None) => Some(Err(SendError::TimedOut(self.path.clone(), self.wait))),
            Err(error) => Some(Err(SendError::from_io(&self.path, error))),
        }
    }

    /// Sends what is still to be sent, and takes the answer. Now and then it looks whether the
    /// supervisor still lives, which nobody would tell us.
    fn get_on(
        &mut self,
        now: Instant,
        look: impl FnOnce(&Path) -> io::Result<Identity>,
    ) -> io::Result<Option<Vec<u8>>> {
        self.deliver()?;
        let answer = self.receive()?;
        if answer.is_some() || now < self.next_life_sign {
            return Ok(answer);
        }
        self.next_life_sign = now + LIFE_SIGN;
        let seen = look(&self.path);
        if seen.as_ref().is_ok_and(|seen| *seen == self.supervisor) {
            return Ok(None);
        }
        // What it said before it went counts.
        match self.receive()? {
            None => seen.and(Err(io::ErrorKind::ConnectionRefused.into())),
            answer => Ok(answer),
        }
    }

    fn receive(&self) -> io::Result<Option<Vec<u8>>> {
        let mut answer = [0; LONGEST_ANSWER];
        Ok(if_ready(self.socket.recv(&mut answer))?.map(|length| answer[..length].to_vec()))
    }

    fn deliver(&mut self) -> io::Result<()> {
        if let Some(command) = &self.unsent
            && if_ready(self.socket.send(command.as_bytes()))?.is_some()
        {
            self.unsent = None;
        }
        Ok(())
    }
}

/// What would have to be waited for is no error.
fn if_ready(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        other => other.map(Some),
    }
}

/// The address that the answer comes to; its file, if it has one, goes with it.
struct ReturnAddress(Option<PathBuf>);

impl ReturnAddress {
    /// A file beside the supervisor's socket, which every container of the pod shares, unlike
    /// the network namespace that an abstract address belongs to. Where no file can be made (a
    /// read-only mount, a path too long), an abstract address has to do.
    fn bind(socket: &UnixDatagram, supervisor: &Path) -> io::Result<Self> {
        let unique = format!(
            "{}-{}",
            std::process::id(),
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
        );
        let path = supervisor.with_file_name(format!("{RETURN_PREFIX}{unique}"));
        if path.as_os_str().len() <= LONGEST_ADDRESS {
            // The supervisor may be of another user than root, and has to write to it.
            let previous = umask(Mode::from_bits_truncate(0o111));
            let bound = UnixAddr::new(&path).and_then(|address| bind(socket.as_raw_fd(), &address));
            umask(previous);
            if bound.is_ok() {
                return Ok(Self(Some(path)));
            }
        }
        // The kernel chooses a free one: "autobind" in unix(7).
        bind(socket.as_raw_fd(), &UnixAddr::new_unnamed())?;
        Ok(Self(None))
    }
}

/// How the name of a return address begins.
pub const RETURN_PREFIX: &str = ".answer-";

impl Drop for ReturnAddress {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn supervisor_at(path: &Path) -> UnixDatagram {
        UnixDatagram::bind(path).unwrap()
    }

    #[test]
    fn an_answer_that_comes_while_we_look_for_its_sender_counts_though_that_has_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sock");
        let supervisor = supervisor_at(&path);
        let mut sent = Sent::new(&path, "STOP WAIT", Duration::from_secs(600)).unwrap();
        let answer_and_go = |path: &Path| {
            let (_, sender) = supervisor.recv_from(&mut [0; 64]).unwrap();
            supervisor.send_to_addr(b"OK stopped - monitored", &sender).unwrap();
            drop(supervisor);
            fs::remove_file(path).unwrap();
            reach::look(path)
        };
        let answer = sent.get_on(Instant::now() + LIFE_SIGN, answer_and_go).unwrap();
        assert_eq!(answer.as_deref(), Some(&b"OK stopped - monitored"[..]));
    }

    #[test]
    fn a_supervisor_that_another_one_has_replaced_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sock");
        let first = supervisor_at(&path);
        let mut sent = Sent::new(&path, "STOP WAIT", Duration::from_secs(600)).unwrap();
        let now = Instant::now() + LIFE_SIGN;
        assert_eq!(sent.get_on(now, reach::look).unwrap(), None, "it lives");
        drop(first);
        fs::remove_file(&path).unwrap();
        let _second = supervisor_at(&path);
        let error = sent.get_on(now + LIFE_SIGN, reach::look).unwrap_err();
        assert!(matches!(SendError::from_io(&path, error), SendError::NoSupervisor(_)));
    }
}
