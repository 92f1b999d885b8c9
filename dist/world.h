// The ranks of this job: who they are, where they sit, and their place in the data x sequence grid.
//
// MPI is started only where a launcher started us (mpirun, srun with PMI): one process needs no mpirun. Rank r has
// sequence position r % sp and data position r / sp, so sp peers are neighbours on a node.
#ifndef FWA_DIST_WORLD_H
#define FWA_DIST_WORLD_H

#include "core/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_world {
    int rank, size;           // of the job
    int node_rank, node_size; // among the ranks of this host
    int cores; // this rank's share of the cores it may run on, which other ranks of this host may use too; at least 1
    char host[64];
    bool mpi;                               // MPI is running
    int dp_rank, dp_size, sp_rank, sp_size; // after fwa_world_split; before it dp is the world and sp is 1
    fwa_comm *all, *dp, *sp;                // communicators over host memory; owned by the world
} fwa_world;

// Collective. Initialises MPI (thread level SERIALIZED) if a launcher is there. FWA_COMM if MPI cannot start, if the
// launcher's task count (OMPI_COMM_WORLD_SIZE, PMI_SIZE, SLURM_STEP_NUM_TASKS) and MPI's differ, or in an srun step of
// several tasks without PMI. MPI's own start has no time-out. Caller: fwa_world_destroy.
FWA_MUST_CHECK fwa_status fwa_world_create(fwa_world **out, int *argc, char ***argv);
// Not collective, before MPI starts, too. Names and versions of MPI and, where it is built in, NCCL, with a comma
// between them.
void fwa_world_libraries(char *text, size_t size);
// Collective. FWA_CONFIG unless sp divides size.
FWA_MUST_CHECK fwa_status fwa_world_split(fwa_world *world, int sp);
// Collective. Finalises MPI, unless the other ranks do not answer within the time-out.
void fwa_world_destroy(fwa_world *world);
// Not collective. Ends every rank of the job with `code`: MPI_Abort under MPI, else _exit; this process within 5 s in
// any case. `world` may be NULL.
void fwa_world_abort(fwa_world *world, int code) __attribute__((noreturn));

// Collective. Every rank passes its own status; all get the worst one (the highest code; any error is worse than
// FWA_PREEMPTED). A rank that had FWA_OK gets the message of the lowest rank with the worst status ("rank 2 (host n1):
// ...") as its own error; a failing rank keeps its message and trace. For agreed points: after set-up, before a
// publish. A rank that does not come: FWA_TIMEOUT, or the rank's own status if that was an error.
FWA_MUST_CHECK fwa_status fwa_world_agree(fwa_world *world, fwa_status mine);

// Collective. The same after work that ranks do for very different times, such as rank 0 alone: those that come first
// wait without a time-out.
FWA_MUST_CHECK fwa_status fwa_world_agree_late(fwa_world *world, fwa_status mine);

// Collective. A copy of rank 0's `mine` on every rank into *text, which the caller frees; NULL on failure. What the
// others pass is not read and may be NULL. A rank without memory for it: FWA_MEMORY on all.
FWA_MUST_CHECK fwa_status fwa_world_share_text(fwa_world *world, const char *mine, char **text);

// Not collective. Time-out in seconds for everything the world's communicators do from now on (<= 0: none); 600 until
// then. Not during fwa_world_split.
void fwa_world_set_timeout(fwa_world *world, double seconds);

#ifdef __cplusplus
}
#endif
#endif
