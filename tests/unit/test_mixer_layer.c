// Mixer layers of the baselines against docs/models.md §3 written out token by token: what the layer adds to its rule,
// that is projections, convolutions, positions, decays, skip, norms and gates, and their order.
#include "core/shape.h"
#include "tests/model_case.h"

#define LIMIT 1e-12

// A layer of the case after a forward pass: parameters by name, rows of n.
typedef struct layer {
    const model_case *c;
    int l;
    int64_t H, K, V;
} layer;

static fwa_tensor parameter(const layer *s, const char *name) {
    char full[FWA_NAME_MAX];
    snprintf(full, sizeof full, "blocks.%d.mixer.%s", s->l, name);
    for (int i = 0; i < s->c->model->params.count; i++)
        if (strcmp(s->c->model->params.at[i].name, full) == 0)
            return fwa_param_named(&s->c->model->params.at[i], FWA_PARAM_MASTER).tensor;
    fail_msg("no parameter %s", full);
    return fwa_tensor_absent();
}

static double element(const layer *s, const char *name, int64_t i) {
    return check_get(parameter(s, name), i);
}

static double silu(double x) {
    return x / (1 + exp(-x));
}
static double softplus(double x) {
    return log1p(exp(x));
}

// [R,columns] = n w^T
static fwa_tensor project(const layer *s, const char *name) {
    const fwa_tensor w = parameter(s, name), n = s->c->acts->blocks[s->l].n1;
    const int64_t columns = w.shape[0], D = w.shape[1];
    fwa_tensor y = check_new(FWA_F64, MODEL_ROWS, columns, 0, 0);
    for (int64_t i = 0; i < MODEL_ROWS * columns; i++) {
        double sum = 0;
        for (int64_t d = 0; d < D; d++) sum += check_get(n, i / columns * D + d) * check_get(w, i % columns * D + d);
        check_set(y, i, sum);
    }
    return y;
}

// SiLU of the convolution of a projection.
static fwa_tensor project_conv(const layer *s, const char *name, const char *conv) {
    const fwa_tensor x = project(s, name), w = parameter(s, conv);
    const int64_t columns = x.shape[1], W = w.shape[1];
    fwa_tensor y = check_new(FWA_F64, MODEL_ROWS, columns, 0, 0);
    for (int64_t r = 0; r < MODEL_ROWS; r++)
        for (int64_t i = 0; i < columns; i++) {
            double sum = 0;
            for (int64_t j = 0; j < W; j++)
                if (r % MODEL_T - W + 1 + j >= 0)
                    sum += check_get(w, i * W + j) * check_get(x, (r - W + 1 + j) * columns + i);
            check_set(y, r * columns + i, silu(sum));
        }
    return y;
}

// Each row of `size` elements divided by sqrt(its sum of squares / divisor + eps).
static void normalize(fwa_tensor x, int64_t size, double divisor, double eps) {
    for (int64_t start = 0; start < fwa_tensor_count(x); start += size) {
        double square = 0;
        for (int64_t i = start; i < start + size; i++) square += check_get(x, i) * check_get(x, i);
        for (int64_t i = start; i < start + size; i++) check_set(x, i, check_get(x, i) / sqrt(square / divisor + eps));
    }
}

static void rotate(const layer *s, fwa_tensor x) {
    const int64_t half = s->K / 2;
    for (int64_t i = 0; i < fwa_tensor_count(x); i++) {
        if (i % s->K >= half) continue;
        double angle = (double)(i / (s->H * s->K) % MODEL_T) * pow(10000, -2.0 * (double)(i % s->K) / (double)s->K);
        double a = check_get(x, i), b = check_get(x, i + half);
        check_set(x, i, a * cos(angle) - b * sin(angle));
        check_set(x, i + half, a * sin(angle) + b * cos(angle));
    }
}

// o [R,H*V] of S = a (I - beta k k^T) S + beta k v^T, without `delta` S = a S + beta k v^T; o = S^T q. a, beta [R,H];
// q, k have H heads, or one for all.
static fwa_tensor recurrence(const layer *s, fwa_tensor q, fwa_tensor k, fwa_tensor v, fwa_tensor a, fwa_tensor beta,
                             bool delta) {
    const int64_t H = s->H, K = s->K, V = s->V, heads = q.shape[1] / K;
    fwa_tensor o = check_new(FWA_F64, MODEL_ROWS, H * V, 0, 0), S = check_new(FWA_F64, H, K, V, 0);
    for (int64_t r = 0; r < MODEL_ROWS; r++) {
        if (r % MODEL_T == 0) check_fill_value(S, 0);
        for (int64_t i = 0; i < H * V; i++) {
            const int64_t h = i / V, at = (r * heads + (heads == 1 ? 0 : h)) * K;
            const double decay = check_get(a, r * H + h), step = check_get(beta, r * H + h);
            double held = 0, sum = 0;
            for (int64_t j = 0; delta && j < K; j++)
                held += check_get(k, at + j) * check_get(S, (h * K + j) * V + i % V);
            for (int64_t j = 0; j < K; j++) {
                const int64_t entry = (h * K + j) * V + i % V;
                const double key = check_get(k, at + j);
                const double value =
                    decay * (check_get(S, entry) - step * key * held) + step * key * check_get(v, r * H * V + i);
                check_set(S, entry, value);
                sum += value * check_get(q, at + j);
            }
            check_set(o, r * H * V + i, sum);
        }
    }
    return o;
}

// [R,H], all `value`.
static fwa_tensor constant(const layer *s, double value) {
    fwa_tensor t = check_new(FWA_F64, MODEL_ROWS, s->H, 0, 0);
    check_fill_value(t, value);
    return t;
}

// What the block added: y Wo^T against h - x.
static void compare(const layer *s, fwa_tensor y) {
    const fwa_tensor w = parameter(s, "out.weight"), x = s->c->acts->x[s->l], h = s->c->acts->blocks[s->l].h;
    const int64_t D = w.shape[0], width = w.shape[1];
    fwa_tensor expected = check_new(FWA_F64, MODEL_ROWS, D, 0, 0);
    for (int64_t i = 0; i < MODEL_ROWS * D; i++) {
        double sum = check_get(x, i);
        for (int64_t j = 0; j < width; j++) sum += check_get(y, i / D * width + j) * check_get(w, i % D * width + j);
        check_set(expected, i, sum);
    }
    check_close(h, expected, LIMIT);
}

// Norm over each head, its weight, and the gate where there is one; in place.
static void norm_and_gate(const layer *s, fwa_tensor o, bool gated) {
    const fwa_tensor gate = gated ? project(s, "gate.weight") : fwa_tensor_absent();
    normalize(o, s->V, (double)s->V, 1e-5);
    for (int64_t i = 0; i < fwa_tensor_count(o); i++)
        check_set(o, i, check_get(o, i) * element(s, "norm.weight", i % s->V) * (gated ? silu(check_get(gate, i)) : 1));
}

static void check_retnet(const layer *s) {
    const fwa_mixer_spec *spec = &s->c->model->spec.mixer[0];
    const double H = (double)s->H, depth = 1 - (double)s->l / (double)s->c->model->spec.L;
    fwa_tensor q = project(s, "q.weight"), k = project(s, "k.weight"), a = constant(s, 0);
    if (spec->rotary) {
        rotate(s, q);
        rotate(s, k);
    }
    for (int64_t i = 0; i < fwa_tensor_count(q); i++) check_set(q, i, check_get(q, i) / sqrt((double)s->K));
    for (int64_t i = 0; i < fwa_tensor_count(a); i++) {
        const double h = (double)(i % s->H);
        check_set(a, i, spec->decay == FWA_DECAY_RETNET ? 1 - pow(2, -5 - h) : exp(-8 * h / H * depth));
    }
    fwa_tensor o = recurrence(s, q, k, project(s, "v.weight"), a, constant(s, 1), false);
    norm_and_gate(s, o, spec->gate);
    compare(s, o);
}

static void check_delta(const layer *s) {
    const fwa_mixer_spec *spec = &s->c->model->spec.mixer[0];
    const bool decays = spec->rule->inputs & FWA_INPUT_LOG_DECAY;
    fwa_tensor q = project_conv(s, "q.weight", "conv_q.weight"), k = project_conv(s, "k.weight", "conv_k.weight");
    fwa_tensor v = project_conv(s, "v.weight", "conv_v.weight"), beta = project(s, "beta.weight"), a = constant(s, 1);
    normalize(q, s->K, 1, 1e-12);
    normalize(k, s->K, 1, 1e-12);
    for (int64_t i = 0; i < fwa_tensor_count(beta); i++)
        check_set(beta, i, spec->beta_range / (1 + exp(-check_get(beta, i) - element(s, "beta.bias", i % s->H))));
    fwa_tensor dt = decays ? project(s, "dt.weight") : a;
    for (int64_t i = 0; decays && i < fwa_tensor_count(a); i++)
        check_set(
            a, i,
            exp(-exp(element(s, "A_log", i % s->H)) * softplus(check_get(dt, i) + element(s, "dt_bias", i % s->H))));
    fwa_tensor o = recurrence(s, q, k, v, a, beta, true);
    norm_and_gate(s, o, spec->gate);
    compare(s, o);
}

static void check_mamba2(const layer *s) {
    const fwa_mixer_spec *spec = &s->c->model->spec.mixer[0];
    fwa_tensor C = project_conv(s, "q.weight", "conv_q.weight"), B = project_conv(s, "k.weight", "conv_k.weight");
    fwa_tensor x = project_conv(s, "v.weight", "conv_v.weight"), dt = project(s, "dt.weight"), a = constant(s, 0);
    for (int64_t i = 0; i < fwa_tensor_count(dt); i++) {
        check_set(dt, i, softplus(check_get(dt, i) + element(s, "dt_bias", i % s->H)));
        check_set(a, i, exp(-exp(element(s, "A_log", i % s->H)) * check_get(dt, i)));
    }
    fwa_tensor y = recurrence(s, C, B, x, a, dt, false);
    fwa_tensor z = spec->gate ? project(s, "gate.weight") : fwa_tensor_absent();
    const int64_t width = s->H * s->V;
    for (int64_t i = 0; i < fwa_tensor_count(y); i++)
        check_set(y, i,
                  (check_get(y, i) + element(s, "D", i % width / s->V) * check_get(x, i)) *
                      (spec->gate ? silu(check_get(z, i)) : 1));
    normalize(y, width, (double)width, 1e-5);
    for (int64_t i = 0; i < fwa_tensor_count(y); i++)
        check_set(y, i, check_get(y, i) * element(s, "norm.weight", i % width));
    compare(s, y);
}

// Every layer of the case.
static void check_layers(const fwa_model_spec *spec, void (*check)(const layer *s)) {
    model_case c;
    model_open(&c, spec);
    model_evaluate(&c, c.acts);
    for (int l = 0; l < spec->L; l++) {
        const fwa_mixer_shape shape = fwa_mixer_spec_shape(spec, &spec->mixer[0], MODEL_B, MODEL_T);
        const layer s = {&c, l, shape.H, shape.K, shape.V};
        check(&s);
    }
    model_close(&c);
    check_release(NULL);
}

static void test_retnet(void **state) {
    (void)state;
    fwa_model_spec spec = model_spec(fwa_rule_find("retnet"));
    check_layers(&spec, check_retnet);
    spec.mixer[0].decay = FWA_DECAY_LIGHTNING;
    check_layers(&spec, check_retnet);
    spec.mixer[0].gate = false;
    check_layers(&spec, check_retnet);
    spec.mixer[0].rotary = false;
    check_layers(&spec, check_retnet);
}

static void test_deltanets(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        fwa_model_spec spec = model_spec(fwa_rule_find(i ? "gated_deltanet" : "deltanet"));
        assert_true(spec.mixer[0].beta_range == 1);
        check_layers(&spec, check_delta);
        spec.mixer[0].beta_range = 2;
        check_layers(&spec, check_delta);
    }
}

static void test_mamba2(void **state) {
    (void)state;
    fwa_model_spec spec = model_spec(fwa_rule_find("mamba2"));
    check_layers(&spec, check_mamba2);
    spec.mixer[0].gate = false;
    check_layers(&spec, check_mamba2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_retnet, check_release),
        cmocka_unit_test_teardown(test_deltanets, check_release),
        cmocka_unit_test_teardown(test_mamba2, check_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
