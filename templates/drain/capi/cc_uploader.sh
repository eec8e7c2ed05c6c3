#!/bin/sh
@{ values.mark }@
#
# Replaces the drain of cc_uploader (drain.sh.erb), which signals the PID in the pidfile: that holds
# in the process's own container only.
#
# An upload may take long, so the process has minutes to finish, and is never killed here.
#
# Assumed: the process is called cc_uploader.
# Prints 0. Takes at most cc_uploader_drain_timeout_in_minutes.

@% include "drain/common.sh" %@

drain_timeout_in_minutes=@{ values.property("cc_uploader_drain_timeout_in_minutes")? }@

if signal_if_running TERM cc_uploader; then
  wait_gone cc_uploader $((drain_timeout_in_minutes * 60)) || log 'error: cc_uploader did not end; going on'
fi
echo 0
