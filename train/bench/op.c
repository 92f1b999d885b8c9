// fwa bench op [NAME ...|rules|operators|all]: forward and backward of mixing rules and operators on a backend.
//
// The check: at the first sequence of the batch (its first 1024 tokens at most, fewer behind many earlier ones) every
// result equals the CPU's in f64, that of a rule its recurrence's; and at the whole size the rows of these tokens do,
// forward, and backward where no later token reaches them. Times are medians by the backend's timers. Beside them
// stands what the work moves and computes at least, and the share of the device's own rates for a copy and a product
// (train/bench/floor.h), measured in the same run.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "core/shape.h"
#include "train/arguments.h"
#include "train/bench/bench.h"
#include "train/bench/case.h"
#include "train/bench/floor.h"

enum { MOST_CHECKED = 1024, WARM_UP = 3 };

typedef struct bench {
    fwa_backend *backend, *truth;
    fwa_floor floor;
    fwa_bench_sizes sizes;
    fwa_form form;
    int repeats;
    bool json;
    int failed; // passes with a wrong result
} bench;

static const char *const pass_names[] = {"forward", "backward"};

// Runs the passes of a freshly filled call.
static fwa_status run_passes(fwa_bench_call *call, const fwa_backend *like) {
    FWA_TRY(fwa_bench_refill(call, like));
    for (int pass = 0; pass < 2; pass++)
        if (call->of->pass[pass]) FWA_TRY(call->of->pass[pass](call));
    return FWA_OK;
}

// Runs `of` at `sizes` and compares both passes; `part`: with the first rows only.
static fwa_status compare_at(const bench *b, const fwa_bench_case *of, const fwa_bench_sizes *sizes,
                             fwa_bench_call *truth, bool part, fwa_bench_call *call, fwa_bench_error worst[2]) {
    FWA_TRY(fwa_bench_open(call, b->backend, of, sizes, b->form));
    FWA_TRY(run_passes(call, b->backend));
    for (int pass = 0; pass < 2; pass++) {
        fwa_bench_error one;
        if (!of->pass[pass] || (part && pass == 1 && sizes->T != truth->sizes.T)) continue;
        FWA_TRY(fwa_bench_compare(call, truth, pass, part, &one));
        fwa_bench_keep_worse(&worst[pass], &one);
    }
    return FWA_OK;
}

// Leaves `call` open at the whole size.
static fwa_status check(const bench *b, const fwa_bench_case *of, const fwa_bench_sizes *sizes, fwa_bench_call *call,
                        fwa_bench_error worst[2]) {
    fwa_bench_sizes first = *sizes;
    fwa_bench_call truth = {0}, small = {0};
    fwa_status status = FWA_OK;
    first.B = 1;
    first.T = fwa_min(sizes->T, MOST_CHECKED * MOST_CHECKED / (MOST_CHECKED + fwa_min(sizes->earlier, 65536)));
    FWA_TRY_GOTO(fwa_bench_open(&truth, b->truth, of, &first, FWA_FORM_RECURRENT), done);
    FWA_TRY_GOTO(run_passes(&truth, b->backend), done);
    FWA_TRY_GOTO(compare_at(b, of, &first, &truth, false, &small, worst), done);
    fwa_bench_close(&small);
    FWA_TRY_GOTO(compare_at(b, of, sizes, &truth, true, call, worst), done);
done:
    fwa_bench_close(&truth);
    fwa_bench_close(&small);
    return status;
}

typedef struct pass_of_call {
    fwa_bench_call *call;
    int pass;
} pass_of_call;

static fwa_status run_pass(void *user) {
    const pass_of_call *p = user;
    return p->call->of->pass[p->pass](p->call);
}

static void print_row(const bench *b, const fwa_bench_call *call, int pass, const fwa_bench_error *worst, fwa_cost cost,
                      double median, double least) {
    const fwa_bench_sizes *s = &call->sizes;
    const double share = fwa_floor_share(&b->floor, cost, median);
    if (!b->json) {
        printf("%-20s %-8s %9.4f %9.1f %9.3f %7.1f%%  %.2g\n", call->of->name, pass_names[pass], 1e3 * median,
               1e-9 * cost.bytes / median, 1e-12 * cost.flops / median, 100.0 * share, worst->error);
        return;
    }
    printf("{\"bench\": \"op\", \"name\": \"%s\", \"pass\": \"%s\", \"backend\": \"%s\", \"dtype\": \"%s\", "
           "\"threads\": %d, \"B\": %lld, \"T\": %lld, \"Hq\": %lld, \"H\": %lld, \"K\": %lld, \"V\": %lld, "
           "\"D\": %lld, \"F\": %lld, \"N\": %lld, \"earlier\": %lld, \"window\": %lld, \"ms_median\": %.6g, "
           "\"ms_min\": %.6g, "
           "\"bytes\": %.0f, "
           "\"flops\": %.0f, \"floor_ms\": %.6g, \"share\": %.4f, \"copy_gb_per_s\": %.1f, "
           "\"product_tflop_per_s\": %.3f, \"error\": %.3g, \"limit\": %.3g}\n",
           call->of->name, pass_names[pass], b->backend->name, fwa_dtype_name(b->backend->compute), b->backend->threads,
           (long long)s->B, (long long)s->T, (long long)s->Hq, (long long)s->H, (long long)s->K, (long long)s->V,
           (long long)s->D, (long long)s->F, (long long)s->N, (long long)s->earlier, (long long)s->window, 1e3 * median,
           1e3 * least, cost.bytes, cost.flops, 1e3 * fwa_floor_seconds(&b->floor, cost), share, 1e-9 * b->floor.copy,
           1e-12 * b->floor.product, worst->error, worst->limit);
}

static fwa_status bench_pass(bench *b, fwa_bench_call *call, int pass, const fwa_bench_error *worst) {
    const double warm_up_s = b->backend->kind == FWA_BACKEND_CUDA ? 0.02 : 0.0;
    pass_of_call user = {call, pass};
    fwa_cost cost;
    double median, least;
    if (!(worst->ratio <= 1.0)) {
        b->failed++;
        fprintf(b->json ? stderr : stdout,
                "%-20s %-8s check failed: %s is off by %.3g, limit %.3g; no time is reported\n", call->of->name,
                pass_names[pass], worst->name, worst->error, worst->limit);
        return FWA_OK;
    }
    FWA_TRY(fwa_bench_cost(call, pass, &cost));
    FWA_TRY(fwa_floor_time(b->backend, run_pass, &user, WARM_UP, warm_up_s, b->repeats, &median, &least));
    print_row(b, call, pass, worst, cost, median, least);
    return FWA_OK;
}

static fwa_status bench_case(bench *b, const fwa_bench_case *of, const fwa_bench_sizes *sizes) {
    fwa_bench_call call = {0};
    fwa_bench_error worst[2];
    memset(worst, 0, sizeof worst);
    fwa_status status = check(b, of, sizes, &call, worst);
    for (int pass = 0; pass < 2 && status == FWA_OK; pass++)
        if (of->pass[pass]) status = bench_pass(b, &call, pass, &worst[pass]);
    fwa_bench_close(&call);
    if (status == FWA_UNSUPPORTED) {
        fprintf(b->json ? stderr : stdout, "%-20s %s\n", of->name, fwa_error_message());
        fwa_error_clear();
        return FWA_OK;
    }
    fflush(stdout);
    FWA_TRY(status);
    return FWA_OK;
}

static bool is(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

// Whether `word` is an operator of the case `name`: swiglu_forward of swiglu.
static bool is_pass(const char *word, const char *name) {
    const size_t length = strlen(name);
    return strncmp(word, name, length) == 0 && (is(word + length, "_forward") || is(word + length, "_backward"));
}

// A name stands for itself, gemm for all products, an operator for its case.
static bool named(const char *word, const char *group, const char *name) {
    return is(word, "all") || is(word, group) || is(word, name) || is_pass(word, name) ||
           (is(word, "gemm") && strncmp(name, "gemm_", 5) == 0);
}

static bool wanted(const fwa_arguments *a, const char *group, const char *name) {
    for (int i = 0; i < a->count; i++)
        if (named(a->at[i], group, name)) return true;
    return a->count == 0;
}

static fwa_status check_words(const fwa_arguments *a) {
    for (int i = 0; i < a->count; i++) {
        bool known = fwa_rule_find(a->at[i]) || is(a->at[i], "rules");
        for (int c = 0; c < fwa_bench_operator_count() && !known; c++)
            known = named(a->at[i], "operators", fwa_bench_operator(c)->name);
        for (int op = 0; op < fwa_op_count() && !known; op++)
            FWA_CHECK(!is(a->at[i], fwa_op_name(op)), FWA_USAGE,
                      "fwa bench op '%s': the operator has no case in train/bench/operators.c", a->at[i]);
        FWA_CHECK(known, FWA_USAGE,
                  "fwa bench op '%s': expected all, rules, operators, or names of them as in `fwa info`", a->at[i]);
    }
    return FWA_OK;
}

static fwa_status bench_cases(bench *b, const fwa_arguments *a) {
    for (int i = 0; i < fwa_rule_count(); i++) {
        fwa_bench_case of;
        fwa_bench_sizes sizes = b->sizes;
        if (!wanted(a, "rules", fwa_rule_at(i)->name)) continue;
        fwa_bench_rule_case(&of, fwa_rule_at(i), &sizes);
        FWA_TRY(bench_case(b, &of, &sizes));
    }
    for (int i = 0; i < fwa_bench_operator_count(); i++)
        if (wanted(a, "operators", fwa_bench_operator(i)->name))
            FWA_TRY(bench_case(b, fwa_bench_operator(i), &b->sizes));
    return FWA_OK;
}

static void print_head(const bench *b) {
    const fwa_bench_sizes *s = &b->sizes;
    char device[256] = "";
    if (b->json) return;
    if (fwa_backend_describe(b->backend->kind, b->backend->device, device, sizeof device) != FWA_OK) fwa_error_clear();
    printf("%s %s, %d thread%s, %s\n", b->backend->name, fwa_dtype_name(b->backend->compute), b->backend->threads,
           fwa_plural(b->backend->threads), device);
    printf("B %lld T %lld, %lld head%s of %lld and %lld, D %lld F %lld N %lld; copy %.1f GB/s, product %lld^3 %.3f "
           "TFLOP/s\n",
           (long long)s->B, (long long)s->T, (long long)s->H, fwa_plural(s->H), (long long)s->K, (long long)s->V,
           (long long)s->D, (long long)s->F, (long long)s->N, 1e-9 * b->floor.copy, (long long)b->floor.size,
           1e-12 * b->floor.product);
    printf("%-20s %-8s %9s %9s %9s %8s  %s\n", "", "pass", "ms", "GB/s", "TFLOP/s", "of floor", "error");
}

// The rates once more: a run beside other work on the device says so.
static fwa_status check_floor(const bench *b) {
    fwa_floor now;
    FWA_TRY(fwa_floor_measure(b->backend, (fwa_floor_room){NULL, 0}, &now));
    const double copy = now.copy / b->floor.copy, product = now.product / b->floor.product;
    if (fmax(copy, product) > 1.1 || fmin(copy, product) < 0.9)
        fwa_log_warn("rates at the end: copy %.1f GB/s, product %.3f TFLOP/s, otherwise than at the start: something "
                     "else ran on this device, and no time above counts",
                     1e-9 * now.copy, 1e-12 * now.product);
    return FWA_OK;
}

static fwa_status read_sizes(const fwa_arguments *a, bool cuda, fwa_bench_sizes *s) {
    const struct {
        const char *name;
        int64_t standard, *value;
    } options[] = {{"--B", cuda ? 32 : 1, &s->B}, {"--T", 1024, &s->T}, {"--H", 6, &s->H},    {"--K", 128, &s->K},
                   {"--V", 128, &s->V},           {"--D", 768, &s->D},  {"--F", 2048, &s->F}, {"--N", 50304, &s->N}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        FWA_TRY(fwa_arguments_integer(a, options[i].name, options[i].standard, 1, INT32_MAX, options[i].value));
    s->Hq = s->H;
    FWA_TRY(fwa_arguments_integer(a, "--window", 0, 0, 65536, &s->window));
    return fwa_arguments_integer(a, "--earlier", 0, 0, INT32_MAX, &s->earlier);
}

static fwa_status read_backend(const fwa_arguments *a, bool *cuda, fwa_dtype *dtype) {
    const char *backend = fwa_arguments_value(a, "--backend", "auto");
    FWA_CHECK(is(backend, "auto") || is(backend, "cpu") || is(backend, "cuda"), FWA_USAGE,
              "--backend '%s': expected auto, cpu or cuda", backend);
    *cuda = is(backend, "cuda") || (is(backend, "auto") && fwa_backend_built(FWA_BACKEND_CUDA) &&
                                    fwa_backend_device_count(FWA_BACKEND_CUDA) > 0);
    const char *name = fwa_arguments_value(a, "--dtype", *cuda ? "bf16" : "f32");
    FWA_CHECK(is(name, "f32") || is(name, "f64") || is(name, "bf16"), FWA_USAGE,
              "--dtype '%s': expected f32, f64 or bf16", name);
    *dtype = is(name, "f64") ? FWA_F64 : is(name, "bf16") ? FWA_BF16 : FWA_F32;
    return FWA_OK;
}

static fwa_status read_form(const fwa_arguments *a, fwa_form *form) {
    const char *name = fwa_arguments_value(a, "--form", "chunk");
    FWA_CHECK(is(name, "chunk") || is(name, "recurrent"), FWA_USAGE, "--form '%s': expected chunk or recurrent", name);
    *form = is(name, "chunk") ? FWA_FORM_CHUNK : FWA_FORM_RECURRENT;
    return FWA_OK;
}

static fwa_status run(bench *b, const fwa_arguments *a, bool cuda, fwa_dtype dtype, int threads) {
    fwa_status status = FWA_OK;
    FWA_TRY_GOTO(fwa_backend_create(&b->backend, cuda ? FWA_BACKEND_CUDA : FWA_BACKEND_CPU, dtype, 0, threads), done);
    FWA_TRY_GOTO(fwa_backend_create(&b->truth, FWA_BACKEND_CPU, FWA_F64, 0, threads), done);
    FWA_TRY_GOTO(fwa_floor_measure(b->backend, (fwa_floor_room){NULL, 0}, &b->floor), done);
    print_head(b);
    FWA_TRY_GOTO(bench_cases(b, a), done);
    if (cuda) FWA_TRY_GOTO(check_floor(b), done);
    FWA_CHECK_GOTO(b->failed == 0, FWA_FAULTY, done, "bench op: results too far from the CPU's, %d time%s", b->failed,
                   fwa_plural(b->failed));
done:
    if (b->truth) b->truth->destroy(b->truth);
    if (b->backend) b->backend->destroy(b->backend);
    return status;
}

fwa_status fwa_bench_op(fwa_world *world, int argc, char **argv) {
    static const fwa_option options[] = {
        {"--backend", true}, {"--dtype", true},   {"--form", true},   {"--B", true},     {"--T", true},
        {"--H", true},       {"--K", true},       {"--V", true},      {"--D", true},     {"--F", true},
        {"--N", true},       {"--earlier", true}, {"--window", true}, {"--json", false}, {"--threads", true},
        {"--repeats", true}, {NULL, false}};
    fwa_arguments arguments;
    bench b = {0};
    int64_t repeats, threads;
    bool cuda;
    fwa_dtype dtype;
    FWA_TRY(fwa_arguments_parse(&arguments, options, argc, argv));
    FWA_TRY(check_words(&arguments));
    FWA_TRY(read_backend(&arguments, &cuda, &dtype));
    FWA_TRY(read_sizes(&arguments, cuda, &b.sizes));
    FWA_TRY(read_form(&arguments, &b.form));
    FWA_TRY(fwa_arguments_integer(&arguments, "--repeats", cuda ? 20 : 5, 1, FWA_TIMED_REPEATS, &repeats));
    FWA_TRY(fwa_arguments_integer(&arguments, "--threads", 0, 0, 1024, &threads));
    b.repeats = (int)repeats;
    b.json = fwa_arguments_flag(&arguments, "--json");
    const fwa_status status = world->rank == 0 ? run(&b, &arguments, cuda, dtype, (int)threads) : FWA_OK;
    return fwa_world_agree_late(world, status);
}
