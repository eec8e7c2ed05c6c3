#!/usr/bin/env bats
# Names of jobs and processes are data, whatever they look like.

# shellcheck disable=SC2016 # what looks like an expansion is none

load helper

# the_whole_life NAME: of a job and of a process of that name.
the_whole_life() {
  start_job "$1"
  local job=$main
  start_supervisor plain "$1" -- sleep 1000
  local process=$main
  # What a pattern would match as well.
  start_job bystander

  bpm_says "$job" pid -- "$1"
  bpm_says "$process" pid plain -p "$1"
  bpm_says "$process" pid plain --process="$1"
  bpm_succeeds running -- "$1"
  run_bpm list
  assert_line --regexp " $job +running$"
  assert_output --partial $'\n'"$1 "
  assert_output --partial $'\n'"plain.$1 "

  bpm_succeeds stop -- "$1"
  assert_stopped "$1"
  assert_running plain "$1"
  assert_running bystander
  bpm_denies running -- "$1"
  bpm_fails "$not_there" pid -- "$1"
  bpm_succeeds stop plain -p "$1"
  assert_stopped plain "$1"
  bpm_succeeds start -- "$1"
  bpm_succeeds start plain -p "$1"
  assert_running "$1"
  assert_running plain "$1"
  bpm_succeeds signal -p "$1" -- "$1" USR1
  wait_for has_ended "$1"

  mkdir -p "$ROOT/sys/log/$1"
  echo logged >"$ROOT/sys/log/$1/$1.stdout.log"
  bpm_says logged logs -- "$1"
  assert_running bystander
  nothing_was_evaluated
}

nothing_was_evaluated() {
  run find "$BATS_TEST_TMPDIR" "$ROOT" -name 'pwned*' ! -name '*containerrun*' ! -name '*.pid'
  refute_output
}

for name in \
  'two words' ' blanks ' "it's" '"quoted"' "both'\"'" '$(touch pwned)' '`touch pwned`' '; touch pwned;' \
  '$HOME' '${x?}' '*' '?????????' '[a-z]*' '~' '-p' '-rf' '--help' '--' 'a.b' '.hidden' '...' 'back\slash' '\n' \
  '%s' '#' '!' 'a=b' 'a:b,c' 'naïve-日本' 'STOP WAIT'; do
  # Bats expands a description; within single quotes here, it expands it once.
  bats_test_function --description 'a job and a process named <$name> live their whole lives' \
    -- the_whole_life "$name"
done

@test "without container-run odd names are data as well" {
  only_sender socat
  for name in "it's" '$(touch pwned)' '*' '-p' 'a:b,c' 'back\slash' '%s'; do
    start_job "$name"
    bpm_says "$main" pid -- "$name"
    run_bpm list
    assert_output --partial $'\n'"$name "
    bpm_succeeds stop -- "$name"
    assert_stopped "$name"
    bpm_succeeds start -- "$name"
    assert_running "$name"
  done
  nothing_was_evaluated
}

@test "names that are no names of files are refused" {
  start_job web
  for command in start stop term quit running pid logs; do
    bpm_complains '.*\.\./web' "$command" ../web
    bpm_complains '.*\.\./web' "$command" web -p ../web
  done
  for name in . .. a/b / /etc web/; do
    bpm_complains ".*'$name'" stop "$name"
    bpm_complains ".*'$name'" stop web -p "$name"
  done
  assert_running web
}

@test "a supervisor refuses such names before it makes anything" {
  for name in '' . .. a/b ../web $'new\nline' "$(printf '%0256d' 0)"; do
    run "$binary" --root "$ROOT/new" --job-name "$name" --process-name p -- true
    assert_failure 2
    run "$binary" --root "$ROOT/new" --job-name j --process-name "$name" -- true
    assert_failure 2
  done
  assert [ ! -e "$ROOT/new" ]
}

# --- sockets with long paths ---

# A socket's address has room for 107 bytes and a NUL.
long_path() {
  local bytes=$1 sender=$2
  if [ "$sender" != container-run ]; then
    require_sender "$sender"
    only_sender "$sender"
  fi
  deepen_root "$bytes"
  start_supervisor j p -- sleep 1000
  bpm_says "$main" pid j -p p
  bpm_succeeds stop j -p p
  assert_stopped j p
  bpm_succeeds start j -p p
  bpm_succeeds running j -p p
}

for sender in container-run socat perl nc; do
  for bytes in 107 108 250; do
    bats_test_function --description "a socket path of $bytes bytes works with $sender" \
      -- long_path "$bytes" "$sender"
  done
done
