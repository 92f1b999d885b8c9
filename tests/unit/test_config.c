// Reading configurations: every kind of mistake with its text, all mistakes at once, bases, overrides, defaults.
#include "config_check.h"

// One wrong line behind a good configuration: it stands in line 3 (of a section, in line 4).
static void every_kind_of_mistake_is_told(void **state) {
    (void)state;
    static const struct {
        const char *text, *problem;
    } cases[] = {
        {"optimzer: {lr: 1}\n", "case.yaml:3: optimzer: unknown key; the nearest is optimizer"},
        {"optimizer:\n  lrr: 1\n", "case.yaml:4: optimizer.lrr: unknown key; the nearest is optimizer.lr"},
        {"schedule:\n  weight_decay: 0\n",
         "case.yaml:4: schedule.weight_decay: unknown key; the nearest is optimizer.weight_decay"},
        {"lr: 1e-3\n", "case.yaml:3: lr: unknown key; the nearest is optimizer.lr"},
        {"optimizer.lr: 1e-3\n",
         "case.yaml:3: optimizer.lr: dotted keys are for the command line; nest them in a file"},
        {"optimizer:\n  lr: 1\n  lr: 1\n", "case.yaml:5: optimizer.lr: given twice; the first stands in line 4"},
        {"log:\n  every: 2\nlog:\n  every: 2\n", "case.yaml:5: log: given twice; the first stands in line 3"},
        {"log:\n  every: 1.5\n", "case.yaml:4: log.every: got 1.5, expected an integer in [1, inf)"},
        {"log:\n  every: 1_000\n", "case.yaml:4: log.every: got 1_000, expected an integer in [1, inf)"},
        {"log:\n  every: 1e3\n", "case.yaml:4: log.every: got 1e3, expected an integer in [1, inf)"},
        {"log:\n  every: 0x10\n", "case.yaml:4: log.every: got 0x10, expected an integer in [1, inf)"},
        {"log:\n  every: \"5\"\n", "case.yaml:4: log.every: got \"5\", expected an integer in [1, inf)"},
        {"log:\n  every: 0\n", "case.yaml:4: log.every: got 0, expected an integer in [1, inf)"},
        {"log:\n  every: 9223372036854775808\n",
         "case.yaml:4: log.every: got 9223372036854775808, expected an integer in [1, inf)"},
        {"log:\n  every:\n", "case.yaml:4: log.every: got no value, expected an integer in [1, inf)"},
        {"log:\n  every: {a: 1}\n", "case.yaml:4: log.every: got a mapping, expected an integer in [1, inf)"},
        {"log:\n  every: [1, 2, 3, 4]\n",
         "case.yaml:4: log.every: got [1, 2, 3, ...], expected an integer in [1, inf)"},
        {"log: 7\n", "case.yaml:3: log: expected a mapping of keys"},
        {"optimizer:\n  lr: fast\n", "case.yaml:4: optimizer.lr: got fast, expected a number in [0, inf)"},
        {"optimizer:\n  lr: nan\n", "case.yaml:4: optimizer.lr: got nan, expected a number in [0, inf)"},
        {"optimizer:\n  lr: 1e999\n", "case.yaml:4: optimizer.lr: got 1e999, expected a number in [0, inf)"},
        {"optimizer:\n  lr: 1e-3x\n", "case.yaml:4: optimizer.lr: got 1e-3x, expected a number in [0, inf)"},
        {"optimizer:\n  lr: -1e-3\n", "case.yaml:4: optimizer.lr: got -1e-3, expected a number in [0, inf)"},
        {"optimizer:\n  lr: auto\n", "case.yaml:4: optimizer.lr: got auto, expected a number in [0, inf)"},
        {"optimizer:\n  betas: 0.9\n",
         "case.yaml:4: optimizer.betas: got 0.9, expected a list of two numbers in [0, 1)"},
        {"optimizer:\n  betas: [0.9, 1]\n",
         "case.yaml:4: optimizer.betas: got [0.9, 1], expected a list of two numbers in [0, 1)"},
        {"optimizer:\n  betas: [0.9, 0.9, 0.9]\n",
         "case.yaml:4: optimizer.betas: got [0.9, 0.9, 0.9], expected a list of two numbers in [0, 1)"},
        {"optimizer:\n  width_scale: yes\n", "case.yaml:4: optimizer.width_scale: got yes, expected true or false"},
        {"schedule:\n  kind: cosin\n",
         "case.yaml:4: schedule.kind: got cosin, expected one of cosine, wsd, linear, constant"},
        {"run:\n  threads: some\n", "case.yaml:4: run.threads: got some, expected auto or an integer in [1, 4096]"},
        {"run:\n  dir: \"\"\n", "case.yaml:4: run.dir: got \"\", expected printable text of 1 to 255 bytes"},
        {"run:\n  dir: \"a\\nb\"\n", "case.yaml:4: run.dir: got \"a\nb\", expected printable text of 1 to 255 bytes"},
        {"parallel:\n  zero: 2\n", "case.yaml:4: parallel.zero: got 2, expected an integer in [0, 1]"},
        {"schedule:\n  decay_fraction: 0\n",
         "case.yaml:4: schedule.decay_fraction: got 0, expected a number in (0, 1]"},
        {"schedule:\n  warmup: 4001\n", "case.yaml:4: schedule.warmup: got 4001, expected at most train.steps 4000"},
        {"schedule:\n  min_lr: 1\n", "case.yaml:4: schedule.min_lr: got 1, expected at most optimizer.lr 0.001"},
        {"optimizer:\n  lr: 1e-5\n",
         "case.yaml:1: schedule.min_lr (default): got 5e-05, expected at most optimizer.lr 1e-05"},
        {"task:\n  width_min: 33\n", "case.yaml:4: task.width_min: got 33, expected at most task.width_max 32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, CONFIG_MINIMAL "%s", cases[i].text);
        config_expect_text(text, cases[i].problem);
    }
}

static void mixers_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *model, *problem;
    } cases[] = {
        {"  mixers: [main, swa]\n", "case.yaml:3: model.mixers: model.mixer has no entry swa; entries: main"},
        {"  mixers: [b, b]\n  mixer: {a: {}}\n", "case.yaml:3: model.mixers: model.mixer has no entry b; entries: a"},
        {"  mixers: []\n", "case.yaml:3: model.mixers: got [], expected a list of 1 to 256 entries of model.mixer"},
        {"  mixers: main\n", "case.yaml:3: model.mixers: got main, expected a list of 1 to 256 entries of model.mixer"},
        {"  mixer: {swa: {}}\n", "case.yaml:2: model.mixers (default): model.mixer has no entry main; entries: swa"},
        {"  mixer: 5\n", "case.yaml:3: model.mixer: expected a mapping of entries"},
        {"  mixer:\n    main: 5\n", "case.yaml:4: model.mixer.main: expected a mapping of mixer settings"},
        {"  mixer:\n    main:\n      windw: 5\n",
         "case.yaml:5: model.mixer.main.windw: unknown key; the nearest is model.mixer.main.window"},
        {"  mixer:\n    main:\n      eta_maxx: 5\n    other: {phi: tanh}\n",
         "case.yaml:5: model.mixer.main.eta_maxx: unknown key; the nearest is model.mixer.main.eta_max\n"
         "case.yaml:6: model.mixer.other.phi: got tanh, expected one of identity, elu1, relu, silu"},
        {"  mixer:\n    main: {beta_init: 1}\n",
         "case.yaml:4: model.mixer.main.beta_init: got 1, expected a number in (0, 1)"},
        {"  mixer:\n    main: {lambda_init: 0}\n",
         "case.yaml:4: model.mixer.main.lambda_init: got 0, expected a number in (0, 1)"},
        {"  mixer:\n    main: {detach_scale: yes}\n",
         "case.yaml:4: model.mixer.main.detach_scale: got yes, expected one of auto, false, true"},
        {"  mixer: {main: {}, a: {}, b: {}, c: {}, d: {}, e: {}, f: {}, g: {}, h: {}}\n",
         "case.yaml:3: model.mixer.h: more than 8 entries"},
        {"  mixer:\n    main: {}\n    a.b: {}\n", "case.yaml:5: model.mixer.a.b: not the name of an entry: 1 to 31 "
                                                  "letters, digits, _ or -, and no setting's name. "
                                                  "Settings stand inside an entry: mixer: {main: {rule: falcon1a}}"},
        {"  mixer:\n    main: {}\n    rule: falcon1\n",
         "case.yaml:5: model.mixer.rule: not the name of an entry: 1 to 31 letters, digits, _ or -, and no setting's "
         "name. "
         "Settings stand inside an entry: mixer: {main: {rule: falcon1a}}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "train: {steps: 4000, micro_batch: 2, global_batch: 8}\n"
                 "model: {layers: 2, d_model: 64, heads: 4, head_dim: 16, ffn: 168}\n");
        config_write("sizes.yaml", text);
        snprintf(text, sizeof text, "base: sizes.yaml\nmodel:\n%s", cases[i].model);
        config_expect_text(text, cases[i].problem);
    }
}

static void required_keys_are_asked_for(void **state) {
    (void)state;
    config_expect_text(
        "train:\n  steps: 5000\n  global_batch: 4\nlog: {every: 1}\nmodel: {d_model: 8, heads: 1, head_dim: 8}\n",
        "case.yaml:5: model.layers: required, but not given; expected an integer in [1, 256]\n"
        "case.yaml:5: model.ffn: required, but not given; expected an integer in [0, 1048576]\n"
        "case.yaml:1: train.micro_batch: required, but not given; expected an integer in [1, 1048576]");
}

static void all_mistakes_come_in_one_run(void **state) {
    (void)state;
    config_write("base.yaml",
                 "train:\n  steps: many\n  micro_batch: 3\nmodel: {layers: 2, layers: 3, d_model: 64, heads: 4}\n");
    config_write("case.yaml",
                 "base: base.yaml\nmodel:\n  head_dim: 16\n  fnn: 5\ntrain: {global_batch: 8}\neval: {evry: 5}\n");
    config_expect("case.yaml", OVERRIDES("optimizer.lr=quick", "nothing", "model.mixer.rul=x"),
                  "base.yaml:4: model.layers: given twice; the first stands in line 4\n"
                  "command line: nothing: got \"nothing\", expected key.path=value\n"
                  "command line: model.mixer.rul: unknown key; the nearest is model.mixer.rule\n"
                  "base.yaml:2: train.steps: got many, expected an integer in [1, inf)\n"
                  "case.yaml:4: model.fnn: unknown key; the nearest is model.ffn\n"
                  "case.yaml:6: eval.evry: unknown key; the nearest is eval.every\n"
                  "command line: optimizer.lr: got quick, expected a number in [0, inf)\n"
                  "case.yaml:2: model.ffn: required, but not given; expected an integer in [0, 1048576]\n"
                  "case.yaml:5: train.global_batch: got 8, expected a multiple of train.micro_batch 3");
}

static void broken_files_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"a: [1\nb: 2\n", "case.yaml:2:2: not YAML: did not find expected ',' or ']', while parsing a flow sequence"},
        {"a: 1\n---\nb: 2\n", "case.yaml:2:1: a second document; one a file"},
        {"a: &x 1\nb: *x\n", "case.yaml:2:4: aliases (*name) are not read here; text with a leading * needs quotes"},
        {"[a]: 1\n", "case.yaml:1:1: a key must be plain text"},
        {"- a\n", "case.yaml:1: expected a mapping of sections such as model: and train:"},
        {"a: \"x\\0y\"\n", "case.yaml:1:4: a zero byte inside text"},
        {"a: \x01\n", "case.yaml: not YAML: control characters are not allowed at byte 3"},
    };
    fwa_config *config;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        config_write("case.yaml", cases[i].text);
        check_status(fwa_config_load(&config, config_path("case.yaml"), NULL, 0), FWA_FORMAT);
        assert_string_equal(config_message(), cases[i].message);
        check_status(fwa_config_parse(&config, cases[i].text, "case.yaml", NULL, 0), FWA_FORMAT);
        assert_string_equal(config_message(), cases[i].message);
    }
    char deep[200] = "a: ";
    memset(deep + 3, '[', 100);
    check_status(fwa_config_parse(&config, deep, "deep.yaml", NULL, 0), FWA_FORMAT);
    assert_non_null(strstr(config_message(), "nested too deeply"));
    check_status(fwa_config_load(&config, config_path("none.yaml"), NULL, 0), FWA_CONFIG);
    assert_non_null(strstr(config_message(), "none.yaml"));
}

static void bases_chain_and_deeper_keys_override(void **state) {
    (void)state;
    config_write("root.yaml", CONFIG_MINIMAL "optimizer: {lr: 0.5, clip: 3}\n");
    config_write("a/middle.yaml", "base: ../root.yaml\noptimizer: {lr: 0.25, weight_decay: 0.5}\n"
                                  "model: {mixers: [x, y], mixer: {x: {rule: falcon1, chunk: 32}, y: }}\n");
    config_write("a/b/top.yaml",
                 "optimizer:\nlog:\nmodel: {layers: 6, mixer: {x: {chunk: 16}}}\nbase: ../middle.yaml\n");
    fwa_config *config = config_good("a/b/top.yaml", NULL);
    assert_true(config->optimizer.lr == 0.25 && config->optimizer.clip == 3 && config->optimizer.weight_decay == 0.5);
    assert_int_equal(config->model.layers, 6);
    assert_int_equal(config->model.d_model, 64);
    assert_int_equal(config->model.mixer_count, 2);
    assert_string_equal(config->model.mixer[0].name, "x");
    assert_string_equal(config->model.mixer[0].rule, "falcon1");
    assert_int_equal(config->model.mixer[0].chunk, 16);
    assert_string_equal(config->model.mixer[1].rule, "falcon1a");
    assert_int_equal(config->model.mixers_count, 2);
    assert_string_equal(config->model.mixers[1], "y");
    assert_string_equal(config->run.name, "top");
    fwa_config_problem(config, "model.mixer.x.rule", "got %s", "one");
    fwa_config_problem(config, "model.mixer.x.window", "got %d", 2);
    fwa_config_problem(config, "optimizer.lr", "got three");
    fwa_config_problem(config, "eval.every", "got four");
    check_status(fwa_config_finish(config), FWA_CONFIG);
    assert_string_equal(config_message(), "a/b/../middle.yaml:3: model.mixer.x.rule: got one\n"
                                          "a/b/top.yaml:3: model.mixer.x.window (default): got 2\n"
                                          "a/b/../middle.yaml:2: optimizer.lr: got three\n"
                                          "a/b/top.yaml:1: eval.every (default): got four");
    fwa_config_destroy(config);

    char absolute[600];
    snprintf(absolute, sizeof absolute, "base: %s\n", config_path("root.yaml"));
    config_write("a/absolute.yaml", absolute);
    config = config_good("a/absolute.yaml", NULL);
    assert_true(config->optimizer.lr == 0.5);
    fwa_config_destroy(config);
}

static void bad_bases_are_told(void **state) {
    (void)state;
    config_write("x/one.yaml", "base: two.yaml\n");
    config_write("x/two.yaml", "log: {every: 1}\nbase: ../x/one.yaml\n");
    config_expect("x/one.yaml", NULL, "x/two.yaml:2: base: x/../x/one.yaml is its own base");
    config_expect_text("base: case.yaml\n", "case.yaml:1: base: case.yaml is its own base");
    config_expect_text("base:\n", "case.yaml:1: base: expected the path of a file, relative to this one");
    config_expect_text("base: [a]\n", "case.yaml:1: base: expected the path of a file, relative to this one");
    config_write("broken.yaml", "a: {\n");
    config_expect_text(
        "log: {every: 0}\nbase: broken.yaml\n",
        "case.yaml:2: base: broken.yaml:2:1: not YAML: did not find expected node content, while parsing a "
        "flow node\n"
        "case.yaml:1: log.every: got 0, expected an integer in [1, inf)");
    config_write("case.yaml", "base: missing.yaml\n");
    fwa_config *config = config_load("case.yaml", NULL);
    check_status(fwa_config_finish(config), FWA_CONFIG);
    fwa_config_destroy(config);
    assert_memory_equal(config_message(), "case.yaml:1: base: ", 19);
    assert_non_null(strstr(config_output, "missing.yaml"));
    assert_null(strchr(config_output, '\n'));
}

static void overrides_win_in_order(void **state) {
    (void)state;
    fwa_config *config = config_minimal(OVERRIDES(
        "optimizer.lr=1e-3", "optimizer.lr=2e-3", "optimizer.betas=[0.5, 0.75]", "run.threads=3", "data.val=*.bin",
        "train.stop_after=7", "run.name=a=b", "model.mixer.rule=falcon3a", "model.mixer.main.window=4"));
    assert_true(config->optimizer.lr == 2e-3 && config->optimizer.beta1 == 0.5 && config->optimizer.beta2 == 0.75);
    assert_int_equal(config->run.threads, 3);
    assert_int_equal(config->train.stop_after, 7);
    assert_string_equal(config->data.val, "*.bin");
    assert_string_equal(config->run.name, "a=b");
    assert_int_equal(config->model.mixer_count, 1);
    assert_string_equal(config->model.mixer[0].name, "main");
    assert_string_equal(config->model.mixer[0].rule, "falcon3a");
    assert_int_equal(config->model.mixer[0].window, 4);
    fwa_config_problem(config, "optimizer.lr", "too fast");
    check_status(fwa_config_finish(config), FWA_CONFIG);
    assert_string_equal(config_message(), "command line: optimizer.lr: too fast");
    fwa_config_destroy(config);
}

static void mixer_overrides_reach_every_entry(void **state) {
    (void)state;
    config_write("hybrid.yaml", CONFIG_MINIMAL);
    config_write("case.yaml",
                 "base: hybrid.yaml\nmodel:\n  mixers: [a, b, b]\n  mixer:\n    a:\n    b: {rule: softmax}\n");
    fwa_config *config =
        config_good("case.yaml", OVERRIDES("model.mixer.rule=falcon1", "model.mixer.b.gate=false", "model.mixer.conv=0",
                                           "model.mixer.c={rule: falcon3a, window: 7}", "model.mixers=[a, b, c]"));
    assert_int_equal(config->model.mixer_count, 3);
    assert_string_equal(config->model.mixer[0].rule, "falcon1");
    assert_string_equal(config->model.mixer[1].rule, "falcon1");
    assert_string_equal(config->model.mixer[2].rule, "falcon3a");
    assert_int_equal(config->model.mixer[2].window, 7);
    assert_true(config->model.mixer[0].gate && !config->model.mixer[1].gate);
    assert_int_equal(config->model.mixer[0].conv + config->model.mixer[1].conv, 0);
    assert_int_equal(config->model.mixer[2].conv, 4);
    assert_string_equal(config->model.mixers[2], "c");
    fwa_config_destroy(config);
}

static void bad_overrides_are_told(void **state) {
    (void)state;
    config_write("case.yaml", CONFIG_MINIMAL);
    config_expect(
        "case.yaml",
        OVERRIDES("=3", "lr=3", "train=3", "base=x.yaml", "model.mixer.mian.rule=falcon1", "optimizer.betas=[1,",
                  "train.steps=", "train.steps.x=1", "log={every: 2, every: 3}"),
        "command line: : got \"=3\", expected key.path=value\n"
        "command line: train: holds further keys; set one of them\n"
        "command line: model.mixer.mian.rule: model.mixer has no entry mian; model.mixer.rule=... sets it in every "
        "entry\n"
        "command line: optimizer.betas: command line:2:1: not YAML: did not find expected node content, while "
        "parsing a flow node\n"
        "command line: log.every: given twice\n"
        "command line: train.steps: got a mapping, expected an integer in [1, inf)\n"
        "command line: lr: unknown key; the nearest is optimizer.lr\n"
        "command line: base: stands only at the top of a configuration file");
}

static void defaults_are_those_of_the_recipe(void **state) {
    (void)state;
    fwa_config *c = config_minimal(NULL);
    const fwa_mixer_config *m = &c->model.mixer[0];
    assert_string_equal(c->run.name, "minimal");
    assert_string_equal(c->run.dir, "runs");
    assert_int_equal(c->run.backend, FWA_CHOOSE_AUTO);
    assert_int_equal(c->run.threads, 0);
    assert_int_equal(c->model.vocab_size, 50304);
    assert_true(c->model.logit_scale < 0);
    assert_int_equal(c->model.mixers_count, 1);
    assert_string_equal(c->model.mixers[0], "main");
    assert_string_equal(m->rule, "falcon1a");
    assert_int_equal(m->shift, 0);
    assert_int_equal(m->read, FWA_READ_AFTER_WRITE);
    assert_int_equal(m->qk_norm, 0);
    assert_int_equal(m->v_norm, FWA_NORM_NONE);
    assert_int_equal(m->phi, FWA_PHI_IDENTITY);
    assert_int_equal(m->step, FWA_STEP_NORMALIZED);
    assert_int_equal(m->ridge, FWA_RIDGE_COUPLED);
    assert_true(m->beta_init == 0.5 && m->lambda_init == 0.01 && m->eps == 1e-3 && m->eps_gamma == 0.01);
    assert_true(m->eta_max == 1.999 && m->gate && !m->normalized_read);
    assert_int_equal(m->window, 0);
    assert_int_equal(m->chunk, 64);
    assert_int_equal(m->conv, 4);
    assert_int_equal(m->detach_scale, 0);
    assert_int_equal(m->rotary, 0);
    assert_int_equal(m->beta_range, 0);
    assert_int_equal(m->beta, FWA_GATE_CONTEXTUAL);
    assert_int_equal(m->lambda, FWA_GATE_CONTEXTUAL);
    assert_int_equal(m->decay, FWA_DECAY_RETNET);
    assert_int_equal(m->state, 128);
    assert_int_equal(c->task.name, FWA_TASK_LM);
    assert_int_equal(c->train.seq_len, 0);
    assert_int_equal(c->train.precision, FWA_PRECISION_F32);
    assert_true(c->optimizer.lr == 1e-3 && c->optimizer.beta1 == 0.9 && c->optimizer.beta2 == 0.95);
    assert_true(c->optimizer.eps == 1e-8 && c->optimizer.weight_decay == 0.1 && c->optimizer.clip == 1.0);
    assert_true(c->optimizer.width_scale);
    assert_int_equal(c->schedule.kind, FWA_SCHEDULE_COSINE);
    assert_int_equal(c->schedule.warmup, 2000);
    assert_true(c->schedule.min_lr == 5e-5);
    assert_int_equal(c->parallel.sp, 1);
    assert_int_equal(c->parallel.zero, 0);
    assert_int_equal(c->checkpoint.every, 1000);
    assert_int_equal(c->checkpoint.keep_last, 3);
    assert_int_equal(c->eval.every, 250);
    assert_int_equal(c->log.every, 10);
    assert_true(c->guard.spike_factor == 10 && c->guard.window == 100 && c->guard.max_skips == 5);
    assert_true(c->comm.timeout_s == 600 && c->comm.first_timeout_s == 1800);
    fwa_config_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_mistake_is_told),
        cmocka_unit_test(mixers_are_checked),
        cmocka_unit_test(required_keys_are_asked_for),
        cmocka_unit_test(all_mistakes_come_in_one_run),
        cmocka_unit_test(broken_files_are_refused),
        cmocka_unit_test(bases_chain_and_deeper_keys_override),
        cmocka_unit_test(bad_bases_are_told),
        cmocka_unit_test(overrides_win_in_order),
        cmocka_unit_test(mixer_overrides_reach_every_entry),
        cmocka_unit_test(bad_overrides_are_told),
        cmocka_unit_test(defaults_are_those_of_the_recipe),
    };
    return cmocka_run_group_tests(tests, config_setup, config_teardown);
}
