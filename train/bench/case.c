// Memory of a bench's cases, and the comparison of their results.
#include "train/bench/case.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/shape.h"
#include "train/bench/rule_cost.h"

enum { HEAD_ROWS = 8192 }; // of logits at once

static int64_t size_of(const fwa_bench_sizes *s, char letter) {
    switch (letter) {
    case 'B':
        return s->B;
    case 'T':
        return s->T;
    case 'G':
        return s->Hq;
    case 'H':
        return s->H;
    case 'K':
        return s->K;
    case 'V':
        return s->V;
    case 'D':
        return s->D;
    case 'F':
        return s->F;
    case 'N':
        return s->N;
    case 'E':
        return s->earlier;
    case 'R':
        return s->B * s->T;
    case 'r':
        return fwa_max(1, fwa_min(s->B * s->T / 4, HEAD_ROWS));
    case 'W':
        return FWA_BENCH_CONVOLUTION;
    default:
        return letter - '0';
    }
}

static int shape_of(const fwa_bench_argument *a, const fwa_bench_sizes *sizes, int64_t shape[FWA_MAX_DIMS]) {
    int ndim = 1;
    shape[0] = 1;
    for (const char *at = a->shape; *at; at++) {
        if (*at == ' ')
            shape[ndim++] = 1;
        else
            shape[ndim - 1] *= size_of(sizes, *at);
    }
    return ndim;
}

static fwa_dtype type_of(const fwa_bench_argument *a, const fwa_backend *backend) {
    switch (a->type) {
    case FWA_BENCH_ACT:
        return backend->compute;
    case FWA_BENCH_MST:
        return backend->master;
    case FWA_BENCH_IDS:
        return FWA_I32;
    default:
        return FWA_U8;
    }
}

static fwa_status make_tensor(fwa_bench_call *call, int i) {
    const fwa_bench_argument *a = &call->of->argument[i];
    int64_t shape[FWA_MAX_DIMS] = {(int64_t)sizeof(fwa_step_state)};
    const int ndim = a->type == FWA_BENCH_STATE ? 1 : shape_of(a, &call->sizes, shape);
    call->t[i] = fwa_tensor_nd(NULL, type_of(a, call->backend), ndim, shape);
    return call->backend->alloc(call->backend, &call->t[i].data, fwa_tensor_bytes(call->t[i]));
}

fwa_status fwa_bench_open(fwa_bench_call *call, fwa_backend *backend, const fwa_bench_case *of,
                          const fwa_bench_sizes *sizes, fwa_form form) {
    memset(call, 0, sizeof *call);
    call->backend = backend;
    call->of = of;
    call->sizes = *sizes;
    call->form = form;
    for (int i = 0; i < FWA_BENCH_ARGUMENTS; i++)
        if (of->argument[i].shape) FWA_TRY(make_tensor(call, i));
    return of->rule ? fwa_bench_rule_memory(call) : FWA_OK;
}

void fwa_bench_close(fwa_bench_call *call) {
    if (!call->backend) return;
    for (int i = 0; i < FWA_BENCH_ARGUMENTS; i++) call->backend->free(call->backend, call->t[i].data);
    call->backend->free(call->backend, call->saved.data);
    call->backend->free(call->backend, call->scratch.data);
    memset(call, 0, sizeof *call);
}

// A step in the midst of training.
static fwa_status fill_state(fwa_bench_call *call, fwa_tensor t) {
    const fwa_step_state state = {
        .loss_sum = 7, .valid = 3, .grad_square = 5, .lr = 1e-3, .grad_scale = 0.25, .accepted = 9, .norm_mean = 1};
    return call->backend->upload(call->backend, call->backend->stream, t.data, &state, sizeof state);
}

// Values that `like` can hold, in a tensor that may have a wider type.
static fwa_status fill_rounded(fwa_bench_call *call, int i, fwa_bench_range range, const fwa_backend *like) {
    const fwa_tensor t = call->t[i];
    const fwa_dtype coarse = type_of(&call->of->argument[i], like);
    if (coarse == t.dtype) return fwa_bench_fill(call->backend, t, i, range);
    FWA_CHECK(call->backend->kind == FWA_BACKEND_CPU, FWA_ERROR, "bench: values of another type on the %s backend",
              call->backend->name);
    const int64_t n = fwa_tensor_count(t);
    (void)fwa_bench_value(i, 0, range, coarse); // the table of numbers is there before threads read it
#pragma omp parallel for
    for (int64_t e = 0; e < n; e++) fwa_bench_set(t.data, t.dtype, e, fwa_bench_value(i, e, range, coarse));
    return FWA_OK;
}

fwa_status fwa_bench_refill(fwa_bench_call *call, const fwa_backend *like) {
    for (int i = 0; i < FWA_BENCH_ARGUMENTS; i++) {
        const fwa_bench_argument *a = &call->of->argument[i];
        if (!a->shape) continue;
        const bool ids = a->type == FWA_BENCH_IDS || a->type == FWA_BENCH_FLAGS;
        const fwa_bench_range range = {a->low, a->type == FWA_BENCH_IDS ? (double)call->sizes.N : a->high, ids};
        if (a->type == FWA_BENCH_STATE)
            FWA_TRY(fill_state(call, call->t[i]));
        else if (a->role == FWA_BENCH_OUT)
            FWA_TRY(call->backend->fill(call->backend, call->backend->stream, call->t[i].data, 0xFF,
                                        fwa_tensor_bytes(call->t[i])));
        else
            FWA_TRY(fill_rounded(call, i, range, like));
    }
    return FWA_OK;
}

static void add_cost(void *user, int op, fwa_cost cost) {
    fwa_cost *sum = user;
    (void)op;
    sum->bytes += cost.bytes;
    sum->flops += cost.flops;
}

// Every token sees all earlier rows; they are read once, and their gradients written.
static void add_earlier_cost(const fwa_bench_call *call, int pass, fwa_cost *cost) {
    const fwa_bench_sizes *s = &call->sizes;
    const double passes = pass + 1, rows = (double)(s->B * s->earlier), row = (double)(s->Hq * s->K + s->H * s->V);
    cost->bytes += passes * rows * row * (double)fwa_dtype_size(call->backend->compute);
    cost->flops += passes * rows * row * 2.0 * (double)s->T;
}

fwa_status fwa_bench_cost(fwa_bench_call *call, int pass, fwa_cost *cost) {
    *cost = (fwa_cost){0, 0};
    if (call->of->rule) {
        const fwa_bench_sizes *s = &call->sizes;
        const fwa_mixer_shape shape = {s->B, s->T, s->Hq, s->H, s->K, s->V};
        const fwa_mixer_options options = fwa_bench_rule_options(call->of->rule, s);
        *cost = fwa_rule_cost(call->of->rule, &options, &shape, call->backend, pass == 1);
        add_earlier_cost(call, pass, cost);
        return FWA_OK;
    }
    FWA_TRY(fwa_op_meter_start(call->backend, add_cost, cost));
    const fwa_status status = call->of->pass[pass](call);
    fwa_op_meter_stop(call->backend);
    FWA_TRY(status);
    return FWA_OK;
}

// A result's limit (tests/gpu): a product or a state in bf16, a gradient, a gradient of a rule's scalars.
static double limit_of(const fwa_bench_call *call, const fwa_bench_argument *a) {
    if (a->type == FWA_BENCH_IDS || a->type == FWA_BENCH_FLAGS) return 0.0;
    if (call->backend->compute != FWA_BF16) return 1e-4;
    if (call->of->rule && a->type == FWA_BENCH_MST) return 0.02;
    return a->backward ? 0.008 : 0.005;
}

// RMS of the difference over that of the truth; of ids the part that differs.
static double error_of(const void *got, fwa_dtype type, const fwa_tensor truth) {
    const int64_t n = fwa_tensor_count(truth);
    double difference = 0, size = 0, other = 0;
#pragma omp parallel for reduction(+ : difference, size, other)
    for (int64_t i = 0; i < n; i++) {
        const double a = fwa_bench_get(got, type, i), b = fwa_bench_get(truth.data, truth.dtype, i);
        difference += (a - b) * (a - b);
        size += b * b;
        other += a != b;
    }
    if (type == FWA_I32 || type == FWA_U8) return other / (double)n;
    return size > 0 ? sqrt(difference / size) : sqrt(difference / (double)n);
}

// A NaN is larger than all else, whichever comes first.
static double larger(double a, double b) {
    return isnan(a) || a >= b ? a : b;
}

static double apart(double a, double b) {
    return fabs(a - b) / fmax(fabs(b), 1e-30);
}

static double error_of_state(const fwa_step_state *a, const fwa_step_state *b) {
    const double errors[] = {apart(a->loss_sum, b->loss_sum),       apart(a->valid, b->valid),
                             apart(a->grad_square, b->grad_square), apart(a->loss, b->loss),
                             apart(a->grad_norm, b->grad_norm),     apart(a->grad_scale, b->grad_scale),
                             apart(a->norm_mean, b->norm_mean)};
    double worst = a->skip == b->skip && a->accepted == b->accepted && a->skipped == b->skipped ? 0.0 : 1.0;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) worst = larger(worst, errors[i]);
    return worst;
}

static fwa_status compare_one(fwa_bench_call *call, fwa_bench_call *truth, int i, double *error) {
    fwa_backend *backend = call->backend;
    const fwa_tensor expected = truth->t[i];
    const fwa_dtype type = call->t[i].dtype;
    const size_t bytes = (size_t)fwa_tensor_count(expected) * fwa_dtype_size(type);
    void *image = malloc(bytes);
    FWA_CHECK(image, FWA_MEMORY, "bench: no memory for %zu bytes of results", bytes);
    fwa_status status = backend->download(backend, backend->stream, image, call->t[i].data, bytes);
    if (status == FWA_OK) status = backend->stream_synchronize(backend, backend->stream);
    if (status == FWA_OK)
        *error = call->of->argument[i].type == FWA_BENCH_STATE ? error_of_state(image, expected.data)
                                                               : error_of(image, type, expected);
    free(image);
    FWA_TRY(status);
    return FWA_OK;
}

void fwa_bench_keep_worse(fwa_bench_error *worst, const fwa_bench_error *one) {
    if (!one->name) return;
    if (!worst->name || (!isnan(worst->ratio) && !(one->ratio <= worst->ratio))) *worst = *one;
}

fwa_status fwa_bench_compare(fwa_bench_call *call, fwa_bench_call *truth, int pass, bool part, fwa_bench_error *worst) {
    *worst = (fwa_bench_error){0, 0, 0, NULL};
    for (int i = 0; i < FWA_BENCH_ARGUMENTS; i++) {
        const fwa_bench_argument *a = &call->of->argument[i];
        if (!a->shape || a->role == FWA_BENCH_IN || a->backward != (pass == 1)) continue;
        if (part && (a->type == FWA_BENCH_STATE || !strchr("BRr", a->shape[0]))) continue;
        double error = NAN;
        const double limit = limit_of(call, a);
        FWA_TRY(compare_one(call, truth, i, &error));
        const double ratio = error > limit ? (limit > 0 ? error / limit : INFINITY) : error == 0 ? 0 : error / limit;
        const fwa_bench_error one = {error, limit, ratio, a->name};
        fwa_bench_keep_worse(worst, &one);
    }
    return FWA_OK;
}
