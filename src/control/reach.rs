//! Reaching a socket by its path: however long that is, and only if a socket lies there.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use nix::libc;

use crate::identity::Identity;

/// The longest path that fits into an address: sun_path has 108 bytes, the last one is NUL
/// (unix(7)).
pub const LONGEST_ADDRESS: usize = 107;

/// Opens a file, a folder or a socket as a mere place, without reading it. A link is not followed.
pub fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path)
}

/// A short path to what is open.
pub fn path_of(opened: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()))
}

/// Connects to the socket at `path`.
///
/// connect(2) would follow a link, and who may write to the folder could plant one that leads a
/// command to another job's supervisor. So what lies there is opened, looked at, and that is
/// connected to.
///
/// Returns which socket it is.
///
/// # Errors
///
/// NotFound if what lies there is no socket.
pub fn connect(socket: &UnixDatagram, path: &Path) -> io::Result<Identity> {
    let opened = open(path)?;
    let metadata = opened.metadata()?;
    if !metadata.file_type().is_socket() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let by_descriptor = path_of(&opened);
    // Without /proc there is only the path.
    let has_proc = fs::symlink_metadata(&by_descriptor).is_ok();
    socket.connect(if has_proc { &by_descriptor } else { path })?;
    Ok(Identity::of(&metadata))
}

/// Looks which socket at `path` somebody holds.
///
/// # Errors
///
/// ConnectionRefused if nobody does, NotFound if there is none. Any other error (it is connected to
/// somebody else, or it is not for us) comes from one that somebody holds.
pub fn look(path: &Path) -> io::Result<Identity> {
    connect(&UnixDatagram::unbound()?, path)
}
