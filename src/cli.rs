//! The command line: every option with its default and its unit.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

use crate::help;
use crate::log;
use crate::nearest;
use crate::paths::Name;
use crate::signal::Signal;
use crate::status;

/// What the command line asks for.
pub enum Request {
    /// Supervise a process.
    Supervise(Box<Supervise>),
    /// One of the subcommands.
    Command(Command),
}

/// Supervises one process of one BOSH job, and takes commands on a unix socket.
#[derive(Debug, Parser)]
#[command(
    name = "container-run",
    version,
    disable_help_subcommand = true,
    help_template = help::TEMPLATE,
    override_usage = help::USAGE,
    before_help = help::COMMANDS,
    after_help = help::MORE,
    after_long_help = help::SUPERVISE
)]
pub struct Supervise {
    /// BOSH's name of the job
    #[arg(long, value_name = "J", allow_hyphen_values = true, value_parser = name())]
    pub job_name: Name,

    /// BOSH's name of the process
    #[arg(long, value_name = "P", allow_hyphen_values = true, value_parser = name())]
    pub process_name: Name,

    /// The BOSH root [default: $BPM_BOSH_ROOT or /var/vcap]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// Do not write the bpm script at start-up
    #[arg(long, hide_short_help = true)]
    pub no_install_bpm: bool,

    /// Post-start program; skipped if it is neither a file nor on PATH
    #[arg(long, value_name = "CMD", help_heading = POST_START, hide_short_help = true)]
    pub post_start_name: Option<OsString>,

    /// An argument for it; repeatable, may begin with '-'
    #[arg(
        long,
        value_name = "ARG",
        allow_hyphen_values = true,
        requires = "post_start_name",
        help_heading = POST_START,
        hide_short_help = true
    )]
    pub post_start_arg: Vec<OsString>,

    /// Command that must succeed before post-start runs
    #[arg(
        long,
        value_name = "CMD",
        requires = "post_start_name",
        help_heading = POST_START,
        hide_short_help = true
    )]
    pub post_start_condition_name: Option<OsString>,

    /// An argument for it; repeatable, may begin with '-'
    #[arg(
        long,
        value_name = "ARG",
        allow_hyphen_values = true,
        requires = "post_start_condition_name",
        help_heading = POST_START,
        hide_short_help = true
    )]
    pub post_start_condition_arg: Vec<OsString>,

    /// Seconds before each try of the condition, the first too
    #[arg(
        long,
        value_name = "S",
        default_value = "3",
        value_parser = seconds,
        allow_negative_numbers = true,
        help_heading = POST_START,
        hide_short_help = true
    )]
    pub post_start_interval: Duration,

    /// Seconds that condition and post-start may take together
    #[arg(
        long,
        value_name = "S",
        default_value = "900",
        value_parser = seconds,
        allow_negative_numbers = true,
        help_heading = POST_START,
        hide_short_help = true
    )]
    pub post_start_timeout: Duration,

    /// First signal of a stop
    #[arg(
        long,
        value_name = "SIGNAL",
        default_value = "TERM",
        help_heading = STOPPING,
        hide_short_help = true
    )]
    pub stop_signal: StopSignal,

    /// Seconds from that signal to SIGKILL for all that is left
    #[arg(
        long,
        value_name = "S",
        default_value = "20",
        value_parser = seconds,
        allow_negative_numbers = true,
        help_heading = STOPPING,
        hide_short_help = true
    )]
    pub kill_after: Duration,

    /// Say each event, and what came of it, on stderr
    #[arg(long, help_heading = LOGGING, hide_short_help = true)]
    pub debug: bool,

    /// How lines on stderr look
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        help_heading = LOGGING,
        hide_short_help = true
    )]
    pub log_format: log::Format,

    /// The program to run, and its arguments: all that follows belongs to it
    #[arg(value_name = "EXECUTABLE", required = true, trailing_var_arg = true, hide_short_help = true)]
    pub command: Vec<OsString>,
}

/// The sections of the supervisor's options. Whatever has one is left out of `-h`, which is to
/// fit a screen.
const POST_START: &str = "Post-start";
const STOPPING: &str = "Stopping";
const LOGGING: &str = "Logging";

/// What bpm.yml calls `shutdown_signal`.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum StopSignal {
    /// SIGTERM
    Term,
    /// SIGINT
    Int,
}

impl From<StopSignal> for Signal {
    fn from(signal: StopSignal) -> Self {
        match signal {
            StopSignal::Term => Self::TERM,
            StopSignal::Int => Self::INT,
        }
    }
}

#[derive(Parser)]
#[command(name = "container-run", version, propagate_version = true, disable_help_subcommand = true)]
struct Commands {
    #[command(subcommand)]
    command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write the bpm script to DIR/jobs/bpm/bin/bpm
    #[command(after_long_help = help::INSTALL_BPM)]
    InstallBpm {
        /// Write here [default: $BPM_BOSH_ROOT or /var/vcap]
        #[arg(long, value_name = "DIR")]
        root: Option<PathBuf>,

        /// The BOSH root when the script runs
        ///
        /// [default: /var/vcap if --root is given, else the root]
        #[arg(long, value_name = "DIR")]
        target_root: Option<PathBuf>,

        /// Where container-run will lie [default: as now]
        #[arg(long, value_name = "PATH")]
        container_run: Option<PathBuf>,

        /// Replace a file that container-run did not generate
        #[arg(long)]
        force: bool,

        /// Write to stdout instead
        #[arg(long)]
        print: bool,
    },
    /// Send a command to a supervisor and print STATE PID MODE
    #[command(after_long_help = help::SEND)]
    Send {
        /// START, STOP, QUIT, 'SIGNAL NAME', STATUS ...; see --help
        #[arg(value_name = "VERB")]
        verb: String,

        /// Which supervisor
        #[command(flatten)]
        target: Target,

        /// Seconds to wait [default: 5]; STOP waits for the end
        ///
        /// With it, STOP is answered when the process has stopped.
        #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
        wait: Option<Duration>,
    },
    /// Show what processes do, and have done: a table, or JSON
    #[command(after_long_help = help::STATUS)]
    Status(status::Options),
    /// Tell a liveness probe whether the process is well
    #[command(after_long_help = help::PROBE)]
    Probe {
        /// Which supervisor
        #[command(flatten)]
        target: Target,
    },
    /// A container's pre-stop hook: drain one job as the BOSH agent does
    #[command(after_long_help = help::DRAIN)]
    Drain(Drain),
    /// Replace drain scripts that cannot work across containers
    #[command(after_long_help = help::DRAIN_PATCH)]
    DrainPatch {
        /// What to do
        #[command(subcommand)]
        command: PatchCommand,
    },
    /// List the processes of all jobs, as `bpm list`
    #[command(after_long_help = help::LIST)]
    List {
        /// The BOSH root [default: $BPM_BOSH_ROOT or /var/vcap]
        #[arg(long, value_name = "DIR")]
        root: Option<PathBuf>,
    },
}

/// How to drain.
#[derive(Debug, clap::Args)]
pub struct Drain {
    /// Which container's hook this is
    #[command(flatten)]
    pub target: Target,

    /// Only wait for the drain that another container runs
    #[arg(long)]
    pub wait_only: bool,

    /// The whole pod goes down: do not ask the others
    #[arg(long)]
    pub pod: bool,

    /// Do not wait until all other jobs are drained
    #[arg(long)]
    pub no_barrier: bool,

    /// Seconds in which all hooks have started
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds, allow_negative_numbers = true)]
    pub settle: Duration,

    /// Seconds after which the drain is cancelled [default: none]
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    pub timeout: Option<Duration>,
}

/// What to do with the replacements of drain scripts.
#[derive(Debug, Subcommand)]
pub enum PatchCommand {
    /// List the replacements: RELEASE/JOB, file, what is replaced and why
    #[command(after_long_help = help::PATCH_LIST)]
    List,
    /// Print a replacement
    #[command(after_long_help = help::PATCH_RENDER)]
    Render {
        /// RELEASE/JOB
        #[arg(value_name = "RELEASE/JOB")]
        patch: String,

        /// Set a property; repeatable
        #[arg(long, value_name = "NAME=VALUE")]
        set: Vec<String>,

        /// Print an ERB template: properties stay so
        #[arg(long, conflicts_with = "set")]
        erb: bool,

        /// The BOSH root when it runs [default: /var/vcap]
        #[arg(long, value_name = "DIR")]
        target_root: Option<PathBuf>,
    },
    /// Replace drain scripts; the originals stay as FILE.orig
    #[command(after_long_help = help::PATCH_APPLY)]
    Apply {
        /// RELEASE/JOB
        #[arg(value_name = "RELEASE/JOB", required_unless_present = "all", conflicts_with = "all")]
        patches: Vec<String>,

        /// Every job of the catalogue that is there
        #[arg(long)]
        all: bool,

        /// Where to write [default: $BPM_BOSH_ROOT or /var/vcap]
        #[arg(long, value_name = "DIR")]
        root: Option<PathBuf>,

        /// The BOSH root when it runs [default: /var/vcap]
        #[arg(long, value_name = "DIR")]
        target_root: Option<PathBuf>,

        /// Set a property; repeatable
        #[arg(long, value_name = "NAME=VALUE")]
        set: Vec<String>,

        /// Say what would be done, and do nothing
        #[arg(long)]
        dry_run: bool,

        /// Replace a script that is not known to need it
        #[arg(long)]
        force: bool,
    },
    /// Print a script for kubecf's pre_render_scripts that does the same
    #[command(after_long_help = help::PATCH_PRE_RENDER)]
    PreRender {
        /// RELEASE/JOB
        #[arg(value_name = "RELEASE/JOB")]
        patch: String,
    },
}

/// Which supervisor is meant.
#[derive(Clone, Debug, clap::Args)]
pub struct Target {
    /// The job
    #[arg(value_name = "J", value_parser = name())]
    pub job: Name,

    /// The process [default: the job's name]
    #[arg(short, long, value_name = "P", allow_hyphen_values = true, value_parser = name())]
    pub process: Option<Name>,

    /// The BOSH root [default: $BPM_BOSH_ROOT or /var/vcap]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

/// Reads a name from what the system gave: one that is no text is shown like the others.
pub(crate) fn name() -> impl TypedValueParser<Value = Name> {
    OsStringValueParser::new().try_map(|text| match text.to_str() {
        Some(text) => text.parse::<Name>(),
        None => Err(anyhow::anyhow!("the name '{}' is not UTF-8", text.display())),
    })
}

/// More seconds than any process lives, and few enough to reckon with.
const MOST_SECONDS: f64 = 1e9;

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
        .ok()
        .filter(|seconds| *seconds <= MOST_SECONDS)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("expected seconds from 0 to {MOST_SECONDS}, like 20 or 0.5"))
}

/// The whole command line in one definition, for manual pages and completions. Reading it takes
/// two, since a command is one as the first argument only.
pub fn documentation() -> clap::Command {
    Supervise::command().subcommands(Commands::command().get_subcommands().cloned())
}

/// Reads the arguments, the program's own name first.
///
/// # Errors
///
/// The exit code, when help was asked for or the arguments are wrong; the user has been told.
pub fn parse(arguments: Vec<OsString>) -> Result<Request, u8> {
    let asks_for_help = arguments.get(1).is_some_and(|first| first == "help");
    let arguments = if asks_for_help { help_as_option(&arguments)? } else { arguments };
    let first = arguments.get(1).and_then(|argument| argument.to_str()).unwrap_or_default();
    let parsed = if is_command(first) {
        Commands::try_parse_from(&arguments).map(|commands| Request::Command(commands.command))
    } else {
        Supervise::try_parse_from(&arguments).map(|options| Request::Supervise(Box::new(options)))
    };
    parsed.map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that has seen enough is no error.
            let _ = write!(io::stdout(), "{error}");
            0
        }
        _ => {
            log::error(one_line(&error, first));
            2
        }
    })
}

/// `help COMMAND` is `COMMAND --help`, and nothing more: options behind it would be carried out.
fn help_as_option(arguments: &[OsString]) -> Result<Vec<OsString>, u8> {
    let is_word = |argument: &&OsString| !argument.as_encoded_bytes().starts_with(b"-");
    let words: Vec<&OsString> = arguments.iter().skip(2).take_while(is_word).collect();
    if let Some(word) = words.first().map(|word| word.to_string_lossy())
        && !is_command(&word)
    {
        let line = format!("unknown command '{}'", word.escape_debug());
        log::error(with_hint(&line, meant_command(&word)));
        return Err(2);
    }
    let option = OsString::from("--help");
    Ok(arguments.iter().take(1).chain(words).chain([&option]).cloned().collect())
}

fn is_command(word: &str) -> bool {
    Command::has_subcommand(word)
}

/// The parser's message without its word `error:`, its usage and its tips; and what may be meant.
fn one_line(error: &clap::Error, first: &str) -> String {
    let message = error.to_string();
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let lines = message.lines().take_while(|line| !line.trim().is_empty());
    let line = lines.map(str::trim).collect::<Vec<_>>().join(" ");
    with_hint(&line, suggestion(error).or_else(|| mistyped_command(error, first)))
}

fn with_hint(line: &str, meant: Option<String>) -> String {
    match meant {
        Some(meant) => format!("{line}; did you mean '{meant}'? (see --help)"),
        None => format!("{line} (see --help)"),
    }
}

/// The word that is like the wrong one.
fn suggestion(error: &clap::Error) -> Option<String> {
    use ContextKind::{SuggestedArg, SuggestedSubcommand, SuggestedValue};
    let value =
        [SuggestedArg, SuggestedSubcommand, SuggestedValue].iter().find_map(|kind| error.get(*kind))?;
    match value {
        ContextValue::String(word) => Some(word.clone()),
        ContextValue::Strings(words) => words.first().cloned(),
        _ => None,
    }
}

/// A mistyped command is taken for an EXECUTABLE without its job.
fn mistyped_command(error: &clap::Error, word: &str) -> Option<String> {
    let is_missing = error.kind() == ErrorKind::MissingRequiredArgument;
    if is_missing && !is_command(word) { meant_command(word) } else { None }
}

fn meant_command(word: &str) -> Option<String> {
    let commands = Commands::command();
    let names = commands.get_subcommands().map(clap::Command::get_name);
    nearest::meant(word, names).map(str::to_owned)
}

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;
