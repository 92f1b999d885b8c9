// Language modelling over token shards: a flat stream cut into sequences, shuffled anew every epoch.
#include "train/tasks/task.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/rng.h"
#include "core/shape.h"
#include "io/shards.h"

typedef struct lm {
    fwa_shards *shards[2]; // by split; NULL: no such data
    uint64_t seed;
} lm;

// Place in the stream, in sequences, of sequence number i.
static int64_t sequence_place(const fwa_source *source, fwa_split split, int64_t i) {
    const lm *task = source->impl;
    const int64_t sequences = source->sequences[split];
    const int64_t index = i % sequences;
    if (split == FWA_SPLIT_VAL) return index;
    const uint64_t key = fwa_rng_u64(task->seed, fwa_rng_hash("lm epoch"), (uint64_t)(i / sequences));
    return (int64_t)fwa_rng_permute(key, (uint64_t)sequences, (uint64_t)index);
}

static fwa_status lm_fill(const fwa_source *source, fwa_split split, int64_t first, int64_t count, int32_t *tokens,
                          int32_t *targets) {
    const lm *task = source->impl;
    const fwa_shards *shards = task->shards[split];
    const int64_t T = source->T;
    FWA_CHECK(shards != NULL, FWA_CONFIG, "data.val is empty; expected a glob of token shards to evaluate on");
    FWA_CHECK(first >= 0, FWA_USAGE, "sequence number %" PRId64 "; expected one >= 0", first);
    for (int64_t i = 0; i < count; i++, tokens += T, targets += T) {
        const int64_t start = sequence_place(source, split, first + i) * T;
        FWA_TRY(fwa_shards_check(shards, start, T + 1));
        fwa_shards_read(shards, start, T, tokens);
        memcpy(targets, tokens + 1, (size_t)(T - 1) * sizeof *targets);
        fwa_shards_read(shards, start + T, 1, targets + T - 1);
    }
    return FWA_OK;
}

static void lm_destroy(fwa_source *source) {
    if (source == NULL) return;
    lm *task = source->impl;
    for (int split = 0; split < 2; split++) {
        if (task->shards[split] != NULL) fwa_shards_close(task->shards[split]);
    }
    free(task);
    free(source);
}

static fwa_status open_split(fwa_source *source, fwa_split split, const char *key, const char *pattern) {
    lm *task = source->impl;
    FWA_TRY(fwa_shards_open(&task->shards[split], pattern, source->vocab));
    const int64_t tokens = fwa_shards_tokens(task->shards[split]);
    source->sequences[split] = (tokens - 1) / source->T;
    FWA_CHECK(source->sequences[split] >= 1, FWA_CONFIG,
              "%s '%s' has %" PRId64 " token%s in %d file%s; one sequence of train.seq_len %" PRId64 " needs %" PRId64,
              key, pattern, tokens, fwa_plural(tokens), fwa_shards_files(task->shards[split]),
              fwa_plural(fwa_shards_files(task->shards[split])), source->T, source->T + 1);
    source->fingerprint = source->fingerprint * 3 + fwa_shards_fingerprint(task->shards[split]);
    return FWA_OK;
}

// Shards of another tokenizer have another mark, or none: nothing would part their documents.
static void look_for_documents(const fwa_shards *shards) {
    enum { LOOKED_AT = 1 << 20, BLOCK = 4096 };
    const int64_t end = fwa_min(fwa_shards_tokens(shards), LOOKED_AT);
    int32_t block[BLOCK];
    for (int64_t start = 0; start < end; start += BLOCK) {
        const int64_t count = fwa_min(BLOCK, end - start);
        fwa_shards_read(shards, start, count, block);
        for (int64_t i = 0; i < count; i++)
            if (block[i] == FWA_LM_DOCUMENT) return;
    }
    fwa_log_warn("data.reset_documents: none of the first %" PRId64 " tokens of data.train is the document mark %d, so "
                 "no state is emptied there; shards of another tokenizer have another mark",
                 end, FWA_LM_DOCUMENT);
}

fwa_status fwa_source_lm_create(fwa_source **out, const fwa_config *config) {
    *out = NULL;
    FWA_CHECK(config->model.vocab_size >= 1, FWA_CONFIG, "model.vocab_size is %" PRId64 "; expected at least 1",
              config->model.vocab_size);
    FWA_CHECK(config->eval.every <= 0 || config->data.val[0] != '\0', FWA_CONFIG,
              "eval.every is %" PRId64 " but data.val is empty; expected a glob of token shards, or eval.every 0",
              config->eval.every);
    fwa_source *source = calloc(1, sizeof *source);
    lm *task = calloc(1, sizeof *task);
    if (source == NULL || task == NULL) {
        free(source);
        free(task);
        FWA_FAIL(FWA_MEMORY, "no memory for the language-modelling task");
    }
    task->seed = (uint64_t)config->run.seed;
    *source = (fwa_source){.name = "lm",
                           .T = fwa_source_length(config),
                           .vocab = fwa_source_vocab(config),
                           .impl = task,
                           .fill = lm_fill,
                           .destroy = lm_destroy};
    fwa_status status = FWA_OK;
    FWA_TRY_GOTO(open_split(source, FWA_SPLIT_TRAIN, "data.train", config->data.train), failed);
    if (config->data.reset_documents) look_for_documents(task->shards[FWA_SPLIT_TRAIN]);
    if (config->data.val[0] != '\0') {
        FWA_TRY_GOTO(open_split(source, FWA_SPLIT_VAL, "data.val", config->data.val), failed);
    }
    *out = source;
    return FWA_OK;
failed:
    lm_destroy(source);
    return status;
}
