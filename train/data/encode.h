// Batches of raw text to tokens on several threads, handed back in the order of the text.
#ifndef FWA_TRAIN_DATA_ENCODE_H
#define FWA_TRAIN_DATA_ENCODE_H

#include "train/data/data.h"
#include "train/data/input.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_stretch {
    size_t start; // first token; it ends where the next stretch starts
    int split;    // 0 train, 1 val, -1: that of the stretch before
} fwa_stretch;

typedef struct fwa_encoded {
    fwa_tokens tokens;
    fwa_stretch *stretches;
    size_t count, capacity;
    int64_t bytes, empty; // of text; documents without text
} fwa_encoded;

// Called in order by the thread that runs fwa_data_encode. A failure ends it.
typedef fwa_status (*fwa_encoded_taker)(void *context, const fwa_encoded *encoded);

// Holds at most 2 threads + 2 batches. Ends with the first failure in the order of the text.
FWA_MUST_CHECK fwa_status fwa_data_encode(const fwa_tokenizer *tokenizer, const fwa_tokenize_request *request,
                                          fwa_data_input *input, fwa_encoded_taker take, void *context);

#ifdef __cplusplus
}
#endif
#endif
