// Evaluation sets of questions with choices, and of contexts whose next word is wanted: JSONL with text, or the llm.c
// multiple-choice layout with tokens. What a model is asked to score is made here. Not collective.
//
// A line of JSONL is an object with one of
//   "query", "choices" [text, ...], "gold" (from 0)                       log P(" " + choice | query)
//   "context_options" [text, ...], "continuation", "gold"                 log P(" " + continuation | option)
//   "context", "target"                                                   log P(" " + target | context): a word
// and perhaps "task", the set's name. Tokens are those of context and continuation together, cut behind as many as the
// context alone has; white space at the end of a context belongs to the continuation; an empty context is the
// tokenizer's document mark.
//
// llm.c: 256 int32 (20240522, 1, number of examples, longest example), then uint16: for each example 65535, its bytes,
// its index, gold, the number of completions, and for the context and every completion a count and tokens.
#ifndef FWA_TRAIN_EVAL_QUESTIONS_H
#define FWA_TRAIN_EVAL_QUESTIONS_H

#include <stdbool.h>

#include "io/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

// Text, or tokens, of one choice.
typedef struct fwa_question_choice {
    const char *context, *text;
    size_t context_bytes, bytes;
    const uint16_t *context_ids, *ids;
    int64_t context_count, count;
} fwa_question_choice;

typedef struct fwa_question {
    int64_t place;   // line of its file, or number of the example, from 1
    int gold, count; // choices; a word: 0 of 1
    fwa_question_choice *choice;
    void *object; // what holds the text
} fwa_question;

typedef struct fwa_questions {
    char name[64];
    const char *path; // the caller's
    bool word, ids;   // words to predict; tokens instead of text
    fwa_question *at;
    int64_t count, capacity;
    char *map; // file of the llm.c layout
} fwa_questions;

// Reads `path`. FWA_FORMAT names file and line, or example: what is no JSON or no UTF-8, members that are missing,
// questions without choices, empty choices, a gold out of range. The caller frees *out, after a failure too.
FWA_MUST_CHECK fwa_status fwa_questions_read(fwa_questions *out, const char *path);
void fwa_questions_free(fwa_questions *questions);

// Solved questions in front: `count` others of the same set, drawn by (seed, name, number of the question).
typedef struct fwa_shots {
    int64_t count, seed;
} fwa_shots;

// Appends the tokens of choice c of question i, shots in front, to *out; those from *first on are the choice's, and
// there is at least one before. FWA_FORMAT where a token is not below `vocab`. tokenizer may be NULL for a set of
// tokens without shots.
FWA_MUST_CHECK fwa_status fwa_questions_encode(const fwa_questions *questions, const fwa_tokenizer *tokenizer,
                                               const fwa_shots *shots, int64_t vocab, int64_t i, int c, fwa_tokens *out,
                                               int64_t *first);
// Characters of the choice without the space in front; 0 where there are only tokens and no tokenizer.
FWA_MUST_CHECK fwa_status fwa_questions_characters(const fwa_questions *questions, const fwa_tokenizer *tokenizer,
                                                   int64_t i, int c, int64_t *characters);

// The llm.c layout; private to questions*.c.
FWA_MUST_CHECK fwa_status fwa_questions_read_ids(fwa_questions *out);
// Room for a question with `choices` choices at the end, which is counted by the caller once it is whole.
FWA_MUST_CHECK fwa_status fwa_questions_add(fwa_questions *questions, int64_t place, int choices, fwa_question **out);

#ifdef __cplusplus
}
#endif
#endif
