#!/usr/bin/env bats
# Each command of bpm: what it does, what it prints, its exit code.

load helper

# --- start ---

@test "start runs a stopped process, waits until it runs, and prints nothing" {
  start_job web
  bpm_succeeds stop web
  bpm_succeeds start web
  assert_running web
  assert [ "$(<"$(pidfile web web)")" != "$main" ]
}

@test "start of a running process leaves it alone" {
  start_job web
  bpm_succeeds start web
  assert_equal "$(<"$(pidfile web web)")" "$main"
  assert_running web
}

@test "start runs a process again that has ended by itself" {
  spawn_supervisor web web -- sh -c 'echo started; [ -e again ] || exit 0; exec sleep 1000'
  wait_for is_in_state web ended
  touch again
  bpm_succeeds start web
  assert_running web
}

@test "start while a stop is under way waits for a new process" {
  start_signal_printer web IGNORE=TERM
  bpm_succeeds term web
  bpm_succeeds start web
  assert_running web
  assert [ "$(<"$(pidfile web web)")" != "$main" ]
  assert gone "$main"
}

@test "start without a supervisor only warns where the job is installed" {
  mkdir -p "$ROOT/jobs/web"
  bpm_warns 'Warning: .*web' start web
}

@test "start without a supervisor and without the job is an error" {
  bpm_complains '.*nosuch' start nosuch
}

@test "start of a process whose supervisor is dead is an error" {
  start_job web
  kill_supervisor "$supervisor"
  bpm_complains '.' start web
}

@test "start of a program that is gone is an error" {
  cp "$(type -P sleep)" program
  start_supervisor web web -- ./program 1000
  bpm_succeeds stop web
  rm program
  bpm_complains '.' start web
  await_exit "$supervisor"
  assert_equal "$status" 127
  assert grep -q program "$(err web web)"
}

@test "start gives up with an error when a stop takes longer than its patience" {
  kill_after=30
  start_signal_printer web IGNORE=TERM
  shorten_patience
  bpm_succeeds term web
  bpm_complains '.' start web
  # The start is still wanted; this cancels it.
  bpm_succeeds term web
  bpm_succeeds signal web KILL
  wait_for has_ended web
}

# --- stop, term ---

@test "stop ends a running process, waits for its end, and prints nothing" {
  start_job web
  bpm_succeeds stop web
  assert_stopped web
  assert gone "$main"
  refute gone "$supervisor"
}

@test "stop of a process that ignores SIGTERM ends it by SIGKILL" {
  start_signal_printer web IGNORE=TERM
  bpm_succeeds stop web
  assert gone "$main"
  assert_equal "$(times_printed web TERM)" 1
}

@test "stop, term and quit of a stopped process succeed and print nothing" {
  start_job web
  bpm_succeeds stop web
  for command in stop term quit; do
    bpm_succeeds "$command" web
  done
}

@test "stop, term and quit of a process that has ended succeed and print nothing" {
  spawn_supervisor web web -- true
  wait_for is_in_state web ended
  for command in quit term stop; do
    bpm_succeeds "$command" web
  done
}

@test "stop, term and quit of an unknown job succeed and print nothing" {
  for command in stop term quit; do
    bpm_succeeds "$command" nosuch
    bpm_succeeds "$command" nosuch -p neither
  done
}

@test "stop, term and quit of a process whose supervisor is dead succeed and print nothing" {
  start_job web
  kill_supervisor "$supervisor"
  for command in stop term quit; do
    bpm_succeeds "$command" web
  done
}

@test "stop gives up with an error on stderr when the process outlasts its patience" {
  kill_after=30
  start_signal_printer web IGNORE=TERM
  shorten_patience
  bpm_complains '.' stop web
  bpm_succeeds signal web KILL
  wait_for has_ended web
}

@test "stop of one process of a job leaves the job's other processes alone" {
  start_job web
  start_supervisor web worker -- sleep 1000
  bpm_succeeds stop web -p worker
  assert_stopped web worker
  assert_running web
}

@test "term returns while the process still runs, and it is stopped later" {
  kill_after=3
  start_signal_printer web IGNORE=TERM
  bpm_succeeds term web
  assert_running web
  wait_for has_ended web
  assert_equal "$(times_printed web TERM)" 1
  refute gone "$supervisor"
}

@test "quit sends SIGQUIT and leaves the process to do what it likes" {
  start_signal_printer web IGNORE=QUIT
  bpm_succeeds quit web
  wait_for has_printed web QUIT
  assert_running web
}

@test "quit of a process that obeys it does not end the supervisor" {
  start_signal_printer web
  bpm_succeeds quit web
  wait_for is_in_state web stopped
  assert_stopped web
}

# --- signal ---

@test "signal sends the signal, with or without SIG" {
  start_signal_printer web
  bpm_succeeds signal web USR1
  wait_for has_printed web USR1
  bpm_succeeds signal web SIGHUP
  wait_for has_printed web HUP
  bpm_succeeds signal web WINCH
  wait_for has_printed web WINCH
  assert_running web
}

@test "signal KILL ends the process and not the supervisor" {
  start_job web
  bpm_succeeds signal web KILL
  wait_for is_in_state web stopped
  assert_stopped web
}

@test "signal needs a signal that exists" {
  start_signal_printer web
  bpm_complains '.*NOSUCH' signal web NOSUCH
  bpm_complains '.*signal' signal web
}

@test "signal is an error when nothing runs" {
  start_job web
  bpm_succeeds stop web
  bpm_complains '.' signal web USR1
  bpm_fails "$not_there" signal nosuch USR1
  start_job other
  kill_supervisor "$supervisor"
  bpm_fails "$not_there" signal other USR1
}

# --- running, pid ---

@test "running tells by its exit code alone" {
  start_job web
  bpm_succeeds running web
  bpm_succeeds stop web
  bpm_denies running web
  bpm_denies running nosuch
}

@test "running is true while a stop is under way" {
  kill_after=3
  start_signal_printer web IGNORE=TERM
  bpm_succeeds term web
  bpm_succeeds running web
  bpm_says "$main" pid web
  bpm_succeeds signal web KILL
}

@test "running complains of a supervisor that does not answer: the process may run" {
  start_job web
  kill -STOP "$supervisor"
  bpm_complains 'no answer from .*web_containerrun.sock' running web
  kill -CONT "$supervisor"
  bpm_succeeds running web
}

@test "pid prints the PID of the main process" {
  start_job web
  bpm_says "$main" pid web
  assert_equal "$(</proc/"$main"/comm)" sleep
}

@test "pid is an error when nothing runs" {
  start_job web
  bpm_succeeds stop web
  bpm_fails "$not_there" pid web
  bpm_fails "$not_there" pid nosuch
}

@test "running and pid do not trust what a dead supervisor has left" {
  start_job web
  kill_supervisor "$supervisor"
  # Given both files are still there, and say that it runs:
  assert [ -e "$(sentinel web web)" ]
  assert [ -e "$(pidfile web web)" ]
  bpm_denies running web
  bpm_fails "$not_there" pid web
  bpm_says "$(printf 'Name Pid Status\nweb  -   stopped')" list
  bpm_succeeds stop web
}

# --- list ---

@test "list without any process prints the head of the table" {
  bpm_says 'Name Pid Status' list
}

@test "list shows every process of every job in columns" {
  start_job web
  local web=$main
  start_supervisor web a-longer-name -- sleep 1000
  bpm_succeeds stop web -p a-longer-name
  spawn_supervisor ended ended -- true
  wait_for is_in_state ended ended
  local width=${#web}
  bpm_says "$(
    printf "%-17s %-${width}s %s\n" Name Pid Status ended - failed \
      web.a-longer-name - stopped web "$web" running
  )" list
}

@test "list calls a process that failed unmonitored failed" {
  start_job web
  "$binary" send UNMONITOR --root "$ROOT" web
  kill -KILL "$main"
  wait_for is_in_state web failed
  bpm_says "$(printf 'Name Pid Status\nweb  -   failed')" list
}

@test "list calls a process that is being stopped running" {
  kill_after=3
  start_signal_printer web IGNORE=TERM
  bpm_succeeds term web
  run_bpm list
  assert_success
  assert_line --regexp "^web +$main +running$"
  bpm_succeeds signal web KILL
}

@test "list takes no supervisor for dead that is there and does not answer" {
  start_job web
  kill -STOP "$supervisor"
  bpm_answers 0 "$(printf 'Name Pid Status\nweb  -   running')" \
    "container-run: no answer from $(socket web web) within 1 s" list
  kill -CONT "$supervisor"
  bpm_says "$(printf "%-4s %-${#main}s %s\n" Name Pid Status web "$main" running)" list
}

@test "list takes no supervisor for dead that it may not send to" {
  start_job web
  forbid_sending web
  bpm_answers 0 "$(printf 'Name Pid Status\nweb  -   running')" \
    "container-run: cannot send to $(socket web web): Permission denied (os error 13)" list
}

# --- logs ---

# Two logs of 30 lines each.
write_logs() {
  mkdir -p "$ROOT/sys/log/web"
  seq -f 'out %g' 30 >"$ROOT/sys/log/web/web.stdout.log"
  seq -f 'err %g' 30 >"$ROOT/sys/log/web/web.stderr.log"
}

@test "logs prints the last 25 lines of stdout" {
  write_logs
  bpm_says "$(seq -f 'out %g' 6 30)" logs web
}

@test "logs of a process are its own" {
  write_logs
  echo 'of the worker' >"$ROOT/sys/log/web/worker.stdout.log"
  bpm_says 'of the worker' logs web -p worker
  bpm_says 'of the worker' logs -p worker web
}

@test "logs -e prints stderr" {
  write_logs
  for flag in -e --err; do
    bpm_says "$(seq -f 'err %g' 6 30)" logs web "$flag"
  done
}

@test "logs -a prints both, each with its name above" {
  write_logs
  for flag in -a --all -ae; do
    run_bpm logs web "$flag"
    assert_success
    assert_line "==> $ROOT/sys/log/web/web.stdout.log <=="
    assert_line "==> $ROOT/sys/log/web/web.stderr.log <=="
    assert_line 'out 30'
    assert_line 'err 30'
    refute_line 'out 5'
  done
}

@test "logs -q leaves the names out" {
  write_logs
  for flags in -aq -qa '-a -q' '--all --quiet' '-a --quiet'; do
    # shellcheck disable=SC2086 # these are words
    run_bpm logs web $flags -n 1
    assert_success
    # An empty line or none stands between the two, as tail likes.
    assert_line --index 0 'out 30'
    assert_line --index 1 'err 30'
    refute_output --partial '==>'
  done
}

@test "logs -n says how many lines" {
  write_logs
  local last_five
  last_five=$(seq -f 'out %g' 26 30)
  for flags in -n5 '-n 5' -n=5 '--lines 5' --lines=5 '-n 9 -n 5' -qn5 '-qn 5'; do
    # shellcheck disable=SC2086 # these are words
    bpm_says "$last_five" logs web $flags
    # shellcheck disable=SC2086
    bpm_says "$last_five" logs $flags web
  done
  bpm_says '' logs web -n 0
}

@test "logs -n needs a number" {
  write_logs
  for value in many 5x '' -1; do
    bpm_complains 'invalid argument' logs web -n "$value"
  done
}

@test "logs -f goes on as the log grows" {
  write_logs
  for flag in -f --follow; do
    "$ROOT/jobs/bpm/bin/bpm" logs web "$flag" >followed 3>&- &
    local follower=$!
    wait_for grep -qx 'out 30' followed
    echo "new for $flag" >>"$ROOT/sys/log/web/web.stdout.log"
    wait_for grep -qx -- "new for $flag" followed
    kill "$follower"
    wait_for gone "$follower"
  done
}

@test "logs without logs is an error" {
  bpm_fails 'logs not found' logs web
  write_logs
  bpm_fails 'logs not found' logs web -p nosuch
  rm "$ROOT/sys/log/web/web.stderr.log"
  bpm_fails 'logs not found' logs web -e
}

@test "logs -a prints the one log that there is" {
  write_logs
  rm "$ROOT/sys/log/web/web.stderr.log"
  bpm_says 'out 30' logs web -a -q -n 1
}

# --- the rest ---

@test "version and --version print the version of container-run" {
  local version
  version=$("$binary" --version)
  for word in version --version; do
    bpm_says "bpm (container-run) ${version#* }" "$word"
  done
}

@test "help, -h and --help print the usage" {
  for word in help -h --help; do
    run_bpm "$word"
    assert_success
    refute_stderr
    assert_line --partial 'bpm start JOB'
    assert_line --partial 'bpm logs JOB'
  done
}

@test "run, shell and trace say in one line what to use instead" {
  for command in run shell trace; do
    bpm_complains "bpm $command " "$command" web
    assert_equal "${#stderr_lines[@]}" 1
  done
}

@test "shellcheck has nothing to say about the script" {
  require shellcheck
  run shellcheck -s sh "$ROOT/jobs/bpm/bin/bpm"
  assert_success
  refute_output
}

@test "BPM_BOSH_ROOT overrides the root of the script" {
  start_job web
  "$binary" install-bpm --root "$ROOT/image"
  run env BPM_BOSH_ROOT="$ROOT" "$ROOT/image/jobs/bpm/bin/bpm" pid web
  assert_success
  assert_output "$main"
  cd "$ROOT/data"
  run env BPM_BOSH_ROOT=.. "$ROOT/image/jobs/bpm/bin/bpm" pid web
  assert_success
  assert_output "$main"
}

@test "a supervisor installs the script for its own root, and leaves a stranger's alone" {
  rm -r "$ROOT/jobs"
  start_job web
  bpm_says "$main" pid web
  echo 'the real bpm' >"$ROOT/jobs/bpm/bin/bpm"
  start_job other
  assert_equal "$(<"$ROOT/jobs/bpm/bin/bpm")" 'the real bpm'
}

# --- in drain scripts ---

@test "in a drain script only the script's own number reaches stdout" {
  start_job web
  for _ in 'it runs' 'it is stopped'; do
    run --separate-stderr bpm_in sh -c 'bpm stop web 1>&2 || true; echo 0'
    assert_success
    assert_output 0
  done
  run --separate-stderr bpm_in sh -c 'bpm stop nosuch 1>&2 || true; echo 0'
  assert_output 0
}

@test "a drain script that ends with bpm stop succeeds, the second time too" {
  start_job web
  for _ in 'it runs' 'it is stopped'; do
    run --separate-stderr bpm_in sh -c 'bpm stop web 1>&2'
    assert_success
    refute_output
  done
}

@test "diego's rep: pid under set -e, then stop" {
  start_job rep
  run --separate-stderr bpm_in bash -c 'set -e; bpm pid rep >/dev/null; bpm stop rep; echo 0'
  assert_success
  assert_output 0
  assert_stopped rep
  # When it does not run, the script ends there.
  run --separate-stderr bpm_in bash -c 'set -e; bpm pid rep >/dev/null; bpm stop rep; echo 0'
  assert_failure 1
  refute_output
}

@test "a drain with the pidfile: signal the PID, and see the file go" {
  start_signal_printer web
  # shellcheck disable=SC2016
  drain='[ -e "$1" ] || { echo 0; exit; }; kill -USR2 "$(cat "$1")"; kill -TERM "$(cat "$1")"; echo -1'
  run sh -c "$drain" - "$(pidfile web web)"
  assert_output -- -1
  wait_for has_ended web
  assert_equal "$(times_printed web USR2)" 1
  run sh -c "$drain" - "$(pidfile web web)"
  assert_output 0
  refute gone "$supervisor"
}

@test "quit and then term reach the process in that order" {
  start_signal_printer web IGNORE='QUIT'
  bpm_succeeds quit web
  bpm_succeeds term web
  wait_for has_ended web
  assert_equal "$(grep -xE 'QUIT|TERM' "$(out web web)")" $'QUIT\nTERM'
}

@test "stop and start from two shells leave one process, or none, and a supervisor that lives" {
  start_job web
  for _ in 1 2 3 4 5; do
    bpm stop web 3>&- &
    local stopper=$!
    bpm start web || true
    wait "$stopper"
  done
  refute gone "$supervisor"
  bpm_succeeds start web
  assert_running web
  assert_equal "$(pgrep -cP "$supervisor")" 1
}

# Runs a command that finds bpm on its PATH.
bpm_in() {
  env PATH="$ROOT/jobs/bpm/bin:$PATH" "$@"
}
