// Steps and their reports: late ones say the same as those taken at once, order and numbers hold, a step allocates
// nothing, and the guard ends a run whose next step is already under way. What is configured is what a step does.
#include "tests/temp_folder.h"
#include "tests/trainer_case.h"

#include "core/rng.h"
#include "train/schedule.h"

enum { STEPS = 6 };

static fwa_world *world;
static const char *const none[] = {NULL};

static void late_reports_say_the_same(void **state) {
    (void)state;
    trainer_case a, b;
    size_t bytes, same;
    trainer_case_open(&a, world, none);
    trainer_case_open(&b, world, none);
    fwa_step_report now[STEPS], late;
    for (int i = 0; i < STEPS; i++) now[i] = trainer_case_step(&a);
    check_ok(fwa_trainer_step(b.trainer));
    for (int i = 0; i < STEPS; i++) {
        if (i + 1 < STEPS) check_ok(fwa_trainer_step(b.trainer));
        check_ok(fwa_trainer_report(b.trainer, &late));
        trainer_case_same_reports(&now[i], &late);
        assert_int_equal(late.step, i + 1);
        assert_int_equal(late.tokens, (i + 1) * 6 * b.trainer->source->T);
    }
    const char *masters = trainer_case_masters(&a, &bytes);
    assert_memory_equal(masters, trainer_case_masters(&b, &same), bytes);
    trainer_case_close(&a);
    trainer_case_close(&b);
}

static void reports_are_taken_in_time(void **state) {
    (void)state;
    trainer_case c;
    fwa_step_report report;
    trainer_case_open(&c, world, none);
    assert_int_equal(c.trainer->ahead, 0);
    check_status(fwa_trainer_report(c.trainer, &report), FWA_ERROR);
    check_ok(fwa_trainer_step(c.trainer));
    check_ok(fwa_trainer_step(c.trainer));
    check_status(fwa_trainer_step(c.trainer), FWA_ERROR);
    assert_non_null(strstr(fwa_error_message(), "report of step 1"));
    assert_int_equal(c.trainer->step, 2);
    for (int i = 1; i <= 2; i++) {
        check_ok(fwa_trainer_report(c.trainer, &report));
        assert_int_equal(report.step, i);
    }
    check_status(fwa_trainer_report(c.trainer, &report), FWA_ERROR);
    trainer_case_close(&c);
}

static int allocations;
static fwa_status (*real_alloc)(fwa_backend *, void **, size_t);
static fwa_status counted_alloc(fwa_backend *backend, void **out, size_t bytes) {
    allocations++;
    return real_alloc(backend, out, bytes);
}

static void a_step_allocates_nothing(void **state) {
    (void)state;
    trainer_case c;
    trainer_case_open(&c, world, none);
    fwa_backend *backend = c.trainer->backend;
    real_alloc = backend->alloc;
    backend->alloc = backend->host_alloc = counted_alloc;
    void *memory;
    check_ok(backend->alloc(backend, &memory, 8));
    backend->free(backend, memory);
    assert_int_equal(allocations, 1);
    for (int i = 0; i < 3; i++) trainer_case_step(&c);
    assert_int_equal(allocations, 1);
    trainer_case_close(&c);
}

static void the_guard_speaks_of_its_step(void **state) {
    (void)state;
    trainer_case c;
    fwa_step_report report;
    const char *const overrides[] = {"optimizer.lr=1e30", "schedule.kind=constant", "schedule.min_lr=0",
                                     "guard.max_skips=2", NULL};
    trainer_case_open(&c, world, overrides);
    fwa_status status = fwa_trainer_step(c.trainer);
    for (int i = 0; i < 20 && status == FWA_OK; i++) {
        check_ok(fwa_trainer_step(c.trainer));
        status = fwa_trainer_report(c.trainer, &report);
    }
    char expected[32];
    check_status(status, FWA_NONFINITE);
    assert_int_equal(report.state.skipped_in_a_row, 2);
    assert_int_equal(report.step + 1, c.trainer->step);
    snprintf(expected, sizeof expected, "step %d: 2 steps in a row", (int)report.step);
    assert_non_null(strstr(fwa_error_message(), expected));
    trainer_case_close(&c);
}

static const fwa_adamw_part *part_of(const trainer_case *c, const char *name) {
    const fwa_params *params = &c->trainer->model->params;
    for (int i = 0; i < params->count; i++)
        if (!strcmp(params->at[i].name, name)) return (const fwa_adamw_part *)c->trainer->optimizer->parts.data + i;
    fail_msg("no parameter %s", name);
    return NULL;
}

static void check_part(const trainer_case *c, const char *name, double decay, double lr_scale) {
    const fwa_adamw_part *part = part_of(c, name);
    if (part->decay != decay || part->lr_scale != lr_scale)
        fail_msg("%s: got decay %g and rate %g, expected %g and %g", name, part->decay, part->lr_scale, decay,
                 lr_scale);
}

static void an_update_is_as_configured(void **state) {
    (void)state;
    for (int scaled = 0; scaled < 2; scaled++) {
        trainer_case c;
        const char *const overrides[] = {"optimizer.betas=[0.75, 0.5]", "optimizer.eps=0.125",
                                         "optimizer.weight_decay=0.25",
                                         scaled ? "optimizer.width_scale=true" : "optimizer.width_scale=false", NULL};
        trainer_case_open(&c, world, overrides);
        const fwa_adamw_options *o = &c.trainer->optimizer->options;
        assert_true(o->beta1 == 0.75 && o->beta2 == 0.5 && o->eps == 0.125 && o->decay == 0.25 && o->lr_scale == 1);
        const double inside = scaled ? 1024.0 / 32 : 1;
        check_part(&c, "embedding.weight", 1, 1);
        check_part(&c, "blocks.0.mixer.q.weight", 1, inside);
        check_part(&c, "blocks.1.mlp.down.weight", 1, inside);
        check_part(&c, "blocks.1.mixer.lambda.bias", 0, 1);
        check_part(&c, "norm.weight", 0, 1);
        trainer_case_close(&c);
    }
}

// Clipping, guard and rate of the first two steps.
static void a_step_is_as_configured(void **state) {
    (void)state;
    static const struct {
        const char *clip, *factor;
        double limit; // of the norm; 0: none
        bool skips;   // the second step
    } cases[] = {{"optimizer.clip=1e-3", "guard.spike_factor=0", 1e-3, false},
                 {"optimizer.clip=0", "guard.spike_factor=1e-6", 0, true},
                 {"optimizer.clip=1e6", "guard.spike_factor=1e6", 0, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        trainer_case c;
        trainer_case_open(&c, world, (const char *const[]){cases[i].clip, cases[i].factor, "guard.window=1", NULL});
        for (int step = 1; step <= 2; step++) {
            const fwa_step_report report = trainer_case_step(&c);
            const fwa_step_state *s = &report.state;
            const bool skips = step == 2 && cases[i].skips;
            const double factor = (cases[i].limit > 0 ? cases[i].limit / s->grad_norm : 1) / s->valid;
            assert_true(s->lr == fwa_schedule_rate(c.config, step));
            assert_int_equal(s->skip, skips);
            if (!skips && !(fabs(s->grad_scale - factor) <= 1e-12 * factor))
                fail_msg("%s: got factor %g, expected %g", cases[i].clip, s->grad_scale, factor);
        }
        trainer_case_close(&c);
    }
}

static void write_tokens(const char *path, int count) {
    int32_t header[256] = {20240520, 1, count};
    uint16_t tokens[512];
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int i = 0; i < count; i++) tokens[i] = (uint16_t)fwa_rng_below(3, 0, (uint64_t)i, 277);
    assert_int_equal(fwrite(header, sizeof header, 1, file), 1);
    assert_int_equal(fwrite(tokens, sizeof *tokens, (size_t)count, file), count);
    assert_int_equal(fclose(file), 0);
}

// Five sequences, whatever the size of a batch: what fills up the last one has no part in the loss.
static void validation_counts_each_sequence_once(void **state) {
    (void)state;
    char train[128], val[128];
    double first = NAN;
    snprintf(train, sizeof train, "data.train=%s", temp_path("train.bin"));
    snprintf(val, sizeof val, "data.val=%s", temp_path("val.bin"));
    write_tokens(temp_path("train.bin"), 500);
    write_tokens(temp_path("val.bin"), 5 * 8 + 1);
    static const char *const sizes[] = {"train.micro_batch=1", "train.micro_batch=2", "train.micro_batch=3",
                                        "train.micro_batch=6"};
    for (int i = 0; i < 4; i++) {
        trainer_case c;
        double loss;
        trainer_case_open(&c, world,
                          (const char *const[]){"task.name=lm", "train.seq_len=8", "train.precision=f64",
                                                "eval.every=1", train, val, sizes[i], NULL});
        check_ok(fwa_trainer_validate(c.trainer, &loss));
        if (i == 0) first = loss;
        if (!(fabs(loss - first) <= 1e-12 * first)) fail_msg("%s: got %.15g, expected %.15g", sizes[i], loss, first);
        trainer_case_close(&c);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(late_reports_say_the_same, check_release),
        cmocka_unit_test_teardown(reports_are_taken_in_time, check_release),
        cmocka_unit_test_teardown(a_step_allocates_nothing, check_release),
        cmocka_unit_test_teardown(the_guard_speaks_of_its_step, check_release),
        cmocka_unit_test_teardown(an_update_is_as_configured, check_release),
        cmocka_unit_test_teardown(a_step_is_as_configured, check_release),
        temp_test(validation_counts_each_sequence_once),
    };
    if (fwa_world_create(&world, &argc, &argv) != FWA_OK || fwa_world_split(world, 1) != FWA_OK) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fwa_world_destroy(world);
    return failed;
}
