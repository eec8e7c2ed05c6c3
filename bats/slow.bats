#!/usr/bin/env bats
# bats file_tags=slow
# What takes real times.

load helper

@test "by default a process has 20 s from SIGTERM to SIGKILL, and bpm stop waits for it" {
  kill_after=''
  start_signal_printer web IGNORE=TERM
  local start=$EPOCHREALTIME end
  bpm_succeeds stop web
  end=$EPOCHREALTIME
  assert_stopped web
  assert gone "$main"
  assert_equal "$(times_printed web TERM)" 1
  # The clocks' own grain is far below a tenth of a second.
  assert [ $((${end/./} - ${start/./})) -ge 19900000 ]
  refute gone "$supervisor"
}

@test "the counting job goes on for 20 s after bpm stop" {
  kill_after=''
  spawn_supervisor job job -- env LOOPS=10000 "$fixtures/main.sh"
  wait_for has_printed job 'Loop 2'
  bpm_succeeds stop job
  assert_stopped job
  assert_equal "$(times_printed job SIGTERM)" 1
  run sed -n '/^SIGTERM$/,$p' "$(out job job)"
  # 200 of them without load; sleep does not return early, so never more.
  assert [ "${#lines[@]}" -gt 20 ]
  assert [ "${#lines[@]}" -le 202 ]
  refute_line End
}
