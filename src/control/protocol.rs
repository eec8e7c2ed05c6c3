//! The control protocol: one datagram, one command; one answer. Parsing and printing, no I/O.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::signal::Signal;

/// The longest command, in bytes: room for any verb with any amount of goodwill.
pub const LONGEST_COMMAND: usize = 256;

/// Every verb, for whoever has mistyped one.
pub const VERBS: [&str; 9] =
    ["START", "STOP", "QUIT", "SIGNAL", "STATUS", "DETAILS", "MONITOR", "UNMONITOR", "DRAINED"];

/// What a sender asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `START`: run the main process, if it does not run.
    Start,
    /// `STOP`, `STOP WAIT`: end it, if it runs.
    Stop {
        /// Answer when the whole tree is gone, and not at once.
        wait: bool,
    },
    /// `QUIT`: SIGQUIT to the main process.
    Quit,
    /// `SIGNAL NAME`: that signal to the main process; KILL is for the whole tree.
    Signal(Signal),
    /// `STATUS`: nothing but the answer.
    Status,
    /// `MONITOR`, `UNMONITOR`, `DRAINED`.
    SetMode(Mode),
}

/// Whether a failing main process ends the supervisor, and how far a drain has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It does.
    Monitored,
    /// It does not: the container is going down.
    Unmonitored,
    /// The same, and the drain script has done its work.
    Drained,
}

/// The states that an answer tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateName {
    /// The main process lives.
    Running,
    /// Its tree is being ended.
    Stopping,
    /// It was ordered to end.
    Stopped,
    /// It ended by itself.
    Ended,
    /// It failed in the modes `unmonitored` or `drained`.
    Failed,
}

/// What a datagram asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Something that the life cycle must hear of.
    Command(Command),
    /// `DETAILS`: nothing but an answer that says more than others.
    Details,
}

/// `OK STATE PID MODE`, and behind that the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// What the main process does.
    pub state: StateName,
    /// Its PID, as its own container sees it.
    pub pid: Option<i32>,
    /// What its failure would lead to.
    pub mode: Mode,
    /// The answer to `DETAILS` alone has them.
    pub details: Option<Details>,
}

/// ` SINCE LAST_EXIT RESTARTS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Details {
    /// How long the state has been what it is: seconds, to the millisecond.
    pub since: Duration,
    /// How the last main process that ended did so.
    pub last_exit: Option<LastExit>,
    /// How often the main process was started again.
    pub restarts: u32,
}

/// The end of a main process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastExit {
    /// It exited with this code: the word is the number.
    Code(u8),
    /// A signal ended it: the word is its name.
    Signal(Signal),
}

/// Declares each word of an enum once, for printing and for parsing.
macro_rules! words {
    ($type:ident: $($variant:ident = $word:literal),+) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $word),+ })
            }
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(format!("unknown word '{}'", word.escape_debug())),
                }
            }
        }
    };
}

words!(Mode: Monitored = "monitored", Unmonitored = "unmonitored", Drained = "drained");
words!(StateName: Running = "running", Stopping = "stopping", Stopped = "stopped", Ended = "ended", Failed = "failed");

/// Reads one datagram. The error is the reason for an `ERR` answer.
pub fn parse_request(datagram: &[u8]) -> Result<Request, String> {
    match datagram.trim_ascii() {
        b"DETAILS" if datagram.len() <= LONGEST_COMMAND => Ok(Request::Details),
        _ => parse_command(datagram).map(Request::Command),
    }
}

/// As it is sent.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("START"),
            Self::Stop { wait: false } => f.write_str("STOP"),
            Self::Stop { wait: true } => f.write_str("STOP WAIT"),
            Self::Quit => f.write_str("QUIT"),
            Self::Signal(signal) => write!(f, "SIGNAL {signal}"),
            Self::Status => f.write_str("STATUS"),
            Self::SetMode(Mode::Monitored) => f.write_str("MONITOR"),
            Self::SetMode(Mode::Unmonitored) => f.write_str("UNMONITOR"),
            Self::SetMode(Mode::Drained) => f.write_str("DRAINED"),
        }
    }
}

fn parse_command(datagram: &[u8]) -> Result<Command, String> {
    if datagram.len() > LONGEST_COMMAND {
        return Err(format!("the command is longer than {LONGEST_COMMAND} bytes"));
    }
    let text = std::str::from_utf8(datagram).map_err(|_| "the command is not UTF-8".to_owned())?;
    let command = text.trim_ascii();
    Ok(match command {
        "" => return Err("the command is empty".to_owned()),
        "START" => Command::Start,
        "STOP" => Command::Stop { wait: false },
        "STOP WAIT" => Command::Stop { wait: true },
        "QUIT" => Command::Quit,
        "STATUS" => Command::Status,
        "MONITOR" => Command::SetMode(Mode::Monitored),
        "UNMONITOR" => Command::SetMode(Mode::Unmonitored),
        "DRAINED" => Command::SetMode(Mode::Drained),
        _ => match command.strip_prefix("SIGNAL ") {
            Some(name) => Command::Signal(
                name.parse().map_err(|_| format!("unknown signal '{}'", name.escape_debug()))?,
            ),
            None => return Err(format!("unknown command '{}'", command.escape_debug())),
        },
    })
}

/// Reads an answer. The error is the reason that an `ERR` gives, or what is wrong with the answer.
pub fn parse_answer(datagram: &[u8]) -> Result<Status, String> {
    let text = String::from_utf8_lossy(datagram);
    if let Some(reason) = text.strip_prefix("ERR ") {
        return Err(reason.to_owned());
    }
    let strange = || format!("unexpected answer '{}'", text.escape_debug());
    let words: Vec<&str> = text.split(' ').collect();
    let ["OK", state, pid, mode, ref details @ ..] = words[..] else {
        return Err(strange());
    };
    Ok(Status {
        state: state.parse().map_err(|_| strange())?,
        pid: word_or_none(pid).ok_or_else(strange)?,
        mode: mode.parse().map_err(|_| strange())?,
        details: match details {
            [] => None,
            words => Some(parse_details(words).ok_or_else(strange)?),
        },
    })
}

/// A word that is `-` where there is nothing. `None` if it is neither.
fn word_or_none<T: FromStr>(word: &str) -> Option<Option<T>> {
    if word == "-" { Some(None) } else { word.parse().ok().map(Some) }
}

fn parse_details(words: &[&str]) -> Option<Details> {
    let &[since, last_exit, restarts] = words else { return None };
    Some(Details {
        since: Duration::try_from_secs_f64(since.parse().ok()?).ok()?,
        last_exit: word_or_none(last_exit)?,
        restarts: restarts.parse().ok()?,
    })
}

/// `STATE PID MODE` and perhaps ` SINCE LAST_EXIT RESTARTS`, as `container-run send` prints it; `-`
/// for what there is none of.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.state, OrNone(self.pid), self.mode)?;
        match self.details {
            Some(details) => write!(f, " {details}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Details {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} {} {}", self.since.as_secs_f64(), OrNone(self.last_exit), self.restarts)
    }
}

impl fmt::Display for LastExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "{code}"),
            Self::Signal(signal) => write!(f, "{signal}"),
        }
    }
}

impl FromStr for LastExit {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let code = word.parse().map(Self::Code);
        code.or_else(|_| word.parse().map(Self::Signal))
            .map_err(|_| format!("no exit code or signal: '{word}'"))
    }
}

/// Prints `-` for nothing.
struct OrNone<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for OrNone<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("-"),
        }
    }
}

/// The datagram that answers a command.
pub fn print_answer(answer: Result<Status, &str>) -> String {
    match answer {
        Ok(status) => format!("OK {status}"),
        Err(reason) => format!("ERR {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_read_with_white_space_around_it() {
        let verbs = [
            ("START", Command::Start),
            ("STOP", Command::Stop { wait: false }),
            ("STOP WAIT", Command::Stop { wait: true }),
            ("QUIT", Command::Quit),
            ("SIGNAL USR1", Command::Signal(Signal::USR1)),
            ("SIGNAL SIGKILL", Command::Signal(Signal::KILL)),
            ("STATUS", Command::Status),
            ("MONITOR", Command::SetMode(Mode::Monitored)),
            ("UNMONITOR", Command::SetMode(Mode::Unmonitored)),
            ("DRAINED", Command::SetMode(Mode::Drained)),
        ];
        for (verb, command) in verbs {
            for text in [verb.to_owned(), format!("{verb}\n"), format!("{verb}\r\n"), format!(" \t{verb}  ")]
            {
                assert_eq!(parse_command(text.as_bytes()), Ok(command), "{text:?}");
            }
            assert_eq!(parse_command(command.to_string().as_bytes()), Ok(command));
        }
    }

    #[test]
    fn what_is_no_command_is_refused_with_a_reason_on_one_line() {
        let strange: [&[u8]; 15] = [
            b"",
            b" \n",
            b"stop",
            b"STOPX",
            b"STOP START",
            b"STOP  WAIT",
            b"STOP\nSTART",
            b"STOP\0",
            b"\0",
            b"\xff\xfe",
            b"SIGNAL",
            b"SIGNAL FOO",
            b"SIGNAL  TERM",
            b"START NOW",
            b"KILL",
        ];
        for datagram in strange {
            let reason = parse_command(datagram).unwrap_err();
            assert!(!reason.is_empty() && !reason.contains(['\n', '\0']), "{reason:?}");
        }
    }

    #[test]
    fn a_command_is_measured_with_its_padding() {
        let padded = |length: usize| format!("{:length$}", "STOP");
        assert_eq!(parse_command(padded(256).as_bytes()), Ok(Command::Stop { wait: false }));
        assert!(parse_command(padded(257).as_bytes()).unwrap_err().contains("256"));
    }

    #[test]
    fn an_answer_is_read_as_it_was_printed() {
        use {Mode::*, StateName::*};
        for state in [Running, Stopping, Stopped, Ended, Failed] {
            for mode in [Monitored, Unmonitored, Drained] {
                for pid in [None, Some(1), Some(4_194_304)] {
                    let status = Status { state, pid, mode, details: None };
                    assert_eq!(parse_answer(print_answer(Ok(status)).as_bytes()), Ok(status));
                }
            }
        }
        let status = Status { state: Running, pid: Some(7), mode: Monitored, details: None };
        assert_eq!(print_answer(Ok(status)), "OK running 7 monitored");
        assert_eq!(print_answer(Err("no")), "ERR no");
        assert_eq!(parse_answer(b"ERR no such thing"), Err("no such thing".to_owned()));
    }

    #[test]
    fn details_are_asked_for_by_their_verb_and_are_no_command() {
        for text in ["DETAILS", " DETAILS\r\n"] {
            assert_eq!(parse_request(text.as_bytes()), Ok(Request::Details));
        }
        assert_eq!(parse_request(b"STATUS"), Ok(Request::Command(Command::Status)));
        for text in ["details", "DETAILS NOW", "DETAILSX", &format!("{:257}", "DETAILS")] {
            assert!(parse_request(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn details_are_read_as_they_were_printed() {
        let print = |since, last_exit, restarts| {
            let details = Some(Details { since: Duration::from_millis(since), last_exit, restarts });
            let status = Status { state: StateName::Ended, pid: None, mode: Mode::Drained, details };
            let text = print_answer(Ok(status));
            assert_eq!(parse_answer(text.as_bytes()), Ok(status), "{text}");
            text
        };
        assert_eq!(print(0, None, 0), "OK ended - drained 0.000 - 0");
        assert_eq!(print(1_500, Some(LastExit::Code(143)), 7), "OK ended - drained 1.500 143 7");
        let killed = Some(LastExit::Signal(Signal::KILL));
        assert_eq!(print(90_061_007, killed, u32::MAX), "OK ended - drained 90061.007 SIGKILL 4294967295");
    }

    #[test]
    fn a_strange_answer_is_an_error_that_shows_it() {
        for text in [
            "",
            "OK",
            "OK running 7",
            "OK walking 7 monitored",
            "OK running x monitored",
            "OK running 7 monitored more",
            "OK running 7 monitored 1 -",
            "OK running 7 monitored -1 - 0",
            "OK running 7 monitored nan - 0",
            "OK running 7 monitored 1 256 0",
            "OK running 7 monitored 1 SIGX 0",
            "OK running 7 monitored 1 - -",
            "OK running 7 monitored 1 - 0 more",
        ] {
            let reason = parse_answer(text.as_bytes()).unwrap_err();
            assert!(reason.contains(&format!("'{text}'")), "{reason}");
        }
    }
}
