// The end of a step on CUDA against the CPU in f64: cross-entropy, its sum, the gradient norm, the step's scalars,
// AdamW.
#include "tests/gpu/device_ops.h"

#define AT(i) arg[i].at[side]

typedef struct loss_case {
    int64_t vocab;
    bool gradient;
} loss_case;

static void run_cross_entropy(const fwa_backend *on, argument *arg, int side, void *context) {
    const loss_case *c = context;
    check_ok(on->ops->cross_entropy(on->stream, AT(0), AT(1), AT(2), AT(3), c->vocab, c->gradient));
}

// Targets of -1: rows without a token.
static void check_cross_entropy(int64_t R, int64_t N, loss_case c, int layout, bool predict) {
    char title[120];
    if (!is_tried(R * N, layout)) return;
    snprintf(title, sizeof title, "cross_entropy R %d N %d vocab %d layout %d predict %d", (int)R, (int)N, (int)c.vocab,
             layout, predict);
    argument logits = sum_of(ACT, R, N, 0, 0, 1e-5, 0.005);
    logits.low = -8, logits.high = 8;
    if (!c.gradient) logits.role = INPUT;
    argument arg[] = {
        output_of(MST, R, 0, 0, 0, 1e-5, 1e-5),
        predict ? output_of(IDS, R, 0, 0, 0, 0, 0) : nothing(),
        in_rows(logits, layout),
        input_of(IDS, R, 0, 0, 0, -1, (double)c.vocab),
    };
    CHECK_OP(title, arg, run_cross_entropy, &c);
}

static void cross_entropy(void **state) {
    (void)state;
    const int64_t sizes[][3] = {{1, 1, 1},       {3, 5, 3},         {64, 100, 97},     {9, 1001, 1001},
                                {7, 1024, 1000}, {3, 50304, 50257}, {2, 70000, 70000}, {256, 50304, 50257}};
    for (int i = 0; i < 8; i++) {
        for (int l = 0; l < LAYOUTS; l++) {
            check_cross_entropy(sizes[i][0], sizes[i][1], (loss_case){sizes[i][2], true}, l, l == ODD_ROWS);
            check_cross_entropy(sizes[i][0], sizes[i][1], (loss_case){sizes[i][2], false}, l, true);
        }
    }
}

// More rows than run at once, and values so large and small that e^x alone would overflow.
static void extreme_logits_stay_finite(void **state) {
    (void)state;
    loss_case c = {300, true};
    const int64_t R = device_takes(3000 * 304) ? 3000 : 30;
    argument logits = sum_of(ACT, R, 304, 0, 0, 1e-5, 0.005);
    logits.low = -3000, logits.high = 3000;
    argument arg[] = {output_of(MST, R, 0, 0, 0, 1e-5, 1e-5), output_of(IDS, R, 0, 0, 0, 0, 0), logits,
                      input_of(IDS, R, 0, 0, 0, -1, 300)};
    CHECK_OP("cross_entropy of large logits", arg, run_cross_entropy, &c);
}

static void a_target_beyond_the_vocabulary_is_seen(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        fwa_backend *on = device[i];
        argument arg[] = {output_of(MST, 2, 0, 0, 0, 0, 0), input_of(ACT, 2, 16, 0, 0, -1, 1),
                          input_of(IDS, 2, 0, 0, 0, 9, 9.5)};
        for (int j = 0; j < 3; j++) argument_make(&arg[j], on, (uint64_t)j);
        check_ok(on->ops->cross_entropy(on->stream, arg[0].at[DEVICE], fwa_tensor_absent(), arg[1].at[DEVICE],
                                        arg[2].at[DEVICE], 9, true));
        fwa_tensor loss = device_read(on, arg[0].at[DEVICE]);
        assert_true(isnan(check_get(loss, 0)) && isnan(check_get(loss, 1)));
        for (int j = 0; j < 3; j++) device_release(on, arg[j].at[DEVICE], 0);
        check_release(NULL);
    }
}

static fwa_step_state *state_upload(fwa_backend *on, const fwa_step_state *host) {
    void *memory = NULL;
    check_ok(on->alloc(on, &memory, sizeof *host));
    check_ok(on->upload(on, on->stream, memory, host, sizeof *host));
    return memory;
}

static fwa_step_state state_take(fwa_backend *on, fwa_step_state *from) {
    fwa_step_state host;
    check_ok(on->download(on, on->stream, &host, from, sizeof host));
    check_ok(on->stream_synchronize(on, on->stream));
    on->free(on, from);
    return host;
}

static void assert_near(double got, double expected, double limit) {
    if (!(fabs(got - expected) <= limit * fabs(expected))) fail_msg("got %.17g, expected %.17g", got, expected);
}

// Sums go on from what stands in the state; twice the same input gives the same bits.
static void sums_of_a_step(void **unused) {
    (void)unused;
    const int64_t sizes[] = {1, 255, 1000, 65536, 3000001};
    for (int i = 0; i < 10; i++) {
        if (device_test_size() == TEST_SMALLEST && sizes[i / 2] > 1000) continue;
        fwa_backend *on = device[i % 2];
        argument arg[] = {input_of(MST, sizes[i / 2], 0, 0, 0, -1, 3), input_of(IDS, sizes[i / 2], 0, 0, 0, -1, 5)};
        argument_make(&arg[0], on, 0), argument_make(&arg[1], on, 1);
        fwa_step_state begin = {.loss_sum = 2, .valid = 3, .grad_square = 4}, expected = begin, got[2];
        check_ok(truth->ops->loss_accumulate(truth->stream, &expected, arg[0].at[TRUTH], arg[1].at[TRUTH]));
        check_ok(truth->ops->square_accumulate(truth->stream, &expected, arg[0].at[TRUTH]));
        for (int n = 0; n < 2; n++) {
            fwa_step_state *s = state_upload(on, &begin);
            check_ok(on->ops->loss_accumulate(on->stream, s, arg[0].at[DEVICE], arg[1].at[DEVICE]));
            check_ok(on->ops->square_accumulate(on->stream, s, arg[0].at[DEVICE]));
            got[n] = state_take(on, s);
        }
        assert_memory_equal(&got[0], &got[1], sizeof got[0]);
        assert_near(got[0].loss_sum, expected.loss_sum, 1e-12);
        assert_near(got[0].grad_square, expected.grad_square, 1e-12);
        assert_true(got[0].valid == expected.valid);
        device_release(on, arg[0].at[DEVICE], 0), device_release(on, arg[1].at[DEVICE], 0);
        check_release(NULL);
    }
}

static void the_end_of_a_step(void **unused) {
    (void)unused;
    const fwa_step_options options[] = {{1, 10, 3}, {0, 0, 0}, {1000, 2, 1}};
    const fwa_step_state states[] = {
        {.loss_sum = 30, .valid = 10, .grad_square = 1e4, .accepted = 7, .norm_mean = 9},
        {.loss_sum = 30, .valid = 10, .grad_square = 1e8, .accepted = 7, .norm_mean = 1, .skipped = 2},
        {.loss_sum = 30, .valid = 0, .grad_square = 1, .skipped_in_a_row = 1},
        {.loss_sum = (double)NAN, .valid = 10, .grad_square = 1},
        {.loss_sum = 1, .valid = 10, .grad_square = (double)INFINITY, .accepted = 100},
    };
    for (int i = 0; i < 30; i++) {
        fwa_backend *on = device[i % 2];
        fwa_step_state expected = states[i / 6];
        fwa_step_state *s = state_upload(on, &expected);
        check_ok(on->ops->step_finish(on->stream, s, &options[i / 2 % 3]));
        check_ok(truth->ops->step_finish(truth->stream, &expected, &options[i / 2 % 3]));
        fwa_step_state got = state_take(on, s);
        assert_int_equal(got.skip, expected.skip);
        assert_int_equal(got.accepted, expected.accepted);
        assert_int_equal(got.skipped, expected.skipped);
        assert_int_equal(got.skipped_in_a_row, expected.skipped_in_a_row);
        assert_near(got.grad_scale, expected.grad_scale, 1e-14);
        assert_near(got.norm_mean, expected.norm_mean, 1e-14);
        assert_true(got.loss == expected.loss || (isnan(got.loss) && isnan(expected.loss)));
    }
}

// The state of the truth, and of the device: made where the operator runs.
static void run_adamw(const fwa_backend *on, argument *arg, int side, void *context) {
    const fwa_adamw_options options = {.lr_scale = 0.5, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1};
    fwa_backend *backend = side == TRUTH ? truth : device[on->compute == FWA_BF16];
    fwa_step_state *s = state_upload(backend, context);
    check_ok(on->ops->adamw(on->stream, AT(0), AT(1), AT(2), AT(3), AT(4), &options, s));
    check_ok(backend->stream_synchronize(backend, backend->stream));
    backend->free(backend, s);
}

static void adamw(void **state) {
    (void)state;
    const int64_t sizes[] = {1, 3, 4, 1000, 1000003};
    for (int i = 0; i < 15; i++) {
        if (!device_takes(sizes[i / 3])) continue;
        fwa_step_state step = {.lr = 0.01, .grad_scale = 0.3, .accepted = 1 + 9 * (i % 3)};
        argument second = sum_of(MST, sizes[i / 3], 0, 0, 0, 1e-5, 1e-5);
        second.low = 0;
        argument arg[] = {
            moved(sum_of(MST, sizes[i / 3], 0, 0, 0, 1e-6, 1e-6), i % 3),
            moved(output_of(ACT, sizes[i / 3], 0, 0, 0, 1e-6, 0.003), i % 3),
            moved(input_of(MST, sizes[i / 3], 0, 0, 0, -1, 1), i % 3),
            moved(sum_of(MST, sizes[i / 3], 0, 0, 0, 1e-5, 1e-5), i % 3),
            moved(second, i % 3),
        };
        CHECK_OP("adamw", arg, run_adamw, &step);
        arg[1] = nothing();
        CHECK_OP("adamw without copy", arg, run_adamw, &step);
        step.skip = 1;
        arg[0].f32 = arg[0].bf16 = arg[3].f32 = arg[3].bf16 = arg[4].f32 = arg[4].bf16 = 0;
        CHECK_OP("adamw of a skipped step", arg, run_adamw, &step);
    }
}

// One tensor of a list: arguments as adamw's, in both the list's memory and that of single calls.
enum { PARTS = 6, TENSORS = 5 };
static const int64_t part_counts[PARTS] = {5, FWA_ADAMW_PIECE, 1, 3 * FWA_ADAMW_PIECE + 2, 130, 1000003};

static fwa_tensor part_tensor(fwa_backend *on, int part, int which) {
    const fwa_dtype type = which == 1 && part % 2 ? on->compute : FWA_F32;
    fwa_tensor host = check_new(FWA_F64, part_counts[part], 0, 0, 0);
    check_fill_uniform(host, (uint64_t)(TENSORS * part + which), which == 4 ? 0 : -1, 1);
    return device_from(on, host, type, part == 3 ? 1 : 0);
}

// Twice the same list: once by one call, once tensor by tensor. Bits agree, and a skipped step leaves all as it is.
static void a_list_gives_the_bits_of_its_tensors(void **unused) {
    (void)unused;
    const fwa_adamw_options options = {.lr_scale = 1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1};
    for (int d = 0; d < 2; d++) {
        fwa_backend *on = device[d];
        fwa_tensor list[PARTS][TENSORS], single[PARTS][TENSORS];
        fwa_adamw_part parts[PARTS];
        const int count = device_test_size() == TEST_SMALLEST ? PARTS - 1 : PARTS;
        fwa_step_state step = {.lr = 0.01, .grad_scale = 0.3, .accepted = 4};
        fwa_step_state *s = state_upload(on, &step);
        int64_t elements = 0;
        for (int i = 0; i < count; i++) {
            for (int j = 0; j < TENSORS; j++) list[i][j] = part_tensor(on, i, j), single[i][j] = part_tensor(on, i, j);
            fwa_tensor *t = list[i], *u = single[i];
            if (i == 4) t[1] = u[1] = fwa_tensor_absent();
            check_ok(fwa_adamw_part_make(&parts[i], i > 0 ? &parts[i - 1] : NULL, on->compute, t[0], t[1], t[2], t[3],
                                         t[4]));
            fwa_adamw_options own = options;
            own.lr_scale = parts[i].lr_scale = 1 + i;
            parts[i].decay = i % 2;
            own.decay = i % 2 ? options.decay : 0;
            check_ok(on->ops->adamw(on->stream, u[0], u[1], u[2], u[3], u[4], &own, s));
            elements += part_counts[i];
        }
        void *memory = NULL;
        const size_t bytes = (size_t)count * sizeof *parts;
        check_ok(on->alloc(on, &memory, bytes));
        check_ok(on->upload(on, on->stream, memory, parts, bytes));
        for (int pass = 0; pass < 2; pass++) { // the second one is skipped
            step.skip = pass;
            check_ok(on->upload(on, on->stream, s, &step, sizeof step));
            check_ok(
                on->ops->adamw_parts(on->stream, fwa_tensor_1d(memory, FWA_U8, (int64_t)bytes), elements, &options, s));
            for (int i = 0; i < count; i++)
                for (int j = 0; j < TENSORS; j++)
                    if (fwa_tensor_present(list[i][j]) &&
                        check_differences(device_read(on, list[i][j]), device_read(on, single[i][j])))
                        fail_msg("%s, part %d, tensor %d, pass %d: other bits", fwa_dtype_name(on->compute), i, j,
                                 pass);
        }
        for (int i = 0; i < count; i++)
            for (int j = 0; j < TENSORS; j++)
                if (fwa_tensor_present(list[i][j]))
                    device_release(on, list[i][j], i == 3), device_release(on, single[i][j], i == 3);
        on->free(on, memory), on->free(on, s);
        check_release(NULL);
    }
}

int main(void) {
    devices_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cross_entropy),
        cmocka_unit_test(extreme_logits_stay_finite),
        cmocka_unit_test(a_target_beyond_the_vocabulary_is_seen),
        cmocka_unit_test(sums_of_a_step),
        cmocka_unit_test(the_end_of_a_step),
        cmocka_unit_test(adamw),
        cmocka_unit_test(a_list_gives_the_bits_of_its_tensors),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    devices_close();
    return failed;
}
