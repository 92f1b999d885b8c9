// What stands in for NCCL in builds without it.
#include "dist/comms.h"

fwa_status fwa_comm_nccl_create(fwa_comm **out, fwa_comm *host, fwa_backend *backend, const fwa_nccl_options *options) {
    (void)backend, (void)options;
    *out = NULL;
    FWA_FAIL(FWA_UNSUPPORTED,
             "%d ranks on GPUs need NCCL, and this build has none: install it (nccl.h, libnccl) and build anew, or run "
             "one rank, or the cpu backend",
             host->size);
}

int fwa_nccl_version(void) {
    return 0;
}
