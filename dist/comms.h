// Makers of communicators over host memory.
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

#ifdef __cplusplus
}
#endif
#endif
