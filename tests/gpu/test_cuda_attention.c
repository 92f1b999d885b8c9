// The kernels of causal softmax attention on CUDA in bf16, each alone by its name and as they are chosen, against the
// CPU in f64 on the same rounded inputs: lengths around blocks, keys in front of the sequence, heads of 64 and 128,
// shared heads, documents, extreme scores, packed rows, the same bits every time, gradients left out. What is compared
// was NaN before. What a kernel does not take the general one does, which shows in what it saves.
#include "tests/gpu/device_mixer.h"

static fwa_backend *device;

// One test: a call, and what is special about its inputs.
typedef struct attention_case {
    fwa_mixer_shape shape;
    bool documents;
    double scores;   // spread of q and k, so that scores reach scores^2 sqrt(K)
    int64_t earlier; // keys in front of the sequence
} attention_case;

static const attention_case cases[] = {
    {{2, 1, 2, 2, 128, 128}, false, 1, 0},    {{2, 2, 2, 2, 64, 64}, false, 1, 0},
    {{1, 63, 3, 3, 128, 128}, false, 1, 0},   {{2, 64, 2, 2, 64, 64}, false, 1, 0},
    {{2, 65, 2, 2, 128, 128}, false, 1, 0},   {{1, 127, 2, 2, 64, 64}, false, 1, 0},
    {{1, 129, 2, 2, 128, 128}, false, 1, 0},  {{2, 300, 12, 12, 64, 64}, false, 1, 0},
    {{1, 1000, 6, 6, 128, 128}, false, 1, 0}, {{3, 1024, 6, 6, 128, 128}, false, 1, 0},
    {{1, 1024, 12, 12, 64, 64}, false, 1, 0}, {{2, 200, 2, 6, 128, 128}, false, 1, 0},
    {{2, 200, 1, 4, 64, 64}, false, 1, 0},    {{2, 400, 2, 2, 128, 128}, true, 1, 0},
    {{2, 400, 2, 2, 64, 64}, true, 1, 0},     {{1, 320, 2, 2, 128, 128}, false, 6, 0},
    {{1, 320, 2, 2, 64, 64}, false, 6, 0},    {{2, 300, 4, 4, 96, 96}, false, 1, 0},
    {{2, 65, 3, 3, 16, 16}, false, 1, 0},     {{2, 256, 2, 2, 128, 64}, false, 1, 0},
    {{2, 130, 3, 3, 40, 72}, false, 1, 0},    {{2, 70, 2, 2, 8, 8}, false, 1, 0},
    {{3, 200, 2, 2, 20, 20}, false, 1, 0},
};

static const attention_case cut_cases[] = {
    {{1, 33, 1, 1, 64, 64}, false, 1, 40},     {{1, 35, 1, 1, 128, 128}, false, 1, 30},
    {{2, 65, 2, 2, 64, 64}, false, 1, 3},      {{1, 20, 1, 2, 64, 64}, true, 1, 70},
    {{1, 128, 3, 3, 128, 128}, false, 1, 128}, {{1, 300, 12, 12, 64, 64}, false, 1, 1000},
    {{2, 1, 1, 1, 128, 128}, false, 1, 129},   {{2, 200, 6, 6, 128, 128}, false, 1, 383},
    {{1, 640, 2, 2, 64, 64}, false, 1, 640},   {{2, 200, 2, 6, 128, 128}, false, 1, 70},
    {{2, 150, 1, 4, 64, 64}, false, 1, 129},   {{2, 300, 2, 2, 128, 128}, true, 1, 250},
    {{2, 300, 2, 2, 64, 64}, true, 1, 250},    {{1, 320, 2, 2, 128, 128}, false, 2, 190},
    {{1, 320, 2, 2, 64, 64}, false, 2, 190},   {{1, 100, 2, 2, 128, 128}, false, 1, 900},
    {{2, 70, 2, 2, 40, 72}, false, 1, 100},
};

enum { GRADIENTS = 5 };

static double size_of(fwa_tensor t) {
    double sum = 0;
    for (int64_t i = 0; i < fwa_tensor_count(t); i++) sum += check_get(t, i) * check_get(t, i);
    return sqrt(sum / (double)fwa_tensor_count(t));
}

static mixer_case filled(const attention_case *a, uint64_t seed) {
    const fwa_rule *rule = fwa_rule_find("softmax");
    case_spec spec = {.rule = rule, .options = fwa_mixer_options_default(rule), .shape = a->shape, .dtype = FWA_F64};
    spec.form = FWA_FORM_CHUNK;
    spec.threads = 8;
    spec.reset = a->documents;
    spec.tail = a->earlier;
    spec.act_tail = true;
    mixer_case c = case_new(&spec);
    case_fill(&c, seed);
    for (int64_t i = 0; i < fwa_tensor_count(c.call.q); i++) {
        check_set(c.call.q, i, a->scores * check_get(c.call.q, i));
        check_set(c.call.k, i, a->scores * check_get(c.call.k, i));
    }
    for (int64_t i = 0; a->earlier && i < fwa_tensor_count(c.call.in.tail_x); i++)
        check_set(c.call.in.tail_x, i, a->scores * check_get(c.call.in.tail_x, i));
    for (int64_t t = 0; a->documents && t < a->shape.B * a->shape.T; t += 29 + t % 83)
        if (t % a->shape.T > 60 || a->earlier == 0) check_set(c.call.reset, t, 1); // the first queries see earlier keys
    for (int64_t t = 40; a->documents && t < a->shape.B * a->earlier; t += 61) check_set(c.call.tail_reset, t, 1);
    return c;
}

// What attention.cuh's kernels say they take.
static bool is_taken(const char *kernel, const attention_case *a) {
    const fwa_mixer_shape *s = &a->shape;
    if (!strcmp(kernel, "cudnn"))
        return fwa_backend_cudnn() && !a->documents && a->earlier == 0 && s->H == s->Hq && s->K % 8 == 0 &&
               s->V % 8 == 0;
    const bool flash = s->K == s->V && (s->K == 64 || s->K == 128);
    if (!strcmp(kernel, "flash")) return flash;
    if (!strcmp(kernel, "")) return flash || is_taken("cudnn", a);
    return false;
}

// All but the general kernel save lse [B,H,T] alone.
static void expect_kernel(const device_mixer *d, const char *kernel, const attention_case *a) {
    const fwa_mixer_shape *s = &a->shape;
    const bool ran = fwa_tensor_bytes(d->copy.call.saved) == (size_t)(s->B * s->H * s->T) * sizeof(float);
    if (ran != is_taken(kernel, a))
        fail_msg("%s %s T %d H %d K %d V %d, documents %d, earlier %d", kernel, ran ? "takes" : "does not take",
                 (int)s->T, (int)s->H, (int)s->K, (int)s->V, a->documents, (int)a->earlier);
}

static double compare(const device_mixer *d, const attention_case *a, const char *kernel, const char *name,
                      fwa_tensor got, fwa_tensor expected) {
    const double limit = name[0] == 'o' ? 0.005 : 0.008;
    const fwa_tensor read = device_read(d->cuda, got);
    double error = check_error(read, expected);
    if (size_of(expected) < 1e-12) error = size_of(read) * 1e3; // a query that sees one row has no gradient
    if (!(error <= limit))
        fail_msg("%s: %s, B %d T %d Hq %d H %d K %d, documents %d, scores %g, earlier %d: error %.3g, limit %.3g",
                 kernel, name, (int)a->shape.B, (int)a->shape.T, (int)a->shape.Hq, (int)a->shape.H, (int)a->shape.K,
                 a->documents, a->scores, (int)a->earlier, error, limit);
    return error / limit;
}

static void run_case(const attention_case *a, const char *kernel, mixer_case *c, double *worst) {
    device_mixer d = device_mixer_new(device, c, FWA_FORM_CHUNK);
    expect_kernel(&d, kernel, a);
    device_mixer_forward(&d);
    device_mixer_backward(&d);
    const struct {
        const char *name;
        fwa_tensor got, expected;
    } all[] = {{"o", d.copy.call.o, c->call.o},
               {"dq", d.copy.grads.dq, c->grads.dq},
               {"dk", d.copy.grads.dk, c->grads.dk},
               {"dv", d.copy.grads.dv, c->grads.dv},
               {"dtail_x", d.copy.grads.d_in.tail_x, c->grads.d_in.tail_x},
               {"dtail_v", d.copy.grads.d_in.tail_v, c->grads.d_in.tail_v}};
    for (int i = 0; i < (a->earlier ? GRADIENTS + 1 : 4); i++) {
        const double error = compare(&d, a, kernel, all[i].name, all[i].got, all[i].expected);
        if (error > worst[i]) worst[i] = error;
    }
    device_mixer_release(&d);
}

static const char *choose(void **state) {
    const char *kernel = *state;
    if (setenv("FWA_ATTENTION", kernel, 1) != 0) fail();
    return kernel;
}

static void run_cases(void **state, const attention_case *list, size_t count) {
    const char *kernel = choose(state);
    double worst[GRADIENTS + 1] = {0};
    const size_t step = device_test_size() == TEST_SMALLEST ? 3 : 1;
    for (size_t i = 0; i < count; i += step) {
        const fwa_mixer_shape *size = &list[i].shape;
        if (!device_takes(size->B * (size->T + list[i].earlier) * size->H * size->V)) continue;
        mixer_case c = filled(&list[i], i);
        device_mixer rounded = device_mixer_new(device, &c, FWA_FORM_CHUNK); // inputs are bf16 from here on
        device_mixer_release(&rounded);
        case_run(&c);
        run_case(&list[i], kernel, &c, worst);
        case_free(&c);
        check_release(NULL);
    }
    print_message(
        "%s: worst o %.2f, dq %.2f, dk %.2f, dv %.2f, of earlier keys and values %.2f and %.2f of the limit\n", kernel,
        worst[0], worst[1], worst[2], worst[3], worst[4], worst[5]);
}

static void agrees_with_the_cpu(void **state) {
    run_cases(state, cases, sizeof cases / sizeof cases[0]);
}

static void earlier_keys_agree_with_the_cpu(void **state) {
    run_cases(state, cut_cases, sizeof cut_cases / sizeof cut_cases[0]);
}

static void repeats_give_the_same_bits(void **state) {
    choose(state);
    for (int64_t earlier = 0; earlier <= 200; earlier += 200) {
        const attention_case a = {
            {3, device_test_size() == TEST_SMALLEST ? 70 : 500, 4, 4, 128, 128}, false, 1, earlier};
        mixer_case c = filled(&a, 3);
        device_mixer d = device_mixer_new(device, &c, FWA_FORM_CHUNK);
        device_mixer_repeat(&d, 4);
        device_mixer_release(&d);
        case_free(&c);
    }
}

// The same queries, keys and values as one sequence and as two pieces: o and the gradients of the second piece are
// bit by bit those of the whole where the first is of whole blocks.
static void a_piece_is_the_end_of_the_whole(void **state) {
    enum { B = 2, N = 256, T = 150, H = 3, K = 64 };
    const attention_case whole = {{B, N + T, H, H, K, K}, false, 1, 0}, piece = {{B, T, H, H, K, K}, false, 1, N};
    choose(state);
    mixer_case c = filled(&whole, 9), p = filled(&piece, 9);
    check_copy(p.call.in.tail_x, fwa_tensor_slice(c.call.k, 1, 0, N));
    check_copy(p.call.in.tail_v, fwa_tensor_slice(c.call.v, 1, 0, N));
    const fwa_tensor from[] = {c.call.q, c.call.k, c.call.v, c.grads.d_o};
    const fwa_tensor to[] = {p.call.q, p.call.k, p.call.v, p.grads.d_o};
    for (int i = 0; i < 4; i++) check_copy(to[i], fwa_tensor_slice(from[i], 1, N, T));
    device_mixer d = device_mixer_new(device, &c, FWA_FORM_CHUNK), e = device_mixer_new(device, &p, FWA_FORM_CHUNK);
    device_mixer_forward(&d);
    device_mixer_backward(&d);
    device_mixer_forward(&e);
    device_mixer_backward(&e);
    const fwa_tensor all[] = {d.copy.call.o, d.copy.grads.dq, d.copy.grads.dk, d.copy.grads.dv};
    const fwa_tensor end[] = {e.copy.call.o, e.copy.grads.dq, e.copy.grads.dk, e.copy.grads.dv};
    for (int i = 0; i < 4; i++)
        assert_int_equal(
            check_differences(device_read(device, end[i]), fwa_tensor_slice(device_read(device, all[i]), 1, N, T)), 0);
    device_mixer_release(&d);
    device_mixer_release(&e);
    case_free(&c);
    case_free(&p);
}

// q, k, v and their gradients as columns of packed projections: the bits of dense tensors, nothing beside them written.
static void packed_rows_are_read_and_written(void **state) {
    enum { B = 2, T = 150 };
    const attention_case a = {{B, T, 3, 3, 64, 64}, false, 1, 0};
    choose(state);
    mixer_case c = filled(&a, 4);
    device_mixer dense = device_mixer_new(device, &c, FWA_FORM_CHUNK);
    device_mixer_forward(&dense);
    device_mixer_backward(&dense);
    mixer_case packed = c;
    fwa_tensor *views[] = {&packed.call.q,   &packed.call.k,   &packed.call.v,   &packed.call.o,
                           &packed.grads.dq, &packed.grads.dk, &packed.grads.dv, &packed.grads.d_o};
    for (int i = 0; i < 8; i++) {
        const fwa_tensor from = *views[i];
        *views[i] = fwa_tensor_as_4d(check_new_strided(FWA_F64, B, T, 3 * 64, 8, 16), B, T, 3, 64);
        check_copy(*views[i], from);
    }
    device_mixer d = device_mixer_new(device, &packed, FWA_FORM_CHUNK);
    check_ok(d.mixer->forward(d.cuda, d.cuda->stream, &d.copy.call));
    check_ok(d.mixer->backward(d.cuda, d.cuda->stream, &d.copy.call, &d.copy.grads));
    const fwa_tensor got[] = {d.copy.call.o, d.copy.grads.dq, d.copy.grads.dk, d.copy.grads.dv};
    const fwa_tensor expected[] = {dense.copy.call.o, dense.copy.grads.dq, dense.copy.grads.dk, dense.copy.grads.dv};
    for (int i = 0; i < 4; i++) {
        const fwa_tensor image = device_read(d.cuda, got[i]);
        assert_int_equal(check_differences(image, device_read(d.cuda, expected[i])), 0);
        check_margins(fwa_tensor_slice(fwa_tensor_as_3d(image, B, T, 3 * 64), 1, 0, T - 1), 0, 24);
    }
    device_mixer_release(&dense);
    device_mixer_release(&d);
    case_free(&c);
}

// A pass that saves nothing gives the same o.
static void saving_changes_nothing(void **state) {
    const attention_case a = {{2, 700, 3, 3, 64, 64}, false, 1, strcmp(choose(state), "cudnn") ? 300 : 0};
    mixer_case c = filled(&a, 5);
    device_mixer d = device_mixer_new(device, &c, FWA_FORM_CHUNK);
    device_mixer_forward(&d);
    const fwa_tensor o = device_read(device, d.copy.call.o);
    d.copy.call.save = false;
    device_mixer_forward(&d);
    assert_int_equal(check_differences(device_read(device, d.copy.call.o), o), 0);
    device_mixer_release(&d);
    case_free(&c);
}

// dq alone is what it is among the others, and without d_o all gradients are zero.
static void gradients_may_be_left_out(void **state) {
    const attention_case a = {{2, 96, 2, 2, 64, 64}, false, 1, strcmp(choose(state), "cudnn") ? 300 : 0};
    mixer_case c = filled(&a, 6);
    device_mixer d = device_mixer_new(device, &c, FWA_FORM_CHUNK);
    const fwa_mixer_grads all = d.copy.grads;
    device_mixer_forward(&d);
    device_mixer_backward(&d);
    const fwa_tensor dq = device_read(device, all.dq);
    d.copy.grads.dk = d.copy.grads.dv = fwa_tensor_absent();
    d.copy.grads.d_in.tail_x = d.copy.grads.d_in.tail_v = fwa_tensor_absent();
    device_mixer_backward(&d);
    assert_int_equal(check_differences(device_read(device, all.dq), dq), 0);
    d.copy.grads = all;
    d.copy.grads.d_o = fwa_tensor_absent();
    device_mixer_backward(&d);
    assert_true(size_of(device_read(device, all.dq)) == 0);
    assert_true(size_of(device_read(device, all.dk)) == 0);
    assert_true(size_of(device_read(device, all.dv)) == 0);
    d.copy.grads = all;
    device_mixer_release(&d);
    case_free(&c);
}

static void misaligned_rows_are_refused(void **state) {
    const attention_case a = {{1, 64, 1, 1, 64, 64}, false, 1, 0};
    const char *kernel = choose(state);
    if (!is_taken(kernel, &a)) skip();
    mixer_case c = filled(&a, 7);
    device_mixer d = device_mixer_new(device, &c, FWA_FORM_CHUNK);
    fwa_mixer_call call = d.copy.call;
    call.q.data = (char *)call.q.data + 2;
    check_status(d.mixer->forward(device, device->stream, &call), FWA_USAGE);
    assert_non_null(strstr(fwa_error_message(), "16 bytes"));
    device_mixer_release(&d);
    case_free(&c);
}

// Scores' gradients of ten sequences are more than the 1 GiB that cudnn keeps at a time, those of five are not: the
// last five alone give the bits that they have among the ten.
static void large_batches_run_in_parts(void **state) {
    enum { B = 10, HALF = B / 2 };
    const attention_case a = {{B, 2048, 16, 16, 8, 8}, false, 1, 0};
    const char *kernel = choose(state);
    if (!is_taken(kernel, &a) || !device_takes(B * 2048 * 16 * 8)) skip();
    mixer_case c = filled(&a, 8);
    device_mixer d = device_mixer_new(device, &c, FWA_FORM_CHUNK), half = d;
    assert_true(fwa_tensor_bytes(d.copy.call.scratch) < (size_t)1 << 30);
    device_mixer_forward(&d);
    device_mixer_backward(&d);
    fwa_tensor *views[] = {&half.copy.call.o, &half.copy.grads.dq, &half.copy.grads.dk, &half.copy.grads.dv,
                           &half.copy.call.q, &half.copy.call.k,   &half.copy.call.v,   &half.copy.grads.d_o};
    fwa_tensor whole[4];
    for (int i = 0; i < 4; i++) whole[i] = fwa_tensor_slice(device_read(device, *views[i]), 0, HALF, HALF);
    for (int i = 0; i < 8; i++) *views[i] = fwa_tensor_slice(*views[i], 0, HALF, HALF);
    half.copy.call.shape.B = HALF;
    device_mixer_forward(&half);
    device_mixer_backward(&half);
    for (int i = 0; i < 4; i++) assert_int_equal(check_differences(device_read(device, *views[i]), whole[i]), 0);
    device_mixer_release(&d);
    case_free(&c);
}

int main(void) {
    device = device_open(FWA_BF16);
    static char flash[] = "flash", cudnn[] = "cudnn", general[] = "general", any[] = "";
#define TEST(function, kernel)                                                                                         \
    { #function ", " #kernel, function, NULL, check_release, kernel }
    const struct CMUnitTest tests[] = {
        TEST(agrees_with_the_cpu, flash),
        TEST(earlier_keys_agree_with_the_cpu, flash),
        TEST(a_piece_is_the_end_of_the_whole, flash),
        TEST(repeats_give_the_same_bits, flash),
        TEST(packed_rows_are_read_and_written, flash),
        TEST(saving_changes_nothing, flash),
        TEST(gradients_may_be_left_out, flash),
        TEST(misaligned_rows_are_refused, flash),
        TEST(agrees_with_the_cpu, cudnn),
        TEST(earlier_keys_agree_with_the_cpu, cudnn),
        TEST(repeats_give_the_same_bits, cudnn),
        TEST(packed_rows_are_read_and_written, cudnn),
        TEST(saving_changes_nothing, cudnn),
        TEST(gradients_may_be_left_out, cudnn),
        TEST(misaligned_rows_are_refused, cudnn),
        TEST(large_batches_run_in_parts, cudnn),
        TEST(earlier_keys_agree_with_the_cpu, any),
        TEST(repeats_give_the_same_bits, any),
        TEST(saving_changes_nothing, any),
        TEST(agrees_with_the_cpu, general),
        TEST(earlier_keys_agree_with_the_cpu, general),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device->destroy(device);
    return failed;
}
