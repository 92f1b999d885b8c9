// Over every rule with CUDA kernels, f32 and bf16: golden answers; every option in ugly shapes with carried state,
// documents and shared heads, and a layer of the size that is trained, against the CPU in f64 on the same rounded
// inputs; cut sequences; strided views; extreme decays; the same bits every time; refusals. What is compared was NaN
// before.
#include "tests/gpu/device_cut.h"
#include "tests/rule_variants.h"

// FWA_TEST_RULE names one rule to test alone.
#define EACH_CUDA_RULE(rule) EACH_RULE(rule) if (is_tested(rule))

static fwa_backend *device[2]; // f32, bf16
static const char *only;
static bool small; // FWA_TEST_SIZE

static bool is_tested(const fwa_rule *rule) {
    return fwa_rule_on_backend(rule->name, FWA_BACKEND_CUDA) && (!only || strcmp(only, rule->name) == 0);
}

// Golden answers.

static void golden_f32(hid_t file, const case_spec *spec, fwa_form form) {
    const char *tensor;
    int compared;
    mixer_case c = case_new(spec);
    golden_fill(file, &c);
    device_mixer d = device_mixer_new(device[0], &c, form);
    device_mixer_forward(&d);
    device_mixer_backward(&d);
    device_mixer_fetch_all(&d);
    const double error = golden_error(file, &c, &tensor, &compared);
    assert_true(compared > 0);
    judge(device[0], spec, tensor, false, error, 1e-4);
    device_mixer_release(&d);
    case_free(&c);
    check_release(NULL);
}

static void run_golden_file(hid_t file, const char *name, const fwa_rule *rule, void *user) {
    (void)user;
    if (small && !strstr(name, "_basic")) return;
    case_spec spec = golden_spec(file, rule);
    spec.form = FWA_FORM_CHUNK;
    spec.dtype = FWA_F64;
    golden_f32(file, &spec, FWA_FORM_RECURRENT);
    golden_f32(file, &spec, FWA_FORM_CHUNK);
    mixer_case c = case_new(&spec);
    golden_fill(file, &c);
    run_case(device[1], &c, FWA_FORM_CHUNK, spec.shape.T == 1 && !spec.S0);
}

static void golden_answers_are_met(void **state) {
    (void)state;
    EACH_CUDA_RULE(rule) {
        start_record();
        golden_each(rule, run_golden_file, NULL);
        print_record("golden", rule);
    }
}

// Against the CPU.

static void every_option_in_ugly_shapes(void **state) {
    (void)state;
    const int64_t lengths[] = {1, 2, 63, 65};
    EACH_CUDA_RULE(rule) {
        fwa_mixer_options options[VARIANTS_MOST];
        const int count = rule_variants(rule, options);
        start_record();
        for (int i = 0; i < count * 16; i += small ? 43 : 1) {
            fwa_mixer_options o = options[i / 16];
            o.eps_attn = 0.1; // o of a single pair hardly depends on q: dq would be rounding alone
            const fwa_mixer_shape shape = {2, lengths[i % 4], 1, 2, i % 3 ? 5 : 37, 3 + 8 * (i % 5)};
            case_spec spec = spec_of(rule, o, shape);
            if (i % 8 >= 4) spec_carry(&spec, i % 3 + 1);
            mixer_case c = case_new(&spec);
            case_fill(&c, (uint64_t)i);
            run_case(device[i % 16 >= 8], &c, i % 2 ? FWA_FORM_CHUNK : FWA_FORM_RECURRENT, false);
        }
        print_record("ugly shapes", rule);
    }
}

// Odd sizes beyond one slice of columns, one piece of steps, and what a thread holds.
static void odd_sizes_and_documents(void **state) {
    (void)state;
    const fwa_mixer_shape shapes[] = {
        {1, 1000, 1, 1, 9, 6}, {2, 131, 2, 6, 48, 33}, {1, 70, 1, 2, 129, 100}, {1, 66, 1, 1, 300, 5}};
    EACH_CUDA_RULE(rule) {
        start_record();
        for (int i = small ? 10 : 0; i < 16; i += small ? 5 : 1) {
            const fwa_mixer_shape shape = small ? (fwa_mixer_shape){1, 21, 1, 2, 33, 20} : shapes[i / 4];
            case_spec spec = spec_of(rule, fwa_mixer_options_default(rule), shape);
            spec.reset = i % 2;
            if (rule->switches & FWA_SWITCH_WINDOW && i / 4 == 2) spec.options.window = small ? 9 : 100;
            if (i / 2 % 2 && !spec.reset) spec_carry(&spec, 3);
            mixer_case c = case_new(&spec);
            case_fill(&c, (uint64_t)(40 + i));
            for (int64_t t = 0; spec.reset && t < spec.shape.B * spec.shape.T; t += 29 + t % 7)
                check_set(c.call.reset, t, 1);
            run_case(device[i / 2 % 2], &c, FWA_FORM_CHUNK, false);
        }
        print_record("odd sizes", rule);
    }
}

// A piece of a longer sequence: documents start among the pairs that come in and among the steps.
static void documents_in_the_tail(void **state) {
    (void)state;
    EACH_CUDA_RULE(rule) {
        start_record();
        const int64_t T = small ? 20 : 70;
        for (int i = 0; i < 4; i += small ? 3 : 1) {
            case_spec spec = spec_of(rule, fwa_mixer_options_default(rule), (fwa_mixer_shape){2, T, 1, 2, 64, 64});
            if (rule->switches & FWA_SWITCH_WINDOW) spec.options.window = 7;
            spec_carry(&spec, 6);
            spec.state_out = spec.arriving = false;
            spec.reset = true;
            mixer_case c = case_new(&spec);
            case_fill(&c, (uint64_t)(60 + i));
            if (i % 2) check_set(c.call.reset, T + 3, 1);
            if (fwa_tensor_present(c.call.tail_reset)) check_set(c.call.tail_reset, 2 + i, 1);
            run_case(device[i / 2], &c, FWA_FORM_CHUNK, false);
        }
        print_record("documents in the tail", rule);
    }
}

// Heads of the sizes that are trained: two of some steps, whole layers of the models in configs/lm. One head of queries
// and keys for all of values is a state-space block.
static void layers_of_training_size(void **state) {
    (void)state;
    const fwa_mixer_shape shapes[] = {{1, 130, 2, 2, 128, 128},  {2, 67, 2, 2, 64, 64},     {1, 67, 1, 2, 128, 64},
                                      {1, 1000, 6, 6, 128, 128}, {1, 1000, 12, 12, 64, 64}, {1, 1000, 1, 24, 128, 64},
                                      {4, 1024, 6, 6, 128, 128}, {4, 1024, 12, 12, 64, 64}, {4, 1024, 1, 24, 128, 64}};
    EACH_CUDA_RULE(rule) {
        start_record();
        for (int i = 0; i < 18; i++) {
            const fwa_mixer_shape *s = &shapes[i / 2];
            if (!device_takes(s->B * s->T * s->H * s->V) || (small && s->T > 100)) continue;
            if ((s->Hq < s->H) != ((rule->switches & FWA_SWITCH_STATE_SPACE) != 0)) continue;
            case_spec spec = spec_of(rule, fwa_mixer_options_default(rule), *s);
            mixer_case c = case_new(&spec);
            case_fill(&c, 5);
            case_unit_rows(c.call.q);
            case_unit_rows(c.call.k);
            run_case(device[i % 2], &c, FWA_FORM_CHUNK, false);
        }
        print_record("training size", rule);
    }
}

// Every step clamped, or decays that leave nothing; then equal unit keys with a step near 2.
static void extreme_inputs_agree(void **state) {
    (void)state;
    EACH_CUDA_RULE(rule) {
        start_record();
        for (int i = 0; i < 4; i += small ? 3 : 1) {
            const bool keys = i / 2;
            case_spec spec =
                spec_of(rule, fwa_mixer_options_default(rule), (fwa_mixer_shape){1, small ? 40 : 300, 1, 2, 8, 4});
            mixer_case c = case_new(&spec);
            case_fill(&c, 21);
            for (int64_t e = 0; keys && rule->state == FWA_STATE_MATRIX && e < fwa_tensor_count(c.call.k); e++)
                check_set(c.call.k, e, 0.3535 * (e % 2 ? 1 : -1));
            fill_present(c.call.beta, (double)1.999f);
            fill_present(c.call.lambda, keys ? 0 : 1e6);
            fill_present(c.call.log_decay, keys ? 0 : -100);
            run_case(device[i % 2], &c, FWA_FORM_CHUNK, false);
        }
        print_record("extreme", rule);
    }
}

// Cut sequences.

static void cut_sequences_equal_the_whole(void **state) {
    (void)state;
    const int64_t cuts[] = {1, 2, 40, 64, 74};
    EACH_CUDA_RULE(rule) {
        fwa_mixer_options options[VARIANTS_MOST];
        const int count = rule_variants(rule, options);
        start_record();
        for (int i = 0; i < count; i += small ? 20 : 1) {
            case_spec spec = spec_of(rule, options[i], (fwa_mixer_shape){1, 75, 1, 2, 6, 5});
            spec_carry(&spec, 2);
            mixer_case whole = case_new(&spec);
            case_fill(&whole, (uint64_t)(60 + i));
            case_run(&whole);
            run_cut(device[0], &whole, cuts[i % 5], FWA_FORM_RECURRENT);
            case_free(&whole);
            check_release(NULL);
        }
        print_record("cut", rule);
    }
}

// One token after another on its own state, as in decoding: the same bits as the whole sequence.
static void decoding_gives_the_same_bits(void **state) {
    (void)state;
    enum { MOST = 70 };
    const int T = small ? 3 : MOST;
    EACH_CUDA_RULE(rule) {
        if (rule->state != FWA_STATE_MATRIX) continue;
        case_spec spec = spec_of(rule, fwa_mixer_options_default(rule), (fwa_mixer_shape){2, T, 1, 2, 8, 40});
        spec_carry(&spec, spec.options.window - 1);
        mixer_case whole = case_new(&spec), token[MOST];
        case_fill(&whole, 9);
        device_mixer all = device_mixer_new(device[0], &whole, FWA_FORM_CHUNK);
        device_mixer_forward(&all);
        device_mixer_fetch_all(&all);
        for (int t = 0; t < T; t++) {
            spec.shape.T = 1;
            spec.tail = spec.options.window - 1;
            token[t] = case_new(&spec);
            fill_part(&token[t], &whole, t ? &token[t - 1] : NULL, t);
            device_mixer one = device_mixer_new(device[0], &token[t], FWA_FORM_RECURRENT);
            device_mixer_forward(&one);
            for (int i = 0; i < CASE_OUTPUTS; i++) device_mixer_fetch(&one, case_outputs[i].value);
            device_mixer_release(&one);
            assert_int_equal(check_differences(token[t].call.o, fwa_tensor_slice(whole.call.o, 1, t, 1)), 0);
            if (t) case_free(&token[t - 1]);
        }
        assert_int_equal(check_differences(token[T - 1].call.out.S, whole.call.out.S), 0);
        device_mixer_release(&all);
        case_free(&token[T - 1]);
        case_free(&whole);
        check_release(NULL);
    }
}

static void repeats_give_the_same_bits(void **state) {
    (void)state;
    EACH_CUDA_RULE(rule) {
        for (int b = small; b < 2; b++) {
            case_spec spec =
                spec_of(rule, fwa_mixer_options_default(rule), (fwa_mixer_shape){3, small ? 12 : 200, 2, 4, 64, 96});
            spec_carry(&spec, 3);
            mixer_case c = case_new(&spec);
            case_fill(&c, 31);
            device_mixer d = device_mixer_new(device[b], &c, FWA_FORM_CHUNK);
            device_mixer_repeat(&d, small ? 2 : 3);
            device_mixer_release(&d);
            case_free(&c);
            check_release(NULL);
        }
    }
}

// q, k, v as columns of one packed projection: the bits of dense tensors, and nothing beside them is touched.
static void strided_views_are_read_and_written(void **state) {
    (void)state;
    EACH_CUDA_RULE(rule) {
        case_spec spec = spec_of(rule, fwa_mixer_options_default(rule), (fwa_mixer_shape){2, 37, 3, 3, 4, 5});
        mixer_case c = case_new(&spec);
        case_fill(&c, 11);
        device_mixer dense = device_mixer_new(device[1], &c, FWA_FORM_CHUNK);
        device_mixer_forward(&dense);
        device_mixer_backward(&dense);
        mixer_case packed = c;
        fwa_tensor *views[] = {&packed.call.q,   &packed.call.k,   &packed.call.v,   &packed.call.o,
                               &packed.grads.dq, &packed.grads.dk, &packed.grads.dv, &packed.grads.d_o};
        for (int i = 0; i < 8; i++) {
            const fwa_tensor from = *views[i];
            fwa_tensor view = check_new_strided(FWA_F64, 2, 37, from.shape[2] * from.shape[3], 3, 5);
            *views[i] = fwa_tensor_as_4d(view, 2, 37, from.shape[2], from.shape[3]);
            check_copy(*views[i], from);
        }
        device_mixer d = device_mixer_new(device[1], &packed, FWA_FORM_CHUNK);
        check_ok(d.mixer->forward(d.cuda, d.cuda->stream, &d.copy.call));
        check_ok(d.mixer->backward(d.cuda, d.cuda->stream, &d.copy.call, &d.copy.grads));
        const fwa_tensor got[] = {d.copy.call.o, d.copy.grads.dq, d.copy.grads.dk, d.copy.grads.dv};
        const fwa_tensor expected[] = {dense.copy.call.o, dense.copy.grads.dq, dense.copy.grads.dk,
                                       dense.copy.grads.dv};
        for (int i = 0; i < 4; i++) {
            const fwa_tensor image = device_read(d.cuda, got[i]);
            assert_int_equal(check_differences(image, device_read(d.cuda, expected[i])), 0);
            const fwa_tensor rows = fwa_tensor_as_3d(image, 2, 37, image.shape[2] * image.shape[3]);
            check_margins(fwa_tensor_slice(rows, 1, 0, 36), 0, 8);
        }
        device_mixer_release(&dense);
        device_mixer_release(&d);
        case_free(&c);
        check_release(NULL);
    }
}

static void what_the_device_lacks_is_refused(void **state) {
    (void)state;
    EACH_CUDA_RULE(rule) {
        const fwa_mixer *mixer;
        size_t saved, scratch;
        fwa_mixer_call call = {.options = fwa_mixer_options_default(rule), .shape = {1, 8, 1, 1, 4, 4}};
        check_ok(fwa_mixer_find(device[1], rule, &mixer));
        call.form = FWA_FORM_PARALLEL;
        check_status(mixer->sizes(device[1], &call, &saved, &scratch), FWA_UNSUPPORTED);
        assert_non_null(strstr(fwa_error_message(), "parallel"));
        call.form = FWA_FORM_RECURRENT;
        check_ok(mixer->sizes(device[1], &call, &saved, &scratch));
        assert_int_equal(saved, 0);
        assert_true(scratch > 0);
        if (rule->state != FWA_STATE_MATRIX) continue;
        call.shape.K = 1025;
        check_status(mixer->sizes(device[1], &call, &saved, &scratch), FWA_UNSUPPORTED);
        assert_non_null(strstr(fwa_error_message(), "K = 1025"));
    }
}

int main(void) {
    device[0] = device_open(FWA_F32);
    device[1] = device_open(FWA_BF16);
    only = getenv("FWA_TEST_RULE");
    small = device_test_size() == TEST_SMALLEST;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(golden_answers_are_met, check_release),
        cmocka_unit_test_teardown(every_option_in_ugly_shapes, check_release),
        cmocka_unit_test_teardown(odd_sizes_and_documents, check_release),
        cmocka_unit_test_teardown(documents_in_the_tail, check_release),
        cmocka_unit_test_teardown(layers_of_training_size, check_release),
        cmocka_unit_test_teardown(extreme_inputs_agree, check_release),
        cmocka_unit_test_teardown(cut_sequences_equal_the_whole, check_release),
        cmocka_unit_test_teardown(decoding_gives_the_same_bits, check_release),
        cmocka_unit_test_teardown(repeats_give_the_same_bits, check_release),
        cmocka_unit_test_teardown(strided_views_are_read_and_written, check_release),
        cmocka_unit_test(what_the_device_lacks_is_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device[0]->destroy(device[0]);
    device[1]->destroy(device[1]);
    return failed;
}
