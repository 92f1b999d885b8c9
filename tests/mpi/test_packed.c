// Packed addition trains as one example a sequence does: losses, norms of gradients and numbers of targets of the first
// updates are equal up to rounding, for every rule, with its windows and both shifts, on any number of ranks.
#include "mpi_support.h"

#include "kernels/registry.h"
#include "tests/trainer_case.h"
#include "train/tasks/addition.h"

enum { STEPS = 3, OVERRIDES = 24 };

static fwa_world *world;

// Sequences of 71 tokens hold about three examples of 15 to 29; chunks of 16 and of 64 end anywhere in them.
#define SHARED "task.width_max=5", "train.steps=3", "schedule.kind=constant", "schedule.warmup=0", "schedule.min_lr=0"
static const char *const plain[] = {SHARED, "train.global_batch=24", "train.micro_batch=2", NULL};
static const char *const packed[] = {SHARED,
                                     "train.global_batch=12",
                                     "train.micro_batch=1",
                                     "train.seq_len=71",
                                     "task.examples=24",
                                     "data.reset_documents=true",
                                     NULL};

static void train(const char *const *layout, const char *const *settings, int32_t document, int steps,
                  fwa_step_report report[STEPS]) {
    const char *all[OVERRIDES];
    int count = 0;
    for (; *layout; layout++) all[count++] = *layout;
    for (; *settings; settings++) all[count++] = *settings;
    all[count] = NULL;
    trainer_case c;
    trainer_case_open(&c, world, all);
    c.trainer->model->spec.document = document;
    for (int i = 0; i < steps; i++) report[i] = trainer_case_step(&c);
    trainer_case_close(&c);
}

static bool near(double a, double b, double limit) {
    return fabs(a - b) <= limit * fabs(a);
}

static void check_settings(const char *const *settings, int steps, double limit) {
    fwa_step_report one[STEPS], other[STEPS];
    train(plain, settings, FWA_ADDITION_BEGIN, steps, one);
    train(packed, settings, FWA_ADDITION_BEGIN, steps, other);
    for (int i = 0; i < steps; i++) {
        const fwa_step_state *a = &one[i].state, *b = &other[i].state;
        const bool good = a->valid > 0 && a->valid == b->valid && near(a->loss, b->loss, limit) &&
                          near(a->grad_norm, b->grad_norm, 10 * limit);
        if (!good)
            fprintf(stderr, "%s: step %d: loss %.17g and %.17g, norm %.17g and %.17g\n", settings[0], i + 1, a->loss,
                    b->loss, a->grad_norm, b->grad_norm);
        ASSERT_ALL(good);
    }
    ASSERT_ALL(steps == 1 || one[0].state.loss != one[1].state.loss);
}

static void check_rule(const fwa_rule *rule, int steps, const char *more) {
    char name[64];
    snprintf(name, sizeof name, "model.mixer.rule=%s", rule->name);
    const char *settings[] = {name, "train.precision=f64", "model.mixer.chunk=16", more, NULL};
    check_settings(settings, steps, 1e-9);
}

static void every_rule_in_double(void **state) {
    (void)state;
    for (int r = 0; r < fwa_rule_count(); r++) {
        const fwa_rule *rule = fwa_rule_at(r);
        check_rule(rule, STEPS, NULL);
        check_rule(rule, 1, "model.mixer.chunk=64");
        if (rule->switches & FWA_SWITCH_SHIFT) check_rule(rule, 1, "model.mixer.shift=same_step");
        if (rule->switches & FWA_SWITCH_READ) check_rule(rule, 1, "model.mixer.read=before_write");
        if (rule->switches & FWA_SWITCH_WINDOW) check_rule(rule, 1, "model.mixer.window=9");
        if (rule->switches & FWA_SWITCH_CONV) check_rule(rule, 1, "model.mixer.conv=0");
        if (rule->switches & FWA_SWITCH_ROTARY) check_rule(rule, 1, "model.mixer.rotary=false");
    }
}

static void every_rule_in_float(void **state) {
    (void)state;
    for (int r = 0; r < fwa_rule_count(); r++) {
        char name[64];
        snprintf(name, sizeof name, "model.mixer.rule=%s", fwa_rule_at(r)->name);
        const char *settings[] = {name, NULL};
        check_settings(settings, 1, 1e-6);
    }
}

// Where no token starts a document, examples see those in front of them: the tests above can fail.
static void documents_matter(void **state) {
    (void)state;
    fwa_step_report one[STEPS], other[STEPS];
    for (int r = 0; r < fwa_rule_count(); r++) {
        char name[64];
        snprintf(name, sizeof name, "model.mixer.rule=%s", fwa_rule_at(r)->name);
        const char *settings[] = {name, "train.precision=f64", NULL};
        train(packed, settings, FWA_ADDITION_BEGIN, 1, one);
        train(packed, settings, FWA_ADDITION_PAD, 1, other);
        ASSERT_ALL(!near(one[0].state.loss, other[0].state.loss, 1e-6));
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_rule_in_double, check_release),
        cmocka_unit_test_teardown(every_rule_in_float, check_release),
        cmocka_unit_test_teardown(documents_matter, check_release),
    };
    if (fwa_world_create(&world, &argc, &argv) != FWA_OK || fwa_world_split(world, 1) != FWA_OK) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fwa_world_destroy(world);
    return failed;
}
