// Exact references for the online steps of the rules (docs/math/reference.md):
//
//   * recursive least squares, which minimises the cumulative ridge loss, and how falcon1 comes near it on data that it
//     sees again and again;
//   * the four timings of a pair and its read (read after or before the write, pairs from the same step or shifted), on
//     keys whose answers are known.
#include "rule_variants.h"

enum { K = 4, V = 2, PAIRS = 6 };

typedef struct data {
    double x[PAIRS][K], y[PAIRS][V];
} data;

// The state S and P = (sum_s x_s x_s^T + rho I)^{-1}.
typedef struct rls {
    double S[K][V], P[K][K];
} rls;

static rls rls_new(double rho) {
    rls filter = {0};
    for (int k = 0; k < K; k++) filter.P[k][k] = 1 / rho;
    return filter;
}

// g = P x / (1 + x^T P x)    S += g (y - S^T x)^T    P -= g (P x)^T
static void rls_step(rls *filter, const double x[K], const double y[V]) {
    double Px[K] = {0}, denominator = 1, r[V];
    for (int i = 0; i < K; i++)
        for (int k = 0; k < K; k++) Px[i] += filter->P[i][k] * x[k];
    for (int k = 0; k < K; k++) denominator += x[k] * Px[k];
    for (int v = 0; v < V; v++) {
        r[v] = y[v];
        for (int k = 0; k < K; k++) r[v] -= filter->S[k][v] * x[k];
    }
    for (int i = 0; i < K; i++) {
        const double gain = Px[i] / denominator;
        for (int v = 0; v < V; v++) filter->S[i][v] += gain * r[v];
        for (int k = 0; k < K; k++) filter->P[i][k] -= gain * Px[k];
    }
}

// J(S) = 1/2 sum_{s < count} |S^T x_s - y_s|^2 + rho/2 |S|^2; its gradient in `gradient` unless NULL.
static double ridge_loss(const data *d, int count, double rho, double S[K][V], double gradient[K][V]) {
    double loss = 0;
    for (int k = 0; k < K; k++) {
        for (int v = 0; v < V; v++) {
            loss += rho / 2 * S[k][v] * S[k][v];
            if (gradient) gradient[k][v] = rho * S[k][v];
        }
    }
    for (int s = 0; s < count; s++) {
        for (int v = 0; v < V; v++) {
            double r = -d->y[s][v];
            for (int k = 0; k < K; k++) r += S[k][v] * d->x[s][k];
            loss += r * r / 2;
            for (int k = 0; gradient && k < K; k++) gradient[k][v] += r * d->x[s][k];
        }
    }
    return loss;
}

static double normal(uint64_t stream, int64_t i) {
    return fwa_rng_normal(99, stream, (uint64_t)i);
}

// Unit keys; values of a linear map W, and `noise` times what no linear map explains.
static data make_data(uint64_t seed, double noise) {
    data d;
    for (int s = 0; s < PAIRS; s++) {
        double length = 0;
        for (int k = 0; k < K; k++) d.x[s][k] = normal(seed, s * K + k), length += d.x[s][k] * d.x[s][k];
        for (int k = 0; k < K; k++) d.x[s][k] /= sqrt(length);
        for (int v = 0; v < V; v++) {
            d.y[s][v] = noise * normal(seed + 1, s * V + v);
            for (int k = 0; k < K; k++) d.y[s][v] += normal(seed + 2, k * V + v) * d.x[s][k];
        }
    }
    return d;
}

static rls solve_exactly(const data *d, int count, double rho) {
    rls filter = rls_new(rho);
    for (int s = 0; s < count; s++) rls_step(&filter, d->x[s], d->y[s]);
    return filter;
}

static void test_rls_minimises(void **state) {
    (void)state;
    const double rho = 0.1;
    for (uint64_t seed = 10; seed < 100; seed += 10) {
        const data d = make_data(seed, 1);
        for (int count = 1; count <= PAIRS; count++) {
            rls filter = solve_exactly(&d, count, rho);
            double gradient[K][V];
            const double least = ridge_loss(&d, count, rho, filter.S, gradient);
            for (int i = 0; i < K * V; i++) {
                assert_true(fabs(gradient[i / V][i % V]) <= 1e-12);
                filter.S[i / V][i % V] += 0.01;
                assert_true(ridge_loss(&d, count, rho, filter.S, NULL) > least + 4e-6); // rho/2 (0.01)^2 = 5e-6
                filter.S[i / V][i % V] -= 0.01;
            }
        }
    }
}

// The state of falcon1 (pairs of the same step, no ridge, eps = 0) after the first `count` pairs, `passes` times over.
static void falcon1_state(const data *d, int count, int passes, double beta, double S[K][V]) {
    const fwa_rule *rule = fwa_rule_find("falcon1");
    case_spec spec = {.rule = rule, .options = fwa_mixer_options_default(rule), .form = FWA_FORM_CHUNK};
    spec.shape = (fwa_mixer_shape){.B = 1, .T = count * passes, .Hq = 1, .H = 1, .K = K, .V = V};
    spec.dtype = FWA_F64;
    spec.state_out = true;
    spec.options.shift = FWA_SHIFT_SAME_STEP;
    spec.options.ridge = FWA_RIDGE_NONE;
    spec.options.eps = spec.options.eta_max = 0;
    mixer_case c = case_new(&spec);
    case_fill(&c, 1);
    check_fill_value(c.call.beta, beta);
    for (int t = 0; t < count * passes; t++) {
        for (int k = 0; k < K; k++) check_set(c.call.k, t * K + k, d->x[t % count][k]);
        for (int v = 0; v < V; v++) check_set(c.call.v, t * V + v, d->y[t % count][v]);
    }
    case_forward(&c);
    for (int i = 0; i < K * V; i++) S[i / V][i % V] = check_get(c.call.out.S, i);
    case_free(&c);
}

static double distance(double a[K][V], double b[K][V]) {
    double sum = 0;
    for (int i = 0; i < K * V; i++) sum += pow(a[i / V][i % V] - b[i / V][i % V], 2);
    return sqrt(sum);
}

// One pair again and again: the residual shrinks by 1 - beta a step, so that beta = 1 stores it at once.
static void test_one_pair(void **state) {
    (void)state;
    const data d = make_data(10, 1);
    const double betas[] = {0.3, 1, 1.7};
    for (int i = 0; i < 3; i++) {
        for (int n = 1; n <= 6; n++) {
            double S[K][V];
            falcon1_state(&d, 1, n, betas[i], S);
            for (int v = 0; v < V; v++) {
                double r = d.y[0][v];
                for (int k = 0; k < K; k++) r -= S[k][v] * d.x[0][k];
                assert_true(fabs(r - pow(1 - betas[i], n) * d.y[0][v]) <= 1e-13);
            }
        }
    }
}

// Data that some S explains: every pass brings falcon1 nearer to the least-squares solution, down to it.
static void test_consistent_data(void **state) {
    (void)state;
    const data d = make_data(20, 0);
    rls exact = solve_exactly(&d, PAIRS, 1e-12);
    double last = (double)INFINITY, S[K][V];
    for (int passes = 1; passes <= 30; passes++) {
        falcon1_state(&d, PAIRS, passes, 1, S);
        const double now = distance(S, exact.S);
        assert_true(now < last || now < 1e-10);
        last = now;
    }
    falcon1_state(&d, PAIRS, 400, 1, S);
    assert_true(distance(S, exact.S) <= 1e-9);
}

// Data that contradicts itself: falcon1 circles around the least-squares solution, at a distance that shrinks with
// beta.
static void test_contradicting_data(void **state) {
    (void)state;
    const data d = make_data(30, 1);
    rls exact = solve_exactly(&d, PAIRS, 1e-12);
    const double betas[] = {1, 0.1, 0.01, 0.001};
    double last = 0, S[K][V];
    for (int i = 0; i < 4; i++) {
        falcon1_state(&d, PAIRS, (int)(40 / betas[i]), betas[i], S);
        const double now = distance(S, exact.S);
        if (i == 1) assert_true(now < last);
        if (i > 1) assert_true(now > 0.07 * last && now < 0.13 * last);
        last = now;
    }
    assert_true(last < 1e-2);
}

// Every rule that knows both options, set so that a write stores its pair exactly: unit keys, beta 1, no decay.
static case_spec timing_spec(const fwa_rule *rule, fwa_form form, int T, fwa_shift shift, fwa_read read) {
    case_spec spec = {.rule = rule, .options = fwa_mixer_options_default(rule), .form = form, .dtype = FWA_F64};
    spec.shape = (fwa_mixer_shape){.B = 1, .T = T, .Hq = 1, .H = 1, .K = T, .V = V};
    spec.options.shift = shift;
    spec.options.read = read;
    spec.options.window = 1;
    spec.options.eps = spec.options.eta_max = 0;
    if (rule->switches & FWA_SWITCH_RIDGE) spec.options.ridge = FWA_RIDGE_NONE;
    return spec;
}

// k_t = e_{t mod period}; q_t = k_{t - lag}, 0 where there is none
static mixer_case timing_case(const case_spec *spec, int period, int lag) {
    mixer_case c = case_new(spec);
    const int T = (int)spec->shape.T;
    case_fill(&c, 3);
    check_fill_value(c.call.q, 0);
    check_fill_value(c.call.k, 0);
    if (fwa_tensor_present(c.call.beta)) check_fill_value(c.call.beta, 1);
    if (fwa_tensor_present(c.call.log_decay)) check_fill_value(c.call.log_decay, 0);
    for (int t = 0; t < T; t++) {
        check_set(c.call.k, t * T + t % period, 1);
        if (t >= lag) check_set(c.call.q, t * T + (t - lag) % period, 1);
    }
    case_forward(&c);
    return c;
}

// o_t = v_s; s < 0: o_t = 0
static void check_answer(const mixer_case *c, int t, int s) {
    for (int v = 0; v < V; v++) {
        const double o = check_get(c->call.o, t * V + v), expected = s < 0 ? 0 : check_get(c->call.v, s * V + v);
        if (!(fabs(o - expected) <= 1e-12))
            fail_msg("%s, %s, shift %s, read %s, t %d: o[%d] = %g, expected %g (v of step %d)", c->spec.rule->name,
                     case_form(&c->spec), case_shift(&c->spec), case_read(&c->spec), t, v, o, expected, s);
    }
}

static fwa_shift timing_shift(int timing) {
    return timing / 2 ? FWA_SHIFT_SAME_STEP : FWA_SHIFT_NEXT_LATENT;
}

static fwa_read timing_read(int timing) {
    return timing % 2 ? FWA_READ_BEFORE_WRITE : FWA_READ_AFTER_WRITE;
}

// All keys differ; the query of step t is the key of step a = t - lag. It was written with v_a (same_step) or with
// v_{a+1} (next_latent), if that write came in time: by step t, or by step t - 1 for a read before the write.
static void test_timing_lags(void **state) {
    (void)state;
    int rules = 0;
    EACH_RULE(rule) {
        if (!(rule->switches & FWA_SWITCH_SHIFT) || !(rule->switches & FWA_SWITCH_READ)) continue;
        rules++;
        EACH_FORM(rule, form) {
            for (int timing = 0; timing < 4; timing++) {
                const fwa_shift shift = timing_shift(timing);
                const fwa_read read = timing_read(timing);
                const case_spec spec = timing_spec(rule, form, 7, shift, read);
                for (int lag = 0; lag < 3; lag++) {
                    mixer_case c = timing_case(&spec, 7, lag);
                    for (int t = lag; t < 7; t++) {
                        const int written = t - lag + (shift == FWA_SHIFT_NEXT_LATENT);
                        const int newest = read == FWA_READ_BEFORE_WRITE ? t - 1 : t;
                        check_answer(&c, t, written <= newest ? written : -1);
                    }
                    case_free(&c);
                }
            }
        }
    }
    assert_true(rules > 0);
}

// Keys come back every 3 steps and the query is the step's own key. Under next_latent the answer is the value that came
// after the key last time, two steps ago, whether read before or after; under same_step it is the step's own value, or
// that of the last time. (Rules that overwrite; the others would add the values up.)
static void test_timing_recall(void **state) {
    (void)state;
    EACH_RULE(rule) {
        if (rule->core != FWA_CORE_DELTA && rule->core != FWA_CORE_WINDOW) continue;
        if (!(rule->switches & FWA_SWITCH_SHIFT) || !(rule->switches & FWA_SWITCH_READ)) continue;
        EACH_FORM(rule, form) {
            for (int timing = 0; timing < 4; timing++) {
                const fwa_shift shift = timing_shift(timing);
                const fwa_read read = timing_read(timing);
                const case_spec spec = timing_spec(rule, form, 12, shift, read);
                mixer_case c = timing_case(&spec, 3, 0);
                for (int t = 0; t < 12; t++) {
                    const int same = read == FWA_READ_BEFORE_WRITE ? t - 3 : t, next = t < 3 ? -1 : t - 2;
                    check_answer(&c, t, shift == FWA_SHIFT_SAME_STEP ? same : next);
                }
                case_free(&c);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rls_minimises),   cmocka_unit_test(test_one_pair),
        cmocka_unit_test(test_consistent_data), cmocka_unit_test(test_contradicting_data),
        cmocka_unit_test(test_timing_lags),     cmocka_unit_test(test_timing_recall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
