#!/usr/bin/env bats
# Without container-run the script sends by whatever there is.

load helper

# every_command SENDER
every_command() {
  require_sender "$1"
  only_sender "$1"
  start_signal_printer web
  local web=$main
  start_supervisor web worker -- sleep 1000
  bpm_succeeds stop web -p worker
  assert_stopped web worker

  bpm_succeeds running web
  bpm_says "$web" pid web
  bpm_says "$(
    printf "%-10s %-${#web}s %s\n" Name Pid Status web "$web" running web.worker - stopped
  )" list
  bpm_succeeds start web
  assert_equal "$(<"$(pidfile web web)")" "$web"
  bpm_succeeds signal web USR1
  wait_for has_printed web USR1
  bpm_succeeds signal web SIGHUP
  wait_for has_printed web HUP
  bpm_complains '.*NOSUCH' signal web NOSUCH

  bpm_succeeds quit web
  wait_for has_printed web QUIT
  wait_for has_ended web
  bpm_denies running web
  bpm_fails "$not_there" pid web
  bpm_fails "$not_there" signal web USR1
  bpm_succeeds quit web
  bpm_succeeds start web
  assert_running web
  bpm_succeeds term web
  wait_for has_ended web
  bpm_succeeds term web
  bpm_succeeds stop web
  refute gone "$supervisor"
}

# no_supervisor SENDER: what there is when there never was one, or when it is dead.
no_supervisor() {
  require_sender "$1"
  only_sender "$1"
  start_job web
  kill_supervisor "$supervisor"
  # Given the dead one's files are still there:
  assert [ -S "$(socket web web)" ]
  assert [ -e "$(sentinel web web)" ]
  for job in web nosuch; do
    bpm_denies running "$job"
    bpm_fails "$not_there" pid "$job"
    bpm_fails "$not_there" signal "$job" USR1
    for command in stop term quit; do
      bpm_succeeds "$command" "$job"
    done
    bpm_complains ".*$job" start "$job"
  done
  bpm_says "$(printf 'Name Pid Status\nweb  -   stopped')" list
  mkdir -p "$ROOT/jobs/web"
  bpm_warns 'Warning: .*web' start web
}

# forbidden SENDER: a supervisor that bpm may not send to, or not even see, may live.
forbidden() {
  require_sender "$1"
  start_job web
  forbid_sending web
  only_sender "$1"
  local said
  said="cannot send to $(socket web web): Permission denied"
  for command in start stop term quit running 'signal web USR1'; do
    # shellcheck disable=SC2086 # these are words
    bpm_fails "$said" $command web
  done
  bpm_fails "$not_there" pid web
  bpm_answers 0 "$(printf 'Name Pid Status\nweb  -   running')" "Error: $said" list

  chmod 000 "$ROOT/data/web"
  for command in start stop term quit running 'signal web USR1'; do
    # shellcheck disable=SC2086 # these are words
    bpm_fails "cannot look into $ROOT/data/web: Permission denied" $command web
  done
  chmod 755 "$ROOT/data/web"
  assert_running web
}

# fill_queue JOB: with as many commands as there is room for.
fill_queue() {
  python3 - "$(socket "$1" "$1")" <<'PYTHON'
import socket
import sys

with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
    sender.setblocking(False)
    sender.connect(sys.argv[1])
    try:
        while True:
            sender.send(b"STATUS")
    except BlockingIOError:
        pass
PYTHON
}

# full_queue SENDER: a supervisor that reads nothing lives, and is not waited for without end.
full_queue() {
  require "$1" python3
  start_job web
  only_sender "$1"
  shorten_patience
  kill -STOP "$supervisor"
  fill_queue web
  local said
  said="no answer from $(socket web web), whose queue is full"
  for command in start stop term quit running 'signal web USR1'; do
    # shellcheck disable=SC2086 # these are words
    bpm_fails "$said" $command web
  done
  bpm_fails "$not_there" pid web
  bpm_answers 0 "$(printf 'Name Pid Status\nweb  -   running')" "Error: $said" list
  kill -CONT "$supervisor"
  bpm_says "$main" pid web
}

# room_again SENDER: a queue that is full for a moment only loses nothing.
room_again() {
  require "$1" python3
  start_job web
  only_sender "$1"
  kill -STOP "$supervisor"
  fill_queue web
  program sleep <<SHELL
#!/bin/sh
: >'$PWD/slept'
exec '$(type -P sleep)' "\$@"
SHELL
  bpm stop web 3>&- &
  local stopper=$!
  # It has tried in vain, and is going to try again.
  wait_for test -e slept
  kill -CONT "$supervisor"
  wait "$stopper"
  assert_stopped web
}

# silent SENDER: a stop that reaches a supervisor that does nothing about it gives up.
silent() {
  require_sender "$1"
  start_job web
  only_sender "$1"
  # Long enough for the queue to be filled by the questions whether it still lives.
  shorten_patience 3
  kill -STOP "$supervisor"
  bpm_fails 'the process did not get to be stopped within 3 s' stop web
  kill -CONT "$supervisor"
  wait_for has_ended web
}

for sender in socat perl; do
  bats_test_function --description "with $sender alone a supervisor that reads nothing is no dead one" \
    -- full_queue "$sender"
  bats_test_function --description "with $sender alone a queue that is full for a moment loses nothing" \
    -- room_again "$sender"
done

for sender in socat perl nc; do
  bats_test_function --description "with $sender alone a supervisor that may not be sent to is no dead one" \
    -- forbidden "$sender"
  bats_test_function --description "with $sender alone a stop that nobody carries out is an error" \
    -- silent "$sender"
  bats_test_function --description "with $sender alone every command works" -- every_command "$sender"
  bats_test_function --description "with $sender alone a dead supervisor is none" -- no_supervisor "$sender"
done

@test "stop without container-run waits for a process that needs time to end" {
  require socat
  only_sender socat
  start_signal_printer web IGNORE=TERM
  bpm_succeeds stop web
  assert_stopped web
  assert gone "$main"
}

@test "start without container-run while a stop is under way is not lost" {
  require socat
  only_sender socat
  start_signal_printer web IGNORE=TERM
  bpm_succeeds term web
  bpm_succeeds start web
  wait_for gone "$main"
  wait_for test -e "$(sentinel web web)"
  assert_running web
}

# outlast_patience: a process that needs longer to stop than bpm waits.
outlast_patience() {
  require socat
  kill_after=60
  start_signal_printer web IGNORE=TERM
  only_sender socat
  shorten_patience
  "$@"
  bpm_fails 'the process did not get to be stopped within 1 s' stop web
  bpm_succeeds signal web KILL
  wait_for has_ended web
}

@test "without container-run a clock that is set back does not prolong a stop" {
  outlast_patience set_clock_back
}

# Whenever it is looked at.
set_clock_back() {
  date +%s >time
  program date <<SHELL
#!/bin/sh
read -r time <$PWD/time
echo \$((time - 3600)) >$PWD/time
echo \$((time - 3600))
SHELL
}

@test "without container-run and without /proc/uptime the date tells when to give up" {
  outlast_patience hide_uptime
}

hide_uptime() {
  sed -i 's:/proc/uptime:/nonexistent:' "$ROOT/jobs/bpm/bin/bpm"
}

@test "with nothing to send with, the error names what to install" {
  start_job web
  only_sender
  mkdir -p "$ROOT/jobs/web"
  for command in start stop term quit running pid 'signal web USR1'; do
    # shellcheck disable=SC2086 # these are words
    bpm_complains '.*socat.*perl.*nc.*install' $command web
  done
  assert_running web
}

@test "an nc that cannot do unix sockets is not taken for OpenBSD's" {
  start_job web
  only_sender
  printf '#!/bin/sh\necho "GNU netcat 0.7.1"\n' | program nc
  bpm_complains '.*install' stop web
  assert_running web
}

@test "a script whose container-run is gone falls back as well" {
  require socat
  install_bpm --container-run /nonexistent/container-run
  start_supervisor web web --no-install-bpm -- sleep 1000
  assert grep -q /nonexistent/container-run "$ROOT/jobs/bpm/bin/bpm"
  bpm_says "$main" pid web
  bpm_succeeds stop web
  assert_stopped web
}

@test "CONTAINER_RUN is the program to send with, be it a path or a name" {
  install_bpm --container-run /nonexistent/container-run
  start_supervisor web web --no-install-bpm -- sleep 1000
  only_sender
  ln -s "$binary" "$programs/sends"
  for program in "$binary" sends; do
    bpm_environment=(PATH="$programs" CONTAINER_RUN="$program")
    bpm_says "$main" pid web
  done
}

@test "the script leaves no temporary file when it falls back" {
  require socat
  only_sender socat
  mkdir temporary
  bpm_environment+=(TMPDIR="$PWD/temporary")
  start_job web
  bpm_succeeds running web
  bpm_succeeds stop web
  bpm_succeeds start web
  run ls -A temporary
  refute_output
}

# --- by hand ---

@test "echo STOP and echo START into nc do what they say" {
  require_sender nc
  start_job web
  echo STOP | nc -w 1 -uU "$(socket web web)"
  wait_for has_ended web
  assert_stopped web
  echo START | nc -w 1 -uU "$(socket web web)"
  wait_for test -e "$(sentinel web web)"
  refute gone "$supervisor"
}

@test "nc binds an address, and prints the answer" {
  require_sender nc
  start_job web
  run sh -c 'echo STATUS | nc -w 1 -uU "$1"' - "$(socket web web)"
  assert_output "OK running $main monitored"
}

@test "printf STOP and printf START into socat do what they say" {
  require socat
  start_job web
  printf STOP | socat - UNIX-SENDTO:"$(socket web web)"
  wait_for has_ended web
  assert_stopped web
  printf START | socat - UNIX-SENDTO:"$(socket web web)"
  wait_for test -e "$(sentinel web web)"
  refute gone "$supervisor"
}

@test "socat, if it binds an address, prints the answer" {
  require socat
  start_job web
  printf STATUS | socat -t 5 - "UNIX-SENDTO:$(socket web web),bind=$PWD/answers" >answer 3>&- &
  local sender=$!
  wait_for test -s answer
  assert_equal "$(<answer)" "OK running $main monitored"
  wait "$sender"
}

# send_by_python COMMAND [ADDRESS]: bound to ADDRESS, if that is given, it prints the answer.
send_by_python() {
  python3 - "$(socket web web)" "$@" <<'PYTHON'
import socket
import sys

supervisor, command, *address = sys.argv[1:]
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
    for path in address:
        sender.bind(path)
    sender.sendto(command.encode(), supervisor)
    if address:
        # Not for ever.
        sender.settimeout(30)
        print(sender.recv(4096).decode())
PYTHON
}

@test "python's socket module does what it says without an address" {
  require python3
  start_job web
  send_by_python STOP
  wait_for has_ended web
  assert_stopped web
  send_by_python START
  wait_for test -e "$(sentinel web web)"
  refute gone "$supervisor"
}

@test "python's socket module gets the answer with an address" {
  require python3
  start_job web
  run send_by_python STATUS answers
  assert_output "OK running $main monitored"
  run send_by_python 'STOP WAIT' others
  assert_output 'OK stopped - monitored'
  assert gone "$main"
  # For an empty one the kernel chooses a name: "autobind" in unix(7).
  run send_by_python STATUS ''
  assert_output 'OK stopped - monitored'
}
