// A group of ranks that can reduce, gather and exchange. Interface only; self, MPI and NCCL stand in dist/.
//
// Every function is Collective over the group unless marked otherwise, and all ranks issue the same calls in the same
// order. Buffers are memory of the backend that the communicator was made for. Calls return when the result is usable
// on `stream` (CPU: when it is there). A peer that does not answer within the time-out gives FWA_TIMEOUT.
#ifndef FWA_CORE_COMM_H
#define FWA_CORE_COMM_H

#include "core/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fwa_reduce { FWA_REDUCE_SUM, FWA_REDUCE_MAX, FWA_REDUCE_MIN } fwa_reduce;

typedef struct fwa_comm fwa_comm;
typedef struct fwa_comm_request fwa_comm_request; // an operation under way; owned by the communicator until waited for

// Bytes that this rank has given to operations of each kind: the buffer of a reduction, its own part of a gather, its
// parts for all ranks of a reduce-scatter, as a broadcast's root the buffer, what it sends in an exchange. "self" moves
// nothing and counts nothing. Recorded work counts when it is recorded, not when it is launched.
typedef struct fwa_comm_sent {
    int64_t all_reduce, broadcast, all_gather, reduce_scatter, exchange;
} fwa_comm_sent;

struct fwa_comm {
    const char *name; // "self", "mpi", "nccl"
    int rank, size;
    fwa_comm_sent sent; // since the group was made
    void *impl;

    // In place: buffer[i] = op over ranks. Sums are bit-equal on all ranks.
    fwa_status (*all_reduce)(fwa_comm *, fwa_stream *, void *buffer, int64_t count, fwa_dtype, fwa_reduce op);
    // The same, under way while the caller computes; `buffer` is untouchable until `wait` returns. At most 512 at a
    // time.
    fwa_status (*all_reduce_start)(fwa_comm *, fwa_stream *, void *buffer, int64_t count, fwa_dtype, fwa_reduce op,
                                   fwa_comm_request **out);
    fwa_status (*wait)(fwa_comm *, fwa_stream *, fwa_comm_request *);
    fwa_status (*broadcast)(fwa_comm *, fwa_stream *, void *buffer, int64_t count, fwa_dtype, int root);
    // to[r*count ..] = rank r's from[0 .. count).
    fwa_status (*all_gather)(fwa_comm *, fwa_stream *, const void *from, void *to, int64_t count, fwa_dtype);
    // to[0 .. count) = sum over ranks of from[rank*count ..].
    fwa_status (*reduce_scatter)(fwa_comm *, fwa_stream *, const void *from, void *to, int64_t count, fwa_dtype);
    // Point to point, matched in order between a pair; NULL/0 on either side of exchange leaves that side out.
    fwa_status (*exchange)(fwa_comm *, fwa_stream *, const void *send, int64_t send_bytes, int to, void *recv,
                           int64_t recv_bytes, int from);
    fwa_status (*barrier)(fwa_comm *);
    void (*set_timeout)(fwa_comm *, double seconds); // Not collective. <= 0: wait for ever
    void (*destroy)(fwa_comm *);
};

#ifdef __cplusplus
}
#endif
#endif
