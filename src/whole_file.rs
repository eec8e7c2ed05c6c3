//! Writing a file so that nobody ever reads half of it, and no planted link is followed.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use crate::identity::Identity;

/// Writes `content` under a temporary name in the same folder (`FILE~`), then renames it.
///
/// The folder is made if it is missing. The mode is exact only if the umask lets it be, which
/// [`crate::run`] sees to. Only for files that nobody else writes at the same time, because a lock
/// keeps them out; a temporary file that a killed writer left is replaced.
///
/// # Errors
///
/// The folder or file cannot be made; the message names it. Nothing half-written is left.
pub fn write(path: &Path, content: &[u8], mode: u32) -> Result<Identity> {
    write_by_way_of(&with_suffix(path, "~"), path, content, mode, |_| Ok(()))
}

/// The same with the mode and the owner of another file.
///
/// # Errors
///
/// As for [`write()`].
pub fn write_like(path: &Path, content: &[u8], metadata: &Metadata) -> Result<Identity> {
    // Nobody else may read it before its mode and its owner are right.
    write_by_way_of(&with_suffix(path, "~"), path, content, 0o600, |file| take_after(file, metadata))
}

/// The same for a file that others may be writing, too: each has a temporary name of its own, and
/// the last one wins, whole.
///
/// # Errors
///
/// As for [`write()`].
pub fn write_shared(path: &Path, content: &[u8], mode: u32) -> Result<Identity> {
    // A PID is not enough: containers that share the folder have PIDs of their own.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let suffix = format!("~{}-{now}", std::process::id());
    write_by_way_of(&with_suffix(path, &suffix), path, content, mode, |_| Ok(()))
}

fn write_by_way_of(
    temporary: &Path,
    path: &Path,
    content: &[u8],
    mode: u32,
    finish: impl FnOnce(&File) -> io::Result<()>,
) -> Result<Identity> {
    if let Some(folder) = path.parent() {
        make_folder(folder)?;
    }
    let write = || {
        let file = fill(temporary, content, mode)?;
        finish(&file)?;
        let identity = Identity::of(&file.metadata()?);
        fs::rename(temporary, path)?;
        Ok(identity)
    };
    write()
        .inspect_err(|_: &io::Error| drop(fs::remove_file(temporary)))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Makes a folder and those above it that are missing, 0755.
pub fn make_folder(folder: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))
}

/// The path of a file whose name is longer by `suffix`.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Removes a name, and nothing that it may point at. One that is gone already is no error.
pub fn remove(path: &Path) -> io::Result<()> {
    use io::ErrorKind::{NotADirectory, NotFound};
    match fs::remove_file(path) {
        Err(error) if !matches!(error.kind(), NotFound | NotADirectory) => Err(error),
        _ => Ok(()),
    }
}

fn fill(temporary: &Path, content: &[u8], mode: u32) -> io::Result<File> {
    remove(temporary)?;
    // `create_new` follows no link, not even one to nowhere.
    let mut file = File::options().write(true).create_new(true).mode(mode).open(temporary)?;
    file.write_all(content)?;
    Ok(file)
}

fn take_after(file: &File, metadata: &Metadata) -> io::Result<()> {
    let made = file.metadata()?;
    if (made.uid(), made.gid()) != (metadata.uid(), metadata.gid()) {
        fchown(file, Some(metadata.uid()), Some(metadata.gid()))?;
    }
    // After the owner: a change of owner takes the set-user-id bit away.
    file.set_permissions(fs::Permissions::from_mode(metadata.mode() & 0o7777))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn missing_folders_are_made_and_an_old_file_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b/file");
        write(&path, b"one", 0o600).unwrap();
        write(&path, b"two", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(root.path().join("a/b")).unwrap().count(), 1);
    }

    #[test]
    fn planted_links_are_replaced_and_what_they_point_at_is_untouched() {
        let root = tempfile::tempdir().unwrap();
        let victim = root.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let path = root.path().join("file");
        symlink(&victim, &path).unwrap();
        symlink(&victim, root.path().join("file~")).unwrap();
        write(&path, b"ours", 0o644).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
    }

    #[test]
    fn a_folder_in_the_way_is_an_error_that_names_it_and_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        fs::create_dir(&path).unwrap();
        let error = format!("{:#}", write(&path, b"x", 0o644).unwrap_err());
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }
}
