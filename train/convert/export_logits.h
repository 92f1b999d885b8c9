// What a model answers, for another program to compare with. Not collective.
#ifndef FWA_TRAIN_CONVERT_EXPORT_LOGITS_H
#define FWA_TRAIN_CONVERT_EXPORT_LOGITS_H

#include "dist/world.h"
#include "train/arguments.h"

#ifdef __cplusplus
extern "C" {
#endif

// Writes a safetensors file with "tokens" I64 [count], the same for all models of a vocabulary, and "logits" [count,
// vocab] in the model's compute type (bf16: F32) of the checkpoint `checkpoint`; settings behind the second word of the
// command line say where and how to compute (train/eval/loaded.h).
FWA_MUST_CHECK fwa_status fwa_export_logits(fwa_world *world, const char *checkpoint, const fwa_arguments *arguments,
                                            int64_t count, const char *path);

#ifdef __cplusplus
}
#endif
#endif
