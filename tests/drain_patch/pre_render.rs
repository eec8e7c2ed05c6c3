//! The scripts of `pre-render` in the sources of a release.

use super::root::{Root, original};
use super::*;

/// The sources of a release, in which a pre-render script runs.
struct Sources {
    root: Root,
    patch: &'static Patch,
    script: String,
}

impl Sources {
    fn of(patch: &'static Patch) -> Self {
        let root = Root::with(&[]);
        let script = text(&root.sandbox.run(&["drain-patch", "pre-render", &patch.name()]).stdout);
        let sources = Self { root, patch, script };
        fs::create_dir_all(sources.file("").parent().unwrap()).unwrap();
        fs::write(sources.file(""), original(patch)).unwrap();
        fs::set_permissions(sources.file(""), fs::Permissions::from_mode(0o640)).unwrap();
        sources
    }

    fn file(&self, ending: &str) -> PathBuf {
        let templates =
            self.root.sandbox.path("all-releases/jobs-src").join(self.patch.name()).join("templates");
        templates.join(format!("{}{ending}", self.patch.upstream))
    }

    fn read(&self, ending: &str) -> String {
        fs::read_to_string(self.file(ending)).unwrap()
    }

    fn run(&self) -> Output {
        self.root.sandbox.program("sh").args(["-c", &self.script]).output().unwrap()
    }

    #[track_caller]
    fn succeeds(&self) -> String {
        let output = self.run();
        assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
        text(&output.stdout)
    }
}

#[test]
fn a_pre_render_script_patches_the_template_once() {
    for patch in CATALOGUE {
        let sources = Sources::of(patch);
        let name = patch.name();
        let target =
            format!("\ntarget=\"/var/vcap/all-releases/jobs-src/{name}/templates/{}\"\n", patch.upstream);
        assert!(sources.script.contains(&target), "{target}");
        assert!(sources.succeeds().ends_with("is patched\n"));
        match patch.form {
            Form::Whole => {
                let erb = sources.root.sandbox.run(&["drain-patch", "render", &name, "--erb"]);
                assert_eq!(sources.read(""), text(&erb.stdout), "{name}");
            }
            Form::Filter => assert!(sources.read("").contains("args:\n  - -s\n  - --\n"), "{name}"),
        }
        assert_eq!(sources.read(".orig"), original(patch));
        assert_eq!(fs::metadata(sources.file("")).unwrap().mode() & 0o777, 0o640);

        let before = sources.root.state();
        for _ in 0..2 {
            assert!(sources.succeeds().ends_with("is patched already: skipped\n"));
            assert_eq!(sources.root.state(), before, "{name}");
        }
        // Without its sentinel it patches once more, and what is there is no original.
        fs::remove_file(sources.file(".patch_sentinel")).unwrap();
        sources.succeeds();
        let same = |(path, content, ..): &(PathBuf, Vec<u8>, u32, u64)| (path.clone(), content.clone());
        let (now, then): (Vec<_>, Vec<_>) =
            (sources.root.state().iter().map(same).collect(), before.iter().map(same).collect());
        assert_eq!(now, then, "{name}");
        // A new image has the original again, and the sentinel no longer holds.
        fs::write(sources.file(""), original(patch) + "# newer\n").unwrap();
        sources.succeeds();
        assert!(sources.read(".orig").ends_with("# newer\n"), "{name}");
    }
}

#[test]
fn a_pre_render_script_leaves_alone_what_upstream_changed_and_says_what_it_looked_for() {
    for patch in CATALOGUE {
        let sources = Sources::of(patch);
        let changed = format!("#!/bin/sh\n  # no {}\necho 0\n", patch.mechanism.join(" and "));
        fs::write(sources.file(""), &changed).unwrap();
        let before = sources.root.state();
        let output = sources.run();
        assert!(!output.status.success() && output.stdout.is_empty());
        let said = text(&output.stderr);
        assert!(said.starts_with(&format!("cannot patch {}: ", sources.file("").display())), "{said}");
        assert!(said.contains(&format!("looked for '{}'", patch.mechanism[0])), "{said}");
        assert_eq!(sources.root.state(), before);

        fs::remove_file(sources.file("")).unwrap();
        assert!(text(&sources.run().stderr).ends_with("there is no such file\n"));
    }
}
