// What the Falcon steps promise, checked on single steps of the operator in double, in every form:
//
//   * an unclamped step with eta < 2/L never raises its own local loss;
//   * with eps = 0 and a coupled ridge, gamma = 1 - beta lbar / (1 + lbar) and eta x x^T stay the same when the
//     keys are scaled;
//   * with eps = 0 the transition of S has the eigenvalue 1 - beta along the key (falcon3: along the direction in which
//     the window is strongest), and falcon1 and falcon2 have gamma across it;
//   * the energy of falcon3 is the largest eigenvalue.
//
// The reference formulas here use neither the rates nor the cores.
#include "rule_variants.h"

enum { K = 6, V = 3, WINDOW = 4, PAIRS_MOST = WINDOW };

// residual: the step follows the gradient of a squared residual; otherwise that of an inner product.
typedef struct family_rule {
    const char *name;
    bool residual;
} family_rule;

static const family_rule family[] = {
    {"falcon1", true},   {"falcon2", true},   {"falcon3", true},
    {"falcon1a", false}, {"falcon2a", false}, {"falcon3a", false},
};

#define EACH_FALCON(entry, rule)                                                                                       \
    for (const family_rule *entry = family; entry < family + sizeof family / sizeof family[0]; entry++)                \
        for (const fwa_rule *rule = fwa_rule_find(entry->name); rule; rule = NULL)

// One step of a rule: the pairs of its window (the last one is the step's own), the state before and after.
typedef struct one_step {
    mixer_case c;
    int pairs;
    double x[PAIRS_MOST][K], y[PAIRS_MOST][V];
    double before[K][V], after[K][V];
} one_step;

static case_spec step_spec(const fwa_rule *rule, fwa_form form, int pairs) {
    case_spec spec = {.rule = rule, .options = fwa_mixer_options_default(rule), .form = form, .dtype = FWA_F64};
    spec.shape = (fwa_mixer_shape){.B = 1, .T = 1, .Hq = 1, .H = 1, .K = K, .V = V};
    spec.options.eta_max = 0;
    if (rule->switches & FWA_SWITCH_WINDOW) spec.options.window = WINDOW;
    spec.S0 = spec.k_prev = spec.state_out = true;
    spec.tail = pairs - 1;
    return spec;
}

static int most_pairs(const fwa_rule *rule) {
    return rule->switches & FWA_SWITCH_WINDOW ? WINDOW : 1;
}

// Reads pairs and states; call after inputs are set and before case_free.
static void run_step(one_step *step) {
    mixer_case *c = &step->c;
    step->pairs = (int)c->spec.tail + 1;
    for (int j = 0; j < step->pairs; j++) {
        const bool own = j == step->pairs - 1;
        for (int k = 0; k < K; k++)
            step->x[j][k] = own ? check_get(c->call.in.k_last, k) : check_get(c->call.in.tail_x, j * K + k);
        for (int v = 0; v < V; v++)
            step->y[j][v] = own ? check_get(c->call.v, v) : check_get(c->call.in.tail_v, j * V + v);
    }
    case_forward(c);
    for (int k = 0; k < K; k++) {
        for (int v = 0; v < V; v++) {
            step->before[k][v] = check_get(c->call.in.S, k * V + v);
            step->after[k][v] = check_get(c->call.out.S, k * V + v);
        }
    }
}

// y = (1/B) sum_j x_j (x_j . z)
static void moment_apply(const one_step *step, const double z[K], double y[K]) {
    for (int k = 0; k < K; k++) y[k] = 0;
    for (int j = 0; j < step->pairs; j++) {
        double dot = 0;
        for (int k = 0; k < K; k++) dot += step->x[j][k] * z[k];
        for (int k = 0; k < K; k++) y[k] += step->x[j][k] * dot / step->pairs;
    }
}

// Largest eigenvalue of the window's moment matrix and its unit eigenvector z, by power iteration.
static double strongest(const one_step *step, double z[K]) {
    double length = 0, y[K];
    for (int k = 0; k < K; k++) z[k] = 1 + 0.1 * k;
    for (int i = 0; i < 20000; i++) {
        moment_apply(step, z, y);
        length = 0;
        for (int k = 0; k < K; k++) length += y[k] * y[k];
        length = sqrt(length);
        for (int k = 0; k < K; k++) z[k] = y[k] / length;
    }
    return length;
}

static double energy(const fwa_rule *rule, const one_step *step) {
    double z[K], sum = 0;
    if (rule->core == FWA_CORE_WINDOW) return strongest(step, z);
    for (int j = 0; j < step->pairs; j++)
        for (int k = 0; k < K; k++) sum += step->x[j][k] * step->x[j][k] / step->pairs;
    return sum;
}

// Local loss of column v of S: (1/2B) sum_j (s^T x_j - y_j)^2, or -(1/B) sum_j y_j s^T x_j, and (lambda/2) |s|^2.
static double local_loss(const one_step *step, bool residual, double S[K][V], int v, double lambda) {
    double loss = 0;
    for (int j = 0; j < step->pairs; j++) {
        double seen = 0;
        for (int k = 0; k < K; k++) seen += S[k][v] * step->x[j][k];
        const double off = seen - step->y[j][v];
        loss += (residual ? off * off / 2 : -step->y[j][v] * seen) / step->pairs;
    }
    for (int k = 0; k < K; k++) loss += lambda / 2 * S[k][v] * S[k][v];
    return loss;
}

static void check_descent(const family_rule *entry, const fwa_rule *rule, fwa_form form, fwa_ridge ridge, int trial) {
    case_spec spec = step_spec(rule, form, 1 + trial % most_pairs(rule));
    spec.options.ridge = ridge;
    one_step step = {.c = case_new(&spec)};
    case_fill(&step.c, 1000 + (uint64_t)trial);
    check_fill_uniform(step.c.call.beta, (uint64_t)trial, 1.5, 1.999);
    check_fill_normal(step.c.call.in.S, 5000 + (uint64_t)trial, 1);
    run_step(&step);
    double lambda = ridge == FWA_RIDGE_NONE ? 0 : check_get(step.c.call.lambda, 0);
    if (ridge == FWA_RIDGE_COUPLED) lambda *= energy(rule, &step);
    for (int v = 0; v < V; v++) {
        const double old = local_loss(&step, entry->residual, step.before, v, lambda);
        const double new = local_loss(&step, entry->residual, step.after, v, lambda);
        if (!(new <= old + 1e-12 * fabs(old)))
            fail_msg("%s, trial %d, column %d, %d pairs: local loss %.17g rose to %.17g", rule->name, trial, v,
                     step.pairs, old, new);
    }
    case_free(&step.c);
}

static void test_descent(void **state) {
    (void)state;
    int rules = 0;
    EACH_FALCON(entry, rule) {
        EACH_FORM(rule, form) {
            for (int trial = 0; trial < 60; trial++) {
                check_descent(entry, rule, form, FWA_RIDGE_COUPLED, trial);
                check_descent(entry, rule, form, FWA_RIDGE_UNCOUPLED, trial);
                check_descent(entry, rule, form, FWA_RIDGE_NONE, trial);
            }
        }
        rules++;
    }
    assert_true(rules >= 4);
}

// Keys a_j e_{j mod 4} make the window's moment matrix diagonal, so that its largest eigenvalue is known; `pairs` > K
// leaves the Gram matrix larger than the moment matrix, equal lengths make eigenvalues equal. The decay of an element
// of S that no key reaches tells the energy that the rule found.
static void check_largest_eigenvalue(const fwa_rule *rule, fwa_form form, int pairs, double growth) {
    case_spec spec = step_spec(rule, form, 1);
    double sums[4] = {0}, largest = 0;
    spec.options.window = pairs;
    spec.options.ridge = FWA_RIDGE_UNCOUPLED;
    spec.tail = pairs - 1;
    mixer_case c = case_new(&spec);
    case_fill(&c, 9);
    for (int j = 0; j < pairs; j++) {
        const fwa_tensor key = j < pairs - 1 ? fwa_tensor_slice(c.call.in.tail_x, 1, j, 1) : c.call.in.k_last;
        const double length = 1 + growth * j;
        check_fill_value(key, 0);
        check_set(key, j % 4, length);
        sums[j % 4] += length * length;
    }
    for (int i = 0; i < 4; i++) largest = fmax(largest, sums[i] / pairs);
    case_run(&c);
    const double beta = check_get(c.call.beta, 0), lambda = check_get(c.call.lambda, 0);
    const double gamma = 1 - beta * lambda / (largest + lambda + spec.options.eps);
    const double before = check_get(c.call.in.S, 5 * V), after = check_get(c.call.out.S, 5 * V);
    if (!(fabs(after - gamma * before) <= 1e-14)) fail_msg("%d pairs: gamma %.17g", pairs, after / before);
    for (int64_t i = 0; i < K; i++) assert_true(isfinite(check_get(c.grads.d_in.k_last, i)));
    case_free(&c);
}

static void test_largest_eigenvalue(void **state) {
    (void)state;
    const int pairs[] = {1, 2, 5, 6, 7, 13};
    EACH_RULE(rule) {
        if (rule->core != FWA_CORE_WINDOW) continue;
        EACH_FORM(rule, form) {
            for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
                check_largest_eigenvalue(rule, form, pairs[i], 0);
                check_largest_eigenvalue(rule, form, pairs[i], 0.3);
                check_largest_eigenvalue(rule, form, pairs[i], -0.05);
            }
        }
    }
}

// Multiplies every key of the window; its last two elements become 0.
static void scale_keys(mixer_case *c, double factor) {
    const fwa_tensor keys[] = {c->call.in.k_last, c->call.in.tail_x};
    for (int t = 0; t < 2; t++)
        for (int64_t i = 0; fwa_tensor_present(keys[t]) && i < fwa_tensor_count(keys[t]); i++)
            check_set(keys[t], i, i % K < K - 2 ? factor * check_get(keys[t], i) : 0);
}

// Residual rules get no values, so that S_t = (gamma I - eta/B sum x x^T) S_{t-1}.
static one_step scaled_step(const family_rule *entry, const fwa_rule *rule, fwa_form form, double factor) {
    case_spec spec = step_spec(rule, form, most_pairs(rule));
    spec.options.eps = 0;
    one_step step = {.c = case_new(&spec)};
    case_fill(&step.c, 77);
    scale_keys(&step.c, factor);
    if (entry->residual) check_fill_value(step.c.call.v, 0);
    if (entry->residual && spec.tail) check_fill_value(step.c.call.in.tail_v, 0);
    run_step(&step);
    return step;
}

static double beta_of(const one_step *step, int column) {
    const bool channel = step->c.spec.rule->inputs & FWA_INPUT_BETA_CHANNEL;
    return check_get(step->c.call.beta, channel ? column : 0);
}

// The decay, seen where no key reaches, and the write against that of unscaled keys: the same where it goes through
// eta x x^T, and 1/factor of it for eta x y^T.
static void check_scaled(const family_rule *entry, const one_step *step, const one_step *unit, double factor) {
    const double lbar = check_get(step->c.call.lambda, 0);
    for (int v = 0; v < V; v++) {
        const double gamma = 1 - beta_of(step, v) * lbar / (1 + lbar);
        for (int k = 0; k < K; k++) {
            const double write = step->after[k][v] - gamma * step->before[k][v];
            const double expected = unit->after[k][v] - gamma * unit->before[k][v];
            if (k >= K - 2)
                assert_true(fabs(write) <= 1e-14);
            else
                assert_true(fabs((entry->residual ? write : factor * write) - expected) <= 1e-12);
        }
    }
}

static void test_scale(void **state) {
    (void)state;
    const double factors[] = {1e-3, 0.5, 7, 1e4};
    EACH_FALCON(entry, rule) {
        EACH_FORM(rule, form) {
            one_step unit = scaled_step(entry, rule, form, 1);
            assert_true(fabs(unit.after[0][0] - unit.before[0][0]) > 1e-3);
            for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
                one_step step = scaled_step(entry, rule, form, factors[i]);
                check_scaled(entry, &step, &unit, factors[i]);
                case_free(&step.c);
            }
            case_free(&unit.c);
        }
    }
}

// S_t z for a step without values whose memory before it is the columns z and `across`.
static one_step transition_step(const fwa_rule *rule, fwa_form form, const double z[K], const double across[K]) {
    case_spec spec = step_spec(rule, form, most_pairs(rule));
    spec.options.eps = 0;
    one_step step = {.c = case_new(&spec)};
    case_fill(&step.c, 123);
    check_fill_value(step.c.call.v, 0);
    if (spec.tail) check_fill_value(step.c.call.in.tail_v, 0);
    for (int k = 0; k < K; k++)
        for (int v = 0; v < V; v++) check_set(step.c.call.in.S, k * V + v, v == 0 ? z[k] : across[k]);
    run_step(&step);
    return step;
}

static void test_eigenvalues(void **state) {
    (void)state;
    EACH_FALCON(entry, rule) {
        if (!entry->residual) continue;
        EACH_FORM(rule, form) {
            double z[K], across[K] = {0}, none[K] = {0};
            one_step probe = transition_step(rule, form, none, none);
            strongest(&probe, z);
            across[0] = z[1], across[1] = -z[0];
            one_step step = transition_step(rule, form, z, across);
            const double lbar = check_get(step.c.call.lambda, 0);
            for (int k = 0; k < K; k++) {
                assert_true(fabs(step.after[k][0] - (1 - beta_of(&step, 0)) * z[k]) <= 1e-12);
                const double gamma = 1 - beta_of(&step, 1) * lbar / (1 + lbar);
                if (step.pairs == 1) assert_true(fabs(step.after[k][1] - gamma * across[k]) <= 1e-12);
            }
            case_free(&step.c);
            case_free(&probe.c);
        }
    }
}

// A rule with a Falcon step that is not in the list would be left out of all that is tested here.
static void every_falcon_rule_is_listed(void **unused) {
    (void)unused;
    for (int i = 0; i < fwa_rule_count(); i++) {
        const fwa_rule *rule = fwa_rule_at(i);
        if (!(rule->switches & FWA_SWITCH_STEP)) continue;
        bool listed = false;
        EACH_FALCON(entry, same) listed |= same == rule;
        if (!listed) fail_msg("%s has a Falcon step: add it to family, with what its step follows", rule->name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_falcon_rule_is_listed),
        cmocka_unit_test(test_descent),
        cmocka_unit_test(test_largest_eigenvalue),
        cmocka_unit_test(test_scale),
        cmocka_unit_test(test_eigenvalues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
