// A small trainer on the addition task, for tests of the step: the same first steps whatever runs it.
#ifndef FWA_TESTS_TRAINER_CASE_H
#define FWA_TESTS_TRAINER_CASE_H

#include "tests/check.h"

#include "train/trainer.h"

typedef struct trainer_case {
    fwa_config *config;
    fwa_trainer *trainer;
} trainer_case;

static const char trainer_case_text[] = "run: {name: step, seed: 5, backend: cpu, threads: 1}\n"
                                        "model:\n"
                                        "  layers: 2\n"
                                        "  d_model: 32\n"
                                        "  heads: 2\n"
                                        "  head_dim: 16\n"
                                        "  ffn: 64\n"
                                        "  vocab_size: 277\n"
                                        "  mixer: {main: {rule: falcon1}}\n"
                                        "task: {name: addition, format: bracket, width_min: 1, width_max: 3}\n"
                                        "train: {steps: 100, global_batch: 6, micro_batch: 2, precision: f32}\n"
                                        "optimizer: {lr: 5e-3}\n"
                                        "schedule: {kind: linear, warmup: 3, min_lr: 1e-4}\n"
                                        "debug: {deterministic: true}\n";

// `overrides`: "key.path=value" strings, NULL ends them.
static inline void trainer_case_open(trainer_case *c, fwa_world *world, const char *const *overrides) {
    int count = 0;
    while (overrides[count]) count++;
    check_ok(fwa_config_parse(&c->config, trainer_case_text, "case.yaml", overrides, count));
    check_ok(fwa_trainer_create(&c->trainer, world, c->config, NULL, false));
}

static inline void trainer_case_close(trainer_case *c) {
    fwa_trainer_destroy(c->trainer);
    fwa_config_destroy(c->config);
}

// A step and its report, nothing else under way.
static inline fwa_step_report trainer_case_step(trainer_case *c) {
    fwa_step_report report;
    check_ok(fwa_trainer_step(c->trainer));
    check_ok(fwa_trainer_report(c->trainer, &report));
    return report;
}

// Host copies of every master, one behind the other; *bytes in all.
static inline char *trainer_case_masters(trainer_case *c, size_t *bytes) {
    fwa_backend *backend = c->trainer->backend;
    const fwa_params *params = &c->trainer->model->params;
    char *all;
    *bytes = 0;
    for (int i = 0; i < params->count; i++) *bytes += fwa_tensor_bytes(params->at[i].tensor[FWA_PARAM_MASTER]);
    all = check_alloc(*bytes);
    for (int i = 0, used = 0; i < params->count; i++) {
        fwa_tensor t = params->at[i].tensor[FWA_PARAM_MASTER];
        check_ok(backend->download(backend, backend->stream, all + used, t.data, fwa_tensor_bytes(t)));
        used += (int)fwa_tensor_bytes(t);
    }
    check_ok(backend->stream_synchronize(backend, backend->stream));
    return all;
}

static inline void trainer_case_same_reports(const fwa_step_report *a, const fwa_step_report *b) {
    assert_memory_equal(&a->state, &b->state, sizeof a->state);
    assert_memory_equal(&a->gates, &b->gates, sizeof a->gates);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->tokens, b->tokens);
    assert_true(a->token_hash == b->token_hash && a->token_hash != 0);
}

#endif
