// Tests of operators on a GPU against the CPU in f64, in both precisions, on the same (rounded) inputs.
//
// A test describes its arguments once as a list of `argument`; the harness makes them in host and device memory, calls
// `run` for the truth and twice for the device (inputs made anew; at the smallest test size once), and compares every
// output with its limit and the two device runs bit by bit.
#ifndef FWA_TESTS_GPU_DEVICE_OPS_H
#define FWA_TESTS_GPU_DEVICE_OPS_H

#include "tests/gpu/device_check.h"

enum { MOST_ARGUMENTS = 16, TRUTH = 0, DEVICE = 1 };

typedef enum role { INPUT, OUTPUT, INOUT } role; // OUTPUT: poisoned before
typedef enum kind { ACT, MST, IDS, BYTES } kind; // activations; master; i32; u8

// A tensor argument: dense, or with `gap` foreign elements between the rows and `offset` before the first.
typedef struct argument {
    role role;
    kind kind;
    int64_t shape[4];    // 0 ends the list
    double low, high;    // of the uniform values; IDS, BYTES: integers in [low, high)
    double f32, bf16;    // limits of an output
    int64_t gap, offset; // in elements
    bool absent;
    fwa_tensor at[2]; // filled in: TRUTH, DEVICE
} argument;

static fwa_backend *truth, *device[2]; // f32, bf16

// What the operators are called with: `side` picks the tensors, `context` is the test's own.
typedef void (*run_ops)(const fwa_backend *on, argument *arg, int side, void *context);

static inline fwa_dtype argument_type(const argument *a, const fwa_backend *on) {
    if (a->kind == IDS) return FWA_I32;
    if (a->kind == BYTES) return FWA_U8;
    return a->kind == ACT ? on->compute : on->master;
}

static inline void argument_make(argument *a, fwa_backend *cuda, uint64_t stream) {
    if (a->absent) {
        a->at[TRUTH] = a->at[DEVICE] = fwa_tensor_absent();
        return;
    }
    int last = 0;
    int64_t wide[4] = {0, 0, 0, 0};
    for (int i = 0; i < 4 && a->shape[i]; i++) wide[i] = a->shape[i], last = i;
    wide[last] += a->gap;
    fwa_tensor host = check_new(argument_type(a, truth), wide[0], wide[1], wide[2], wide[3]);
    host = fwa_tensor_slice(host, last, 0, a->shape[last]);
    bool whole = a->kind == IDS || a->kind == BYTES;
    const int64_t n = a->role == OUTPUT ? 0 : fwa_tensor_count(host);
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        double u = fwa_rng_uniform(77, stream, (uint64_t)i), value = a->low + (a->high - a->low) * u;
        check_set(host, i, whole ? floor(value) : value);
    }
    fwa_dtype type = argument_type(a, cuda);
    a->at[TRUTH] = host;
    a->at[DEVICE] =
        a->role == OUTPUT ? device_poisoned(cuda, host, type, a->offset) : device_from(cuda, host, type, a->offset);
}

// One call of `run` on the device with arguments made anew; host copies of the outputs go to `got`.
static inline void device_run(fwa_backend *cuda, argument *arg, int count, run_ops run, void *context,
                              fwa_tensor *got) {
    for (int i = 0; i < count; i++) argument_make(&arg[i], cuda, (uint64_t)i);
    run(cuda, arg, DEVICE, context);
    check_ok(cuda->stream_synchronize(cuda, cuda->stream));
    for (int i = 0; i < count; i++) {
        if (arg[i].absent) continue;
        if (arg[i].role != INPUT) got[i] = device_read(cuda, arg[i].at[DEVICE]);
        device_release(cuda, arg[i].at[DEVICE], arg[i].offset);
    }
}

static inline void check_on(fwa_backend *cuda, const char *title, argument *arg, int count, run_ops run,
                            void *context) {
    fwa_tensor first[MOST_ARGUMENTS] = {0}, second[MOST_ARGUMENTS] = {0};
    assert_true(count <= MOST_ARGUMENTS);
    device_run(cuda, arg, count, run, context, first);
    if (device_test_size() != TEST_SMALLEST) device_run(cuda, arg, count, run, context, second);
    run(truth, arg, TRUTH, context);
    for (int i = 0; i < count; i++) {
        if (arg[i].absent || arg[i].role == INPUT) continue;
        const double limit = cuda->compute == FWA_BF16 ? arg[i].bf16 : arg[i].f32;
        const double error = check_error(first[i], arg[i].at[TRUTH]);
        if (!(error <= limit))
            fail_msg("%s, %s, argument %d: error %.3g, limit %.3g", title, fwa_dtype_name(cuda->compute), i, error,
                     limit);
        if (fwa_tensor_present(second[i]) && check_differences(first[i], second[i]) != 0)
            fail_msg("%s, %s, argument %d: two runs differ", title, fwa_dtype_name(cuda->compute), i);
    }
    check_release(NULL);
}

// Both precisions.
static inline void check_op(const char *title, argument *arg, int count, run_ops run, void *context) {
    for (int i = 0; i < 2; i++) check_on(device[i], title, arg, count, run, context);
}

#define CHECK_OP(title, arguments, run, context)                                                                       \
    check_op((title), (arguments), (int)(sizeof(arguments) / sizeof(arguments)[0]), (run), (context))

static inline argument input_of(kind k, int64_t n0, int64_t n1, int64_t n2, int64_t n3, double low, double high) {
    return (argument){.role = INPUT, .kind = k, .shape = {n0, n1, n2, n3}, .low = low, .high = high};
}
static inline argument output_of(kind k, int64_t n0, int64_t n1, int64_t n2, int64_t n3, double f32, double bf16) {
    return (argument){.role = OUTPUT, .kind = k, .shape = {n0, n1, n2, n3}, .f32 = f32, .bf16 = bf16};
}
// Accumulated to: begins with values of about 1.
static inline argument sum_of(kind k, int64_t n0, int64_t n1, int64_t n2, int64_t n3, double f32, double bf16) {
    argument a = output_of(k, n0, n1, n2, n3, f32, bf16);
    a.role = INOUT, a.low = -1, a.high = 1;
    return a;
}
static inline argument nothing(void) {
    return (argument){.absent = true};
}

// Every activation among the arguments dense; in rows that stay aligned to 16 bytes; in rows and at addresses that do
// not.
enum { DENSE, ALIGNED_ROWS, ODD_ROWS, LAYOUTS };

static inline int64_t layout_gap(int layout) {
    return layout == DENSE ? 0 : layout == ALIGNED_ROWS ? 16 : 3;
}
static inline int64_t layout_offset(int layout) {
    return layout == DENSE ? 0 : layout == ALIGNED_ROWS ? 8 : 1;
}

// Whether a case with so many elements in a tensor is tried in this layout. Large ones are in one only, that of a
// packed product; at the smallest test size every case is in one.
static inline bool is_tried(int64_t elements, int layout) {
    const test_size size = device_test_size();
    if (size == TEST_SMALLEST && layout != elements % LAYOUTS) return false;
    return device_takes(elements) &&
           (layout == ALIGNED_ROWS || elements < (size == TEST_MODEL ? DEVICE_MODEL : DEVICE_LARGE));
}

static inline argument in_rows(argument a, int layout) {
    a.gap = layout_gap(layout), a.offset = layout_offset(layout);
    return a;
}
static inline argument moved(argument a, int layout) {
    a.offset = layout_offset(layout);
    return a;
}

static inline void devices_open(void) {
    device[0] = device_open(FWA_F32);
    device[1] = device_open(FWA_BF16);
    truth = device_truth();
}

static inline void devices_close(void) {
    truth->destroy(truth);
    device[0]->destroy(device[0]);
    device[1]->destroy(device[1]);
}

#endif
