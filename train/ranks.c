// Ranks on their devices.
#include "train/ranks.h"

#include <stdlib.h>

fwa_status fwa_ranks_device(const fwa_world *world, int visible, int *device) {
    const char *given = getenv("CUDA_VISIBLE_DEVICES");
    bool own = visible == 1 && given && given[0]; // of this task, or one for all: told apart by fwa_comm_nccl_create
    *device = own ? 0 : world->node_rank;
    FWA_CHECK(own || visible >= world->node_size, FWA_CONFIG,
              "host %s: %d rank%s and %d visible GPU%s, expected one rank a GPU; start fewer ranks on the node (mpirun "
              "-np, --ntasks-per-node), or give each task its GPU (--gpus-per-task=1)",
              world->host, world->node_size, fwa_plural(world->node_size), visible, fwa_plural(visible));
    return FWA_OK;
}

fwa_status fwa_ranks_connect(fwa_comm **out, fwa_comm *host, fwa_backend *backend, const fwa_nccl_options *options) {
    *out = NULL;
    if (backend->kind == FWA_BACKEND_CPU) {
        *out = host;
        return FWA_OK;
    }
    if (host->size == 1) return fwa_comm_self_create(out); // sums of one rank: nothing is read or moved
    return fwa_comm_nccl_create(out, host, backend, options);
}

void fwa_ranks_leave(fwa_comm *comm, const fwa_comm *host) {
    if (comm && comm != host) comm->destroy(comm);
}
