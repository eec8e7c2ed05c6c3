//! Locks that end with the process that holds them, however it ends.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::libc;

use crate::identity::Identity;

/// How often taking a lock begins anew because its file was removed meanwhile. It was by the holder
/// before, once; where this does not suffice the file system does not tell files apart.
const TRIES: usize = 1000;

/// A locked file (flock(2)), which also processes of other containers of the node respect. It is
/// removed when it is let go.
pub struct Lock {
    _file: File,
    path: PathBuf,
    identity: Identity,
}

impl Lock {
    /// Takes the lock, without waiting; `None` if somebody else holds it.
    ///
    /// # Errors
    ///
    /// Something that is no regular file lies there, or the file cannot be made.
    pub fn try_take(path: &Path) -> Result<Option<Self>> {
        let cannot = || format!("cannot lock {}", path.display());
        for _ in 0..TRIES {
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
                Err(fs::TryLockError::WouldBlock) => return Ok(None),
                Err(fs::TryLockError::Error(error)) => return Err(error).with_context(cannot),
            }
            // The holder before us may have removed the file between our open and our lock; then
            // somebody else can lock another file of that name.
            let identity = Identity::of(&metadata);
            if Identity::at(path).is_ok_and(|now| now == identity) {
                return Ok(Some(Self { _file: file, path: path.to_owned(), identity }));
            }
        }
        bail!("{}: the file at this path is another one each time", cannot())
    }

    /// Whether somebody holds the lock now.
    pub fn is_held(path: &Path) -> bool {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = File::options().read(true).custom_flags(flags).open(path);
        // Shared: two that look at the same time do not take each other for a holder.
        file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.identity.remove_from(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_a_lock_and_its_file_goes_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        assert!(!Lock::is_held(&path));
        let lock = Lock::try_take(&path).unwrap().unwrap();
        assert!(Lock::is_held(&path));
        assert!(Lock::try_take(&path).unwrap().is_none());
        // One who looks at the same moment is no holder.
        let left = folder.path().join("left");
        fs::write(&left, "").unwrap();
        let looking = File::open(&left).unwrap();
        looking.try_lock_shared().unwrap();
        assert!(!Lock::is_held(&left));
        drop(lock);
        assert!(!path.exists() && !Lock::is_held(&path));
        assert!(Lock::try_take(&path).unwrap().is_some());
    }

    #[test]
    fn a_left_over_file_is_no_lock_and_a_folder_or_a_link_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        fs::write(&path, "").unwrap();
        assert!(Lock::try_take(&path).unwrap().is_some());
        fs::create_dir(&path).unwrap();
        assert!(Lock::try_take(&path).is_err());
        fs::remove_dir(&path).unwrap();
        std::os::unix::fs::symlink(folder.path().join("victim"), &path).unwrap();
        assert!(Lock::try_take(&path).is_err());
        assert!(!folder.path().join("victim").exists());
    }
}
