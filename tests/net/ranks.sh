#!/bin/sh
# Two ranks on two hosts, which are network namespaces of this machine: a slow network and a short interruption change
# nothing; where the link stays down, or a host vanishes, every rank and mpirun are gone soon after the time-out.
# $FWA_NET_DELAY names the program that makes a slow wire (delay.c).
# Skips without the right to make namespaces.
. "$(dirname "$0")/../cli/lib.sh"
near=fwa$$n far=fwa$$f
network=10.213.77
timeout_s=3
hosts=no

cat >remove_hosts <<SH
for host in $near $far; do
    ip netns pids \$host 2>/dev/null | xargs -r kill -9 2>/dev/null
    ip netns del \$host 2>/dev/null
done
SH

# connect HOST NUMBER
connect() {
    ip -n "$1" addr add $network."$2"/24 dev wire && ip -n "$1" link set wire up
}

# make_host NAME NUMBER
make_host() {
    ip netns add "$1" && ip link set "link$2-$$" netns "$1" name wire && ip -n "$1" link set lo up && connect "$1" "$2"
}

make_hosts() {
    command -v ip >/dev/null && command -v unshare >/dev/null && unshare --uts true &&
        ip link add link1-$$ type veth peer name link2-$$ && make_host $near 1 && make_host $far 2
}
trap 'sh remove_hosts; clean_up' EXIT
make_hosts 2>reason && hosts=yes
if [ $hosts = no ]; then
    echo "no network namespaces here: $(head -n 1 reason)"
    exit 77
fi

# In place of ssh: [OPTION...] HOST COMMAND... What stays of it on the near host does not see that the far one is lost.
cat >ssh <<SH
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
shift
setsid ip netns exec $far unshare --uts sh -c "hostname far; \$*" &
wait \$!
code=\$?
[ ! -e $work/lost ] || sleep 60
exit \$code
SH
# mpirun on the near host, a rank on each.
cat >both <<SH
#!/bin/sh
exec ip netns exec $near unshare --uts sh -c 'hostname near; exec "\$@"' sh $mpirun --host $network.1:1,$network.2:1 \\
    --mca plm_rsh_agent $work/ssh --mca btl tcp,self --mca btl_tcp_if_include $network.0/24 \\
    --mca oob_tcp_if_include $network.0/24 "\$@"
SH
chmod +x ssh both
mv both mpirun
export OMPI_MCA_oob_tcp_keepalive_time=2 OMPI_MCA_oob_tcp_keepalive_intvl=1 OMPI_MCA_oob_tcp_keepalive_probes=3
export SLURM_NTASKS=2 FWA_LAUNCH="$work/mpirun" FWA_LINGER=4 FWA
settings="train.micro_batch=4 parallel.zero=1 comm.timeout_s=$timeout_s comm.first_timeout_s=20"

# begin RUN ROWS ARGUMENTS...: supervised as on a cluster, until there are ROWS.
begin() {
    name=$1 rows=$2
    shift 2
    rm -f lost
    # shellcheck disable=SC2086 # several words
    start bash "${FWA_SOURCE_DIR:?}/slurm/train.sh" tiny.yaml run.name="$name" $settings "$@"
    wait_for_rows "$name" "$rows" || finish
}

# same LOCAL RUN STEPS: ended well, with the curve of two ranks on one host.
same() {
    ended
    expect 0
    same_curve "$1" "$2"
    same_parameters "$1" "$2" "$3"
}
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

# 20 ms from host to host
if [ ! -x "${FWA_NET_DELAY:-}" ] || [ ! -c /dev/net/tun ]; then
    echo "no FWA_NET_DELAY, or no /dev/net/tun: a slow network is left out"
    finish
fi
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
