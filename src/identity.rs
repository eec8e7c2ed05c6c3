//! Telling a file from a later one of its name.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

/// One file, whatever its name is and whatever is written into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
    /// The number of a file that is gone is soon another one's. Not all file systems know this.
    born: Option<SystemTime>,
}

impl Identity {
    /// Of the file whose metadata these are.
    pub fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino(), born: metadata.created().ok() }
    }

    /// Of what lies at a path; a link counts as itself.
    pub fn at(path: &Path) -> io::Result<Self> {
        fs::symlink_metadata(path).map(|metadata| Self::of(&metadata))
    }

    /// Removes the file at its path, unless another one has taken that.
    pub fn remove_from(self, path: &Path) {
        if Self::at(path).is_ok_and(|now| now == self) {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_stays_the_same_when_it_is_written_and_is_another_when_it_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "one").unwrap();
        let first = Identity::at(&path).unwrap();
        fs::write(&path, "two").unwrap();
        assert_eq!(Identity::at(&path).unwrap(), first);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "two").unwrap();
        assert_ne!(Identity::at(&path).unwrap(), first);
        first.remove_from(&path);
        assert!(path.exists());
        Identity::at(&path).unwrap().remove_from(&path);
        assert!(!path.exists());
    }
}
