#!/bin/sh
@{ values.mark }@
#
# Replaces the drain of haproxy (drain.erb with ha_proxy.drain_enable; without it there is nothing to
# replace), which looks for haproxy's master below the PID in bpm's pidfile: there it finds the child
# of tini, which is not in between here.
#
# First the health frontends go, so that load balancers send nobody any more; after a grace time the
# master finishes the connections that are under way (USR1).
#
# The only drain that signals a PID from a file. It runs in haproxy's own container, where the file
# holds, and only signals what is the main process or a descendant of it.
#
# Assumed: the process is called haproxy; whoever starts haproxy anew removes drain.lock. Upstream
# derives the frontends from the job's properties; here they are given (frontends, comma-separated).
# Prints 0. Takes at most drain_frontend_grace_time + drain_timeout.

@% include "drain/common.sh" %@
@% if values.erb %@
# Not enabled: as upstream, nothing is drained.
[ '<%= p("ha_proxy.drain_enable", true) %>' = true ] || {
  echo 0
  exit 0
}
@% endif %@
frontends=@{ values.property("frontends")? }@
grace_time=@{ values.property("drain_frontend_grace_time")? }@
drain_timeout=@{ values.property("drain_timeout")? }@

run=$root/sys/run/haproxy
lock=$run/drain.lock

# disable_frontend NAME: failing is no reason not to drain.
disable_frontend() {
  socat=$root/packages/haproxy/bin/socat
  [ -x "$socat" ] || socat=socat
  # From inside the folder: socat would take some letters of a path for its own syntax.
  if answer=$(cd "$run" && printf 'disable frontend %s\n' "$1" | "$socat" -T 5 - UNIX-CONNECT:stats.sock 2>&1); then
    log "disabled frontend $1 $answer"
  else
    log "error: cannot disable frontend $1: $answer; going on"
  fi
}

disable_frontends() {
  # The list is data: no pattern in it may become a file name.
  set -f
  IFS=,
  for frontend in $frontends; do
    unset IFS
    [ -z "$frontend" ] || disable_frontend "$frontend"
  done
  unset IFS
  set +f
}

# look_at PID: leaves its parent, state and process in variables; fails if there is none.
look_at() {
  parent='' state='' process=''
  { text=$(cat "/proc/$1/status"); } 2>/dev/null || return
  while read -r key value _; do
    case $key in
      State:) state=$value ;;
      Tgid:) process=$value ;;
      PPid:) parent=$value ;;
    esac
  done <<TEXT
$text
TEXT
  [ -n "$parent" ]
}

# alive PID: a thread's number does not count, nor does what is dead and waits for its parent.
alive() {
  look_at "$1" && [ "$process" = "$1" ] && [ "$state" != Z ]
}

# is_below PID ANCESTOR: whether PID is ANCESTOR or descends from it.
is_below() {
  alive "$1" || return
  this=$1
  while [ "$this" != "$2" ]; do
    [ "$this" -gt 1 ] && look_at "$this" || return
    this=$parent
  done
}

# Leaves the PID of haproxy's master in $master; fails if the file names nobody whom we may signal.
find_master() {
  master=''
  main=$("$root/jobs/bpm/bin/bpm" pid "$job" -p haproxy) || return
  # A file that ends without a newline is read all the same.
  { read -r master _ <"$run/haproxy.pid"; } 2>/dev/null || [ -n "$master" ] || return
  case $master in
    '' | 0* | *[!0-9]*) return 1 ;;
  esac
  is_below "$master" "$main"
}

stop_master() {
  find_master || {
    log "error: '$master' in $run/haproxy.pid is no process of haproxy's: not signalled"
    return
  }
  log "USR1 to haproxy's master, $master"
  kill -USR1 "$master"
  wait_while "$drain_timeout" alive "$master" || log "haproxy still has connections after $drain_timeout s"
}

if [ -e "$lock" ]; then
  log "drained already: $lock is there"
elif running haproxy; then
  disable_frontends
  sleep "$grace_time"
  # `:` would end the script here if the file cannot be made.
  true >"$lock" || log "error: cannot make $lock: the next call will drain again"
  stop_master
else
  log 'haproxy does not run: nothing to do'
fi
echo 0
