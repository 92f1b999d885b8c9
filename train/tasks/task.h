// Where training sequences come from. A source answers for sequence number i of a split, a pure function of
// (seed, split, i): global batch n of G sequences is numbers n*G .. n*G+G-1, whatever the number of ranks, and resuming
// needs n only. Not collective, read-only after creation, callable from several threads.
#ifndef FWA_TRAIN_TASKS_TASK_H
#define FWA_TRAIN_TASKS_TASK_H

#include "io/config.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fwa_split { FWA_SPLIT_TRAIN, FWA_SPLIT_VAL } fwa_split;

#define FWA_NO_TARGET   (-1)  // a position without loss
#define FWA_LM_LENGTH   1024  // of a sequence of the lm task where train.seq_len is 0
#define FWA_LM_DOCUMENT 50256 // GPT-2's <|endoftext|>, in front of every document
#define FWA_LM_VOCAB    50257 // ids of GPT-2's tokenizer, which the shards are made with

typedef struct fwa_source fwa_source;
struct fwa_source {
    const char *name;
    int64_t T;            // tokens of a sequence
    int64_t vocab;        // ids that can occur and be predicted are below this; the rest of vocab_size is padding
    int64_t sequences[2]; // of one epoch, by split; INT64_MAX where they never repeat
    uint64_t fingerprint; // of the data; 0 where it is a pure function of the configuration
    void *impl;
    // tokens, targets [count,T]: sequences first .. first+count-1. targets hold FWA_NO_TARGET where there is no loss.
    fwa_status (*fill)(const fwa_source *, fwa_split, int64_t first, int64_t count, int32_t *tokens, int32_t *targets);
    void (*destroy)(fwa_source *);
};

// Ids that the configuration's task uses, known without its data.
int64_t fwa_source_vocab(const fwa_config *config);
// Id that starts a document of its sequences.
int32_t fwa_source_document(const fwa_config *config);
// Tokens of one of its sequences, known without its data.
int64_t fwa_source_length(const fwa_config *config);
// The source that the configuration names. Owned by the caller (source->destroy).
FWA_MUST_CHECK fwa_status fwa_source_create(fwa_source **out, const fwa_config *config);
// Token shards (io/shards.h): sequence i is tokens [p*T, p*T+T] of the stream, p a keyed permutation of the epoch's
// sequences in training, p = i modulo their number in validation. T = train.seq_len (auto, 0: 1024). Validation data
// may be absent (data.val empty) where eval.every is 0: sequences[FWA_SPLIT_VAL] is 0 and filling from it fails.
FWA_MUST_CHECK fwa_status fwa_source_lm_create(fwa_source **out, const fwa_config *config);
// Variable-length addition (docs/addition.md), operand widths task.width_min .. width_max. T = train.seq_len,
// right-padded (auto, 0: what the longest example needs, fwa_addition_length - 1). Sequence i is example i; with
// task.examples E > 0 it is number i % G of update i / G, whose examples n*E .. n*E+E-1 lie in G = train.global_batch
// sequences (addition_packed.h). FWA_CONFIG where an update of the run, or a batch of its validation, does not fit.
FWA_MUST_CHECK fwa_status fwa_source_addition_create(fwa_source **out, const fwa_config *config);

// Order-independent hash of sequences: the sum over them of a hash of (number, tokens, targets), so that ranks can add
// theirs.
uint64_t fwa_batch_hash(int64_t first, int64_t count, int64_t T, const int32_t *tokens, const int32_t *targets);

#ifdef __cplusplus
}
#endif
#endif
