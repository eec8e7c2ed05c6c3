#!/usr/bin/env bats
# The command line of bpm: where options may stand, how they may be written, what is wrong.

load helper

# Processes that are told apart by their PIDs.
two_processes() {
  start_job web
  web=$main
  start_supervisor web worker -- sleep 1000
  worker=$main
}

@test "without -p the process is named like the job" {
  two_processes
  bpm_says "$web" pid web
}

@test "-p and --process may be written in any form, before and after the job" {
  two_processes
  for flag in '-p worker' -pworker -p=worker '--process worker' --process=worker; do
    # shellcheck disable=SC2086 # these are words
    bpm_says "$worker" pid web $flag
    # shellcheck disable=SC2086
    bpm_says "$worker" pid $flag web
  done
}

@test "-- ends the options" {
  two_processes
  bpm_says "$worker" pid -p worker -- web
  bpm_says "$web" pid -- web -p worker
  start_job -p
  bpm_says "$main" pid -- -p
  start_job --
  bpm_says "$main" pid -- --
}

@test "the last -p wins" {
  two_processes
  bpm_says "$worker" pid -p nosuch web --process=worker
  bpm_says "$web" pid -p worker --process nosuch web -pweb
}

@test "an empty -p means the job" {
  two_processes
  bpm_says "$web" pid web -p ''
  bpm_says "$web" pid web -p=
  bpm_says "$web" pid web --process ''
  bpm_says "$web" pid web --process=
  bpm_says "$web" pid -p worker -p '' web
}

@test "the value of -p may begin with a dash or hold an equals sign" {
  start_supervisor web -x -- sleep 1000
  bpm_says "$main" pid web -p -x
  bpm_says "$main" pid web -p=-x
  bpm_says "$main" pid web --process -x
  bpm_says "$main" pid web --process=-x
  start_supervisor web a=b -- sleep 1000
  bpm_says "$main" pid web -p a=b
  bpm_says "$main" pid web -pa=b
  bpm_says "$main" pid web --process=a=b
}

@test "extra words after the job are ignored" {
  two_processes
  bpm_says "$web" pid web worker and more
  bpm_says "$worker" pid web more -p worker and more
  bpm_succeeds signal web WINCH more
  bpm_succeeds stop web nosuch
  assert_stopped web
  assert_running web worker
}

@test "-p stands anywhere in signal" {
  two_processes
  bpm_succeeds signal -p worker web KILL
  wait_for test ! -e "$(sentinel web worker)"
  bpm_succeeds start web -p worker
  bpm_succeeds signal web -p worker KILL
  wait_for test ! -e "$(sentinel web worker)"
  bpm_succeeds start web -p worker
  bpm_succeeds signal web KILL -p worker
  wait_for test ! -e "$(sentinel web worker)"
  assert_running web
}

@test "an unknown flag is an error, and nothing is done" {
  two_processes
  bpm_fails 'unknown flag: --x' stop web --x
  bpm_fails 'unknown flag: --x' stop --x=1 web
  bpm_fails 'unknown flag: --processes' stop web --processes worker
  bpm_fails 'unknown flag: --all' stop web --all
  bpm_fails 'unknown flag: --lines' stop web --lines=5
  bpm_fails "unknown shorthand flag: 'x' in -x" stop web -x
  bpm_fails "unknown shorthand flag: 'x' in -xyz" stop -xyz web
  bpm_fails "unknown shorthand flag: 'n' in -n5" stop web -n5
  bpm_fails "unknown shorthand flag: 'x' in -x" logs web -ax
  bpm_fails 'unknown flag: --x' list --x
  assert_running web
  assert_running web worker
}

@test "a flag that lacks its argument is an error, and nothing is done" {
  start_job web
  bpm_fails "flag needs an argument: 'p' in -p" stop web -p
  bpm_fails 'flag needs an argument: --process' stop web --process
  bpm_fails "flag needs an argument: 'n' in -n" logs web -n
  bpm_fails "flag needs an argument: 'n' in -n" logs web -an
  bpm_fails 'flag needs an argument: --lines' logs web --lines
  assert_running web
}

@test "no job is an error" {
  for command in start stop term quit signal running pid logs; do
    bpm_fails 'must specify a job' "$command"
    bpm_fails 'must specify a job' "$command" ''
    bpm_fails 'must specify a job' "$command" -p worker
  done
}

@test "an unknown command is an error, and nothing is done" {
  start_job web
  for name in x restart '' STOP 'a b*'; do
    run_bpm "$name" web
    assert_failure 1
    refute_output
    assert_equal "${stderr_lines[0]}" "Error: unknown command \"$name\" for \"bpm\""
  done
  assert_running web
}

@test "an unknown flag in place of a command is an error" {
  bpm_fails "unknown shorthand flag: 'x' in -x" -x
  bpm_fails 'unknown flag: --x' --x=5
}

@test "no arguments at all: the usage on stderr, and no success" {
  run_bpm
  assert_failure 1
  refute_output
  assert_stderr_line --partial 'bpm start JOB'
}
