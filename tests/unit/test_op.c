// fwa op's inputs: a sound case is answered, and each thing that can be wrong with one is refused with its name, value
// and expectation, exit code 2 and no file.
#include "io/case.h"
#include "io/checkpoint.h"
#include "temp_folder.h"
#include "train/commands.h"
#include "train/op_case.h"

static char case_path[FWA_PATH_MAX], answer_path[FWA_PATH_MAX];

static int setup(void **state) {
    if (temp_setup(state) != 0) return -1;
    snprintf(case_path, sizeof case_path, "%s", temp_path("case.h5"));
    snprintf(answer_path, sizeof answer_path, "%s", temp_path("answer.h5"));
    return 0;
}

static fwa_status run_op(void) {
    char *argv[] = {"op", "--in", case_path, "--out", answer_path, "--chunk", "4", NULL};
    fwa_world world = {.rank = 0, .size = 1};
    return fwa_cmd_op(&world, 7, argv);
}

static void load(fwa_case *c, const char *name) {
    char path[FWA_PATH_MAX];
    check_ok(fwa_path_format(path, "%s/tests/golden/%s.h5", FWA_SOURCE_DIR, name));
    check_ok(fwa_case_read(c, path, fwa_op_attributes));
}

// Writes the changed case, which must be refused with every text.
static void refused(fwa_case *c, const char *first, const char *second) {
    check_ok(fwa_case_write(c, case_path));
    const fwa_status status = run_op();
    if (fwa_status_exit_code(status) != 2)
        fail_msg("exit code %d, expected 2: %s", fwa_status_exit_code(status), first);
    if (!strstr(fwa_error_message(), first) || !strstr(fwa_error_message(), second))
        fail_msg("'%s' does not say '%s' and '%s'", fwa_error_message(), first, second);
    assert_non_null(strstr(fwa_error_message(), case_path));
    assert_false(fwa_path_exists(answer_path));
    fwa_case_free(c);
}

static void set_value(fwa_case *c, const char *path, int64_t index, double value) {
    const fwa_tensor t = fwa_case_tensor(c, path);
    assert_true(fwa_tensor_present(t));
    ((double *)t.data)[index] = value;
}

static void set_number(fwa_case *c, const char *name, double value) {
    for (int i = 0; i < c->number_count; i++)
        if (!strcmp(c->numbers[i].name, name)) {
            c->numbers[i].value = value;
            return;
        }
    check_ok(fwa_case_set(c, name, value));
}

static void rename_tensor(fwa_case *c, const char *from, const char *to) {
    for (int i = 0; i < c->tensor_count; i++)
        if (!strcmp(c->tensors[i].path, from)) snprintf(c->tensors[i].path, sizeof c->tensors[i].path, "%s", to);
}

// One step fewer, of the same memory.
static void cut(fwa_case *c, const char *path, int dimension) {
    for (int i = 0; i < c->tensor_count; i++) {
        fwa_tensor *t = &c->tensors[i].tensor;
        if (strcmp(c->tensors[i].path, path) != 0) continue;
        int64_t shape[FWA_MAX_DIMS];
        memcpy(shape, t->shape, sizeof shape);
        shape[dimension]--;
        *t = fwa_tensor_nd(t->data, FWA_F64, t->ndim, shape);
    }
}

static void test_round_trip(void **state) {
    (void)state;
    fwa_case c, answer;
    load(&c, "falcon3a_carry");
    check_ok(fwa_case_write(&c, case_path));
    check_ok(run_op());
    check_ok(fwa_case_read(&answer, answer_path, fwa_op_attributes));
    assert_string_equal(answer.rule, "falcon3a");
    assert_int_equal(answer.number_count, c.number_count);
    int compared = 0;
    for (int i = 0; i < c.tensor_count; i++) {
        if (!strncmp(c.tensors[i].path, "in/", 3)) continue;
        check_close(fwa_case_tensor(&answer, c.tensors[i].path), c.tensors[i].tensor, 1e-12);
        compared++;
    }
    assert_int_equal(compared, answer.tensor_count);
    assert_int_equal(remove(answer_path), 0);
    fwa_case_free(&answer);
    fwa_case_free(&c);
}

// Without arriving gradients there is no grad/; documents may begin inside.
static void test_forward_alone(void **state) {
    (void)state;
    fwa_case c, answer;
    fwa_tensor reset;
    load(&c, "deltanet_basic");
    const fwa_tensor q = fwa_case_tensor(&c, "in/q");
    check_ok(fwa_case_add(&c, "in/reset", 2, q.shape, &reset));
    ((double *)reset.data)[5] = 1;
    rename_tensor(&c, "in/do", "out/do");
    rename_tensor(&c, "in/dS", "out/dS");
    check_ok(fwa_case_write(&c, case_path));
    check_ok(run_op());
    check_ok(fwa_case_read(&answer, answer_path, fwa_op_attributes));
    assert_int_equal(answer.tensor_count, 3); // o, S, k_last
    const fwa_tensor o = fwa_case_tensor(&answer, "out/o"), whole = fwa_case_tensor(&c, "out/o");
    const size_t row = (size_t)(o.shape[2] * o.shape[3]);
    const double *x = o.data, *y = whole.data;
    for (size_t i = 0; i < 5 * row; i++) assert_true(fabs(x[i] - y[i]) < 1e-12);
    double moved = 0;
    for (size_t i = 5 * row; i < 6 * row; i++) moved += fabs(x[i] - y[i]);
    assert_true(moved > 1e-3);
    assert_int_equal(remove(answer_path), 0);
    fwa_case_free(&answer);
    fwa_case_free(&c);
}

static void test_datasets(void **state) {
    (void)state;
    static const char *const inputs[] = {"in/q", "in/k", "in/v", "in/beta", "in/lambda"};
    fwa_case c;
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        load(&c, "falcon1_basic");
        rename_tensor(&c, inputs[i], "out/elsewhere");
        refused(&c, inputs[i], "missing");
        load(&c, "falcon1_basic");
        cut(&c, inputs[i], fwa_case_tensor(&c, inputs[i]).ndim - 1);
        refused(&c, "expected", "");
        load(&c, "falcon1_basic");
        set_value(&c, inputs[i], 3, (double)NAN);
        refused(&c, inputs[i], "nan");
        load(&c, "falcon1_basic");
        set_value(&c, inputs[i], 3, (double)INFINITY);
        refused(&c, inputs[i], "inf");
    }
    load(&c, "falcon1_basic");
    cut(&c, "in/beta", 1);
    refused(&c, "in/beta is [2, 36, 2] f64", "[2, 37, 2]");
    load(&c, "falcon1_basic");
    cut(&c, "in/do", 3);
    refused(&c, "in/do is", "expected");
    load(&c, "falcon1_basic");
    rename_tensor(&c, "in/lambda", "in/lamda");
    refused(&c, "in/lambda", "missing");
    load(&c, "deltanet_basic");
    rename_tensor(&c, "in/dS", "in/lambda");
    refused(&c, "in/lambda", "deltanet");
    load(&c, "deltanet_basic");
    rename_tensor(&c, "in/dS", "in/gates");
    refused(&c, "in/gates", "no such input");
    load(&c, "gated_deltanet_basic");
    rename_tensor(&c, "in/log_decay", "out/elsewhere");
    refused(&c, "in/log_decay", "missing");
}

static void test_ranges(void **state) {
    (void)state;
    fwa_case c;
    static const double outside[] = {0, 2, -0.5, 2.5};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        load(&c, i % 2 ? "deltanet_basic" : "falcon1_basic");
        set_value(&c, "in/beta", 77, outside[i]);
        refused(&c, "in/beta: element [1, 1, 1]", "(0, 2)");
    }
    load(&c, "falcon1_basic");
    set_value(&c, "in/lambda", 0, -1e-9);
    refused(&c, "in/lambda: element [0, 0, 0]", "at least 0");
    load(&c, "retnet_basic");
    set_value(&c, "in/log_decay", 0, 0.1);
    refused(&c, "in/log_decay: element [0, 0, 0] is 0.1", "at most 0");
    load(&c, "linear_attention_normalized_basic");
    set_value(&c, "in/k", 0, -0.1);
    refused(&c, "in/k: element [0, 0, 0, 0] is -0.1", "normalised read");
    fwa_tensor reset;
    load(&c, "falcon1_basic");
    check_ok(fwa_case_add(&c, "in/reset", 2, fwa_case_tensor(&c, "in/q").shape, &reset));
    set_value(&c, "in/reset", 1, 0.5);
    refused(&c, "in/reset: element [0, 1] is 0.5", "0 or 1");
    load(&c, "falcon1_direct_step");
    set_value(&c, "in/beta", 0, 2.5);
    check_ok(fwa_case_write(&c, case_path));
    check_ok(run_op());
    assert_int_equal(remove(answer_path), 0);
    fwa_case_free(&c);
}

static void test_attributes(void **state) {
    (void)state;
    fwa_case c;
    static const struct {
        const char *name, *attribute;
        double value;
        const char *expected;
    } bad[] = {
        {"falcon3a_basic", "window", 0, "at least 1"},    {"falcon3a_basic", "window", 1.5, "whole number"},
        {"falcon1_basic", "window", 4, "no window"},      {"falcon1_basic", "shift", 2, "0 or 1"},
        {"falcon1_basic", "eps", -1, "from 0"},           {"falcon1_basic", "eps_gamma", 1, "below 1"},
        {"falcon1_basic", "eta_max", (double)NAN, "nan"}, {"falcon1_basic", "normalized_read", 1, "falcon1"},
        {"deltanet_basic", "shift", 1, "deltanet"},       {"deltanet_basic", "direct_step", 0, "deltanet"},
        {"mamba2_basic", "window", 2, "mamba2"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        load(&c, bad[i].name);
        set_number(&c, bad[i].attribute, bad[i].value);
        char text[64];
        snprintf(text, sizeof text, "attribute %s is", bad[i].attribute);
        refused(&c, text, bad[i].expected);
    }
    load(&c, "falcon1_basic");
    snprintf(c.rule, sizeof c.rule, "falcon9");
    refused(&c, "attribute rule 'falcon9'", "no such rule");
}

static void test_states(void **state) {
    (void)state;
    fwa_case c;
    load(&c, "falcon3a_carry");
    rename_tensor(&c, "in/k_prev", "out/elsewhere");
    refused(&c, "in/k_prev is missing", "in/tail_x");
    load(&c, "falcon3a_carry");
    rename_tensor(&c, "in/tail_v", "out/elsewhere");
    refused(&c, "in/tail_v", "both or none");
    load(&c, "falcon3a_carry");
    set_number(&c, "window", 2);
    refused(&c, "in/tail_x", "window - 1 = 1");
    load(&c, "linear_attention_normalized_carry");
    rename_tensor(&c, "in/z0", "out/elsewhere");
    refused(&c, "in/z0", "both or none");
    load(&c, "falcon1_carry");
    cut(&c, "in/S0", 3);
    refused(&c, "in/S0 is", "expected [1, 2, 8, 12]");
    load(&c, "softmax_basic");
    rename_tensor(&c, "in/do", "in/S0");
    refused(&c, "in/S0", "softmax");
}

// A NaN in the first tensor that is compared outlives the finite errors after it.
static void test_nan_differs(void **state) {
    (void)state;
    char *argv[] = {"op", "--check", case_path, "--tolerance", "1e300", NULL};
    fwa_world world = {.rank = 0, .size = 1};
    fwa_case c;
    load(&c, "falcon1_basic");
    int first = 0;
    while (!strncmp(c.tensors[first].path, "in/", 3)) first++;
    ((double *)c.tensors[first].tensor.data)[0] = (double)NAN;
    check_ok(fwa_case_write(&c, case_path));
    check_status(fwa_cmd_op(&world, 5, argv), FWA_FAULTY);
    assert_non_null(strstr(fwa_error_message(), "1 of 1 case off"));
    fwa_case_free(&c);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, temp_teardown)

int main(void) {
    if (fwa_hdf5_start() != FWA_OK) return 1;
    const struct CMUnitTest tests[] = {
        TEST(test_round_trip), TEST(test_forward_alone), TEST(test_datasets),    TEST(test_ranges),
        TEST(test_attributes), TEST(test_states),        TEST(test_nan_differs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
