// Bytes and floating-point operations that one call of a mixing rule needs. Not collective.
#ifndef FWA_TRAIN_BENCH_RULE_COST_H
#define FWA_TRAIN_BENCH_RULE_COST_H

#include "kernels/rule.h"
#include "train/bench/op_meter.h"

#ifdef __cplusplus
extern "C" {
#endif

// Inputs read once (in the backward pass with the gradient of o), results written once, and the chunk form's products
// (train/flops.h), in the backward pass twice. What passes keep for each other and state do not count.
fwa_cost fwa_rule_cost(const fwa_rule *rule, const fwa_mixer_options *options, const fwa_mixer_shape *shape,
                       const fwa_backend *backend, bool backward);

#ifdef __cplusplus
}
#endif
#endif
