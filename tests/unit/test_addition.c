// The addition task: every example is parsed back from its tokens and its answer checked by long addition on text;
// lengths, widths, splits, purity across order and threads, the batch hash, refused settings.
#include "tests/check.h"

#include <pthread.h>

#include "core/shape.h"
#include "train/tasks/addition.h"

enum { EXAMPLES = 400, MAX_T = 3200, DIGITS = 1100 };

typedef struct parsed {
    char a[DIGITS], b[DIGITS], c[DIGITS]; // highest digit first
    int64_t length;                       // tokens of the example with begin and end
} parsed;

static void reverse(char *text) {
    for (size_t i = 0, j = strlen(text); i + 1 < j; i++) {
        char kept = text[i];
        text[i] = text[--j];
        text[j] = kept;
    }
}

// sum = a + b as school teaches it, on texts with the highest digit first; natural width.
static void long_addition(const char *a, const char *b, char *sum) {
    int64_t i = (int64_t)strlen(a), j = (int64_t)strlen(b), n = 0;
    int carry = 0;
    while (i > 0 || j > 0 || carry > 0) {
        if (i > 0) carry += a[--i] - '0';
        if (j > 0) carry += b[--j] - '0';
        sum[n++] = (char)('0' + carry % 10);
        carry /= 10;
    }
    sum[n] = '\0';
    reverse(sum);
    size_t zeros = strspn(sum, "0");
    if (sum[zeros] == '\0') zeros--;
    memmove(sum, sum + zeros, strlen(sum + zeros) + 1);
}

// The bytes between begin and end as text; what follows must be pads. Also checks that the targets are the tokens one
// place later from `first_answer` on, and absent elsewhere.
static int64_t to_text(const int32_t *tokens, const int32_t *targets, int64_t T, char *text) {
    int64_t n = 0;
    assert_int_equal(tokens[0], FWA_ADDITION_BEGIN);
    while (n + 1 < T && tokens[n + 1] < 256) {
        text[n] = (char)tokens[n + 1];
        n++;
    }
    text[n] = '\0';
    if (n + 1 < T) assert_int_equal(tokens[n + 1], FWA_ADDITION_END);
    for (int64_t t = n + 2; t < T; t++) assert_int_equal(tokens[t], FWA_ADDITION_PAD);
    const int64_t answer = strchr(text, '=') - text + 1; // place of '=' in the tokens: it predicts the answer's first
    for (int64_t t = 0; t < T; t++) {
        const int32_t expected = t < answer || t > n ? FWA_NO_TARGET : t == n ? FWA_ADDITION_END : tokens[t + 1];
        assert_int_equal(targets[t], expected);
    }
    return n + 2;
}

static parsed parse(fwa_addition_format format, const int32_t *tokens, const int32_t *targets, int64_t T) {
    parsed out;
    char text[MAX_T];
    int used = 0;
    out.length = to_text(tokens, targets, T, text);
    if (format == FWA_ADDITION_BRACKET) {
        assert_int_equal(sscanf(text, "[%[0-9]] + [%[0-9]] = [%[0-9]]%n", out.a, out.b, out.c, &used), 3);
        reverse(out.a);
        reverse(out.b);
    } else {
        assert_int_equal(sscanf(text, "%[0-9]+%[0-9]=%[0-9]%n", out.a, out.b, out.c, &used), 3);
    }
    assert_int_equal(used, (int)strlen(text));
    reverse(out.c);
    return out;
}

static parsed example(fwa_addition_format format, fwa_addition_measure measure, int64_t low, int64_t high,
                      int64_t index) {
    int32_t tokens[MAX_T], targets[MAX_T];
    const int64_t T = fwa_addition_length(format, high) - 1;
    const uint64_t key = fwa_addition_key(7, FWA_SPLIT_TRAIN);
    check_ok(fwa_addition_example(format, measure, low, high, key, index, T, tokens, targets));
    return parse(format, tokens, targets, T);
}

static void check_answer(fwa_addition_format format, const parsed *p) {
    char sum[DIGITS];
    long_addition(p->a, p->b, sum);
    if (format == FWA_ADDITION_BRACKET) {
        assert_string_equal(p->c, sum);
        assert_int_equal(p->length, strlen(p->a) + strlen(p->b) + strlen(p->c) + 14);
        assert_true(strlen(p->a) == 1 || p->a[0] != '0');
        assert_true(strlen(p->b) == 1 || p->b[0] != '0');
    } else {
        const size_t n = strlen(p->a);
        assert_int_equal(strlen(p->b), n);
        assert_int_equal(strlen(p->c), n + 1);
        assert_string_equal(p->c + n + 1 - strlen(sum), sum);
        assert_int_equal(strspn(p->c, "0") >= n + 1 - strlen(sum), 1);
        assert_int_equal(p->length, 3 * n + 5);
    }
}

static void test_answers(void **state) {
    (void)state;
    static const int64_t widths[][2] = {{1, 1}, {1, 4}, {1, 32}, {33, 48}, {5, 5}};
    for (int format = FWA_ADDITION_PAPER; format <= FWA_ADDITION_BRACKET; format++) {
        for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
            for (int64_t i = 0; i < EXAMPLES; i++) {
                const parsed p = example((fwa_addition_format)format, FWA_ADDITION_UPTO, widths[w][0], widths[w][1], i);
                check_answer((fwa_addition_format)format, &p);
            }
        }
    }
    const parsed wide = example(FWA_ADDITION_BRACKET, FWA_ADDITION_EXACT, 1, FWA_ADDITION_MAX_WIDTH, 3);
    assert_int_equal(strlen(wide.a), FWA_ADDITION_MAX_WIDTH);
    check_answer(FWA_ADDITION_BRACKET, &wide);
}

static void test_known_text(void **state) {
    (void)state;
    char sum[DIGITS];
    long_addition("999", "1", sum);
    assert_string_equal(sum, "1000");
    long_addition("000", "00", sum);
    assert_string_equal(sum, "0");
    long_addition("058", "7", sum);
    assert_string_equal(sum, "65");
}

// The longest example fills the announced length to the token, and occurs.
static void test_lengths(void **state) {
    (void)state;
    assert_int_equal(fwa_addition_length(FWA_ADDITION_BRACKET, 32), 111);
    assert_int_equal(fwa_addition_length(FWA_ADDITION_BRACKET, 48), 159);
    assert_int_equal(fwa_addition_length(FWA_ADDITION_PAPER, 32), 101);
    for (int format = FWA_ADDITION_PAPER; format <= FWA_ADDITION_BRACKET; format++) {
        int64_t longest = 0;
        for (int64_t i = 0; i < EXAMPLES; i++) {
            const parsed p = example((fwa_addition_format)format, FWA_ADDITION_EXACT, 1, 32, i);
            assert_int_equal(strlen(p.a), 32);
            assert_int_equal(strlen(p.b), 32);
            longest = p.length > longest ? p.length : longest;
        }
        assert_int_equal(longest, fwa_addition_length((fwa_addition_format)format, 32));
    }
}

// Pairs of widths: their digits, the longest example, and of equal widths the example of the measure `exact`.
static void test_pairs(void **state) {
    static const int64_t pairs[][2] = {{1, 1}, {1, 9}, {9, 1}, {12, 4}, {6, 6}, {1024, 1}, {1, 1024}};
    const uint64_t key = fwa_addition_key(3, FWA_SPLIT_VAL);
    (void)state;
    for (size_t w = 0; w < sizeof pairs / sizeof pairs[0]; w++) {
        const int64_t T = fwa_addition_pair_length(FWA_ADDITION_BRACKET, pairs[w]) - 1,
                      top = fwa_max(pairs[w][0], pairs[w][1]);
        int64_t longest = 0;
        for (int64_t i = 0; i < EXAMPLES; i++) {
            int32_t tokens[MAX_T], targets[MAX_T], exact[MAX_T], exact_targets[MAX_T];
            check_ok(fwa_addition_pair(FWA_ADDITION_BRACKET, pairs[w], key, i, T, tokens, targets));
            const parsed p = parse(FWA_ADDITION_BRACKET, tokens, targets, T);
            check_answer(FWA_ADDITION_BRACKET, &p);
            assert_int_equal(strlen(p.a), pairs[w][0]);
            assert_int_equal(strlen(p.b), pairs[w][1]);
            longest = fwa_max(longest, p.length);
            if (pairs[w][0] != pairs[w][1]) continue;
            check_ok(fwa_addition_example(FWA_ADDITION_BRACKET, FWA_ADDITION_EXACT, 1, top, key, i, T, exact,
                                          exact_targets));
            assert_memory_equal(tokens, exact, (size_t)T * sizeof *tokens);
            assert_memory_equal(targets, exact_targets, (size_t)T * sizeof *targets);
        }
        // A carry into a new digit is common where widths are equal, and rare otherwise.
        assert_in_range(longest, pairs[w][0] == pairs[w][1] ? T + 1 : T, T + 1);
    }
}

static void test_refused_pairs(void **state) {
    static const int64_t good[2] = {3, 5}, zero[2] = {0, 5}, wide[2] = {5, FWA_ADDITION_MAX_WIDTH + 1};
    int32_t tokens[MAX_T], targets[MAX_T];
    (void)state;
    const int64_t T = fwa_addition_pair_length(FWA_ADDITION_BRACKET, good) - 1;
    assert_int_equal(T, 3 + 5 + 6 + 13);
    check_ok(fwa_addition_pair(FWA_ADDITION_BRACKET, good, 1, 0, T, tokens, targets));
    check_status(fwa_addition_pair(FWA_ADDITION_BRACKET, good, 1, 0, T - 1, tokens, targets), FWA_CONFIG);
    check_status(fwa_addition_pair(FWA_ADDITION_BRACKET, good, 1, -1, T, tokens, targets), FWA_USAGE);
    check_status(fwa_addition_pair(FWA_ADDITION_BRACKET, zero, 1, 0, MAX_T, tokens, targets), FWA_CONFIG);
    check_status(fwa_addition_pair(FWA_ADDITION_BRACKET, wide, 1, 0, MAX_T, tokens, targets), FWA_CONFIG);
    check_status(fwa_addition_pair(FWA_ADDITION_PAPER, good, 1, 0, MAX_T, tokens, targets), FWA_CONFIG);
    check_ok(fwa_addition_pair(FWA_ADDITION_PAPER, (const int64_t[2]){5, 5}, 1, 0, MAX_T, tokens, targets));
}

// Chi-squared against equal shares; 99.99 % lie below `limit`.
static void check_uniform(const int *count, int bins, int draws, double limit) {
    double chi = 0;
    for (int i = 0; i < bins; i++) chi += pow(count[i] - (double)draws / bins, 2) * bins / draws;
    if (!(chi < limit)) fail_msg("chi-squared %.1f of %d bins, limit %.1f", chi, bins, limit);
}

static void test_width_distribution(void **state) {
    (void)state;
    enum { LOW = 3, HIGH = 10, BINS = HIGH - LOW + 1, DRAWS = 8000 };
    int a[BINS] = {0}, b[BINS] = {0}, both[BINS * BINS] = {0}, paper[BINS] = {0};
    for (int64_t i = 0; i < DRAWS; i++) {
        parsed p = example(FWA_ADDITION_BRACKET, FWA_ADDITION_UPTO, LOW, HIGH, i);
        const int wa = (int)strlen(p.a) - LOW, wb = (int)strlen(p.b) - LOW;
        assert_in_range(wa, 0, BINS - 1);
        assert_in_range(wb, 0, BINS - 1);
        a[wa]++;
        b[wb]++;
        both[wa * BINS + wb]++;
        p = example(FWA_ADDITION_PAPER, FWA_ADDITION_UPTO, LOW, HIGH, i);
        paper[strlen(p.a) - LOW]++;
    }
    check_uniform(a, BINS, DRAWS, 30);
    check_uniform(b, BINS, DRAWS, 30);
    check_uniform(paper, BINS, DRAWS, 30);
    check_uniform(both, BINS * BINS, DRAWS, 115);
}

static void test_digit_distribution(void **state) {
    (void)state;
    enum { DRAWS = 10000 };
    int single[10] = {0}, top[10] = {0}, low[10] = {0}, zero_led = 0;
    for (int64_t i = 0; i < DRAWS; i++) {
        parsed p = example(FWA_ADDITION_BRACKET, FWA_ADDITION_EXACT, 1, 1, i);
        single[p.a[0] - '0']++;
        p = example(FWA_ADDITION_BRACKET, FWA_ADDITION_EXACT, 1, 3, i);
        top[p.b[0] - '0']++;
        low[p.b[2] - '0']++;
        p = example(FWA_ADDITION_PAPER, FWA_ADDITION_EXACT, 1, 3, i);
        zero_led += p.a[0] == '0';
    }
    check_uniform(single, 10, DRAWS, 34);
    check_uniform(top + 1, 9, DRAWS, 32);
    check_uniform(low, 10, DRAWS, 34);
    assert_in_range(zero_led, DRAWS / 10 - 150, DRAWS / 10 + 150);
}

static void fill_config(fwa_config *config) {
    memset(config, 0, sizeof *config);
    config->run.seed = 42;
    config->task.name = FWA_TASK_ADDITION;
    config->task.format = FWA_ADDITION_BRACKET;
    config->task.width_min = 1;
    config->task.width_max = 8;
    config->model.vocab_size = 277;
}

static fwa_source *open_source(const fwa_config *config) {
    fwa_source *source = NULL;
    check_ok(fwa_source_create(&source, config));
    return source;
}

static void test_source(void **state) {
    (void)state;
    fwa_config config;
    fill_config(&config);
    fwa_source *source = open_source(&config);
    assert_string_equal(source->name, "addition");
    assert_int_equal(source->T, 3 * 8 + 14);
    assert_int_equal(source->vocab, FWA_ADDITION_VOCAB);
    assert_true(source->sequences[0] == INT64_MAX && source->sequences[1] == INT64_MAX);
    assert_int_equal(source->fingerprint, 0);
    source->destroy(source);

    config.train.seq_len = 64;
    source = open_source(&config);
    int32_t tokens[64], targets[64];
    check_ok(source->fill(source, FWA_SPLIT_TRAIN, 11, 1, tokens, targets));
    assert_int_equal(source->T, 64);
    const parsed p = parse(FWA_ADDITION_BRACKET, tokens, targets, 64);
    check_answer(FWA_ADDITION_BRACKET, &p);
    source->destroy(source);
}

static void test_refused(void **state) {
    (void)state;
    fwa_config config;
    fwa_source *source = NULL;
    fill_config(&config);
    config.train.seq_len = 37;
    check_status(fwa_source_create(&source, &config), FWA_CONFIG);
    assert_non_null(strstr(fwa_error_message(), "37"));
    assert_non_null(strstr(fwa_error_message(), "38"));
    fill_config(&config);
    config.model.vocab_size = 258;
    check_status(fwa_source_create(&source, &config), FWA_CONFIG);
    fill_config(&config);
    config.task.width_min = 9;
    check_status(fwa_source_create(&source, &config), FWA_CONFIG);
    fill_config(&config);
    config.task.width_max = FWA_ADDITION_MAX_WIDTH + 1;
    check_status(fwa_source_create(&source, &config), FWA_CONFIG);
    fill_config(&config);
    config.task.width_min = 0;
    check_status(fwa_source_create(&source, &config), FWA_CONFIG);
    assert_null(source);
}

enum { BATCH = 64, THREADS = 4, LENGTH = 38 };

typedef struct job {
    const fwa_source *source;
    int64_t first, step; // sequences first, first + step, ... below BATCH, backwards, one call each
    int32_t *tokens, *targets;
    fwa_status status;
} job;

static void *fill_backwards(void *argument) {
    job *work = argument;
    int64_t i = BATCH - 1;
    while (i % work->step != work->first) i--;
    for (; i >= 0 && work->status == FWA_OK; i -= work->step) {
        work->status = work->source->fill(work->source, FWA_SPLIT_TRAIN, i, 1, work->tokens + i * LENGTH,
                                          work->targets + i * LENGTH);
    }
    return NULL;
}

static void test_pure(void **state) {
    (void)state;
    static int32_t tokens[2][BATCH * LENGTH], targets[2][BATCH * LENGTH];
    fwa_config config;
    fill_config(&config);
    fwa_source *source = open_source(&config);
    assert_int_equal(source->T, LENGTH);
    check_ok(source->fill(source, FWA_SPLIT_TRAIN, 0, BATCH, tokens[0], targets[0]));
    pthread_t thread[THREADS];
    job work[THREADS];
    for (int n = 0; n < THREADS; n++) {
        work[n] = (job){source, n, THREADS, tokens[1], targets[1], FWA_OK};
        assert_int_equal(pthread_create(&thread[n], NULL, fill_backwards, &work[n]), 0);
    }
    for (int n = 0; n < THREADS; n++) {
        assert_int_equal(pthread_join(thread[n], NULL), 0);
        assert_int_equal(work[n].status, FWA_OK);
    }
    assert_memory_equal(tokens[0], tokens[1], sizeof tokens[0]);
    assert_memory_equal(targets[0], targets[1], sizeof targets[0]);
    source->destroy(source);
}

// Number of sequences that two (seed, split) have in common at the same place.
static int same_examples(int64_t seed_a, fwa_split split_a, int64_t seed_b, fwa_split split_b) {
    static int32_t tokens[2][BATCH * LENGTH], targets[BATCH * LENGTH];
    const int64_t seed[2] = {seed_a, seed_b};
    const fwa_split split[2] = {split_a, split_b};
    for (int n = 0; n < 2; n++) {
        fwa_config config;
        fill_config(&config);
        config.run.seed = seed[n];
        fwa_source *source = open_source(&config);
        check_ok(source->fill(source, split[n], 0, BATCH, tokens[n], targets));
        source->destroy(source);
    }
    int same = 0;
    for (int i = 0; i < BATCH; i++) {
        same += memcmp(tokens[0] + i * LENGTH, tokens[1] + i * LENGTH, LENGTH * sizeof(int32_t)) == 0;
    }
    return same;
}

static void test_keys(void **state) {
    (void)state;
    assert_int_equal(same_examples(42, FWA_SPLIT_TRAIN, 42, FWA_SPLIT_TRAIN), BATCH);
    assert_true(same_examples(42, FWA_SPLIT_TRAIN, 42, FWA_SPLIT_VAL) <= 1);
    assert_true(same_examples(42, FWA_SPLIT_TRAIN, 43, FWA_SPLIT_TRAIN) <= 1);
    assert_true(same_examples(0, FWA_SPLIT_VAL, 1, FWA_SPLIT_TRAIN) <= 1);
}

static void test_batch_hash(void **state) {
    (void)state;
    static int32_t tokens[BATCH * LENGTH], targets[BATCH * LENGTH];
    fwa_config config;
    fill_config(&config);
    fwa_source *source = open_source(&config);
    const int64_t first = 5 * BATCH;
    check_ok(source->fill(source, FWA_SPLIT_TRAIN, first, BATCH, tokens, targets));
    source->destroy(source);
    const uint64_t whole = fwa_batch_hash(first, BATCH, LENGTH, tokens, targets);
    for (int64_t ranks = 1; ranks <= BATCH; ranks++) {
        uint64_t sum = 0;
        for (int64_t r = ranks - 1; r >= 0; r--) {
            const int64_t from = r * BATCH / ranks, to = (r + 1) * BATCH / ranks;
            sum += fwa_batch_hash(first + from, to - from, LENGTH, tokens + from * LENGTH, targets + from * LENGTH);
        }
        assert_true(sum == whole);
    }
    assert_true(fwa_batch_hash(first + 1, BATCH, LENGTH, tokens, targets) != whole);
    for (int64_t i = 0; i < BATCH * LENGTH; i += 97) {
        tokens[i] ^= 1;
        assert_true(fwa_batch_hash(first, BATCH, LENGTH, tokens, targets) != whole);
        tokens[i] ^= 1;
        targets[i] ^= 1;
        assert_true(fwa_batch_hash(first, BATCH, LENGTH, tokens, targets) != whole);
        targets[i] ^= 1;
    }
    for (int64_t t = 0; t < LENGTH; t++) { // two sequences exchanged: other numbers, another sum
        const int32_t kept = tokens[t];
        tokens[t] = tokens[LENGTH + t];
        tokens[LENGTH + t] = kept;
    }
    assert_true(fwa_batch_hash(first, BATCH, LENGTH, tokens, targets) != whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_text),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_refused_pairs),
        cmocka_unit_test(test_width_distribution),
        cmocka_unit_test(test_digit_distribution),
        cmocka_unit_test(test_source),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_pure),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_batch_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
