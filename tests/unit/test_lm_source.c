// Language-modelling sequences over two small shards: where they lie in the stream, the shuffle of every epoch, epoch
// boundaries, independence of how they are asked for, refused data.
#include "tests/check.h"

#include <unistd.h>

#include "core/shape.h"
#include "train/tasks/task.h"

enum { T = 8, SEQUENCES = 50, TOKENS = SEQUENCES * T + 5, FIRST_FILE = 131, VAL_TOKENS = 3 * T + 1 };

static char folder[64];

// The stream is 0, 1, 2, ...: a token's id is its place.
static void write_shard(const char *name, int start, int count) {
    char path[128];
    int32_t header[256] = {20240520, 1, count};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(header, sizeof header, 1, file), 1);
    for (int i = 0; i < count; i++) {
        const uint16_t token = (uint16_t)(start + i);
        assert_int_equal(fwrite(&token, sizeof token, 1, file), 1);
    }
    assert_int_equal(fclose(file), 0);
}

static const char *const shard_names[] = {"train_000.bin", "train_001.bin", "val_000.bin", "short_000.bin"};

static int set_up(void **state) {
    (void)state;
    strcpy(folder, "/tmp/fwa_test_lm_XXXXXX");
    if (mkdtemp(folder) == NULL) return -1;
    write_shard(shard_names[0], 0, FIRST_FILE);
    write_shard(shard_names[1], FIRST_FILE, TOKENS - FIRST_FILE);
    write_shard(shard_names[2], 1000, VAL_TOKENS);
    write_shard(shard_names[3], 0, T);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    char path[128];
    for (size_t i = 0; i < sizeof shard_names / sizeof shard_names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, shard_names[i]);
        if (unlink(path) != 0) return -1;
    }
    return rmdir(folder);
}

static void fill_config(fwa_config *config) {
    memset(config, 0, sizeof *config);
    config->run.seed = 3;
    config->task.name = FWA_TASK_LM;
    config->model.vocab_size = 50304;
    config->train.seq_len = T;
    snprintf(config->data.train, sizeof config->data.train, "%s/train_*.bin", folder);
    snprintf(config->data.val, sizeof config->data.val, "%s/val_*.bin", folder);
}

static fwa_source *open_source(int64_t seed) {
    fwa_config config;
    fwa_source *source = NULL;
    fill_config(&config);
    config.run.seed = seed;
    check_ok(fwa_source_create(&source, &config));
    return source;
}

static void test_sizes(void **state) {
    (void)state;
    fwa_source *source = open_source(3);
    assert_string_equal(source->name, "lm");
    assert_int_equal(source->T, T);
    assert_int_equal(source->vocab, 50257);
    assert_int_equal(source->sequences[FWA_SPLIT_TRAIN], SEQUENCES);
    assert_int_equal(source->sequences[FWA_SPLIT_VAL], 3);
    assert_true(source->fingerprint != 0);
    source->destroy(source);
    fwa_config config;
    fill_config(&config);
    config.model.vocab_size = 2000;
    check_ok(fwa_source_create(&source, &config));
    assert_int_equal(source->vocab, 2000);
    source->destroy(source);
}

// Sequence number `i` of the training split, from its first token.
static int64_t place(const fwa_source *source, int64_t i) {
    int32_t tokens[T], targets[T];
    check_ok(source->fill(source, FWA_SPLIT_TRAIN, i, 1, tokens, targets));
    assert_int_equal(tokens[0] % T, 0);
    for (int t = 0; t < T; t++) {
        assert_int_equal(tokens[t], tokens[0] + t);
        assert_int_equal(targets[t], tokens[0] + t + 1);
    }
    return tokens[0] / T;
}

static void test_epochs(void **state) {
    (void)state;
    enum { EPOCHS = 4 };
    int64_t order[EPOCHS][SEQUENCES];
    fwa_source *source = open_source(3);
    for (int e = 0; e < EPOCHS; e++) {
        int seen[SEQUENCES] = {0};
        int in_place = 0;
        for (int64_t i = 0; i < SEQUENCES; i++) {
            order[e][i] = place(source, e * SEQUENCES + i);
            seen[order[e][i]]++;
            in_place += order[e][i] == i;
        }
        for (int i = 0; i < SEQUENCES; i++) assert_int_equal(seen[i], 1);
        assert_true(in_place < SEQUENCES / 4);
        for (int before = 0; before < e; before++) {
            assert_memory_not_equal(order[before], order[e], sizeof order[e]);
        }
    }
    source->destroy(source);
}

static void test_seed(void **state) {
    (void)state;
    fwa_source *a = open_source(3), *b = open_source(4), *c = open_source(3);
    int same = 0;
    for (int64_t i = 0; i < SEQUENCES; i++) {
        same += place(a, i) == place(b, i);
        assert_int_equal(place(a, i), place(c, i));
    }
    assert_true(same < SEQUENCES / 4);
    assert_true(a->fingerprint == b->fingerprint);
    a->destroy(a);
    b->destroy(b);
    c->destroy(c);
}

// Any cut of the numbers into calls, in any order, over an epoch's end: the same sequences.
static void test_call_pattern(void **state) {
    (void)state;
    enum { FIRST = SEQUENCES - 13, COUNT = 40 };
    static int32_t tokens[2][COUNT * T], targets[2][COUNT * T];
    fwa_source *source = open_source(3);
    check_ok(source->fill(source, FWA_SPLIT_TRAIN, FIRST, COUNT, tokens[0], targets[0]));
    for (int64_t piece = 1; piece <= COUNT; piece++) {
        memset(tokens[1], 0xFF, sizeof tokens[1]);
        memset(targets[1], 0xFF, sizeof targets[1]);
        for (int64_t at = (COUNT - 1) / piece * piece; at >= 0; at -= piece) {
            check_ok(source->fill(source, FWA_SPLIT_TRAIN, FIRST + at, fwa_min(piece, COUNT - at), tokens[1] + at * T,
                                  targets[1] + at * T));
        }
        assert_memory_equal(tokens[0], tokens[1], sizeof tokens[0]);
        assert_memory_equal(targets[0], targets[1], sizeof targets[0]);
    }
    source->destroy(source);
}

static void test_validation_order(void **state) {
    (void)state;
    int32_t tokens[7 * T], targets[7 * T];
    fwa_source *source = open_source(3);
    check_ok(source->fill(source, FWA_SPLIT_VAL, 0, 7, tokens, targets));
    for (int i = 0; i < 7 * T; i++) {
        assert_int_equal(tokens[i], 1000 + i % (3 * T));
        assert_int_equal(targets[i], tokens[i] + 1);
    }
    source->destroy(source);
}

static void test_without_validation(void **state) {
    (void)state;
    int32_t tokens[T], targets[T];
    fwa_config config;
    fwa_source *source = NULL;
    fill_config(&config);
    config.data.val[0] = '\0';
    check_ok(fwa_source_create(&source, &config));
    assert_int_equal(source->sequences[FWA_SPLIT_VAL], 0);
    check_status(source->fill(source, FWA_SPLIT_VAL, 0, 1, tokens, targets), FWA_CONFIG);
    check_ok(source->fill(source, FWA_SPLIT_TRAIN, 0, 1, tokens, targets));
    source->destroy(source);
    config.eval.every = 10;
    check_status(fwa_source_create(&source, &config), FWA_CONFIG);
    assert_null(source);
}

static void test_refused(void **state) {
    (void)state;
    fwa_config config;
    fwa_source *source = NULL;
    fill_config(&config);
    snprintf(config.data.val, sizeof config.data.val, "%s/short_*.bin", folder);
    check_status(fwa_source_create(&source, &config), FWA_CONFIG);
    assert_non_null(strstr(fwa_error_message(), "has 8 tokens"));
    assert_non_null(strstr(fwa_error_message(), "needs 9"));
    fill_config(&config);
    config.train.seq_len = 0; // auto: 1024
    check_status(fwa_source_create(&source, &config), FWA_CONFIG);
    assert_non_null(strstr(fwa_error_message(), "1025"));
    fill_config(&config);
    strcat(config.data.train, ".gone");
    check_status(fwa_source_create(&source, &config), FWA_CONFIG);
    fill_config(&config);
    config.model.vocab_size = 300; // the shards hold larger ids
    check_status(fwa_source_create(&source, &config), FWA_FORMAT);
    assert_null(source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_seed),
        cmocka_unit_test(test_call_pattern),
        cmocka_unit_test(test_validation_order),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_without_validation),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
