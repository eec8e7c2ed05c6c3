//! `make soak`: two minutes of everything at once, and then figures.
//!
//! ```text
//! CONTAINER_RUN_BINARY=PATH cargo run --release --example soak -- [SECONDS]
//! ```
//!
//! One supervisor is stopped and started without a pause, flooded with valid and invalid
//! datagrams, and runs a process whose orphans it must reap. Others are killed by force
//! meanwhile. Ends with 1 if anything was lost, stayed behind or grew.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod subject;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use subject::{Subject, wait_until};

/// How long it runs if nothing else is said.
const DEFAULT_SECONDS: u64 = 120;

/// Senders that flood the supervisor.
const FLOODERS: usize = 4;

/// KiB by which the heap may come to its high-water mark: a look through `/proc` takes as much as
/// there are processes. A byte lost with each datagram, or a KiB with each cycle, is more.
const HIGH_WATER: u64 = 512;

/// Writes an `o` for each orphan that it makes: of a child that ends at once, two processes live
/// a moment longer, one of them in a session of its own.
const ORPHAN_MAKER: &str = r#"
trap 'exit 0' TERM
while :; do
  for kind in 1 2 3 4 5; do
    (sleep 0.01 & setsid sleep 0.02 &)
    printf 'oo'
  done >>"$ORPHANS"
  sleep 0.05
done
"#;

/// What is counted while it runs.
#[derive(Default)]
struct Figures {
    cycles: AtomicU64,
    sent: AtomicU64,
    acted_on: AtomicU64,
    lost: AtomicU64,
    zombies: AtomicU64,
    zombies_left: AtomicU64,
    crashes: AtomicU64,
}

impl Figures {
    /// Counts a datagram and what became of it.
    fn count(&self, answered: bool) {
        add(&self.sent);
        add(if answered { &self.acted_on } else { &self.lost });
    }
}

fn add(figure: &AtomicU64) {
    figure.fetch_add(1, Ordering::Relaxed);
}

fn read(figure: &AtomicU64) -> u64 {
    figure.load(Ordering::Relaxed)
}

fn main() -> ExitCode {
    let seconds = std::env::args().nth(1).map_or(DEFAULT_SECONDS, |text| text.parse().expect("SECONDS"));
    let subject = Subject::start(ORPHAN_MAKER);
    let figures = Figures::default();
    // One round of everything first: what it needs at all, it has by then.
    work(&subject, &figures, Duration::from_secs(2));
    let start = subject.size();
    work(&subject, &figures, Duration::from_secs(seconds));
    let (orphans, stray) = (subject.orphans(), subject.finish_tree());
    let end = subject.size();
    let ended_well = subject.end();
    print_table(&figures, orphans, start, end);
    let good = read(&figures.lost) == 0
        && read(&figures.zombies_left) == 0
        && stray == 0
        && ended_well
        && end.own <= start.own + HIGH_WATER
        && end.descriptors <= start.descriptors;
    println!("{}", if good { "good" } else { "BAD" });
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Everything at once, for so long.
fn work(subject: &Subject, figures: &Figures, time: Duration) {
    let end = Instant::now() + time;
    thread::scope(|scope| {
        scope.spawn(|| cycle(subject, figures, end));
        scope.spawn(|| look_for_zombies(subject, figures, end));
        scope.spawn(|| crash(figures, end));
        for _ in 0..FLOODERS {
            scope.spawn(|| flood(subject, figures, end));
        }
    });
}

/// STOP and START, and what is so after each.
fn cycle(subject: &Subject, figures: &Figures, end: Instant) {
    let socket = subject.sender();
    while Instant::now() < end {
        for (command, state) in [("STOP WAIT", "OK stopped - "), ("START", "OK running ")] {
            let answer = subject.ask(&socket, command);
            figures.count(answer.is_some_and(|answer| answer.starts_with(state)));
        }
        add(&figures.cycles);
        // Some runs get time to leave orphans.
        thread::sleep(Duration::from_millis(read(&figures.cycles) % 4 * 20));
    }
}

/// Valid and invalid datagrams in turn; each is to be answered, and in its own way.
fn flood(subject: &Subject, figures: &Figures, end: Instant) {
    let socket = subject.sender();
    let too_long = "x".repeat(300);
    let turns = [("STATUS", "OK "), ("rubbish", "ERR "), ("MONITOR", "OK "), (&too_long, "ERR ")];
    for (command, expected) in turns.iter().cycle() {
        if Instant::now() >= end {
            break;
        }
        let answer = subject.ask(&socket, command);
        figures.count(answer.is_some_and(|answer| answer.starts_with(expected)));
    }
}

/// A zombie that is seen is none yet to worry about, one that stays is.
fn look_for_zombies(subject: &Subject, figures: &Figures, end: Instant) {
    while Instant::now() < end {
        for zombie in subject.zombies() {
            add(&figures.zombies);
            if !wait_until(|| !subject.zombies().contains(&zombie)) {
                add(&figures.zombies_left);
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// A supervisor that is killed by force, and whose place the next one takes.
fn crash(figures: &Figures, end: Instant) {
    let root = tempfile::tempdir().unwrap();
    let mut round = 0;
    while Instant::now() < end {
        let victim = Subject::start_in(root.path(), "trap '' TERM; while :; do sleep 1; done");
        if round % 2 == 0 {
            victim.ask(&victim.sender(), "STOP");
        }
        thread::sleep(Duration::from_millis(round % 7));
        if victim.crash() {
            add(&figures.crashes);
        } else {
            add(&figures.lost);
        }
        round += 1;
    }
    assert!(Subject::start_in(root.path(), "exec sleep 600").end(), "the last one ends in order");
}

fn print_table(figures: &Figures, orphans: u64, start: subject::Size, end: subject::Size) {
    let rows = [
        ("cycles of START and STOP", read(&figures.cycles).to_string()),
        ("datagrams sent", read(&figures.sent).to_string()),
        ("datagrams acted on or refused", read(&figures.acted_on).to_string()),
        ("datagrams lost", read(&figures.lost).to_string()),
        ("orphans reaped", orphans.to_string()),
        ("zombies seen, for a moment", read(&figures.zombies).to_string()),
        ("zombies that stayed", read(&figures.zombies_left).to_string()),
        ("crashes survived", read(&figures.crashes).to_string()),
        ("RSS at start and end, KiB", format!("{} {}", start.rss, end.rss)),
        ("of it its own, KiB", format!("{} {}", start.own, end.own)),
        ("descriptors at start and end", format!("{} {}", start.descriptors, end.descriptors)),
    ];
    for (name, figure) in rows {
        println!("{name:30} {figure:>10}");
    }
}
