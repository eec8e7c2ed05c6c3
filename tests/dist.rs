//! What `make dist` packs: the same bytes each time, what belongs there, and images built of it.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
#[path = "dist/image.rs"]
mod image;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::*;
use image::{Builder, Running};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A folder with what `make dist` packs, and what came of it.
struct Release {
    folder: tempfile::TempDir,
}

impl Release {
    /// None, said visibly, without a static binary or dpkg-deb.
    fn new() -> Option<Self> {
        Self::packed_with(|_| ())
    }

    /// The same in another environment.
    fn packed_with(change: impl FnOnce(&mut Command)) -> Option<Self> {
        let built = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("target")
            .join(format!("{}-unknown-linux-gnu/release/container-run", std::env::consts::ARCH));
        let binary = std::env::var_os("CONTAINER_RUN_STATIC").map_or(built, PathBuf::from);
        if !binary.is_file() {
            skip("no static binary: `make build` makes it, or CONTAINER_RUN_STATIC names it");
            return None;
        }
        if !is_permitted(&["dpkg-deb", "--version"]) {
            return None;
        }
        let release = Self { folder: tempfile::tempdir().unwrap() };
        let packed = release.path("container-run");
        copy_program(binary, &packed);
        let manual = Path::new(BINARY).parent().unwrap().join("examples/manual");
        succeed(Command::new(manual).arg(release.documents()));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/dist");
        let mut command = Command::new(script);
        command.arg(packed).arg(release.documents()).arg(release.path("dist"));
        change(&mut command);
        succeed(&mut command);
        Some(release)
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    fn documents(&self) -> PathBuf {
        self.path("manual")
    }

    /// The content of each file in dist/ by its name.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(self.path("dist")).unwrap().flatten();
        entries
            .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
            .collect()
    }

    /// The one whose name ends so.
    fn file(&self, suffix: &str) -> PathBuf {
        let names: Vec<String> = self.files().into_keys().filter(|name| name.ends_with(suffix)).collect();
        assert_eq!(names.len(), 1, "{names:?}");
        self.path("dist").join(&names[0])
    }

    /// Unpacks the tarball as README says.
    fn unpack_tarball(&self) -> PathBuf {
        let prefix = self.path("prefix");
        fs::create_dir(&prefix).unwrap();
        let tarball = self.file(".tar.gz");
        succeed(
            Command::new("tar").arg("-xzf").arg(tarball).arg("-C").arg(&prefix).arg("--strip-components=1"),
        );
        prefix
    }
}

/// Runs a command that must succeed; what it prints.
#[track_caller]
fn succeed(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", text(&done.stderr));
    text(&done.stdout)
}

/// `container-run`, `container-run-send` … `container-run-drain-patch-list` …
fn pages() -> Vec<String> {
    fn visit(command: &clap::Command, name: String, names: &mut Vec<String>) {
        for subcommand in command.get_subcommands().filter(|command| command.get_name() != "help") {
            visit(subcommand, format!("{name}-{}", subcommand.get_name()), names);
        }
        names.push(name);
    }
    let mut names = vec![];
    visit(&container_run::cli::documentation(), "container-run".to_owned(), &mut names);
    assert!(names.len() > 6);
    names
}

/// Paths that end with /, and a file's `mode owner` before its path, of a listing by tar or dpkg-deb.
#[track_caller]
fn assert_is_listed(listing: &str, mode: &str, path: &str) {
    let found = listing.lines().find(|line| line.split_whitespace().last() == Some(path));
    let line = found.unwrap_or_else(|| panic!("no {path} in\n{listing}"));
    assert!(line.starts_with(mode), "{line}");
}

#[test]
fn given_two_surroundings_when_packed_then_the_files_are_the_same_to_the_byte() {
    let Some(first) = Release::new() else { return };
    let other = |command: &mut Command| {
        command
            .env("TZ", "Asia/Tokyo")
            .env("LC_ALL", "C.UTF-8")
            .env("TAR_OPTIONS", "--owner=7")
            .current_dir("/");
    };
    let Some(second) = Release::packed_with(other) else { return };
    let (first, second) = (first.files(), second.files());
    assert_eq!(first.len(), 3, "{:?}", first.keys());
    for (name, content) in &first {
        assert!(second.get(name) == Some(content), "{name} differs");
    }
    assert_eq!(first.len(), second.len());
}

#[test]
fn given_another_time_of_the_source_when_packed_then_the_files_differ() {
    let Some(first) = Release::packed_with(|command| {
        command.env("SOURCE_DATE_EPOCH", "1");
    }) else {
        return;
    };
    let Some(second) = Release::packed_with(|command| {
        command.env("SOURCE_DATE_EPOCH", "2");
    }) else {
        return;
    };
    let (first, second) = (first.files(), second.files());
    assert!(first.iter().all(|(name, content)| second[name] != *content));
}

#[test]
fn given_files_of_another_version_when_packed_then_they_are_gone() {
    let plant = |command: &mut Command| {
        let out = PathBuf::from(command.get_args().last().unwrap());
        fs::create_dir(&out).unwrap();
        fs::write(out.join("container-run_0.1.0_amd64.deb"), "").unwrap();
        fs::write(out.join("notes"), "").unwrap();
    };
    let Some(release) = Release::packed_with(plant) else { return };
    let files = release.files();
    assert!(files.contains_key("notes") && files.len() == 4, "{:?}", files.keys());
}

#[test]
fn given_the_checksums_then_they_hold_for_all_other_files() {
    let Some(release) = Release::new() else { return };
    let check = ["--check", "--strict", "SHA256SUMS"];
    let checked = succeed(Command::new("sha256sum").args(check).current_dir(release.path("dist")));
    assert_eq!(checked.lines().count(), release.files().len() - 1, "{checked}");
}

#[test]
fn given_something_that_is_no_binary_of_ours_when_packed_then_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/dist");
    let done = Command::new(&script).arg(&script).args([folder.path(), folder.path()]).output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains("neither x86_64 nor aarch64"), "{done:?}");
}

#[test]
fn given_the_tarball_then_it_has_binary_pages_completions_and_licence_and_all_is_roots() {
    let Some(release) = Release::new() else { return };
    let tarball = release.file(".tar.gz");
    let top = format!("container-run-{VERSION}-{}-linux", std::env::consts::ARCH);
    assert_eq!(tarball.file_name().unwrap().to_str(), Some(format!("{top}.tar.gz").as_str()));
    let listing = succeed(Command::new("tar").arg("-tvzf").arg(tarball));
    assert_is_listed(&listing, "-rwxr-xr-x 0/0", &format!("{top}/bin/container-run"));
    for page in pages() {
        assert_is_listed(&listing, "-rw-r--r-- 0/0", &format!("{top}/share/man/man1/{page}.1"));
    }
    for file in [
        "bash-completion/completions/container-run",
        "zsh/site-functions/_container-run",
        "fish/vendor_completions.d/container-run.fish",
        "doc/container-run/LICENSE",
        "doc/container-run/THIRD-PARTY",
        "doc/container-run/README.md",
    ] {
        assert_is_listed(&listing, "-rw-r--r-- 0/0", &format!("{top}/share/{file}"));
    }
    let unpacked = release.unpack_tarball();
    let licences = fs::read_to_string(unpacked.join("share/doc/container-run/THIRD-PARTY")).unwrap();
    for linked in ["clap_builder v", "libc v", "GNU C library", "Permission is hereby granted"] {
        assert!(licences.contains(linked), "no {linked}");
    }
    for other in ["serde_json v", "proptest v", "syn v"] {
        assert!(!licences.contains(other), "{other} is not linked");
    }
    let version = succeed(Command::new(unpacked.join("bin/container-run")).arg("--version"));
    assert_eq!(version, format!("container-run {VERSION}\n"));
}

#[test]
fn given_the_debian_package_then_its_files_lie_where_debian_wants_them() {
    let Some(release) = Release::new() else { return };
    let package = release.file(".deb");
    let listing = succeed(Command::new("dpkg-deb").arg("-c").arg(&package));
    assert_is_listed(&listing, "-rwxr-xr-x root/root", "./usr/bin/container-run");
    for page in pages() {
        assert_is_listed(&listing, "-rw-r--r-- root/root", &format!("./usr/share/man/man1/{page}.1.gz"));
    }
    for file in [
        "bash-completion/completions/container-run",
        "zsh/vendor-completions/_container-run",
        "fish/vendor_completions.d/container-run.fish",
        "doc/container-run/copyright",
        "doc/container-run/THIRD-PARTY",
        "doc/container-run/changelog.gz",
    ] {
        assert_is_listed(&listing, "-rw-r--r-- root/root", &format!("./usr/share/{file}"));
    }
    let field = |name: &str| succeed(Command::new("dpkg-deb").arg("-f").arg(&package).arg(name));
    assert_eq!(field("Package"), "container-run\n");
    assert_eq!(field("Version"), format!("{VERSION}\n"));
    let name = format!("container-run_{VERSION}_{}.deb", field("Architecture").trim_end());
    assert_eq!(package.file_name().unwrap().to_str(), Some(name.as_str()));
}

#[test]
fn given_the_debian_package_when_unpacked_then_the_checksums_of_its_files_hold() {
    let Some(release) = Release::new() else { return };
    let root = release.path("root");
    succeed(Command::new("dpkg-deb").arg("-R").arg(release.file(".deb")).arg(&root));
    let checked = succeed(Command::new("md5sum").args(["-c", "DEBIAN/md5sums"]).current_dir(&root));
    let files = succeed(Command::new("find").args(["usr", "-type", "f"]).current_dir(&root));
    assert_eq!(checked.lines().count(), files.lines().count());
}

#[test]
fn given_the_manual_pages_when_formatted_then_there_is_no_warning_and_no_empty_name() {
    let Some(release) = Release::new() else { return };
    if !is_permitted(&["man", "--version"]) {
        return;
    }
    for page in pages() {
        let file = release.documents().join(format!("man1/{page}.1"));
        // Neither adjusted nor hyphenated, so that a line is what was written.
        let mut man = Command::new("man");
        man.args(["--warnings", "-E", "UTF-8", "--nj", "--nh", "-l"]).arg(file);
        man.env("LC_ALL", "C.UTF-8").env("MANWIDTH", "200").env("MANPAGER", "cat").env("GROFF_NO_SGR", "");
        let done = man.output().unwrap();
        assert!(done.status.success() && done.stderr.is_empty(), "{page}: {}", text(&done.stderr));
        let shown = text(&done.stdout);
        for expected in
            [format!("{page} - "), page.to_uppercase(), "SYNOPSIS".to_owned(), "EXAMPLES".to_owned()]
        {
            assert!(shown.contains(&expected), "no '{expected}' in\n{shown}");
        }
    }
}

#[test]
fn given_the_manual_page_of_the_supervisor_then_options_that_short_help_leaves_out_are_explained() {
    let Some(release) = Release::new() else { return };
    let page = fs::read_to_string(release.documents().join("man1/container-run.1")).unwrap();
    for explained in ["Post\\-start program", "Seconds from that signal", "How lines on stderr look"] {
        assert!(
            page.contains(explained) || page.contains(&explained.replace('\\', "")),
            "{explained}\n{page}"
        );
    }
}

#[test]
fn given_the_completions_when_bash_sources_them_then_they_complete_commands_and_options() {
    let Some(release) = Release::new() else { return };
    let completed = |words: &str, index: usize| {
        // As bash does it: calls the function that was registered for the command.
        let script = format!(
            r#"source "$1"
            registered=$(complete -p container-run)
            function=${{registered#*-F }}
            COMP_WORDS=({words}) COMP_CWORD={index}
            "${{function%% *}}" container-run "${{COMP_WORDS[{index}]}}" "${{COMP_WORDS[{index} - 1]}}"
            echo "${{COMPREPLY[@]}}""#
        );
        let file = release.documents().join("bash/container-run");
        succeed(Command::new("bash").args(["--norc", "-euc", &script, "bash"]).arg(file))
    };
    assert_eq!(completed("container-run se", 1), "send\n");
    assert_eq!(completed("container-run sta", 1), "status\n");
    assert_eq!(completed("container-run status --j", 2), "--json\n");
    assert_eq!(completed("container-run --kill", 1), "--kill-after\n");
    assert_eq!(completed("container-run --log-format j", 2), "json\n");
    assert_eq!(completed("container-run send --w", 2), "--wait\n");
    assert_eq!(completed("container-run drain-patch ren", 2), "render\n");
}

#[test]
fn given_the_completions_then_zsh_and_fish_can_read_them() {
    let Some(release) = Release::new() else { return };
    for (shell, option, file) in
        [("zsh", "-n", "zsh/_container-run"), ("fish", "--no-execute", "fish/container-run.fish")]
    {
        if !is_permitted(&[shell, "-c", "true"]) {
            continue;
        }
        let done = Command::new(shell).arg(option).arg(release.documents().join(file)).output().unwrap();
        assert!(done.status.success() && done.stderr.is_empty(), "{shell}: {done:?}");
    }
}

/// Waits until the job runs.
#[track_caller]
fn wait_until_it_runs(running: &Running, container_run: &str) {
    let status = || text(&running.exec(&[container_run, "send", "STATUS", "web"]).stdout);
    wait_until("the job runs", || status().starts_with("running "));
}

#[test]
fn given_the_ubuntu_image_when_it_runs_then_bpm_drives_the_job() {
    let Some(release) = Release::new() else { return };
    let Some(builder) = Builder::new() else { return };
    let image = builder.build(include_str!("../packaging/Dockerfile.ubuntu"), release.folder.path());
    let mut running = builder.start(&image);
    wait_until_it_runs(&running, "container-run");
    let bpm = |words: &[&str]| {
        let done = running.exec(&[&["/var/vcap/jobs/bpm/bin/bpm"], words].concat());
        (done.status.code(), text(&done.stdout))
    };
    assert_eq!(bpm(&["stop", "web"]), (Some(0), String::new()));
    assert_eq!(bpm(&["running", "web"]).0, Some(1));
    assert_eq!(bpm(&["start", "web"]).0, Some(0));
    wait_until_it_runs(&running, "container-run");
    assert_eq!(bpm(&["list"]).1.lines().count(), 2);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn given_the_scratch_image_when_it_runs_then_send_drives_the_job() {
    let Some(release) = Release::new() else { return };
    let Some(builder) = Builder::new() else { return };
    let image = builder.build(include_str!("../packaging/Dockerfile.scratch"), release.folder.path());
    let mut running = builder.start(&image);
    wait_until_it_runs(&running, "/container-run");
    let stopped = running.exec(&["/container-run", "send", "STOP", "web", "--wait", "10"]);
    assert_eq!(text(&stopped.stdout), "stopped - monitored\n", "{stopped:?}");
    assert!(!running.exec(&["/bin/sh", "-c", "true"]).status.success(), "nothing else is there");
    assert_eq!(running.stop(), Some(0));
}
