#!/usr/bin/env bats
# The script does the same under every shell that claims to be POSIX.

load helper

# the_main_flow SHELL [OPTIONS]
the_main_flow() {
  require "$1"
  use_shell "$@"
  start_signal_printer web
  start_supervisor web "it's \$(touch pwned) *" -- sleep 1000
  local odd=$main
  start_job -p

  # Given it runs:
  bpm_succeeds running web
  bpm_succeeds start web
  bpm_says "$(<"$(pidfile web web)")" pid web
  run_bpm list
  assert_line --regexp '^Name +Pid +Status$'
  assert_line --regexp '^web +[0-9]+ +running$'
  bpm_succeeds signal web USR1
  wait_for has_printed web USR1
  bpm_succeeds quit web
  wait_for has_ended web
  bpm_denies running web
  bpm_succeeds start web
  bpm_succeeds term web
  wait_for has_ended web
  bpm_succeeds stop web
  bpm_fails "$not_there" pid web
  bpm_fails "$not_there" signal nosuch USR1

  the_options "$odd"
  the_errors
  the_logs
  assert [ ! -e pwned ]
}

the_options() {
  local odd="it's \$(touch pwned) *"
  for flag in "-p$odd" "-p=$odd" "--process=$odd"; do
    bpm_says "$1" pid web "$flag"
    bpm_says "$1" pid "$flag" web
  done
  bpm_says "$1" pid web -p "$odd" extra
  bpm_says "$1" pid --process "$odd" -- web
  bpm_says "$(<"$(pidfile -p -p)")" pid -- -p
  bpm_succeeds stop web -p "$odd"
  assert_stopped web "$odd"
  bpm_succeeds stop -p=-p -- -p
  assert_stopped -p
}

the_errors() {
  bpm_fails 'must specify a job' stop
  bpm_fails "flag needs an argument: 'p' in -p" stop web -p
  bpm_fails 'flag needs an argument: --process' stop web --process
  bpm_fails 'unknown flag: --x' stop --x web
  bpm_fails "unknown shorthand flag: 'x' in -xy" stop -xy web
  bpm_fails "unknown shorthand flag: 'x' in -xy" -xy
  bpm_complains 'unknown command "x\*" for "bpm"' 'x*'
  bpm_complains '.*nosuch' start nosuch
  mkdir -p "$ROOT/jobs/new"
  bpm_warns 'Warning: ' start new
  run_bpm
  assert_failure 1
  refute_output
  run_bpm --version
  assert_success
  assert_output --regexp '^bpm \(container-run\) [0-9]'
  run_bpm stop --help
  assert_success
  assert_line --partial 'bpm stop JOB'
}

the_logs() {
  bpm_fails 'logs not found' logs web
  mkdir -p "$ROOT/sys/log/web"
  seq 30 >"$ROOT/sys/log/web/web.stdout.log"
  echo oops >"$ROOT/sys/log/web/web.stderr.log"
  bpm_says "$(seq 6 30)" logs web
  bpm_says oops logs -e web
  for flag in -qn2 '-n 2' -n=2 '--lines 2' --lines=2; do
    # shellcheck disable=SC2086 # these are words
    bpm_says $'29\n30' logs web $flag
  done
  run_bpm logs web -aqn1
  assert_success
  assert_line 30
  assert_line oops
  refute_output --partial '==>'
  run_bpm logs web -n many
  assert_failure 1
}

# The same again for what works without container-run.
the_flow_without_container_run() {
  require "$1" socat
  use_shell "$@"
  only_sender socat
  start_signal_printer web
  bpm_succeeds running web
  bpm_says "$main" pid web
  bpm_says "$(printf "%-4s %-${#main}s %s\n" Name Pid Status web "$main" running)" list
  bpm_succeeds signal web USR1
  wait_for has_printed web USR1
  bpm_complains '.*NOSUCH' signal web NOSUCH
  bpm_succeeds quit web
  wait_for has_ended web
  bpm_denies running web
  bpm_fails "$not_there" pid web
  bpm_succeeds start web
  assert_running web
  bpm_succeeds term web
  bpm_succeeds stop web
  assert_stopped web
  bpm_succeeds stop nosuch
  run_bpm start nosuch
  assert_failure 1
}

for shell in "${posix_shells[@]}"; do
  # shellcheck disable=SC2086 # these are words
  bats_test_function --description "the main flow under $shell" -- the_main_flow $shell
  # shellcheck disable=SC2086
  bats_test_function --description "the flow without container-run under $shell" \
    -- the_flow_without_container_run $shell
done
