//! What `--help` says besides the options: examples, exit codes, files. The manual pages have the
//! same sections.
//!
//! A section is a line that ends with a colon, and lines that are indented. At most 80 columns:
//! the parser does not wrap.

/// The supervisor's help: first its commands, which `-h` shows, too.
pub const TEMPLATE: &str = "{about}\n\n{usage-heading}\n  {usage}\n\n{before-help}{all-args}{after-help}";

/// How the supervisor is called.
pub const USAGE: &str = "container-run [OPTIONS] --job-name J --process-name P [--] EXECUTABLE [ARG]...
  container-run COMMAND ...";

/// The commands by their names.
pub const COMMANDS: &str = "\
Commands:
  install-bpm  Write the bpm script
  send         Send a command to a supervisor and wait for its answer
  status       Show what processes do, and have done: a table, or JSON
  probe        Tell a liveness probe whether the process is well
  list         List the processes of all jobs, as `bpm list`
  drain        A container's pre-stop hook: drain one job
  drain-patch  Replace drain scripts that cannot work across containers";

/// What `-h` leaves out.
pub const MORE: &str = "--help has more: options for post-start, stops and logs, examples, exit codes.";

/// Of the supervisor.
pub const SUPERVISE: &str = "\
Examples:
  container-run --job-name web --process-name web -- /bin/web --port 80
  container-run --job-name web --process-name worker --kill-after 60 worker -v

Exit codes:
  0         after SIGTERM or SIGINT
  its own   the main process failed; 128+n if signal n killed it
  127, 126  EXECUTABLE was not found; was found but is not executable
  1         socket or files cannot be made, post-start failed or took too long
  2         wrong usage

Signals:
  TERM, INT  stop the process and its tree, then exit 0; at once if nothing runs
  QUIT       is passed to the main process, and counts as an order to end
  HUP, USR1, USR2, WINCH, CONT, ALRM
             are passed to the main process

Files:
  Below the BOSH root, for job J and process P:
  data/J/P_containerrun.sock     control socket
  data/J/P_containerrun.lock     locked by the supervisor while it lives
  data/J/P_containerrun.running  there exactly while the main process is alive
  sys/run/bpm/J/P.pid            its PID: decimal, no newline
  jobs/bpm/bin/bpm               the generated bpm script

Environment:
  BPM_BOSH_ROOT  the BOSH root, unless --root says it; /var/vcap if neither does";

/// Of `install-bpm`.
pub const INSTALL_BPM: &str = "\
Examples:
  container-run install-bpm
  container-run install-bpm --root rootfs --container-run /bin/container-run
  container-run install-bpm --print >bpm

Exit codes:
  0  written, or there already
  1  it cannot be written, or somebody else's file is there";

/// Of `send`.
pub const SEND: &str = "\
Verbs:
  START        start the process; remembered, if it is just being stopped
  STOP         stop it
  QUIT         SIGQUIT to it
  SIGNAL NAME  that signal to it, named as by `kill -l`; KILL is for its tree
  STATUS       nothing but the answer
  DETAILS      the same, with an answer that says more: see `status`
  UNMONITOR, DRAINED, MONITOR
               whether its failure ends the supervisor: no, no, yes

Examples:
  container-run send STATUS web
  container-run send STOP web -p worker --wait 30
  container-run send 'SIGNAL USR1' web

Exit codes:
  0  OK; STATE PID MODE is on stdout, after DETAILS also
     SINCE LAST_EXIT RESTARTS
  1  the supervisor refused, or did not answer in time
  3  no supervisor is there";

/// Of `status`.
pub const STATUS: &str = "\
Columns:
  PROCESS    JOB.PROCESS, or JOB if both have one name
  STATE      running, stopping, stopped (by order), ended or failed (unasked);
             dead: the supervisor was killed; no answer: it does not answer
  MODE       monitored; or unmonitored, drained: a failure does not end it
  PID        of the main process, as its own container sees it
  SINCE      for how long the state has been what it is
  LAST EXIT  how the main process ended the last time: its code, or a signal
  RESTARTS   how often this supervisor has started it again
  An older supervisor does not know the last three.

Examples:
  container-run status
  container-run status web -p worker
  container-run status --json

JSON:
  An array of objects, always with all of these members, null if unknown:
  job, process, state, mode  texts, as in the table
  pid, restarts              numbers
  since_seconds              number with decimals
  last_exit                  {\"code\": NUMBER or null, \"signal\": NAME or null}

Exit codes:
  0  all that live have answered
  1  a supervisor does not answer
  3  no supervisor of J lives; nothing is printed then";

/// Of `probe`.
pub const PROBE: &str = "\
Examples:
  container-run probe web
  container-run probe web -p worker

Exit codes:
  0  it runs, stops, was stopped by order, or is not monitored
  1  it ended or failed, or its supervisor does not answer";

/// Of `list`.
pub const LIST: &str = "\
Examples:
  container-run list";

/// Of `drain`.
pub const DRAIN: &str = "\
Examples:
  container-run drain web
  container-run drain web -p worker --wait-only

Exit codes:
  0  drained
  1  a script failed, or the drain was cancelled

Files:
  Below the BOSH root:
  jobs/J/bin/pre-stop, drain, post-stop  what is run, if it is executable
  sys/log/J/container-run-drain.log      what was done";

/// Of `drain-patch`.
pub const DRAIN_PATCH: &str = "\
Examples:
  container-run drain-patch list
  container-run drain-patch apply --all --dry-run

Exit codes:
  0  done
  1  no such replacement; a script that is not what it was expected to be, or
     that cannot be written
  2  wrong usage, or no such property";

/// Of `drain-patch list`.
pub const PATCH_LIST: &str = "\
Examples:
  container-run drain-patch list";

/// Of `drain-patch render`.
pub const PATCH_RENDER: &str = "\
Examples:
  container-run drain-patch render routing/gorouter
  container-run drain-patch render capi/cloud_controller_ng --erb";

/// Of `drain-patch apply`.
pub const PATCH_APPLY: &str = "\
Examples:
  container-run drain-patch apply --all --root ./rootfs/var/vcap
  container-run drain-patch apply routing/gorouter --dry-run";

/// Of `drain-patch pre-render`.
pub const PATCH_PRE_RENDER: &str = "\
Examples:
  container-run drain-patch pre-render routing/gorouter >patch.sh";
