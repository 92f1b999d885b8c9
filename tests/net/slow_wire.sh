#!/bin/sh
# Two ranks on two hosts with 20 ms from one to the other: a slow network changes nothing. $FWA_NET_DELAY names the program
# that makes a slow wire (delay.c). Skips without it, and without /dev/net/tun.
if [ ! -x "${FWA_NET_DELAY:-}" ] || [ ! -c /dev/net/tun ]; then
    echo "no FWA_NET_DELAY, or no /dev/net/tun: no slow network here"
    exit 77
fi
. "$(dirname "$0")/lib.sh"
ip -n $far link del wire
"$FWA_NET_DELAY" $near $far 20 >delay.txt 2>&1 & # ends with the far host: it has moved there
until [ -s delay.txt ] || ! kill -0 $! 2>/dev/null; do sleep 0.05; done
check "no slow network" grep -qx ready delay.txt || finish
connect $near 1
connect $far 2
trained 2 near tiny.yaml train.micro_batch=4 parallel.zero=1 train.steps=30
begin slow 3 train.steps=30 checkpoint.every=10
same near slow 30
step_ms=$(columns runs/slow/metrics.jsonl ms | sort -n | sed -n 15p)
check "a step took $step_ms ms: the network was not slow" test "${step_ms%.*}" -ge 40
finish
