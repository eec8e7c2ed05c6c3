#!/usr/bin/env bats
# What bpm says of itself, and of a command that there is none of.

load helper

commands='start stop term quit signal running pid list logs version help'

# help_in_every_form SHELL [OPTIONS]
help_in_every_form() {
  local command first
  require "$1"
  use_shell "$@"
  for command in $commands; do
    run_bpm help "$command"
    assert_success
    refute_stderr
    assert_line --index 0 Usage:
    assert_line --index 1 --partial "  bpm $command"
    first=$output
    for words in "$command --help" "$command -h" "-h $command" "--help $command"; do
      # `bpm help --help` is about bpm.
      [ "${words%% *}" != help ] || continue
      # shellcheck disable=SC2086 # these are words
      bpm_says "$first" $words
    done
  done
  bpm_says 'bpm shell is not possible in a container: use kubectl exec instead' help shell
  bpm_says 'bpm run is not possible in a container: start a container with the process instead' run --help
  hints
}

# bpm_hints TYPED CANDIDATE...: the error for TYPED, word for word as the real bpm's.
bpm_hints() {
  local typed=$1
  shift
  bpm_answers 1 '' "Error: unknown command \"$typed\" for \"bpm\"

Did you mean this?
$(printf '\t%s\n' "$@")

Run 'bpm --help' for usage." "$typed"
}

# bpm_knows_no TYPED: the same where nothing is like it.
bpm_knows_no() {
  bpm_answers 1 '' "Error: unknown command \"$1\" for \"bpm\"
Run 'bpm --help' for usage." "$1"
}

hints() {
  bpm_hints strat start
  bpm_hints sto stop
  bpm_hints Log logs
  bpm_hints STOP stop
  bpm_hints st list start stop
  bpm_hints lisst list
  bpm_hints restart start
  bpm_hints singal signal
  bpm_hints vrsion version
  bpm_hints quti quit
  bpm_knows_no x
  bpm_knows_no ''
  bpm_knows_no monitor
}

for shell in dash 'bash --posix' 'busybox sh' mksh ksh93 yash 'zsh --emulate sh'; do
  # shellcheck disable=SC2086 # these are words
  bats_test_function --description "help and hints under $shell" -- help_in_every_form $shell
done

@test "the usage and each command's help fit a screen" {
  for command in '' $commands; do
    # shellcheck disable=SC2086 # no command is no word
    run_bpm help $command
    assert_success
    [ "${#lines[@]}" -le 24 ] || fail "help $command has ${#lines[@]} lines"
    for line in "${lines[@]}"; do
      [ "${#line}" -le 80 ] || fail "help $command is too wide: $line"
    done
  done
}

@test "each command that has a help is in the usage, and the other way round" {
  run_bpm help
  for command in $commands; do
    assert_line --regexp "^  bpm $command( |$)"
  done
  assert_equal "$(grep -c '^  bpm ' <<<"$output")" "$(wc -w <<<"$commands")"
}

@test "help of an unknown command is the same error" {
  bpm_answers 1 '' "$(bpm strat 2>&1)" help strat
  assert_stderr_line $'\tstart'
  run_bpm help ''
  assert_failure 1
}

@test "help of a command does nothing else" {
  start_job web
  for words in 'stop --help' 'stop web --help' 'stop -h web' 'stop web -ph -h' 'help stop web'; do
    # shellcheck disable=SC2086 # these are words
    run_bpm $words
    assert_success
    assert_line '  bpm stop JOB [-p PROCESS]'
  done
  assert_running web
  # Behind -- it is a name.
  bpm_fails "$not_there" pid -- --help
}

@test "a mistyped name is data" {
  # shellcheck disable=SC2016 # nothing is to be expanded
  for name in '*' 'st*' '[a-z]top' '$(touch pwned)' '`touch pwned`' "it's" '"' '\' '%s' '?top' 'a b' '; touch pwned'; do
    run_bpm "$name"
    assert_failure 1
    refute_output
    assert_equal "${stderr_lines[0]}" "Error: unknown command \"$name\" for \"bpm\""
  done
  assert [ ! -e pwned ]
  bpm_hints '?top' stop
}

@test "a very long name is no hang" {
  run_bpm "start$(printf '%010000d' 0)"
  assert_failure 1
  refute_stderr --partial 'Did you mean'
}
