#!/usr/bin/env bats
# The replacements that ask or call others: health URLs, the release's own helper, a stats socket.
# As in drain_patches.bats, each process has a PID namespace of its own.

load fixtures/drain/helper

# start_server JOB PROCESS [NAME=VALUE...]: one that answers HTTP; leaves its port in $port.
start_server() {
  require curl ruby
  local job=$1 process=$2 port_file=$BATS_TEST_TMPDIR/port.$2
  shift 2
  start_container "$job" "$process" \
    env "$@" ruby "$stand_ins/server.rb" "$process" "$BATS_TEST_TMPDIR/diary" "$port_file"
  : >>"$BATS_TEST_TMPDIR/diary"
  wait_for test -e "$port_file"
  port=$(<"$port_file")
}

# --- pxc/pxc-mysql ------------------------------------------------------------------------------

# pre_stop_succeeds [NAME=VALUE...]: what it prints is of no interest.
pre_stop_succeeds() {
  run_script "$@"
  assert_success
  refute_stderr
}

mysql_stops_when_the_others_are_well() {
  require_pod
  # Longer than a supervisor waits with its KILL after a stop.
  start_process pxc-mysql galera-init LINGER=1
  start_server pxc-mysql node
  # The second one is down: nobody listens on port 1.
  write_script "$1" pxc/pxc-mysql node_urls="http://127.0.0.1:$port/200,http://127.0.0.1:1/"
  pre_stop_succeeds
  assert_diary 'galera-init TERM' 'galera-init ended'
  assert_logged pxc-mysql "http://127.0.0.1:$port/200 is healthy"
  assert_logged pxc-mysql 'http://127.0.0.1:1/ does not answer'
  pre_stop_succeeds
  assert_diary 'galera-init TERM' 'galera-init ended'
  assert [ "$took" -le 10 ]
}

in_both_forms "pxc-mysql: stops when each other node is healthy or down" mysql_stops_when_the_others_are_well

mysql_stays_when_another_is_unwell() {
  require_pod
  start_process pxc-mysql galera-init
  start_server pxc-mysql node
  local code
  for code in 503 404 302; do
    write_script "$1" pxc/pxc-mysql node_urls="http://127.0.0.1:1/,http://127.0.0.1:$port/$code"
    run_script
    assert_failure 1
    refute_output
    assert_stderr "pxc-mysql: http://127.0.0.1:$port/$code answers $code, not 200: not stopping"
  done
  assert_diary
  runs pxc-mysql galera-init
}

in_both_forms "pxc-mysql: any other answer is a failure, and nothing is stopped" mysql_stays_when_another_is_unwell

mysql_of_a_deployment_that_goes() {
  require_pod
  start_process pxc-mysql galera-init
  write_script "$1" pxc/pxc-mysql
  pre_stop_succeeds BOSH_DEPLOYMENT_NEXT_STATE=delete
  assert_diary
  runs pxc-mysql galera-init
  pre_stop_succeeds BOSH_DEPLOYMENT_NEXT_STATE=keep
  assert_diary 'galera-init TERM' 'galera-init ended'
}

in_both_forms "pxc-mysql: a deployment that is being deleted is left alone, one that is kept is not" \
  mysql_of_a_deployment_that_goes

@test "pxc-mysql: not running, it asks nobody and succeeds" {
  require_pod
  start_process pxc-mysql other
  write_script plain pxc/pxc-mysql node_urls=http://127.0.0.1:1/
  pre_stop_succeeds
  assert_diary
}

@test "pxc-mysql: a URL that cannot be asked is a failure" {
  require_pod
  start_process pxc-mysql galera-init
  write_script plain pxc/pxc-mysql node_urls='nosuch://x/$(touch evil)*'
  run_script
  assert_failure 1
  assert_stderr --partial 'cannot ask nosuch://x/$(touch evil)*: curl ended with '
  assert_diary
  assert [ ! -e evil ]
}

# --- silk/silk-daemon ---------------------------------------------------------------------------

# A helper that writes down what it is given, talks, and ends with $1.
install_shutdown_helper() {
  mkdir -p "$ROOT/packages/silk-daemon/bin" "$ROOT/data/container-metadata"
  cat >"$ROOT/packages/silk-daemon/bin/silk-daemon-shutdown" <<SCRIPT
#!/bin/sh
echo "silk-daemon-shutdown" >>$BATS_TEST_TMPDIR/diary
echo "\$*" >>$BATS_TEST_TMPDIR/helper
while [ \$# -gt 1 ]; do
  [ "\$1" != -silkDaemonPidPath ] || cat "\$2" >$BATS_TEST_TMPDIR/helper.pid
  shift
done
echo noise
exit $1
SCRIPT
  chmod +x "$ROOT/packages/silk-daemon/bin/silk-daemon-shutdown"
  store=$ROOT/data/container-metadata/store.json
}

silk_drains() {
  require_pod
  install_shutdown_helper 0
  start_server silk-daemon silk-daemon
  echo '{ }' >"$store"
  write_script "$1" silk/silk-daemon listen_port="$port"
  script_prints 0
  assert_diary 'silk-daemon TERM' silk-daemon-shutdown
  # No process can have this PID, so the helper's own kill hits nobody.
  assert_equal "$(<"$BATS_TEST_TMPDIR/helper.pid")" 2147483647
  run cat "$BATS_TEST_TMPDIR/helper"
  assert_output --partial "-silkDaemonUrl http://127.0.0.1:$port/ping"
  assert_logged silk-daemon 'silk-daemon-shutdown ended with 0: noise'
  # The helper is called again, as upstream does; the daemon is gone.
  script_prints 0
  assert [ "$took" -le 10 ]
  assert_diary 'silk-daemon TERM' silk-daemon-shutdown silk-daemon-shutdown
}

in_both_forms "silk-daemon: TERM, then the helper for the rest" silk_drains

silk_waits_for_containers() {
  require_pod
  install_shutdown_helper 0
  start_server silk-daemon silk-daemon
  echo '{"handle":{}}' >"$store"
  write_script "$1" silk/silk-daemon listen_port="$port"
  # The last container goes while the drain waits: its writing into the diary comes before the TERM.
  in_first sh -c '
    until grep -q "waiting" "$1/sys/log/silk-daemon/drain.log" 2>/dev/null; do sleep 0.02; done
    echo "store emptied" >>"$2"; echo "{}" >"$3"' sh "$ROOT" "$BATS_TEST_TMPDIR/diary" "$store" &
  script_prints 0
  wait "$!"
  assert_diary 'store emptied' 'silk-daemon TERM' silk-daemon-shutdown
}

in_both_forms "silk-daemon: waits until the store lists no container" silk_waits_for_containers

silk_does_not_wait_for_ever() {
  require_pod
  install_shutdown_helper 3
  start_server silk-daemon silk-daemon
  echo '{"handle":{}}' >"$store"
  write_script "$1" silk/silk-daemon listen_port="$port" container_metadata_file_check_timeout=1
  script_prints 3
  assert_diary 'silk-daemon TERM' silk-daemon-shutdown
  assert_logged silk-daemon 'error: .* still lists containers after 1 s'
  # The containers are still there, but there is no daemon any more that they could wait for.
  script_prints 3
}

in_both_forms "silk-daemon: goes on when the time is over, and prints the helper's exit status" \
  silk_does_not_wait_for_ever

silk_that_goes_on_answering() {
  require_pod
  install_shutdown_helper 0
  start_server silk-daemon silk-daemon DEAF=1
  write_script "$1" silk/silk-daemon listen_port="$port"
  run_script
  assert_failure 1
  refute_output
  assert_stderr "silk-daemon: silk-daemon still answers at http://127.0.0.1:$port/ping"
  assert_diary 'silk-daemon TERM'
  kill_deaf silk-daemon
}

# It would keep the teardown waiting.
kill_deaf() {
  "$ROOT/jobs/bpm/bin/bpm" signal "$1" KILL
  wait_for eval "! runs $1 $1"
}

in_both_forms "silk-daemon: one that goes on answering is a failure" silk_that_goes_on_answering

# --- haproxy/haproxy ----------------------------------------------------------------------------

# A wrapper, as the release has one, and a master below it that writes the diary. Its PID is written
# with no newline, as a file may be that somebody wrote by hand.
start_haproxy() {
  require_pod
  require socat
  run_folder=$ROOT/sys/run/haproxy
  mkdir -p "$run_folder"
  start_container haproxy haproxy env "$@" sh -c '
    sh "$1/stand_in.sh" master "$2" &
    printf %s "$!" >"$3/haproxy.pid"
    wait' sh "$stand_ins" "$BATS_TEST_TMPDIR/diary" "$run_folder"
  wait_for has_happened 'master ready'
}

haproxy_drains() {
  start_haproxy ENDS_ON=USR1 LINGER=0.3
  # Whatever comes to the stats socket.
  start_container haproxy stats socat -u "UNIX-LISTEN:$run_folder/stats.sock,fork" \
    "OPEN:$BATS_TEST_TMPDIR/stats,creat,append"
  wait_for test -S "$run_folder/stats.sock"
  write_script "$1" haproxy/haproxy frontends='health_http,health_tcp' ha_proxy.drain_frontend_grace_time=1
  script_prints 0
  assert_diary 'master USR1' 'master ended'
  # It waited for the grace time.
  assert [ "$took" -ge 1 ]
  assert_equal "$(<"$BATS_TEST_TMPDIR/stats")" $'disable frontend health_http\ndisable frontend health_tcp'
  assert [ -e "$run_folder/drain.lock" ]
  again_prints 0
  rm "$run_folder/stats.sock" "$run_folder/haproxy.pid"
}

in_both_forms "haproxy: disables the frontends, then USR1 to the master, and waits for its end" haproxy_drains

haproxy_goes_on_when_the_time_is_over() {
  start_haproxy ENDS_ON=TERM
  write_script "$1" haproxy/haproxy frontends=health ha_proxy.drain_timeout=1
  script_prints 0
  assert_diary 'master USR1'
  assert_logged haproxy 'error: cannot disable frontend health: '
  assert_logged haproxy 'haproxy still has connections after 1 s'
  # The lock: not even a second USR1.
  again_prints 0
  rm "$run_folder/haproxy.pid"
}

in_both_forms "haproxy: a missing socket and a slow master are logged, and it goes on" \
  haproxy_goes_on_when_the_time_is_over

@test "haproxy: a lock that cannot be made does not keep it from draining" {
  start_haproxy ENDS_ON=USR1
  # There is no such file, and none can be made.
  ln -s "$ROOT/nosuch/file" "$run_folder/drain.lock"
  write_script plain haproxy/haproxy
  run_script
  assert_success
  assert_output 0
  assert_diary 'master USR1' 'master ended'
  assert_logged haproxy "error: cannot make $run_folder/drain.lock"
  rm "$run_folder/haproxy.pid"
}

@test "haproxy: whoever is no descendant of the main process is never signalled" {
  start_haproxy
  write_script plain haproxy/haproxy
  in_first sh -c 'echo $$ >"$1/haproxy.pid"; exec sh "$2/stand_in.sh" stranger "$3"' \
    sh "$run_folder" "$stand_ins" "$BATS_TEST_TMPDIR/diary" &
  wait_for has_happened 'stranger ready'
  local stranger number
  stranger=$(<"$run_folder/haproxy.pid")
  # Itself, the init of the namespace, a number of nobody, and what is no number.
  for number in "$stranger" 1 0 -1 999999 x ''; do
    rm -f "$run_folder/drain.lock"
    echo "$number" >"$run_folder/haproxy.pid"
    script_prints 0
  done
  rm "$run_folder/drain.lock" "$run_folder/haproxy.pid"
  script_prints 0
  assert_diary
  assert_logged haproxy "error: '$stranger' in .* is no process of haproxy's: not signalled"
  in_first kill -KILL "$stranger"
  wait "$!" || :
}

@test "haproxy: the main process itself may be the master" {
  require_pod
  start_process haproxy haproxy ENDS_ON=USR1
  mkdir -p "$ROOT/sys/run/haproxy"
  cp "$(pidfile haproxy haproxy)" "$ROOT/sys/run/haproxy/haproxy.pid"
  write_script plain haproxy/haproxy
  script_prints 0
  assert_diary 'haproxy USR1' 'haproxy ended'
  rm "$ROOT/sys/run/haproxy/haproxy.pid"
}

haproxy_that_does_not_run() {
  require_pod
  start_process haproxy other
  write_script "$1" haproxy/haproxy
  script_prints 0
  assert_diary
  assert [ ! -e "$ROOT/sys/run/haproxy/drain.lock" ]
}

in_both_forms "haproxy: not running, there is nothing to do" haproxy_that_does_not_run

@test "haproxy: without drain_enable the ERB form does nothing" {
  start_haproxy
  write_script erb haproxy/haproxy ha_proxy.drain_enable=false
  script_prints 0
  assert_diary
  assert [ ! -e "$run_folder/drain.lock" ]
  rm "$run_folder/haproxy.pid"
}
