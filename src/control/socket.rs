//! The supervisor's side of the control socket: claim it, receive, answer.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::libc;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrLike, UnixAddr, bind, recvmsg,
    sendto, setsockopt, socket, sockopt,
};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Uid, close, geteuid};

use super::protocol::LONGEST_COMMAND;
use super::reach::{self, LONGEST_ADDRESS};
use crate::paths::ProcessPaths;
use crate::whole_file;

/// Only the owner may write to it, which for a socket means: send.
const SOCKET_MODE: Mode = Mode::from_bits_truncate(0o600);

/// As many descriptors as one datagram can carry (SCM_MAX_FD of the kernel).
const MOST_DESCRIPTORS: usize = 253;

/// Where to send an answer.
pub type Address = UnixAddr;

/// One datagram from somebody who may command us.
pub struct Datagram {
    /// What it says; one byte more than the longest command if it says too much.
    pub text: Vec<u8>,
    /// Who wants an answer.
    pub sender: Option<Address>,
}

/// What [`ControlSocket::receive`] found.
pub enum Received {
    /// Nothing.
    Nothing,
    /// A datagram of somebody who has no business here.
    Foreign,
    /// A datagram of root or of our own user.
    Datagram(Datagram),
}

/// The bound socket, and the lock that makes it ours. Both files go when it is dropped.
pub struct ControlSocket {
    socket: OwnedFd,
    path: PathBuf,
    inode: (u64, u64),
    lock: Lock,
}

impl ControlSocket {
    /// Binds the socket at its path, 0600, in place of one that a dead supervisor left.
    ///
    /// # Errors
    ///
    /// Another live process holds the path, or something that is no socket lies there.
    pub fn claim(paths: &ProcessPaths) -> Result<Self> {
        let path = paths.socket.as_path();
        let folder = path.parent().unwrap_or(Path::new("/"));
        whole_file::make_folder(folder)?;
        let lock = Lock::take(&paths.lock, path)?;
        refuse_what_is_not_ours_to_replace(path)?;
        let socket = bind_at(path, folder).with_context(|| format!("cannot bind {}", path.display()))?;
        let inode = inode(path).with_context(|| format!("cannot look at {}", path.display()))?;
        Ok(Self { socket, path: path.to_owned(), inode, lock })
    }

    /// The next datagram, without waiting.
    pub fn receive(&self) -> io::Result<Received> {
        let mut buffer = [0; LONGEST_COMMAND + 1];
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let mut ancillary = nix::cmsg_space!(nix::sys::socket::UnixCredentials, [RawFd; MOST_DESCRIPTORS]);
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        let message =
            match recvmsg::<UnixAddr>(self.socket.as_raw_fd(), &mut parts, Some(&mut ancillary), flags) {
                Ok(message) => message,
                Err(nix::errno::Errno::EAGAIN) => return Ok(Received::Nothing),
                Err(errno) => return Err(errno.into()),
            };
        let mut user = None;
        // Ancillary data that did not fit (EMFILE cuts it short) is no credential either.
        for part in message.cmsgs().into_iter().flatten() {
            match part {
                ControlMessageOwned::ScmCredentials(credentials) => {
                    user = Some(Uid::from_raw(credentials.uid()))
                }
                // Somebody passes us descriptors: they are closed, not kept.
                ControlMessageOwned::ScmRights(descriptors) => {
                    for descriptor in descriptors {
                        let _ = close(descriptor);
                    }
                }
                _ => {}
            }
        }
        if !user.is_some_and(|user| user.is_root() || user == geteuid()) {
            return Ok(Received::Foreign);
        }
        // One that bound nothing has an empty address, or a family without a name behind it; nix
        // must not be asked what is in it.
        let named = |address: &UnixAddr| address.len() as usize > size_of::<libc::sa_family_t>();
        let sender = message.address.filter(named);
        let length = message.bytes;
        Ok(Received::Datagram(Datagram { text: buffer[..length].to_vec(), sender }))
    }

    /// Sends an answer. A sender that is gone, or does not read, loses it: nothing here waits.
    pub fn answer(&self, to: &Address, text: &str) {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let _ = sendto(self.socket.as_raw_fd(), text.as_bytes(), to, flags);
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        remove_if_still(&self.path, self.inode);
        // The lock goes last: who holds it next finds no socket.
        remove_if_still(&self.lock.path, self.lock.inode);
    }
}

/// A locked file. The kernel lets go of the lock when we end, however we end.
struct Lock {
    _file: File,
    path: PathBuf,
    inode: (u64, u64),
}

impl Lock {
    fn take(path: &Path, socket: &Path) -> Result<Self> {
        let cannot = || format!("cannot lock {}", path.display());
        loop {
            let file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                .open(path)
                .with_context(cannot)?;
            let metadata = file.metadata().with_context(cannot)?;
            if !metadata.is_file() {
                bail!("{}: it is not a regular file", cannot());
            }
            match file.try_lock() {
                Ok(()) => {}
                Err(fs::TryLockError::WouldBlock) => {
                    bail!("another supervisor holds {}", socket.display())
                }
                Err(fs::TryLockError::Error(error)) => return Err(error).with_context(cannot),
            }
            // The holder before us may have removed the file between our open and our lock; then
            // somebody else can lock another file of that name.
            let locked = (metadata.dev(), metadata.ino());
            if inode(path).is_ok_and(|now| now == locked) {
                return Ok(Self { _file: file, path: path.to_owned(), inode: locked });
            }
        }
    }
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

fn remove_if_still(path: &Path, ours: (u64, u64)) {
    if inode(path).is_ok_and(|now| now == ours) {
        let _ = fs::remove_file(path);
    }
}

/// A dead socket may be replaced; a live one, and anything else, may not.
fn refuse_what_is_not_ours_to_replace(path: &Path) -> Result<()> {
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot look at {}", path.display())),
    };
    if !kind.is_socket() {
        bail!("cannot bind {}: something that is not a socket lies there", path.display());
    }
    let probe = UnixDatagram::unbound().context("cannot make a socket")?;
    match reach::connect(&probe, path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => bail!("cannot bind {}: another process holds it", path.display()),
    }
}

/// Binds under a short name beside the path and renames: names longer than an address can be
/// work, and who sees the path finds a socket that is bound.
fn bind_at(path: &Path, folder: &Path) -> io::Result<OwnedFd> {
    let mut hasher = DefaultHasher::new();
    path.file_name().hash(&mut hasher);
    let name = format!(".{:016x}.sock", hasher.finish());
    let temporary = folder.join(&name);
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let descriptor = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // Before the first datagram can arrive: each must say who sent it.
    setsockopt(&descriptor, sockopt::PassCred, &true)?;
    let opened = (temporary.as_os_str().len() > LONGEST_ADDRESS).then(|| reach::open(folder)).transpose()?;
    let address = match &opened {
        Some(folder) => reach::path_of(folder).join(&name),
        None => temporary.clone(),
    };
    let previous = umask(Mode::from_bits_truncate(0o777) - SOCKET_MODE);
    let bound = bind(descriptor.as_raw_fd(), &UnixAddr::new(&address)?);
    umask(previous);
    bound?;
    fs::rename(&temporary, path).inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    Ok(descriptor)
}
