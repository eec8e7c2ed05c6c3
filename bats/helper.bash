# What all tests share: a BOSH root for each test, supervisors in it, the bpm script, and a teardown
# that lets nothing be left behind.
# shellcheck shell=bash

bats_require_minimum_version 1.13.0
load node_modules/bats-support/load
load node_modules/bats-assert/load

binary=${CONTAINER_RUN_BINARY:?is the program under test; use bats/run}
fixtures=$BATS_TEST_DIRNAME/fixtures

# Seconds after which a test gives up waiting. A machine with other work to do may take ten for what
# is otherwise done at once; a test that fails may take its time.
patience_of_tests=30

# Each with the options that make it take itself for POSIX's sh.
posix_shells=(dash 'bash --posix' 'busybox sh' mksh ksh93 yash 'zsh --emulate sh')

setup() {
  # The script reads both.
  unset CONTAINER_RUN BPM_BOSH_ROOT
  base=$(mktemp -d)
  ROOT=$base
  # Where only_sender puts all that bpm finds.
  programs=$base/programs
  supervisors=()
  files_may_be_left=no
  # Seconds before KILL for start_supervisor; empty means the program's own default.
  kill_after=0.5
  # How `bpm` runs the script: through its #! line, unless a test sets a shell.
  bpm_shell=()
  bpm_environment=()
  # Inherited by all that the test starts: by this the teardown finds what is still there.
  export BPM_TEST_MARK=$base
  # Where a name that was evaluated would leave its traces.
  cd "$BATS_TEST_TMPDIR" || return
  install_bpm
}

teardown() {
  local pid left='' problems=''
  # What the search itself starts is not to be found.
  unset BPM_TEST_MARK
  for pid in "${supervisors[@]}"; do
    kill "$pid" 2>/dev/null || continue
    # A test that failed may have left it stopped.
    kill -CONT "$pid" 2>/dev/null || true
    wait_for gone "$pid" || {
      problems+="supervisor $pid did not end by SIGTERM"$'\n'
      kill -KILL "$pid"
    }
  done
  wait_for no_process_left || problems+="processes left: $(processes_left)"$'\n'
  left=$(find "$base" ! -type d \( -path '*/data/*.sock' -o -path '*/data/*.running' -o -name '*.pid' \))
  [ -z "$left" ] || [ "$files_may_be_left" = yes ] || problems+="files left: $left"$'\n'
  for pid in $(processes_left); do
    kill -KILL "$pid" 2>/dev/null || true
  done
  rm -rf "$base"
  if [ -n "$problems" ]; then
    fail "$problems"
  fi
}

# The PIDs of all processes that the test has started and that still live.
processes_left() {
  # Other users' processes and those that end right now cannot be read, and are not ours.
  grep -lszxF "BPM_TEST_MARK=$base" /proc/[0-9]*/environ | tr -dc '0-9\n'
}

no_process_left() {
  [ -z "$(processes_left)" ]
}

gone() {
  ! kill -0 "$1" 2>/dev/null
}

# wait_for CONDITION...: until the command succeeds; fails when that takes too long.
wait_for() {
  local deadline=$((SECONDS + patience_of_tests))
  until "$@"; do
    if [ "$SECONDS" -ge "$deadline" ]; then
      echo "waited in vain for: $*" >&2
      return 1
    fi
    sleep 0.02
  done
}

# --- supervisors --------------------------------------------------------------------------------

# spawn_supervisor JOB PROCESS [OPTIONS] -- COMMAND...: leaves its PID in $supervisor. What it and
# its process print goes to the files that out and err name.
spawn_supervisor() {
  local job=$1 process=$2
  shift 2
  "$binary" --root "$ROOT" --job-name "$job" --process-name "$process" \
    ${kill_after:+--kill-after "$kill_after"} "$@" \
    >>"$(out "$job" "$process")" 2>>"$(err "$job" "$process")" 3>&- &
  supervisor=$!
  supervisors+=("$supervisor")
}

# The same, and waits until the process runs. Leaves the process's PID in $main.
start_supervisor() {
  spawn_supervisor "$@"
  wait_for test -e "$(sentinel "$1" "$2")"
  main=$(<"$(pidfile "$1" "$2")")
}

# start_job JOB: one whose process just runs.
start_job() {
  start_supervisor "$1" "$1" -- sleep 1000
}

# start_signal_printer JOB [NAME=VALUE...]: one whose process prints the signals it gets.
start_signal_printer() {
  local job=$1
  shift
  start_supervisor "$job" "$job" -- env "$@" sh "$fixtures/signals.sh"
  wait_for has_printed "$job" ready
}

# What SIGKILL does to a supervisor: its files stay, its process dies with it.
kill_supervisor() {
  kill -KILL "$1"
  wait_for gone "$1"
  wait_for gone "$main"
  files_may_be_left=yes
}

# await_exit PID: waits for a supervisor to end; leaves its exit code in $status.
await_exit() {
  wait_for gone "$1"
  status=0
  wait "$1" || status=$?
}

out() { printf '%s/%s.out' "$BATS_TEST_TMPDIR" "$1.$2"; }
err() { printf '%s/%s.err' "$BATS_TEST_TMPDIR" "$1.$2"; }
socket() { printf '%s/data/%s/%s_containerrun.sock' "$ROOT" "$1" "$2"; }
sentinel() { printf '%s/data/%s/%s_containerrun.running' "$ROOT" "$1" "$2"; }
pidfile() { printf '%s/sys/run/bpm/%s/%s.pid' "$ROOT" "$1" "$2"; }

# has_printed JOB LINE: whether the job's process has printed this line.
has_printed() {
  grep -qxF -- "$2" "$(out "$1" "$1")"
}

# times_printed JOB LINE: how often.
times_printed() {
  grep -cxF -- "$2" "$(out "$1" "$1")" || :
}

# is_in_state JOB STATE: what the supervisor itself says.
is_in_state() {
  [[ $("$binary" send STATUS --root "$ROOT" -- "$1" 2>/dev/null) = "$2 "* ]]
}

has_ended() {
  [ ! -e "$(sentinel "$1" "$1")" ]
}

assert_running() {
  [ -e "$(sentinel "$1" "${2:-$1}")" ] || fail "$1 does not run"
  kill -0 "$(<"$(pidfile "$1" "${2:-$1}")")"
}

assert_stopped() {
  [ ! -e "$(sentinel "$1" "${2:-$1}")" ] || fail "the sentinel of $1 is there"
  [ ! -e "$(pidfile "$1" "${2:-$1}")" ] || fail "the pidfile of $1 is there"
}

# --- the script ---------------------------------------------------------------------------------

install_bpm() {
  "$binary" install-bpm --root "$ROOT" --target-root "$ROOT" "$@"
}

bpm() {
  env "${bpm_environment[@]}" "${bpm_shell[@]}" "$ROOT/jobs/bpm/bin/bpm" "$@"
}

# Runs bpm; leaves $status, $output, $stderr and $lines. Bats's `run --separate-stderr` does the same,
# and takes as long as bpm itself.
run_bpm() {
  status=0
  bpm "$@" >"$BATS_TEST_TMPDIR/bpm.stdout" 2>"$BATS_TEST_TMPDIR/bpm.stderr" || status=$?
  output=$(<"$BATS_TEST_TMPDIR/bpm.stdout")
  stderr=$(<"$BATS_TEST_TMPDIR/bpm.stderr")
  mapfile -t lines <"$BATS_TEST_TMPDIR/bpm.stdout"
  mapfile -t stderr_lines <"$BATS_TEST_TMPDIR/bpm.stderr"
}

# bpm_answers CODE STDOUT STDERR ARGUMENTS...: this exit code, and exactly these texts.
bpm_answers() {
  local expected="exit code $1"$'\nstdout: '"$2"$'\nstderr: '"$3"
  shift 3
  run_bpm "$@"
  assert_equal "exit code $status"$'\nstdout: '"$output"$'\nstderr: '"$stderr" "$expected"
}

# bpm_succeeds ARGUMENTS...: exit code 0, and not a word on stdout and stderr.
bpm_succeeds() { bpm_answers 0 '' '' "$@"; }

# bpm_denies ARGUMENTS...: exit code 1 without a word, as `bpm running` when nothing runs.
bpm_denies() { bpm_answers 1 '' '' "$@"; }

# bpm_says TEXT ARGUMENTS...: exit code 0, exactly TEXT on stdout, nothing on stderr.
bpm_says() { bpm_answers 0 "$1" '' "${@:2}"; }

# bpm_fails TEXT ARGUMENTS...: exit code 1, nothing on stdout, exactly "Error: TEXT" on stderr.
bpm_fails() { bpm_answers 1 '' "Error: $1" "${@:2}"; }

# bpm_warns PATTERN ARGUMENTS...: exit code 0, nothing on stdout, a line that matches on stderr.
bpm_warns() {
  run_bpm "${@:2}"
  assert_success
  refute_output
  assert_stderr --regexp "^$1"
}

# bpm_complains PATTERN ARGUMENTS...: exit code 1, nothing on stdout, "Error: " and the pattern on stderr.
bpm_complains() {
  run_bpm "${@:2}"
  assert_failure 1
  refute_output
  assert_stderr --regexp "^Error: $1"
}

not_there='process is not running or could not be found'

# only_sender NAME...: from here on bpm finds, besides a few coreutils, no other programs than
# these; container-run is not there.
only_sender() {
  local program
  rm -rf "$programs"
  mkdir "$programs"
  # In mksh printf is none of the shell's own commands.
  for program in cat date ln mktemp printf rm rmdir sleep tail tr "$@"; do
    ln -s "$(type -P "$program")" "$programs/$program"
  done
  bpm_environment=(PATH="$programs" CONTAINER_RUN=/nonexistent)
}

# program NAME: from here on bpm finds, after only_sender, this program; stdin is its text.
program() {
  rm -f "$programs/$1"
  cat >"$programs/$1"
  chmod +x "$programs/$1"
}

# shorten_patience [SECONDS]: the script with less patience than 30 s for a start or a stop, and 5 s for
# an answer.
shorten_patience() {
  sed -i "s/^patience=30\$/patience=${1:-1}/; s/^answer_patience=5\$/answer_patience=${1:-1}/" \
    "$ROOT/jobs/bpm/bin/bpm"
  assert_equal "$(grep -cE "^(answer_)?patience=${1:-1}\$" "$ROOT/jobs/bpm/bin/bpm")" 2
}

# use_shell SHELL [OPTIONS]: from here on bpm runs under this shell.
use_shell() {
  bpm_shell=("$(type -P "$1")" "${@:2}")
}

# forbid_sending JOB: from here on bpm runs as a user who may not write to the job's socket.
forbid_sending() {
  chmod 000 "$(socket "$1" "$1")"
  # For root there is no such socket.
  [ "$(id -u)" -ne 0 ] || become_nobody
}

# From here on bpm runs as a user who owns nothing.
become_nobody() {
  require setpriv
  chmod 755 "$base"
  # The folder that the program lies in may be closed to others.
  cp "$binary" "$base/container-run"
  bpm_environment+=(CONTAINER_RUN="$base/container-run")
  bpm_shell=("$(type -P setpriv)" --reuid 65534 --regid 65534 --clear-groups)
}

# deepen_root BYTES: a root so deep that the socket of job j, process p has a path of that length.
deepen_root() {
  local without_padding
  without_padding=$(socket j p)
  ROOT=$base/$(printf "%0$(($1 - ${#without_padding} - 1))d" 0)
  mkdir "$ROOT"
  install_bpm
  without_padding=$(socket j p)
  assert_equal "${#without_padding}" "$1"
}

# require PROGRAM...: skips a test whose program is not installed.
require() {
  local program
  for program in "$@"; do
    type -P "$program" >/dev/null || skip "$program is not installed"
  done
}

# OpenBSD's nc alone can do unix sockets.
require_sender() {
  require "$1"
  [ "$1" != nc ] || [[ $(nc -h 2>&1) = *OpenBSD* ]] || skip 'nc is not the one from OpenBSD'
}
