// Judges mixers on a GPU against the CPU in f64 on the same rounded inputs: limits, the worst error so far, comparison.
#ifndef FWA_TESTS_GPU_DEVICE_JUDGE_H
#define FWA_TESTS_GPU_DEVICE_JUDGE_H

#include "core/bf16.h"
#include "tests/golden.h"
#include "tests/gpu/device_mixer.h"

static inline bool is_scalar(const char *name) {
    return !strcmp(name, "beta") || !strcmp(name, "lambda") || !strcmp(name, "log_decay");
}

// bf16: o and states, gradients of features and states, gradients of scalars.
static inline double limit_of(const fwa_backend *cuda, const char *name, bool gradient) {
    if (cuda->compute == FWA_F32) return 1e-4;
    if (!gradient) return 0.005;
    return is_scalar(name) ? 0.02 : 0.008;
}

typedef struct worst_error {
    double error; // as a part of its limit
    char where[160];
} worst_error;

static worst_error worst[2];

static inline void start_record(void) {
    memset(worst, 0, sizeof worst);
}

static inline void print_record(const char *test, const fwa_rule *rule) {
    print_message("%s, %s: worst f32 %.2g of its limit (%s), bf16 %.2g (%s)\n", test, rule->name, worst[0].error,
                  worst[0].where, worst[1].error, worst[1].where);
}

static inline void judge(const fwa_backend *cuda, const case_spec *spec, const char *name, bool gradient, double error,
                         double limit) {
    char where[160];
    const fwa_mixer_shape *s = &spec->shape;
    worst_error *record = &worst[cuda->compute == FWA_BF16];
    snprintf(where, sizeof where, "%s %s%s, B %d T %d Hq %d H %d K %d V %d", spec->rule->name, gradient ? "d" : "",
             name, (int)s->B, (int)s->T, (int)s->Hq, (int)s->H, (int)s->K, (int)s->V);
    if (!(error <= limit))
        fail_msg("%s: %s, read %s step %s ridge %s shift %s window %d eps_gamma %g eta_max %g tail %d S0 %d: error "
                 "%.3g, limit %.3g",
                 fwa_dtype_name(cuda->compute), where, case_read(spec), case_step(spec), case_ridge(spec),
                 case_shift(spec), (int)spec->options.window, spec->options.eps_gamma, spec->options.eta_max,
                 (int)spec->tail, (int)spec->S0, error, limit);
    if (error / limit <= record->error) return;
    record->error = error / limit;
    snprintf(record->where, sizeof record->where, "%s", where);
}

// A copy of a filled case whose states and arriving gradients are bf16 too, and what follows from them.
static inline mixer_case rounded_case(mixer_case *c) {
    mixer_case rounded = case_new(&c->spec);
    for (int i = 0; i < CASE_INPUTS + CASE_OUTPUTS; i++) {
        const size_t offset = i < CASE_INPUTS ? case_inputs[i].value : case_outputs[i - CASE_INPUTS].gradient;
        const fwa_tensor from = *case_at(c, offset), to = *case_at(&rounded, offset);
        const bool scalar = i >= 3 && i < 6;
        if (!fwa_tensor_present(from)) continue;
        check_copy(to, from);
        for (int64_t e = 0; !scalar && e < fwa_tensor_count(to); e++)
            check_set(to, e, (double)fwa_bf16_to_float(fwa_bf16_from_float((float)check_get(to, e))));
    }
    if (fwa_tensor_present(c->call.reset)) check_copy(rounded.call.reset, c->call.reset);
    case_run(&rounded);
    return rounded;
}

// Gates are fp32 from the same rounded inputs, then summed in double: a few tens of roundings of 6e-8, nearly all of
// sums of squares, whose sizes do not cancel. A step that near the clamp may be counted on either side of it.
static inline void compare_gates(device_mixer *d) {
    const mixer_case *host = d->host;
    const fwa_gate_sums got = device_mixer_gates(d);
    fwa_gate_sums expected = {0};
    check_ok(host->mixer->gates(host->backend, host->backend->stream, &host->call, &expected));
    const double pairs[][2] = {{got.eta, expected.eta}, {got.alpha, expected.alpha}, {got.ridge, expected.ridge}};
    const double limit = 1e-5;
    if (got.steps != expected.steps || fabs(got.clamped - expected.clamped) > 1 + limit * expected.steps)
        fail_msg("%s: %s: gates of %.17g steps, %.17g of them clamped, expected %.17g and %.17g",
                 fwa_dtype_name(d->cuda->compute), host->spec.rule->name, got.steps, got.clamped, expected.steps,
                 expected.clamped);
    for (int i = 0; i < 3; i++) {
        const double size = fabs(pairs[i][1]), apart = fabs(pairs[i][0] - pairs[i][1]);
        judge(d->cuda, &host->spec, "gates", false, size > 0 ? apart / size : apart, limit);
    }
}

// Device outputs and gradients against those of the host case, relative to their size; absolute: or not so. A golden
// token over an empty memory is judged like that, as what is not 0 there may be what a cancellation leaves. rounded: of
// the host case; an error may be twice what rounding alone makes. NULL: no matter.
static inline void compare(device_mixer *d, bool absolute, mixer_case *rounded) {
    for (int i = 0; i < CASE_INPUTS + CASE_OUTPUTS; i++) {
        size_t offset;
        bool gradient;
        const case_tensor *entry = device_mixer_entry(i, &offset, &gradient);
        const fwa_tensor expected = *case_at(d->host, offset), got = *case_at(&d->copy, offset);
        if (!fwa_tensor_present(expected)) continue;
        const fwa_tensor read = device_read(d->cuda, got);
        double limit = limit_of(d->cuda, entry->name, gradient), error = check_error(read, expected);
        if (rounded) limit = fmax(limit, 2 * check_error(*case_at(rounded, offset), expected));
        if (absolute && golden_difference(read, expected) < error) error = golden_difference(read, expected);
        judge(d->cuda, &d->host->spec, entry->name, gradient, error, limit);
    }
    compare_gates(d);
}

static inline case_spec spec_of(const fwa_rule *rule, fwa_mixer_options options, fwa_mixer_shape shape) {
    case_spec spec = {.rule = rule, .options = options, .shape = shape, .form = FWA_FORM_CHUNK, .dtype = FWA_F64};
    spec.threads = 8;
    return spec;
}

// Runs a filled case on the device and as the truth, and compares.
static inline void run_case(fwa_backend *cuda, mixer_case *c, fwa_form form, bool absolute) {
    device_mixer d = device_mixer_new(cuda, c, form);
    device_mixer_forward(&d);
    device_mixer_backward(&d);
    case_run(c);
    compare(&d, absolute, NULL);
    device_mixer_release(&d);
    case_free(c);
    check_release(NULL);
}

static inline void fill_present(fwa_tensor t, double value) {
    if (fwa_tensor_present(t)) check_fill_value(t, value);
}

#endif
