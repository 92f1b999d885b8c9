// One operator or mixing rule as `fwa bench op` sees it: arguments by name, shape and type, and the calls that are
// timed. Not collective.
#ifndef FWA_TRAIN_BENCH_CASE_H
#define FWA_TRAIN_BENCH_CASE_H

#include "kernels/registry.h"
#include "train/bench/fill.h"
#include "train/bench/op_meter.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FWA_BENCH_ARGUMENTS = 18, FWA_BENCH_CONVOLUTION = 4 };

// Letters of core/shape.h. earlier: keys and values in front of the sequences, of rules that keep a cache. window: of
// rules that have one; 0: their own.
typedef struct fwa_bench_sizes {
    int64_t B, T, Hq, H, K, V, D, F, N, earlier, window;
} fwa_bench_sizes;

// What a pass reads, overwrites, or adds to.
typedef enum fwa_bench_role { FWA_BENCH_IN, FWA_BENCH_OUT, FWA_BENCH_SUM } fwa_bench_role;
// Activations; masters; token ids below N; 0 or 1; a fwa_step_state.
typedef enum fwa_bench_type {
    FWA_BENCH_ACT,
    FWA_BENCH_MST,
    FWA_BENCH_IDS,
    FWA_BENCH_FLAGS,
    FWA_BENCH_STATE
} fwa_bench_type;

typedef struct fwa_bench_argument {
    const char *name;
    // Dimensions with a space between; letters of a dimension multiply: "B T G K", "R 2F". B T G (heads of q and k) H K
    // V D F N; E earlier rows; R = B T rows; r = a quarter of them, but 8192 at most, as the head works on a piece at
    // once; W = 4. NULL: absent.
    const char *shape;
    fwa_bench_role role;
    fwa_bench_type type;
    bool backward; // belongs to the backward pass
    double low, high;
} fwa_bench_argument;

typedef struct fwa_bench_call fwa_bench_call;
typedef fwa_status (*fwa_bench_pass)(const fwa_bench_call *call);

typedef struct fwa_bench_case {
    const char *name;
    fwa_bench_argument argument[FWA_BENCH_ARGUMENTS];
    fwa_bench_pass pass[2]; // forward and backward; NULL: has none
    const fwa_rule *rule;   // NULL: an operator
} fwa_bench_case;

// A case with memory on a backend.
struct fwa_bench_call {
    fwa_backend *backend;
    const fwa_bench_case *of;
    fwa_bench_sizes sizes;
    fwa_tensor t[FWA_BENCH_ARGUMENTS];
    fwa_form form;            // of a rule
    const fwa_mixer *kernels; // of a rule
    fwa_tensor saved, scratch;
};

int fwa_bench_operator_count(void);
const fwa_bench_case *fwa_bench_operator(int index); // operators.c
// The case of a rule, at the sizes of a layer: rules with one head of q and k have Hq = 1, those without a cache no
// earlier rows, all the window that they run with.
void fwa_bench_rule_case(fwa_bench_case *out, const fwa_rule *rule, fwa_bench_sizes *sizes); // rules.c
fwa_mixer_options fwa_bench_rule_options(const fwa_rule *rule, const fwa_bench_sizes *sizes);
// saved and scratch of an opened call of a rule.
FWA_MUST_CHECK fwa_status fwa_bench_rule_memory(fwa_bench_call *call);

// Allocates and fills. fwa_bench_close, after a failure too.
FWA_MUST_CHECK fwa_status fwa_bench_open(fwa_bench_call *call, fwa_backend *backend, const fwa_bench_case *of,
                                         const fwa_bench_sizes *sizes, fwa_form form);
// Writes the inputs and the sums anew, rounded as `like` would hold them (the type of its activations and masters).
FWA_MUST_CHECK fwa_status fwa_bench_refill(fwa_bench_call *call, const fwa_backend *like);
void fwa_bench_close(fwa_bench_call *call);

// What a pass moves and computes at least.
FWA_MUST_CHECK fwa_status fwa_bench_cost(fwa_bench_call *call, int pass, fwa_cost *cost);

// The worst result of a pass against the same case on the CPU in f64.
typedef struct fwa_bench_error {
    double error, limit;
    double ratio;     // of the two: above 1 is too much
    const char *name; // of the result; NULL: nothing was compared
} fwa_bench_error;

// *worst = the worse of the two; nothing is worse than a NaN.
void fwa_bench_keep_worse(fwa_bench_error *worst, const fwa_bench_error *one);

// Compares the results of a pass, from both calls' memory. `part`: `call` is larger than `truth`, which is its first
// rows; only results by rows are compared then.
FWA_MUST_CHECK fwa_status fwa_bench_compare(fwa_bench_call *call, fwa_bench_call *truth, int pass, bool part,
                                            fwa_bench_error *worst);

#ifdef __cplusplus
}
#endif
#endif
