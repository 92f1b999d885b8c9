// Raw text to shards: files cut into parts that can be encoded apart, threads, one folder at the end.
#include "io/shards.h"
#include "tests/sync_log.h"
#include "tests/tiny_vocabulary.h"
#include "train/data/data.h"
#include "train/data/input.h"

enum { MEGABYTE = 1 << 20 };

// Words, spaces of all kinds, line ends, long runs without a break, characters of two to four bytes.
static char *make_text(size_t bytes, uint64_t seed) {
    static const char *const words[] = {" the",
                                        "the",
                                        " ",
                                        "  ",
                                        "\n",
                                        "\r\n",
                                        "a",
                                        "\xC2\xA0",
                                        "\xE3\x80\x80",
                                        ",",
                                        "\xF0\x9F\x91\xA9",
                                        "\xC3\xA9",
                                        "'s",
                                        "12",
                                        "\xE2\x80\x8A",
                                        "\xFF",
                                        "\t"};
    char *text = check_alloc(bytes + 1);
    size_t at = 0;
    for (uint64_t i = 0; at + 4 <= bytes; i++) {
        const char *word = words[fwa_rng_below(seed, 0, i, sizeof words / sizeof *words)];
        for (; *word; word++) text[at++] = *word;
    }
    while (at < bytes) text[at++] = 'x';
    return text;
}

static fwa_tokenize_request request_of(const char *const *inputs, int count, const char *out, int threads) {
    return (fwa_tokenize_request){.inputs = inputs,
                                  .input_count = count,
                                  .out = out,
                                  .field = "text",
                                  .shard_tokens = 1 << 20,
                                  .threads = threads};
}

static void parts_encode_as_the_whole(void **state) {
    (void)state;
    const size_t bytes = 5 * MEGABYTE + 17;
    char *text = make_text(bytes, 1);
    for (size_t i = 0; i < MEGABYTE + MEGABYTE / 2; i++) text[2 * MEGABYTE + i] = 'b'; // longer than a block
    temp_write(temp_path("text"), text, bytes);
    tiny_write(temp_path("tiny"), "t h\nth e\n\xC4\xA0 the\nb b\nbb bb\n");
    fwa_tokenizer *tokenizer;
    check_ok(fwa_tokenizer_open(&tokenizer, temp_path("tiny")));
    fwa_tokens whole = {0};
    check_ok(fwa_tokenizer_encode(tokenizer, text, bytes, &whole));
    for (int threads = 1; threads <= 3; threads += 2) {
        const char *input = temp_path("text"), *out = temp_path(threads == 1 ? "one" : "three");
        fwa_tokenize_request request = request_of(&input, 1, out, threads);
        fwa_tokenize_result result;
        fwa_shards *shards;
        char pattern[600];
        check_ok(fwa_data_tokenize(tokenizer, &request, &result));
        assert_int_equal(result.documents[0], 1);
        assert_int_equal(result.bytes, bytes);
        snprintf(pattern, sizeof pattern, "%s/train_*.bin", out);
        check_ok(fwa_shards_open(&shards, pattern, 262));
        assert_int_equal(fwa_shards_tokens(shards), whole.count + 1);
        int32_t *tokens = check_alloc((whole.count + 1) * sizeof *tokens);
        fwa_shards_read(shards, 0, (int64_t)whole.count + 1, tokens);
        assert_int_equal(tokens[0], fwa_tokenizer_document(tokenizer));
        assert_memory_equal(tokens + 1, whole.at, whole.count * sizeof *tokens);
        fwa_shards_close(shards);
    }
    free(whole.at);
    fwa_tokenizer_close(tokenizer);
}

// A folder of shards that has its name has them on the disk.
static void shards_are_on_the_disk(void **state) {
    (void)state;
    char *text = make_text(3000, 2);
    temp_write(temp_path("text"), text, 3000);
    const char *input = temp_path("text"), *out = temp_path("out"), *made = temp_path("out.tmp");
    fwa_tokenizer *bytes;
    fwa_tokenize_result result;
    check_ok(fwa_tokenizer_open(&bytes, "bytes"));
    fwa_tokenize_request request = request_of(&input, 1, out, 1);
    request.shard_tokens = 2000;
    sync_count = 0;
    check_ok(fwa_data_tokenize(bytes, &request, &result));
    assert_int_equal(result.files[0], 2);
    const int commit = sync_find(made, out);
    assert_true(commit >= 0);
    check_synced(temp_path("out.tmp/train_000000.bin"), temp_path("out/train_000000.bin"), commit);
    check_synced(temp_path("out.tmp/train_000001.bin"), temp_path("out/train_000001.bin"), commit);
    check_synced(made, out, commit);
    assert_true(sync_find(temp_folder, NULL) > commit);
    fwa_tokenizer_close(bytes);
}

static void lines_keep_their_numbers(void **state) {
    (void)state;
    const char *input[2];
    temp_write(temp_path("a"), "one\n\ntwo\r\n", 10);
    temp_write(temp_path("b"), "three", 5);
    input[0] = temp_path("[ab]");
    input[1] = temp_path("a");
    fwa_data_input *in;
    fwa_batch batch = {0};
    check_ok(fwa_data_input_open(&in, input, 2, true));
    check_ok(fwa_data_input_read(in, &batch));
    const struct {
        const char *text;
        int64_t line;
    } expected[] = {{"one", 1}, {"two", 3}, {"three", 1}, {"one", 1}, {"two", 3}};
    assert_int_equal(batch.count, 5);
    for (size_t i = 0; i < batch.count; i++) {
        assert_int_equal(batch.parts[i].bytes, strlen(expected[i].text));
        assert_memory_equal(batch.text.at + batch.parts[i].start, expected[i].text, batch.parts[i].bytes);
        assert_int_equal(batch.parts[i].line, expected[i].line);
        assert_true(batch.parts[i].document);
    }
    check_ok(fwa_data_input_read(in, &batch));
    assert_int_equal(batch.count, 0);
    fwa_batch_free(&batch);
    fwa_data_input_close(in);
}

// With many threads the first failure of the text is the one that is reported, and nothing stays behind.
static void the_first_mistake_is_reported(void **state) {
    (void)state;
    FILE *file = fopen(temp_path("bad.jsonl"), "w");
    assert_non_null(file);
    for (int i = 1; i <= 60000; i++)
        fprintf(file,
                i == 40000 || i == 59000 ? "{\"text\": %d}\n" : "{\"text\": \"line %d of a file of megabytes\"}\n", i);
    assert_int_equal(fclose(file), 0);
    const char *input = temp_path("bad.jsonl");
    fwa_tokenizer *bytes;
    fwa_tokenize_result result;
    check_ok(fwa_tokenizer_open(&bytes, "bytes"));
    fwa_tokenize_request request = request_of(&input, 1, temp_path("out"), 4);
    request.jsonl = request.lines = true;
    check_status(fwa_data_tokenize(bytes, &request, &result), FWA_FORMAT);
    check_message("bad.jsonl:40000:");
    assert_false(fwa_path_exists(temp_path("out")));
    assert_false(fwa_path_exists(temp_path("out.tmp")));
    fwa_tokenizer_close(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        temp_test(parts_encode_as_the_whole),
        temp_test(shards_are_on_the_disk),
        temp_test(lines_keep_their_numbers),
        temp_test(the_first_mistake_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
