// Operators on rows and heads on CUDA against the CPU in f64: gates, norms with gates, rotary embedding, embedding,
// conversion and sum.
#include "tests/gpu/device_ops.h"

#define OPS   on->ops
#define AT(i) arg[i].at[side]

// Limits of activations, of their gradients, and of sums kept in fp32.
#define VALUE 1e-5, 0.005
#define SLOPE 1e-5, 0.008
#define EXACT 1e-5, 1e-4

static void run_swiglu(const fwa_backend *on, argument *arg, int side, void *context) {
    (void)context;
    check_ok(OPS->swiglu_forward(on->stream, AT(0), AT(1)));
    check_ok(OPS->swiglu_backward(on->stream, AT(2), AT(3), AT(1)));
}

static void swiglu(void **state) {
    (void)state;
    const int64_t rows[] = {1, 3, 300, 4096}, columns[] = {1, 7, 64, 100, 2736};
    for (int i = 0; i < 20; i++) {
        const int64_t R = rows[i / 5], F = columns[i % 5];
        for (int l = 0; l < LAYOUTS; l++) {
            if (!is_tried(2 * R * F, l)) continue;
            argument arg[] = {
                in_rows(output_of(ACT, R, F, 0, 0, VALUE), l),
                in_rows(input_of(ACT, R, 2 * F, 0, 0, -6, 6), l),
                in_rows(output_of(ACT, R, 2 * F, 0, 0, SLOPE), l),
                in_rows(input_of(ACT, R, F, 0, 0, -1, 1), l),
            };
            CHECK_OP("swiglu", arg, run_swiglu, NULL);
        }
    }
}

static void run_head_norm_gate(const fwa_backend *on, argument *arg, int side, void *context) {
    (void)context;
    check_ok(OPS->head_norm_gate_forward(on->stream, AT(0), AT(1), AT(2), AT(3), AT(4), 1e-5));
    check_ok(OPS->head_norm_gate_backward(on->stream, AT(5), AT(6), AT(7), AT(8), AT(2), AT(1), AT(3), AT(4)));
}

static void head_norm_gate(void **state) {
    (void)state;
    const int64_t shapes[][3] = {{1, 1, 2},    {3, 2, 7},     {100, 6, 128},  {33, 3, 100},   {5, 1, 1000},
                                 {7, 2, 8192}, {4000, 6, 64}, {4096, 6, 128}, {4096, 12, 64}, {9, 6, 128},
                                 {50, 8, 128}, {900, 24, 64}, {40, 3, 256},   {60, 5, 8}};
    for (int i = 0; i < 14; i++) {
        const int64_t R = shapes[i][0], H = shapes[i][1], V = shapes[i][2];
        for (int l = 0; l < LAYOUTS; l++) {
            if (!is_tried(R * H * V, l)) continue;
            argument arg[] = {
                in_rows(output_of(ACT, R, H * V, 0, 0, VALUE), l),
                output_of(MST, R, H, 0, 0, EXACT),
                moved(input_of(ACT, R, H, V, 0, -2, 2), l),
                input_of(MST, V, 0, 0, 0, 0.5, 1.5),
                in_rows(input_of(ACT, R, H * V, 0, 0, -5, 5), l),
                moved(output_of(ACT, R, H, V, 0, SLOPE), l),
                sum_of(MST, V, 0, 0, 0, EXACT),
                in_rows(output_of(ACT, R, H * V, 0, 0, SLOPE), l),
                in_rows(input_of(ACT, R, H * V, 0, 0, -1, 1), l),
            };
            CHECK_OP("head_norm_gate", arg, run_head_norm_gate, NULL);
            arg[4] = arg[7] = nothing();
            CHECK_OP("head_norm_gate without gate", arg, run_head_norm_gate, NULL);
        }
    }
}

static void run_sigmoid_gate(const fwa_backend *on, argument *arg, int side, void *context) {
    (void)context;
    check_ok(OPS->sigmoid_gate_forward(on->stream, AT(0), AT(1), AT(2), 2.0));
    check_ok(OPS->sigmoid_gate_backward(on->stream, AT(3), AT(4), AT(5), AT(0), 2.0));
}

static void run_decay_gate(const fwa_backend *on, argument *arg, int side, void *context) {
    (void)context;
    check_ok(OPS->decay_gate_forward(on->stream, AT(0), AT(1), AT(2), AT(3), AT(4)));
    check_ok(OPS->decay_gate_backward(on->stream, AT(5), AT(6), AT(7), AT(8), AT(9), AT(1), AT(3)));
}

static void gates(void **state) {
    (void)state;
    const int64_t rows[] = {1, 33, 4096, 20000}, heads[] = {1, 6, 12, 24, 33, 100};
    for (int i = 0; i < 24; i++) {
        const int64_t R = rows[i / 6], H = heads[i % 6];
        for (int l = 0; l < LAYOUTS; l++) {
            if (!is_tried(R * H, l)) continue;
            argument sigmoid[] = {
                output_of(MST, R, H, 0, 0, EXACT), in_rows(input_of(ACT, R, H, 0, 0, -4, 4), l),
                input_of(MST, H, 0, 0, 0, -1, 1),  in_rows(output_of(ACT, R, H, 0, 0, SLOPE), l),
                sum_of(MST, H, 0, 0, 0, EXACT),    input_of(MST, R, H, 0, 0, -1, 1),
            };
            CHECK_OP("sigmoid_gate", sigmoid, run_sigmoid_gate, NULL);
            sigmoid[1] = sigmoid[3] = nothing();
            CHECK_OP("sigmoid_gate of a bias alone", sigmoid, run_sigmoid_gate, NULL);
            argument decay[] = {
                output_of(MST, R, H, 0, 0, EXACT),
                output_of(MST, R, H, 0, 0, EXACT),
                in_rows(input_of(ACT, R, H, 0, 0, -6, 6), l),
                input_of(MST, H, 0, 0, 0, 0, 2.7),
                input_of(MST, H, 0, 0, 0, -7, -1),
                in_rows(output_of(ACT, R, H, 0, 0, SLOPE), l),
                sum_of(MST, H, 0, 0, 0, EXACT),
                sum_of(MST, H, 0, 0, 0, EXACT),
                input_of(MST, R, H, 0, 0, -1, 1),
                input_of(MST, R, H, 0, 0, -1, 1),
            };
            CHECK_OP("decay_gate", decay, run_decay_gate, NULL);
            decay[9] = nothing();
            CHECK_OP("decay_gate without ddelta", decay, run_decay_gate, NULL);
        }
    }
}

static void run_decay_fill(const fwa_backend *on, argument *arg, int side, void *context) {
    check_ok(OPS->decay_fill(on->stream, AT(0), *(fwa_decay *)context, 0.7));
}

static void constant_decays(void **state) {
    (void)state;
    for (int64_t H = 1; H < 40; H += 19) {
        fwa_decay decays[] = {FWA_DECAY_RETNET, FWA_DECAY_LIGHTNING};
        for (int i = 0; i < 2; i++) {
            argument arg[] = {in_rows(output_of(MST, 77, H, 0, 0, 1e-6, 1e-6), ODD_ROWS)};
            CHECK_OP("decay_fill", arg, run_decay_fill, &decays[i]);
        }
    }
}

static void run_value_scale(const fwa_backend *on, argument *arg, int side, void *context) {
    (void)context;
    check_ok(OPS->value_scale_forward(on->stream, AT(0), AT(1), AT(2)));
    check_ok(OPS->value_scale_backward(on->stream, AT(3), AT(4), AT(5), AT(1), AT(2)));
}

static void value_scale(void **state) {
    (void)state;
    const int64_t shapes[][3] = {{1, 1, 1}, {3, 2, 7}, {100, 24, 64}, {33, 3, 100}, {5, 1, 1000}, {4096, 24, 64}};
    for (int i = 0; i < 6; i++) {
        const int64_t R = shapes[i][0], H = shapes[i][1], V = shapes[i][2];
        for (int l = 0; l < LAYOUTS; l++) {
            if (!is_tried(R * H * V, l)) continue;
            argument arg[] = {
                moved(output_of(ACT, R, H, V, 0, VALUE), l), moved(input_of(ACT, R, H, V, 0, -2, 2), l),
                input_of(MST, R, H, 0, 0, 0.01, 1),          moved(sum_of(ACT, R, H, V, 0, SLOPE), l),
                output_of(MST, R, H, 0, 0, EXACT),           moved(input_of(ACT, R, H, V, 0, -1, 1), l),
            };
            CHECK_OP("value_scale", arg, run_value_scale, NULL);
        }
    }
}

static void run_skip_gate_norm(const fwa_backend *on, argument *arg, int side, void *context) {
    (void)context;
    check_ok(OPS->skip_gate_norm_forward(on->stream, AT(0), AT(1), AT(2), AT(3), AT(4), AT(5), AT(6), 1e-5));
    check_ok(OPS->skip_gate_norm_backward(on->stream, AT(7), AT(8), AT(9), AT(10), AT(11), AT(12), AT(2), AT(3), AT(4),
                                          AT(1), AT(5), AT(6)));
}

static void skip_gate_norm(void **state) {
    (void)state;
    const int64_t shapes[][3] = {{1, 1, 2},      {3, 2, 7},     {9, 24, 64},    {100, 24, 64}, {33, 3, 100},
                                 {3, 7, 1000},   {3000, 4, 32}, {4096, 24, 64}, {700, 8, 128}, {33, 3, 128},
                                 {300, 16, 256}, {40, 16, 256}, {60000, 2, 8}};
    for (int i = 0; i < 13; i++) {
        const int64_t R = shapes[i][0], H = shapes[i][1], V = shapes[i][2];
        for (int l = 0; l < LAYOUTS; l++) {
            if (!is_tried(R * H * V, l)) continue;
            argument arg[] = {
                in_rows(output_of(ACT, R, H * V, 0, 0, VALUE), l),
                output_of(MST, R, 0, 0, 0, EXACT),
                moved(input_of(ACT, R, H, V, 0, -2, 2), l),
                moved(input_of(ACT, R, H, V, 0, -1, 1), l),
                input_of(MST, H, 0, 0, 0, 0.5, 1.5),
                input_of(MST, H * V, 0, 0, 0, 0.5, 1.5),
                in_rows(input_of(ACT, R, H * V, 0, 0, -5, 5), l),
                moved(output_of(ACT, R, H, V, 0, SLOPE), l),
                moved(output_of(ACT, R, H, V, 0, SLOPE), l),
                sum_of(MST, H, 0, 0, 0, EXACT),
                sum_of(MST, H * V, 0, 0, 0, EXACT),
                in_rows(output_of(ACT, R, H * V, 0, 0, SLOPE), l),
                in_rows(input_of(ACT, R, H * V, 0, 0, -1, 1), l),
            };
            CHECK_OP("skip_gate_norm", arg, run_skip_gate_norm, NULL);
            arg[6] = arg[11] = nothing();
            CHECK_OP("skip_gate_norm without gate", arg, run_skip_gate_norm, NULL);
        }
    }
}

typedef struct turn {
    int64_t position;
    bool inverse;
} turn;

// Into another tensor, then in place.
static void run_rotary(const fwa_backend *on, argument *arg, int side, void *context) {
    const turn *t = context;
    check_ok(OPS->rotary(on->stream, AT(0), AT(1), t->position, 10000.0, t->inverse));
    check_ok(OPS->rotary(on->stream, AT(2), AT(2), t->position, 10000.0, t->inverse));
}

static void rotary(void **state) {
    (void)state;
    const int64_t shapes[][4] = {{1, 1, 1, 2},   {2, 5, 3, 6},    {2, 7, 6, 128},    {2, 100, 6, 128},
                                 {3, 65, 2, 96}, {1, 3, 1, 1000}, {4, 1024, 6, 128}, {4, 1024, 12, 64}};
    for (int i = 0; i < 8; i++) {
        const int64_t B = shapes[i][0], T = shapes[i][1], H = shapes[i][2], K = shapes[i][3];
        for (int l = 0; l < LAYOUTS; l++) {
            if (!is_tried(B * T * H * K, l)) continue;
            turn t = {l == DENSE ? 0 : 1000003, l == ALIGNED_ROWS};
            argument arg[] = {
                in_rows(output_of(ACT, B, T, H, K, VALUE), l),
                in_rows(input_of(ACT, B, T, H, K, -2, 2), l),
                in_rows(sum_of(ACT, B, T, H, K, VALUE), l),
            };
            CHECK_OP("rotary", arg, run_rotary, &t);
        }
    }
}

static void run_embedding(const fwa_backend *on, argument *arg, int side, void *context) {
    (void)context;
    check_ok(OPS->embedding_forward(on->stream, AT(0), AT(1), AT(2)));
    check_ok(OPS->embedding_backward(on->stream, AT(3), AT(4), AT(2)));
    check_ok(OPS->document_starts(on->stream, AT(5), AT(2), 0));
}

// Few distinct tokens make runs over many pieces; many rows are sorted in several calls.
static void embedding(void **state) {
    (void)state;
    const int64_t shapes[][3] = {{1, 1, 1},         {70, 1, 5},       {100, 3, 64},    {1000, 3, 64},
                                 {5000, 2000, 100}, {333, 50304, 24}, {140000, 9, 16}, {4096, 50304, 64}};
    for (int i = 0; i < 8; i++) {
        const int64_t R = shapes[i][0], N = shapes[i][1], D = shapes[i][2];
        for (int l = 0; l < LAYOUTS; l++) {
            if (!is_tried(R > N ? R * D : N * D, l)) continue;
            argument arg[] = {
                in_rows(output_of(ACT, R, D, 0, 0, 1e-7, 1e-7), l),
                in_rows(input_of(ACT, N, D, 0, 0, -1, 1), l),
                input_of(IDS, R, 0, 0, 0, 0, (double)N),
                in_rows(sum_of(MST, N, D, 0, 0, EXACT), l),
                in_rows(input_of(ACT, R, D, 0, 0, -1, 1), l),
                output_of(BYTES, R, 0, 0, 0, 0, 0),
            };
            CHECK_OP("embedding", arg, run_embedding, NULL);
        }
    }
}

static void run_halo_mask(const fwa_backend *on, argument *arg, int side, void *context) {
    (void)context;
    check_ok(OPS->halo_mask(on->stream, AT(0), AT(1)));
}

static void halo_mask(void **state) {
    (void)state;
    const int64_t shapes[][3] = {{1, 1, 1}, {2, 3, 5}, {3, 7, 300}, {1, 3, 2304}};
    for (int i = 0; i < 4; i++) {
        const int64_t B = shapes[i][0], n = shapes[i][1], C = shapes[i][2];
        for (int l = 0; l < LAYOUTS; l++) {
            argument arg[] = {in_rows(sum_of(ACT, B, n, C, 0, EXACT), l), input_of(BYTES, B, n, 0, 0, 0, 1.4)};
            CHECK_OP("halo mask", arg, run_halo_mask, NULL);
        }
    }
}

// A token outside the table: its row is NaN, its gradient goes nowhere.
static void unknown_tokens_are_seen(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        fwa_backend *on = device[i];
        argument arg[] = {output_of(ACT, 3, 8, 0, 0, 0, 0), input_of(ACT, 4, 8, 0, 0, -1, 1),
                          input_of(IDS, 3, 0, 0, 0, 1, 2), sum_of(MST, 4, 8, 0, 0, 0, 0),
                          input_of(ACT, 3, 8, 0, 0, 1, 2)};
        for (int j = 0; j < 5; j++) argument_make(&arg[j], on, (uint64_t)j);
        const int32_t tokens[] = {-1, 3, 4};
        fwa_tensor before = device_read(on, arg[3].at[DEVICE]);
        check_ok(on->upload(on, on->stream, arg[2].at[DEVICE].data, tokens, sizeof tokens));
        check_ok(on->ops->embedding_forward(on->stream, arg[0].at[DEVICE], arg[1].at[DEVICE], arg[2].at[DEVICE]));
        check_ok(on->ops->embedding_backward(on->stream, arg[3].at[DEVICE], arg[4].at[DEVICE], arg[2].at[DEVICE]));
        fwa_tensor y = device_read(on, arg[0].at[DEVICE]), dw = device_read(on, arg[3].at[DEVICE]);
        assert_true(isnan(check_get(y, 0)) && !isnan(check_get(y, 8)) && isnan(check_get(y, 16)));
        for (int64_t at = 0; at < 32; at++) assert_int_equal(check_get(dw, at) != check_get(before, at), at >= 24);
        for (int j = 0; j < 5; j++) device_release(on, arg[j].at[DEVICE], 0);
        check_release(NULL);
    }
}

static void run_elementwise(const fwa_backend *on, argument *arg, int side, void *context) {
    (void)context;
    check_ok(OPS->cast(on->stream, AT(0), AT(1)));
    check_ok(OPS->cast(on->stream, AT(2), AT(3)));
    check_ok(OPS->cast(on->stream, AT(4), AT(1)));
    check_ok(OPS->add(on->stream, AT(5), AT(3)));
}

static void elementwise(void **state) {
    (void)state;
    const int64_t sizes[] = {1, 7, 8, 2003, 100000, 100003};
    for (int i = 0; i < 6; i++) {
        for (int l = 0; l < LAYOUTS; l++) {
            if (!is_tried(sizes[i], l)) continue;
            argument arg[] = {
                moved(output_of(MST, sizes[i], 0, 0, 0, 1e-7, 1e-7), l),
                moved(input_of(ACT, sizes[i], 0, 0, 0, -9, 9), l),
                moved(output_of(ACT, sizes[i], 0, 0, 0, 1e-7, 0.003), l),
                moved(input_of(MST, sizes[i], 0, 0, 0, -9, 9), l),
                moved(output_of(ACT, sizes[i], 0, 0, 0, 1e-7, 1e-7), l),
                moved(sum_of(MST, sizes[i], 0, 0, 0, EXACT), l),
            };
            CHECK_OP("cast, add", arg, run_elementwise, NULL);
        }
    }
}

int main(void) {
    devices_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(swiglu),          cmocka_unit_test(head_norm_gate), cmocka_unit_test(gates),
        cmocka_unit_test(constant_decays), cmocka_unit_test(rotary),         cmocka_unit_test(value_scale),
        cmocka_unit_test(halo_mask),       cmocka_unit_test(embedding),      cmocka_unit_test(unknown_tokens_are_seen),
        cmocka_unit_test(elementwise),     cmocka_unit_test(skip_gate_norm),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    devices_close();
    return failed;
}
