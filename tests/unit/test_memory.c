// The memory plan against what a device has: what is refused, with which status, and the key to change.
#include "tests/trainer_case.h"
#include "train/memory.h"

static fwa_world *world;
static trainer_case c;

// Status for a device of `total` bytes of which `used` are taken, as the GPU's or the host's memory.
static fwa_status fits(fwa_backend_kind kind, size_t used, size_t total, int sharing) {
    const fwa_memory_plan plan = fwa_memory_planned(c.trainer);
    const fwa_memory_room room = {used, total, sharing};
    const fwa_backend_kind own = c.trainer->backend->kind;
    c.trainer->backend->kind = kind;
    fwa_status status = fwa_memory_fits(c.trainer, &plan, &room);
    c.trainer->backend->kind = own;
    return status;
}

static bool says(const char *text) {
    return strstr(fwa_error_message(), text) != NULL;
}

static void open_case(const char *const *overrides) {
    trainer_case_open(&c, world, overrides);
}

static void close_case(void) {
    trainer_case_close(&c);
}

static void the_plan_is_the_sum_of_its_classes(void **state) {
    (void)state;
    open_case((const char *const[]){"eval.every=5", NULL});
    const fwa_memory_plan plan = fwa_memory_planned(c.trainer);
    char text[256];
    size_t total = 0;
    for (int i = 0; i < FWA_MEMORY_CLASS_COUNT; i++) {
        assert_true(plan.bytes[i] > 0);
        total += plan.bytes[i];
    }
    assert_int_equal(plan.total, total);
    fwa_memory_text(&plan, text);
    const char *const names[] = {"parameters ", "gradients ", "moments ", "activations ", "scratch ", "evaluation "};
    for (int i = 0; i < FWA_MEMORY_CLASS_COUNT; i++) assert_non_null(strstr(text, names[i]));
    close_case();
    open_case((const char *const[]){"eval.every=0", NULL});
    const fwa_memory_plan less = fwa_memory_planned(c.trainer);
    assert_int_equal(less.bytes[FWA_MEMORY_EVALUATION], 0);
    assert_null(strstr(fwa_memory_text(&less, text), "evaluation"));
    close_case();
}

static void a_plan_beyond_the_device_is_a_configuration_that_cannot_be(void **state) {
    (void)state;
    open_case((const char *const[]){"train.micro_batch=6", "train.global_batch=6", NULL});
    const size_t total = fwa_memory_planned(c.trainer).total;
    check_ok(fits(FWA_BACKEND_CUDA, 0, total, 1));
    check_ok(fits(FWA_BACKEND_CPU, total / 2, total, 1)); // what the host's other processes hold may be cache
    check_status(fits(FWA_BACKEND_CUDA, 0, total - 1, 1), FWA_CONFIG);
    assert_true(says("train.micro_batch") && says("from 6") && says("the GPU has") && says("activations"));
    close_case();
}

static void ranks_of_a_host_share_its_memory(void **state) {
    (void)state;
    open_case((const char *const[]){NULL});
    const size_t total = fwa_memory_planned(c.trainer).total;
    check_ok(fits(FWA_BACKEND_CPU, 0, 4 * total, 4));
    check_status(fits(FWA_BACKEND_CPU, 0, 4 * total - 4, 4), FWA_CONFIG);
    assert_true(says("the host has") && says("for all its ranks"));
    close_case();
}

static void memory_that_others_hold_is_no_mistake_of_the_configuration(void **state) {
    (void)state;
    open_case((const char *const[]){NULL});
    const size_t total = fwa_memory_planned(c.trainer).total;
    check_status(fits(FWA_BACKEND_CUDA, 101, total + 100, 1), FWA_MEMORY);
    assert_true(says("other processes") && says("CUDA_VISIBLE_DEVICES"));
    check_ok(fits(FWA_BACKEND_CUDA, 100, total + 100, 1));
    close_case();
}

static void the_key_is_that_of_the_class_that_weighs(void **state) {
    (void)state;
    open_case((const char *const[]){"train.micro_batch=1", NULL});
    fwa_memory_plan plan = {.bytes = {[FWA_MEMORY_SCRATCH] = 100}, .total = 100};
    const fwa_memory_room room = {0, 50, 1};
    check_status(fwa_memory_fits(c.trainer, &plan, &room), FWA_CONFIG);
    assert_true(says("train.micro_batch is 1 already") && says("train.seq_len"));
    close_case();
    open_case((const char *const[]){NULL});
    plan = (fwa_memory_plan){.bytes = {[FWA_MEMORY_OPTIMIZER] = SIZE_MAX}, .total = SIZE_MAX};
    check_status(fwa_memory_fits(c.trainer, &plan, &room), FWA_CONFIG);
    assert_true(says("model.d_model") && says("parallel.zero=1"));
    close_case();
}

static void a_failed_allocation_is_explained(void **state) {
    (void)state;
    open_case((const char *const[]){NULL});
    fwa_error_raise(FWA_MEMORY, "file", 1, "function", "no memory for the class 'activations'");
    check_status(fwa_memory_explain(c.trainer), FWA_MEMORY);
    assert_true(says("class 'activations'") && says("planned: parameters") && says("train.micro_batch"));
    close_case();
}

int main(int argc, char **argv) {
    if (fwa_world_create(&world, &argc, &argv) != FWA_OK || fwa_world_split(world, 1) != FWA_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_is_the_sum_of_its_classes),
        cmocka_unit_test(a_plan_beyond_the_device_is_a_configuration_that_cannot_be),
        cmocka_unit_test(ranks_of_a_host_share_its_memory),
        cmocka_unit_test(memory_that_others_hold_is_no_mistake_of_the_configuration),
        cmocka_unit_test(the_key_is_that_of_the_class_that_weighs),
        cmocka_unit_test(a_failed_allocation_is_explained),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fwa_world_destroy(world);
    return failed;
}
