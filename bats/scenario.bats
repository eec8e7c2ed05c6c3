#!/usr/bin/env bats
# A job as people write them, from start to end: a shell script that counts, whose SIGTERM trap ends
# it only after a SIGQUIT. At a tenth of real times.

load helper

# start_counting [NAME=VALUE...]: LOOPS is how far it counts.
start_counting() {
  kill_after=${kill_after-2}
  spawn_supervisor job job -- env "$@" "$fixtures/main.sh"
  wait_for has_printed job 'Loop 2'
  # One that does not count far may have ended.
  main=$(cat "$(pidfile job job)" 2>/dev/null) || main=''
}

printed() {
  cat "$(out job job)"
}

printed_times() {
  [ "$(times_printed job "$2")" = "$1" ]
}

# It got one SIGTERM, counted on, and was killed before its end.
assert_killed_after_one_sigterm() {
  assert gone "$main"
  run printed
  assert_equal "$(times_printed job SIGTERM)" 1
  assert_output --regexp $'SIGTERM\nLoop .*\nLoop '
  refute_line Bye
  refute_line End
}

@test "main runs to its end, the supervisor stays, and bpm start runs main again" {
  start_counting LOOPS=10
  wait_for has_printed job End
  wait_for is_in_state job ended
  bpm_denies running job
  refute gone "$supervisor"
  run printed
  assert_output "$(echo Start; seq -f 'Loop %g' 10; echo End)"

  bpm_succeeds start job
  bpm_succeeds running job
  wait_for printed_times 2 End
  assert_equal "$(times_printed job Start)" 2
  wait_for is_in_state job ended
}

@test "bpm stop sends one SIGTERM, main goes on until the SIGKILL, and stop returns then" {
  kill_after=2
  start_counting LOOPS=1000
  bpm_succeeds stop job
  assert_stopped job
  assert_killed_after_one_sigterm
  bpm_denies running job
  refute gone "$supervisor"
}

@test "bpm term does the same and does not wait" {
  kill_after=3
  start_counting LOOPS=1000
  bpm_succeeds term job
  refute gone "$main"
  bpm_succeeds running job
  wait_for has_ended job
  assert_stopped job
  assert_killed_after_one_sigterm
  refute gone "$supervisor"
}

@test "bpm quit and then bpm stop end main with its own last word" {
  # So much patience that only main itself can have ended it.
  kill_after=60
  start_counting LOOPS=1000
  bpm_succeeds quit job
  wait_for has_printed job SIGQUIT
  bpm_succeeds running job
  bpm_succeeds stop job
  assert_stopped job
  run printed
  assert_line SIGQUIT
  assert_output --regexp $'SIGTERM\nBye$'
  assert_equal "$(times_printed job SIGTERM)" 1
  refute_line End
  refute gone "$supervisor"
}

@test "SIGTERM to the supervisor stops main likewise, and then the supervisor exits 0" {
  kill_after=2
  start_counting LOOPS=1000
  kill -TERM "$supervisor"
  await_exit "$supervisor"
  assert_equal "$status" 0
  assert_killed_after_one_sigterm
  assert_stopped job
  assert [ ! -e "$(socket job job)" ]
}

@test "SIGTERM to a supervisor with nothing to stop ends it at once" {
  # Longer than any test waits.
  kill_after=60
  start_counting LOOPS=2
  wait_for is_in_state job ended
  kill -TERM "$supervisor"
  await_exit "$supervisor"
  assert_equal "$status" 0
}

@test "while bpm running turns false when main ends" {
  start_counting LOOPS=20
  # shellcheck disable=SC2016
  run timeout 30 sh -c 'while "$1" running job; do sleep 0.05; done; echo over' - "$ROOT/jobs/bpm/bin/bpm"
  assert_success
  assert_output over
  assert has_printed job End
}
