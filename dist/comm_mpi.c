// A communicator over MPI and host memory: every operation is non-blocking MPI plus the polling loop of mpi_wait.c.
#include "dist/comms.h"

#include <stdlib.h>
#include <string.h>

#include "core/shape.h"
#include "dist/accumulate.h"
#include "dist/mpi_group.h"

enum { SCATTER_BYTES = 4 << 20, BROADCAST_BYTES = 1 << 30 }; // largest piece: workspace of one, MPI's int of the other
#define DEFAULT_TIMEOUT_S 600.0

static fwa_mpi_group *group_of(fwa_comm *comm) {
    return comm->impl;
}

static fwa_status check_call(fwa_mpi_group *group, int64_t count, fwa_dtype dtype) {
    FWA_TRY(fwa_mpi_ready(group));
    FWA_CHECK(count >= 0, FWA_ERROR, "got %lld elements, expected 0 or more", (long long)count);
    FWA_CHECK((unsigned)dtype < FWA_DTYPE_COUNT, FWA_ERROR, "got element type %d, expected one below %d", (int)dtype,
              FWA_DTYPE_COUNT);
    return FWA_OK;
}

static fwa_status check_rank(const fwa_mpi_group *group, int rank) {
    FWA_CHECK(rank >= 0 && rank < group->comm.size, FWA_ERROR, "got rank %d, expected 0 to %d", rank,
              group->comm.size - 1);
    return FWA_OK;
}

static fwa_status mpi_all_reduce_start(fwa_comm *comm, fwa_stream *stream, void *buffer, int64_t count, fwa_dtype dtype,
                                       fwa_reduce op, fwa_comm_request **out) {
    (void)stream;
    fwa_mpi_group *group = group_of(comm);
    *out = NULL;
    FWA_TRY(check_call(group, count, dtype));
    FWA_CHECK((unsigned)op <= FWA_REDUCE_MIN, FWA_ERROR, "got reduction %d, expected sum, max or min", (int)op);
    fwa_mpi_request *request;
    FWA_TRY(fwa_mpi_reduce_start(group, buffer, count, dtype, op, &request));
    comm->sent.all_reduce += count * (int64_t)fwa_dtype_size(dtype);
    *out = (fwa_comm_request *)request;
    return FWA_OK;
}

static fwa_status mpi_wait_request(fwa_comm *comm, fwa_stream *stream, fwa_comm_request *handle) {
    (void)stream;
    fwa_mpi_group *group = group_of(comm);
    fwa_mpi_request *request = (fwa_mpi_request *)handle;
    FWA_TRY(fwa_mpi_ready(group));
    FWA_CHECK(request && request->used, FWA_ERROR,
              "got a request that is not under way, expected one not yet waited for");
    int64_t bytes = request->count * (int64_t)fwa_dtype_size(request->dtype);
    FWA_TRY(fwa_mpi_wait(group, NULL, request, "all_reduce", bytes));
    fwa_mpi_reduce_release(group, request);
    return FWA_OK;
}

static fwa_status mpi_all_reduce(fwa_comm *comm, fwa_stream *stream, void *buffer, int64_t count, fwa_dtype dtype,
                                 fwa_reduce op) {
    fwa_comm_request *request;
    FWA_TRY(mpi_all_reduce_start(comm, stream, buffer, count, dtype, op, &request));
    FWA_TRY(mpi_wait_request(comm, stream, request));
    return FWA_OK;
}

static fwa_status post_broadcast(fwa_mpi_group *group, void *buffer, int bytes, int root) {
    MPI_Request *request;
    FWA_TRY(fwa_mpi_batch_add(&group->batch, -1, -1, &request));
    FWA_MPI_TRY(MPI_Ibcast(buffer, bytes, MPI_BYTE, root, group->mpi, request));
    return FWA_OK;
}

static fwa_status mpi_broadcast(fwa_comm *comm, fwa_stream *stream, void *buffer, int64_t count, fwa_dtype dtype,
                                int root) {
    (void)stream;
    fwa_mpi_group *group = group_of(comm);
    FWA_TRY(check_call(group, count, dtype));
    FWA_TRY(check_rank(group, root));
    int64_t bytes = count * (int64_t)fwa_dtype_size(dtype);
    if (root == comm->rank) comm->sent.broadcast += bytes;
    for (int64_t start = 0; start < bytes; start += BROADCAST_BYTES) {
        int n = (int)fwa_min(BROADCAST_BYTES, bytes - start);
        FWA_TRY(fwa_mpi_fail(group, post_broadcast(group, (char *)buffer + start, n, root)));
        FWA_TRY(fwa_mpi_wait(group, &group->batch, NULL, "broadcast", bytes));
    }
    return FWA_OK;
}

static fwa_status post_gather(fwa_mpi_group *group, const void *from, void *to, int64_t bytes) {
    int rank = group->comm.rank, size = group->comm.size;
    for (int i = 1; i < size; i++) {
        int peer = (rank - i + size) % size;
        char *slot = (char *)to + peer * bytes;
        FWA_TRY(fwa_mpi_batch_receive(&group->batch, group->mpi, slot, bytes, peer, FWA_MPI_TAG_GATHER));
    }
    for (int i = 1; i < size; i++) {
        FWA_TRY(fwa_mpi_batch_send(&group->batch, group->mpi, from, bytes, (rank + i) % size, FWA_MPI_TAG_GATHER));
    }
    return FWA_OK;
}

static fwa_status mpi_all_gather(fwa_comm *comm, fwa_stream *stream, const void *from, void *to, int64_t count,
                                 fwa_dtype dtype) {
    (void)stream;
    fwa_mpi_group *group = group_of(comm);
    FWA_TRY(check_call(group, count, dtype));
    int64_t bytes = count * (int64_t)fwa_dtype_size(dtype);
    comm->sent.all_gather += bytes;
    FWA_TRY(fwa_mpi_fail(group, post_gather(group, from, to, bytes)));
    if (bytes > 0) memmove((char *)to + comm->rank * bytes, from, (size_t)bytes);
    FWA_TRY(fwa_mpi_wait(group, &group->batch, NULL, "all_gather", bytes * comm->size));
    return FWA_OK;
}

// What the others have for elements [start, start + n) of this rank's result, and this rank for theirs.
static fwa_status post_scatter(fwa_mpi_group *group, const char *from, int64_t count, int64_t element, int64_t start,
                               int64_t n) {
    int rank = group->comm.rank, size = group->comm.size;
    int64_t bytes = n * element;
    FWA_TRY(fwa_mpi_workspace_reserve(&group->work, (size_t)(bytes * (size - 1))));
    for (int peer = 0, slot = 0; peer < size; peer++) {
        char *theirs = peer == rank ? NULL : (char *)group->work.data + slot++ * bytes;
        group->sources[peer] = theirs ? theirs : from + (rank * count + start) * element;
        if (!theirs) continue;
        FWA_TRY(fwa_mpi_batch_receive(&group->batch, group->mpi, theirs, bytes, peer, FWA_MPI_TAG_SCATTER));
    }
    for (int i = 1; i < size; i++) {
        int peer = (rank + i) % size;
        const char *piece = from + (peer * count + start) * element;
        FWA_TRY(fwa_mpi_batch_send(&group->batch, group->mpi, piece, bytes, peer, FWA_MPI_TAG_SCATTER));
    }
    return FWA_OK;
}

static fwa_status scatter_piece(fwa_mpi_group *group, const char *from, char *to, int64_t count, fwa_dtype dtype,
                                int64_t start, int64_t n) {
    int size = group->comm.size;
    int64_t element = (int64_t)fwa_dtype_size(dtype);
    FWA_TRY(fwa_mpi_fail(group, post_scatter(group, from, count, element, start, n)));
    FWA_TRY(fwa_mpi_wait(group, &group->batch, NULL, "reduce_scatter", count * element * size));
    fwa_accumulate(dtype, FWA_REDUCE_SUM, to + start * element, group->sources, size, n);
    return FWA_OK;
}

static fwa_status mpi_reduce_scatter(fwa_comm *comm, fwa_stream *stream, const void *from, void *to, int64_t count,
                                     fwa_dtype dtype) {
    (void)stream;
    fwa_mpi_group *group = group_of(comm);
    FWA_TRY(check_call(group, count, dtype));
    int64_t piece = fwa_max(1, SCATTER_BYTES / (int64_t)fwa_dtype_size(dtype) / comm->size);
    comm->sent.reduce_scatter += count * (int64_t)fwa_dtype_size(dtype) * comm->size;
    for (int64_t start = 0; start < count; start += piece) {
        FWA_TRY(scatter_piece(group, from, to, count, dtype, start, fwa_min(piece, count - start)));
    }
    return FWA_OK;
}

// Sizes of 0: nothing on that side.
static fwa_status post_exchange(fwa_mpi_group *group, const void *send, int64_t send_bytes, int to, void *recv,
                                int64_t recv_bytes, int from) {
    FWA_TRY(fwa_mpi_batch_receive(&group->batch, group->mpi, recv, recv_bytes, from, FWA_MPI_TAG_EXCHANGE));
    FWA_TRY(fwa_mpi_batch_send(&group->batch, group->mpi, send, send_bytes, to, FWA_MPI_TAG_EXCHANGE));
    return FWA_OK;
}

static fwa_status mpi_exchange(fwa_comm *comm, fwa_stream *stream, const void *send, int64_t send_bytes, int to,
                               void *recv, int64_t recv_bytes, int from) {
    (void)stream;
    fwa_mpi_group *group = group_of(comm);
    FWA_TRY(check_call(group, fwa_min(send_bytes, recv_bytes), FWA_U8));
    if (!recv) recv_bytes = 0;
    if (!send) send_bytes = 0;
    if (recv_bytes > 0) FWA_TRY(check_rank(group, from));
    if (send_bytes > 0) FWA_TRY(check_rank(group, to));
    comm->sent.exchange += send_bytes;
    FWA_TRY(fwa_mpi_fail(group, post_exchange(group, send, send_bytes, to, recv, recv_bytes, from)));
    FWA_TRY(fwa_mpi_wait(group, &group->batch, NULL, "exchange", send_bytes + recv_bytes));
    return FWA_OK;
}

static fwa_status post_barrier(fwa_mpi_group *group) {
    MPI_Request *request;
    FWA_TRY(fwa_mpi_batch_add(&group->batch, -1, -1, &request));
    FWA_MPI_TRY(MPI_Ibarrier(group->mpi, request));
    return FWA_OK;
}

static fwa_status mpi_barrier(fwa_comm *comm) {
    fwa_mpi_group *group = group_of(comm);
    FWA_TRY(fwa_mpi_ready(group));
    FWA_TRY(fwa_mpi_fail(group, post_barrier(group)));
    FWA_TRY(fwa_mpi_wait(group, &group->batch, NULL, "barrier", 0));
    return FWA_OK;
}

static void mpi_set_timeout(fwa_comm *comm, double seconds) {
    int64_t ns = seconds > 0 && seconds < 1e9 ? (int64_t)(seconds * 1e9) : 0;
    __atomic_store_n(&group_of(comm)->timeout_ns, ns, __ATOMIC_RELAXED);
}

// A broken group is not handed back to MPI: MPI_Comm_free would wait for peers that may be gone.
static void mpi_destroy(fwa_comm *comm) {
    fwa_mpi_group *group = group_of(comm);
    if (group->broken == FWA_OK && group->requests_used == 0) {
        if (group->mpi != MPI_COMM_NULL) MPI_Comm_free(&group->mpi);
        for (int i = 0; i < FWA_MPI_LANES; i++) {
            fwa_mpi_batch_free(&group->lanes[i].batch);
            free(group->lanes[i].work.data);
        }
        fwa_mpi_batch_free(&group->batch);
        free(group->work.data);
    }
    free(group->sources);
    free(group);
}

static fwa_status post_duplicate(fwa_mpi_group *group, MPI_Comm from) {
    MPI_Request *request;
    FWA_TRY(fwa_mpi_batch_add(&group->batch, -1, -1, &request));
    FWA_MPI_TRY(MPI_Comm_idup(from, &group->mpi, request));
    return FWA_OK;
}

static fwa_status duplicate(fwa_mpi_group *group, MPI_Comm from) {
    FWA_TRY(fwa_mpi_fail(group, post_duplicate(group, from)));
    FWA_TRY(fwa_mpi_wait(group, &group->batch, NULL, "set-up", 0));
    FWA_MPI_TRY(MPI_Comm_set_errhandler(group->mpi, MPI_ERRORS_RETURN));
    return FWA_OK;
}

static const fwa_comm mpi_operations = {
    .name = "mpi",
    .all_reduce = mpi_all_reduce,
    .all_reduce_start = mpi_all_reduce_start,
    .wait = mpi_wait_request,
    .broadcast = mpi_broadcast,
    .all_gather = mpi_all_gather,
    .reduce_scatter = mpi_reduce_scatter,
    .exchange = mpi_exchange,
    .barrier = mpi_barrier,
    .set_timeout = mpi_set_timeout,
    .destroy = mpi_destroy,
};

fwa_status fwa_comm_mpi_create(fwa_comm **out, const void *mpi_comm) {
    MPI_Comm from = *(const MPI_Comm *)mpi_comm;
    fwa_mpi_group *group = calloc(1, sizeof *group);
    *out = NULL;
    FWA_CHECK(group, FWA_MEMORY, "no memory for a communicator (%zu bytes)", sizeof *group);
    fwa_status status = FWA_OK;
    group->comm = mpi_operations;
    group->comm.impl = group;
    group->mpi = MPI_COMM_NULL;
    for (int i = 0; i < FWA_MPI_LANES; i++) group->lanes[i].next = i;
    mpi_set_timeout(&group->comm, DEFAULT_TIMEOUT_S);
    FWA_TRY_GOTO(fwa_mpi_status(MPI_Comm_rank(from, &group->comm.rank), "MPI_Comm_rank"), fail);
    FWA_TRY_GOTO(fwa_mpi_status(MPI_Comm_size(from, &group->comm.size), "MPI_Comm_size"), fail);
    group->sources = calloc((size_t)group->comm.size, sizeof *group->sources);
    FWA_CHECK_GOTO(group->sources, FWA_MEMORY, fail, "no memory for a communicator of %d ranks", group->comm.size);
    FWA_TRY_GOTO(duplicate(group, from), fail);
    *out = &group->comm;
    return FWA_OK;
fail:
    mpi_destroy(&group->comm);
    return status;
}
