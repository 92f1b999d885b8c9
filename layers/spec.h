// What a model is, in numbers: filled from a configuration by train/, read by every layer.
#ifndef FWA_LAYERS_SPEC_H
#define FWA_LAYERS_SPEC_H

#include "kernels/rule.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_MAX_LAYERS 256
#define FWA_MAX_MIXERS 16

typedef struct fwa_mixer_spec {
    char name[32]; // key in the configuration
    const fwa_rule *rule;
    fwa_mixer_options options;
    fwa_norm qk_norm, v_norm;
    fwa_phi phi;
    int64_t conv; // width of the short convolutions; 0: none
    bool gate;    // output gate
    bool rotary;  // q and k turn with their positions
    fwa_gate_source beta, lambda;
    int64_t beta_rank;             // of the projection to a beta per value channel; 0: full, and where beta is per head
    double beta_range;             // beta = beta_range sigmoid(.)
    double beta_init, lambda_init; // value of the sigmoid at the start, in (0, 1)
    fwa_decay decay;               // where log_decay is a constant
    int64_t state;                 // key size of a state-space block; 0 elsewhere
} fwa_mixer_spec;

typedef struct fwa_model_spec {
    int64_t L, D, H, K, F, N; // layers, width, heads, head size (keys and values), ffn (0: no MLP), vocabulary
    int64_t vocab;            // ids below this exist; the rest of N is padding without probability
    double logit_scale;
    bool reset_documents; // a token `document` starts a document: nothing is carried over it
    int32_t document;
    int mixer_count;
    fwa_mixer_spec mixer[FWA_MAX_MIXERS];
    int layer_mixer[FWA_MAX_LAYERS]; // index into mixer, by layer
} fwa_model_spec;

// Sizes of a mixer's rule for B sequences of T tokens.
static inline fwa_mixer_shape fwa_mixer_spec_shape(const fwa_model_spec *model, const fwa_mixer_spec *mixer, int64_t B,
                                                   int64_t T) {
    const bool one = mixer->rule->switches & FWA_SWITCH_STATE_SPACE;
    return (fwa_mixer_shape){B, T, one ? 1 : model->H, model->H, one ? mixer->state : model->K, model->K};
}

// docs/models.md §2: lbar = 0.95 sigmoid(.), RMSNorm eps, rotary base.
#define FWA_LAMBDA_SCALE 0.95
#define FWA_NORM_EPS     1e-5
#define FWA_ROTARY_BASE  10000.0

#ifdef __cplusplus
}
#endif
#endif
