#!/bin/sh
@{ mark }@
#
# bpm for jobs in containers (container-run @{ version }@). On a BOSH VM the real bpm starts and
# stops a job's processes. In a container its supervisor, container-run, does; this script tells
# it to. `bpm help` says what there is; `container-run --help` is about the supervisor.

set -u

default_root=@{ root }@
default_binary=@{ container_run }@

root=${BPM_BOSH_ROOT:-$default_root}
case $root in
  /*) ;;
  *) root=$PWD/$root ;;
esac
# container-run looks in the same place.
BPM_BOSH_ROOT=$root
export BPM_BOSH_ROOT
binary=${CONTAINER_RUN:-$default_binary}

# How long start and stop wait, in seconds: longer than a stop's 20 s before SIGKILL.
patience=30

# How long the other commands wait, in seconds, as `container-run send` does.
answer_patience=5

# Exit code of `container-run send` when no supervisor is there.
no_supervisor=3

# What it means without container-run that the supervisor is there, but has no room for a command.
no_room=4

usage() {
  cat <<'TEXT'
bpm: drives the processes of BOSH jobs in containers

Usage:
  bpm start JOB [-p PROCESS]          start the process; wait until it runs
  bpm stop JOB [-p PROCESS]           stop it; wait until it has stopped
  bpm term JOB [-p PROCESS]           stop it; do not wait
  bpm quit JOB [-p PROCESS]           send it SIGQUIT
  bpm signal JOB SIGNAL [-p PROCESS]  send it a signal: TERM, USR1, ...
  bpm running JOB [-p PROCESS]        exit 0 if it runs, 1 if not
  bpm pid JOB [-p PROCESS]            print its PID
  bpm list                            list all processes
  bpm logs JOB [-p PROCESS] [flags]   print the end of its log
  bpm version                         print the version
  bpm help [COMMAND]                  print this text, or more about a command

Flags:
  -p, --process PROCESS   the process, if it is not named like the job
  -a, --all               logs: stdout and stderr
  -e, --err               logs: stderr
  -f, --follow            logs: go on as the log grows
  -n, --lines LINES       logs: so many lines (25)
  -q, --quiet             logs: no headers with file names
TEXT
}

fail() {
  printf 'Error: %s\n' "$1" >&2
  exit 1
}

# --- help ---------------------------------------------------------------------------------------

# explain COMMAND: prints its help; 1 if there is no such command.
explain() {
  case $1 in
    start)
      about 'start JOB [-p PROCESS]' <<'TEXT'
Starts the process and waits until it runs, at most 30 s. During a stop it waits
for that first. Where no supervisor is there yet it warns, if JOB is installed:
the process's container will start it.

Exit code: 0 it runs, also if it did before; 1 it does not.
Example:   bpm start web -p worker
TEXT
      ;;
    stop)
      about 'stop JOB [-p PROCESS]' <<'TEXT'
Stops the process and waits until it and all its descendants are gone, at most
30 s. It gets SIGTERM, and what is left of them after 20 s SIGKILL, unless the
supervisor's options say otherwise.

Exit code: 0 stopped, also if it was, or no supervisor lives; 1 it is not.
Example:   bpm stop web
TEXT
      ;;
    term)
      about 'term JOB [-p PROCESS]' <<'TEXT'
Stops the process as `bpm stop` does, but does not wait.

Exit code: 0 it was told, or nothing runs; 1 the supervisor does not answer.
Example:   bpm term web
TEXT
      ;;
    quit)
      about 'quit JOB [-p PROCESS]' <<'TEXT'
Sends SIGQUIT to the process: for a thread dump, or to end it in its own way. An
end soon after it counts as a stop.

Exit code: 0 it was told, or nothing runs; 1 the supervisor does not answer.
Example:   bpm quit web
TEXT
      ;;
    signal)
      about 'signal JOB SIGNAL [-p PROCESS]' <<'TEXT'
Sends a signal to the process, named as by `kill -l`, with or without SIG. KILL
is for the process and all its descendants.

Exit code: 0 sent; 1 the process does not run, or there is no such signal.
Example:   bpm signal web USR1
TEXT
      ;;
    running)
      about 'running JOB [-p PROCESS]' <<'TEXT'
Tells whether the process is alive. On a terminal it prints yes or no.

Exit code: 0 yes; 1 no.
Example:   until bpm running web; do sleep 1; done
TEXT
      ;;
    pid)
      about 'pid JOB [-p PROCESS]' <<'TEXT'
Prints the PID of the process, as its own container sees it. To signal it from
another container there is `bpm signal`.

Exit code: 0; 1 the process does not run.
Example:   bpm pid web
TEXT
      ;;
    list)
      about list <<'TEXT'
Lists all processes that have, or had, a supervisor: JOB or JOB.PROCESS, PID,
and running, stopped or failed. `container-run status` tells more.

Exit code: 0.
Example:   bpm list
TEXT
      ;;
    logs)
      about 'logs JOB [-p PROCESS] [-a] [-e] [-f] [-n LINES] [-q]' <<'TEXT'
Prints the end of the process's log, sys/log/JOB/PROCESS.stdout.log.

Exit code: 0; 1 there is no log.
Example:   bpm logs web -a -f

  -a, --all               stdout and stderr
  -e, --err               stderr
  -f, --follow            go on as the log grows
  -n, --lines LINES       so many lines (25)
  -q, --quiet             no headers with file names
TEXT
      ;;
    version)
      about version <<'TEXT'
Prints the version of the container-run that made this script.
TEXT
      ;;
    help)
      about 'help [COMMAND]' <<'TEXT'
Prints what there is, or more about a command; so does `bpm COMMAND --help`.
TEXT
      ;;
    run | shell | trace) say_not_here "$1" ;;
    *) return 1 ;;
  esac
}

# about USAGE: prints a command's help, of which stdin is the main part.
about() {
  printf 'Usage:\n  bpm %s\n\n' "$1"
  cat
  case $1 in
    *PROCESS*) printf '\n  -p, --process PROCESS   the process, if it is not named like the job\n' ;;
  esac
}

# What the real bpm has, and why there is no such thing here.
say_not_here() {
  case $1 in
    run) set -- run 'start a container with the process' ;;
    shell) set -- shell 'use kubectl exec' ;;
    trace) set -- trace 'use strace in a debug container (kubectl debug)' ;;
  esac
  printf 'bpm %s is not possible in a container: %s instead\n' "$1" "$2"
}

# fail_unknown COMMAND: says as the real bpm does that there is no such command, and which may be meant.
fail_unknown() {
  # As there, its case does not matter.
  typed=$(printf '%s' "$1" | tr '[:upper:]' '[:lower:]')
  hint=''
  for known in help list logs pid quit running signal start stop term version; do
    ! is_like "$typed" "$known" || hint="$hint	$known
"
  done
  [ -z "$hint" ] || hint="
Did you mean this?
$hint
"
  printf 'Error: unknown command "%s" for "bpm"\n%s' "$1" "$hint" >&2
  printf "Run 'bpm --help' for usage.\n" >&2
  exit 1
}

# is_like TYPED COMMAND: whether it is how the command begins, or two letters from it.
is_like() {
  case $2 in
    "$1"*) [ -n "$1" ] ;;
    *) is_near 2 "$1" "$2" ;;
  esac
}

# is_near EDITS A B: whether so many letters added, left out or changed make A to B.
is_near() {
  [ "$2" != "$3" ] || return 0
  [ "$1" -gt 0 ] || return 1
  if [ "${2%"${2#?}"}" = "${3%"${3#?}"}" ]; then
    is_near "$1" "${2#?}" "${3#?}"
  else
    is_near $(($1 - 1)) "${2#?}" "${3#?}" || is_near $(($1 - 1)) "${2#?}" "$3" ||
      is_near $(($1 - 1)) "$2" "${3#?}"
  fi
}

# --- the command line ---------------------------------------------------------------------------

# Reads options and words in any order, as the real bpm's flags package does.
parse() {
  command=$1
  shift
  job='' process='' signal='' all=no err=no follow=no lines=25 quiet=no
  words=0 options=yes
  while [ $# -gt 0 ]; do
    word=$1
    shift
    case $options$word in
      yes--) options=no ;;
      yes--help) explain "$command" && exit 0 ;;
      yes--process=*) process=${word#*=} ;;
      yes--process)
        [ $# -gt 0 ] || fail "flag needs an argument: $word"
        process=$1
        shift
        ;;
      yes--lines=* | yes--lines | yes--all | yes--err | yes--follow | yes--quiet)
        [ "$command" = logs ] || fail "unknown flag: ${word%%=*}"
        case $word in
          --lines=*) lines=${word#*=} ;;
          --lines)
            [ $# -gt 0 ] || fail "flag needs an argument: $word"
            lines=$1
            shift
            ;;
          --all) all=yes ;;
          --err) err=yes ;;
          --follow) follow=yes ;;
          --quiet) quiet=yes ;;
        esac
        ;;
      yes--*) fail "unknown flag: ${word%%=*}" ;;
      yes-?*)
        # One dash may hold several letters; the value of p or n is the rest, or the next word.
        letters=${word#-}
        while [ -n "$letters" ]; do
          rest=${letters#?}
          letter=${letters%"$rest"}
          case $command:$letter in
            *:h) explain "$command" && exit 0 ;;
            *:p | logs:n)
              if [ -n "$rest" ]; then
                value=${rest#=}
              elif [ $# -gt 0 ]; then
                value=$1
                shift
              else
                fail "flag needs an argument: '$letter' in -$letters"
              fi
              if [ "$letter" = p ]; then process=$value; else lines=$value; fi
              rest=''
              ;;
            logs:a) all=yes ;;
            logs:e) err=yes ;;
            logs:f) follow=yes ;;
            logs:q) quiet=yes ;;
            *) fail "unknown shorthand flag: '$letter' in -$letters" ;;
          esac
          letters=$rest
        done
        ;;
      *)
        words=$((words + 1))
        case $words in
          1) job=$word ;;
          2) signal=$word ;;
        esac
        ;;
    esac
  done
}

need_job() {
  [ -n "$job" ] || fail 'must specify a job'
  process=${process:-$job}
  for name in "$job" "$process"; do
    case $name in
      . | .. | */*) fail "the name '$name' is not the name of a file" ;;
    esac
  done
  files=$root/data/$job/${process}_containerrun
  pidfile=$root/sys/run/bpm/$job/$process.pid
}

# --- the supervisor -----------------------------------------------------------------------------

# Whether this program is there. CONTAINER_RUN may hold a path or a name.
have() {
  command -v "$1" >/dev/null 2>&1
}

# tell VERB [SECONDS]: sends VERB, with SECONDS also waits so long for it to be carried out.
# Leaves the answer (STATE PID MODE), or the reason why there is none, in $said.
# Returns 0, $no_supervisor if there is none, and anything else if it was refused or not answered.
tell() {
  if have "$binary"; then
    said=$("$binary" send "$1" --process="$process" ${2+"--wait=$2"} -- "$job" 2>&1)
    set -- $?
    said=${said#container-run: }
    return "$1"
  fi
  limit=${2-$limit}
  deliver "$1" || return
  case $1 in
    START) await running ;;
    STOP) [ $# -lt 2 ] || await stopped ;;
  esac
}

# deliver VERB: sends VERB without container-run, as soon as there is room for it; nothing can be
# said of the answer. Returns as tell does.
deliver() {
  start_clock
  while :; do
    attempt "$1"
    code=$?
    { [ "$code" -eq "$no_room" ] && is_time_left; } || return "$code"
    sleep 0.1
  done
}

# attempt VERB: the same once; $no_room if there is none.
attempt() {
  is_visible || return
  # A link could lead to another job's supervisor.
  [ -S "$files.sock" ] && [ ! -L "$files.sock" ] || return "$no_supervisor"
  # A link with a short and plain name: the socket's own may be longer than an address can be,
  # and hold what socat takes for its syntax.
  { folder=$(mktemp -d) && ln -s "$files.sock" "$folder/s"; } || fail 'cannot make a temporary folder'
  trouble=$(LC_ALL=C && export LC_ALL && cd "$folder" && send_datagram "$1" 2>&1 >/dev/null)
  set -- $?
  rm -f "$folder/s"
  rmdir "$folder"
  case $1:$trouble in
    0:*) ;;
    127:*) fail "cannot reach the supervisor: neither $binary nor socat, perl or OpenBSD's nc is there; install one" ;;
    # Nobody holds the socket, or it has gone just now.
    *'Connection refused'* | *'No such file or directory'*) return "$no_supervisor" ;;
    *'Resource temporarily unavailable'*)
      said="no answer from $files.sock, whose queue is full"
      return "$no_room"
      ;;
    *)
      said="cannot send to $files.sock: ${trouble##*: }"
      return 1
      ;;
  esac
}

# Whether a socket would be seen if it were there. In a folder that is closed to us one may be.
is_visible() {
  folder=${files%/*}
  until [ -d "${folder:-/}" ]; do folder=${folder%/*}; done
  [ -x "${folder:-/}" ] || {
    said="cannot look into $folder: Permission denied"
    return 1
  }
}

# Sends to the socket s in this folder; 127 if there is nothing to send with. None of them may wait
# for room: a supervisor that hangs never makes any.
send_datagram() {
  if have socat; then
    printf '%s' "$1" | socat -u - UNIX-SENDTO:s,nonblock
  elif have perl; then
    perl -MSocket -e 'socket(S, AF_UNIX, SOCK_DGRAM, 0) && connect(S, pack_sockaddr_un("s"))
      && send(S, $ARGV[0], MSG_DONTWAIT) or die "$!\n"' -- "$1"
  elif nc_knows_sockets; then
    # After a second without room it gives up, and does not tell.
    printf '%s' "$1" | nc -w 1 -uU s
  else
    return 127
  fi
}

# Only OpenBSD's nc does; its help says so.
nc_knows_sockets() {
  have nc || return
  case $(nc -h 2>&1) in
    *'UNIX domain socket'* | *'UNIX-domain socket'*) ;;
    *) return 1 ;;
  esac
}

# await STATE: waits until the sentinel says so; a dead supervisor's says nothing.
await() {
  while :; do
    is_alive attempt
    case $1:$? in
      # Without room for the question the supervisor lives all the same.
      running:0 | running:"$no_room" | stopped:"$no_supervisor") return 0 ;;
    esac
    is_time_left || {
      said="the process did not get to be $1 within $limit s"
      return 1
    }
    sleep 0.1
  done
}

# is_alive deliver|attempt: without container-run: 0 if the sentinel is there and its supervisor
# lives, $no_supervisor if not, anything else if nobody can tell.
is_alive() {
  is_visible || return
  [ -e "$files.running" ] || return "$no_supervisor"
  "$1" STATUS
}

# The time that the command has: $limit seconds from its first question on.
limit=$answer_patience
end=''

start_clock() {
  read_clock
  end=${end:-$((now + limit))}
}

is_time_left() {
  read_clock
  [ "$now" -lt "$end" ]
}

# Leaves the seconds of a clock in $now, one that nobody sets if there is such a clock.
read_clock() {
  if [ -r /proc/uptime ]; then
    read -r now _ </proc/uptime
    now=${now%.*}
  else
    now=$(date +%s)
  fi
}

# Leaves the PID of the main process in $pid; 1 if it does not run, 2 if nobody answers for it.
find_pid() {
  pid=''
  if have "$binary"; then
    tell STATUS || return $(($? == no_supervisor ? 1 : 2))
    pid=${said#* }
    pid=${pid%% *}
    [ "$pid" != - ]
  else
    is_alive deliver || return $(($? == no_supervisor ? 1 : 2))
    # The pidfile ends without a newline, which read takes for an error.
    read -r pid <"$pidfile" || [ -n "$pid" ]
  fi
}

# --- the commands -------------------------------------------------------------------------------

start_process() {
  tell START "$patience"
  case $? in
    0) ;;
    "$no_supervisor")
      # A pre-start script, perhaps, in an init container: no supervisor lives yet.
      [ -d "$root/jobs/$job" ] || fail "no supervisor of $job ($process) is there, and no job of that name"
      printf 'Warning: no supervisor of %s (%s) is there yet; its container will start the process\n' \
        "$job" "$process" >&2
      ;;
    *) fail "$said" ;;
  esac
}

# or_not_there COMMAND...: without a supervisor nothing runs, and so it should be.
or_not_there() {
  "$@"
  case $? in
    0 | "$no_supervisor") ;;
    *) fail "$said" ;;
  esac
}

signal_process() {
  [ -n "$signal" ] || fail 'must specify a signal'
  # container-run tells both itself.
  have "$binary" || is_signal "${signal#SIG}" || fail "unknown signal '$signal'"
  { have "$binary" || is_alive deliver; } && tell "SIGNAL $signal"
  case $? in
    0) ;;
    "$no_supervisor") fail 'process is not running or could not be found' ;;
    *) fail "$said" ;;
  esac
}

# Whether the shell knows a signal of this name.
is_signal() {
  for name in $(kill -l | tr '\t|)' '   '); do
    [ "${name#SIG}" != "$1" ] || return 0
  done
  return 1
}

say_running() {
  find_pid
  case $? in
    0) set -- yes 0 ;;
    1) set -- no 1 ;;
    # It may run all the same.
    *) fail "$said" ;;
  esac
  # Drain scripts' stdout is read by BOSH; a person's terminal is not.
  [ ! -t 1 ] || printf '%s\n' "$1"
  exit "$2"
}

list_processes() {
  ! have "$binary" || exec "$binary" list
  # Twice: first for the widths of the columns, then to print.
  name_width=4 pid_width=3
  for pass in measure print; do
    [ "$pass" = measure ] || printf "%-${name_width}s %-${pid_width}s %s\n" Name Pid Status
    for socket in "$root"/data/*/*_containerrun.sock; do
      [ -S "$socket" ] || continue
      job=${socket%/*}
      job=${job##*/}
      process=${socket##*/}
      process=${process%_containerrun.sock}
      need_job
      name=$job
      [ "$job" = "$process" ] || name=$job.$process
      state=running said=''
      find_pid
      case $? in
        0) ;;
        1) state=stopped pid=- ;;
        # It may run all the same.
        *) pid=- ;;
      esac
      if [ "$pass" = measure ]; then
        [ ${#name} -le "$name_width" ] || name_width=${#name}
        [ ${#pid} -le "$pid_width" ] || pid_width=${#pid}
      else
        printf "%-${name_width}s %-${pid_width}s %s\n" "$name" "$pid" "$state"
        [ -z "$said" ] || printf 'Error: %s\n' "$said" >&2
      fi
    done
  done
}

show_logs() {
  case $lines in
    '' | *[!0-9]*) fail "invalid argument \"$lines\" for \"-n, --lines\" flag" ;;
  esac
  log=$root/sys/log/$job/$process
  set --
  [ "$err" = yes ] && [ "$all" = no ] || [ ! -f "$log.stdout.log" ] || set -- "$log.stdout.log"
  [ "$err" = no ] && [ "$all" = no ] || [ ! -f "$log.stderr.log" ] || set -- "$@" "$log.stderr.log"
  [ $# -gt 0 ] || fail 'logs not found'
  [ "$quiet" = no ] || set -- -q "$@"
  [ "$follow" = no ] || set -- -f "$@"
  exec tail -n "$lines" "$@"
}

[ $# -gt 0 ] || {
  usage >&2
  exit 1
}
case $1 in
  start | stop | term | quit | signal | running | pid | logs)
    parse "$@"
    need_job
    ;;
  list) parse "$@" ;;
  run | shell | trace | version)
    case ${2-} in
      -h | --help) explain "$1" && exit 0 ;;
    esac
    ;;
esac
case $1 in
  start) start_process ;;
  stop) or_not_there tell STOP "$patience" ;;
  term) or_not_there tell STOP ;;
  quit) or_not_there tell QUIT ;;
  signal) signal_process ;;
  running) say_running ;;
  pid)
    find_pid || fail 'process is not running or could not be found'
    printf '%s\n' "$pid"
    ;;
  list) list_processes ;;
  logs) show_logs ;;
  run | shell | trace) fail "$(say_not_here "$1")" ;;
  version | --version) printf 'bpm (container-run) %s\n' '@{ version }@' ;;
  help | -h | --help)
    case ${2--} in
      -*) usage ;;
      *) explain "$2" || fail_unknown "$2" ;;
    esac
    ;;
  --*) fail "unknown flag: ${1%%=*}" ;;
  -?*) fail "unknown shorthand flag: '$(printf %.1s "${1#-}")' in $1" ;;
  *) fail_unknown "$1" ;;
esac
