#!/bin/sh
@{ values.mark }@
#
# Replaces the drain of reverse_log_proxy (drain.erb), which looks for the process by its command
# line (pkill -f): that finds it in its own container only.
#
# It does not wait: BOSH does, for the 60 s that are asked for.
#
# Assumed: the process is called reverse_log_proxy.
# Prints 60.

@% include "drain/common.sh" %@

signal_if_running TERM reverse_log_proxy
echo 60
