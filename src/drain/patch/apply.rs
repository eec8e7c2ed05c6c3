//! Replacing the files of a BOSH root.
//!
//! What is there decides: a file of ours is brought up to date, an original that the replacement
//! is for is kept as `FILE.orig` and replaced, and anything else is left alone, with a message.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::catalogue::{Form, Patch};
use super::values::{Settings, Values};
use crate::log;
use crate::paths::BoshRoot;
use crate::whole_file::{self, with_suffix};

/// How `apply` was asked to go about it.
pub struct Apply<'a> {
    /// Where the jobs lie.
    pub root: &'a BoshRoot,
    /// The BOSH root when the replacements run.
    pub target_root: &'a Path,
    /// Properties.
    pub settings: &'a Settings,
    /// Jobs that are not there are passed over.
    pub all: bool,
    /// Say what would be done, and do nothing.
    pub dry_run: bool,
    /// Replace what is not known to need it.
    pub force: bool,
}

/// What is to be done with one file.
struct Plan {
    path: PathBuf,
    found: Vec<u8>,
    metadata: Metadata,
    /// Whether what was found is upstream's, and not an earlier replacement.
    is_original: bool,
    wanted: Vec<u8>,
}

impl Apply<'_> {
    /// Replaces the files of these jobs, and says on stdout what it did with each.
    ///
    /// A job that fails is reported and does not keep the others from being replaced: they do not
    /// depend on each other, and a second call does what is left. Returns the exit code.
    ///
    /// # Errors
    ///
    /// There are no jobs below the root, or stdout is closed.
    pub fn to(&self, patches: &[&Patch]) -> Result<u8> {
        let jobs = self.root.path().join("jobs");
        fs::read_dir(&jobs).with_context(|| format!("cannot read {}", jobs.display()))?;
        let mut code = 0;
        for patch in patches {
            let path = jobs.join(patch.job).join(patch.file);
            if self.all && is_missing(&path) {
                continue;
            }
            match self.to_file(patch, path) {
                Ok(done) => writeln!(io::stdout(), "{done}").context("cannot write to stdout")?,
                Err(error) => {
                    log::error(format_args!("{error:#}"));
                    code = 1;
                }
            }
        }
        Ok(code)
    }

    fn to_file(&self, patch: &Patch, path: PathBuf) -> Result<String> {
        let cannot = || format!("cannot replace {}", path.display());
        // Containers of one pod may all do this at the same time.
        let lock = File::open(folder_of(&path)).with_context(cannot)?;
        lock.lock().with_context(cannot)?;
        let plan = self.plan(patch, &path).with_context(cannot)?;
        let name = patch.name();
        let (path, orig) = (path.display(), with_suffix(&path, ".orig"));
        Ok(match (plan.found == plan.wanted, plan.is_original) {
            (true, _) => format!("{name}: {path} is as it should be"),
            (false, is_original) => {
                let would = if self.dry_run { "would be " } else { "" };
                if !self.dry_run {
                    plan.carry_out()?;
                }
                match is_original {
                    true => format!("{name}: {path} {would}replaced; the original is {}", orig.display()),
                    false => format!("{name}: {path} {would}brought up to date"),
                }
            }
        })
    }

    fn plan(&self, patch: &Patch, path: &Path) -> Result<Plan> {
        let metadata = fs::metadata(path)?;
        if !metadata.is_file() {
            bail!("it is not a file");
        }
        let found = fs::read(path)?;
        let text = String::from_utf8_lossy(&found);
        let is_original = patch.form == Form::Filter || !is_ours(patch, &text);
        if is_original && !self.force {
            check(patch, &text)?;
        }
        let rendered = patch.render(&Values::plain(patch, self.settings, self.target_root)?)?;
        let wanted = match patch.form {
            Form::Whole => rendered.into_bytes(),
            Form::Filter => filter(&rendered, path)?,
        };
        Ok(Plan { path: path.to_owned(), found, metadata, is_original, wanted })
    }
}

/// Whether there is no such file; one that we may not see is there.
fn is_missing(path: &Path) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    fs::symlink_metadata(path).is_err_and(|error| matches!(error.kind(), NotFound | NotADirectory))
}

fn is_ours(patch: &Patch, text: &str) -> bool {
    text.lines().take(5).any(|line| line == patch.mark())
}

/// Whether the original shows all that the replacement is for. Comments do not count: upstream may
/// tell there what it no longer does.
fn check(patch: &Patch, original: &str) -> Result<()> {
    let shows = |text: &str| {
        original.lines().filter(|line| !line.trim_start().starts_with('#')).any(|line| line.contains(text))
    };
    let Some(missing) = patch.mechanism.iter().find(|text| !shows(text)) else { return Ok(()) };
    let looked_for = patch.mechanism.iter().map(|text| format!("'{text}'")).collect::<Vec<_>>();
    bail!(
        "it is not what this patch is for: looked for {}, found no '{missing}' (--force replaces it all the same)",
        looked_for.join(" and ")
    );
}

/// What the filter makes of the file.
fn filter(script: &str, path: &Path) -> Result<Vec<u8>> {
    let output = Command::new("sh")
        .args(["-c", script])
        .stdin(Stdio::from(File::open(path)?))
        .output()
        .context("cannot run sh")?;
    if !output.status.success() {
        bail!("it is not what this patch is for: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

impl Plan {
    fn carry_out(&self) -> Result<()> {
        let orig = with_suffix(&self.path, ".orig");
        let is_new = !orig.exists();
        if self.is_original {
            whole_file::write_like(&orig, &self.found, &self.metadata)?;
        }
        whole_file::write_like(&self.path, &self.wanted, &self.metadata).inspect_err(|_| {
            // Nothing was replaced, so nothing is to be kept.
            if self.is_original && is_new {
                drop(fs::remove_file(&orig));
            }
        })?;
        Ok(())
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

#[cfg(test)]
mod tests {
    use super::super::catalogue::CATALOGUE;
    use super::super::find;
    use super::*;

    #[test]
    fn the_mechanism_is_looked_for_outside_of_comments() {
        let patch = find("routing/gorouter").unwrap();
        assert!(check(patch, "kill -USR1 $(cat x.pid)\r\n").is_ok());
        let error = check(patch, "  # kill -USR1 $(cat x.pid)\ncurl x.pid; kill").unwrap_err().to_string();
        assert!(error.contains("looked for 'kill' and 'USR1' and '.pid', found no 'USR1'"), "{error}");
    }

    #[test]
    fn a_replacement_is_known_again_and_does_not_pass_for_an_original() {
        for patch in CATALOGUE.iter().filter(|patch| patch.form == Form::Whole) {
            let values = Values::plain(patch, &Settings::default(), Path::new("/r")).unwrap();
            let script = patch.render(&values).unwrap();
            assert!(is_ours(patch, &script), "{}", patch.name());
            let others = CATALOGUE.iter().filter(|other| other.name() != patch.name());
            assert!(others.clone().all(|other| !is_ours(other, &script)), "{}", patch.name());
        }
    }
}
