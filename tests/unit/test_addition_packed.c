// Packed addition: first-fit decreasing against a search, every example of an update once and as it is alone, the same
// sequences however they are asked for, and configurations whose updates do not fit.
#include "tests/check.h"

#include "train/tasks/addition.h"
#include "train/tasks/packing.h"

enum { EXAMPLES = 60, WIDTH = 9, PLACES = 3 * WIDTH + 14, T = 96, MANY = 64, SEQUENCES = 40, STEPS = 30 };

static void fill_config(fwa_config *config, fwa_addition_format format) {
    memset(config, 0, sizeof *config);
    config->run.seed = 11;
    config->task.name = FWA_TASK_ADDITION;
    config->task.format = format;
    config->task.width_min = 1;
    config->task.width_max = WIDTH;
    config->task.examples = EXAMPLES;
    config->model.vocab_size = 277;
    config->data.reset_documents = true;
    config->train.steps = STEPS;
    config->train.seq_len = T;
    config->train.global_batch = SEQUENCES;
    config->eval.batches = 5;
}

static fwa_source *open_source(const fwa_config *config) {
    fwa_source *source = NULL;
    check_ok(fwa_source_create(&source, config));
    return source;
}

// The piece that is next: the longest without a row, of equal ones the first.
static int next_piece(const fwa_packing *p, const bool *done) {
    int best = -1;
    for (int i = 0; i < p->count; i++)
        if (!done[i] && (best < 0 || p->length[i] > p->length[best])) best = i;
    return best;
}

static void test_first_fit_decreasing(void **state) {
    (void)state;
    for (int round = 0; round < 50; round++) {
        fwa_packing p;
        bool done[MANY] = {false};
        int64_t used[MANY] = {0}, rows = 0;
        check_ok(fwa_packing_create(&p, MANY, 30, 30 + round));
        for (int i = 0; i < MANY; i++)
            p.length[i] = 1 + (int32_t)fwa_rng_below(5, (uint64_t)round, (uint64_t)i, round % 2 ? 30 : 7);
        fwa_packing_lay(&p);
        fwa_packing_lay(&p); // nothing is left of the first time
        for (int n = 0; n < MANY; n++) {
            const int i = next_piece(&p, done);
            int64_t row = 0;
            while (used[row] + p.length[i] > p.T) row++;
            assert_int_equal(p.row[i], row);
            assert_int_equal(p.start[i], used[row]);
            used[row] += p.length[i];
            done[i] = true;
            rows = row + 1 > rows ? row + 1 : rows;
        }
        assert_int_equal(p.rows, rows);
        fwa_packing_destroy(&p);
    }
    fwa_packing p;
    check_status(fwa_packing_create(&p, 3, 31, 30), FWA_ERROR);
}

// Example `index` alone: its places are those up to its last target.
static int64_t alone(const fwa_config *config, fwa_split split, int64_t index, int32_t *tokens, int32_t *targets) {
    const uint64_t key = fwa_addition_key(config->run.seed, split);
    int64_t places = PLACES;
    check_ok(fwa_addition_example((fwa_addition_format)config->task.format, FWA_ADDITION_UPTO, config->task.width_min,
                                  config->task.width_max, key, index, PLACES, tokens, targets));
    while (targets[places - 1] == FWA_NO_TARGET) places--;
    assert_int_equal(targets[places - 1], FWA_ADDITION_END);
    return places;
}

// Which of an update's examples that are still to come stands at tokens, targets, with room for `room` places.
static int find_example(const fwa_config *config, fwa_split split, int64_t update, const bool *seen,
                        const int32_t *tokens, const int32_t *targets, int64_t room, int64_t *places) {
    int32_t own[PLACES], wanted[PLACES];
    for (int i = 0; i < EXAMPLES; i++) {
        if (seen[i]) continue;
        *places = alone(config, split, update * EXAMPLES + i, own, wanted);
        const size_t bytes = (size_t)*places * sizeof *own;
        if (*places <= room && !memcmp(own, tokens, bytes) && !memcmp(wanted, targets, bytes)) return i;
    }
    return -1;
}

static void check_update(const fwa_config *config, fwa_split split, int64_t update, const int32_t *tokens,
                         const int32_t *targets) {
    bool seen[EXAMPLES] = {false};
    int count = 0;
    for (int64_t row = 0; row < SEQUENCES; row++, tokens += T, targets += T) {
        int64_t at = 0, places = 0;
        for (; at < T && tokens[at] == FWA_ADDITION_BEGIN; at += places, count++) {
            const int i = find_example(config, split, update, seen, tokens + at, targets + at, T - at, &places);
            assert_true(i >= 0);
            seen[i] = true;
        }
        for (; at < T; at++) {
            assert_int_equal(tokens[at], FWA_ADDITION_PAD);
            assert_int_equal(targets[at], FWA_NO_TARGET);
        }
    }
    assert_int_equal(count, EXAMPLES);
}

static void test_every_example_once(void **state) {
    (void)state;
    static int32_t tokens[SEQUENCES * T], targets[SEQUENCES * T];
    for (int format = FWA_ADDITION_PAPER; format <= FWA_ADDITION_BRACKET; format++) {
        fwa_config config;
        fill_config(&config, (fwa_addition_format)format);
        fwa_source *source = open_source(&config);
        assert_int_equal(source->T, T);
        for (int n = 0; n < 20; n++) {
            const fwa_split split = n % 3 ? FWA_SPLIT_TRAIN : FWA_SPLIT_VAL;
            check_ok(source->fill(source, split, n * SEQUENCES, SEQUENCES, tokens, targets));
            check_update(&config, split, n, tokens, targets);
        }
        source->destroy(source);
    }
}

// Lengths come from few draws: they are those of the examples, also of sums that carry through several nines.
static void test_places(void **state) {
    (void)state;
    int32_t tokens[PLACES], targets[PLACES];
    int longer[2] = {0, 0};
    for (int format = FWA_ADDITION_PAPER; format <= FWA_ADDITION_BRACKET; format++) {
        fwa_config config;
        fill_config(&config, (fwa_addition_format)format);
        for (int64_t low = 1; low <= WIDTH; low++)
            for (int64_t i = 0; i < 3000; i++) {
                config.task.width_min = low;
                const fwa_addition_draws draws = {(fwa_addition_format)format, low, WIDTH,
                                                  fwa_addition_key(config.run.seed, FWA_SPLIT_TRAIN)};
                const int64_t places = alone(&config, FWA_SPLIT_TRAIN, i, tokens, targets);
                assert_int_equal(fwa_addition_places(&draws, i), places);
                if (low == WIDTH) longer[places == PLACES]++;
            }
    }
    assert_true(longer[0] > 1000 && longer[1] > 1000);
}

// Sequences asked for one at a time, backwards, and in counts that go over the end of an update.
static void test_pure(void **state) {
    (void)state;
    enum { ALL = 3 * SEQUENCES };
    static int32_t tokens[2][ALL * T], targets[2][ALL * T];
    fwa_config config;
    fill_config(&config, FWA_ADDITION_BRACKET);
    fwa_source *source = open_source(&config);
    check_ok(source->fill(source, FWA_SPLIT_TRAIN, 7 * SEQUENCES, ALL, tokens[0], targets[0]));
    static const int counts[] = {1, 7, SEQUENCES, SEQUENCES + 3};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        for (int64_t end = ALL; end > 0; end -= counts[c]) {
            const int64_t first = end > counts[c] ? end - counts[c] : 0, n = (end - first) * T;
            memset(tokens[1], 0xFF, sizeof tokens[1]);
            memset(targets[1], 0xFF, sizeof targets[1]);
            check_ok(source->fill(source, FWA_SPLIT_TRAIN, 7 * SEQUENCES + first, end - first, tokens[1], targets[1]));
            assert_memory_equal(tokens[0] + first * T, tokens[1], (size_t)n * sizeof(int32_t));
            assert_memory_equal(targets[0] + first * T, targets[1], (size_t)n * sizeof(int32_t));
            for (int64_t i = n; i < (int64_t)ALL * T; i++) assert_true(tokens[1][i] == -1 && targets[1][i] == -1);
        }
    }
    check_status(source->fill(source, FWA_SPLIT_TRAIN, -1, 1, tokens[1], targets[1]), FWA_USAGE);
    check_status(source->fill(source, FWA_SPLIT_TRAIN, INT64_MAX, 1, tokens[1], targets[1]), FWA_USAGE);
    source->destroy(source);
}

// The sequences that each of the first updates needs, from the lengths alone.
static int64_t rows_of(const fwa_config *config, fwa_split split, int64_t update) {
    int32_t tokens[PLACES], targets[PLACES];
    fwa_packing p;
    check_ok(fwa_packing_create(&p, EXAMPLES, PLACES, T));
    for (int64_t i = 0; i < EXAMPLES; i++)
        p.length[i] = (int32_t)alone(config, split, update * EXAMPLES + i, tokens, targets);
    fwa_packing_lay(&p);
    const int64_t rows = p.rows;
    fwa_packing_destroy(&p);
    return rows;
}

static void expect_refused(const fwa_config *config, const char *format, int64_t a, int64_t b, const char *remedy,
                           int64_t smallest) {
    char text[160];
    fwa_source *source = NULL;
    check_status(fwa_source_create(&source, config), FWA_CONFIG);
    assert_null(source);
    snprintf(text, sizeof text, format, (long long)a, (long long)b);
    if (!strstr(fwa_error_message(), text)) fail_msg("'%s' does not say '%s'", fwa_error_message(), text);
    snprintf(text, sizeof text, remedy, (long long)smallest);
    if (!strstr(fwa_error_message(), text)) fail_msg("'%s' does not say '%s'", fwa_error_message(), text);
    fwa_error_clear();
}

static const char remedy[] = "smallest train.global_batch that holds every update of this run is %lld ";

static void test_refused(void **state) {
    (void)state;
    fwa_config config;
    int64_t rows[STEPS], most = 0, first = 0, late = 0;
    fill_config(&config, FWA_ADDITION_BRACKET);
    for (int64_t n = 0; n < STEPS; n++) {
        rows[n] = rows_of(&config, FWA_SPLIT_TRAIN, n);
        if (rows[n] > most) late = n;
        most = rows[n] > most ? rows[n] : most;
    }
    assert_true(late > 0 && rows[0] < most);
    config.train.global_batch = most;
    fwa_source *source = open_source(&config);
    source->destroy(source);
    config.train.global_batch = most - 1;
    while (rows[first] < most) first++;
    expect_refused(&config, "training update %lld need %lld ", first + 1, most, remedy, most);
    config.train.global_batch = 1;
    expect_refused(&config, "training update %lld need %lld ", 1, rows[0], remedy, most);

    // What is checked is what is read: up to train.steps, and more when there are more.
    config.train.global_batch = most - 1;
    config.train.steps = first;
    source = open_source(&config);
    int32_t tokens[T], targets[T];
    check_ok(source->fill(source, FWA_SPLIT_TRAIN, (most - 1) * first - 1, 1, tokens, targets));
    check_status(source->fill(source, FWA_SPLIT_TRAIN, (most - 1) * first, 1, tokens, targets), FWA_CONFIG);
    source->destroy(source);
    config.train.steps = first + 1;
    expect_refused(&config, "training update %lld need %lld ", first + 1, most, remedy, most);
}

static void test_validation_is_checked(void **state) {
    (void)state;
    fwa_config config;
    int64_t rows, n = 0;
    fill_config(&config, FWA_ADDITION_PAPER);
    config.train.steps = 1;
    do { // the first validation update fits, a later one does not
        config.run.seed++;
        config.train.global_batch = rows_of(&config, FWA_SPLIT_TRAIN, 0);
        while ((rows = rows_of(&config, FWA_SPLIT_VAL, n)) <= config.train.global_batch) n++;
    } while (n == 0);
    config.eval.batches = n + 1;
    fwa_source *source = open_source(&config); // no validation
    source->destroy(source);
    config.eval.every = 100;
    expect_refused(&config, "validation update %lld need %lld ", n + 1, rows, remedy, rows);
    config.eval.batches = n;
    source = open_source(&config);
    source->destroy(source);
}

static void test_settings(void **state) {
    (void)state;
    fwa_config config;
    fwa_source *source = NULL;
    fill_config(&config, FWA_ADDITION_BRACKET);
    config.train.seq_len = PLACES - 1;
    check_status(fwa_source_create(&source, &config), FWA_CONFIG);
    config.train.seq_len = 0; // auto: the longest example alone in its sequence
    config.train.global_batch = EXAMPLES;
    source = open_source(&config);
    assert_int_equal(source->T, PLACES);
    source->destroy(source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_fit_decreasing),
        cmocka_unit_test(test_every_example_once),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_pure),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_validation_is_checked),
        cmocka_unit_test(test_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
