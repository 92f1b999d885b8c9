// One call of a mixing rule with all its tensors, for tests: built from a description, filled at random or from a file,
// run forward and backward, compared with another case. Every tensor lies between guards of 0xFF bytes (NaN), and
// outputs, `saved` and `scratch` hold NaN before each run, so that what is not written or written too far shows.
//
// A table gives every tensor its name (that of the golden files) and its gradient, so that tests loop over tensors.
#ifndef FWA_TESTS_MIXER_CASE_H
#define FWA_TESTS_MIXER_CASE_H

#include "check.h"
#include "kernels/registry.h"

typedef struct case_spec {
    const fwa_rule *rule;
    fwa_mixer_options options;
    fwa_mixer_shape shape;
    fwa_form form;
    fwa_dtype dtype;
    bool rounds;     // as a GPU's bf16 kernels do
    int threads;     // 0: 1
    int64_t tail;    // rows of the incoming tail or cache
    bool S0, k_prev; // incoming state (S0: with z under a normalised read)
    bool state_out;  // all state outputs that the rule has
    bool arriving;   // gradients of the state outputs arrive too
    bool act_tail;   // on a device the incoming cache is of the activations' type
    bool reset;
} case_spec;

enum { CASE_GUARD = 256, CASE_BLOCKS = 48 };

typedef struct mixer_case {
    case_spec spec;
    fwa_backend *backend;
    const fwa_mixer *mixer;
    fwa_mixer_call call;
    fwa_mixer_grads grads;
    struct {
        unsigned char *memory;
        size_t bytes;
    } blocks[CASE_BLOCKS];
    int block_count;
} mixer_case;

typedef struct case_tensor {
    const char *name;
    size_t value, gradient; // offsets in mixer_case
    const char *shape;      // letters; q: Hq, n: tail rows, m: leaving tail rows
} case_tensor;

#define CASE_AT(member) offsetof(mixer_case, member)
enum { CASE_INPUTS = 11, CASE_OUTPUTS = 6 };

static const case_tensor case_inputs[CASE_INPUTS] = {
    {"q", CASE_AT(call.q), CASE_AT(grads.dq), "BTqK"},
    {"k", CASE_AT(call.k), CASE_AT(grads.dk), "BTqK"},
    {"v", CASE_AT(call.v), CASE_AT(grads.dv), "BTHV"},
    {"beta", CASE_AT(call.beta), CASE_AT(grads.dbeta), "BTH"},
    {"lambda", CASE_AT(call.lambda), CASE_AT(grads.dlambda), "BTH"},
    {"log_decay", CASE_AT(call.log_decay), CASE_AT(grads.dlog_decay), "BTH"},
    {"S0", CASE_AT(call.in.S), CASE_AT(grads.d_in.S), "BHKV"},
    {"z0", CASE_AT(call.in.z), CASE_AT(grads.d_in.z), "BHK"},
    {"k_prev", CASE_AT(call.in.k_last), CASE_AT(grads.d_in.k_last), "BqK"},
    {"tail_x", CASE_AT(call.in.tail_x), CASE_AT(grads.d_in.tail_x), "BnqK"},
    {"tail_v", CASE_AT(call.in.tail_v), CASE_AT(grads.d_in.tail_v), "BnHV"},
};
static const case_tensor case_outputs[CASE_OUTPUTS] = {
    {"o", CASE_AT(call.o), CASE_AT(grads.d_o), "BTHV"},
    {"S", CASE_AT(call.out.S), CASE_AT(grads.d_out.S), "BHKV"},
    {"z", CASE_AT(call.out.z), CASE_AT(grads.d_out.z), "BHK"},
    {"k_last", CASE_AT(call.out.k_last), CASE_AT(grads.d_out.k_last), "BqK"},
    {"tail_x_out", CASE_AT(call.out.tail_x), CASE_AT(grads.d_out.tail_x), "BmqK"},
    {"tail_v_out", CASE_AT(call.out.tail_v), CASE_AT(grads.d_out.tail_v), "BmHV"},
};

static inline fwa_tensor *case_at(mixer_case *c, size_t offset) {
    return (fwa_tensor *)(void *)((char *)c + offset);
}

static inline int64_t case_size(const mixer_case *c, char letter) {
    const fwa_mixer_shape *s = &c->spec.shape;
    switch (letter) {
    case 'B':
        return s->B;
    case 'T':
        return s->T;
    case 'q':
        return s->Hq;
    case 'H':
        return s->H;
    case 'K':
        return s->K;
    case 'V':
        return s->V;
    case 'n':
        return c->spec.tail;
    default:
        return fwa_mixer_tail_rows(c->spec.rule, &c->spec.options, s->T, c->spec.tail, c->spec.k_prev);
    }
}

static inline void *case_alloc(mixer_case *c, size_t bytes) {
    assert_true(c->block_count < CASE_BLOCKS);
    size_t all = (bytes + 2 * CASE_GUARD + CASE_GUARD - 1) / CASE_GUARD * CASE_GUARD;
    unsigned char *memory = aligned_alloc(CASE_GUARD, all);
    assert_non_null(memory);
    memset(memory, 0xFF, all);
    c->blocks[c->block_count].memory = memory;
    c->blocks[c->block_count++].bytes = bytes;
    return memory + CASE_GUARD;
}

static inline void case_free(mixer_case *c) {
    while (c->block_count) free(c->blocks[--c->block_count].memory);
    if (c->backend) c->backend->destroy(c->backend);
    c->backend = NULL;
}

// Fails where a guard byte changed.
static inline void case_check_guards(const mixer_case *c) {
    for (int i = 0; i < c->block_count; i++) {
        const unsigned char *memory = c->blocks[i].memory;
        for (int g = 0; g < CASE_GUARD; g++)
            if (memory[g] != 0xFF || memory[CASE_GUARD + c->blocks[i].bytes + (size_t)g] != 0xFF)
                fail_msg("%s: block %d of %zu bytes: guard byte %d was overwritten", c->spec.rule->name, i,
                         c->blocks[i].bytes, g);
    }
}

static inline void case_new_tensor(mixer_case *c, fwa_tensor *t, const char *shape) {
    int64_t n[4];
    int ndim = 0;
    for (; shape[ndim]; ndim++) n[ndim] = case_size(c, shape[ndim]);
    *t = fwa_tensor_nd(NULL, c->spec.dtype, ndim, n);
    if (fwa_tensor_count(*t) == 0)
        *t = fwa_tensor_absent();
    else
        t->data = case_alloc(c, fwa_tensor_bytes(*t));
}

static inline bool case_has_input(const mixer_case *c, const char *name) {
    const case_spec *s = &c->spec;
    const unsigned inputs = s->rule->inputs;
    if (!strcmp(name, "beta")) return inputs & (FWA_INPUT_BETA | FWA_INPUT_BETA_CHANNEL);
    if (!strcmp(name, "lambda")) return (inputs & FWA_INPUT_LAMBDA) && s->options.ridge != FWA_RIDGE_NONE;
    if (!strcmp(name, "log_decay")) return inputs & FWA_INPUT_LOG_DECAY;
    if (!strcmp(name, "S0")) return s->S0;
    if (!strcmp(name, "z0")) return s->S0 && s->options.normalized_read;
    if (!strcmp(name, "k_prev")) return s->k_prev;
    return true; // tails of no rows become absent tensors
}

static inline bool case_has_output(const mixer_case *c, const char *name) {
    const case_spec *s = &c->spec;
    const bool matrix = s->rule->state == FWA_STATE_MATRIX;
    if (!strcmp(name, "o")) return true;
    if (!s->state_out) return false;
    if (!strcmp(name, "S") || !strcmp(name, "k_last")) return matrix;
    if (!strcmp(name, "z")) return s->options.normalized_read;
    return !s->reset;
}

static inline mixer_case case_new(const case_spec *spec) {
    mixer_case c = {.spec = *spec};
    check_ok(fwa_backend_create(&c.backend, FWA_BACKEND_CPU, spec->dtype, 0, spec->threads ? spec->threads : 1));
    c.backend->rounds = spec->rounds;
    check_ok(fwa_mixer_find(c.backend, spec->rule, &c.mixer));
    c.call.options = spec->options;
    c.call.shape = spec->shape;
    c.call.form = spec->form;
    c.call.save = true;
    for (int i = 0; i < CASE_INPUTS; i++) {
        if (!case_has_input(&c, case_inputs[i].name)) continue;
        const bool channel = !strcmp(case_inputs[i].name, "beta") && (spec->rule->inputs & FWA_INPUT_BETA_CHANNEL);
        case_new_tensor(&c, case_at(&c, case_inputs[i].value), channel ? "BTHV" : case_inputs[i].shape);
        case_new_tensor(&c, case_at(&c, case_inputs[i].gradient), channel ? "BTHV" : case_inputs[i].shape);
    }
    for (int i = 0; i < CASE_OUTPUTS; i++) {
        if (!case_has_output(&c, case_outputs[i].name)) continue;
        case_new_tensor(&c, case_at(&c, case_outputs[i].value), case_outputs[i].shape);
        if (i == 0 || spec->arriving) case_new_tensor(&c, case_at(&c, case_outputs[i].gradient), case_outputs[i].shape);
    }
    if (spec->reset) {
        c.call.reset = fwa_tensor_2d(NULL, FWA_U8, spec->shape.B, spec->shape.T);
        c.call.reset.data = case_alloc(&c, fwa_tensor_bytes(c.call.reset));
        check_fill_value(c.call.reset, 0);
    }
    if (spec->reset && spec->tail > 0) {
        c.call.tail_reset = fwa_tensor_2d(NULL, FWA_U8, spec->shape.B, spec->tail);
        c.call.tail_reset.data = case_alloc(&c, fwa_tensor_bytes(c.call.tail_reset));
        check_fill_value(c.call.tail_reset, 0);
    }
    size_t saved, scratch;
    check_ok(c.mixer->sizes(c.backend, &c.call, &saved, &scratch));
    c.call.saved = fwa_tensor_1d(case_alloc(&c, saved), FWA_U8, (int64_t)saved);
    c.call.scratch = fwa_tensor_1d(case_alloc(&c, scratch), FWA_U8, (int64_t)scratch);
    return c;
}

// Scales every row of the last dimension to length 1.
static inline void case_unit_rows(fwa_tensor t) {
    const int64_t K = t.ndim ? t.shape[t.ndim - 1] : 1;
    for (int64_t i = 0; fwa_tensor_present(t) && i < fwa_tensor_count(t); i += K) {
        double square = 0;
        for (int64_t k = i; k < i + K; k++) square += check_get(t, k) * check_get(t, k);
        for (int64_t k = i; k < i + K; k++) check_set(t, k, (double)(float)(check_get(t, k) / sqrt(square)));
    }
}

// The step is what the network emits, whatever the length of the key: only unit keys keep a delta rule from growing.
static inline bool case_needs_unit_keys(const mixer_case *c) {
    return c->spec.options.step == FWA_STEP_DIRECT && fwa_tensor_present(c->call.beta);
}

// Random inputs and arriving gradients; the same for cases that differ in form, chunk, type or threads. Normalised
// reads get nonnegative features, direct steps unit keys.
static inline void case_fill(mixer_case *c, uint64_t seed) {
    const bool positive = c->spec.options.normalized_read, unit = case_needs_unit_keys(c);
    for (int i = 0; i < CASE_INPUTS; i++) {
        const fwa_tensor t = *case_at(c, case_inputs[i].value);
        const char *name = case_inputs[i].name;
        const uint64_t stream = seed * 100 + (uint64_t)i;
        if (!fwa_tensor_present(t)) continue;
        if (!strcmp(name, "beta"))
            check_fill_uniform(t, stream, 0.1, 1.9);
        else if (!strcmp(name, "lambda"))
            check_fill_uniform(t, stream, 0.0, 0.6);
        else if (!strcmp(name, "log_decay"))
            check_fill_uniform(t, stream, -2.0, 0.0);
        else if (positive && name[0] != 'v' && strcmp(name, "tail_v") != 0)
            check_fill_uniform(t, stream, 0.05, 1.0);
        else
            check_fill_normal(t, stream, strcmp(name, "S0") ? 1.0 : 0.3);
        if (unit && (name[0] == 'k' || !strcmp(name, "tail_x"))) case_unit_rows(t);
    }
    for (int i = 0; i < CASE_OUTPUTS; i++) {
        const fwa_tensor d = *case_at(c, case_outputs[i].gradient);
        if (fwa_tensor_present(d)) check_fill_normal(d, seed * 100 + 50 + (uint64_t)i, 1.0);
    }
}

static inline void case_poison_bytes(fwa_tensor t) {
    if (t.data) memset(t.data, 0xFF, fwa_tensor_bytes(t));
}

static inline void case_forward(mixer_case *c) {
    for (int i = 0; i < CASE_OUTPUTS; i++) case_poison_bytes(*case_at(c, case_outputs[i].value));
    case_poison_bytes(c->call.saved);
    case_poison_bytes(c->call.scratch);
    check_ok(c->mixer->forward(c->backend, c->backend->stream, &c->call));
    case_check_guards(c);
}

static inline void case_backward(mixer_case *c) {
    for (int i = 0; i < CASE_INPUTS; i++) case_poison_bytes(*case_at(c, case_inputs[i].gradient));
    case_poison_bytes(c->call.scratch);
    check_ok(c->mixer->backward(c->backend, c->backend->stream, &c->call, &c->grads));
    case_check_guards(c);
}

static inline void case_run(mixer_case *c) {
    case_forward(c);
    case_backward(c);
}

static inline const char *case_form(const case_spec *spec) {
    return spec->form == FWA_FORM_RECURRENT ? "recurrent" : spec->form == FWA_FORM_PARALLEL ? "parallel" : "chunk";
}

// Options in the words of a configuration.
static inline const char *case_read(const case_spec *spec) {
    return spec->options.read == FWA_READ_BEFORE_WRITE ? "before_write" : "after_write";
}
static inline const char *case_shift(const case_spec *spec) {
    return spec->options.shift == FWA_SHIFT_NEXT_LATENT ? "next_latent" : "same_step";
}
static inline const char *case_step(const case_spec *spec) {
    return spec->options.step == FWA_STEP_DIRECT ? "direct" : "normalized";
}
static inline const char *case_ridge(const case_spec *spec) {
    const fwa_ridge ridge = spec->options.ridge;
    return ridge == FWA_RIDGE_NONE ? "none" : ridge == FWA_RIDGE_COUPLED ? "coupled" : "uncoupled";
}

// Fails unless every output and gradient that both cases have agrees within `limit`.
static inline void case_compare(mixer_case *got, mixer_case *expected, double limit) {
    for (int i = 0; i < CASE_INPUTS + CASE_OUTPUTS; i++) {
        const bool input = i < CASE_INPUTS;
        const case_tensor *entry = input ? &case_inputs[i] : &case_outputs[i - CASE_INPUTS];
        const fwa_tensor a = *case_at(got, input ? entry->gradient : entry->value);
        const fwa_tensor b = *case_at(expected, input ? entry->gradient : entry->value);
        if (!fwa_tensor_present(a) || !fwa_tensor_present(b)) continue;
        const double error = check_error(a, b);
        if (!(error <= limit))
            fail_msg("%s, %s, against %s, %s, T %lld, chunk %lld: %s%s: error %.3g, limit %.3g", got->spec.rule->name,
                     case_form(&got->spec), expected->spec.rule->name, case_form(&expected->spec),
                     (long long)got->spec.shape.T, (long long)got->spec.options.chunk, input ? "d" : "", entry->name,
                     error, limit);
    }
}

#endif
