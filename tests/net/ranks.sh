#!/bin/sh
# Two ranks on two hosts: a short interruption changes nothing; where the link stays down, or a host vanishes, every rank and
# mpirun are gone soon after the time-out.
. "$(dirname "$0")/lib.sh"
trained 2 local tiny.yaml train.micro_batch=4 parallel.zero=1 train.steps=300
begin apart 3 train.steps=300 checkpoint.every=20
same local apart 300

# An interruption that is shorter than the time-out
begin hiccup 3 train.steps=300
ip -n $far link set wire down
sleep 1
ip -n $far link set wire up
same local hiccup 300

# lose_far: nothing comes from there any more
lose_far() {
    touch lost
    ip -n $far link set wire down
}

ranks_of() {
    for process in $(ip netns pids "$1"); do
        [ "$(readlink "/proc/$process/exe" 2>/dev/null)" != "$(readlink -f "$FWA")" ] || echo "$process"
    done
}

# gone HOST...: no rank is left on these within the time-out and some seconds, nor mpirun soon after.
gone() {
    tries=0
    while :; do
        left=
        for host in "$@"; do left="$left$(ranks_of "$host")"; done
        [ -n "$left" ] || break
        tries=$((tries + 1))
        if [ $tries -gt $(((timeout_s + 7) * 10)) ]; then
            note_failure "ranks are left $((timeout_s + 7)) s later: $left"
            break
        fi
        sleep 0.1
    done
    since=$(date +%s)
    ended
    check "a host was lost, and the run ended with code $code" test "$code" != 0
    check "nobody says why: $(cat err)" grep -q -e 'no answer' -e 'watchdog on host' err
    expect "$code" "to resume from the latest checkpoint"
    check "mpirun stayed longer than its ranks by $(($(date +%s) - since)) s" test $(($(date +%s) - since)) -le 20
    ip netns pids $far | xargs -r kill -9
    ip -n $far link set wire up
}

begin down 50 train.steps=1000000 checkpoint.every=20
lose_far
gone $near $far
run "$FWA" checkpoint verify runs/down
expect 0

# Nothing that runs there says good-bye.
begin vanished 3 train.steps=1000000
lose_far
ip netns pids $far | xargs -r kill -9
gone $near
check_not "a save was started after a host was lost" test -e runs/vanished/checkpoints
finish
