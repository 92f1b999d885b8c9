// A group of one rank: every operation is the identity on host memory.
#include "dist/comms.h"

#include <stdlib.h>
#include <string.h>

static char started; // what every request points to: nothing is ever under way

static fwa_status copy(const void *from, void *to, int64_t count, fwa_dtype dtype) {
    FWA_CHECK(count >= 0, FWA_ERROR, "got %lld elements, expected 0 or more", (long long)count);
    if (count > 0 && from != to) memmove(to, from, (size_t)count * fwa_dtype_size(dtype));
    return FWA_OK;
}

static fwa_status self_all_reduce(fwa_comm *comm, fwa_stream *stream, void *buffer, int64_t count, fwa_dtype dtype,
                                  fwa_reduce op) {
    (void)comm, (void)stream, (void)buffer, (void)count, (void)dtype, (void)op;
    return FWA_OK;
}

static fwa_status self_all_reduce_start(fwa_comm *comm, fwa_stream *stream, void *buffer, int64_t count,
                                        fwa_dtype dtype, fwa_reduce op, fwa_comm_request **out) {
    (void)comm, (void)stream, (void)buffer, (void)count, (void)dtype, (void)op;
    *out = (fwa_comm_request *)&started;
    return FWA_OK;
}

static fwa_status self_wait(fwa_comm *comm, fwa_stream *stream, fwa_comm_request *request) {
    (void)comm, (void)stream;
    FWA_CHECK(request == (fwa_comm_request *)&started, FWA_ERROR,
              "got a request of another group, expected one of this group of one");
    return FWA_OK;
}

static fwa_status self_broadcast(fwa_comm *comm, fwa_stream *stream, void *buffer, int64_t count, fwa_dtype dtype,
                                 int root) {
    (void)comm, (void)stream, (void)buffer, (void)count, (void)dtype;
    FWA_CHECK(root == 0, FWA_ERROR, "got root %d, expected 0 in a group of one", root);
    return FWA_OK;
}

static fwa_status self_all_gather(fwa_comm *comm, fwa_stream *stream, const void *from, void *to, int64_t count,
                                  fwa_dtype dtype) {
    (void)comm, (void)stream;
    return copy(from, to, count, dtype);
}

static fwa_status self_exchange(fwa_comm *comm, fwa_stream *stream, const void *send, int64_t send_bytes, int to,
                                void *recv, int64_t recv_bytes, int from) {
    (void)comm, (void)stream;
    bool sends = send && send_bytes > 0, receives = recv && recv_bytes > 0;
    if (!sends && !receives) return FWA_OK;
    FWA_CHECK(
        sends && receives && send_bytes == recv_bytes && to == 0 && from == 0, FWA_ERROR,
        "exchange in a group of one: got %lld bytes to rank %d and %lld bytes from rank %d, expected as many from "
        "rank 0 as to rank 0",
        (long long)(sends ? send_bytes : 0), to, (long long)(receives ? recv_bytes : 0), from);
    return copy(send, recv, send_bytes, FWA_U8);
}

static fwa_status self_barrier(fwa_comm *comm) {
    (void)comm;
    return FWA_OK;
}

static void self_set_timeout(fwa_comm *comm, double seconds) {
    (void)comm, (void)seconds;
}

static void self_destroy(fwa_comm *comm) {
    free(comm);
}

fwa_status fwa_comm_self_create(fwa_comm **out) {
    fwa_comm *comm = malloc(sizeof *comm);
    *out = comm;
    FWA_CHECK(comm, FWA_MEMORY, "no memory for a communicator (%zu bytes)", sizeof *comm);
    *comm = (fwa_comm){
        .name = "self",
        .rank = 0,
        .size = 1,
        .all_reduce = self_all_reduce,
        .all_reduce_start = self_all_reduce_start,
        .wait = self_wait,
        .broadcast = self_broadcast,
        .all_gather = self_all_gather,
        .reduce_scatter = self_all_gather,
        .exchange = self_exchange,
        .barrier = self_barrier,
        .set_timeout = self_set_timeout,
        .destroy = self_destroy,
    };
    return FWA_OK;
}
