//! Floods of datagrams: nothing valid is lost, nothing grows, nobody waits.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use nix::libc;
use nix::sys::socket::{UnixAddr, bind};

const SENDERS: usize = 8;

/// Few enough that the answers to them fit into a sender's own queue: 10 and the one behind
/// (/proc/sys/net/unix/max_dgram_qlen).
const BURST: usize = 10;

/// A sender with an address if `bound`; it waits when the supervisor's queue is full.
fn sender(socket: &Path, bound: bool) -> UnixDatagram {
    let sender = UnixDatagram::unbound().unwrap();
    if bound {
        bind(sender.as_raw_fd(), &UnixAddr::new_unnamed()).unwrap();
    }
    sender.set_read_timeout(Some(DEADLINE)).unwrap();
    sender.connect(socket).unwrap();
    sender
}

/// Whether an answer lies there that nobody has asked for.
fn has_more(sender: &UnixDatagram) -> bool {
    sender.set_nonblocking(true).unwrap();
    sender.recv(&mut [0; 64]).is_ok()
}

/// A main process that counts each RTMIN+1 that reaches it; the kernel merges none of them.
fn supervise_tally(sandbox: &Sandbox) -> Supervisor {
    let supervisor = sandbox.supervise(&words(&probe_with("tally=RTMIN+1,RTMIN+2")));
    supervisor.wait_for_line("ready");
    supervisor
}

fn assert_tally(supervisor: &Supervisor, expected: usize) {
    // It is sent behind the others, and delivered behind them: it is the higher signal.
    supervisor.ask("SIGNAL RTMIN+2");
    wait_until("the tally is printed", || supervisor.stdout().contains("tally "));
    assert_eq!(supervisor.count(&format!("tally {expected}")), 1, "{}", supervisor.stdout());
}

/// Sends `bursts` times ten datagrams: three that are answered OK, three that are garbage and
/// answered ERR, and, from a sender without an address, two valid ones and two of garbage.
/// Panics unless each answer comes exactly once and in order.
fn send_mixture(socket: &Path, bursts: usize) {
    let (named, nameless) = (sender(socket, true), sender(socket, false));
    let too_long = [b'x'; 300];
    let garbage: [&[u8]; 5] = [b"", b"stop", b"\xff\0STOP", &too_long, b"STATUS  NOW"];
    for burst in 0..bursts {
        let rubbish = |offset: usize| garbage[(burst + offset) % garbage.len()];
        for offset in 0..3 {
            named.send(b"STATUS").unwrap();
            named.send(rubbish(offset)).unwrap();
        }
        for offset in 0..2 {
            nameless.send(b"SIGNAL RTMIN+1").unwrap();
            nameless.send(rubbish(offset)).unwrap();
        }
        for _ in 0..3 {
            assert!(receive(&named).starts_with("OK running "));
            assert!(receive(&named).starts_with("ERR "));
        }
    }
    assert!(!has_more(&named), "something was answered twice");
}

#[test]
fn given_100000_datagrams_of_8_senders_when_garbage_is_mixed_in_then_none_is_lost_and_nothing_grows() {
    let sandbox = Sandbox::new();
    let supervisor = supervise_tally(&sandbox);
    let (pid, socket) = (supervisor.pid(), supervisor.socket());
    send_mixture(&socket, 100);
    let before = (status_number(pid, "VmRSS"), descriptors(pid));
    let bursts = 100_000 / BURST / SENDERS;
    thread::scope(|scope| {
        for _ in 0..SENDERS {
            scope.spawn(|| send_mixture(&socket, bursts));
        }
    });
    let after = (status_number(pid, "VmRSS"), descriptors(pid));
    println!("RSS in KiB and descriptors before {before:?}, after {after:?}");
    assert_tally(&supervisor, 2 * (100 + SENDERS * bursts));
    assert_eq!(after.1, before.1);
    assert!(after.0 <= before.0 + 64, "grew from {} to {} KiB", before.0, after.0);
    assert_eq!(supervisor.stderr(), "");
}

#[test]
fn given_a_flood_when_the_process_is_stopped_and_started_then_each_is_answered_in_time() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise(&words(&probe_with("exit-on=TERM:0 wait")));
    supervisor.wait_for_line("ready");
    let socket = supervisor.socket();
    let over = AtomicBool::new(false);
    let sent = AtomicUsize::new(0);
    let mut times = vec![];
    thread::scope(|scope| {
        for _ in 0..SENDERS {
            scope.spawn(|| {
                let sender = sender(&socket, false);
                while !over.load(Ordering::Relaxed) {
                    sender.send(b"rubbish").unwrap();
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 1..=25 {
            let start = Instant::now();
            assert!(supervisor.ask("STOP").starts_with("OK stopp"));
            times.push(start.elapsed());
            assert!(supervisor.ask("STOP WAIT").starts_with("OK stopped - "));
            assert!(supervisor.ask("START").starts_with("OK running "));
            supervisor.wait_for_lines("ready", round + 1);
        }
        over.store(true, Ordering::Relaxed);
    });
    times.sort();
    println!("answers to STOP: median {:?}, slowest {:?}; flood: {sent:?}", times[12], times[24]);
    assert!(sent.into_inner() > 1000, "that was no flood");
    assert!(times[24] < Duration::from_secs(2), "{times:?}");
}

#[test]
fn given_a_full_queue_while_the_supervisor_is_stopped_when_it_continues_then_all_are_handled() {
    let sandbox = Sandbox::new();
    let supervisor = supervise_tally(&sandbox);
    let (pid, socket) = (supervisor.pid(), supervisor.socket());
    assert!(kill(pid, libc::SIGSTOP));
    wait_until("the supervisor stands still", || state_of(pid) == Some('T'));
    let mut accepted = vec![];
    loop {
        // Each needs room for one answer only.
        let sender = sender(&socket, true);
        sender.set_nonblocking(true).unwrap();
        match sender.send(b"SIGNAL RTMIN+1") {
            Ok(_) => accepted.push(sender),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                break;
            }
        }
    }
    assert!(accepted.len() >= BURST, "only {} fitted", accepted.len());
    assert!(kill(pid, libc::SIGCONT));
    for sender in &accepted {
        sender.set_nonblocking(false).unwrap();
        assert!(receive(sender).starts_with("OK running "));
    }
    assert_tally(&supervisor, accepted.len());
}

#[test]
fn given_senders_that_are_gone_before_their_answer_then_nobody_is_held_up_and_nothing_is_kept() {
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise_with(&["--kill-after", "60"], &words(&probe_with("ignore=TERM wait")));
    supervisor.wait_for_line("ready");
    let pid = supervisor.pid();
    supervisor.ask("STOP");
    let before = (status_number(pid, "VmRSS"), descriptors(pid));
    for _ in 0..2000 {
        drop(supervisor.send("STATUS"));
        drop(supervisor.send("STOP WAIT"));
    }
    assert!(supervisor.ask("STATUS").starts_with("OK stopping "));
    assert_eq!(descriptors(pid), before.1);
    // Those who wait for a STOP cost some bytes each, and there is a limit to them.
    let rss = status_number(pid, "VmRSS");
    assert!(rss <= before.0 + 512, "grew from {} to {rss} KiB", before.0);
    supervisor.ask("SIGNAL KILL");
    supervisor.wait_for_state("stopped");
}

#[test]
fn given_a_sender_that_never_reads_then_others_are_answered_meanwhile() {
    // An answer that lies unread costs the supervisor's socket 768 bytes of its 212,992; with
    // 277 of them it has none left for others, and only acts.
    const UNREAD: usize = 200;
    let sandbox = Sandbox::new();
    let supervisor = supervise_tally(&sandbox);
    let deaf = sender(&supervisor.socket(), true);
    for _ in 0..UNREAD {
        deaf.send(b"SIGNAL RTMIN+1").unwrap();
    }
    assert!(supervisor.ask("STATUS").starts_with("OK running "));
    assert!(receive(&deaf).starts_with("OK running "), "what fitted into its queue lies there");
    assert_tally(&supervisor, UNREAD);
}

#[test]
fn given_a_sender_that_fills_the_socket_with_unread_answers_then_commands_act_and_its_end_mends_it() {
    const UNREAD: usize = 1000;
    let sandbox = Sandbox::new();
    let supervisor = supervise_tally(&sandbox);
    let deaf = sender(&supervisor.socket(), true);
    for _ in 0..UNREAD {
        deaf.send(b"SIGNAL RTMIN+1").unwrap();
    }
    deaf.send(b"SIGNAL RTMIN+2").unwrap();
    supervisor.wait_for_line(&format!("tally {UNREAD}"));
    drop(deaf);
    assert!(supervisor.ask("STATUS").starts_with("OK running "));
}

#[test]
fn given_more_who_wait_for_a_stop_than_there_is_room_for_then_each_is_answered_once() {
    const WAITING: usize = 1500;
    let sandbox = Sandbox::new();
    let supervisor = sandbox.supervise_with(&["--kill-after", "60"], &words(&probe_with("ignore=TERM wait")));
    supervisor.wait_for_line("ready");
    let (mut waiting, mut refused) = (vec![], 0);
    for _ in 0..WAITING {
        let sender = supervisor.send("STOP WAIT");
        // Answered behind the other: who has not been refused by then waits.
        assert!(supervisor.ask("STATUS").starts_with("OK stopping "));
        sender.set_nonblocking(true).unwrap();
        match sender.recv(&mut [0; 64]) {
            Ok(_) => refused += 1,
            Err(_) => waiting.push(sender),
        }
    }
    assert_eq!(waiting.len() + refused, WAITING);
    assert!(waiting.len() >= 100, "only {} could wait", waiting.len());
    supervisor.ask("SIGNAL KILL");
    wait_until("each who waited is answered", || {
        waiting.retain(|sender| sender.recv(&mut [0; 64]).is_err());
        waiting.is_empty()
    });
}
