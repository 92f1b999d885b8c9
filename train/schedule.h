// The learning rate as a function of the update number alone. Not collective.
#ifndef FWA_TRAIN_SCHEDULE_H
#define FWA_TRAIN_SCHEDULE_H

#include "io/config.h"

#ifdef __cplusplus
extern "C" {
#endif

// Rate of update n = 1 .. config->train.steps: linear warm-up (n / warmup x lr, so update 1 has lr / warmup), then
// cosine or linear to exactly min_lr at the last update, constant, or wsd (constant, then linear to min_lr over the last
// decay_fraction of the steps).
double fwa_schedule_rate(const fwa_config *config, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
