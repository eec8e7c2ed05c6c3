//! The supervisor's side of the control socket: claim it, receive, answer.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, bind, sendto, setsockopt, socket, sockopt,
};
use nix::sys::stat::{Mode, umask};
use nix::unistd::geteuid;

use super::client::RETURN_PREFIX;
use super::protocol::LONGEST_COMMAND;
use super::reach::{self, LONGEST_ADDRESS};
use crate::identity::Identity;
use crate::lock::Lock;
use crate::paths::ProcessPaths;
use crate::sys;
use crate::whole_file;

/// Only the owner may write to it, which for a socket means: send.
const SOCKET_MODE: Mode = Mode::from_bits_truncate(0o600);

/// Room for answers that their senders have not read yet, in bytes: the kernel charges some 800
/// for each to us, and when there is no room nobody gets an answer.
const SEND_BUFFER: usize = 4 << 20;

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
    identity: Identity,
    _lock: Lock,
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
        let Some(lock) = Lock::try_take(&paths.lock)? else {
            bail!("another supervisor holds {}", path.display());
        };
        refuse_what_is_not_ours_to_replace(path)?;
        remove_dead_return_addresses(folder);
        let socket = bind_at(path, folder).with_context(|| format!("cannot bind {}", path.display()))?;
        let identity = Identity::at(path).with_context(|| format!("cannot look at {}", path.display()))?;
        Ok(Self { socket, path: path.to_owned(), identity, _lock: lock })
    }

    /// The next datagram, without waiting.
    pub fn receive(&self) -> io::Result<Received> {
        let mut buffer = [0; LONGEST_COMMAND + 1];
        let received = match sys::receive(self.socket.as_fd(), &mut buffer) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Received::Nothing),
            Err(error) => return Err(error),
        };
        if !received.user.is_some_and(|user| user.is_root() || user == geteuid()) {
            return Ok(Received::Foreign);
        }
        let text = buffer[..received.length].to_vec();
        Ok(Received::Datagram(Datagram { text, sender: received.address }))
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
        // The lock goes after this, with the field: who holds it next finds no socket.
        self.identity.remove_from(&self.path);
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
    match reach::look(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => bail!("cannot bind {}: another process holds it", path.display()),
    }
}

/// Removes what senders left who were killed while they waited for an answer. Who waits now holds
/// his own.
fn remove_dead_return_addresses(folder: &Path) {
    let is_dead =
        |path: &Path| reach::look(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(RETURN_PREFIX.as_bytes())
            && let Ok(identity) = Identity::at(&path)
            && is_dead(&path)
        {
            identity.remove_from(&path);
        }
    }
}

/// Makes a socket at the path, in place of a dead one.
fn bind_at(path: &Path, folder: &Path) -> io::Result<OwnedFd> {
    let descriptor = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // Before the first datagram can arrive: each must say who sent it.
    setsockopt(&descriptor, sockopt::PassCred, &true)?;
    // Root may pass the system's limit; for others it is as much as the system gives.
    if setsockopt(&descriptor, sockopt::SndBufForce, &SEND_BUFFER).is_err() {
        setsockopt(&descriptor, sockopt::SndBuf, &SEND_BUFFER)?;
    }
    if path.as_os_str().len() <= LONGEST_ADDRESS {
        whole_file::remove(path)?;
        bind_privately(&descriptor, path)?;
    } else {
        // A name that no address can hold: bound under a short one beside it, then renamed.
        let mut hasher = DefaultHasher::new();
        path.file_name().hash(&mut hasher);
        let name = format!(".{:016x}.sock", hasher.finish());
        let temporary = folder.join(&name);
        whole_file::remove(&temporary)?;
        let opened = reach::open(folder)?;
        bind_privately(&descriptor, &reach::path_of(&opened).join(&name))?;
        fs::rename(&temporary, path).inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    }
    Ok(descriptor)
}

fn bind_privately(descriptor: &OwnedFd, path: &Path) -> io::Result<()> {
    let address = UnixAddr::new(path)?;
    let previous = umask(Mode::from_bits_truncate(0o777) - SOCKET_MODE);
    let bound = bind(descriptor.as_raw_fd(), &address);
    umask(previous);
    Ok(bound?)
}
