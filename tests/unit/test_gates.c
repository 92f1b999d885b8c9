// Sums of gates, of every rule that has some, against section 6 of docs/math/README.md taken step by step (a rule with
// a rate of its own: add_step): with carried states, documents, zero keys and zero steps; the same with threads; in a
// training step for all of its tokens.
#include "rule_variants.h"
#include "trainer_case.h"

#include "layers/mixer_layer.h"

enum { KEYS_MOST = 16, SQUARINGS = 40 };

static fwa_world *world;
static const char *const none[] = {NULL};

static bool has_gates(const fwa_rule *rule) {
    return rule->inputs & FWA_INPUT_LAMBDA;
}

// Whether the rate is the one that add_step takes step by step: no other has a switch for its step.
static bool has_falcon_rate(const fwa_rule *rule) {
    return rule->switches & FWA_SWITCH_STEP;
}

// Largest eigenvalue of M [K,K] by M^(2^n): its longest column is an eigenvector.
static double largest(const double *M, int64_t K) {
    double P[KEYS_MOST * KEYS_MOST], Q[KEYS_MOST * KEYS_MOST], top = 0, square, most = 0;
    memcpy(P, M, (size_t)(K * K) * sizeof *P);
    for (int n = 0; n < SQUARINGS; n++) {
        double size = 0;
        for (int64_t i = 0; i < K * K; i++) size = fmax(size, fabs(P[i]));
        if (size == 0) return 0;
        for (int64_t i = 0; i < K * K; i++) {
            Q[i] = 0;
            for (int64_t k = 0; k < K; k++) Q[i] += P[i / K * K + k] / size * (P[k * K + i % K] / size);
        }
        memcpy(P, Q, sizeof P);
    }
    for (int64_t c = 0; c < K; c++, most = fmax(most, square)) {
        double along = 0;
        square = 0;
        for (int64_t i = 0; i < K; i++) {
            square += P[i * K + c] * P[i * K + c];
            for (int64_t k = 0; k < K; k++) along += P[i * K + c] * M[i * K + k] * P[k * K + c];
        }
        if (square > most) top = along / square;
    }
    return top;
}

// Pairs of one sequence and query head: x [n+T,K], and what becomes of the windows where documents start.
typedef struct pairs {
    int64_t n, rows, K;
    const fwa_mixer_call *call;
    bool shifted;
    double *x;
    bool *starts, *there; // nothing before row j is seen from it on; row j is a pair
} pairs;

static pairs read_pairs(const fwa_rule *rule, const fwa_mixer_call *call, int64_t b, int64_t hq) {
    const fwa_mixer_shape *s = &call->shape;
    pairs p = {.n = fwa_tail_rows(call->in.tail_x), .K = s->K, .call = call};
    p.rows = p.n + s->T;
    p.shifted = (rule->switches & FWA_SWITCH_SHIFT) && call->options.shift == FWA_SHIFT_NEXT_LATENT;
    p.x = check_alloc((size_t)(p.rows * p.K) * sizeof *p.x);
    p.starts = check_alloc((size_t)p.rows * sizeof *p.starts);
    p.there = check_alloc((size_t)p.rows * sizeof *p.there);
    for (int64_t j = 0; j < p.rows; j++) {
        const int64_t t = j - p.n, key = p.shifted ? t - 1 : t;
        const fwa_tensor reset = t < 0 ? call->tail_reset : call->reset;
        p.starts[j] = fwa_tensor_present(reset) && check_get(reset, t < 0 ? b * p.n + j : b * s->T + t) != 0;
        p.there[j] = !(p.shifted && p.starts[j]) && (t < 0 || key >= 0 || fwa_tensor_present(call->in.k_last));
        for (int64_t k = 0; k < p.K && p.there[j]; k++)
            p.x[j * p.K + k] = t < 0      ? check_get(call->in.tail_x, ((b * p.n + j) * s->Hq + hq) * p.K + k)
                               : key >= 0 ? check_get(call->k, ((b * s->T + key) * s->Hq + hq) * p.K + k)
                                          : check_get(call->in.k_last, (b * s->Hq + hq) * p.K + k);
    }
    return p;
}

// E of step t; *count: B_t.
static double energy_of(const fwa_rule *rule, const pairs *p, int64_t t, int64_t *count) {
    double M[KEYS_MOST * KEYS_MOST] = {0}, trace = 0;
    *count = 0;
    for (int64_t j = p->n + t; j >= 0 && j > p->n + t - p->call->options.window && p->there[j]; j--) {
        for (int64_t i = 0; i < p->K * p->K; i++) M[i] += p->x[j * p->K + i / p->K] * p->x[j * p->K + i % p->K];
        ++*count;
        if (p->starts[j]) break;
    }
    for (int64_t k = 0; k < p->K; k++) trace += M[k * p->K + k];
    if (*count == 0) return 0;
    return (rule->core == FWA_CORE_WINDOW ? largest(M, p->K) : trace) / (double)*count;
}

static void add_step(const fwa_mixer_options *o, double E, double lbar, double beta, fwa_gate_sums *sums) {
    const double lambda = o->ridge == FWA_RIDGE_NONE ? 0 : o->ridge == FWA_RIDGE_COUPLED ? lbar * E : lbar;
    double eta = o->step == FWA_STEP_DIRECT ? beta : beta / (E + lambda + o->eps);
    if (o->step != FWA_STEP_DIRECT && E + lambda + o->eps == 0) return;
    if (o->eta_max > 0) eta = fmin(eta, o->eta_max);
    if (eta == 0) return;
    const double alpha = fmin(eta * lambda, 1 - o->eps_gamma);
    sums->steps += 1;
    sums->eta += eta;
    sums->alpha += alpha;
    sums->ridge += alpha / eta;
    sums->clamped += eta * lambda >= 1 - o->eps_gamma;
}

// Dense tensors.
static fwa_gate_sums plain(const fwa_rule *rule, const fwa_mixer_call *call) {
    const fwa_mixer_shape *s = &call->shape;
    const int64_t columns = rule->inputs & FWA_INPUT_BETA_CHANNEL ? s->V : 1;
    fwa_gate_sums sums = {0};
    for (int64_t b = 0; b < s->B; b++)
        for (int64_t h = 0; h < s->H; h++) {
            const pairs p = read_pairs(rule, call, b, h / (s->H / s->Hq));
            for (int64_t t = 0; t < s->T; t++) {
                const int64_t at = (b * s->T + t) * s->H + h;
                int64_t count;
                const double E = energy_of(rule, &p, t, &count);
                const double lbar = fwa_tensor_present(call->lambda) ? check_get(call->lambda, at) : 0;
                for (int64_t c = 0; c < columns && count > 0; c++)
                    add_step(&call->options, E, lbar, check_get(call->beta, at * columns + c), &sums);
            }
        }
    return sums;
}

static bool near(double got, double expected, double limit) {
    return fabs(got - expected) <= limit * fabs(expected);
}

static void same_sums(const fwa_gate_sums *got, const fwa_gate_sums *expected, double limit, const char *what) {
    if (got->steps != expected->steps || got->clamped != expected->clamped || !near(got->eta, expected->eta, limit) ||
        !near(got->alpha, expected->alpha, limit) || !near(got->ridge, expected->ridge, limit))
        fail_msg("%s: got steps %g clamped %g eta %.12g alpha %.12g ridge %.12g, expected %g, %g, %.12g, %.12g, %.12g",
                 what, got->steps, got->clamped, got->eta, got->alpha, got->ridge, expected->steps, expected->clamped,
                 expected->eta, expected->alpha, expected->ridge);
}

static fwa_gate_sums sums_of(mixer_case *c) {
    fwa_gate_sums sums = {0};
    case_poison_bytes(c->call.scratch);
    check_ok(c->mixer->gates(c->backend, c->backend->stream, &c->call, &sums));
    case_check_guards(c);
    return sums;
}

// kind 0: fresh sequences; 1: with documents; 2: a state comes in; 3: with documents in its tail, too.
static case_spec spec_of(const fwa_rule *rule, fwa_mixer_options options, int kind) {
    case_spec spec = {.rule = rule, .options = options, .form = FWA_FORM_CHUNK, .dtype = FWA_F64};
    spec.shape = (fwa_mixer_shape){2, 21, 2, 4, 5, 3};
    if (kind >= 2) spec_carry(&spec, 3);
    spec.reset = kind % 2;
    return spec;
}

// Token 3 has a key of zeros in the first head, token 5 a step of 0.
static void fill(mixer_case *c, uint64_t seed) {
    const fwa_mixer_shape *s = &c->spec.shape;
    case_fill(c, seed);
    for (int64_t k = 0; k < s->K; k++) check_set(c->call.k, 3 * s->Hq * s->K + k, 0);
    const fwa_tensor beta = c->call.beta, step = fwa_tensor_slice(beta, 1, 5, 1);
    for (int64_t i = 0; i < fwa_tensor_count(step); i++) check_set(step, i, 0);
    for (int64_t t = 4; c->spec.reset && t < s->B * s->T; t += 9) check_set(c->call.reset, t, 1);
    if (fwa_tensor_present(c->call.tail_reset)) check_set(c->call.tail_reset, 1, 1);
}

static void sums_are_those_of_the_steps(void **state) {
    (void)state;
    EACH_RULE(rule) {
        fwa_mixer_options options[VARIANTS_MOST];
        const int count = has_gates(rule) ? rule_variants(rule, options) : 0;
        if (count > 0 && !has_falcon_rate(rule))
            fail_msg("%s: nothing to hold the gates of its rate to: add_step here knows the Falcon rate alone",
                     rule->name);
        double clamped = 0;
        for (int i = 0; i < 4 * count; i++) {
            const case_spec spec = spec_of(rule, options[i / 4], i % 4);
            char what[96];
            mixer_case c = case_new(&spec);
            fill(&c, (uint64_t)i);
            const fwa_gate_sums got = sums_of(&c), expected = plain(rule, &c.call);
            snprintf(what, sizeof what, "%s, options %d, kind %d", rule->name, i / 4, i % 4);
            assert_true(expected.steps > 0 && expected.clamped < expected.steps);
            same_sums(&got, &expected, 1e-11, what);
            clamped += expected.clamped;
            case_free(&c);
            check_release(NULL);
        }
        assert_true(count == 0 || clamped > 0);
    }
}

static void other_rules_add_nothing(void **state) {
    (void)state;
    EACH_RULE(rule) {
        if (has_gates(rule)) continue;
        const case_spec spec = spec_of(rule, fwa_mixer_options_default(rule), 0);
        mixer_case c = case_new(&spec);
        case_fill(&c, 1);
        const fwa_gate_sums sums = sums_of(&c);
        assert_true(sums.steps == 0 && sums.eta == 0 && sums.alpha == 0 && sums.ridge == 0 && sums.clamped == 0);
        case_free(&c);
    }
}

// Sums are added to, and need a call that saves.
static void calls_add_up(void **state) {
    (void)state;
    EACH_RULE(rule) {
        if (!has_gates(rule)) continue;
        const case_spec spec = spec_of(rule, fwa_mixer_options_default(rule), 0);
        mixer_case c = case_new(&spec);
        case_fill(&c, 2);
        const fwa_gate_sums once = sums_of(&c);
        fwa_gate_sums twice = once;
        check_ok(c.mixer->gates(c.backend, c.backend->stream, &c.call, &twice));
        const fwa_gate_sums expected = {2 * once.steps, 2 * once.eta, 2 * once.alpha, 2 * once.ridge, 2 * once.clamped};
        same_sums(&twice, &expected, 1e-13, rule->name);
        c.call.save = false;
        check_status(c.mixer->gates(c.backend, c.backend->stream, &c.call, &twice), FWA_ERROR);
        case_free(&c);
    }
}

static void threads_give_the_same_bits(void **state) {
    (void)state;
    EACH_RULE(rule) {
        fwa_gate_sums sums[2];
        for (int threads = 1; threads <= 2 && has_gates(rule); threads++) {
            case_spec spec = spec_of(rule, fwa_mixer_options_default(rule), 2);
            spec.shape = (fwa_mixer_shape){3, 70, 2, 4, 32, 32};
            spec.dtype = FWA_F32;
            spec.threads = threads;
            mixer_case c = case_new(&spec);
            case_fill(&c, 3);
            sums[threads - 1] = sums_of(&c);
            case_free(&c);
        }
        if (has_gates(rule)) assert_memory_equal(&sums[0], &sums[1], sizeof sums[0]);
    }
}

// Training.

// The first token of a sequence writes nothing: 6 sequences, 2 heads and 2 layers of the others.
static void a_step_reports_all_its_tokens(void **state) {
    (void)state;
    static const char *const sizes[] = {"train.micro_batch=6", "train.micro_batch=2", "train.micro_batch=1"};
    fwa_gate_sums whole = {0}, layers[2];
    for (int i = 0; i < 3; i++) {
        trainer_case c;
        trainer_case_open(&c, world, (const char *const[]){sizes[i], "train.precision=f64", NULL});
        c.trainer->wants_gates = true;
        const fwa_step_report report = trainer_case_step(&c);
        const fwa_gate_sums got = report.gates;
        const fwa_trainer *t = c.trainer;
        assert_true(got.steps == 6.0 * (double)(t->source->T - 1) * 2 * 2);
        if (i == 0) {
            for (int l = 0; l < 2; l++) {
                const fwa_mixer_layer *layer = &t->model->blocks[l].mixer;
                const fwa_mixer_call call =
                    fwa_mixer_layer_call(layer, &t->acts->ctx, true, &t->acts->blocks[l].mixer, fwa_tensor_absent());
                const fwa_gate_sums one = layers[l] = plain(layer->spec->rule, &call);
                whole.steps += one.steps, whole.eta += one.eta, whole.alpha += one.alpha;
                whole.ridge += one.ridge, whole.clamped += one.clamped;
            }
        }
        same_sums(&got, &whole, 1e-10, sizes[i]);
        for (int l = 0; l < 2; l++) same_sums(&report.layers[l], &layers[l], 1e-10, sizes[i]);
        trainer_case_close(&c);
        check_release(NULL);
    }
}

static void only_steps_that_are_asked_report_some(void **state) {
    (void)state;
    trainer_case asked, other;
    size_t bytes, same;
    trainer_case_open(&asked, world, none);
    trainer_case_open(&other, world, none);
    for (int i = 0; i < 3; i++) {
        asked.trainer->wants_gates = i != 1;
        const fwa_step_report a = trainer_case_step(&asked), b = trainer_case_step(&other);
        assert_true((a.gates.steps > 0) == (i != 1) && b.gates.steps == 0);
        assert_true((a.layers != NULL) == (i != 1) && !b.layers);
        assert_memory_equal(&a.state, &b.state, sizeof a.state);
    }
    const char *masters = trainer_case_masters(&asked, &bytes);
    assert_memory_equal(masters, trainer_case_masters(&other, &same), bytes);
    trainer_case_close(&asked);
    trainer_case_close(&other);
}

static void a_model_without_them_reports_none(void **state) {
    (void)state;
    trainer_case c;
    trainer_case_open(&c, world, (const char *const[]){"model.mixer.main.rule=deltanet", NULL});
    assert_null(c.trainer->gates);
    c.trainer->wants_gates = true;
    const fwa_step_report report = trainer_case_step(&c);
    assert_true(report.gates.steps == 0 && !report.layers);
    trainer_case_close(&c);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(sums_are_those_of_the_steps, check_release),
        cmocka_unit_test_teardown(other_rules_add_nothing, check_release),
        cmocka_unit_test_teardown(calls_add_up, check_release),
        cmocka_unit_test_teardown(threads_give_the_same_bits, check_release),
        cmocka_unit_test_teardown(a_step_reports_all_its_tokens, check_release),
        cmocka_unit_test_teardown(only_steps_that_are_asked_report_some, check_release),
        cmocka_unit_test_teardown(a_model_without_them_reports_none, check_release),
    };
    if (fwa_world_create(&world, &argc, &argv) != FWA_OK || fwa_world_split(world, 1) != FWA_OK) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fwa_world_destroy(world);
    return failed;
}
