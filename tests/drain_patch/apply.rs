//! `apply` in a BOSH root: what is replaced, what is left alone, and what is said of it.

use super::root::{Root, original};
use super::*;

#[test]
fn every_original_is_replaced_once_and_kept_with_mode_and_owner() {
    let root = Root::with_all();
    let owner = if is_root() { Some(1234) } else { None };
    for patch in CATALOGUE {
        std::os::unix::fs::chown(root.file(&patch.name()), owner, owner).unwrap();
    }
    let said = root.applied(&["--all"]);
    assert_eq!(said.lines().count(), CATALOGUE.len());
    for patch in CATALOGUE {
        let name = patch.name();
        assert_eq!(fs::read_to_string(root.orig(&name)).unwrap(), original(patch), "{name}");
        for path in [root.file(&name), root.orig(&name)] {
            let metadata = fs::metadata(&path).unwrap();
            assert_eq!(metadata.mode() & 0o7777, 0o750, "{}", path.display());
            if let Some(owner) = owner {
                assert_eq!((metadata.uid(), metadata.gid()), (owner, owner), "{}", path.display());
            }
        }
        if patch.form == Form::Whole {
            let rendered = root.sandbox.run(&["drain-patch", "render", &name]);
            assert_eq!(root.read(&name), text(&rendered.stdout), "{name}");
        }
        assert_eq!(fs::read_dir(root.file(&name).parent().unwrap()).unwrap().count(), 2, "{name}");
    }

    let before = root.state();
    for again in [&["--all"][..], &["--all", "--force"], &["capi/cc_uploader", "garden-runc/garden"]] {
        let said = root.applied(again);
        assert!(said.lines().all(|line| line.ends_with("is as it should be")), "{said}");
        assert_eq!(root.state(), before);
    }
}

#[test]
fn a_script_that_upstream_changed_is_left_alone_unless_forced() {
    for patch in CATALOGUE {
        let root = Root::with(&[]);
        let name = patch.name();
        // What is only told of in a comment is no longer done.
        let changed = format!("#!/bin/sh\n  # no {}\necho 0\n", patch.mechanism.join(" and "));
        root.put(&name, &changed);
        let before = root.state();
        for arguments in [&[name.as_str()][..], &["--all"]] {
            let said = root.refused(1, arguments);
            assert!(said.contains(root.file(&name).to_str().unwrap()), "{said}");
            for text in patch.mechanism {
                assert!(said.contains(&format!("'{text}'")), "{said}");
            }
            assert_eq!(root.state(), before);
        }
        if patch.form == Form::Whole {
            root.applied(&[&name, "--force"]);
            assert!(root.read(&name).contains(&patch.mark()));
            assert_eq!(fs::read_to_string(root.orig(&name)).unwrap(), changed);
        } else {
            // There is nothing that it could edit.
            root.refused(1, &[&name, "--force"]);
            assert_eq!(root.state(), before);
        }
    }
}

#[test]
fn a_script_that_is_refused_does_not_keep_the_others_from_being_replaced() {
    let root = Root::with(&["routing/gorouter", "routing/tcp_router"]);
    root.put("routing/gorouter", "#!/bin/sh\necho 0\n");
    let output = root.apply(&["--all"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr).lines().count(), 1);
    assert!(text(&output.stdout).starts_with("routing/tcp_router: "));
    assert_eq!(root.read("routing/gorouter"), "#!/bin/sh\necho 0\n");
    assert!(root.read("routing/tcp_router").contains("signal_if_running USR2"));
}

#[test]
fn line_ends_of_the_original_are_no_matter() {
    for patch in CATALOGUE {
        let name = patch.name();
        let original = original(patch);
        for content in [original.replace('\n', "\r\n"), original.trim_end().to_owned()] {
            let root = Root::with(&[]);
            root.put(&name, &content);
            root.applied(&[&name]);
            assert_eq!(fs::read_to_string(root.orig(&name)).unwrap(), content, "{name}");
        }
    }
}

#[test]
fn other_settings_and_other_roots_bring_a_replacement_up_to_date() {
    let root = Root::with(&["haproxy/haproxy", "capi/cc_uploader"]);
    root.applied(&["--all"]);
    // Each takes what is its own.
    let set = ["--set", "drain_timeout=7", "--set", "cc_uploader_drain_timeout_in_minutes=1"];
    let said = root.applied(&[&["--all", "--target-root", "/elsewhere"], &set[..]].concat());
    assert_eq!(said.matches("brought up to date").count(), 2, "{said}");
    assert!(root.read("haproxy/haproxy").contains("\ndrain_timeout=7\n"));
    assert!(root.read("capi/cc_uploader").contains("\ndrain_timeout_in_minutes=1\n"));
    assert!(root.read("capi/cc_uploader").contains("'/elsewhere'"));
    let patch = find("haproxy/haproxy").unwrap();
    assert_eq!(fs::read_to_string(root.orig("haproxy/haproxy")).unwrap(), original(patch));

    // A new version of the original is the original from then on.
    let newer = original(patch) + "# newer\n";
    root.put("haproxy/haproxy", &newer);
    root.applied(&["haproxy/haproxy"]);
    assert_eq!(fs::read_to_string(root.orig("haproxy/haproxy")).unwrap(), newer);
}

#[test]
fn a_wrong_setting_is_wrong_usage_and_changes_nothing() {
    let root = Root::with_all();
    let before = root.state();
    for arguments in [
        &["--all", "--set", "nosuch=1"][..],
        &["--all", "--set", "drain_timeout=x"],
        &["routing/gorouter", "--set", "drain_timeout=1"],
    ] {
        root.refused(2, arguments);
        assert_eq!(root.state(), before);
    }
}

#[test]
fn a_dry_run_says_what_would_be_done_and_does_nothing() {
    let root = Root::with_all();
    let before = root.state();
    let said = root.applied(&["--all", "--dry-run"]);
    assert_eq!(said.matches(" would be replaced").count(), CATALOGUE.len(), "{said}");
    assert_eq!(root.state(), before);
    root.put("routing/gorouter", "echo 0\n");
    root.refused(1, &["routing/gorouter", "--dry-run"]);
}

#[test]
fn what_is_not_there_is_an_error_when_named_and_passed_over_otherwise() {
    let root = Root::with(&["routing/gorouter"]);
    let said = root.refused(1, &["routing/tcp_router"]);
    let file = root.file("routing/tcp_router");
    assert_eq!(
        said,
        format!("container-run: cannot replace {}: No such file or directory (os error 2)", file.display())
    );
    assert_eq!(root.applied(&["--all"]).lines().count(), 1);
    let nowhere = root.sandbox.path("nowhere");
    let said = root.refused(1, &["--all", "--root", nowhere.to_str().unwrap()]);
    assert!(said.starts_with(&format!("container-run: cannot read {}/jobs: ", nowhere.display())), "{said}");
    // A folder in its place.
    fs::remove_file(root.file("routing/gorouter")).unwrap();
    fs::create_dir(root.file("routing/gorouter")).unwrap();
    let said = root.refused(1, &["routing/gorouter"]);
    assert!(said.ends_with("it is not a file"), "{said}");
}

#[test]
fn a_folder_that_cannot_be_written_is_named_and_nothing_is_half_written() {
    let root = Root::with(&["routing/gorouter"]);
    let as_nobody = ["setpriv", "--reuid=65534", "--clear-groups", BINARY];
    if !is_root() || !is_permitted(&[&as_nobody[..], &["--version"]].concat()) {
        return skip("becoming another user is not permitted");
    }
    for folder in [root.sandbox.root().to_owned(), root.sandbox.path("jobs")] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(root.file("routing/gorouter"), fs::Permissions::from_mode(0o755)).unwrap();
    let before = root.state();
    let output = root
        .sandbox
        .program(as_nobody[0])
        .args(&as_nobody[1..])
        .args(["drain-patch", "apply", "routing/gorouter"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let orig = root.orig("routing/gorouter");
    let expected = format!("container-run: cannot write {}: Permission denied (os error 13)", orig.display());
    assert_eq!(complaint(&output), expected);
    assert_eq!(root.state(), before);
}

#[test]
fn a_replacement_that_cannot_be_written_leaves_no_copy_of_the_original_behind() {
    let root = Root::with(&["routing/gorouter"]);
    let file = root.file("routing/gorouter");
    let in_the_way = PathBuf::from(format!("{}~", file.display()));
    fs::create_dir(&in_the_way).unwrap();
    let before = root.state();
    let said = root.refused(1, &["routing/gorouter"]);
    assert!(said.starts_with(&format!("container-run: cannot write {}: ", file.display())), "{said}");
    assert_eq!(root.state(), before);
}

#[test]
fn containers_that_start_together_may_all_replace_the_same_file() {
    let root = Root::with(&["routing/gorouter"]);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| root.applied(&["--all"]));
        }
    });
    let original = original(find("routing/gorouter").unwrap());
    assert_eq!(fs::read_to_string(root.orig("routing/gorouter")).unwrap(), original);
    assert_eq!(fs::read_dir(root.file("routing/gorouter").parent().unwrap()).unwrap().count(), 2);
}

#[test]
fn planted_links_are_replaced_and_what_they_point_at_is_untouched() {
    let root = Root::with(&["routing/gorouter"]);
    let victim = root.sandbox.path("victim");
    fs::write(&victim, "precious").unwrap();
    let file = root.file("routing/gorouter");
    for ending in ["~", ".orig", ".orig~"] {
        symlink(&victim, format!("{}{ending}", file.display())).unwrap();
    }
    root.applied(&["routing/gorouter"]);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert!(fs::symlink_metadata(root.orig("routing/gorouter")).unwrap().is_file());
}

#[test]
fn tini_gets_its_s_before_its_other_arguments_whatever_the_layout() {
    let head = "processes:\n- name: garden\n  executable: /p/tini/bin/tini\n";
    let quoted = "processes:\n  - executable: \"/p/bin/tini\"\n    name: garden\n";
    for (before, after) in [
        (format!("{head}  args:\n  - --\n  - /x\n"), format!("{head}  args:\n  - -s\n  - --\n  - /x\n")),
        (format!("{quoted}    args:\n      - --\n"), format!("{quoted}    args:\n      - -s\n      - --\n")),
        (format!("{head}  args:\n\n  # x\n  - --"), format!("{head}  args:\n\n  # x\n  - -s\n  - --")),
        (format!("{head}  args: [--, /x]\n"), format!("{head}  args: [-s, --, /x]\n")),
        (format!("{head}  args: [ \"--\" ]"), format!("{head}  args: [-s,  \"--\" ]")),
        (
            format!("{head}  env: {{}}\n  args:\n  - --\n"),
            format!("{head}  env: {{}}\n  args:\n  - -s\n  - --\n"),
        ),
    ] {
        for (before, after) in
            [(before.clone(), after.clone()), (before.replace('\n', "\r\n"), after.replace('\n', "\r\n"))]
        {
            let root = Root::with(&[]);
            root.put("garden-runc/garden", &before);
            root.applied(&["garden-runc/garden"]);
            assert_eq!(root.read("garden-runc/garden"), after);
            assert!(root.applied(&["garden-runc/garden"]).ends_with("is as it should be\n"));
        }
    }
}

#[test]
fn tini_that_has_its_s_is_left_alone_and_without_tinis_arguments_nothing_is_edited() {
    let root = Root::with(&[]);
    let head = "processes:\n- name: garden\n  executable: /p/tini\n";
    for args in
        ["  args:\n  - -s\n  - --\n", "  args:\n  - \"-s\"\n", "  args: [-s, --]\n", "  args: [ '-s' ]\n"]
    {
        root.put("garden-runc/garden", &format!("{head}{args}"));
        let said = root.applied(&["garden-runc/garden"]);
        assert!(said.ends_with("is as it should be\n"), "{args}: {said}");
        assert!(!root.orig("garden-runc/garden").exists());
    }
    for content in [
        format!("{head}- name: other\n  executable: /x\n  args:\n  - --\n"),
        "processes:\n- name: garden\n  executable: /p/tini-wrapper\n  args:\n  - --\n".to_owned(),
        head.to_owned(),
    ] {
        root.put("garden-runc/garden", &content);
        let said = root.refused(1, &["garden-runc/garden"]);
        assert!(said.contains("looked for a process whose executable is tini, and for its args"), "{said}");
        assert_eq!(root.read("garden-runc/garden"), content);
    }
}
