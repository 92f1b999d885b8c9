// Plans of a mixer layer: its parameters, its activations, its scratch.
#include <math.h>
#include <string.h>

#include "core/shape.h"
#include "kernels/registry.h"
#include "layers/mixer_memory.h"
#include "layers/mixer_passes.h"
#include "layers/mixer_ring.h"

static bool state_space(const fwa_mixer_spec *spec) {
    return spec->rule->switches & FWA_SWITCH_STATE_SPACE;
}

// Whether log_decay comes from the projection, and not from a constant.
static bool delta_wanted(const fwa_mixer_spec *spec) {
    return (spec->rule->inputs & FWA_INPUT_LOG_DECAY) && !(spec->rule->switches & FWA_SWITCH_DECAY);
}

static fwa_status check_spec(const fwa_mixer_spec *spec) {
    const fwa_rule *rule = spec->rule;
    FWA_CHECK(spec->beta_rank >= 0, FWA_CONFIG, "mixer '%s': got beta_rank %lld, expected at least 0", spec->name,
              (long long)spec->beta_rank);
    FWA_CHECK(!spec->beta_rank || (rule->inputs & FWA_INPUT_BETA_CHANNEL), FWA_CONFIG,
              "mixer '%s': got beta_rank %lld, but rule %s has no beta per value channel; set 0", spec->name,
              (long long)spec->beta_rank, rule->name);
    FWA_CHECK(!spec->beta_rank || spec->beta == FWA_GATE_CONTEXTUAL, FWA_CONFIG,
              "mixer '%s': got beta_rank %lld, but its beta is no projection; set 0", spec->name,
              (long long)spec->beta_rank);
    FWA_CHECK(!spec->conv || (rule->switches & FWA_SWITCH_CONV), FWA_CONFIG,
              "mixer '%s': got conv %lld, but rule %s has no convolutions; set 0", spec->name, (long long)spec->conv,
              rule->name);
    FWA_CHECK(!spec->gate || (rule->switches & FWA_SWITCH_GATE), FWA_CONFIG,
              "mixer '%s': rule %s has no output gate; set gate to false", spec->name, rule->name);
    FWA_CHECK(!spec->rotary || (rule->switches & FWA_SWITCH_ROTARY), FWA_CONFIG,
              "mixer '%s': rule %s has no rotary positions; set rotary to false", spec->name, rule->name);
    FWA_CHECK((spec->state > 0) == state_space(spec), FWA_CONFIG,
              "mixer '%s': got state %lld, expected %s with rule %s", spec->name, (long long)spec->state,
              state_space(spec) ? "at least 1" : "0", rule->name);
    FWA_CHECK(!state_space(spec) || delta_wanted(spec), FWA_ERROR,
              "rule %s: a state-space block has a log decay that the layer computes", rule->name);
    FWA_CHECK(!(rule->inputs & (FWA_INPUT_BETA | FWA_INPUT_BETA_CHANNEL)) || spec->beta_range > 0, FWA_CONFIG,
              "mixer '%s': got beta_range %g, expected more than 0", spec->name, spec->beta_range);
    FWA_CHECK(spec->beta_init > 0 && spec->beta_init < 1 && spec->lambda_init > 0 && spec->lambda_init < 1, FWA_CONFIG,
              "mixer '%s': got beta_init %g, lambda_init %g; expected values of a sigmoid, in (0, 1)", spec->name,
              spec->beta_init, spec->lambda_init);
    return FWA_OK;
}

// A part of the packed projection on its way into the table.
typedef struct planned_part {
    const char *name;
    int64_t columns; // 0: the layer has none
    fwa_mixer_part *part;
} planned_part;

// Products want row counts that FWA_ROW_ALIGN divides: the last part is stored with rows of zeros behind it.
static fwa_status add_parts(fwa_mixer_layer *layer, const fwa_param_scope *scope, const planned_part *planned,
                            int count) {
    int last = 0;
    for (int i = 0; i < count; i++)
        if (planned[i].columns > 0) last = i;
    for (int i = 0; i <= last; i++) {
        if (planned[i].columns == 0) continue;
        fwa_mixer_part *part = planned[i].part;
        fwa_param weight = fwa_param_matrix(planned[i].columns, layer->D, 0.5 / sqrt((double)layer->D));
        weight.packed = layer->parts > 0;
        part->at = layer->used;
        part->columns = planned[i].columns;
        layer->used += part->columns;
        layer->P = fwa_round_up(layer->used, FWA_ROW_ALIGN);
        if (i == last) weight.storage[0] += layer->P - layer->used;
        layer->parts++;
        FWA_TRY(fwa_params_add(scope, planned[i].name, weight, &part->weight));
    }
    return FWA_OK;
}

static bool has_beta(const fwa_mixer_spec *spec) {
    return spec->rule->inputs & (FWA_INPUT_BETA | FWA_INPUT_BETA_CHANNEL);
}

static bool has_lambda(const fwa_mixer_spec *spec) {
    return (spec->rule->inputs & FWA_INPUT_LAMBDA) && spec->options.ridge != FWA_RIDGE_NONE;
}

static fwa_status add_projection(fwa_mixer_layer *layer, const fwa_param_scope *scope) {
    const fwa_mixer_spec *spec = layer->spec;
    const unsigned inputs = spec->rule->inputs;
    const fwa_mixer_shape *s = &layer->shape;
    const int64_t H = s->H, keys = s->Hq * s->K, width = H * s->V;
    const bool beta = has_beta(spec) && spec->beta == FWA_GATE_CONTEXTUAL, low = spec->beta_rank > 0;
    const bool lambda = has_lambda(spec) && spec->lambda == FWA_GATE_CONTEXTUAL;
    const planned_part planned[] = {
        {"mixer.q.weight", keys, &layer->q},
        {"mixer.k.weight", keys, &layer->k},
        {"mixer.v.weight", width, &layer->v},
        {"mixer.gate.weight", spec->gate ? width : 0, &layer->gate},
        {"mixer.beta.weight", beta && !low ? (inputs & FWA_INPUT_BETA_CHANNEL ? width : H) : 0, &layer->beta},
        {"mixer.beta_down.weight", spec->beta_rank, &layer->beta},
        {"mixer.lambda.weight", lambda ? H : 0, &layer->lambda},
        {"mixer.dt.weight", delta_wanted(spec) ? H : 0, &layer->delta},
    };
    return add_parts(layer, scope, planned, (int)(sizeof planned / sizeof *planned));
}

// The second projection of a beta of low rank.
static fwa_status add_up(fwa_mixer_layer *layer, const fwa_param_scope *scope) {
    const int64_t rank = layer->spec->beta_rank;
    if (!rank) return FWA_OK;
    return fwa_params_add(scope, "mixer.beta_up.weight",
                          fwa_param_matrix(layer->shape.H * layer->shape.V, rank, 0.5 / sqrt((double)rank)),
                          &layer->beta.up);
}

// A bias b with sigmoid(b) = value.
static fwa_status add_bias(const fwa_param_scope *scope, const char *name, int64_t width, double value,
                           fwa_mixer_part *part) {
    fwa_init init = {FWA_INIT_CONSTANT, log(value / (1.0 - value)), 0};
    return fwa_params_add(scope, name, fwa_param_plain(width, 0, init), &part->bias);
}

static fwa_status add_conv(const fwa_param_scope *scope, const char *name, int64_t W, fwa_mixer_part *part) {
    if (W == 0) return FWA_OK;
    return fwa_params_add(scope, name, fwa_param_plain(part->columns, W, (fwa_init){FWA_INIT_UNIFORM, 0.5, 0}),
                          &part->conv);
}

// Rates in (1, 16) and steps in (0.001, 0.1) at the start, as Mamba-2 and Gated DeltaNet have them.
static fwa_status add_decay(fwa_mixer_layer *layer, const fwa_param_scope *scope) {
    const int64_t H = layer->shape.H;
    if (!fwa_mixer_part_present(&layer->delta)) return FWA_OK;
    FWA_TRY(
        fwa_params_add(scope, "mixer.A_log", fwa_param_plain(H, 0, (fwa_init){FWA_INIT_LOG, 1, 16}), &layer->A_log));
    return fwa_params_add(scope, "mixer.dt_bias",
                          fwa_param_plain(H, 0, (fwa_init){FWA_INIT_INVERSE_SOFTPLUS, 1e-3, 0.1}), &layer->delta.bias);
}

// Skip, norm and output projection.
static fwa_status add_output(fwa_mixer_layer *layer, const fwa_param_scope *scope, const fwa_model_spec *model) {
    const fwa_init ones = {FWA_INIT_CONSTANT, 1, 0};
    const bool whole = state_space(layer->spec);
    const int64_t H = layer->shape.H, V = layer->shape.V;
    if (whole) FWA_TRY(fwa_params_add(scope, "mixer.D", fwa_param_plain(H, 0, ones), &layer->skip));
    if (layer->spec->rule->switches & FWA_SWITCH_GATE)
        FWA_TRY(fwa_params_add(scope, "mixer.norm.weight", fwa_param_plain(whole ? H * V : V, 0, ones), &layer->norm));
    double deviation = 0.5 / sqrt((double)model->D) / sqrt((double)model->L);
    return fwa_params_add(scope, "mixer.out.weight", fwa_param_matrix(model->D, H * V, deviation), &layer->out);
}

fwa_status fwa_mixer_layer_plan(fwa_mixer_layer *layer, const fwa_param_scope *scope, const fwa_model_spec *model,
                                int index, const fwa_backend *backend) {
    const fwa_mixer_spec *spec = &model->mixer[model->layer_mixer[index]];
    const fwa_mixer_part absent = {.weight = -1, .conv = -1, .up = -1, .bias = -1};
    *layer = (fwa_mixer_layer){.spec = spec,
                               .index = index,
                               .D = model->D,
                               .shape = fwa_mixer_spec_shape(model, spec, 0, 0),
                               .A_log = -1,
                               .skip = -1,
                               .decay_factor = 1.0 - (double)index / (double)model->L,
                               .norm = -1,
                               .out = -1};
    layer->q = layer->k = layer->v = layer->gate = layer->beta = layer->lambda = layer->delta = absent;
    const int64_t H = layer->shape.H, channels = spec->rule->inputs & FWA_INPUT_BETA_CHANNEL ? layer->shape.V : 1;
    FWA_TRY(check_spec(spec));
    FWA_TRY(fwa_mixer_find(backend, spec->rule, &layer->kernels));
    FWA_TRY(add_projection(layer, scope));
    FWA_TRY(add_up(layer, scope));
    if (has_beta(spec)) FWA_TRY(add_bias(scope, "mixer.beta.bias", H * channels, spec->beta_init, &layer->beta));
    if (has_lambda(spec)) FWA_TRY(add_bias(scope, "mixer.lambda.bias", H, spec->lambda_init, &layer->lambda));
    FWA_TRY(add_decay(layer, scope));
    FWA_TRY(add_conv(scope, "mixer.conv_q.weight", spec->conv, &layer->q));
    FWA_TRY(add_conv(scope, "mixer.conv_k.weight", spec->conv, &layer->k));
    FWA_TRY(add_conv(scope, "mixer.conv_v.weight", spec->conv, &layer->v));
    return add_output(layer, scope, model);
}

// Sizes of the layer's tensors for one shape of the activations.
typedef struct sizes {
    int64_t proj[2], qk[4], value[4], scalar[3], qk_scalar[3], rows[2], flat[2];
    int beta_dims, norm_dims; // beta is [B,T,H] or, per value channel, [B,T,H,V]; rstd of o [R,H] or [R]
} sizes;

static sizes sizes_of(const fwa_mixer_layer *layer, const fwa_layer_context *ctx) {
    const fwa_mixer_shape *s = &layer->shape;
    const int64_t B = ctx->B, T = ctx->T, R = B * T;
    return (sizes){.proj = {R, layer->P},
                   .qk = {B, T, s->Hq, s->K},
                   .value = {B, T, s->H, s->V},
                   .scalar = {B, T, s->H},
                   .qk_scalar = {B, T, s->Hq},
                   .rows = {R, s->H},
                   .flat = {R, s->H * s->V},
                   .beta_dims = layer->spec->rule->inputs & FWA_INPUT_BETA_CHANNEL ? 4 : 3,
                   .norm_dims = layer->skip >= 0 ? 1 : 2};
}

fwa_status fwa_mixer_layer_plan_acts(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, bool train,
                                     fwa_arena *arena, fwa_mixer_acts *acts, size_t *scratch_bytes) {
    fwa_dtype act = ctx->backend->compute, mst = ctx->backend->master;
    const sizes n = sizes_of(layer, ctx);
    memset(acts, 0, sizeof *acts);
    FWA_TRY(fwa_arena_plan(arena, &acts->proj, act, 2, n.proj));
    if (!fwa_mixer_in_place(layer, ctx)) {
        FWA_TRY(fwa_arena_plan(arena, &acts->q, act, 4, n.qk));
        FWA_TRY(fwa_arena_plan(arena, &acts->k, act, 4, n.qk));
        FWA_TRY(fwa_arena_plan(arena, &acts->v, act, 4, n.value));
    }
    if (layer->skip >= 0) FWA_TRY(fwa_arena_plan(arena, &acts->x, act, 4, n.value));
    if (layer->spec->qk_norm != FWA_NORM_NONE) {
        FWA_TRY(fwa_arena_plan(arena, &acts->q_rstd, mst, 3, n.qk_scalar));
        FWA_TRY(fwa_arena_plan(arena, &acts->k_rstd, mst, 3, n.qk_scalar));
    }
    if (layer->spec->v_norm != FWA_NORM_NONE) FWA_TRY(fwa_arena_plan(arena, &acts->v_rstd, mst, 3, n.scalar));
    if (fwa_mixer_scalar_present(&layer->beta)) FWA_TRY(fwa_arena_plan(arena, &acts->beta, mst, n.beta_dims, n.value));
    if (layer->beta.up >= 0) FWA_TRY(fwa_arena_plan(arena, &acts->wide, act, 2, n.flat));
    if (fwa_mixer_scalar_present(&layer->lambda)) FWA_TRY(fwa_arena_plan(arena, &acts->lambda, mst, 3, n.scalar));
    if (fwa_mixer_part_present(&layer->delta)) FWA_TRY(fwa_arena_plan(arena, &acts->delta, mst, 3, n.scalar));
    if (layer->spec->rule->inputs & FWA_INPUT_LOG_DECAY)
        FWA_TRY(fwa_arena_plan(arena, &acts->log_decay, mst, 3, n.scalar));
    FWA_TRY(fwa_arena_plan(arena, &acts->o, act, 4, n.value));
    if (layer->norm >= 0) {
        FWA_TRY(fwa_arena_plan(arena, &acts->o_rstd, mst, n.norm_dims, n.rows));
        FWA_TRY(fwa_arena_plan(arena, &acts->y, act, 2, n.flat));
    }
    if (ctx->memory) return fwa_mixer_memory_plan_acts(layer, ctx, acts, scratch_bytes);
    if (fwa_sequence_cut(ctx)) return fwa_mixer_ring_plan(layer, ctx, train, arena, acts, scratch_bytes);
    size_t saved = 0, scratch = 0;
    fwa_mixer_call call = fwa_mixer_layer_call(layer, ctx, train, acts, fwa_tensor_absent());
    FWA_TRY(layer->kernels->sizes(ctx->backend, &call, &saved, &scratch));
    if (saved > 0) FWA_TRY(fwa_arena_plan_bytes(arena, &acts->saved, saved));
    if (scratch > *scratch_bytes) *scratch_bytes = scratch;
    return FWA_OK;
}

fwa_status fwa_mixer_layer_plan_scratch(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, fwa_arena *arena,
                                        fwa_mixer_scratch *scratch) {
    fwa_dtype act = ctx->backend->compute, mst = ctx->backend->master;
    const sizes n = sizes_of(layer, ctx);
    memset(scratch, 0, sizeof *scratch);
    FWA_TRY(fwa_arena_plan(arena, &scratch->dproj, act, 2, n.proj));
    if (!fwa_mixer_in_place(layer, ctx)) {
        FWA_TRY(fwa_arena_plan(arena, &scratch->dq, act, 4, n.qk));
        FWA_TRY(fwa_arena_plan(arena, &scratch->dk, act, 4, n.qk));
        FWA_TRY(fwa_arena_plan(arena, &scratch->dv, act, 4, n.value));
    }
    if (fwa_mixer_scalar_present(&layer->beta))
        FWA_TRY(fwa_arena_plan(arena, &scratch->dbeta, mst, n.beta_dims, n.value));
    if (fwa_mixer_scalar_present(&layer->lambda)) FWA_TRY(fwa_arena_plan(arena, &scratch->dlambda, mst, 3, n.scalar));
    if (fwa_mixer_part_present(&layer->delta)) FWA_TRY(fwa_arena_plan(arena, &scratch->dlog_decay, mst, 3, n.scalar));
    if (layer->skip >= 0) {
        FWA_TRY(fwa_arena_plan(arena, &scratch->dx, act, 4, n.value));
        FWA_TRY(fwa_arena_plan(arena, &scratch->ddelta, mst, 3, n.scalar));
    }
    FWA_TRY(fwa_arena_plan(arena, &scratch->d_o, act, 4, n.value));
    if (layer->norm >= 0) FWA_TRY(fwa_arena_plan(arena, &scratch->dy, act, 2, n.flat));
    return FWA_OK;
}
