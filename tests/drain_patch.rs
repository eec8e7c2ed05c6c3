//! `container-run drain-patch`: the catalogue and what goes with it, rendering, and the wrong uses.
//! What the replacements do is bats's to say.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;
use common::*;

#[path = "drain_patch/apply.rs"]
mod apply;
#[path = "drain_patch/pre_render.rs"]
mod pre_render;
#[path = "drain_patch/root.rs"]
mod root;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use container_run::drain::patch::catalogue::{CATALOGUE, Form, Patch, Property, Source};
use container_run::drain::patch::find;

const DOCS: &str = include_str!("../docs/drain-patches.md");

fn drain_patch(arguments: &[&str]) -> Output {
    Sandbox::new().run(&[&["drain-patch"], arguments].concat())
}

/// What it prints when all is well.
#[track_caller]
fn printed(arguments: &[&str]) -> String {
    let output = drain_patch(arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// The one line that it says when it fails with this code.
#[track_caller]
fn refused(code: i32, arguments: &[&str]) -> String {
    let output = drain_patch(arguments);
    assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    complaint(&output)
}

/// Every script that can be printed for a patch.
fn scripts(patch: &Patch) -> [String; 2] {
    [printed(&["render", &patch.name()]), printed(&["pre-render", &patch.name()])]
}

/// What a program says of a script on its stdin; empty if it is content.
fn verdict(program: &str, arguments: &[&str], script: &str) -> String {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    if output.status.success() { String::new() } else { format!("{program} ({}): {said}", output.status) }
}

#[test]
fn list_templates_and_docs_agree() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/drain");
    let mut templates = BTreeSet::new();
    for release in fs::read_dir(&folder).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
        for template in fs::read_dir(release.path()).unwrap().flatten() {
            let path = template.path();
            let name = path.strip_prefix(&folder).unwrap().to_str().unwrap();
            templates.insert(name.strip_suffix(".sh").unwrap().to_owned());
        }
    }
    let list = printed(&["list"]);
    let listed: Vec<&str> = list.lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(listed.len(), CATALOGUE.len());
    let names: BTreeSet<String> =
        listed.iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(names.len(), listed.len(), "a name is there twice");
    assert_eq!(names, templates);

    let table = DOCS.lines().filter(|line| line.starts_with("| ") && line.contains('/')).skip(1);
    let rows: Vec<Vec<&str>> =
        table.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect();
    assert_eq!(rows.len(), CATALOGUE.len());
    for (patch, row) in CATALOGUE.iter().zip(rows) {
        let set = patch.properties.iter().map(|property| format!("{} ({})", property.name, property.default));
        let set = set.collect::<Vec<_>>().join(", ");
        let set = if set.is_empty() { "none" } else { &set };
        assert_eq!(row[..4], [&patch.name(), patch.file, patch.upstream, set]);
    }
}

#[test]
fn list_says_of_each_what_it_replaces_why_and_what_can_be_set() {
    let list = printed(&["list"]);
    for patch in CATALOGUE {
        let entry = list.split(&format!("{}  ", patch.name())).nth(1).unwrap();
        assert!(entry.starts_with(&format!("jobs/{}/{}", patch.job, patch.file)), "{entry}");
        let entry: Vec<&str> = entry.lines().skip(1).take_while(|line| line.starts_with("    ")).collect();
        assert!(entry[0].contains(patch.replaces) && entry[1].contains(patch.why), "{entry:?}");
        assert_eq!(entry.len(), 2 + patch.properties.len());
        for (line, property) in entry[2..].iter().zip(patch.properties) {
            assert!(line.contains(&format!("--set {}={} ", property.name, property.default)), "{line}");
            // The short name is the last part of the full one.
            let full = property.source.to_string();
            assert!(line.contains(&full), "{line}");
            if !full.contains(' ') {
                assert_eq!(full.rsplit('.').next().unwrap(), property.name);
            }
        }
    }
}

#[test]
fn every_script_is_marked_whole_and_to_shellchecks_liking() {
    for patch in CATALOGUE {
        for script in scripts(patch) {
            assert!(script.starts_with("#!/bin/sh\n# Generated by container-run drain-patch"), "{script}");
            assert!(script.contains(&patch.mark()) && script.ends_with('\n') && !script.ends_with("\n\n"));
            for mark in ["@{", "}@", "@%", "%@", "@#", "#@"] {
                assert!(!script.contains(mark), "{}: {mark}", patch.name());
            }
            assert_eq!(verdict("sh", &["-n"], &script), "", "{}", patch.name());
            if is_permitted(&["shellcheck", "--version"]) {
                assert_eq!(verdict("shellcheck", &["-s", "sh", "-"], &script), "", "{}", patch.name());
            }
        }
    }
}

#[test]
fn the_erb_form_is_the_plain_one_with_properties() {
    for patch in CATALOGUE {
        let plain = printed(&["render", &patch.name()]);
        let erb = printed(&["render", &patch.name(), "--erb"]);
        // What erb would take for its own.
        assert!(!plain.contains("<%") || patch.form == Form::Filter, "{}", patch.name());
        assert!(!erb.lines().any(|line| line.starts_with('%')), "{}", patch.name());
        for property in patch.properties {
            let line = erb.lines().find(|line| line.contains("<%=") && line.contains(&last_part(property)));
            assert!(line.is_some(), "{}: {}", patch.name(), property.name);
        }
        let only_in_plain = plain.lines().filter(|line| !erb.contains(line)).count();
        assert!(only_in_plain <= patch.properties.len(), "{}", patch.name());
    }
}

fn last_part(property: &Property) -> String {
    match property.source {
        Source::Property(name) => format!("p(\"{name}\", "),
        Source::Instance(name) => format!("({name} || "),
    }
}

#[test]
fn properties_and_the_target_root_are_written_in() {
    let name = "haproxy/haproxy";
    let script = printed(&[
        "render",
        name,
        "--set",
        "drain_timeout=5",
        "--set",
        "frontends=a'b,c",
        "--target-root",
        "/it's",
    ]);
    for line in
        ["drain_timeout=5", r"frontends='a'\''b,c'", r"root=${BPM_BOSH_ROOT:-'/it'\''s'}", "grace_time=0"]
    {
        assert!(script.lines().any(|found| found == line), "{line}");
    }
    let script = printed(&["render", name, "--erb", "--target-root", "/a<%b"]);
    assert!(script.contains(r"root=${BPM_BOSH_ROOT:-'/a<%%b'}"));
}

#[test]
fn a_wrong_setting_is_wrong_usage() {
    for (patch, set, reason) in [
        ("capi/cloud_controller_ng", "nginx_drain_timeout=soon", "whole number"),
        ("capi/cloud_controller_ng", "nginx_drain_timeout=-1", "whole number"),
        ("capi/cloud_controller_ng", "job_name=x", "no property is called that, but local_worker"),
        ("capi/cloud_controller_ng", "nginx_drain_timeout", "expected NAME=VALUE"),
        ("routing/gorouter", "drain_timeout=1", "nothing can be set here"),
    ] {
        let said = refused(2, &["render", patch, "--set", set]);
        assert!(said.starts_with(&format!("container-run: cannot set \"{set}\": ")), "{said}");
        assert!(said.contains(reason), "{said}");
    }
    refused(2, &["render", "capi/cloud_controller_ng", "--erb", "--set", "nginx_drain_timeout=1"]);
    refused(2, &["apply"]);
    refused(2, &["apply", "--all", "routing/gorouter"]);
    refused(2, &["render"]);
}

#[test]
fn an_unknown_patch_is_answered_with_the_nearest_names() {
    for arguments in [
        &["render", "routing/gorouters"][..],
        &["apply", "routing/gorouters"],
        &["apply", "routing/tcp_router", "routing/gorouters"],
        &["pre-render", "routing/gorouters"],
    ] {
        let said = refused(1, arguments);
        let expected = r#"container-run: cannot find a patch for "routing/gorouters": the nearest are routing/gorouter, "#;
        assert!(said.starts_with(expected), "{said}");
    }
    refused(1, &["render", ""]);
    refused(1, &["render", "../x\ny"]);
}
