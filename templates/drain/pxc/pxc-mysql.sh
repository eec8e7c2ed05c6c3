#!/bin/sh
@{ values.mark }@
#
# Replaces the pre-stop of pxc-mysql (pre-stop.erb), which signals the PID in a pidfile and waits for
# it: that holds in the process's own container only.
#
# A node may leave the cluster only if no other is in trouble: each one whose health URL is given must
# answer 200, or not at all, for a node that is down has nothing to lose. With the whole deployment
# being deleted there is nothing to save.
#
# Assumed: the process is called galera-init, and stops mysqld cleanly on TERM. Upstream reads the
# nodes from a link; here they are given (node_urls, comma-separated), and if none are, none is asked.
# Not a drain: what counts is the exit status. 0 if nothing was to be done or the process is gone,
# otherwise 1. Takes at most 300 s; no KILL, which would cost the database a recovery.

@% include "drain/common.sh" %@

node_urls=@{ values.property("node_urls")? }@

# check_node URL: whether this node lets another one go.
check_node() {
  code=$(curl -s -o /dev/null -w '%{http_code}' --max-time 10 "$1" </dev/null)
  result=$?
  case $result:$code in
    0:200) log "$1 is healthy" ;;
    # No such host, refused, too slow, closed without a word, or broken off (curl's exit codes).
    6:* | 7:* | 28:* | 52:* | 56:*) log "$1 does not answer" ;;
    0:*) fail "$1 answers $code, not 200: not stopping" ;;
    *) fail "cannot ask $1: curl ended with $result: not stopping" ;;
  esac
}

check_nodes() {
  # The list is data: no pattern in it may become a file name.
  set -f
  IFS=,
  for url in $node_urls; do
    unset IFS
    [ -z "$url" ] || check_node "$url"
  done
  unset IFS
  set +f
}

[ "${BOSH_DEPLOYMENT_NEXT_STATE-}" != delete ] || {
  log 'the deployment is being deleted: nothing to do'
  exit 0
}
running galera-init || {
  log 'galera-init does not run: nothing to do'
  exit 0
}
check_nodes
signal_if_running TERM galera-init
wait_gone galera-init 300 || fail 'galera-init did not end within 300 s'
