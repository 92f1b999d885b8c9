// Token shards: one stream over several files; every kind of damage is refused with file, value and expectation.
#include <fcntl.h>
#include <unistd.h>

#include "io/shards.h"
#include "tests/temp_folder.h"

enum { VOCAB = 1000, HEADER = 256 };

// A shard whose token i is (first + i) % VOCAB; the header can lie.
static void write_shard(const char *name, int32_t magic, int32_t version, int32_t claimed, int count, int first) {
    size_t size = HEADER * sizeof(int32_t) + (size_t)count * sizeof(uint16_t);
    char *bytes = check_alloc(size);
    int32_t header[HEADER] = {magic, version, claimed};
    memcpy(bytes, header, sizeof header);
    for (int i = 0; i < count; i++) {
        uint16_t token = (uint16_t)((first + i) % VOCAB);
        memcpy(bytes + sizeof header + 2 * (size_t)i, &token, sizeof token);
    }
    temp_write(temp_path(name), bytes, size);
}

static void write_good(const char *name, int count, int first) {
    write_shard(name, 20240520, 1, count, count, first);
}

static void change_token(const char *name, int at, int token) {
    const uint16_t value = (uint16_t)token;
    int file = open(temp_path(name), O_WRONLY);
    assert_int_equal(pwrite(file, &value, sizeof value, HEADER * 4 + 2 * (off_t)at), sizeof value);
    close(file);
}

static fwa_status open_and_close(const char *pattern, int64_t vocab) {
    fwa_shards *shards;
    fwa_status status = fwa_shards_open(&shards, temp_path(pattern), vocab);
    if (status != FWA_OK) assert_null(shards);
    fwa_shards_close(shards);
    return status;
}

static void files_form_one_stream(void **state) {
    (void)state;
    write_good("train_02.bin", 300, 1500); // written out of order
    write_good("train_00.bin", 500, 0);
    write_good("train_01.bin", 1000, 500);
    fwa_shards *shards;
    check_ok(fwa_shards_open(&shards, temp_path("train_*.bin"), VOCAB));
    assert_int_equal(fwa_shards_files(shards), 3);
    assert_int_equal(fwa_shards_tokens(shards), 1800);
    const int ranges[][2] = {{0, 1800}, {0, 1}, {499, 2}, {498, 1004}, {1500, 1}, {1799, 1}, {500, 1000}, {7, 0}};
    for (size_t r = 0; r < sizeof ranges / sizeof ranges[0]; r++) {
        int32_t tokens[1801];
        for (int i = 0; i <= 1800; i++) tokens[i] = -1;
        fwa_shards_read(shards, ranges[r][0], ranges[r][1], tokens);
        for (int i = 0; i < ranges[r][1]; i++) assert_int_equal(tokens[i], (ranges[r][0] + i) % VOCAB);
        assert_int_equal(tokens[ranges[r][1]], -1);
    }
    fwa_shards_close(shards);
}

static void no_match_says_where_data_comes_from(void **state) {
    (void)state;
    check_status(open_and_close("none_*.bin", VOCAB), FWA_CONFIG);
    check_message("none_*.bin");
    check_message("fwa data tokenize");
    check_message("data.train");
    assert_int_equal(fwa_status_exit_code(FWA_CONFIG), 2);
    assert_int_equal(fwa_status_exit_code(FWA_FORMAT), 2);
}

static void damage_is_refused(void **state) {
    (void)state;
    const struct {
        int32_t magic, version, claimed;
        int count;
        const char *says, *expected;
    } cases[] = {
        {20240521, 1, 10, 10, "magic 20240521", "expected 20240520"},
        {20240522, 1, 10, 10, "magic 20240522", "multiple-choice"},
        {20240520, 2, 10, 10, "version 2", "expected 1"},
        {20240520, 1, 11, 10, "1044 bytes", "expected 1046"},
        {20240520, 1, 9, 10, "1044 bytes", "too long"},
        {20240520, 1, 2147483647, 10, "1044 bytes", "expected 4294968318"},
        {20240520, 1, 0, 0, "counts 0 tokens", "at least 1"},
        {20240520, 1, -5, 10, "counts -5 tokens", "at least 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_shard("x.bin", cases[i].magic, cases[i].version, cases[i].claimed, cases[i].count, 0);
        check_status(open_and_close("x.bin", VOCAB), FWA_FORMAT);
        check_message("/x.bin");
        check_message(cases[i].says);
        check_message(cases[i].expected);
    }
}

static void cut_files_are_refused(void **state) {
    (void)state;
    const int sizes[] = {0, 4, 1023, 1024, 1025, 1222, 1223};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        write_good("a.bin", 50, 0);
        write_good("x.bin", 100, 0);
        assert_int_equal(truncate(temp_path("x.bin"), sizes[i]), 0);
        check_status(open_and_close("*.bin", VOCAB), FWA_FORMAT);
        check_message("/x.bin");
    }
    check_ok(fwa_make_folders(temp_path("folder.bin")));
    check_status(open_and_close("folder.bin", VOCAB), FWA_CONFIG);
    check_message("folder.bin is a folder");
}

static void tokens_outside_the_vocabulary_are_refused(void **state) {
    (void)state;
    enum { COUNT = 70000 }; // more than one block of the scan
    write_good("x.bin", COUNT, 0);
    check_ok(open_and_close("x.bin", VOCAB));
    const int places[] = {0, 1, 65535, 65536, COUNT - 1};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        write_good("x.bin", COUNT, 0);
        uint16_t token = VOCAB;
        int file = open(temp_path("x.bin"), O_WRONLY);
        assert_int_equal(pwrite(file, &token, 2, 1024 + 2 * places[i]), 2);
        close(file);
        check_status(open_and_close("x.bin", VOCAB), FWA_FORMAT);
        char at[64];
        snprintf(at, sizeof at, "token 1000 at position %d:", places[i]);
        check_message(at);
        check_message("less than 1000");
        check_ok(open_and_close("x.bin", VOCAB + 1));
        check_ok(open_and_close("x.bin", 100000));
    }
}

// A sparse file of 2^30 + 8 tokens: 2 GiB and a little, of which only the last tokens are not 0.
static void files_over_2_gib(void **state) {
    (void)state;
    const int64_t count = ((int64_t)1 << 30) + 8;
    int32_t header[HEADER] = {20240520, 1, (int32_t)count};
    int file = open(temp_path("big_0.bin"), O_CREAT | O_WRONLY, 0600);
    const uint16_t last[2] = {7, 8};
    bool made = ftruncate(file, 1024 + 2 * count) == 0 && pwrite(file, header, sizeof header, 0) == sizeof header &&
                pwrite(file, last, sizeof last, 1024 + 2 * (count - 2)) == sizeof last;
    close(file);
    if (!made) skip();
    write_good("big_1.bin", 10, 100);
    fwa_shards *shards;
    check_ok(fwa_shards_open(&shards, temp_path("big_*.bin"), 100000)); // no scan: ids cannot be too large
    assert_int_equal(fwa_shards_tokens(shards), count + 10);
    int32_t tokens[4];
    fwa_shards_read(shards, count - 2, 4, tokens);
    const int32_t expected[4] = {7, 8, 100, 101};
    assert_memory_equal(tokens, expected, sizeof expected);
    fwa_shards_close(shards);
}

// Reading on would be a SIGBUS.
static void a_file_cut_short_is_noticed(void **state) {
    (void)state;
    write_good("a_1.bin", 5000, 0);
    write_good("a_2.bin", 5000, 5000);
    fwa_shards *shards;
    check_ok(fwa_shards_open(&shards, temp_path("a_*.bin"), VOCAB));
    check_ok(fwa_shards_check(shards, 0, 10000));
    assert_int_equal(truncate(temp_path("a_2.bin"), 4096), 0);
    check_ok(fwa_shards_check(shards, 0, 5000));
    check_status(fwa_shards_check(shards, 4999, 2), FWA_IO);
    check_message("a_2.bin has 4096 bytes");
    assert_int_equal(unlink(temp_path("a_1.bin")), 0); // the mapping keeps it
    check_ok(fwa_shards_check(shards, 0, 5000));
    fwa_shards_close(shards);
}

static uint64_t fingerprint(const char *pattern) {
    fwa_shards *shards;
    check_ok(fwa_shards_open(&shards, temp_path(pattern), VOCAB));
    uint64_t hash = fwa_shards_fingerprint(shards);
    fwa_shards_close(shards);
    return hash;
}

static void fingerprint_notices_changes(void **state) {
    (void)state;
    check_ok(fwa_make_folders(temp_path("one")));
    check_ok(fwa_make_folders(temp_path("two")));
    write_good("one/a.bin", 100, 0);
    write_good("one/b.bin", 200, 0);
    write_good("two/a.bin", 100, 0);
    write_good("two/b.bin", 200, 0);
    uint64_t hash = fingerprint("one/*.bin");
    assert_true(hash == fingerprint("two/*.bin")); // the folder may move
    assert_true(hash != fingerprint("one/a.bin"));
    write_good("two/b.bin", 201, 0);
    assert_true(hash != fingerprint("two/*.bin"));
    write_good("two/b.bin", 200, 1);
    assert_true(hash != fingerprint("two/*.bin"));
    write_good("two/b.bin", 200, 0);
    assert_int_equal(rename(temp_path("two/b.bin"), temp_path("two/c.bin")), 0);
    assert_true(hash != fingerprint("two/*.bin"));
    const int many = 1200000; // of a large file both ends count
    write_good("large.bin", many, 0);
    hash = fingerprint("large.bin");
    for (int end = 0; end < 2; end++) {
        change_token("large.bin", end ? many - 1 : 0, 7);
        assert_true(hash != fingerprint("large.bin"));
        change_token("large.bin", end ? many - 1 : 0, end ? (many - 1) % VOCAB : 0);
        assert_true(hash == fingerprint("large.bin"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        temp_test(a_file_cut_short_is_noticed),
        temp_test(files_form_one_stream),
        temp_test(no_match_says_where_data_comes_from),
        temp_test(damage_is_refused),
        temp_test(cut_files_are_refused),
        temp_test(tokens_outside_the_vocabulary_are_refused),
        temp_test(files_over_2_gib),
        temp_test(fingerprint_notices_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
