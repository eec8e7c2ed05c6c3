//! Signal numbers and their names, as `kill -l` prints them.

use std::fmt;
use std::str::FromStr;

use nix::libc;

/// A signal that can be sent: 1 to 64 without the two that the C library keeps to itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signal(i32);

/// The name is not one that `kill -l` prints.
#[derive(Debug, PartialEq, Eq)]
pub struct UnknownSignal;

impl Signal {
    /// SIGHUP
    pub const HUP: Self = Self(libc::SIGHUP);
    /// SIGINT
    pub const INT: Self = Self(libc::SIGINT);
    /// SIGQUIT
    pub const QUIT: Self = Self(libc::SIGQUIT);
    /// SIGKILL
    pub const KILL: Self = Self(libc::SIGKILL);
    /// SIGUSR1
    pub const USR1: Self = Self(libc::SIGUSR1);
    /// SIGUSR2
    pub const USR2: Self = Self(libc::SIGUSR2);
    /// SIGALRM
    pub const ALRM: Self = Self(libc::SIGALRM);
    /// SIGTERM
    pub const TERM: Self = Self(libc::SIGTERM);
    /// SIGCHLD
    pub const CHLD: Self = Self(libc::SIGCHLD);
    /// SIGCONT
    pub const CONT: Self = Self(libc::SIGCONT);
    /// SIGWINCH
    pub const WINCH: Self = Self(libc::SIGWINCH);

    /// The signal with this number, if there is one that may be sent.
    pub fn from_number(number: i32) -> Option<Self> {
        let classic = (1..=libc::SIGSYS).contains(&number);
        let real_time = (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&number);
        (classic || real_time).then_some(Self(number))
    }

    /// The number that the kernel knows it by.
    pub fn number(self) -> i32 {
        self.0
    }
}

/// `SIGRTMIN+3` counts up from the first real-time signal, `SIGRTMAX-3` down from the last.
fn real_time(name: &str) -> Option<i32> {
    let (first, last) = (libc::SIGRTMIN(), libc::SIGRTMAX());
    let distance = |text: &str, sign| {
        let digits = text.strip_prefix(sign)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u8>().ok().map(i32::from))?
    };
    let number = match name.split_at_checked(5)? {
        ("RTMIN", "") => first,
        ("RTMAX", "") => last,
        ("RTMIN", up) => first + distance(up, '+')?,
        ("RTMAX", down) => last - distance(down, '-')?,
        _ => return None,
    };
    (first..=last).contains(&number).then_some(number)
}

impl FromStr for Signal {
    type Err = UnknownSignal;

    fn from_str(name: &str) -> Result<Self, UnknownSignal> {
        let short = name.strip_prefix("SIG").unwrap_or(name);
        let number = match short {
            // The two names that nix does not know, but `kill -l` does on some systems.
            "POLL" => Some(libc::SIGIO),
            "CLD" => Some(libc::SIGCHLD),
            _ => nix::sys::signal::Signal::from_str(&format!("SIG{short}"))
                .map(|known| known as i32)
                .ok()
                .or_else(|| real_time(short)),
        };
        number.and_then(Self::from_number).ok_or(UnknownSignal)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match nix::sys::signal::Signal::try_from(self.number()) {
            Ok(known) => f.write_str(known.as_str()),
            Err(_) => write!(f, "SIGRTMIN+{}", self.number() - libc::SIGRTMIN()),
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_name_that_leads_back_to_it() {
        for number in (1..=31).chain(34..=64) {
            let signal = Signal::from_number(number).unwrap();
            assert_eq!(signal.to_string().parse(), Ok(signal), "signal {number}");
            let short = signal.to_string().replacen("SIG", "", 1);
            assert_eq!(short.parse(), Ok(signal), "signal {number} without SIG");
        }
    }

    #[test]
    fn real_time_signals_count_from_both_ends() {
        let number = |name: &str| name.parse::<Signal>().map(Signal::number);
        assert_eq!(number("RTMIN"), Ok(34));
        assert_eq!(number("SIGRTMIN+2"), Ok(36));
        assert_eq!(number("RTMAX-1"), Ok(63));
        assert_eq!(number("RTMAX"), Ok(64));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let strange = [
            "",
            "SIG",
            "term",
            "TERM ",
            "SIGSIGTERM",
            "0",
            "9",
            "EXIT",
            "RTMIN+31",
            "RTMIN-1",
            "RTMAX-31",
            "RTMAX+1",
            "RTMIN+",
            "RTMIN++1",
            "RT",
            "é",
        ];
        for name in strange {
            assert_eq!(name.parse::<Signal>(), Err(UnknownSignal), "{name:?}");
        }
        for number in [-1, 0, 32, 33, 65, i32::MAX, i32::MIN + 40] {
            assert!(Signal::from_number(number).is_none(), "{number}");
        }
    }
}
