// Rotary positions on and off. Behind one layer that forgets nothing, softmax attention or retnet with a decay of 1,
// the last token's output is a function of the set of tokens before it where positions are off, and of their order
// where they are on. Behind two layers it is one of their order either way: what a token sees ends with it.
#include "tests/model_case.h"

typedef struct rotary_case {
    const char *rule;
    bool rotary;
    int64_t L;
} rotary_case;

// One head: the lightning decay of head 0 is 1.
static fwa_model_spec positions_spec(const rotary_case *s) {
    fwa_model_spec spec = model_spec(fwa_rule_find(s->rule));
    spec.L = s->L;
    spec.H = 1;
    spec.K = 8;
    spec.mixer[0].decay = FWA_DECAY_LIGHTNING;
    assert_true(spec.mixer[0].rotary);
    spec.mixer[0].rotary = s->rotary;
    return spec;
}

// The final norm's rows of the last tokens, [MODEL_B,D].
static fwa_tensor last_rows(model_case *c) {
    const int64_t D = c->model->spec.D;
    model_evaluate(c, c->acts);
    fwa_tensor last = check_new(FWA_F64, MODEL_B, D, 0, 0);
    for (int64_t i = 0; i < MODEL_B * D; i++)
        check_set(last, i, check_get(c->acts->n, ((i / D + 1) * MODEL_T - 1) * D + i % D));
    return last;
}

// How far they move when all tokens but the last stand in the opposite order.
static double change_by_order(const rotary_case *s) {
    const fwa_model_spec spec = positions_spec(s);
    model_case c;
    model_open(&c, &spec);
    const fwa_tensor before = last_rows(&c);
    for (int r = 0; r < MODEL_ROWS; r += MODEL_T)
        for (int i = 0, j = MODEL_T - 2; i < j; i++, j--) {
            const int32_t token = c.tokens[r + i];
            c.tokens[r + i] = c.tokens[r + j];
            c.tokens[r + j] = token;
        }
    const double change = check_error(last_rows(&c), before);
    model_close(&c);
    check_release(NULL);
    return change;
}

static void test_order_counts_where_positions_do(void **state) {
    (void)state;
    static const rotary_case cases[] = {{"softmax", false, 1}, {"softmax", true, 1}, {"softmax", false, 2},
                                        {"retnet", false, 1},  {"retnet", true, 1},  {"retnet", false, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double change = change_by_order(&cases[i]);
        const bool same = !cases[i].rotary && cases[i].L == 1;
        if (same ? !(change <= 1e-13) : !(change >= 1e-3))
            fail_msg("%s, rotary %d, %d layers: outputs change by %.3g", cases[i].rule, (int)cases[i].rotary,
                     (int)cases[i].L, change);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(test_order_counts_where_positions_do, check_release)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
