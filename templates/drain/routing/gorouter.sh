#!/bin/sh
@{ values.mark }@
#
# Replaces the drain of gorouter (drain.erb), which signals the PIDs in the pidfiles of gorouter and
# of its healthchecker: the two have a container each.
#
# A dynamic drain: as long as gorouter runs, it asks to be called again in 5 s. Each call signals
# again, as upstream's does; USR1 to one that drains already changes nothing.
# The healthchecker comes first, or it would take the draining router for a broken one.
#
# Assumed: the processes are called gorouter and gorouter-healthchecker; gorouter ends by itself when
# its own drain timeout is over (about 920 s by default).
# Prints -5 while gorouter runs, then 0.

@% include "drain/common.sh" %@

signal_if_running USR1 gorouter-healthchecker
if signal_if_running USR1 gorouter; then
  echo -5
else
  echo 0
fi
