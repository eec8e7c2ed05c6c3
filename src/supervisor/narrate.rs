//! The life cycle in words, for `--debug`: what happened, what came of it, what is done.

use std::time::{Duration, Instant};

use super::machine::{Action, Answer, Clock, Event, PostStart, Report, Rest, State, Wish};

/// One step: `EVENT -> STATE: ACTION, ACTION`.
pub fn step(event: Event, state: State, actions: &[Action], now: Instant) -> String {
    let mut line = format!("{} -> {}", show_event(event), show_state(state, now));
    for (index, action) in actions.iter().enumerate() {
        line.push_str(if index == 0 { ": " } else { ", " });
        line.push_str(&show_action(*action));
    }
    line
}

fn show_event(event: Event) -> String {
    let post_start = |there| if there { "and has a post-start" } else { "and has no post-start" };
    match event {
        Event::Begin => "set up".to_owned(),
        Event::Command(command) => format!("command {command}"),
        Event::Terminate => "order to end".to_owned(),
        Event::Pass(signal) => format!("{signal} for the process"),
        Event::Spawned { post_start: there } => format!("the process runs {}", post_start(there)),
        Event::SpawnFailed(code) => format!("the process cannot be run (as code {code})"),
        Event::SpawnedWithoutFiles => "the process runs, but its files cannot be written".to_owned(),
        Event::MainEnded(outcome) => format!("the process {outcome}"),
        Event::ConditionEnded(outcome) => format!("the condition {outcome}"),
        Event::PostStartEnded(outcome) => format!("post-start {outcome}"),
        Event::TreeGone => "the tree is gone".to_owned(),
        Event::Deadline => "it is time".to_owned(),
    }
}

fn show_state(state: State, now: Instant) -> String {
    let left = |until| show_left(until, now);
    match state {
        State::Down(rest) => show_rest(rest).to_owned(),
        State::Running { ordered, post_start } => {
            let post_start = match post_start {
                PostStart::None => String::new(),
                PostStart::Pausing { until, limit } => {
                    format!(", condition in {}, post-start has {}", left(until), left(limit))
                }
                PostStart::Checking { limit } => format!(", condition runs, post-start has {}", left(limit)),
                PostStart::Active { limit } => format!(", post-start runs and has {}", left(limit)),
            };
            let ordered = match ordered {
                Some(until) if until > now => format!(", an end within {} is no failure", left(until)),
                _ => String::new(),
            };
            format!("running{post_start}{ordered}")
        }
        State::Stopping { main, clock, wish } => {
            let who = if main { "stopping" } else { "stopping what is left" };
            let clock = match clock {
                Clock::Grace(kill) => format!("SIGKILL in {}", left(kill)),
                Clock::Killing { again, .. } => format!("SIGKILL again in {}", left(again)),
            };
            let wish = match wish {
                Wish::Rest(rest) => show_rest(rest).to_owned(),
                Wish::Start => "start".to_owned(),
                Wish::Exit(code) => format!("exit code {code}"),
            };
            format!("{who} ({clock}; then: {wish})")
        }
        State::Over(code) => format!("over with exit code {code}"),
    }
}

fn show_rest(rest: Rest) -> &'static str {
    match rest {
        Rest::Stopped => "stopped",
        Rest::Ended => "ended",
        Rest::Failed => "failed",
    }
}

fn show_left(until: Instant, now: Instant) -> String {
    let left: Duration = until.saturating_duration_since(now);
    format!("{:.3} s", left.as_secs_f64())
}

fn show_action(action: Action) -> String {
    match action {
        Action::Spawn => "run the process".to_owned(),
        Action::SignalMain(signal) => format!("{signal} to the process"),
        Action::StopMain(signal) => format!("stop the process by {signal}"),
        Action::StopPostStart(signal) => format!("{signal} to post-start"),
        Action::StopTree(signal) => format!("{signal} to what is left of the tree"),
        Action::KillTree => "SIGKILL to the tree".to_owned(),
        Action::KillPostStart => "SIGKILL to condition or post-start".to_owned(),
        Action::RunCondition => "run the condition".to_owned(),
        Action::RunPostStart => "run post-start".to_owned(),
        Action::RemoveFiles => "remove pidfile and sentinel".to_owned(),
        Action::Answer(Answer::Now) => "answer".to_owned(),
        Action::Answer(Answer::WhenStarted) => "answer when it runs".to_owned(),
        Action::Answer(Answer::WhenStopped) => "answer when it has stopped".to_owned(),
        Action::Answer(Answer::Refused(reason)) => format!("refuse: {reason}"),
        Action::AnswerStarted => "answer who waits for the start".to_owned(),
        Action::RefuseStarted(reason) => format!("refuse who waits for the start: {reason}"),
        Action::AnswerStopped => "answer who waits for the stop".to_owned(),
        Action::Report(report) => format!("report that {}", show_report(report)),
        Action::Exit(code) => format!("exit code {code}"),
    }
}

fn show_report(report: Report) -> String {
    match report {
        Report::MainFailed(outcome) => format!("the process {outcome}"),
        Report::PostStartFailed(outcome) => format!("post-start {outcome}"),
        Report::PostStartTimedOut => "post-start takes too long".to_owned(),
        Report::SurvivesKill => "something survives SIGKILL".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::Outcome;
    use super::*;
    use crate::control::protocol::Command;
    use crate::signal::Signal;

    #[test]
    fn a_step_reads_as_a_sentence() {
        let now = Instant::now();
        let clock = Clock::Grace(now + Duration::from_secs(20));
        let stopping = State::Stopping { main: true, clock, wish: Wish::Rest(Rest::Stopped) };
        let event = Event::Command(Command::Stop { wait: true });
        let actions = [Action::StopMain(Signal::TERM), Action::Answer(Answer::WhenStopped)];
        assert_eq!(
            step(event, stopping, &actions, now),
            "command STOP WAIT -> stopping (SIGKILL in 20.000 s; then: stopped): \
             stop the process by SIGTERM, answer when it has stopped"
        );
        let ended = Event::MainEnded(Outcome::Exited(7));
        assert_eq!(
            step(ended, State::Down(Rest::Failed), &[], now),
            "the process exited with code 7 -> failed"
        );
    }
}
