//! Commands, signals, and ends of the process and of post-start, in any order and at the same
//! instant: never two at once, the last wish wins, the files tell the truth, one answer to each.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::net::UnixDatagram;
use std::thread;
use std::time::Duration;

use common::*;
use container_run::signal::Signal;

/// Side by side, each in a root of its own.
const LANES: u64 = 4;

/// Bursts of things that happen, with a look at what has come of them after each.
const BURSTS: u64 = 30;

/// Supervisors that are told to end amid two bursts, one after the other.
const LIVES: u64 = 12;

#[derive(Clone, Copy)]
enum Happening {
    /// A command whose sender waits for the answer.
    Command(&'static str),
    /// A signal to the supervisor.
    Signal(Signal),
    /// A signal to the main process that did not come through us: it ends, and nobody ordered it.
    End(Signal),
}

use Happening::{Command, End};

const WISHES: [&str; 4] = ["START", "START", "STOP", "STOP WAIT"];

/// Wishes, and the process's end without one. Post-start runs, and ends by itself, all the while.
const ALL: [Happening; 10] = [
    Command("START"),
    Command("START"),
    Command("START"),
    Command("STOP"),
    Command("STOP WAIT"),
    Command("STATUS"),
    Command("QUIT"),
    Happening::Signal(Signal::QUIT),
    End(Signal::TERM),
    End(Signal::INT),
];

/// A command that was sent, and where its answer comes.
type Sent = (&'static str, UnixDatagram);

/// One supervisor after the other, and chance.
struct Lane {
    sandbox: Sandbox,
    random: Random,
}

impl Lane {
    fn any<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.random.below(of.len() as u64) as usize]
    }

    fn chance(&mut self) -> bool {
        self.random.below(2) == 0
    }

    /// The process and perhaps a worker of it each hold a lock: a second one would show, also one
    /// that starts while the last run's still lives.
    fn supervise(&mut self) -> Supervisor {
        let probe = probe();
        let (main, worker) = (self.sandbox.path("main"), self.sandbox.path("worker"));
        let obeys = format!("exit-on=TERM:0:{}", self.random.below(20));
        let main = format!("exec {probe} lock={} {obeys} exit-on=INT:0 exit-on=QUIT:3 wait", main.display());
        let worker = format!("{probe} lock={} {obeys} wait &", worker.display());
        let script = if self.chance() { format!("{worker} {main}") } else { main };
        // Post-start ends at another moment each time.
        let mut options = vec!["--kill-after=600", "--post-start-name=perl", "--post-start-arg=-e"];
        options.push("--post-start-arg=select undef, undef, undef, rand .02");
        if self.chance() {
            options.extend(["--post-start-condition-name=true", "--post-start-interval=0.005"]);
        }
        let supervisor = self.sandbox.supervise_after("ulimit -c 0", &options, &words(&sh(&script)));
        supervisor.wait_for_state("running");
        supervisor
    }

    /// Some of these, one by one or at the same instant, with up to 20 ms between.
    fn burst(&mut self, supervisor: &Supervisor, happenings: &[Happening]) -> Vec<Sent> {
        let mut sent = vec![];
        for _ in 0..=self.random.below(6) {
            let count = self.random.below(4);
            let together: Vec<Happening> = (0..=count).map(|_| *self.any(happenings)).collect();
            sent.extend(at_once(supervisor, &together));
            let gap = if self.chance() { 0 } else { self.random.below(20) };
            // The distances are what is tested.
            thread::sleep(Duration::from_millis(gap));
        }
        sent
    }

    /// A burst, then one more wish, which wins.
    fn wish(&mut self, supervisor: &Supervisor, happenings: &[Happening]) -> &'static str {
        let mut sent = self.burst(supervisor, happenings);
        let wish = *self.any(&WISHES);
        let (last, stops) = (sent.len(), sent.iter().any(|(command, _)| command.starts_with("STOP")));
        sent.push((wish, supervisor.send(wish)));
        for (number, (command, socket)) in sent.iter().enumerate() {
            let answer = receive(socket);
            let cancelled = *command == "START" && (number != last && (stops || wish.starts_with("STOP")));
            let refused = cancelled && answer.starts_with("ERR ");
            assert!(refused || answer.starts_with("OK "), "{command}, then {wish}: {answer}");
        }
        if wish == "STOP" {
            supervisor.wait_for_state("stopped");
        }
        for (command, socket) in &sent {
            assert_eq!(further_answers(socket), 0, "to {command}");
        }
        wish
    }
}

/// All of these at the same instant, in an order that nobody knows; when this returns they have
/// happened. A supervisor that has ended meanwhile gets no command.
fn at_once(supervisor: &Supervisor, together: &[Happening]) -> Vec<Sent> {
    let happen = |happening: Happening| {
        match happening {
            Command(command) => {
                let socket = autobound();
                let sent = socket.send_to(command.as_bytes(), supervisor.socket());
                return sent.is_ok().then_some((command, socket));
            }
            Happening::Signal(signal) => supervisor.signal(signal),
            End(signal) => {
                let pid = fs::read_to_string(supervisor.pidfile()).ok()?;
                kill(pid.parse().unwrap(), signal.number());
            }
        }
        None
    };
    thread::scope(|scope| {
        let threads: Vec<_> = together.iter().map(|one| scope.spawn(|| happen(*one))).collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    })
}

/// How many answers lie there now.
fn further_answers(socket: &UnixDatagram) -> usize {
    socket.set_nonblocking(true).unwrap();
    std::iter::from_fn(|| socket.recv(&mut [0; 256]).ok()).count()
}

/// What it says, its files and its process agree; the state. To be asked when no command is under way.
#[track_caller]
fn truth(supervisor: &Supervisor) -> String {
    loop {
        let status = supervisor.ask("STATUS");
        let words: Vec<&str> = status.split(' ').collect();
        let pidfile = fs::read_to_string(supervisor.pidfile()).ok();
        let (sentinel, two) = (supervisor.sentinel().exists(), supervisor.count("TWO AT ONCE"));
        // The process may end at any time, and takes its files along.
        if supervisor.ask("STATUS") != status || words[1] == "stopping" {
            continue;
        }
        let expected = (words[1] == "running").then(|| words[2].to_owned());
        assert_eq!((&pidfile, sentinel), (&expected, expected.is_some()), "{status}");
        assert_eq!((two, supervisor.stderr().as_str()), (0, ""));
        return words[1].to_owned();
    }
}

/// Runs a lane with each of several random beginnings, of which all follow from one.
fn in_lanes(run: impl Fn(Lane) + Sync) {
    let given = std::env::var("SEED").ok().map(|seed| seed.parse().unwrap());
    let seed: u64 = given.unwrap_or_else(|| RandomState::new().hash_one(()));
    // Shown with a failure; the kernel's scheduling is not repeated by it.
    println!("SEED={seed}");
    thread::scope(|scope| {
        for number in 0..LANES {
            let lane = Lane { sandbox: Sandbox::new(), random: Random(seed ^ number) };
            scope.spawn(|| run(lane));
        }
    });
}

#[test]
fn given_wishes_and_ends_in_any_order_and_at_the_same_instant_then_the_last_wish_wins() {
    in_lanes(|mut lane| {
        let mut supervisor = lane.supervise();
        for _ in 0..BURSTS {
            // Nothing but wishes: the last one is what comes true.
            let wish = lane.wish(&supervisor, &WISHES.map(Command));
            assert_eq!(truth(&supervisor), if wish == "START" { "running" } else { "stopped" });
            // A process that was running when START came may have been told to end before.
            let wish = lane.wish(&supervisor, &ALL);
            let state = truth(&supervisor);
            assert!(state == "stopped" || wish == "START", "{state} after {wish}");
            // From here on it has had every signal, and its process none that is still to work.
            assert_eq!(supervisor.ask("STOP WAIT"), "OK stopped - monitored");
            supervisor.assert_not_busy();
            assert_eq!(truth(&supervisor), "stopped");
        }
        supervisor.signal(Signal::TERM);
        assert_eq!(supervisor.exit_code(), 0);
    });
}

#[test]
fn given_a_term_amid_wishes_and_ends_then_the_supervisor_ends_with_0_and_leaves_nothing() {
    in_lanes(|mut lane| {
        for _ in 0..LIVES {
            let mut supervisor = lane.supervise();
            let before = lane.burst(&supervisor, &ALL);
            supervisor.signal(Signal::TERM);
            let after = lane.burst(&supervisor, &ALL);
            assert_eq!(supervisor.exit_code(), 0);
            for (command, socket) in &before {
                assert_eq!(further_answers(socket), 1, "to {command}");
            }
            // One that came in the moment of the end may have none.
            for (command, socket) in &after {
                assert!(further_answers(socket) <= 1, "to {command}");
            }
            assert_eq!((supervisor.count("TWO AT ONCE"), supervisor.stderr().as_str()), (0, ""));
            assert!(lane.sandbox.processes().is_empty() && lane.sandbox.files().is_empty());
        }
    });
}
