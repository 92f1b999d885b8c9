// What a model remembers of sequences that it reads in segments, one behind the other: of every layer the last rows of
// its projection, for the short convolutions, and the state of its rule. Of constant size, but for softmax attention,
// whose cache of keys and values has room for a number of tokens that is fixed at the start.
//
// Activations that are created over a memory read a segment [B,T] as the continuation of what it holds
// (fwa_model_read); activations of several T may share one. Not collective.
#ifndef FWA_LAYERS_MEMORY_H
#define FWA_LAYERS_MEMORY_H

#include "core/arena.h"
#include "kernels/rule.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fwa_model;

typedef struct fwa_layer_memory {
    fwa_tensor conv;          // act [B,W-1,columns of q, k, v], zeros before the first token; absent: no convolutions
    fwa_mixer_state state[2]; // mst; tails with all their room. A segment reads one and writes the other; a cache is
                              // the first alone and grows in place
} fwa_layer_memory;

typedef struct fwa_memory {
    fwa_backend *backend; // borrowed
    const struct fwa_model *model;
    fwa_arena *arena;
    int64_t B;        // sequences
    int64_t capacity; // tokens that caches have room for; 0: no layer has a cache
    int64_t position; // tokens read
    int64_t held;     // of these, tokens of the document at hand: what is remembered
    int now;          // the state that is read
    int L;
    fwa_layer_memory *layers; // [L]
} fwa_memory;

// For B sequences of `model`, which is borrowed; `capacity` counts only where a layer has a cache. Empty. The caller
// frees *out with fwa_memory_destroy. FWA_MEMORY names the bytes.
FWA_MUST_CHECK fwa_status fwa_memory_create(fwa_memory **out, const struct fwa_model *model, fwa_backend *backend,
                                            int64_t B, int64_t capacity);
void fwa_memory_destroy(fwa_memory *memory);
size_t fwa_memory_bytes(const fwa_memory *memory);
// Nothing is carried into the next token, which starts a document; positions go on counting.
FWA_MUST_CHECK fwa_status fwa_memory_forget(fwa_memory *memory);

// A tensor of what is remembered, for files; its name is "layers.3.S".
typedef struct fwa_memory_part {
    char name[64];
    fwa_tensor tensor; // the backend's memory; dense where B is 1
} fwa_memory_part;

// The parts at position and held, at most 6 a layer: list [6 L]. Returns their number. To restore a memory: set both,
// ask for the parts, fill them.
int fwa_memory_parts(const fwa_memory *memory, fwa_memory_part *list);

#ifdef __cplusplus
}
#endif
#endif
