#!/bin/sh
@{ values.mark }@
#
# Replaces the drain of galera-agent (drain.sh.erb), which signals the PID in the pidfile: that holds
# in the process's own container only.
#
# Assumed: the process is called galera-agent.
# Prints 0. Takes at most 25 s; no KILL.

@% include "drain/common.sh" %@

if signal_if_running TERM galera-agent; then
  wait_gone galera-agent 25 || log 'error: galera-agent did not end; going on'
fi
echo 0
