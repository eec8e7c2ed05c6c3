//! The command line, form by form.

use super::*;

fn parse_words(words: &[&str]) -> Result<Request, u8> {
    parse(std::iter::once("container-run").chain(words.iter().copied()).map(OsString::from).collect())
}

fn supervise(words: &[&str]) -> Supervise {
    let words: Vec<&str> = ["--job-name", "j", "--process-name", "p"].iter().chain(words).copied().collect();
    match parse_words(&words) {
        Ok(Request::Supervise(options)) => *options,
        _ => panic!("{words:?}"),
    }
}

#[test]
fn the_definitions_hold_together() {
    Supervise::command().debug_assert();
    Commands::command().debug_assert();
}

#[test]
fn the_defaults_are_those_of_the_contract() {
    let options = supervise(&["x"]);
    assert_eq!(options.post_start_interval, Duration::from_secs(3));
    assert_eq!(options.post_start_timeout, Duration::from_secs(900));
    assert_eq!(options.kill_after, Duration::from_secs(20));
    assert!(matches!(options.stop_signal, StopSignal::Term));
    assert!(!options.no_install_bpm && !options.debug);
}

#[test]
fn all_from_executable_on_belongs_to_it() {
    for dashes in [&["--"][..], &[]] {
        let own = ["prog", "-a", "--b=c", "--debug", "--", "--help", "--job-name", "x"];
        let options = supervise(&[dashes, &own].concat());
        assert_eq!(options.command, own);
        assert!(!options.debug);
    }
    assert_eq!(supervise(&["--", "-x"]).command, ["-x"]);
    assert_eq!(supervise(&["--", "install-bpm"]).command, ["install-bpm"]);
    assert_eq!(supervise(&["install-bpm"]).command, ["install-bpm"]);
}

#[test]
fn the_operators_command_line_works_as_it_stands() {
    let words = [
        "--post-start-name",
        "/var/vcap/jobs/j/bin/post-start",
        "--post-start-condition-name",
        "sh",
        "--post-start-condition-arg",
        "-c",
        "--post-start-condition-arg",
        "curl -s localhost",
        "--job-name",
        "j",
        "--process-name",
        "p",
        "--",
        "/x",
        "-a",
        "--b=c",
    ];
    let Ok(Request::Supervise(options)) = parse_words(&words) else { panic!() };
    assert_eq!(options.post_start_condition_arg, ["-c", "curl -s localhost"]);
    assert_eq!(options.command, ["/x", "-a", "--b=c"]);
}

#[test]
fn a_value_may_begin_with_a_dash_where_it_must_be_able_to() {
    let options =
        supervise(&["--post-start-name", "x", "--post-start-arg", "--debug", "--post-start-arg=-1", "y"]);
    assert_eq!(options.post_start_arg, ["--debug", "-1"]);
    assert!(!options.debug);
    let words = ["send", "STATUS", "-p", "-x", "--", "-j"];
    let Ok(Request::Command(Command::Send { target, .. })) = parse_words(&words) else { panic!() };
    assert_eq!((target.job.as_str(), target.process.as_ref().map(Name::as_str)), ("-j", Some("-x")));
}

#[test]
fn seconds_take_decimals_and_nothing_strange() {
    assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
    assert_eq!(seconds("0"), Ok(Duration::ZERO));
    for text in ["", "-1", "x", "5s", "NaN", "inf", "1e10", "-0.1"] {
        assert!(seconds(text).is_err(), "{text:?}");
    }
}

#[test]
fn a_wrong_command_line_is_usage() {
    let wrong: [&[&str]; 14] = [
        &[],
        &["x"],
        &["--job-name", "j", "x"],
        &["--process-name", "p", "x"],
        &["--job-name", "j", "--process-name", "p"],
        &["--job-name", "a/b", "--process-name", "p", "x"],
        &["--job-name", "", "--process-name", "p", "x"],
        &["--job-name", "j", "--job-name", "j", "--process-name", "p", "x"],
        &["--job-name", "j", "--process-name", "p", "--bogus", "x"],
        &["--job-name", "j", "--process-name", "p", "--kill-after", "soon", "x"],
        &["--job-name", "j", "--process-name", "p", "--stop-signal", "HUP", "x"],
        &["--job-name", "j", "--process-name", "p", "--post-start-arg", "a", "x"],
        &["--job-name", "j", "--process-name", "p", "--post-start-condition-name", "a", "x"],
        &["send", "STOP"],
    ];
    for words in wrong {
        assert!(matches!(parse_words(words), Err(2)), "{words:?}");
    }
    for words in [&["--help"][..], &["-h"], &["--version"], &["help"], &["send", "--help"], &["probe", "-h"]]
    {
        assert!(matches!(parse_words(words), Err(0)), "{words:?}");
    }
}

#[test]
fn every_example_in_a_help_is_a_command_line_that_works() {
    fn visit(command: &clap::Command, examples: &mut Vec<String>) {
        let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        let lines = help.lines().filter_map(|line| line.strip_prefix("  container-run "));
        examples.extend(lines.map(str::to_owned));
        command.get_subcommands().for_each(|subcommand| visit(subcommand, examples));
    }
    let mut examples = vec![];
    visit(&documentation(), &mut examples);
    assert!(examples.len() > 10, "{examples:?}");
    for example in examples {
        // The words of a shell; those of the examples are simple.
        let parts: Vec<&str> = example.split('\'').collect();
        let words: Vec<&str> = match parts[..] {
            [before, quoted, after] => {
                before.split_whitespace().chain([quoted]).chain(after.split_whitespace()).collect()
            }
            _ => example.split(" >").next().unwrap_or_default().split_whitespace().collect(),
        };
        assert!(parse_words(&words).is_ok(), "{words:?}");
    }
}

#[test]
fn the_help_lists_every_command() {
    let listed: Vec<&str> =
        help::COMMANDS.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    let commands = Commands::command();
    let mut names: Vec<&str> = commands.get_subcommands().map(clap::Command::get_name).collect();
    names.sort_by_key(|name| listed.iter().position(|listed| listed == name));
    assert_eq!(listed, names);
}
