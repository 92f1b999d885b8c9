# shellcheck shell=bash
# What the batch scripts share; sourced. A training under supervision, and what its exit code means for the job.
# The script sets `here`, the folder of this file, and `script`, its own name.
#
#   FWA            the program, may be several words (default: build/fwa beside this folder, or the installed one)
#   FWA_LAUNCH     what starts its ranks (default mpirun); `srun --mpi=pmix` at sites that have it
#   FWA_REQUEUES   most requeues of a job (default 100)
#   FWA_FAILURES   most failures in a row, without a checkpoint saved between them (default 3)
#   FWA_LINGER     seconds after which an mpirun without ranks is ended (default 60)
#
# slurm/site.sh, where there is one, is sourced first: module load ..., NCCL_*, the variables above.
: "${here:?}" "${script:?}"
# shellcheck source=/dev/null
[ ! -r "$here/site.sh" ] || . "$here/site.sh"
# In a source tree the program stands in build/, of an installed one in bin/.
for standard in "$here/../build/fwa" "$here/../../../bin/fwa" fwa; do
    [ ! -x "$standard" ] || break
done
read -ra program <<<"${FWA:-$standard}"
read -ra launch <<<"${FWA_LAUNCH:-mpirun}"

# Open MPI notices within half a minute that the daemon of a node does not answer, instead of eight.
export OMPI_MCA_oob_tcp_keepalive_time="${OMPI_MCA_oob_tcp_keepalive_time:-10}"
export OMPI_MCA_oob_tcp_keepalive_intvl="${OMPI_MCA_oob_tcp_keepalive_intvl:-4}"
export OMPI_MCA_oob_tcp_keepalive_probes="${OMPI_MCA_oob_tcp_keepalive_probes:-5}"

say() {
    echo "$(date '+%F %T') $script: $*" >&2
}

# Tasks of the job: one a GPU.
tasks=${SLURM_NTASKS:-1}

# ranks WORDS...: words of `fwa` behind what starts one rank a task, into `command`. Every rank is told how many there
# are to be, and refuses to start among fewer or more.
ranks() {
    export FWA_TASKS=$tasks
    case ${launch[0]##*/} in
    mpirun | mpiexec | orterun) command=("${launch[@]}" -np "$tasks" -x FWA_TASKS "${program[@]}" "$@") ;;
    srun) command=("${launch[@]}" --ntasks="$tasks" "${program[@]}" "$@") ;;
    *) command=("${launch[@]}" "${program[@]}" "$@") ;;
    esac
}

# Process ids of the children of process $1 that are not the launchers of other nodes' daemons.
rank_processes() {
    local ids id
    read -ra ids <<<"$(cat "/proc/$1/task/"*/children 2>/dev/null | tr '\n' ' ')"
    for id in "${ids[@]}"; do
        case $(cat "/proc/$id/comm" 2>/dev/null) in
        srun | ssh | orted | prted | '') ;;
        *) echo "$id" ;;
        esac
    done
}

# Ends process $1 if it goes on although its ranks have left: mpirun may, where a node was lost.
watch_ranks() {
    local seen=no without=0 step=2
    while sleep $step && kill -0 "$1" 2>/dev/null; do
        if [ -n "$(rank_processes "$1")" ]; then
            seen=yes without=0
        elif [ $seen = yes ]; then
            without=$((without + step))
        fi
        [ $without -lt "${FWA_LINGER:-60}" ] || break
    done
    kill -0 "$1" 2>/dev/null || return 0
    say "no ranks are left on this node, ending ${launch[0]} ($1)"
    kill -TERM "$1"
    sleep 5
    kill -KILL "$1" 2>/dev/null
}

# TERM would make mpirun end its ranks within a second; USR1 is handed on to them, and they save. Who presses Ctrl-C again
# does not want to wait for that.
pass_on() {
    signalled=$1
    if [ "$1" = INT ] && [ -n "$interrupted" ] && [ $((SECONDS - interrupted)) -gt 1 ]; then
        [ -z "$child" ] || kill -TERM "$child" 2>/dev/null
        say "SIGINT again: ending ${launch[0]}"
        return
    fi
    [ "$1" != INT ] || interrupted=${interrupted:-$SECONDS}
    [ -z "$child" ] || kill -USR1 "$child" 2>/dev/null
    say "SIG$1: the ranks are told to save"
}

# supervise COMMAND...: runs it in the background; its exit code into `code`.
supervise() {
    local watcher='' before apart=()
    child='' signalled='' interrupted=''
    trap 'pass_on TERM' TERM
    trap 'pass_on USR1' USR1
    trap 'pass_on USR2' USR2
    trap 'pass_on INT' INT
    trap 'pass_on HUP' HUP
    trap 'signalled=PIPE' PIPE # Ctrl-C ends a reader of the output (tee) first
    # A terminal sends Ctrl-C and its end to all that it runs: mpirun would end its ranks at once.
    [ -n "${SLURM_JOB_ID:-}" ] || ! command -v setsid >/dev/null || apart=(setsid)
    ${apart[@]+"${apart[@]}"} "$@" &
    child=$!
    case ${launch[0]##*/} in mpirun | mpiexec | orterun)
        watch_ranks "$child" &
        watcher=$!
        ;;
    esac
    while :; do # a signal ends wait, not the child
        before=$signalled
        signalled=''
        code=0
        wait "$child" || code=$?
        if [ -z "$signalled" ]; then
            signalled=$before
            break
        fi
    done
    [ -z "$watcher" ] || kill "$watcher" 2>/dev/null
    child=''
}

# run_folder TRAIN_WORDS...: the run folder of a training, as the program sees it.
run_folder() {
    "${program[@]}" "$@" --print-config | awk '
        /^[a-z]/ { run = $0 == "run:" }
        run && $1 == "name:" { sub(/^ *name: */, ""); name = $0 }
        run && $1 == "dir:" { sub(/^ *dir: */, ""); dir = $0 }
        END {
            gsub(/^"|"$/, "", name)
            gsub(/^"|"$/, "", dir)
            if (name != "") print dir "/" name
        }'
}

# requeue WHY: puts the job back into the queue, if that may be done once more.
requeue() {
    local count=${SLURM_RESTART_COUNT:-0} most=${FWA_REQUEUES:-100}
    if [ -z "${SLURM_JOB_ID:-}" ]; then
        say "$1; start again to continue"
    elif [ "$count" -ge "$most" ]; then
        say "$1; not requeued: it was $count times, FWA_REQUEUES is $most"
    elif scontrol requeue "$SLURM_JOB_ID"; then
        say "$1; requeued (number $((count + 1)))"
        return 0
    else
        say "$1; scontrol could not requeue it: submit it again to continue"
    fi
    return 1
}

# train WORDS...: `fwa WORDS` on all tasks of the job; leaves with its exit code after a requeue where that helps.
train() {
    local folder failures
    folder=$(run_folder "$@") || folder=
    if [ -z "$folder" ]; then
        say "the configuration is wrong: not started"
        code=2
        return
    fi
    failures=$folder/slurm.failures # one line a failure since the last checkpoint on a signal
    ranks "$@"
    say "job ${SLURM_JOB_ID:-none}, start $((${SLURM_RESTART_COUNT:-0} + 1)), $tasks tasks on ${SLURM_JOB_NODELIST:-this host}: ${command[*]}"
    supervise "${command[@]}"
    case $code in
    0) rm -f "$failures" ;;
    2 | 3) say "exit code $code: another start would end in the same way" ;;
    75)
        rm -f "$failures"
        requeue "saved after a signal" || :
        ;;
    *)
        [ ! -d "$folder" ] || echo "$code" >>"$failures"
        if [ ! -d "$folder" ] || [ "$(wc -l <"$failures")" -ge "${FWA_FAILURES:-3}" ]; then
            say "failed with exit code $code; not requeued: too many failures in a row, or no run folder"
        else
            requeue "failed with exit code $code, to resume from the latest checkpoint" || :
        fi
        ;;
    esac
}
