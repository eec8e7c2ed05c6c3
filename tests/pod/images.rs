//! Root file systems in place of images: busybox, the static binary, and a job's scripts.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::manifest::Container;
use crate::common::{copy_program, write_program};

/// What the manifests call their images.
const IMAGES: [&str; 3] = ["container-run", "web", "db"];

pub fn make_folder(path: &Path, mode: u32) {
    fs::create_dir_all(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn write_script(path: &Path, script: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    write_program(path, format!("#!/bin/sh\njournal=/var/vcap/sys/journal\n{script}\n"));
}

/// The binary that runs in any image.
fn static_binary() -> Result<PathBuf, String> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
    let host = format!("{}-unknown-linux-gnu/release/container-run", std::env::consts::ARCH);
    let path = std::env::var_os("CONTAINER_RUN_STATIC").map_or(target.join(host), PathBuf::from);
    path.is_file().then_some(path).ok_or("no static binary: `make build` makes it".to_owned())
}

/// Where an image's root file system lies.
pub fn root_of(images: &Path, image: &str) -> PathBuf {
    let name = image.strip_prefix("example/").and_then(|rest| rest.strip_suffix(":1")).unwrap();
    assert!(IMAGES.contains(&name), "{image}");
    images.join(name)
}

/// Makes all images; `scripts` are programs of jobs and packages, by their paths below the root.
pub fn make(images: &Path, scripts: &[(&str, &str)]) -> Result<(), String> {
    let binary = static_binary()?;
    let busybox = Path::new("/bin/busybox");
    let applets =
        Command::new(busybox).arg("--list").output().map_err(|error| format!("busybox: {error}"))?;
    for root in IMAGES.map(|name| images.join(name)) {
        for folder in ["bin", "proc", "dev", "tmp", "var/vcap", "usr/local/bin", "rendered/jobs"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        copy_program(busybox, root.join("bin/busybox"));
        for applet in String::from_utf8(applets.stdout.clone()).unwrap().lines() {
            if applet != "busybox" {
                symlink("busybox", root.join("bin").join(applet)).unwrap();
            }
        }
    }
    copy_program(binary, images.join("container-run/usr/local/bin/container-run"));
    for (path, script) in scripts {
        // Of the image whose job or package it is.
        let image = path.split('/').find(|part| IMAGES.contains(part)).unwrap();
        write_script(&images.join(image).join(path), script);
    }
    Ok(())
}

/// An OCI configuration like the one that Kubernetes makes of a manifest: own PID and mount
/// namespaces, the pod's network, user 1000 without capabilities, a root that cannot be written.
pub fn configuration(container: &Container, id: &str, root: &Path, volumes: &Path) -> String {
    // Plain ASCII: Rust quotes it as JSON does.
    let mounts: String = container
        .mounts
        .iter()
        .map(|mount| {
            let access = if mount.read_only { "ro" } else { "rw" };
            let source = volumes.join(&mount.volume);
            format!(
                r#", {{"destination": {:?}, "type": "bind", "source": {source:?}, "options": ["rbind", "{access}"]}}"#,
                mount.path
            )
        })
        .collect();
    format!(
        r#"{{
  "ociVersion": "1.0.2",
  "process": {{
    "user": {{"uid": 1000, "gid": 1000}},
    "args": {args:?},
    "env": ["PATH=/bin:/usr/local/bin"],
    "cwd": "/",
    "noNewPrivileges": true
  }},
  "root": {{"path": {root:?}, "readonly": true}},
  "hostname": "pod-0",
  "mounts": [
    {{"destination": "/proc", "type": "proc", "source": "proc"}},
    {{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64k"]}}{mounts}
  ],
  "linux": {{
    "namespaces": [{{"type": "pid"}}, {{"type": "mount"}}, {{"type": "ipc"}}, {{"type": "uts"}}],
    "cgroupsPath": "/{id}"
  }}
}}"#,
        args = container.command,
    )
}
