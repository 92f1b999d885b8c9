// fwa bench op [--rule R] [--shape BxTxHxK] [--repeats N] [--threads N]: forward and backward of one mixing rule, f32
// on the CPU.
//
// The check: the chunk form's output and gradient dq equal the recurrence's (relative RMS under 1e-4: f32 sums of a
// thousand steps in two orders). Rates count the
// chunk form's own products (train/flops.h), forward once and backward twice, beside the rate of a large product.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/rng.h"
#include "kernels/registry.h"
#include "train/arguments.h"
#include "train/bench.h"
#include "train/flops.h"

// One rule's call with memory of its own.
typedef struct problem {
    fwa_backend *backend;
    const fwa_mixer *kernels;
    fwa_arena *arena;
    fwa_mixer_call call;
    fwa_mixer_grads grads;
} problem;

static fwa_status plan(problem *p, fwa_tensor *t, int ndim, int64_t last) {
    const fwa_mixer_shape *s = &p->call.shape;
    const int64_t shape[] = {s->B, s->T, s->H, last};
    return fwa_arena_plan(p->arena, t, p->backend->compute, ndim, shape);
}

static fwa_status open_problem(problem *p, fwa_backend *backend, const fwa_rule *rule, fwa_form form,
                               const fwa_mixer_shape *shape) {
    size_t saved = 0, scratch = 0;
    memset(p, 0, sizeof *p);
    p->backend = backend;
    FWA_TRY(fwa_mixer_find(backend, rule, &p->kernels));
    FWA_TRY(fwa_arena_create(&p->arena, "bench"));
    p->call.options = fwa_mixer_options_default(rule);
    p->call.shape = *shape;
    p->call.form = form;
    p->call.save = true;
    fwa_tensor *heads[] = {&p->call.q,   &p->call.k,   &p->call.v,   &p->call.o,
                           &p->grads.dq, &p->grads.dk, &p->grads.dv, &p->grads.d_o};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) FWA_TRY(plan(p, heads[i], 4, shape->K));
    const bool channel = rule->inputs & FWA_INPUT_BETA_CHANNEL;
    if (channel || (rule->inputs & FWA_INPUT_BETA)) {
        FWA_TRY(plan(p, &p->call.beta, channel ? 4 : 3, shape->V));
        FWA_TRY(plan(p, &p->grads.dbeta, channel ? 4 : 3, shape->V));
    }
    if (rule->inputs & FWA_INPUT_LOG_DECAY) {
        FWA_TRY(plan(p, &p->call.log_decay, 3, 0));
        FWA_TRY(plan(p, &p->grads.dlog_decay, 3, 0));
    }
    if (rule->inputs & FWA_INPUT_LAMBDA) {
        FWA_TRY(plan(p, &p->call.lambda, 3, 0));
        FWA_TRY(plan(p, &p->grads.dlambda, 3, 0));
    }
    FWA_TRY(p->kernels->sizes(backend, &p->call, &saved, &scratch));
    if (saved) FWA_TRY(fwa_arena_plan_bytes(p->arena, &p->call.saved, saved));
    if (scratch) FWA_TRY(fwa_arena_plan_bytes(p->arena, &p->call.scratch, scratch));
    return fwa_arena_commit(p->arena, backend);
}

// Normal values times `deviation`; uniform in (0, top) where deviation is 0.
static void fill(fwa_tensor t, uint64_t stream, double deviation, double top) {
    float *x = t.data;
    for (int64_t i = 0, n = x ? fwa_tensor_count(t) : 0; i < n; i++)
        x[i] = (float)(deviation > 0.0 ? deviation * fwa_rng_normal(7, stream, (uint64_t)i)
                                       : top * fwa_rng_uniform(7, stream, (uint64_t)i));
}

// Keys of about length 1: what rules without a normalised step need.
static void fill_problem(problem *p) {
    fill(p->call.q, 1, 1.0, 0.0);
    fill(p->call.k, 2, 1.0 / sqrt((double)p->call.shape.K), 0.0);
    fill(p->call.v, 3, 1.0, 0.0);
    fill(p->call.beta, 4, 0.0, 1.5);
    fill(p->call.lambda, 5, 0.0, 0.05);
    fill(p->call.log_decay, 7, 0.0, -0.1);
    fill(p->grads.d_o, 6, 1.0, 0.0);
}

static fwa_status run(problem *p, bool backward) {
    if (!backward) return p->kernels->forward(p->backend, p->backend->stream, &p->call);
    return p->kernels->backward(p->backend, p->backend->stream, &p->call, &p->grads);
}

static double difference(fwa_tensor a, fwa_tensor b) {
    const float *x = a.data, *y = b.data;
    double error = 0.0, size = 0.0;
    for (int64_t i = 0, n = fwa_tensor_count(a); i < n; i++) {
        error += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        size += (double)y[i] * y[i];
    }
    return sqrt(error / size);
}

static fwa_status time_pass(problem *p, bool backward, int repeats, double *median) {
    double seconds[101];
    for (int i = 0; i <= repeats; i++) {
        double start = fwa_bench_now();
        FWA_TRY(run(p, backward));
        if (i > 0) seconds[i - 1] = fwa_bench_now() - start;
    }
    *median = fwa_bench_median(seconds, repeats);
    return FWA_OK;
}

// GFLOP/s of a 1024-cubed product with all threads.
static fwa_status product_rate(fwa_backend *backend, double *gflops) {
    fwa_arena *arena = NULL;
    fwa_tensor a, b, c;
    const int64_t shape[] = {1024, 1024};
    double seconds[9];
    fwa_status status = FWA_OK;
    FWA_TRY(fwa_arena_create(&arena, "product"));
    FWA_TRY_GOTO(fwa_arena_plan(arena, &a, FWA_F32, 2, shape), done);
    FWA_TRY_GOTO(fwa_arena_plan(arena, &b, FWA_F32, 2, shape), done);
    FWA_TRY_GOTO(fwa_arena_plan(arena, &c, FWA_F32, 2, shape), done);
    FWA_TRY_GOTO(fwa_arena_commit(arena, backend), done);
    fill(a, 1, 1.0, 0.0);
    fill(b, 2, 1.0, 0.0);
    for (int i = 0; i < 10; i++) {
        double start = fwa_bench_now();
        FWA_TRY_GOTO(backend->ops->gemm(backend->stream, c, a, false, b, true, fwa_tensor_absent(), 1.0, 0.0), done);
        if (i > 0) seconds[i - 1] = fwa_bench_now() - start;
    }
    *gflops = 2e-9 * 1024.0 * 1024.0 * 1024.0 / fwa_bench_median(seconds, 9);
done:
    fwa_arena_destroy(arena);
    return status;
}

static fwa_status check(problem *chunk, problem *recurrent) {
    FWA_TRY(run(chunk, false));
    FWA_TRY(run(chunk, true));
    FWA_TRY(run(recurrent, false));
    FWA_TRY(run(recurrent, true));
    double o = difference(chunk->call.o, recurrent->call.o), dq = difference(chunk->grads.dq, recurrent->grads.dq);
    FWA_CHECK(
        o < 1e-4 && dq < 1e-4, FWA_ERROR,
        "bench op: check failed: chunk form differs from the recurrence by %.3g in o, %.3g in dq (limit 1e-4); no time "
        "is reported",
        o, dq);
    return FWA_OK;
}

static fwa_status bench_rule(fwa_backend *backend, const fwa_rule *rule, const fwa_mixer_shape *shape, int repeats,
                             double product) {
    problem forms[2];
    double seconds[2][2];
    fwa_status status = FWA_OK;
    memset(forms, 0, sizeof forms);
    for (int f = 0; f < 2; f++) {
        FWA_TRY_GOTO(open_problem(&forms[f], backend, rule, f ? FWA_FORM_RECURRENT : FWA_FORM_CHUNK, shape), done);
        fill_problem(&forms[f]);
    }
    FWA_TRY_GOTO(check(&forms[0], &forms[1]), done);
    for (int f = 0; f < 2; f++)
        for (int pass = 0; pass < 2; pass++) FWA_TRY_GOTO(time_pass(&forms[f], pass, repeats, &seconds[f][pass]), done);
    fwa_flops_mixer sizes = {.core = rule->core,
                             .T = shape->T,
                             .Hq = shape->Hq,
                             .H = shape->H,
                             .K = shape->K,
                             .V = shape->V,
                             .C = forms[0].call.options.chunk,
                             .B = forms[0].call.options.window};
    double flops = fwa_flops_mixer_forward(&sizes) * (double)(shape->B * shape->T);
    double forward = 1e-9 * flops / seconds[0][0], backward = 2e-9 * flops / seconds[0][1];
    printf("%-18s %9.3f %9.3f %8.1f %8.1f %6.0f%% %6.0f%%  %9.3f %9.3f\n", rule->name, 1e3 * seconds[0][0],
           1e3 * seconds[0][1], forward, backward, 100.0 * forward / product, 100.0 * backward / product,
           1e3 * seconds[1][0], 1e3 * seconds[1][1]);
done:
    fwa_arena_destroy(forms[0].arena);
    fwa_arena_destroy(forms[1].arena);
    return status;
}

static fwa_status bench_rules(const char *name, const fwa_mixer_shape *shape, int repeats, int threads) {
    fwa_backend *backend = NULL;
    fwa_status status = FWA_OK;
    double product;
    FWA_TRY(fwa_backend_create(&backend, FWA_BACKEND_CPU, FWA_F32, 0, threads));
    FWA_TRY_GOTO(product_rate(backend, &product), done);
    printf("cpu f32, %d thread(s), B %lld T %lld, %lld heads of %lld; product 1024^3: %.1f GFLOP/s\n", backend->threads,
           (long long)shape->B, (long long)shape->T, (long long)shape->H, (long long)shape->K, product);
    printf("%-18s %9s %9s %8s %8s %7s %7s  %9s %9s\n", "rule", "fwd ms", "bwd ms", "GFLOP/s", "GFLOP/s", "share",
           "share", "recur fwd", "recur bwd");
    for (int i = 0; i < fwa_rule_count(); i++)
        if (!name || strcmp(name, fwa_rule_at(i)->name) == 0)
            FWA_TRY_GOTO(bench_rule(backend, fwa_rule_at(i), shape, repeats, product), done);
done:
    backend->destroy(backend);
    return status;
}

fwa_status fwa_bench_op(fwa_world *world, int argc, char **argv) {
    static const fwa_option options[] = {
        {"--rule", true}, {"--shape", true}, {"--repeats", true}, {"--threads", true}, {NULL, false}};
    fwa_arguments arguments;
    int64_t repeats, threads;
    long long B, T, H, K;
    int end = 0;
    FWA_TRY(fwa_arguments_parse(&arguments, options, argc, argv));
    const char *rule = fwa_arguments_value(&arguments, "--rule", NULL);
    const char *text = fwa_arguments_value(&arguments, "--shape", "1x1024x6x128");
    FWA_TRY(fwa_arguments_integer(&arguments, "--repeats", 5, 1, 100, &repeats));
    FWA_TRY(fwa_arguments_integer(&arguments, "--threads", 0, 0, 1024, &threads));
    FWA_CHECK(!rule || fwa_rule_find(rule), FWA_USAGE, "--rule '%s': no such rule; `fwa info` lists them", rule);
    FWA_CHECK(sscanf(text, "%lldx%lldx%lldx%lld%n", &B, &T, &H, &K, &end) == 4 && !text[end] && B > 0 && T > 0 &&
                  H > 0 && K > 0,
              FWA_USAGE, "--shape '%s': expected BxTxHxK, for example 1x1024x6x128", text);
    const fwa_mixer_shape shape = {B, T, H, H, K, K};
    fwa_status status = world->rank == 0 ? bench_rules(rule, &shape, (int)repeats, (int)threads) : FWA_OK;
    return fwa_world_agree_late(world, status);
}
