// What the backend of a run has chosen by measurement: kept in RUN/gemm_algos.json and in checkpoints, so that a run
// that is resumed on the same kind of GPU computes the same bits; and the same on all ranks.
#ifndef FWA_TRAIN_CHOICES_H
#define FWA_TRAIN_CHOICES_H

#include "train/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

// Not collective. As JSON (io/records.h); "" where nothing was measured. The caller frees *json.
FWA_MUST_CHECK fwa_status fwa_choices_get(const fwa_trainer *trainer, char **json);
// Not collective. Takes over those that fit this GPU, library and program, where anything is measured at all; rank 0
// logs how many, with `place`.
FWA_MUST_CHECK fwa_status fwa_choices_take(const fwa_trainer *trainer, const char *json, const char *place);
// Collective. Every rank takes over rank 0's: after work of a new kind, before more of it.
FWA_MUST_CHECK fwa_status fwa_choices_share(const fwa_trainer *trainer);

#ifdef __cplusplus
}
#endif
#endif
