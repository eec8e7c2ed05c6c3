//! The control protocol: one datagram, one command; one answer. Parsing and printing, no I/O.

use std::fmt;
use std::str::FromStr;

use crate::signal::Signal;

/// The longest command, in bytes: room for any verb with any amount of goodwill.
pub const LONGEST_COMMAND: usize = 256;

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

/// `OK STATE PID MODE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// What the main process does.
    pub state: StateName,
    /// Its PID, as its own container sees it.
    pub pid: Option<i32>,
    /// What its failure would lead to.
    pub mode: Mode,
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
pub fn parse_command(datagram: &[u8]) -> Result<Command, String> {
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
    let ["OK", state, pid, mode] = words[..] else {
        return Err(strange());
    };
    Ok(Status {
        state: state.parse().map_err(|_| strange())?,
        pid: match pid {
            "-" => None,
            number => Some(number.parse().map_err(|_| strange())?),
        },
        mode: mode.parse().map_err(|_| strange())?,
    })
}

/// `STATE PID MODE`, as `container-run send` prints it; `PID` is `-` if there is none.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "{} {pid} {}", self.state, self.mode),
            None => write!(f, "{} - {}", self.state, self.mode),
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
                    let status = Status { state, pid, mode };
                    assert_eq!(parse_answer(print_answer(Ok(status)).as_bytes()), Ok(status));
                }
            }
        }
        let status = Status { state: Running, pid: Some(7), mode: Monitored };
        assert_eq!(print_answer(Ok(status)), "OK running 7 monitored");
        assert_eq!(print_answer(Err("no")), "ERR no");
        assert_eq!(parse_answer(b"ERR no such thing"), Err("no such thing".to_owned()));
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
        ] {
            let reason = parse_answer(text.as_bytes()).unwrap_err();
            assert!(reason.contains(&format!("'{text}'")), "{reason}");
        }
    }
}
