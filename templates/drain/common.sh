set -u

root=${BPM_BOSH_ROOT:-@{ values.root }@}
job=@{ values.job }@
log_file=$root/sys/log/$job/drain.log

# Seconds between two looks at what is waited for. Tests look more often.
poll=${DRAIN_POLL:-1}

# bpm reaches a process by its supervisor's socket, in whichever container it lives. A PID would
# not do: read from another container's pidfile, it names nobody here, or a stranger.
# On a terminal `bpm running` says yes or no; stdout must hold nothing but the answer to BOSH.
bpm() {
  "$root/jobs/bpm/bin/bpm" "$@" >/dev/null
}

# log TEXT: a line with the time. A log that cannot be written is no reason not to drain.
log() {
  line="$(date -u +%Y-%m-%dT%H:%M:%SZ) $1"
  { mkdir -p "${log_file%/*}" && printf '%s\n' "$line" >>"$log_file"; } 2>/dev/null ||
    printf '%s\n' "$line" >&2
}

# fail TEXT: no integer on stdout, which is what BOSH takes for a failure.
fail() {
  log "error: $1"
  printf '%s: %s\n' "$job" "$1" >&2
  exit 1
}

# Without bpm everything would look as if it had stopped.
[ -x "$root/jobs/bpm/bin/bpm" ] || fail "cannot run $root/jobs/bpm/bin/bpm: there is no such program"

# The processes of which it was said that nobody can tell.
complaints=''

# running PROCESS: whether it is alive, or may be. bpm says nothing of one that does not run; what it
# complains of, a supervisor that does not answer perhaps, must not pass for an end.
running() {
  trouble=$(bpm running "$job" -p "$1" 2>&1)
  case $?:$trouble in
    0:*) return 0 ;;
    1:) return 1 ;;
  esac
  case $complaints in
    *"/$1/"*) ;;
    *)
      complaints="$complaints/$1/"
      log "error: cannot tell whether $1 runs: $trouble"
      ;;
  esac
}

# signal_if_running SIGNAL PROCESS: fails if there was nobody to signal.
# Not `bpm term`, which kills 20 s later: each drain says for itself whether there is a KILL.
signal_if_running() {
  running "$2" || {
    log "$2 does not run: no $1"
    return 1
  }
  log "$1 to $2"
  trouble=$(bpm signal "$job" "$1" -p "$2" 2>&1) || log "$2 did not get it: $trouble"
}

# now: hundredths of a second on a clock that nobody sets.
now() {
  read -r uptime _ </proc/uptime
  # A number that begins with 0 would be octal.
  echo $((${uptime%.*} * 100 + 1${uptime#*.} - 100))
}

# wait_while SECONDS COMMAND...: waits until COMMAND fails; fails if it still succeeds after SECONDS.
wait_while() {
  end=$(($(now) + $1 * 100))
  shift
  while "$@"; do
    [ "$(now)" -lt "$end" ] || return 1
    sleep "$poll"
  done
}

# wait_gone PROCESS SECONDS: waits until it is gone; fails if it is still there after SECONDS.
wait_gone() {
  if wait_while "$2" running "$1"; then
    log "$1 is gone"
  else
    log "$1 is still there after $2 s"
    return 1
  fi
}
