//! Every shell example in the README is run, against a job that is supervised.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;
use common::*;

const README: &str = include_str!("../README.md");

/// The code blocks of one language.
fn blocks(language: &str) -> Vec<String> {
    let opening = format!("```{language}\n");
    README.split(&opening).skip(1).map(|rest| rest.split("\n```").next().unwrap().to_owned()).collect()
}

/// The examples speak of a job `web` in /var/vcap, of a rootfs here, and of programs on PATH.
fn run_in_its_world(example: &str) {
    let sandbox = Sandbox::new();
    let program = probe_with("print=USR1 exit-on=TERM:0 wait");
    let web = sandbox.supervise_as("web", "web", &["--kill-after", "5"], &words(&program));
    web.main_pid();

    let root = sandbox.root().to_str().unwrap();
    let binaries = std::path::Path::new(BINARY).parent().unwrap().display();
    let script = example.replace("/var/vcap", root);
    let output = sandbox
        .program("sh")
        .args(["-euc", &script])
        .env("PATH", format!("{binaries}:{}", std::env::var("PATH").unwrap()))
        .current_dir(sandbox.root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{script}\n{}", text(&output.stderr));
}

#[test]
fn every_shell_example_works_as_it_stands() {
    let examples = blocks("sh");
    assert!(examples.len() >= 5);
    for example in examples.iter().filter(|example| !example.starts_with("make ")) {
        run_in_its_world(example);
    }
}

#[test]
fn the_run_lines_of_the_dockerfile_work() {
    let lines: Vec<String> = blocks("dockerfile")
        .iter()
        .flat_map(|block| block.lines())
        .filter_map(|line| line.strip_prefix("RUN ").map(str::to_owned))
        .collect();
    assert!(!lines.is_empty());
    lines.iter().for_each(|line| run_in_its_world(line));
}

#[test]
fn the_make_targets_that_are_named_exist() {
    let makefile = include_str!("../Makefile");
    let targets: Vec<&str> = README
        .split("make ")
        .skip(1)
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_lowercase()).next())
        .collect();
    for target in ["demo", "test", "build", "install"] {
        assert!(targets.contains(&target), "README names make {target}");
    }
    for line in blocks("sh").iter().flat_map(|block| block.lines()).filter(|line| line.starts_with("make ")) {
        let target = line.split_whitespace().nth(1).unwrap();
        assert!(makefile.contains(&format!("\n{target}:")), "make {target}");
    }
}

/// Each option of a command and of all its subcommands, with the command's full name.
fn options(command: &clap::Command, name: &str, found: &mut Vec<(String, String)>) {
    let long = command.get_arguments().filter_map(|argument| argument.get_long());
    found.extend(long.map(|option| (name.to_owned(), format!("--{option}"))));
    for subcommand in command.get_subcommands().filter(|command| command.get_name() != "help") {
        options(subcommand, &format!("{name} {}", subcommand.get_name()), found);
    }
}

#[test]
fn every_command_and_option_of_the_command_line_is_in_the_readme() {
    let mut found = vec![];
    options(&container_run::cli::documentation(), "container-run", &mut found);
    let names = |option: &str| {
        // The whole word: `--wait` is not in `--wait-only`.
        README.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|word| word == option)
    };
    for (command, option) in &found {
        assert!(README.contains(command.split(' ').next_back().unwrap()), "{command}");
        assert!(["--help", "--version"].contains(&option.as_str()) || names(option), "{command} {option}");
    }
    let of = |command: &str| found.iter().any(|(other, _)| other == command);
    for command in ["status", "drain", "drain-patch render", "drain-patch apply"] {
        assert!(of(&format!("container-run {command}")), "{command} is looked at");
    }
}

/// What is printed, with N for each number and no more than one space: PIDs are of any length.
fn normalised(line: &str) -> String {
    let words = line.split_whitespace().map(|word| match word.parse::<u32>() {
        Ok(_) => "N",
        Err(_) => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A transcript's commands, each with what it printed, and apart from them what the job printed,
/// which may come a moment later than it does in another run.
fn transcript(text: &str) -> (Vec<Vec<String>>, Vec<String>) {
    let (mut commands, mut job) = (vec![], vec![]);
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with("$ ") {
            commands.push(vec![]);
        }
        let part = match commands.last_mut() {
            Some(command) if !line.starts_with("  web: ") => command,
            _ => &mut job,
        };
        part.push(normalised(line));
    }
    (commands, job)
}

/// Whether all of `part` come in `whole`, in their order.
fn comes_in<T: PartialEq>(part: &[T], whole: &[T]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|wanted| rest.any(|found| found == wanted))
}

#[test]
fn the_demo_succeeds_and_prints_what_the_readme_shows() {
    let sandbox = Sandbox::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo.sh");
    let demo = sandbox.program(script).env("CONTAINER_RUN_BINARY", BINARY).output().unwrap();
    assert!(demo.status.success() && demo.stderr.is_empty(), "{demo:?}");
    let printed = text(&demo.stdout);
    assert!(!printed.contains(".sock"), "the supervisor has left its socket:\n{printed}");

    let shown = blocks("text").into_iter().find(|block| block.starts_with("$ bpm list\n")).unwrap();
    let ((commands, job), (shown_commands, shown_job)) = (transcript(&printed), transcript(&shown));
    assert!(shown_commands.len() > 3 && shown_job.len() > 2, "{shown}");
    assert!(comes_in(&shown_commands, &commands), "{shown_commands:?}\n{commands:?}");
    assert!(comes_in(&shown_job, &job), "{shown_job:?}\n{job:?}");
}

#[test]
fn each_guarantee_names_a_test_that_exists() {
    let rows = README.lines().filter_map(|line| line.split("| `tests/").nth(1));
    let mut count = 0;
    for row in rows {
        let (file, rest) = row.split_once("`: `").unwrap();
        let test = rest.split('`').next().unwrap();
        let path = format!("{}/tests/{file}", env!("CARGO_MANIFEST_DIR"));
        let code = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(code.contains(&format!("#[test]\nfn {test}(")), "{file} has no test {test}");
        count += 1;
    }
    assert!(count >= 15, "{count}");
}
