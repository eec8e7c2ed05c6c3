//! What we say on stderr: one line each, and never at the price of the supervisor's life.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::json;
use crate::paths::Name;

/// The longest line that a pipe takes whole or not at all (PIPE_BUF, pipe(7)).
const LONGEST_LINE: usize = 4096;

static SUPERVISOR: OnceLock<Supervisor> = OnceLock::new();

/// How the supervisor's lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people: `container-run: MESSAGE`
    Text,
    /// For log collectors: an object on each line
    Json,
}

/// What a supervisor says is told apart from what others say.
struct Supervisor {
    job: Name,
    process: Name,
    format: Format,
    debug: bool,
    began: Instant,
    non_blocking: Option<File>,
}

/// How important a line is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Error,
    Warning,
    Debug,
}

/// From here on the lines are a supervisor's: none waits for its reader, they have the form
/// `format`, and with `debug`, [`debug`] says something.
///
/// A pipe whose reader has stopped reading would block us, and the job fills it, not we. The
/// flag against that would reach everybody who shares the pipe, so it is opened once more.
pub fn start(job: Name, process: Name, format: Format, debug: bool) {
    SUPERVISOR.get_or_init(|| Supervisor {
        job,
        process,
        format,
        debug,
        began: Instant::now(),
        non_blocking: open_non_blocking(),
    });
}

fn open_non_blocking() -> Option<File> {
    const STDERR: &str = "/proc/self/fd/2";
    let kind = fs::metadata(STDERR).ok()?.file_type();
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    (kind.is_fifo() || kind.is_char_device())
        .then(|| File::options().write(true).custom_flags(flags).open(STDERR).ok())
        .flatten()
}

/// Says `container-run: MESSAGE`. A full or closed stderr loses it: there is nobody else to tell.
pub fn error(message: impl fmt::Display) {
    say(Level::Error, &message.to_string());
}

/// Says `container-run: warning: MESSAGE`.
pub fn warning(message: impl fmt::Display) {
    say(Level::Warning, &message.to_string());
}

/// Says `container-run: [SECONDS] MESSAGE`, if [`start`] was told so.
pub fn debug(message: impl FnOnce() -> String) {
    if SUPERVISOR.get().is_some_and(|supervisor| supervisor.debug) {
        say(Level::Debug, &message());
    }
}

fn say(level: Level, message: &str) {
    let supervisor = SUPERVISOR.get();
    let line = match supervisor {
        Some(supervisor) if supervisor.format == Format::Json => supervisor.object(level, message),
        Some(supervisor) if level == Level::Debug => {
            fit(message, |message| format!("container-run: [{:12.6}] {message}", supervisor.uptime()))
        }
        _ if level == Level::Warning => fit(message, |message| format!("container-run: warning: {message}")),
        _ => fit(message, |message| format!("container-run: {message}")),
    };
    let line = (line + "\n").into_bytes();
    let _ = match supervisor.and_then(|supervisor| supervisor.non_blocking.as_ref()) {
        Some(mut file) => file.write_all(&line),
        None if stderr_takes_more() => io::stderr().write_all(&line),
        None => Ok(()),
    };
}

/// The line that `print` makes of the message, or of as much of it as leaves room for a newline.
fn fit(message: &str, print: impl Fn(&str) -> String) -> String {
    let line = print(message);
    let excess = (line.len() + 1).saturating_sub(LONGEST_LINE);
    if excess == 0 {
        return line;
    }
    // Each byte of it has made one or more of the line.
    let mut end = message.len().saturating_sub(excess);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    print(&message[..end])
}

impl Supervisor {
    /// By the monotonic clock: the other may be set while we run.
    fn uptime(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn object(&self, level: Level, message: &str) -> String {
        let level = match level {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Debug => "debug",
        };
        let time = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
        let uptime = format!("{:.6}", self.uptime());
        fit(message, |message| {
            json::object(&[
                ("time", json::text(&time)),
                ("uptime_seconds", uptime.clone()),
                ("level", json::text(level)),
                ("job", json::text(self.job.as_str())),
                ("process", json::text(self.process.as_str())),
                ("message", json::text(message)),
            ])
        })
    }
}

fn stderr_takes_more() -> bool {
    let stderr = io::stderr();
    let mut ready = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    matches!(poll(&mut ready, PollTimeout::ZERO), Ok(1..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_loses_whole_characters_of_its_message() {
        for message in ["x", "é", "日本", "\"", "\u{1}"] {
            for count in [1, 600, 680, 681, 682, 1_360, 2_050, 4_080, 4_096, 10_000] {
                let message = message.repeat(count);
                let line = fit(&message, |message| format!("{{\"m\":{}}}", json::text(message)));
                assert!(line.len() < LONGEST_LINE, "{}", line.len());
                let value: serde_json::Value = serde_json::from_str(&line).unwrap();
                assert!(message.starts_with(value["m"].as_str().unwrap()));
            }
        }
    }
}
