//! Our own signals: those that mean something wake a loop, the others do nothing.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use crate::signal::Signal;
use crate::sys::{self, Disposition};

/// What the loop wants to know of. Children start with these at their default by themselves,
/// since exec(2) resets handlers.
const HANDLED: [Signal; 10] = [
    Signal::TERM,
    Signal::INT,
    Signal::QUIT,
    Signal::HUP,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::CONT,
    Signal::ALRM,
    Signal::CHLD,
];

/// Signals that have arrived, readable like a file.
pub struct Signals(SignalDelivery<UnixStream, SignalOnly>);

impl Signals {
    /// Holds all signals back until [`Signals::new`]; for the time in which nobody could take them.
    pub fn block() -> io::Result<()> {
        Ok(sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)?)
    }

    /// Takes over every signal, whatever our parent had blocked or ignored.
    pub fn new() -> io::Result<Self> {
        for number in sys::ALL_SIGNALS {
            if !HANDLED.iter().any(|signal| signal.number() == number) {
                // KILL and STOP refuse, as they must.
                let _ = sys::set_disposition(number, Disposition::Ignore);
            }
        }
        let (read, write) = UnixStream::pair()?;
        let numbers = HANDLED.map(Signal::number);
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, numbers)?;
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
        Ok(Self(delivery))
    }

    /// Those that have arrived since the last call, each once, in the order of their numbers: a
    /// QUIT comes before a TERM, and a TERM before the death of the child that it may have ended.
    pub fn pending(&mut self) -> Vec<Signal> {
        let mut numbers: Vec<i32> = self.0.pending().collect();
        numbers.sort_unstable();
        numbers.into_iter().filter_map(Signal::from_number).collect()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_read().as_fd()
    }
}
