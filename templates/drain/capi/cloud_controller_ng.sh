#!/bin/sh
@{ values.mark }@
#
# Replaces the drain of cloud_controller_ng (drain.sh.erb), which calls the package's shutdown_drain:
# that signals nginx, the API and the local workers by the PIDs in their pidfiles, and each of them
# has a container of its own.
#
# First nginx finishes the requests that are under way, then the API ends, then the workers, which
# the API feeds. Other processes of the job are not touched: they serve nobody who waits.
#
# Assumed: the processes are called nginx, cloud_controller_ng and local_worker_1 to local_worker_N.
# Prints 0. Takes at most nginx_drain_timeout + 10 + 20 + local_worker_grace_period_seconds.

@% include "drain/common.sh" %@

nginx_drain_timeout=@{ values.property("nginx_drain_timeout")? }@
number_of_workers=@{ values.property("number_of_workers")? }@
local_worker_grace_period=@{ values.property("local_worker_grace_period_seconds")? }@

# Seconds after a TERM; upstream's numbers.
nginx_term_timeout=10
api_term_timeout=20

worker_prefix=local_worker

@% include "drain/workers.sh" %@

# QUIT is nginx's word for: finish what you have, take nothing new.
drain_nginx() {
  signal_if_running QUIT nginx || return 0
  wait_gone nginx "$nginx_drain_timeout" && return
  signal_if_running TERM nginx || return 0
  wait_gone nginx "$nginx_term_timeout" || log 'error: nginx did not end; going on'
}

# No KILL: it may hold locks.
stop_api() {
  signal_if_running TERM cloud_controller_ng || return 0
  wait_gone cloud_controller_ng "$api_term_timeout" || log 'error: cloud_controller_ng did not end; going on'
}

drain_nginx
stop_api
stop_workers "$local_worker_grace_period"
echo 0
