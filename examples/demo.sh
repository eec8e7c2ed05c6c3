#!/bin/sh
# Shows the main job: supervises a sample job in a temporary BOSH root, and drives it as an
# operator or a drain script would, with the generated bpm.
set -eu

binary=${CONTAINER_RUN_BINARY:-container-run}
unset CONTAINER_RUN

root=$(mktemp -d)
BPM_BOSH_ROOT=$root
export BPM_BOSH_ROOT
PATH=$root/jobs/bpm/bin:$PATH
supervisor=''

clean_up() {
  [ -z "$supervisor" ] || kill "$supervisor" 2>/dev/null || true
  wait
  rm -rf "$root"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

# Prints a command, then runs it.
show() {
  printf '\n$ %s\n' "$*"
  "$@" || printf '(exit code %s)\n' $?
}

# Waits until a command succeeds, for ten seconds at most.
await() {
  tries=0
  until "$@"; do
    tries=$((tries + 1))
    [ "$tries" -lt 200 ] || {
      printf 'never came true: %s\n' "$*" >&2
      exit 1
    }
    sleep 0.05
  done
}

mkdir -p "$root/packages/web"
cat >"$root/packages/web/web" <<'JOB'
#!/bin/sh
trap 'echo "  web: got TERM, finishing the last request"; sleep 0.2; echo "  web: bye"; exit 0' TERM
trap 'echo "  web: got USR1"' USR1
echo "  web: serving with PID $$"
: >"$BPM_BOSH_ROOT/serving"
while :; do sleep 0.1; done
JOB
chmod +x "$root/packages/web/web"

printf 'A BOSH root in %s; its job "web" runs below packages/web.\n' "$root"
printf '\n$ container-run --job-name web --process-name web -- %s &\n' '/var/vcap/packages/web/web'
"$binary" --job-name web --process-name web -- "$root/packages/web/web" &
supervisor=$!
await test -e "$root/data/web/web_containerrun.running"
await test -e "$root/serving"

show bpm list
show bpm pid web
show bpm signal web USR1
printf '\n# A drain script stops it. The supervisor stays, and with it the container and the script.\n'
show bpm stop web
show bpm running web
show bpm list
rm "$root/serving"
show bpm start web
await test -e "$root/serving"
show bpm list
printf '\n# Kubernetes ends the container.\n'
printf '\n$ kill -TERM %s; wait %s\n' "$supervisor" "$supervisor"
kill -TERM "$supervisor"
wait "$supervisor" && printf '(exit code 0)\n'
supervisor=''
printf '\n$ find data sys\n'
(cd "$root" && find data sys)
