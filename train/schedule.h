// The learning rate as a function of the update number alone. Not collective.
#ifndef FWA_TRAIN_SCHEDULE_H
#define FWA_TRAIN_SCHEDULE_H

#include "io/config.h"

#ifdef __cplusplus
extern "C" {
#endif

// Rate of update n >= 1. Up to update `warmup` it is n / warmup x lr, so update 1 has lr / warmup and update `warmup`
// has lr (warmup 0 counts as 1). Then: cosine or linear to exactly min_lr at update train.steps, constant, or wsd
// (constant, then linear to min_lr over the last decay_fraction of the steps). Beyond train.steps it keeps the last
// value; where steps <= warmup that is the last one of the warm-up.
double fwa_schedule_rate(const fwa_config *config, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
