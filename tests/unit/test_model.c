// What a whole model must keep to, whatever its rules: accumulation, evaluation, the head in pieces, missing targets,
// padded vocabulary, memory that starts as anything, causality, and gradients that are final when they are announced.
#include "tests/model_case.h"

static void with_model(const fwa_model_spec *spec, void (*body)(model_case *c)) {
    model_case c;
    model_open(&c, spec);
    body(&c);
    model_close(&c);
    check_release(NULL);
}

// Runs `body` for one model of every setting of every rule.
static void each_model(void (*body)(model_case *c)) {
    model_variant variants[MODEL_VARIANTS_MOST];
    for (int r = 0; r < fwa_rule_count(); r++)
        for (int i = 0, count = model_variants(fwa_rule_at(r), variants); i < count; i++)
            with_model(&variants[i].spec, body);
}

static void open_hybrid(model_case *c) {
    fwa_model_spec spec = model_spec_hybrid();
    model_open(c, &spec);
}

static void check_accumulation(model_case *c) {
    model_train(c);
    const fwa_step_state whole = c->state;
    fwa_tensor gradients = check_duplicate(model_gradients(c));
    fwa_activations *half = activations_new(c, 1, MODEL_T, true);
    model_clear(c);
    model_add(c, half, 0);
    model_add(c, half, MODEL_T);
    assert_true(fabs(c->state.loss_sum - whole.loss_sum) <= 1e-12 * whole.loss_sum);
    assert_true(c->state.valid == whole.valid);
    check_close(model_gradients(c), gradients, 1e-12);
    fwa_activations_destroy(half);
}

static void test_accumulation_equals_one_batch(void **state) {
    (void)state;
    each_model(check_accumulation);
}

static void check_evaluation(model_case *c) {
    fwa_activations *shared = activations_new(c, MODEL_B, MODEL_T, false);
    assert_true(fwa_arena_bytes(shared->kept) < fwa_arena_bytes(c->acts->kept));
    for (int round = 0; round < 2; round++) {
        model_train(c);
        double trained = c->state.loss_sum;
        assert_true(trained > 0);
        assert_true(model_evaluate(c, shared) == trained);
        assert_int_equal(check_differences(shared->head.loss, c->acts->head.loss), 0);
        assert_int_equal(check_differences(shared->head.prediction, c->acts->head.prediction), 0);
    }
    assert_true(c->state.valid == MODEL_ROWS - 3); // every fifth row from 1 on has no target
    fwa_activations_destroy(shared);
}

static void test_evaluation_equals_training(void **state) {
    (void)state;
    each_model(check_evaluation);
}

static void check_pieces(model_case *c) {
    model_train(c);
    const double loss = c->state.loss_sum;
    fwa_tensor gradients = check_duplicate(model_gradients(c));
    fwa_tensor prediction = check_duplicate(c->acts->head.prediction);
    assert_int_equal(c->acts->head.rows, MODEL_ROWS);
    for (int64_t rows = 1; rows < MODEL_ROWS; rows += 4) {
        c->acts->head.rows = rows;
        model_train(c);
        assert_true(fabs(c->state.loss_sum - loss) <= 1e-12 * loss);
        check_close(model_gradients(c), gradients, 1e-12);
        assert_int_equal(check_differences(c->acts->head.prediction, prediction), 0);
    }
}

static void test_head_in_pieces(void **state) {
    (void)state;
    each_model(check_pieces);
}

static void test_large_vocabularies_take_several_pieces(void **state) {
    (void)state;
    fwa_backend *plan;
    fwa_model *model;
    fwa_activations *acts;
    fwa_model_spec spec = model_spec(fwa_rule_at(0));
    spec.N = spec.vocab = 50304;
    check_ok(fwa_backend_create_plan(&plan, FWA_BF16, 1));
    check_ok(fwa_model_create(&model, &spec, plan, true));
    check_ok(fwa_activations_create(&acts, model, plan, 8, 1024, true, (fwa_pieces){NULL, 0}));
    assert_int_equal(acts->head.rows, 4096); // two even pieces
    assert_int_equal(acts->head.logits.shape[0], acts->head.rows);
    fwa_activations_destroy(acts);
    fwa_model_destroy(model);
    plan->destroy(plan);
}

static void test_padded_vocabulary_takes_no_part(void **state) {
    (void)state;
    model_case c;
    open_hybrid(&c);
    const int64_t D = c.model->spec.D, first = c.model->spec.vocab * D, end = c.model->spec.N * D;
    model_train(&c);
    double loss = c.state.loss_sum;
    fwa_tensor gradients = check_duplicate(model_gradients(&c));
    for (int64_t i = first; i < end; i++) {
        assert_true(check_get(param_grad(&c, c.model->embedding), i) == 0);
        param_set(&c, c.model->embedding, i, 50);
    }
    model_train(&c);
    assert_true(c.state.loss_sum == loss);
    assert_int_equal(check_differences(model_gradients(&c), gradients), 0);
    for (int64_t r = 0; r < MODEL_ROWS; r++)
        assert_true(check_get(c.acts->head.prediction, r) < (double)c.model->spec.vocab);
    model_close(&c);
}

static void check_no_targets(model_case *c) {
    for (int r = 0; r < MODEL_ROWS; r++) c->targets[r] = -1;
    model_train(c);
    assert_true(c->state.loss_sum == 0);
    assert_true(c->state.valid == 0);
    for (int64_t i = 0; i < fwa_tensor_count(model_gradients(c)); i++)
        assert_true(check_get(model_gradients(c), i) == 0);
}

static void test_no_targets_no_gradient(void **state) {
    (void)state;
    each_model(check_no_targets);
}

static void fill_memory(const fwa_activations *acts, int byte) {
    memset(fwa_arena_data(acts->kept), byte, fwa_arena_bytes(acts->kept));
    memset(fwa_arena_data(acts->scratch), byte, fwa_arena_bytes(acts->scratch));
}

static void check_poisoned(model_case *c) {
    fwa_activations *shared = activations_new(c, MODEL_B, MODEL_T, false);
    fill_memory(c->acts, 0);
    model_train(c);
    double loss = c->state.loss_sum;
    fwa_tensor gradients = check_duplicate(model_gradients(c));
    fill_memory(c->acts, 0xFF);
    fill_memory(shared, 0xFF);
    model_train(c);
    assert_true(c->state.loss_sum == loss);
    assert_int_equal(check_differences(model_gradients(c), gradients), 0);
    assert_true(model_evaluate(c, shared) == loss);
    fwa_activations_destroy(shared);
}

static void test_memory_may_hold_anything(void **state) {
    (void)state;
    each_model(check_poisoned);
}

// Another token at t leaves what stands before t, and the other sequence, as it was.
static void check_causality(model_case *c) {
    fwa_activations *shared = activations_new(c, MODEL_B, MODEL_T, false);
    for (int r = 0; r < MODEL_ROWS; r++) c->targets[r] = r % 17;
    model_evaluate(c, shared);
    fwa_tensor loss = check_duplicate(shared->head.loss), prediction = check_duplicate(shared->head.prediction);
    fwa_tensor n = check_duplicate(shared->n);
    for (int t = 0; t < MODEL_T; t++) {
        c->tokens[t] = (c->tokens[t] + 1) % 17;
        model_evaluate(c, shared);
        c->tokens[t] = (c->tokens[t] + 16) % 17;
        for (int64_t r = 0; r < MODEL_ROWS; r++) {
            fwa_tensor row = fwa_tensor_slice(shared->n, 0, r, 1), before = fwa_tensor_slice(n, 0, r, 1);
            if (r >= t && r < MODEL_T) continue;
            assert_int_equal(check_differences(row, before), 0);
            assert_true(check_get(shared->head.loss, r) == check_get(loss, r));
            assert_true(check_get(shared->head.prediction, r) == check_get(prediction, r));
        }
        assert_true(check_get(shared->head.loss, t) != check_get(loss, t));
        // The change reaches the end: every rule remembers.
        assert_true(check_get(shared->head.loss, MODEL_T - 1) != check_get(loss, MODEL_T - 1));
    }
    fwa_activations_destroy(shared);
}

static void test_causality(void **state) {
    (void)state;
    each_model(check_causality);
}

typedef struct announced {
    const fwa_params *params;
    int count, order[FWA_MAX_MIXERS + 4];
    fwa_tensor then[FWA_MAX_MIXERS + 4]; // gradients of order[i] when announced
} announced;

static fwa_status bucket_done(void *user, int bucket) {
    announced *a = user;
    a->order[a->count] = bucket;
    a->then[a->count++] = check_duplicate(fwa_params_bucket(a->params, bucket));
    return FWA_OK;
}

static void test_buckets_are_final_when_announced(void **state) {
    (void)state;
    model_case c;
    open_hybrid(&c);
    announced a = {.params = &c.model->params};
    const fwa_bucket_hook hook = {bucket_done, &a};
    model_train(&c); // gradients of an earlier micro-batch
    check_ok(fwa_model_train(c.acts, &c.state, &hook));
    assert_int_equal(a.count, c.model->spec.L + 2);
    for (int i = 0; i < a.count; i++) {
        assert_int_equal(a.order[i], a.count - 1 - i);
        assert_int_equal(check_differences(fwa_params_bucket(a.params, a.order[i]), a.then[i]), 0);
    }
    model_close(&c);
}

// Gradients of matrices need not be cleared in front of a fresh micro-batch; the next one adds to them.
static void test_fresh_gradients(void **state) {
    (void)state;
    model_case c;
    open_hybrid(&c);
    model_train(&c);
    model_add(&c, c.acts, 0);
    const fwa_tensor expected = check_duplicate(model_gradients(&c));
    for (int pieces = 0; pieces < 2; pieces++) {
        for (int i = 0; i < c.model->params.count; i++) check_poison(c.model->params.at[i].tensor[FWA_PARAM_GRAD]);
        check_ok(fwa_params_clear_added(&c.model->params, c.backend));
        if (pieces) c.acts->head.rows = 5; // the first one alone overwrites
        for (int i = 0; i < 2; i++) {
            c.acts->ctx.fresh = i == 0;
            model_add(&c, c.acts, 0);
        }
        check_close(model_gradients(&c), expected, pieces ? 1e-12 : 1e-14);
    }
    model_close(&c);
}

static bool holds(fwa_tensor bucket, fwa_tensor grad) {
    const char *start = bucket.data, *data = grad.data;
    return data >= start && data + fwa_tensor_bytes(grad) <= start + fwa_tensor_bytes(bucket);
}

static bool overlap(fwa_tensor a, fwa_tensor b) {
    const char *x = a.data, *y = b.data;
    return x < y + fwa_tensor_bytes(b) && y < x + fwa_tensor_bytes(a);
}

static void test_buckets_hold_every_gradient_once(void **state) {
    (void)state;
    model_case c;
    open_hybrid(&c);
    const fwa_params *params = &c.model->params;
    for (int i = 0; i < params->count; i++)
        for (int b = 0; b < params->buckets; b++)
            assert_int_equal(holds(fwa_params_bucket(params, b), params->at[i].tensor[FWA_PARAM_GRAD]),
                             params->at[i].bucket == b);
    for (int a = 0; a < params->buckets; a++)
        for (int b = 0; b < a; b++) assert_false(overlap(fwa_params_bucket(params, a), fwa_params_bucket(params, b)));
    model_close(&c);
}

static fwa_status refuse(void *user, int bucket) {
    (void)user;
    FWA_CHECK(bucket != 1, FWA_COMM, "bucket %d: refused", bucket);
    return FWA_OK;
}

static void test_errors_of_the_hook_come_back(void **state) {
    (void)state;
    model_case c;
    open_hybrid(&c);
    const fwa_bucket_hook hook = {refuse, NULL};
    check_ok(fwa_model_load(c.acts, c.tokens, c.targets));
    check_status(fwa_model_train(c.acts, &c.state, &hook), FWA_COMM);
    model_close(&c);
}

static void check_refused(const fwa_model_spec *spec, fwa_status code, const char *part) {
    fwa_backend *plan;
    fwa_model *model = NULL;
    check_ok(fwa_backend_create_plan(&plan, FWA_F32, 1));
    check_status(fwa_model_create(&model, spec, plan, true), code);
    assert_null(model);
    if (!strstr(fwa_error_message(), part)) fail_msg("\"%s\" is not in: %s", part, fwa_error_message());
    plan->destroy(plan);
}

static void test_impossible_models_are_refused(void **state) {
    (void)state;
    const fwa_model_spec good = model_spec(fwa_rule_find("falcon1")), plain = model_spec(fwa_rule_find("softmax")),
                         space = model_spec(fwa_rule_find("mamba2")), channels = model_spec(fwa_rule_find("falcon2"));
    fwa_model_spec spec;
#define REFUSED(from, change, part)                                                                                    \
    do {                                                                                                               \
        spec = (from);                                                                                                 \
        change;                                                                                                        \
        check_refused(&spec, FWA_CONFIG, part);                                                                        \
    } while (0)
    REFUSED(good, spec.L = 0, "0 layers");
    REFUSED(good, spec.L = FWA_MAX_LAYERS + 1, "layers");
    REFUSED(good, spec.F = -1, "ffn -1");
    REFUSED(good, spec.K = 0, "heads of size 0");
    REFUSED(good, spec.vocab = 21, "21 ids");
    REFUSED(good, spec.mixer_count = 0, "0 mixers");
    REFUSED(good, spec.layer_mixer[1] = 1, "layer 1 wants mixer 1");
    REFUSED(good, spec.mixer[0].beta_init = 1, "beta_init 1");
    REFUSED(good, spec.mixer[0].lambda_init = 0, "lambda_init 0");
    REFUSED(good, spec.mixer[0].beta_rank = 2, "beta_rank 2");
    REFUSED(good, spec.mixer[0].beta_range = 0, "beta_range 0");
    REFUSED(channels, spec.mixer[0].beta_rank = 2; spec.mixer[0].beta = FWA_GATE_CONSTANT, "beta is no projection");
    REFUSED(good, spec.mixer[0].state = 4, "state 4");
    REFUSED(space, spec.mixer[0].state = 0, "state 0");
    REFUSED(plain, spec.mixer[0].gate = true, "gate");
    REFUSED(plain, spec.mixer[0].conv = 4, "conv 4");
    REFUSED(good, spec.mixer[0].rotary = true, "rotary");
#undef REFUSED
}

// Values that stay as they start: what the model computes with constants of the same value, without their gradients.
static void test_fixed_beta_and_lambda(void **state) {
    (void)state;
    for (int r = 0; r < fwa_rule_count(); r++) {
        const fwa_rule *rule = fwa_rule_at(r);
        if (!(rule->inputs & (FWA_INPUT_BETA | FWA_INPUT_BETA_CHANNEL))) continue;
        model_case c[2];
        for (int fixed = 0; fixed < 2; fixed++) {
            fwa_model_spec spec = model_spec(rule);
            spec.mixer[0].beta = spec.mixer[0].lambda = fixed ? FWA_GATE_FIXED : FWA_GATE_CONSTANT;
            spec.mixer[0].beta_init = 0.375;
            model_open(&c[fixed], &spec);
            model_train(&c[fixed]);
        }
        assert_true(c[0].state.loss_sum == c[1].state.loss_sum);
        assert_int_equal(c[0].model->params.count, c[1].model->params.count);
        for (int p = 0; p < c[0].model->params.count; p++) {
            const bool gate =
                strstr(c[0].model->params.at[p].name, ".bias") && !strstr(c[0].model->params.at[p].name, "dt");
            const fwa_tensor learned = param_grad(&c[0], p), kept = param_grad(&c[1], p);
            for (int64_t i = 0; i < fwa_tensor_count(learned); i++) {
                assert_true(check_get(kept, i) == (gate ? 0 : check_get(learned, i)));
                assert_true(!gate || check_get(learned, i) != 0);
            }
        }
        for (int fixed = 0; fixed < 2; fixed++) model_close(&c[fixed]);
    }
}

static void test_training_needs_memory_for_it(void **state) {
    (void)state;
    model_case c;
    open_hybrid(&c);
    fwa_activations *shared = activations_new(&c, MODEL_B, MODEL_T, false);
    check_status(fwa_model_train(shared, &c.state, NULL), FWA_ERROR);
    fwa_activations_destroy(shared);
    model_close(&c);
}

// Rows of activations start at multiples of 16 bytes in bf16 and the packed projection is as wide, however many scalars
// the heads have.
static void test_rows_are_aligned(void **state) {
    (void)state;
    model_case c;
    open_hybrid(&c);
    for (int l = 0; l < c.acts->L; l++) {
        const fwa_block_acts *acts = &c.acts->blocks[l];
        const fwa_mixer_layer *mixer = &c.model->blocks[l].mixer;
        assert_int_equal(acts->mixer.proj.stride[0] % FWA_ROW_ALIGN, 0);
        assert_int_equal(acts->mixer.proj.shape[1], mixer->P);
        assert_in_range(mixer->P - mixer->used, 0, FWA_ROW_ALIGN - 1);
        assert_int_equal(fwa_params_packed(&c.model->params, mixer->q.weight, mixer->parts, FWA_PARAM_VALUE).shape[0],
                         mixer->P);
        assert_int_equal(acts->mlp.hidden.stride[0] % FWA_ROW_ALIGN, 0);
        assert_int_equal(c.acts->block_scratch[l].mixer.dproj.stride[0], acts->mixer.proj.stride[0]);
    }
    model_close(&c);
}

// Scores of some rows, in the order asked for, are those of the evaluation of all.
static void test_scores_of_some_rows(void **state) {
    (void)state;
    static const fwa_rows ranges[] = {{9, 3}, {0, 1}, {4, 2}};
    fwa_model_spec spec = model_spec_hybrid();
    model_case c;
    model_open(&c, &spec);
    fwa_activations *acts = activations_new(&c, MODEL_B, MODEL_T, false);
    for (int r = 0; r < MODEL_ROWS; r++) c.targets[r] = (5 * r + 1) % (int)spec.vocab;
    model_evaluate(&c, acts);
    const fwa_tensor loss = check_duplicate(acts->head.loss);
    int32_t targets[MODEL_ROWS], predictions[MODEL_ROWS];
    memcpy(predictions, acts->head.prediction.data, sizeof predictions);
    int n = 0;
    for (size_t i = 0; i < 3; i++)
        for (int64_t r = 0; r < ranges[i].count; r++) targets[n++] = c.targets[ranges[i].first + r];
    memset(&c.state, 0, sizeof c.state);
    check_ok(fwa_model_score(acts, c.tokens, targets, ranges, 3, &c.state));
    assert_true(c.state.valid == n);
    for (int i = 0, at = 0; i < 3; at += (int)ranges[i++].count) {
        const int64_t first = ranges[i].first, count = ranges[i].count;
        check_close(fwa_tensor_slice(acts->head.loss, 0, at, count), fwa_tensor_slice(loss, 0, first, count), 1e-12);
        for (int64_t r = 0; r < count; r++)
            assert_int_equal(((const int32_t *)acts->head.prediction.data)[at + r], predictions[first + r]);
    }
    fwa_activations_destroy(acts);
    model_close(&c);
    check_release(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_accumulation_equals_one_batch, check_release),
        cmocka_unit_test_teardown(test_fresh_gradients, check_release),
        cmocka_unit_test_teardown(test_evaluation_equals_training, check_release),
        cmocka_unit_test_teardown(test_head_in_pieces, check_release),
        cmocka_unit_test(test_large_vocabularies_take_several_pieces),
        cmocka_unit_test_teardown(test_padded_vocabulary_takes_no_part, check_release),
        cmocka_unit_test_teardown(test_no_targets_no_gradient, check_release),
        cmocka_unit_test_teardown(test_memory_may_hold_anything, check_release),
        cmocka_unit_test_teardown(test_causality, check_release),
        cmocka_unit_test_teardown(test_buckets_are_final_when_announced, check_release),
        cmocka_unit_test(test_buckets_hold_every_gradient_once),
        cmocka_unit_test(test_errors_of_the_hook_come_back),
        cmocka_unit_test(test_impossible_models_are_refused),
        cmocka_unit_test(test_fixed_beta_and_lambda),
        cmocka_unit_test(test_training_needs_memory_for_it),
        cmocka_unit_test(test_rows_are_aligned),
        cmocka_unit_test(test_scores_of_some_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
