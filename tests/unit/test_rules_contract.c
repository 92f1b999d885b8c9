// Over every rule: documented limits hold, gradients too; descriptors and defaults agree; calls that cannot be met are
// refused with the right code; a call without gradients for some tensors computes the others.
#include "rule_variants.h"

// Sets what the limit asks for; what the other rule does not understand stays at its neutral value.
static fwa_mixer_options limit_options(const fwa_rule *rule, const fwa_rule_limit *limit) {
    fwa_mixer_options options = fwa_mixer_options_default(rule);
    if (limit->window > 0 && (rule->switches & FWA_SWITCH_WINDOW)) options.window = limit->window;
    if (limit->detach_scale >= 0) options.detach_scale = limit->detach_scale;
    if (rule->switches & FWA_SWITCH_SHIFT) {
        if (limit->moves & FWA_LIMIT_SAME_STEP) options.shift = FWA_SHIFT_SAME_STEP;
        if (limit->moves & FWA_LIMIT_NEXT_LATENT) options.shift = FWA_SHIFT_NEXT_LATENT;
    }
    if ((limit->moves & FWA_LIMIT_DIRECT) && (rule->switches & FWA_SWITCH_STEP)) {
        options.step = FWA_STEP_DIRECT;
        options.eta_max = 0;
    }
    if ((limit->moves & FWA_LIMIT_NO_RIDGE) && (rule->switches & FWA_SWITCH_RIDGE)) options.ridge = FWA_RIDGE_NONE;
    if (limit->moves & FWA_LIMIT_NORMALIZED_READ) options.normalized_read = true;
    options.chunk = 16;
    return options;
}

// Both cases get the same inputs, but for what the limit fixes.
static void limit_fill(mixer_case *got, mixer_case *expected, const fwa_rule_limit *limit) {
    case_fill(got, 31);
    case_fill(expected, 31);
    for (int i = 0; i < CASE_INPUTS; i++) {
        const fwa_tensor from = *case_at(got, case_inputs[i].value), to = *case_at(expected, case_inputs[i].value);
        if (fwa_tensor_present(from) && fwa_tensor_present(to) && fwa_tensor_count(from) == fwa_tensor_count(to))
            check_copy(to, from);
    }
    mixer_case *cases[] = {got, expected};
    for (int i = 0; i < 2; i++) {
        const fwa_tensor beta = cases[i]->call.beta, log_decay = cases[i]->call.log_decay;
        if ((limit->fixed & FWA_INPUT_BETA) && fwa_tensor_present(beta)) check_fill_value(beta, limit->value);
        if ((limit->fixed & FWA_INPUT_LOG_DECAY) && fwa_tensor_present(log_decay))
            check_fill_value(log_decay, limit->value);
    }
}

// One beta copied to all value channels.
static void limit_tie(mixer_case *wide, const mixer_case *narrow) {
    for (int64_t i = 0; i < fwa_tensor_count(wide->call.beta); i++)
        check_set(wide->call.beta, i, check_get(narrow->call.beta, i / wide->spec.shape.V));
}

// The gradient of the one beta is the sum over its copies; takes the copies' out of what is compared later.
static void limit_compare_tied(mixer_case *wide, const mixer_case *narrow) {
    const int64_t V = wide->spec.shape.V;
    const fwa_tensor sum = check_new(FWA_F64, narrow->call.shape.B, narrow->call.shape.T, narrow->call.shape.H, 0);
    check_fill_value(sum, 0);
    for (int64_t i = 0; i < fwa_tensor_count(wide->grads.dbeta); i++)
        check_set(sum, i / V, check_get(sum, i / V) + check_get(wide->grads.dbeta, i));
    check_close(sum, narrow->grads.dbeta, 1e-11);
    wide->grads.dbeta = fwa_tensor_absent();
    check_release(NULL);
}

static void test_limits(void **state) {
    (void)state;
    int limits = 0;
    EACH_RULE(rule) {
        for (const fwa_rule_limit *limit = rule->limits; limit && limit->condition; limit++) {
            const fwa_rule *other = fwa_rule_find(limit->equals);
            if (!other) fail_msg("%s: no rule '%s' in the registry", rule->name, limit->equals);
            EACH_FORM(rule, form) {
                case_spec spec = {.rule = rule, .options = limit_options(rule, limit), .form = form, .dtype = FWA_F64};
                spec.shape = (fwa_mixer_shape){.B = 2, .T = 37, .Hq = 2, .H = 2, .K = 5, .V = 4};
                spec_carry(&spec, 0);
                mixer_case got = case_new(&spec);
                spec.rule = other;
                spec.options = limit_options(other, limit);
                mixer_case expected = case_new(&spec);
                limit_fill(&got, &expected, limit);
                const bool tied = (rule->inputs ^ other->inputs) & FWA_INPUT_BETA_CHANNEL;
                mixer_case *wide = rule->inputs & FWA_INPUT_BETA_CHANNEL ? &got : &expected;
                mixer_case *narrow = wide == &got ? &expected : &got;
                if (tied) limit_tie(wide, narrow);
                case_run(&got);
                case_run(&expected);
                if (tied) limit_compare_tied(wide, narrow);
                case_compare(&got, &expected, 1e-11);
                limits++;
                case_free(&got);
                case_free(&expected);
            }
        }
    }
    assert_true(limits > 0);
}

// Fails with the rule's file and the condition.
#define EXPECT_OF(rule, condition)                                                                                     \
    do {                                                                                                               \
        if (!(condition)) fail_msg("kernels/cpu/mixer_%s.c: expected %s", (rule)->name, #condition);                   \
    } while (0)

static void test_descriptors(void **state) {
    (void)state;
    EACH_RULE(rule) {
        EXPECT_OF(rule, rule == fwa_rule_find(rule->name));
        EXPECT_OF(rule, rule->title && rule->title[0]);
        EXPECT_OF(rule, rule->equations && rule->equations[0]);
        EXPECT_OF(rule, (rule->forms & FWA_FORM_RECURRENT) && (rule->forms & FWA_FORM_CHUNK));
        EXPECT_OF(rule, rule->core < FWA_CORE_COUNT);
        EXPECT_OF(rule, rule->default_window >= 1);
        EXPECT_OF(rule, (rule->switches & FWA_SWITCH_WINDOW) || rule->default_window == 1);
        const bool beta = rule->inputs & (FWA_INPUT_BETA | FWA_INPUT_BETA_CHANNEL);
        EXPECT_OF(rule, beta == (rule->default_beta_range > 0));
        EXPECT_OF(rule, !(rule->inputs & FWA_INPUT_LAMBDA) || (rule->switches & FWA_SWITCH_RIDGE));
        const fwa_mixer_options options = fwa_mixer_options_default(rule);
        assert_int_equal(options.window, rule->default_window);
        assert_int_equal(options.shift, rule->switches & FWA_SWITCH_SHIFT ? rule->default_shift : FWA_SHIFT_SAME_STEP);
        assert_int_equal(options.detach_scale, rule->default_detach_scale);
        const bool matrix = rule->state == FWA_STATE_MATRIX;
        assert_int_equal(fwa_mixer_tail_rows(rule, &options, 9, matrix ? 0 : 4, true),
                         matrix ? rule->default_window - 1 : 13);
    }
}

static case_spec small_spec(const fwa_rule *rule) {
    case_spec spec = {.rule = rule, .options = fwa_mixer_options_default(rule), .form = FWA_FORM_CHUNK};
    spec.shape = (fwa_mixer_shape){.B = 1, .T = 9, .Hq = 1, .H = 2, .K = 3, .V = 4};
    spec.dtype = FWA_F32;
    return spec;
}

static fwa_status try_forward(mixer_case *c) {
    return c->mixer->forward(c->backend, c->backend->stream, &c->call);
}

// An option of `move` with the switch it belongs to: refused where the rule lacks the switch.
static void check_option(mixer_case *c, unsigned bit, const fwa_mixer_options *moved) {
    const fwa_mixer_options keep = c->call.options;
    c->call.options = *moved;
    if (!(c->spec.rule->switches & bit)) check_status(try_forward(c), FWA_USAGE);
    c->call.options = keep;
}

static void test_unknown_options(void **state) {
    (void)state;
    EACH_RULE(rule) {
        const case_spec spec = small_spec(rule);
        mixer_case c = case_new(&spec);
        case_fill(&c, 1);
        fwa_mixer_options moved = spec.options;
        moved.shift = moved.shift == FWA_SHIFT_SAME_STEP ? FWA_SHIFT_NEXT_LATENT : FWA_SHIFT_SAME_STEP;
        check_option(&c, FWA_SWITCH_SHIFT, &moved);
        moved = spec.options;
        moved.read = FWA_READ_BEFORE_WRITE;
        check_option(&c, FWA_SWITCH_READ, &moved);
        moved = spec.options;
        moved.step = moved.step == FWA_STEP_DIRECT ? FWA_STEP_NORMALIZED : FWA_STEP_DIRECT;
        check_option(&c, FWA_SWITCH_STEP, &moved);
        moved = spec.options;
        moved.ridge = FWA_RIDGE_UNCOUPLED;
        check_option(&c, FWA_SWITCH_RIDGE, &moved);
        moved = spec.options;
        moved.window = 2;
        check_option(&c, FWA_SWITCH_WINDOW, &moved);
        moved = spec.options;
        moved.normalized_read = true;
        check_option(&c, FWA_SWITCH_NORMALIZED_READ, &moved);
        case_free(&c);
    }
}

static void test_bad_values(void **state) {
    (void)state;
    EACH_RULE(rule) {
        const case_spec spec = small_spec(rule);
        mixer_case c = case_new(&spec);
        case_fill(&c, 1);
        const fwa_mixer_call good = c.call;
        size_t saved, scratch;
        c.call.options.chunk = 0;
        check_status(try_forward(&c), FWA_USAGE);
        check_status(c.mixer->sizes(c.backend, &c.call, &saved, &scratch), FWA_USAGE);
        c.call = good;
        c.call.options.eps = (double)NAN;
        check_status(try_forward(&c), FWA_USAGE);
        c.call = good;
        c.call.options.eps_gamma = 1;
        check_status(try_forward(&c), FWA_USAGE);
        c.call = good;
        c.call.form = (fwa_form)8;
        check_status(try_forward(&c), FWA_USAGE);
        c.call = good;
        c.call.shape.Hq = 3;
        check_status(try_forward(&c), FWA_USAGE);
        c.call = good;
        c.call.q = fwa_tensor_slice(c.call.q, 1, 0, 8);
        check_status(try_forward(&c), FWA_USAGE);
        assert_non_null(strstr(fwa_error_message(), "q is"));
        c.call = good;
        c.call.v.dtype = FWA_F64;
        check_status(try_forward(&c), FWA_USAGE);
        c.call = good;
        c.call.scratch.shape[0]--;
        check_status(try_forward(&c), FWA_USAGE);
        c.call = good;
        c.call.save = false;
        check_status(c.mixer->backward(c.backend, c.backend->stream, &c.call, &c.grads), FWA_USAGE);
        if (rule->inputs & (FWA_INPUT_BETA | FWA_INPUT_BETA_CHANNEL)) {
            c.call = good;
            c.call.beta = fwa_tensor_absent();
            check_status(try_forward(&c), FWA_USAGE);
        }
        case_free(&c);
    }
}

static void test_bad_states(void **state) {
    (void)state;
    EACH_RULE(rule) {
        const bool cache = rule->state == FWA_STATE_CACHE;
        case_spec spec = small_spec(rule);
        if (rule->switches & FWA_SWITCH_WINDOW) spec.options.window = 4;
        spec_carry(&spec, 3);
        mixer_case c = case_new(&spec);
        case_fill(&c, 1);
        const fwa_mixer_call good = c.call;
        const fwa_handover handover = {0};
        check_ok(try_forward(&c));
        if (!c.mixer->hands_over) {
            c.call.handover = &handover;
            check_status(try_forward(&c), FWA_UNSUPPORTED);
            c.call = good;
        }
        if (!cache && spec.tail > 0 && spec.options.shift == FWA_SHIFT_NEXT_LATENT) {
            c.call.in.k_last = fwa_tensor_absent();
            check_status(try_forward(&c), FWA_USAGE);
            c.call = good;
        }
        if (spec.tail > 0) {
            c.call.in.tail_v = fwa_tensor_absent();
            check_status(try_forward(&c), FWA_USAGE);
            c.call = good;
            c.call.out.tail_x = fwa_tensor_slice(c.call.out.tail_x, 1, 0, 2);
            check_status(try_forward(&c), FWA_USAGE);
            c.call = good;
            c.call.reset = check_new(FWA_U8, 1, 9, 0, 0);
            check_fill_value(c.call.reset, 0);
            check_status(try_forward(&c), FWA_UNSUPPORTED);
            c.call = good;
        }
        if (cache) {
            c.call.in.S = c.call.q;
            check_status(try_forward(&c), FWA_USAGE);
        } else {
            c.call.in.z = c.call.in.k_last;
            check_status(try_forward(&c), FWA_USAGE);
        }
        case_free(&c);
        check_release(NULL);
    }
}

// Without `save` nothing is saved; absent state outputs and gradients are left out and change no other bit.
static void test_absent(void **state) {
    (void)state;
    EACH_RULE(rule) {
        case_spec spec = small_spec(rule);
        spec_carry(&spec, 3);
        mixer_case c = case_new(&spec);
        case_fill(&c, 2);
        case_run(&c);
        for (int keep = 0; keep < CASE_INPUTS; keep++) {
            mixer_case one = case_new(&spec);
            if (!fwa_tensor_present(*case_at(&one, case_inputs[keep].gradient))) {
                case_free(&one);
                continue;
            }
            case_fill(&one, 2);
            one.call.out = (fwa_mixer_state){0};
            for (int i = 0; i < CASE_INPUTS; i++)
                if (i != keep) *case_at(&one, case_inputs[i].gradient) = fwa_tensor_absent();
            case_run(&one);
            assert_int_equal(check_differences(one.call.o, c.call.o), 0);
            const size_t at = case_inputs[keep].gradient;
            assert_int_equal(check_differences(*case_at(&one, at), *case_at(&c, at)), 0);
            case_free(&one);
        }
        mixer_case light = case_new(&spec);
        case_fill(&light, 2);
        light.call.save = false;
        size_t saved, scratch, more;
        check_ok(light.mixer->sizes(light.backend, &light.call, &saved, &scratch));
        assert_int_equal(saved, 0);
        more = (size_t)light.call.scratch.shape[0];
        assert_true(scratch < more);
        light.call.saved = fwa_tensor_absent();
        light.call.scratch.shape[0] = (int64_t)scratch;
        case_forward(&light);
        assert_int_equal(check_differences(light.call.o, c.call.o), 0);
        case_free(&light);
        case_free(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),     cmocka_unit_test(test_descriptors), cmocka_unit_test(test_unknown_options),
        cmocka_unit_test(test_bad_values), cmocka_unit_test(test_bad_states),  cmocka_unit_test(test_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
