// Where the host waits for NCCL: poll, look for failures, give up in time; and the conversion of foreign codes.
#include "dist/nccl_group.h"

#include <time.h>

#include "core/clock.h"

// How long to poll without a pause, and how long to sleep between polls after that.
enum { SPIN_NS = 20000, SLEEP_NS = 20000 };
#define END_SECONDS 10.0 // for peers to take part in an orderly end

static void back_off(int64_t waited_ns) {
    if (waited_ns >= SPIN_NS) nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
}

fwa_status fwa_nccl_cuda_status(cudaError_t error, const char *call) {
    if (error == cudaSuccess) return FWA_OK;
    (void)cudaGetLastError();
    FWA_FAIL(error == cudaErrorMemoryAllocation ? FWA_MEMORY : FWA_BACKEND, "%s: %s (%s)", call,
             cudaGetErrorString(error), cudaGetErrorName(error));
}

static fwa_status fail_nccl(fwa_nccl_group *group, ncclResult_t result, const char *name, int64_t bytes) {
    const char *detail = group->nccl ? ncclGetLastError(group->nccl) : NULL;
    group->broken = FWA_COMM;
    FWA_FAIL(FWA_COMM,
             "%s of %lld bytes in a group of %d ranks: NCCL: %s%s%s; NCCL_DEBUG=WARN in the environment says more",
             name, (long long)bytes, group->comm.size, ncclGetErrorString(result), detail && detail[0] ? ": " : "",
             detail ? detail : "");
}

// Checks the clock of a wait.
static fwa_status check_time(fwa_nccl_group *group, fwa_waiting *waiting, const char *name, int64_t bytes) {
    int64_t waited = fwa_waiting_ns(waiting), limit = __atomic_load_n(&group->timeout_ns, __ATOMIC_RELAXED);
    if (limit <= 0 || waited <= limit) {
        back_off(waited);
        return FWA_OK;
    }
    group->broken = FWA_TIMEOUT;
    FWA_FAIL(
        FWA_TIMEOUT,
        "%s of %lld bytes in a group of %d ranks over NCCL: not done after %.1f s, expected within the time-out; a "
        "peer is stopped, gone or much slower, the network is down, or ranks issued different operations (raise "
        "comm.timeout_s if it is only slow)",
        name, (long long)bytes, group->comm.size, (double)waited * 1e-9);
}

// What NCCL says about the communicator: ncclSuccess, ncclInProgress, or a failure.
static ncclResult_t state_of(const fwa_nccl_group *group) {
    ncclResult_t state = ncclSuccess;
    ncclResult_t asked = ncclCommGetAsyncError(group->nccl, &state);
    return asked == ncclSuccess ? state : asked;
}

fwa_status fwa_nccl_ready(fwa_nccl_group *group) {
    FWA_CHECK(group->broken == FWA_OK, group->broken,
              "got an operation on a group of %d ranks whose earlier operation failed (%s), expected none: end the job",
              group->comm.size, fwa_status_name(group->broken));
    ncclResult_t state = state_of(group);
    if (state != ncclSuccess && state != ncclInProgress) FWA_TRY(fail_nccl(group, state, "an earlier operation", 0));
    return FWA_OK;
}

fwa_status fwa_nccl_finish(fwa_nccl_group *group, ncclResult_t result, const char *name, int64_t bytes) {
    fwa_waiting waiting = fwa_waiting_begin();
    while (result == ncclInProgress) {
        FWA_TRY(check_time(group, &waiting, name, bytes));
        result = state_of(group);
    }
    if (result != ncclSuccess) FWA_TRY(fail_nccl(group, result, name, bytes));
    return FWA_OK;
}

fwa_status fwa_nccl_wait_event(fwa_nccl_group *group, cudaEvent_t event, const char *name, int64_t bytes) {
    fwa_waiting waiting = fwa_waiting_begin();
    for (;;) {
        cudaError_t error = cudaEventQuery(event);
        if (error == cudaSuccess) return FWA_OK;
        if (error != cudaErrorNotReady) {
            group->broken = FWA_BACKEND;
            FWA_TRY(fwa_nccl_cuda_status(error, name));
        }
        FWA_TRY(fwa_nccl_ready(group));
        FWA_TRY(check_time(group, &waiting, name, bytes));
    }
}

// Whether all work is flushed; peers that are gone do not hold this rank for long.
static bool finalised(const fwa_nccl_group *group) {
    int64_t limit = (int64_t)(END_SECONDS * 1e9), start = fwa_clock_ns();
    ncclResult_t result = ncclCommFinalize(group->nccl);
    while (result == ncclInProgress && fwa_clock_ns() - start < limit) {
        back_off(fwa_clock_ns() - start);
        result = state_of(group);
    }
    return result == ncclSuccess;
}

void fwa_nccl_end(fwa_nccl_group *group) {
    if (!group->nccl) return;
    if (group->broken == FWA_OK && finalised(group))
        (void)ncclCommDestroy(group->nccl);
    else
        (void)ncclCommAbort(group->nccl);
    group->nccl = NULL;
}
