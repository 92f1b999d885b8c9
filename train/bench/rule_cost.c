// What a mixing rule must move and compute.
#include "train/bench/rule_cost.h"

#include "train/flops.h"

// Elements of beta, lambda and log_decay for a token.
static double scalars(const fwa_rule *rule, const fwa_mixer_shape *s) {
    double count = 0;
    if (rule->inputs & FWA_INPUT_BETA_CHANNEL)
        count += (double)(s->H * s->V);
    else if (rule->inputs & FWA_INPUT_BETA)
        count += (double)s->H;
    if (rule->inputs & FWA_INPUT_LAMBDA) count += (double)s->H;
    if (rule->inputs & FWA_INPUT_LOG_DECAY) count += (double)s->H;
    return count;
}

fwa_cost fwa_rule_cost(const fwa_rule *rule, const fwa_mixer_options *options, const fwa_mixer_shape *shape,
                       const fwa_backend *backend, bool backward) {
    const fwa_flops_mixer sizes = {.core = rule->core,
                                   .T = shape->T,
                                   .Hq = shape->Hq,
                                   .H = shape->H,
                                   .K = shape->K,
                                   .V = shape->V,
                                   .C = options->chunk,
                                   .B = options->window};
    const double tokens = (double)(shape->B * shape->T), passes = backward ? 2.0 : 1.0;
    const double act = (double)fwa_dtype_size(backend->compute), mst = (double)fwa_dtype_size(backend->master);
    const double keys = 2.0 * (double)(shape->Hq * shape->K);                     // q, k
    const double values = (backward ? 3.0 : 2.0) * (double)(shape->H * shape->V); // v, o; or v, dv, do
    return (fwa_cost){.bytes = tokens * (act * (passes * keys + values) + mst * passes * scalars(rule, shape)),
                      .flops = tokens * passes * fwa_flops_mixer_forward(&sizes)};
}
