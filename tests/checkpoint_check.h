// Small checkpoints for tests: parameters whose every element is a function of name, part, row, column and step.
#ifndef FWA_TESTS_CHECKPOINT_CHECK_H
#define FWA_TESTS_CHECKPOINT_CHECK_H

#include "io/checkpoint.h"
#include "tests/temp_folder.h"

typedef struct test_param {
    const char *name;
    fwa_dtype dtype;
    int ndim;
    int64_t shape[FWA_MAX_DIMS];
    int64_t padding; // elements between rows
} test_param;

static const test_param test_params[] = {
    {"embedding.weight", FWA_F32, 2, {23, 5}, 0},
    {"blocks.0.mlp.weight", FWA_F32, 2, {7, 10}, 6},
    {"blocks.0.norm.weight", FWA_F32, 1, {11}, 0},
    {"blocks.0.conv.weight", FWA_F64, 3, {6, 2, 3}, 0},
    {"scale", FWA_F64, 1, {1}, 0},
};
enum { TEST_PARAMS = sizeof test_params / sizeof test_params[0], TEST_RANKS = 3 };

// Exact in f32.
static inline double test_value(int part, int param, int64_t element, int64_t step) {
    return (double)(part * 100000 + param * 10000 + element) + (double)(step % 64) / 64;
}

static inline int64_t test_columns(const test_param *p) {
    int64_t columns = 1;
    for (int d = 1; d < p->ndim; d++) columns *= p->shape[d];
    return columns;
}

// Uneven rows: rank 0 a third, rank 1 none of even parameters, rank 2 the rest.
static inline void test_split(int param, int rank, int64_t *start, int64_t *end) {
    int64_t rows = test_params[param].shape[0];
    int64_t cuts[TEST_RANKS + 1] = {0, rows / 3, param % 2 ? rows / 2 : rows / 3, rows};
    *start = cuts[rank];
    *end = cuts[rank + 1];
}

// Rows [start, end) in new memory that is NaN between rows.
static inline fwa_named_tensor test_slice(int param, fwa_dtype dtype, int64_t start, int64_t end) {
    const test_param *p = &test_params[param];
    fwa_named_tensor t = {.row_start = start, .decay = param == 0};
    int64_t shape[FWA_MAX_DIMS], stride = test_columns(p) + p->padding;
    for (int d = 0; d < p->ndim; d++) t.shape[d] = shape[d] = p->shape[d];
    shape[0] = end - start;
    void *data = check_alloc((size_t)(shape[0] * stride) * fwa_dtype_size(dtype));
    t.tensor = fwa_tensor_nd(data, dtype, p->ndim, shape);
    t.tensor.stride[0] = stride;
    snprintf(t.name, sizeof t.name, "%s", p->name);
    snprintf(t.init, sizeof t.init, "normal 0.02");
    return t;
}

static inline int64_t test_offset(const fwa_named_tensor *t, int64_t element, int64_t columns) {
    return element / columns * t->tensor.stride[0] + element % columns;
}

static inline void test_fill(fwa_named_tensor *t, int part, int param, int64_t step) {
    int64_t columns = test_columns(&test_params[param]);
    for (int64_t i = 0; i < t->tensor.shape[0] * columns; i++) {
        double value = test_value(part, param, t->row_start * columns + i, step);
        int64_t at = test_offset(t, i, columns);
        if (t->tensor.dtype == FWA_F64) {
            ((double *)t->tensor.data)[at] = value;
        } else {
            ((float *)t->tensor.data)[at] = (float)value;
        }
    }
}

// True if every element is right and what lies between rows is untouched.
static inline bool test_holds(const fwa_named_tensor *t, int part, int param, int64_t step) {
    int64_t columns = test_columns(&test_params[param]), stride = t->tensor.stride[0];
    for (int64_t i = 0; i < t->tensor.shape[0] * stride; i++) {
        double value = t->tensor.dtype == FWA_F64 ? ((double *)t->tensor.data)[i] : ((float *)t->tensor.data)[i];
        int64_t element = (t->row_start + i / stride) * columns + i % stride;
        if (i % stride < columns ? value != test_value(part, param, element, step) : !isnan(value)) return false;
    }
    return true;
}

static inline fwa_checkpoint_state test_state(int64_t step) {
    return (fwa_checkpoint_state){.step = step,
                                  .tokens = step * 1000,
                                  .accepted = step - 2,
                                  .skipped = 2,
                                  .skipped_in_a_row = 1,
                                  .norm_mean = 0.1,
                                  .seed = -7,
                                  .epoch = 3,
                                  .data_fingerprint = 0xfedcba9876543210u,
                                  .config_hash = 0x8000000000000001u,
                                  .best_val_loss = NAN,
                                  .config = "run:\n  name: \"gr\xc3\xb6\xc3\x9f"
                                            "e\"\n",
                                  .version = "fwa 0.1.0",
                                  .command = "",
                                  .choices = "{}"};
}

// One rank's shard of every parameter and part.
static inline fwa_status test_write_shard(fwa_checkpoint_writer *writer, int rank, int64_t step) {
    fwa_named_tensor slices[FWA_PART_COUNT][TEST_PARAMS];
    const fwa_named_tensor *tensors[FWA_PART_COUNT];
    for (int part = 0; part < FWA_PART_COUNT; part++) {
        for (int i = 0; i < TEST_PARAMS; i++) {
            int64_t start, end;
            test_split(i, rank, &start, &end);
            slices[part][i] = test_slice(i, test_params[i].dtype, start, end);
            test_fill(&slices[part][i], part, i, step);
        }
        tensors[part] = slices[part];
    }
    return fwa_checkpoint_write_shard(writer, tensors, TEST_PARAMS);
}

// A whole save as TEST_RANKS ranks do it.
static inline fwa_status test_save(const char *run, int64_t step) {
    fwa_checkpoint_writer *writers[TEST_RANKS] = {NULL};
    fwa_status status;
    for (int rank = 0; rank < TEST_RANKS; rank++) {
        FWA_TRY_GOTO(fwa_checkpoint_begin(&writers[rank], run, step, rank, 1000), done);
    }
    for (int rank = 0; rank < TEST_RANKS; rank++) FWA_TRY_GOTO(test_write_shard(writers[rank], rank, step), done);
    fwa_checkpoint_state state = test_state(step);
    FWA_TRY_GOTO(fwa_checkpoint_publish(writers[0], TEST_RANKS, &state), done);
done:
    for (int rank = TEST_RANKS - 1; rank >= 0; rank--) fwa_checkpoint_end(writers[rank]);
    return status;
}

// Reads everything back in `pieces` nearly even slices of type `dtype` and checks every element.
static inline void test_check_contents(fwa_checkpoint *checkpoint, fwa_dtype dtype, int pieces, int64_t step) {
    for (int part = 0; part < FWA_PART_COUNT; part++) {
        for (int i = 0; i < TEST_PARAMS; i++) {
            int64_t rows = test_params[i].shape[0];
            for (int p = 0; p < pieces; p++) {
                fwa_named_tensor to = test_slice(i, dtype, rows * p / pieces, rows * (p + 1) / pieces);
                check_ok(fwa_checkpoint_read(checkpoint, (fwa_checkpoint_part)part, &to));
                if (!test_holds(&to, part, i, step)) fail_msg("%s: wrong elements", to.name);
            }
        }
    }
}

// The newest checkpoint of `run` is whole and right; returns its step, -1 if there is none.
static inline int64_t test_check_newest(const char *run) {
    char *path;
    check_ok(fwa_checkpoint_newest(run, &path));
    if (!path) return -1;
    fwa_checkpoint *checkpoint;
    check_ok(fwa_checkpoint_open(&checkpoint, path));
    int64_t step = fwa_checkpoint_get_state(checkpoint)->step;
    test_check_contents(checkpoint, FWA_F64, 1, step);
    fwa_checkpoint_close(checkpoint);
    free(path);
    return step;
}

#endif
