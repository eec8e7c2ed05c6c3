#!/usr/bin/env bats
# Each drain replacement, against stand-ins for the job's processes, each of which has a PID
# namespace of its own. The script runs in the first one's. In both forms: rendered by
# `drain-patch render`, and by erb from `drain-patch render --erb`.

load fixtures/drain/helper

# --- capi/cloud_controller_ng -------------------------------------------------------------------

api=cloud_controller_ng

start_api() {
  require_pod
  start_process $api nginx LINGER=0.3
  # Longer than a supervisor waits with its KILL after a stop ($kill_after): a TERM is no stop.
  start_process $api $api LINGER=1
  # Each ends only when the other has been told, too.
  start_process $api local_worker_1 AFTER='local_worker_2 TERM'
  start_process $api local_worker_2 AFTER='local_worker_1 TERM'
  start_process $api ccng_monit_http_healthcheck
}

api_drains_in_order() {
  start_api
  write_script "$1" capi/$api
  script_prints 0
  # The two workers are told at once, so their lines may come in any order.
  assert_equal "$(diary | head -n 4)" "$(printf '%s\n' 'nginx QUIT' 'nginx ended' "$api TERM" "$api ended")"
  assert_equal "$(diary | tail -n +5 | sort)" \
    "$(printf '%s\n' 'local_worker_1 TERM' 'local_worker_1 ended' 'local_worker_2 TERM' 'local_worker_2 ended')"
  runs $api ccng_monit_http_healthcheck
  assert_logged $api 'QUIT to nginx'
  refute_logged $api '(KILL|error)'
  again_prints 0
}

in_both_forms "cloud_controller_ng: nginx drains, then the API ends, then the workers" api_drains_in_order

api_is_not_waited_for_for_ever() {
  require_pod
  start_process $api nginx ENDS_ON=TERM
  start_process $api $api
  start_process $api local_worker_1 ENDS_ON=
  start_process $api local_worker_2
  start_process $api local_worker_3 ENDS_ON=
  write_script "$1" capi/$api cc.nginx_drain_timeout=1 cc.jobs.local.number_of_workers=2 \
    cc.jobs.local.local_worker_grace_period_seconds=3
  script_prints 0
  assert_equal "$(diary | head -n 5)" \
    "$(printf '%s\n' 'nginx QUIT' 'nginx TERM' 'nginx ended' "$api TERM" "$api ended")"
  # The first worker did not obey, was killed, and wrote no more; the third is beyond the number.
  assert_equal "$(diary | tail -n +6 | sort)" $'local_worker_1 TERM\nlocal_worker_2 TERM\nlocal_worker_2 ended'
  refute runs $api local_worker_1
  runs $api local_worker_3
  assert_logged $api 'KILL to local_worker_1'
  refute_logged $api 'KILL to local_worker_2'
  again_prints 0
}

in_both_forms "cloud_controller_ng: nginx gets a TERM, and a worker its KILL, when their time is over" \
  api_is_not_waited_for_for_ever

api_without_workers() {
  require_pod
  start_process $api $api
  start_process $api local_worker_1
  write_script "$1" capi/$api cc.jobs.local.number_of_workers=0
  script_prints 0
  # nginx has no supervisor at all.
  assert_diary "$api TERM" "$api ended"
  assert_logged $api 'nginx does not run'
  again_prints 0
}

in_both_forms "cloud_controller_ng: no workers, and an nginx that is not there" api_without_workers

# bats test_tags=slow
@test "cloud_controller_ng: neither nginx nor the API is ever killed" {
  require_pod
  start_process $api nginx ENDS_ON=
  start_process $api $api ENDS_ON=
  write_script plain capi/$api nginx_drain_timeout=0 number_of_workers=0
  script_prints 0
  assert_diary 'nginx QUIT' 'nginx TERM' "$api TERM"
  # nginx_term_timeout and api_term_timeout.
  assert [ "$took" -ge 29 ]
  runs $api nginx
  runs $api $api
  assert_logged $api 'error: nginx did not end'
  assert_logged $api "error: $api did not end"
}

# --- capi/cloud_controller_worker ---------------------------------------------------------------

worker=cloud_controller_worker

# A ruby in the release's way: ruby_version.sh, which needs bash, puts it on the PATH. Prints what it
# is called with into the file rake; fails for the first worker.
install_rake() {
  mkdir -p "$ROOT/jobs/$worker/bin" "$ROOT/ruby" "$ROOT/packages/cloud_controller_ng/cloud_controller_ng"
  echo "source /dev/null; [[ -n x ]] && PATH=$ROOT/ruby:\$PATH" >"$ROOT/jobs/$worker/bin/ruby_version.sh"
  cat >"$ROOT/ruby/bundle" <<SCRIPT
#!/bin/sh
echo "\$PWD|\$CLOUD_CONTROLLER_NG_CONFIG|\$*" >>$BATS_TEST_TMPDIR/rake
echo noise
case \$* in *.1]) exit 3 ;; esac
SCRIPT
  chmod +x "$ROOT/ruby/bundle"
}

rake_line() {
  printf '%s|%s|exec rake jobs:clear_pending_locks[cc_global_worker.%s]' \
    "$ROOT/packages/cloud_controller_ng/cloud_controller_ng" \
    "$ROOT/jobs/$worker/config/cloud_controller_ng.yml" "$1"
}

workers_drain() {
  require_pod
  install_rake
  # The first ends only when the last has been told: all at once, that is.
  start_process $worker worker_1 AFTER='worker_3 TERM'
  start_process $worker worker_2 ENDS_ON=
  start_process $worker worker_3 AFTER='worker_1 TERM'
  write_script "$1" capi/$worker cc.jobs.generic.number_of_workers=3 \
    cc.jobs.generic.worker_grace_period_seconds=3 'name=cc-worker' index=4
  script_prints 0
  assert_equal "$(diary | sort)" \
    "$(printf '%s\n' 'worker_1 TERM' 'worker_1 ended' 'worker_2 TERM' 'worker_3 TERM' 'worker_3 ended')"
  refute runs $worker worker_2
  assert_logged $worker 'KILL to worker_2'
  refute_logged $worker 'KILL to worker_[13]'
  assert_equal "$(<"$BATS_TEST_TMPDIR/rake")" \
    "$(rake_line cc-worker.4.1; echo; rake_line cc-worker.4.2; echo; rake_line cc-worker.4.3)"
  assert_logged $worker 'error: cannot clear the locks of cc_global_worker.cc-worker.4.1: exit status 3'
  assert_equal "$(grep -c noise "$ROOT/sys/log/$worker/drain.log")" 3
  again_prints 0
}

in_both_forms "cloud_controller_worker: all at once, KILL for the rest, and then their locks are cleared" workers_drain

workers_by_default() {
  require_pod
  install_rake
  start_process $worker worker_1
  write_script "$1" capi/$worker
  script_prints 0
  assert_diary 'worker_1 TERM' 'worker_1 ended'
  assert_equal "$(<"$BATS_TEST_TMPDIR/rake")" "$(rake_line cloud_controller_worker.0.1)"
}

in_both_forms "cloud_controller_worker: one worker by default" workers_by_default

no_workers() {
  require_pod
  start_process $worker worker_1
  write_script "$1" capi/$worker cc.jobs.generic.number_of_workers=0
  script_prints 0
  assert_diary
}

in_both_forms "cloud_controller_worker: no workers, nothing done" no_workers

@test "cloud_controller_worker: without ruby the drain succeeds, and says so in its log" {
  require_pod
  start_process $worker worker_1
  write_script plain capi/$worker
  script_prints 0
  assert_logged $worker 'error: cannot clear the locks of cc_global_worker.cloud_controller_worker.0.1'
}

# --- capi/cc_uploader, pxc/galera-agent: TERM, and wait -------------------------------------------

uploader_drains() {
  require_pod
  start_process cc_uploader cc_uploader LINGER=1
  write_script "$1" capi/cc_uploader
  script_prints 0
  assert_diary 'cc_uploader TERM' 'cc_uploader ended'
  again_prints 0
}

in_both_forms "cc_uploader: TERM, and waits for the end" uploader_drains

uploader_is_not_killed() {
  require_pod
  start_process cc_uploader cc_uploader ENDS_ON=USR1
  write_script "$1" capi/cc_uploader capi.cc_uploader.cc_uploader_drain_timeout_in_minutes=0
  script_prints 0
  assert_logged cc_uploader 'error: cc_uploader did not end'
  runs cc_uploader cc_uploader
  "$ROOT/jobs/bpm/bin/bpm" signal cc_uploader USR1
  wait_for has_happened 'cc_uploader ended'
  assert_diary 'cc_uploader TERM' 'cc_uploader USR1' 'cc_uploader ended'
}

in_both_forms "cc_uploader: is left alone when its time is over" uploader_is_not_killed

agent_drains() {
  require_pod
  start_process galera-agent galera-agent LINGER=1
  write_script "$1" pxc/galera-agent
  script_prints 0
  assert_diary 'galera-agent TERM' 'galera-agent ended'
  again_prints 0
}

in_both_forms "galera-agent: TERM, and waits for the end" agent_drains

# bats test_tags=slow
@test "galera-agent: is left alone after 25 s" {
  require_pod
  start_process galera-agent galera-agent ENDS_ON=USR1
  write_script plain pxc/galera-agent
  script_prints 0
  assert_diary 'galera-agent TERM'
  assert [ "$took" -ge 24 ]
  runs galera-agent galera-agent
  assert_logged galera-agent 'error: galera-agent did not end'
}

# --- routing: dynamic drains ----------------------------------------------------------------------

gorouter_drains() {
  require_pod
  start_process gorouter gorouter
  start_process gorouter gorouter-healthchecker
  write_script "$1" routing/gorouter
  script_prints -5
  wait_for has_happened 'gorouter USR1'
  assert_equal "$(diary | sort)" $'gorouter USR1\ngorouter-healthchecker USR1'
  script_prints -5
  wait_for eval '[ "$(diary | grep -c "gorouter USR1")" = 2 ]'
  "$ROOT/jobs/bpm/bin/bpm" signal gorouter TERM
  wait_for has_happened 'gorouter ended'
  "$ROOT/jobs/bpm/bin/bpm" signal gorouter TERM -p gorouter-healthchecker
  wait_for has_happened 'gorouter-healthchecker ended'
  script_prints 0
  again_prints 0
}

in_both_forms "gorouter: USR1 to the healthchecker and to it, again and again until it is gone" gorouter_drains

gorouter_without_healthchecker() {
  require_pod
  start_process gorouter gorouter
  write_script "$1" routing/gorouter
  script_prints -5
  wait_for has_happened 'gorouter USR1'
  assert_diary 'gorouter USR1'
}

in_both_forms "gorouter: drains without a healthchecker" gorouter_without_healthchecker

tcp_router_drains() {
  require_pod
  start_process tcp_router tcp_router ENDS_ON=USR2 LINGER=0.3
  write_script "$1" routing/tcp_router
  script_prints -5
  wait_for has_happened 'tcp_router ended'
  assert_diary 'tcp_router USR2' 'tcp_router ended'
  wait_for eval '! runs tcp_router tcp_router'
  script_prints 0
  again_prints 0
}

in_both_forms "tcp_router: USR2, -5 while it runs, then 0" tcp_router_drains

# --- loggregator: TERM, and a number of seconds ---------------------------------------------------

trafficcontroller_drains() {
  require_pod
  start_process loggregator_trafficcontroller loggregator_trafficcontroller LINGER=1
  write_script "$1" loggregator/loggregator_trafficcontroller
  script_prints 5
  wait_for has_happened 'loggregator_trafficcontroller ended'
  assert_diary 'loggregator_trafficcontroller TERM' 'loggregator_trafficcontroller ended'
  wait_for eval '! runs loggregator_trafficcontroller loggregator_trafficcontroller'
  again_prints 5
}

in_both_forms "loggregator_trafficcontroller: TERM, and 5" trafficcontroller_drains

proxy_drains() {
  require_pod
  start_process reverse_log_proxy reverse_log_proxy LINGER=1
  write_script "$1" loggregator/reverse_log_proxy
  script_prints 60
  # It did not wait for the end, which is still to come.
  refute has_happened 'reverse_log_proxy ended'
  wait_for has_happened 'reverse_log_proxy ended'
  assert_diary 'reverse_log_proxy TERM' 'reverse_log_proxy ended'
  wait_for eval '! runs reverse_log_proxy reverse_log_proxy'
  again_prints 60
}

in_both_forms "reverse_log_proxy: TERM without waiting, and 60" proxy_drains

# --- what all of them do --------------------------------------------------------------------------

# works_under SHELL [OPTIONS]
works_under() {
  require "$1"
  require_pod
  start_process gorouter gorouter
  write_script plain routing/gorouter
  script_shell=("$@")
  script_prints -5
  wait_for eval '[ "$(diary | grep -c "gorouter USR1")" = 1 ]'
}

for shell in "${posix_shells[@]}"; do
  # shellcheck disable=SC2086 # these are words
  bats_test_function --description "a replacement works under $shell" -- works_under $shell
done

@test "without bpm a drain fails instead of taking all for stopped" {
  require_pod
  start_process gorouter gorouter
  write_script plain routing/gorouter
  rm "$ROOT/jobs/bpm/bin/bpm"
  run_script
  assert_failure 1
  refute_output
  assert_stderr "gorouter: cannot run $ROOT/jobs/bpm/bin/bpm: there is no such program"
  assert_diary
}

# freeze_supervisor: the one of the process that was started last lives, and answers nobody.
freeze_supervisor() {
  local below
  # It is the child of the container's init.
  below=$(<"/proc/$supervisor/task/$supervisor/children")
  frozen=${below%% *}
  kill -STOP "$frozen"
}

@test "a supervisor that does not answer is not taken for one whose process has ended" {
  require_pod
  start_process gorouter gorouter-healthchecker
  start_process gorouter gorouter
  freeze_supervisor
  write_script plain routing/gorouter
  script_prints -5
  assert_logged gorouter 'error: cannot tell whether gorouter runs: Error: no answer from '
  refute_logged gorouter '.*does not run'
  kill -CONT "$frozen"
  # What was sent meanwhile is not lost.
  wait_for has_happened 'gorouter USR1'
}

@test "a bpm that fails is not taken for processes that have ended" {
  require_pod
  start_process cc_uploader cc_uploader
  write_script plain capi/cc_uploader cc_uploader_drain_timeout_in_minutes=0
  local failure
  for failure in 'echo "Error: broken" >&2; exit 1' 'exit 2' 'kill -KILL $$'; do
    printf '#!/bin/sh\n%s\n' "$failure" >"$ROOT/jobs/bpm/bin/bpm"
    rm -rf "$ROOT/sys/log"
    script_prints 0
    assert_equal "$(grep -c 'error: cannot tell whether cc_uploader runs' "$ROOT/sys/log/cc_uploader/drain.log")" 1
    assert_logged cc_uploader 'error: cc_uploader did not end'
    refute_logged cc_uploader '.*(does not run|is gone)'
  done
  assert_diary
}

@test "workers that cannot be asked for are waited for, and an error in the end" {
  require_pod
  start_process cloud_controller_ng local_worker_1
  write_script plain capi/cloud_controller_ng local_worker_grace_period_seconds=0 number_of_workers=2
  # It knows of all but the workers.
  printf '#!/bin/sh\ncase $* in *worker*) echo broken >&2 ;; esac\nexit 1\n' >"$ROOT/jobs/bpm/bin/bpm"
  script_prints 0
  assert_logged cloud_controller_ng 'nginx does not run'
  assert_logged cloud_controller_ng 'error: cannot tell whether local_worker_1 runs: broken'
  assert_logged cloud_controller_ng 'error: cannot tell whether local_worker_2 runs: broken'
  assert_logged cloud_controller_ng 'error: workers are still there after KILL'
}

@test "BPM_BOSH_ROOT moves the root that a replacement uses" {
  require_pod
  start_process gorouter gorouter
  mkdir -p "$ROOT/jobs/gorouter/bin"
  script=$ROOT/jobs/gorouter/bin/drain
  "$binary" drain-patch render routing/gorouter >"$script"
  chmod +x "$script"
  script_prints -5 BPM_BOSH_ROOT="$ROOT"
  wait_for has_happened 'gorouter USR1'
}

@test "a log that cannot be written does not keep a drain from draining" {
  require_pod
  start_process gorouter gorouter
  write_script plain routing/gorouter
  mkdir -p "$ROOT/sys"
  : >"$ROOT/sys/log"
  run_script
  assert_success
  assert_output -- -5
  assert_stderr --partial 'USR1 to gorouter'
  wait_for has_happened 'gorouter USR1'
}
