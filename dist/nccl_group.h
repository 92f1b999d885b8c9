// The state behind a communicator over NCCL. Private to dist/.
//
// Every operation runs on the group's own stream, in the order in which it was issued: events make it wait for what the
// caller's stream held before, and make that stream wait for the result. NCCL's calls do not block: what they leave
// under way is polled, with the time-out, in nccl_wait.c.
#ifndef FWA_DIST_NCCL_GROUP_H
#define FWA_DIST_NCCL_GROUP_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FWA_NCCL_REQUESTS = 512 };

// A started all-reduce: what fwa_comm_request points to.
typedef struct fwa_nccl_request {
    bool used;
    cudaEvent_t done; // made when first needed, kept
} fwa_nccl_request;

typedef struct fwa_nccl_group {
    fwa_comm comm;
    fwa_backend *backend; // borrowed
    ncclComm_t nccl;
    cudaStream_t stream;
    cudaEvent_t before, after; // around an operation: the caller's work, the operation's
    int64_t timeout_ns;        // <= 0: none; read and written atomically
    fwa_status broken;         // an operation failed: the group cannot be used any more
    float *token;              // device memory of the barrier
    fwa_nccl_request requests[FWA_NCCL_REQUESTS];
} fwa_nccl_group;

// Not collective. FWA_OK for cudaSuccess, else FWA_BACKEND with CUDA's own text behind `call`.
FWA_MUST_CHECK fwa_status fwa_nccl_cuda_status(cudaError_t error, const char *call);
#define FWA_NCCL_CUDA_TRY(call) FWA_TRY(fwa_nccl_cuda_status((call), #call))

// The functions below are Not collective, and mark the group as broken where they fail. `name` and `bytes` describe
// the operation in messages.

// FWA_OK for a group that works; polls NCCL for failures of operations under way.
FWA_MUST_CHECK fwa_status fwa_nccl_ready(fwa_nccl_group *group);
// What a call of NCCL returned: waits until the call itself (not its work on the GPU) is done.
FWA_MUST_CHECK fwa_status fwa_nccl_finish(fwa_nccl_group *group, ncclResult_t result, const char *name, int64_t bytes);
// Lets the host wait until the GPU has passed `event`.
FWA_MUST_CHECK fwa_status fwa_nccl_wait_event(fwa_nccl_group *group, cudaEvent_t event, const char *name,
                                              int64_t bytes);
// Ends the NCCL communicator: in order where the group works and peers answer in time, else by ncclCommAbort.
void fwa_nccl_end(fwa_nccl_group *group);

#ifdef __cplusplus
}
#endif
#endif
