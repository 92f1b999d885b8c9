// A mixer layer that continues what a memory holds (layers/memory.h). Private to layers/.
#ifndef FWA_LAYERS_MIXER_MEMORY_H
#define FWA_LAYERS_MIXER_MEMORY_H

#include "layers/memory.h"
#include "layers/mixer_layer.h"

#ifdef __cplusplus
extern "C" {
#endif

// Plans the layer's part of a memory for B sequences, caches with room for `capacity` tokens.
FWA_MUST_CHECK fwa_status fwa_mixer_memory_plan(const fwa_mixer_layer *layer, const fwa_backend *backend, int64_t B,
                                                int64_t capacity, fwa_arena *arena, fwa_layer_memory *memory);
bool fwa_mixer_memory_cached(const fwa_mixer_layer *layer);
// The state that is used after `held` tokens of a document, in the memory of `all`: absent for none.
fwa_mixer_state fwa_mixer_memory_state(const fwa_mixer_layer *layer, const fwa_mixer_state *all, int64_t held);

// Sets acts->cut.conv, and *scratch_bytes to the larger of itself and what the functions below need.
FWA_MUST_CHECK fwa_status fwa_mixer_memory_plan_acts(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                                     fwa_mixer_acts *acts, size_t *scratch_bytes);
// Keeps the last rows of the projection for the next segment; the features have been computed.
FWA_MUST_CHECK fwa_status fwa_mixer_memory_keep_conv(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                                     const fwa_mixer_acts *acts, fwa_tensor scratch);
// The rule: acts->o, and the state behind this segment.
FWA_MUST_CHECK fwa_status fwa_mixer_memory_forward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                                   const fwa_mixer_acts *acts, fwa_tensor scratch);

#ifdef __cplusplus
}
#endif
#endif
