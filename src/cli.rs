//! The command line: every option with its default and its unit.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

use crate::paths::Name;
use crate::signal::Signal;

/// What the command line asks for.
pub enum Request {
    /// Supervise a process.
    Supervise(Box<Supervise>),
    /// One of the subcommands.
    Command(Command),
}

/// Keeps the life cycle of one process of one BOSH job, and takes commands on a unix socket.
#[derive(Debug, Parser)]
#[command(
    name = "container-run",
    version,
    disable_help_subcommand = true,
    override_usage = "container-run [OPTIONS] --job-name J --process-name P [--] EXECUTABLE [ARGS]...\n       \
                      container-run COMMAND ...",
    after_help = "Commands, as the first argument only (each has a --help):\n  \
                  install-bpm  Write the bpm script\n  \
                  send         Send a command to a supervisor and wait for its answer\n  \
                  probe        Tell a liveness probe whether the process is well\n  \
                  list         List the processes of all jobs, as `bpm list`\n  \
                  drain        A container's pre-stop hook: drain one job\n  \
                  drain-patch  Replace drain scripts that cannot work across containers"
)]
pub struct Supervise {
    /// BOSH's name of the job
    #[arg(long, value_name = "J", allow_hyphen_values = true, value_parser = name())]
    pub job_name: Name,

    /// BOSH's name of the process
    #[arg(long, value_name = "P", allow_hyphen_values = true, value_parser = name())]
    pub process_name: Name,

    /// Post-start program; skipped if it is neither a file nor on PATH
    #[arg(long, value_name = "CMD")]
    pub post_start_name: Option<OsString>,

    /// An argument for it; repeatable, may begin with '-'
    #[arg(long, value_name = "ARG", allow_hyphen_values = true, requires = "post_start_name")]
    pub post_start_arg: Vec<OsString>,

    /// Command that must succeed before post-start runs
    #[arg(long, value_name = "CMD", requires = "post_start_name")]
    pub post_start_condition_name: Option<OsString>,

    /// An argument for it; repeatable, may begin with '-'
    #[arg(long, value_name = "ARG", allow_hyphen_values = true, requires = "post_start_condition_name")]
    pub post_start_condition_arg: Vec<OsString>,

    /// Seconds before each try of the condition
    #[arg(long, value_name = "S", default_value = "3", value_parser = seconds, allow_negative_numbers = true)]
    pub post_start_interval: Duration,

    /// Seconds that condition and post-start may take together
    #[arg(long, value_name = "S", default_value = "900", value_parser = seconds, allow_negative_numbers = true)]
    pub post_start_timeout: Duration,

    /// First signal of a stop
    #[arg(long, value_name = "SIGNAL", default_value = "TERM")]
    pub stop_signal: StopSignal,

    /// Seconds from that signal to SIGKILL for all that is left
    #[arg(long, value_name = "S", default_value = "20", value_parser = seconds, allow_negative_numbers = true)]
    pub kill_after: Duration,

    /// The BOSH root [default: $BPM_BOSH_ROOT, else /var/vcap]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// Do not write the bpm script at start-up
    #[arg(long)]
    pub no_install_bpm: bool,

    /// Say each event on stderr
    #[arg(long)]
    pub debug: bool,

    /// The program to run, and its arguments: all that follows belongs to it
    #[arg(value_name = "EXECUTABLE", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

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
    InstallBpm {
        /// Where to write [default: $BPM_BOSH_ROOT, else /var/vcap]
        #[arg(long, value_name = "DIR")]
        root: Option<PathBuf>,

        /// The BOSH root when the script runs [default: /var/vcap if --root is given, else the root]
        #[arg(long, value_name = "DIR")]
        target_root: Option<PathBuf>,

        /// Where container-run lies when the script runs [default: where it lies now]
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
    ///
    /// Exit codes: 0 OK; 1 the supervisor refused, or did not answer in time; 3 no supervisor.
    Send {
        /// START, STOP, QUIT, 'SIGNAL NAME', STATUS, UNMONITOR, DRAINED or MONITOR
        #[arg(value_name = "VERB")]
        verb: String,

        /// Which supervisor
        #[command(flatten)]
        target: Target,

        /// Seconds to wait for the answer; with it, STOP is answered when the process has stopped
        #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
        wait: Option<Duration>,
    },
    /// Tell a liveness probe whether the process is well
    ///
    /// Exit codes: 0 it runs, stops, was stopped by order, or is not monitored; 1 it ended or
    /// failed, or its supervisor does not answer.
    Probe {
        /// Which supervisor
        #[command(flatten)]
        target: Target,
    },
    /// A container's pre-stop hook: drain one job as the BOSH agent does
    ///
    /// Exit codes: 0 drained; 1 a script failed or the drain was cancelled.
    Drain(Drain),
    /// Replace drain scripts that cannot work across containers
    DrainPatch {
        /// What to do
        #[command(subcommand)]
        command: PatchCommand,
    },
    /// List the processes of all jobs, as `bpm list`
    List {
        /// The BOSH root [default: $BPM_BOSH_ROOT, else /var/vcap]
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

    /// Only wait for the drain that another container of the job runs
    #[arg(long)]
    pub wait_only: bool,

    /// The whole pod goes down: do not wait for the other containers of the job to say so
    #[arg(long)]
    pub pod: bool,

    /// Do not wait until all other jobs are drained
    #[arg(long)]
    pub no_barrier: bool,

    /// Seconds in which the hooks of all containers that go down have started
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds, allow_negative_numbers = true)]
    pub settle: Duration,

    /// Seconds after which the drain is cancelled [default: none]
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    pub timeout: Option<Duration>,
}

/// What to do with the replacements of drain scripts.
#[derive(Debug, Subcommand)]
pub enum PatchCommand {
    /// List the replacements: RELEASE/JOB, the file, what it replaces and why
    List,
    /// Print a replacement
    Render {
        /// RELEASE/JOB
        #[arg(value_name = "RELEASE/JOB")]
        patch: String,

        /// Set a property; repeatable
        #[arg(long, value_name = "NAME=VALUE")]
        set: Vec<String>,

        /// Print an ERB template, in which properties stay properties
        #[arg(long, conflicts_with = "set")]
        erb: bool,

        /// The BOSH root when the replacement runs [default: /var/vcap]
        #[arg(long, value_name = "DIR")]
        target_root: Option<PathBuf>,
    },
    /// Replace drain scripts below a root, and keep the originals as FILE.orig
    Apply {
        /// RELEASE/JOB
        #[arg(value_name = "RELEASE/JOB", required_unless_present = "all", conflicts_with = "all")]
        patches: Vec<String>,

        /// Every job of the catalogue that is there
        #[arg(long)]
        all: bool,

        /// Where to write [default: $BPM_BOSH_ROOT, else /var/vcap]
        #[arg(long, value_name = "DIR")]
        root: Option<PathBuf>,

        /// The BOSH root when the replacement runs [default: /var/vcap]
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
    /// Print a script in kubecf's pre_render_scripts form that replaces the job's template
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

    /// The BOSH root [default: $BPM_BOSH_ROOT, else /var/vcap]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

/// Reads a name from what the system gave: one that is no text is shown like the others.
fn name() -> impl TypedValueParser<Value = Name> {
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
    let first = arguments.get(1).and_then(|argument| argument.to_str()).unwrap_or_default();
    let is_command = Commands::command().find_subcommand(first).is_some();
    let parsed = if is_command {
        Commands::try_parse_from(arguments).map(|commands| Request::Command(commands.command))
    } else if first == "help" && arguments.len() == 2 {
        Supervise::try_parse_from(["container-run".as_ref(), OsStr::new("--help")])
            .map(|options| Request::Supervise(Box::new(options)))
    } else {
        Supervise::try_parse_from(arguments).map(|options| Request::Supervise(Box::new(options)))
    };
    parsed.map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that has seen enough is no error.
            let _ = write!(io::stdout(), "{error}");
            0
        }
        _ => {
            crate::log::error(one_line(&error.to_string()));
            2
        }
    })
}

/// The parser's message without its word `error:`, its usage and its tips.
fn one_line(message: &str) -> String {
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let lines = message.lines().take_while(|line| !line.trim().is_empty());
    format!("{} (see --help)", lines.map(str::trim).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;
