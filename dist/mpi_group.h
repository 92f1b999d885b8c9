// The state behind a communicator over MPI. Private to dist/.
//
// Started reductions are cut into slices. Slice n (counted over the life of the group) runs on lane n % lanes, and a
// lane runs one slice at a time, so that messages of a lane match by their order alone and no rank needs to agree on
// more.
#ifndef FWA_DIST_MPI_GROUP_H
#define FWA_DIST_MPI_GROUP_H

#include "core/comm.h"
#include "dist/mpi_batch.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FWA_MPI_LANES = 4, FWA_MPI_REQUESTS = 512 };
enum { FWA_MPI_TAG_EXCHANGE = 1, FWA_MPI_TAG_GATHER, FWA_MPI_TAG_SCATTER, FWA_MPI_TAG_LANE = 16 };

// A started all-reduce: what fwa_comm_request points to.
typedef struct fwa_mpi_request {
    bool used;
    char *buffer;
    int64_t count;
    fwa_dtype dtype;
    fwa_reduce op;
    int64_t slice_count;             // elements of a slice; the last one may be shorter
    int64_t first, slices, finished; // number of the first slice, how many, how many are summed
} fwa_mpi_request;

typedef enum fwa_mpi_phase { FWA_MPI_WHOLE, FWA_MPI_SCATTER, FWA_MPI_SHARE } fwa_mpi_phase;

// Grows and is kept.
typedef struct fwa_mpi_workspace {
    void *data;
    size_t bytes;
} fwa_mpi_workspace;

typedef struct fwa_mpi_lane {
    fwa_mpi_request *request; // NULL: idle
    int64_t next;             // number of the slice it runs, or runs next
    fwa_mpi_phase phase;
    char *slice;
    int64_t count; // elements of the slice
    fwa_mpi_batch batch;
    fwa_mpi_workspace work;
} fwa_mpi_lane;

typedef struct fwa_mpi_group {
    fwa_comm comm;
    MPI_Comm mpi;
    int64_t timeout_ns; // <= 0: none; read and written atomically: any thread may set it
    fwa_status broken;  // an operation failed half-way: the group cannot be used any more
    int64_t slices;     // given out so far
    fwa_mpi_lane lanes[FWA_MPI_LANES];
    fwa_mpi_request requests[FWA_MPI_REQUESTS];
    int requests_high; // slots at and above were never used
    int requests_used;
    fwa_mpi_batch batch; // of the blocking operations
    fwa_mpi_workspace work;
    const void **sources; // [size]
} fwa_mpi_group;

// Not collective. FWA_MEMORY if it cannot grow.
FWA_MUST_CHECK fwa_status fwa_mpi_workspace_reserve(fwa_mpi_workspace *work, size_t bytes);

// mpi_reduce.c. Collective.
FWA_MUST_CHECK fwa_status fwa_mpi_reduce_start(fwa_mpi_group *group, void *buffer, int64_t count, fwa_dtype dtype,
                                               fwa_reduce op, fwa_mpi_request **out);
void fwa_mpi_reduce_release(fwa_mpi_group *group, fwa_mpi_request *request);
// Not collective. Moves every started reduction on as far as it goes without waiting.
FWA_MUST_CHECK fwa_status fwa_mpi_reduce_progress(fwa_mpi_group *group);

// mpi_wait.c. Not collective. FWA_COMM, FWA_TIMEOUT, FWA_MEMORY or FWA_ERROR if the group is broken.
FWA_MUST_CHECK fwa_status fwa_mpi_ready(const fwa_mpi_group *group);
// Not collective. Passes `status` on; from a failed one on the group is broken, as transfers may be under way whose
// buffers nobody minds any more. For every step that starts or moves transfers.
FWA_MUST_CHECK fwa_status fwa_mpi_fail(fwa_mpi_group *group, fwa_status status);
// Collective. Until the transfers of `batch` and the reduction `request` (each may be NULL) have finished; FWA_TIMEOUT
// names `name` and `bytes`.
FWA_MUST_CHECK fwa_status fwa_mpi_wait(fwa_mpi_group *group, fwa_mpi_batch *batch, const fwa_mpi_request *request,
                                       const char *name, int64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
