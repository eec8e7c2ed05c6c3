#!/bin/sh
@{ values.mark }@
#
# Replaces the drain of loggregator_trafficcontroller (drain.erb), which looks for the process by its
# command line (pkill -f): that finds it in its own container only.
#
# It does not wait: BOSH does, for the 5 s that are asked for.
#
# Assumed: the process is called loggregator_trafficcontroller.
# Prints 5.

@% include "drain/common.sh" %@

signal_if_running TERM loggregator_trafficcontroller
echo 5
