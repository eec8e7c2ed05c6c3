//! The sender's side: one command, one answer.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::socket::{UnixAddr, bind};
use nix::sys::stat::{Mode, umask};

use super::protocol::{self, Status};
use super::reach::{self, LONGEST_ADDRESS};

/// How long an answer may take if nothing else was said.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(5);

/// How often a waiting sender looks whether the supervisor still lives. A datagram socket is not
/// told of its peer's death, and a PID in another container cannot be watched.
const LIFE_SIGN: Duration = Duration::from_millis(500);

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
            Self::Failed(path, error) => write!(f, "cannot send to {}: {error}", path.display()),
        }
    }
}

/// Sends `command` to the supervisor at `path` and waits for its answer.
pub fn send(path: &Path, command: &str, wait: Duration) -> Result<Status, SendError> {
    Sent::new(path, command, wait)?.answer()
}

/// A command that was sent, and whose answer is still to come: so can many be asked at once.
pub struct Sent {
    socket: UnixDatagram,
    path: PathBuf,
    wait: Duration,
    end: Instant,
    _return_address: ReturnAddress,
}

impl Sent {
    /// Sends `command` to the supervisor at `path`; from here on `wait` counts.
    pub fn new(path: &Path, command: &str, wait: Duration) -> Result<Self, SendError> {
        let failed = |error| SendError::from_io(path, error);
        let end = Instant::now() + wait;
        let socket = UnixDatagram::unbound().map_err(failed)?;
        // Connected, it takes datagrams from the supervisor alone.
        reach::connect(&socket, path).map_err(failed)?;
        let return_address = ReturnAddress::bind(&socket, path).map_err(failed)?;
        // A full queue makes the sender wait, as it should: but not for ever.
        socket.set_write_timeout(Some(at_least_a_moment(wait))).map_err(failed)?;
        match socket.send(command.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(SendError::TimedOut(path.to_owned(), wait))
            }
            Err(error) => Err(failed(error)),
            Ok(_) => Ok(Self { socket, path: path.to_owned(), wait, end, _return_address: return_address }),
        }
    }

    /// Waits for the answer.
    pub fn answer(mut self) -> Result<Status, SendError> {
        loop {
            if let Some(answer) = self.try_answer(LIFE_SIGN) {
                return answer;
            }
        }
    }

    /// Waits at most `slice` for the answer; `None` if it may still come.
    pub fn try_answer(&mut self, slice: Duration) -> Option<Result<Status, SendError>> {
        let failed = |error| Some(Err(SendError::from_io(&self.path, error)));
        let left = self.end.saturating_duration_since(Instant::now());
        if let Err(error) = self.socket.set_read_timeout(Some(at_least_a_moment(left.min(slice)))) {
            return failed(error);
        }
        let mut answer = [0; LONGEST_ANSWER];
        match self.socket.recv(&mut answer) {
            Ok(length) => Some(protocol::parse_answer(&answer[..length]).map_err(SendError::Refused)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => failed(error),
            Err(_) if left <= slice => Some(Err(SendError::TimedOut(self.path.clone(), self.wait))),
            // Nobody tells us if the supervisor has died meanwhile.
            Err(_) => {
                let probed = UnixDatagram::unbound().and_then(|probe| reach::connect(&probe, &self.path));
                probed.map_or_else(failed, |()| None)
            }
        }
    }
}

/// A timeout of zero would mean: none.
fn at_least_a_moment(time: Duration) -> Duration {
    time.max(Duration::from_millis(1))
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
