// mpirun, srun with PMIx or PMI, srun without, or none.
#include "dist/launcher.h"

#include <stdlib.h>

// Steps that Slurm numbers from here up are batch scripts and interactive shells, not srun's tasks.
#define FIRST_SPECIAL_STEP 4294967280UL

static bool set(const char *name) {
    const char *value = getenv(name);
    return value && value[0];
}

// The first of `names` that holds a positive number.
static void read_tasks(fwa_launcher *out, const char *const *names) {
    for (int i = 0; names[i]; i++) {
        const char *value = getenv(names[i]);
        long tasks = value ? strtol(value, NULL, 10) : 0;
        if (tasks <= 0) continue;
        out->tasks = tasks;
        out->source = names[i];
        return;
    }
}

static bool in_srun_step(void) {
    const char *step = getenv("SLURM_STEP_ID");
    return set("SLURM_PROCID") && step && step[0] && strtoul(step, NULL, 10) < FIRST_SPECIAL_STEP;
}

static fwa_status detect(fwa_launcher *out) {
    *out = (fwa_launcher){0};
    // Under mpirun inside a Slurm job the SLURM_* of a rank speak of mpirun's own daemons: not asked.
    if (set("OMPI_COMM_WORLD_SIZE")) {
        out->mpi = true;
        read_tasks(out, (const char *const[]){"OMPI_COMM_WORLD_SIZE", NULL});
        return FWA_OK;
    }
    bool pmix = set("PMIX_RANK") || set("PMIX_NAMESPACE");
    bool pmi = set("PMI_RANK") || (set("SLURM_PROCID") && (set("PMI_FD") || set("PMI_SIZE") || set("PMI_JOBID")));
    out->mpi = pmix || pmi;
    if (pmi) read_tasks(out, (const char *const[]){"PMI_SIZE", NULL});
    if (out->tasks == 0 && in_srun_step()) {
        read_tasks(out, (const char *const[]){"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS", NULL});
    }
    FWA_CHECK(
        out->mpi || out->tasks <= 1, FWA_COMM,
        "got an srun step of %ld tasks (%s) without PMI, expected PMIx, PMI or mpirun: MPI would start %ld separate "
        "jobs of one rank; use `srun --mpi=pmix` (`srun --mpi=list` shows what there is) or mpirun",
        out->tasks, out->source, out->tasks);
    return FWA_OK;
}

fwa_status fwa_launcher_detect(fwa_launcher *out) {
    FWA_TRY(detect(out));
    fwa_launcher wanted = {0};
    read_tasks(&wanted, (const char *const[]){"FWA_TASKS", NULL});
    if (wanted.tasks == 0) return FWA_OK;
    FWA_CHECK(
        out->mpi || wanted.tasks == 1, FWA_USAGE,
        "number of ranks: got a process that no launcher of this MPI has started, expected one of %ld (FWA_TASKS): "
        "load the MPI that fwa was built with, and use its mpirun or `srun --mpi=pmix`",
        wanted.tasks);
    FWA_CHECK(out->tasks == 0 || out->tasks == wanted.tasks, FWA_USAGE,
              "number of ranks: got %ld from %s, expected the %ld task%s of the job (FWA_TASKS)", out->tasks,
              out->source, wanted.tasks, fwa_plural(wanted.tasks));
    *out = (fwa_launcher){.mpi = out->mpi, .tasks = wanted.tasks, .source = wanted.source};
    return FWA_OK;
}
