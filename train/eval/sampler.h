// The next token from logits. Not collective.
#ifndef FWA_TRAIN_EVAL_SAMPLER_H
#define FWA_TRAIN_EVAL_SAMPLER_H

#include "core/status.h"
#include "core/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_sampling {
    double temperature; // logits are divided by it; 0: the most probable token
    int64_t top_k;      // only the k most probable tokens; 0: all
    double top_p;       // of these only the most probable ones that together have this share of their probability
    uint64_t seed;
} fwa_sampling;

typedef struct fwa_sampler {
    fwa_sampling how;
    int64_t ids;     // that can be drawn: those below
    double *weights; // [ids]
    int32_t *heap;   // [ids]
} fwa_sampler;

// The caller frees *sampler with fwa_sampler_close, after a failure too.
FWA_MUST_CHECK fwa_status fwa_sampler_open(fwa_sampler *sampler, const fwa_sampling *how, int64_t ids);
void fwa_sampler_close(fwa_sampler *sampler);
// The token at `position` of its sequence: a function of (logits, how, position). Equal logits: the lower id first.
// FWA_NONFINITE where no logit is a number above minus infinity, or one is NaN.
FWA_MUST_CHECK fwa_status fwa_sampler_draw(fwa_sampler *sampler, const double *logits, int64_t position, int32_t *id);

#ifdef __cplusplus
}
#endif
#endif
