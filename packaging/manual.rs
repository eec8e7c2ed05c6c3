//! Writes manual pages and shell completions into a folder, for `make dist`:
//!
//! ```text
//! man1/container-run.1, man1/container-run-send.1 …
//! bash/container-run  zsh/_container-run  fish/container-run.fish
//! ```

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use container_run::cli;

const NAME: &str = "container-run";

/// What clap cannot know about the supervisor: exit codes, signals, files, environment.
const SECTIONS: &str = include_str!("container-run.1.sections");

fn main() -> io::Result<()> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return Err(io::Error::other("usage: manual OUTDIR"));
    };
    write_pages(&folder.join("man1"))?;
    write_completions(&folder)
}

fn write_pages(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    // The pages tell of every command but `help`, whose pages would only repeat the others'.
    let mut root = cli::documentation().disable_help_subcommand(true);
    root.build();
    write_page(folder, &root, NAME, Some(SECTIONS))
}

/// The page of one command, then those of its subcommands.
fn write_page(folder: &Path, command: &Command, name: &str, sections: Option<&str>) -> io::Result<()> {
    // The page of `send` is headed container-run-send, but its synopsis is what people type.
    let page = Man::new(command.clone().display_name(name.to_owned()).version(env!("CARGO_PKG_VERSION")))
        .title(name.to_uppercase())
        // An empty date would be left out, and the source taken for it.
        .date(" ")
        .source(concat!("container-run ", env!("CARGO_PKG_VERSION")))
        .manual("User Commands");
    let mut text = vec![];
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    match sections {
        // Its own help ends with a list of the commands, which is already there.
        Some(sections) => text.write_all(sections.as_bytes())?,
        None => write!(text, ".SH \"SEE ALSO\"\n\\fB{}\\fR(1)\n", NAME.replace('-', "\\-"))?,
    }
    fs::write(folder.join(format!("{name}.1")), text)?;

    for subcommand in command.get_subcommands() {
        write_page(folder, subcommand, &format!("{name}-{}", subcommand.get_name()), None)?;
    }
    Ok(())
}

fn write_completions(folder: &Path) -> io::Result<()> {
    for (shell, file) in [
        (Shell::Bash, "bash/container-run"),
        (Shell::Zsh, "zsh/_container-run"),
        (Shell::Fish, "fish/container-run.fish"),
    ] {
        let mut text = vec![];
        generate(shell, &mut cli::documentation(), NAME, &mut text);
        // clap_complete's bash writes the dash of a program's name in two ways, and looks for the
        // one under the other: no subcommand would complete its options.
        let text = String::from_utf8_lossy(&text).replace("container__subcmd__run", "container__run");
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, text)?;
    }
    Ok(())
}
