// The files of a GPT-2 tokenizer: bytes of every token and the list of merges. Private to io/.
#ifndef FWA_IO_VOCABULARY_H
#define FWA_IO_VOCABULARY_H

#include "core/status.h"
#include "core/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_merge {
    int32_t left, right, merged; // ids
} fwa_merge;

typedef struct fwa_vocabulary {
    int32_t count;      // tokens
    char *bytes;        // of all tokens, one behind the other
    uint32_t *start;    // [count + 1]: token i is bytes[start[i] .. start[i+1])
    uint64_t *slots;    // open hash of the tokens, 0 is free
    uint32_t slot_mask; // number of slots - 1
    fwa_merge *merges;  // in the order of vocab.bpe
    int32_t merge_count;
    int32_t byte_id[256];
    int32_t document; // <|endoftext|>
} fwa_vocabulary;

// Errors as fwa_tokenizer_open. `vocabulary` may be freed after a failure.
FWA_MUST_CHECK fwa_status fwa_vocabulary_read(fwa_vocabulary *vocabulary, const char *folder);
void fwa_vocabulary_free(fwa_vocabulary *vocabulary);
// Id of the token with these bytes, -1 if there is none.
int32_t fwa_vocabulary_find(const fwa_vocabulary *vocabulary, const char *bytes, size_t count);

#ifdef __cplusplus
}
#endif
#endif
