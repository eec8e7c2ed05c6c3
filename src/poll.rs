//! Waiting for descriptors and time at once.

use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollTimeout, poll};

/// Sleeps until one of these is ready, a signal comes, or `end` has passed; without an end as long
/// as it takes.
pub fn wait(ready: &mut [PollFd], end: Option<Instant>) {
    let timeout = end.map_or(PollTimeout::NONE, |end| {
        let left = end.saturating_duration_since(Instant::now());
        // Rounded up: to wake too early would mean to wake twice.
        let whole = left + Duration::from_micros(999);
        PollTimeout::try_from(whole.as_millis()).unwrap_or(PollTimeout::MAX)
    });
    // EINTR is a signal; any other error shows again in what is done next.
    let _ = poll(ready, timeout);
}
