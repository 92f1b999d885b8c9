# shellcheck shell=sh
# What the tests on two hosts share; sourced, not run. The hosts are network namespaces of this machine, joined by a wire;
# mpirun, slurm/train.sh and a stand-in for ssh start ranks on them. Skips without the right to make namespaces.
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
