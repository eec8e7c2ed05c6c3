//! What `ps`, `pgrep -f` and `pkill -f` see of the supervisor.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::tree;

/// Makes `/proc/PID/cmdline` show `title` in place of our arguments.
///
/// Drain scripts look for `/var/vcap/packages/…`, which stands in the arguments that name
/// EXECUTABLE: `pkill -f` would find the supervisor, too. The kernel shows the memory that the
/// arguments lie in; if its last byte is not NUL it shows the text up to the first NUL
/// (proc_pid_cmdline(5); fs/proc/base.c, "setproctitle").
///
/// Must come after the arguments were read, since they are gone then.
///
/// # Errors
///
/// Without a `/proc` that may be written the arguments stay visible.
pub fn set(title: &str) -> io::Result<()> {
    let (start, end) = argument_area()?;
    let mut area = vec![0; end - start];
    let Some((last, text)) = area.split_last_mut() else { return Ok(()) };
    *last = 1;
    // The title is shorter than what it replaces, which holds both names and EXECUTABLE; if it
    // were not, it would be cut, and a NUL has to stay behind it.
    let length = title.len().min(text.len().saturating_sub(1));
    text[..length].copy_from_slice(&title.as_bytes()[..length]);
    File::options().write(true).open("/proc/self/mem")?.write_all_at(&area, start as u64)
}

/// Fields 48 and 49 of proc_pid_stat(5).
fn argument_area() -> io::Result<(usize, usize)> {
    let stat = tree::stat_line("self")?;
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.trim().parse().ok());
    match (field(48), field(49)) {
        (Some(start), Some(end)) if start < end => Ok((start, end)),
        _ => Err(io::Error::other("no place for arguments in /proc/self/stat")),
    }
}
