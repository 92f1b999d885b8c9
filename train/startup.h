// The table a run starts with: model, parameters, memory plan, layout, backend, data. Rank 0; not collective.
#ifndef FWA_TRAIN_STARTUP_H
#define FWA_TRAIN_STARTUP_H

#include "train/run.h"
#include "train/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

// Logs the table. `run`: NULL for a dry run.
void fwa_startup_log(const fwa_trainer *trainer, const fwa_run *run);

// Floating-point operations of training one token (train/flops.h).
double fwa_startup_flops(const fwa_trainer *trainer);

// Dense bf16 FLOP/s of the backend's device by its data sheet; NaN where unknown and on a CPU.
FWA_MUST_CHECK fwa_status fwa_startup_peak(const fwa_backend *backend, double *peak);

#ifdef __cplusplus
}
#endif
#endif
