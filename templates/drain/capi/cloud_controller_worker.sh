#!/bin/sh
@{ values.mark }@
#
# Replaces the drain of cloud_controller_worker (drain.sh.erb), which calls the package's
# shutdown_drain: that signals the workers by the PIDs in their pidfiles, and each of them has a
# container of its own. Then it has the locks released that the workers may have left in the database.
#
# Assumed: the processes are called worker_1 to worker_N; the release's own scripts need bash; the
# code lies in packages/cloud_controller_ng, or in its subfolder of the same name; the configuration
# is the job's config/cloud_controller_ng.yml. A rake task that fails is logged and ignored: the
# locks expire by themselves.
# Prints 0. Takes at most worker_grace_period_seconds, and then rake.

@% include "drain/common.sh" %@

number_of_workers=@{ values.property("number_of_workers")? }@
worker_grace_period=@{ values.property("worker_grace_period_seconds")? }@

# By these names and the worker's number the database knows who holds a lock.
job_name=@{ values.property("job_name")? }@
index=@{ values.property("index")? }@

worker_prefix=worker

@% include "drain/workers.sh" %@

# clear_locks WORKER: in a shell of its own, which finds ruby as the job's own scripts do.
clear_locks() {
  holder=cc_global_worker.$job_name.$index.${1#worker_}
  log "clearing the locks of $holder"
  # shellcheck disable=SC2016 # the inner shell's variables
  bash -c '. "$1/bin/ruby_version.sh" && cd "$2" && exec bundle exec rake "jobs:clear_pending_locks[$3]"' \
    bash "$root/jobs/$job" "$code" "$holder" </dev/null >>"$rake_log" 2>&1 ||
    log "error: cannot clear the locks of $holder: exit status $?; going on"
}

clear_all_locks() {
  code=$root/packages/cloud_controller_ng
  [ ! -d "$code/cloud_controller_ng" ] || code=$code/cloud_controller_ng
  CLOUD_CONTROLLER_NG_CONFIG=$root/jobs/$job/config/cloud_controller_ng.yml
  export CLOUD_CONTROLLER_NG_CONFIG
  # What cannot be logged must not get to stdout either.
  rake_log=$log_file
  [ -w "$rake_log" ] || rake_log=/dev/null
  each_worker clear_locks
}

stop_workers "$worker_grace_period"
clear_all_locks
echo 0
