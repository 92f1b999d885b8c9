# shellcheck shell=sh
# A Slurm cluster of two nodes on this machine, of its own ports and files, for one test; sourced, not run. Everything
# of tests/cli/lib.sh is there as well. Skipped without Slurm and munge, and without root, which slurmd needs.
for tool in slurmctld slurmd sbatch munged; do
    command -v $tool >/dev/null || {
        echo "$tool was not found"
        exit 77
    }
done
[ "$(id -u)" = 0 ] || {
    echo "slurmd needs root"
    exit 77
}
. "$(dirname "$0")/../cli/lib.sh"
export FWA OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
slurm=$(cd "${FWA_SOURCE_DIR:-$OLDPWD/$(dirname "$0")/../..}" && pwd)/slurm
port=$((20000 + $$ % 4000 * 3))
export SLURM_CONF="$work/cluster/slurm.conf"

# Anything the cluster is waited for may take this long, on a machine that has other work too.
be_patient() {
    deadline=$(($(date +%s) + 150))
}

too_late() {
    [ "$(date +%s)" -ge "$deadline" ]
}

stop_cluster() {
    for node in n1 n2; do
        squeue -h -o %A 2>/dev/null | xargs -r scancel --signal=KILL --full 2>/dev/null
        squeue -h -o %A 2>/dev/null | xargs -r scancel 2>/dev/null
    done
    for process in cluster/slurmd.n1 cluster/slurmd.n2 cluster/slurmctld cluster/munged; do
        [ ! -s "$work/$process.pid" ] || kill "$(cat "$work/$process.pid")" 2>/dev/null
    done
    sleep 1
}
trap 'stop_cluster; clean_up' EXIT

start_cluster() {
    mkdir -p cluster/state cluster/spool.n1 cluster/spool.n2
    chmod 755 "$work" cluster
    head -c 1024 /dev/urandom >cluster/munge.key
    chmod 400 cluster/munge.key
    host=$(hostname -s)
    cat >"$SLURM_CONF" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/cluster/munged.socket
StateSaveLocation=$work/cluster/state
SlurmdSpoolDir=$work/cluster/spool.%n
SlurmctldPidFile=$work/cluster/slurmctld.pid
SlurmdPidFile=$work/cluster/slurmd.%n.pid
SlurmctldLogFile=$work/cluster/slurmctld.log
SlurmdLogFile=$work/cluster/slurmd.%n.log
SlurmctldPort=$port
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=2
MpiDefault=none
SlurmdParameters=config_overrides
KillWait=10
JobRequeue=1
NodeName=n[1-2] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 2))] CPUs=4 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
CONF
    munged --force --key-file="$work/cluster/munge.key" --socket="$work/cluster/munged.socket" \
        --pid-file="$work/cluster/munged.pid" --log-file="$work/cluster/munged.log" \
        --seed-file="$work/cluster/munged.seed"
    slurmctld -f "$SLURM_CONF"
    for node in n1 n2; do slurmd -f "$SLURM_CONF" -N $node; done
    be_patient
    until [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ]; do
        if too_late; then
            note_failure "the cluster does not start"
            tail -n 20 cluster/*.log
            finish
        fi
        sleep 0.5
    done
}

# job_field JOB FIELD
job_field() {
    scontrol show job -o "$1" 2>/dev/null | tr ' ' '\n' | sed -n "s/^$2=//p" | head -n 1
}

# A requeued job waits two minutes in front of its next start, unless it is told otherwise. Told at once, it would be
# taken for the one that just ended: its credential was revoked in the same second.
hurry() {
    if [ "$(job_field "$1" JobState)" = PENDING ] && [ "$(job_field "$1" Reason)" != None ]; then
        sleep 2
        scontrol update JobId="$1" StartTime=now 2>/dev/null
    fi
}

# submit SBATCH_ARGUMENTS...: train.sh on both nodes, without GPUs; the job's number into $job.
submit() {
    what="sbatch $*"
    job=$(sbatch --parsable --nodes=2 --gpus-per-node=0 "$slurm/train.sh" "$@") || {
        note_failure "$what"
        finish
    }
    log=fwa-$job.log
}

# ends STATE CODE TEXT...: the job ends so, and its log holds each TEXT.
ends() {
    state=$1 wanted=$2
    shift 2
    be_patient
    until too_late; do
        case $(job_field "$job" JobState) in
        COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL | '') break ;;
        esac
        hurry "$job"
        sleep 0.5
    done
    cp "$log" err 2>/dev/null || : >err
    what="$what (job $job)"
    code=$(job_field "$job" ExitCode)
    code=${code%%:*}
    expect "$wanted" "$@"
    check "$what: state $(job_field "$job" JobState), expected $state" test "$(job_field "$job" JobState)" = "$state"
}

# requeued COUNT: waits until the job has been put back into the queue so many times.
requeued() {
    be_patient
    until [ "$(job_field "$job" Restarts)" = "$1" ] || too_late; do sleep 0.2; done
    check "job $job was not requeued: $(tail -n 3 "$log")" test "$(job_field "$job" Restarts)" = "$1"
}

# runs_again ROWS RUN: hurries the job until the run has more rows than that.
runs_again() {
    be_patient
    until [ -f "runs/$2/metrics.jsonl" ] && [ "$(wc -l <"runs/$2/metrics.jsonl")" -gt "$1" ]; do
        hurry "$job"
        if too_late; then
            note_failure "job $job does not train: $(tail -n 20 "$log")"
            finish
        fi
        sleep 0.2
    done
}

start_cluster
