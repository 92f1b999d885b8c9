// Makers of communicators over host memory.
#ifndef FWA_DIST_COMMS_H
#define FWA_DIST_COMMS_H

#include "core/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

// Not collective. A group of one: every operation is the identity.
FWA_MUST_CHECK fwa_status fwa_comm_self_create(fwa_comm **out);

// Collective over `mpi_comm` (pointer to an MPI_Comm, so that this header needs no mpi.h), which is duplicated. Reductions
// accumulate in rank order, so that sums are bit-equal on all ranks and from run to run.
FWA_MUST_CHECK fwa_status fwa_comm_mpi_create(fwa_comm **out, const void *mpi_comm);

#ifdef __cplusplus
}
#endif
#endif
