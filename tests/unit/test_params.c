// The parameter table of a model: counts of the published sizes, names, groups, packing, padding, initial values.
#include "core/shape.h"
#include "tests/model_case.h"

static const fwa_param *find(const fwa_model *model, const char *name) {
    for (int i = 0; i < model->params.count; i++)
        if (strcmp(model->params.at[i].name, name) == 0) return &model->params.at[i];
    fail_msg("no parameter %s", name);
    return NULL;
}

// The small model of 12 layers and the medium one of 24, both of width 128 a head.
static fwa_model_spec published(const char *rule_name, bool medium) {
    fwa_model_spec spec = model_spec(fwa_rule_find(rule_name));
    spec.L = medium ? 24 : 12;
    spec.D = medium ? 1024 : 768;
    spec.H = medium ? 8 : 6;
    spec.K = 128;
    spec.F = medium ? 2730 : 2048;
    spec.N = 50304;
    spec.vocab = 50257;
    return spec;
}

// Nothing is allocated for it.
static fwa_model *planned(fwa_backend *plan, const fwa_model_spec *spec) {
    fwa_model *model;
    check_ok(fwa_model_create(&model, spec, plan, true));
    return model;
}

static void test_published_counts(void **state) {
    (void)state;
    static const struct {
        const char *rule;
        bool medium;
        int64_t count;
    } sizes[] = {
        {"softmax", false, 123587328},        {"falcon1", false, 130888080},
        {"falcon1a", false, 130888080},       {"falcon3a", false, 130888080},
        {"softmax", true, 353502208},         {"falcon1", true, 379359616},
        {"falcon1a", true, 379359616},        {"falcon3a", true, 379359616},
        {"falcon2", false, 137919816},        {"falcon2a", false, 137919816},
        {"falcon2", true, 404353216},         {"falcon2a", true, 404353216},
        {"retnet", false, 130666752},         {"deltanet", false, 130832712},
        {"gated_deltanet", false, 130888152}, {"linear_attention", false, 130777344},
        {"retnet", true, 378671104},          {"deltanet", true, 379162816},
        {"gated_deltanet", true, 379359808},  {"linear_attention", true, 378966016},
    };
    static const fwa_dtype precisions[] = {FWA_F64, FWA_F32, FWA_BF16};
    for (int d = 0; d < 3; d++) {
        fwa_backend *plan;
        check_ok(fwa_backend_create_plan(&plan, precisions[d], 1));
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const fwa_model_spec spec = published(sizes[i].rule, sizes[i].medium);
            fwa_model *model = planned(plan, &spec);
            const fwa_params *params = &model->params;
            size_t least = (size_t)sizes[i].count * fwa_dtype_size(plan->master);
            assert_int_equal(fwa_params_count(params), sizes[i].count);
            // Padding and alignment stay small.
            assert_in_range(fwa_params_bytes(params, FWA_PARAM_MASTER), least, least + least / 200);
            assert_int_equal(fwa_params_bytes(params, FWA_PARAM_GRAD), fwa_params_bytes(params, FWA_PARAM_MASTER));
            assert_int_equal(fwa_params_bytes(params, FWA_PARAM_VALUE) > 0, precisions[d] == FWA_BF16);
            for (int which = 0; which < FWA_PARAM_CLASS_COUNT; which++)
                if (params->arena[which]) assert_null(fwa_arena_data(params->arena[which]));
            fwa_model_destroy(model);
        }
        plan->destroy(plan);
    }
}

// A beta per value channel of rank N: N D + H V N + H V parameters a layer, where one a head has H D + H.
static void test_low_rank_beta(void **state) {
    (void)state;
    fwa_backend *plan;
    check_ok(fwa_backend_create_plan(&plan, FWA_F32, 1));
    fwa_model_spec spec = published("falcon2", false);
    spec.mixer[0].beta_rank = 64;
    fwa_model *model = planned(plan, &spec);
    assert_int_equal(fwa_params_count(&model->params), 130888080 + 12 * (64 * 768 + 768 * 64 + 768 - 6 * 768 - 6));
    const fwa_param *down = find(model, "blocks.3.mixer.beta_down.weight");
    const fwa_param *up = find(model, "blocks.3.mixer.beta_up.weight");
    const fwa_param *bias = find(model, "blocks.3.mixer.beta.bias");
    assert_true(down->shape[0] == 64 && down->shape[1] == 768 && up->shape[0] == 768 && up->shape[1] == 64);
    assert_true(bias->ndim == 1 && bias->shape[0] == 768 && !bias->decay && !bias->width_scaled);
    assert_true(down->decay && down->width_scaled && up->decay && up->width_scaled && !up->packed);
    fwa_model_destroy(model);
    plan->destroy(plan);
}

// Heads of size 64 that share one of 128 for queries and keys; the inner width is twice that of the model.
static fwa_model_spec state_space(int64_t L, int64_t D, int64_t F) {
    fwa_model_spec spec = published("mamba2", false);
    spec.L = L;
    spec.D = D;
    spec.H = 2 * D / 64;
    spec.K = 64;
    spec.F = F;
    spec.mixer[0].state = 128;
    return spec;
}

static void test_state_space_counts(void **state) {
    (void)state;
    fwa_backend *plan;
    check_ok(fwa_backend_create_plan(&plan, FWA_F32, 1));
    const fwa_model_spec specs[] = {state_space(24, 768, 0), state_space(12, 768, 2048), state_space(48, 1024, 0)};
    const int64_t counts[] = {128958912, 140428896, 368252416};
    for (int i = 0; i < 3; i++) {
        fwa_model *model = planned(plan, &specs[i]);
        assert_int_equal(fwa_params_count(&model->params), counts[i]);
        int inner = 0; // parameters of the MLP
        for (int p = 0; p < model->params.count; p++)
            inner += strstr(model->params.at[p].name, ".mlp.") || strstr(model->params.at[p].name, ".norm2.");
        assert_int_equal(inner, specs[i].F > 0 ? 4 * specs[i].L : 0);
        fwa_model_destroy(model);
    }
    plan->destroy(plan);
}

// Without the output gate.
static void test_counts_without_gate(void **state) {
    (void)state;
    fwa_backend *plan;
    fwa_model_spec spec = published("deltanet", false);
    spec.mixer[0].gate = false;
    check_ok(fwa_backend_create_plan(&plan, FWA_F32, 1));
    fwa_model *model = planned(plan, &spec);
    assert_int_equal(fwa_params_count(&model->params), 123754824);
    fwa_model_destroy(model);
    plan->destroy(plan);
}

static void test_without_training(void **state) {
    (void)state;
    fwa_backend *plan;
    fwa_model *model;
    fwa_model_spec spec = model_spec(fwa_rule_at(0));
    check_ok(fwa_backend_create_plan(&plan, FWA_F32, 1));
    check_ok(fwa_model_create(&model, &spec, plan, false));
    assert_true(fwa_params_bytes(&model->params, FWA_PARAM_MASTER) > 0);
    assert_int_equal(fwa_params_bytes(&model->params, FWA_PARAM_GRAD), 0);
    assert_int_equal(fwa_params_bytes(&model->params, FWA_PARAM_M), 0);
    assert_int_equal(fwa_params_bytes(&model->params, FWA_PARAM_V), 0);
    fwa_model_destroy(model);
    plan->destroy(plan);
}

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

// The matrices inside blocks, by the last words of their names.
static bool is_block_matrix(const char *name) {
    static const char *const matrices[] = {".mixer.q.weight",    ".mixer.k.weight",    ".mixer.v.weight",
                                           ".mixer.gate.weight", ".mixer.beta.weight", ".mixer.lambda.weight",
                                           ".mixer.dt.weight",   ".mixer.out.weight",  ".mlp.gate.weight",
                                           ".mlp.up.weight",     ".mlp.down.weight"};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        if (strncmp(name, "blocks.", 7) == 0 && ends_with(name, matrices[i])) return true;
    return false;
}

static void test_names_and_groups(void **state) {
    (void)state;
    model_case c;
    fwa_model_spec spec = model_spec_hybrid();
    model_open(&c, &spec);
    const fwa_params *params = &c.model->params;
    int matrices = 0;
    for (int i = 0; i < params->count; i++) {
        const fwa_param *p = &params->at[i];
        const bool embedding = strcmp(p->name, "embedding.weight") == 0, block = is_block_matrix(p->name);
        for (int j = 0; j < i; j++) assert_string_not_equal(p->name, params->at[j].name);
        if (p->decay != (embedding || block) || p->matrix != p->decay || p->width_scaled != block)
            fail_msg("%s: matrix %d, decay %d, width_scaled %d", p->name, p->matrix, p->decay, p->width_scaled);
        assert_int_equal(fwa_param_named(p, FWA_PARAM_MASTER).decay, p->decay);
        if (embedding) assert_int_equal(p->bucket, 0);
        matrices += block;
        int layer;
        if (sscanf(p->name, "blocks.%d.", &layer) == 1) assert_int_equal(p->bucket, layer + 1);
    }
    assert_true(matrices >= 7 * spec.L);
    assert_string_equal(params->at[params->count - 1].name, "norm.weight");
    assert_int_equal(params->at[params->count - 1].bucket, spec.L + 1);
    assert_int_equal(params->buckets, spec.L + 2);
    model_close(&c);
}

static void test_packed_equals_its_parts(void **state) {
    (void)state;
    model_case c;
    fwa_model_spec spec = model_spec_hybrid();
    model_open(&c, &spec);
    const fwa_params *params = &c.model->params;
    int groups = 0;
    for (int first = 0; first < params->count; first++) {
        int count = 1;
        while (first + count < params->count && params->at[first + count].packed) count++;
        if (count == 1) continue;
        for (int which = 0; which < FWA_PARAM_CLASS_COUNT; which++) {
            fwa_tensor packed = fwa_params_packed(params, first, count, (fwa_param_class)which);
            int64_t row = 0;
            assert_true(fwa_tensor_dense(packed));
            for (int i = first; i < first + count; i++) {
                fwa_tensor part = params->at[i].tensor[which];
                assert_int_equal(check_differences(fwa_tensor_slice(packed, 0, row, part.shape[0]), part), 0);
                assert_ptr_equal(fwa_tensor_slice(packed, 0, row, part.shape[0]).data, part.data);
                row += part.shape[0];
            }
            assert_int_equal(packed.shape[0], row);
        }
        groups++;
        first += count - 1;
    }
    assert_int_equal(groups, 2 * spec.L); // projection of the mixer, gate and up of the mlp
    model_close(&c);
}

// Elements of the storage outside the logical part that are not zero.
static int64_t dirty_padding(const fwa_param *p, fwa_param_class which) {
    const fwa_tensor storage = p->tensor[which];
    int64_t columns = p->ndim > 1 ? p->storage[1] : 1, dirty = 0;
    for (int64_t i = 0; i < fwa_tensor_count(storage); i++) {
        bool logical = i / columns < p->shape[0] && (p->ndim < 2 || i % columns < p->shape[1]);
        if (!logical && check_get(storage, i) != 0) dirty++;
    }
    return dirty;
}

static void check_padding(const model_case *c) {
    for (int i = 0; i < c->model->params.count; i++)
        for (int which = 0; which < FWA_PARAM_CLASS_COUNT; which++)
            if (dirty_padding(&c->model->params.at[i], (fwa_param_class)which))
                fail_msg("%s: padding of class %d is not zero", c->model->params.at[i].name, which);
}

static void update(model_case *c) {
    const fwa_adamw_options options = {.lr_scale = 1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1};
    c->state.lr = 0.01;
    c->state.grad_scale = 1 / c->state.valid;
    c->state.accepted = 1;
    for (int i = 0; i < c->model->params.count; i++) {
        const fwa_param *p = &c->model->params.at[i];
        check_ok(c->backend->ops->adamw(c->backend->stream, p->tensor[FWA_PARAM_MASTER], fwa_tensor_absent(),
                                        p->tensor[FWA_PARAM_GRAD], p->tensor[FWA_PARAM_M], p->tensor[FWA_PARAM_V],
                                        &options, &c->state));
    }
}

static void test_padding_stays_zero(void **state) {
    (void)state;
    model_case c;
    fwa_model_spec spec = model_spec_hybrid();
    int64_t padded = 0, expected = 0;
    model_open(&c, &spec);
    fwa_tensor before = check_duplicate(c.model->params.at[c.model->blocks[0].mlp.down].tensor[FWA_PARAM_MASTER]);
    check_padding(&c);
    for (int step = 0; step < 3; step++) {
        model_train(&c);
        update(&c);
        check_padding(&c);
    }
    assert_true(check_differences(c.model->params.at[c.model->blocks[0].mlp.down].tensor[FWA_PARAM_MASTER], before));
    for (int i = 0; i < c.model->params.count; i++) {
        const fwa_param *p = &c.model->params.at[i];
        if (p->ndim == 2 && (p->storage[0] != p->shape[0] || p->storage[1] != p->shape[1])) padded++;
    }
    for (int l = 0; l < spec.L; l++) {
        const fwa_mixer_layer *mixer = &c.model->blocks[l].mixer;
        expected += 3 + (mixer->P > mixer->used); // gate, up and down of the mlp, the last part of the projection
    }
    assert_true(expected > 3 * spec.L);
    assert_int_equal(padded, expected);
    model_close(&c);
}

static void test_named_views(void **state) {
    (void)state;
    model_case c;
    fwa_model_spec spec = model_spec(fwa_rule_find("falcon1"));
    model_open(&c, &spec);
    for (int i = 0; i < c.model->params.count; i++) {
        const fwa_param *p = &c.model->params.at[i];
        const fwa_named_tensor named = fwa_param_named(p, FWA_PARAM_MASTER);
        assert_string_equal(named.name, p->name);
        assert_ptr_equal(named.tensor.data, p->tensor[FWA_PARAM_MASTER].data);
        assert_int_equal(named.tensor.ndim, p->ndim);
        assert_int_equal(named.row_start, 0);
        for (int d = 0; d < p->ndim; d++) {
            assert_int_equal(named.shape[d], p->shape[d]);
            assert_int_equal(named.tensor.shape[d], p->shape[d]);
        }
    }
    const fwa_named_tensor down = fwa_param_named(&c.model->params.at[c.model->blocks[1].mlp.down], FWA_PARAM_GRAD);
    assert_string_equal(down.name, "blocks.1.mlp.down.weight");
    assert_int_equal(down.tensor.shape[1], 10);
    assert_int_equal(down.tensor.stride[0], 16);
    const fwa_named_tensor table = fwa_param_named(&c.model->params.at[c.model->embedding], FWA_PARAM_MASTER);
    assert_string_equal(table.init, "normal 0.02");
    model_close(&c);
}

static fwa_model *initialized(fwa_backend *backend, const fwa_model_spec *spec, uint64_t seed) {
    fwa_model *model;
    check_ok(fwa_model_create(&model, spec, backend, false));
    check_ok(fwa_model_commit(model, backend, seed));
    return model;
}

// What a parameter starts as, from its name alone.
static double expected_value(const fwa_model_spec *spec, const char *name, uint64_t seed, int64_t i) {
    double normal = fwa_rng_normal(seed, fwa_rng_hash(name), (uint64_t)i);
    double uniform = fwa_rng_uniform(seed, fwa_rng_hash(name), (uint64_t)i);
    if (strstr(name, "norm") || ends_with(name, "mixer.D")) return 1;
    if (ends_with(name, "A_log")) return log(1 + 15 * uniform);
    if (ends_with(name, "dt_bias")) return log(expm1(0.001 * pow(100, uniform)));
    if (strstr(name, "beta_up.weight")) return 0.5 / sqrt((double)spec->mixer[0].beta_rank) * normal;
    if (strstr(name, "beta.bias")) return log(spec->mixer[0].beta_init / (1 - spec->mixer[0].beta_init));
    if (strstr(name, "lambda.bias")) return log(spec->mixer[0].lambda_init / (1 - spec->mixer[0].lambda_init));
    if (strstr(name, "conv")) return uniform - 0.5;
    if (strstr(name, "embedding")) return 0.02 * normal;
    double scale = ends_with(name, "out.weight") || ends_with(name, "mlp.down.weight") ? 1 / sqrt((double)spec->L) : 1;
    return scale * 0.5 / sqrt((double)spec->D) * normal;
}

static void check_initial_values(const fwa_model_spec *spec) {
    fwa_backend *f64, *f32;
    check_ok(fwa_backend_create(&f64, FWA_BACKEND_CPU, FWA_F64, 0, 1));
    check_ok(fwa_backend_create(&f32, FWA_BACKEND_CPU, FWA_F32, 0, 2));
    fwa_model *wide = initialized(f64, spec, 7), *narrow = initialized(f32, spec, 7);
    for (int i = 0; i < wide->params.count; i++) {
        const fwa_named_tensor a = fwa_param_named(&wide->params.at[i], FWA_PARAM_VALUE);
        const fwa_tensor b = fwa_param_named(&narrow->params.at[i], FWA_PARAM_VALUE).tensor;
        for (int64_t j = 0; j < fwa_tensor_count(a.tensor); j++) {
            double expected = expected_value(spec, a.name, 7, j);
            if (fabs(check_get(a.tensor, j) - expected) > 1e-15 || check_get(b, j) != (double)(float)expected)
                fail_msg("%s[%lld]: %.17g, %.9g, expected %.17g", a.name, (long long)j, check_get(a.tensor, j),
                         check_get(b, j), expected);
        }
    }
    fwa_model_destroy(wide);
    fwa_model_destroy(narrow);
    f64->destroy(f64);
    f32->destroy(f32);
}

static void test_initial_values_are_a_function_of_name_and_index(void **state) {
    (void)state;
    fwa_model_spec head = model_spec(fwa_rule_find("falcon3a")), channel = model_spec(fwa_rule_find("falcon2"));
    head.mixer[0].beta_init = 0.3;
    channel.mixer[0].beta_rank = 3;
    fwa_model_spec space = model_spec(fwa_rule_find("mamba2"));
    check_initial_values(&head);
    check_initial_values(&channel);
    check_initial_values(&space);
}

static void check_spread(const fwa_model *model, const char *name, double deviation) {
    const fwa_tensor t = find(model, name)->tensor[FWA_PARAM_MASTER];
    const double n = (double)fwa_tensor_count(t);
    double sum = 0, square = check_dot(t, t);
    for (int64_t i = 0; i < fwa_tensor_count(t); i++) sum += check_get(t, i);
    // Five standard errors of mean and of deviation.
    assert_true(fabs(sum / n) <= 5 * deviation / sqrt(n));
    assert_true(fabs(sqrt(square / n) / deviation - 1) <= 5 / sqrt(2 * n));
}

static void test_statistics(void **state) {
    (void)state;
    fwa_backend *backend;
    fwa_model_spec spec = model_spec(fwa_rule_find("falcon1"));
    spec.L = 4;
    spec.D = 64;
    spec.K = 16;
    spec.H = 4;
    spec.F = 96;
    spec.N = 200;
    check_ok(fwa_backend_create(&backend, FWA_BACKEND_CPU, FWA_F32, 0, 1));
    fwa_model *model = initialized(backend, &spec, 11), *other = initialized(backend, &spec, 12);
    check_spread(model, "embedding.weight", 0.02);
    check_spread(model, "blocks.0.mixer.q.weight", 0.5 / 8);
    check_spread(model, "blocks.3.mixer.beta.weight", 0.5 / 8);
    check_spread(model, "blocks.2.mlp.up.weight", 0.5 / 8);
    check_spread(model, "blocks.1.mixer.out.weight", 0.25 / 8);
    check_spread(model, "blocks.0.mlp.down.weight", 0.25 / 8);
    check_spread(model, "blocks.0.mixer.conv_k.weight", 0.5 / sqrt(3));
    // Other names and other seeds give other numbers.
    const fwa_tensor q = find(model, "blocks.0.mixer.q.weight")->tensor[FWA_PARAM_MASTER];
    const fwa_tensor k = find(model, "blocks.0.mixer.k.weight")->tensor[FWA_PARAM_MASTER];
    const fwa_tensor seeded = find(other, "blocks.0.mixer.q.weight")->tensor[FWA_PARAM_MASTER];
    assert_true(check_differences(q, k) > 4000);
    assert_true(check_differences(q, seeded) > 4000);
    fwa_model_destroy(model);
    fwa_model_destroy(other);
    backend->destroy(backend);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_counts),
        cmocka_unit_test(test_state_space_counts),
        cmocka_unit_test(test_counts_without_gate),
        cmocka_unit_test(test_low_rank_beta),
        cmocka_unit_test(test_without_training),
        cmocka_unit_test(test_names_and_groups),
        cmocka_unit_test(test_packed_equals_its_parts),
        cmocka_unit_test_teardown(test_padding_stays_zero, check_release),
        cmocka_unit_test(test_named_views),
        cmocka_unit_test(test_initial_values_are_a_function_of_name_and_index),
        cmocka_unit_test(test_statistics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
