// The gradient of the whole model against central differences in double: every rule, every setting of the layers.
#include "tests/model_case.h"

#define STEP  1e-5
#define LIMIT 1e-7 // rounding of the loss over STEP is 1e-11, and gradients of single elements may be 1e-4 of it

enum { SMALL = 12, MOST = 512 }; // elements

// Central differences of fourth order by parameter `p`, along `direction`, or in its element `element` alone.
static double slope(model_case *c, fwa_activations *acts, int p, int64_t element, const double *direction, int64_t n) {
    static const double steps[] = {-2, -1, 1, 2}, weights[] = {1, -8, 8, -1};
    double keep[MOST], sum = 0;
    for (int64_t i = 0; i < n; i++) keep[i] = param_get(c, p, i);
    for (int s = 0; s < 4; s++) {
        for (int64_t i = 0; i < n; i++)
            if (element < 0 || i == element) param_set(c, p, i, keep[i] + steps[s] * STEP * direction[i]);
        sum += weights[s] * model_evaluate(c, acts);
    }
    for (int64_t i = 0; i < n; i++) param_set(c, p, i, keep[i]);
    return sum / (12 * STEP);
}

static void random_unit(double *direction, int64_t n, uint64_t stream) {
    double square = 0;
    for (int64_t i = 0; i < n; i++) {
        direction[i] = fwa_rng_normal(8, stream, (uint64_t)i);
        square += direction[i] * direction[i];
    }
    for (int64_t i = 0; i < n; i++) direction[i] /= sqrt(square);
}

// Random directions of every parameter; each element of the small ones.
static void check_param(model_case *c, fwa_activations *acts, int p, const char *variant) {
    enum { DIRECTIONS = 2 };
    double direction[MOST];
    const fwa_tensor g = param_grad(c, p);
    const int64_t n = fwa_tensor_count(g);
    const double size = fmax(sqrt(check_dot(g, g)), 0.1);
    assert_true(n <= MOST);
    for (int64_t element = -DIRECTIONS; element < (n <= SMALL ? n : 0); element++) {
        double expected = 0;
        if (element < 0)
            random_unit(direction, n, (uint64_t)(10 * p - element));
        else
            direction[element] = 1;
        for (int64_t i = 0; i < n; i++)
            if (element < 0 || i == element) expected += check_get(g, i) * direction[i];
        double got = slope(c, acts, p, element, direction, n);
        if (!(fabs(got - expected) <= LIMIT * size))
            fail_msg("%s, %s: %s, %s %lld: gradient %.10g, difference %.10g, size %.3g", c->model->spec.mixer[0].name,
                     variant, c->model->params.at[p].name, element < 0 ? "random direction" : "element",
                     (long long)(element < 0 ? -element : element), expected, got, size);
    }
}

static void check_variant(const model_variant *variant) {
    model_case c;
    model_open(&c, &variant->spec);
    fwa_activations *acts = activations_new(&c, MODEL_B, MODEL_T, false);
    model_train(&c);
    for (int p = 0; p < c.model->params.count; p++) check_param(&c, acts, p, variant->name);
    fwa_activations_destroy(acts);
    model_close(&c);
}

static void test_every_rule_and_setting(void **state) {
    (void)state;
    model_variant variants[MODEL_VARIANTS_MOST];
    for (int r = 0; r < fwa_rule_count(); r++)
        for (int i = 0, count = model_variants(fwa_rule_at(r), variants); i < count; i++) check_variant(&variants[i]);
}

// Rules whose layers differ most from the others', with and without MLPs.
static void test_state_space_blocks_beside_every_rule(void **state) {
    (void)state;
    const fwa_rule *space = fwa_rule_find("mamba2");
    for (int r = 0; r < fwa_rule_count(); r++) {
        model_variant variant = {.spec = model_spec_pair(fwa_rule_at(r), space)};
        snprintf(variant.name, sizeof variant.name, "mamba2 between");
        variant.spec.F = r % 2 ? 0 : variant.spec.F;
        check_variant(&variant);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_every_rule_and_setting, check_release),
        cmocka_unit_test_teardown(test_state_space_blocks_beside_every_rule, check_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
