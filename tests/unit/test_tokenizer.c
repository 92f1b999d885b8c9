// Tokenizer: GPT-2's splitting and merging, every byte there and back, files that are not a tokenizer.
#include "io/bpe.h"
#include "io/pieces.h"
#include "io/tokenizer.h"
#include "tests/tiny_vocabulary.h"

// "the", " the", "in", "aaaa" and a few more; \xC4\xA0 spells a space.
static const char merges[] = "t h\nth e\n\xC4\xA0 the\ni n\na a\naa aa\n\xC3\x83 \xC2\xA9\n";

enum { THE = 257, SPACE_THE = 258, IN = 259, AA = 260, AAAA = 261, E_ACUTE = 262, MARK = 263 };

static fwa_tokenizer *open_tiny(void) {
    fwa_tokenizer *t;
    assert_int_equal(tiny_write(temp_path("tiny"), merges), MARK);
    check_ok(fwa_tokenizer_open(&t, temp_path("tiny")));
    return t;
}

// The pieces of a text between bars.
static void check_pieces(const char *text, size_t bytes, const char *expected, size_t size) {
    char got[512] = "";
    size_t at = 0, start, length, end = 0;
    fwa_pattern *pattern;
    fwa_pieces pieces;
    check_ok(fwa_pattern_create(&pattern));
    check_ok(fwa_pieces_begin(&pieces, pattern, text, bytes));
    for (;;) {
        check_ok(fwa_pieces_next(&pieces, &start, &length));
        assert_int_equal(start, end); // nothing is left out
        end = start + length;
        if (length == 0) break;
        assert_true(at + length + 1 < sizeof got);
        memcpy(got + at, text + start, length);
        at += length;
        got[at++] = '|';
    }
    assert_int_equal(end, bytes);
    fwa_pieces_end(&pieces);
    fwa_pattern_destroy(pattern);
    assert_int_equal(at, size);
    assert_memory_equal(got, expected, at);
}

static void text_is_split_as_by_gpt2(void **state) {
    (void)state;
    const struct {
        const char *text, *pieces;
    } cases[] = {
        {"", ""},
        {"a", "a|"},
        {"Hello world", "Hello| world|"},
        {"it's we'll I'LL 'tis", "it|'s| we|'ll| I|'|LL| '|tis|"},
        {"a  b   c", "a| | b|  | c|"},
        {"end  ", "end|  |"},
        {"a\n\nb \n c", "a|\n|\n|b| \n| c|"},
        {"x1 23,45!?", "x|1| 23|,|45|!?|"},
        {"\xC3\xA9t\xC3\xA9 \xE4\xB8\xAD\xE6\x96\x87", "\xC3\xA9t\xC3\xA9| \xE4\xB8\xAD\xE6\x96\x87|"},
        {"a\xC2\xA0\xC2\xA0"
         "b",
         "a|\xC2\xA0|\xC2\xA0|b|"}, // no-break spaces are white space
        {"a\xE1\xA0\x8E"
         "b",
         "a|\xE1\xA0\x8E|b|"}, // U+180E is not: it would stand apart from "!"
        {"\xE1\xA0\x8E!", "\xE1\xA0\x8E!|"},
        {"e\xCC\x81", "e|\xCC\x81|"}, // a combining accent is no letter
        {" \xF0\x9F\x91\xA9\xE2\x80\x8D!", " \xF0\x9F\x91\xA9\xE2\x80\x8D!|"},
        {"a\xFF"
         "b",
         "a|\xFF|b|"}, // what is not UTF-8 counts as "other"
        {"a  \xFF!", "a| | \xFF!|"},
        {"\xED\xA0\x80'\xC0\xAF \xF5", "\xED\xA0\x80'\xC0\xAF| \xF5|"},
        {"\xE2\x82", "\xE2\x82|"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_pieces(cases[i].text, strlen(cases[i].text), cases[i].pieces, strlen(cases[i].pieces));
    check_pieces("a\0b", 3, "a|\0|b|", 6);
}

static void check_ids(const fwa_tokenizer *t, const char *text, size_t bytes, const int32_t *ids, size_t count) {
    fwa_tokens tokens = {0};
    fwa_text back = {0};
    check_ok(fwa_tokenizer_encode(t, text, bytes, &tokens));
    assert_int_equal(tokens.count, count);
    for (size_t i = 0; i < count; i++) assert_int_equal(tokens.at[i], ids[i]);
    check_ok(fwa_tokenizer_decode(t, tokens.at, tokens.count, &back));
    assert_int_equal(back.count, bytes);
    assert_memory_equal(back.at, text, bytes);
    assert_int_equal(back.at[bytes], 0);
    free(tokens.at);
    free(back.at);
}

#define check_text(t, text, ...)                                                                                       \
    check_ids(t, text, sizeof(text) - 1, (const int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / 4)

static void pairs_merge_in_order(void **state) {
    (void)state;
    fwa_tokenizer *t = open_tiny();
    assert_int_equal(fwa_tokenizer_vocab(t), MARK + 1);
    assert_int_equal(fwa_tokenizer_document(t), MARK);
    check_text(t, "the", THE);
    check_text(t, "the the", THE, SPACE_THE);
    check_text(t, "then in", THE, 'n', ' ', IN);
    check_text(t, "aaa", AA, 'a');
    check_text(t, "aaaaa", AAAA, 'a');
    check_text(t, "aaaaaaa", AAAA, AA, 'a');
    check_text(t, "\xC3\xA9", E_ACUTE);
    check_text(t, "\xC3", 0xC3);
    check_text(t, "t\0h", 't', 0, 'h');
    check_text(t, "<|endoftext|>", '<', '|', 'e', 'n', 'd', 'o', 'f', 't', 'e', 'x', 't', '|', '>');
    check_ids(t, "", 0, NULL, 0);
    fwa_tokenizer_close(t);
}

static void every_byte_comes_back(void **state) {
    (void)state;
    enum { COUNT = 70000 };
    fwa_tokenizer *tiny = open_tiny(), *bytes;
    char *text = check_alloc(COUNT);
    int32_t *ids = check_alloc(COUNT * sizeof *ids);
    for (int i = 0; i < COUNT; i++) {
        text[i] = (char)fwa_rng_below(7, 0, (uint64_t)i, 256);
        ids[i] = (unsigned char)text[i];
    }
    check_ok(fwa_tokenizer_open(&bytes, "bytes"));
    assert_int_equal(fwa_tokenizer_vocab(bytes), 257);
    assert_int_equal(fwa_tokenizer_document(bytes), 256);
    check_ids(bytes, text, COUNT, ids, COUNT);
    fwa_tokens tokens = {0};
    fwa_text back = {0};
    check_ok(fwa_tokenizer_encode(tiny, text, COUNT, &tokens));
    check_ok(fwa_tokenizer_decode(tiny, tokens.at, tokens.count, &back));
    assert_int_equal(back.count, COUNT);
    assert_memory_equal(back.at, text, COUNT);
    free(tokens.at);
    free(back.at);
    fwa_tokenizer_close(tiny);
    fwa_tokenizer_close(bytes);
}

static void results_are_appended_or_left(void **state) {
    (void)state;
    fwa_tokenizer *t = open_tiny();
    fwa_tokens tokens = {0};
    fwa_text text = {0};
    check_ok(fwa_tokenizer_encode(t, "the", 3, &tokens));
    check_ok(fwa_tokenizer_encode(t, " the", 4, &tokens));
    assert_int_equal(tokens.count, 2);
    check_ok(fwa_tokenizer_decode(t, tokens.at, 2, &text));
    assert_string_equal(text.at, "the the");
    const int32_t lacking[] = {'a', MARK + 1}, negative[] = {-1}, mark[] = {MARK};
    check_status(fwa_tokenizer_decode(t, lacking, 2, &text), FWA_FORMAT);
    check_message("token 264 at position 1");
    check_status(fwa_tokenizer_decode(t, negative, 1, &text), FWA_FORMAT);
    assert_string_equal(text.at, "the the");
    check_ok(fwa_tokenizer_decode(t, mark, 1, &text));
    assert_string_equal(text.at, "the the<|endoftext|>");
    free(tokens.at);
    free(text.at);
    fwa_tokenizer_close(t);
}

// GPT-2's own procedure: all places of the pair that comes first in the list, from left to right, again and again.
static size_t merge_plainly(const fwa_vocabulary *v, int32_t *ids, size_t n) {
    for (;;) {
        int32_t best = v->merge_count;
        for (size_t i = 0; i + 1 < n; i++)
            for (int32_t m = 0; m < best; m++)
                if (v->merges[m].left == ids[i] && v->merges[m].right == ids[i + 1]) best = m;
        if (best == v->merge_count) return n;
        size_t to = 0;
        for (size_t i = 0; i < n; to++) {
            bool pair = i + 1 < n && ids[i] == v->merges[best].left && ids[i + 1] == v->merges[best].right;
            ids[to] = pair ? v->merges[best].merged : ids[i];
            i += pair ? 2 : 1;
        }
        n = to;
    }
}

// `count` merges of two tokens that there are by then, whose text is new. The alphabet is "ab": runs and overlaps
// abound.
static void random_merges(uint64_t seed, int count, char *lines, size_t size) {
    char token[40][64] = {"a", "b"};
    size_t used = 0;
    int have = 2;
    for (uint64_t i = 0; have < count + 2; i++) {
        char text[130];
        const char *left = token[fwa_rng_below(seed, 1, i, (uint64_t)have)];
        const char *right = token[fwa_rng_below(seed, 2, i, (uint64_t)have)];
        snprintf(text, sizeof text, "%s%s", left, right);
        bool known = strlen(text) > 16;
        for (int k = 0; k < have; k++) known = known || strcmp(token[k], text) == 0;
        if (known) continue;
        used += (size_t)snprintf(lines + used, size - used, "%s %s\n", left, right);
        snprintf(token[have++], sizeof token[0], "%.60s", text);
    }
}

static void windows_and_heaps_give_what_plain_merging_gives(void **state) {
    (void)state;
    enum { LENGTH = 300 };
    const size_t windows[] = {1, 3, 8, 20, 70, FWA_BPE_WINDOW};
    for (uint64_t seed = 0; seed < 60; seed++) {
        char lines[2000], piece[LENGTH];
        fwa_vocabulary v;
        fwa_bpe *bpe;
        random_merges(seed, 6 + (int)(seed % 20), lines, sizeof lines);
        tiny_write(temp_path("random"), lines);
        check_ok(fwa_vocabulary_read(&v, temp_path("random")));
        check_ok(fwa_bpe_create(&bpe, &v));
        for (size_t n = 1; n <= LENGTH; n = n < 70 ? n + 3 : n + 46) {
            int32_t expected[LENGTH];
            for (size_t i = 0; i < n; i++) {
                piece[i] = "ab"[fwa_rng_below(seed, 3 + n, i, 8) >= 1 + seed % 4];
                expected[i] = piece[i];
            }
            size_t count = merge_plainly(&v, expected, n);
            for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
                fwa_tokens got = {0};
                check_ok(fwa_bpe_encode(bpe, piece, n, windows[w], &got));
                assert_int_equal(got.count, count);
                assert_memory_equal(got.at, expected, count * sizeof *expected);
                free(got.at);
            }
        }
        fwa_bpe_destroy(bpe);
        fwa_vocabulary_free(&v);
    }
}

// Twice the length takes about twice the time: a piece of 4 MB would take hours if pairs were searched one by one.
static void long_pieces_are_encoded_in_reasonable_time(void **state) {
    (void)state;
    enum { LENGTH = 4 << 20 };
    fwa_tokenizer *t = open_tiny();
    char *text = check_alloc(LENGTH);
    memset(text, 'a', LENGTH);
    fwa_tokens tokens = {0};
    check_ok(fwa_tokenizer_encode(t, text, LENGTH, &tokens));
    assert_int_equal(tokens.count, LENGTH / 4);
    for (size_t i = 0; i < tokens.count; i++) assert_int_equal(tokens.at[i], AAAA);
    free(tokens.at);
    fwa_tokenizer_close(t);
}

static void open_fails(const char *says) {
    fwa_tokenizer *t;
    fwa_status status = fwa_tokenizer_open(&t, temp_path("tiny"));
    assert_null(t);
    assert_int_equal(fwa_status_exit_code(status), 2);
    check_message(says);
}

static void write_file(const char *name, const char *text) {
    temp_write(temp_path(name), text, strlen(text));
}

// Ids that other programs give to words of their own: they are read, and never made.
static void tokens_without_merges_stand_for_no_text(void **state) {
    (void)state;
    fwa_tokenizer *t;
    fwa_text back = {0};
    fwa_tokenizer_close(open_tiny());
    write_file("tiny/vocab.bpe", "#version: 0.2\nt h\na a\n");
    check_ok(fwa_tokenizer_open(&t, temp_path("tiny")));
    check_text(t, "the in aaaa", 256, 'e', ' ', 'i', 'n', ' ', AA, AA);
    check_ok(fwa_tokenizer_decode(t, (const int32_t[]){THE, AAAA}, 2, &back));
    assert_string_equal(back.at, "theaaaa");
    free(back.at);
    fwa_tokenizer_close(t);
}

static void files_that_are_no_tokenizer_are_refused(void **state) {
    (void)state;
    open_fails("encoder.json");
    fwa_tokenizer_close(open_tiny());
    write_file("tiny/vocab.bpe", "#version: 0.2\nt h\nth\n");
    open_fails("vocab.bpe:3: got \"th\"");
    write_file("tiny/vocab.bpe", "#version: 0.2\nt h\nt x\n");
    open_fails("vocab.bpe:3: got \"t x\"");
    assert_int_equal(remove(temp_path("tiny/vocab.bpe")), 0);
    open_fails("vocab.bpe");
    write_file("tiny/vocab.bpe", "");
    write_file("tiny/encoder.json", "{\"a\": 0,\n \"b\" 1}");
    open_fails("encoder.json:2");
    write_file("tiny/encoder.json", "[]");
    open_fails("expected an object");
    write_file("tiny/encoder.json", "{\"a\": 0, \"b\": 2}");
    open_fails("the id of \"b\" is 2");
    write_file("tiny/encoder.json", "{\"a\": 0, \"b\": 0}");
    open_fails("same id 0");
    write_file("tiny/encoder.json", "{\"a\": 0}");
    open_fails("no <|endoftext|>");
    write_file("tiny/encoder.json", "{\"a\": 0, \"<|endoftext|>\": 1}");
    open_fails("no token for byte 0x00");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_split_as_by_gpt2),
        temp_test(pairs_merge_in_order),
        temp_test(every_byte_comes_back),
        temp_test(results_are_appended_or_left),
        temp_test(windows_and_heaps_give_what_plain_merging_gives),
        temp_test(long_pieces_are_encoded_in_reasonable_time),
        temp_test(tokens_without_merges_stand_for_no_text),
        temp_test(files_that_are_no_tokenizer_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
