// Over every rule: outputs never depend on later tokens, bit by bit; a sequence cut anywhere with its state carried
// equals the whole, gradients too; packed documents equal separate ones; one and two threads give the same bits.
#include <omp.h>

#include "rule_variants.h"

enum { PIECES_MOST = 4 };

// Tokens [start, start + count) of input or output i, or the tensor itself where it has no time.
static fwa_tensor time_slice(fwa_tensor t, const char *shape, int64_t start, int64_t count) {
    return shape[1] == 'T' ? fwa_tensor_slice(t, 1, start, count) : t;
}

static void test_causal(void **state) {
    (void)state;
    EACH_RULE(rule) {
        fwa_mixer_options options[VARIANTS_MOST];
        const int count = rule_variants(rule, options);
        for (int i = 0; i < count; i++) {
            EACH_FORM(rule, form) {
                case_spec spec = {.rule = rule, .options = options[i], .form = form, .dtype = FWA_F32};
                spec.shape = (fwa_mixer_shape){.B = 1, .T = 21, .Hq = 1, .H = 2, .K = 5, .V = 7};
                spec.options.chunk = 8;
                spec_carry(&spec, 2);
                for (int64_t t = 0; t < spec.shape.T; t += 5) {
                    mixer_case c = case_new(&spec), changed = case_new(&spec);
                    case_fill(&c, 7);
                    case_fill(&changed, 7);
                    for (int in = 0; in < CASE_INPUTS; in++) {
                        const fwa_tensor x = *case_at(&changed, case_inputs[in].value);
                        if (!fwa_tensor_present(x) || case_inputs[in].shape[1] != 'T') continue;
                        const fwa_tensor token = fwa_tensor_slice(x, 1, t, 1);
                        for (int64_t e = 0; e < fwa_tensor_count(token); e++)
                            check_set(token, e, 0.5 * check_get(token, e));
                    }
                    case_forward(&c);
                    case_forward(&changed);
                    const fwa_tensor before = fwa_tensor_slice(c.call.o, 1, 0, t);
                    assert_int_equal(check_differences(fwa_tensor_slice(changed.call.o, 1, 0, t), before), 0);
                    assert_true(check_differences(changed.call.o, c.call.o) > 0);
                    case_free(&c);
                    case_free(&changed);
                }
            }
        }
    }
}

// Cuts: piece lengths that sum to T.

// Builds and runs the pieces forward, each on the state of the one before.
static void pieces_forward(mixer_case *whole, const int64_t *lengths, int count, mixer_case *pieces) {
    for (int p = 0, start = 0; p < count; start += (int)lengths[p++]) {
        case_spec spec = whole->spec;
        spec.shape.T = lengths[p];
        if (p > 0) {
            const fwa_tensor tail = pieces[p - 1].call.out.tail_x;
            spec.S0 = spec.k_prev = spec.rule->state == FWA_STATE_MATRIX;
            spec.tail = fwa_tensor_present(tail) ? tail.shape[1] : 0;
        }
        pieces[p] = case_new(&spec);
        for (int i = 0; i < CASE_INPUTS; i++) {
            const fwa_tensor to = *case_at(&pieces[p], case_inputs[i].value);
            const fwa_tensor from = *case_at(whole, case_inputs[i].value);
            if (!fwa_tensor_present(to)) continue;
            if (i < 6 || p == 0)
                check_copy(to, time_slice(from, case_inputs[i].shape, start, lengths[p]));
            else // S0, z0, k_prev, tail_x, tail_v stand in the order of the outputs S, z, k_last, tail_x_out,
                 // tail_v_out
                check_copy(to, *case_at(&pieces[p - 1], case_outputs[i - 5].value));
        }
        check_copy(pieces[p].grads.d_o, fwa_tensor_slice(whole->grads.d_o, 1, start, lengths[p]));
        case_forward(&pieces[p]);
    }
}

// Runs the pieces backward, each with the state gradients of the one behind.
static void pieces_backward(mixer_case *whole, int count, mixer_case *pieces) {
    for (int p = count - 1; p >= 0; p--) {
        for (int i = 1; i < CASE_OUTPUTS; i++) {
            const fwa_tensor to = *case_at(&pieces[p], case_outputs[i].gradient);
            if (!fwa_tensor_present(to)) continue;
            check_copy(to, p == count - 1 ? *case_at(whole, case_outputs[i].gradient)
                                          : *case_at(&pieces[p + 1], case_inputs[i + 5].gradient));
        }
        case_backward(&pieces[p]);
    }
}

static void compare_piece(fwa_tensor got, fwa_tensor expected, const char *rule, const char *name, int piece) {
    if (!fwa_tensor_present(got)) return;
    const double error = check_error(got, expected);
    if (!(error <= 1e-10)) fail_msg("%s, piece %d: %s: error %.3g", rule, piece, name, error);
}

static void check_split(mixer_case *whole, const int64_t *lengths, int count) {
    mixer_case pieces[PIECES_MOST];
    const char *rule = whole->spec.rule->name;
    pieces_forward(whole, lengths, count, pieces);
    pieces_backward(whole, count, pieces);
    for (int p = 0, start = 0; p < count; start += (int)lengths[p++]) {
        compare_piece(pieces[p].call.o, fwa_tensor_slice(whole->call.o, 1, start, lengths[p]), rule, "o", p);
        for (int i = 0; i < (p ? 6 : CASE_INPUTS); i++) {
            const fwa_tensor expected = *case_at(whole, case_inputs[i].gradient);
            compare_piece(*case_at(&pieces[p], case_inputs[i].gradient),
                          time_slice(expected, case_inputs[i].shape, start, lengths[p]), rule, case_inputs[i].name, p);
        }
    }
    for (int i = 1; i < CASE_OUTPUTS; i++)
        compare_piece(*case_at(&pieces[count - 1], case_outputs[i].value), *case_at(whole, case_outputs[i].value), rule,
                      case_outputs[i].name, count - 1);
    for (int p = 0; p < count; p++) case_free(&pieces[p]);
}

static void run_splits(bool carry) {
    const int64_t cuts[][PIECES_MOST] = {{1, 22}, {22, 1}, {2, 21}, {8, 15}, {11, 12}, {1, 1, 21}, {9, 2, 1, 11}};
    EACH_RULE(rule) {
        fwa_mixer_options options[VARIANTS_MOST];
        const int count = rule_variants(rule, options);
        for (int i = 0; i < count; i++) {
            EACH_FORM(rule, form) {
                case_spec spec = {.rule = rule, .options = options[i], .form = form, .dtype = FWA_F64};
                spec.shape = (fwa_mixer_shape){.B = 1, .T = 23, .Hq = 1, .H = 2, .K = 4, .V = 3};
                spec.options.chunk = 8;
                spec.state_out = spec.arriving = true;
                if (carry) spec_carry(&spec, 2);
                mixer_case whole = case_new(&spec);
                case_fill(&whole, (uint64_t)(60 + i));
                case_run(&whole);
                for (size_t cut = 0; cut < sizeof cuts / sizeof cuts[0]; cut++) {
                    int pieces = 0;
                    while (pieces < PIECES_MOST && cuts[cut][pieces]) pieces++;
                    check_split(&whole, cuts[cut], pieces);
                }
                case_free(&whole);
            }
        }
    }
}

static void test_split_fresh(void **state) {
    (void)state;
    run_splits(false);
}

static void test_split_continued(void **state) {
    (void)state;
    run_splits(true);
}

// Cuts on chunk boundaries change no bit of o and of the states; without a window none of the gradients either.
static void test_chunk_cuts(void **state) {
    (void)state;
    const int64_t lengths[] = {8, 16};
    EACH_RULE(rule) {
        case_spec spec = {.rule = rule, .options = fwa_mixer_options_default(rule), .form = FWA_FORM_CHUNK};
        spec.shape = (fwa_mixer_shape){.B = 1, .T = 24, .Hq = 1, .H = 2, .K = 4, .V = 3};
        spec.dtype = FWA_F32;
        spec.options.chunk = 8;
        spec_carry(&spec, spec.options.window - 1);
        mixer_case whole = case_new(&spec), pieces[2];
        case_fill(&whole, 77);
        case_run(&whole);
        pieces_forward(&whole, lengths, 2, pieces);
        pieces_backward(&whole, 2, pieces);
        for (int i = 0; i < CASE_OUTPUTS; i++) {
            const fwa_tensor expected = *case_at(&whole, case_outputs[i].value);
            if (!fwa_tensor_present(expected)) continue;
            assert_int_equal(check_differences(*case_at(&pieces[1], case_outputs[i].value),
                                               time_slice(expected, case_outputs[i].shape, 8, 16)),
                             0);
        }
        assert_int_equal(check_differences(pieces[0].call.o, fwa_tensor_slice(whole.call.o, 1, 0, 8)), 0);
        for (int i = 0; spec.options.window == 1 && rule->state == FWA_STATE_MATRIX && i < 6; i++) {
            const fwa_tensor d = *case_at(&whole, case_inputs[i].gradient);
            if (!fwa_tensor_present(d)) continue;
            for (int p = 0; p < 2; p++)
                assert_int_equal(check_differences(*case_at(&pieces[p], case_inputs[i].gradient),
                                                   fwa_tensor_slice(d, 1, p ? 8 : 0, lengths[p])),
                                 0);
        }
        for (int p = 0; p < 2; p++) case_free(&pieces[p]);
        case_free(&whole);
    }
}

// Documents of these lengths in one sequence; the first one continues the carried state unless `reset_first`.
static void check_packed(case_spec spec, const int64_t *lengths, int count, bool reset_first) {
    spec.reset = true;
    mixer_case packed = case_new(&spec);
    case_fill(&packed, 83);
    for (int d = 0, start = 0; d < count; start += (int)lengths[d++])
        for (int64_t b = 0; b < spec.shape.B && (d > 0 || reset_first); b++)
            check_set(packed.call.reset, b * spec.shape.T + start, 1);
    case_run(&packed);
    for (int d = 0, start = 0; d < count; start += (int)lengths[d++]) {
        case_spec part = spec;
        part.reset = false;
        part.shape.T = lengths[d];
        if (d > 0 || reset_first) {
            part.S0 = part.k_prev = false;
            part.tail = 0;
        }
        mixer_case c = case_new(&part);
        for (int i = 0; i < CASE_INPUTS; i++) {
            const fwa_tensor to = *case_at(&c, case_inputs[i].value), from = *case_at(&packed, case_inputs[i].value);
            if (fwa_tensor_present(to)) check_copy(to, time_slice(from, case_inputs[i].shape, start, lengths[d]));
        }
        for (int i = 0; i < CASE_OUTPUTS; i++) {
            const fwa_tensor to = *case_at(&c, case_outputs[i].gradient);
            const fwa_tensor from = *case_at(&packed, case_outputs[i].gradient);
            if (!fwa_tensor_present(to)) continue;
            if (fwa_tensor_present(from) && (i == 0 || d == count - 1))
                check_copy(to, time_slice(from, case_outputs[i].shape, start, lengths[d]));
            else
                check_fill_value(to, 0);
        }
        case_run(&c);
        compare_piece(c.call.o, fwa_tensor_slice(packed.call.o, 1, start, lengths[d]), spec.rule->name, "o", d);
        for (int i = 0; i < CASE_INPUTS; i++) {
            const fwa_tensor expected = *case_at(&packed, case_inputs[i].gradient);
            if (i >= 6 && d > 0) continue;
            compare_piece(*case_at(&c, case_inputs[i].gradient),
                          time_slice(expected, case_inputs[i].shape, start, lengths[d]), spec.rule->name,
                          case_inputs[i].name, d);
        }
        for (int i = 1; d == count - 1 && i < CASE_OUTPUTS; i++) {
            const fwa_tensor expected = *case_at(&packed, case_outputs[i].value);
            if (fwa_tensor_present(expected))
                compare_piece(*case_at(&c, case_outputs[i].value), expected, spec.rule->name, case_outputs[i].name, d);
        }
        case_free(&c);
    }
    for (int i = 6; reset_first && i < CASE_INPUTS; i++) {
        const fwa_tensor d = *case_at(&packed, case_inputs[i].gradient);
        for (int64_t e = 0; fwa_tensor_present(d) && e < fwa_tensor_count(d); e++) assert_true(check_get(d, e) == 0);
    }
    case_free(&packed);
}

static void test_packed(void **state) {
    (void)state;
    const int64_t lengths[] = {9, 1, 2, 6, 5};
    EACH_RULE(rule) {
        fwa_mixer_options options[VARIANTS_MOST];
        const int count = rule_variants(rule, options);
        for (int i = 0; i < 2 * count; i++) {
            EACH_FORM(rule, form) {
                case_spec spec = {.rule = rule, .options = options[i / 2], .form = form, .dtype = FWA_F64};
                spec.shape = (fwa_mixer_shape){.B = 2, .T = 23, .Hq = 1, .H = 2, .K = 4, .V = 3};
                spec.options.chunk = 8;
                spec_carry(&spec, 2);
                check_packed(spec, lengths, 5, i % 2);
            }
        }
    }
}

static void test_threads(void **state) {
    (void)state;
    EACH_RULE(rule) {
        EACH_FORM(rule, form) {
            case_spec spec = {.rule = rule, .options = fwa_mixer_options_default(rule), .form = form};
            spec.shape = (fwa_mixer_shape){.B = 3, .T = 65, .Hq = 1, .H = 2, .K = 40, .V = 48};
            spec.dtype = FWA_F32;
            spec_carry(&spec, 2);
            mixer_case one = case_new(&spec);
            spec.threads = 2;
            mixer_case two = case_new(&spec);
            case_fill(&one, 15);
            case_fill(&two, 15);
            const int threads = omp_get_max_threads();
            case_run(&one);
            case_run(&two);
            assert_int_equal(omp_get_max_threads(), threads);
            for (int i = 0; i < CASE_INPUTS + CASE_OUTPUTS; i++) {
                const bool input = i < CASE_INPUTS;
                const size_t at = input ? case_inputs[i].gradient : case_outputs[i - CASE_INPUTS].value;
                const fwa_tensor a = *case_at(&one, at), b = *case_at(&two, at);
                if (fwa_tensor_present(a)) assert_int_equal(check_differences(a, b), 0);
            }
            case_free(&one);
            case_free(&two);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_causal),     cmocka_unit_test(test_split_fresh), cmocka_unit_test(test_split_continued),
        cmocka_unit_test(test_chunk_cuts), cmocka_unit_test(test_packed),      cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
