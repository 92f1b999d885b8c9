// The bf16 chunk kernels of the rules that have them, K and V of 64 and 128, against the CPU in f64 on the same rounded
// inputs: every option, ends of chunks, shared heads, carried state, documents, extreme decays, cut sequences, the same
// bits every time. What is compared was NaN before.
#include "tests/gpu/device_cut.h"
#include "tests/rule_variants.h"

// FWA_TEST_RULE names one rule to test alone.
#define EACH_CHUNK_RULE(rule) EACH_RULE(rule) if (is_tested(rule))

static fwa_backend *device;
static const char *only;
static bool small; // FWA_TEST_SIZE

// Cores with chunk kernels.
static bool is_tested(const fwa_rule *rule) {
    return rule->core != FWA_CORE_ATTENTION && fwa_rule_on_backend(rule->name, FWA_BACKEND_CUDA) &&
           (!only || strcmp(only, rule->name) == 0);
}

enum { LONGEST_WINDOW = 8 }; // that chunk kernels take

static bool has_window(const fwa_rule *rule) {
    return rule->switches & FWA_SWITCH_WINDOW;
}

// The rule's defaults; longest: with the longest window.
static fwa_mixer_options options_of(const fwa_rule *rule, bool longest) {
    fwa_mixer_options options = fwa_mixer_options_default(rule);
    if (longest) options.window = LONGEST_WINDOW;
    return options;
}

static void bytes_of(const fwa_rule *rule, fwa_mixer_options options, fwa_form form, size_t *saved, size_t *scratch) {
    const fwa_mixer *mixer;
    fwa_mixer_call call = {.options = options, .shape = {4, 1024, 6, 6, 128, 128}};
    call.form = form;
    call.save = true;
    check_ok(fwa_mixer_find(device, rule, &mixer));
    check_ok(mixer->sizes(device, &call, saved, scratch));
}

// The general kernels gather everything into fp32 arrays. Of chunk kernels the moved reads take most, then falcon3's
// members of a window: 79 of 203 MB at 8.
static void the_chunk_kernels_are_chosen(void **state) {
    (void)state;
    EACH_CHUNK_RULE(rule) {
        const bool moves =
            (rule->switches & FWA_SWITCH_READ) && (rule->core == FWA_CORE_ADDITIVE || rule->core == FWA_CORE_DELTA);
        for (int i = 0; i < 4; i++) {
            const bool before = i % 2, longest = i / 2;
            fwa_mixer_options options = options_of(rule, longest);
            if ((before && !moves) || (longest && !has_window(rule))) continue;
            if (before) options.read = FWA_READ_BEFORE_WRITE;
            size_t saved, scratch, general_saved, general_scratch;
            bytes_of(rule, options, FWA_FORM_CHUNK, &saved, &scratch);
            bytes_of(rule, options, FWA_FORM_RECURRENT, &general_saved, &general_scratch);
            const size_t most = general_scratch / (before ? 1 : longest ? 2 : 4);
            if (saved >= general_saved || scratch >= most)
                fail_msg("%s, window %d: the chunk form takes %zu + %zu bytes, the general kernel %zu + %zu: no chunk "
                         "kernel took it; the log of a forward pass says why",
                         rule->name, (int)options.window, saved, scratch, general_saved, general_scratch);
        }
    }
}

// Compares a filled case; where little is left of large terms an error may be twice what rounding states makes.
static void run_chunk_case(mixer_case *c) {
    device_mixer d = device_mixer_new(device, c, FWA_FORM_CHUNK);
    device_mixer_forward(&d);
    device_mixer_backward(&d);
    case_run(c);
    mixer_case rounded = rounded_case(c);
    compare(&d, false, &rounded);
    device_mixer_release(&d);
    case_free(&rounded);
    case_free(c);
    check_release(NULL);
}

static void every_option_agrees(void **state) {
    (void)state;
    const fwa_mixer_shape shapes[] = {{2, 1, 1, 2, 64, 64},     {1, 63, 2, 2, 128, 64},  {2, 65, 1, 3, 64, 128},
                                      {1, 200, 2, 4, 128, 128}, {1, 130, 1, 5, 128, 64}, {2, 64, 2, 2, 128, 128},
                                      {1, 122, 1, 1, 64, 64}};
    enum { SHAPES = sizeof shapes / sizeof *shapes };
    EACH_CHUNK_RULE(rule) {
        fwa_mixer_options options[VARIANTS_MOST];
        const int count = rule_variants(rule, options);
        start_record();
        for (int i = 0; i < count * SHAPES;
             i += small ? 17 : 3) { // with 7 shapes: every option in two or three of them
            case_spec spec = spec_of(rule, options[i / SHAPES], shapes[i % SHAPES]);
            if (small && spec.shape.T > 70) continue;
            spec.options.eps_attn = 0.1; // o of a single pair hardly depends on q: dq would be rounding alone
            if (i % 2) spec_carry(&spec, i % 4);
            mixer_case c = case_new(&spec);
            case_fill(&c, (uint64_t)i);
            case_unit_rows(c.call.k);
            run_chunk_case(&c);
        }
        print_record("options", rule);
    }
}

// The sizes that models train with; the last chunk is not whole. Then more slices of heads than two a multiprocessor,
// with a state: the delta core takes three a block there, and not a multiple of three; the additive core where they
// share a query/key head, once with more items than blocks, once with two slices a head.
static void many_heads_agree(void **state) {
    (void)state;
    // From the third on: more slices of 64 columns than two a multiprocessor, of which a Hopper GPU has up to 144.
    const int64_t T = small ? 66 : 140;
    const fwa_mixer_shape shapes[] = {{4, 1000, 6, 6, 128, 128},
                                      {4, 1000, 12, 12, 64, 64},
                                      {21, T, 7, 7, 128, 128},
                                      {11, T, 2, 42, 128, 64},
                                      {9, T, 3, 18, 64, 128}};
    EACH_CHUNK_RULE(rule) {
        const int end = rule->core == FWA_CORE_ADDITIVE ? 5 : rule->core == FWA_CORE_DELTA ? 3 : 2;
        start_record();
        for (int i = small ? 2 : 0; i < end; i++) {
            if (i == 2 && rule->core == FWA_CORE_ADDITIVE) continue;
            case_spec spec = spec_of(rule, fwa_mixer_options_default(rule), shapes[i]);
            if (i == 2) spec_carry(&spec, 3);
            if (i > 2) spec.S0 = spec.state_out = spec.arriving = rule->state == FWA_STATE_MATRIX;
            mixer_case c = case_new(&spec);
            case_fill(&c, (uint64_t)(5 + i));
            case_unit_rows(c.call.q);
            case_unit_rows(c.call.k);
            run_chunk_case(&c);
        }
        print_record("many heads", rule);
    }
}

// Value heads that share query/key heads, several of them in a block.
static void shared_heads_agree(void **state) {
    (void)state;
    const fwa_mixer_shape shapes[] = {
        {1, 70, 1, 3, 128, 64}, {1, 130, 1, 20, 128, 64}, {2, 130, 2, 12, 64, 64}, {1, 200, 1, 5, 64, 128}};
    EACH_CHUNK_RULE(rule) {
        start_record();
        for (int i = 0; i < (small ? 1 : 4); i++) {
            case_spec spec = spec_of(rule, fwa_mixer_options_default(rule), shapes[i]);
            spec_carry(&spec, 3);
            mixer_case c = case_new(&spec);
            case_fill(&c, (uint64_t)(95 + i));
            case_unit_rows(c.call.k);
            run_chunk_case(&c);
        }
        print_record("shared heads", rule);
    }
}

// The CPU's chunk form with bf16 operands has the errors of the kernels, to half of their size: it rounds where they
// do.
static void errors_are_those_of_rounding(void **state) {
    (void)state;
    EACH_CHUNK_RULE(rule) {
        if (rule->core != FWA_CORE_ADDITIVE && rule->core != FWA_CORE_DELTA) continue;
        case_spec spec =
            spec_of(rule, fwa_mixer_options_default(rule), (fwa_mixer_shape){1, small ? 65 : 250, 1, 2, 128, 64});
        spec_carry(&spec, 3);
        mixer_case c = case_new(&spec);
        case_fill(&c, 91);
        case_unit_rows(c.call.k);
        device_mixer d = device_mixer_new(device, &c, FWA_FORM_CHUNK);
        device_mixer_forward(&d);
        device_mixer_backward(&d);
        case_run(&c);
        spec.dtype = FWA_F32, spec.rounds = true;
        mixer_case rounded = case_new(&spec);
        for (int i = 0; i < CASE_INPUTS + CASE_OUTPUTS; i++) {
            const size_t from = i < CASE_INPUTS ? case_inputs[i].value : case_outputs[i - CASE_INPUTS].gradient;
            if (fwa_tensor_present(*case_at(&c, from))) check_copy(*case_at(&rounded, from), *case_at(&c, from));
        }
        case_run(&rounded);
        for (int i = 0; i < CASE_INPUTS + CASE_OUTPUTS; i++) {
            size_t offset;
            bool gradient;
            const case_tensor *entry = device_mixer_entry(i, &offset, &gradient);
            const fwa_tensor expected = *case_at(&c, offset);
            if (!fwa_tensor_present(expected)) continue;
            const double kernels = check_error(device_read(device, *case_at(&d.copy, offset)), expected);
            const double cpu = check_error(*case_at(&rounded, offset), expected);
            if (!(kernels <= 1.5 * cpu + 2e-4 && cpu <= 1.5 * kernels + 2e-4))
                fail_msg("%s %s%s: error %.5f, on the CPU %.5f", rule->name, gradient ? "d" : "", entry->name, kernels,
                         cpu);
            if (i == CASE_INPUTS) print_message("%s o: error %.5f, on the CPU %.5f\n", rule->name, kernels, cpu);
        }
        device_mixer_release(&d);
        case_free(&rounded);
        case_free(&c);
        check_release(NULL);
    }
}

// Few heads and many chunks: passes over the sequence run on segments of it at once.
static void long_sequences_agree(void **state) {
    (void)state;
    const int64_t T = small ? 1030 : 2500;
    const fwa_mixer_shape shapes[] = {{1, T, 1, 2, 64, 128}, {1, T + 60, 1, 3, 128, 64}};
    EACH_CHUNK_RULE(rule) {
        start_record();
        for (int i = small; i < 2; i++) {
            case_spec spec = spec_of(rule, fwa_mixer_options_default(rule), shapes[i]);
            spec_carry(&spec, 3);
            if (has_window(rule) && i == 0) spec.options.window = 6;
            spec.reset = i == 0;
            mixer_case c = case_new(&spec);
            case_fill(&c, (uint64_t)(70 + i));
            case_unit_rows(c.call.k);
            case_unit_rows(c.call.q);
            if (spec.reset) check_set(c.call.reset, 700, 1);
            if ((rule->core == FWA_CORE_DELTA || rule->core == FWA_CORE_WINDOW) &&
                i == 1) { // the first state is seen to the end
                fill_present(c.call.lambda, 0);
                fill_present(c.call.log_decay, 0);
            }
            run_chunk_case(&c);
        }
        print_record("long", rule);
    }
}

// Documents that start at ends of chunks, one after another, and at the last token.
static void documents_agree(void **state) {
    (void)state;
    const int64_t starts[] = {0, 1, 2, 30, 61, 63, 64, 65, 67, 122, 128, 129, 199};
    EACH_CHUNK_RULE(rule) {
        start_record();
        for (int i = small ? 3 : 0; i < 6; i++) { // the last two with the read before the write
            fwa_mixer_options options = fwa_mixer_options_default(rule);
            if (i >= 4 && !(rule->switches & FWA_SWITCH_READ)) continue;
            if (i >= 4) options.read = FWA_READ_BEFORE_WRITE;
            case_spec spec = spec_of(rule, options, (fwa_mixer_shape){2, 200, 1, 2, i % 2 ? 128 : 64, 64});
            spec.reset = true;
            spec.S0 = spec.k_prev = i / 2 % 2;
            mixer_case c = case_new(&spec);
            case_fill(&c, (uint64_t)(40 + i));
            case_unit_rows(c.call.k);
            for (size_t n = i == 3; n < sizeof starts / sizeof *starts; n++) check_set(c.call.reset, starts[n], 1);
            check_set(c.call.reset, 200 + 100, 1);
            run_chunk_case(&c);
        }
        print_record("documents", rule);
    }
}

// Every length of window: documents that start inside one, in the incoming tail too, tails that are shorter than it,
// both reads, heads alone and shared, sequences that end with a chunk of the longest.
static void windows_agree(void **state) {
    (void)state;
    const fwa_mixer_shape shapes[] = {
        {2, 121, 2, 2, 64, 64}, {1, 130, 1, 1, 128, 128}, {1, 118, 1, 3, 64, 128}, {1, 57, 1, 2, 128, 64}};
    const int64_t starts[] = {0, 1, 2, 9, 30, 50, 53, 56, 57, 58, 61, 63, 64, 65, 67, 70, 75, 90, 113, 114, 117};
    EACH_CHUNK_RULE(rule) {
        if (!has_window(rule)) continue;
        start_record();
        for (int i = small ? 3 : 0; i < 4 * LONGEST_WINDOW; i += small ? 5 : 1) {
            case_spec spec = spec_of(rule, fwa_mixer_options_default(rule), shapes[i % 4]);
            spec.options.window = i / 4 + 1;
            if (i % 4 == 1) spec.options.read = FWA_READ_BEFORE_WRITE;
            if (i % 4 != 1) spec_carry(&spec, i % 4 == 2 ? 2 : LONGEST_WINDOW - 1);
            spec.reset = i % 4 == 1 || i % 4 == 2;
            mixer_case c = case_new(&spec);
            case_fill(&c, (uint64_t)(300 + i));
            case_unit_rows(c.call.k);
            for (size_t n = i % 4 == 1 ? 0 : 3; spec.reset && n < sizeof starts / sizeof *starts; n++)
                check_set(c.call.reset, starts[n], 1);
            if (fwa_tensor_present(c.call.tail_reset)) check_set(c.call.tail_reset, 0, 1);
            run_chunk_case(&c);
        }
        print_record("windows", rule);
    }
}

// Every step clamped, or decays that leave nothing; then no decay at all.
static void extreme_decays_agree(void **state) {
    (void)state;
    EACH_CHUNK_RULE(rule) {
        start_record();
        for (int i = 0; i < (small ? 1 : 4); i++) {
            const int64_t K = i % 2 ? 128 : 64;
            case_spec spec = spec_of(rule, fwa_mixer_options_default(rule), (fwa_mixer_shape){1, 300, 1, 2, K, K});
            mixer_case c = case_new(&spec);
            case_fill(&c, 21);
            case_unit_rows(c.call.k);
            fill_present(c.call.lambda, i / 2 ? 0 : 1e6);
            fill_present(c.call.log_decay, i / 2 ? 0 : -100);
            run_chunk_case(&c);
        }
        print_record("extreme", rule);
    }
}

// Eight keys again and again, with steps close to 2: the systems of chunks are as far from the identity as they get. A
// recurrence that keeps its state in bf16 has an error of 0.009 in o there; twice that is allowed.
static void run_repeated_keys(mixer_case *c) {
    device_mixer d = device_mixer_new(device, c, FWA_FORM_CHUNK);
    device_mixer_forward(&d);
    device_mixer_backward(&d);
    case_run(c);
    for (int i = 0; i < CASE_INPUTS + CASE_OUTPUTS; i++) {
        size_t offset;
        bool gradient;
        const case_tensor *entry = device_mixer_entry(i, &offset, &gradient);
        const fwa_tensor expected = *case_at(c, offset);
        if (!fwa_tensor_present(expected)) continue;
        judge(device, &c->spec, entry->name, gradient,
              check_error(device_read(device, *case_at(&d.copy, offset)), expected),
              fmax(limit_of(device, entry->name, gradient), 0.018));
    }
    device_mixer_release(&d);
    case_free(c);
    check_release(NULL);
}

static void repeated_keys_agree(void **state) {
    (void)state;
    EACH_CHUNK_RULE(rule) {
        if (rule->core == FWA_CORE_ADDITIVE) continue;
        start_record();
        for (int i = small; i < 2; i++) {
            const int64_t K = i ? 64 : 128;
            fwa_mixer_options options = fwa_mixer_options_default(rule);
            if (rule->switches & FWA_SWITCH_STEP) options.step = FWA_STEP_DIRECT;
            case_spec spec = spec_of(rule, options, (fwa_mixer_shape){1, 200, 1, 1, K, K});
            mixer_case c = case_new(&spec);
            case_fill(&c, 81);
            case_unit_rows(c.call.k);
            case_unit_rows(c.call.q);
            for (int64_t t = 8; t < 200; t++)
                check_copy(fwa_tensor_slice(c.call.k, 1, t, 1), fwa_tensor_slice(c.call.k, 1, t % 8, 1));
            fill_present(c.call.lambda, 0);
            fill_present(c.call.log_decay, 0);
            const int64_t columns = fwa_tensor_present(c.call.beta) ? fwa_tensor_count(c.call.beta) / 200 : 0;
            for (int64_t e = 0; e < 200 * columns; e++)
                check_set(c.call.beta, e, 1.7 + 0.29 * (double)(e / columns % 7) / 6);
            run_repeated_keys(&c);
        }
        print_record("repeated keys", rule);
    }
}

// No gradient of o arrives: the same bits as where it is 0. Both slices of V, heads alone and shared.
static void an_absent_gradient_is_zero(void **state) {
    (void)state;
    EACH_CHUNK_RULE(rule) {
        if (rule->core != FWA_CORE_ADDITIVE) continue;
        for (int64_t Hq = 1; Hq <= 2; Hq++) {
            case_spec spec = spec_of(rule, fwa_mixer_options_default(rule), (fwa_mixer_shape){1, 70, Hq, 2, 64, 128});
            spec_carry(&spec, 3);
            mixer_case c = case_new(&spec);
            case_fill(&c, 97);
            fill_present(c.grads.d_o, 0);
            device_mixer d = device_mixer_new(device, &c, FWA_FORM_CHUNK);
            const fwa_tensor d_o = d.copy.grads.d_o;
            fwa_tensor zeros[CASE_INPUTS] = {{0}};
            device_mixer_forward(&d);
            for (int absent = 0; absent < 2; absent++) {
                if (absent) d.copy.grads.d_o = fwa_tensor_absent();
                device_mixer_backward(&d);
                for (int i = 0; i < CASE_INPUTS; i++) {
                    const fwa_tensor gradient = *case_at(&d.copy, case_inputs[i].gradient);
                    if (!fwa_tensor_present(gradient)) continue;
                    const fwa_tensor now = device_read(device, gradient);
                    if (!absent) zeros[i] = now;
                    assert_int_equal(check_differences(now, zeros[i]), 0);
                }
            }
            d.copy.grads.d_o = d_o;
            device_mixer_release(&d);
            case_free(&c);
            check_release(NULL);
        }
    }
}

static void cut_sequences_equal_the_whole(void **state) {
    (void)state;
    const int64_t cuts[] = {1, 2, 64, 100};
    EACH_CHUNK_RULE(rule) {
        start_record();
        for (int i = 0; i < (small ? 1 : 4) * (has_window(rule) ? 2 : 1); i++) {
            const bool longest = i >= (small ? 1 : 4);
            case_spec spec = spec_of(rule, options_of(rule, longest), (fwa_mixer_shape){1, 150, 1, 2, 64, 128});
            spec_carry(&spec, longest ? LONGEST_WINDOW - 1 : 3);
            mixer_case whole = case_new(&spec);
            case_fill(&whole, (uint64_t)(60 + i));
            case_unit_rows(whole.call.k);
            device_mixer rounded = device_mixer_new(device, &whole, FWA_FORM_CHUNK);
            device_mixer_release(&rounded);
            case_run(&whole);
            run_cut(device, &whole, cuts[longest ? i - (small ? 1 : 4) : i], FWA_FORM_CHUNK);
            case_free(&whole);
            check_release(NULL);
        }
        print_record("cut", rule);
    }
}

static void repeats_give_the_same_bits(void **state) {
    (void)state;
    EACH_CHUNK_RULE(rule) {
        for (int b = small; b < (has_window(rule) ? 4 : 2); b++) {
            const int64_t heads = b % 2 ? 1 : 4;
            case_spec spec = spec_of(rule, options_of(rule, b >= 2), (fwa_mixer_shape){3, 200, heads, 4, 128, 64});
            spec_carry(&spec, 3);
            mixer_case c = case_new(&spec);
            case_fill(&c, 31);
            device_mixer d = device_mixer_new(device, &c, FWA_FORM_CHUNK);
            device_mixer_repeat(&d, 3);
            device_mixer_release(&d);
            case_free(&c);
            check_release(NULL);
        }
    }
}

int main(void) {
    device = device_open(FWA_BF16);
    only = getenv("FWA_TEST_RULE");
    small = device_test_size() == TEST_SMALLEST;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_chunk_kernels_are_chosen),
        cmocka_unit_test_teardown(every_option_agrees, check_release),
        cmocka_unit_test_teardown(many_heads_agree, check_release),
        cmocka_unit_test_teardown(shared_heads_agree, check_release),
        cmocka_unit_test_teardown(errors_are_those_of_rounding, check_release),
        cmocka_unit_test_teardown(long_sequences_agree, check_release),
        cmocka_unit_test_teardown(documents_agree, check_release),
        cmocka_unit_test_teardown(windows_agree, check_release),
        cmocka_unit_test_teardown(extreme_decays_agree, check_release),
        cmocka_unit_test_teardown(repeated_keys_agree, check_release),
        cmocka_unit_test_teardown(an_absent_gradient_is_zero, check_release),
        cmocka_unit_test_teardown(cut_sequences_equal_the_whole, check_release),
        cmocka_unit_test_teardown(repeats_give_the_same_bits, check_release),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device->destroy(device);
    return failed;
}
