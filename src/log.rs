//! What we say on stderr: one line each, and never at the price of the supervisor's life.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The longest line that a pipe takes whole or not at all (PIPE_BUF, pipe(7)).
const LONGEST_LINE: usize = 4096;

static DEBUG: AtomicBool = AtomicBool::new(false);
static NON_BLOCKING: OnceLock<Option<File>> = OnceLock::new();

/// From here on no line waits for its reader; with `debug`, [`debug`] says something.
///
/// A pipe whose reader has stopped reading would block us, and the job fills it, not we. The
/// flag against that would reach everybody who shares the pipe, so it is opened once more.
pub fn start(debug: bool) {
    DEBUG.store(debug, Ordering::Relaxed);
    NON_BLOCKING.get_or_init(|| {
        const STDERR: &str = "/proc/self/fd/2";
        let kind = fs::metadata(STDERR).ok()?.file_type();
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        (kind.is_fifo() || kind.is_char_device())
            .then(|| File::options().write(true).custom_flags(flags).open(STDERR).ok())
            .flatten()
    });
}

/// Says `container-run: MESSAGE`. A full or closed stderr loses it: there is nobody else to tell.
pub fn error(message: impl fmt::Display) {
    let mut line = format!("container-run: {message}").into_bytes();
    line.truncate(LONGEST_LINE - 1);
    line.push(b'\n');
    let _ = match NON_BLOCKING.get() {
        Some(Some(file)) => Write::write_all(&mut &*file, &line),
        _ if stderr_takes_more() => io::stderr().write_all(&line),
        _ => Ok(()),
    };
}

/// The same, if [`start`] was told so.
pub fn debug(message: impl FnOnce() -> String) {
    if DEBUG.load(Ordering::Relaxed) {
        error(format_args!("debug: {}", message()));
    }
}

fn stderr_takes_more() -> bool {
    let stderr = io::stderr();
    let mut ready = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    matches!(poll(&mut ready, PollTimeout::ZERO), Ok(1..))
}
