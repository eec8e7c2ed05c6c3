//! The whole table, every state with every event, and a property test with random events.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

const GRACE: Duration = Duration::from_secs(20);
const INTERVAL: Duration = Duration::from_secs(3);
const TIMEOUT: Duration = Duration::from_secs(900);

fn config() -> Config {
    Config {
        stop_signal: Signal::TERM,
        kill_after: GRACE,
        condition: true,
        interval: INTERVAL,
        timeout: TIMEOUT,
    }
}

const START: Event = Event::Command(Command::Start);
const STOP: Event = Event::Command(Command::Stop { wait: false });
const STOP_WAIT: Event = Event::Command(Command::Stop { wait: true });
const QUIT: Event = Event::Command(Command::Quit);
const STATUS: Event = Event::Command(Command::Status);
const OK: Outcome = Outcome::Exited(0);
const BAD: Outcome = Outcome::Exited(7);

const fn signal(signal: Signal) -> Event {
    Event::Command(Command::Signal(signal))
}

const fn mode(mode: Mode) -> Event {
    Event::Command(Command::SetMode(mode))
}

/// Every event, each with every outcome that makes a difference.
const EVENTS: [Event; 26] = [
    Event::Begin,
    START,
    STOP,
    STOP_WAIT,
    QUIT,
    STATUS,
    signal(Signal::USR1),
    signal(Signal::TERM),
    signal(Signal::KILL),
    mode(Mode::Unmonitored),
    Event::Terminate,
    Event::Pass(Signal::HUP),
    Event::Pass(Signal::QUIT),
    Event::Spawned { post_start: false },
    Event::Spawned { post_start: true },
    Event::SpawnedWithoutFiles,
    Event::SpawnFailed(127),
    Event::MainEnded(OK),
    Event::MainEnded(BAD),
    Event::MainEnded(Outcome::Killed(15)),
    Event::ConditionEnded(OK),
    Event::ConditionEnded(BAD),
    Event::PostStartEnded(OK),
    Event::PostStartEnded(BAD),
    Event::TreeGone,
    Event::Deadline,
];

/// Writes a state without its times: `Running/Pausing`, `Stopping(main,grace,Start)`.
fn show_state(state: State) -> String {
    let wish = |wish| match wish {
        Wish::Rest(rest) => format!("{rest:?}"),
        Wish::Start => "Start".to_owned(),
        Wish::Exit(code) => format!("Exit {code}"),
    };
    match state {
        State::Down(rest) => format!("{rest:?}"),
        State::Running { ordered, post_start } => {
            let phase = match post_start {
                PostStart::None => "",
                PostStart::Pausing { .. } => "/Pausing",
                PostStart::Checking { .. } => "/Checking",
                PostStart::Active { .. } => "/Active",
            };
            format!("Running{phase}{}", if ordered.is_some() { "/ordered" } else { "" })
        }
        State::Stopping { main, clock, wish: next } => {
            let who = if main { "main" } else { "tree" };
            let phase = if let Clock::Grace(_) = clock { "grace" } else { "kill" };
            format!("Stopping({who},{phase},{})", wish(next))
        }
        State::Over(code) => format!("Over({code})"),
    }
}

fn show_event(event: Event) -> String {
    match event {
        Event::Command(Command::Stop { wait: true }) => "STOP WAIT".to_owned(),
        Event::Command(Command::Stop { wait: false }) => "STOP".to_owned(),
        Event::Command(Command::Signal(signal)) => format!("SIGNAL {signal}"),
        Event::Command(Command::SetMode(mode)) => format!("mode {mode}"),
        Event::Command(command) => format!("{command:?}").to_uppercase(),
        other => format!("{other:?}"),
    }
}

fn show_actions(actions: &[Action]) -> String {
    let show = |action: &Action| match action {
        Action::Answer(Answer::Refused(_)) => "refuse".to_owned(),
        Action::Answer(answer) => format!("answer {answer:?}"),
        Action::RefuseStarted(_) => "RefuseStarted".to_owned(),
        Action::Report(Report::MainFailed(_)) => "report main".to_owned(),
        Action::Report(Report::PostStartFailed(_)) => "report post-start".to_owned(),
        Action::Report(report) => format!("report {report:?}"),
        other => format!("{other:?}"),
    };
    actions.iter().map(show).collect::<Vec<_>>().join(", ")
}

/// One state of each kind; all deadlines lie at or before `now`, so that Deadline does something.
fn states(now: Instant) -> Vec<State> {
    let limit = now + TIMEOUT;
    let running = |post_start| State::Running { ordered: None, post_start };
    let mut states = vec![
        State::Down(Rest::Stopped),
        State::Down(Rest::Ended),
        State::Down(Rest::Failed),
        running(PostStart::None),
        State::Running { ordered: Some(now), post_start: PostStart::None },
        running(PostStart::Pausing { until: now, limit }),
        running(PostStart::Pausing { until: now, limit: now }),
        running(PostStart::Checking { limit: now }),
        running(PostStart::Active { limit: now }),
    ];
    let killing = Clock::Killing { again: now, report: Some(now) };
    for main in [true, false] {
        for clock in [Clock::Grace(now), killing] {
            for wish in [
                Wish::Rest(Rest::Stopped),
                Wish::Rest(Rest::Failed),
                Wish::Start,
                Wish::Exit(0),
                Wish::Exit(7),
            ] {
                states.push(State::Stopping { main, clock, wish });
            }
        }
    }
    states.push(State::Over(0));
    states
}

fn machine(state: State, mode: Mode) -> Machine {
    Machine { config: config(), state, mode }
}

/// What `event` leads to: the next state, `=` if it stays, and the actions; `None` for nothing.
fn row(state: State, mode: Mode, event: Event, now: Instant) -> Option<String> {
    let mut machine = machine(state, mode);
    let actions = show_actions(&machine.step(event, now));
    let stays = show_state(machine.state) == show_state(state);
    let next = if stays { "=".to_owned() } else { show_state(machine.state) };
    let effect = [next, actions].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ");
    (effect != "=").then(|| format!("{} -> {effect}", show_event(event)))
}

/// The table as text. `table.txt` is the reviewed truth: each line of it was read against
/// the contract, and a change of behaviour shows as a change of lines. Of a mode that is not
/// `monitored` only the differences are told.
fn table() -> String {
    let now = Instant::now();
    let mut text = String::new();
    for state in states(now) {
        text.push_str(&format!("{}\n", show_state(state)));
        let mut without_effect = vec![];
        for event in EVENTS {
            let monitored = row(state, Mode::Monitored, event, now);
            match &monitored {
                Some(row) => text.push_str(&format!("  {row}\n")),
                None => without_effect.push(show_event(event)),
            }
            for mode in [Mode::Unmonitored, Mode::Drained] {
                let other = row(state, mode, event, now);
                if other != monitored {
                    text.push_str(&format!("    {mode}: {}\n", other.as_deref().unwrap_or("nothing")));
                }
            }
        }
        text.push_str(&format!("  nothing: {}\n\n", without_effect.join(", ")));
    }
    text
}

#[test]
fn the_whole_table_is_as_reviewed() {
    let reviewed = include_str!("table.txt");
    let table = table();
    if std::env::var_os("UPDATE_MACHINE_TABLE").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/supervisor/machine/table.txt"), &table)
            .unwrap();
        return;
    }
    for (number, (is, should)) in table.lines().zip(reviewed.lines()).enumerate() {
        assert_eq!(is, should, "line {} of table.txt", number + 1);
    }
    assert_eq!(table.lines().count(), reviewed.lines().count());
}

#[test]
fn every_command_gets_exactly_one_answer_in_every_state() {
    let now = Instant::now();
    for state in states(now) {
        for event in EVENTS {
            let actions = machine(state, Mode::Monitored).step(event, now);
            let answers = actions.iter().filter(|action| matches!(action, Action::Answer(_))).count();
            let expected = usize::from(matches!(event, Event::Command(_)));
            assert_eq!(answers, expected, "{} + {}", show_state(state), show_event(event));
        }
    }
}

/// Walks through steps: an event, then what must become of it.
fn walk(machine: &mut Machine, now: Instant, steps: &[(Event, &str, &str)]) {
    for (event, state, actions) in steps {
        let done = machine.step(*event, now);
        assert_eq!(show_actions(&done), *actions, "after {}", show_event(*event));
        assert_eq!(show_state(machine.state), *state, "after {}", show_event(*event));
    }
}

#[test]
fn given_a_stop_under_way_when_start_then_the_old_tree_ends_first_and_keeps_its_clock() {
    let now = Instant::now();
    let mut machine = machine(State::Running { ordered: None, post_start: PostStart::None }, Mode::Monitored);
    walk(&mut machine, now, &[(STOP, "Stopping(main,grace,Stopped)", "StopMain(SIGTERM), answer Now")]);
    let deadline = machine.deadline();
    assert_eq!(deadline, Some(now + GRACE));
    walk(
        &mut machine,
        now + GRACE / 2,
        &[
            (START, "Stopping(main,grace,Start)", "answer WhenStarted"),
            (STOP_WAIT, "Stopping(main,grace,Stopped)", "RefuseStarted, answer WhenStopped"),
            (START, "Stopping(main,grace,Start)", "answer WhenStarted"),
        ],
    );
    assert_eq!(machine.deadline(), deadline, "one clock, started by the first signal");
    walk(
        &mut machine,
        now + GRACE,
        &[
            (Event::Deadline, "Stopping(main,kill,Start)", "KillTree"),
            (Event::MainEnded(Outcome::Killed(9)), "Stopping(tree,kill,Start)", "RemoveFiles, KillTree"),
            (Event::TreeGone, "Stopped", "AnswerStopped, Spawn"),
            (Event::Spawned { post_start: false }, "Running", "AnswerStarted"),
        ],
    );
}

#[test]
fn given_a_quit_when_main_ends_within_the_grace_then_it_is_stopped_and_later_it_has_failed() {
    let now = Instant::now();
    for (after, state) in
        [(GRACE, "Stopped"), (GRACE + Duration::from_millis(1), "Stopping(tree,grace,Exit 7)")]
    {
        for order in
            [QUIT, Event::Pass(Signal::QUIT), signal(Signal::TERM), signal(Signal::INT), signal(Signal::QUIT)]
        {
            let mut machine =
                machine(State::Running { ordered: None, post_start: PostStart::None }, Mode::Monitored);
            machine.step(order, now);
            machine.step(Event::MainEnded(BAD), now + after);
            assert_eq!(show_state(machine.state), state, "{} and {after:?}", show_event(order));
        }
    }
}

#[test]
fn given_a_stop_after_a_failure_when_term_then_the_exit_code_is_that_of_a_term() {
    let now = Instant::now();
    let mut machine = machine(State::Running { ordered: None, post_start: PostStart::None }, Mode::Monitored);
    walk(
        &mut machine,
        now,
        &[
            (
                Event::MainEnded(BAD),
                "Stopping(tree,grace,Exit 7)",
                "RemoveFiles, report main, StopTree(SIGTERM)",
            ),
            (Event::Terminate, "Stopping(tree,grace,Exit 0)", ""),
            (Event::TreeGone, "Over(0)", "AnswerStopped, Exit(0)"),
        ],
    );
}

#[test]
fn given_a_stop_after_a_failure_when_a_drain_begins_then_the_supervisor_stays() {
    let now = Instant::now();
    for begins in [Mode::Unmonitored, Mode::Drained] {
        let mut machine =
            machine(State::Running { ordered: None, post_start: PostStart::None }, Mode::Monitored);
        machine.step(Event::MainEnded(BAD), now);
        walk(
            &mut machine,
            now,
            &[
                (mode(begins), "Stopping(tree,grace,Failed)", "answer Now"),
                (Event::TreeGone, "Failed", "AnswerStopped"),
            ],
        );
    }
}

#[test]
fn given_main_has_ended_during_a_stop_when_signal_kill_then_what_is_left_is_killed_at_once() {
    let now = Instant::now();
    let mut machine = machine(State::Running { ordered: None, post_start: PostStart::None }, Mode::Monitored);
    walk(
        &mut machine,
        now,
        &[
            (STOP, "Stopping(main,grace,Stopped)", "StopMain(SIGTERM), answer Now"),
            (Event::MainEnded(OK), "Stopping(tree,grace,Stopped)", "RemoveFiles, StopTree(SIGTERM)"),
            (signal(Signal::USR1), "Stopping(tree,grace,Stopped)", "refuse"),
            (signal(Signal::KILL), "Stopping(tree,kill,Stopped)", "KillTree, answer Now"),
        ],
    );
}

#[test]
fn given_a_condition_then_it_is_tried_after_each_pause_until_it_is_true() {
    let now = Instant::now();
    let mut machine = machine(State::Down(Rest::Stopped), Mode::Monitored);
    walk(&mut machine, now, &[(Event::Spawned { post_start: true }, "Running/Pausing", "AnswerStarted")]);
    assert_eq!(machine.deadline(), Some(now + INTERVAL));
    walk(&mut machine, now + INTERVAL / 2, &[(Event::Deadline, "Running/Pausing", "")]);
    let mut at = now;
    for _ in 0..3 {
        at += INTERVAL;
        walk(&mut machine, at, &[(Event::Deadline, "Running/Checking", "RunCondition")]);
        assert_eq!(machine.deadline(), Some(now + TIMEOUT));
        walk(&mut machine, at, &[(Event::ConditionEnded(BAD), "Running/Pausing", "")]);
    }
    walk(
        &mut machine,
        at + INTERVAL,
        &[
            (Event::Deadline, "Running/Checking", "RunCondition"),
            (Event::ConditionEnded(OK), "Running/Active", "RunPostStart"),
        ],
    );
    assert_eq!(machine.deadline(), Some(now + TIMEOUT));
    walk(&mut machine, at + INTERVAL, &[(Event::PostStartEnded(OK), "Running", "")]);
    assert_eq!(machine.deadline(), None, "nothing to wake for");
}

#[test]
fn given_something_that_survives_sigkill_then_that_is_reported_once() {
    let mut now = Instant::now();
    let mut machine = machine(State::Running { ordered: None, post_start: PostStart::None }, Mode::Monitored);
    machine.step(signal(Signal::KILL), now);
    let mut reports = 0;
    for _ in 0..200 {
        now = machine.deadline().unwrap();
        let actions = machine.step(Event::Deadline, now);
        assert!(actions.contains(&Action::KillTree));
        reports += actions.iter().filter(|action| **action == Action::Report(Report::SurvivesKill)).count();
    }
    assert_eq!(reports, 1);
}

/// A world of one main process around the machine: carries out the actions as the runtime does,
/// and watches the invariants.
struct World {
    machine: Machine,
    now: Instant,
    main: bool,
    files: bool,
    /// Others of the tree that live on.
    leftovers: bool,
    waiting_for_start: usize,
    waiting_for_stop: usize,
    over: Option<u8>,
    spawns: u32,
}

#[derive(Clone, Copy, Debug)]
enum Happening {
    Event(Event),
    /// The main process ends, if it runs; perhaps others of its tree live on.
    MainEnds(Outcome, bool),
    LeftoversEnd,
    /// Time passes, up to the machine's deadline or beyond.
    Time(u64),
}

impl World {
    fn new() -> Self {
        Self {
            machine: Machine::new(config()),
            now: Instant::now(),
            main: false,
            files: false,
            leftovers: false,
            waiting_for_start: 0,
            waiting_for_stop: 0,
            over: None,
            spawns: 0,
        }
    }

    fn happen(&mut self, happening: Happening, spawn_fails: bool) {
        match happening {
            Happening::Event(event) => self.feed(event, spawn_fails),
            Happening::MainEnds(outcome, leftovers) if self.main => {
                self.main = false;
                self.leftovers |= leftovers;
                self.feed(Event::MainEnded(outcome), spawn_fails);
            }
            Happening::MainEnds(..) => {}
            Happening::LeftoversEnd => {
                self.leftovers = false;
                self.settle(spawn_fails);
            }
            Happening::Time(seconds) => {
                let end = self.now + Duration::from_secs(seconds);
                while let Some(deadline) = self.machine.deadline().filter(|deadline| *deadline <= end) {
                    self.now = deadline.max(self.now);
                    self.feed(Event::Deadline, spawn_fails);
                }
                self.now = end;
            }
        }
    }

    fn feed(&mut self, event: Event, spawn_fails: bool) {
        let actions = self.machine.step(event, self.now);
        for action in actions {
            self.act(action, spawn_fails);
        }
        self.settle(spawn_fails);
    }

    fn settle(&mut self, spawn_fails: bool) {
        if self.machine.awaits_tree() && !self.main && !self.leftovers {
            self.feed(Event::TreeGone, spawn_fails);
        }
    }

    fn act(&mut self, action: Action, spawn_fails: bool) {
        match action {
            Action::Spawn => {
                assert!(!self.main && !self.leftovers, "two at once");
                assert!(self.over.is_none());
                self.spawns += 1;
                if spawn_fails {
                    return self.feed(Event::SpawnFailed(127), spawn_fails);
                }
                self.main = true;
                self.files = true;
                self.feed(Event::Spawned { post_start: true }, spawn_fails);
            }
            Action::KillTree => {
                // What SIGKILL ends comes back as an event, in its own time.
            }
            Action::RemoveFiles => {
                assert!(!self.main, "files of a live process were removed");
                self.files = false;
            }
            Action::Answer(Answer::WhenStarted) => self.waiting_for_start += 1,
            Action::Answer(Answer::WhenStopped) => self.waiting_for_stop += 1,
            Action::AnswerStarted => {
                assert!(self.main);
                self.waiting_for_start = 0;
            }
            Action::RefuseStarted(_) => self.waiting_for_start = 0,
            Action::AnswerStopped => {
                assert!(!self.main && !self.files && !self.leftovers, "answered too early");
                self.waiting_for_stop = 0;
            }
            Action::SignalMain(_) | Action::StopMain(_) => assert!(self.main, "a signal to nobody"),
            Action::Exit(code) => {
                assert!(!self.main && !self.files && !self.leftovers, "an end with a tree alive");
                assert_eq!((self.waiting_for_start, self.waiting_for_stop), (0, 0));
                self.over = Some(code);
            }
            _ => {}
        }
    }

    fn check(&self) {
        assert_eq!(self.files, self.main, "files exist exactly while the process lives");
        assert_eq!(self.over.is_some(), matches!(self.machine.state(), State::Over(_)));
        let knows_main =
            matches!(self.machine.state(), State::Running { .. } | State::Stopping { main: true, .. });
        assert_eq!(knows_main, self.main, "the machine knows whether the process lives");
        let pending = matches!(self.machine.state(), State::Stopping { wish: Wish::Start, .. });
        assert!(pending || self.waiting_for_start == 0, "somebody waits for a start that nobody wishes");
        let stopping = matches!(self.machine.state(), State::Stopping { .. });
        assert!(stopping || self.waiting_for_stop == 0, "somebody waits for a stop that is over");
    }

    /// Lets all that was signalled obey, and the clock run out.
    fn come_to_rest(&mut self) {
        for _ in 0..3 {
            self.happen(Happening::Time(2 * GRACE.as_secs()), false);
            if matches!(self.machine.state(), State::Stopping { .. }) {
                self.happen(Happening::MainEnds(Outcome::Killed(9), false), false);
                self.happen(Happening::LeftoversEnd, false);
            }
        }
    }
}

fn any_happening() -> impl Strategy<Value = Happening> {
    let outcome = prop_oneof![
        Just(OK),
        Just(BAD),
        Just(Outcome::Killed(9)),
        Just(Outcome::Killed(15)),
        Just(Outcome::Exited(143))
    ];
    let command = prop_oneof![
        Just(START),
        Just(STOP),
        Just(STOP_WAIT),
        Just(QUIT),
        Just(STATUS),
        Just(signal(Signal::USR1)),
        Just(signal(Signal::TERM)),
        Just(signal(Signal::KILL)),
        Just(Event::Pass(Signal::HUP)),
        Just(Event::Pass(Signal::QUIT)),
        Just(mode(Mode::Monitored)),
        Just(mode(Mode::Unmonitored)),
        Just(mode(Mode::Drained)),
        Just(Event::ConditionEnded(OK)),
        Just(Event::ConditionEnded(BAD)),
        Just(Event::PostStartEnded(OK)),
        Just(Event::PostStartEnded(BAD)),
        Just(Event::Deadline),
    ];
    prop_oneof![
        6 => command.prop_map(Happening::Event),
        3 => (outcome, any::<bool>()).prop_map(|(outcome, leftovers)| Happening::MainEnds(outcome, leftovers)),
        2 => Just(Happening::LeftoversEnd),
        2 => (0u64..25).prop_map(Happening::Time),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_invariants_hold(
        happenings in prop::collection::vec((any_happening(), prop::bool::weighted(0.05)), 0..60),
        last in prop_oneof![Just(START), Just(STOP_WAIT), Just(Event::Terminate)],
    ) {
        let mut world = World::new();
        world.feed(Event::Begin, false);
        world.check();
        for (happening, spawn_fails) in happenings {
            if world.over.is_some() {
                break;
            }
            world.happen(happening, spawn_fails);
            world.check();
        }
        // The last wish wins: when all has come to rest, it is so, unless a TERM or a failure
        // had ended everything before.
        let exiting = matches!(
            world.machine.state(),
            State::Over(_) | State::Stopping { wish: Wish::Exit(0), .. }
        );
        world.feed(mode(Mode::Unmonitored), false);
        world.feed(last, false);
        world.come_to_rest();
        world.check();
        match (exiting, last) {
            (true, _) => prop_assert!(world.over.is_some()),
            (false, Event::Terminate) => prop_assert_eq!(world.over, Some(0)),
            (false, STOP_WAIT) => {
                prop_assert_eq!(world.machine.state(), State::Down(Rest::Stopped));
            }
            _ => prop_assert!(world.main && world.spawns > 0),
        }
    }
}
