// Makers of communicators: over host memory, and over that of GPUs.
#ifndef FWA_DIST_COMMS_H
#define FWA_DIST_COMMS_H

#include "core/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

// Not collective. A group of one: every operation is the identity.
FWA_MUST_CHECK fwa_status fwa_comm_self_create(fwa_comm **out);

// Collective over `mpi_comm` (pointer to an MPI_Comm, so that this header needs no mpi.h), which is duplicated.
// The time-out is 600 s until set_timeout.
//
// Reductions accumulate in rank order, so that sums are bit-equal on all ranks and from run to run, and do not depend
// on where a buffer is cut; bf16 is summed in fp32 and rounded once; max and min of a NaN are NaN.
//
// What overlaps: MPI moves data only inside its calls and there is no progress thread. A started reduction hands its
// first messages to MPI at once (short ones then travel by themselves) and goes on,
// folding included, whenever any operation of the communicator is called: with one start a layer, earlier buckets
// advance while later ones are computed. The rest is done in `wait`.
//
// all_gather and reduce_scatter may work in place (from = to + rank*count; to = from + rank*count). After FWA_TIMEOUT
// or FWA_COMM the communicator refuses every later operation with that status: the job is to be ended.
FWA_MUST_CHECK fwa_status fwa_comm_mpi_create(fwa_comm **out, const void *mpi_comm);

typedef struct fwa_nccl_options {
    int max_ctas;       // the most multiprocessors that an operation takes from kernels beside it; 0: as NCCL likes
    bool deterministic; // sets NCCL_ALGO=Ring and NCCL_PROTO=Simple in the environment: the same bits in every run
    double timeout_s;   // until set_timeout; <= 0: none
} fwa_nccl_options;

// Collective over `host`, a group over host memory of the same ranks (used here only). For memory of `backend`, which
// is borrowed; one rank a GPU. FWA_CONFIG if two ranks have the same one, FWA_UNSUPPORTED in a build without NCCL.
//
// Operations run on a stream of the communicator's own, after what the caller's stream holds and before what it gets
// next; NULL for a stream means the backend's main one. A started reduction holds up nothing until `wait`. The host
// waits only in create, barrier and where NCCL sets up connections: there the time-out holds, and elsewhere a peer that
// is gone shows in the caller's own wait for its stream (dist/watchdog.h).
//
// Operations may be part of recorded work (graph_record in core/backend.h) once others of their sizes have run; ranks
// record and launch alike, and every graph is destroyed before the communicator.
//
// Sums have the same bits on all ranks; from run to run they do if `deterministic`. MAX and MIN of a NaN are NCCL's.
// all_gather and reduce_scatter may work in place as those over MPI. After FWA_TIMEOUT, FWA_COMM or FWA_BACKEND the
// communicator refuses every later operation with that status, and destroy aborts what is under way. NVLink SHARP is
// left to the user's environment (NCCL_NVLS_ENABLE=0).
FWA_MUST_CHECK fwa_status fwa_comm_nccl_create(fwa_comm **out, fwa_comm *host, fwa_backend *backend,
                                               const fwa_nccl_options *options);
int fwa_nccl_version(void); // 10000 major + 100 minor + patch of the library loaded; 0 in a build without

#ifdef __cplusplus
}
#endif
#endif
