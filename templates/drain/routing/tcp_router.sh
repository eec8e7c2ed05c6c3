#!/bin/sh
@{ values.mark }@
#
# Replaces the drain of tcp_router (drain.erb), which signals the PID in the pidfile: that holds in
# the process's own container only.
#
# A dynamic drain: as long as tcp_router runs, it asks to be called again in 5 s.
#
# Assumed: the process is called tcp_router, and ends by itself when its drain is over (about 20 s).
# Prints -5 while tcp_router runs, then 0.

@% include "drain/common.sh" %@

if signal_if_running USR2 tcp_router; then
  echo -5
else
  echo 0
fi
