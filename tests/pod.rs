//! A pod of two jobs, one with two processes, from start to end: the containers, hooks and probes of
//! `examples/kubernetes`, in real containers.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;
#[path = "pod/kubelet.rs"]
mod kubelet;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use common::*;
use kubelet::manifest::example;
use kubelet::{Ending, Pod};

/// Shorter than the examples have it; nothing here is to need so long.
const GRACE: Duration = Duration::from_secs(60);

/// The jobs' programs. Both drains can be held; web's is a dynamic one, db's sees whether web still runs.
const SCRIPTS: [(&str, &str); 10] = [
    ("rendered/jobs/web/bin/post-start", "echo post-start web >>$journal"),
    ("rendered/jobs/web/bin/pre-stop", "echo pre-stop web >>$journal"),
    (
        "rendered/jobs/web/bin/drain",
        "echo drain web $1 >>$journal
         case $1 in job_shutdown) echo -1; exit ;; esac
         while [ -e /var/vcap/sys/hold-web ]; do sleep 0.05; done
         echo drained web >>$journal; echo 0",
    ),
    ("rendered/jobs/web/bin/post-stop", "echo post-stop web >>$journal"),
    ("rendered/jobs/db/bin/pre-stop", "echo pre-stop db >>$journal"),
    (
        "rendered/jobs/db/bin/drain",
        "bpm=/var/vcap/jobs/bpm/bin/bpm
         echo drain db >>$journal
         while [ -e /var/vcap/sys/hold-db ]; do sleep 0.05; done
         for process in web worker; do $bpm running web -p $process && echo web/$process runs >>$journal; done
         echo drained db >>$journal; echo 0",
    ),
    ("rendered/jobs/db/bin/post-stop", "echo post-stop db >>$journal"),
    (
        "var/vcap/packages/web/bin/web",
        "trap 'echo TERM web/web >>$journal; exit 0' TERM; echo up web/web >>$journal
         while :; do sleep 0.05; done",
    ),
    (
        "var/vcap/packages/web/bin/worker",
        "trap 'echo TERM web/worker >>$journal; exit 0' TERM; echo up web/worker $* >>$journal
         while :; do sleep 0.05; done",
    ),
    (
        "var/vcap/packages/db/bin/db",
        "trap 'echo INT db/db >>$journal; [ -e /var/vcap/sys/hold-db ] || exit 0' INT; echo up db/db $* >>$journal
         while :; do sleep 0.05; done",
    ),
];

/// What every process writes when it is up.
const UP: [(&str, &str); 3] = [
    ("web", "up web/web"),
    ("worker", "up web/worker --queue default"),
    ("db", "up db/db --data /var/vcap/store/db"),
];

fn living_pod() -> Option<Pod> {
    let sets = [example("web"), example("db")];
    assert!(sets.iter().all(|set| GRACE.as_secs() <= set.grace));
    let pod = Pod::start(&sets, &SCRIPTS)?;
    UP.iter().for_each(|(_, line)| pod.wait_for_lines(line, 1));
    pod.wait_for_lines("post-start web", 1);
    Some(pod)
}

/// What was written from the first pre-stop on.
fn going_down(pod: &Pod) -> Vec<String> {
    pod.journal().into_iter().skip_while(|line| !line.starts_with("pre-stop")).collect()
}

#[track_caller]
fn assert_order(journal: &[String], lines: &[&str]) {
    let place = |line: &&str| {
        let places: Vec<usize> = (0..journal.len()).filter(|place| journal[*place] == **line).collect();
        assert_eq!(places.len(), 1, "once '{line}' in {journal:#?}");
        places[0]
    };
    let places: Vec<usize> = lines.iter().map(place).collect();
    assert!(places.is_sorted(), "{lines:?} in {journal:#?}");
}

fn clean(names: &[&str]) -> BTreeMap<String, Ending> {
    let ending = Ending { hook: 0, container: 0, killed: false };
    names.iter().map(|name| ((*name).to_owned(), ending.clone())).collect()
}

#[test]
fn given_a_pod_that_goes_down_then_everything_is_drained_before_anything_is_stopped() {
    let Some(pod) = living_pod() else { return };
    assert!(pod.names().iter().all(|name| pod.is_well(name)));
    pod.hold("db");
    let ended = pod.terminate(GRACE, || {
        pod.wait_for_lines("drained web", 1);
        pod.let_go("db");
    });
    assert_eq!(ended, clean(&["web", "worker", "db"]), "{}", pod.logs());
    let journal = going_down(&pod);
    let drain = ["pre-stop web", "drain web job_shutdown", "drain web job_check_status", "drained web"];
    assert_order(&journal, &[&drain[..], &["drained db", "TERM web/web", "post-stop web"]].concat());
    assert_order(&journal, &["pre-stop db", "drain db", "drained db", "INT db/db", "post-stop db"]);
    assert_order(&journal, &["drained web", "web/web runs", "web/worker runs", "drained db"]);
    assert_order(&journal, &["drained db", "TERM web/worker", "post-stop web"]);
    assert_eq!(journal.len(), 14, "{journal:#?}");
}

/// The liveness probe found its process ended; the kubelet restarts that container and no other.
/// Returns what its hook's scripts wrote.
fn restart(pod: &Pod, name: &str) -> Vec<String> {
    let others: Vec<String> = pod.names().into_iter().filter(|other| other != name).collect();
    let statuses = || others.iter().map(|other| pod.status(other)).collect::<Vec<_>>();
    let before = statuses();
    // Its PID, signalled by somebody in the container.
    let pid = pod.status(name).split(' ').nth(1).unwrap().to_owned();
    assert!(pod.exec(name, &["kill".to_owned(), "-TERM".to_owned(), pid]).status.success());
    wait_until("the probe finds it", || !pod.is_well(name));

    let before_hook = pod.journal().len();
    // The examples' hook gives the others 10 s.
    let ending = pod.stop_container(name, &["--settle", "0.5"], Instant::now() + GRACE);
    assert_eq!(ending, Ending { hook: 0, container: 0, killed: false }, "{}", pod.logs());
    let written = pod.journal().split_off(before_hook);
    assert_eq!(statuses(), before, "the same processes run on");
    assert!(before.iter().all(|status| status.starts_with("running ") && status.ends_with(" monitored")));

    pod.start_container(name);
    pod.wait_until_ready(name);
    let line = UP.iter().find(|(container, _)| *container == name).unwrap().1;
    pod.wait_for_lines(line, 2);
    assert!(pod.is_well(name));
    let status = pod.status(name);
    assert!(status.starts_with("running ") && status.ends_with(" monitored"), "{status}");
    written
}

#[test]
fn given_one_container_that_restarts_in_a_living_pod_then_the_others_run_on_undrained() {
    let Some(pod) = living_pod() else { return };
    assert!(restart(&pod, "worker").is_empty(), "no script has run");
    assert!(restart(&pod, "web").is_empty(), "nor does the hook drain that would drain the job");
    pod.wait_for_lines("post-start web", 2);
    // And the pod still goes down as it should.
    assert_eq!(pod.terminate(GRACE, || ()), clean(&["web", "worker", "db"]), "{}", pod.logs());
    let journal = going_down(&pod);
    assert_order(&journal, &["drained db", "TERM web/worker", "post-stop web"]);
    assert_order(&journal, &["drained web", "TERM web/web"]);
}

#[test]
fn given_the_container_of_a_job_of_one_process_that_restarts_then_only_that_job_is_drained() {
    let Some(pod) = living_pod() else { return };
    let written = restart(&pod, "db");
    assert_eq!(
        written,
        ["pre-stop db", "drain db", "web/web runs", "web/worker runs", "drained db", "post-stop db"]
    );
}

/// One container crashes while both jobs drain.
fn crash(name: &str) -> Option<(BTreeMap<String, Ending>, Vec<String>)> {
    let pod = living_pod()?;
    ["web", "db"].iter().for_each(|job| pod.hold(job));
    let all_go_down = || pod.names().iter().all(|name| pod.status(name).ends_with(" unmonitored"));
    let mut ended = pod.terminate(GRACE, || {
        wait_until("the hooks of all run", all_go_down);
        pod.wait_for_lines("drain web job_check_status", 1);
        pod.wait_for_lines("drain db", 1);
        pod.crash(name);
        ["web", "db"].iter().for_each(|job| pod.let_go(job));
    });
    let crashed = ended.remove(name).unwrap();
    assert_eq!(crashed, Ending { hook: 137, container: 137, killed: false }, "{}", pod.logs());
    Some((ended, going_down(&pod)))
}

#[test]
fn given_a_container_that_crashes_during_the_drain_then_it_does_not_hold_up_the_rest() {
    let Some((ended, journal)) = crash("worker") else { return };
    assert_eq!(ended, clean(&["web", "db"]));
    assert_order(&journal, &["drained web", "TERM web/web", "post-stop web"]);
    assert_order(&journal, &["drained db", "TERM web/web"]);
    assert_order(&journal, &["drained web", "INT db/db", "post-stop db"]);
}

#[test]
fn given_the_container_that_drains_its_job_crashes_then_that_does_not_hold_up_the_rest() {
    let Some((mut ended, journal)) = crash("web") else { return };
    let of_worker = ended.remove("worker").unwrap();
    assert_eq!(of_worker, Ending { hook: 1, container: 0, killed: false }, "it says that nobody drained");
    assert_eq!(ended, clean(&["db"]));
    assert_order(&journal, &["drained db", "INT db/db", "post-stop db"]);
}

#[test]
fn given_a_drain_longer_than_the_grace_then_term_and_kill_end_what_is_left() {
    let Some(pod) = living_pod() else { return };
    pod.hold("db");
    let mut ended = pod.terminate(Duration::from_secs(3), || ());
    let of_db = ended.remove("db").unwrap();
    assert_eq!(of_db, Ending { hook: 137, container: 137, killed: true }, "it neither drains nor stops");
    for (name, ending) in ended {
        assert_eq!(ending, Ending { hook: 137, container: 0, killed: false }, "{name}");
    }
}
