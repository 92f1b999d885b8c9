// How ranks find each other before NCCL connects them. Private to dist/.
#ifndef FWA_DIST_NCCL_MEETING_H
#define FWA_DIST_NCCL_MEETING_H

#include <nccl.h>

#include "core/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

// Collective over `host`, a group over host memory. `mine`: what this rank's preparations came to; CUDA's current
// device is `device`. On FWA_OK all ranks are prepared, each has a GPU of its own, and *id is what rank 0 made. All
// fail together: FWA_CONFIG where two ranks have one GPU, a rank's own failure, or FWA_COMM with the rank that failed.
FWA_MUST_CHECK fwa_status fwa_nccl_meet(fwa_comm *host, fwa_status mine, int device, ncclUniqueId *id);

#ifdef __cplusplus
}
#endif
#endif
