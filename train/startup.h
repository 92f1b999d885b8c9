// The table a run starts with: model, parameters, memory plan, layout, backend, data. Rank 0; not collective.
#ifndef FWA_TRAIN_STARTUP_H
#define FWA_TRAIN_STARTUP_H

#include "train/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

// Logs the table. `run_path`: the run folder, or NULL for a dry run.
void fwa_startup_log(const fwa_trainer *trainer, const char *run_path);

// Floating-point operations of training one token (train/flops.h).
double fwa_startup_flops(const fwa_trainer *trainer);

#ifdef __cplusplus
}
#endif
#endif
