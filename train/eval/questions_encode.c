// Questions to tokens.
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "io/utf8.h"
#include "train/eval/questions.h"

#define PARTING "\n\n" // between solved questions

// The j-th question in front of question i.
static int64_t shot(const fwa_questions *q, const fwa_shots *shots, int64_t i, int64_t j) {
    const uint64_t key = fwa_rng_u64((uint64_t)shots->seed, fwa_rng_hash(q->name), (uint64_t)i);
    const int64_t other = (int64_t)fwa_rng_permute(key, (uint64_t)(q->count - 1), (uint64_t)j);
    return other < i ? other : other + 1;
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static fwa_status add_shots_text(const fwa_questions *q, const fwa_shots *shots, int64_t i, fwa_text *text) {
    for (int64_t j = 0; j < shots->count; j++) {
        const fwa_question *other = &q->at[shot(q, shots, i, j)];
        const fwa_question_choice *c = &other->choice[other->gold];
        FWA_TRY(fwa_text_append(text, c->context, c->context_bytes));
        FWA_TRY(fwa_text_append(text, " ", 1));
        FWA_TRY(fwa_text_append(text, c->text, c->bytes));
        FWA_TRY(fwa_text_append(text, PARTING, strlen(PARTING)));
    }
    return FWA_OK;
}

static fwa_status build_text(const fwa_questions *q, const fwa_shots *shots, int64_t i, const fwa_question_choice *c,
                             fwa_text *text, size_t *context) {
    FWA_TRY(add_shots_text(q, shots, i, text));
    FWA_TRY(fwa_text_append(text, c->context, c->context_bytes));
    *context = text->count;
    while (*context > 0 && is_space(text->at[*context - 1])) --*context;
    FWA_TRY(fwa_text_append(text, " ", 1));
    return fwa_text_append(text, c->text, c->bytes);
}

// Tokens of the whole, and how many the context has.
static fwa_status encode_text(const fwa_tokenizer *t, const fwa_text *text, size_t context, fwa_tokens *out,
                              int64_t *first) {
    const size_t start = out->count;
    if (context == 0) {
        FWA_TRY(fwa_tokens_reserve(out, 1));
        out->at[out->count++] = fwa_tokenizer_document(t);
        *first = 1;
    } else {
        FWA_TRY(fwa_tokenizer_encode(t, text->at, context, out));
        *first = (int64_t)(out->count - start);
        out->count = start;
    }
    return fwa_tokenizer_encode(t, text->at, text->count, out);
}

static fwa_status add_ids(const uint16_t *ids, int64_t count, fwa_tokens *out) {
    FWA_TRY(fwa_tokens_reserve(out, (size_t)count));
    for (int64_t i = 0; i < count; i++) out->at[out->count++] = ids[i];
    return FWA_OK;
}

// The parting in front of a text.
static fwa_status add_parting(const fwa_tokenizer *t, fwa_tokens *out) {
    static const char text[] = PARTING "A";
    FWA_TRY(fwa_tokenizer_encode(t, text, sizeof text - 1, out));
    out->count--;
    return FWA_OK;
}

static fwa_status encode_ids(const fwa_questions *q, const fwa_tokenizer *t, const fwa_shots *shots, int64_t i,
                             const fwa_question_choice *c, fwa_tokens *out, int64_t *first) {
    const size_t start = out->count;
    FWA_CHECK(t || shots->count == 0, FWA_CONFIG,
              "%s holds tokens: questions in front of others are parted by text, which needs --tokenizer", q->path);
    for (int64_t j = 0; j < shots->count; j++) {
        const fwa_question *other = &q->at[shot(q, shots, i, j)];
        const fwa_question_choice *gold = &other->choice[other->gold];
        FWA_TRY(add_ids(gold->context_ids, gold->context_count, out));
        FWA_TRY(add_ids(gold->ids, gold->count, out));
        FWA_TRY(add_parting(t, out));
    }
    FWA_TRY(add_ids(c->context_ids, c->context_count, out));
    *first = (int64_t)(out->count - start);
    FWA_CHECK(*first > 0, FWA_FORMAT, "%s: example %lld has no context", q->path, (long long)q->at[i].place);
    return add_ids(c->ids, c->count, out);
}

fwa_status fwa_questions_encode(const fwa_questions *q, const fwa_tokenizer *t, const fwa_shots *shots, int64_t vocab,
                                int64_t i, int c, fwa_tokens *out, int64_t *first) {
    const fwa_question *question = &q->at[i];
    const size_t start = out->count;
    if (q->ids) {
        FWA_TRY(encode_ids(q, t, shots, i, &question->choice[c], out, first));
    } else {
        fwa_text text = {0};
        size_t context = 0;
        fwa_status status = build_text(q, shots, i, &question->choice[c], &text, &context);
        if (status == FWA_OK) status = encode_text(t, &text, context, out, first);
        free(text.at);
        FWA_TRY(status);
    }
    for (size_t k = start; k < out->count; k++)
        FWA_CHECK(out->at[k] < vocab, FWA_FORMAT, "%s: %s %lld has token %d, the model knows ids below %lld", q->path,
                  q->ids ? "example" : "line", (long long)question->place, out->at[k], (long long)vocab);
    FWA_CHECK(*first < (int64_t)(out->count - start), FWA_FORMAT, "%s: %s %lld: choice %d adds no token to its context",
              q->path, q->ids ? "example" : "line", (long long)question->place, c);
    return FWA_OK;
}

// Characters of UTF-8 text; a byte that belongs to none counts as one.
static int64_t count_characters(const char *text, size_t bytes) {
    int64_t count = 0;
    for (size_t i = 0; i < bytes; count++) {
        const size_t length = fwa_utf8_bytes((const unsigned char *)text + i, bytes - i);
        i += length > 0 ? length : 1;
    }
    return count;
}

fwa_status fwa_questions_characters(const fwa_questions *q, const fwa_tokenizer *t, int64_t i, int c,
                                    int64_t *characters) {
    const fwa_question_choice *choice = &q->at[i].choice[c];
    *characters = 0;
    if (!q->ids) {
        *characters = count_characters(choice->text, choice->bytes);
        return FWA_OK;
    }
    if (!t) return FWA_OK;
    fwa_text text = {0};
    fwa_tokens ids = {0};
    fwa_status status = add_ids(choice->ids, choice->count, &ids);
    if (status == FWA_OK) status = fwa_tokenizer_decode(t, ids.at, ids.count, &text);
    if (status == FWA_OK) {
        const size_t space = text.count > 1 && text.at[0] == ' ';
        *characters = count_characters(text.at + space, text.count - space);
    } else {
        fwa_error_raise(status, __FILE__, __LINE__, __func__, "%s: example %lld: the tokenizer lacks a token", q->path,
                        (long long)q->at[i].place);
    }
    free(text.at);
    free(ids.at);
    return status;
}
