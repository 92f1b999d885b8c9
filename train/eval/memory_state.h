// A decoder's memory to a file and back, for `fwa generate --state-in, --state-out`. Not collective.
#ifndef FWA_TRAIN_EVAL_MEMORY_STATE_H
#define FWA_TRAIN_EVAL_MEMORY_STATE_H

#include "train/eval/decoder.h"

#ifdef __cplusplus
extern "C" {
#endif

// Writes what `decoder` remembers, tokens taken and not yet read included; PATH is whole or as it was.
FWA_MUST_CHECK fwa_status fwa_memory_state_save(const fwa_decoder *decoder, const char *path);
// Puts it into a decoder that has read nothing. FWA_CONFIG where `path` does not exist, is the memory of another model
// or has no room; FWA_FORMAT where it is no memory.
FWA_MUST_CHECK fwa_status fwa_memory_state_load(fwa_decoder *decoder, const char *path);

#ifdef __cplusplus
}
#endif
#endif
