// What is common to a rule on all backends and precisions: default options, rows of the tail, the check of a call.
#include "kernels/rule.h"

#include "core/shape.h"
#include "kernels/registry.h"

fwa_mixer_options fwa_mixer_options_default(const fwa_rule *rule) {
    const bool shift = rule->switches & FWA_SWITCH_SHIFT, step = rule->switches & FWA_SWITCH_STEP;
    const bool ridge = rule->switches & FWA_SWITCH_RIDGE;
    return (fwa_mixer_options){
        .shift = shift ? rule->default_shift : FWA_SHIFT_SAME_STEP,
        .read = FWA_READ_AFTER_WRITE,
        .step = step ? FWA_STEP_NORMALIZED : FWA_STEP_DIRECT,
        .ridge = ridge ? FWA_RIDGE_COUPLED : FWA_RIDGE_NONE,
        .detach_scale = rule->default_detach_scale,
        .window = rule->default_window,
        .chunk = 64,
        .eps = 1e-3,
        .eps_gamma = 0.01,
        .eta_max = 1.999,
        .eps_attn = 1e-6,
    };
}

int64_t fwa_tail_rows(fwa_tensor tail) {
    return tail.ndim == 4 ? tail.shape[1] : 0;
}

int64_t fwa_mixer_tail_rows(const fwa_rule *rule, const fwa_mixer_options *options, int64_t T, int64_t n_in,
                            bool has_k_prev) {
    if (rule->state == FWA_STATE_CACHE) return n_in + T;
    const bool fresh = options->shift == FWA_SHIFT_NEXT_LATENT && !has_k_prev;
    return fwa_min(options->window - 1, n_in + T - (fresh ? 1 : 0));
}

static fwa_status check_shape(const fwa_rule *rule, const fwa_mixer_shape *shape) {
    FWA_CHECK(shape->B >= 1 && shape->T >= 1 && shape->Hq >= 1 && shape->H >= 1 && shape->K >= 1 && shape->V >= 1,
              FWA_USAGE, "%s: B %lld, T %lld, Hq %lld, H %lld, K %lld, V %lld, expected all at least 1", rule->name,
              (long long)shape->B, (long long)shape->T, (long long)shape->Hq, (long long)shape->H, (long long)shape->K,
              (long long)shape->V);
    FWA_CHECK(shape->H % shape->Hq == 0, FWA_USAGE,
              "%s: %lld value head%s, expected a multiple of the %lld query head%s", rule->name, (long long)shape->H,
              fwa_plural(shape->H), (long long)shape->Hq, fwa_plural(shape->Hq));
    return FWA_OK;
}

// An option that the rule does not understand must stand at its neutral value.
static fwa_status check_switches(const fwa_rule *rule, const fwa_mixer_options *options) {
    const fwa_mixer_options neutral = fwa_mixer_options_default(rule);
    const struct {
        unsigned bit;
        const char *name;
        bool moved;
    } switches[] = {
        {FWA_SWITCH_SHIFT, "shift", options->shift != neutral.shift},
        {FWA_SWITCH_READ, "read", options->read != neutral.read},
        {FWA_SWITCH_STEP, "step", options->step != neutral.step},
        {FWA_SWITCH_RIDGE, "ridge", options->ridge != neutral.ridge},
        {FWA_SWITCH_WINDOW, "window", options->window != 1},
        {FWA_SWITCH_NORMALIZED_READ, "normalized_read", options->normalized_read},
    };
    for (size_t i = 0; i < sizeof switches / sizeof switches[0]; i++)
        FWA_CHECK((rule->switches & switches[i].bit) || !switches[i].moved, FWA_USAGE,
                  "%s has no option '%s': leave it as fwa_mixer_options_default sets it", rule->name, switches[i].name);
    return FWA_OK;
}

fwa_status fwa_mixer_check_options(const fwa_rule *rule, const fwa_mixer_call *call) {
    const fwa_mixer_options *options = &call->options;
    FWA_TRY(check_shape(rule, &call->shape));
    FWA_CHECK((unsigned)call->form & rule->forms, FWA_USAGE, "%s: form %d, expected one of the bits %u", rule->name,
              (int)call->form, rule->forms);
    FWA_CHECK(((unsigned)call->form & ((unsigned)call->form - 1)) == 0, FWA_USAGE, "%s: form %d, expected one form",
              rule->name, (int)call->form);
    FWA_CHECK(options->window >= 1 && options->chunk >= 1, FWA_USAGE,
              "%s: window %lld, chunk %lld, expected at least 1", rule->name, (long long)options->window,
              (long long)options->chunk);
    FWA_CHECK(options->eps >= 0 && options->eta_max >= 0 && options->eps_attn >= 0, FWA_USAGE,
              "%s: eps %g, eta_max %g, eps_attn %g, expected none below 0", rule->name, options->eps, options->eta_max,
              options->eps_attn);
    FWA_CHECK(options->eps_gamma >= 0 && options->eps_gamma < 1, FWA_USAGE, "%s: eps_gamma %g, expected [0, 1)",
              rule->name, options->eps_gamma);
    return check_switches(rule, options);
}

// Presence, type, sizes and dense rows of one tensor.
static fwa_status expect(const fwa_rule *rule, const char *name, fwa_tensor t, fwa_dtype dtype, fwa_tensor wanted) {
    bool same = t.data && t.dtype == dtype && t.ndim == wanted.ndim && t.stride[t.ndim - 1] == 1;
    for (int i = 0; same && i < wanted.ndim; i++) same = t.shape[i] == wanted.shape[i];
    if (same) return FWA_OK;
    char got[96], expected[96];
    FWA_FAIL(FWA_USAGE, "%s: %s is %s%s, expected %s with dense rows", rule->name, name, fwa_tensor_text(t, got),
             !t.data && t.ndim > 0 ? " without memory" : "", fwa_tensor_text(wanted, expected));
}

// Tensors of a call or of its gradients with the type and sizes they must have. ndim counts from the first 0 in n.
typedef struct wanted {
    const char *name;
    fwa_tensor t;
    fwa_dtype dtype;
    bool required;
    int64_t n[4];
} wanted;

static fwa_status expect_all(const fwa_rule *rule, const wanted *list, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const wanted *w = &list[i];
        if (!w->required && !fwa_tensor_present(w->t) && w->t.ndim == 0) continue;
        int ndim = 0;
        while (ndim < 4 && w->n[ndim] > 0) ndim++;
        FWA_TRY(expect(rule, w->name, w->t, w->dtype, fwa_tensor_nd(NULL, w->dtype, ndim, w->n)));
    }
    return FWA_OK;
}

#define EXPECT_ALL(rule, list) FWA_TRY(expect_all((rule), (list), sizeof(list) / sizeof((list)[0])))

static bool tail_given(const fwa_mixer_state *state) {
    return fwa_tail_rows(state->tail_x) > 0 || fwa_tail_rows(state->tail_v) > 0;
}

// Tensors that a state (or its gradient) may hold; rows: of the tail.
static fwa_status check_state(const fwa_rule *rule, const fwa_backend *backend, const fwa_mixer_call *call,
                              const fwa_mixer_state *state, const char *which, int64_t rows, bool gradient) {
    const fwa_mixer_shape *s = &call->shape;
    const fwa_dtype mst = backend->master, S_type = state->S.dtype == backend->compute ? backend->compute : mst;
    const bool matrix = rule->state == FWA_STATE_MATRIX;
    const fwa_dtype tail = !matrix && call->in.tail_x.dtype == backend->compute ? backend->compute : mst;
    FWA_CHECK(matrix || !(state->S.data || state->z.data || state->k_last.data), FWA_USAGE,
              "%s: the state %s holds S, z or k_last, expected tail_x and tail_v only", rule->name, which);
    FWA_CHECK(call->options.normalized_read || !state->z.data, FWA_USAGE,
              "%s: the state %s holds z, which only a normalized_read has", rule->name, which);
    const wanted dense[] = {
        {"S", state->S, S_type, false, {s->B, s->H, s->K, s->V}},
        {"z", state->z, mst, false, {s->B, s->H, s->K}},
        {"k_last", state->k_last, mst, false, {s->B, s->Hq, s->K}},
    };
    EXPECT_ALL(rule, dense);
    if (!tail_given(state)) return FWA_OK;
    FWA_CHECK(gradient || (state->tail_x.data && state->tail_v.data), FWA_USAGE,
              "%s: the state %s holds one of tail_x and tail_v, expected both", rule->name, which);
    FWA_CHECK(rows > 0, FWA_USAGE, "%s: the state %s holds a tail, expected none: %s", rule->name, which,
              matrix ? "the window is 1 or has no pair yet" : "the cache is empty");
    const wanted tails[] = {
        {"tail_x", state->tail_x, tail, false, {s->B, rows, s->Hq, s->K}},
        {"tail_v", state->tail_v, tail, false, {s->B, rows, s->H, s->V}},
    };
    EXPECT_ALL(rule, tails);
    return FWA_OK;
}

static int64_t leaving_rows(const fwa_rule *rule, const fwa_mixer_call *call) {
    return fwa_mixer_tail_rows(rule, &call->options, call->shape.T, fwa_tail_rows(call->in.tail_x),
                               fwa_tensor_present(call->in.k_last));
}

static fwa_status check_states(const fwa_rule *rule, const fwa_backend *backend, const fwa_mixer_call *call) {
    const fwa_mixer_options *options = &call->options;
    const int64_t n = fwa_tail_rows(call->in.tail_x);
    const bool matrix = rule->state == FWA_STATE_MATRIX;
    FWA_CHECK(!matrix || n <= options->window - 1, FWA_USAGE,
              "%s: the incoming tail has %lld pair%s, expected at most window - 1 = %lld", rule->name, (long long)n,
              fwa_plural(n), (long long)(options->window - 1));
    FWA_CHECK(!matrix || !tail_given(&call->in) || options->shift == FWA_SHIFT_SAME_STEP || call->in.k_last.data,
              FWA_USAGE, "%s: a tail without k_last under shift next_latent: pass the last key of the segment before",
              rule->name);
    FWA_CHECK(!options->normalized_read || !call->in.S.data == !call->in.z.data, FWA_USAGE,
              "%s: one of S and z comes in, expected both or none under normalized_read", rule->name);
    FWA_CHECK(!call->reset.data || !tail_given(&call->out), FWA_UNSUPPORTED,
              "%s: a tail cannot leave a segment with reset: sequences would have different numbers of pairs",
              rule->name);
    FWA_TRY(check_state(rule, backend, call, &call->in, "in", n, false));
    return check_state(rule, backend, call, &call->out, "out", leaving_rows(rule, call), false);
}

static fwa_status check_handover(const fwa_rule *rule, const fwa_backend *backend, const fwa_mixer_call *call) {
    const fwa_mixer *mixer;
    if (!call->handover) return FWA_OK;
    FWA_TRY(fwa_mixer_find(backend, rule, &mixer));
    FWA_CHECK(
        mixer->hands_over, FWA_UNSUPPORTED,
        "%s: its kernels on the %s backend hand no states over, got a handover, expected null and complete states",
        rule->name, backend->name);
    return FWA_OK;
}

fwa_status fwa_mixer_check(const fwa_rule *rule, const fwa_backend *backend, const fwa_mixer_call *call) {
    const fwa_mixer_shape *s = &call->shape;
    FWA_TRY(fwa_mixer_check_options(rule, call));
    FWA_TRY(check_handover(rule, backend, call));
    const fwa_dtype act = backend->compute, mst = backend->master;
    const bool channel = rule->inputs & FWA_INPUT_BETA_CHANNEL, beta = channel || (rule->inputs & FWA_INPUT_BETA);
    const bool lambda = (rule->inputs & FWA_INPUT_LAMBDA) && call->options.ridge != FWA_RIDGE_NONE;
    const bool log_decay = rule->inputs & FWA_INPUT_LOG_DECAY;
    const wanted inputs[] = {
        {"q", call->q, act, true, {s->B, s->T, s->Hq, s->K}},
        {"k", call->k, act, true, {s->B, s->T, s->Hq, s->K}},
        {"v", call->v, act, true, {s->B, s->T, s->H, s->V}},
        {"o", call->o, act, true, {s->B, s->T, s->H, s->V}},
        {"beta", call->beta, mst, beta, {s->B, s->T, s->H, channel ? s->V : 0}},
        {"lambda", call->lambda, mst, lambda, {s->B, s->T, s->H}},
        {"log_decay", call->log_decay, mst, log_decay, {s->B, s->T, s->H}},
        {"reset", call->reset, FWA_U8, false, {s->B, s->T}},
    };
    EXPECT_ALL(rule, inputs);
    const wanted starts[] = {
        {"tail_reset", call->tail_reset, FWA_U8, false, {s->B, fwa_tail_rows(call->in.tail_x)}},
    };
    EXPECT_ALL(rule, starts);
    FWA_CHECK(call->reset.data || !call->tail_reset.data, FWA_USAGE,
              "%s: tail_reset without reset, expected both, or reset alone", rule->name);
    FWA_CHECK(beta || !call->beta.data, FWA_USAGE, "%s takes no beta", rule->name);
    FWA_CHECK((rule->inputs & FWA_INPUT_LAMBDA) || !call->lambda.data, FWA_USAGE, "%s takes no lambda", rule->name);
    FWA_CHECK(log_decay || !call->log_decay.data, FWA_USAGE, "%s takes no log_decay", rule->name);
    return check_states(rule, backend, call);
}

fwa_status fwa_mixer_check_grads(const fwa_rule *rule, const fwa_backend *backend, const fwa_mixer_call *call,
                                 const fwa_mixer_grads *grads) {
    const fwa_mixer_shape *s = &call->shape;
    const fwa_dtype act = backend->compute, mst = backend->master;
    const bool channel = rule->inputs & FWA_INPUT_BETA_CHANNEL;
    FWA_CHECK(call->save, FWA_USAGE, "%s: a backward pass needs a forward pass with save", rule->name);
    const wanted list[] = {
        {"d_o", grads->d_o, act, false, {s->B, s->T, s->H, s->V}},
        {"dq", grads->dq, act, false, {s->B, s->T, s->Hq, s->K}},
        {"dk", grads->dk, act, false, {s->B, s->T, s->Hq, s->K}},
        {"dv", grads->dv, act, false, {s->B, s->T, s->H, s->V}},
        {"dbeta", grads->dbeta, mst, false, {s->B, s->T, s->H, channel ? s->V : 0}},
        {"dlambda", grads->dlambda, mst, false, {s->B, s->T, s->H}},
        {"dlog_decay", grads->dlog_decay, mst, false, {s->B, s->T, s->H}},
    };
    EXPECT_ALL(rule, list);
    FWA_CHECK(fwa_tensor_present(call->beta) || !grads->dbeta.data, FWA_USAGE, "%s: dbeta without beta", rule->name);
    FWA_CHECK((rule->inputs & FWA_INPUT_LAMBDA) || !grads->dlambda.data, FWA_USAGE, "%s: dlambda without lambda",
              rule->name);
    FWA_CHECK(fwa_tensor_present(call->log_decay) || !grads->dlog_decay.data, FWA_USAGE,
              "%s: dlog_decay without log_decay", rule->name);
    FWA_CHECK(!call->reset.data || !tail_given(&grads->d_out), FWA_UNSUPPORTED,
              "%s: the gradient of a tail cannot enter a segment with reset", rule->name);
    FWA_TRY(check_state(rule, backend, call, &grads->d_in, "d_in", fwa_tail_rows(call->in.tail_x), true));
    return check_state(rule, backend, call, &grads->d_out, "d_out", leaving_rows(rule, call), true);
}

static fwa_status check_bytes(const fwa_rule *rule, const char *name, fwa_tensor memory, size_t bytes) {
    const size_t got = memory.data ? fwa_tensor_bytes(memory) : 0;
    FWA_CHECK(got >= bytes, FWA_USAGE, "%s: %s memory of %zu bytes, expected %zu: ask sizes() with this call",
              rule->name, name, got, bytes);
    return FWA_OK;
}

fwa_status fwa_mixer_check_memory(const fwa_rule *rule, const fwa_mixer_call *call, size_t saved, size_t scratch) {
    FWA_TRY(check_bytes(rule, "saved", call->saved, saved));
    return check_bytes(rule, "scratch", call->scratch, scratch);
}
