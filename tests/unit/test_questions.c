// Questions to tokens: where context and choice part, solved questions in front, characters.
#include "tests/temp_folder.h"
#include "train/eval/questions.h"

enum { MARK = 256, VOCAB = 257 }; // plain bytes

typedef struct question_case {
    fwa_questions set;
    fwa_tokenizer *tokenizer;
} question_case;

static void open_case(question_case *c, const char *text) {
    const char *path = temp_path("set.jsonl");
    temp_write(path, text, strlen(text));
    check_ok(fwa_questions_read(&c->set, path));
    check_ok(fwa_tokenizer_open(&c->tokenizer, "bytes"));
}

static void close_case(question_case *c) {
    fwa_questions_free(&c->set);
    fwa_tokenizer_close(c->tokenizer);
}

// The text of context and choice with '|' where they part, '<' for the document mark.
static void expect_text(const question_case *c, int64_t i, int choice, const char *expected) {
    const fwa_shots none = {0, 0};
    fwa_tokens tokens = {0};
    int64_t first;
    char text[256];
    int n = 0;
    check_ok(fwa_questions_encode(&c->set, c->tokenizer, &none, VOCAB, i, choice, &tokens, &first));
    for (int64_t t = 0; t < (int64_t)tokens.count; t++) {
        if (t == first) text[n++] = '|';
        text[n++] = tokens.at[t] == MARK ? '<' : (char)tokens.at[t];
    }
    text[n] = '\0';
    assert_string_equal(text, expected);
    free(tokens.at);
}

static void test_context_and_choice(void **state) {
    (void)state;
    question_case c;
    open_case(&c, "{\"task\": \"two words\", \"query\": \"a b\", \"choices\": [\"c\", \" d\"], \"gold\": 1}\n"
                  "\n"
                  "{\"query\": \"a \\n\", \"choices\": [\"c\", \"\\u00e9t\\u00e9\"], \"gold\": 0}\n"
                  "{\"query\": \"\", \"choices\": [\"c\", \"d\"], \"gold\": 0}\n"
                  "{\"context_options\": [\"x\", \"yz \"], \"continuation\": \"w\", \"gold\": 0}\n");
    assert_string_equal(c.set.name, "two_words");
    assert_int_equal(c.set.count, 4);
    assert_int_equal(c.set.at[1].place, 3);
    expect_text(&c, 0, 0, "a b| c");
    expect_text(&c, 0, 1, "a b|  d");
    expect_text(&c, 1, 0, "a| \n c");
    expect_text(&c, 2, 1, "<| d");
    expect_text(&c, 3, 0, "x| w");
    expect_text(&c, 3, 1, "yz|  w");
    int64_t characters;
    check_ok(fwa_questions_characters(&c.set, c.tokenizer, 1, 1, &characters));
    assert_int_equal(characters, 3);
    check_ok(fwa_questions_characters(&c.set, c.tokenizer, 0, 1, &characters));
    assert_int_equal(characters, 2);
    close_case(&c);
}

static void test_words(void **state) {
    (void)state;
    question_case c;
    open_case(&c, "{\"context\": \"a b\", \"target\": \"c\"}\n{\"context\": \"d\\u0000\", \"target\": \"e f\"}");
    assert_string_equal(c.set.name, "set");
    assert_true(c.set.word);
    expect_text(&c, 0, 0, "a b| c");
    close_case(&c);
}

enum { QUESTIONS = 9, SHOTS = 3 };

// Which questions stand in front of question i, as letters.
static void shots_of(const question_case *c, int64_t i, int64_t seed, char out[SHOTS + 1]) {
    const fwa_shots shots = {SHOTS, seed};
    fwa_tokens tokens = {0};
    int64_t first;
    char text[64] = "", expected[64];
    check_ok(fwa_questions_encode(&c->set, c->tokenizer, &shots, VOCAB, i, 0, &tokens, &first));
    assert_in_range(tokens.count, 1, sizeof text - 1);
    for (size_t t = 0; t < tokens.count; t++) text[t] = (char)tokens.at[t];
    for (int j = 0; j < SHOTS; j++) out[j] = text[9 * j + 1];
    out[SHOTS] = '\0';
    int n = 0;
    for (int j = 0; j < SHOTS; j++) n += snprintf(expected + n, sizeof expected - (size_t)n, "q%c: yes\n\n", out[j]);
    snprintf(expected + n, sizeof expected - (size_t)n, "q%c: no", (char)('a' + i));
    assert_string_equal(text, expected);
    assert_int_equal(first, n + 3);
    free(tokens.at);
}

// Solved questions are others of the set, each once, the same for the same seed.
static void test_shots(void **state) {
    (void)state;
    question_case c;
    char text[QUESTIONS * 80];
    int n = 0, moved = 0, seen[QUESTIONS] = {0};
    for (int i = 0; i < QUESTIONS; i++)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "{\"query\": \"q%c:\", \"choices\": [\"no\", \"yes\"], \"gold\": 1}\n", 'a' + i);
    open_case(&c, text);
    for (int64_t i = 0; i < QUESTIONS; i++) {
        char one[SHOTS + 1], again[SHOTS + 1], other[SHOTS + 1];
        shots_of(&c, i, 1, one);
        shots_of(&c, i, 1, again);
        shots_of(&c, i, 2, other);
        assert_string_equal(one, again);
        moved += strcmp(one, other) != 0;
        for (int j = 0; j < SHOTS; j++) {
            assert_in_range(one[j], 'a', 'a' + QUESTIONS - 1);
            assert_int_not_equal(one[j], 'a' + i);
            for (int k = 0; k < j; k++) assert_int_not_equal(one[j], one[k]);
            seen[one[j] - 'a']++;
        }
    }
    assert_true(moved >= QUESTIONS - 2);
    for (int i = 0; i < QUESTIONS; i++) assert_true(seen[i] > 0);
    close_case(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        temp_test(test_context_and_choice),
        temp_test(test_words),
        temp_test(test_shots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
