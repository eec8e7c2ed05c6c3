//! The licences of what is linked into the binary: each wants its text to go along with it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// What no crate says of itself, since it comes with the toolchain.
const PREFACE: &str = "\
The program container-run holds code of these, besides its own. Of two licences to choose from the
first is taken whose text is given.

- The Rust standard library: MIT OR Apache-2.0, https://github.com/rust-lang/rust
- The GNU C library: LGPL-2.1-or-later, https://sourceware.org/glibc. It can be replaced by building
  container-run anew, whose source is free.
";

/// Where a crate has the text of its licence; the shorter one first.
const FILES: [&str; 5] = ["LICENSE-MIT", "LICENSE-MIT.txt", "LICENSE", "LICENSE.txt", "LICENSE-APACHE"];

/// All of them as one text.
///
/// # Errors
///
/// Cargo cannot tell the dependencies, or one of them has no text.
pub fn collect() -> io::Result<String> {
    let linked = linked()?;
    let metadata: Value = serde_json::from_str(&cargo(&["metadata", "--format-version", "1"])?)?;
    let mut text = PREFACE.to_owned();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let field = |name: &str| package[name].as_str().unwrap_or_default();
        let name = format!("{} v{}", field("name"), field("version"));
        if linked.contains(&name) {
            text.push_str(&format!(
                "\n{:-<100}\n{name}: {}, {}\n\n",
                "",
                field("license"),
                field("repository")
            ));
            text.push_str(licence_of(&name, field("manifest_path"))?.trim());
            text.push('\n');
        }
    }
    Ok(text)
}

/// `NAME vVERSION` of what is in the binary: not of what only builds it, or runs in the compiler.
fn linked() -> io::Result<BTreeSet<String>> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let edges = "normal,no-proc-macro";
    let tree = cargo(&["tree", "--edges", edges, "--target", &target, "--prefix", "none", "--no-dedupe"])?;
    let ours = format!("{} v", env!("CARGO_PKG_NAME"));
    Ok(tree.lines().filter(|line| !line.starts_with(&ours)).map(|line| line.trim().to_owned()).collect())
}

fn cargo(arguments: &[&str]) -> io::Result<String> {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let output = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(arguments)
        .args(["--locked", "--manifest-path", manifest])
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn licence_of(name: &str, manifest: &str) -> io::Result<String> {
    let folder = Path::new(manifest).parent().unwrap_or(Path::new("/"));
    let mut texts = FILES.iter().filter_map(|file| fs::read_to_string(folder.join(file)).ok());
    texts
        .next()
        .ok_or_else(|| io::Error::other(format!("cannot find the licence of {name} in {}", folder.display())))
}
