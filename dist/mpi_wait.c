// The one waiting loop of the MPI communicator: poll, be kind to ranks that share the core, give up in time.
#include "dist/mpi_group.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/clock.h"

// How long to poll without a pause, then with sched_yield, before sleeping between polls (nanoseconds).
enum { SPIN_NS = 2000, YIELD_NS = 200000, SLEEP_NS = 30000 };

fwa_status fwa_mpi_ready(const fwa_mpi_group *group) {
    FWA_CHECK(group->broken == FWA_OK, group->broken,
              "got an operation on a group of %d ranks whose earlier operation failed (%s), expected none: end the job",
              group->comm.size, fwa_status_name(group->broken));
    return FWA_OK;
}

fwa_status fwa_mpi_fail(fwa_mpi_group *group, fwa_status status) {
    if (status != FWA_OK) group->broken = status;
    return status;
}

// " from rank 1 3" into `text`, as far as the transfers tell.
static void list_late(const fwa_mpi_group *group, const fwa_mpi_batch *batch, char *text, size_t size) {
    bool *late = calloc((size_t)group->comm.size, sizeof *late);
    text[0] = '\0';
    if (!late) return;
    if (batch) fwa_mpi_batch_late(batch, late);
    for (int i = 0; i < FWA_MPI_LANES; i++) fwa_mpi_batch_late(&group->lanes[i].batch, late);
    size_t used = 0;
    for (int r = 0; r < group->comm.size && used < size; r++) {
        if (late[r]) used += (size_t)snprintf(text + used, size - used, "%s %d", used ? "" : " from rank", r);
    }
    free(late);
}

static fwa_status fail_timeout(const fwa_mpi_group *group, const fwa_mpi_batch *batch, const char *name, int64_t bytes,
                               double seconds) {
    char from[128];
    list_late(group, batch, from, sizeof from);
    FWA_FAIL(
        FWA_TIMEOUT,
        "%s of %lld bytes in a group of %d ranks: no answer%s for %.1f s, expected one within the time-out; a peer is "
        "stopped, gone or much slower, the network is down, or ranks issued different operations (raise "
        "comm.timeout_s if it is only slow)",
        name, (long long)bytes, group->comm.size, from, seconds);
}

static void back_off(int64_t waited_ns) {
    if (waited_ns < SPIN_NS) return;
    if (waited_ns < YIELD_NS) {
        sched_yield();
        return;
    }
    nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
}

static fwa_status wait_loop(fwa_mpi_group *group, fwa_mpi_batch *batch, const fwa_mpi_request *request,
                            const char *name, int64_t bytes) {
    fwa_waiting waiting = fwa_waiting_begin();
    for (;;) {
        bool done = true;
        FWA_TRY(fwa_mpi_reduce_progress(group));
        if (batch) FWA_TRY(fwa_mpi_batch_test(batch, &done));
        if (done && (!request || request->finished == request->slices)) return FWA_OK;
        int64_t waited = fwa_waiting_ns(&waiting), limit = __atomic_load_n(&group->timeout_ns, __ATOMIC_RELAXED);
        if (limit > 0 && waited > limit) FWA_TRY(fail_timeout(group, batch, name, bytes, (double)waited * 1e-9));
        back_off(waited);
    }
}

fwa_status fwa_mpi_wait(fwa_mpi_group *group, fwa_mpi_batch *batch, const fwa_mpi_request *request, const char *name,
                        int64_t bytes) {
    FWA_TRY(fwa_mpi_fail(group, wait_loop(group, batch, request, name, bytes)));
    return FWA_OK;
}
