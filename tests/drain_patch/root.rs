//! A BOSH root with scripts that can be replaced.

use super::*;

/// A script to the mechanism of upstream's.
pub fn original(patch: &Patch) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("bats/fixtures/drain/originals");
    fs::read_to_string(folder.join(patch.name())).unwrap()
}

/// A BOSH root with the originals of some jobs.
pub struct Root {
    pub sandbox: Sandbox,
}

impl Root {
    pub fn with(patches: &[&str]) -> Self {
        let root = Self { sandbox: Sandbox::new() };
        for name in patches {
            root.put(name, &original(find(name).unwrap()));
        }
        root
    }

    pub fn with_all() -> Self {
        let names: Vec<String> = CATALOGUE.iter().map(Patch::name).collect();
        Self::with(&names.iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub fn file(&self, name: &str) -> PathBuf {
        let patch = find(name).unwrap();
        self.sandbox.path("jobs").join(patch.job).join(patch.file)
    }

    pub fn orig(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("{}.orig", self.file(name).display()))
    }

    pub fn put(&self, name: &str, content: &str) {
        let file = self.file(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, content).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o750)).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap()
    }

    pub fn apply(&self, arguments: &[&str]) -> Output {
        self.sandbox.run(&[&["drain-patch", "apply"], arguments].concat())
    }

    /// What it says when all is well.
    #[track_caller]
    pub fn applied(&self, arguments: &[&str]) -> String {
        let output = self.apply(arguments);
        assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    /// The one line that it says when it fails.
    #[track_caller]
    pub fn refused(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.apply(arguments);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        complaint(&output)
    }

    /// Everything below the root, with content, mode and inode: the same if nothing was written.
    pub fn state(&self) -> Vec<(PathBuf, Vec<u8>, u32, u64)> {
        fn visit(folder: &Path, found: &mut Vec<(PathBuf, Vec<u8>, u32, u64)>) {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                let metadata = fs::symlink_metadata(&path).unwrap();
                if metadata.is_dir() {
                    visit(&path, found);
                } else {
                    found.push((path.clone(), fs::read(&path).unwrap(), metadata.mode(), metadata.ino()));
                }
            }
        }
        let mut found = vec![];
        visit(self.sandbox.root(), &mut found);
        found.sort();
        found
    }
}
