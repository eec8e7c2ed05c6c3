# each_worker COMMAND...: runs COMMAND for PREFIX_1 to PREFIX_N, the name as its last argument.
each_worker() {
  number=1
  while [ "$number" -le "$number_of_workers" ]; do
    "$@" "${worker_prefix}_$number"
    number=$((number + 1))
  done
}

# any_worker_runs: one look at all of them.
any_worker_runs() {
  number=1
  while [ "$number" -le "$number_of_workers" ]; do
    ! running "${worker_prefix}_$number" || return 0
    number=$((number + 1))
  done
  return 1
}

# A worker finishes its job before it obeys, so all are told at once and have the same time.
stop_workers() {
  each_worker signal_if_running TERM
  wait_while "$1" any_worker_runs && return
  log "workers are still there after $1 s"
  each_worker signal_if_running KILL
  wait_while 5 any_worker_runs || log "error: workers are still there after KILL"
}
