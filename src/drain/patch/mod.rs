//! Replacements for the drain scripts that signal PIDs of other containers.
//!
//! Each is a template below `templates/drain/`, and an entry of the [`catalogue`]. A template is
//! rendered with its properties filled in, or as an ERB template in which they stay properties
//! ([`values`]); [`apply`] puts the first into a BOSH root, [`pre_render`] the second into the
//! sources of a release. Both first look whether the original is what the replacement stands for.

pub mod apply;
pub mod catalogue;
pub mod pre_render;
pub mod values;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use self::apply::Apply;
use self::catalogue::{CATALOGUE, Patch};
use self::values::{Settings, Values, WrongSetting};
use crate::cli::PatchCommand;
use crate::log;
use crate::nearest;
use crate::paths::{BoshRoot, DEFAULT_ROOT};

/// Exit code of a wrong command line, which a wrong `--set` is a part of.
const WRONG_USAGE: u8 = 2;

/// Carries out `container-run drain-patch`; returns the exit code.
///
/// # Errors
///
/// An unknown RELEASE/JOB, or a file that cannot be read or written. An original that is not
/// what the replacement is for is reported, and gives exit code 1.
pub fn run(command: PatchCommand) -> Result<u8> {
    match carry_out(command) {
        Err(error) if error.is::<WrongSetting>() => {
            log::error(error);
            Ok(WRONG_USAGE)
        }
        done => done,
    }
}

fn carry_out(command: PatchCommand) -> Result<u8> {
    match command {
        PatchCommand::List => print(&list()),
        PatchCommand::Render { patch, set, erb, target_root } => {
            let patch = find(&patch)?;
            let target_root = or_default(target_root);
            let values = if erb {
                Values::erb(patch, &target_root)?
            } else {
                Values::plain(patch, &Settings::parse(&set, &[patch])?, &target_root)?
            };
            print(&patch.render(&values)?)
        }
        PatchCommand::PreRender { patch } => {
            let patch = find(&patch)?;
            let values = Values::erb(patch, Path::new(DEFAULT_ROOT))?;
            print(&pre_render::script(patch, &patch.render(&values)?)?)
        }
        PatchCommand::Apply { patches, all, root, target_root, set, dry_run, force } => {
            let patches = match all {
                true => CATALOGUE.iter().collect(),
                false => patches.iter().map(|name| find(name)).collect::<Result<Vec<_>>>()?,
            };
            let settings = Settings::parse(&set, &patches)?;
            let (root, target_root) = (BoshRoot::resolve(root)?, or_default(target_root));
            Apply { root: &root, target_root: &target_root, settings: &settings, all, dry_run, force }
                .to(&patches)
        }
    }
}

fn or_default(target_root: Option<PathBuf>) -> PathBuf {
    target_root.unwrap_or_else(|| PathBuf::from(DEFAULT_ROOT))
}

fn print(text: &str) -> Result<u8> {
    io::stdout().write_all(text.as_bytes()).context("cannot write to stdout")?;
    Ok(0)
}

/// The patch of that name, RELEASE/JOB.
///
/// # Errors
///
/// There is none; the message has the nearest names.
pub fn find(name: &str) -> Result<&'static Patch> {
    if let Some(patch) = CATALOGUE.iter().find(|patch| patch.name() == name) {
        return Ok(patch);
    }
    let names: Vec<String> = CATALOGUE.iter().map(Patch::name).collect();
    bail!(
        "cannot find a patch for {name:?}: the nearest are {}",
        nearest::names(name, names.iter().map(String::as_str)).join(", ")
    )
}

/// An entry for each patch: RELEASE/JOB and the file that it replaces, then what and why, then
/// what can be set.
fn list() -> String {
    let mut text = String::new();
    for patch in CATALOGUE {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}  jobs/{}/{}  ({})", patch.name(), patch.job, patch.file, patch.upstream);
        let _ = writeln!(text, "    replaces: {}", patch.replaces);
        let _ = writeln!(text, "    why: {}", patch.why);
        for property in patch.properties {
            let (name, default) = (property.name, property.default);
            let _ = writeln!(text, "    --set {name}={default}  ({}, {})", property.kind, property.source);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_patch_is_answered_with_the_nearest_names() {
        for (wrong, right) in [
            ("capi/cloud_controler_ng", "capi/cloud_controller_ng"),
            ("gorouter", "routing/gorouter"),
            ("pxc/pxcmysql", "pxc/pxc-mysql"),
            ("garden/garden", "garden-runc/garden"),
        ] {
            let error = find(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("the nearest are {right}")), "{error}");
        }
    }
}
