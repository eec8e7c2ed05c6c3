//! Finding a program, as a shell would, and saying why it cannot be run.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use nix::libc;
use nix::unistd::{AccessFlags, access};

/// Exit code when the program is not there (POSIX, sh: 2.8.2).
pub const NOT_FOUND: u8 = 127;

/// Exit code when it is there but cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;

/// A program that was found, and its arguments; the first is the name it was asked for by.
pub struct Program {
    /// Where it lies.
    pub path: PathBuf,
    /// What it is called with.
    pub arguments: Vec<OsString>,
}

/// Why a program cannot be run: an exit code and one line that names it.
#[derive(Debug)]
pub struct CannotRun {
    /// 127, 126, or 1 if the fault is not the program's.
    pub code: u8,
    reason: String,
}

impl fmt::Display for CannotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl CannotRun {
    fn new(code: u8, name: &OsStr, reason: impl fmt::Display) -> Self {
        let name = name.to_string_lossy();
        Self { code, reason: format!("cannot run {}: {reason}", name.escape_debug()) }
    }

    /// What a failed exec of a program that [`find`] had found means.
    pub fn from_exec(program: &Program, error: &io::Error) -> Self {
        let name = program.path.as_os_str();
        let code = match error.raw_os_error() {
            // Too many processes, too little memory, too few descriptors: not its fault.
            Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE) => 1,
            _ => NOT_EXECUTABLE,
        };
        let reason = match error.raw_os_error() {
            Some(libc::ENOENT) => {
                "its interpreter (the #! line, or the ELF loader) does not exist".to_owned()
            }
            Some(libc::ENOEXEC) => match fs::metadata(&program.path) {
                Ok(file) if file.len() == 0 => "it is an empty file".to_owned(),
                Ok(_) => "it is neither a script with a #! line nor a program for this machine".to_owned(),
                Err(error) => error.to_string(),
            },
            Some(libc::E2BIG) => "its arguments and environment are too long".to_owned(),
            _ => error.to_string(),
        };
        Self::new(code, name, reason)
    }
}

/// Finds `command[0]`: a path if it holds a `/`, else a file on PATH.
pub fn find(command: &[OsString]) -> Result<Program, CannotRun> {
    let Some(name) = command.first() else {
        return Err(CannotRun::new(NOT_FOUND, OsStr::new(""), "no program was named"));
    };
    let found = |path: PathBuf| Program { path, arguments: command.to_vec() };
    if has_slash(name) {
        let path = PathBuf::from(name);
        return check(&path)
            .map(|()| found(path.clone()))
            .map_err(|(code, reason)| CannotRun::new(code, name, reason));
    }
    if name.is_empty() {
        return Err(CannotRun::new(NOT_FOUND, name, "its name is empty"));
    }
    let Some(search) = env::var_os("PATH").filter(|path| !path.is_empty()) else {
        return Err(CannotRun::new(NOT_FOUND, name, "PATH is not set, and the name holds no '/'"));
    };
    // The first that can be run; if there is none, what is wrong with the first file that is there.
    let mut fault = None;
    for folder in env::split_paths(&search) {
        // An empty entry is the current folder, and a path needs a slash to be one.
        let path = if folder.as_os_str().is_empty() { Path::new(".").join(name) } else { folder.join(name) };
        match check(&path) {
            Ok(()) => return Ok(found(path)),
            Err((NOT_FOUND, _)) => {}
            Err(_) if path.is_dir() => {}
            Err((code, reason)) => {
                fault.get_or_insert_with(|| CannotRun::new(code, path.as_os_str(), reason));
            }
        }
    }
    Err(fault.unwrap_or_else(|| CannotRun::new(NOT_FOUND, name, "not found on PATH")))
}

/// Whether there is such a program at all, be it executable or not; a folder is none.
pub fn exists(command: &[OsString]) -> bool {
    let is_folder = |name: &OsString| has_slash(name) && Path::new(name).is_dir();
    match find(command) {
        Ok(_) => true,
        Err(fault) => fault.code != NOT_FOUND && !command.first().is_some_and(is_folder),
    }
}

/// Whether a name is a path, and not to be looked for.
fn has_slash(name: &OsStr) -> bool {
    name.as_bytes().contains(&b'/')
}

fn check(path: &Path) -> Result<(), (u8, String)> {
    let file = fs::metadata(path).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => (NOT_FOUND, "no such file".to_owned()),
        _ => (NOT_EXECUTABLE, error.to_string()),
    })?;
    let kind = file.file_type();
    if file.is_dir() {
        return Err((NOT_EXECUTABLE, "it is a directory".to_owned()));
    }
    if kind.is_socket() || kind.is_fifo() || kind.is_block_device() || kind.is_char_device() {
        return Err((NOT_EXECUTABLE, "it is not a regular file".to_owned()));
    }
    access(path, AccessFlags::X_OK)
        .map_err(|errno| (NOT_EXECUTABLE, format!("it may not be executed: {}", errno.desc())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(name: &str) -> u8 {
        find(&[OsString::from(name)]).err().map_or(0, |error| error.code)
    }

    #[test]
    fn a_name_is_looked_for_on_path_and_a_path_is_taken_as_it_is() {
        assert_eq!(code("sh"), 0);
        assert_eq!(code("/bin/sh"), 0);
        assert_eq!(code("no-such-program-anywhere"), NOT_FOUND);
        assert_eq!(code("/no/such/program"), NOT_FOUND);
        assert_eq!(code("/dev/null/x"), NOT_FOUND);
        assert_eq!(code(""), NOT_FOUND);
        assert_eq!(code("/etc"), NOT_EXECUTABLE);
        assert_eq!(code("/etc/passwd"), NOT_EXECUTABLE);
        assert_eq!(code("/dev/null"), NOT_EXECUTABLE);
    }

    #[test]
    fn a_folder_is_no_program_though_one_that_was_asked_for_by_its_path_is_named() {
        for name in ["/usr/bin", "/usr/bin/"] {
            assert_eq!(code(name), NOT_EXECUTABLE);
            assert!(!exists(&[OsString::from(name)]));
        }
        assert!(exists(&[OsString::from("/etc/passwd")]));
    }

    #[test]
    fn the_name_in_an_error_stays_on_one_line() {
        let error = find(&[OsString::from("/no/such\nprogram")]).err().unwrap().to_string();
        assert_eq!(error, "cannot run /no/such\\nprogram: no such file");
    }
}
