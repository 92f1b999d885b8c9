// Evaluation sets in the llm.c multiple-choice layout.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/files.h"
#include "io/shards.h"
#include "train/eval/questions.h"

#define HEADER 1024 // bytes
#define START  65535

// What is left of one example, in uint16.
typedef struct cursor {
    const fwa_questions *set;
    int64_t number;
    const uint16_t *at, *end;
} cursor;

static fwa_status read_file(fwa_questions *q, size_t *bytes) {
    FWA_TRY(fwa_input_check(q->path, FWA_INPUT_FILE));
    FILE *file = fopen(q->path, "rb");
    FWA_CHECK(file, FWA_CONFIG, "cannot open %s: %s", q->path, strerror(errno));
    fwa_status status = FWA_OK;
    FWA_CHECK_GOTO(fseek(file, 0, SEEK_END) == 0 && ftell(file) >= 0, FWA_IO, done, "cannot read the size of %s: %s",
                   q->path, strerror(errno));
    *bytes = (size_t)ftell(file);
    rewind(file);
    q->map = malloc(*bytes + 1);
    FWA_CHECK_GOTO(q->map, FWA_MEMORY, done, "%s: no memory for %zu bytes", q->path, *bytes);
    FWA_CHECK_GOTO(fread(q->map, 1, *bytes, file) == *bytes, FWA_IO, done, "cannot read %s: %s", q->path,
                   strerror(errno));
done:
    fclose(file);
    return status;
}

static fwa_status check_header(const fwa_questions *q, size_t bytes, int32_t *examples) {
    int32_t header[3];
    FWA_CHECK(bytes >= HEADER, FWA_FORMAT, "%s has %zu byte%s: expected a header of %d and examples", q->path, bytes,
              fwa_plural((int64_t)bytes), HEADER);
    memcpy(header, q->map, sizeof header);
    FWA_CHECK(header[0] == FWA_CHOICES_MAGIC && header[1] == 1, FWA_FORMAT,
              "%s has magic %d, version %d: expected %d, 1, a multiple-choice set%s", q->path, header[0], header[1],
              FWA_CHOICES_MAGIC, header[0] == FWA_SHARD_MAGIC ? "; this is a stream of tokens (--task ppl)" : "");
    FWA_CHECK(header[2] > 0, FWA_FORMAT, "%s counts %d examples, expected at least 1", q->path, header[2]);
    *examples = header[2];
    return FWA_OK;
}

static fwa_status next(cursor *c, const char *what, uint16_t *value) {
    FWA_CHECK(c->at < c->end, FWA_FORMAT, "%s: example %lld ends before %s: the file is damaged", c->set->path,
              (long long)c->number, what);
    *value = *c->at++;
    return FWA_OK;
}

static fwa_status next_ids(cursor *c, const char *what, bool may_be_empty, const uint16_t **ids, int64_t *count) {
    uint16_t value;
    FWA_TRY(next(c, what, &value));
    FWA_CHECK(value <= c->end - c->at, FWA_FORMAT, "%s: example %lld: %s of %d token%s, left in it: %lld", c->set->path,
              (long long)c->number, what, value, fwa_plural(value), (long long)(c->end - c->at));
    FWA_CHECK(value > 0 || may_be_empty, FWA_FORMAT, "%s: example %lld: %s is empty: nothing to score", c->set->path,
              (long long)c->number, what);
    *ids = c->at;
    *count = value;
    c->at += value;
    return FWA_OK;
}

// Behind start mark, bytes and index.
static fwa_status read_example(fwa_questions *q, cursor *c) {
    uint16_t gold, choices;
    fwa_question *question;
    fwa_question_choice context = {0};
    FWA_TRY(next(c, "its label", &gold));
    FWA_TRY(next(c, "the number of its completions", &choices));
    FWA_CHECK(choices >= 2 && gold < choices, FWA_FORMAT,
              "%s: example %lld: label %d of %d completions, expected at least 2 and a label below", q->path,
              (long long)c->number, gold, choices);
    FWA_TRY(next_ids(c, "the context", true, &context.context_ids, &context.context_count));
    FWA_TRY(fwa_questions_add(q, c->number, choices, &question));
    question->gold = gold;
    fwa_status status = FWA_OK;
    for (int i = 0; i < choices && status == FWA_OK; i++) {
        question->choice[i] = context;
        status = next_ids(c, "a completion", false, &question->choice[i].ids, &question->choice[i].count);
    }
    if (status != FWA_OK) free(question->choice);
    FWA_TRY(status);
    q->count++;
    return FWA_OK;
}

fwa_status fwa_questions_read_ids(fwa_questions *q) {
    size_t bytes = 0;
    int32_t examples = 0;
    q->ids = true;
    FWA_TRY(read_file(q, &bytes));
    FWA_TRY(check_header(q, bytes, &examples));
    const uint16_t *at = (const uint16_t *)(const void *)(q->map + HEADER), *end = at + (bytes - HEADER) / 2;
    for (int64_t number = 1; number <= examples; number++) {
        const int64_t left = end - at, size = left >= 3 ? at[1] / 2 : 0;
        FWA_CHECK(left >= 3 && at[0] == START && size >= 3 && size <= left, FWA_FORMAT,
                  "%s: example %lld of %d is no example: the file is damaged", q->path, (long long)number, examples);
        cursor c = {q, number, at + 3, at + size};
        FWA_TRY(read_example(q, &c));
        at += size;
    }
    return FWA_OK;
}
