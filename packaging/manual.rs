//! Writes manual pages, shell completions and licences into a folder, for `make dist`:
//!
//! ```text
//! man1/container-run.1, man1/container-run-send.1 …
//! bash/container-run  zsh/_container-run  fish/container-run.fish
//! THIRD-PARTY
//! ```

mod licences;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use container_run::cli;

const NAME: &str = "container-run";

fn main() -> io::Result<()> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return Err(io::Error::other("usage: manual OUTDIR"));
    };
    write_pages(&folder.join("man1"))?;
    write_completions(&folder)?;
    fs::write(folder.join("THIRD-PARTY"), licences::collect()?)
}

fn write_pages(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    // The pages tell of every command but `help`, whose pages would only repeat the others'.
    // What `-h` has no room for would be named without a word.
    let mut root = cli::documentation()
        .disable_help_subcommand(true)
        .mut_args(|argument| argument.hide_short_help(false));
    root.build();
    write_page(folder, &root, NAME)
}

/// The page of one command, then those of its subcommands.
fn write_page(folder: &Path, command: &Command, name: &str) -> io::Result<()> {
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
    let sections = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    text.write_all(roff(&sections).as_bytes())?;
    if name != NAME {
        write!(text, ".SH \"SEE ALSO\"\n\\fB{}\\fR(1)\n", NAME.replace('-', "\\-"))?;
    }
    fs::write(folder.join(format!("{name}.1")), text)?;

    for subcommand in command.get_subcommands() {
        write_page(folder, subcommand, &format!("{name}-{}", subcommand.get_name()))?;
    }
    Ok(())
}

/// The sections of a help in the language of manual pages: a line without an indentation is a
/// heading, and the lines below it stay as they are.
fn roff(sections: &str) -> String {
    let mut text = String::new();
    for line in sections.lines() {
        let escaped =
            line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace('`', "\\(ga");
        match escaped.strip_prefix("  ") {
            Some(body) => text.push_str(&format!("\\&{body}\n")),
            None if line.is_empty() => text.push_str(".fi\n"),
            None => {
                text.push_str(&format!(".SH \"{}\"\n.nf\n", escaped.trim_end_matches(':').to_uppercase()))
            }
        }
    }
    text + ".fi\n"
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
