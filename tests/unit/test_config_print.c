// Printing configurations: every key survives the way to YAML and back; hash and comparison follow the schema; the
// reference page and the files under configs/ are in order.
#include <ftw.h>

#include "config_check.h"
#include "io/config_schema.h"

typedef struct setting {
    const char *key, *value;
} setting;

// For every key a value that differs from CONFIG_MINIMAL; together they are a valid configuration, and each alone is.
static const setting others[] = {
    {"run.name", "a \"b\" \\ c: #d"},
    {"run.dir", "- x\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
    {"run.seed", "9007199254740993"},
    {"run.backend", "cpu"},
    {"run.threads", "3"},
    {"model.layers", "5"},
    {"model.d_model", "48"},
    {"model.heads", "3"},
    {"model.head_dim", "24"},
    {"model.ffn", "100"},
    {"model.vocab_size", "277"},
    {"model.logit_scale", "0.30000000000000004"},
    {"model.mixers", "[main, main]"},
    {"task.name", "addition"},
    {"task.format", "paper"},
    {"task.width_min", "2"},
    {"task.width_max", "7"},
    {"task.examples", "9"},
    {"data.train", "data/tokens/*?[0-9].bin"},
    {"data.val", "*.bin"},
    {"data.reset_documents", "true"},
    {"train.steps", "3000"},
    {"train.seq_len", "77"},
    {"train.micro_batch", "1"},
    {"train.global_batch", "4"},
    {"train.precision", "f64"},
    {"train.stop_after", "5"},
    {"optimizer.lr", "0.1"},
    {"optimizer.betas", "[0.3333333333333333, 0]"},
    {"optimizer.eps", "5e-324"},
    {"optimizer.weight_decay", "1.7976931348623157e308"},
    {"optimizer.clip", "123456.78900000001"},
    {"optimizer.width_scale", "false"},
    {"schedule.kind", "wsd"},
    {"schedule.warmup", "1"},
    {"schedule.min_lr", "1e-300"},
    {"schedule.decay_fraction", "0.7"},
    {"parallel.sp", "2"},
    {"parallel.zero", "1"},
    {"parallel.sp_strategy", "ring"},
    {"checkpoint.every", "7"},
    {"checkpoint.keep_last", "8"},
    {"checkpoint.keep_every", "9"},
    {"checkpoint.background", "false"},
    {"eval.every", "11"},
    {"eval.batches", "12"},
    {"log.every", "13"},
    {"guard.spike_factor", "2.5"},
    {"guard.window", "14"},
    {"guard.max_skips", "15"},
    {"comm.timeout_s", "16.5"},
    {"comm.first_timeout_s", "17"},
    {"debug.deterministic", "true"},
    {"debug.profile", "18"},
};
enum { OTHERS = sizeof others / sizeof others[0] };

static const setting mixer_others[] = {
    {"rule", "softmax"},
    {"shift", "same_step"},
    {"read", "before_write"},
    {"qk_norm", "l2"},
    {"v_norm", "rms"},
    {"phi", "elu1"},
    {"step", "direct"},
    {"ridge", "none"},
    {"beta", "constant"},
    {"beta_init", "0.25"},
    {"beta_range", "1"},
    {"beta_rank", "11"},
    {"lambda", "fixed"},
    {"lambda_init", "0.105"},
    {"eps", "0"},
    {"eps_gamma", "1e-5"},
    {"eta_max", "0"},
    {"window", "9"},
    {"chunk", "17"},
    {"decay", "lightning"},
    {"state", "16"},
    {"conv", "0"},
    {"gate", "false"},
    {"rotary", "false"},
    {"normalized_read", "true"},
    {"detach_scale", "false"},
};
enum { MIXER_OTHERS = sizeof mixer_others / sizeof mixer_others[0] };

static fwa_config *with(const char *prefix, const setting *set, int count) {
    static char text[OTHERS + MIXER_OTHERS][128];
    const char *overrides[OTHERS + MIXER_OTHERS + 1];
    for (int i = 0; i < count; i++) {
        snprintf(text[i], sizeof text[i], "%s%s=%s", prefix, set[i].key, set[i].value);
        overrides[i] = text[i];
    }
    overrides[count] = NULL;
    return config_minimal(overrides);
}

// Equal in every byte but the origin, and printed alike.
static void expect_round_trip(const fwa_config *config) {
    fwa_config *back = NULL;
    char *text = fwa_config_text(config);
    assert_non_null(text);
    check_ok(fwa_config_parse(&back, text, "printed.yaml", NULL, 0));
    check_ok(fwa_config_finish(back));
    char *again = fwa_config_text(back);
    assert_string_equal(text, again);
    assert_memory_equal(config, back, offsetof(fwa_config, origin));
    assert_true(fwa_config_hash(config) == fwa_config_hash(back));
    free(text);
    free(again);
    fwa_config_destroy(back);
}

static void every_key_survives_a_round_trip(void **state) {
    (void)state;
    fwa_config *plain = config_minimal(NULL);
    expect_round_trip(plain);
    fwa_config *config = with("", others, OTHERS);
    fwa_config *mixers = with("model.mixer.", mixer_others, MIXER_OTHERS);
    int count = 0;
    for (const fwa_key *key = fwa_keys; key->path; key++, count++) {
        assert_string_equal(key->path, others[count].key);
        if (key->kind != FWA_KEY_NAMES)
            assert_memory_not_equal((char *)config + key->offset, (char *)plain + key->offset, key->size);
    }
    assert_int_equal(count, OTHERS);
    count = 0;
    for (const fwa_key *key = fwa_mixer_keys; key->path; key++, count++) {
        const char *changed = (char *)&mixers->model.mixer[0], *was = (char *)&plain->model.mixer[0];
        assert_string_equal(key->path, mixer_others[count].key);
        assert_memory_not_equal(changed + key->offset, was + key->offset, key->size);
    }
    assert_int_equal(count, MIXER_OTHERS);
    expect_round_trip(config);
    expect_round_trip(mixers);
    fwa_config_destroy(plain);
    fwa_config_destroy(config);
    fwa_config_destroy(mixers);
}

static void hard_values_survive_a_round_trip(void **state) {
    (void)state;
    static const char *const texts[] = {"null", "~",  "true", "12", "*",  "- a", "a: b", "#",     "'",
                                        "\"",   "\\", "[a",   "a ", " a", "%",   "@",    "a\\nb", "-"};
    fwa_config *config = config_minimal(NULL);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        memset(config->data.val, 0, sizeof config->data.val);
        snprintf(config->data.val, sizeof config->data.val, "%s", texts[i]);
        expect_round_trip(config);
    }
    memset(config->data.val, 'x', sizeof config->data.val - 1);
    expect_round_trip(config);
    uint64_t bits = 12345;
    for (int i = 0; i < 200; i++) {
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        double x;
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x)) continue;
        config->optimizer.clip = fabs(x);
        config->optimizer.weight_decay = (double)(bits >> 40) / 7.0;
        expect_round_trip(config);
    }
    config->run.seed = INT64_MAX;
    expect_round_trip(config);
    fwa_config_destroy(config);
    config_write("long.yaml", CONFIG_MINIMAL);
    char value[300] = "data.val=";
    memset(value + 9, 'x', 256);
    config = config_load("long.yaml", OVERRIDES(value, "data.train=\xFF", "run.dir=a\x7F", "run.name=\xED\xA0\x80"));
    assert_int_equal(fwa_config_has_problem(config, "data.val") + fwa_config_has_problem(config, "data.train") +
                         fwa_config_has_problem(config, "run.dir") + fwa_config_has_problem(config, "run.name"),
                     4);
    fwa_config_destroy(config);
}

static void print_writes_the_text(void **state) {
    (void)state;
    fwa_config *config =
        config_minimal(OVERRIDES("guard.spike_factor=1e1", "comm.timeout_s=600.0", "optimizer.lr=1e-3"));
    FILE *out = fopen(config_path("out.yaml"), "w");
    assert_non_null(out);
    check_ok(fwa_config_print(config, out));
    fclose(out);
    char *printed = NULL, *text = fwa_config_text(config);
    check_ok(fwa_read_text(config_path("out.yaml"), &printed));
    assert_string_equal(printed, text);
    assert_memory_equal(text, "run:\n  name: minimal\n  dir: runs\n", 31);
    assert_non_null(strstr(text, "\n  spike_factor: 10\n"));
    assert_non_null(strstr(text, "\n  timeout_s: 600\n"));
    assert_non_null(strstr(text, "\n  lr: 0.001\n  betas: [0.9, 0.95]\n"));
    assert_non_null(strstr(text, "\n  mixers: [main]\n  mixer:\n    main:\n      rule: falcon1a\n"));
    assert_non_null(strstr(text, "\n  logit_scale: auto\n"));
    free(printed);
    free(text);
    fwa_config_destroy(config);
}

// How one changed key shows: in the hash, and among the differences.
static void expect_change(const fwa_config *plain, const char *prefix, const setting *set, bool counts,
                          const char *was) {
    char line[256];
    char *lines = NULL;
    fwa_config *changed = with(prefix, set, 1);
    snprintf(line, sizeof line, "%s: %s -> ", set->key, was ? was : "");
    check_ok(fwa_config_compare(plain, changed, &lines));
    if ((fwa_config_hash(plain) != fwa_config_hash(changed)) != counts) fail_msg("hash and %s", set->key);
    if ((lines[0] != 0) != counts || (counts && !strstr(lines, set->key)))
        fail_msg("difference in %s: %s", set->key, lines);
    if (counts) assert_ptr_equal(strchr(lines, '\n'), lines + strlen(lines) - 1);
    if (was) assert_non_null(strstr(lines, line));
    free(lines);
    fwa_config_destroy(changed);
}

static void hash_and_differences_follow_the_schema(void **state) {
    (void)state;
    static const char free_sections[] = " log eval checkpoint parallel comm debug ";
    static const char free_keys[] = " run.backend run.threads run.dir run.name train.stop_after train.micro_batch ";
    fwa_config *plain = config_minimal(NULL);
    for (int i = 0; i < OTHERS; i++) {
        char section[64], key[64];
        snprintf(section, sizeof section, " %.*s ", (int)strcspn(others[i].key, "."), others[i].key);
        snprintf(key, sizeof key, " %s ", others[i].key);
        expect_change(plain, "", &others[i], !strstr(free_sections, section) && !strstr(free_keys, key), NULL);
    }
    for (int i = 0; i < MIXER_OTHERS; i++) expect_change(plain, "model.mixer.", &mixer_others[i], true, NULL);
    expect_change(plain, "", &(setting){"train.steps", "3000"}, true, "4000");
    expect_change(plain, "", &(setting){"optimizer.lr", "0.5"}, true, "0.001");
    expect_change(plain, "", &(setting){"data.train", "/other/place/train_*.bin"}, false, NULL);
    expect_change(plain, "", &(setting){"data.train", "data/tokens/train_1*.bin"}, true, "train_*.bin");
    fwa_config_destroy(plain);
}

static void longer_runs_and_renamed_entries(void **state) {
    (void)state;
    fwa_config *plain = config_minimal(NULL), *longer = config_minimal(OVERRIDES("train.steps=5000"));
    char *lines = NULL;
    check_ok(fwa_config_compare(plain, longer, &lines));
    assert_string_equal(lines, "");
    assert_true(fwa_config_hash(plain) != fwa_config_hash(longer));
    free(lines);
    check_ok(fwa_config_compare(longer, plain, &lines));
    assert_string_equal(lines, "train.steps: 5000 -> 4000\n");
    free(lines);

    config_write("ab.yaml", CONFIG_MINIMAL);
    fwa_config *ab = config_good("ab.yaml", OVERRIDES("model.mixer={a: {chunk: 8}, b: {}}", "model.mixers=[a, b]"));
    fwa_config *ba = config_good("ab.yaml", OVERRIDES("model.mixer={b: {}, a: {chunk: 8}}", "model.mixers=[a, b]"));
    fwa_config *ac = config_good("ab.yaml", OVERRIDES("model.mixer={a: {chunk: 9}, c: {}}", "model.mixers=[a, c]"));
    assert_true(fwa_config_hash(ab) == fwa_config_hash(ba));
    check_ok(fwa_config_compare(ab, ba, &lines));
    assert_string_equal(lines, "");
    free(lines);
    check_ok(fwa_config_compare(ab, ac, &lines));
    assert_string_equal(lines, "model.mixers: [a, b] -> [a, c]\nmodel.mixer.a.chunk: 8 -> 9\n"
                               "model.mixer.b: present -> absent\nmodel.mixer.c: absent -> present\n");
    free(lines);
    fwa_config_destroy(plain);
    fwa_config_destroy(longer);
    fwa_config_destroy(ab);
    fwa_config_destroy(ba);
    fwa_config_destroy(ac);
}

static void the_reference_page_is_up_to_date(void **state) {
    (void)state;
    FILE *out = fopen(config_path("reference.md"), "w");
    assert_non_null(out);
    check_ok(fwa_config_reference(out));
    fclose(out);
    char *page = NULL, *printed = NULL;
    check_ok(fwa_read_text(FWA_SOURCE_DIR "/docs/configuration.md", &page));
    check_ok(fwa_read_text(config_path("reference.md"), &printed));
    if (strcmp(page, printed) != 0)
        fail_msg("docs/configuration.md is not what the schema prints: fwa help --configuration");
    free(page);
    free(printed);
}

static int files_seen;

static int load_file(const char *path, const struct stat *info, int kind, struct FTW *where) {
    (void)info;
    (void)where;
    const char *dot = strrchr(path, '.');
    if (kind != FTW_F || !dot || strcmp(dot, ".yaml") != 0 || strstr(path, "/configs/sweeps/")) return 0;
    fwa_config *config = NULL;
    check_ok(fwa_config_load(&config, path, NULL, 0));
    check_ok(fwa_config_finish(config));
    expect_round_trip(config);
    fwa_config_destroy(config);
    files_seen++;
    return 0;
}

static void shipped_files_load(void **state) {
    (void)state;
    assert_int_equal(nftw(FWA_SOURCE_DIR "/configs", load_file, 16, FTW_PHYS), 0);
    assert_true(files_seen >= 18);
    fwa_config *config = NULL;
    check_ok(fwa_config_load(&config, FWA_SOURCE_DIR "/configs/lm/medium/falcon3a.yaml", NULL, 0));
    check_ok(fwa_config_finish(config));
    assert_int_equal(config->model.layers, 24);
    assert_int_equal(config->model.ffn, 2730);
    assert_int_equal(config->train.global_batch, 480);
    assert_int_equal(config->train.precision, FWA_PRECISION_BF16);
    assert_string_equal(config->model.mixer[0].rule, "falcon3a");
    assert_string_equal(config->run.name, "medium-falcon3a");
    fwa_config_destroy(config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_survives_a_round_trip),
        cmocka_unit_test(hard_values_survive_a_round_trip),
        cmocka_unit_test(print_writes_the_text),
        cmocka_unit_test(hash_and_differences_follow_the_schema),
        cmocka_unit_test(longer_runs_and_renamed_entries),
        cmocka_unit_test(the_reference_page_is_up_to_date),
        cmocka_unit_test(shipped_files_load),
    };
    return cmocka_run_group_tests(tests, config_setup, config_teardown);
}
