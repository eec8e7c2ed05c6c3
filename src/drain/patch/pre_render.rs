//! Scripts in the form of kubecf's `pre_render_scripts`: they patch the sources of a release, before
//! BOSH's templates are rendered.

use anyhow::{Context, Result, bail};
use askama::Template;

use super::catalogue::{Form, Patch};
use crate::shell;

/// The word that ends the replacement inside of the script.
const END: &str = "END_OF_THE_REPLACEMENT";

#[derive(Template)]
#[template(path = "pre-render.sh")]
struct PreRender<'a> {
    release: &'a str,
    job: &'a str,
    upstream: &'a str,
    replaces: &'a str,
    why: &'a str,
    mark: &'a str,
    /// What the original must show, as words of shell.
    mechanism: Vec<String>,
    /// Whether the replacement reads the original and writes what is to be in its place.
    is_filter: bool,
    replacement: &'a str,
    end: &'a str,
}

/// The script that puts `replacement`, the patch's ERB form, in the place of the job's template.
pub fn script(patch: &Patch, replacement: &str) -> Result<String> {
    if replacement.lines().any(|line| line == END) {
        bail!("cannot write the replacement of {} into a script: it holds the line {END}", patch.name());
    }
    let script = PreRender {
        release: patch.release,
        job: patch.job,
        upstream: patch.upstream,
        replaces: patch.replaces,
        why: patch.why,
        mark: &patch.mark(),
        mechanism: patch.mechanism.iter().map(|text| shell::word(text)).collect(),
        is_filter: patch.form == Form::Filter,
        replacement: replacement.trim_end_matches('\n'),
        end: END,
    };
    script.render().map(|text| text + "\n").context("cannot render the pre-render script")
}
