//! The manifests of `examples/kubernetes`: valid, true to their comments, and in container-run's words.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;
#[path = "pod/manifest.rs"]
mod manifest;

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

use common::*;
use manifest::{Container, StatefulSet, example, folder};

const EXAMPLES: [&str; 2] = ["web", "db"];
const BINARY_IN_POD: &str = "/var/vcap/bin/container-run";
const BPM: &str = "/var/vcap/jobs/bpm/bin/bpm";

/// What `validate` says that cannot install its validator.
const CANNOT_INSTALL: i32 = 75;

/// Runs `examples/kubernetes/validate`; without a network there is nothing to be said.
fn validate(files: &[&str]) -> Option<Output> {
    let output = Command::new(folder().join("validate")).args(files).output().unwrap();
    if output.status.code() == Some(CANNOT_INSTALL) {
        skip(text(&output.stderr).trim_end());
        return None;
    }
    Some(output)
}

fn each_container(mut check: impl FnMut(&StatefulSet, usize, &Container)) {
    for set in EXAMPLES.map(example) {
        set.containers.iter().enumerate().for_each(|(place, container)| check(&set, place, container));
    }
}

fn line(command: &Option<Vec<String>>) -> String {
    command.as_ref().unwrap().join(" ")
}

/// `-p P`, or nothing where P is the job's name and may be left out.
fn names(container: &Container, command: &str) -> String {
    let (job, process) = (container.job(), container.process());
    if job == process && !command.contains(" -p ") { job.to_owned() } else { format!("{job} -p {process}") }
}

#[test]
fn given_the_examples_then_there_are_no_others() {
    let files = fs::read_dir(folder()).unwrap().map(|file| file.unwrap().path());
    let manifests = files.filter(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    let found: BTreeSet<_> = manifests.map(|file| file.file_stem().unwrap().to_owned()).collect();
    assert_eq!(found, EXAMPLES.map(Into::into).into(), "the other tests look at these only");
}

#[test]
fn given_the_examples_then_kubernetes_schemas_accept_them_and_nothing_misspelled() {
    let Some(output) = validate(&[]) else { return };
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));

    let sandbox = Sandbox::new();
    let misspelled = sandbox.path("misspelled.yaml");
    fs::write(&misspelled, example("db").text.replace("preStop:", "prestop:")).unwrap();
    let Some(output) = validate(&[misspelled.to_str().unwrap()]) else { return };
    assert_eq!(output.status.code(), Some(1), "it must be able to fail");
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(said.contains("'prestop' was unexpected"), "{said}");
}

#[test]
fn given_a_job_then_its_first_container_drains_it_and_the_others_wait() {
    each_container(|set, place, container| {
        let first = set.containers.iter().position(|other| other.job() == container.job()) == Some(place);
        let hook = line(&container.hook);
        let wait_only = if first { "" } else { " --wait-only" };
        assert_eq!(hook, format!("{BINARY_IN_POD} drain {}{wait_only}", names(container, &hook)));
    });
    assert_eq!(example("web").containers.len(), 2);
    assert_eq!(example("db").containers.len(), 1);
}

#[test]
fn given_a_container_then_probe_tells_its_liveness_and_bpm_its_readiness() {
    each_container(|_, _, container| {
        let (liveness, readiness) = (line(&container.liveness), line(&container.readiness));
        assert_eq!(liveness, format!("{BINARY_IN_POD} probe {}", names(container, &liveness)));
        assert_eq!(readiness, format!("{BPM} running {}", names(container, &readiness)));
    });
    // The probe and bpm give a supervisor 5 s to answer; what takes longer was not heard.
    for set in EXAMPLES.map(example) {
        for container in set.pod.at("containers").list() {
            for probe in ["livenessProbe", "readinessProbe"] {
                assert!(container.at(probe).at("timeoutSeconds").number() > 5);
            }
        }
    }
}

#[test]
fn given_a_grace_period_then_it_is_what_its_comment_reckons() {
    for set in EXAMPLES.map(example) {
        let comment = set.text.lines().find(|line| line.contains("longest drain")).unwrap();
        let parts: Vec<u64> = comment.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [drain, kill_after, margin] = parts[..] else { panic!("{comment}") };
        let allowed =
            |container: &Container| container.option("--kill-after").unwrap_or("20").parse().unwrap();
        assert_eq!(Some(kill_after), set.containers.iter().map(allowed).max(), "the longest stop");
        assert!(margin >= 20, "the hooks' own 10 s to see each other, and as much for a slow kubelet");
        assert!(set.grace >= drain + kill_after + margin, "{} {comment}", set.grace);
    }
}

#[test]
fn given_a_pod_then_its_containers_share_volumes_at_the_same_paths_and_one_user() {
    for set in EXAMPLES.map(example) {
        let paths = |containers: &[Container]| -> BTreeSet<(String, String)> {
            let mounts = containers.iter().flat_map(|container| container.mounts.clone());
            mounts.map(|mount| (mount.volume, mount.path)).collect()
        };
        let all = paths(&set.containers);
        for container in &set.containers {
            assert_eq!(paths(std::slice::from_ref(container)), all, "{}", container.name);
        }
        assert!(paths(&set.init_containers).is_subset(&all));
        assert_eq!(all.len(), set.volumes.len());
        for name in &set.volumes {
            let path = format!("/var/vcap/{name}");
            assert!(all.contains(&(name.clone(), path)), "{name} is in every container");
        }
        for name in ["jobs", "data", "sys", "store"] {
            assert!(set.volumes.iter().any(|volume| volume == name), "{name}");
        }
        assert_eq!(set.pod.at("securityContext/runAsUser").text(), "1000");
        assert!(set.pod.get("shareProcessNamespace").is_none());
    }
}

#[test]
fn given_the_init_containers_then_binary_and_script_come_to_where_the_others_look() {
    for set in EXAMPLES.map(example) {
        let commands: Vec<String> = set.init_containers.iter().map(|init| init.command.join(" ")).collect();
        let place = |end: &str| commands.iter().position(|command| command.ends_with(end)).unwrap();
        assert!(place(BINARY_IN_POD) < place(&format!("{BINARY_IN_POD} install-bpm")));
        let sandbox = Sandbox::new();
        assert!(sandbox.run(&["install-bpm"]).status.success());
        assert!(sandbox.path("jobs/bpm/bin/bpm").exists());
    }
}

/// The command line in a sandbox: the same words for another binary or script.
fn run(sandbox: &Sandbox, command: &Option<Vec<String>>) -> Output {
    let command = words(command.as_ref().unwrap());
    match command[0] {
        BINARY_IN_POD => sandbox.run(&command[1..]),
        BPM => sandbox.bpm(&command[1..]),
        other => panic!("{other}"),
    }
}

#[test]
fn given_every_command_of_the_examples_then_container_run_and_bpm_understand_it() {
    let sandbox = Sandbox::new();
    let sets = EXAMPLES.map(example);
    let containers: Vec<&Container> = sets.iter().flat_map(|set| &set.containers).collect();
    let mut supervisors: Vec<Supervisor> = vec![];
    for container in &containers {
        let own = container.command.iter().position(|word| word == "--").unwrap();
        assert_eq!(container.command[0], BINARY_IN_POD);
        let mut command = sandbox.command();
        command.args(&container.command[1..=own]).args(["sleep", "1000"]);
        supervisors.push(sandbox.start(command, container.job(), container.process()));
    }
    for (supervisor, container) in supervisors.iter().zip(&containers) {
        supervisor.main_pid();
        for command in [&container.liveness, &container.readiness] {
            let output = run(&sandbox, command);
            assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
        }
    }
    std::thread::scope(|scope| {
        for container in &containers {
            scope.spawn(|| {
                let output = run(&sandbox, &container.hook);
                assert!(output.status.success(), "{:?}: {}", container.hook, text(&output.stderr));
            });
        }
    });
    for supervisor in &mut supervisors {
        assert_eq!(supervisor.ask("STATUS"), "OK stopped - drained");
        supervisor.signal(container_run::signal::Signal::TERM);
        assert_eq!(supervisor.exit_code(), 0);
    }
}
