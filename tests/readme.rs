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

#[test]
fn every_option_of_the_command_line_is_in_the_readme() {
    let sandbox = Sandbox::new();
    for arguments in [
        &["--help"][..],
        &["install-bpm", "--help"],
        &["send", "--help"],
        &["status", "--help"],
        &["probe", "--help"],
    ] {
        let help = text(&sandbox.run(arguments).stdout);
        let options = help
            .split_whitespace()
            .filter(|word| word.starts_with("--") && word.len() > 2)
            .map(|word| word.trim_end_matches(|c: char| !c.is_alphanumeric()));
        for option in options.filter(|option| !["--help", "--version"].contains(option)) {
            assert!(README.contains(option), "{option}");
        }
    }
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
