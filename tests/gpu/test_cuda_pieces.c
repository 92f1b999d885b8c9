// A sequence in pieces, each continuing from the states that the one before left, has the bits of the whole on a GPU:
// o, S and the pairs of a window, where pieces are whole chunks; for every rule with a matrix state, in f32 and bf16,
// general and chunk kernels. This is what ranks of parallel.sp compute with the ring. Where chunk kernels cut long
// sequences into segments, pieces of whole segments have the bits of the whole if segments are as long in both; else
// the errors of rounding.
#include "tests/gpu/device_cut.h"
#include "tests/rule_variants.h"

static fwa_backend *device[2]; // f32, bf16

static bool is_tried(const fwa_rule *rule) {
    const char *only = getenv("FWA_TEST_RULE");
    return rule->state == FWA_STATE_MATRIX && fwa_rule_on_backend(rule->name, FWA_BACKEND_CUDA) &&
           (!only || strcmp(only, rule->name) == 0);
}

#define EACH_CUT_RULE(rule)                                                                                            \
    EACH_RULE(rule)                                                                                                    \
    if (!is_tried(rule))                                                                                               \
        continue;                                                                                                      \
    else

// Outputs of the last `piece`, of which the ends are those of the whole.
static void check_ends(const mixer_case *piece, const mixer_case *whole) {
    for (int i = 1; i < CASE_OUTPUTS; i++) {
        const fwa_tensor got = *case_at((mixer_case *)piece, case_outputs[i].value);
        if (fwa_tensor_present(got))
            assert_int_equal(check_differences(got, *case_at((mixer_case *)whole, case_outputs[i].value)), 0);
    }
}

static void run_forward(fwa_backend *on, mixer_case *c, fwa_form form) {
    device_mixer d = device_mixer_new(on, c, form);
    device_mixer_forward(&d);
    for (int i = 0; i < CASE_OUTPUTS; i++) device_mixer_fetch(&d, case_outputs[i].value);
    device_mixer_release(&d);
}

static void check_pieces(fwa_backend *on, mixer_case *whole, int count, fwa_form form) {
    const int64_t T = whole->spec.shape.T / count;
    mixer_case pieces[4];
    for (int p = 0; p < count; p++) {
        case_spec spec = whole->spec;
        spec.shape.T = T;
        if (p > 0) {
            const fwa_tensor tail = pieces[p - 1].call.out.tail_x;
            spec.S0 = spec.k_prev = true;
            spec.tail = fwa_tensor_present(tail) ? tail.shape[1] : 0;
        }
        pieces[p] = case_new(&spec);
        fill_part(&pieces[p], whole, p ? &pieces[p - 1] : NULL, p * T);
        run_forward(on, &pieces[p], form);
        assert_int_equal(check_differences(pieces[p].call.o, fwa_tensor_slice(whole->call.o, 1, p * T, T)), 0);
    }
    check_ends(&pieces[count - 1], whole);
    for (int p = 0; p < count; p++) case_free(&pieces[p]);
}

// Halves and quarters of a sequence of so many chunks; with a window also of the longest that chunk kernels take.
static void check_rule(fwa_backend *on, const fwa_rule *rule, fwa_form form, int64_t chunks) {
    fwa_mixer_options options = fwa_mixer_options_default(rule);
    for (int i = 0; i < (rule->switches & FWA_SWITCH_WINDOW ? 4 : 2); i++) {
        const int wide = i % 2;
        if (i >= 2) options.window = 8;
        const int64_t chunk = 64 - (options.window - 1);
        case_spec spec = spec_of(rule, options, (fwa_mixer_shape){2, chunks * chunk, 2, 4, wide ? 128 : 64, 64});
        spec.state_out = true;
        mixer_case whole = case_new(&spec);
        case_fill(&whole, (uint64_t)(90 + wide));
        case_unit_rows(whole.call.k);
        run_forward(on, &whole, form);
        for (int count = 2; count <= 4; count += 2) check_pieces(on, &whole, count, form);
        case_free(&whole);
        check_release(NULL);
    }
}

static void pieces_have_the_bits_of_the_whole(void **state) {
    (void)state;
    EACH_CUT_RULE(rule) {
        check_rule(device[0], rule, FWA_FORM_RECURRENT, 8);
        check_rule(device[1], rule, FWA_FORM_RECURRENT, 8);
        check_rule(device[1], rule, FWA_FORM_CHUNK, 8);
    }
}

// Quarters are two segments.
static void so_have_pieces_of_equal_segments(void **state) {
    (void)state;
    setenv("FWA_SEGMENT_CHUNKS", "2", 1);
    EACH_CUT_RULE(rule) check_rule(device[1], rule, FWA_FORM_CHUNK, 16);
    unsetenv("FWA_SEGMENT_CHUNKS");
}

// Few heads, many chunks: lengths of segments are chosen for the whole and for each part.
static void pieces_of_other_segments_round(void **state) {
    (void)state;
    const int64_t T = 2560;
    if (device_test_size() == TEST_SMALLEST) skip();
    EACH_CUT_RULE(rule) {
        start_record();
        case_spec spec = spec_of(rule, fwa_mixer_options_default(rule), (fwa_mixer_shape){1, T, 1, 2, 64, 128});
        spec_carry(&spec, spec.options.window - 1);
        mixer_case whole = case_new(&spec);
        case_fill(&whole, 95);
        case_unit_rows(whole.call.k);
        device_mixer rounded = device_mixer_new(device[1], &whole, FWA_FORM_CHUNK);
        device_mixer_release(&rounded);
        case_run(&whole);
        run_cut(device[1], &whole, T / 2, FWA_FORM_CHUNK);
        case_free(&whole);
        check_release(NULL);
        print_record("cut in segments", rule);
    }
}

int main(void) {
    device[0] = device_open(FWA_F32);
    device[1] = device_open(FWA_BF16);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(pieces_have_the_bits_of_the_whole, check_release),
        cmocka_unit_test_teardown(so_have_pieces_of_equal_segments, check_release),
        cmocka_unit_test_teardown(pieces_of_other_segments_round, check_release),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < 2; i++) device[i]->destroy(device[i]);
    return failed;
}
