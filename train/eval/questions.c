// Evaluation sets in JSONL.
#include "train/eval/questions.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "io/files.h"
#include "io/jsonl.h"
#include "io/utf8.h"

#define CHOICES_MOST 1024

fwa_status fwa_questions_add(fwa_questions *q, int64_t place, int choices, fwa_question **out) {
    if (q->count == q->capacity) {
        const int64_t capacity = 2 * q->capacity + 64;
        fwa_question *grown = realloc(q->at, (size_t)capacity * sizeof *grown);
        FWA_CHECK(grown, FWA_MEMORY, "%s: no memory for %lld questions", q->path, (long long)capacity);
        q->at = grown;
        q->capacity = capacity;
    }
    fwa_question *question = &q->at[q->count];
    *question = (fwa_question){.place = place, .count = choices};
    question->choice = calloc((size_t)choices, sizeof *question->choice);
    FWA_CHECK(question->choice, FWA_MEMORY, "%s: no memory for %d choices", q->path, choices);
    *out = question;
    return FWA_OK;
}

static void free_question(fwa_question *question) {
    json_decref(question->object);
    free(question->choice);
}

void fwa_questions_free(fwa_questions *q) {
    for (int64_t i = 0; i < q->count; i++) free_question(&q->at[i]);
    free(q->at);
    free(q->map);
    memset(q, 0, sizeof *q);
}

// Where a mistake stands: "file:line: ".
#define AT          "%s:%lld: "
#define PLACE(q, n) (q)->path, (long long)(n)

typedef struct line {
    const fwa_questions *set;
    int64_t number;
    json_t *object;
} line;

static fwa_status get_text(const line *l, const json_t *value, const char *name, bool may_be_empty, const char **text,
                           size_t *bytes) {
    FWA_CHECK(json_is_string(value), FWA_FORMAT, AT "expected \"%s\" to be text, got %s", PLACE(l->set, l->number),
              name, value ? "something else" : "none");
    *text = json_string_value(value);
    *bytes = json_string_length(value);
    FWA_CHECK(may_be_empty || *bytes > 0, FWA_FORMAT, AT "\"%s\" is empty: nothing to score", PLACE(l->set, l->number),
              name);
    return FWA_OK;
}

static fwa_status get_list(const line *l, const char *name, const json_t **list, int *count) {
    *list = json_object_get(l->object, name);
    FWA_CHECK(json_is_array(*list), FWA_FORMAT, AT "expected \"%s\" to be a list of texts, got %s",
              PLACE(l->set, l->number), name, *list ? "something else" : "none");
    const size_t size = json_array_size(*list);
    FWA_CHECK(size >= 2 && size <= CHOICES_MOST, FWA_FORMAT, AT "\"%s\" has %zu, expected 2 to %d entries",
              PLACE(l->set, l->number), name, size, CHOICES_MOST);
    *count = (int)size;
    return FWA_OK;
}

static fwa_status get_gold(const line *l, fwa_question *question) {
    const json_t *gold = json_object_get(l->object, "gold");
    FWA_CHECK(json_is_integer(gold), FWA_FORMAT, AT "expected \"gold\", the number of the right choice from 0, got %s",
              PLACE(l->set, l->number), gold ? "something else" : "none");
    const json_int_t value = json_integer_value(gold);
    FWA_CHECK(value >= 0 && value < question->count, FWA_FORMAT, AT "gold is %lld, expected 0 to %d for %d choices",
              PLACE(l->set, l->number), (long long)value, question->count - 1, question->count);
    question->gold = (int)value;
    return FWA_OK;
}

static fwa_status fill_word(const line *l, fwa_question *question) {
    fwa_question_choice *c = question->choice;
    FWA_TRY(get_text(l, json_object_get(l->object, "context"), "context", true, &c->context, &c->context_bytes));
    return get_text(l, json_object_get(l->object, "target"), "target", false, &c->text, &c->bytes);
}

// Choices behind one query, or one continuation behind several contexts.
static fwa_status fill_choices(const line *l, fwa_question *question, const json_t *list, bool partial) {
    for (int i = 0; i < question->count; i++) {
        fwa_question_choice *c = &question->choice[i];
        const json_t *entry = json_array_get(list, (size_t)i);
        const json_t *query = partial ? entry : json_object_get(l->object, "query");
        const json_t *text = partial ? json_object_get(l->object, "continuation") : entry;
        FWA_TRY(get_text(l, query, partial ? "context_options" : "query", !partial, &c->context, &c->context_bytes));
        FWA_TRY(get_text(l, text, partial ? "continuation" : "choices", false, &c->text, &c->bytes));
    }
    return get_gold(l, question);
}

static fwa_status fill(const line *l, fwa_question *question, const json_t *list) {
    if (!list) return fill_word(l, question);
    return fill_choices(l, question, list, json_object_get(l->object, "context_options") == list);
}

// Of letters, digits and a few signs, as it stands in tables and files.
static void set_name(fwa_questions *q, const char *name) {
    snprintf(q->name, sizeof q->name, "%s", name);
    for (char *c = q->name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("_-.:", *c)) *c = '_';
}

static fwa_status add_line(fwa_questions *q, const line *l) {
    const json_t *list = NULL;
    int count = 1;
    const bool word = json_object_get(l->object, "target") != NULL;
    const bool partial = json_object_get(l->object, "context_options") != NULL;
    if (!word) FWA_TRY(get_list(l, partial ? "context_options" : "choices", &list, &count));
    FWA_CHECK(q->count == 0 || word == q->word, FWA_FORMAT,
              AT "this line has %s and the first one of the file does not: one kind a file", PLACE(q, l->number),
              word ? "a \"target\"" : "choices");
    q->word = word;
    fwa_question *question;
    FWA_TRY(fwa_questions_add(q, l->number, count, &question));
    fwa_status status = fill(l, question, list);
    if (status != FWA_OK) {
        free_question(question);
        return fwa_error_pass(status, __FILE__, __LINE__, __func__);
    }
    question->object = json_incref(l->object);
    if (q->count++ == 0) {
        const json_t *name = json_object_get(l->object, "task");
        if (json_is_string(name) && json_string_length(name) > 0) set_name(q, json_string_value(name));
    }
    return FWA_OK;
}

static fwa_status parse_line(fwa_questions *q, int64_t number, const char *text, size_t bytes) {
    json_error_t error;
    line l = {q, number, json_loadb(text, bytes, JSON_ALLOW_NUL, &error)};
    FWA_CHECK(l.object, FWA_FORMAT, AT "byte %d: %s; expected a JSON object a line, in UTF-8", PLACE(q, number),
              error.position, error.text);
    fwa_status status;
    FWA_CHECK_GOTO(json_is_object(l.object), FWA_FORMAT, done, AT "expected a JSON object, got another value",
                   PLACE(q, number));
    FWA_TRY_GOTO(add_line(q, &l), done);
done:
    json_decref(l.object);
    return status;
}

static fwa_status read_lines(fwa_questions *q, FILE *file) {
    char *text = NULL;
    size_t capacity = 0;
    ssize_t bytes;
    int64_t number = 0;
    fwa_status status = FWA_OK;
    while (status == FWA_OK && (bytes = getline(&text, &capacity, file)) >= 0) {
        number++;
        const size_t mark = fwa_utf8_mark(number, text, (size_t)bytes);
        if (!fwa_jsonl_blank(text + mark, (size_t)bytes - mark))
            status = parse_line(q, number, text + mark, (size_t)bytes - mark);
    }
    free(text);
    FWA_TRY(status);
    FWA_CHECK(!ferror(file), FWA_IO, "cannot read %s: %s", q->path, strerror(errno));
    FWA_CHECK(q->count > 0, FWA_FORMAT, "%s has no questions", q->path);
    return FWA_OK;
}

// The file's name without folders and ending, until a line says otherwise.
static void name_after_file(fwa_questions *q) {
    const char *slash = strrchr(q->path, '/'), *base = slash ? slash + 1 : q->path;
    char name[sizeof q->name];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(base, "."), base);
    set_name(q, name);
}

fwa_status fwa_questions_read(fwa_questions *out, const char *path) {
    memset(out, 0, sizeof *out);
    out->path = path;
    name_after_file(out);
    const char *dot = strrchr(path, '.');
    if (dot && strcmp(dot, ".bin") == 0) return fwa_questions_read_ids(out);
    FWA_TRY(fwa_input_check(path, FWA_INPUT_TEXT));
    FILE *file = fopen(path, "r");
    FWA_CHECK(file, FWA_CONFIG, "cannot open %s: %s", path, strerror(errno));
    fwa_status status = read_lines(out, file);
    fclose(file);
    return status;
}
