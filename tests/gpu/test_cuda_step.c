// The training step on a GPU: recorded micro-steps give the bits of those run call by call, with reports taken late or
// at once, with sums of gates and without; nothing is allocated once the graphs stand, and the host does not wait.
// `mpirun -np N` for N GPUs of one node. At the smallest test size one recorded model is all: its tools allocate and
// wait themselves.
#include "tests/gpu/device_check.h"
#include "tests/trainer_case.h"

#include "core/clock.h"

enum { STEPS = 6, RECORDED = 2 }; // micro-steps are recorded in the second step

static fwa_world *world;
static bool smallest; // test size
static const char *const precisions[] = {"train.precision=f32", "train.precision=bf16"};

static const char *zero = "parallel.zero=0";

// Heads of 64: the fast kernels in bf16.
static void open_case(trainer_case *c, const char *rule, int precision, const char *micro_batch, bool eager) {
    char batch[64], mixer[64];
    snprintf(batch, sizeof batch, "train.global_batch=%d", 6 * world->size);
    snprintf(mixer, sizeof mixer, "model.mixer.main={rule: %s}", rule);
    const char *const overrides[] = {"run.backend=cuda",
                                     "model.d_model=128",
                                     "model.head_dim=64",
                                     mixer,
                                     precisions[precision],
                                     micro_batch,
                                     batch,
                                     zero,
                                     NULL};
    trainer_case_open(c, world, overrides);
    c->trainer->eager = eager;
}

// The first step, and then two of three.
static bool sums_gates(int step) {
    return step % 3 != 1;
}

static void give_step(trainer_case *c, int step) {
    c->trainer->wants_gates = sums_gates(step);
    check_ok(fwa_trainer_step(c->trainer));
}

static void compare(const char *rule, int precision, const char *micro_batch) {
    trainer_case eager, recorded;
    fwa_step_report reports[STEPS], late;
    size_t bytes, same;
    print_message("%s, %s, %s\n", rule, precisions[precision], micro_batch);
    open_case(&eager, rule, precision, micro_batch, true);
    open_case(&recorded, rule, precision, micro_batch, false);
    for (int i = 0; i < STEPS; i++) {
        eager.trainer->wants_gates = sums_gates(i);
        reports[i] = trainer_case_step(&eager);
        assert_true((reports[i].gates.steps > 0) == (eager.trainer->gates && sums_gates(i)));
    }
    give_step(&recorded, 0);
    for (int i = 0; i < STEPS; i++) {
        if (i + 1 < STEPS) give_step(&recorded, i + 1);
        check_ok(fwa_trainer_report(recorded.trainer, &late));
        trainer_case_same_reports(&reports[i], &late);
        if (i > 0) assert_true(late.state.lr != reports[i - 1].state.lr);
    }
    assert_true(reports[STEPS - 1].state.loss < reports[0].state.loss);
    const int64_t pieces = recorded.trainer->accumulation;
    for (int i = 0; i < 4; i++) {
        const bool first = i / 2, last = i % 2;
        const bool takes_place = first && last ? pieces == 1 : first || last ? pieces > 1 : pieces > 2;
        assert_null(eager.trainer->graphs[first][last]);
        assert_true(!!recorded.trainer->graphs[first][last] == takes_place);
    }
    assert_true(!eager.trainer->update_graph && recorded.trainer->update_graph);
    const char *masters = trainer_case_masters(&eager, &bytes);
    assert_memory_equal(masters, trainer_case_masters(&recorded, &same), bytes);
    trainer_case_close(&eager);
    trainer_case_close(&recorded);
    check_release(NULL);
}

// Micro-batches of 6 sequences: one a step; of 2: three.
static void recorded_steps_equal_those_call_by_call(void **state) {
    (void)state;
    if (smallest) {
        compare("falcon1a", 1, "train.micro_batch=3");
        return;
    }
    for (int precision = 0; precision < 2; precision++) {
        compare("falcon1", precision, "train.micro_batch=6");
        compare("falcon1", precision, "train.micro_batch=2");
    }
}

// Ranks that update pieces of the parameters send values, which is recorded as well.
static void sharded_steps_equal_those_call_by_call(void **state) {
    (void)state;
    if (world->size == 1 || smallest) return;
    zero = "parallel.zero=1";
    for (int precision = 0; precision < 2; precision++) compare("falcon1", precision, "train.micro_batch=2");
    zero = "parallel.zero=0";
}

static void work_of_every_rule_can_be_recorded(void **state) {
    (void)state;
    for (int i = 0; i < fwa_rule_count() && !smallest; i++) {
        const char *rule = fwa_rule_at(i)->name;
        if (fwa_rule_on_backend(rule, FWA_BACKEND_CUDA)) compare(rule, 1, "train.micro_batch=3");
    }
}

static void steps_may_change_between_both_ways(void **state) {
    (void)state;
    trainer_case eager, mixed;
    if (smallest) return;
    open_case(&eager, "falcon3a", 1, "train.micro_batch=2", true);
    open_case(&mixed, "falcon3a", 1, "train.micro_batch=2", false);
    for (int i = 0; i < 2 * STEPS; i++) {
        mixed.trainer->eager = i % 3 == 2;
        const fwa_step_report a = trainer_case_step(&eager), b = trainer_case_step(&mixed);
        trainer_case_same_reports(&a, &b);
    }
    trainer_case_close(&eager);
    trainer_case_close(&mixed);
}

// Of all processes on the GPU together: nothing else may run there.
static void memory_stays_as_it_is(void **state) {
    (void)state;
    trainer_case c;
    size_t before = 0, after = 0, total = 0;
    if (smallest) return;
    open_case(&c, "falcon1a", 1, "train.micro_batch=2", false);
    fwa_backend *backend = c.trainer->backend;
    c.trainer->wants_gates = true;
    for (int i = 0; i < RECORDED + 1; i++) trainer_case_step(&c);
    check_ok(backend->memory(backend, &before, &total));
    for (int i = 0; i < 4 * STEPS; i++) trainer_case_step(&c);
    check_ok(backend->memory(backend, &after, &total));
    assert_int_equal(after, before);
    trainer_case_close(&c);
}

// A step is given while the device is busy with something that takes far longer than giving it.
static void the_host_does_not_wait(void **state) {
    (void)state;
    enum { FILLS = 400 };
    const size_t bytes = (size_t)1 << 30;
    trainer_case c;
    void *memory = NULL;
    if (smallest) return;
    open_case(&c, "falcon1a", 1, "train.micro_batch=2", false);
    fwa_backend *backend = c.trainer->backend;
    c.trainer->wants_gates = true;
    check_ok(backend->alloc(backend, &memory, bytes));
    for (int i = 0; i < RECORDED + 1; i++) trainer_case_step(&c);
    double given[2], start;
    for (int i = 0; i < FILLS; i++) check_ok(backend->fill(backend, backend->stream, memory, i, bytes));
    start = fwa_clock_seconds();
    for (int i = 0; i < 2; i++) {
        check_ok(fwa_trainer_step(c.trainer));
        given[i] = fwa_clock_seconds() - start;
    }
    check_ok(backend->stream_synchronize(backend, backend->stream));
    double done = fwa_clock_seconds() - start;
    print_message("one step given after %.2f ms, two after %.2f ms, done after %.2f ms\n", 1e3 * given[0],
                  1e3 * given[1], 1e3 * done);
    assert_true(given[1] < done / 4);
    backend->free(backend, memory);
    trainer_case_close(&c);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(recorded_steps_equal_those_call_by_call, check_release),
        cmocka_unit_test_teardown(sharded_steps_equal_those_call_by_call, check_release),
        cmocka_unit_test_teardown(work_of_every_rule_can_be_recorded, check_release),
        cmocka_unit_test_teardown(steps_may_change_between_both_ways, check_release),
        cmocka_unit_test_teardown(memory_stays_as_it_is, check_release),
        cmocka_unit_test(the_host_does_not_wait),
    };
    smallest = device_test_size() == TEST_SMALLEST;
    if (fwa_world_create(&world, &argc, &argv) != FWA_OK || fwa_world_split(world, 1) != FWA_OK) return 1;
    if (fwa_backend_device_count(FWA_BACKEND_CUDA) < world->node_size) {
        printf("skipped: %d ranks need as many usable GPUs\n", world->node_size);
        fwa_world_destroy(world);
        return DEVICE_SKIP;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fwa_world_destroy(world);
    return failed;
}
