// Variables of the environment that change what a rank computes or sends, and so must be the same on all ranks.
#ifndef FWA_TRAIN_ENVIRONMENT_H
#define FWA_TRAIN_ENVIRONMENT_H

#include "dist/world.h"

#ifdef __cplusplus
extern "C" {
#endif

// Collective. FWA_USAGE naming the variable, the rank and both values where one differs from rank 0's; empty is unset.
FWA_MUST_CHECK fwa_status fwa_environment_agree(fwa_world *world);

#ifdef __cplusplus
}
#endif
#endif
