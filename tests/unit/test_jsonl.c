// Lines of JSONL, and numbers that JSON holds.
#include <math.h>

#include "io/files.h"
#include "io/jsonl.h"
#include "tests/check.h"

// The text of `line`, number `number`; NULL for none. What it fails with is the caller's.
static fwa_status text_of(const char *line, int64_t number, char text[64]) {
    json_t *object;
    const json_t *value;
    const fwa_status status = fwa_jsonl_text("a.jsonl", number, line, strlen(line), "text", &object, &value);
    snprintf(text, 64, "%s", status == FWA_OK && object ? json_string_value(value) : "");
    json_decref(object);
    return status;
}

static void lines_give_their_text(void **state) {
    (void)state;
    char text[64];
    check_ok(text_of("{\"text\": \"a cat\", \"id\": 1}\r\n", 2, text));
    assert_string_equal(text, "a cat");
    check_ok(text_of("\xEF\xBB\xBF{\"text\": \"marked\"}\n", 1, text));
    assert_string_equal(text, "marked");
    check_ok(text_of(" \t\r\n", 3, text));
    assert_string_equal(text, "");
    assert_false(fwa_jsonl_blank("\0\n", 2));
}

static void bad_lines_are_named(void **state) {
    static const struct {
        const char *line, *says;
    } bad[] = {
        {"{\"text\": ", "a.jsonl:7: byte"},
        {"[1]\n", "got no object"},
        {"{\"text\": 1}\n", "got another type"},
        {"{\"other\": \"x\"}\n", "got none of that name"},
    };
    (void)state;
    char text[64];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        check_status(text_of(bad[i].line, 7, text), FWA_FORMAT);
        if (!strstr(fwa_error_message(), bad[i].says)) fail_msg("%s: not in '%s'", bad[i].says, fwa_error_message());
    }
}

static void numbers_are_those_of_json(void **state) {
    (void)state;
    const double values[] = {1.5, 1e-300, (double)NAN, (double)INFINITY, -(double)INFINITY};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        fwa_json_real(values[i], out);
        fputc(' ', out);
    }
    assert_true(fwa_stream_end(out, &text));
    assert_string_equal(text, "1.5 1e-300 null null null ");
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_give_their_text),
        cmocka_unit_test(bad_lines_are_named),
        cmocka_unit_test(numbers_are_those_of_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
