// debug.profile: rows add up and are printed, a timed step computes the same bits as any other and names its parts, and
// whoever listened before still hears of them.
#include "tests/trainer_case.h"

#include "kernels/registry.h"
#include "train/bench/profile_rows.h"

static fwa_world *world;

static int op_named(const char *name) {
    for (int i = 0; i < fwa_op_count(); i++)
        if (strcmp(fwa_op_name(i), name) == 0) return i;
    fail_msg("no operator %s", name);
    return -1;
}

static void expect_text(const char *text, const char *part) {
    if (!text || !strstr(text, part)) fail_msg("expected '%s' in:\n%s", part, text ? text : "nothing");
}

static void rows_add_up(void **state) {
    (void)state;
    fwa_backend *cpu;
    check_ok(fwa_backend_create(&cpu, FWA_BACKEND_CPU, FWA_F32, 0, 1));
    fwa_profile_rows rows = {.backend = cpu, .floor = {.copy = 1e9, .product = 1e12, .size = 1024}, .steps = 2};
    const int rest = fwa_profile_row_find(&rows, "head", FWA_PROFILE_REST);
    const int gemm = fwa_profile_row_find(&rows, "head", op_named("gemm"));
    const int other = fwa_profile_row_find(&rows, "mlp forward", op_named("gemm"));
    assert_int_equal(fwa_profile_row_find(&rows, "head", op_named("gemm")), gemm);
    assert_true(rest != gemm && gemm != other);
    rows.at[rest].calls = 2, rows.at[rest].seconds = 0.002;
    rows.at[gemm].calls = 4, rows.at[gemm].seconds = 0.006;
    rows.at[other].calls = 2, rows.at[other].seconds = 0.012;
    fwa_profile_row_add(&rows, gemm, (fwa_cost){1e6, 3e9}); // 1 ms of moving, 3 ms of products
    fwa_profile_row_add(&rows, other, (fwa_cost){4e6, 0});
    char *json = fwa_profile_rows_json(&rows), *table = fwa_profile_rows_table(&rows);
    expect_text(json, "\"steps\": 2");
    expect_text(json, "\"ms\": 10, \"copy_gb_per_s\": 1.0");
    expect_text(json, "{\"part\": \"mlp forward\", \"calls\": 0, \"ms\": 6, \"percent\": 60, \"bytes\": 2000000, "
                      "\"flops\": 0, \"floor_ms\": 2,");
    expect_text(json, "{\"part\": \"head\", \"calls\": 1, \"ms\": 4, \"percent\": 40, \"bytes\": 500000, "
                      "\"flops\": 1500000000, \"floor_ms\": 1.5,");
    expect_text(json, "{\"operator\": \"gemm\", \"calls\": 2, \"ms\": 3,");
    expect_text(table, "10.000 ms a step, mean of 2");
    assert_true(strstr(table, "mlp forward") < strstr(table, "head")); // the longest first
    expect_text(table, "37.5%");                                       // of its floor the head
    free(json);
    free(table);
    for (int i = 0; i < 2 * FWA_PROFILE_ROWS; i++)
        assert_true(fwa_profile_row_find(&rows, "full", i) < FWA_PROFILE_ROWS);
    cpu->destroy(cpu);
}

static int begun, ended, deepest, blocks;
static void hear_begin(fwa_ranges *ranges, const char *name, int number) {
    (void)ranges;
    begun++;
    if (begun - ended > deepest) deepest = begun - ended;
    if (strcmp(name, FWA_RANGE_BLOCK) == 0 && number == 1) blocks++;
}
static void hear_end(fwa_ranges *ranges) {
    (void)ranges;
    ended++;
}

static const char *const none[] = {NULL};

static void a_timed_step_is_a_step(void **state) {
    (void)state;
    trainer_case plain, timed;
    fwa_profile *profile;
    fwa_ranges listener = {hear_begin, hear_end};
    trainer_case_open(&plain, world, none);
    trainer_case_open(&timed, world, none);
    fwa_backend *backend = timed.trainer->backend;
    const fwa_ops *ops = backend->ops;
    fwa_step_report expected = trainer_case_step(&plain), got = trainer_case_step(&timed);
    check_ok(fwa_profile_create(&profile, timed.trainer));
    backend->ranges = &listener;
    for (int i = 0; i < 2; i++) {
        expected = trainer_case_step(&plain);
        check_ok(fwa_profile_step(profile));
        check_ok(fwa_trainer_report(timed.trainer, &got));
        trainer_case_same_reports(&expected, &got);
    }
    assert_ptr_equal(backend->ops, ops);
    assert_ptr_equal(backend->ranges, &listener);
    assert_int_equal(timed.trainer->eager, plain.trainer->eager);
    assert_true(begun > 0 && begun == ended && deepest >= 2);
    assert_int_equal(blocks, 2 * 3 * 2); // steps, micro-batches, passes
    backend->ranges = NULL;
    expected = trainer_case_step(&plain);
    got = trainer_case_step(&timed);
    trainer_case_same_reports(&expected, &got);
    char *json = fwa_profile_json(profile), *table = fwa_profile_table(profile);
    const char *const parts[] = {
        "embedding forward",  "norm forward",       "projections forward",  "features forward",
        "rule forward",       "output forward",     "mlp forward",          "head",
        "mlp backward",       "output backward",    "rule backward",        "features backward",
        "norm backward",      "embedding backward", "projections backward", "clear gradients",
        "wait for gradients", "optimizer",          "read tokens",          "share values",
        "load tokens"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char field[64];
        snprintf(field, sizeof field, "\"part\": \"%s\"", parts[i]);
        expect_text(json, field);
    }
    expect_text(json, "\"part\": \"rule forward\", \"calls\": 6,"); // two layers, three micro-batches
    expect_text(table, "where the time goes");
    free(json);
    free(table);
    fwa_profile_destroy(profile);
    trainer_case_close(&plain);
    trainer_case_close(&timed);
}

static void a_failure_puts_everything_back(void **state) {
    (void)state;
    trainer_case c;
    fwa_profile *profile;
    trainer_case_open(&c, world, none);
    const fwa_ops *ops = c.trainer->backend->ops;
    check_ok(fwa_profile_create(&profile, c.trainer));
    check_ok(fwa_profile_step(profile));
    check_ok(fwa_profile_step(profile));
    check_status(fwa_profile_step(profile), FWA_ERROR); // no report was taken
    assert_ptr_equal(c.trainer->backend->ops, ops);
    assert_null(c.trainer->backend->ranges);
    fwa_profile_destroy(profile);
    trainer_case_close(&c);
}

// Steps 2 and 3 of the start are timed, and none is under way around them.
static void reports_come_in_time(void **state) {
    (void)state;
    fwa_config config = {.debug.profile = 2};
    for (int64_t given = 0; given < 8; given++)
        assert_int_equal(fwa_profile_waits_before(&config, given), given >= 2 && given <= 4);
    config.debug.profile = INT64_MAX;
    for (int64_t given = 0; given < 8; given++) assert_int_equal(fwa_profile_waits_before(&config, given), given >= 2);
    config.debug.profile = 0;
    for (int64_t given = 0; given < 8; given++) assert_false(fwa_profile_waits_before(&config, given));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(rows_add_up, check_release),
        cmocka_unit_test_teardown(a_timed_step_is_a_step, check_release),
        cmocka_unit_test_teardown(reports_come_in_time, check_release),
        cmocka_unit_test_teardown(a_failure_puts_everything_back, check_release),
    };
    if (fwa_world_create(&world, &argc, &argv) != FWA_OK || fwa_world_split(world, 1) != FWA_OK) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fwa_world_destroy(world);
    return failed;
}
