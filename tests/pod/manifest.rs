//! Reads the manifests of `examples/kubernetes`: as much YAML as they use, and no more. What it
//! does not know it refuses, so that nothing is ever read otherwise than Kubernetes would.

// Two tests use it, neither of them all.
#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};

/// A node of a YAML document.
#[derive(Clone, Debug)]
pub enum Yaml {
    Text(String),
    List(Vec<Yaml>),
    Map(Vec<(String, Yaml)>),
}

impl Yaml {
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Self::Map(entries) = self else { panic!("no map with '{key}': {self:?}") };
        entries.iter().find(|entry| entry.0 == key).map(|entry| &entry.1)
    }

    /// What lies below these keys.
    #[track_caller]
    pub fn at(&self, path: &str) -> &Self {
        path.split('/')
            .fold(self, |node, key| node.get(key).unwrap_or_else(|| panic!("no '{path}': {self:?}")))
    }

    #[track_caller]
    pub fn text(&self) -> &str {
        let Self::Text(text) = self else { panic!("no text: {self:?}") };
        text
    }

    #[track_caller]
    pub fn number(&self) -> u64 {
        self.text().parse().unwrap()
    }

    #[track_caller]
    pub fn list(&self) -> &[Self] {
        let Self::List(items) = self else { panic!("no list: {self:?}") };
        items
    }

    fn words(&self) -> Vec<String> {
        self.list().iter().map(|item| item.text().to_owned()).collect()
    }
}

/// The documents of a file.
pub fn read_yaml(text: &str) -> Vec<Yaml> {
    text.split("\n---\n").map(read_document).collect()
}

type Line = (usize, String);

fn read_document(text: &str) -> Yaml {
    let content = text.lines().filter(|line| !line.trim().is_empty() && !line.trim().starts_with('#'));
    let mut lines: Vec<Line> = content
        .map(|line| {
            assert!(!line.contains(" #") && !line.contains('\t'), "comment behind a value, or a tab: {line}");
            (line.len() - line.trim_start().len(), line.trim().to_owned())
        })
        .rev()
        .collect();
    let node = read_node(&mut lines);
    assert!(lines.is_empty(), "left over: {lines:?}");
    node
}

/// Reads the node that begins at the last line, which is the next one.
fn read_node(lines: &mut Vec<Line>) -> Yaml {
    let indent = lines.last().unwrap().0;
    let (mut items, mut entries): (Vec<Yaml>, Vec<(String, Yaml)>) = (vec![], vec![]);
    while let Some((_, line)) = lines.pop_if(|line| line.0 == indent) {
        if let Some(rest) = line.strip_prefix("- ") {
            lines.push((indent + 2, rest.to_owned()));
            items.push(read_node(lines));
        } else if let Some(key) = line.strip_suffix(':') {
            assert!(lines.last().unwrap().0 > indent, "nothing below: {line}");
            entries.push((key.to_owned(), read_node(lines)));
        } else if let Some((key, value)) = line.split_once(": ") {
            entries.push((key.to_owned(), read_value(value)));
        } else {
            assert!(items.is_empty() && entries.is_empty(), "a lone value: {line}");
            return read_value(&line);
        }
    }
    assert!(items.is_empty() || entries.is_empty(), "list and map: {items:?} {entries:?}");
    assert!(lines.last().is_none_or(|line| line.0 < indent), "indented: {lines:?}");
    if entries.is_empty() { Yaml::List(items) } else { Yaml::Map(entries) }
}

fn read_value(text: &str) -> Yaml {
    if text == "{}" {
        return Yaml::Map(vec![]);
    }
    if let Some(list) = text.strip_prefix('[') {
        let list = list.strip_suffix(']').unwrap();
        return Yaml::List(list.split(", ").map(read_value).collect());
    }
    if let Some(quoted) = text.strip_prefix('"') {
        let inner = quoted.strip_suffix('"').unwrap();
        assert!(!inner.contains(['"', '\\']), "an escape: {text}");
        return Yaml::Text(inner.to_owned());
    }
    assert!(!text.starts_with(['&', '*', '!', '|', '>', '\'', '%', '@', '`', '{']), "not understood: {text}");
    assert!(!text.contains([',', '[', ']']), "not understood: {text}");
    Yaml::Text(text.to_owned())
}

/// A volume in a container.
#[derive(Clone, Debug, PartialEq)]
pub struct Mount {
    pub volume: String,
    pub path: String,
    pub read_only: bool,
}

/// What Kubernetes is told of one container.
#[derive(Clone, Debug)]
pub struct Container {
    pub name: String,
    pub image: String,
    /// `command` and `args`.
    pub command: Vec<String>,
    pub hook: Option<Vec<String>>,
    pub liveness: Option<Vec<String>>,
    pub readiness: Option<Vec<String>>,
    pub mounts: Vec<Mount>,
}

impl Container {
    fn read(yaml: &Yaml) -> Self {
        let words = |key| yaml.get(key).map(Yaml::words).unwrap_or_default();
        let probe = |key| yaml.get(key).map(|probe| probe.at("exec/command").words());
        let mount = |mount: &Yaml| Mount {
            volume: mount.at("name").text().to_owned(),
            path: mount.at("mountPath").text().to_owned(),
            read_only: mount.get("readOnly").is_some_and(|value| value.text() == "true"),
        };
        Self {
            name: yaml.at("name").text().to_owned(),
            image: yaml.at("image").text().to_owned(),
            command: [words("command"), words("args")].concat(),
            hook: yaml.get("lifecycle").map(|hooks| hooks.at("preStop/exec/command").words()),
            liveness: probe("livenessProbe"),
            readiness: probe("readinessProbe"),
            mounts: yaml.at("volumeMounts").list().iter().map(mount).collect(),
        }
    }

    /// The value of one of container-run's options.
    pub fn option(&self, name: &str) -> Option<&str> {
        let own = self.command.split(|word| word == "--").next().unwrap();
        own.windows(2).find(|pair| pair[0] == name).map(|pair| pair[1].as_str())
    }

    pub fn job(&self) -> &str {
        self.option("--job-name").unwrap()
    }

    pub fn process(&self) -> &str {
        self.option("--process-name").unwrap()
    }
}

/// A StatefulSet.
#[derive(Clone, Debug)]
pub struct StatefulSet {
    /// Its file's text.
    pub text: String,
    pub pod: Yaml,
    pub init_containers: Vec<Container>,
    pub containers: Vec<Container>,
    pub grace: u64,
    /// Names, those of claims included.
    pub volumes: Vec<String>,
}

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/kubernetes")
}

/// The example of that name.
pub fn example(name: &str) -> StatefulSet {
    let text = fs::read_to_string(folder().join(name).with_extension("yaml")).unwrap();
    let documents = read_yaml(&text);
    let set = documents.iter().find(|document| document.at("kind").text() == "StatefulSet").unwrap();
    let pod = set.at("spec/template/spec").clone();
    let containers = |key| pod.at(key).list().iter().map(Container::read).collect();
    let volumes = pod.at("volumes").list().iter().map(|volume| volume.at("name"));
    let claims = set.at("spec/volumeClaimTemplates").list().iter().map(|claim| claim.at("metadata/name"));
    StatefulSet {
        init_containers: containers("initContainers"),
        containers: containers("containers"),
        grace: pod.at("terminationGracePeriodSeconds").number(),
        volumes: volumes.chain(claims).map(|name| name.text().to_owned()).collect(),
        text,
        pod,
    }
}
