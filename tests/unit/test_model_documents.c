// Packed documents: several in one sequence, states emptied at each start, give the losses and gradients of the same
// documents one by one. Over every setting of every rule.
#include "tests/model_case.h"

enum { DOCUMENT = 9 }; // ids stand on both sides of it

// Where pieces start in the batch's rows; the token there is DOCUMENT, but for a sequence that starts inside one.
static const int starts[] = {0, 3, MODEL_T, MODEL_T + 5, MODEL_ROWS};
enum { PIECES = sizeof starts / sizeof *starts - 1 };

static void place_documents(model_case *c) {
    for (int r = 0; r < MODEL_ROWS; r++) c->tokens[r] += c->tokens[r] == DOCUMENT;
    for (int i = 0; i < PIECES; i++)
        if (starts[i] != MODEL_T) c->tokens[starts[i]] = DOCUMENT;
}

static void check_documents(const fwa_model_spec *plain) {
    fwa_model_spec spec = *plain;
    spec.reset_documents = true;
    spec.document = DOCUMENT;
    model_case c;
    model_open(&c, &spec);
    place_documents(&c);
    model_train(&c);
    const double packed = c.state.loss_sum;
    fwa_tensor gradients = check_duplicate(model_gradients(&c));
    model_clear(&c);
    for (int i = 0; i < PIECES; i++) {
        fwa_activations *piece = activations_new(&c, 1, starts[i + 1] - starts[i], true);
        model_add(&c, piece, starts[i]);
        fwa_activations_destroy(piece);
    }
    assert_true(fabs(c.state.loss_sum - packed) <= 1e-11 * packed);
    check_close(gradients, model_gradients(&c), 1e-10);
    assert_true(fabs(model_evaluate(&c, c.acts) - packed) <= 1e-11 * packed);
    model_close(&c);
    check_release(NULL);
}

static void test_packed_equals_separate(void **state) {
    (void)state;
    model_variant variants[MODEL_VARIANTS_MOST];
    for (int r = 0; r < fwa_rule_count(); r++)
        for (int i = 0, count = model_variants(fwa_rule_at(r), variants); i < count; i++)
            check_documents(&variants[i].spec);
}

// Without the switch the second document sees the first: the test above can fail.
static void test_documents_matter(void **state) {
    (void)state;
    fwa_model_spec spec = model_spec(fwa_rule_at(0));
    spec.document = DOCUMENT;
    double loss[2];
    for (int reset = 0; reset < 2; reset++) {
        model_case c;
        spec.reset_documents = reset;
        model_open(&c, &spec);
        place_documents(&c);
        loss[reset] = model_evaluate(&c, c.acts);
        model_close(&c);
    }
    assert_true(fabs(loss[0] - loss[1]) > 1e-6);
    check_release(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed_equals_separate),
        cmocka_unit_test(test_documents_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
