//! Reaching a socket whose path is longer than an address can be.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use nix::libc;

/// The longest path that fits into an address: sun_path has 108 bytes, the last one is NUL
/// (unix(7)).
pub const LONGEST_ADDRESS: usize = 107;

/// Opens a file, a folder or a socket as a mere place, without reading it or following a link.
pub fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_PATH).open(path)
}

/// A short path to what is open.
pub fn path_of(opened: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()))
}

/// Connects to the socket at `path`, however long the path is.
pub fn connect(socket: &UnixDatagram, path: &Path) -> io::Result<()> {
    if path.as_os_str().len() <= LONGEST_ADDRESS {
        return socket.connect(path);
    }
    let opened = open(path)?;
    socket.connect(path_of(&opened))
}
