// Reading text and asking what comes next, token by token: a model over a memory (layers/memory.h), on one process.
//
// Long stretches are read in blocks whose ends lie at multiples of FWA_DECODER_BLOCK tokens, the rest one by one and
// not before what follows is asked for, so that a text read in parts, at whatever places it is cut, goes through the
// same products as the same text at once: memory and logits have the same bits. Not collective.
#ifndef FWA_TRAIN_EVAL_DECODER_H
#define FWA_TRAIN_EVAL_DECODER_H

#include "train/eval/loaded.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_DECODER_BLOCK 64

typedef struct fwa_decoder {
    const fwa_loaded *loaded; // borrowed
    fwa_memory *memory;
    fwa_activations *one, *block; // [B,1]; [1,FWA_DECODER_BLOCK], NULL for several sequences
    fwa_tokens pending;           // taken, not read yet
    void *row;                    // logits as the device has them
    double *logits;               // [B,N]
} fwa_decoder;

// For B sequences; `context`: tokens that attention remembers, at most. The caller frees *out with fwa_decoder_destroy.
FWA_MUST_CHECK fwa_status fwa_decoder_create(fwa_decoder **out, const fwa_loaded *loaded, int64_t B, int64_t context);
void fwa_decoder_destroy(fwa_decoder *decoder);

// Takes the next tokens of one sequence. With data.reset_documents a document mark forgets what was before it.
// FWA_CONFIG where attention has no room.
FWA_MUST_CHECK fwa_status fwa_decoder_take(fwa_decoder *decoder, const int32_t *tokens, int64_t count);
// decoder->logits: of what follows the tokens taken, of which there is at least one. Reads what is pending.
FWA_MUST_CHECK fwa_status fwa_decoder_ask(fwa_decoder *decoder);
// Tokens taken so far: the position of the next one.
int64_t fwa_decoder_position(const fwa_decoder *decoder);

// Sequences start anew, at position 0.
FWA_MUST_CHECK fwa_status fwa_decoder_restart(fwa_decoder *decoder);
// One token of each sequence, and decoder->logits of what follows each. Documents are not looked for.
FWA_MUST_CHECK fwa_status fwa_decoder_step(fwa_decoder *decoder, const int32_t *tokens);

#ifdef __cplusplus
}
#endif
#endif
