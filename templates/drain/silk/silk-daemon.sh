#!/bin/sh
@{ values.mark }@
#
# Replaces the drain of silk-daemon (drain.erb), which calls silk-daemon-shutdown: that waits for the
# containers of this cell to go, ends the daemon by the PID in its pidfile (which holds in the
# process's own container only), and cleans up. Here the waiting and the ending are done by this
# script; the helper, which knows the rules and interfaces to remove, does the rest.
#
# Assumed: the process is called silk-daemon; a store that is missing or empty lists no container; the
# helper is packages/silk-daemon/bin/silk-daemon-shutdown with the options below, and ignores that it
# cannot kill the PID that it is given.
# Prints the helper's exit status. A daemon that still answers is a failure: no integer, exit status 1.
# Takes at most container_metadata_file_check_timeout + 10 s, and the helper's time.

@% include "drain/common.sh" %@

store=$root/data/container-metadata/store.json
store_timeout=@{ values.property("container_metadata_file_check_timeout")? }@
ping_url=http://127.0.0.1:@{ values.property("listen_port")? }@/ping

helper=$root/packages/silk-daemon/bin/silk-daemon-shutdown

# Larger than any PID that Linux gives away (its limit is 4194304).
impossible_pid=2147483647

# Whether the store lists containers; one that cannot be read may.
has_containers() {
  [ -e "$store" ] || return 1
  content=$(tr -d '[:space:]' <"$store") || return 0
  case $content in
    '' | '{}') return 1 ;;
  esac
}

await_containers() {
  # Without a daemon the containers have no network any more: there is nothing to wait for.
  running silk-daemon || return 0
  log "waiting until $store lists no containers, at most $store_timeout s"
  poll=${DRAIN_POLL:-5}
  wait_while "$store_timeout" has_containers ||
    log "error: $store still lists containers after $store_timeout s; going on"
}

pings() {
  if command -v curl >/dev/null; then
    curl -s -f -o /dev/null --max-time 2 "$ping_url" </dev/null
  else
    running silk-daemon
  fi
}

# Its end must be seen from outside: 5 tries, 2 s apart.
await_silence() {
  tries=1
  while pings; do
    [ "$tries" -lt 5 ] || fail "silk-daemon still answers at $ping_url"
    tries=$((tries + 1))
    sleep "${DRAIN_POLL:-2}"
  done
}

# Its output goes to the log. The containers were waited for already, hence the 0.
clean_up() {
  pidfile=$(mktemp) || fail 'cannot make a temporary file'
  echo "$impossible_pid" >"$pidfile"
  output=$("$helper" \
    -containerMetadataFile "$store" \
    -containerMetadataFileCheckTimeout 0 \
    -silkDaemonUrl "$ping_url" \
    -silkDaemonPidPath "$pidfile" </dev/null 2>&1)
  result=$?
  rm -f "$pidfile"
  log "silk-daemon-shutdown ended with $result: $output"
}

await_containers
signal_if_running TERM silk-daemon
await_silence
clean_up
echo "$result"
