#!/usr/bin/env bats
# A person at a terminal may read an answer; a drain script's stdout is BOSH's.

load helper

# on_a_terminal ARGUMENTS...: runs bpm with a terminal for stdin, stdout and stderr.
on_a_terminal() {
  require script
  run script -qec "$(printf '%q ' "${bpm_shell[@]}" "$ROOT/jobs/bpm/bin/bpm" "$@")" /dev/null </dev/null
  # A terminal ends lines with CR LF.
  output=${output%$'\r'}
}

# yes_and_no SHELL [OPTIONS]
yes_and_no() {
  require "$1"
  use_shell "$@"
  start_job web
  on_a_terminal running web
  assert_success
  assert_output yes
  bpm_succeeds running web

  bpm_succeeds stop web
  on_a_terminal running web
  assert_failure 1
  assert_output no
  bpm_denies running web
}

for shell in dash 'bash --posix' 'busybox sh' mksh ksh93 yash 'zsh --emulate sh'; do
  # shellcheck disable=SC2086 # these are words
  bats_test_function --description "running says yes or no on a terminal alone, under $shell" \
    -- yes_and_no $shell
done

@test "start, stop, term, quit and signal print nothing on a terminal either" {
  start_job web
  for words in 'stop web' 'start web' 'start web' 'signal web WINCH' 'quit web' 'term web' 'stop nosuch'; do
    # shellcheck disable=SC2086 # these are words
    on_a_terminal $words
    assert_success
    refute_output
  done
}

@test "running without container-run answers on a terminal as well" {
  require socat
  start_job web
  only_sender socat
  export "${bpm_environment[1]:?}"
  on_a_terminal running web
  assert_success
  assert_output yes
}
