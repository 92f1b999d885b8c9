// Which GPU a rank takes, and the communicators of ranks over the memory of their backends.
#ifndef FWA_TRAIN_RANKS_H
#define FWA_TRAIN_RANKS_H

#include "dist/comms.h"
#include "dist/world.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_RANKS_CTAS 8 // multiprocessors left to communication while layers compute

// Not collective. The GPU of this rank among the `visible` ones of its process: its number on the node, or 0 where each
// task was given one GPU of its own (CUDA_VISIBLE_DEVICES). FWA_CONFIG where the node has fewer GPUs than ranks. That
// two ranks were given the same one shows when they connect.
FWA_MUST_CHECK fwa_status fwa_ranks_device(const fwa_world *world, int visible, int *device);

// Collective over `host`, a group of the world. CPU: `host` itself; CUDA: NCCL, or self for one rank. fwa_ranks_leave.
FWA_MUST_CHECK fwa_status fwa_ranks_connect(fwa_comm **out, fwa_comm *host, fwa_backend *backend,
                                            const fwa_nccl_options *options);
void fwa_ranks_leave(fwa_comm *comm, const fwa_comm *host); // destroys what connect has made; NULL is fine

#ifdef __cplusplus
}
#endif
#endif
