// A set of MPI transfers that are under way together, and the conversion of MPI's codes. Private to dist/.
#ifndef FWA_DIST_MPI_BATCH_H
#define FWA_DIST_MPI_BATCH_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// FWA_OK for MPI_SUCCESS, else FWA_COMM with MPI's own text behind `call`.
FWA_MUST_CHECK fwa_status fwa_mpi_status(int code, const char *call);
#define FWA_MPI_TRY(call) FWA_TRY(fwa_mpi_status((call), #call))

typedef struct fwa_mpi_entry {
    int peer;  // rank in the communicator; -1: an operation of the whole group
    int bytes; // expected from a receive; -1: not a receive
} fwa_mpi_entry;

// Zero it before first use. The arrays grow to the largest batch and are kept.
typedef struct fwa_mpi_batch {
    MPI_Request *requests;
    MPI_Status *statuses;
    fwa_mpi_entry *entries;
    int count, capacity;
} fwa_mpi_batch;

void fwa_mpi_batch_free(fwa_mpi_batch *batch);
// Not collective. Start a transfer of any number of bytes (0: none at all, on either side).
FWA_MUST_CHECK fwa_status fwa_mpi_batch_send(fwa_mpi_batch *batch, MPI_Comm comm, const void *from, int64_t bytes,
                                             int peer, int tag);
FWA_MUST_CHECK fwa_status fwa_mpi_batch_receive(fwa_mpi_batch *batch, MPI_Comm comm, void *to, int64_t bytes, int peer,
                                                int tag);
// A free request, for a non-blocking collective of MPI. Valid until the next call on the batch.
FWA_MUST_CHECK fwa_status fwa_mpi_batch_add(fwa_mpi_batch *batch, int peer, int bytes, MPI_Request **out);
// Lets MPI work. *done: all transfers have finished, and the batch is empty again. FWA_COMM if one failed or a message
// was not as long as expected.
FWA_MUST_CHECK fwa_status fwa_mpi_batch_test(fwa_mpi_batch *batch, bool *done);
// Sets late[r] for every rank r with an unfinished transfer.
void fwa_mpi_batch_late(const fwa_mpi_batch *batch, bool *late);

#ifdef __cplusplus
}
#endif
#endif
