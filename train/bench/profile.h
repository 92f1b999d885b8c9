// Where the time of a training step goes: debug.profile and `fwa bench step --profile`. Steps run call by call, not as
// graphs; marks on the stream part them at every range that layers name (core/range.h) and behind every operator, so
// that all of the time between a step's first mark and its last belongs to some part. Beside it stand bytes and FLOPs
// that the part needs and the time they take at least (train/bench/floor.h).
#ifndef FWA_TRAIN_BENCH_PROFILE_H
#define FWA_TRAIN_BENCH_PROFILE_H

#include "train/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_PROFILE_WARM_UP 2 // steps of a start that are not timed: libraries load, products are chosen

typedef struct fwa_profile fwa_profile;

// Not collective. Measures the device's rates. The trainer is borrowed and must have done a step. fwa_profile_destroy.
FWA_MUST_CHECK fwa_status fwa_profile_create(fwa_profile **out, fwa_trainer *trainer);
void fwa_profile_destroy(fwa_profile *profile); // NULL is fine
// Collective. fwa_trainer_step, timed; waits for the device.
FWA_MUST_CHECK fwa_status fwa_profile_step(fwa_profile *profile);

// Means over the steps so far; the caller frees. NULL: out of memory. The table has a line for each part, the longest
// first, and under it its operators; JSON has {steps, ms, copy_gb_per_s, product_tflop_per_s, parts: [{part, calls,
// ms, percent, bytes, flops, floor_ms, operators: [...]}]}, bytes and flops of a step.
char *fwa_profile_table(const fwa_profile *profile);
char *fwa_profile_json(const fwa_profile *profile);

// Collective. One step of training, number `given` (from 0) of those since the start: fwa_trainer_step, or a timed one
// where debug.profile wants it. *profile lives from the first timed step to the last; seconds that were not training
// are added to *other.
FWA_MUST_CHECK fwa_status fwa_profile_training_step(fwa_profile **profile, fwa_trainer *trainer, int64_t given,
                                                    const char *folder, double *other);
// Whether the reports of all steps before number `given` are taken before it is given: as the host waits for the device
// in a timed step, a report taken behind it would come at its end, and a line of the log have the time of another step.
bool fwa_profile_waits_before(const fwa_config *config, int64_t given);
// Not collective. Rank 0 logs the table and writes `folder`/profile.json; destroys and clears *profile. NULL is fine.
FWA_MUST_CHECK fwa_status fwa_profile_finish(fwa_profile **profile, const char *folder);

#ifdef __cplusplus
}
#endif
#endif
