// fwa op: one call of a mixing rule on a case file; writes the answer, compares it with what the file holds, or both.
// Several cases can be checked at once.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/files.h"
#include "train/arguments.h"
#include "train/commands.h"
#include "train/op_case.h"

typedef struct request {
    const char *rule, *out;
    const char *cases[FWA_ARGUMENTS_MAX + 1];
    int count;
    bool check;
    fwa_form form;
    fwa_backend_kind backend;
    fwa_dtype dtype;
    int64_t chunk;
    double tolerance;
    int failures;           // cases above the tolerance
    fwa_case asked, answer; // the one under way
} request;

// The value of an option among `names` (ends with NULL), as an index.
static fwa_status choose(const fwa_arguments *arguments, const char *name, const char *standard,
                         const char *const *names, int *index) {
    const char *text = fwa_arguments_value(arguments, name, standard);
    char list[128] = "";
    size_t used = 0;
    for (*index = 0; names[*index]; (*index)++) {
        if (strcmp(names[*index], text) == 0) return FWA_OK;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", names[*index]);
    }
    FWA_FAIL(FWA_USAGE, "%s '%s': expected one of %s", name, text, list);
}

static fwa_status read_tolerance(const fwa_arguments *arguments, request *r) {
    const char *text = fwa_arguments_value(arguments, "--tolerance", NULL);
    char *end = NULL;
    // Far above the rounding of long cases in each type, far below what a wrong term makes.
    r->tolerance = r->dtype == FWA_F64 ? 1e-9 : r->dtype == FWA_F32 ? 1e-4 : 2e-2;
    if (!text) return FWA_OK;
    r->tolerance = strtod(text, &end);
    FWA_CHECK(end != text && !*end && r->tolerance >= 0, FWA_USAGE, "--tolerance '%s': expected a number of at least 0",
              text);
    return FWA_OK;
}

// Every case exists, and writing the answer does not replace it.
static fwa_status check_files(const request *r) {
    for (int i = 0; i < r->count; i++) {
        FWA_CHECK(fwa_path_exists(r->cases[i]), FWA_USAGE, "cannot open %s: no such file", r->cases[i]);
        FWA_CHECK(!r->out || !fwa_path_same(r->cases[i], r->out), FWA_USAGE,
                  "--out %s is the case itself, expected another file", r->out);
    }
    return FWA_OK;
}

// --in CASE --out ANSWER, or --check CASE [CASE ...].
static fwa_status read_files(const fwa_arguments *arguments, request *r) {
    const char *in = fwa_arguments_value(arguments, "--in", NULL);
    const char *check = fwa_arguments_value(arguments, "--check", NULL);
    r->out = fwa_arguments_value(arguments, "--out", NULL);
    FWA_CHECK(!in != !check, FWA_USAGE, "fwa op: expected a case by either --in or --check (fwa help op)");
    FWA_CHECK(check || r->out, FWA_USAGE, "fwa op: --in %s needs --out ANSWER.h5 (fwa help op)", in);
    if (r->out) FWA_TRY(fwa_input_check(r->out, FWA_INPUT_FILE));
    if (r->out) FWA_TRY(fwa_file_check_target("--out", r->out));
    FWA_CHECK(check || arguments->count == 0, FWA_USAGE, "fwa op: '%s' is no option (fwa help op)", arguments->at[0]);
    FWA_CHECK(!r->out || arguments->count == 0, FWA_USAGE, "fwa op: --out takes the answer to one case, got %d cases",
              arguments->count + 1);
    r->check = check != NULL;
    r->cases[r->count++] = in ? in : check;
    for (int i = 0; i < arguments->count; i++) r->cases[r->count++] = arguments->at[i];
    return check_files(r);
}

static fwa_status read_request(request *r, int argc, char **argv) {
    static const fwa_option options[] = {
        {"--rule", true},  {"--in", true},      {"--out", true},   {"--check", true},     {"--form", true},
        {"--chunk", true}, {"--backend", true}, {"--dtype", true}, {"--tolerance", true}, {NULL, false}};
    static const char *const forms[] = {"recurrent", "parallel", "chunk", NULL};
    static const char *const backends[] = {"cpu", "cuda", NULL};
    static const char *const types[] = {"f64", "f32", "bf16", NULL};
    static const fwa_form form_of[] = {FWA_FORM_RECURRENT, FWA_FORM_PARALLEL, FWA_FORM_CHUNK};
    static const fwa_dtype type_of[] = {FWA_F64, FWA_F32, FWA_BF16};
    fwa_arguments arguments;
    int form, backend, type;
    FWA_TRY(fwa_arguments_parse(&arguments, options, argc, argv));
    r->rule = fwa_arguments_value(&arguments, "--rule", NULL);
    FWA_TRY(choose(&arguments, "--form", "chunk", forms, &form));
    FWA_TRY(choose(&arguments, "--backend", "cpu", backends, &backend));
    FWA_TRY(choose(&arguments, "--dtype", backend ? "f32" : "f64", types, &type));
    FWA_TRY(fwa_arguments_integer(&arguments, "--chunk", 64, 1, 1 << 20, &r->chunk));
    r->form = form_of[form];
    r->backend = backend ? FWA_BACKEND_CUDA : FWA_BACKEND_CPU;
    r->dtype = type_of[type];
    FWA_TRY(read_tolerance(&arguments, r));
    return read_files(&arguments, r);
}

// RMS(a-b), and RMS(b).
static double difference(fwa_tensor a, fwa_tensor b, double *size) {
    const double *x = a.data, *y = b.data;
    const int64_t n = fwa_tensor_count(b);
    double sum = 0, square = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (x[i] - y[i]) * (x[i] - y[i]);
        square += y[i] * y[i];
    }
    *size = sqrt(square / (double)n);
    return sqrt(sum / (double)n);
}

// Prints the error of one tensor; *worst follows.
static fwa_status compare(fwa_tensor got, fwa_tensor expected, const char *path, bool absolute, double *worst) {
    char a[96], b[96];
    FWA_CHECK(fwa_tensor_present(got), FWA_FORMAT, "%s: the call has no such result", path);
    bool same = got.ndim == expected.ndim;
    for (int d = 0; same && d < got.ndim; d++) same = got.shape[d] == expected.shape[d];
    FWA_CHECK(same, FWA_FORMAT, "%s is %s, expected %s", path, fwa_tensor_text(expected, a), fwa_tensor_text(got, b));
    if (fwa_tensor_count(expected) == 0) return FWA_OK;
    double size, error = difference(got, expected, &size);
    const bool zero = size < 1e-12;
    if (!absolute && !zero) error /= size;
    printf("  %-16s %-28s rms %-10.3g error %.3g%s\n", path, fwa_tensor_text(expected, a), size, error,
           absolute || zero ? " (absolute)" : "");
    if (zero && !absolute && error <= 1e-12) error = 0;
    if (!isnan(*worst) && !(error <= *worst)) *worst = error; // a NaN stays
    return FWA_OK;
}

static fwa_status check_answer(request *r, const char *path, const fwa_op_call *op) {
    const fwa_case *c = &r->asked;
    const bool absolute = op->call.shape.T == 1 && !fwa_tensor_present(op->call.in.S);
    double worst = 0;
    int compared = 0;
    for (int i = 0; i < c->tensor_count; i++) {
        const char *name = c->tensors[i].path;
        if (strncmp(name, "in/", 3) == 0) continue;
        FWA_TRY(compare(fwa_case_tensor(&r->answer, name), c->tensors[i].tensor, name, absolute, &worst));
        compared++;
    }
    FWA_CHECK(compared > 0, FWA_FORMAT, "it has neither out/ nor grad/: there is nothing to check");
    const bool agrees = worst <= r->tolerance;
    if (!agrees) r->failures++;
    printf("%s: %s, %d tensor%s, worst error %.3g, tolerance %g\n", path, agrees ? "agrees" : "DIFFERS", compared,
           fwa_plural(compared), worst, r->tolerance);
    return FWA_OK;
}

// What is wrong with a case is said with its path.
static fwa_status name_case(fwa_status status, const char *path) {
    FWA_CHECK(status != FWA_FORMAT, FWA_FORMAT, "%s: %s", path, fwa_error_message());
    return status;
}

static fwa_status answer_case(request *r, const char *path, fwa_backend *backend) {
    const fwa_case *c = &r->asked;
    const fwa_rule *rule;
    fwa_op_call op = {0};
    fwa_status status;
    memset(&r->answer, 0, sizeof r->answer);
    FWA_TRY_GOTO(name_case(fwa_op_rule(c, r->rule, &rule), path), done);
    FWA_TRY_GOTO(name_case(fwa_op_open(&op, c, rule, backend, r->form, r->chunk), path), done);
    FWA_TRY_GOTO(fwa_op_run(&op, c, &r->answer), done);
    if (r->check) FWA_TRY_GOTO(name_case(check_answer(r, path, &op), path), done);
    if (r->out) {
        FWA_TRY_GOTO(fwa_case_write(&r->answer, r->out), done);
        printf("wrote %s: %d tensor%s\n", r->out, r->answer.tensor_count, fwa_plural(r->answer.tensor_count));
    }
done:
    fwa_case_free(&r->answer);
    fwa_op_close(&op);
    return status;
}

static fwa_status run_case(request *r, const char *path, fwa_backend *backend) {
    fwa_status status;
    FWA_TRY_GOTO(fwa_case_read(&r->asked, path, fwa_op_attributes), done);
    FWA_TRY_GOTO(answer_case(r, path, backend), done);
done:
    fwa_case_free(&r->asked);
    return status;
}

static fwa_status run(request *r) {
    fwa_backend *backend;
    fwa_status status = FWA_OK;
    const bool rounds = r->backend == FWA_BACKEND_CPU && r->dtype == FWA_BF16;
    FWA_TRY(fwa_backend_create(&backend, r->backend, rounds ? FWA_F32 : r->dtype, 0, 0));
    backend->rounds = rounds;
    for (int i = 0; i < r->count; i++) FWA_TRY_GOTO(run_case(r, r->cases[i], backend), done);
    FWA_CHECK_GOTO(r->failures == 0, FWA_FAULTY, done, "%d of %d case%s off by more than the tolerance %g", r->failures,
                   r->count, fwa_plural(r->count), r->tolerance);
    FWA_CHECK_GOTO(fflush(stdout) == 0 && !ferror(stdout), FWA_IO, done, "cannot write to standard output");
done:
    backend->destroy(backend);
    return status;
}

fwa_status fwa_cmd_op(fwa_world *world, int argc, char **argv) {
    request *r = calloc(1, sizeof *r);
    FWA_CHECK(r, FWA_MEMORY, "fwa op: out of memory");
    fwa_status status = read_request(r, argc, argv);
    if (status == FWA_OK && world->rank == 0) status = run(r);
    free(r);
    return fwa_world_agree_late(world, status);
}
