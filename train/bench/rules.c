// A mixing rule as a case of `fwa bench op`: whole fresh sequences, without state that comes in or leaves; of a cache,
// if asked for, as a piece of a sequence with keys and values in front.
#include <math.h>
#include <string.h>

#include "core/shape.h"
#include "train/bench/case.h"

enum {
    Q,
    K_,
    V_,
    BETA,
    LAMBDA,
    LOG_DECAY,
    O,
    D_O,
    DQ,
    DK,
    DV,
    DBETA,
    DLAMBDA,
    DLOG_DECAY,
    KEYS,
    VALUES,
    DKEYS,
    DVALUES
};

// Sizes of mamba2's block of width 768 (docs/models.md): one head of q and k of 128 for 24 heads of 64.
enum { STATE_SPACE_KEY = 128, STATE_SPACE_VALUE = 64 };

fwa_mixer_options fwa_bench_rule_options(const fwa_rule *rule, const fwa_bench_sizes *sizes) {
    fwa_mixer_options options = fwa_mixer_options_default(rule);
    if ((rule->switches & FWA_SWITCH_WINDOW) && sizes->window > 0) options.window = sizes->window;
    return options;
}

static fwa_mixer_call mixer_call(const fwa_bench_call *c) {
    const fwa_bench_sizes *s = &c->sizes;
    fwa_mixer_call call;
    memset(&call, 0, sizeof call);
    call.options = fwa_bench_rule_options(c->of->rule, s);
    call.shape = (fwa_mixer_shape){s->B, s->T, s->Hq, s->H, s->K, s->V};
    call.form = c->form;
    call.save = true;
    call.q = c->t[Q];
    call.k = c->t[K_];
    call.v = c->t[V_];
    call.beta = c->t[BETA];
    call.lambda = c->t[LAMBDA];
    call.log_decay = c->t[LOG_DECAY];
    call.o = c->t[O];
    call.in.tail_x = c->t[KEYS];
    call.in.tail_v = c->t[VALUES];
    call.saved = c->saved;
    call.scratch = c->scratch;
    return call;
}

static fwa_status forward(const fwa_bench_call *c) {
    const fwa_mixer_call call = mixer_call(c);
    return c->kernels->forward(c->backend, c->backend->stream, &call);
}

static fwa_status backward(const fwa_bench_call *c) {
    const fwa_mixer_call call = mixer_call(c);
    fwa_mixer_grads grads;
    memset(&grads, 0, sizeof grads);
    grads.d_o = c->t[D_O];
    grads.dq = c->t[DQ];
    grads.dk = c->t[DK];
    grads.dv = c->t[DV];
    grads.dbeta = c->t[DBETA];
    grads.dlambda = c->t[DLAMBDA];
    grads.dlog_decay = c->t[DLOG_DECAY];
    grads.d_in.tail_x = c->t[DKEYS];
    grads.d_in.tail_v = c->t[DVALUES];
    return c->kernels->backward(c->backend, c->backend->stream, &call, &grads);
}

static void pair(fwa_bench_case *c, int at, const char *name, const char *dname, const char *shape, fwa_bench_type type,
                 double low, double high) {
    c->argument[at] = (fwa_bench_argument){name, shape, FWA_BENCH_IN, type, false, low, high};
    c->argument[at == Q        ? DQ
                : at == K_     ? DK
                : at == V_     ? DV
                : at == KEYS   ? DKEYS
                : at == VALUES ? DVALUES
                               : at - BETA + DBETA] =
        (fwa_bench_argument){dname, shape, FWA_BENCH_OUT, type, true, 0, 0};
}

// Keys have about length 1, which rules without a normalised step need.
void fwa_bench_rule_case(fwa_bench_case *out, const fwa_rule *rule, fwa_bench_sizes *sizes) {
    const bool channel = rule->inputs & FWA_INPUT_BETA_CHANNEL;
    if (rule->switches & FWA_SWITCH_STATE_SPACE) {
        sizes->H = fwa_max(1, sizes->H * 2 * sizes->V / STATE_SPACE_VALUE);
        sizes->K = STATE_SPACE_KEY;
        sizes->V = STATE_SPACE_VALUE;
        sizes->Hq = 1;
    }
    if (rule->state != FWA_STATE_CACHE) sizes->earlier = 0;
    sizes->window = fwa_bench_rule_options(rule, sizes).window;
    const double unit = sqrt(3.0 / (double)sizes->K);
    memset(out, 0, sizeof *out);
    out->name = rule->name;
    out->rule = rule;
    out->pass[0] = forward;
    out->pass[1] = backward;
    pair(out, Q, "q", "dq", "B T G K", FWA_BENCH_ACT, -unit, unit);
    pair(out, K_, "k", "dk", "B T G K", FWA_BENCH_ACT, -unit, unit);
    pair(out, V_, "v", "dv", "B T H V", FWA_BENCH_ACT, -2, 2);
    if (sizes->earlier > 0) {
        pair(out, KEYS, "keys", "dkeys", "B E G K", FWA_BENCH_ACT, -unit, unit);
        pair(out, VALUES, "values", "dvalues", "B E H V", FWA_BENCH_ACT, -2, 2);
    }
    if (channel || (rule->inputs & FWA_INPUT_BETA))
        pair(out, BETA, "beta", "dbeta", channel ? "B T H V" : "B T H", FWA_BENCH_MST, 0.1, 1);
    if (rule->inputs & FWA_INPUT_LAMBDA) pair(out, LAMBDA, "lambda", "dlambda", "B T H", FWA_BENCH_MST, 0.001, 0.05);
    if (rule->inputs & FWA_INPUT_LOG_DECAY)
        pair(out, LOG_DECAY, "log_decay", "dlog_decay", "B T H", FWA_BENCH_MST, -0.1, -0.001);
    out->argument[O] = (fwa_bench_argument){"o", "B T H V", FWA_BENCH_OUT, FWA_BENCH_ACT, false, 0, 0};
    out->argument[D_O] = (fwa_bench_argument){"do", "B T H V", FWA_BENCH_IN, FWA_BENCH_ACT, true, -2, 2};
}

fwa_status fwa_bench_rule_memory(fwa_bench_call *call) {
    fwa_backend *backend = call->backend;
    const fwa_mixer_call mixer = mixer_call(call);
    size_t saved = 0, scratch = 0;
    FWA_TRY(fwa_mixer_find(backend, call->of->rule, &call->kernels));
    FWA_TRY(call->kernels->sizes(backend, &mixer, &saved, &scratch));
    call->saved = fwa_tensor_1d(NULL, FWA_U8, (int64_t)saved);
    call->scratch = fwa_tensor_1d(NULL, FWA_U8, (int64_t)scratch);
    FWA_TRY(backend->alloc(backend, &call->saved.data, saved));
    return backend->alloc(backend, &call->scratch.data, scratch);
}
