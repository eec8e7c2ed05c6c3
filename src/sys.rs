//! The system calls that neither nix nor std offers as safe functions; the only `unsafe` we have.

#![allow(unsafe_code)]

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::errno::Errno;
use nix::libc;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::sys::socket::{SockaddrLike, UnixAddr};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{ForkResult, Pid, Uid, execv, execve, getpid, getppid};

use crate::signal::Signal;

/// Every signal that the kernel has, those included that the C library hides (32 and 33).
pub const ALL_SIGNALS: std::ops::RangeInclusive<i32> = 1..=64;

/// What a signal does to a process that has no handler for it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// What signal(7) says.
    Default = libc::SIG_DFL as isize,
    /// Nothing.
    Ignore = libc::SIG_IGN as isize,
}

/// Sets what `number` does. The C library's own call refuses 32 and 33, whose default kills us
/// like any other's, so this is the kernel's.
pub fn set_disposition(number: i32, disposition: Disposition) -> io::Result<()> {
    // The kernel's struct sigaction begins with the handler; flags, restorer and mask are zero. The
    // mask has 64 bits, two words of a machine with 32.
    let action: [usize; 5] = [disposition as usize, 0, 0, 0, 0];
    const MASK_BYTES: usize = 8;
    // SAFETY: `action` is at least as large as the kernel's struct and outlives the call; a null
    // pointer for the old action is allowed by rt_sigaction(2).
    let result = unsafe {
        libc::syscall(libc::SYS_rt_sigaction, number, action.as_ptr(), std::ptr::null::<usize>(), MASK_BYTES)
    };
    Errno::result(result)?;
    Ok(())
}

/// Sends a signal, real-time ones too, to one process that the caller knows to be its own
/// unreaped child, whose number therefore nobody else can have.
///
/// Numbers that mean a group, everybody, or init are refused, whatever led to them.
pub fn kill(pid: Pid, signal: Signal) -> io::Result<()> {
    if pid.as_raw() <= 1 {
        return Err(Errno::EINVAL.into());
    }
    // SAFETY: kill(2) takes no pointer.
    Errno::result(unsafe { libc::kill(pid.as_raw(), signal.number()) })?;
    Ok(())
}

/// Sends a signal to the process whose folder in `/proc` is open as `folder`: this one and no
/// later one with its number (pidfd_send_signal(2) takes such a folder for a pidfd).
pub fn kill_by_folder(folder: &File, signal: Signal) -> io::Result<()> {
    // SAFETY: a null siginfo is allowed by pidfd_send_signal(2); the descriptor is open.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            folder.as_raw_fd(),
            signal.number(),
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    Errno::result(result)?;
    Ok(())
}

/// Splits this process in two, as fork(2).
///
/// Only for a process with one thread: then the child may go on as if nothing had happened.
pub fn fork() -> io::Result<ForkResult> {
    // SAFETY: the whole program has one thread, so no lock can be held by another one.
    Ok(unsafe { nix::unistd::fork() }?)
}

/// Makes this process die by SIGKILL when its parent does.
///
/// Fails if the parent is not `parent` any more: it died before the kernel knew what to do then.
pub fn die_with(parent: Pid) -> io::Result<()> {
    prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    if getppid() != parent {
        return Err(Errno::ESRCH.into());
    }
    Ok(())
}

/// Reaps one child that has ended; `None` if none has, ECHILD if there is none.
///
/// nix's waitpid reaps a child that a real-time signal killed, and then cannot say which it was.
pub fn wait_any() -> io::Result<Option<(Pid, ExitStatus)>> {
    let mut status = 0;
    // SAFETY: the status is written to a live integer of ours.
    match Errno::result(unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) }) {
        Ok(0) => Ok(None),
        Ok(pid) => Ok(Some((Pid::from_raw(pid), ExitStatus::from_raw(status)))),
        Err(errno) => Err(errno.into()),
    }
}

/// One datagram.
pub struct Received {
    /// How much of the buffer it fills.
    pub length: usize,
    /// Who sent it.
    pub user: Option<Uid>,
    /// Where an answer would go, if the sender bound an address.
    pub address: Option<UnixAddr>,
}

/// Receives one datagram without waiting, from a socket with SO_PASSCRED.
///
/// The control buffer has room for the sender's credentials and nothing else: descriptors that
/// somebody sends along are released by the kernel, and never ours. nix's recvmsg will not show
/// the credentials then, because something was cut off.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    const CREDENTIALS: usize = size_of::<libc::ucred>();
    // SAFETY: all zeros is a valid value of these C structs; a message header without pointers.
    let (mut address, mut message) =
        unsafe { (std::mem::zeroed::<libc::sockaddr_un>(), std::mem::zeroed::<libc::msghdr>()) };
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: computes a number.
    let room = unsafe { libc::CMSG_SPACE(CREDENTIALS as u32) } as usize;
    // 64 bits each, for the alignment of a header.
    let mut control = vec![0u64; room.div_ceil(8)];
    message.msg_name = (&raw mut address).cast();
    message.msg_namelen = size_of_val(&address) as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = room as _;
    // SAFETY: name, part and control live until the end of this function, with the sizes given.
    let length =
        Errno::result(unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_DONTWAIT) })?;
    // SAFETY: the kernel has filled in the header; a first control message, if there is one, lies
    // in `control`, and the credentials are only read if it is as long as they are.
    let user = unsafe {
        libc::CMSG_FIRSTHDR(&message)
            .as_ref()
            .filter(|head| (head.cmsg_level, head.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_CREDENTIALS))
            .filter(|head| head.cmsg_len >= libc::CMSG_LEN(CREDENTIALS as u32) as _)
            .map(|head| libc::CMSG_DATA(head).cast::<libc::ucred>().read_unaligned().uid)
    };
    // One that bound nothing has an empty address, or a family without a name behind it.
    let is_named = message.msg_namelen as usize > size_of::<libc::sa_family_t>();
    // SAFETY: the kernel wrote an address of this length.
    let named = || unsafe { UnixAddr::from_raw((&raw const address).cast(), Some(message.msg_namelen)) };
    let address = if is_named { named() } else { None };
    Ok(Received { length: length as usize, user: user.map(Uid::from_raw), address })
}

/// A program to start, and what is not as with us.
pub struct Spawn<'a> {
    /// Its path; there is no search.
    pub program: &'a Path,
    /// The first is its own name.
    pub arguments: &'a [OsString],
    /// Variables set besides ours, or instead of them.
    pub variables: &'a [(&'a str, OsString)],
    /// Its stdout.
    pub stdout: Stdio,
    /// Its stderr.
    pub stderr: Stdio,
    /// Its umask.
    pub umask: Mode,
}

impl Spawn<'_> {
    /// Starts it in a process group of its own, with every signal at its default and none blocked,
    /// stdin `/dev/null`, and dying with us.
    ///
    /// The error is the kernel's for the exec, or for what came before it. A text without `#!` is
    /// ENOEXEC: the C library's execvp(3) would hand it to `/bin/sh`, so execv(2) is called here.
    pub fn start(self) -> io::Result<Child> {
        let path = text(self.program.as_os_str())?;
        let arguments = self.arguments.iter().map(|part| text(part)).collect::<io::Result<Vec<_>>>()?;
        // Without variables of ours the environment goes as it came, whatever is in it.
        let environment =
            (!self.variables.is_empty()).then(|| environment_with(self.variables)).transpose()?;
        let parent = getpid();
        let mask = self.umask;
        let mut command = Command::new(self.program);
        command.process_group(0).stdin(Stdio::null()).stdout(self.stdout).stderr(self.stderr);
        let become_program = move || {
            die_with(parent)?;
            umask(mask);
            for number in ALL_SIGNALS {
                // KILL and STOP refuse; they are at their default anyway.
                let _ = set_disposition(number, Disposition::Default);
            }
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
            let never = match &environment {
                None => execv(&path, &arguments)?,
                Some(environment) => execve(&path, &arguments, environment)?,
            };
            match never {}
        };
        // SAFETY: the program has one thread, so the child of its fork may do all that it may
        // itself, allocating included.
        unsafe { command.pre_exec(become_program) };
        command.spawn()
    }
}

fn text(part: &OsStr) -> io::Result<CString> {
    Ok(CString::new(part.as_encoded_bytes())?)
}

fn environment_with(variables: &[(&str, OsString)]) -> io::Result<Vec<CString>> {
    let ours = variables.iter().map(|(name, value)| (OsStr::new(name).to_owned(), value.clone()));
    let theirs = std::env::vars_os().filter(|(name, _)| !variables.iter().any(|(ours, _)| name == ours));
    let entry = |(mut entry, value): (OsString, OsString)| {
        entry.push("=");
        entry.push(value);
        text(&entry)
    };
    theirs.chain(ours).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_to_a_group_to_everybody_or_to_init_is_refused() {
        for number in [1, 0, -1, -7] {
            let error = kill(Pid::from_raw(number), Signal::CONT).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{number}");
        }
    }
}
