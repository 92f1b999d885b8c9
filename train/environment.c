// Variables of the environment, compared between ranks.
#include "train/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Where sequences are cut into groups of heads and segments, and which kernels run: ranks that differ would wait for
// messages of other sizes, or give other roundings. What else the program reads is a rank's own: the launcher's
// variables, its GPU (CUDA_VISIBLE_DEVICES), how its threads wait (OMP_WAIT_POLICY).
static const char *const shared[] = {"FWA_RING_GROUPS", "FWA_SEGMENT_CHUNKS", "FWA_MIXER", "FWA_ATTENTION"};

enum { COUNT = sizeof shared / sizeof shared[0], SIZE = 64 };

static fwa_status compare(char mine[][SIZE], char first[][SIZE]) {
    for (int i = 0; i < COUNT; i++)
        FWA_CHECK(strcmp(mine[i], first[i]) == 0, FWA_USAGE,
                  "%s in the environment: got '%s', but '%s' on rank 0; expected the same on all ranks (mpirun -x %s)",
                  shared[i], mine[i], first[i], shared[i]);
    return FWA_OK;
}

fwa_status fwa_environment_agree(fwa_world *world) {
    char mine[COUNT][SIZE] = {{0}}, first[COUNT][SIZE];
    if (world->size == 1) return FWA_OK;
    for (int i = 0; i < COUNT; i++) {
        const char *value = getenv(shared[i]);
        if (value) snprintf(mine[i], SIZE, "%s", value);
    }
    memcpy(first, mine, sizeof first);
    FWA_TRY(world->all->broadcast(world->all, NULL, first, sizeof first, FWA_U8, 0));
    return fwa_world_agree(world, compare(mine, first));
}
