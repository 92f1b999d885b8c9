// Sweep files: points and their settings, mistakes with their places; what a run reached; means over seeds.
#include "io/metrics.h"
#include "io/sweep.h"
#include "tests/config_check.h"
#include "train/sweep/table.h"

static fwa_sweep *loaded(const char *text) {
    fwa_sweep *sweep = NULL;
    config_write("base.yaml", CONFIG_MINIMAL);
    config_write("s.yaml", text);
    check_ok(fwa_sweep_load(&sweep, config_path("s.yaml")));
    return sweep;
}

static void expect_names(const char *text, const char *const *names) {
    fwa_sweep *sweep = loaded(text);
    int i = 0;
    for (; i < sweep->count && names[i]; i++) assert_string_equal(sweep->points[i].name, names[i]);
    assert_int_equal(i, sweep->count);
    assert_null(names[i]);
    fwa_sweep_destroy(sweep);
}

static void expect_problems(const char *text, const char *problems) {
    fwa_sweep *sweep = NULL;
    config_write("base.yaml", CONFIG_MINIMAL);
    config_write("s.yaml", text);
    check_status(fwa_sweep_load(&sweep, config_path("s.yaml")), FWA_CONFIG);
    assert_null(sweep);
    assert_string_equal(config_message(), problems);
}

static void test_points(void **state) {
    (void)state;
    expect_names("base: base.yaml\naxes: {model.mixer.rule: [falcon1, falcon3a], train.steps: [1, 2]}\n",
                 (const char *const[]){"rule=falcon1,steps=1", "rule=falcon1,steps=2", "rule=falcon3a,steps=1",
                                       "rule=falcon3a,steps=2", NULL});
    expect_names("base: base.yaml\nseeds: [3, 0]\n", (const char *const[]){"seed=3", "seed=0", NULL});
    expect_names("base: base.yaml\n", (const char *const[]){"base", NULL});
    expect_names("base: base.yaml\ninclude: [{train.steps: 7}]\n", (const char *const[]){"steps=7", NULL});
    expect_names("base: base.yaml\naxes: {train.steps: [1, 2, 3]}\nexclude: [{train.steps: 2}]\n"
                 "include: [{optimizer.lr: 1e-3, train.steps: 2}]\nseeds: [0, 1]\n",
                 (const char *const[]){"steps=1,seed=0", "steps=1,seed=1", "steps=3,seed=0", "steps=3,seed=1",
                                       "steps=2,lr=1e-3,seed=0", "steps=2,lr=1e-3,seed=1", NULL});
    // The whole key where the last part is not clear, and no letters that a folder's name cannot have.
    expect_names("base: base.yaml\naxes: {model.mixer.a.rule: [x y], model.mixer.b.rule: [\"z/..\"]}\n",
                 (const char *const[]){"model.mixer.a.rule=xy,model.mixer.b.rule=z_..", NULL});
    expect_names("base: base.yaml\naxes: {run.seed: [1, 2]}\n",
                 (const char *const[]){"run.seed=1", "run.seed=2", NULL});
    expect_names("base: base.yaml\naxes: {optimizer.betas: [[0.9, 0.95], [0.8, 0.9]]}\n",
                 (const char *const[]){"betas=0.9_0.95", "betas=0.8_0.9", NULL});
}

static void test_settings(void **state) {
    (void)state;
    fwa_sweep *sweep = loaded("base: base.yaml\nname: other\nset:\n  train.steps: 9\naxes:\n  recipe:\n"
                              "    .1: {model.mixer.step: direct,\n      model.mixer.qk_norm: l2}\n    .2: {}\n"
                              "  model.mixers: [[main], [\"a,b\", c]]\nseeds: [5]\n");
    assert_string_equal(sweep->name, "other");
    assert_int_equal(sweep->common_count, 1);
    assert_string_equal(sweep->common[0].text, "train.steps=9");
    assert_int_equal(sweep->common[0].line, 4);
    assert_int_equal(sweep->count, 4);
    assert_int_equal(sweep->groups, 4);
    const fwa_sweep_point *p = &sweep->points[1];
    assert_int_equal(p->setting_count, 4);
    assert_string_equal(p->settings[0].text, "model.mixer.step=direct");
    assert_int_equal(p->settings[0].line, 7);
    assert_string_equal(p->settings[1].text, "model.mixer.qk_norm=l2");
    assert_int_equal(p->settings[1].line, 8);
    assert_string_equal(p->settings[2].text, "model.mixers=[\"a,b\", c]");
    assert_string_equal(p->settings[3].text, "run.seed=5");
    assert_string_equal(p->value[0], ".1");
    assert_string_equal(sweep->column[1], "mixers");
    assert_int_equal(sweep->points[2].setting_count, 2);
    fwa_sweep_destroy(sweep);
}

// A mistake in a value is told with its place in the sweep file.
static void test_places(void **state) {
    (void)state;
    fwa_sweep *sweep = loaded("base: base.yaml\naxes:\n  train.steps:\n    - 1\n    - many\n");
    fwa_config *config = NULL;
    check_ok(fwa_config_load_settings(&config, sweep->base, sweep->points[1].settings, 1));
    check_status(fwa_config_finish(config), FWA_CONFIG);
    assert_string_equal(config_message(), "s.yaml:5: train.steps: got many, expected an integer in [1, inf)");
    fwa_config_destroy(config);
    fwa_sweep_destroy(sweep);
}

static void test_mistakes(void **state) {
    (void)state;
    expect_problems("axes: {train.steps: [1]}\n",
                    "s.yaml:1: base: expected the path of a configuration, relative to this file");
    expect_problems("base: gone.yaml\n", "s.yaml:1: base: there is no file gone.yaml");
    expect_problems("[1]\n", "s.yaml:1: expected a mapping with base: and axes:");
    expect_problems("", "s.yaml:1: expected a mapping with base: and axes:");
    expect_problems("base: base.yaml\naxis: 5\ntrain: {steps: 5}\n",
                    "s.yaml:2: axis: unknown; a sweep has base, name, set, axes, exclude, include and seeds (settings "
                    "of every point stand under set)\ns.yaml:3: train: unknown; a sweep has base, name, set, axes, "
                    "exclude, include and seeds (settings of every point stand under set)");
    expect_problems("base: base.yaml\naxes:\n  train.steps: 5\n  optimizer.lr: []\n",
                    "s.yaml:3: axes.train.steps: expected a list of values, such as [a, b]\n"
                    "s.yaml:4: axes.optimizer.lr: expected a list of values, such as [a, b]");
    expect_problems("base: base.yaml\naxes:\n  train.steps: [1, 1, ~, {a: b}]\n",
                    "s.yaml:3: train.steps: 1 stands twice in the list\n"
                    "s.yaml:3: train.steps: expected a value or a list of values\n"
                    "s.yaml:3: train.steps: expected a value or a list of values");
    expect_problems("base: base.yaml\naxes:\n  rule: [falcon1]\n",
                    "s.yaml:3: axes.rule: expected a mapping of names, each with its settings; a key of the "
                    "configuration is written in full, as in model.mixer.rule");
    expect_problems("base: base.yaml\naxes: {run.name: [a]}\nset: {run.dir: b}\n",
                    "s.yaml:3: run.dir: the sweep itself names the run folders; set run.dir on the command line\n"
                    "s.yaml:2: run.name: the sweep itself names the run folders; set run.dir on the command line");
    expect_problems("base: base.yaml\naxes: {train.steps: [1]}\naxes: {train.steps: [2]}\n",
                    "s.yaml:3: axes: given twice; the first stands in line 2");
    expect_problems("base: base.yaml\nseeds: [0, 0]\n", "s.yaml:2: seeds: 0 stands twice in the list");
    expect_problems("base: base.yaml\nseeds: [-1]\n", "s.yaml:2: seeds: expected whole numbers from 0");
    expect_problems("base: base.yaml\nseeds: 3\n",
                    "s.yaml:2: seeds: expected a list of whole numbers, such as [0, 1, 2]");
    expect_problems("base: base.yaml\naxes: {run.seed: [1]}\nseeds: [0]\n",
                    "s.yaml:3: seeds: run.seed is an axis as well; keep one of them");
    expect_problems("base: base.yaml\nname: ../up\n",
                    "s.yaml:2: name: expected 1 to 100 letters, digits and _ + - . for a folder's name");
    expect_problems("base: base.yaml\naxes: {train.steps: [1, 2]}\nexclude:\n  - {train.steps: 3}\n  - {a: 1}\n",
                    "s.yaml:4: exclude: the axis train.steps has no value 3\ns.yaml:5: exclude: a is none of the axes");
    expect_problems(
        "base: base.yaml\naxes: {train.steps: [1, 2]}\nexclude:\n  - {train.steps: 1}\n  - {train.steps: 1}\n",
        "s.yaml:5: exclude: no point agrees with this line, or an earlier line took them all");
    expect_problems("base: base.yaml\naxes: {train.steps: [1]}\nexclude: [{train.steps: 1}]\n",
                    "s.yaml:1: no points are left");
    expect_problems("base: base.yaml\naxes: {train.steps: [1, 2]}\ninclude:\n  - {train.steps: 2}\n",
                    "s.yaml:4: point steps=2 stands there twice (lines 2 and 4)");
    expect_problems("base: base.yaml\ninclude:\n  - {steps: 2}\n  - 5\n  - {run.name: x}\n",
                    "s.yaml:4: include: expected a mapping key.path: value");
    expect_problems("base: base.yaml\ninclude:\n  - {steps: 2}\n",
                    "s.yaml:3: include: steps is neither an axis nor a whole key such as model.mixer.rule");
    expect_problems("base: base.yaml\ninclude:\n  - {run.name: x}\n",
                    "s.yaml:3: include: run.name is given by the sweep itself");
    fwa_sweep *sweep = NULL;
    check_status(fwa_sweep_load(&sweep, config_path("none.yaml")), FWA_CONFIG);
    config_write("s.yaml", "a: [");
    check_status(fwa_sweep_load(&sweep, config_path("s.yaml")), FWA_FORMAT);
}

static void test_sizes(void **state) {
    (void)state;
    char text[40000], *at = text;
    at += sprintf(at, "base: base.yaml\naxes:\n  train.steps: [");
    for (int i = 1; i <= 101; i++) at += sprintf(at, "%d,", i);
    at += sprintf(at, "]\n  log.every: [");
    for (int i = 1; i <= 100; i++) at += sprintf(at, "%d,", i);
    sprintf(at, "]\n");
    expect_problems(text, "s.yaml:1: more than 10000 points");
    at = text + sprintf(text, "base: base.yaml\naxes:\n  data.train: [");
    memset(at, 'x', 300);
    sprintf(at + 300, "]\n");
    fwa_sweep *sweep = NULL;
    config_write("s.yaml", text);
    check_status(fwa_sweep_load(&sweep, config_path("s.yaml")), FWA_CONFIG);
    assert_non_null(strstr(config_message(), "more than 200; name the values by a word"));
    at = text + sprintf(text, "base: base.yaml\naxes:\n");
    for (int i = 0; i <= 32; i++) at += sprintf(at, "  a.k%d: [1]\n", i);
    expect_problems(text, "s.yaml:35: axes: more than 32");
}

static void test_means(void **state) {
    (void)state;
    double mean, spread;
    assert_int_equal(fwa_sweep_mean((double[]){1, 2, 3, NAN}, 4, &mean, &spread), 3);
    assert_true(mean == 2.0 && spread == 1.0);
    assert_int_equal(fwa_sweep_mean((double[]){NAN, 5}, 2, &mean, &spread), 1);
    assert_true(mean == 5.0 && isnan(spread));
    assert_int_equal(fwa_sweep_mean(NULL, 0, &mean, &spread), 0);
    assert_true(isnan(mean) && isnan(spread));
}

static void test_last_row(void **state) {
    (void)state;
    fwa_metrics_row row;
    bool found = true;
    check_ok(fwa_metrics_last(config_path("none.jsonl"), &row, &found));
    assert_false(found);
    config_write("m.jsonl", "");
    check_ok(fwa_metrics_last(config_path("m.jsonl"), &row, &found));
    assert_false(found);
    config_write("m.jsonl", "{\"step\":1,\"loss\":3.5,\"val_loss\":4}\n{\"step\":2,\"loss\":2.5,\"skipped\":1}\n"
                            "not a row\n[7]\n{\"step\":3,\"lo");
    check_ok(fwa_metrics_last(config_path("m.jsonl"), &row, &found));
    assert_true(found && row.step == 2 && row.loss == 2.5 && row.val_loss == 4.0 && row.skipped == 1);
    assert_true(isnan(row.tokens_per_s));
}

static void expect_reason(const fwa_sweep_runs *runs, const char *line) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    check_ok(fwa_sweep_table(runs, out));
    fclose(out);
    assert_non_null(strstr(text, line));
    free(text);
}

// A table and a CSV of two seeds of which one is finished.
static void test_tables(void **state) {
    (void)state;
    fwa_sweep *sweep = loaded("base: base.yaml\naxes: {optimizer.betas: [[0.9, 0.95]]}\nseeds: [0, 1]\n");
    fwa_sweep_run run[2];
    memset(run, 0, sizeof run);
    for (int i = 0; i < 2; i++) {
        run[i].point = &sweep->points[i];
        snprintf(run[i].path, sizeof run[i].path, "runs/s/%s", sweep->points[i].name);
        run[i].loss = 1.5 + i;
        run[i].val_loss = run[i].tokens_per_s = run[i].upto = run[i].exact = NAN;
    }
    run[0].state = FWA_SWEEP_FINISHED;
    run[0].step = 9;
    run[1].state = FWA_SWEEP_FAILED;
    run[1].code = 3;
    fwa_sweep_runs runs = {.sweep = sweep, .folder = "runs/s", .run = run, .count = 2};
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    check_ok(fwa_sweep_table(&runs, out));
    fclose(out);
    assert_string_equal(text, "sweep s: 1 of 2 points finished in runs/s\n"
                              "betas        finished  loss    val_loss  tokens_per_s\n"
                              "[0.9, 0.95]  1/2       1.5000  -         -\n"
                              "failed (3): runs/s/betas=0.9_0.95,seed=1\n");
    free(text);
    snprintf(run[1].path, sizeof run[1].path, "%s", config_path("point")); // with what says why
    config_write("point.out", "refused\n");
    expect_reason(&runs, "point (the file .out beside it says why)\n");
    config_write("point/log.txt", "error\n");
    expect_reason(&runs, "point (log.txt says why)\n");
    check_ok(fwa_sweep_csv(&runs, config_path("out.csv")));
    check_ok(fwa_read_text(config_path("out.csv"), &text));
    assert_string_equal(text, "point,name,betas,seed,state,exit_code,step,skipped,loss,val_loss,tokens_per_s\n"
                              "1,\"betas=0.9_0.95,seed=0\",\"[0.9, 0.95]\",0,finished,,9,0,1.5,,\n"
                              "2,\"betas=0.9_0.95,seed=1\",\"[0.9, 0.95]\",1,failed,3,0,0,2.5,,\n");
    free(text);
    run[0].upto = 0.875; // one that was evaluated makes the columns
    run[0].exact = 0.5;
    out = open_memstream(&text, &bytes);
    check_ok(fwa_sweep_table(&runs, out));
    fclose(out);
    assert_non_null(strstr(text, "tokens_per_s  upto %  exact %\n"));
    assert_non_null(strstr(text, "-             87.5    50.0\n"));
    free(text);
    check_ok(fwa_sweep_csv(&runs, config_path("out.csv")));
    check_ok(fwa_read_text(config_path("out.csv"), &text));
    assert_non_null(strstr(text, ",tokens_per_s,upto,exact\n"));
    assert_non_null(strstr(text, ",finished,,9,0,1.5,,,0.875,0.5\n"));
    assert_non_null(strstr(text, ",2.5,,,,\n"));
    free(text);
    fwa_sweep_destroy(sweep);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_points),   cmocka_unit_test(test_settings), cmocka_unit_test(test_places),
        cmocka_unit_test(test_mistakes), cmocka_unit_test(test_sizes),    cmocka_unit_test(test_means),
        cmocka_unit_test(test_last_row), cmocka_unit_test(test_tables),
    };
    return cmocka_run_group_tests(tests, config_setup, config_teardown);
}
